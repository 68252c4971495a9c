//! `relaunch:`, `health:` and `halt:` when a run is made again, when a node is down, when the job stops by itself;
//! `before:` and `after:` what is run once in an allocation.

use std::time::{Duration, SystemTime};

use super::reading::{BYTES, Choice, DURATION, DURATION_OR_NONE, Section, TIME};

/// When a run that ended is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relaunch {
    /// Launches after the first one, at most; 0 = never again.
    pub attempts: u32,
    /// Stop when so many generations in a row end without a newer complete checkpoint.
    pub no_progress_limit: u32,
    /// Wait between the end of a run and the next launch (SCR waited 60 s).
    pub settle: Duration,
    /// Healthy nodes that a launch needs; `None` = as many as the run asks for.
    pub min_nodes: Option<u32>,
    /// What the application's exit codes mean; the first rule that names a code decides. An exit code that no rule
    /// names, and a death by signal, mean relaunch.
    pub on_exit_code: Vec<ExitCodeRule>,
}

/// What some exit codes of the application mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitCodeRule {
    /// The codes, 1 to 255.
    pub codes: Vec<u8>,
    /// What they mean.
    pub action: ExitAction,
}

/// What happens after the application ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitAction {
    /// Launch again, within the limits.
    Relaunch,
    /// Drain and stop: the error would come again.
    Stop,
}

impl Choice for ExitAction {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("relaunch", ExitAction::Relaunch), ("stop", ExitAction::Stop)];
}

impl Relaunch {
    /// What the policy says about an exit code.
    pub fn action_for(&self, code: u8) -> ExitAction {
        let rule = self.on_exit_code.iter().find(|rule| rule.codes.contains(&code));
        rule.map_or(ExitAction::Relaunch, |rule| rule.action)
    }

    pub(super) fn read(mut section: Section<'_>) -> Self {
        let attempts = section.number("attempts", 0..=u64::from(u32::MAX), 5) as u32;
        let no_progress_limit = section.number("no_progress_limit", 1..=u64::from(u32::MAX), 3) as u32;
        let settle = section.value("settle", &DURATION, Duration::ZERO);
        let min_nodes = section.optional_number("min_nodes", 1..=65_536).map(|nodes| nodes as u32);
        let on_exit_code = section.sections("on_exit_code").unwrap_or_default().into_iter().map(read_rule).collect();
        section.finish();
        Relaunch { attempts, no_progress_limit, settle, min_nodes, on_exit_code }
    }
}

fn read_rule(mut section: Section<'_>) -> ExitCodeRule {
    let words = section.words("codes").unwrap_or_default();
    let codes: Vec<u8> = words.iter().filter_map(|word| word.parse().ok()).filter(|code| *code > 0).collect();
    if codes.len() != words.len() || codes.is_empty() {
        let help = "write `codes: [2, 17]`; 0 is success and is never relaunched by a rule";
        section.reader().mistake(&section.path_of("codes"), "expected a list of exit codes from 1 to 255", help);
    }
    if !section.has("action") {
        let help = "write `action: relaunch` or `action: stop`";
        section.reader().mistake(&section.path_of("action"), "the action is missing", help);
    }
    let action = section.choice("action", ExitAction::Relaunch);
    section.finish();
    ExitCodeRule { codes, action }
}

/// When a node is down. Once down, down for the whole allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time between two questions to an agent.
    pub poll: Duration,
    /// Silence after which an agent that cannot be restarted means a dead node.
    pub down_after: Duration,
    /// Memory that a node must have available; `None` = not checked.
    pub min_memory: Option<u64>,
    /// A site's own test, run on each node before a launch; it fails the node by a non-zero exit. `None` = no test.
    pub command: Option<Vec<String>>,
    /// When nothing has moved in any rank for so long, the run is ended and launched again; `None` = never.
    pub hang_after: Option<Duration>,
    /// The same where ranks compute but neither call the API nor print; `None` = computing is always progress.
    pub busy_hang_after: Option<Duration>,
}

/// Less is too little to tell a rank that hangs from one that waits for a disk.
const SHORTEST_HANG: Duration = Duration::from_secs(1);

impl Health {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let poll = section.value("poll", &DURATION, Duration::from_millis(250));
        let down_after = section.value("down_after", &DURATION, Duration::from_millis(750));
        let min_memory = section.optional("min_memory", &BYTES);
        let command = section.words("command");
        if command.as_ref().is_some_and(|words| words.first().is_none_or(|program| program.trim().is_empty())) {
            let help = "write the program and its arguments, or leave the key out";
            section.reader().mistake(&section.path_of("command"), "the command is empty", help);
        }
        let hang_after = section.value("hang_after", &DURATION_OR_NONE, None);
        let busy_hang_after = section.value("busy_hang_after", &DURATION_OR_NONE, None);
        let (hang_key, busy_key) = (section.path_of("hang_after"), section.path_of("busy_hang_after"));
        let reader = section.reader();
        if hang_after.is_some_and(|after| after < SHORTEST_HANG) {
            let help =
                "write `hang_after: 10min`, or `none`: a rank that waits for a slow disk for so long would be killed";
            reader.mistake(&hang_key, "shorter than 1s", help);
        }
        if let Some(busy) = busy_hang_after
            && hang_after.is_none_or(|after| busy < after)
        {
            let help = "set `hang_after` too, and make `busy_hang_after` longer than any stretch without a call or a line of output";
            reader.mistake(&busy_key, "needs a `hang_after` that is not longer", help);
        }
        let (poll_key, down_key) = (section.path_of("poll"), section.path_of("down_after"));
        section.finish();
        if poll < Duration::from_millis(10) {
            reader.mistake(&poll_key, "shorter than 10ms: polling would take the nodes' time", "write `poll: 250ms`");
        } else if poll > down_after {
            let message = format!(
                "`poll` ({}) is longer than `down_after` ({}): every node would be taken for dead between two questions",
                super::quantity::format_duration(poll),
                super::quantity::format_duration(down_after)
            );
            reader.mistake(&down_key, message, "make `down_after` about three times `poll`");
        }
        Health { poll, down_after, min_memory, command, hang_after, busy_hang_after }
    }
}

/// When the job stops by itself (`SCR manual §9.5`), checked when a checkpoint completes. More can be set while it
/// runs: `holdfast halt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// So long before the allocation ends; zero = not used.
    pub before_end: Duration,
    /// From this time on.
    pub after: Option<SystemTime>,
    /// `before_end` ahead of this time: an end that only the user knows.
    pub before: Option<SystemTime>,
    /// After so many checkpoints.
    pub checkpoints_left: Option<u64>,
}

impl Halt {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let before_end = section.value("before_end", &DURATION, Duration::ZERO);
        let after = section.optional("after", &TIME);
        let before = section.optional("before", &TIME);
        let checkpoints_left = section.optional_number("checkpoints_left", 1..=u64::MAX);
        if let (Some(after), Some(before)) = (after, before)
            && after > before
        {
            let help = "one of the two is enough; remove `after`, or make it the earlier one";
            section.reader().mistake(
                &section.path_of("after"),
                "`after` is later than `before`: it can never come to it",
                help,
            );
        }
        section.finish();
        Halt { before_end, after, before, checkpoints_left }
    }
}

/// A command that is run once in an allocation: SCR's prerun and postrun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where.
    pub on: CommandNodes,
}

/// The nodes on which a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandNodes {
    /// The first healthy node.
    First,
    /// All healthy nodes.
    All,
}

impl Choice for CommandNodes {
    const AVAILABLE: &'static [(&'static str, Self)] = &[("first", CommandNodes::First), ("all", CommandNodes::All)];
}

impl SiteCommand {
    pub(super) fn read_list(section: &mut Section<'_>, key: &'static str) -> Vec<Self> {
        section.sections(key).unwrap_or_default().into_iter().map(SiteCommand::read).collect()
    }

    fn read(mut section: Section<'_>) -> Self {
        let command = section.words("command");
        let on = section.choice("on", CommandNodes::First);
        if !section.has("command")
            || command.as_ref().is_some_and(|words| words.first().is_none_or(|word| word.trim().is_empty()))
        {
            let help = "write the program and its arguments: `command: [./prepare, --fast]`";
            section.reader().mistake(&section.path_of("command"), "the command is missing or empty", help);
        }
        section.finish();
        SiteCommand { command: command.unwrap_or_default(), on }
    }
}
