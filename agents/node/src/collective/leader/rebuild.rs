//! The restart plan of a checkpoint in cache, carried out: deletions, moves, rebuilds, copies, in this order, and
//! surplus copies deleted at last.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::redundancy::groups::Group;
use holdfast_core::redundancy::plan::{Deletion, RestartPlan};
use holdfast_model::{CheckpointId, CrcOnCopy, NodeName, Rank, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{GroupRebuild, GroupWork, Member, Order, RankTransfer};

use super::context::Context;
use super::found::FoundCheckpoint;
use super::rounds;
use crate::collective::error::CallError;

/// Carries out the plan; afterwards every rank has its files where it runs, and reads them if it is to `restart` from
/// them.
pub(super) async fn carry_out(cx: &Context, plan: RestartPlan, restart: bool) -> Result<FoundCheckpoint, CallError> {
    let checkpoint = plan.checkpoint;
    let survives = plan.protected.then(|| plan.survives(&cx.layout().sites));
    discard(cx, checkpoint, &plan.deletions).await?;
    if !plan.moves.is_empty() {
        in_rounds(cx, transfers(cx, &plan)).await?;
    }
    let adopt = cx.layout().members(&plan.descriptors).into_iter();
    cx.order(adopt.map(|(node, members)| (node, Order::Adopt { checkpoint, members, restart })).collect()).await?;
    let rebuilt: Vec<Rank> = plan.rebuilds.iter().flat_map(|group| group.ranks.iter().copied()).collect();
    if !plan.rebuilds.is_empty() {
        let (generation, ranks) = (cx.generation(), rebuilt.clone());
        cx.emit(AgentEvent::RebuildStarted { generation, checkpoint, ranks });
        in_rounds(cx, rebuilds(cx, &plan)).await?;
    }
    if !plan.recopy.is_empty() {
        in_rounds(cx, copies(cx, &plan)).await?;
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
        survives,
        older: BTreeMap::new(),
        written_by: None,
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

type Rounds = Vec<BTreeMap<NodeName, Order>>;

async fn in_rounds(cx: &Context, rounds: Rounds) -> Result<(), CallError> {
    for round in rounds {
        cx.order(round).await?;
    }
    Ok(())
}

fn transfers(cx: &Context, plan: &RestartPlan) -> Rounds {
    #[derive(Clone)]
    enum End {
        Outgoing(RankTransfer),
        Incoming(Member),
    }
    let checkpoint = plan.checkpoint;
    let mut ends: BTreeMap<NodeName, Vec<End>> = BTreeMap::new();
    for step in &plan.moves {
        let (Some(from), Some(to)) = (node(cx, step.from_node), node(cx, step.to_node)) else { continue };
        let Some(descriptor) = plan.descriptors.get(step.rank.index()) else { continue };
        let outgoing = RankTransfer { rank: step.rank, to: to.clone() };
        ends.entry(from.clone()).or_default().push(End::Outgoing(outgoing));
        let incoming = Member { rank: step.rank, descriptor: descriptor.clone() };
        ends.entry(to.clone()).or_default().push(End::Incoming(incoming));
    }
    let rank = |end: &End| match end {
        End::Outgoing(transfer) => transfer.rank,
        End::Incoming(member) => member.rank,
    };
    let order = |ends: Vec<End>| {
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        for end in ends {
            match end {
                End::Outgoing(transfer) => outgoing.push(transfer),
                End::Incoming(member) => incoming.push(member),
            }
        }
        Order::Transfer { checkpoint, outgoing, incoming }
    };
    let rounds = rounds::split(&ends, rank, cx.settings().redundancy_width).into_iter();
    rounds.map(|round| round.into_iter().map(|(node, ends)| (node, order(ends))).collect()).collect()
}

fn rebuilds(cx: &Context, plan: &RestartPlan) -> Rounds {
    let checkpoint = plan.checkpoint;
    let missing: BTreeMap<u32, &[u32]> =
        plan.rebuilds.iter().map(|rebuild| (rebuild.group_id, rebuild.missing.as_slice())).collect();
    let work = cx.layout().work_of(&plan.groups, |group| missing.contains_key(&group.id), &BTreeMap::new());
    let rounds = rounds::split(&work, |group| Rank(group.group_id), cx.settings().redundancy_width).into_iter();
    let order = |groups: Vec<GroupWork>| {
        let groups = groups.into_iter().filter_map(|group| {
            let (own, _) = group.members.get(group.member as usize)?;
            let descriptor = plan.descriptors.get(own.index())?.clone();
            let missing = missing.get(&group.group_id)?.to_vec();
            Some(GroupRebuild { group, missing, descriptor })
        });
        Order::Rebuild { checkpoint, groups: groups.collect() }
    };
    rounds.map(|round| round.into_iter().map(|(node, groups)| (node, order(groups))).collect()).collect()
}

/// The neighbours' copies that are missing.
fn copies(cx: &Context, plan: &RestartPlan) -> Rounds {
    let copied: BTreeSet<Rank> = plan.recopy.iter().map(|copy| copy.rank).collect();
    let some = |group: &Group| group.members.iter().any(|rank| copied.contains(rank));
    let work = cx.layout().work_of(&plan.groups, some, &BTreeMap::new());
    let crc = cx.settings().crc.on_copy != CrcOnCopy::Never;
    rounds::encode(plan.checkpoint, &work, Some(&copied), crc, cx.settings().redundancy_width)
}
