//! The window of the job on the prefix directory (`checkpoint.flush.keep`): after a checkpoint was flushed, it is read
//! there and compared with what was written; then the older ones are deleted that the window leaves out
//! ([`holdfast_core::prefix::window`]). Beside the collectives: the ranks wait for neither.

use std::collections::BTreeMap;

use holdfast_core::prefix::Summary;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Failure, NodeName, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{DatasetFile, Order, OrderResult};

use super::background::Background;
use super::context::Context;
use super::summary::dataset_file;
use super::{files, flush};
use crate::collective::error::CallError;

/// A dataset is complete on the prefix directory.
pub(super) fn request(cx: &Context, checkpoint: CheckpointId) {
    if cx.settings().flush.keep > 0 && cx.dataset(checkpoint).checkpoint {
        cx.request(Background::KeepWindow(checkpoint));
    }
}

/// The end of the run waits until the window is kept.
pub(super) async fn kept(cx: &Context) {
    cx.ended(|name| matches!(name, Background::KeepWindow(_))).await;
}

/// The run restarts from a checkpoint: its copy on the prefix directory stays. A failure must not prevent the restart.
pub(super) async fn note_restarted(cx: &Context, checkpoint: CheckpointId) {
    if cx.settings().flush.keep == 0 {
        return;
    }
    if let Err(error) = files::mark_restarted(cx, checkpoint).await {
        let reason = Failure::from(error);
        let message =
            format!("checkpoint {checkpoint}, from which the run restarts, is not marked in the prefix: {reason}");
        cx.emit(AgentEvent::Notice { message });
    }
}

/// Verifies a dataset, and deletes what the window then leaves out. Without a verified dataset nothing is deleted.
pub(super) async fn keep(cx: Context, checkpoint: CheckpointId) {
    if let Err(error) = try_keep(&cx, checkpoint).await {
        let reason = Failure::from(error);
        let message = format!(
            "checkpoint {checkpoint} was not verified in the prefix directory: {reason}; older ones stay there until \
             the next flush"
        );
        cx.emit(AgentEvent::Notice { message });
    }
}

async fn try_keep(cx: &Context, checkpoint: CheckpointId) -> Result<(), CallError> {
    let Some((directory, summary)) = files::unverified(cx, checkpoint).await? else { return Ok(()) };
    let damaged = cx.order(verifications(cx, checkpoint, &directory, &summary)).await?;
    let mut damaged = damaged.into_values().filter_map(|result| match result {
        OrderResult::Verified(damaged) => damaged.into_iter().next(),
        _ => None,
    });
    if let Some((rank, fault)) = damaged.next() {
        let (directory, reason) = (directory.to_string(), format!("a file of rank {rank}: {fault}"));
        cx.emit(AgentEvent::FlushDamaged { checkpoint, directory, reason });
        return Ok(());
    }
    let keep = cx.settings().flush.keep;
    for LeftOut { id, directory, failure } in files::keep_window(cx, directory).await? {
        let (checkpoint, directory) = (id, directory.to_string());
        cx.emit(match failure {
            None => AgentEvent::PrefixDeleted { checkpoint, directory, keep },
            Some(reason) => AgentEvent::PrefixNotDeleted { checkpoint, directory, reason },
        });
    }
    Ok(())
}

/// What each node reads: the files of the ranks of the next node. What a node wrote itself, it would read from its own
/// memory.
fn verifications(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
    summary: &Summary,
) -> BTreeMap<NodeName, Order> {
    let path = cx.settings().prefix.join(directory.as_str());
    let files_of = cx.ranks().map(|rank| {
        let files: Vec<DatasetFile> = summary.to_fetch(rank).map(dataset_file).collect();
        (rank, (rank, files))
    });
    let by_node: Vec<(NodeName, BTreeMap<Rank, Vec<DatasetFile>>)> =
        cx.layout().by_node(files_of).into_iter().map(|(node, files)| (node, files.into_iter().collect())).collect();
    let readers = by_node.iter().map(|(node, _)| node.clone()).cycle().skip(1).take(by_node.len());
    let readers: Vec<NodeName> = readers.collect();
    let limits = flush::limits(cx, readers.len());
    let order = |files| Order::VerifyStored { checkpoint, directory: path.clone(), files, limits };
    readers.into_iter().zip(by_node).map(|(reader, (_, files))| (reader, order(files))).collect()
}
