//! Scan, summary and index of a checkpoint directory with the files of many ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::kvtree::file as hash_file;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_model::{CheckpointId, Rank};

use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const NAME: &str = "scr.2026-01-01_00:00:00.77.1";

pub fn run(extent: Extent) -> Result<()> {
    title(&format!("Scan, summary and index of {} ranks, one file each", extent.ranks));
    let prefix = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let directory = prefix.path().join(NAME);
    fs::create_dir(&directory)?;
    for rank in 0..extent.ranks {
        write_rank(&directory, Rank(rank), extent.ranks)?;
    }
    let mut index = Samples::default();
    for _ in 0..extent.tries {
        let begun = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["index", "add", "--rescan", "--current", "--prefix"])
            .arg(prefix.path())
            .arg(NAME)
            .stdout(Stdio::null())
            .status()?;
        index.add(begun.elapsed().as_secs_f64());
        if !status.success() {
            return Err(format!("holdfast index ended with {status}").into());
        }
    }
    index.show_seconds("holdfast index add, checksums verified", None);
    below("index", index.median(), 1.0, "s");
    Ok(())
}

/// The files of a drained rank: file, meta file, filemap.
fn write_rank(directory: &Path, rank: Rank, ranks: u32) -> Result<()> {
    let name = format!("rank_{rank}.ckpt");
    let content = format!("the state of rank {rank}");
    let meta = Meta {
        file: name.clone(),
        kind: FileKind::Full,
        size: content.len() as u64,
        checkpoint: CheckpointId(1),
        rank,
        ranks,
        complete: true,
        crc: Some(crc32fast::hash(content.as_bytes())),
        output_path: None,
    };
    let path = directory.join(&name);
    fs::write(&path, content)?;
    // Not synchronised, unlike in the real writers: 20,000 syncs would take minutes.
    fs::write(Meta::path_for(&path), hash_file::encode(&meta.to_tree()))?;
    let filemap = RankFilemap { rank, id: CheckpointId(1), files: vec![name], expected: 1 };
    fs::write(directory.join(RankFilemap::name_of(rank)), hash_file::encode(&filemap.to_tree(FilemapWriter::Copy)))?;
    Ok(())
}
