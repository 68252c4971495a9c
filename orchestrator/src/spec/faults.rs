//! `allocation.faults`: the faults to inject.

use std::fmt;
use std::time::Duration;

use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::run::FaultPoint;

use super::allocation::Allocation;
use super::job::Step;
use super::keys::{Section, keys};
use super::node_reference::NodeReference;
use super::quantity::format_duration;
use super::registered::ManagerFacts;
use super::value_kinds::{Choice, bytes, choice, duration, regular_expression, text, whole};

/// No job reaches this id; larger ids would overflow when the next one is computed.
const MAX_ID: u64 = 1 << 40;
/// A longer pause or stall is a typing mistake.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A fault to inject. Each is injected once in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    pub moment: FaultMoment,
    pub action: FaultAction,
    /// The step that its moment and its rank are of; `None`: any.
    pub step: Option<String>,
}

impl InjectedFault {
    /// True if its moment may come in this step.
    pub fn is_of(&self, step: &str) -> bool {
        self.step.as_ref().is_none_or(|own| own == step)
    }
}

/// When a fault is injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultMoment {
    /// This long after the first launch of the application.
    After(Duration),
    /// As soon as this checkpoint is complete and protected.
    AfterCheckpoint(CheckpointId),
    /// As soon as a rank has printed a line that this regular expression matches.
    AfterOutput(String),
    /// During a phase, on virtual nodes.
    During {
        phase: FaultPoint,
        /// Of this checkpoint; `None` = of the first that enters the phase.
        checkpoint: Option<CheckpointId>,
    },
}

impl fmt::Display for FaultMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultMoment::After(Duration::ZERO) => write!(f, "at the first launch"),
            FaultMoment::After(time) => write!(f, "{} after the first launch", format_duration(*time)),
            FaultMoment::AfterCheckpoint(id) => write!(f, "after checkpoint {id}"),
            FaultMoment::AfterOutput(expression) => write!(f, "after a line that matches `{expression}`"),
            FaultMoment::During { phase, checkpoint } => {
                let words = FaultPoint::AVAILABLE.iter().find(|(_, known)| known == phase).map(|(word, _)| *word);
                write!(f, "during `{}`", words.unwrap_or_default())?;
                checkpoint.map_or(Ok(()), |id| write!(f, " of checkpoint {id}"))
            }
        }
    }
}

impl Choice for FaultPoint {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("write", FaultPoint::Write),
        ("encode", FaultPoint::Encode),
        ("rebuild", FaultPoint::Rebuild),
        ("copy", FaultPoint::Copy),
    ];
}

/// What a fault does, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The node fails: agent and ranks are killed with SIGKILL, its control and cache directories are deleted.
    Kill(NodeReference),
    /// Only the agent is killed (SIGKILL); ranks and directories stay.
    KillAgent(NodeReference),
    /// The processes of a rank are killed (SIGKILL).
    KillRank(Rank),
    /// The ranks and the agent of a node are stopped, and continued after this time.
    Pause(NodeReference, Duration),
    /// The node's caches get a file of this many bytes, or as many as there is space for.
    FillCache(NodeReference, u64),
    /// Calls of Holdfast on the prefix directory wait until this time is over.
    StallPrefix(Duration),
}

impl FaultAction {
    /// The word for it in a spec.
    pub fn word(&self) -> &'static str {
        let kind = match self {
            FaultAction::Kill(_) => ActionKind::Kill,
            FaultAction::KillAgent(_) => ActionKind::KillAgent,
            FaultAction::KillRank(_) => ActionKind::KillRank,
            FaultAction::Pause(..) => ActionKind::Pause,
            FaultAction::FillCache(..) => ActionKind::FillCache,
            FaultAction::StallPrefix(_) => ActionKind::StallPrefix,
        };
        kind.word()
    }

    /// The node that it names.
    pub fn node(&self) -> Option<&NodeReference> {
        match self {
            FaultAction::Kill(node)
            | FaultAction::KillAgent(node)
            | FaultAction::Pause(node, _)
            | FaultAction::FillCache(node, _) => Some(node),
            FaultAction::KillRank(_) | FaultAction::StallPrefix(_) => None,
        }
    }
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.action.word())?;
        match &self.action {
            FaultAction::KillRank(rank) => write!(f, " of rank {rank}")?,
            FaultAction::StallPrefix(time) => write!(f, " for {}", format_duration(*time))?,
            FaultAction::Kill(node) | FaultAction::KillAgent(node) | FaultAction::FillCache(node, _) => {
                write!(f, " of {}", node.in_allocation())?;
            }
            FaultAction::Pause(node, time) => write!(f, " of {} for {}", node.in_allocation(), format_duration(*time))?,
        }
        write!(f, " {}", self.moment)?;
        self.step.as_ref().map_or(Ok(()), |step| write!(f, " of step {step}"))
    }
}

/// The words for actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActionKind {
    Kill,
    KillAgent,
    KillRank,
    Pause,
    FillCache,
    StallPrefix,
}

impl Choice for ActionKind {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("kill", ActionKind::Kill),
        ("kill-agent", ActionKind::KillAgent),
        ("kill-rank", ActionKind::KillRank),
        ("pause", ActionKind::Pause),
        ("fill-cache", ActionKind::FillCache),
        ("stall-prefix", ActionKind::StallPrefix),
    ];
}

impl ActionKind {
    fn word(self) -> &'static str {
        Self::AVAILABLE.iter().find(|(_, kind)| *kind == self).map(|(word, _)| *word).unwrap_or_default()
    }

    /// The keys that it needs, and what to write for each. It takes no others of them.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        const NODE: (&str, &str) = ("node", "name the node: its number from 0, or its name");
        const FOR: (&str, &str) = ("for", "write how long: `for: 10s`");
        match self {
            ActionKind::Kill | ActionKind::KillAgent => &[NODE],
            ActionKind::KillRank => &[("rank", "name the rank: `rank: 3`")],
            ActionKind::Pause => &[NODE, FOR],
            ActionKind::FillCache => &[NODE, ("bytes", "write how much at most: `bytes: 2GB`")],
            ActionKind::StallPrefix => &[FOR],
        }
    }
}

keys! {
    InjectedFault => Option<InjectedFault>;
    /// In a job of several steps, the one that moment and rank are of; `after` is then the time since the first launch
    /// in this step. Default: the first step in which the moment comes.
    step = text().optional(),
    /// The node that fails: its number in the allocation from 0, or its name.
    node = text().optional(),
    /// With `kill-rank`: the rank.
    rank = whole::<u32>(0..=u32::MAX.into()).optional(),
    /// This long after the first launch.
    after = duration().optional(),
    /// As soon as this checkpoint is complete and protected.
    after_checkpoint = whole::<u64>(1..=MAX_ID).optional(),
    /// As soon as a rank has printed a line that matches this regular expression.
    after_output = regular_expression().optional(),
    /// During `write`, `encode`, `rebuild` or `copy` (drain); on virtual nodes, with `kill` or `kill-agent`.
    during = choice::<FaultPoint>().optional(),
    /// With `during`: for this checkpoint only. Default: for the first one.
    checkpoint = whole::<u64>(1..=MAX_ID).optional(),
    /// `kill`: agent and ranks are killed, the node's directories deleted; `kill-agent`: only the agent is killed;
    /// `kill-rank`: the rank's processes are killed; `pause`: ranks and agent are stopped, and continued after `for`;
    /// `fill-cache`: a file of `bytes` in the cache; `stall-prefix`: Holdfast's own calls on the prefix directory wait.
    action = choice().or(ActionKind::Kill),
    /// With `pause` and `stall-prefix`: how long.
    r#for = duration().optional(),
    /// With `fill-cache`: the size of the file; less where there is less space.
    bytes = bytes().optional(),
    |section| {
        let checkpoint = checkpoint.map(CheckpointId);
        let moment = match (after, after_checkpoint, after_output, during) {
            (Some(time), ..) => Some(FaultMoment::After(time)),
            (_, Some(id), ..) => Some(FaultMoment::AfterCheckpoint(CheckpointId(id))),
            (_, _, Some(expression), _) => Some(FaultMoment::AfterOutput(expression)),
            (.., Some(phase)) => Some(FaultMoment::During { phase, checkpoint }),
            (None, None, None, None) => None,
        };
        check_moment(section, during);
        check_action(section, action, during.is_some(), r#for);
        let node = node.map(|text| NodeReference::of(&text));
        let action = match action {
            ActionKind::Kill => FaultAction::Kill(node?),
            ActionKind::KillAgent => FaultAction::KillAgent(node?),
            ActionKind::KillRank => FaultAction::KillRank(Rank(rank?)),
            ActionKind::Pause => FaultAction::Pause(node?, r#for?),
            ActionKind::FillCache => FaultAction::FillCache(node?, bytes?),
            ActionKind::StallPrefix => FaultAction::StallPrefix(r#for?),
        };
        Some(InjectedFault { moment: moment?, action, step })
    }
}

fn check_moment(section: &Section<'_>, phase: Option<FaultPoint>) {
    // An invalid moment has been reported when it was read.
    let moments = ["after", "after_checkpoint", "after_output", "during"];
    let written = moments.iter().filter(|key| section.has(key)).count();
    if written != 1 {
        let message = if written == 0 { "the moment is missing" } else { "more than one key sets the moment" };
        let help = "write one of `after: 2s`, `after_checkpoint: 3`, `after_output: \"step 100\"`, `during: encode`";
        section.reader().mistake(&section.path(), message, help);
    }
    if section.has("checkpoint") && phase.is_none() && written == 1 {
        let help = "use it with `during`; for \"when checkpoint 3 is complete\" write `after_checkpoint: 3`";
        section.mistake("checkpoint", "`checkpoint` has no effect here", help);
    }
}

fn check_action(section: &Section<'_>, action: ActionKind, in_phase: bool, lasts: Option<Duration>) {
    let needed = action.needs();
    for (key, help) in needed.iter().filter(|(key, _)| !section.has(key)) {
        section.reader().mistake(&section.path(), format!("`{key}` is missing"), *help);
    }
    for key in ["node", "rank", "for", "bytes"] {
        if section.has(key) && needed.iter().all(|(needed, _)| *needed != key) {
            let message = format!("`{key}` has no effect with `action: {}`", action.word());
            section.mistake(key, message, "leave it out, or write another `action`");
        }
    }
    if in_phase && section.has("step") {
        section.mistake("step", "`step` has no effect with `during`", "leave it out");
    }
    if in_phase && !matches!(action, ActionKind::Kill | ActionKind::KillAgent) {
        let help = "write `after`, `after_checkpoint` or `after_output`";
        section.mistake("during", format!("`during` has no effect with `action: {}`", action.word()), help);
    }
    if lasts.is_some_and(|lasts| lasts.is_zero() || lasts > LONGEST) {
        section.mistake("for", "expected a time of at most one day", "write `for: 10s`");
    }
}

/// What is wrong with the faults of an allocation: the path of the key, message and help. `ranks`: of the largest step.
pub(super) fn mistakes(
    allocation: &Allocation,
    manager: &ManagerFacts,
    steps: &[Step],
) -> Vec<(String, String, String)> {
    let mut mistakes = Vec::new();
    let nodes = if manager.has_virtual_nodes() {
        (0..allocation.nodes).map(super::virtual_node).collect()
    } else {
        allocation.hosts.clone()
    };
    for (at, fault) in allocation.faults.iter().enumerate() {
        let path = |key: &str| format!("allocation.faults[{at}].{key}");
        if !nodes.is_empty()
            && let Some(node) = fault.action.node().filter(|node| node.find(&nodes).is_none())
            && let (Some(first), Some(last)) = (nodes.first(), nodes.last())
        {
            let message = match node {
                NodeReference::Position(number) => format!("there is no node {number}"),
                NodeReference::Name(name) => format!("there is no node `{name}`"),
            };
            let help = format!("there are {}: 0 to {}, `{first}` to `{last}`", nodes.len(), nodes.len() - 1);
            mistakes.push((path("node"), message, help));
        }
        if let Some(step) = fault.step.as_ref().filter(|step| steps.iter().all(|known| known.name != **step)) {
            let message = format!("there is no step named `{}`", step.escape_debug());
            let names = steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(", ");
            mistakes.push((path("step"), message, format!("steps: {names}")));
        }
        let ranks = steps.iter().filter(|step| fault.is_of(&step.name)).map(|step| step.run.ranks).max();
        let ranks = ranks.unwrap_or(u32::MAX);
        if let FaultAction::KillRank(rank) = fault.action
            && rank.0 >= ranks
        {
            let help = format!("there are {ranks}: 0 to {}", ranks.saturating_sub(1));
            mistakes.push((path("rank"), format!("there is no rank {rank}"), help));
        }
        if matches!(fault.moment, FaultMoment::During { .. }) && !manager.has_virtual_nodes() {
            let help = "write `after`, `after_checkpoint` or `after_output`, or `manager: local`".to_owned();
            mistakes.push((path("during"), "`during` has an effect on virtual nodes only".to_owned(), help));
        }
    }
    mistakes
}
