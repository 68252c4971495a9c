//! Work on a checkpoint directory of the parallel file system that the orchestrator spreads over the agents.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_core::control::meta::Meta;
use holdfast_core::control::node_path::base_name;
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::redundancy::xor::directory::{RebuildOptions, rebuild_member};
use holdfast_core::redundancy::xor::file::XorFile;
use holdfast_core::redundancy::xor::name::XorName;
use holdfast_wire::agent::{RebuildReply, RebuildRequest, VerifyReply, VerifyRequest};
use parking_lot::Mutex;

use super::{CopyError, THREADS, check_directory};
use crate::events::ProgressBoard;

/// Rebuilds one member of a set. Survivors are verified while they are read; nothing is replaced unless all is well.
///
/// # Errors
/// When the set cannot be rebuilt, with the file that prevents it.
pub fn rebuild(board: &Arc<ProgressBoard>, request: &RebuildRequest) -> Result<RebuildReply, CopyError> {
    check_directory(&request.directory)?;
    let RebuildRequest { directory, group_id, members, missing } = request;
    let working = survivor(request).map(|xor| {
        let header = xor.header();
        board.begin(holdfast_model::Task::Rebuild, header.checkpoint, header.chunk.saturating_mul(u64::from(*members)))
    });
    let mut before = 0;
    let mut progress = |done: u64| {
        if let Some(working) = &working {
            working.advance(done.saturating_sub(before));
            before = done;
        }
        ControlFlow::Continue(())
    };
    let options = RebuildOptions::default();
    let rebuilt =
        rebuild_member(directory, *group_id, *members, *missing, &options, &mut progress).map_err(|source| {
            CopyError::Rebuild { directory: directory.clone(), group_id: *group_id, missing: *missing, source }
        })?;
    let files = rebuilt.files.iter().chain([&rebuilt.xor]);
    Ok(RebuildReply {
        rank: rebuilt.rank,
        bytes: files.clone().map(|meta| meta.size).sum(),
        files: files.map(|meta| meta.file.clone()).collect(),
    })
}

/// Any survivor tells how much there is to do.
fn survivor(request: &RebuildRequest) -> Option<XorFile> {
    let RebuildRequest { directory, group_id, members, missing } = request;
    let index = u32::from(*missing == 0);
    let name = XorName { group_id: *group_id, members: *members, index }.to_string();
    XorFile::open(directory, &name).ok()
}

/// Checks files against the size and checksum in their meta files.
///
/// # Errors
/// When the directory is none that may be used. What is wrong with a file stands in the reply.
pub fn verify(request: &VerifyRequest) -> Result<VerifyReply, CopyError> {
    check_directory(&request.directory)?;
    let damaged = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(name) = request.files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(fault) = verify_file(&request.directory, name) {
                damaged.lock().insert(name.clone(), fault);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(request.files.len()) {
            scope.spawn(work);
        }
        work();
    });
    Ok(VerifyReply { damaged: damaged.into_inner() })
}

fn verify_file(directory: &Path, name: &str) -> Result<(), String> {
    base_name(name).map_err(|error| error.to_string())?;
    let path = directory.join(name);
    // Before it is opened: a pipe would keep us for ever.
    match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err("it is not a regular file".to_owned()),
        Err(error) => return Err(format!("it cannot be read: {error}")),
    }
    let meta = Meta::read(&path).map_err(|error| error.to_string())?;
    let Meta { rank, size, crc, .. } = meta;
    match crc {
        Some(crc) => {
            let unit = VerifyUnit { rank, name: name.to_owned(), size, crc };
            unit.check(directory, &|_| {}).map_err(|damage| damage.to_string())
        }
        None => {
            let found = fs::metadata(&path).map_err(|error| error.to_string())?.len();
            if found == size { Ok(()) } else { Err(format!("it has {found} bytes where its meta file says {size}")) }
        }
    }
}
