//! The same work for many items, some at a time.

use std::future::Future;

use futures_util::stream::{self, StreamExt as _};

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
