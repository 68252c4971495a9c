//! The answer of a host to the survey, with what only the asker knows.

use std::net::IpAddr;

use holdfast_model::Timestamp;

use super::on_node::Facts;

/// What a host said of itself.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) facts: Facts,
    pub(super) address: IpAddr,
    /// Our clock when the answer came.
    pub(super) at: Timestamp,
}
