//! Drain and fetch of many ranks, as plain files and in a container: the time, and the operations on names of files in
//! the prefix directory, which a parallel file system carries out on its metadata servers.
//!
//! The operations are counted with `strace`, in a run of their own; without it only the times are shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::store::PosixDataset;
use holdfast_formats::sion::dataset::{DatasetCreation, stream_bytes};
use holdfast_model::{CheckpointId, ContainerPlaces, NodeName, PackedRank, Rank};
use holdfast_wire::agent::CopyRequest;

use crate::agents::{Cluster, JOB, Medium, drain_prefix};
use crate::figures::{Samples, at_least, once, title};
use crate::{Extent, Result};

const NODES: usize = 16;
/// Processes that run the ranks.
const PROCESSES: usize = 2;
/// Physical files of the container.
const FILES: u32 = 16;
const CHECKPOINT: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Packed,
}

/// The figures of one kind.
#[derive(Default)]
struct Figures {
    drain: Samples,
    index: Samples,
    init: Samples,
    drain_operations: Option<usize>,
    fetch_operations: Option<usize>,
}

pub fn run(extent: Extent) -> Result<()> {
    let (ranks, bytes) = extent.packed;
    title(&format!("Drain and fetch of {ranks} ranks × {} KiB on {NODES} nodes, on disk", bytes >> 10));
    let kinds = [Kind::Plain, Kind::Packed];
    let mut figures = [Figures::default(), Figures::default()];
    let mut disk = Samples::default();
    let total = ranks as u64 * bytes;
    for _ in 0..extent.tries {
        disk.add(write_to_disk(total)?);
        for (kind, figures) in kinds.into_iter().zip(&mut figures) {
            cycle(kind, extent, figures, false)?;
        }
    }
    let traced = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if traced {
        for (kind, figures) in kinds.into_iter().zip(&mut figures) {
            cycle(kind, extent, figures, true)?;
        }
    }
    disk.show_seconds("one file of all bytes, written and synchronised", Some(total));
    for (kind, figures) in kinds.iter().zip(&figures) {
        println!("  {kind:?}");
        figures.drain.show_seconds("drain: agents' copy with CRC32, on disk", Some(total));
        figures.index.show_seconds("scan, verification and index", None);
        figures.init.show_seconds("init that fetches it, and makes redundancy", Some(total));
        for (what, operations) in [
            ("drain: operations on names", figures.drain_operations),
            ("fetch: operations on names", figures.fetch_operations),
        ] {
            if let Some(operations) = operations {
                once(what, f64::from(u32::try_from(operations)?), "", "");
            }
        }
    }
    let [plain, packed] = &figures;
    at_least("drain, disk / packed", disk.median() / packed.drain.median(), 1.0);
    at_least("drain, plain / packed", plain.drain.median() / packed.drain.median(), 1.0);
    for (what, plain, packed) in [
        ("drain: operations, plain / packed", plain.drain_operations, packed.drain_operations),
        ("fetch: operations, plain / packed", plain.fetch_operations, packed.fetch_operations),
    ] {
        if let (Some(plain), Some(packed)) = (plain, packed) {
            at_least(what, plain as f64 / packed as f64, 10.0);
        }
    }
    Ok(())
}

/// One checkpoint, its drain, and the restart from it.
fn cycle(kind: Kind, extent: Extent, figures: &mut Figures, traced: bool) -> Result<()> {
    let (ranks, bytes) = extent.packed;
    let prefix = drain_prefix();
    let _ = fs::remove_dir_all(&prefix);
    fs::create_dir_all(&prefix)?;
    let mut cluster = Cluster::start_on(Medium::Memory, NODES, ranks)?;
    cluster.prefix.clone_from(&prefix);
    cluster.launch_threads(PROCESSES)?;
    cluster.all("start")?;
    cluster.all("route 1")?;
    cluster.all(&format!("write {bytes}"))?;
    cluster.all("complete")?;
    cluster.end_ranks()?;
    let name = format!("scr.2026-01-01_00:00:00.{JOB}.{CHECKPOINT}");
    let directory = prefix.join(&name);
    fs::create_dir(&directory)?;
    crate::drain::settle()?;

    let trace = traced.then(|| Trace::begin(&cluster, Some(std::process::id()))).transpose()?;
    let begun = Instant::now();
    drain(&cluster, kind, ranks, bytes, &directory)?;
    let seconds = begun.elapsed().as_secs_f64();
    figures.drain_operations = trace.map(Trace::end).transpose()?.or(figures.drain_operations);
    let begun = Instant::now();
    let mut index = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    index.args(["index", "add", "--current", "--prefix"]).arg(&prefix).arg(&name).stdout(Stdio::null());
    if !index.status()?.success() {
        return Err("holdfast index failed".into());
    }
    let indexed = begun.elapsed().as_secs_f64();

    cluster.replace_nodes()?;
    crate::drain::settle()?;
    // The ranks only ask their agents. This process would pass their thousands of threads to strace.
    let trace = traced.then(|| Trace::begin(&cluster, None)).transpose()?;
    let init = cluster.launch_threads(PROCESSES)?;
    figures.fetch_operations = trace.map(Trace::end).transpose()?.or(figures.fetch_operations);
    if !traced {
        figures.drain.add(seconds);
        figures.index.add(indexed);
        figures.init.add(init);
    }
    drop(cluster);
    fs::remove_dir_all(&prefix)?;
    Ok(())
}

/// The copies of all agents, as the orchestrator has them made.
fn drain(cluster: &Cluster, kind: Kind, ranks: usize, bytes: u64, directory: &Path) -> Result<()> {
    let streams = (0..u32::try_from(ranks)?).map(|rank| (Rank(rank), stream_bytes([bytes, bytes / 4]))).collect();
    let creation = match kind {
        Kind::Plain => None,
        Kind::Packed => {
            Some(DatasetCreation::new(Arc::new(PosixDataset::at(directory)?), u32::try_from(ranks)?, &streams, FILES)?)
        }
    };
    let places = creation.as_ref().map(DatasetCreation::places);
    let of_node = |node: &NodeName| -> Option<ContainerPlaces> {
        let ranks = (0_u32..).zip(&cluster.places).filter(|(_, place)| *place == node).map(|(rank, _)| Rank(rank));
        places.as_ref().map(|places| places.of(ranks, 0))
    };
    let request = |node: &NodeName| CopyRequest {
        checkpoint: CheckpointId(CHECKPOINT),
        directory: directory.to_owned(),
        crc: true,
        on_behalf_of: Vec::new(),
        partners_only: false,
        buffer_bytes: 1 << 20,
        threads: None,
        container: of_node(node),
    };
    let packed = cluster.runtime.block_on(async {
        let mut copies = tokio::task::JoinSet::new();
        for (node, agent) in cluster.agents_by_node() {
            let (client, request, address) = (cluster.client.clone(), request(node), agent.address);
            copies.spawn(async move { client.copy(address, &request, Duration::from_secs(600)).await });
        }
        let mut packed: BTreeMap<Rank, PackedRank> = BTreeMap::new();
        let mut copied = 0;
        while let Some(reply) = copies.join_next().await {
            let mut reply = reply??;
            copied += reply.copied.len();
            packed.append(&mut reply.packed);
        }
        match copied == ranks {
            true => Ok(packed),
            false => Err(crate::Failure::from(format!("{copied} of {ranks} ranks were copied"))),
        }
    })?;
    if let Some(creation) = creation {
        creation.commit(&packed)?;
    }
    Ok(())
}

/// Counts the operations of the agents, and of another process, on names below the prefix directory.
///
/// Each process has a `strace` of its own: for each system call, the kernel looks through all threads of a tracer.
struct Trace(Vec<(Child, PathBuf)>);

impl Trace {
    fn begin(cluster: &Cluster, more: Option<u32>) -> Result<Trace> {
        let traced: Vec<u32> = cluster.agents().map(|agent| agent.pid()).chain(more).collect();
        let mut trace = Trace(Vec::new());
        for pid in &traced {
            let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("containers.{pid}.strace"));
            let mut command = Command::new("strace");
            command.args(["-f", "-qq", "-e", "trace=%file", "-p", &pid.to_string(), "-o"]).arg(&output);
            trace.0.push((command.stderr(Stdio::null()).spawn()?, output));
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if traced.iter().all(|pid| is_traced(*pid)) {
                return Ok(trace);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("strace does not trace all agents".into())
    }

    /// The number of operations.
    fn end(self) -> Result<usize> {
        let prefix = drain_prefix().display().to_string();
        let mut operations = 0;
        for (mut process, output) in self.0 {
            let status = Command::new("kill").args(["-INT", &process.id().to_string()]).status()?;
            process.wait()?;
            if !status.success() {
                return Err("strace cannot be ended".into());
            }
            let text = fs::read_to_string(&output)?;
            fs::remove_file(&output)?;
            // The agents use the directory of a dataset through its descriptor.
            let counted = |line: &&str| line.contains(&prefix) || line.contains("\"/proc/self/fd/");
            operations += text.lines().filter(counted).filter(|line| !line.contains("resumed>")).count();
        }
        Ok(operations)
    }
}

/// True if all threads of a process are traced.
fn is_traced(pid: u32) -> bool {
    let traced = |status: PathBuf| {
        let status = fs::read_to_string(status).unwrap_or_default();
        status.lines().filter_map(|line| line.strip_prefix("TracerPid:")).any(|pid| pid.trim() != "0")
    };
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| traced(thread.path().join("status")))
}

/// Writes as many bytes as the ranks to one file.
fn write_to_disk(bytes: u64) -> Result<f64> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("one-file");
    crate::drain::settle()?;
    let begun = Instant::now();
    let piece = vec![0x5a; 1 << 20];
    let mut file = fs::File::create(&path)?;
    for _ in 0..bytes.div_ceil(1 << 20) {
        std::io::Write::write_all(&mut file, &piece)?;
    }
    file.sync_all()?;
    let seconds = begun.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    Ok(seconds)
}
