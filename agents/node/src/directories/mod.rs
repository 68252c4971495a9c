//! The job's directories on the node: node paths and their real paths below a virtual node's root (`paths`), and the
//! one agent at a time that may use them (`claim`).

pub(crate) mod claim;
pub mod paths;
