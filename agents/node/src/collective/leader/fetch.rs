//! Reading a checkpoint back from the prefix directory (`SCR manual §11.4.7`).

use std::collections::BTreeSet;

use holdfast_core::redundancy::registry::is_unprotected;
use holdfast_core::store::{DirectoryName, PrefixError};
use holdfast_model::{CheckpointId, CrcOnCopy, Failure, Location, Locations};
use holdfast_wire::peer::{FetchRank, Order, SealCrc};

use super::action::FetchStage;
use super::blame::{Blame, blame};
use super::context::Context;
use super::deletion::delete;
use super::found::{FoundCheckpoint, fetched};
use super::protection::{encode, seal};
use super::records::{describe, note};
use super::summary::dataset_file;
use super::waves::Waves;
use super::{direct, files};
use crate::collective::error::CallError;

/// The fetch loop: the current link first, then the index, until one works. An error that is not
/// the fault of the dataset ends it: every other dataset would fail in the same way.
pub(super) async fn restart(cx: &Context, limit: Option<CheckpointId>) -> Result<Option<FoundCheckpoint>, CallError> {
    let mut tried: BTreeSet<DirectoryName> =
        cx.settings().ignored.iter().flat_map(|name| DirectoryName::given(name)).collect();
    while let Some((id, directory)) = next_candidate(cx, limit, &tried).await? {
        match fetch(cx, &directory).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => match blame(cx, &error) {
                Blame::Dataset => {
                    let reason = format!("{directory}: {}", Failure::from(error));
                    cx.attempt_failed(id, Location::ParallelFileSystem, reason.clone());
                    mark(cx, &directory, FetchStage::Failed { reason }).await?;
                    delete(cx, id).await?;
                }
                Blame::Node(_) => {
                    // What was copied would take the place of what is copied next. If it stays, the next fetch
                    // continues.
                    let _ = delete(cx, id).await;
                    return Err(error);
                }
                Blame::Job | Blame::Prefix | Blame::Nothing => return Err(error),
            },
        }
        tried.insert(directory);
    }
    Ok(None)
}

/// What to try next. The index is read again each time: a failed attempt removes the current link, and with it the
/// limit that it sets.
async fn next_candidate(
    cx: &Context,
    limit: Option<CheckpointId>,
    tried: &BTreeSet<DirectoryName>,
) -> Result<Option<(CheckpointId, DirectoryName)>, CallError> {
    let candidates = files::candidates(cx).await.map_err(|error| CallError::PrefixUnusable(error.into()))?;
    for candidate in candidates {
        let newer = limit.zip(candidate.id).is_some_and(|(limit, id)| id >= limit);
        if newer || tried.contains(&candidate.directory) {
            continue;
        }
        // A record that cannot be read does not mean that the files are damaged.
        let dataset = files::read_dataset(cx, &candidate.directory).await.ok().flatten();
        if dataset.is_none_or(|dataset| dataset.checkpoint) {
            return Ok(Some((candidate.id.unwrap_or(CheckpointId::NONE), candidate.directory)));
        }
    }
    Ok(None)
}

async fn fetch(cx: &Context, directory: &DirectoryName) -> Result<FoundCheckpoint, CallError> {
    let summary = files::read_summary(cx, directory).await?;
    let others = direct::written_by(cx, directory, &summary)?.is_some();
    mark(cx, directory, FetchStage::Begun).await?;
    summary.accept(summary.ranks)?;
    let checkpoint = summary.id;
    let dataset = files::read_dataset(cx, directory).await?;
    // Where ranks cannot read the files, they are fetched: a program that needs those of other ranks reports it.
    let reads_there = others || cx.settings().restart.from_prefix && !files::is_packed(cx, directory).await?;
    if reads_there || dataset.as_ref().is_some_and(|dataset| dataset.direct.is_some()) {
        return direct::read_described(cx, directory, &summary, dataset.unwrap_or_default()).await;
    }
    if let Some(dataset) = dataset {
        describe(cx, checkpoint, dataset).await?;
    }
    let protection = cx.layout().protection_of(checkpoint, &cx.dataset(checkpoint))?;
    let path = cx.settings().prefix.join(directory.as_str());
    let members = cx.layout().members(&protection.descriptors());
    let waves = Waves::of(cx.settings().restart.fetch_width, members.len());
    let orders = members.into_iter().map(|(node, members)| {
        let ranks = members.into_iter().map(|member| {
            let files = summary.to_fetch(member.rank).map(dataset_file).collect();
            FetchRank { member, files }
        });
        let ranks = ranks.collect();
        let (total_ranks, width) = (summary.ranks, waves.files_on_a_node);
        (node, Order::Fetch { checkpoint, directory: path.clone(), ranks, total_ranks, width })
    });
    cx.order_in_waves(orders.collect(), waves).await?;
    let crc = match cx.settings().crc.on_copy {
        CrcOnCopy::Never => SealCrc::None,
        CrcOnCopy::WithRedundancy | CrcOnCopy::Always => SealCrc::Keep,
    };
    let bytes = seal(cx, checkpoint, crc).await?;
    encode(cx, checkpoint, protection, &bytes).await?;
    cx.order(cx.nodes_with_ranks(&Order::Commit { checkpoint })).await?;
    note(cx, checkpoint, Locations { cache: true, pfs: true, flushing: false }).await?;
    mark(cx, directory, FetchStage::Succeeded).await?;
    let survives = (!is_unprotected(protection.scheme())).then_some(protection.survives);
    Ok(fetched(checkpoint, directory, survives))
}

/// Marks this directory as failed in the index, with the reason.
pub(super) async fn failed(cx: &Context, directory: &str, reason: String) -> Result<(), CallError> {
    mark(cx, &DirectoryName::given(directory).map_err(PrefixError::from)?, FetchStage::Failed { reason }).await
}

/// Records how far a fetch came. An index that cannot be written is no damage of the dataset.
async fn mark(cx: &Context, directory: &DirectoryName, stage: FetchStage) -> Result<(), CallError> {
    files::mark_fetch(cx, directory, stage).await.map_err(|error| CallError::PrefixUnusable(error.into()))
}
