//! The report of the last run of a job: generations, checkpoints, nodes, failures, and where the time went.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::time::millis;
use holdfast_model::{CheckpointId, Generation, NodeName, RestartSource, Scheme, Timestamp};
use holdfast_wire::agent::AgentEvent;
use serde::Serialize;

use super::phases::{Phase, Phases, Span};
use crate::events::log::Record;
use crate::events::{Cost, Costs, DrainResult, EndCause, Failure, Failures, LogEvent, SettingInForce};

/// What is known of a job besides its events.
#[derive(Clone, Debug, Default)]
pub struct JobFacts {
    /// Its orchestrator runs: the report is until now.
    pub runs_until: Option<Timestamp>,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    pub job: String,
    pub job_id: String,
    pub prefix: PathBuf,
    #[serde(rename = "began_ms")]
    pub began: Timestamp,
    /// The last event, or now if the job runs.
    #[serde(rename = "until_ms")]
    pub until: Timestamp,
    pub is_running: bool,
    /// How it ended.
    pub outcome: Option<String>,
    /// The nodes of the allocation; all of them are on one machine if `virtual_nodes`.
    pub nodes: Vec<NodeName>,
    pub virtual_nodes: bool,
    /// Earlier runs of the job in the log.
    pub earlier_runs: u32,
    /// Those of Holdfast that ran it, one after the other.
    pub versions: Vec<String>,
    /// The last ones that were in force.
    pub settings: Vec<SettingInForce>,
    pub generations: Vec<PastGeneration>,
    pub checkpoints: Vec<PastCheckpoint>,
    /// Nodes on which something happened.
    pub incidents: Vec<Incident>,
    pub failures: Vec<Failure>,
    pub phases: Vec<Span>,
    pub time: TimeUse,
    pub cost: Option<Cost>,
}

/// A step of a job of several.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedStep {
    pub name: String,
    pub prefix: PathBuf,
    /// Whether it has ended, and how.
    pub state: String,
    /// `None` if it has not begun, or has no event log.
    pub report: Option<JobReport>,
}

/// A generation.
#[derive(Clone, Debug, Serialize)]
pub struct PastGeneration {
    pub generation: Generation,
    #[serde(rename = "placed_ms")]
    pub placed: Timestamp,
    #[serde(rename = "launched_ms")]
    pub launched: Option<Timestamp>,
    /// When its ranks had their files.
    #[serde(rename = "restarted_ms")]
    pub restarted: Option<Timestamp>,
    #[serde(rename = "ended_ms")]
    pub ended: Option<Timestamp>,
    pub nodes: usize,
    pub spares: u32,
    /// Ranks that run on another node than before.
    pub moved: usize,
    pub checkpoint: Option<CheckpointId>,
    pub source: Option<RestartSource>,
    /// Ranks whose files were rebuilt.
    pub rebuilt: usize,
    pub end: Option<String>,
}

/// A dataset that the ranks wrote.
#[derive(Clone, Debug, Serialize)]
pub struct PastCheckpoint {
    pub checkpoint: CheckpointId,
    pub generation: Generation,
    #[serde(rename = "started_ms")]
    pub started: Timestamp,
    #[serde(rename = "complete_at_ms")]
    pub complete: Option<Timestamp>,
    pub scheme: Option<Scheme>,
    pub bytes: u64,
    /// From the start until all files were complete.
    pub complete_ms: u64,
    #[serde(rename = "protected_at_ms")]
    pub protected: Option<Timestamp>,
    /// How many nodes can be lost at once, whichever they are.
    pub survives: Option<u32>,
    #[serde(rename = "flushed_at_ms")]
    pub flushed: Option<Timestamp>,
    /// How long the copy to the prefix directory took.
    pub flush_ms: Option<u64>,
    /// How long the ranks waited.
    pub blocked_ms: Option<u64>,
    /// Why it was dropped.
    pub dropped: Option<String>,
}

/// Something that happened to a node.
#[derive(Clone, Debug, Serialize)]
pub struct Incident {
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    pub node: NodeName,
    pub kind: IncidentKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    Down,
    AgentLost,
    Silent,
    Excluded,
    Included,
}

impl IncidentKind {
    pub fn name(self) -> &'static str {
        match self {
            IncidentKind::Down => "down",
            IncidentKind::AgentLost => "agent lost",
            IncidentKind::Silent => "silent",
            IncidentKind::Excluded => "excluded",
            IncidentKind::Included => "included again",
        }
    }
}

/// Where the time of the run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeUse {
    #[serde(rename = "elapsed_ms", with = "millis")]
    pub elapsed: Duration,
    #[serde(rename = "start_ms", with = "millis")]
    pub start: Duration,
    /// Without checkpoints and lost work.
    #[serde(rename = "computing_ms", with = "millis")]
    pub computing: Duration,
    /// While ranks waited for checkpoints.
    #[serde(rename = "checkpoints_ms", with = "millis")]
    pub checkpoints: Duration,
    /// Computed in vain.
    #[serde(rename = "lost_work_ms", with = "millis")]
    pub lost: Duration,
    #[serde(rename = "detection_ms", with = "millis")]
    pub detection: Duration,
    #[serde(rename = "relaunch_ms", with = "millis")]
    pub relaunch: Duration,
    #[serde(rename = "restart_ms", with = "millis")]
    pub restart: Duration,
    #[serde(rename = "drain_ms", with = "millis")]
    pub drain: Duration,
}

impl TimeUse {
    fn of(phases: &[Span], cost: Option<&Cost>) -> Self {
        let sum = |phase| phases.iter().filter(|span| span.phase == phase).map(Span::length).sum::<Duration>();
        let blocked = cost.and_then(|cost| cost.blocked).unwrap_or_default();
        let lost = cost.map(|cost| cost.lost).unwrap_or_default();
        let computing = sum(Phase::Computing);
        let lost = lost.min(computing);
        let checkpoints = blocked.min(computing.saturating_sub(lost));
        TimeUse {
            elapsed: phases.iter().map(Span::length).sum(),
            start: sum(Phase::Start),
            computing: computing.saturating_sub(lost + checkpoints),
            checkpoints,
            lost,
            detection: sum(Phase::Detection),
            relaunch: sum(Phase::Relaunch),
            restart: sum(Phase::Restart),
            drain: sum(Phase::Drain),
        }
    }

    /// The parts with their names, in the order in which they are shown.
    pub fn parts(&self) -> [(&'static str, Duration); 8] {
        [
            ("computing", self.computing),
            ("checkpoints", self.checkpoints),
            ("lost work", self.lost),
            ("start", self.start),
            ("detection", self.detection),
            ("relaunch", self.relaunch),
            ("restart", self.restart),
            ("drain", self.drain),
        ]
    }

    /// A part of the whole, percent.
    pub fn percent(&self, part: Duration) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { part.as_secs_f64() / self.elapsed.as_secs_f64() * 100.0 }
    }
}

/// Reads the events of a log; everything but the last run is dropped.
#[derive(Debug, Default)]
struct Builder {
    runs: u32,
    job: String,
    job_id: String,
    prefix: PathBuf,
    nodes: Vec<NodeName>,
    virtual_nodes: bool,
    versions: Vec<String>,
    settings: Vec<SettingInForce>,
    began: Option<Timestamp>,
    last: Timestamp,
    outcome: Option<String>,
    generations: Vec<PastGeneration>,
    /// In the order in which they were begun. A generation that restarts from an older one begins the same ids again.
    checkpoints: Vec<PastCheckpoint>,
    incidents: Vec<Incident>,
    failures: Failures,
    phases: Phases,
    costs: Costs,
}

impl JobReport {
    /// The report of the last run; `None` if none has begun.
    ///
    /// # Errors
    /// The first event that cannot be read.
    pub fn of<E>(
        records: impl IntoIterator<Item = Result<Record, E>>,
        facts: &JobFacts,
    ) -> Result<Option<JobReport>, E> {
        let mut builder = Builder::default();
        for record in records {
            builder.add(record?);
        }
        Ok(builder.finish(facts))
    }

    /// The newest checkpoint that survives the loss of nodes, and how many of them.
    pub fn newest_protected(&self) -> Option<(CheckpointId, Option<u32>)> {
        // What a restart has superseded is not counted there.
        let (checkpoint, _) = self.cost.as_ref()?.protected?;
        let past = self.checkpoints.iter().rfind(|past| past.checkpoint == checkpoint);
        Some((checkpoint, past.and_then(|past| past.survives)))
    }
}

impl Builder {
    fn add(&mut self, record: Record) {
        let Record { time, job, event } = record;
        if let LogEvent::JobStarted { job_id, nodes, prefix, virtual_nodes } = &event {
            *self = Builder {
                runs: self.runs + 1,
                job,
                job_id: job_id.clone(),
                prefix: prefix.clone(),
                nodes: nodes.clone(),
                virtual_nodes: *virtual_nodes,
                began: Some(time),
                ..Builder::default()
            };
        }
        self.last = self.last.max(time);
        self.costs.add(time, &event, None);
        self.phases.add(time, &event);
        // The list has it too.
        let _ = self.failures.add(time, &event, &self.costs);
        self.add_to_lists(time, event);
    }

    fn add_to_lists(&mut self, time: Timestamp, event: LogEvent) {
        match event {
            LogEvent::GenerationPlaced { generation, nodes, spares, moved } => self.generations.push(PastGeneration {
                generation,
                placed: time,
                launched: None,
                restarted: None,
                ended: None,
                nodes: nodes.len(),
                spares,
                moved: moved.len(),
                checkpoint: None,
                source: None,
                rebuilt: 0,
                end: None,
            }),
            LogEvent::GenerationLaunched { generation, .. } => {
                self.change(generation, |past| past.launched = Some(time))
            }
            LogEvent::GenerationEnded { generation, cause, .. } => {
                self.change(generation, |past| (past.ended, past.end) = (Some(time), Some(cause.to_string())));
                if cause.is_finished() || matches!(cause, EndCause::Halted { .. }) {
                    self.outcome = Some(cause.to_string());
                }
            }
            LogEvent::SettingsInForce { version, settings } => {
                if self.versions.last() != Some(&version) {
                    self.versions.push(version);
                }
                self.settings = settings;
            }
            LogEvent::Stopping { reason } => self.outcome = Some(reason.to_string()),
            LogEvent::Drained { result: DrainResult::Complete { checkpoint } } => {
                if let Some(past) = self.checkpoints.iter_mut().rfind(|past| past.checkpoint == checkpoint) {
                    past.flushed.get_or_insert(time);
                }
            }
            LogEvent::NodeDown { node, reason, .. } => {
                self.incident(time, node, IncidentKind::Down, reason.to_string())
            }
            LogEvent::AgentLost { node, reason } => self.incident(time, node, IncidentKind::AgentLost, reason),
            LogEvent::AgentSilent { node, millis } => {
                self.incident(time, node, IncidentKind::Silent, format!("its agent did not answer for {millis} ms"));
            }
            LogEvent::NodeExcluded { node, reason, .. } => self.incident(time, node, IncidentKind::Excluded, reason),
            LogEvent::NodeIncluded { node } => self.incident(time, node, IncidentKind::Included, String::new()),
            LogEvent::Agent(report) => self.add_of_agent(time, report.event),
            _ => {}
        }
    }

    fn add_of_agent(&mut self, time: Timestamp, event: AgentEvent) {
        match event {
            AgentEvent::Restarted { generation, checkpoint, source, rebuilt, .. } => self.change(generation, |past| {
                past.restarted.get_or_insert(time);
                (past.checkpoint, past.source, past.rebuilt) = (checkpoint, Some(source), rebuilt.len());
            }),
            AgentEvent::CheckpointStarted { generation, checkpoint } => self.begin(time, generation, checkpoint),
            AgentEvent::CheckpointComplete { generation, checkpoint, scheme, bytes, millis, .. } => {
                let past = self.checkpoint(time, generation, checkpoint);
                (past.complete, past.scheme, past.bytes, past.complete_ms) = (Some(time), Some(scheme), bytes, millis);
            }
            AgentEvent::CheckpointProtected { generation, checkpoint, survives, .. } => {
                let past = self.checkpoint(time, generation, checkpoint);
                (past.protected, past.survives) = (Some(time), survives);
            }
            AgentEvent::CheckpointFailed { generation, checkpoint, reason, .. } => {
                self.checkpoint(time, generation, checkpoint).dropped = Some(reason);
            }
            AgentEvent::RanksBlocked { generation, checkpoint, millis, .. } => {
                self.checkpoint(time, generation, checkpoint).blocked_ms = Some(millis);
            }
            AgentEvent::Flushed { generation, checkpoint, millis, .. } => {
                let past = self.checkpoint(time, generation, checkpoint);
                (past.flushed, past.flush_ms) = (Some(time), Some(millis));
            }
            _ => {}
        }
    }

    fn begin(&mut self, started: Timestamp, generation: Generation, checkpoint: CheckpointId) {
        self.checkpoints.push(PastCheckpoint {
            checkpoint,
            generation,
            started,
            complete: None,
            scheme: None,
            bytes: 0,
            complete_ms: 0,
            protected: None,
            survives: None,
            flushed: None,
            flush_ms: None,
            blocked_ms: None,
            dropped: None,
        });
    }

    /// The last one with this id; its beginning may not be in the log.
    fn checkpoint(&mut self, time: Timestamp, generation: Generation, checkpoint: CheckpointId) -> &mut PastCheckpoint {
        let known = self.checkpoints.iter().rposition(|past| past.checkpoint == checkpoint);
        let at = known.unwrap_or_else(|| {
            self.begin(time, generation, checkpoint);
            self.checkpoints.len() - 1
        });
        &mut self.checkpoints[at]
    }

    fn change(&mut self, generation: Generation, change: impl FnOnce(&mut PastGeneration)) {
        self.generations.iter_mut().rfind(|past| past.generation == generation).map(change);
    }

    fn incident(&mut self, at: Timestamp, node: NodeName, kind: IncidentKind, text: String) {
        self.incidents.push(Incident { at, node, kind, text });
    }

    fn finish(self, facts: &JobFacts) -> Option<JobReport> {
        let began = self.began?;
        let until = facts.runs_until.unwrap_or(self.last).max(self.last);
        let phases = self.phases.until(until);
        let cost = self.costs.cost(Some(until));
        Some(JobReport {
            job: self.job,
            job_id: self.job_id,
            prefix: self.prefix,
            began,
            until,
            is_running: facts.runs_until.is_some(),
            outcome: self.outcome,
            nodes: self.nodes,
            virtual_nodes: self.virtual_nodes,
            earlier_runs: self.runs.saturating_sub(1),
            versions: self.versions,
            settings: self.settings,
            generations: self.generations,
            checkpoints: self.checkpoints,
            incidents: self.incidents,
            failures: self.failures.into_list(),
            time: TimeUse::of(&phases, cost.as_ref()),
            phases,
            cost,
        })
    }
}
