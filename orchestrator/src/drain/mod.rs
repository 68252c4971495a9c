//! The drain (DESIGN §9): the newest dataset that can be completed goes from the nodes' caches to the prefix directory.
//!
//! | file | subject |
//! |---|---|
//! | [`plan`] | which dataset, from what the nodes hold; pure |
//! | [`rounds`] | who copies what in which round; pure |
//! | [`work`] | the requests to the agents, and waiting for them |
//! | [`complete`] | scan, verify, rebuild, summary, index, link |
//! | [`resume`] | which directory an interrupted drain left |

pub mod complete;
mod error;
pub mod plan;
pub mod resume;
pub mod rounds;
pub mod work;

pub use error::DrainError;
pub use work::{DrainOrder, DrainReport, Inventories, drain, inventories};
