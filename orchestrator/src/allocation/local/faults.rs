//! `allocation.faults`: the faults to inject on virtual nodes.

use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName};

use crate::spec::keys::{Section, keys, list};
use crate::spec::value_kinds::{Choice, choice, duration, text, whole};
use crate::spec::{ManagerSettings, virtual_node};

/// No job reaches this id; larger ids would overflow when the next one is computed.
const MAX_ID: u64 = 1 << 40;

/// The keys of the local manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSettings {
    /// The faults to inject.
    pub faults: Vec<InjectedFault>,
}

keys! {
    LocalSettings => LocalSettings;
    /// {takers}: faults to inject. Each element names a node, one moment, and an action:
    /// `{node: 1, after_checkpoint: 3}`.
    faults = list::<InjectedFault>(),
    |_section| {
        LocalSettings { faults: faults.unwrap_or_default().into_iter().flatten().collect() }
    }
}

impl ManagerSettings for LocalSettings {
    fn mistakes(&self, nodes: u32) -> Vec<(String, String, String)> {
        let is_unknown = |fault: &InjectedFault| (0..nodes).all(|index| virtual_node(index) != fault.node);
        let unknown = self.faults.iter().enumerate().filter(|(_, fault)| is_unknown(fault));
        let mistake = |(at, fault): (usize, &InjectedFault)| {
            let message = format!("there is no virtual node `{}`", fault.node);
            let help = format!("there are {nodes}: `{}` to `{}`", virtual_node(0), virtual_node(nodes - 1));
            (format!("faults[{at}].node"), message, help)
        };
        unknown.map(mistake).collect()
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
