//! Init: find the newest checkpoint that can be used, move its files to where their ranks now run, rebuild what is
//! missing; else fetch from the prefix directory; else start without a checkpoint (`SCR manual §11.4`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_core::redundancy::inventory::candidates;
use holdfast_core::redundancy::plan::{RestartPlan, UnusableCheckpoint, plan};
use holdfast_model::{CheckpointId, Level, Location, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::rank::{Reply, Restart};

use super::action::HaltWork;
use super::background::Background;
use super::context::Context;
use super::damage::{self, Damage};
use super::deletion::{clear_cache, delete};
use super::eviction::needed;
use super::found::FoundCheckpoint;
use super::halt::spread_halt;
use super::inventories::{Inventories, inventories};
use super::memory::Restarted;
use super::protection::unprotected;
use super::records::note_in_cache;
use super::{blame, direct, fetch, files, flush, prepared, rebuild, rescue, unfinished, window};
use crate::collective::error::{CallError, Result};

/// All ranks join the run.
pub(super) async fn init(cx: &Context) -> Result<Reply> {
    join(cx).await.inspect_err(|error| blame::report(cx, error))
}

async fn join(cx: &Context) -> Result<Reply> {
    let begun = cx.now();
    for message in cx.layout().warnings() {
        cx.emit(AgentEvent::Notice { message });
    }
    let state = files::halt(cx, HaltWork::Begin { seconds: cx.settings().halt_seconds }).await?;
    if let Some(reason) = spread_halt(cx, state).await? {
        cx.emit(AgentEvent::Halting { generation: cx.generation(), reason: reason.clone() });
        return Ok(Reply::Restart(Restart { halt: Some(reason), ..Restart::default() }));
    }
    let found = match prepared::taken(cx).await {
        Some(found) => found?,
        None => {
            unfinished::take_over(cx).await;
            find_below(cx, None).await?
        }
    };
    Ok(restarted(cx, found, begun).await)
}

/// All ranks have read their restart files, or some could not, for this reason.
pub(super) async fn complete_restart(cx: &Context, not_read: Option<String>) -> Result<Reply> {
    end_restart(cx, not_read).await.inspect_err(|error| blame::report(cx, error))
}

async fn end_restart(cx: &Context, not_read: Option<String>) -> Result<Reply> {
    let Some(restart) = cx.memory(|memory| memory.restart.take()) else {
        return Err(CallError::OutOfOrder { call: "complete_restart", before: "a checkpoint to restart from" });
    };
    let Some(reason) = not_read else {
        accept(cx, restart.checkpoint).await?;
        return Ok(Reply::Done);
    };
    let begun = cx.now();
    let from = if restart.fetched.is_some() { Location::ParallelFileSystem } else { Location::Cache };
    cx.attempt_failed(restart.checkpoint, from, reason.clone());
    if let Some(directory) = &restart.fetched {
        fetch::failed(cx, directory, reason).await?;
    }
    delete(cx, restart.checkpoint).await?;
    let found = find_below(cx, Some(restart.checkpoint)).await?;
    Ok(restarted(cx, found, begun).await)
}

/// The ranks continue from this checkpoint of variables. Of the older ones, those of a higher level stay: if this one
/// is lost with a node, they are what is left. What the leader's own node does not hold may have been evicted in part.
pub(super) async fn accept(cx: &Context, checkpoint: CheckpointId) -> Result<()> {
    if cx.dataset(checkpoint).level.is_none() {
        return Ok(());
    }
    let mut older = files::datasets_here(cx, None).await?;
    older.retain(|id| *id < checkpoint && cx.dataset(*id).checkpoint);
    older.push(checkpoint);
    let protected = cx.memory(|memory| memory.protected.clone());
    let needed = needed(&older, |id| match cx.dataset(id).level {
        // Its redundancy is not made yet.
        Some(Level::Partner | Level::Parity) if !protected.contains_key(&id) => Some(Level::Local),
        level => level,
    });
    cx.memory(|memory| memory.cached.extend(&needed));
    clear_cache(cx, needed).await
}

/// Finds the newest usable checkpoint older than `limit`, and brings its files to their ranks.
pub(super) async fn find_below(cx: &Context, limit: Option<CheckpointId>) -> Result<Option<FoundCheckpoint>> {
    let restart = cx.settings().restart;
    let mut held = inventories(cx).await?;
    if rescue::rescue_output(cx, &held).await? {
        held = inventories(cx).await?;
    }
    let mut found = newest_known(cx, limit, &held).await?;
    drop(held);
    if restart.from_prefix
        && let Some(cached) = found.take_if(|found| cx.dataset(found.checkpoint).direct.is_none())
    {
        let directory = flush::directory_of(cx, cached.checkpoint).await?;
        found = Some(direct::instead_of_cache(cx, cached, &directory).await?);
    }
    if found.is_none() {
        clear_cache(cx, BTreeSet::new()).await?;
        if restart.fetch {
            found = fetch::restart(cx, limit).await?;
        }
    }
    Ok(found)
}

/// Records what the run restarts from, if anything.
pub(super) async fn restarted(cx: &Context, found: Option<FoundCheckpoint>, begun: Duration) -> Reply {
    cx.memory(|memory| {
        memory.restart =
            found.as_ref().map(|found| Restarted { checkpoint: found.checkpoint, fetched: found.fetched.clone() });
        memory.complete = found.as_ref().map(|found| found.checkpoint);
        // All others were deleted.
        let in_cache = found.as_ref().filter(|found| memory.dataset(found.checkpoint).direct.is_none());
        let older = found.iter().flat_map(|found| &found.older).map(|(id, survives)| (*id, *survives));
        let in_cache = older.chain(in_cache.map(|found| (found.checkpoint, found.survives)));
        let in_cache: BTreeMap<CheckpointId, Option<u32>> = in_cache.collect();
        memory.cached = in_cache.keys().copied().collect();
        memory.protected = in_cache.into_iter().filter_map(|(id, survives)| Some((id, survives?))).collect();
        memory.last = found.as_ref().map_or(CheckpointId::NONE, |found| found.checkpoint);
    });
    let source = found.as_ref().map_or(RestartSource::Fresh, |found| found.source);
    let (checkpoint, protected) = found.as_ref().map(|found| (found.checkpoint, found.survives.is_some())).unzip();
    let written_by = found.as_ref().and_then(|found| found.written_by);
    let (rebuilt, moved) = found.map(|found| (found.rebuilt, found.moved)).unwrap_or_default();
    let (generation, millis) = (cx.generation(), cx.millis_since(begun));
    cx.emit(AgentEvent::Restarted { generation, checkpoint, protected, source, written_by, rebuilt, moved, millis });
    cx.policy(|policy, now| policy.computing_begins(now));
    unprotected(cx).into_iter().for_each(|id| cx.request(Background::Protect(id)));
    if let Some(checkpoint) = checkpoint {
        window::note_restarted(cx, checkpoint).await;
    }
    if let Some(checkpoint) = checkpoint
        && source != RestartSource::Fetched
        && (cx.settings().flush.on_restart || flush::is_due(cx, checkpoint))
    {
        flush::if_needed(cx, checkpoint).await;
    }
    let level = checkpoint.and_then(|checkpoint| cx.dataset(checkpoint).level);
    Reply::Restart(Restart { checkpoint, source, written_by, directory: None, files: Vec::new(), level, halt: None })
}

/// The newest checkpoint that the nodes hold in cache or have a record of, if it can be used: highest id first, as in
/// `SCR manual §11.4.2`, in cache or, for datasets that bypass the cache, on the prefix directory.
async fn newest_known(
    cx: &Context,
    limit: Option<CheckpointId>,
    held: &Inventories,
) -> Result<Option<FoundCheckpoint>> {
    let restart = cx.settings().restart;
    let mut ids: BTreeSet<CheckpointId> = candidates(held.iter().map(|(_, held)| held)).into_iter().collect();
    ids.extend(cx.memory(|memory| {
        let direct = memory.datasets.iter().filter(|(_, dataset)| dataset.direct.is_some());
        direct.map(|(id, _)| *id).collect::<Vec<_>>()
    }));
    for checkpoint in ids.clone().into_iter().rev().filter(|id| limit.is_none_or(|limit| *id < limit)) {
        let dataset = cx.dataset(checkpoint);
        let found = match &dataset.direct {
            _ if !dataset.checkpoint => None,
            Some(directory) if restart.distribute || restart.fetch => {
                direct::restart(cx, checkpoint, directory).await?
            }
            None if restart.distribute => from_cache(cx, checkpoint, held, true).await?,
            _ => None,
        };
        if let Some(found) = found {
            let (older, newer): (Vec<_>, Vec<_>) =
                ids.into_iter().filter(|id| *id != checkpoint).partition(|id| *id < checkpoint);
            if dataset.level.is_none() {
                let older = stronger(cx, older, found.survives, held).await?;
                clear_cache(cx, older.keys().copied().chain([checkpoint]).collect()).await?;
                return Ok(Some(FoundCheckpoint { older, ..found }));
            }
            // The files of variables have hashes that the ranks verify when they recover: until then the older
            // checkpoints are kept. See `accept`.
            let of_older = older.into_iter().filter_map(|id| Some((id, Some(protected_plan(cx, id, held)?.1))));
            let older = of_older.collect();
            for newer in newer {
                delete(cx, newer).await?;
            }
            return Ok(Some(FoundCheckpoint { older, ..found }));
        }
    }
    Ok(None)
}

/// The plan of a checkpoint in cache that is protected, by what the nodes hold of it, and how many nodes can be lost
/// when it is carried out.
fn protected_plan(cx: &Context, checkpoint: CheckpointId, held: &Inventories) -> Option<(RestartPlan, u32)> {
    let sites = &cx.layout().sites;
    let plan = plan(checkpoint, sites, held).ok().filter(|plan| plan.protected)?;
    let survives = plan.survives(sites);
    cx.dataset(checkpoint).checkpoint.then_some((plan, survives))
}

/// Of the checkpoints older than the one that was found, those that survive more losses than each newer one. Their lost
/// files are rebuilt now: the next loss must not find them with less redundancy than they are kept for.
async fn stronger(
    cx: &Context,
    older: Vec<CheckpointId>,
    found: Option<u32>,
    held: &Inventories,
) -> Result<BTreeMap<CheckpointId, Option<u32>>> {
    let mut most = found;
    let mut stronger = BTreeMap::new();
    for checkpoint in older.into_iter().rev() {
        let Some((plan, survives)) = protected_plan(cx, checkpoint, held) else { continue };
        if Some(survives) <= most {
            continue;
        }
        if plan.is_empty() {
            stronger.insert(checkpoint, Some(survives));
        } else if let Some(rebuilt) = from_cache(cx, checkpoint, held, false).await? {
            stronger.insert(checkpoint, rebuilt.survives);
        } else {
            continue;
        }
        most = Some(survives);
    }
    Ok(stronger)
}

/// Carries out the plan. The checkpoint is recorded before its files move, and before the others are deleted: a drain
/// passes over what no flush file lists, and a run that ends meanwhile would leave it nothing.
async fn brought_to_ranks(
    cx: &Context,
    plan: RestartPlan,
    held: &Inventories,
    restart: bool,
) -> Result<FoundCheckpoint> {
    note_in_cache(cx, plan.checkpoint, held).await?;
    rebuild::carry_out(cx, plan, restart).await
}

/// Brings a checkpoint in cache to where its ranks run now, to `restart` from it or to keep it, or deletes it if too
/// much of it is lost or damaged. What prevents it otherwise, such as a node that cannot write, fails the restart:
/// another one finds the same files.
///
/// Files that turn out to be damaged count as lost, and the checkpoint is planned again without them. Each new plan
/// follows from at least one more damaged file, so that there is an end.
async fn from_cache(
    cx: &Context,
    checkpoint: CheckpointId,
    held: &Inventories,
    restart: bool,
) -> Result<Option<FoundCheckpoint>> {
    let mut held = Cow::Borrowed(held);
    let mut damage = Damage::default();
    let reason = loop {
        let plan = match plan(checkpoint, &cx.layout().sites, &held) {
            Ok(plan) => plan,
            // The checkpoint is as good as it was: another job may have it.
            Err(UnusableCheckpoint::OtherWorldSize { found, world }) => {
                let place = format!("checkpoint {checkpoint} in cache");
                let remedy = "run with as many ranks, or save it with `holdfast drain` first";
                return Err(CallError::OtherSize { place, written: found, running: world, remedy });
            }
            Err(unusable) => break damage.add_to(unusable.to_string()),
        };
        let found = match damage::verify_unread(cx, &plan).await {
            Ok(found) if found.is_empty() => match brought_to_ranks(cx, plan, &held, restart).await {
                Ok(found) => return Ok(Some(found)),
                Err(error) => {
                    let Some(found) = damage::found_by(cx, &error) else {
                        break damage.add_to(blame::reason_of(cx, error)?);
                    };
                    // Other parts of the plan may have been carried out.
                    held = Cow::Owned(inventories(cx).await?);
                    [found].into()
                }
            },
            Ok(found) => found,
            Err(error) => break damage.add_to(blame::reason_of(cx, error)?),
        };
        if let Err(reason) = damage.mark(cx, checkpoint, held.to_mut(), found) {
            break damage.add_to(reason);
        }
    };
    cx.attempt_failed(checkpoint, Location::Cache, reason);
    delete(cx, checkpoint).await?;
    Ok(None)
}
