//! How long each rank has neither called nor worked. Pure: times are passed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_model::Rank;
use holdfast_wire::agent::QuietRank;
use holdfast_wire::run;

use super::usage::Usage;

/// A rank that uses less than this part of a processor only polls for something to do.
const IDLE_SHARE: u32 = 100;
/// The kernel counts in steps of ten milliseconds; a single one does not count as work.
const LEAST_WORK: Duration = Duration::from_millis(20);
/// A rank that has read and written less than this between two measurements only woke up.
const LEAST_BYTES: u64 = 64 << 10;

/// The ranks of one run on this node.
#[derive(Debug)]
pub struct Quiet {
    settings: run::Watchdog,
    ranks: BTreeMap<Rank, RankActivity>,
    /// The last measurement of the ranks' usage. Later time does not count as inactive: it is not known.
    measured: Instant,
}

#[derive(Debug)]
struct RankActivity {
    /// Calls under way; more than one only while a connection is replaced.
    calls: u32,
    /// The name of the last one.
    call: &'static str,
    /// When the last call began or ended.
    called: Instant,
    /// The last measurement that showed work.
    worked: Instant,
    /// The usage at that measurement.
    mark: Option<(Instant, Usage)>,
    /// The last measurement found a process of it.
    found: bool,
}

impl Quiet {
    /// For a run that begins now.
    pub fn new(settings: run::Watchdog, ranks: &[Rank], now: Instant) -> Self {
        let activity = || RankActivity { calls: 0, call: "", called: now, worked: now, mark: None, found: false };
        Quiet { settings, ranks: ranks.iter().map(|rank| (*rank, activity())).collect(), measured: now }
    }

    pub fn call_begins(&mut self, rank: Rank, name: &'static str, now: Instant) {
        if let Some(activity) = self.ranks.get_mut(&rank) {
            activity.calls += 1;
            (activity.call, activity.called) = (name, now);
        }
    }

    /// The rank has its answer, or is not connected any more.
    pub fn call_ends(&mut self, rank: Rank, now: Instant) {
        if let Some(activity) = self.ranks.get_mut(&rank) {
            activity.calls = activity.calls.saturating_sub(1);
            (activity.called, activity.mark) = (now, None);
        }
    }

    /// True if a rank has been in its own code, without a call, for this time.
    pub fn needs_check(&self, now: Instant, pause: Duration) -> bool {
        self.ranks
            .values()
            .any(|activity| activity.calls == 0 && now.saturating_duration_since(activity.called) >= pause)
    }

    /// Takes over the ranks' usage at `now`.
    pub fn measured(&mut self, now: Instant, mut used: BTreeMap<Rank, Usage>) {
        self.measured = now;
        for (rank, activity) in &mut self.ranks {
            let usage = used.remove(rank).filter(|usage| !usage.processes.is_empty());
            activity.found = usage.is_some();
            let Some(usage) = usage else {
                (activity.mark, activity.worked) = (None, now);
                continue;
            };
            let works = activity.mark.as_ref().is_none_or(|(since, before)| {
                let least = LEAST_WORK.max(now.saturating_duration_since(*since) / IDLE_SHARE);
                usage.runs
                    || usage.processes != before.processes
                    || usage.cpu < before.cpu
                    || usage.cpu - before.cpu >= least
                    || usage.bytes.abs_diff(before.bytes) >= LEAST_BYTES
            });
            if works {
                activity.worked = now;
                activity.mark = Some((now, usage));
            }
        }
    }

    /// The ranks that have been inactive for long.
    pub fn report(&self, now: Instant) -> Vec<QuietRank> {
        let run::Watchdog { hang_after, busy_hang_after } = self.settings;
        let quiet = self.ranks.iter().filter_map(|(rank, activity)| {
            let quiet_for = now.saturating_duration_since(activity.called);
            let (waiting_in, idle_for) = match activity.calls {
                0 => (None, self.measured.saturating_duration_since(activity.called.max(activity.worked))),
                _ => (Some(activity.call.to_owned()), quiet_for),
            };
            let long = idle_for >= hang_after || busy_hang_after.is_some_and(|limit| quiet_for >= limit);
            let known = waiting_in.is_some() || activity.found;
            (long && known).then_some(QuietRank { rank: *rank, waiting_in, quiet_for, idle_for })
        });
        quiet.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: run::Watchdog = run::Watchdog { hang_after: s(40), busy_hang_after: None };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn used(cpu: Duration) -> Usage {
        Usage { cpu, processes: [7].into(), ..Usage::default() }
    }

    /// One rank, measured every 10 s, with this usage after so many seconds.
    fn watch(settings: run::Watchdog, until: u64, usage: impl Fn(u64) -> Usage) -> Vec<QuietRank> {
        let begun = Instant::now();
        let mut quiet = Quiet::new(settings, &[Rank(3)], begun);
        for look in (10..=until).step_by(10) {
            quiet.measured(begun + s(look), BTreeMap::from([(Rank(3), usage(look))]));
        }
        quiet.report(begun + s(until))
    }

    #[test]
    fn a_rank_that_neither_calls_nor_works_is_inactive_from_the_first_measurement_on() {
        assert!(watch(SETTINGS, 40, |_| used(s(5))).is_empty());
        let quiet = QuietRank { rank: Rank(3), waiting_in: None, quiet_for: s(50), idle_for: s(40) };
        assert_eq!(watch(SETTINGS, 50, |_| used(s(5))), [quiet]);
    }

    #[test]
    fn a_rank_that_only_polls_is_inactive() {
        // A hundredth of a second in ten.
        assert_eq!(watch(SETTINGS, 100, |at| used(Duration::from_millis(at))).len(), 1);
    }

    #[test]
    fn a_rank_that_computes_moves_data_or_has_a_new_process_is_active() {
        assert!(watch(SETTINGS, 10_000, |at| used(Duration::from_millis(at * 20))).is_empty());
        assert!(watch(SETTINGS, 10_000, |at| Usage { bytes: at << 20, ..used(s(1)) }).is_empty());
        assert!(watch(SETTINGS, 10_000, |at| Usage { processes: [at as u32].into(), ..used(s(1)) }).is_empty());
        assert!(watch(SETTINGS, 10_000, |_| Usage { runs: true, ..used(s(1)) }).is_empty());
    }

    #[test]
    fn a_rank_that_computes_is_reported_after_busy_hang_after() {
        let settings = run::Watchdog { busy_hang_after: Some(s(300)), ..SETTINGS };
        assert!(watch(settings, 290, |at| used(s(at))).is_empty());
        let busy = QuietRank { rank: Rank(3), waiting_in: None, quiet_for: s(300), idle_for: s(0) };
        assert_eq!(watch(settings, 300, |at| used(s(at))), [busy]);
    }

    #[test]
    fn ranks_without_a_process_or_a_measurement_are_not_reported() {
        assert!(watch(SETTINGS, 10_000, |_| Usage::default()).is_empty());
        let begun = Instant::now();
        let mut quiet = Quiet::new(SETTINGS, &[Rank(3)], begun);
        quiet.measured(begun, BTreeMap::from([(Rank(3), used(s(1)))]));
        assert!(quiet.report(begun + s(500)).is_empty(), "/proc hangs, not the rank");
    }

    #[test]
    fn a_rank_that_waits_is_inactive_from_its_call_to_the_answer() {
        let begun = Instant::now();
        let mut quiet = Quiet::new(SETTINGS, &[Rank(3)], begun);
        assert!(quiet.needs_check(begun + s(10), s(10)));
        quiet.call_begins(Rank(3), "need_checkpoint", begun + s(5));
        assert!(!quiet.needs_check(begun + s(500), s(10)));
        assert!(quiet.report(begun + s(44)).is_empty());
        let waits = QuietRank {
            rank: Rank(3),
            waiting_in: Some("need_checkpoint".to_owned()),
            quiet_for: s(40),
            idle_for: s(40),
        };
        assert_eq!(quiet.report(begun + s(45)), [waits]);
        quiet.call_ends(Rank(3), begun + s(46));
        assert!(quiet.report(begun + s(46)).is_empty());
    }

    #[test]
    fn a_connection_that_is_replaced_in_the_middle_of_a_call_does_not_end_the_waiting() {
        let begun = Instant::now();
        let mut quiet = Quiet::new(SETTINGS, &[Rank(3)], begun);
        quiet.call_begins(Rank(3), "init", begun);
        quiet.call_begins(Rank(3), "init", begun);
        quiet.call_ends(Rank(3), begun);
        assert_eq!(quiet.report(begun + s(40)).len(), 1);
    }
}
