//! The drain on one node: copy what it holds to the parallel file system, rebuild and verify there
//! (`SCR manual §11.10.3`, `FORMATS.md` §13).
//!
//! Unlike the original, one bad file holds back nothing but itself: every other file of its rank and node is copied, and
//! the rank's filemap says how many there should have been, so that the rank is rebuilt. What is there already and
//! verified is not copied again: a drain that was killed goes on where it was.
//!
//! * `file`: one file, its checksum, its meta files;
//! * [`on_prefix`]: rebuild and verify.

mod file;
pub mod on_prefix;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_core::durable::{self, DurableError};
use holdfast_core::prefix::PrefixError;
use holdfast_core::prefix::dataset;
use holdfast_core::prefix::rank_filemap::{Origin, RankFilemap};
use holdfast_wire::agent::{CopyReply, CopyRequest};
use holdfast_wire::run::RehearsalPoint;
use holdfast_wire::{NodeName, Rank};
use parking_lot::Mutex;

use crate::agent::Agent;
use crate::events::ProgressBoard;
use crate::store::Store;
use crate::store::examine::{Examined, examine};

/// Files that one node copies at a time: enough to keep a parallel file system's servers busy while one file is
/// synchronised, few enough for thousands of nodes to do it together.
const THREADS: usize = 4;

/// Why nothing at all could be copied, rebuilt or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Not a directory that a drain may write to.
    #[error("{} is not an absolute path without `..`: a checkpoint directory must be", .0.display())]
    Directory(PathBuf),
    /// The directory could not be made.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The dataset's name could not be recorded there.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A rebuild.
    #[error("member {missing} of set {group_id} in {} was not rebuilt: {source}", directory.display())]
    Rebuild {
        /// The checkpoint directory.
        directory: PathBuf,
        /// The set.
        group_id: u32,
        /// The lost member.
        missing: u32,
        /// Why.
        source: holdfast_core::redundancy::RedundancyError,
    },
}

/// Copies this node's files of a checkpoint. Blocks for as long as it takes.
///
/// # Errors
/// When the directory cannot be used. What goes wrong with a rank stands in the reply.
pub fn copy(agent: &Agent, request: &CopyRequest) -> Result<CopyReply, CopyError> {
    let midway = || crate::rehearsal::point(agent, RehearsalPoint::Copy, request.checkpoint);
    copy_from(&agent.store, &agent.progress, request, &midway)
}

/// One rank on its way.
struct Order {
    rank: Rank,
    found: Examined,
    expected: u32,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    remaining: usize,
    bytes: u64,
    fault: Option<String>,
    /// Positions in `found.files`.
    copied: BTreeSet<usize>,
}

/// As [`copy`], from a store; `midway` is called when the first file has been copied.
fn copy_from(
    store: &Store,
    board: &Arc<ProgressBoard>,
    request: &CopyRequest,
    midway: &(dyn Fn() + Sync),
) -> Result<CopyReply, CopyError> {
    check_directory(&request.directory)?;
    let mut reply = CopyReply::default();
    let orders = orders(store, request, &mut reply.partners);
    if orders.is_empty() {
        return Ok(reply);
    }
    durable::create_directory(&request.directory, 0o700)?;
    if let Some(dataset) = store.descriptions.read().get(&request.checkpoint) {
        dataset::write(dataset, &request.directory)?;
    }
    let total = orders.iter().flat_map(|order| &order.found.files).map(|file| file.size).sum();
    let working = board.begin(holdfast_model::Task::Copy, request.checkpoint, total);
    let units: Vec<(&Order, usize)> =
        orders.iter().flat_map(|order| (0..order.found.files.len()).map(move |file| (order, file))).collect();
    let next = AtomicUsize::new(0);
    let first = std::sync::Once::new();
    let work = || {
        let mut buffer = vec![0; request.buffer_bytes.clamp(4 << 10, 64 << 20)];
        while let Some((order, at)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let source = &order.found.files[*at];
            let result = file::copy(source, request, order.rank, &mut buffer, &|bytes| working.advance(bytes));
            if result.is_ok() {
                first.call_once(midway);
            }
            finish_file(order, *at, result, request);
        }
    };
    let threads =
        THREADS.min(units.len()).min(std::thread::available_parallelism().map_or(1, NonZeroUsize::get).max(2));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    for order in &orders {
        if order.found.files.is_empty() {
            write_filemap(order, &mut order.progress.lock(), request);
        }
        let progress = std::mem::take(&mut *order.progress.lock());
        match progress.fault {
            None => reply.copied.insert(order.rank, progress.bytes).map(|_| ()),
            Some(fault) => reply.failed.insert(order.rank, fault).map(|_| ()),
        };
    }
    Ok(reply)
}

/// What this node is to copy; fills in whose partner copies it holds.
fn orders(store: &Store, request: &CopyRequest, partners: &mut BTreeMap<Rank, NodeName>) -> Vec<Order> {
    let (on_disk, bases) = store.on_disk();
    let mut by_rank: BTreeMap<Rank, Order> = BTreeMap::new();
    for (_, map) in &on_disk.slots {
        for rank in map.ranks(request.checkpoint) {
            let expected = map.expected(request.checkpoint, rank);
            if expected.is_none() && map.files(request.checkpoint, rank).next().is_none() {
                // A neighbour's descriptor.
                continue;
            }
            let wanted = match map.partner(request.checkpoint, rank) {
                Some(owner) => {
                    let wanted = request.on_behalf_of.contains(&owner);
                    partners.insert(rank, owner);
                    wanted
                }
                None => !request.partners_only,
            };
            if !wanted {
                continue;
            }
            let found = examine(map, request.checkpoint, rank, store.paths(), &bases);
            let better = by_rank.get(&rank).is_none_or(|other| found.complete && !other.found.complete);
            if better {
                let progress =
                    Progress { remaining: found.files.len(), fault: found.fault.clone(), ..Progress::default() };
                // Not finished: there should be at least one more, so that nobody takes it for complete.
                let listed = u32::try_from(found.files.len()).unwrap_or(u32::MAX);
                let expected = expected.unwrap_or(listed.saturating_add(1));
                by_rank.insert(rank, Order { rank, found, expected, progress: Mutex::new(progress) });
            }
        }
    }
    by_rank.into_values().collect()
}

/// Notes how one file went; after the last one of a rank, writes its filemap.
fn finish_file(order: &Order, at: usize, result: Result<u64, String>, request: &CopyRequest) {
    let mut progress = order.progress.lock();
    match result {
        Ok(bytes) => {
            progress.bytes += bytes;
            progress.copied.insert(at);
        }
        Err(fault) => {
            tracing::warn!(rank = %order.rank, checkpoint = %request.checkpoint, fault, "file_not_copied");
            progress.fault.get_or_insert(fault);
        }
    }
    progress.remaining -= 1;
    if progress.remaining == 0 {
        write_filemap(order, &mut progress, request);
    }
}

fn write_filemap(order: &Order, progress: &mut Progress, request: &CopyRequest) {
    let filemap = RankFilemap {
        rank: order.rank,
        id: request.checkpoint,
        files: progress.copied.iter().map(|at| order.found.files[*at].name.clone()).collect(),
        expected: order.expected,
    };
    let known = RankFilemap::path_in(&request.directory, order.rank);
    if RankFilemap::read(&known).is_ok_and(|known| known == filemap) {
        return;
    }
    if let Err(error) = filemap.write(&request.directory, Origin::Copy) {
        progress.fault.get_or_insert(error.to_string());
    }
}

/// A drain writes where it is told to, but only to a path that means what it says.
fn check_directory(directory: &Path) -> Result<(), CopyError> {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if directory.is_absolute() && directory.components().all(plain) {
        Ok(())
    } else {
        Err(CopyError::Directory(directory.to_owned()))
    }
}

#[cfg(test)]
mod tests;
