//! When the orchestrator was last heard of: an agent without orchestrator and without ranks does not stay for ever.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The orchestrator's requests, seen from far.
#[derive(Debug)]
pub struct Contact {
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    last: Instant,
    under_way: usize,
}

impl Default for Contact {
    fn default() -> Self {
        Contact { now: Mutex::new(Now { last: Instant::now(), under_way: 0 }) }
    }
}

impl Contact {
    /// A request begins; it lasts until the guard is dropped. A copy can take hours, in which nothing else is heard.
    pub fn begin(&self) -> Request<'_> {
        self.now.lock().under_way += 1;
        Request(self)
    }

    /// How long nothing was heard.
    pub fn silence(&self) -> Duration {
        let now = self.now.lock();
        if now.under_way > 0 { Duration::ZERO } else { now.last.elapsed() }
    }

    /// Counts from now: something else kept the agent busy.
    pub fn renew(&self) {
        self.now.lock().last = Instant::now();
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Request<'a>(&'a Contact);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        now.under_way = now.under_way.saturating_sub(1);
        now.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_silence_while_a_request_is_under_way() {
        let contact = Contact::default();
        contact.now.lock().last = Instant::now() - Duration::from_secs(60);
        assert!(contact.silence() >= Duration::from_secs(60));
        let request = contact.begin();
        assert_eq!(contact.silence(), Duration::ZERO);
        drop(request);
        assert!(contact.silence() < Duration::from_secs(60));
    }
}
