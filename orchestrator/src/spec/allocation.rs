//! `allocation:` what the resource manager lends us, and, for the local manager, which failures are rehearsed in it.

use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName};

use super::reading::{Choice, DURATION, Section, TEXT};
use super::ssh::{self, SshAccess, SshHost};

/// More virtual nodes than this on one machine is a typing mistake: each is a process.
const MAX_LOCAL_NODES: u64 = 1024;
/// No job gets this far; larger ids would overflow when the next one is made.
const MAX_ID: u64 = 1 << 40;

/// The nodes of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Who lends them.
    pub manager: Manager,
    /// How many there are. Local manager: virtual nodes to start.
    pub nodes: u32,
    /// The machines of the ssh manager; empty with any other.
    pub hosts: Vec<SshHost>,
    /// How they are reached.
    pub ssh: SshAccess,
    /// When the allocation ends, counted from its start. Local and ssh manager only; `None` = never.
    pub time_limit: Option<Duration>,
    /// Failures to rehearse. Local manager only.
    pub chaos: Vec<Chaos>,
}

/// A resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Look at the environment: [`Manager::resolve`].
    Auto,
    /// This machine: virtual nodes, each an agent process with directories of its own.
    Local,
    /// The nodes of the Slurm job that we run in.
    Slurm,
    /// Machines that the spec lists, reached over ssh.
    Ssh,
}

impl Choice for Manager {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("auto", Manager::Auto), ("local", Manager::Local), ("slurm", Manager::Slurm), ("ssh", Manager::Ssh)];
    const LATER: &'static [&'static str] = &["pbs", "lsf", "flux"];
}

impl Manager {
    /// What `auto` means here: the manager whose variables the environment holds, else `local`. Never ssh: that a spec
    /// lists hosts has been seen while it was read.
    ///
    /// # Errors
    /// The name of the resource manager whose allocation this is, if this version cannot use it: taking its head node
    /// for the whole machine would run the job in the wrong place.
    pub fn resolve(self, variable: impl Fn(&str) -> Option<String>) -> Result<Manager, &'static str> {
        const MARKS: [(&str, Result<Manager, &str>); 5] = [
            ("SLURM_JOB_ID", Ok(Manager::Slurm)),
            ("SLURM_JOBID", Ok(Manager::Slurm)),
            ("PBS_JOBID", Err("pbs")),
            ("LSB_JOBID", Err("lsf")),
            ("FLUX_JOB_ID", Err("flux")),
        ];
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        match self {
            Manager::Auto => {
                MARKS.iter().find(|(name, _)| is_set(name)).map_or(Ok(Manager::Local), |(_, manager)| *manager)
            }
            Manager::Local | Manager::Slurm | Manager::Ssh => Ok(self),
        }
    }
}

/// One rehearsed failure: whom it hits, when, and how. Each strikes once in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chaos {
    /// The virtual node that is hit, whatever runs on it by then.
    pub node: NodeName,
    /// When it strikes.
    pub moment: ChaosMoment,
    /// What happens.
    pub action: ChaosAction,
}

/// When a rehearsed failure strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosMoment {
    /// So long after the first launch of the application.
    After(Duration),
    /// As soon as this checkpoint is complete and protected.
    AfterCheckpoint(CheckpointId),
    /// In the middle of a phase.
    During {
        /// The phase.
        phase: ChaosPhase,
        /// Of this checkpoint; `None` = of the first that comes to it.
        checkpoint: Option<CheckpointId>,
    },
}

/// A phase in which a rehearsed failure strikes, on the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosPhase {
    /// A rank of the node is writing its checkpoint files.
    Write,
    /// Its agent is encoding: the checkpoint is written but not protected.
    Encode,
    /// Its agent is rebuilding lost files at the start of a run.
    Rebuild,
    /// Its agent is copying files to the prefix in the drain.
    Copy,
}

impl Choice for ChaosPhase {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("write", ChaosPhase::Write),
        ("encode", ChaosPhase::Encode),
        ("rebuild", ChaosPhase::Rebuild),
        ("copy", ChaosPhase::Copy),
    ];
}

/// What a rehearsed failure does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosAction {
    /// The node dies: agent and ranks are killed with SIGKILL, its control and cache directories are deleted.
    Kill,
    /// Only the agent dies (SIGKILL); ranks and directories stay.
    KillAgent,
}

impl Choice for ChaosAction {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("kill", ChaosAction::Kill), ("kill-agent", ChaosAction::KillAgent)];
}

/// The name of a virtual node of the local manager, counted from 0.
pub fn virtual_node(index: u32) -> NodeName {
    NodeName::new(format!("node{index}"))
}

/// What was written; the number of nodes may still depend on what the runs need.
pub(super) struct Written {
    pub(super) manager: Manager,
    pub(super) nodes: Option<u32>,
    pub(super) time_limit: Option<Duration>,
    pub(super) chaos: Vec<Chaos>,
    hosts: Vec<SshHost>,
    ssh: SshAccess,
}

impl Written {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let manager = section.choice("manager", Manager::Auto);
        let nodes = section.optional_number("nodes", 1..=MAX_LOCAL_NODES).map(|nodes| nodes as u32);
        let time_limit = section.optional("time_limit", &DURATION);
        let chaos = section.sections("chaos").unwrap_or_default().into_iter().filter_map(read_chaos).collect();
        let ssh::Written { hosts, access, says_how } = ssh::Written::read(&mut section);
        // Who lists hosts without a word about a manager means those, wherever he stands.
        let manager = if manager == Manager::Auto && hosts.is_some() { Manager::Ssh } else { manager };
        check_manager(&section, manager, hosts.is_some(), says_how);
        section.finish();
        let hosts = hosts.filter(|_| manager == Manager::Ssh).unwrap_or_default();
        let nodes = if manager == Manager::Ssh { u32::try_from(hosts.len()).ok().filter(|it| *it > 0) } else { nodes };
        Written { manager, nodes, time_limit, chaos, hosts, ssh: access }
    }

    /// Slurm has decided how many nodes there are, where we already stand in its allocation.
    pub(super) fn within(self, allocated: Option<u32>) -> Self {
        match self.manager {
            Manager::Auto | Manager::Slurm => Written { nodes: allocated.or(self.nodes), ..self },
            Manager::Local | Manager::Ssh => self,
        }
    }

    /// With the number of nodes that was written, or that the runs need.
    pub(super) fn with_nodes(self, needed: u32) -> Allocation {
        let Written { manager, nodes, time_limit, chaos, hosts, ssh } = self;
        Allocation { manager, nodes: nodes.unwrap_or(needed), hosts, ssh, time_limit, chaos }
    }
}

/// Keys that say something with one manager only.
fn check_manager(section: &Section<'_>, manager: Manager, has_hosts: bool, says_how: bool) {
    let reader = section.reader();
    let foreign: &[&str] = if manager == Manager::Ssh { &["nodes", "chaos"] } else { &["hosts", "hosts_file", "ssh"] };
    // A spec with every default filled in says nothing wrong.
    for key in foreign.iter().filter(|key| section.has(key) && (**key != "ssh" || says_how)) {
        let message = format!("`{key}` says nothing with `manager: {}`", manager.word());
        let help = match *key {
            "nodes" => "the list of hosts says how many there are; leave it out",
            "chaos" => "failures are rehearsed on virtual nodes only: `manager: local`",
            "ssh" => "it goes with a list of hosts: write `hosts: [n1, n2]` and `manager: ssh`",
            _ => "a list of hosts goes with `manager: ssh`; write that, or leave the list out",
        };
        reader.mistake(&section.path_of(key), message, help);
    }
    if manager == Manager::Ssh && !has_hosts {
        let help =
            "list the machines: `hosts: [n1, user@n2:2222]`, or name a file with one a line: `hosts_file: hosts`";
        reader.mistake(&section.path_of("manager"), "`manager: ssh` needs hosts", help);
    }
}

fn read_chaos(mut section: Section<'_>) -> Option<Chaos> {
    let node = section.optional("node", &TEXT).map(|text| match text.parse::<u32>() {
        Ok(index) => virtual_node(index),
        Err(_) => NodeName::new(text),
    });
    let time = section.optional("after", &DURATION);
    let after = section.optional_number("after_checkpoint", 1..=MAX_ID);
    let phase = section.optional_choice("during");
    let of = section.optional_number("checkpoint", 1..=MAX_ID);
    let action = section.choice("action", ChaosAction::Kill);
    let (reader, path) = (section.reader(), section.path());
    // A moment that stands there but is wrong has been told already.
    let written = ["after", "after_checkpoint", "during"].iter().filter(|key| section.has(key)).count();
    let of_key = section.has("checkpoint").then(|| section.path_of("checkpoint"));
    section.finish();
    if node.is_none() {
        reader.mistake(&path, "`node` is missing", "name the node that is hit: its number from 0, or its name");
    }
    if written != 1 {
        let message =
            if written == 0 { "nothing says when it strikes" } else { "more than one key says when it strikes" };
        let help = "write one of `after: 2s`, `after_checkpoint: 3`, `during: encode`";
        reader.mistake(&path, message, help);
    }
    if let (Some(key), None, 1) = (of_key, phase, written) {
        let help = "it goes with `during`; for \"when checkpoint 3 is complete\" write `after_checkpoint: 3`";
        reader.mistake(&key, "`checkpoint` says nothing here", help);
    }
    let moment = match (time, after, phase) {
        (Some(time), _, _) => ChaosMoment::After(time),
        (_, Some(id), _) => ChaosMoment::AfterCheckpoint(CheckpointId(id)),
        (_, _, Some(phase)) => ChaosMoment::During { phase, checkpoint: of.map(CheckpointId) },
        (None, None, None) => return None,
    };
    Some(Chaos { node: node?, moment, action })
}
