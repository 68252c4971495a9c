//! `holdfast status`: what a running job is doing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Local};
use holdfast_core::hostlist;
use holdfast_core::prefix::outputs;
use holdfast_core::store::{self, DirectoryName};
use holdfast_model::{CheckpointId, HaltState, NodeName};
use holdfast_wire::agent::{Health, WaitingRanks};
use serde_json::{Value, json};

use super::checkpoint::duration;
use super::failure::Failure;
use super::job::StepSelection;
use super::output::{Report, Style, document, printable};
use super::running_job::{RunningJob, StepStatus};
use crate::events::report::{from_beginning, local_time};
use crate::events::{
    BackgroundWork, Cost, DownReason, GenerationProgress, History, TimedReason, Wait, domains_text, kept_directory,
    reader::Reader, virtual_text,
};
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::job::state::{JobState, PairsState, Stage};
use crate::pairs::Overview;
use crate::relaunch::explain::{Activity, NodeCondition, NodeExplanation};
use crate::relaunch::{Explanation, Snapshot};
use crate::spec::Environment;
use crate::spec::quantity::format_duration;
use crate::spec::value_kinds::spelling;

/// Show what a job is doing, or how it ended: nodes, generation, newest checkpoint and whether it is protected
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast status job.yaml
  holdfast status --json --prefix ./heat-run
  holdfast status --step simulate job.yaml          of a step, where several run side by side
  holdfast status --watch job.yaml                  show it again each second, until the job has ended
  holdfast status --wait flushed job.yaml           return when the newest checkpoint is in the prefix directory
  holdfast status --wait finished --timeout 1h      return when the job has ended

With `group_access: status` in the spec, members of the group may run it too; they see the state that the orchestrator \
recorded, because agents answer only the job's user.

Exit codes: 0 shown; 69 no job was run in this prefix, or its orchestrator ended unexpectedly and no agent answers, or \
what `--wait` waits for did not happen before the end of the job or the timeout; 78 its state belongs to another user")]
pub struct StatusArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
    /// Show it again each second, until the job has ended
    #[arg(long, conflicts_with = "wait")]
    pub watch: bool,
    /// Wait until the newest checkpoint is protected or flushed, or until the job has ended
    #[arg(long, value_enum, value_name = "STATE")]
    pub wait: Option<Awaited>,
    /// Stop waiting after this time [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// What `--wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Awaited {
    /// The newest checkpoint survives the loss of a node
    Protected,
    /// The newest checkpoint is in the prefix directory
    Flushed,
    /// The job has ended, whatever its exit code
    Finished,
}

/// The time between two looks of `--watch`, and of `--wait`.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
const AWAITED_EVERY: Duration = Duration::from_millis(250);
/// The last failures that are shown; `holdfast report` has all of them.
const FAILURES: usize = 3;
/// To the first column of the first line, and the rest of the screen is empty.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

pub(super) fn run(args: StatusArgs, style: Style) -> Result<u8, Failure> {
    if args.watch && matches!(style, Style::Json { .. }) {
        return Err(Failure::new(exit::USAGE, "`--watch` has no JSON: a command prints one document")
            .remedy("call `holdfast status --json` again and again, or read the event log"));
    }
    let begun = Instant::now();
    let environment = args.job.job.environment(style)?;
    loop {
        let status = look(&args.job, &environment)?;
        if let Some(reason) = &status.unread {
            style.warn(reason);
        }
        if args.watch && io::stdout().is_terminal() {
            print!("{CLEAR}");
        }
        let is_over = match args.wait {
            None => !args.watch || status.has_ended(),
            Some(awaited) if status.is(awaited) => true,
            Some(awaited) => {
                let limit = args.timeout.filter(|limit| begun.elapsed() >= *limit);
                if status.has_ended() || limit.is_some() {
                    return Err(status.not_reached(awaited));
                }
                false
            }
        };
        if is_over || args.watch {
            style.result(&status)?;
        }
        if is_over {
            return Ok(exit::FINISHED);
        }
        thread::sleep(if args.watch { WATCHED_EVERY } else { AWAITED_EVERY });
    }
}

/// The present state of the job.
///
/// # Errors
/// There is no job, or neither an orchestrator nor an agent of it is left although it has not ended.
pub(super) fn look(selection: &StepSelection, environment: &Environment) -> Result<Status, Failure> {
    let (job, steps) = RunningJob::to_show(selection, environment)?;
    let (health, halt) = super::runtime::block_on(async { (job.health().await, job.halt(None).await.ok()) })?;
    if health.is_empty() && !job.has_orchestrator && job.state.stage == Stage::Running {
        return Err(job.not_running());
    }
    let read = || Reader::open_in(&job.directory)?.map(History::of).transpose();
    // Without the history, the agents' answers are still shown.
    let (history, unread) = match read() {
        Ok(history) => (history, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let history = history.map(|history| with_current_outputs(history, &job)).unwrap_or_default();
    let explanation = job.state.explain();
    let pairs = match job.state.pairs {
        Some(_) => Some(super::runtime::block_on(job.pairs())?),
        None => None,
    };
    Ok(Status { job, steps, explanation, health, halt, pairs, history, unread })
}

/// Leaves out the outputs whose files the user has moved since.
fn with_current_outputs(mut history: History, job: &RunningJob) -> History {
    if !history.unplaced.is_empty() {
        // What cannot be examined now is shown as it was recorded.
        let store = store::open(&job.prefix).ok();
        let is_placed = |directory: &String| {
            let name = DirectoryName::new(directory.as_str()).ok();
            store.as_ref().zip(name).is_some_and(|(store, name)| matches!(outputs::unplaced(&**store, &name), Ok(None)))
        };
        history.unplaced.retain(|directory, _| !is_placed(directory));
    }
    history
}

pub(super) struct Status {
    pub(super) job: RunningJob,
    /// None in a job of one step.
    steps: Vec<StepStatus>,
    explanation: Option<Explanation>,
    health: BTreeMap<NodeName, Health>,
    pub(super) halt: Option<HaltState>,
    /// `None` in a job of another kind.
    pub(super) pairs: Option<Overview>,
    pub(super) history: History,
    /// Why the event log could not be read.
    unread: Option<String>,
}

fn kept(((node, path), prefix): (&(NodeName, String), &PathBuf)) -> Value {
    json!({"node": node, "path": path, "prefix": prefix})
}

/// The reason of a node whose agent is suspected.
const SUSPECTED: &str = "its agent does not answer the orchestrator and is being checked";

/// The line of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeLine {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) ranks: Vec<u32>,
    pub(super) reason: Option<String>,
    /// Why the user excluded it.
    pub(super) excluded: Option<String>,
}

impl NodeLine {
    pub(super) fn write(&self, to: &mut dyn Write, before: &str) -> io::Result<()> {
        let NodeLine { name, state, ranks, reason, .. } = self;
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let ranks = if ranks.is_empty() { String::new() } else { format!("  ranks {}", ranks.join(",")) };
        let reason = reason.as_ref().map(|reason| format!("  {}", printable(reason))).unwrap_or_default();
        writeln!(to, "{before}{:12} {state}{ranks}{reason}", printable(name))
    }

    pub(super) fn json(&self) -> Value {
        let NodeLine { name, state, ranks, reason, excluded } = self;
        json!({"name": name, "state": state, "ranks": ranks, "reason": reason, "excluded": excluded})
    }
}

impl Status {
    /// For its nodes only.
    pub(super) fn of_nodes(
        job: RunningJob,
        explanation: Option<Explanation>,
        health: BTreeMap<NodeName, Health>,
    ) -> Self {
        let history = History::default();
        Status { job, steps: Vec::new(), explanation, health, halt: None, pairs: None, history, unread: None }
    }

    /// The decisions of the orchestrator with the current answers of the agents.
    pub(super) fn nodes(&self) -> Vec<NodeLine> {
        if let Some(pairs) = &self.job.state.pairs {
            return self.nodes_of_pairs(pairs);
        }
        let explained = self.explanation.iter().flat_map(|explanation| &explanation.nodes);
        let line = |node: &NodeExplanation| {
            let health = self.health.get(&node.node);
            let excluded = node.excluded.as_ref().map(|exclusion| exclusion.reason.clone());
            let (state, reason) = match (&node.condition, health) {
                (NodeCondition::Down(TimedReason { reason: DownReason::Excluded { reason }, .. }), _) => {
                    ("excluded", Some(reason.clone()))
                }
                (NodeCondition::Down(verdict), _) => ("down", Some(verdict.reason.to_string())),
                _ if self.has_ended() => match &self.job.state.stage {
                    Stage::Kept { .. } => ("kept", None),
                    Stage::Undrained { reason, .. } => ("undrained", Some(reason.clone())),
                    _ => ("released", None),
                },
                (_, _) if excluded.is_some() => ("excluded", excluded.clone()),
                (_, _) if node.silent => ("silent", Some(SUSPECTED.to_owned())),
                // Agents answer only the job's user.
                (_, None) if self.job.directory.is_ours() => ("silent", None),
                (_, None) if node.used => ("used", None),
                (_, None) => ("spare", None),
                (_, Some(_)) if node.used => ("used", None),
                (_, Some(_)) => ("spare", None),
            };
            let ranks = health.map(|health| health.ranks.iter().map(|rank| rank.0).collect()).unwrap_or_default();
            NodeLine { name: node.node.to_string(), state, ranks, reason, excluded }
        };
        explained.map(line).collect()
    }

    /// Those of the pairs, and those that have agents.
    fn nodes_of_pairs(&self, pairs: &PairsState) -> Vec<NodeLine> {
        let of_places = pairs.places.iter().flat_map(|place| [&place.main, &place.replica]);
        let nodes: BTreeSet<&NodeName> = of_places.chain(self.job.state.running.keys()).collect();
        let line = |node: &NodeName| {
            let state = match self.has_ended() {
                true => "released",
                // Agents answer only the job's user.
                false if self.health.contains_key(node) || !self.job.directory.is_ours() => "used",
                false => "silent",
            };
            NodeLine { name: node.to_string(), state, ranks: Vec::new(), reason: None, excluded: None }
        };
        nodes.into_iter().map(line).collect()
    }

    /// Ranks that have waited long in a call for others.
    pub(super) fn wait(&self) -> Option<Wait> {
        let running = self.health.values().filter(|health| health.generation == self.job.state.generation());
        let mut reports: Vec<&WaitingRanks> = running.filter_map(|health| health.waiting.as_ref()).collect();
        reports.sort_by_key(|waiting| Reverse(waiting.waits_for));
        let longest = reports.first().filter(|waiting| waiting.is_long())?;
        let snapshot = self.job.state.snapshot.as_ref()?;
        let has_ended = |rank| snapshot.has_ended(rank);
        Wait::of(reports.iter().copied(), longest.waits_for, snapshot.ranks()?, has_ended)
    }

    pub(super) fn checkpoint(&self) -> Option<CheckpointId> {
        let decided = self.explanation.as_ref().and_then(|explanation| explanation.newest);
        self.health.values().filter_map(|health| health.newest).max().max(decided)
    }

    /// The level of the newest checkpoint, if it is one of variables.
    fn level(&self) -> Option<u32> {
        self.history.checkpoints.get(&self.checkpoint()?)?.level
    }

    /// The checkpoints that are known to be protected. State and event log are written one after the other: either may
    /// be ahead.
    fn protected_checkpoints(&self) -> impl Iterator<Item = CheckpointId> {
        let recorded = self.history.checkpoints.iter().filter(|(_, checkpoint)| checkpoint.protected);
        recorded.map(|(id, _)| *id).chain(self.explanation.as_ref().and_then(|explanation| explanation.protected))
    }

    /// Whether the newest checkpoint is protected; `None` if only the agents know of it so far.
    pub(super) fn protected(&self) -> Option<bool> {
        let newest = self.checkpoint()?;
        let decided = self.explanation.as_ref().and_then(|explanation| explanation.newest);
        let is_known = decided == Some(newest) || self.history.checkpoints.contains_key(&newest);
        is_known.then(|| self.protected_checkpoints().any(|id| id == newest))
    }

    /// The newest protected checkpoint, if it is not the newest one.
    fn newest_protected(&self) -> Option<CheckpointId> {
        self.protected_checkpoints().max().filter(|id| Some(*id) < self.checkpoint())
    }

    /// The newest checkpoint that is in the prefix directory.
    fn newest_flushed(&self) -> Option<CheckpointId> {
        self.cost()?.flushed.map(|(id, _)| id)
    }

    fn is(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Protected => self.protected() == Some(true),
            Awaited::Flushed => self.checkpoint().is_some() && self.newest_flushed() >= self.checkpoint(),
            Awaited::Finished => self.has_ended(),
        }
    }

    /// The failure of `--wait`.
    fn not_reached(&self, awaited: Awaited) -> Failure {
        let newest = self.checkpoint().map_or_else(|| "no checkpoint".to_owned(), |id| format!("checkpoint {id}"));
        let state = if self.has_ended() { "the job has ended" } else { "the job runs, and the timeout has passed" };
        let message = match awaited {
            Awaited::Protected => format!("{state}: its newest is {newest}, and it is not protected"),
            Awaited::Flushed => format!("{state}: its newest is {newest}, and it is not in the prefix directory"),
            Awaited::Finished => state.to_owned(),
        };
        Failure::new(exit::UNAVAILABLE, message).at(self.job.prefix.display())
    }

    /// True if neither an orchestrator nor agents are left.
    pub(super) fn has_ended(&self) -> bool {
        self.job.state.stage != Stage::Running && !self.job.has_orchestrator
    }

    /// Until now, or until its last event.
    pub(super) fn cost(&self) -> Option<Cost> {
        self.history.costs.cost((!self.has_ended()).then(|| SystemTime::now().into()))
    }

    fn phase(&self) -> Option<Activity> {
        self.explanation.as_ref().map(|explanation| explanation.phase)
    }

    /// The step that is shown, in a job of several.
    fn shown_step(&self) -> Option<&str> {
        self.steps.iter().find(|step| step.is_shown).map(|step| step.name.as_str())
    }

    /// What the job does, and in which generation; or how it has ended.
    pub(super) fn doing(&self) -> String {
        let state = &self.job.state;
        let phase = match &state.stage {
            Stage::Finished { .. } | Stage::Kept { .. } | Stage::Undrained { .. } if self.has_ended() => {
                stage_text(Some(&state.stage), state.pairs.is_some())
            }
            _ if self.pairs.is_some() => "running".to_owned(),
            _ => self.phase().map_or_else(|| "starting".to_owned(), |phase| phase.to_string()),
        };
        match &self.pairs {
            Some(_) => phase,
            None => format!("{phase}, generation {}", state.generation()),
        }
    }

    /// The end of the allocation of a job that runs: `2026-11-20 18:00:00 +0100, in 3h12min`.
    pub(super) fn allocation_end(&self) -> Option<String> {
        let end = self.job.state.allocation_end.filter(|_| !self.has_ended())?;
        let left = end.saturating_sub(unix_now());
        let left = match u64::try_from(left) {
            Ok(left) if left > 0 => format!("in {}", format_duration(Duration::from_secs(left))),
            _ => "which has passed".to_owned(),
        };
        let time = DateTime::from_timestamp(end, 0)?.with_timezone(&Local);
        Some(format!("{}, {left}", time.format("%Y-%m-%d %H:%M:%S %z")))
    }
}

/// How a step is: what a step that runs does, with which nodes.
fn step_text(step: &StepStatus) -> String {
    let stage = stage_text(step.stage(), false);
    let Some(state) = step.state.as_ref().filter(|state| state.stage == Stage::Running) else { return stage };
    let Some(snapshot) = &state.snapshot else { return stage };
    let nodes: Vec<NodeName> = snapshot.lent().cloned().collect();
    let newest = snapshot.newest().map_or_else(|| "no checkpoint yet".to_owned(), |id| format!("checkpoint {id}"));
    format!("{stage}, generation {}, {newest}, nodes {}", state.generation(), hostlist::compress(&nodes))
}

fn stage_name(stage: Option<&Stage>) -> &'static str {
    match stage {
        None => "not_started",
        Some(Stage::Running) => "running",
        Some(Stage::Undrained { .. }) => "undrained",
        Some(Stage::Kept { .. }) => "kept",
        Some(Stage::Finished { .. }) => "finished",
    }
}

/// The stage for a person: only exit code 0 is called finished.
pub(super) fn stage_text(stage: Option<&Stage>, has_pairs: bool) -> String {
    match stage {
        None => "not started".to_owned(),
        Some(Stage::Running) => "running".to_owned(),
        Some(Stage::Undrained { .. }) => "ended, not drained".to_owned(),
        Some(Stage::Kept { exit_code, .. }) => {
            format!("ended with exit code {exit_code}; its nodes keep the caches, and `holdfast run` continues it")
        }
        Some(Stage::Finished { exit_code: exit::FINISHED, .. }) => "finished".to_owned(),
        Some(Stage::Finished { exit_code: exit::NOT_FINISHED, .. }) if has_pairs => {
            "ended with exit code 75, not finished; `holdfast run` goes on from the saved checkpoints".to_owned()
        }
        Some(Stage::Finished { exit_code: exit::NOT_FINISHED, .. }) => {
            "ended with exit code 75, not finished; `holdfast run` continues it".to_owned()
        }
        Some(Stage::Finished { exit_code, .. }) => format!("ended with exit code {exit_code}"),
    }
}

fn exit_code(stage: Option<&Stage>) -> Option<u8> {
    match stage {
        Some(Stage::Finished { exit_code, .. } | Stage::Kept { exit_code, .. }) => Some(*exit_code),
        _ => None,
    }
}

fn outcome(stage: Option<&Stage>) -> Option<&str> {
    match stage {
        Some(Stage::Finished { message, .. } | Stage::Kept { message, .. }) => Some(message),
        Some(Stage::Undrained { reason, .. }) => Some(reason),
        Some(Stage::Running) | None => None,
    }
}

impl Report for Status {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let state = &self.job.state;
        let step = self.shown_step().map(|step| format!(", step {step}")).unwrap_or_default();
        writeln!(to, "job {} ({}){step}: {}", state.job, state.agents.job_id, self.doing())?;
        writeln!(to, "prefix {}", printable(&self.job.prefix.display().to_string()))?;
        if state.allocation.has_virtual_nodes() {
            let nodes = state.allocation.nodes().len();
            writeln!(to, "nodes {nodes}: {}", virtual_text(nodes))?;
        }
        for step in &self.steps {
            writeln!(to, "step {}: {}", step.name, step_text(step))?;
        }
        if let Stage::Finished { message, .. } | Stage::Kept { message, .. } = &state.stage {
            writeln!(to, "{}", printable(message))?;
        }
        if let Stage::Undrained { reason, .. } = &state.stage {
            writeln!(to, "its nodes hold a checkpoint that is not drained: {}", printable(reason))?;
            writeln!(to, "to save it: `holdfast drain`")?;
        }
        if !self.job.directory.is_ours() {
            writeln!(to, "as recorded by user id {}; the agents answer only that user", self.job.directory.owner())?;
        }
        if !self.job.has_orchestrator && state.stage == Stage::Running {
            writeln!(
                to,
                "its orchestrator (process {}) has ended; to take the job over: `holdfast run`",
                state.orchestrator
            )?;
        }
        let level = self.level().map(|level| format!(" of level {level}")).unwrap_or_default();
        match self.checkpoint() {
            _ if self.pairs.is_some() => {}
            Some(id) => {
                let protection = match self.protected() {
                    Some(true) => ", protected",
                    Some(false) => ", not protected",
                    None => "",
                };
                let before = self.newest_protected().map(|id| format!("; newest protected checkpoint {id}"));
                writeln!(to, "newest checkpoint {id}{level}{protection}{}", before.unwrap_or_default())?;
            }
            None => writeln!(to, "no checkpoint yet")?,
        }
        for (scheme, (id, protected)) in self.history.newest_of_schemes() {
            let protection = if protected { ", protected" } else { "" };
            writeln!(to, "  newest of {}: checkpoint {id}{protection}", spelling(scheme))?;
        }
        if let Some((kind, number)) = &self.history.domains {
            writeln!(to, "failure domains: {}", domains_text(*number, kind))?;
        }
        if let Some(end) = self.allocation_end() {
            writeln!(to, "allocation ends {end}")?;
        }
        let background = &self.history.background;
        if *background != BackgroundWork::default() && !self.has_ended() {
            writeln!(to, "in the background: {background}")?;
        }
        if let Some(wait) = self.wait() {
            writeln!(to, "waiting: {}", printable(&wait.to_string()))?;
        }
        // Those of pairs follow with the processes of their agents.
        for node in self.nodes().into_iter().filter(|_| state.pairs.is_none()) {
            node.write(to, "  ")?;
        }
        if let Some(pairs) = self.pairs.as_ref().filter(|_| !self.has_ended()) {
            for (node, record) in &state.running {
                let answer = if self.health.contains_key(node) { "answers" } else { "silent" };
                writeln!(to, "  {:12} {answer}, agent {}", printable(node.as_str()), record.pid)?;
            }
            super::pairs::write_pairs(pairs, to, "  ")?;
        }
        for unplaced in self.history.unplaced.values() {
            writeln!(to, "output: {}", printable(&unplaced.to_string()))?;
        }
        for ((node, path), prefix) in &self.history.kept {
            writeln!(to, "{}", printable(&kept_directory(node, path, prefix)))?;
        }
        for past in &self.history.generations {
            let from = match past.from {
                None => "not started yet".to_owned(),
                Some(None) => from_beginning(past.beginning.as_deref().map(printable)),
                Some(Some(id)) => format!("from checkpoint {id}"),
            };
            let ended = past.ended.as_ref().map(|cause| format!("; {}", printable(&cause.to_string())));
            let progress = past.progress.as_ref().and_then(GenerationProgress::beyond_checkpoints);
            let progress = progress.map(|progress| format!("; progress: {}", printable(&progress.to_string())));
            let (ended, progress) = (ended.unwrap_or_default(), progress.unwrap_or_default());
            writeln!(to, "generation {}: {from}{ended}{progress}", past.generation)?;
        }
        let failures = &self.history.failures;
        for line in failures.iter().skip(failures.len().saturating_sub(FAILURES)) {
            writeln!(to, "failure: {}", printable(line))?;
        }
        if let Some(cost) = self.cost() {
            writeln!(to, "cost: {}", cost.times())?;
            if let Some(interval) = &cost.interval {
                writeln!(to, "interval: {interval}")?;
                for level in &interval.levels {
                    writeln!(to, "  {level}")?;
                }
            }
            writeln!(to, "newest {}", cost.ages())?;
            if let Some(dropped) = cost.dropped() {
                writeln!(to, "{}", printable(&dropped))?;
            }
        }
        if let Some((at, sentence)) = &self.history.last {
            writeln!(to, "last event, {}: {}", local_time(*at, "%Y-%m-%d %H:%M:%S"), printable(sentence))?;
        }
        match self.halt.as_ref().and_then(|halt| halt.met.as_ref()) {
            Some(met) => writeln!(to, "halt: {}", printable(met)),
            None => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let state = &self.job.state;
        let step = |step: &StepStatus| {
            let (stage, snapshot) = (step.stage(), step.state.as_ref().and_then(|state| state.snapshot.as_ref()));
            json!({
                "name": step.name,
                "stage": stage_name(stage),
                "exit_code": exit_code(stage),
                "outcome": outcome(stage),
                "generation": step.state.as_ref().map(JobState::generation),
                "checkpoint": snapshot.and_then(Snapshot::newest),
                "nodes": snapshot.map(|snapshot| snapshot.lent().collect::<Vec<_>>()),
            })
        };
        document(json!({
            "job": state.job,
            "job_id": state.agents.job_id,
            "prefix": self.job.prefix,
            "step": self.shown_step(),
            "orchestrator": self.job.has_orchestrator.then_some(state.orchestrator),
            "generation": state.generation(),
            "phase": self.phase(),
            "checkpoint": self.checkpoint(),
            "level": self.level(),
            "protected": self.protected(),
            "newest_protected": self.newest_protected(),
            "newest_of_schemes": self.history.newest_of_schemes().into_iter().map(|(scheme, (checkpoint, protected))| {
                json!({ "scheme": spelling(scheme), "checkpoint": checkpoint, "protected": protected })
            }).collect::<Vec<_>>(),
            "failure_domains": self.history.domains.as_ref().map(|(kind, number)| {
                json!({ "kind": kind, "number": number })
            }),
            "background": json!({
                "protecting": self.history.background.protecting,
                "flushing": self.history.background.flushing,
            }),
            "waiting": self.wait(),
            "virtual_nodes": state.allocation.has_virtual_nodes(),
            "nodes": self.nodes().iter().map(NodeLine::json).collect::<Vec<_>>(),
            "without_progress": self.explanation.as_ref().map(|explanation| explanation.without_progress),
            "progress": self.history.generations.iter().rev().find_map(|past| past.progress.as_ref()),
            "failures": self.history.failures,
            "unplaced": self.history.unplaced.values().collect::<Vec<_>>(),
            "kept": self.history.kept.iter().map(kept).collect::<Vec<_>>(),
            "cost": self.cost(),
            "halt": self.halt,
            "allocation_end": state.allocation_end,
            "stage": stage_name(Some(&state.stage)),
            "exit_code": exit_code(Some(&state.stage)),
            "outcome": outcome(Some(&state.stage)),
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
            "pairs": self.pairs.as_ref().map(|overview| &overview.pairs),
            "jobs": self.pairs.as_ref().map(|overview| &overview.jobs),
        }))
    }
}
