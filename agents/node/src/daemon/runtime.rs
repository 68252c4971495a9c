//! A runtime that a limit of processes cannot make panic.
//!
//! tokio panics when the system refuses the first thread for blocking work. While there is one, work for which no
//! other thread can be started waits for it.

use std::io;
use std::time::Duration;

use holdfast_core::workers;
use tokio::runtime::{Builder, Runtime};

/// A thread without blocking work ends after this time.
const KEPT: Duration = Duration::from_mins(1);
/// There is work for one thread at least this often.
const USED_EVERY: Duration = Duration::from_secs(20);

/// Starts a runtime, with a thread for blocking work. Ends the process where the system refuses the threads.
///
/// # Errors
/// The system refuses something else.
pub fn start(builder: &mut Builder) -> io::Result<Runtime> {
    workers::start_or_exit(|| {
        let runtime = builder.thread_keep_alive(KEPT).build()?;
        drop(runtime.spawn_blocking(|| ()));
        runtime.spawn(async {
            loop {
                tokio::time::sleep(USED_EVERY).await;
                let _ = tokio::task::spawn_blocking(|| ()).await;
            }
        });
        Ok(runtime)
    })
}
