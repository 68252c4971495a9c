//! Flushes that did not end: which of them is continued, and what becomes of the others.

use holdfast_core::prefix::unfinished::UnfinishedFlush;
use holdfast_core::store::DirectoryName;
use holdfast_model::CheckpointId;
use holdfast_wire::agent::AgentEvent;

use super::context::Context;
use super::files;

/// A generation begins: takes over the flushes that earlier ones did not end. The flush of the dataset that the run
/// restarts from continues in its directory; [`abandon`] ends the others when their datasets are deleted.
pub(super) async fn take_over(cx: &Context) {
    let found = match files::unfinished_flushes(cx).await {
        Ok(found) => found,
        // The driver has reported it. The drain looks for them again.
        Err(_) => return,
    };
    for UnfinishedFlush { checkpoint, directory } in found {
        match cx.unfinished_flush(checkpoint) {
            Some(known) if known == directory.as_str() => {}
            Some(_) => end(cx, &directory).await,
            None => cx.record_flush(checkpoint, Some(directory.as_str())).await,
        }
    }
}

/// The dataset was deleted from the caches: an unfinished flush of it cannot be continued.
pub(super) async fn abandon(cx: &Context, checkpoint: CheckpointId) {
    if let Some(directory) = cx.unfinished_flush(checkpoint).and_then(|name| DirectoryName::new(name).ok()) {
        end(cx, &directory).await;
    }
    // The id may be given out again, and then means other files.
    cx.record_flush(checkpoint, None).await;
}

async fn end(cx: &Context, directory: &DirectoryName) {
    // The driver reports a failure. The drain tries again.
    if files::abandon_flush(cx, directory).await.is_ok_and(|removed| removed) {
        cx.emit(AgentEvent::Notice { message: format!("the unfinished flush to {directory} was removed") });
    }
}
