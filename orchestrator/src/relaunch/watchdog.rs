//! Decides whether the application hangs.
//!
//! The agents report ranks in which nothing has moved for `hang_after` ([`QuietRank`]): ranks that have waited in a
//! call of the API for this long, and ranks that have made no call, used no processor (less than one percent of one)
//! and moved no data. **The application hangs when for `hang_after` no rank has printed a line, every rank that has not
//! ended is of one of these two kinds, and not all of them wait**: the ranks in their own code then block all others.
//!
//! The rule is about all ranks together. A single rank that does nothing is no proof: it may wait, outside of the API,
//! for another one that computes. So:
//!
//! * while one rank computes, reads, writes, calls or prints, nothing is ended, however long others wait for it in a
//!   collective;
//! * when all ranks wait in a collective, the agents are working (a flush, a rebuild), and nothing is ended;
//! * a rank without a report (not started yet, its agent being restarted) counts as one that works.
//!
//! Ranks that spin while they wait for another, as with most MPI libraries, seem to compute. For such programs there is
//! `busy_hang_after`: with it, computing alone is no progress for longer than that.
//!
//! None of this is in the snapshot: an orchestrator that takes over begins with no observations.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_wire::agent::QuietRank;

use super::config::Config;
use crate::events::ranks_text;
use crate::spec::quantity::format_duration;

/// The observations of the ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog {
    quiet: BTreeMap<NodeName, QuietReport>,
    /// The sum of all reports.
    total: Tally,
    /// When a rank last printed something, at first the launch.
    printed: Duration,
    /// A suspected hang, while the stacks are being saved.
    pub(super) suspicion: Option<Suspicion>,
}

/// The last report of an agent.
#[derive(Clone, Debug, Default)]
struct QuietReport {
    ranks: Vec<QuietRank>,
    tally: Tally,
}

/// Numbers of quiet ranks by what they do: enough to exclude a hang without visiting all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// All ranks in the report.
    named: usize,
    /// Ranks that move, or moved recently.
    moving: usize,
    /// Ranks that compute, and have neither called nor printed for longer than `busy_hang_after`.
    spinning: usize,
    /// Ranks that do nothing, in their own code.
    idle: usize,
}

impl Tally {
    fn of(ranks: &[QuietRank], config: &Config) -> Self {
        let mut tally = Tally { named: ranks.len(), ..Tally::default() };
        let Some(hang_after) = config.hang_after else { return tally };
        for rank in ranks {
            if rank.waiting_in.is_some() {
                tally.moving += usize::from(rank.quiet_for < hang_after);
            } else if rank.idle_for >= hang_after {
                tally.idle += 1;
            } else if config.busy_hang_after.is_some_and(|limit| rank.quiet_for >= limit) {
                tally.spinning += 1;
            } else {
                tally.moving += 1;
            }
        }
        tally
    }

    fn add(&mut self, other: Tally) {
        self.named += other.named;
        self.moving += other.moving;
        self.spinning += other.spinning;
        self.idle += other.idle;
    }

    fn subtract(&mut self, other: Tally) {
        self.named -= other.named;
        self.moving -= other.moving;
        self.spinning -= other.spinning;
        self.idle -= other.idle;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// The ranks in their own code, by node.
    pub(super) hung: BTreeMap<NodeName, Vec<Rank>>,
    pub(super) reason: String,
}

impl Suspicion {
    /// The ranks in their own code, ascending.
    pub(super) fn ranks(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = self.hung.values().flatten().copied().collect();
        ranks.sort_unstable();
        ranks
    }
}

impl Watchdog {
    /// Begins with a launch or a take-over.
    pub(super) fn begin(&mut self, now: Duration) {
        *self = Watchdog { printed: now, ..Watchdog::default() };
    }

    pub(super) fn printed(&mut self, now: Duration) {
        self.printed = now;
    }

    /// Records an agent's report of its ranks that have not ended, in place of its last one.
    pub(super) fn report(
        &mut self,
        node: NodeName,
        mut ranks: Vec<QuietRank>,
        config: &Config,
        ended: &BTreeMap<Rank, RankEnd>,
    ) {
        ranks.retain(|known| known.rank.0 < config.ranks && !ended.contains_key(&known.rank));
        let tally = Tally::of(&ranks, config);
        self.total.add(tally);
        if let Some(former) = self.quiet.insert(node, QuietReport { ranks, tally }) {
            self.total.subtract(former.tally);
        }
    }

    /// Removes the report of a node.
    pub(super) fn forget(&mut self, node: &NodeName) {
        if let Some(former) = self.quiet.remove(node) {
            self.total.subtract(former.tally);
        }
    }

    /// False if a hang can be excluded without visiting the ranks.
    fn may_hang(&self, silent: Duration, config: &Config, left: usize) -> bool {
        let Tally { named, moving, spinning, idle } = self.total;
        let spinning_counts = config.busy_hang_after.is_some_and(|limit| silent >= limit);
        let moving = if spinning_counts { moving } else { moving + spinning };
        named >= left && moving == 0 && idle + spinning > 0
    }

    /// Whether the application hangs now.
    pub(super) fn judge(&self, now: Duration, config: &Config, ended: &BTreeMap<Rank, RankEnd>) -> Option<Suspicion> {
        let hang_after = config.hang_after?;
        let silent = now.saturating_sub(self.printed);
        let mut left = (config.ranks as usize).saturating_sub(ended.len());
        if silent < hang_after || !self.may_hang(silent, config, left) {
            return None;
        }
        let mut hung: BTreeMap<NodeName, Vec<Rank>> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
        let (mut shortest, mut spins) = (silent, false);
        for (node, report) in &self.quiet {
            for known in report.ranks.iter().filter(|known| !ended.contains_key(&known.rank)) {
                let busy = || config.busy_hang_after.is_some_and(|limit| known.quiet_for >= limit && silent >= limit);
                if let Some(call) = &known.waiting_in {
                    if known.quiet_for < hang_after {
                        return None;
                    }
                    waiting.entry(call).or_default().push(known.rank);
                } else if known.idle_for >= hang_after {
                    shortest = shortest.min(known.idle_for);
                    hung.entry(node.clone()).or_default().push(known.rank);
                } else if busy() {
                    spins = true;
                    shortest = shortest.min(known.quiet_for);
                    hung.entry(node.clone()).or_default().push(known.rank);
                } else {
                    return None;
                }
                left = left.saturating_sub(1);
            }
        }
        if left > 0 || hung.is_empty() {
            return None;
        }
        let mut suspicion = Suspicion { hung, reason: String::new() };
        let unused = if spins { "" } else { " and used no processor" };
        let lasts = format_duration(Duration::from_secs(shortest.as_secs()));
        suspicion.reason =
            format!("{} made no call, printed nothing{unused} for {lasts}", ranks_text(&suspicion.ranks()));
        for (call, ranks) in waiting {
            suspicion.reason.push_str(&format!("; waiting in {call}: {}", ranks_text(&ranks)));
        }
        Some(suspicion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relaunch::AllocatedNode;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn config() -> Config {
        let node = |name: &str| AllocatedNode { name: name.into(), failure_domain: name.to_owned() };
        let mut config = Config::new(vec![node("n0"), node("n1")], 2, 2);
        config.hang_after = Some(s(60));
        config
    }

    fn waits(rank: u32, quiet: u64) -> QuietRank {
        let call = Some("complete_checkpoint".to_owned());
        QuietRank { rank: Rank(rank), waiting_in: call, quiet_for: s(quiet), idle_for: s(quiet) }
    }

    fn idles(rank: u32, quiet: u64, idle: u64) -> QuietRank {
        QuietRank { rank: Rank(rank), waiting_in: None, quiet_for: s(quiet), idle_for: s(idle) }
    }

    /// Launched at 0, now it is 1000 s.
    fn judge(config: &Config, first: [QuietRank; 2], second: &[QuietRank]) -> Option<Suspicion> {
        let mut watch = Watchdog::default();
        watch.report("n0".into(), first.to_vec(), config, &BTreeMap::new());
        watch.report("n1".into(), second.to_vec(), config, &BTreeMap::new());
        watch.judge(s(1000), config, &BTreeMap::new())
    }

    #[test]
    fn a_rank_that_does_nothing_while_all_others_wait_hangs() {
        let found = judge(&config(), [waits(0, 70), waits(1, 80)], &[idles(2, 90, 75), waits(3, 70)]).unwrap();
        assert_eq!(found.hung, BTreeMap::from([("n1".into(), vec![Rank(2)])]));
        assert_eq!(
            found.reason,
            "rank 2 made no call, printed nothing and used no processor for 1min15s; \
             waiting in complete_checkpoint: ranks 0-1,3"
        );
    }

    #[test]
    fn ranks_hang_when_all_of_them_do_nothing() {
        let found = judge(&config(), [idles(0, 70, 70), idles(1, 80, 70)], &[idles(2, 90, 75), idles(3, 70, 61)]);
        assert_eq!(found.unwrap().ranks(), [Rank(0), Rank(1), Rank(2), Rank(3)]);
    }

    #[test]
    fn nothing_hangs_while_one_rank_computes() {
        assert_eq!(judge(&config(), [waits(0, 900), waits(1, 900)], &[waits(2, 900)]), None, "rank 3 is not quiet");
        let computes = idles(3, 900, 0);
        assert_eq!(judge(&config(), [waits(0, 900), idles(1, 900, 900)], &[waits(2, 900), computes]), None);
    }

    #[test]
    fn with_busy_hang_after_ranks_that_only_compute_hang_too() {
        let patient = Config { busy_hang_after: Some(s(800)), ..config() };
        let ranks = |quiet| [waits(2, 900), idles(3, quiet, 0)];
        assert_eq!(judge(&patient, [waits(0, 900), waits(1, 900)], &ranks(799)), None);
        let found = judge(&patient, [waits(0, 900), waits(1, 900)], &ranks(800)).unwrap();
        assert_eq!(found.ranks(), [Rank(3)]);
        assert!(!found.reason.contains("processor"), "{}", found.reason);
    }

    #[test]
    fn nothing_hangs_while_all_ranks_wait_or_one_has_just_called() {
        assert_eq!(judge(&config(), [waits(0, 900), waits(1, 900)], &[waits(2, 900), waits(3, 900)]), None);
        assert_eq!(judge(&config(), [waits(0, 900), waits(1, 900)], &[idles(2, 900, 900), waits(3, 59)]), None);
    }

    #[test]
    fn output_a_lost_agent_and_no_hang_after_exclude_a_hang() {
        let mut watch = Watchdog::default();
        watch.begin(s(10));
        watch.report("n0".into(), vec![idles(0, 900, 900), waits(1, 900)], &config(), &BTreeMap::new());
        watch.report("n1".into(), vec![waits(2, 900), waits(3, 900)], &config(), &BTreeMap::new());
        let judge = |watch: &Watchdog, config: &Config| watch.judge(s(1000), config, &BTreeMap::new());
        assert!(judge(&watch, &config()).is_some());
        assert_eq!(judge(&watch, &Config { hang_after: None, ..config() }), None);
        watch.printed(s(950));
        assert_eq!(judge(&watch, &config()), None);
        watch.printed(s(900));
        assert!(judge(&watch, &config()).is_some());
        watch.forget(&"n1".into());
        assert_eq!(judge(&watch, &config()), None);
    }

    #[test]
    fn ranks_that_have_ended_are_not_waited_for() {
        let mut watch = Watchdog::default();
        watch.report("n1".into(), vec![idles(2, 900, 900), idles(3, 900, 900)], &config(), &BTreeMap::new());
        let ended = |ranks: &[u32]| ranks.iter().map(|rank| (Rank(*rank), RankEnd::SUCCESS)).collect();
        let found = watch.judge(s(1000), &config(), &ended(&[0, 1, 3])).unwrap();
        assert_eq!(found.ranks(), [Rank(2)]);
        assert_eq!(watch.judge(s(1000), &config(), &ended(&[0, 1, 2, 3])), None);
        // A rank that computed at the last report and has ended since is not in the next one.
        watch.report("n0".into(), vec![idles(0, 900, 900), idles(1, 900, 0)], &config(), &ended(&[1]));
        assert_eq!(watch.judge(s(1000), &config(), &ended(&[1])).unwrap().ranks(), [Rank(0), Rank(2), Rank(3)]);
    }
}
