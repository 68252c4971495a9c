//! The agents: who they are told to be, how they are asked and commanded, how their silence is noticed.
//!
//! * [`client`]: one request to one agent, TLS with the job's certificate pinned, always with a time limit;
//! * [`poll`]: one task a node that always has a question under way, so that a broken connection is noticed at once;
//! * [`roster`]: which agents are there now, for whoever works with them meanwhile;
//! * [`fan_out`]: the same request to many agents, a bounded number at a time.

pub mod client;
pub mod clock;
mod error;
pub mod poll;
pub mod roster;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use client::AgentClient;
pub use clock::Clock;
pub use error::{FleetError, RequestError};
pub use poll::{PollNews, PollTarget, Poller};
pub use roster::Roster;

/// So many requests of one kind are under way at a time: each costs a connection here, and the answers come together.
const AT_ONCE: usize = 64;

/// Does `work` for every item, some at a time; the results come in the order of the items. A task that panicked leaves
/// no result.
pub async fn fan_out<T, R, F>(items: Vec<T>, work: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (at, item) in items.into_iter().enumerate() {
        let permits = Arc::clone(&permits);
        let future = work(item);
        tasks.spawn(async move {
            // The semaphore is never closed; without a permit the work is done all the same.
            let _permit = permits.acquire_owned().await.ok();
            (at, future.await)
        });
    }
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => results.push(result),
            Err(error) => tracing::error!(%error, "a request's task failed"),
        }
    }
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
