//! The answer of a host to the survey, with what only the asker knows.

use std::net::IpAddr;

use holdfast_model::Timestamp;

use super::on_node::HostFacts;

/// What a host said of itself.
#[derive(Clone, Debug)]
pub(super) struct SurveyAnswer {
    pub(super) facts: HostFacts,
    pub(super) address: IpAddr,
    /// Our clock when the answer came.
    pub(super) at: Timestamp,
}
