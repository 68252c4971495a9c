//! The job's directories on the node: node paths and their real paths below a virtual node's root (`paths`), and the
//! one agent at a time that may use them (`claim`); those of a job with the same id in an earlier allocation (`kept`).

pub(crate) mod claim;
pub(crate) mod kept;
pub mod paths;
