//! The agents of a job: their life cycle, the requests to them, and the detection of lost agents.
//!
//! * [`supervisor`]: starts, adopts, polls, fences and ends agents; reports what happens as typed events;
//! * [`client`]: one request to one agent, TLS with the job's certificate pinned, always with a time limit; requests
//!   to many agents, a bounded number at a time;
//! * [`poll`]: one task for each node that always has a poll under way, so that a broken connection is detected at
//!   once; its `connection`; `poll_thread`, on which all of them run; [`answers`], what they report;
//! * [`running_time`]: the time in which the polling thread verifiably ran: silence is measured in it;
//! * [`roster`]: which agents are up now, for tasks that send requests to them (the drain);
//! * `fence`: ends the ranks and the agent of a node that was given up and becomes reachable again.

pub mod answers;
pub mod client;
pub mod clock;
mod connection;
mod error;
mod fence;
pub mod poll;
mod poll_thread;
pub mod roster;
pub mod running_time;
pub mod supervisor;

use std::future::Future;

use futures_util::stream::{self, StreamExt as _};

pub use answers::{PollReports, UnchangedAnswer};
pub use client::AgentClient;
pub use clock::Clock;
pub use error::{FleetError, RequestError};
pub use poll::{PollReport, PollTarget, Poller};
pub use roster::Roster;
pub use supervisor::{AgentRecord, AgentSupervisor, FleetEvent, FleetSettings};

/// Runs `work` for every item, at most `at_once` at a time. Returns the results in the order of the items.
pub async fn fan_out<T, R, F>(items: impl IntoIterator<Item = T>, at_once: usize, work: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R>,
{
    let numbered = items.into_iter().enumerate().map(|(at, item)| {
        let result = work(item);
        async move { (at, result.await) }
    });
    let mut results: Vec<(usize, R)> = stream::iter(numbered).buffer_unordered(at_once.max(1)).collect().await;
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn results_keep_the_order_of_the_items_and_no_more_than_allowed_run_at_a_time() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let results = fan_out(0..20_u64, 3, |item| {
            let (running, most) = (&running, &most);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                tokio::time::sleep(std::time::Duration::from_millis(20 - item)).await;
                running.set(running.get() - 1);
                item
            }
        });
        assert_eq!(results.await, (0..20).collect::<Vec<_>>());
        assert_eq!(most.get(), 3);
    }
}
