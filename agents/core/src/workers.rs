//! Work on several threads. [`map`]: many items by a few threads, for instance a scan of 10,000 files, which waits for
//! the file system. [`map_at_once`]: a thread for each item, because the items wait for each other.

use std::io;
use std::panic::{self, resume_unwind};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

/// How many items a thread takes at a time: few enough to balance, enough not to fight over the counter.
const BATCH: usize = 64;

/// The threads that serve best when the caller has no opinion: what the machine has, at most eight, because the
/// metadata server of a parallel file system is shared with all other jobs.
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(2, |count| count.get().clamp(1, 8))
}

/// `work` of every item, in the order of the items. With one thread, or few items, no thread is started; where the
/// system refuses a thread, those that there are do its work.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, batch: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_with(items, threads, batch, || (), |(), item| work(item))
}

/// As [`map`], with a state of each thread, such as a buffer.
pub fn map_with<T: Sync, R: Send, S>(
    items: &[T],
    threads: usize,
    batch: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    map_on(thread::Builder::new, items, threads, batch, state, work)
}

fn map_on<T: Sync, R: Send, S>(
    thread: impl Fn() -> thread::Builder,
    items: &[T],
    threads: usize,
    batch: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    let batch = batch.max(1);
    let threads = threads.clamp(1, items.len().div_ceil(batch).max(1));
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut state, mut done) = (state(), Vec::new());
        loop {
            let start = next.fetch_add(batch, Ordering::Relaxed);
            let Some(rest) = items.get(start..).filter(|rest| !rest.is_empty()) else { return done };
            let batch = &rest[..batch.min(rest.len())];
            done.push((start, batch.iter().map(|item| work(&mut state, item)).collect()));
        }
    };
    let mut batches: Vec<(usize, Vec<R>)> = thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map_while(|_| thread().spawn_scoped(scope, run).ok()).collect();
        let mut all = run();
        workers.into_iter().for_each(|worker| all.extend(joined(worker)));
        all
    });
    batches.sort_unstable_by_key(|(start, _)| *start);
    batches.into_iter().flat_map(|(_, results)| results).collect()
}

/// `work` of every item, in the order of the items, all at the same time: for work that waits for that of other items.
/// If the system refuses a thread, `stop` must end the work that has begun.
///
/// # Errors
/// The system's reason why there is no thread.
pub fn map_at_once<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    stop: impl FnOnce(),
) -> io::Result<Vec<R>> {
    at_once_on(thread::Builder::new, items, work, stop)
}

fn at_once_on<T: Sync, R: Send>(
    thread: impl Fn() -> thread::Builder,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    stop: impl FnOnce(),
) -> io::Result<Vec<R>> {
    let Some((first, others)) = items.split_first() else { return Ok(Vec::new()) };
    let work = &work;
    thread::scope(|scope| {
        let start = |item| thread().spawn_scoped(scope, move || work(item));
        let started = others.iter().try_fold(Vec::new(), |mut started, item| match start(item) {
            Ok(thread) => {
                started.push(thread);
                Ok(started)
            }
            Err(error) => Err(error),
        });
        // The scope waits for those that were started.
        let started = started.inspect_err(|_| stop())?;
        let first = work(first);
        Ok([first].into_iter().chain(started.into_iter().map(joined)).collect())
    })
}

/// What a user can do about threads that the system refuses.
pub const RAISE_LIMITS: &str = "raise the limits of processes and of open files (`ulimit -u`, `ulimit -n`)";

/// The exit code of a process that has no threads: something cannot be used.
const UNAVAILABLE: i32 = 69;

/// Starts the threads of a library that panics where the system refuses one: the process then ends with exit code 69
/// and the reason, before the library waits for threads that it does not have.
pub fn start_or_exit<R>(start: impl FnOnce() -> R) -> R {
    let usual = Arc::new(panic::take_hook());
    let (starting, others) = (thread::current().id(), Arc::clone(&usual));
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != starting {
            return others(info);
        }
        let reason = info.payload_as_str().unwrap_or("no thread could be started");
        eprintln!("error: {reason}\n  help: {RAISE_LIMITS}");
        process::exit(UNAVAILABLE);
    }));
    let started = start();
    panic::set_hook(Box::new(move |info| usual(info)));
    started
}

/// A panic in the work is a bug there; it belongs to the caller's thread.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// [`map`] with the batch that suits small files.
pub fn map_small<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map(items, threads, BATCH, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    /// No system has the memory for this stack.
    fn refused() -> thread::Builder {
        thread::Builder::new().stack_size(1 << 60)
    }

    #[test]
    fn results_are_in_the_order_of_the_items_for_any_number_of_threads() {
        let items: Vec<u32> = (0..1000).collect();
        let expected: Vec<u32> = items.iter().map(|item| item * 2).collect();
        for threads in [0, 1, 3, 16] {
            assert_eq!(map_small(&items, threads, |item| item * 2), expected);
            assert_eq!(map(&items, threads, 1, |item| item * 2), expected);
        }
        assert!(map_small(&Vec::<u32>::new(), 4, |item| *item).is_empty());
        assert_eq!(map_at_once(&items[..9], |item| item * 2, || ()).unwrap(), expected[..9]);
    }

    #[test]
    fn where_no_thread_can_be_created_the_caller_does_all_the_work() {
        let items: Vec<u32> = (0..1000).collect();
        let caller = thread::current().id();
        let done = map_on(refused, &items, 8, 1, || (), |(), item| (*item, thread::current().id()));
        assert!(done.iter().zip(&items).all(|((item, thread), expected)| item == expected && *thread == caller));
    }

    #[test]
    fn work_at_once_is_an_error_if_a_thread_is_refused_and_what_has_begun_is_stopped() {
        let together = Barrier::new(3);
        map_at_once(&[(); 3], |()| together.wait().is_leader(), || ()).unwrap();
        let stopped = AtomicBool::new(false);
        let started = AtomicUsize::new(0);
        let second_refused = || match started.fetch_add(1, Ordering::Relaxed) {
            0 => thread::Builder::new(),
            _ => refused(),
        };
        let until_stopped = |_: &u32| {
            while !stopped.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        let result = at_once_on(second_refused, &[1, 2, 3], until_stopped, || stopped.store(true, Ordering::Relaxed));
        assert!(result.is_err() && stopped.load(Ordering::Relaxed));
    }
}
