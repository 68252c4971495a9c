//! Where the time of a run went: one phase after the other, from the first event to the last.

use std::time::Duration;

use holdfast_model::Timestamp;
use holdfast_wire::agent::AgentEvent;
use serde::Serialize;

use crate::events::{EndCause, FailureSign, LogEvent};

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Until the ranks of the first generation have joined.
    Start,
    /// The ranks compute, or write checkpoints.
    Computing,
    /// From the first sign of a failure until its generation is ended.
    Detection,
    /// Until the next generation is launched.
    Relaunch,
    /// From a relaunch until its ranks have their files.
    Restart,
    /// From the end of the last generation to the end of the drain.
    Drain,
}

impl Phase {
    pub const ALL: [Phase; 6] =
        [Phase::Start, Phase::Computing, Phase::Detection, Phase::Relaunch, Phase::Restart, Phase::Drain];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Computing => "computing",
            Phase::Detection => "detection",
            Phase::Relaunch => "relaunch",
            Phase::Restart => "restart",
            Phase::Drain => "drain",
        }
    }
}

/// A phase from beginning to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub phase: Phase,
    #[serde(rename = "from_ms")]
    pub from: Timestamp,
    #[serde(rename = "to_ms")]
    pub to: Timestamp,
}

impl Span {
    pub fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// The phases of a run until now.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    ended: Vec<Span>,
    present: Option<(Phase, Timestamp)>,
    /// When the generation was launched; `None` when its ranks have joined.
    launched: Option<Timestamp>,
    /// A generation has ended.
    relaunches: bool,
    /// The ranks do not use the API: they compute from their launch on.
    silent: bool,
}

impl Phases {
    pub fn add(&mut self, time: Timestamp, event: &LogEvent) {
        match FailureSign::of(time, event) {
            Some(FailureSign::Since(time)) => self.seems_failed(time),
            Some(FailureSign::Dismissed) => self.was_no_failure(),
            None => {}
        }
        match event {
            LogEvent::JobStarted { .. } => *self = Phases { present: Some((Phase::Start, time)), ..Phases::default() },
            LogEvent::GenerationLaunched { .. } if self.silent => self.enter(Phase::Computing, time),
            LogEvent::GenerationLaunched { .. } => {
                self.launched = Some(time);
                if self.relaunches {
                    self.enter(Phase::Restart, time);
                }
            }
            LogEvent::ApiNotCalled { called_before: false, .. } => {
                self.silent = true;
                self.computed_from_launch();
            }
            LogEvent::GenerationEnding { .. } => self.enter(Phase::Relaunch, time),
            LogEvent::GenerationEnded { cause, .. } => self.generation_ends(time, cause),
            LogEvent::Stopping { .. } => self.enter(Phase::Drain, time),
            LogEvent::Drained { .. } => self.close(time),
            LogEvent::Agent(report) if matches!(report.event, AgentEvent::Restarted { .. }) => {
                self.launched = None;
                self.enter(Phase::Computing, time);
            }
            _ => {}
        }
    }

    /// The phases in their order; the last one until `now`.
    pub fn until(mut self, now: Timestamp) -> Vec<Span> {
        self.close(now);
        self.ended
    }

    fn generation_ends(&mut self, time: Timestamp, cause: &EndCause) {
        // Ranks that ended well without having joined have computed all the time.
        if matches!(cause, EndCause::ExitedWell | EndCause::WithoutFinalize) {
            self.computed_from_launch();
        }
        self.launched = None;
        self.relaunches = true;
        match cause.is_finished() {
            true => self.enter(Phase::Drain, time),
            false => self.enter(Phase::Relaunch, time),
        }
    }

    fn computed_from_launch(&mut self) {
        if let Some(launched) = self.launched.take() {
            if self.present.is_some_and(|(_, from)| from >= launched) {
                self.present = None;
            }
            self.enter(Phase::Computing, launched);
        }
    }

    fn seems_failed(&mut self, time: Timestamp) {
        if matches!(self.present, Some((Phase::Computing, _))) {
            self.enter(Phase::Detection, time);
        }
    }

    /// The sign of a failure was none.
    fn was_no_failure(&mut self) {
        if matches!(self.present, Some((Phase::Detection, _)))
            && let Some(computing) = self.ended.pop_if(|span| span.phase == Phase::Computing)
        {
            self.present = Some((computing.phase, computing.from));
        }
    }

    fn enter(&mut self, phase: Phase, time: Timestamp) {
        match self.present {
            Some((present, _)) if present == phase => {}
            // Nothing was launched after the generation that ended.
            Some((Phase::Relaunch, from)) if phase == Phase::Drain => self.present = Some((phase, from)),
            Some((_, from)) => {
                self.close(time);
                self.present = Some((phase, time.max(from)));
            }
            None => self.present = Some((phase, time)),
        }
    }

    fn close(&mut self, time: Timestamp) {
        if let Some((phase, from)) = self.present.take() {
            self.ended.push(Span { phase, from, to: time.max(from) });
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd, RestartSource};

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn restarted() -> LogEvent {
        let restarted = AgentEvent::Restarted {
            generation: Generation(1),
            checkpoint: Some(CheckpointId(1)),
            protected: Some(true),
            source: RestartSource::Cache,
            written_by: None,
            rebuilt: Vec::new(),
            moved: Vec::new(),
            millis: 5,
        };
        LogEvent::of_agent(&NodeName::from("n0"), restarted)
    }

    fn launched() -> LogEvent {
        LogEvent::GenerationLaunched { generation: Generation(1), relaunches: 0 }
    }

    fn ended(cause: EndCause) -> LogEvent {
        let (generation, newest, progress) = (Generation(1), None, None);
        LogEvent::GenerationEnded { generation, cause, newest, without_progress: 0, progress }
    }

    fn started() -> LogEvent {
        let (job_id, prefix) = ("1".to_owned(), "/p".into());
        LogEvent::JobStarted { job_id, nodes: Vec::new(), prefix, virtual_nodes: false }
    }

    fn spans(events: Vec<(i64, LogEvent)>, now: i64) -> Vec<(Phase, u64)> {
        let mut phases = Phases::default();
        events.iter().for_each(|(secs, event)| phases.add(at(*secs), event));
        phases.until(at(now)).iter().map(|span| (span.phase, span.length().as_secs())).collect()
    }

    #[test]
    fn a_failure_has_its_detection_relaunch_and_restart() {
        let failed =
            LogEvent::RankFailed { generation: Generation(1), rank: Rank(1), node: None, end: RankEnd::Signal(9) };
        let ending = LogEvent::GenerationEnding { generation: Generation(1), seen: String::new() };
        let cause = EndCause::NodeFailure { nodes: vec!["n1".into()] };
        let finished = EndCause::Finalized;
        let all = vec![
            (0, started()),
            (2, launched()),
            (3, restarted()),
            (10, failed),
            (11, ending),
            (12, ended(cause)),
            (13, launched()),
            (15, restarted()),
            (25, ended(finished)),
        ];
        let expected = [
            (Phase::Start, 3),
            (Phase::Computing, 7),
            (Phase::Detection, 1),
            (Phase::Relaunch, 2),
            (Phase::Restart, 2),
            (Phase::Computing, 10),
            (Phase::Drain, 3),
        ];
        assert_eq!(spans(all, 28), expected);
    }

    #[test]
    fn an_agent_that_answers_again_was_no_failure() {
        let node = NodeName::from("n1");
        let silent = LogEvent::AgentSilent { node: node.clone(), millis: 1000 };
        let answers = LogEvent::AgentAnswers { node, millis: 1000 };
        let all = vec![(0, started()), (3, restarted()), (10, silent), (12, answers)];
        assert_eq!(spans(all, 20), [(Phase::Start, 3), (Phase::Computing, 17)]);
    }

    #[test]
    fn ranks_that_never_join_compute_from_their_launch_on() {
        let all = vec![(0, started()), (2, launched()), (10, ended(EndCause::ExitedWell))];
        assert_eq!(spans(all, 11), [(Phase::Start, 2), (Phase::Computing, 8), (Phase::Drain, 1)]);
    }
}
