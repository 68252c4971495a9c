//! A map over many small files with a few threads: a scan of 10,000 ranks waits for the file system, not for the CPU.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many items a thread takes at a time: few enough to balance, enough not to fight over the counter.
const BATCH: usize = 64;

/// The threads that serve best when the caller has no opinion: what the machine has, at most eight, because the
/// metadata server of a parallel file system is shared with all other jobs.
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(2, |count| count.get().clamp(1, 8))
}

/// `work` of every item, in the order of the items. With one thread, or few items, no thread is started.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, batch: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let batch = batch.max(1);
    let threads = threads.clamp(1, items.len().div_ceil(batch).max(1));
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let mut batches: Vec<(usize, Vec<R>)> = thread::scope(|scope| {
        let run = || {
            let mut done = Vec::new();
            loop {
                let start = next.fetch_add(batch, Ordering::Relaxed);
                if start >= items.len() {
                    return done;
                }
                let end = (start + batch).min(items.len());
                done.push((start, items[start..end].iter().map(&work).collect()));
            }
        };
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut all: Vec<(usize, Vec<R>)> = run();
        for worker in workers {
            match worker.join() {
                Ok(done) => all.extend(done),
                // A panic in the work is a bug there; it belongs to the caller's thread.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    batches.sort_unstable_by_key(|(start, _)| *start);
    batches.into_iter().flat_map(|(_, results)| results).collect()
}

/// [`map`] with the batch that suits small files.
pub fn map_small<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map(items, threads, BATCH, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_for_any_number_of_threads() {
        let items: Vec<u32> = (0..1000).collect();
        let expected: Vec<u32> = items.iter().map(|item| item * 2).collect();
        for threads in [0, 1, 3, 16] {
            assert_eq!(map_small(&items, threads, |item| item * 2), expected);
            assert_eq!(map(&items, threads, 1, |item| item * 2), expected);
        }
        assert!(map_small(&Vec::<u32>::new(), 4, |item| *item).is_empty());
    }
}
