//! How long the drain is expected to take: [`BASE`], and twice the time that a transfer of the newest checkpoint is
//! expected to take: as fast as the last flush, fetch or drain, or else [`DEFAULT_RATE`] for each node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::events::DrainResult;

/// For the end of the ranks, the inventories, the index and the report.
const BASE: Duration = Duration::from_secs(30);
/// In a short allocation, `BASE` is at most this part of it; and so is the time in which the ranks are halted.
pub(super) const SHARE: u32 = 10;
/// The estimate is at most this part of the allocation.
const LARGEST_SHARE: u32 = 2;
/// Bytes a second of one node, if no transfer was measured.
const DEFAULT_RATE: u64 = 200_000_000;

/// What the estimate of a drain's time depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DrainEstimate {
    /// The size of the newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<Transfer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drain_began: Option<Duration>,
}

/// The last flush, fetch or drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Transfer {
    /// `None` until the size of a checkpoint is known.
    bytes: Option<u64>,
    took: Duration,
}

impl DrainEstimate {
    /// A checkpoint of this size is complete.
    pub(super) fn size_is(&mut self, bytes: u64) {
        self.bytes = Some(bytes);
        if let Some(measured) = &mut self.measured {
            // Checkpoints of a job are about equally large.
            measured.bytes.get_or_insert(bytes);
        }
    }

    /// A checkpoint was flushed or fetched in this time.
    pub(super) fn transferred(&mut self, took: Duration) {
        self.measured = Some(Transfer { bytes: self.bytes, took });
    }

    pub(super) fn drain_began(&mut self, now: Duration) {
        self.drain_began = Some(now);
    }

    pub(super) fn drained(&mut self, now: Duration, result: &DrainResult) {
        if let Some(began) = self.drain_began.take()
            && matches!(result, DrainResult::Complete { .. })
        {
            self.transferred(now.saturating_sub(began));
        }
    }

    /// The next step has other checkpoints, and the same nodes and prefix directory.
    pub(super) fn in_next_step(&self) -> Self {
        let measured = self.measured.filter(|measured| measured.bytes.is_some());
        DrainEstimate { bytes: None, measured, drain_began: None }
    }

    /// The time to keep in an allocation of this length, from this number of nodes.
    pub(super) fn reserve(&self, allocation: Duration, nodes: u32) -> Duration {
        let base = BASE.min(allocation / SHARE);
        let Some(bytes) = self.bytes else { return base };
        let transfer = match self.measured {
            Some(Transfer { bytes: Some(measured), took }) if measured > 0 => scaled(took, bytes, measured),
            _ => scaled(Duration::from_secs(1), bytes, DEFAULT_RATE.saturating_mul(u64::from(nodes.max(1)))),
        };
        base.saturating_add(transfer.saturating_mul(2)).min(allocation / LARGEST_SHARE)
    }
}

/// `time * part / total`.
fn scaled(time: Duration, part: u64, total: u64) -> Duration {
    let nanos = time.as_nanos().saturating_mul(u128::from(part)) / u128::from(total.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn without_a_checkpoint_the_reserve_is_30_seconds_or_a_tenth_of_the_allocation() {
        let estimate = DrainEstimate::default();
        assert_eq!(estimate.reserve(s(3600), 4), s(30));
        assert_eq!(estimate.reserve(s(20), 4), s(2));
    }

    #[test]
    fn an_unmeasured_transfer_is_expected_to_run_at_the_default_rate_of_each_node() {
        let mut estimate = DrainEstimate::default();
        estimate.size_is(8_000_000_000);
        assert_eq!(estimate.reserve(s(3600), 4), s(30 + 20));
        assert_eq!(estimate.reserve(s(3600), 1), s(30 + 80));
    }

    #[test]
    fn a_measured_flush_is_scaled_to_the_size_of_the_newest_checkpoint() {
        let mut estimate = DrainEstimate::default();
        estimate.size_is(1_000_000);
        estimate.transferred(s(10));
        assert_eq!(estimate.reserve(s(3600), 4), s(30 + 20));
        estimate.size_is(3_000_000);
        assert_eq!(estimate.reserve(s(3600), 4), s(30 + 60));
        assert_eq!(estimate.reserve(s(100), 4), s(50), "at most half of the allocation");
    }

    #[test]
    fn a_fetch_counts_as_soon_as_the_size_of_a_checkpoint_is_known() {
        let mut estimate = DrainEstimate::default();
        estimate.transferred(s(50));
        assert_eq!(estimate.reserve(s(3600), 4), s(30));
        estimate.size_is(7);
        assert_eq!(estimate.reserve(s(3600), 4), s(30 + 100));
    }

    #[test]
    fn the_drain_of_a_step_is_the_measure_for_the_next_step() {
        let mut estimate = DrainEstimate::default();
        estimate.size_is(100);
        estimate.drain_began(s(7));
        estimate.drained(s(27), &DrainResult::Nothing);
        assert_eq!(estimate.measured, None);
        estimate.drain_began(s(30));
        estimate.drained(s(40), &DrainResult::Complete { checkpoint: holdfast_model::CheckpointId(3) });
        let mut next = estimate.in_next_step();
        assert_eq!(next.reserve(s(3600), 4), s(30));
        next.size_is(200);
        assert_eq!(next.reserve(s(3600), 4), s(30 + 40));
    }
}
