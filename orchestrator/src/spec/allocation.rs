//! `allocation:`: the nodes of the job. The keys that only one manager has are declared in its folder.

use std::any::Any;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_model::NodeName;

use super::failure_domain::{self, DomainKind, FailureDomains};
use super::faults::InjectedFault;
use super::keys::{Section, entry, keys, list, names, of_managers, scr};
use super::manager_settings::ManagerSettings;
use super::registered::{Chosen, EntryKind, ManagerFacts, NodeCount};
use super::value_kinds::{choice, duration, host_list, text, whole};
use crate::params::declaration::AllowedSource;

/// More virtual nodes than this on one machine is a typing mistake: each is a process.
const MAX_LOCAL_NODES: u64 = 1024;

/// The nodes of the job.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The name of the resource manager; `None` for `auto`, unless other keys choose one.
    pub manager: Option<&'static str>,
    /// The number of nodes. Local manager: virtual nodes to start.
    pub nodes: u32,
    /// The number of nodes that are not excluded, as far as their names are known.
    pub usable: u32,
    /// The manager makes its nodes.
    makes_nodes: bool,
    /// The machines that keys of the manager list; empty if it makes or finds its nodes.
    pub hosts: Vec<NodeName>,
    /// Nodes that get no ranks; some may not be in the allocation.
    pub exclude: Vec<NodeName>,
    /// The nodes that are used; empty for all. Some may not be in the allocation.
    pub only: Vec<NodeName>,
    /// When the allocation ends, counted from its start. Local and ssh manager only; `None` = never.
    pub time_limit: Option<Duration>,
    /// Which nodes are lost together; with a topology, the manager of a job knows them.
    pub failure_domains: FailureDomains,
    /// The faults to inject.
    pub faults: Vec<InjectedFault>,
    /// The keys that each manager declares. Without effect, they are refused or have their defaults.
    pub(super) settings: Vec<Arc<dyn ManagerSettings>>,
}

impl Allocation {
    /// True if the node gets no ranks: it is excluded, or not one of those to use.
    pub fn is_excluded(&self, node: &NodeName) -> bool {
        self.exclude.contains(node) || !(self.only.is_empty() || self.only.contains(node))
    }

    /// The nodes, if their names are known: those that the manager makes, or that its keys list.
    pub fn known_nodes(&self) -> Option<Vec<NodeName>> {
        match (self.makes_nodes, &*self.hosts) {
            (true, _) => Some((0..self.nodes).map(virtual_node).collect()),
            (false, []) => None,
            (false, hosts) => Some(hosts.to_vec()),
        }
    }

    /// The settings of a manager, if it is registered.
    pub fn settings_of<S: ManagerSettings>(&self) -> Option<&S> {
        self.settings.iter().find_map(|settings| (&**settings as &dyn Any).downcast_ref())
    }

    /// The path of `holdfast` on the nodes; `None` = the same as here.
    pub fn program(&self) -> Option<&Path> {
        self.settings.iter().find_map(|settings| settings.program())
    }

    /// When an allocation that begins now ends, seconds since the epoch, if it has a time limit.
    pub fn end_from(&self, now: SystemTime) -> Option<u64> {
        let end = now.checked_add(self.time_limit?)?;
        end.duration_since(UNIX_EPOCH).ok().map(|end| end.as_secs())
    }
}

/// The name of a node that a manager makes; indices start at 0.
pub fn virtual_node(index: u32) -> NodeName {
    NodeName::new(format!("node{index}"))
}

/// The section as written; the number of nodes may still depend on what the runs need.
pub struct WrittenAllocation {
    /// Without the numbers of nodes.
    pub(super) rest: Allocation,
    pub(super) nodes: Option<u32>,
    /// The nodes that the manager names in variables.
    allocated: Vec<NodeName>,
}

keys! {
    Allocation => WrittenAllocation;
    /// The resource manager. `auto` looks at the environment, {managers}
    manager = entry(EntryKind::Manager),
    /// {takers}: virtual nodes to start. Default: as many as the run needs; more are spares.
    nodes = whole::<u32>(1..=MAX_LOCAL_NODES).optional(),
    /// {takers}: the allocation ends this long after its start. Default: never.
    time_limit = duration().optional(),
    /// Nodes that are not used: `n[3,5-7]`. They get no ranks and need no agent. Names that are not in the allocation
    /// are reported. While the job runs, `holdfast nodes` excludes others, or includes these.
    exclude = host_list().optional().scr("SCR_EXCLUDE_NODES"),
    /// The nodes that are used, of those of the allocation: `n[3,5-7]`. The others count as excluded. Default: all.
    only = host_list().optional().scr(scr("SCR_NODELIST").only_from(AllowedSource::Environment)),
    /// What is lost at once: `node`, `rack` (of `racks`), or `topology`: what is behind one leaf switch, as Slurm's
    /// topology plugin knows it. No set of ranks has two members in one, where the nodes allow it. Default: `rack` if
    /// racks are given, else `node`. See docs/failure-domains.md.
    failure_domain = choice::<DomainKind>().optional(),
    /// The nodes of each rack, by its name: `{r1: "n[1-16]", r2: "n[17-32]"}`.
    racks = names(),
    /// Instead of `racks`: a file with lines `RACK HOSTS`; `#` begins a comment. Relative to the directory of the
    /// spec file.
    racks_file = text().optional(),
    /// Faults to inject. Each element has a moment, an action and a node or a rank: `{node: 1, after_checkpoint: 3}`.
    /// Outside of virtual nodes they need `holdfast run --allow-faults`: see docs/faults.md.
    faults = list::<InjectedFault>(),
    /// What only one manager has.
    settings = of_managers(),
    |section| {
        let hosts: Vec<NodeName> = settings.iter().flat_map(|settings| settings.hosts()).collect();
        let facts = chosen(section, manager);
        let counts_hosts = facts.is_some_and(|facts| facts.nodes == NodeCount::Hosts);
        let nodes = if counts_hosts { u32::try_from(hosts.len()).ok().filter(|it| *it > 0) } else { nodes };
        let racks = Some(racks).filter(|racks| !racks.is_empty());
        let failure_domains = failure_domain::read(section, failure_domain, racks, racks_file, facts);
        let rest = Allocation {
            manager: facts.map(|facts| facts.name),
            nodes: 0,
            usable: 0,
            makes_nodes: facts.is_some_and(ManagerFacts::has_virtual_nodes),
            hosts,
            exclude: exclude.unwrap_or_default(),
            only: only.unwrap_or_default(),
            time_limit,
            failure_domains,
            faults: faults.into_iter().flatten().collect(),
            settings,
        };
        WrittenAllocation { rest, nodes, allocated: Vec::new() }
    }
}

/// The manager that is named or implied by keys of the section.
fn chosen(section: &Section<'_>, written: Option<&str>) -> Option<&'static ManagerFacts> {
    let has_any = |keys: &[&str]| keys.iter().any(|key| section.has(key));
    let is_chosen = |facts: &&ManagerFacts| match (written, &facts.chosen) {
        (Some(written), _) => facts.name == written,
        (None, Chosen::ByKeys { keys, .. }) => has_any(keys),
        (None, Chosen::InItsJobs { .. } | Chosen::Otherwise) => false,
    };
    let facts = section.reader().registered.managers.iter().copied().find(is_chosen)?;
    if let Chosen::ByKeys { keys, help } = facts.chosen
        && !has_any(keys)
    {
        let needed = keys.first().copied().unwrap_or_default();
        section.mistake("manager", format!("`manager: {}` needs {needed}", facts.name), help);
    }
    Some(facts)
}

impl WrittenAllocation {
    /// With the number of nodes of the allocation and their names, if the manager decides them.
    pub(super) fn within(self, number: Option<u32>, allocated: Vec<NodeName>) -> Self {
        WrittenAllocation { nodes: number.or(self.nodes), allocated, ..self }
    }

    /// The number of nodes that are not excluded, if the number of nodes is known.
    pub(super) fn usable(&self) -> Option<u32> {
        self.nodes.map(|nodes| self.usable_of(nodes))
    }

    fn usable_of(&self, nodes: u32) -> u32 {
        let is_usable = self.is_usable();
        let excluded = match (&*self.rest.hosts, &*self.allocated) {
            ([], []) => (0..nodes).filter(|index| !is_usable(&virtual_node(*index))).count(),
            ([], allocated) => allocated.iter().filter(|node| !is_usable(node)).count(),
            (hosts, _) => hosts.iter().filter(|host| !is_usable(host)).count(),
        };
        nodes.saturating_sub(u32::try_from(excluded).unwrap_or(u32::MAX))
    }

    /// Whether a node gets ranks, for many nodes.
    fn is_usable(&self) -> impl Fn(&NodeName) -> bool {
        let names = |nodes: &'_ [NodeName]| nodes.iter().cloned().collect::<HashSet<NodeName>>();
        let (excluded, only) = (names(&self.rest.exclude), names(&self.rest.only));
        move |node| !excluded.contains(node) && (only.is_empty() || only.contains(node))
    }

    /// The smallest number of virtual nodes of which so many are not excluded; `needed` if there is none.
    fn enough(&self, needed: u32) -> u32 {
        let is_usable = self.is_usable();
        // Those to use may be too few, or have other names.
        let last = if self.rest.only.is_empty() { u64::MAX } else { MAX_LOCAL_NODES };
        let mut usable = (0..u32::try_from(last).unwrap_or(u32::MAX)).filter(|index| is_usable(&virtual_node(*index)));
        let last = needed.checked_sub(1).and_then(|before| usable.nth(before as usize));
        last.map_or(needed, |last| last + 1)
    }

    /// With the number of nodes as written, or as the runs need.
    pub(super) fn with_nodes(self, needed: u32) -> Allocation {
        let nodes = self.enough(needed);
        self.with_exactly(nodes)
    }

    /// With the number of nodes as written, or this one.
    pub(super) fn with_exactly(self, nodes: u32) -> Allocation {
        let nodes = self.nodes.unwrap_or(nodes);
        let usable = self.usable_of(nodes);
        Allocation { nodes, usable, ..self.rest }
    }
}
