//! The history of a job, from the events of its log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, Level, NodeName, Scheme, Timestamp, Unplaced};
use holdfast_wire::agent::AgentEvent;

use super::cost::Costs;
use super::log::Record;
use super::reader::ReadError;
use super::reason::{EndCause, GenerationProgress};
use super::vocabulary::LogEvent;

/// The history since the job began in its current allocation, or in its last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The generations of the job, oldest first.
    pub generations: Vec<PastGeneration>,
    /// The complete checkpoints, those of earlier allocations too.
    pub checkpoints: BTreeMap<CheckpointId, PastCheckpoint>,
    /// What is lost at once, where that is not a node: the kind, and how many there are.
    pub domains: Option<(String, usize)>,
    /// What the agents do with checkpoints while the application goes on.
    pub background: BackgroundWork,
    /// The last flush whose size is known.
    pub last_flush: Option<PastFlush>,
    /// Outputs with files that were not put at their paths; the user may have moved them since.
    pub unplaced: BTreeMap<String, Unplaced>,
    /// Control directories of earlier jobs with the same id that are kept on nodes, and those jobs' prefix
    /// directories.
    pub kept: BTreeMap<(NodeName, String), PathBuf>,
    /// What the job has cost.
    pub costs: Costs,
    /// The failures, each as one line, oldest first.
    pub failures: Vec<String>,
    /// The last event that has a sentence, with its time.
    pub last: Option<(Timestamp, String)>,
}

/// Work of the agents in this generation that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackgroundWork {
    /// Checkpoints whose redundancy is being made.
    pub protecting: BTreeSet<CheckpointId>,
    /// Checkpoints that are being flushed in the background, or wait for their turn.
    pub flushing: BTreeSet<CheckpointId>,
}

impl BackgroundWork {
    fn add(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::EncodeStarted { checkpoint, .. } => drop(self.protecting.insert(*checkpoint)),
            AgentEvent::CheckpointProtected { checkpoint, .. }
            | AgentEvent::ProtectionFailed { checkpoint, .. }
            | AgentEvent::CheckpointFailed { checkpoint, .. } => drop(self.protecting.remove(checkpoint)),
            AgentEvent::FlushRequested { checkpoint, .. } => drop(self.flushing.insert(*checkpoint)),
            AgentEvent::Flushed { checkpoint, .. } | AgentEvent::FlushFailed { checkpoint, .. } => {
                self.flushing.remove(checkpoint);
            }
            _ => {}
        }
    }
}

impl fmt::Display for BackgroundWork {
    /// `redundancy of checkpoint 7; flush of checkpoints 4, 6`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |what: &str, ids: &BTreeSet<CheckpointId>| {
            let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let checkpoints = if list.len() == 1 { "checkpoint" } else { "checkpoints" };
            (!list.is_empty()).then(|| format!("{what} of {checkpoints} {}", list.join(", ")))
        };
        let parts = [named("redundancy", &self.protecting), named("flush", &self.flushing)];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastFlush {
    pub checkpoint: CheckpointId,
    /// The size of the checkpoint, bytes.
    pub bytes: u64,
    pub took: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastCheckpoint {
    /// Its level, if it is one of variables.
    pub level: Option<u32>,
    /// The scheme that protects it; unknown before its end was reported.
    pub scheme: Option<Scheme>,
    /// True if it was protected from the loss of a node.
    pub protected: bool,
    /// Its size; unknown before its end was reported.
    pub bytes: Option<u64>,
}

/// A generation, as far as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastGeneration {
    pub generation: Generation,
    /// What its ranks started from; `None` before they started, `Some(None)` for the beginning.
    pub from: Option<Option<CheckpointId>>,
    /// Why they started from the beginning, if it was not the first generation.
    pub beginning: Option<String>,
    pub ended: Option<EndCause>,
    /// The progress that it made.
    pub progress: Option<GenerationProgress>,
}

impl PastGeneration {
    fn new(generation: Generation) -> PastGeneration {
        PastGeneration { generation, from: None, beginning: None, ended: None, progress: None }
    }
}

impl History {
    ///
    /// # Errors
    /// The first event that cannot be read.
    pub fn of(records: impl IntoIterator<Item = Result<Record, ReadError>>) -> Result<History, ReadError> {
        let mut history = History::default();
        for record in records {
            history.add(record?);
        }
        Ok(history)
    }

    fn add(&mut self, record: Record) {
        self.costs.add(record.time, &record.event, None);
        if let Some(sentence) = record.event.sentence() {
            self.last = Some((record.time, sentence));
        }
        match record.event {
            LogEvent::JobStarted { .. } => {
                self.generations.clear();
                (self.domains, self.background) = (None, BackgroundWork::default());
                self.kept.clear();
                self.failures.clear();
            }
            LogEvent::FailureExplained { line, .. } => self.failures.push(line),
            LogEvent::FailureDomains { kind, number, .. } => self.domains = Some((kind, number)),
            LogEvent::DirectoryKept { node, path, prefix } => drop(self.kept.insert((node, path), prefix)),
            LogEvent::GenerationPlaced { generation, .. } => {
                self.generations.push(PastGeneration::new(generation));
            }
            LogEvent::FromBeginning { generation, reason } => {
                self.change(generation, |past| past.beginning = Some(reason));
            }
            LogEvent::GenerationEnded { generation, cause, progress, .. } => {
                self.background = BackgroundWork::default();
                self.change(generation, |past| (past.ended, past.progress) = (Some(cause), progress));
            }
            LogEvent::Agent(report) => self.add_of_agent(report.event),
            _ => {}
        }
    }

    fn add_of_agent(&mut self, event: AgentEvent) {
        self.background.add(&event);
        match event {
            AgentEvent::Restarted { generation, checkpoint, protected, .. } => {
                self.change(generation, |past| past.from = Some(checkpoint));
                // A restart on other nodes may leave it with less protection than it had, or with more.
                if let (Some(checkpoint), Some(protected)) = (checkpoint, protected) {
                    self.checkpoint(checkpoint).protected = protected;
                }
            }
            AgentEvent::CheckpointComplete { checkpoint, level, scheme, bytes, .. } => {
                let (scheme, bytes) = (Some(scheme), Some(bytes));
                self.checkpoints.insert(checkpoint, PastCheckpoint { level, scheme, protected: false, bytes });
            }
            AgentEvent::Flushed { checkpoint, millis, .. } => {
                let bytes = self.checkpoints.get(&checkpoint).and_then(|past| past.bytes);
                let took = Duration::from_millis(millis);
                self.last_flush = bytes.map(|bytes| PastFlush { checkpoint, bytes, took }).or(self.last_flush);
            }
            AgentEvent::CheckpointProtected { checkpoint, .. } => self.checkpoint(checkpoint).protected = true,
            AgentEvent::OutputNotPlaced { directory, path, files, .. } => {
                self.unplaced.insert(directory.clone(), Unplaced { directory, path, files });
            }
            // A level 4 that is in cache only is one of level 1.
            AgentEvent::FlushFailed { checkpoint, .. } => {
                let past = self.checkpoints.get_mut(&checkpoint).and_then(|past| past.level.as_mut());
                if let Some(level) = past.filter(|level| **level == Level::Prefix.number()) {
                    *level = Level::Local.number();
                }
            }
            _ => {}
        }
    }

    /// The newest checkpoint of each scheme, if there are several: those of several levels of redundancy.
    pub fn newest_of_schemes(&self) -> BTreeMap<Scheme, (CheckpointId, bool)> {
        let known = self.checkpoints.iter().filter_map(|(id, past)| Some((past.scheme?, (*id, past.protected))));
        let newest: BTreeMap<_, _> = known.collect();
        if newest.len() > 1 { newest } else { BTreeMap::new() }
    }

    fn checkpoint(&mut self, checkpoint: CheckpointId) -> &mut PastCheckpoint {
        self.checkpoints.entry(checkpoint).or_default()
    }

    fn change(&mut self, generation: Generation, change: impl FnOnce(&mut PastGeneration)) {
        self.generations.iter_mut().rfind(|past| past.generation == generation).map(change);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::events::fixtures::event;

    fn record(name: &str, fields: Value) -> Result<Record, ReadError> {
        Ok(Record { time: Timestamp::from_secs(7), job: "heat".to_owned(), event: event(name, fields) })
    }

    fn placed(generation: u64) -> Result<Record, ReadError> {
        record("generation_placed", json!({"generation": generation}))
    }

    fn restarted(generation: u64, checkpoint: Option<u64>) -> Result<Record, ReadError> {
        let protected = checkpoint.map(|_| false);
        record("restarted", json!({"generation": generation, "checkpoint": checkpoint, "protected": protected}))
    }

    fn complete(checkpoint: u64, level: Option<u32>) -> Result<Record, ReadError> {
        record("checkpoint_complete", json!({"generation": 4, "checkpoint": checkpoint, "level": level}))
    }

    #[test]
    fn generations_have_a_start_and_an_end_and_a_new_allocation_begins_a_new_history() {
        let started = || record("job_started", json!({}));
        let cause = EndCause::NodeFailure { nodes: vec!["n1".into()] };
        let mut ended = json!(cause);
        ended["generation"] = json!(3);
        ended["progress"] = json!({"source": "checkpoint", "checkpoint": 6});
        let records = [
            started(),
            placed(1),
            started(),
            placed(3),
            restarted(3, None),
            record("generation_ended", ended),
            placed(4),
            restarted(4, Some(6)),
            complete(6, Some(3)),
            record("checkpoint_protected", json!({"generation": 4, "checkpoint": 6})),
            complete(7, None),
            record("encode_started", json!({"generation": 4, "checkpoint": 7})),
        ];
        let history = History::of(records).unwrap();
        let [third, fourth] = &history.generations[..] else { panic!("{history:?}") };
        assert_eq!((third.generation, third.from, &third.ended), (Generation(3), Some(None), &Some(cause)));
        assert_eq!(third.progress, Some(GenerationProgress::Checkpoint { checkpoint: CheckpointId(6) }));
        assert_eq!((fourth.generation, fourth.from), (Generation(4), Some(Some(CheckpointId(6)))));
        assert_eq!((&fourth.ended, &fourth.progress), (&None, &None));
        let scheme = Some(Scheme::new("XOR"));
        let complete = |level, protected| PastCheckpoint { level, scheme, protected, bytes: Some(1) };
        let checkpoints = [(CheckpointId(6), complete(Some(3), true)), (CheckpointId(7), complete(None, false))];
        assert_eq!(history.checkpoints, BTreeMap::from(checkpoints));
        assert!(history.last.unwrap().1.starts_with("checkpoint 7 complete"));
    }
}
