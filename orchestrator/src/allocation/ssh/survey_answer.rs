//! The answer of a host to the survey, with what is only known on this side.

use std::net::IpAddr;

use holdfast_model::Timestamp;

use super::on_node::HostFacts;

#[derive(Clone, Debug)]
pub(super) struct SurveyAnswer {
    pub(super) facts: HostFacts,
    pub(super) address: IpAddr,
    /// The local time at which the answer arrived.
    pub(super) at: Timestamp,
}
