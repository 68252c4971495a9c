//! What a rehearsal showed: from the events of the disturbed run, and the comparison with an undisturbed one.
//!
//! Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use holdfast_model::{CheckpointId, NodeName, Rank, RestartSource, Timestamp};
use holdfast_wire::agent::AgentEvent;
use serde::Serialize;

use crate::events::log::Record;
use crate::events::{FaultReport, LogEvent, RunReport, ranks_text};
use crate::exit;
use crate::spec::FaultAction;

/// A node that was lost after the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LostNode {
    node: NodeName,
    ranks: Vec<Rank>,
}

/// The relaunch after the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Restored {
    /// `None`: from the beginning.
    checkpoint: Option<CheckpointId>,
    source: RestartSource,
    /// Ranks whose files were rebuilt.
    rebuilt: Vec<Rank>,
    /// Ranks whose files were moved to another node.
    moved: Vec<Rank>,
    /// From the fault until all ranks had joined, milliseconds.
    after_ms: u64,
    /// The work since that checkpoint, or since the first launch, which is repeated, milliseconds.
    lost_work_ms: u64,
}

/// What the events of a run show about its fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Findings {
    pub(super) injected: bool,
    lost: Vec<LostNode>,
    /// From the fault until a loss was noticed, milliseconds; absent if none was.
    detected_ms: Option<u64>,
    /// The generation in which the fault was injected ended because of it.
    ended_generation: bool,
    restored: Option<Restored>,
    /// The first checkpoint that was complete after that.
    next_checkpoint: Option<CheckpointId>,
    /// Checkpoints that were complete after the fault.
    checkpoints_since: u64,
}

/// Checkpoints after a fault without a relaunch: the job goes on.
const CHECKPOINTS_ENOUGH: u64 = 3;

impl Findings {
    /// True if the fault is injected.
    pub(super) fn is_injection(event: &LogEvent) -> bool {
        matches!(event, LogEvent::FaultInjected { .. } | LogEvent::PrefixStalled { .. })
    }

    /// From the events of a step, or of a job before the fault, oldest first.
    pub(super) fn of(events: &[Record]) -> Self {
        let mut findings = Findings::default();
        let (mut began, mut first, mut injected) = (None, None, None);
        let (mut complete, mut halts) = (BTreeMap::new(), false);
        for Record { time, event, .. } in events {
            let since = |from: Option<Timestamp>| from.map_or(0, |from| millis_between(from, *time));
            match event {
                LogEvent::GenerationLaunched { generation, .. } => {
                    began.get_or_insert(*time);
                    first.get_or_insert(*generation);
                }
                event if Findings::is_injection(event) => {
                    findings.injected = true;
                    injected.get_or_insert(*time);
                }
                LogEvent::Agent(report) => match &report.event {
                    AgentEvent::CheckpointComplete { checkpoint, .. } => {
                        if findings.restored.is_some() {
                            findings.next_checkpoint.get_or_insert(*checkpoint);
                        }
                        findings.checkpoints_since += u64::from(findings.injected);
                        complete.insert(*checkpoint, *time);
                    }
                    AgentEvent::Restarted { generation, checkpoint, source, rebuilt, moved, .. }
                        if injected.is_some() && Some(*generation) > first && findings.restored.is_none() =>
                    {
                        let from = checkpoint.and_then(|id| complete.get(&id).copied()).or(began);
                        findings.restored = Some(Restored {
                            checkpoint: *checkpoint,
                            source: *source,
                            rebuilt: rebuilt.clone(),
                            moved: moved.clone(),
                            after_ms: since(injected),
                            lost_work_ms: from.zip(injected).map_or(0, |(from, to)| millis_between(from, to)),
                        });
                    }
                    AgentEvent::Halting { .. } => halts = true,
                    _ => {}
                },
                LogEvent::HaltSet { .. } | LogEvent::HaltRequested { .. } | LogEvent::Signal { .. } => halts = true,
                _ if injected.is_none() => {}
                LogEvent::NodeDown { node, ranks, .. } => {
                    findings.lost.push(LostNode { node: node.clone(), ranks: ranks.clone() });
                    findings.detected_ms.get_or_insert(since(injected));
                }
                LogEvent::RankFailed { .. } | LogEvent::AgentLost { .. } | LogEvent::AgentSilent { .. } => {
                    findings.detected_ms.get_or_insert(since(injected));
                }
                LogEvent::GenerationEnded { cause, .. } if findings.restored.is_none() && !halts => {
                    findings.ended_generation |= !cause.is_finished();
                }
                _ => {}
            }
        }
        findings
    }

    /// True if nothing more is to be expected of the run: it was restored and has saved again, or goes on as before.
    pub(super) fn are_complete(&self, action: &FaultAction) -> bool {
        match (&self.restored, action) {
            (Some(_), _) => self.next_checkpoint.is_some(),
            (None, FaultAction::Kill(_) | FaultAction::KillRank(_)) => false,
            (None, _) => self.checkpoints_since >= CHECKPOINTS_ENOUGH,
        }
    }
}

fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.millis() - from.millis()).unwrap_or_default()
}

/// The comparison of a file of the disturbed run with that of the undisturbed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Compared {
    pub(super) file: PathBuf,
    #[serde(flatten)]
    pub(super) result: ComparedResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ComparedResult {
    Identical,
    Different {
        /// The first byte that differs.
        at: u64,
    },
    /// A run did not write it, or it cannot be read.
    Unknown {
        reason: String,
    },
}

/// What a rehearsal ends with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rehearsal {
    pub(super) job: String,
    pub(super) fault: String,
    /// One sentence.
    pub(super) outcome: String,
    pub(super) exit_code: u8,
    #[serde(flatten)]
    pub(super) findings: Findings,
    pub(super) compared: Vec<Compared>,
    /// The directory of the rehearsal, if it was kept.
    pub(super) directory: Option<PathBuf>,
}

impl Rehearsal {
    /// The result of the disturbed run; its exit code, and the outcome as a sentence.
    pub(super) fn of(run: &RunReport, fault: String, findings: Findings, compared: Vec<Compared>) -> Self {
        let missed = run.faults.iter().find(|fault| !fault.injected);
        let (exit_code, outcome) = judged(run, missed, &findings, &compared);
        Rehearsal { job: run.job.clone(), fault, outcome, exit_code, findings, compared, directory: None }
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let Rehearsal { findings, .. } = self;
        let mut text = format!("\nrehearsal of {}: {}\n", self.job, self.outcome);
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<13} {value}");
        };
        let seconds = |millis: u64| match millis {
            0..1000 => format!("{millis} ms"),
            _ => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        };
        line("fault", self.fault.clone());
        for LostNode { node, ranks } in &findings.lost {
            let ranks = if ranks.is_empty() { "no ranks".to_owned() } else { ranks_text(ranks) };
            line("lost", format!("{node} with {ranks}"));
        }
        if let Some(millis) = findings.detected_ms {
            line("noticed", format!("{} after the fault", seconds(millis)));
        }
        if let Some(restored) = &findings.restored {
            let from =
                restored.checkpoint.map_or("from the beginning".to_owned(), |id| format!("from checkpoint {id}"));
            let mut how = String::new();
            for (what, ranks) in [("rebuilt", &restored.rebuilt), ("moved", &restored.moved)] {
                if !ranks.is_empty() {
                    let _ = write!(how, ", {what}: {}", ranks_text(ranks));
                }
            }
            line("restored", format!("{from}{how}; running again {} after the fault", seconds(restored.after_ms)));
            line("repeated", format!("{} of work", seconds(restored.lost_work_ms)));
        }
        for Compared { file, result } in &self.compared {
            let result = match result {
                ComparedResult::Identical => "identical to that of the undisturbed run".to_owned(),
                ComparedResult::Different { at } => format!("differs from that of the undisturbed run at byte {at}"),
                ComparedResult::Unknown { reason } => format!("not compared: {reason}"),
            };
            line("result", format!("{}: {result}", file.display()));
        }
        if let Some(directory) = &self.directory {
            line("kept", directory.display().to_string());
        }
        text
    }
}

fn judged(run: &RunReport, missed: Option<&FaultReport>, findings: &Findings, compared: &[Compared]) -> (u8, String) {
    if let Some(missed) = missed.or(run.faults.is_empty().then_some(&NO_FAULT)) {
        let reason = missed.reason.as_deref().unwrap_or_default();
        let outcome = format!("the fault was not injected: {reason}; nothing was shown ({})", run.outcome);
        return (exit::UNAVAILABLE, outcome);
    }
    let survived = matches!(run.exit_code, exit::FINISHED | exit::NOT_FINISHED);
    if !survived || (findings.ended_generation && findings.restored.is_none()) {
        return (run.exit_code.max(1), format!("the job did not survive the fault: {}", run.outcome));
    }
    if findings.restored.as_ref().is_some_and(|restored| restored.checkpoint.is_none()) {
        let outcome = "no checkpoint survived the fault: the job started from the beginning".to_owned();
        return (exit::DAMAGED_DATA, outcome);
    }
    let differs = |compared: &&Compared| compared.result != ComparedResult::Identical;
    match compared.iter().find(differs) {
        Some(Compared { file, result: ComparedResult::Unknown { .. } }) => {
            (exit::UNAVAILABLE, format!("the job survived the fault, but {} could not be compared", file.display()))
        }
        Some(Compared { file, .. }) => {
            (exit::DAMAGED_DATA, format!("the job survived the fault, but its result differs: {}", file.display()))
        }
        None if findings.restored.is_some() => (exit::FINISHED, "the job survived the fault".to_owned()),
        None => (exit::FINISHED, "the job went on through the fault without a relaunch".to_owned()),
    }
}

/// Of a run that ended before it had a report of its faults.
const NO_FAULT: FaultReport = FaultReport { fault: String::new(), injected: false, reason: None };

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::fixtures::event;
    use crate::events::{DownReason, EndCause};
    use crate::spec::NodeReference;

    /// One event a second.
    fn events(of: Vec<LogEvent>) -> Vec<Record> {
        let record = |(second, event)| Record { time: Timestamp::from_secs(second), job: "heat".to_owned(), event };
        (1..).zip(of).map(record).collect()
    }

    fn disturbed(checkpoint: Option<u64>) -> Vec<Record> {
        let complete = |id: u64| event("checkpoint_complete", json!({"generation": id, "checkpoint": id}));
        let reason = DownReason::ResourceManager { state: "lost".to_owned() };
        let restarted = json!({"generation": 2, "checkpoint": checkpoint, "source": "rebuilt", "rebuilt": [1]});
        events(vec![
            event("generation_launched", json!({})),
            complete(1),
            event("fault_injected", json!({"node": "node1", "agent_only": false})),
            LogEvent::NodeDown { node: "node1".into(), reason, ranks: vec![Rank(1)] },
            event("generation_ending", json!({"seen": "node1 is down"})),
            event("restarted", restarted),
            complete(2),
        ])
    }

    fn run(exit_code: u8, reason: Option<&str>) -> RunReport {
        let fault =
            FaultReport { fault: "f".to_owned(), injected: reason.is_none(), reason: reason.map(str::to_owned) };
        RunReport {
            job: "heat".to_owned(),
            outcome: "over".to_owned(),
            exit_code,
            faults: vec![fault],
            ..RunReport::default()
        }
    }

    fn rehearsal(run: &RunReport, events: &[Record], compared: Vec<Compared>) -> Rehearsal {
        Rehearsal::of(run, "`kill` of node1".to_owned(), Findings::of(events), compared)
    }

    #[test]
    fn says_what_was_lost_and_restored_and_how_long_it_took() {
        let rehearsal = rehearsal(&run(75, None), &disturbed(Some(1)), Vec::new());
        assert_eq!(rehearsal.exit_code, exit::FINISHED, "{rehearsal:?}");
        let text = rehearsal.text();
        for part in [
            "rehearsal of heat: the job survived the fault",
            "node1 with rank 1",
            "noticed       1.0 s after the fault",
            "from checkpoint 1, rebuilt: rank 1; running again 3.0 s after the fault",
            "repeated      1.0 s of work",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(rehearsal.findings.next_checkpoint, Some(CheckpointId(2)));
        let loss = FaultAction::Kill(NodeReference::Position(1));
        let after = |events: usize| Findings::of(&disturbed(Some(1))[..events]).are_complete(&loss);
        assert_eq!([after(5), after(6), after(7)], [false, false, true], "restored, then saved again");
    }

    #[test]
    fn a_fault_that_was_not_injected_shows_nothing() {
        let rehearsal = rehearsal(&run(0, Some("its moment did not come")), &[], Vec::new());
        assert_eq!(rehearsal.exit_code, exit::UNAVAILABLE);
        assert!(rehearsal.outcome.contains("its moment did not come"), "{}", rehearsal.outcome);
    }

    #[test]
    fn a_job_that_loses_its_work_or_its_result_does_not_pass() {
        assert_eq!(rehearsal(&run(0, None), &disturbed(None), Vec::new()).exit_code, exit::DAMAGED_DATA);
        let mut ended = disturbed(Some(1));
        ended.truncate(5);
        let cause = EndCause::NodeFailure { nodes: vec!["node1".into()] };
        ended.extend(events(vec![event("generation_ended", json!(cause))]));
        assert_eq!(rehearsal(&run(75, None), &ended, Vec::new()).exit_code, exit::NOT_FINISHED);
        assert_eq!(rehearsal(&run(90, None), &disturbed(Some(1)), Vec::new()).exit_code, exit::APPLICATION_ERROR);
        let compared = |result| vec![Compared { file: "out".into(), result }];
        let different = compared(ComparedResult::Different { at: 7 });
        let rehearsed = rehearsal(&run(0, None), &disturbed(Some(1)), different);
        assert_eq!(rehearsed.exit_code, exit::DAMAGED_DATA);
        assert!(rehearsed.text().contains("out: differs from that of the undisturbed run at byte 7"));
        let identical = compared(ComparedResult::Identical);
        assert_eq!(rehearsal(&run(0, None), &disturbed(Some(1)), identical).exit_code, exit::FINISHED);
    }
}
