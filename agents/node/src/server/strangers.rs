//! Those who knock without the token: all are counted, a few are reported, so that a port scan does not fill the log.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_wire::agent::AgentEvent;
use parking_lot::Mutex;

use crate::agent::Agent;

/// So many are reported at once.
const AT_ONCE: u32 = 5;
/// And then one each so often.
const ONE_EACH: Duration = Duration::from_secs(30);

/// What was reported of them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    reported: Mutex<Reported>,
}

#[derive(Debug, Default)]
struct Reported {
    /// Reports that were spent and have not come back.
    spent: u32,
    /// Since when the next report comes back.
    since: Option<Instant>,
    /// How many were not reported since the last report.
    silent: u64,
}

impl Strangers {
    /// Counts one, and reports it if there was not too much of that lately.
    pub(super) fn report(&self, agent: &Agent, peer: SocketAddr, reason: &str) {
        agent.strangers.fetch_add(1, Ordering::Relaxed);
        if let Some(silent) = self.reported.lock().may_report(Instant::now()) {
            let others = if silent > 0 { format!(" ({silent} more were not reported)") } else { String::new() };
            agent.events.add(AgentEvent::UnauthenticatedConnection {
                peer: peer.to_string(),
                reason: format!("{reason}{others}"),
            });
        }
    }
}

impl Reported {
    /// May this one be reported? How many were kept silent before it.
    fn may_report(&mut self, now: Instant) -> Option<u64> {
        if let Some(since) = self.since {
            let back = now.saturating_duration_since(since).as_secs() / ONE_EACH.as_secs();
            let back = u32::try_from(back).unwrap_or(u32::MAX).min(self.spent);
            self.spent -= back;
            self.since = (self.spent > 0).then(|| since + ONE_EACH * back);
        }
        if self.spent == AT_ONCE {
            self.silent += 1;
            return None;
        }
        self.spent += 1;
        self.since.get_or_insert(now);
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_reported_a_few_times_and_then_once_in_a_while_with_the_number_of_the_others() {
        let mut reported = Reported::default();
        let start = Instant::now();
        let at_once = (0..1000).filter(|_| reported.may_report(start).is_some()).count();
        assert_eq!(at_once, AT_ONCE as usize);
        assert_eq!(reported.may_report(start + ONE_EACH), Some(995));
        assert_eq!(reported.may_report(start + ONE_EACH), None);
        assert_eq!(reported.may_report(start + ONE_EACH * 50), Some(1));
        let again = (0..1000).filter(|_| reported.may_report(start + ONE_EACH * 50).is_some()).count();
        assert_eq!(again, AT_ONCE as usize - 1);
    }
}
