//! The copy of a checkpoint from memory-backed cache to disk with checksums, against `cp` of the same files; and the
//! index with the rebuild of one rank whose files are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_model::CheckpointId;
use holdfast_wire::agent::CopyRequest;

use crate::agents::{Cluster, drain_prefix};
use crate::figures::{Samples, at_least, below, title};
use crate::{Extent, Result};

const NODES: usize = 4;
const LOST: usize = 1;
/// SCR v1.1-8 on such a machine, seconds.
const ORIGINAL_COPY: f64 = 1.34;
const ORIGINAL_INDEX: f64 = 0.86;

pub fn run(extent: Extent) -> Result<()> {
    title(&format!("Drain of {NODES} × {} MiB and the redundancy files to disk, with CRC32", extent.bytes >> 20));
    let mut cluster = Cluster::start(NODES)?;
    cluster.launch(extent)?;
    let (mut copy, mut copy_cpu) = (Samples::default(), Samples::default());
    let (mut plain, mut synced, mut index) = (Samples::default(), Samples::default(), Samples::default());
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut bytes = 0;
    for checkpoint in 1..=extent.tries as u64 {
        // Each try has its own checkpoint: the first copy of a checkpoint leaves its checksums in cache.
        cluster.all("write")?;
        cluster.all("complete")?;
        let files = files_of(&cluster, checkpoint)?;
        bytes = files.iter().map(|file| Ok(fs::metadata(file)?.len())).sum::<Result<u64>>()?;
        let directory = tempfile::tempdir_in(&target)?;
        settle()?;
        plain.add(cp(&files, directory.path(), false)?);
        drop(directory);
        let directory = tempfile::tempdir_in(&target)?;
        settle()?;
        synced.add(cp(&files, directory.path(), true)?);
        drop(directory);

        let prefix = drain_prefix();
        if prefix.exists() {
            fs::remove_dir_all(&prefix)?;
        }
        fs::create_dir(&prefix)?;
        let name = format!("scr.2026-01-01_00:00:00.77.{checkpoint}");
        let directory = prefix.join(&name);
        settle()?;
        let before = cluster.processor_seconds()?;
        let begun = Instant::now();
        drain(&cluster, checkpoint, &directory, true)?;
        copy.add(begun.elapsed().as_secs_f64());
        copy_cpu.add(cluster.processor_seconds()? - before);

        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let lost = [format!("rank_{LOST}.ckpt"), format!("{}_of_{NODES}_in_", LOST + 1), format!("{LOST}.scrfile")];
            if lost.iter().any(|start| file.starts_with(start)) {
                fs::remove_file(&path)?;
            }
        }
        settle()?;
        let begun = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["index", "add", "--current", "--prefix"])
            .arg(&prefix)
            .arg(&name)
            .stdout(Stdio::null())
            .status()?;
        index.add(begun.elapsed().as_secs_f64());
        if !status.success() {
            return Err(format!("holdfast index ended with {status}").into());
        }
        fs::remove_dir_all(&prefix)?;
    }
    plain.show_seconds("cp", Some(bytes));
    synced.show_seconds("cp, and sync: the bytes are on disk", Some(bytes));
    copy.show_seconds("drain: agents' copy with CRC32, on disk", Some(bytes));
    copy_cpu.show_seconds("  processor time of the agents", None);
    index.show_seconds("index with rebuild of one rank, all verified", None);
    at_least("drain / cp", plain.median() / copy.median(), 0.9);
    at_least("drain / cp and sync", synced.median() / copy.median(), 0.9);
    if extent.bytes == crate::FULL.bytes {
        below("drain, beside the original's 1.34 s (no sync)", copy.median(), ORIGINAL_COPY, "s");
        below("index, beside the original's 0.86 s", index.median(), ORIGINAL_INDEX, "s");
    }
    Ok(())
}

/// Data of earlier tries that is not on disk yet must not slow this one down.
pub fn settle() -> Result<()> {
    let status = Command::new("sync").status()?;
    if status.success() { Ok(()) } else { Err("sync failed".into()) }
}

fn files_of(cluster: &Cluster, checkpoint: u64) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for rank in 0..NODES {
        for entry in fs::read_dir(cluster.cache(rank, checkpoint))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "scr") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn cp(files: &[PathBuf], directory: &Path, sync: bool) -> Result<f64> {
    let begun = Instant::now();
    let mut status = Command::new("cp").args(files).arg(directory).status()?;
    if sync && status.success() {
        status = Command::new("sync").arg("-f").arg(directory).status()?;
    }
    if status.success() { Ok(begun.elapsed().as_secs_f64()) } else { Err("cp failed".into()) }
}

/// Round 1: all agents copy their files at the same time.
pub fn drain(cluster: &Cluster, checkpoint: u64, directory: &Path, crc: bool) -> Result<()> {
    let request = CopyRequest {
        checkpoint: CheckpointId(checkpoint),
        directory: directory.to_owned(),
        crc,
        on_behalf_of: Vec::new(),
        partners_only: false,
        buffer_bytes: 1 << 20,
        threads: None,
        container: None,
    };
    cluster.runtime.block_on(async {
        let mut copies = tokio::task::JoinSet::new();
        for agent in cluster.agents() {
            let (client, request, address) = (cluster.client.clone(), request.clone(), agent.address);
            copies.spawn(async move { client.copy(address, &request, Duration::from_secs(120)).await });
        }
        while let Some(reply) = copies.join_next().await {
            let reply = reply??;
            if reply.copied.len() != 1 || !reply.failed.is_empty() {
                return Err(format!("an agent did not copy its rank: {reply:?}").into());
            }
        }
        Ok(())
    })
}
