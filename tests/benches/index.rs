//! Scan, summary and index of a checkpoint directory with the files of many ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_core::control::meta::Meta;
use holdfast_core::kvtree::file as hash_file;
use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
use holdfast_model::{CheckpointId, Rank};

use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const NAME: &str = "scr.2026-01-01_00:00:00.77.1";
/// Aims for a prefix directory of many checkpoints, seconds: to list them, and to add one.
const LIST: f64 = 0.05;
const ADD: f64 = 1.0;

pub fn run(extent: Extent) -> Result<()> {
    of_many_ranks(extent)?;
    of_many_checkpoints(extent)
}

fn of_many_ranks(extent: Extent) -> Result<()> {
    title(&format!("Scan, summary and index of {} ranks, one file each", extent.ranks));
    let prefix = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let directory = prefix.path().join(NAME);
    fs::create_dir(&directory)?;
    for rank in 0..extent.ranks {
        write_rank(&directory, Rank(rank), extent.ranks)?;
    }
    let mut index = Samples::default();
    for _ in 0..extent.tries {
        index.add(holdfast(prefix.path(), &["add", "--rescan", "--current", NAME])?);
    }
    index.show_seconds("holdfast index add, checksums verified", None);
    below("index", index.median(), 1.0, "s");
    Ok(())
}

/// The same checkpoint of many jobs, whose files are links to those of the first.
fn of_many_checkpoints(extent: Extent) -> Result<()> {
    let (checkpoints, ranks) = extent.listed;
    title(&format!("A prefix directory of {checkpoints} checkpoints of {ranks} ranks"));
    let prefix = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let name = |checkpoint: u32| format!("scr.2026-01-01_00:00:00.{checkpoint}.1");
    let first = prefix.path().join(name(0));
    fs::create_dir(&first)?;
    for rank in 0..ranks {
        write_rank(&first, Rank(rank), ranks)?;
    }
    let files: Vec<PathBuf> = fs::read_dir(&first)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    for checkpoint in 1..checkpoints {
        let directory = prefix.path().join(name(checkpoint));
        fs::create_dir(&directory)?;
        for file in &files {
            fs::hard_link(file, directory.join(file.file_name().unwrap_or_default()))?;
        }
    }
    let mut added = Vec::new();
    for checkpoint in 0..checkpoints {
        added.push(holdfast(prefix.path(), &["add", &name(checkpoint)])?);
    }
    let (mut add, mut list) = (Samples::default(), Samples::default());
    for seconds in added.into_iter().rev().take(extent.tries) {
        add.add(seconds);
        list.add(holdfast(prefix.path(), &["list"])?);
    }
    add.show_seconds("holdfast index add of the last ones", None);
    list.show_seconds("holdfast index list", None);
    below("index add", add.median(), ADD, "s");
    below("index list", list.median(), LIST, "s");
    Ok(())
}

/// `holdfast index`; returns the seconds that it took.
fn holdfast(prefix: &Path, arguments: &[&str]) -> Result<f64> {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("index").args(arguments).arg("--prefix").arg(prefix).stdout(Stdio::null());
    let status = command.status()?;
    let seconds = begun.elapsed().as_secs_f64();
    if status.success() { Ok(seconds) } else { Err(format!("holdfast index ended with {status}").into()) }
}

/// The files of a drained rank: file, meta file, filemap.
fn write_rank(directory: &Path, rank: Rank, ranks: u32) -> Result<()> {
    let name = format!("rank_{rank}.ckpt");
    let content = format!("the state of rank {rank}");
    let crc = Some(crc32fast::hash(content.as_bytes()));
    let meta = Meta { crc, ..Meta::of_application(&name, content.len() as u64, CheckpointId(1), rank, ranks) };
    let path = directory.join(&name);
    fs::write(&path, content)?;
    // Not synchronised, unlike in the real writers: 20,000 syncs would take minutes.
    fs::write(Meta::path_for(&path), hash_file::encode(&meta.to_tree()))?;
    let filemap = RankFilemap { rank, id: CheckpointId(1), files: vec![name], expected: 1 };
    fs::write(directory.join(RankFilemap::name_of(rank)), hash_file::encode(&filemap.to_tree(FilemapWriter::Copy)))?;
    Ok(())
}
