//! A rank's calls and its work, and since when there was neither. Pure: times are passed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_model::Rank;
use holdfast_wire::agent::QuietRank;
use holdfast_wire::run;

use super::usage::Usage;

/// Whoever uses less than this part of a processor only looks from time to time whether there is something to do.
const IDLE_SHARE: u32 = 100;
/// The kernel counts in steps of ten milliseconds; one of them may be chance.
const LEAST_WORK: Duration = Duration::from_millis(20);
/// Whoever has read and written less than this between two looks only woke up.
const LEAST_BYTES: u64 = 64 << 10;

/// The ranks of one run on this node.
#[derive(Debug)]
pub struct Quiet {
    settings: run::Watchdog,
    ranks: BTreeMap<Rank, Clock>,
    /// When it was last looked what the ranks use: what is not known is not held against them.
    looked: Instant,
}

#[derive(Debug)]
struct Clock {
    /// Calls under way; more than one only while a connection is replaced.
    calls: u32,
    /// The last one.
    call: &'static str,
    /// When the last call began or ended.
    called: Instant,
    /// When it was last seen that the rank had worked.
    worked: Instant,
    /// What it had used by then.
    mark: Option<(Instant, Usage)>,
    /// The last look found a process of it.
    found: bool,
}

impl Quiet {
    /// The run begins now.
    pub fn new(settings: run::Watchdog, ranks: &[Rank], now: Instant) -> Self {
        let clock = || Clock { calls: 0, call: "", called: now, worked: now, mark: None, found: false };
        Quiet { settings, ranks: ranks.iter().map(|rank| (*rank, clock())).collect(), looked: now }
    }

    /// A rank makes a call.
    pub fn call_begins(&mut self, rank: Rank, name: &'static str, now: Instant) {
        if let Some(clock) = self.ranks.get_mut(&rank) {
            clock.calls += 1;
            (clock.call, clock.called) = (name, now);
        }
    }

    /// It has its answer, or is not connected any more.
    pub fn call_ends(&mut self, rank: Rank, now: Instant) {
        if let Some(clock) = self.ranks.get_mut(&rank) {
            clock.calls = clock.calls.saturating_sub(1);
            (clock.called, clock.mark) = (now, None);
        }
    }

    /// True if a rank is in its own code and has not called for so long.
    pub fn is_worth_a_look(&self, now: Instant, pause: Duration) -> bool {
        self.ranks.values().any(|clock| clock.calls == 0 && now.saturating_duration_since(clock.called) >= pause)
    }

    /// What the ranks had used at `now`.
    pub fn looked(&mut self, now: Instant, mut used: BTreeMap<Rank, Usage>) {
        self.looked = now;
        for (rank, clock) in &mut self.ranks {
            let usage = used.remove(rank).filter(|usage| !usage.processes.is_empty());
            clock.found = usage.is_some();
            let Some(usage) = usage else {
                (clock.mark, clock.worked) = (None, now);
                continue;
            };
            let works = clock.mark.as_ref().is_none_or(|(since, before)| {
                let least = LEAST_WORK.max(now.saturating_duration_since(*since) / IDLE_SHARE);
                usage.runs
                    || usage.processes != before.processes
                    || usage.cpu < before.cpu
                    || usage.cpu - before.cpu >= least
                    || usage.bytes.abs_diff(before.bytes) >= LEAST_BYTES
            });
            if works {
                clock.worked = now;
                clock.mark = Some((now, usage));
            }
        }
    }

    /// The ranks in which nothing has moved for long.
    pub fn report(&self, now: Instant) -> Vec<QuietRank> {
        let run::Watchdog { hang_after, busy_hang_after } = self.settings;
        let quiet = self.ranks.iter().filter_map(|(rank, clock)| {
            let quiet_for = now.saturating_duration_since(clock.called);
            let (waiting_in, idle_for) = match clock.calls {
                0 => (None, self.looked.saturating_duration_since(clock.called.max(clock.worked))),
                _ => (Some(clock.call.to_owned()), quiet_for),
            };
            let long = idle_for >= hang_after || busy_hang_after.is_some_and(|limit| quiet_for >= limit);
            let known = waiting_in.is_some() || clock.found;
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

    /// One rank, looked at every 10 s, whose usage after so many seconds is this.
    fn watch(settings: run::Watchdog, until: u64, usage: impl Fn(u64) -> Usage) -> Vec<QuietRank> {
        let begun = Instant::now();
        let mut quiet = Quiet::new(settings, &[Rank(3)], begun);
        for look in (10..=until).step_by(10) {
            quiet.looked(begun + s(look), BTreeMap::from([(Rank(3), usage(look))]));
        }
        quiet.report(begun + s(until))
    }

    #[test]
    fn a_rank_that_neither_calls_nor_works_is_quiet_from_the_first_look_on() {
        assert!(watch(SETTINGS, 40, |_| used(s(5))).is_empty());
        let quiet = QuietRank { rank: Rank(3), waiting_in: None, quiet_for: s(50), idle_for: s(40) };
        assert_eq!(watch(SETTINGS, 50, |_| used(s(5))), [quiet]);
    }

    #[test]
    fn a_rank_that_only_looks_whether_there_is_something_to_do_is_quiet_too() {
        // A hundredth of a second in ten.
        assert_eq!(watch(SETTINGS, 100, |at| used(Duration::from_millis(at))).len(), 1);
    }

    #[test]
    fn a_rank_that_computes_moves_data_or_has_a_new_process_is_never_quiet() {
        assert!(watch(SETTINGS, 10_000, |at| used(Duration::from_millis(at * 20))).is_empty());
        assert!(watch(SETTINGS, 10_000, |at| Usage { bytes: at << 20, ..used(s(1)) }).is_empty());
        assert!(watch(SETTINGS, 10_000, |at| Usage { processes: [at as u32].into(), ..used(s(1)) }).is_empty());
        assert!(watch(SETTINGS, 10_000, |_| Usage { runs: true, ..used(s(1)) }).is_empty());
    }

    #[test]
    fn a_rank_that_computes_is_reported_when_that_is_asked_for() {
        let settings = run::Watchdog { busy_hang_after: Some(s(300)), ..SETTINGS };
        assert!(watch(settings, 290, |at| used(s(at))).is_empty());
        let busy = QuietRank { rank: Rank(3), waiting_in: None, quiet_for: s(300), idle_for: s(0) };
        assert_eq!(watch(settings, 300, |at| used(s(at))), [busy]);
    }

    #[test]
    fn of_a_rank_without_a_process_and_of_one_that_nobody_looked_at_nothing_is_said() {
        assert!(watch(SETTINGS, 10_000, |_| Usage::default()).is_empty());
        let begun = Instant::now();
        let mut quiet = Quiet::new(SETTINGS, &[Rank(3)], begun);
        quiet.looked(begun, BTreeMap::from([(Rank(3), used(s(1)))]));
        assert!(quiet.report(begun + s(500)).is_empty(), "/proc hangs, not the rank");
    }

    #[test]
    fn a_rank_that_waits_is_quiet_since_its_call_and_moves_with_the_answer() {
        let begun = Instant::now();
        let mut quiet = Quiet::new(SETTINGS, &[Rank(3)], begun);
        assert!(quiet.is_worth_a_look(begun + s(10), s(10)));
        quiet.call_begins(Rank(3), "need_checkpoint", begun + s(5));
        assert!(!quiet.is_worth_a_look(begun + s(500), s(10)));
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
