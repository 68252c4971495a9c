//! The nodes of a job are released, or stay for another run.

use std::sync::Arc;

use super::reporter::Reporter;
use crate::allocation::Allocation;
use crate::events::LogEvent;

/// Releases the nodes, on a thread because the resource manager may take long. A failure is logged and shown: the user
/// has to release what is left.
pub(super) async fn release(allocation: Arc<dyn Allocation>, reporter: &mut Reporter) {
    let failure = match tokio::task::spawn_blocking(move || allocation.release()).await {
        Ok(released) => released.err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(reason) = failure {
        reporter.emit(LogEvent::ReleaseFailed { reason });
    }
}

/// The nodes stay, for another run or a drain.
pub(super) fn keep(allocation: &dyn Allocation) {
    if let Err(error) = allocation.keep() {
        tracing::warn!("the caches stay until they are removed by hand or by `holdfast drain`: {error}");
    }
}
