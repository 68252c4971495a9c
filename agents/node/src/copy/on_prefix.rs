//! Verification and rebuilds in a checkpoint directory, which the orchestrator distributes over the agents.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::meta::Meta;
use holdfast_core::control::node_path::base_name;
use holdfast_core::output_files;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::rebuild;
use holdfast_core::redundancy::files::SetId;
use holdfast_model::Task;
use holdfast_wire::agent::{RebuildReply, RebuildRequest, VerifyReply, VerifyRequest};
use tokio_util::sync::CancellationToken;

use super::error::{CopyError, CopyFault};
use super::pipeline::{Lane, Pipeline};
use crate::dataset_directory::DatasetDirectory;
use crate::events::{ProgressBoard, total_bytes};
use crate::prefix::JobPrefixes;

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
    prefixes.check(&request.directory)?;
    let opened = DatasetDirectory::to_write(prefixes, &request.directory)?;
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
    let rebuilt = rebuild::run(opened.path(), &set, &mut progress).map_err(|source| CopyError::Rebuild {
        directory: directory.clone(),
        set: set.clone(),
        problem: opened.explain(&source.to_string()),
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
    prefixes.check(&request.directory)?;
    let opened = DatasetDirectory::to_read(prefixes, &request.directory)?;
    let results = Pipeline::new(BUFFER_BYTES, request.threads, cancelled).each(&request.files, |lane, name| {
        let fault = verify_file(lane, opened.path(), name).err()?;
        Some((name.clone(), opened.explain(&fault.to_string())))
    });
    Ok(VerifyReply { damaged: results.into_iter().flatten().collect() })
}

fn verify_file(lane: &mut Lane<'_>, directory: &Path, name: &str) -> Result<(), CopyFault> {
    base_name(name)?;
    let inside = directory.join(name);
    let meta = Meta::read(&inside)?;
    let path = output_files::path(directory, name, meta.output_path.as_ref());
    let path = path.map_err(|source| CopyFault::Read { path: inside, source })?;
    let unreadable = |source| CopyFault::Read { path: path.clone(), source };
    // A link could leave the directory.
    if !fs::symlink_metadata(&path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
    }
    lane.verify(&path, RecordedContent::from(&meta))
}
