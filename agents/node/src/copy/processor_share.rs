//! Limits the processor time of a node's copies.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// The processor time that a set of copies has used, and its limit.
#[derive(Debug)]
pub(super) struct ProcessorShare {
    /// The part of one processor; `None` is no limit.
    share: Option<f64>,
    begun: Instant,
    used: Mutex<Duration>,
}

/// The processor time of the thread when a piece began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceBegin(Option<Duration>);

impl ProcessorShare {
    /// `percent` of a processor; 0 is no limit.
    pub(super) fn new(percent: f64) -> Self {
        let share = (percent > 0.0).then_some(percent / 100.0);
        ProcessorShare { share, begun: Instant::now(), used: Mutex::new(Duration::ZERO) }
    }

    /// This thread begins to move a piece.
    pub(super) fn begin_piece(&self) -> PieceBegin {
        PieceBegin(self.share.map(|_| thread_time()))
    }

    /// The same thread has moved the piece. Returns how long to wait before the next one.
    pub(super) fn end_piece(&self, PieceBegin(begun): PieceBegin) -> Duration {
        let (Some(share), Some(begun)) = (self.share, begun) else { return Duration::ZERO };
        let used = {
            let mut used = self.used.lock();
            *used += thread_time().saturating_sub(begun);
            *used
        };
        time_for(used, share).saturating_sub(self.begun.elapsed())
    }
}

/// The time over which this processor time is the given share.
fn time_for(used: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(used.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_wait_until_their_processor_time_is_the_given_share() {
        assert_eq!(time_for(Duration::from_secs(1), 0.025), Duration::from_secs(40));
        let share = ProcessorShare::new(1e-6);
        let piece = share.begin_piece();
        let mut sum = 0_u64;
        while thread_time().saturating_sub(piece.0.unwrap()) < Duration::from_millis(1) {
            sum = std::hint::black_box(sum + 1);
        }
        // One millisecond is a hundred-millionth of a day and more.
        assert!(share.end_piece(piece) > Duration::from_secs(24 * 3600));
        let unlimited = ProcessorShare::new(0.0);
        assert_eq!(unlimited.end_piece(unlimited.begin_piece()), Duration::ZERO);
    }
}
