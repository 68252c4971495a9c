//! Which ranks wait in a call that all ranks make together, and for which others. Reported once in a wait, because
//! nothing else is wrong: a rank may compute for long.
//!
//! None of this is in the snapshot: an orchestrator that takes over begins with no observations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_wire::agent::WaitingRanks;

use crate::events::Wait;

/// The observations of the ranks of a generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// The last report of each node with ranks that wait, and since when the first of them does.
    nodes: BTreeMap<NodeName, (Duration, WaitingRanks)>,
    by_time: BTreeSet<(Duration, NodeName)>,
    /// The number of ranks that wait.
    ranks: usize,
    reported: bool,
}

impl Waits {
    /// Begins with a launch or a take-over.
    pub(super) fn begin(&mut self) {
        *self = Waits::default();
    }

    /// Records an agent's report in place of its last one.
    pub(super) fn report(&mut self, now: Duration, node: NodeName, waiting: Option<WaitingRanks>) {
        self.forget(&node);
        if let Some(waiting) = waiting.filter(WaitingRanks::is_long) {
            let since = now.saturating_sub(waiting.waits_for);
            self.ranks += waiting.ranks.len();
            self.by_time.insert((since, node.clone()));
            self.nodes.insert(node, (since, waiting));
        }
        self.reported &= !self.nodes.is_empty();
    }

    /// Removes the report of a node.
    pub(super) fn forget(&mut self, node: &NodeName) {
        if let Some((since, waiting)) = self.nodes.remove(node) {
            self.ranks -= waiting.ranks.len();
            self.by_time.remove(&(since, node.clone()));
        }
    }

    /// When a wait is to be reported that has lasted for `after`.
    pub(super) fn report_at(&self, after: Duration, ranks: u32) -> Option<Duration> {
        let (since, _) = self.by_time.first()?;
        (!self.reported && self.ranks < ranks as usize).then(|| since.saturating_add(after))
    }

    /// The wait that is reported now.
    pub(super) fn take(&mut self, now: Duration, ranks: u32, ended: &BTreeMap<Rank, RankEnd>) -> Option<Wait> {
        self.reported = true;
        let (since, _) = self.by_time.first()?;
        let reports = self.by_time.iter().filter_map(|(_, node)| Some(&self.nodes.get(node)?.1));
        Wait::of(reports, now.saturating_sub(*since), ranks, |rank| ended.contains_key(&rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn waits(ranks: &[u32], seconds: u64) -> Option<WaitingRanks> {
        let ranks = ranks.iter().map(|rank| Rank(*rank)).collect();
        Some(WaitingRanks { call: "start_checkpoint".to_owned(), ranks, waits_for: s(seconds) })
    }

    fn reported(found: &mut Waits, now: u64, ended: &[u32]) -> Option<(u32, u32, Vec<u32>, bool)> {
        let ended = ended.iter().map(|rank| (Rank(*rank), RankEnd::Code(0))).collect();
        let wait = found.take(s(now), 4, &ended)?;
        let missing = wait.missing.iter().map(|rank| rank.0).collect();
        Some((wait.rank.0, wait.waiting, missing, wait.have_ended))
    }

    #[test]
    fn a_wait_is_due_so_long_after_its_first_rank_began_and_names_those_that_are_waited_for() {
        let mut found = Waits::default();
        found.report(s(100), "n0".into(), waits(&[1], 2));
        found.report(s(101), "n1".into(), waits(&[3], 20));
        assert_eq!(found.report_at(MINUTE, 4), Some(s(141)));
        assert_eq!(reported(&mut found, 141, &[]), Some((1, 2, vec![0, 2], false)));
        assert_eq!(found.report_at(MINUTE, 4), None, "once in a wait");
    }

    #[test]
    fn the_next_wait_is_reported_too() {
        let mut found = Waits::default();
        for now in [100, 200] {
            found.report(s(now), "n0".into(), waits(&[1], 2));
            assert!(found.report_at(MINUTE, 4).is_some());
            assert!(reported(&mut found, now + 60, &[]).is_some());
            found.report(s(now + 70), "n0".into(), waits(&[1], 0));
            assert_eq!(found.report_at(MINUTE, 4), None);
        }
        found.report(s(300), "n0".into(), waits(&[1], 2));
        found.forget(&"n0".into());
        assert_eq!(found.report_at(MINUTE, 4), None, "the node is down");
    }

    #[test]
    fn ranks_that_all_wait_wait_for_the_agents() {
        let mut found = Waits::default();
        found.report(s(100), "n0".into(), waits(&[0, 1], 50));
        found.report(s(100), "n1".into(), waits(&[2, 3], 50));
        assert_eq!(found.report_at(MINUTE, 4), None);
        assert_eq!(reported(&mut found, 200, &[]), None);
    }

    #[test]
    fn ranks_that_have_ended_are_waited_for_in_vain() {
        let mut found = Waits::default();
        found.report(s(100), "n0".into(), waits(&[0, 1, 3], 50));
        assert_eq!(reported(&mut found, 120, &[2]), Some((0, 3, vec![2], true)));
    }
}
