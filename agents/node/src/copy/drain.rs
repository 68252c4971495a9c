//! The drain on one node: copies what it holds of a checkpoint to the parallel file system (`SCR manual §11.10.3`,
//! `docs/scr-files.md` §13). The filemap of a rank lists what was copied and how many files there should have been, so
//! that a rank that lost one is rebuilt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Once};

use holdfast_core::control::meta::Meta;
use holdfast_core::prefix::dataset;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_core::store::{DatasetAccess, OpenDataset};
use holdfast_formats::sion::dataset::PlacedFiles;
use holdfast_model::{CheckpointId, NodeName, PackedRank, Rank, RankPlace, Task};
use holdfast_wire::agent::{CopyReply, CopyRequest};
use holdfast_wire::run::FaultPoint;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::cached::CachedFile;
use super::cut_off::CutOffCopies;
use super::error::{CopyError, CopyFault};
use super::pipeline::{Lane, Pipeline};
use crate::agent::Agent;
use crate::prefix::job_prefixes::JobPrefixes;
use crate::report::events::{ProgressBoard, ProgressGuard, total_bytes};
use crate::store::examine::{Examined, ExaminedFile, examine};
use crate::store::{Store, StoreError};

/// Copies this node's files of a checkpoint. Blocks for as long as it takes.
///
/// # Errors
/// When the directory cannot be used. Failures of single ranks are in the reply.
pub fn copy(agent: &Agent, request: &CopyRequest, cancelled: CancellationToken) -> Result<CopyReply, CopyError> {
    let midway = || crate::agent::fault_injection::reach(agent, FaultPoint::Copy, request.checkpoint);
    copy_from(&agent.store, &agent.progress, &agent.prefixes, request, cancelled, &midway)
}

/// Copies the files of a checkpoint below `prefix` for a job whose agent does not run on this node. Blocks.
pub fn copy_alone(store: &Store, prefix: &Path, request: &CopyRequest) -> Result<CopyReply, CopyError> {
    let prefixes = JobPrefixes::new(vec![prefix.to_owned()]);
    copy_from(store, &Arc::default(), &prefixes, request, CancellationToken::new(), &|| {})
}

/// The copy of one rank's files.
struct RankCopy {
    checkpoint: CheckpointId,
    rank: Rank,
    found: Examined,
    expected: u32,
    progress: Mutex<RankProgress>,
}

#[derive(Default)]
struct RankProgress {
    remaining: usize,
    bytes: u64,
    fault: Option<String>,
    /// A file could not be written.
    unwritable: bool,
    /// Positions in `found.files` of the files that were copied.
    copied: BTreeSet<usize>,
}

impl RankProgress {
    fn record(&mut self, rank: Rank, at: usize, result: Result<u64, CopyFault>, request: &CopyRequest) {
        match result {
            Ok(bytes) => {
                self.bytes += bytes;
                self.copied.insert(at);
            }
            Err(fault) => {
                self.unwritable |= fault.prevents_writing();
                let fault = fault.to_string();
                tracing::warn!(%rank, checkpoint = %request.checkpoint, fault, "file_not_copied");
                self.fault.get_or_insert(fault);
            }
        }
    }
}

/// As [`copy`], from a store; `midway` is called when the first file has been copied.
pub(super) fn copy_from(
    store: &Store,
    board: &Arc<ProgressBoard>,
    prefixes: &JobPrefixes,
    request: &CopyRequest,
    cancelled: CancellationToken,
    midway: &(dyn Fn() + Sync),
) -> Result<CopyReply, CopyError> {
    prefixes.check(&request.directory)?;
    let mut reply = CopyReply::default();
    let copies = ranks_to_copy(store, request, &mut reply.partners)?;
    if copies.is_empty() {
        return Ok(reply);
    }
    let to = &*prefixes.open(&request.directory, DatasetAccess::Create)?;
    // Also of an earlier agent of this node that was killed during its copy.
    let cut_off = CutOffCopies::in_dataset(to);
    if let Some(dataset) = store.descriptions.read()?.get(&request.checkpoint) {
        dataset::write(dataset, &store.paths.job_id, to)?;
    }
    let total = total_bytes(copies.iter().flat_map(|copy| &copy.found.files).map(|file| file.size));
    let working = board.begin(Task::Copy, request.checkpoint, total);
    let container = request.container.as_ref();
    // A node that cannot open the container leaves plain files: only what was packed is entered in the container.
    let placed = container.and_then(|places| match PlacedFiles::open(to, places) {
        Ok(placed) => Some(placed),
        Err(error) => {
            tracing::warn!(%error, checkpoint = %request.checkpoint, "plain_files_kept");
            None
        }
    });
    let place = |rank: Rank| container.and_then(|places| places.ranks.get(&rank).copied()).zip(placed.as_ref());
    let units: Vec<CopyUnit<'_>> = copies.iter().flat_map(|copy| CopyUnit::of(copy, place(copy.rank))).collect();
    let first = Once::new();
    let copied = |result: &Result<u64, CopyFault>| {
        if result.is_ok() {
            first.call_once(midway);
        }
    };
    let packed =
        Pipeline::new(request.buffer_bytes, request.threads, cancelled).each(&units, |lane, unit| match unit {
            CopyUnit::File(copy, at) => {
                let result = copy_file(&copy.found.files[*at], copy.rank, request, (to, &cut_off), lane, &working);
                copied(&result);
                finish_file(copy, *at, result, request, to);
                None
            }
            CopyUnit::Rank(copy, stream) => {
                Some((copy.rank, pack_rank(copy, stream, request, lane, &working, &copied)))
            }
        });
    reply.packed = packed.into_iter().flatten().collect();
    cut_off.remove_rest(to, &store.paths);
    if let Some(placed) = &placed
        && let Err(error) = placed.synchronise()
    {
        // Nothing that was written there may be used.
        for copy in copies.iter().filter(|copy| reply.packed.contains_key(&copy.rank)) {
            let mut progress = copy.progress.lock();
            progress.unwritable = true;
            progress.fault.get_or_insert(error.to_string());
        }
        reply.packed.clear();
    }
    for copy in &copies {
        if copy.found.files.is_empty() && place(copy.rank).is_none() {
            write_filemap(copy, &mut copy.progress.lock(), to);
        }
        let progress = std::mem::take(&mut *copy.progress.lock());
        if progress.unwritable {
            reply.unwritable.insert(copy.rank);
        }
        match progress.fault {
            None => reply.copied.insert(copy.rank, progress.bytes).map(|_| ()),
            Some(fault) => reply.failed.insert(copy.rank, fault).map(|_| ()),
        };
    }
    Ok(reply)
}

/// What this node is to copy; adds to `partners` the nodes of which it has partner copies.
fn ranks_to_copy(
    store: &Store,
    request: &CopyRequest,
    partners: &mut BTreeMap<Rank, NodeName>,
) -> Result<Vec<RankCopy>, StoreError> {
    let (on_disk, bases) = store.on_disk()?;
    let mut by_rank: BTreeMap<Rank, RankCopy> = BTreeMap::new();
    for (_, map) in &on_disk.slots {
        for rank in map.ranks(request.checkpoint) {
            let expected = map.expected(request.checkpoint, rank);
            if expected.is_none() && map.files(request.checkpoint, rank).next().is_none() {
                // A neighbour's descriptor.
                continue;
            }
            let requested = match map.partner(request.checkpoint, rank) {
                Some(owner) => {
                    let requested = request.on_behalf_of.contains(&owner);
                    partners.insert(rank, owner);
                    requested
                }
                None => !request.partners_only,
            };
            if !requested {
                continue;
            }
            let found = examine(map, request.checkpoint, rank, &store.paths, &bases);
            let found = found.map_err(StoreError::Unexamined)?;
            let better = by_rank.get(&rank).is_none_or(|other| found.complete && !other.found.complete);
            if better {
                let progress = RankProgress {
                    remaining: found.files.len(),
                    fault: found.fault.clone(),
                    ..RankProgress::default()
                };
                // Not finished: at least one more is expected, so that it does not count as complete.
                let listed = u32::try_from(found.files.len()).unwrap_or(u32::MAX);
                // Fewer are expected while redundancy is made.
                let expected = if found.complete { listed } else { expected.unwrap_or(listed.saturating_add(1)) };
                by_rank.insert(
                    rank,
                    RankCopy { checkpoint: request.checkpoint, rank, found, expected, progress: Mutex::new(progress) },
                );
            }
        }
    }
    Ok(by_rank.into_values().collect())
}

/// What one thread copies at a time.
enum CopyUnit<'a> {
    /// A file, by its position.
    File(&'a RankCopy, usize),
    /// All files of a rank, into its stream of a container.
    Rank(&'a RankCopy, StreamPlace<'a>),
}

/// The place of a rank's stream in the physical files of a container.
#[derive(Clone, Copy)]
struct StreamPlace<'a> {
    place: RankPlace,
    files: &'a PlacedFiles,
}

impl<'a> CopyUnit<'a> {
    fn of(copy: &'a RankCopy, place: Option<(RankPlace, &'a PlacedFiles)>) -> Vec<CopyUnit<'a>> {
        match place {
            Some((place, files)) => vec![CopyUnit::Rank(copy, StreamPlace { place, files })],
            None => (0..copy.found.files.len()).map(|file| CopyUnit::File(copy, file)).collect(),
        }
    }
}

/// Copies all files of a rank and its filemap into its stream. `copied` is called with each result.
fn pack_rank(
    copy: &RankCopy,
    stream: &StreamPlace<'_>,
    request: &CopyRequest,
    lane: &mut Lane<'_>,
    working: &ProgressGuard,
    copied: &dyn Fn(&Result<u64, CopyFault>),
) -> PackedRank {
    let mut progress = copy.progress.lock();
    let Some(mut writer) = stream.files.writer(stream.place) else {
        progress.fault.get_or_insert("the container has no room for the rank".to_owned());
        return PackedRank::default();
    };
    for (at, source) in copy.found.files.iter().enumerate() {
        let result = meta_of(source, copy.rank, request).and_then(|meta| {
            let cached = CachedFile { path: &source.path, meta: &meta };
            cached.pack_into(&mut writer, request.crc, lane, working).map(|_| meta.size)
        });
        copied(&result);
        progress.record(copy.rank, at, result, request);
    }
    let filemap = filemap_of(copy, &progress);
    let name = RankFilemap::name_of(copy.rank);
    let written = filemap.encode(&request.directory, FilemapWriter::Copy).map_err(|error| error.to_string());
    let written = written.and_then(|bytes| writer.add(&name, &bytes).map_err(|error| error.to_string()));
    if let Err(fault) = written {
        progress.unwritable = true;
        progress.fault.get_or_insert(fault);
    }
    writer.end()
}

fn meta_of(source: &ExaminedFile, rank: Rank, request: &CopyRequest) -> Result<Meta, CopyFault> {
    match &source.meta {
        Some(meta) => Ok(meta.clone()),
        None => Ok(Meta::of_usable(&source.path, request.checkpoint, rank, None)?),
    }
}

/// Copies one file; returns its size.
fn copy_file(
    source: &ExaminedFile,
    rank: Rank,
    request: &CopyRequest,
    to: (&dyn OpenDataset, &CutOffCopies),
    lane: &mut Lane<'_>,
    working: &ProgressGuard,
) -> Result<u64, CopyFault> {
    let meta = meta_of(source, rank, request)?;
    CachedFile { path: &source.path, meta: &meta }.copy_to(to, request.crc, lane, working)?;
    Ok(meta.size)
}

/// Records the result of one file; after the last one of a rank, writes its filemap.
fn finish_file(
    copy: &RankCopy,
    at: usize,
    result: Result<u64, CopyFault>,
    request: &CopyRequest,
    to: &dyn OpenDataset,
) {
    let mut progress = copy.progress.lock();
    progress.record(copy.rank, at, result, request);
    progress.remaining -= 1;
    if progress.remaining == 0 {
        write_filemap(copy, &mut progress, to);
    }
}

fn filemap_of(copy: &RankCopy, progress: &RankProgress) -> RankFilemap {
    RankFilemap {
        rank: copy.rank,
        id: copy.checkpoint,
        files: progress.copied.iter().map(|at| copy.found.files[*at].name.clone()).collect(),
        expected: copy.expected,
    }
}

fn write_filemap(copy: &RankCopy, progress: &mut RankProgress, to: &dyn OpenDataset) {
    let filemap = filemap_of(copy, progress);
    if RankFilemap::read(to, &RankFilemap::name_of(copy.rank)).is_ok_and(|known| known == filemap) {
        return;
    }
    if let Err(error) = filemap.write(to, FilemapWriter::Copy) {
        progress.unwritable |= error.prevents_writing();
        progress.fault.get_or_insert(error.to_string());
    }
}
