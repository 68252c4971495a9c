//! `holdfast status`: what a running job is doing.

use std::collections::BTreeMap;
use std::io::{self, Write};

use chrono::{DateTime, Local};
use holdfast_model::{CheckpointId, HaltState, NodeName, Timestamp};
use holdfast_wire::agent::Health;
use serde_json::{Value, json};

use super::failure::Failure;
use super::job::JobSelection;
use super::output::{Output, Report, Style, document, printable};
use super::running_job::RunningJob;
use crate::events::{History, reader::Reader};
use crate::exit;
use crate::relaunch::Explanation;
use crate::relaunch::explain::{Activity, NodeCondition, NodeExplanation};

/// Show what a running job is doing: nodes, generation, newest checkpoint and whether it is protected
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast status job.yaml
  holdfast status --json --prefix ./heat-run

JSON: {version, job, job_id, orchestrator, generation, phase, checkpoint, protected, nodes: [{name, state, ranks, \
reason}…], halt}

With `group_access: status` in the spec, members of the group may run it too; they see the state that the orchestrator \
recorded, because agents answer only the job's user.

Exit codes: 0 shown; 69 no job of this prefix is running; 78 its state belongs to another user")]
pub struct StatusArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
}

pub(super) fn run(args: StatusArgs, style: Style) -> Result<u8, Failure> {
    let job = RunningJob::to_show(&args.job, &style)?;
    let (health, halt) = super::runtime::block_on(async { (job.health().await, job.halt(None).await.ok()) })?;
    if health.is_empty() && !job.has_orchestrator {
        return Err(job.not_running());
    }
    let read = || Reader::open_in(&job.directory)?.map(History::of).transpose();
    // Without the history, the agents' answers are still shown.
    let history = read().unwrap_or_else(|error| {
        style.warn(&error.to_string());
        None
    });
    let explanation = job.state.explain();
    style.result(&Status { job, explanation, health, halt, history: history.unwrap_or_default() })?;
    Ok(exit::FINISHED)
}

struct Status {
    job: RunningJob,
    explanation: Option<Explanation>,
    health: BTreeMap<NodeName, Health>,
    halt: Option<HaltState>,
    history: History,
}

/// The reason of a node whose agent is suspected.
const SUSPECTED: &str = "its agent does not answer the orchestrator and is being checked";

/// The line of a node.
struct NodeLine {
    name: String,
    state: &'static str,
    ranks: Vec<u32>,
    reason: Option<String>,
}

impl Status {
    /// The decisions of the orchestrator with the current answers of the agents.
    fn nodes(&self) -> Vec<NodeLine> {
        let explained = self.explanation.iter().flat_map(|explanation| &explanation.nodes);
        let line = |node: &NodeExplanation| {
            let health = self.health.get(&node.node);
            let (state, reason) = match (&node.condition, health) {
                (NodeCondition::Down(verdict), _) => ("down", Some(verdict.reason.to_string())),
                (_, _) if node.silent => ("silent", Some(SUSPECTED.to_owned())),
                // Agents answer only the job's user.
                (_, None) if self.job.directory.is_ours() => ("silent", None),
                (_, None) if node.used => ("used", None),
                (_, None) => ("spare", None),
                (_, Some(_)) if node.used => ("used", None),
                (_, Some(_)) => ("spare", None),
            };
            let ranks = health.map(|health| health.ranks.iter().map(|rank| rank.0).collect()).unwrap_or_default();
            NodeLine { name: node.node.to_string(), state, ranks, reason }
        };
        explained.map(line).collect()
    }

    fn checkpoint(&self) -> Option<CheckpointId> {
        let decided = self.explanation.as_ref().and_then(|explanation| explanation.newest);
        self.health.values().filter_map(|health| health.newest).max().max(decided)
    }

    fn protected(&self) -> bool {
        self.explanation.as_ref().is_some_and(|explanation| explanation.protected)
    }

    fn phase(&self) -> Option<Activity> {
        self.explanation.as_ref().map(|explanation| explanation.phase)
    }
}

/// A point in time in local time.
fn local_time(time: Timestamp) -> String {
    let local = DateTime::from_timestamp_millis(time.millis()).map(|time| time.with_timezone(&Local));
    local.map_or_else(|| time.secs().to_string(), |time| time.format("%Y-%m-%d %H:%M:%S").to_string())
}

impl Report for Status {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        let state = &self.job.state;
        let phase = self.phase().map_or_else(|| "starting".to_owned(), |phase| phase.to_string());
        writeln!(to, "job {} ({}): {phase}, generation {}", state.job, state.agents.job_id, state.generation())?;
        if !self.job.directory.is_ours() {
            writeln!(to, "as recorded by user id {}; the agents answer only that user", self.job.directory.owner())?;
        }
        if !self.job.has_orchestrator {
            writeln!(
                to,
                "its orchestrator (process {}) has ended; to take the job over: `holdfast run`",
                state.orchestrator
            )?;
        }
        match self.checkpoint() {
            Some(id) if self.protected() => writeln!(to, "newest checkpoint {id}, protected")?,
            Some(id) => writeln!(to, "newest checkpoint {id}, not protected")?,
            None => writeln!(to, "no checkpoint yet")?,
        }
        for node in self.nodes() {
            let ranks: Vec<String> = node.ranks.iter().map(ToString::to_string).collect();
            let ranks = if ranks.is_empty() { String::new() } else { format!("  ranks {}", ranks.join(",")) };
            let reason = node.reason.map(|reason| format!("  {}", printable(&reason))).unwrap_or_default();
            writeln!(to, "  {:12} {}{ranks}{reason}", printable(&node.name), node.state)?;
        }
        for past in &self.history.generations {
            let from = match past.from {
                None => "not started yet".to_owned(),
                Some(None) => "from the beginning".to_owned(),
                Some(Some(id)) => format!("from checkpoint {id}"),
            };
            let ended = past.ended.as_ref().map(|cause| format!("; {}", printable(&cause.to_string())));
            writeln!(to, "generation {}: {from}{}", past.generation, ended.unwrap_or_default())?;
        }
        if let Some((at, sentence)) = &self.history.last {
            writeln!(to, "last event, {}: {}", local_time(*at), printable(sentence))?;
        }
        match self.halt.as_ref().and_then(|halt| halt.met.as_ref()) {
            Some(met) => writeln!(to, "halt: {}", printable(met)),
            None => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let state = &self.job.state;
        let node = |line: NodeLine| {
            let NodeLine { name, state, ranks, reason } = line;
            json!({"name": name, "state": state, "ranks": ranks, "reason": reason})
        };
        document(json!({
            "job": state.job,
            "job_id": state.agents.job_id,
            "orchestrator": self.job.has_orchestrator.then_some(state.orchestrator),
            "generation": state.generation(),
            "phase": self.phase(),
            "checkpoint": self.checkpoint(),
            "protected": self.protected(),
            "nodes": self.nodes().into_iter().map(node).collect::<Vec<_>>(),
            "halt": self.halt,
        }))
    }
}
