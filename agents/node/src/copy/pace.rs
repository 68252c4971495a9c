//! Keeps work that nothing waits for within its limits of bandwidth and of the processors' time.

use std::thread;
use std::time::Duration;

use holdfast_wire::peer::CopyLimits;
use tokio_util::sync::CancellationToken;

use super::bandwidth::Bandwidth;
use super::processor_share::{PieceBegin, ProcessorShare};

/// The longest wait between two checks of the tokens.
const WAIT: Duration = Duration::from_millis(100);

/// How an order that is being carried out is controlled from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderControl {
    /// Cancelled when the order is, when the link to the leader breaks, and when the run is over.
    pub(crate) cancelled: CancellationToken,
    /// Cancelled when something waits for the order: from then on its limits do not apply.
    pub(crate) unlimited: CancellationToken,
}

/// The limits of an order, which all its threads share.
#[derive(Debug)]
pub(crate) struct Pace {
    bandwidth: Bandwidth,
    processor: ProcessorShare,
    control: OrderControl,
}

impl Pace {
    pub(crate) fn new(limits: CopyLimits, control: OrderControl) -> Pace {
        let CopyLimits { bandwidth, percent, .. } = limits;
        Pace { bandwidth: Bandwidth::new(bandwidth), processor: ProcessorShare::new(percent), control }
    }

    pub(crate) fn unlimited(control: OrderControl) -> Pace {
        Pace::new(CopyLimits::NONE, control)
    }

    pub(crate) fn control(&self) -> &OrderControl {
        &self.control
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.control.cancelled.is_cancelled()
    }

    /// This thread begins a piece of work.
    pub(crate) fn begin_piece(&self) -> PieceBegin {
        self.processor.begin_piece()
    }

    /// The same thread has moved so many bytes in it. Returns how long to [`wait`](Self::wait) before the next one.
    pub(crate) fn end_piece(&self, begun: PieceBegin, bytes: u64) -> Duration {
        self.bandwidth.moved(bytes).max(self.processor.end_piece(begun))
    }

    /// Waits, but not longer than until the order is cancelled or its limits are lifted.
    pub(crate) fn wait(&self, mut left: Duration) {
        while !left.is_zero() && !self.is_cancelled() && !self.control.unlimited.is_cancelled() {
            let now = left.min(WAIT);
            thread::sleep(now);
            left -= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_limits_are_lifted_or_the_order_is_cancelled() {
        let limits = CopyLimits { bandwidth: 1, ..CopyLimits::NONE };
        for lifted in [true, false] {
            let control = OrderControl::default();
            let pace = Pace::new(limits, control.clone());
            let pause = pace.end_piece(pace.begin_piece(), 24 * 3600);
            assert!(pause > Duration::from_secs(23 * 3600), "{pause:?}");
            let waiting = thread::spawn(move || pace.wait(pause));
            if lifted { &control.unlimited } else { &control.cancelled }.cancel();
            waiting.join().unwrap();
        }
    }
}
