//! Unauthenticated connections: all are counted, a few are reported, so that a port scan does not fill the log.
//!
//! One that its other end closed before it presented anything is counted only: when a node is lost, connections of the
//! job's own agents end in this way.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_wire::agent::AgentEvent;
use parking_lot::Mutex;

use crate::agent::Agent;

/// So many may be reported at once.
const BURST: u32 = 5;
/// After a burst, one may be reported in each such period.
const PERIOD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct UnauthenticatedConnections {
    limit: Mutex<ReportLimit>,
}

#[derive(Debug, Default)]
struct ReportLimit {
    /// Reports of the burst that are used up.
    used: u32,
    /// The start of the period at whose end one of them may be made again.
    since: Option<Instant>,
    /// Connections since the last report that were not reported.
    suppressed: u64,
}

/// True if the other end closed the connection, in order or not.
pub(super) fn is_closed_by_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

impl UnauthenticatedConnections {
    /// Counts a connection that its other end closed.
    pub(super) fn add_closed(&self, agent: &Agent, peer: SocketAddr) {
        agent.unauthenticated.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%peer, "connection_closed_before_token");
    }

    /// Counts a connection, and reports it if the limit allows.
    pub(super) fn add(&self, agent: &Agent, peer: SocketAddr, reason: &str) {
        agent.unauthenticated.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.limit.lock().allow(Instant::now()) {
            let others = if suppressed > 0 { format!(" ({suppressed} more were not reported)") } else { String::new() };
            let (peer, reason) = (peer.to_string(), format!("{reason}{others}"));
            agent.events.add(AgentEvent::UnauthenticatedConnection { peer, reason });
        }
    }
}

impl ReportLimit {
    /// The number of suppressed reports before this one, if this one may be made.
    fn allow(&mut self, now: Instant) -> Option<u64> {
        if let Some(since) = self.since {
            let periods = now.saturating_duration_since(since).as_secs() / PERIOD.as_secs();
            let regained = u32::try_from(periods).unwrap_or(u32::MAX).min(self.used);
            self.used -= regained;
            self.since = (self.used > 0).then(|| since + PERIOD * regained);
        }
        if self.used == BURST {
            self.suppressed += 1;
            return None;
        }
        self.used += 1;
        self.since.get_or_insert(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_connections_a_few_are_reported_and_then_one_a_period_with_the_number_of_the_others() {
        let mut limit = ReportLimit::default();
        let start = Instant::now();
        let at_once = (0..1000).filter(|_| limit.allow(start).is_some()).count();
        assert_eq!(at_once, BURST as usize);
        assert_eq!(limit.allow(start + PERIOD), Some(995));
        assert_eq!(limit.allow(start + PERIOD), None);
        assert_eq!(limit.allow(start + PERIOD * 50), Some(1));
        let again = (0..1000).filter(|_| limit.allow(start + PERIOD * 50).is_some()).count();
        assert_eq!(again, BURST as usize - 1);
    }
}
