//! `relaunch:`, `health:` and `halt:` when a run is made again, when a node is down, when the job stops by itself;
//! `before:` and `after:` what is run once in an allocation.

use std::time::{Duration, SystemTime};

use super::keys::{keys, list, words};
use super::quantity::format_duration;
use super::reading::Section;
use super::value_kinds::{Choice, bytes, choice, duration, duration_or_none, time, whole};

/// When a run that ended is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relaunch {
    /// Launches after the first one, at most; 0 = never again.
    pub attempts: u32,
    /// Stop when so many generations in a row end without a newer complete checkpoint.
    pub no_progress_limit: u32,
    /// Wait between the end of a run and the next launch.
    pub settle: Duration,
    /// Healthy nodes that a launch needs; `None` = as many as the run asks for.
    pub min_nodes: Option<u32>,
    /// What the application's exit codes mean; the first rule that names a code decides. An exit code that no rule
    /// names, and a death by signal, mean relaunch.
    pub on_exit_code: Vec<ExitCodeRule>,
}

keys! {
    Relaunch => Relaunch;
    /// Launches after the first, at most; 0 = never.
    attempts = whole(0..=u32::MAX.into()).or(5).see_scr("SCR_RETRIES"),
    /// Stop after so many runs in a row without a newer complete checkpoint.
    no_progress_limit = whole(1..=u32::MAX.into()).or(3),
    /// Wait between the end of a run and the next launch; SCR waited 60s.
    settle = duration().or(Duration::ZERO),
    /// Healthy nodes that a launch needs. Default: what the run takes.
    min_nodes = whole::<u32>(1..=65_536).optional().scr("SCR_MIN_NODES"),
    /// What exit codes of the application mean; the first rule that names one decides, `relaunch` if none does:
    /// `{codes: [2, 17], action: stop}`.
    on_exit_code = list::<ExitCodeRule>(),
    |_section| {
        let on_exit_code = on_exit_code.unwrap_or_default();
        Relaunch { attempts, no_progress_limit, settle, min_nodes, on_exit_code }
    }
}

/// What some exit codes of the application mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitCodeRule {
    /// The codes, 1 to 255.
    pub codes: Vec<u8>,
    pub action: ExitAction,
}

keys! {
    ExitCodeRule => ExitCodeRule;
    /// The codes, each from 1 to 255.
    codes = words(),
    /// `relaunch` or `stop`.
    action = choice::<ExitAction>().optional(),
    |section| {
        let words = codes.unwrap_or_default();
        let codes: Vec<u8> = words.iter().filter_map(|word| word.parse().ok()).filter(|code| *code > 0).collect();
        if codes.len() != words.len() || codes.is_empty() {
            let help = "write `codes: [2, 17]`; 0 is success and is never relaunched by a rule";
            section.mistake("codes", "expected a list of exit codes from 1 to 255", help);
        }
        if !section.has("action") {
            section.mistake("action", "the action is missing", "write `action: relaunch` or `action: stop`");
        }
        ExitCodeRule { codes, action: action.unwrap_or(ExitAction::Relaunch) }
    }
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

keys! {
    /// When a node is down. Once down, down for the whole allocation.
    pub struct Health {
        /// Time between two polls of an agent.
        poll: Duration = duration().or(Duration::from_millis(250)),
        /// An agent that is silent for so long and cannot be restarted means a dead node.
        down_after: Duration = duration().or(Duration::from_millis(750)),
        /// Requests of one kind to agents that are under way at a time (prepare, kill, drain, …).
        requests: u32 = whole(1..=4096).or(64),
        /// A node with less available memory is down. Default: not checked.
        min_memory: Option<u64> = bytes().optional(),
        /// The site's own test on each node before a launch, as a list of words; non-zero exit = down.
        command: Option<Vec<String>> = words(),
        /// The run hangs, and is launched again from its newest checkpoint, when for so long no rank printed a line, and
        /// every rank either waited in a call of the API or made none, used no processor (less than 1 %) and moved no
        /// data. A rank that computes is never taken for hung, nor are those that wait for it. `none` = never.
        hang_after: Option<Duration> = duration_or_none().or(None),
        /// Ranks that spin (most MPI libraries do while they wait) look like ranks that compute: with this, a rank hangs
        /// that has made no call and while nothing was printed for so long, whatever it computes. `none` = never.
        busy_hang_after: Option<Duration> = duration_or_none().or(None),
    }
    checked by Health::check;
}

/// Less is too little to tell a rank that hangs from one that waits for a disk.
const SHORTEST_HANG: Duration = Duration::from_secs(1);
/// More polls than this would take the nodes' time.
const SHORTEST_POLL: Duration = Duration::from_millis(10);

impl Health {
    fn check(&self, section: &Section<'_>) {
        if self.command.as_ref().is_some_and(|words| names_no_program(words)) {
            let help = "write the program and its arguments, or leave the key out";
            section.mistake("command", "the command is empty", help);
        }
        if self.hang_after.is_some_and(|after| after < SHORTEST_HANG) {
            let help =
                "write `hang_after: 10min`, or `none`: a rank that waits for a slow disk for so long would be killed";
            section.mistake("hang_after", "shorter than 1s", help);
        }
        if let Some(busy) = self.busy_hang_after
            && self.hang_after.is_none_or(|after| busy < after)
        {
            let help = "set `hang_after` too, and make `busy_hang_after` longer than any stretch without a call or a line of output";
            section.mistake("busy_hang_after", "needs a `hang_after` that is not longer", help);
        }
        if self.poll < SHORTEST_POLL {
            let message = "shorter than 10ms: polling would take the nodes' time";
            section.mistake("poll", message, "write `poll: 250ms`");
        } else if self.poll > self.down_after {
            let message = format!(
                "`poll` ({}) is longer than `down_after` ({}): every node would be taken for dead between two polls",
                format_duration(self.poll),
                format_duration(self.down_after)
            );
            section.mistake("down_after", message, "make `down_after` about three times `poll`");
        }
    }
}

keys! {
    /// When the job stops by itself (`SCR manual §9.5`), checked when a checkpoint completes. More can be set while it
    /// runs: `holdfast halt`.
    pub struct Halt {
        /// So long before the allocation ends; 0 = not used.
        before_end: Duration = duration().or(Duration::ZERO).scr("SCR_HALT_SECONDS"),
        /// From this time on.
        after: Option<SystemTime> = time().optional(),
        /// `before_end` ahead of this time: an end that only the user knows.
        before: Option<SystemTime> = time().optional(),
        /// After so many checkpoints.
        checkpoints_left: Option<u64> = whole::<u64>(1..=u64::MAX).optional(),
    }
    checked by Halt::check;
}

impl Halt {
    fn check(&self, section: &Section<'_>) {
        if let (Some(after), Some(before)) = (self.after, self.before)
            && after > before
        {
            let help = "one of the two is enough; remove `after`, or make it the earlier one";
            section.mistake("after", "`after` is later than `before`: it can never come to it", help);
        }
    }
}

/// A command that is run once in an allocation: SCR's prerun and postrun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub on: CommandNodes,
}

keys! {
    SiteCommand => SiteCommand;
    /// The program and its arguments: words, no shell.
    command = words(),
    /// On the `first` healthy node or on `all`.
    on = choice().or(CommandNodes::First),
    |section| {
        if !section.has("command") || command.as_ref().is_some_and(|words| names_no_program(words)) {
            let help = "write the program and its arguments: `command: [./prepare, --fast]`";
            section.mistake("command", "the command is missing or empty", help);
        }
        SiteCommand { command: command.unwrap_or_default(), on }
    }
}

fn names_no_program(words: &[String]) -> bool {
    words.first().is_none_or(|program| program.trim().is_empty())
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
