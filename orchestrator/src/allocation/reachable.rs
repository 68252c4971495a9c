//! Whether the machine of a silent agent still answers, as this process finds: see [`holdfast_wire::reachable`].

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_wire::reachable::{self, ProbeResult};

/// Far more than the round-trip time of a local network.
const WITHIN: Duration = Duration::from_millis(250);
/// A machine is lost after this many probes in a row without an answer.
const UNANSWERED_PROBES: u32 = 2;
/// Interval between probes that are answered.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn probe(address: SocketAddr) -> ProbeResult {
    reachable::probe(address, WITHIN).await
}

/// Returns when the machine at the address does not answer any more. `last` is the result of the probe before.
pub(crate) async fn wait_until_unreachable(address: SocketAddr, last: ProbeResult) {
    let mut unanswered = u32::from(matches!(last, ProbeResult::NoAnswer));
    while unanswered < UNANSWERED_PROBES {
        if matches!(probe(address).await, ProbeResult::NoAnswer) {
            unanswered += 1;
        } else {
            unanswered = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
