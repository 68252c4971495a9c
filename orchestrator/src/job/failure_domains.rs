//! The failure domains of the nodes of a job.

use std::collections::BTreeSet;

use holdfast_core::redundancy::groups::{GroupRules, Site};
use holdfast_core::redundancy::registry::form;
use holdfast_core::redundancy::survival::Survival;
use holdfast_model::{Descriptor, NodeName};

use super::settings;
use crate::allocation::{Allocation, AllocationError};
use crate::events::{LogEvent, domains_text};
use crate::relaunch::placement::{first_placement, numbered};
use crate::spec::value_kinds::spelling;
use crate::spec::{DomainKind, FailureDomains, JobSpec, Step};

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

/// What the sets of each redundancy descriptor survive in the first placement of a step; nothing if the nodes are not
/// known yet.
pub fn survival(spec: &JobSpec, step: &Step) -> Vec<String> {
    let allocation = &spec.allocation;
    let Some(nodes) = allocation.known_nodes() else { return Vec::new() };
    let usable: Vec<bool> = nodes.iter().map(|node| !allocation.is_excluded(node)).collect();
    let domains = numbered(nodes.iter().map(|node| allocation.failure_domains.of(node)));
    let run = &step.run;
    let homes = first_placement(run.ranks, run.ranks_per_node, run.nodes, &usable, &domains).unwrap_or_default();
    let site = |home: &u32| Site { node: *home, domain: domains.get(*home as usize).copied().unwrap_or(*home) };
    let sites: Vec<Site> = homes.iter().map(site).collect();
    let of = |asked: &Descriptor| {
        let groups = form(&sites, GroupRules::of(asked)).ok()?;
        let Survival { nodes, domains } = Survival::of(&groups, &sites, asked);
        let kind = allocation.failure_domains.kind;
        let mut parts = vec![survived(nodes, DomainKind::Node)];
        if kind != DomainKind::Node {
            parts.push(survived(domains, kind));
        }
        Some(format!("{} survives the loss of {}", spelling(asked.scheme), parts.join(", ")))
    };
    settings::descriptors(step).iter().filter(|asked| asked.enabled).filter_map(of).collect()
}

/// `any 2 racks`, `no node`.
fn survived(number: usize, kind: DomainKind) -> String {
    if number == 0 { format!("no {}", kind.noun()) } else { format!("any {}", domains_text(number, kind.noun())) }
}
