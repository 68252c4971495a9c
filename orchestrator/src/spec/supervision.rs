//! `relaunch:`, `health:` and `halt:`: when the application is relaunched, when a node is down, when the job stops by
//! itself; `before:` and `after:`: commands that run once in an allocation.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::keys::{Parameter, keys, list, optional_list, requeue_by_manager, scr, words};
use super::quantity::format_duration;
use super::reading::Section;
use super::value_kinds::{
    Choice, ParameterValue, address, bytes, choice, duration, duration_or_none, path, regular_expression, time, whole,
};
use crate::params::declaration::AllowedSource;

/// SCR_RUNS has precedence.
const RETRIES: Parameter = Parameter {
    source: AllowedSource::Environment,
    value: Some(ParameterValue::Signed),
    default: Some(""),
    ..scr("SCR_RETRIES")
};
const MIN_NODES: Parameter = Parameter { source: AllowedSource::Environment, ..scr("SCR_MIN_NODES") };

keys! {
    /// When the application is relaunched.
    pub struct Relaunch {
        /// Maximum number of launches after the first; 0 = no relaunch.
        attempts: u32 = whole(0..=u32::MAX.into()).or(5).see_scr(RETRIES),
        /// Stop after this many launches in a row without progress: a newer complete checkpoint, or what `progress`
        /// names.
        no_progress_limit: u32 = whole(1..=u32::MAX.into()).or(3),
        /// Wait between the end of a generation and the next launch; SCR waits 60s.
        settle: Duration = duration().or(Duration::ZERO),
        /// Healthy nodes that a launch needs. Default: the nodes of the run. With fewer, the run goes on when nodes are
        /// lost and no spares are left: the other nodes take their ranks.
        min_nodes: Option<u32> = whole::<u32>(1..=65_536).optional().scr(MIN_NODES),
        /// With `min_nodes` below the nodes of the run: ranks on a node, at most. Default: no limit.
        max_ranks_per_node: Option<u32> = whole::<u32>(1..=1 << 20).optional(),
        /// Actions for exit codes of the application: `{codes: [2, 17], action: stop}`. The first rule with the code
        /// decides; without a rule the application is relaunched.
        on_exit_code: Vec<ExitCodeRule> = list::<ExitCodeRule>(),
    }
}

/// The keys of `relaunch` that a step has instead of those of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRelaunch {
    attempts: Option<u32>,
    no_progress_limit: Option<u32>,
    settle: Option<Duration>,
    min_nodes: Option<u32>,
    max_ranks_per_node: Option<u32>,
    on_exit_code: Option<Vec<ExitCodeRule>>,
}

impl StepRelaunch {
    /// The settings of the step in a job with these.
    pub(super) fn over(self, job: &Relaunch) -> Relaunch {
        Relaunch {
            attempts: self.attempts.unwrap_or(job.attempts),
            no_progress_limit: self.no_progress_limit.unwrap_or(job.no_progress_limit),
            settle: self.settle.unwrap_or(job.settle),
            min_nodes: self.min_nodes.or(job.min_nodes),
            max_ranks_per_node: self.max_ranks_per_node.or(job.max_ranks_per_node),
            on_exit_code: self.on_exit_code.unwrap_or_else(|| job.on_exit_code.clone()),
        }
    }
}

keys! {
    StepRelaunch => StepRelaunch;
    /// As `relaunch.attempts`.
    attempts = whole::<u32>(0..=u32::MAX.into()).optional(),
    /// As `relaunch.no_progress_limit`.
    no_progress_limit = whole::<u32>(1..=u32::MAX.into()).optional(),
    /// As `relaunch.settle`.
    settle = duration().optional(),
    /// As `relaunch.min_nodes`.
    min_nodes = whole::<u32>(1..=65_536).optional(),
    /// As `relaunch.max_ranks_per_node`.
    max_ranks_per_node = whole::<u32>(1..=1 << 20).optional(),
    /// As `relaunch.on_exit_code`.
    on_exit_code = optional_list::<ExitCodeRule>(),
    |section| {
        // What comes from elsewhere is a setting of the job: this section is what the step has instead.
        StepRelaunch {
            attempts: attempts.filter(|_| section.has("attempts")),
            no_progress_limit: no_progress_limit.filter(|_| section.has("no_progress_limit")),
            settle: settle.filter(|_| section.has("settle")),
            min_nodes: min_nodes.filter(|_| section.has("min_nodes")),
            max_ranks_per_node: max_ranks_per_node.filter(|_| section.has("max_ranks_per_node")),
            on_exit_code,
        }
    }
}

/// The action for some exit codes of the application.
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
        let written = codes.unwrap_or_default();
        let codes: Vec<u8> = written.iter().filter_map(|code| code.parse().ok()).filter(|code| *code > 0).collect();
        if codes.len() != written.len() || codes.is_empty() {
            let help = "write `codes: [2, 17]`; 0 means success and cannot be in a rule";
            section.mistake("codes", "expected a list of exit codes from 1 to 255", help);
        }
        if !section.has("action") {
            section.mistake("action", "the action is missing", "write `action: relaunch` or `action: stop`");
        }
        ExitCodeRule { codes, action: action.unwrap_or(ExitAction::Relaunch) }
    }
}

/// The action after the application ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitAction {
    /// Relaunch, within the limits.
    Relaunch,
    /// Drain and stop: a relaunch would fail again.
    Stop,
}

impl Choice for ExitAction {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("relaunch", ExitAction::Relaunch), ("stop", ExitAction::Stop)];
}

keys! {
    /// When a node counts as down. A down node is not used again in this allocation.
    pub struct Health {
        /// Interval between two polls of an agent.
        poll: Duration = duration().or(Duration::from_millis(250)),
        /// An agent that does not answer for this long is checked. Its node is down if the machine does not answer
        /// either, or the agent has ended and cannot be restarted. Only time in which the orchestrator ran counts, and
        /// the limit grows with the delay of answers.
        down_after: Duration = duration().or(Duration::from_millis(750)),
        /// An agent that does not answer although its process exists is replaced after this long; four times as long
        /// if most agents do not answer. Default: 10 s, or `down_after` if that is longer; and as soon as the
        /// orchestrator and other agents find that the process does not run at all, as on a frozen node.
        replace_after: Option<Duration> = duration().optional(),
        /// A node is down if the file system of its control directory or of a cache does not respond for this long; for
        /// ten times as long while its block device completes other reads or writes.
        disk_timeout: Duration = duration().or(Duration::from_secs(30)),
        /// Maximum number of concurrent requests of one kind to agents (prepare, kill, drain, …).
        requests: u32 = whole(1..=4096).or(64),
        /// A node with less available memory is down. Default: not checked.
        min_memory: Option<u64> = bytes().optional(),
        /// The site's own test, run on each node before a launch, as a list; a non-zero exit code means down.
        command: Option<Vec<String>> = words(),
        /// A test of the site that takes longer has failed.
        test_timeout: Duration = duration().or(Duration::from_secs(60)),
        /// If no rank has called the checkpoint API so long after a launch, this is reported, because nothing is
        /// protected then; after a relaunch, because the ranks may hang before their first call. For the sources that
        /// are such calls, `scr` and `variables`. `none` = never.
        silent_api_after: Option<Duration> = duration_or_none().or(Some(Duration::from_secs(30))),
        /// If ranks have waited so long in a call for ranks that have not made it, this is reported: the call, the
        /// ranks that wait, and those that are waited for. `none` = never.
        waiting_after: Option<Duration> = duration_or_none().or(Some(Duration::from_secs(60))),
        /// The mean time between failures of the job's nodes together, as far as you know it: `12h`. With
        /// `every: auto`, the interval between checkpoints is the best for it. Default: the mean of the job's own
        /// failures, from the first one.
        mtbf: Option<Duration> = duration().optional(),
        /// A run is considered hung if, for this long, no rank has produced output and every rank is either waiting in
        /// a call of the API or idle: no call, less than 1 % of a processor, no I/O. It is then relaunched from its
        /// newest checkpoint. While a rank computes, the run is never considered hung. `none` = never.
        hang_after: Option<Duration> = duration_or_none().or(None),
        /// Ranks that busy-wait, as most MPI libraries do, look like ranks that compute. With this key, a run is also
        /// considered hung if, for this long, a rank has made no call and no rank has produced output, whatever its
        /// processor use. `none` = never.
        busy_hang_after: Option<Duration> = duration_or_none().or(None),
    }
    checked by Health::check;
}

/// Within less time, a hung rank cannot be distinguished from one that waits for a disk.
const SHORTEST_HANG: Duration = Duration::from_secs(1);
/// A healthy disk may need as long.
const SHORTEST_DISK_TIMEOUT: Duration = Duration::from_millis(100);
/// To start a program on a busy node may take as long.
const SHORTEST_TEST_TIMEOUT: Duration = Duration::from_millis(100);
/// Polling more often would cost the nodes too much processor time.
const SHORTEST_POLL: Duration = Duration::from_millis(10);

impl Health {
    fn check(&self, section: &Section<'_>) {
        if self.command.as_ref().is_some_and(|command| names_no_program(command)) {
            let help = "write the program and its arguments, or leave `command` out";
            section.mistake("command", "the command is empty", help);
        }
        if self.hang_after.is_some_and(|after| after < SHORTEST_HANG) {
            let help = "write `hang_after: 10min`, or `none`: ranks that wait for a slow disk would be killed";
            section.mistake("hang_after", "shorter than 1s", help);
        }
        if let Some(busy) = self.busy_hang_after
            && self.hang_after.is_none_or(|after| busy < after)
        {
            let help = "set `hang_after` too, and make `busy_hang_after` longer than any time without a call or output";
            section.mistake("busy_hang_after", "`busy_hang_after` needs a `hang_after` that is not longer", help);
        }
        if self.disk_timeout < SHORTEST_DISK_TIMEOUT {
            let help = "write a longer time: a busy disk takes seconds to respond";
            section.mistake("disk_timeout", "shorter than 100ms", help);
        }
        if self.test_timeout < SHORTEST_TEST_TIMEOUT {
            section.mistake(
                "test_timeout",
                "shorter than 100ms",
                "write a longer time: every node would fail the test",
            );
        }
        if let Some(replace_after) = self.replace_after
            && replace_after < self.down_after
        {
            let message = format!(
                "`replace_after` ({}) is shorter than `down_after` ({}): an agent is checked only after `down_after`",
                format_duration(replace_after),
                format_duration(self.down_after)
            );
            section.mistake("replace_after", message, "make it at least as long as `down_after`, or leave it out");
        }
        if self.poll < SHORTEST_POLL {
            let message = "shorter than 10ms: polling would cost the nodes too much processor time";
            section.mistake("poll", message, "write `poll: 250ms`");
        } else if self.poll > self.down_after {
            let message = format!(
                "`poll` ({}) is longer than `down_after` ({}): every node would count as down between two polls",
                format_duration(self.poll),
                format_duration(self.down_after)
            );
            section.mistake("down_after", message, "make `down_after` about three times `poll`");
        }
    }
}

keys! {
    /// When the job stops by itself (`SCR manual §9.5`). Conditions can be changed while the job runs: `holdfast halt`.
    pub struct Halt {
        /// This long before the allocation ends; 0 = not used.
        before_end: Duration = duration().or(Duration::ZERO).scr("SCR_HALT_SECONDS"),
        /// From this time on.
        after: Option<SystemTime> = time().optional(),
        /// `before_end` ahead of this time, for an end that is not known to the resource manager.
        before: Option<SystemTime> = time().optional(),
        /// After this many checkpoints.
        checkpoints_left: Option<u64> = whole::<u64>(1..=u64::MAX).optional(),
        /// After a halt condition or a signal, ranks that use the checkpoint API have this long to reach their next
        /// checkpoint. Then, and without the API at once, they get SIGTERM, and after as long again SIGKILL. Near the
        /// end of the allocation both times are shorter.
        grace: Duration = duration().or(Duration::from_secs(60)),
        /// Time kept for the drain before the end of the allocation. Default: 30s, at most a tenth of the allocation;
        /// plus twice the time in which the newest checkpoint can be copied to the prefix directory, as fast as the
        /// last flush, fetch or drain (unmeasured: 200 MB/s for each node).
        drain_reserve: Option<Duration> = duration().optional(),
    }
    checked by Halt::check;
}

impl Halt {
    fn check(&self, section: &Section<'_>) {
        if let (Some(after), Some(before)) = (self.after, self.before)
            && after > before
        {
            let help = "remove `after`, or make it the earlier one";
            section.mistake("after", "`after` is later than `before`: it can never take effect", help);
        }
    }
}

/// A command that runs once in an allocation: SCR's prerun and postrun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub on: CommandNodes,
    /// After this time its processes are ended, and it has failed.
    pub time_limit: Option<Duration>,
}

/// The default time limit of a command.
const COMMAND_WITHIN: Duration = Duration::from_secs(3600);

keys! {
    SiteCommand => SiteCommand;
    /// The program and its arguments, as a list; no shell is involved.
    command = words(),
    /// On the `first` healthy node or on `all`.
    on = choice().or(CommandNodes::First),
    /// After this time its processes are ended (SIGTERM, after 5s SIGKILL), and it has failed. `none` = no limit.
    time_limit = duration_or_none().or(Some(COMMAND_WITHIN)),
    |section| {
        if !section.has("command") || command.as_ref().is_some_and(|command| names_no_program(command)) {
            let help = "write the program and its arguments: `command: [./prepare, --fast]`";
            section.mistake("command", "the command is missing or empty", help);
        }
        SiteCommand { command: command.unwrap_or_default(), on, time_limit }
    }
}

keys! {
    /// What counts as progress besides a newer complete checkpoint, for programs that keep their own state.
    pub struct Progress {
        /// Files that the program writes when it has made progress: `[state/*.ckpt, step.txt]`. A file that is new, or
        /// whose size or time of modification changed, since the launch. `*`, `?`, `[a-z]`, and `**` for directories;
        /// relative to the working directory of the ranks, and as the machine of `holdfast run` sees them.
        files: Option<Vec<String>> = words(),
        /// A regular expression for the lines that ranks print. With a group, `"step ([0-9]+)"`: a line whose number
        /// in the group is larger than all before. Without: any line that matches.
        output: Option<String> = regular_expression().optional(),
    }
    checked by Progress::check;
}

impl Progress {
    fn check(&self, section: &Section<'_>) {
        if self.files.as_ref().is_some_and(Vec::is_empty) {
            section.mistake("files", "the list is empty", "write `files: [\"state/*.ckpt\"]`, or leave it out");
        }
        for (at, pattern) in self.files.iter().flatten().enumerate() {
            let key = format!("files[{at}]");
            if pattern.is_empty() {
                section.mistake(&key, "the pattern is empty", "write the path of a file, or remove it");
            } else if let Err(error) = glob::Pattern::new(pattern) {
                let message = format!("`{}` is not a pattern of files: {}", pattern.escape_debug(), error.msg);
                section.mistake(&key, message, "a `[` that is meant literally is written `[[]`");
            }
        }
    }

    /// True if there is anything to check.
    pub fn is_used(&self) -> bool {
        self.files.is_some() || self.output.is_some()
    }
}

keys! {
    /// Figures of the job for monitoring, in the text format of Prometheus, while it runs: see docs/metrics.md.
    pub struct Metrics {
        /// A file that is replaced every 5 s and at the end of the job, for the textfile collector of node_exporter:
        /// `/var/lib/node_exporter/heat.prom`. Relative to the directory of the spec file. Default: none.
        file: Option<PathBuf> = path().optional(),
        /// Serve them over HTTP at `/metrics` of this address: `127.0.0.1:9464`. Default: none.
        listen: Option<SocketAddr> = address().optional(),
        /// A file with a token, which requests must have as `Authorization: Bearer …`; without it, every program that
        /// can connect to the address can read the figures. Relative to the directory of the spec file.
        token_file: Option<PathBuf> = path().optional(),
    }
    checked by Metrics::check;
}

impl Metrics {
    fn check(&self, section: &Section<'_>) {
        if self.token_file.is_some() && self.listen.is_none() {
            let help = "write `listen: 127.0.0.1:9464` too, or leave it out";
            section.mistake("token_file", "`token_file` has no effect without `listen`", help);
        }
    }
}

/// How a chain of allocations goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeue {
    pub submission: Submission,
    /// The chain ends when this many allocations in a row made no progress.
    pub no_progress_limit: u32,
}

/// What submits the next allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    Command(Vec<String>),
    /// The manager of this name runs the job again.
    ByManager(&'static str),
}

keys! {
    Requeue => Option<Requeue>;
    /// A command, as a list; no shell is involved: `[sbatch, job.sbatch]`. It runs where `holdfast run` was started.
    command = words(),
    /// A manager that can run the job again.
    by_manager = requeue_by_manager(),
    /// Submit nothing, and end with exit code 91, when this many allocations in a row made no progress: no step was
    /// finished, and no launch made progress as under `relaunch`.
    no_progress_limit = whole(1..=u32::MAX.into()).or(3),
    |section| {
        let submission = match (command, by_manager) {
            (Some(_), Some(manager)) => {
                let message = format!("`command` and `{manager}` exclude each other");
                section.mistake(manager, message, "remove one of them");
                None
            }
            (Some(command), None) if names_no_program(&command) => {
                section.mistake("command", "the command is empty", "write `command: [sbatch, job.sbatch]`");
                None
            }
            (Some(command), None) => Some(Submission::Command(command)),
            (None, Some(manager)) => Some(Submission::ByManager(manager)),
            (None, None) => {
                if section.reader().is_decided(&section.path_of("no_progress_limit")) {
                    let managers = section.reader().registered.requeuing();
                    let managers = managers.map(|facts| format!("`{}: true`", facts.name));
                    let ways: Vec<String> =
                        std::iter::once("`command: [sbatch, job.sbatch]`".to_owned()).chain(managers).collect();
                    let help = format!("write {} too", ways.join(" or "));
                    section.mistake("no_progress_limit", "it has no effect: nothing submits the next allocation", help);
                }
                None
            }
        };
        Some(Requeue { submission: submission?, no_progress_limit })
    }
}

pub(super) fn names_no_program(command: &[String]) -> bool {
    command.first().is_none_or(|program| program.trim().is_empty())
}

/// The nodes on which a command runs.
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
