//! A restart that begins while the ranks of a new generation are started: the files that a loss has cost are rebuilt
//! meanwhile, and init need not wait for all of it.

use super::context::Context;
use super::found::{FoundCheckpoint, Prepared};
use super::halt::halt_condition;
use super::{restart, unfinished};
use crate::collective::error::CallError;

/// Finds the checkpoint to restart from, and rebuilds what is missing. [`taken`] returns the result. Ranks that are to
/// be halted at once need no files.
pub(super) async fn prepare(cx: Context) {
    let prepared = match halt_condition(&cx).await {
        Ok(None) => {
            unfinished::take_over(&cx).await;
            Prepared::Ended(restart::find_below(&cx, None).await)
        }
        // An error is met again by init.
        Ok(Some(_)) | Err(_) => Prepared::None,
    };
    cx.with(|state| state.prepared = prepared);
}

/// Waits for the restart that is being prepared, and returns its result; `None` if none was.
pub(super) async fn taken(cx: &Context) -> Option<Result<Option<FoundCheckpoint>, CallError>> {
    cx.wait_until(|state| match std::mem::take(&mut state.prepared) {
        Prepared::None => Some(None),
        Prepared::Ended(found) => Some(Some(found)),
        Prepared::UnderWay => {
            state.prepared = Prepared::UnderWay;
            None
        }
    })
    .await
}
