//! `allocation:`: the nodes of the job and, for the local manager, the faults to inject.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_model::{CheckpointId, NodeName};

use super::keys::{entry, keys, list, section, words};
use super::reading::Section;
use super::registered::{Chosen, ManagerFacts, NodeCount};
use super::ssh::{self, SshAccess, SshHost};
use super::value_kinds::{Choice, choice, duration, host_list, text, whole};

/// More virtual nodes than this on one machine is a typing mistake: each is a process.
const MAX_LOCAL_NODES: u64 = 1024;
/// No job reaches this id; larger ids would overflow when the next one is computed.
const MAX_ID: u64 = 1 << 40;

/// The nodes of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The name of the resource manager; `None` for `auto`, unless other keys choose one.
    pub manager: Option<&'static str>,
    /// The number of nodes. Local manager: virtual nodes to start.
    pub nodes: u32,
    /// The number of nodes that are not excluded, as far as their names are known.
    pub usable: u32,
    /// The machines of the ssh manager; empty with any other.
    pub hosts: Vec<SshHost>,
    /// How they are reached.
    pub ssh: SshAccess,
    /// Nodes that get no ranks; some may not be in the allocation.
    pub exclude: Vec<NodeName>,
    /// When the allocation ends, counted from its start. Local and ssh manager only; `None` = never.
    pub time_limit: Option<Duration>,
    /// Faults to inject. Local manager only.
    pub faults: Vec<InjectedFault>,
}

impl Allocation {
    /// When an allocation that begins now ends, seconds since the epoch, if it has a time limit.
    pub fn end_from(&self, now: SystemTime) -> Option<u64> {
        let end = now.checked_add(self.time_limit?)?;
        end.duration_since(UNIX_EPOCH).ok().map(|end| end.as_secs())
    }
}

/// A fault to inject: its node, moment and action. Each is injected once in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The virtual node that fails, whatever runs on it at that time.
    pub node: NodeName,
    pub moment: FaultMoment,
    pub action: FaultAction,
}

/// When a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMoment {
    /// This long after the first launch of the application.
    After(Duration),
    /// As soon as this checkpoint is complete and protected.
    AfterCheckpoint(CheckpointId),
    /// During a phase.
    During {
        phase: FaultPhase,
        /// Of this checkpoint; `None` = of the first that enters the phase.
        checkpoint: Option<CheckpointId>,
    },
}

/// A phase of the node's work in which a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPhase {
    /// A rank on the node is writing its checkpoint files.
    Write,
    /// The node's agent is encoding: the checkpoint is written but not protected.
    Encode,
    /// The node's agent is rebuilding lost files at the start of a generation.
    Rebuild,
    /// The node's agent is copying files to the prefix during the drain.
    Copy,
}

impl Choice for FaultPhase {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("write", FaultPhase::Write),
        ("encode", FaultPhase::Encode),
        ("rebuild", FaultPhase::Rebuild),
        ("copy", FaultPhase::Copy),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The node fails: agent and ranks are killed with SIGKILL, its control and cache directories are deleted.
    Kill,
    /// Only the agent is killed (SIGKILL); ranks and directories stay.
    KillAgent,
}

impl Choice for FaultAction {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("kill", FaultAction::Kill), ("kill-agent", FaultAction::KillAgent)];
}

/// The name of a virtual node of the local manager; indices start at 0.
pub fn virtual_node(index: u32) -> NodeName {
    NodeName::new(format!("node{index}"))
}

/// The section as written; the number of nodes may still depend on what the runs need.
pub(super) struct WrittenAllocation {
    pub(super) manager: Option<&'static str>,
    pub(super) nodes: Option<u32>,
    time_limit: Option<Duration>,
    faults: Vec<InjectedFault>,
    hosts: Vec<SshHost>,
    ssh: SshAccess,
    exclude: Vec<NodeName>,
    /// The nodes that the manager names in variables.
    allocated: Vec<NodeName>,
}

keys! {
    Allocation => WrittenAllocation;
    /// The resource manager. `auto` looks at the environment, {managers}
    manager = entry::<ManagerFacts>(),
    /// {takers}: virtual nodes to start. Default: as many as the run needs; more are spares.
    nodes = whole::<u32>(1..=MAX_LOCAL_NODES).optional(),
    /// {takers}: the allocation ends this long after its start. Default: never.
    time_limit = duration().optional(),
    /// {takers}: faults to inject. Each element names a node, one moment, and an action:
    /// `{node: 1, after_checkpoint: 3}`.
    chaos = list::<InjectedFault>(),
    /// Nodes that are not used: `n[3,5-7]`. They get no ranks and need no agent. Names that are not in the allocation
    /// are reported. While the job runs, `holdfast nodes` excludes others, or includes these.
    exclude = host_list().optional().scr("SCR_EXCLUDE_NODES"),
    /// {takers}: the machines, each once: `[n1, user@n2:2222, "n[3-6]"]`. Their names are the nodes' names.
    hosts = words(),
    /// Instead of `hosts`: a file with one host a line; `#` begins a comment. Relative to the working directory.
    hosts_file = text().optional(),
    /// {takers}: how hosts are reached; see docs/ssh.md. `~/.ssh/config` is not read.
    ssh = section::<SshAccess>(),
    |section| {
        let hosts = ssh::hosts(section, hosts, hosts_file, &ssh);
        let facts = chosen(section, manager);
        let hosts = hosts.unwrap_or_default();
        let counts_hosts = facts.is_some_and(|facts| facts.nodes == NodeCount::Hosts);
        let nodes = if counts_hosts { u32::try_from(hosts.len()).ok().filter(|it| *it > 0) } else { nodes };
        let manager = facts.map(|facts| facts.name);
        let faults = chaos.unwrap_or_default().into_iter().flatten().collect();
        let (exclude, allocated) = (exclude.unwrap_or_default(), Vec::new());
        WrittenAllocation { manager, nodes, time_limit, faults, hosts, ssh: ssh.access, exclude, allocated }
    }
}

/// The manager that is named or implied by keys of the section.
fn chosen(section: &Section<'_>, written: Option<&str>) -> Option<&'static ManagerFacts> {
    let has_any = |keys: &[&str]| keys.iter().any(|key| section.has(key));
    let is_chosen = |facts: &&ManagerFacts| match (written, &facts.chosen) {
        (Some(written), _) => facts.name == written,
        (None, Chosen::ByKeys { keys, .. }) => has_any(keys),
        (None, Chosen::ByVariables(_) | Chosen::Otherwise) => false,
    };
    let facts = section.reader().registered().managers.iter().copied().find(is_chosen)?;
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
        let excluded: HashSet<&str> = self.exclude.iter().map(NodeName::as_str).collect();
        let excluded = match (&*self.hosts, &*self.allocated) {
            ([], []) => (0..nodes).filter(|index| excluded.contains(virtual_node(*index).as_str())).count(),
            ([], allocated) => allocated.iter().filter(|node| excluded.contains(node.as_str())).count(),
            (hosts, _) => hosts.iter().filter(|host| excluded.contains(host.name.as_str())).count(),
        };
        nodes.saturating_sub(u32::try_from(excluded).unwrap_or(u32::MAX))
    }

    /// The smallest number of virtual nodes of which so many are not excluded.
    fn enough(&self, needed: u32) -> u32 {
        let excluded: HashSet<&str> = self.exclude.iter().map(NodeName::as_str).collect();
        let mut usable = (0..u32::MAX).filter(|index| !excluded.contains(virtual_node(*index).as_str()));
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
        let WrittenAllocation { manager, time_limit, faults, hosts, ssh, exclude, .. } = self;
        Allocation { manager, nodes, usable, hosts, ssh, exclude, time_limit, faults }
    }
}

keys! {
    InjectedFault => Option<InjectedFault>;
    /// The node that fails: its number from 0, or its name.
    node = text().optional(),
    /// This long after the first launch.
    after = duration().optional(),
    /// As soon as this checkpoint is complete and protected.
    after_checkpoint = whole::<u64>(1..=MAX_ID).optional(),
    /// During `write`, `encode`, `rebuild` or `copy` (drain).
    during = choice::<FaultPhase>().optional(),
    /// With `during`: for this checkpoint only. Default: for the first one.
    checkpoint = whole::<u64>(1..=MAX_ID).optional(),
    /// `kill`: agent and ranks are killed, the node's directories deleted; `kill-agent`: only the agent is killed.
    action = choice().or(FaultAction::Kill),
    |section| {
        let checkpoint = checkpoint.map(CheckpointId);
        let moment = match (after, after_checkpoint, during) {
            (Some(time), _, _) => Some(FaultMoment::After(time)),
            (_, Some(id), _) => Some(FaultMoment::AfterCheckpoint(CheckpointId(id))),
            (_, _, Some(phase)) => Some(FaultMoment::During { phase, checkpoint }),
            (None, None, None) => None,
        };
        check_fault(section, node.is_some(), during);
        let node = node.map(|text| text.parse().map_or_else(|_| NodeName::new(text), virtual_node));
        Some(InjectedFault { node: node?, moment: moment?, action })
    }
}

fn check_fault(section: &Section<'_>, has_node: bool, phase: Option<FaultPhase>) {
    let (reader, path) = (section.reader(), section.path());
    // An invalid moment has been reported when it was read.
    let written = ["after", "after_checkpoint", "during"].iter().filter(|key| section.has(key)).count();
    if !has_node {
        reader.mistake(&path, "`node` is missing", "name the node that fails: its number from 0, or its name");
    }
    if written != 1 {
        let message = if written == 0 { "the moment is missing" } else { "more than one key sets the moment" };
        let help = "write one of `after: 2s`, `after_checkpoint: 3`, `during: encode`";
        reader.mistake(&path, message, help);
    }
    if section.has("checkpoint") && phase.is_none() && written == 1 {
        let help = "use it with `during`; for \"when checkpoint 3 is complete\" write `after_checkpoint: 3`";
        section.mistake("checkpoint", "`checkpoint` has no effect here", help);
    }
}
