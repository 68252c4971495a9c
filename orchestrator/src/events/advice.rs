//! Which interval between checkpoints would have been best, for all together and for each level of protection: what a
//! checkpoint of each level costs, from the events of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use holdfast_core::redundancy::registry::is_unprotected;
use holdfast_model::interval::{self, FailureRate, ProtectionLevel};
use holdfast_model::time::millis;
use holdfast_model::{CheckpointId, Level, Scheme};
use holdfast_wire::agent::AgentEvent;
use serde::{Deserialize, Serialize};

use crate::spec::quantity::whole_millis;

/// Which interval between checkpoints is best.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalAdvice {
    #[serde(flatten)]
    pub rate: FailureRate,
    /// How long a checkpoint blocks the ranks.
    #[serde(rename = "cost_ms", with = "millis")]
    pub cost: Duration,
    /// Young's interval.
    #[serde(rename = "young_ms", with = "millis")]
    pub young: Duration,
    /// Daly's.
    #[serde(rename = "daly_ms", with = "millis")]
    pub daly: Duration,
    /// The mean time between two checkpoints until now.
    #[serde(rename = "used_ms", with = "millis")]
    pub used: Duration,
    /// The part of the time that checkpoints and failures have taken with it, in thousandths.
    pub used_permille: u32,
    /// The part that they are expected to take with Daly's.
    pub best_permille: u32,
    /// For each level, if there are several, in the order of what they survive; the flush is the last.
    #[serde(default)]
    pub levels: Vec<LevelAdvice>,
}

/// Which interval is best between two checkpoints of a level, or between two flushes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelAdvice {
    /// What protects its checkpoints; absent for the flush.
    pub protection: Option<Protection>,
    /// It survives the loss of any so many nodes at once; absent for the flush, which survives the loss of all.
    pub survives: Option<u32>,
    /// How much longer it blocks the ranks than the next level before that is needed, milliseconds; of the first, how
    /// long it blocks them.
    pub cost_ms: u64,
    /// The failures that it survives, and those before do not.
    pub failures: u32,
    /// The mean time between these, milliseconds; absent if there was none.
    pub mtbf_ms: Option<u64>,
    /// The best interval, milliseconds; absent without failures.
    pub interval_ms: Option<u64>,
    /// Every so many checkpoints, if they have the best interval of the first level that is needed.
    pub every: Option<u64>,
}

/// What protects checkpoints: their level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Protection {
    /// As in the event `checkpoint_complete`.
    pub descriptor: Option<u32>,
    /// That of checkpoints of variables.
    pub level: Option<u32>,
    pub scheme: Scheme,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.descriptor, self.level) {
            (Some(number), _) => write!(f, "redundancy[{number}]: {}", self.scheme),
            (None, Some(level)) => write!(f, "level {level}: {}", self.scheme),
            (None, None) => write!(f, "{}", self.scheme),
        }
    }
}

/// As seconds with a tenth.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl fmt::Display for IntervalAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "best {} (Daly; Young {}), for {} that a checkpoint blocks the ranks and a failure every {} ({}), expected \
             to cost {:.1} %; it was {}, which cost {:.1} %",
            seconds(self.daly),
            seconds(self.young),
            seconds(self.cost),
            seconds(self.rate.mtbf),
            if self.rate.given { "`health.mtbf`" } else { "observed" },
            f64::from(self.best_permille) / 10.0,
            seconds(self.used),
            f64::from(self.used_permille) / 10.0
        )
    }
}

impl fmt::Display for LevelAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.protection {
            Some(protection) => write!(f, "{protection}")?,
            None => write!(f, "flush")?,
        }
        let seconds = |millis: u64| seconds(Duration::from_millis(millis));
        let (Some(interval), Some(mtbf)) = (self.interval_ms, self.mtbf_ms) else {
            let cost = seconds(self.cost_ms);
            return write!(f, ", costs {cost}: no interval, because no failure was seen for which it is needed");
        };
        write!(f, ", best {}", seconds(interval))?;
        if let Some(every) = self.every {
            write!(f, " (`every: {every}`)")?;
        }
        let (cost, mtbf) = (seconds(self.cost_ms), seconds(mtbf));
        write!(f, ", for a cost of {cost} and a failure every {mtbf} for which it is needed ({} seen)", self.failures)
    }
}

/// What checkpoints of each level, and flushes, have cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelCosts {
    levels: BTreeMap<Protection, Spent>,
    /// Of the complete checkpoints.
    protections: BTreeMap<CheckpointId, Protection>,
    flushes: Flushes,
}

/// What the checkpoints of a level have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// `None` before a redundancy was complete.
    survives: Option<u32>,
    blocked: Duration,
    checkpoints: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Flushes {
    /// The ranks write this dataset, or wait for its flush.
    open: Option<CheckpointId>,
    /// To be flushed in the background.
    requested: BTreeSet<CheckpointId>,
    blocked: Duration,
    took: Duration,
    number: u32,
}

impl LevelCosts {
    /// Counts an event.
    pub(super) fn add(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::CheckpointStarted { checkpoint, .. } => self.flushes.open = Some(*checkpoint),
            AgentEvent::CheckpointComplete { checkpoint, descriptor, level, scheme, .. } => {
                let protection = Protection { descriptor: *descriptor, level: *level, scheme: *scheme };
                self.protections.insert(*checkpoint, protection);
                if is_unprotected(*scheme) {
                    self.levels.entry(protection).or_default().survives = Some(0);
                }
            }
            AgentEvent::CheckpointProtected { checkpoint, survives: Some(survives), .. } => {
                if let Some(protection) = self.protections.get(checkpoint) {
                    self.levels.entry(*protection).or_default().survives = Some(*survives);
                }
            }
            AgentEvent::RanksBlocked { checkpoint, millis, earlier_redundancy_millis, flush_millis, .. } => {
                let [all, earlier, flush] =
                    [millis, earlier_redundancy_millis, flush_millis].map(|of| Duration::from_millis(*of));
                self.flushes.open = None;
                self.flushes.blocked += flush;
                if let Some((_, before)) = self.protections.range(..*checkpoint).next_back() {
                    self.levels.entry(*before).or_default().blocked += earlier;
                }
                if let Some(protection) = self.protections.get(checkpoint) {
                    let level = self.levels.entry(*protection).or_default();
                    level.blocked += all.saturating_sub(earlier + flush);
                    level.checkpoints += 1;
                }
            }
            AgentEvent::FlushRequested { checkpoint, .. } => drop(self.flushes.requested.insert(*checkpoint)),
            AgentEvent::Flushed { checkpoint, millis, .. } => {
                // Not those at the end, which no checkpoint waits for.
                let flushes = &mut self.flushes;
                if flushes.requested.remove(checkpoint) || flushes.open == Some(*checkpoint) {
                    flushes.took += Duration::from_millis(*millis);
                    flushes.number += 1;
                }
            }
            _ => {}
        }
    }

    /// What is best for each level; nothing if there is only one. `failures` by the number of nodes that were lost.
    pub(super) fn advice(&self, failures: &BTreeMap<u32, u32>, mtbf: Duration) -> Vec<LevelAdvice> {
        let mut known: Vec<(Option<Protection>, ProtectionLevel)> = Vec::new();
        for (protection, spent) in &self.levels {
            // What protects the fourth level of variables is its flush.
            let is_flush = protection.level == Some(Level::Prefix.number());
            let blocked = spent.blocked.checked_div(spent.checkpoints);
            if let (Some(survives), Some(blocked), false) = (spent.survives, blocked, is_flush) {
                let (on_top, shortest) = (false, Duration::ZERO);
                known.push((Some(*protection), ProtectionLevel { survives, blocked, on_top, shortest }));
            }
        }
        known.sort_by_key(|(_, level)| level.survives);
        let Flushes { blocked, took, number, .. } = self.flushes;
        if let (Some(blocked), Some(shortest)) = (blocked.checked_div(number), took.checked_div(number)) {
            known.push((None, ProtectionLevel { survives: u32::MAX, blocked, on_top: true, shortest }));
        }
        if known.len() < 2 {
            return Vec::new();
        }
        let (protections, levels): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let best = interval::of_levels(&levels, failures, mtbf);
        let first = best.iter().find_map(|level| level.interval);
        let advice = protections.into_iter().zip(levels).zip(best).map(|((protection, level), best)| LevelAdvice {
            protection,
            survives: protection.map(|_| level.survives),
            cost_ms: whole_millis(best.cost),
            failures: best.failures,
            mtbf_ms: best.mtbf.map(whole_millis),
            interval_ms: best.interval.map(whole_millis),
            every: best.interval.zip(first).and_then(|(interval, first)| nearest(interval, first)),
        });
        advice.collect()
    }
}

/// How often `short` is in `long`, at least once; `None` if it has no length.
fn nearest(long: Duration, short: Duration) -> Option<u64> {
    let times = (long + short / 2).as_nanos().checked_div(short.as_nanos())?;
    Some(u64::try_from(times).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::events::fixtures::event;

    fn add(costs: &mut LevelCosts, name: &str, fields: Value) {
        costs.add(event(name, fields).agent_event().unwrap());
    }

    /// A checkpoint of a level, with the times in milliseconds.
    fn checkpoint(costs: &mut LevelCosts, id: u64, descriptor: u32, redundancy_millis: u64, flush: Option<u64>) {
        add(costs, "checkpoint_started", json!({"checkpoint": id}));
        let (scheme, survives) = [("XOR", 1), ("RS", 2)][descriptor as usize];
        let fields = json!({
            "checkpoint": id, "scheme": scheme, "descriptor": descriptor, "survives": survives, "millis": 1000,
        });
        add(costs, "checkpoint_complete", fields.clone());
        add(costs, "checkpoint_protected", fields);
        if let Some(millis) = flush {
            add(costs, "flushed", json!({"checkpoint": id, "millis": millis}));
        }
        let flush = flush.unwrap_or_default();
        let blocked = json!({
            "checkpoint": id, "millis": 1000 + redundancy_millis + flush,
            "redundancy_millis": redundancy_millis, "flush_millis": flush,
        });
        add(costs, "ranks_blocked", blocked);
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_level_has_its_cost_its_failures_and_its_interval() {
        let mut costs = LevelCosts::default();
        checkpoint(&mut costs, 1, 0, 1000, None);
        checkpoint(&mut costs, 2, 0, 1000, None);
        checkpoint(&mut costs, 3, 1, 3000, Some(8000));
        // At the end of the job, when nothing waits for it.
        add(&mut costs, "flushed", json!({"checkpoint": 2, "millis": 99}));
        let failures = BTreeMap::from([(0, 5), (1, 4), (2, 1)]);
        let levels = costs.advice(&failures, seconds(100));
        let found: Vec<_> = levels.iter().map(|level| (level.survives, level.cost_ms, level.failures)).collect();
        assert_eq!(found, [(Some(1), 2000, 9), (Some(2), 2000, 1), (None, 8000, 0)]);
        let found: Vec<_> = levels.iter().map(|level| (level.mtbf_ms, level.interval_ms, level.every)).collect();
        assert_eq!(
            found,
            [(Some(111_111), Some(21_081), Some(1)), (Some(1_000_000), Some(63_245), Some(3)), (None, None, None)]
        );
        let text: Vec<String> = levels.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "redundancy[0]: XOR, best 21.1 s (`every: 1`), for a cost of 2.0 s and a failure every 111.1 s for \
                 which it is needed (9 seen)",
                "redundancy[1]: RS, best 63.2 s (`every: 3`), for a cost of 2.0 s and a failure every 1000.0 s for \
                 which it is needed (1 seen)",
                "flush, costs 8.0 s: no interval, because no failure was seen for which it is needed",
            ]
        );
    }

    #[test]
    fn one_level_without_a_flush_has_no_advice_of_its_own() {
        let mut costs = LevelCosts::default();
        checkpoint(&mut costs, 1, 0, 1000, None);
        assert_eq!(costs.advice(&BTreeMap::from([(1, 1)]), seconds(100)), []);
    }

    /// The ranks wait for it only when the next checkpoint begins before its end.
    #[test]
    fn redundancy_that_is_made_behind_the_ranks_costs_its_level_what_the_next_checkpoint_waits() {
        let mut costs = LevelCosts::default();
        checkpoint(&mut costs, 1, 1, 0, None);
        checkpoint(&mut costs, 2, 0, 0, None);
        let complete = json!({"checkpoint": 3, "scheme": "RS", "descriptor": 1, "millis": 1000});
        add(&mut costs, "checkpoint_complete", complete);
        let blocked = json!({"checkpoint": 3, "millis": 1500, "earlier_redundancy_millis": 500});
        add(&mut costs, "ranks_blocked", blocked);
        let levels = costs.advice(&BTreeMap::from([(1, 1)]), seconds(100));
        // 500 ms for the only checkpoint of the first level; those of the second have cost 1 s each.
        let found: Vec<_> = levels.iter().map(|level| (level.survives, level.cost_ms)).collect();
        assert_eq!(found, [(Some(1), 1500), (Some(2), 0)]);
    }

    #[test]
    fn the_advice_is_written_and_read_with_milliseconds() {
        let mut costs = LevelCosts::default();
        checkpoint(&mut costs, 1, 0, 1000, Some(2000));
        let levels = costs.advice(&BTreeMap::from([(4, 1)]), seconds(100));
        assert_eq!((levels[1].every, levels[1].interval_ms), (Some(1), Some(28_284)));
        let advice = IntervalAdvice {
            rate: FailureRate { mtbf: seconds(100), given: true },
            cost: seconds(1),
            young: seconds(2),
            daly: seconds(3),
            used: seconds(4),
            used_permille: 5,
            best_permille: 6,
            levels,
        };
        let json = serde_json::to_value(&advice).unwrap();
        assert_eq!(
            (&json["mtbf_ms"], &json["mtbf_given"], &json["daly_ms"]),
            (&100_000.into(), &true.into(), &3000.into())
        );
        assert_eq!(serde_json::from_value::<IntervalAdvice>(json).unwrap(), advice);
    }
}
