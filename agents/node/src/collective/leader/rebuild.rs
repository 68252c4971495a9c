//! The restart plan of a checkpoint in cache, carried out: deletions, moves, rebuilds, copies, in this order, and
//! surplus copies deleted at last.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::redundancy::groups::Group;
use holdfast_core::redundancy::plan::{Deletion, RestartPlan};
use holdfast_model::{CheckpointId, CrcOnCopy, NodeName, Rank, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{GroupRebuild, GroupWork, Member, Order, RankTransfer};

use super::context::Context;
use super::restart::FoundCheckpoint;
use crate::collective::CallError;

/// Carries out the plan; afterwards every rank has its files where it runs.
pub(super) async fn carry_out(cx: &Context, plan: RestartPlan) -> Result<FoundCheckpoint, CallError> {
    let checkpoint = plan.checkpoint;
    discard(cx, checkpoint, &plan.deletions).await?;
    if !plan.moves.is_empty() {
        cx.order(transfers(cx, &plan)).await?;
    }
    let adopt = cx.layout().members(&plan.descriptors).into_iter();
    cx.order(adopt.map(|(node, members)| (node, Order::Adopt { checkpoint, members })).collect()).await?;
    let rebuilt: Vec<Rank> = plan.rebuilds.iter().flat_map(|group| group.ranks.iter().copied()).collect();
    if !plan.rebuilds.is_empty() {
        let (generation, ranks) = (cx.generation(), rebuilt.clone());
        cx.emit(AgentEvent::RebuildStarted { generation, checkpoint, ranks });
        cx.order(rebuilds(cx, &plan)).await?;
    }
    if !plan.recopy.is_empty() {
        cx.order(copies(cx, &plan)).await?;
    }
    discard(cx, checkpoint, &plan.surplus).await?;
    let moved: Vec<Rank> = plan.moves.iter().map(|step| step.rank).collect();
    let untouched = rebuilt.is_empty() && moved.is_empty();
    Ok(FoundCheckpoint {
        checkpoint,
        source: if untouched { RestartSource::Cache } else { RestartSource::Rebuilt },
        rebuilt,
        moved,
        fetched: None,
    })
}

fn node(cx: &Context, at: u32) -> Option<&NodeName> {
    cx.plan().nodes.get(at as usize).map(|node| &node.name)
}

async fn discard(cx: &Context, checkpoint: CheckpointId, deletions: &[Deletion]) -> Result<(), CallError> {
    let mut discards: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
    for deletion in deletions {
        discards.entry(deletion.node).or_default().push(deletion.rank);
    }
    let discards = discards.into_iter().filter_map(|(at, ranks)| Some((node(cx, at)?.clone(), ranks)));
    let orders: BTreeMap<_, _> = discards.map(|(node, ranks)| (node, Order::Discard { checkpoint, ranks })).collect();
    if !orders.is_empty() {
        cx.order(orders).await?;
    }
    Ok(())
}

fn transfers(cx: &Context, plan: &RestartPlan) -> BTreeMap<NodeName, Order> {
    let checkpoint = plan.checkpoint;
    let mut nodes: BTreeMap<u32, (Vec<RankTransfer>, Vec<Member>)> = BTreeMap::new();
    for step in &plan.moves {
        let (Some(_), Some(to)) = (node(cx, step.from_node), node(cx, step.to_node)) else { continue };
        let Some(descriptor) = plan.descriptors.get(step.rank.index()) else { continue };
        let outgoing = RankTransfer { rank: step.rank, to: to.clone() };
        nodes.entry(step.from_node).or_default().0.push(outgoing);
        let member = Member { rank: step.rank, descriptor: descriptor.clone() };
        nodes.entry(step.to_node).or_default().1.push(member);
    }
    let nodes = nodes.into_iter().filter_map(|(at, steps)| Some((node(cx, at)?.clone(), steps)));
    nodes.map(|(node, (outgoing, incoming))| (node, Order::Transfer { checkpoint, outgoing, incoming })).collect()
}

fn rebuilds(cx: &Context, plan: &RestartPlan) -> BTreeMap<NodeName, Order> {
    let checkpoint = plan.checkpoint;
    let missing: BTreeMap<u32, &[u32]> =
        plan.rebuilds.iter().map(|rebuild| (rebuild.group_id, rebuild.missing.as_slice())).collect();
    let work = cx.layout().work_of(&plan.groups, |group| missing.contains_key(&group.id), &BTreeMap::new());
    let orders = work.into_iter().map(|(node, groups)| {
        let groups = groups.into_iter().filter_map(|group| {
            let (own, _) = group.members.get(group.member as usize)?;
            let descriptor = plan.descriptors.get(own.index())?.clone();
            let missing = missing.get(&group.group_id)?.to_vec();
            Some(GroupRebuild { group, missing, descriptor })
        });
        (node, Order::Rebuild { checkpoint, groups: groups.collect() })
    });
    orders.collect()
}

/// The neighbours' copies that are missing.
fn copies(cx: &Context, plan: &RestartPlan) -> BTreeMap<NodeName, Order> {
    let checkpoint = plan.checkpoint;
    let copied: BTreeSet<Rank> = plan.recopy.iter().map(|copy| copy.rank).collect();
    let some = |group: &Group| group.members.iter().any(|rank| copied.contains(rank));
    let work = cx.layout().work_of(&plan.groups, some, &BTreeMap::new());
    let orders = work.into_iter().filter_map(|(node, mut groups)| {
        // Only the copies of a node's own groups, and only nodes that take part in one: a list of all copies for every
        // node would grow with the square of the run.
        let copied_in = |group: &GroupWork| -> Vec<Rank> {
            group.members.iter().map(|(rank, _)| *rank).filter(|rank| copied.contains(rank)).collect()
        };
        groups.retain(|group| !copied_in(group).is_empty());
        let only: BTreeSet<Rank> = groups.iter().flat_map(copied_in).collect();
        let only = (!only.is_empty()).then(|| only.into_iter().collect())?;
        let crc = cx.settings().crc.on_copy != CrcOnCopy::Never;
        Some((node, Order::Encode { checkpoint, groups, crc, only: Some(only) }))
    });
    orders.collect()
}
