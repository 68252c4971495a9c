//! What failures and checkpoints cost a job, from its events: work that was lost, the time to detect a failure and to
//! start again, the time in which checkpoints blocked the ranks, and how old the newest checkpoints are.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::interval::{self, FailureRate};
use holdfast_model::{CheckpointId, Timestamp};
use holdfast_wire::agent::AgentEvent;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::advice::{IntervalAdvice, LevelCosts};
use super::failure_sign::FailureSign;
use super::reason::{DrainResult, EndCause};
use super::vocabulary::LogEvent;
use crate::spec::quantity::whole_millis;

/// A run that is shorter shows too little of what checkpoints cost.
const ADVISED_AFTER: Duration = Duration::from_secs(20);

/// The events of a job, as far as its cost depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// When the job began in its allocation; `None` before that is known.
    began: Option<Timestamp>,
    /// The last event.
    last: Timestamp,
    /// When the ranks of the generation began to compute.
    computing: Option<Timestamp>,
    /// The work of which nothing was lost, at that time.
    work: Duration,
    /// Each checkpoint: the work that it contains, and when it was begun.
    checkpoints: BTreeMap<CheckpointId, Saved>,
    /// The first sign of a failure of the generation.
    sign: Option<Timestamp>,
    /// When the failure was detected, and the work until then; until the next generation computes.
    failed: Option<(Timestamp, Duration)>,
    /// The generations that failed, by the number of nodes that were lost.
    failures: BTreeMap<u32, u32>,
    lost: Duration,
    detection: Duration,
    restart: Duration,
    blocked: Duration,
    /// Datasets that blocked the ranks, by the agents' reports.
    blocking: u32,
    complete: u64,
    dropped: u64,
    dropped_last: Option<(CheckpointId, String)>,
    levels: LevelCosts,
    protected: Option<CheckpointId>,
    flushed: Option<CheckpointId>,
    advised: bool,
    /// The mean time between failures that the user gave.
    given: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saved {
    work: Duration,
    begun: Timestamp,
}

/// What a job has cost until now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Since the job began in its allocation.
    pub elapsed: Duration,
    /// Generations that failed.
    pub failures: u32,
    /// Work that had to be done again: from the checkpoint of a restart to the failure.
    pub lost: Duration,
    /// From the first sign of a failure to the decision to end the generation.
    pub detection: Duration,
    /// From this decision until the ranks of the next generation had their files.
    pub restart: Duration,
    /// While ranks waited for checkpoints, and for flushes that they waited for; `None` where it is not known.
    pub blocked: Option<Duration>,
    /// Checkpoints that were complete, and datasets that were dropped.
    pub complete: u64,
    pub dropped: u64,
    /// The last one that was dropped, and why.
    pub dropped_last: Option<(CheckpointId, String)>,
    /// The newest checkpoint that survives the loss of a node, and the age of its state.
    pub protected: Option<(CheckpointId, Duration)>,
    /// As before, in the prefix directory.
    pub flushed: Option<(CheckpointId, Duration)>,
    /// Which interval between checkpoints is best; `None` while too little is known.
    pub interval: Option<IntervalAdvice>,
}

impl Costs {
    /// Counts an event. Returns whether checkpoints have begun to take more than `share` percent of the time, once.
    pub fn add(&mut self, time: Timestamp, event: &LogEvent, share: Option<u8>) -> Option<LogEvent> {
        self.last = self.last.max(time);
        match FailureSign::of(time, event) {
            Some(FailureSign::Since(time)) => self.seems_failed(time),
            Some(FailureSign::Dismissed) => self.sign = None,
            None => {}
        }
        match event {
            LogEvent::JobStarted { .. } => *self = Costs { began: Some(time), last: time, ..Costs::default() },
            LogEvent::FailuresExpected { mtbf_ms, given, .. } => {
                self.given = given.then(|| Duration::from_millis(*mtbf_ms));
            }
            LogEvent::GenerationEnding { .. } => self.fails(time),
            LogEvent::GenerationEnded { cause, .. } => self.ends(time, cause),
            LogEvent::Drained { result: DrainResult::Complete { checkpoint } } => {
                self.flushed = self.flushed.max(Some(*checkpoint));
            }
            LogEvent::Agent(report) => return self.add_of_agent(time, &report.event, share),
            _ => {}
        }
        None
    }

    fn add_of_agent(&mut self, time: Timestamp, event: &AgentEvent, share: Option<u8>) -> Option<LogEvent> {
        self.levels.add(event);
        match event {
            AgentEvent::Restarted { checkpoint, protected, .. } => {
                self.computes(time, *checkpoint);
                self.protected = checkpoint.filter(|_| *protected == Some(true));
            }
            AgentEvent::CheckpointStarted { checkpoint, .. } => {
                let saved = Saved { work: self.work_until(time), begun: time };
                self.checkpoints.insert(*checkpoint, saved);
            }
            AgentEvent::CheckpointComplete { checkpoint, .. } => {
                let saved = Saved { work: self.work_until(time), begun: time };
                self.checkpoints.entry(*checkpoint).or_insert(saved);
                self.complete += 1;
            }
            AgentEvent::CheckpointProtected { checkpoint, .. } => self.protected = Some(*checkpoint),
            AgentEvent::CheckpointFailed { checkpoint, reason, ended: false, .. } => {
                self.dropped += 1;
                self.dropped_last = Some((*checkpoint, reason.clone()));
            }
            AgentEvent::Flushed { checkpoint, .. } => self.flushed = self.flushed.max(Some(*checkpoint)),
            AgentEvent::RanksBlocked { millis, .. } => {
                self.blocked += Duration::from_millis(*millis);
                self.blocking += 1;
                return self.advice(time, share?);
            }
            _ => {}
        }
        None
    }

    fn advice(&mut self, now: Timestamp, share: u8) -> Option<LogEvent> {
        let elapsed = now.since(self.began?);
        let percent = percent_of(self.blocked, elapsed);
        if self.advised || elapsed < ADVISED_AFTER || percent <= share.into() {
            return None;
        }
        self.advised = true;
        let mean = self.blocked.checked_div(self.blocking)?;
        let every_ms = whole_millis(mean * 100 / u32::from(share));
        Some(LogEvent::CheckpointsBlock { percent: format!("{percent:.0}"), limit: share, every_ms })
    }

    /// How often something fails: as the user knows it, else as was observed since the job began.
    pub fn failure_rate(&self, given: Option<Duration>) -> Option<FailureRate> {
        let given = given.map(|mtbf| FailureRate { mtbf, given: true });
        let observed = || interval::observed(self.failures(), self.last.since(self.began?));
        given.or_else(|| observed().map(|mtbf| FailureRate { mtbf, given: false }))
    }

    /// Which interval would be best, and what the one that was used costs; `None` while too little is known.
    fn interval_advice(&self, now: Timestamp) -> Option<IntervalAdvice> {
        let elapsed = now.since(self.began?);
        let rate = self.failure_rate(self.given)?;
        let cost = self.blocked.checked_div(self.blocking).filter(|cost| !cost.is_zero())?;
        let wasted = self.blocked + self.lost + self.detection + self.restart;
        let restart = (self.detection + self.restart).checked_div(self.failures()).unwrap_or_default();
        let daly = interval::daly(cost, rate.mtbf);
        Some(IntervalAdvice {
            rate,
            cost,
            young: interval::young(cost, rate.mtbf),
            daly,
            used: elapsed.saturating_sub(wasted).checked_div(self.blocking).unwrap_or_default(),
            used_permille: permille(percent_of(wasted, elapsed) / 100.0),
            best_permille: permille(interval::expected_overhead(daly, cost, restart, rate.mtbf)),
            levels: self.levels.advice(&self.failures, rate.mtbf),
        })
    }

    /// Generations that failed.
    fn failures(&self) -> u32 {
        self.failures.values().sum()
    }

    fn seems_failed(&mut self, time: Timestamp) {
        if self.computing.is_some() && self.failed.is_none() {
            self.sign.get_or_insert(time);
        }
    }

    fn fails(&mut self, time: Timestamp) {
        if self.failed.is_none() {
            let sign = self.sign.take().unwrap_or(time);
            self.detection += time.since(sign);
            self.failed = Some((time, self.work_until(sign)));
            self.computing = None;
        }
    }

    fn ends(&mut self, time: Timestamp, cause: &EndCause) {
        if cause.is_finished() {
            (self.computing, self.sign, self.failed) = (None, None, None);
            return;
        }
        self.fails(time);
        if !matches!(cause, EndCause::Halted { .. } | EndCause::TimeLimit | EndCause::Excluded { .. }) {
            let nodes = match cause {
                EndCause::NodeFailure { nodes } => u32::try_from(nodes.len()).unwrap_or(u32::MAX),
                _ => 0,
            };
            *self.failures.entry(nodes).or_default() += 1;
        }
    }

    fn computes(&mut self, time: Timestamp, from: Option<CheckpointId>) {
        // The report may be received again.
        if self.computing.is_some() {
            return;
        }
        let saved = from.and_then(|id| self.checkpoints.get(&id)).map(|saved| saved.work).unwrap_or_default();
        if let Some((failed, work)) = self.failed.take() {
            self.restart += time.since(failed);
            self.lost += work.saturating_sub(saved);
        }
        if let Some(id) = from {
            self.checkpoints.entry(id).or_insert(Saved { work: saved, begun: time });
        }
        (self.computing, self.work, self.sign) = (Some(time), saved, None);
    }

    /// The work until a time; after the decision to end the generation, that until the failure. An orchestrator that
    /// takes over may decide before it receives the agents' reports of checkpoints.
    fn work_until(&self, time: Timestamp) -> Duration {
        match (self.computing, self.failed) {
            (Some(computing), _) => self.work + time.since(computing),
            (None, Some((_, work))) => work,
            (None, None) => self.work,
        }
    }

    /// True if the events from the beginning of the job are counted.
    pub fn is_complete(&self) -> bool {
        self.began.is_some()
    }

    /// What the job has cost until `now`, or until its last event; `None` before it began.
    pub fn cost(&self, now: Option<Timestamp>) -> Option<Cost> {
        let now = now.unwrap_or(self.last);
        let aged = |id: CheckpointId| Some((id, now.since(self.checkpoints.get(&id)?.begun)));
        Some(Cost {
            elapsed: now.since(self.began?),
            failures: self.failures(),
            lost: self.lost,
            detection: self.detection,
            restart: self.restart,
            blocked: (self.blocking > 0 || self.complete == 0).then_some(self.blocked),
            complete: self.complete,
            dropped: self.dropped,
            dropped_last: self.dropped_last.clone(),
            protected: self.protected.and_then(aged),
            flushed: self.flushed.and_then(aged),
            interval: self.interval_advice(now),
        })
    }
}

impl Cost {
    /// The times, with their parts of the whole.
    pub fn times(&self) -> String {
        let shown = |name, time: Duration| {
            format!("{name} {:.1} s ({:.1} %)", time.as_secs_f64(), percent_of(time, self.elapsed))
        };
        let blocked = self.blocked.map_or_else(
            || "blocked by checkpoints: not known, the library reports none".to_owned(),
            |blocked| shown("blocked by checkpoints", blocked),
        );
        if self.failures == 0 && self.lost.is_zero() && self.restart.is_zero() {
            return format!("no failures; {blocked}");
        }
        let failures = if self.failures == 1 { "1 failure".to_owned() } else { format!("{} failures", self.failures) };
        let (lost, detection) = (shown("lost work", self.lost), shown("detection", self.detection));
        format!("{failures}: {lost}, {detection}, {}; {blocked}", shown("restart", self.restart))
    }

    /// The newest checkpoints, with the age of their state.
    pub fn ages(&self) -> String {
        let shown = |kind: &str, newest: Option<(CheckpointId, Duration)>| match newest {
            Some((id, age)) => format!("{kind} checkpoint {id} ({:.1} s old)", age.as_secs_f64()),
            None => format!("{kind} checkpoint: none"),
        };
        format!("{}, {}", shown("protected", self.protected), shown("flushed", self.flushed))
    }

    /// A warning if datasets were dropped.
    pub fn dropped(&self) -> Option<String> {
        let (id, reason) = self.dropped_last.as_ref()?;
        let all = self.dropped + self.complete;
        Some(format!("warning: {} of {all} checkpoints were dropped; the last one, {id}: {reason}", self.dropped))
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let aged = |newest: Option<(CheckpointId, Duration)>| {
            newest.map(|(id, age)| json!({ "checkpoint": id, "age_ms": whole_millis(age) }))
        };
        let document = json!({
            "elapsed_ms": whole_millis(self.elapsed),
            "failures": self.failures,
            "lost_work_ms": whole_millis(self.lost),
            "detection_ms": whole_millis(self.detection),
            "restart_ms": whole_millis(self.restart),
            "blocked_ms": self.blocked.map(whole_millis),
            "checkpoints_complete": self.complete,
            "checkpoints_dropped": self.dropped,
            "newest_protected": aged(self.protected),
            "newest_flushed": aged(self.flushed),
            "interval": self.interval,
        });
        document.serialize(serializer)
    }
}

/// A part of the whole, from 0 to 1, in thousandths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
fn permille(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * 1000.0).round() as u32
}

fn percent_of(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() * 100.0 }
}

#[cfg(test)]
mod tests {
    use holdfast_model::{Rank, RankEnd};
    use serde_json::Value;

    use super::*;
    use crate::events::fixtures::event;

    struct Job(Costs);

    impl Job {
        fn began() -> Job {
            let mut job = Job(Costs::default());
            job.at(0, "job_started", json!({}));
            job
        }

        fn at(&mut self, seconds: i64, name: &str, fields: Value) -> Option<LogEvent> {
            self.0.add(Timestamp::from_secs(seconds), &event(name, fields), Some(5))
        }

        fn restarts(&mut self, seconds: i64, from: Option<u64>) {
            self.at(seconds, "restarted", json!({"checkpoint": from, "protected": from.map(|_| true)}));
        }

        /// A checkpoint that takes a second, and blocks the ranks for two.
        fn takes(&mut self, seconds: i64, id: u64) -> Option<LogEvent> {
            self.at(seconds, "checkpoint_started", json!({"checkpoint": id}));
            self.at(seconds + 1, "checkpoint_complete", json!({"checkpoint": id, "millis": 1000}));
            self.at(seconds + 1, "checkpoint_protected", json!({"checkpoint": id, "survives": 1}));
            let blocked = json!({"checkpoint": id, "millis": 2000, "redundancy_millis": 1000});
            self.at(seconds + 2, "ranks_blocked", blocked)
        }

        /// The first sign, and three seconds later the decision.
        fn fails(&mut self, seconds: i64) {
            let end = RankEnd::Signal(9);
            self.at(seconds, "rank_failed", json!({"end": end}));
            self.at(seconds + 3, "generation_ending", json!({"seen": "rank 0 failed"}));
            self.ends(seconds + 4, EndCause::Application { rank: Some(Rank(0)), end });
        }

        fn ends(&mut self, seconds: i64, cause: EndCause) {
            self.at(seconds, "generation_ended", json!(cause));
        }

        fn cost(&self, seconds: i64) -> Cost {
            self.0.cost(Some(Timestamp::from_secs(seconds))).unwrap()
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_work_since_the_checkpoint_of_the_restart_is_lost() {
        let mut job = Job::began();
        job.restarts(10, None);
        job.takes(30, 1);
        job.fails(50);
        job.restarts(60, Some(1));
        let cost = job.cost(100);
        // Checkpoint 1 has the state of 30 s.
        assert_eq!((cost.lost, cost.detection, cost.restart), (seconds(20), seconds(3), seconds(7)));
        assert_eq!((cost.failures, cost.blocked), (1, Some(seconds(2))));
        assert_eq!((cost.elapsed, cost.protected), (seconds(100), Some((CheckpointId(1), seconds(70)))));
        // A failure before the next checkpoint loses all since the restart; then the checkpoint itself is lost.
        job.fails(105);
        job.restarts(120, Some(1));
        assert_eq!(job.cost(120).lost, seconds(20 + 45));
        job.fails(130);
        job.restarts(140, None);
        // Of checkpoint 1 the 20 s before it, and 10 s after the restart.
        assert_eq!(job.cost(140).lost, seconds(20 + 45 + 30));
        assert_eq!(job.cost(140).protected, None);
    }

    #[test]
    fn the_work_in_a_checkpoint_that_is_reported_after_the_decision_is_not_lost() {
        let mut job = Job::began();
        job.restarts(10, None);
        job.at(50, "generation_ending", json!({"seen": "node0 is excluded"}));
        job.takes(51, 1);
        job.fails(55);
        job.restarts(60, Some(1));
        assert_eq!(job.cost(60).lost, seconds(0));
        // The 40 s are in the checkpoint.
        job.fails(65);
        job.restarts(70, None);
        assert_eq!(job.cost(70).lost, seconds(40 + 5));
    }

    #[test]
    fn a_hang_that_was_none_delays_no_detection() {
        let mut job = Job::began();
        job.restarts(10, None);
        job.at(20, "hang_suspected", json!({"reason": "no progress", "ranks": []}));
        job.at(21, "hang_dismissed", json!({}));
        job.fails(50);
        assert_eq!(job.cost(60).detection, seconds(3));
    }

    #[test]
    fn the_best_interval_is_known_with_a_cost_and_a_rate_of_failures() {
        let mut job = Job::began();
        job.restarts(0, None);
        job.takes(100, 1);
        assert_eq!(job.cost(200).interval, None, "nothing has failed, and no rate was given");
        job.fails(400);
        job.restarts(420, Some(1));
        let advice = job.cost(500).interval.unwrap();
        // A failure in 420 s, and 2 s a checkpoint.
        assert_eq!((advice.rate, advice.cost), (FailureRate { mtbf: seconds(420), given: false }, seconds(2)));
        assert_eq!((advice.young.as_secs(), advice.daly.as_secs()), (40, 39));
        // Blocked 2 s, lost 300 s, detection 3 s, restart 17 s.
        assert_eq!((advice.used, advice.used_permille), (seconds(500 - 322), 644));
        assert!((100..150).contains(&advice.best_permille), "{}", advice.best_permille);
        job.at(500, "failures_expected", json!({"mtbf_ms": 86_400_000, "given": true, "auto": false}));
        let advice = job.cost(500).interval.unwrap();
        assert_eq!((advice.rate.mtbf, advice.daly.as_secs()), (seconds(86_400), 586));
        assert!(advice.to_string().starts_with("best 586.5 s (Daly; Young 587.9 s), for 2.0 s"), "{advice}");
    }

    #[test]
    fn a_finished_job_has_lost_nothing() {
        let mut job = Job::began();
        job.restarts(1, None);
        job.takes(10, 1);
        job.at(12, "flushed", json!({}));
        job.ends(20, EndCause::Finalized);
        let cost = job.cost(20);
        assert_eq!((cost.failures, cost.lost, cost.restart), (0, Duration::ZERO, Duration::ZERO));
        assert_eq!(cost.flushed, Some((CheckpointId(1), seconds(10))));
        assert_eq!(cost.dropped(), None);
    }

    #[test]
    fn checkpoints_that_take_more_than_their_share_are_reported_once_with_the_time_that_keeps_it() {
        let mut job = Job::began();
        job.restarts(0, None);
        assert_eq!(job.takes(10, 1), None, "too early");
        let advice = job.takes(20, 2).unwrap();
        assert_eq!(advice, LogEvent::CheckpointsBlock { percent: "18".to_owned(), limit: 5, every_ms: 40_000 });
        assert_eq!(job.takes(30, 3), None);
    }
}
