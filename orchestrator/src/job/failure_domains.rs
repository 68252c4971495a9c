//! The failure domains of the nodes of a job.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use holdfast_core::redundancy::groups::{GroupRules, Site};
use holdfast_core::redundancy::registry::form;
use holdfast_core::redundancy::survival::Survival;
use holdfast_model::{Descriptor, NodeName};
use serde::Serialize;

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

/// What protects a part of the checkpoints in the first placement of a step: a redundancy descriptor in force.
#[derive(Clone, Debug, Serialize)]
pub struct LevelInForce {
    scheme: String,
    /// Any so many nodes at once.
    survived_nodes: usize,
    /// Any so many failure domains at once.
    survived_domains: usize,
    /// What a failure domain is.
    domain: &'static str,
    every: u64,
    cache: String,
    keep: u32,
    /// It is the only one.
    #[serde(skip)]
    alone: bool,
}

impl fmt::Display for LevelInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevelInForce { scheme, every, cache, keep, .. } = self;
        write!(f, "{scheme} survives the loss of {}", survived(self.survived_nodes, DomainKind::Node.noun()))?;
        if self.domain != DomainKind::Node.noun() {
            write!(f, ", {}", survived(self.survived_domains, self.domain))?;
        }
        if !self.alone {
            write!(f, "; ids that {every} divides, in {cache}, {keep} kept")?;
        }
        Ok(())
    }
}

/// The levels of a step; nothing if the nodes are not known yet.
pub fn levels(spec: &JobSpec, step: &Step) -> Vec<LevelInForce> {
    let allocation = &spec.allocation;
    let Some(nodes) = allocation.known_nodes() else { return Vec::new() };
    let usable: Vec<bool> = nodes.iter().map(|node| !allocation.is_excluded(node)).collect();
    let domains = numbered(nodes.iter().map(|node| allocation.failure_domains.of(node)));
    let run = &step.run;
    let homes = first_placement(run.ranks, run.ranks_per_node, run.nodes, &usable, &domains).unwrap_or_default();
    let site = |home: &u32| Site { node: *home, domain: domains.get(*home as usize).copied().unwrap_or(*home) };
    let sites: Vec<Site> = homes.iter().map(site).collect();
    let enabled: Vec<Descriptor> = settings::descriptors(step).into_iter().filter(|asked| asked.enabled).collect();
    let of = |asked: &Descriptor| {
        let groups = form(&sites, GroupRules::of(asked)).ok()?;
        let Survival { nodes, domains } = Survival::of(&groups, &sites, asked);
        let own = step.checkpoint.redundancy.get(asked.index as usize).and_then(|known| known.policy.keep);
        let cache = step.checkpoint.cache.iter().find(|cache| cache.base == Path::new(&asked.base));
        Some(LevelInForce {
            scheme: spelling(asked.scheme),
            survived_nodes: nodes,
            survived_domains: domains,
            domain: allocation.failure_domains.kind.noun(),
            every: asked.interval,
            cache: asked.base.clone(),
            keep: own.or(cache.map(|cache| cache.keep)).unwrap_or(1),
            alone: enabled.len() == 1,
        })
    };
    enabled.iter().filter_map(of).collect()
}

/// `any 2 racks`, `no node`.
fn survived(number: usize, noun: &str) -> String {
    if number == 0 { format!("no {noun}") } else { format!("any {}", domains_text(number, noun)) }
}
