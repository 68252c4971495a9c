//! Making the files of a dataset complete, and protecting them: two steps, which a restart, a fetch and a checkpoint
//! share.

use std::collections::BTreeMap;

use holdfast_model::{CheckpointId, CrcOnCopy, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult, SealCrc, SealedFiles};

use super::context::Context;
use super::layout::Protection;
use super::rounds;
use crate::collective::error::CallError;
use crate::collective::writers;

/// Meta files: from now on the files of all ranks are complete. Returns the bytes of each rank's files.
pub(super) async fn seal(
    cx: &Context,
    checkpoint: CheckpointId,
    crc: SealCrc,
) -> Result<BTreeMap<Rank, u64>, CallError> {
    let seal = Order::Seal { checkpoint, ranks: cx.layout().ranks(), crc };
    let sealed = cx.order(cx.nodes_with_ranks(&seal)).await?;
    let sealed = sealed.into_values().filter_map(|result| match result {
        OrderResult::Sealed(ranks) => Some(ranks),
        _ => None,
    });
    let sealed: BTreeMap<Rank, SealedFiles> = sealed.flatten().collect();
    writers::one_of_each_name(&sealed)?;
    Ok(sealed.into_iter().map(|(rank, files)| (rank, files.bytes)).collect())
}

/// The redundancy of sealed files, if the scheme makes any.
pub(super) async fn encode(
    cx: &Context,
    checkpoint: CheckpointId,
    protection: &Protection,
    bytes: &BTreeMap<Rank, u64>,
) -> Result<(), CallError> {
    let work = cx.layout().work(&protection.groups, bytes);
    if work.is_empty() {
        return Ok(());
    }
    cx.emit(AgentEvent::EncodeStarted { generation: cx.generation(), checkpoint });
    let crc = cx.settings().crc.on_copy != CrcOnCopy::Never;
    for round in rounds::encode(checkpoint, &work, None, crc, cx.settings().redundancy_width) {
        cx.order(round).await?;
    }
    Ok(())
}
