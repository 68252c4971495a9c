//! The failure domains of the nodes of a job.

use std::collections::BTreeSet;

use holdfast_model::NodeName;

use crate::allocation::{Allocation, AllocationError};
use crate::events::LogEvent;
use crate::spec::{DomainKind, FailureDomains, JobSpec};

/// The failure domains of the job's nodes. Where a manager that knows them does not answer an orchestrator that takes
/// over, nodes count for themselves: the running job matters more.
pub(super) async fn of(
    spec: &JobSpec,
    allocation: &dyn Allocation,
    takes_over: bool,
) -> Result<FailureDomains, AllocationError> {
    let written = &spec.allocation.failure_domains;
    if written.kind != DomainKind::Topology {
        return Ok(written.clone());
    }
    match allocation.switches().await {
        Ok(of_nodes) => Ok(FailureDomains { of_nodes, ..written.clone() }),
        Err(error) if takes_over => {
            tracing::warn!(%error, "the switches of the nodes are not known");
            Ok(written.clone())
        }
        Err(error) => Err(error),
    }
}

/// What is lost at once, where that is not a node.
pub(super) fn event(domains: &FailureDomains, nodes: &[NodeName]) -> Option<LogEvent> {
    if domains.kind == DomainKind::Node {
        return None;
    }
    let names: BTreeSet<String> =
        nodes.iter().filter(|node| domains.of_nodes.contains_key(*node)).map(|node| domains.of(node)).collect();
    let without = domains.without(nodes).cloned().collect();
    Some(LogEvent::FailureDomains { kind: domains.kind.noun().to_owned(), number: names.len(), without })
}
