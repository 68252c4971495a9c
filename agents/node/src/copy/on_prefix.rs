//! Verification and rebuilds in a checkpoint directory, which the orchestrator distributes over the agents.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::node_path::base_name;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::redundancy::directory;
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::dataset_files::read_meta;
use holdfast_core::store::{DatasetAccess, DatasetFiles, OpenDataset};
use holdfast_formats::sion::dataset;
use holdfast_model::Task;
use holdfast_wire::agent::{RebuildReply, RebuildRequest, VerifyReply, VerifyRequest};
use tokio_util::sync::CancellationToken;

use super::error::{CopyError, CopyFault};
use super::pipeline::{Lane, Pipeline};
use crate::prefix::job_prefixes::JobPrefixes;
use crate::report::events::{ProgressBoard, total_bytes};

/// Read size: large enough for few calls to a parallel file system, small enough for a processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// Computes the lost members of a set. Survivors are verified while they are read; nothing is replaced unless all of
/// them are intact.
///
/// # Errors
/// When the set cannot be rebuilt, with the file that prevents it.
pub fn rebuild(
    prefixes: &JobPrefixes,
    board: &Arc<ProgressBoard>,
    request: &RebuildRequest,
) -> Result<RebuildReply, CopyError> {
    let opened = prefixes.open(&request.directory, DatasetAccess::Write)?;
    let RebuildRequest { directory, checkpoint, scheme, group_id, members, missing, ranks } = request;
    let set = SetRebuild {
        set: SetId { scheme: *scheme, group_id: *group_id, members: *members },
        missing: missing.clone(),
        ranks: ranks.clone(),
    };
    let mut shown = None;
    let mut progress = |done: u64, total: u64| {
        let (working, before) = shown.get_or_insert_with(|| (board.begin(Task::Rebuild, *checkpoint, total), 0));
        working.advance(done.saturating_sub(*before));
        *before = done;
        ControlFlow::Continue(())
    };
    let files = open_files(opened)?;
    let rebuilt =
        directory::rebuild(&files, set.set, &set.missing, &mut progress).map_err(|source| CopyError::Rebuild {
            directory: directory.clone(),
            set: set.clone(),
            problem: source.to_string(),
            unwritable: source.prevents_writing(),
        })?;
    let files = rebuilt.iter().flat_map(|member| member.files.iter().chain(&member.redundancy));
    Ok(RebuildReply {
        ranks: rebuilt.iter().map(|member| member.rank).collect(),
        bytes: total_bytes(files.clone().map(|meta| meta.size)),
        files: files.map(|meta| meta.file.clone()).collect(),
    })
}

/// Checks files against the size and checksum in their meta files.
///
/// # Errors
/// When the directory must not be used. Failures of single files are in the reply.
pub fn verify(
    prefixes: &JobPrefixes,
    request: &VerifyRequest,
    cancelled: CancellationToken,
) -> Result<VerifyReply, CopyError> {
    let files = open_files(prefixes.open(&request.directory, DatasetAccess::Read)?)?;
    let results = Pipeline::new(BUFFER_BYTES, request.threads, cancelled).each(&request.files, |lane, name| {
        let fault = verify_file(lane, &*files, name).err()?;
        Some((name.clone(), fault.to_string()))
    });
    Ok(VerifyReply { damaged: results.into_iter().flatten().collect() })
}

fn open_files(opened: Arc<dyn OpenDataset>) -> Result<Arc<dyn DatasetFiles>, CopyError> {
    let directory = opened.location().to_owned();
    dataset::open(opened).map_err(|source| CopyError::Unlisted { directory, source })
}

fn verify_file(lane: &mut Lane<'_>, files: &dyn DatasetFiles, name: &str) -> Result<(), CopyFault> {
    base_name(name)?;
    let path = files.path_of(name);
    let meta = read_meta(files, name)?;
    let stored = files.open(name, meta.output_path.as_ref());
    let stored = stored.map_err(|source| CopyFault::Read { path: path.clone(), source })?;
    lane.verify_stored(&*stored, &path, RecordedContent::from(&meta))
}
