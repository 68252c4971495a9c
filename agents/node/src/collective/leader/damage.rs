//! Files in cache that do not have the content that was written: their checksum shows it when they are read. Such files
//! count as lost.

use std::collections::BTreeMap;

use holdfast_core::redundancy::plan::RestartPlan;
use holdfast_model::{CheckpointId, FailureKind, NodeName, Protection, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult};

use super::context::Context;
use super::inventories::Inventories;
use crate::collective::error::CallError;

/// The files of a rank on a node, by its position in the plan of the run, and what is wrong with one of them.
pub(super) type DamagedFiles = BTreeMap<(u32, Rank), String>;

/// All damage that was found in a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Damage(DamagedFiles);

impl Damage {
    /// Counts files as lost: their holdings become incomplete, also those of damage that was found before, which new
    /// inventories list as complete.
    ///
    /// # Errors
    /// When none of the files was counted as complete until now: a new plan would be the same.
    pub(super) fn mark(
        &mut self,
        cx: &Context,
        checkpoint: CheckpointId,
        held: &mut Inventories,
        found: DamagedFiles,
    ) -> Result<(), String> {
        let mut is_new = false;
        let reasons = found.values().cloned().collect::<Vec<_>>().join("; ");
        for ((at, rank), fault) in found {
            if self.0.contains_key(&(at, rank)) {
                continue;
            }
            is_new = true;
            let node = cx.plan().nodes.get(at as usize).map_or("?", |node| node.name.as_str());
            let message =
                format!("checkpoint {checkpoint}, node {node}: {fault}: the files of rank {rank} there count as lost");
            cx.emit(AgentEvent::Notice { message });
            self.0.insert((at, rank), fault);
        }
        let mut changed = false;
        for (at, inventory) in held {
            for holding in inventory.holdings.iter_mut().filter(|holding| holding.checkpoint == checkpoint) {
                if let Some(fault) = self.0.get(&(*at, holding.rank)) {
                    changed |= holding.complete;
                    (holding.complete, holding.protection) = (false, Protection::Nothing);
                    holding.fault = Some(fault.clone());
                }
            }
        }
        if is_new && changed { Ok(()) } else { Err(reasons) }
    }

    /// A reason for which the checkpoint cannot be used, with the damage that led to it.
    pub(super) fn add_to(&self, reason: String) -> String {
        let faults: Vec<&str> =
            self.0.values().map(String::as_str).filter(|fault| !reason.contains(fault)).take(NAMED).collect();
        if faults.is_empty() { reason } else { format!("{reason}; {}", faults.join("; ")) }
    }
}

/// How many damaged files a reason names.
const NAMED: usize = 4;

/// Compares the files with their checksums that no step of the plan reads; returns the damaged ones.
pub(super) async fn verify_unread(cx: &Context, plan: &RestartPlan) -> Result<DamagedFiles, CallError> {
    if !cx.settings().crc.on_restart {
        return Ok(DamagedFiles::new());
    }
    let checkpoint = plan.checkpoint;
    let mut ranks: BTreeMap<NodeName, Vec<Rank>> = BTreeMap::new();
    for rank in plan.unread() {
        let site = cx.layout().sites.get(rank.index());
        if let Some(node) = site.and_then(|site| cx.plan().nodes.get(site.node as usize)) {
            ranks.entry(node.name.clone()).or_default().push(rank);
        }
    }
    if ranks.is_empty() {
        return Ok(DamagedFiles::new());
    }
    let orders = ranks.into_iter().map(|(node, ranks)| (node, Order::Verify { checkpoint, ranks }));
    let results = cx.order(orders.collect()).await?;
    let mut found = DamagedFiles::new();
    for (node, result) in results {
        let (Some(at), OrderResult::Verified(damaged)) = (position(cx, &node), result) else { continue };
        found.extend(damaged.into_iter().map(|(rank, fault)| ((at, rank), fault)));
    }
    Ok(found)
}

/// The damaged files that made a step of the plan fail.
pub(super) fn found_by(cx: &Context, error: &CallError) -> Option<((u32, Rank), String)> {
    let CallError::Order(failure) = error else { return None };
    let (node, rank) = (failure.subject.node.as_ref()?, failure.subject.rank?);
    (failure.kind == FailureKind::Damaged).then_some(((position(cx, node)?, rank), failure.message.clone()))
}

fn position(cx: &Context, node: &NodeName) -> Option<u32> {
    let at = cx.plan().nodes.iter().position(|other| other.name == *node)?;
    u32::try_from(at).ok()
}
