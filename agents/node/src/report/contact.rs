//! When the last request of the orchestrator was received: an agent without orchestrator and without ranks ends.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Contact {
    state: Mutex<ContactState>,
}

#[derive(Debug)]
struct ContactState {
    last: Instant,
    under_way: usize,
}

impl Default for Contact {
    fn default() -> Self {
        Contact { state: Mutex::new(ContactState { last: Instant::now(), under_way: 0 }) }
    }
}

impl Contact {
    /// A request begins; it lasts until the guard is dropped. A copy can take hours, without any other request.
    pub fn begin(&self) -> Request<'_> {
        self.state.lock().under_way += 1;
        Request(self)
    }

    /// The time since the last request ended; zero during a request.
    pub fn silence(&self) -> Duration {
        let state = self.state.lock();
        if state.under_way > 0 { Duration::ZERO } else { state.last.elapsed() }
    }

    /// The time of [`Contact::silence`] counts from now.
    pub fn renew(&self) {
        self.state.lock().last = Instant::now();
    }
}

#[derive(Debug)]
pub struct Request<'a>(&'a Contact);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_silence_while_a_request_is_under_way() {
        let contact = Contact::default();
        contact.state.lock().last = Instant::now() - Duration::from_secs(60);
        assert!(contact.silence() >= Duration::from_secs(60));
        let request = contact.begin();
        assert_eq!(contact.silence(), Duration::ZERO);
        drop(request);
        assert!(contact.silence() < Duration::from_secs(60));
    }
}
