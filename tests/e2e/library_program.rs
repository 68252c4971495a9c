//! A program that leaves on a node what LLNL's library of SCR leaves there, so that jobs of unchanged applications can
//! be tested where that library is not installed: control files, filemaps, flush file, halt file, transfer file, cache
//! directories with PARTNER copies. It is this test binary itself, started as a rank of a job.
//!
//! It takes the directories and settings from the SCR_* variables, as the library does, and puts the root of its
//! virtual node in front of them. Ranks meet in a directory of the test in place of MPI, and send each other files
//! there: a rank reads the caches of its own node only. What it leaves out: the summary and the index of a flush, and
//! more than one rank on a node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::control::filemap::{Filemap, MasterFilemap};
use holdfast_core::control::flush::FlushFile;
use holdfast_core::control::halt::{HaltFile, reason};
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::control::nodes;
use holdfast_core::control::transfer::{FileTransfer, TransferCommand, TransferFile, TransferState};
use holdfast_core::kvtree::Tree;
use holdfast_core::kvtree::file::encode;
use holdfast_core::redundancy::descriptor;
use holdfast_model::{CheckpointId, Descriptor, Locations, NodeName, Rank, RankDescriptor, Scheme, SchemeNumbers};

/// Set for the ranks: the directory in which they meet.
pub const MEETING: &str = "SCR_TEST_MEETING";
/// How many checkpoints to take in all.
pub const CHECKPOINTS: &str = "SCR_TEST_CHECKPOINTS";
/// `2,4`: after these checkpoints each rank writes `holds.<id>.<rank>` in the meeting directory of its generation, and
/// waits for the file `go.<id>` in the one above.
pub const HOLD: &str = "SCR_TEST_HOLD";
/// Replaces SCR_CNTL_BASE of the library's system configuration file.
pub const CONTROL: &str = "SCR_TEST_CNTL_BASE";
/// Bytes of each rank's file.
pub const BYTES: usize = 40_000;

/// How long the library tries to rebuild a checkpoint of which files are lost.
const REBUILDING: Duration = Duration::from_millis(500);
const WITHIN: Duration = Duration::from_secs(60);

/// The bytes of a rank's file.
pub fn content(checkpoint: u64, rank: u32) -> Vec<u8> {
    (0..BYTES as u64).map(|at| (at.wrapping_mul(31) ^ (checkpoint * 7 + u64::from(rank))) as u8).collect()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> u64 {
    variable(name).parse().unwrap()
}

/// The first of these variables that is set.
fn first_of(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok())
}

/// A parameter of SCR, or its default.
fn parameter(name: &str, default: u64) -> u64 {
    first_of(&[name]).map_or(default, |value| value.parse().unwrap())
}

fn cache_base() -> String {
    first_of(&["SCR_CACHE_BASE"]).unwrap_or_else(|| "/tmp".to_owned())
}

struct Program {
    rank: u32,
    ranks: u32,
    node: String,
    root: PathBuf,
    meeting: PathBuf,
    /// As the node sees them.
    control: String,
    cache: String,
    /// How many it has passed.
    barriers: u32,
}

/// Runs the program to its end, as a rank of `holdfast run` or of a script's `srun`.
fn run() -> ! {
    let user = first_of(&["SCR_USER_NAME", "USER"]).unwrap();
    let job_id = first_of(&["SCR_JOB_ID", "SLURM_JOBID"]).unwrap();
    let below = |base: String| format!("{base}/{user}/scr.{job_id}");
    let control = below(first_of(&[CONTROL]).unwrap_or_else(|| "/tmp".to_owned()));
    let generation = first_of(&["HOLDFAST_GENERATION"]).unwrap_or_else(|| "1".to_owned());
    let mut program = Program {
        rank: first_of(&["HOLDFAST_RANK", "SLURM_PROCID"]).unwrap().parse().unwrap(),
        ranks: first_of(&["HOLDFAST_RANKS", "SLURM_NTASKS"]).unwrap().parse().unwrap(),
        node: first_of(&["HOLDFAST_NODE", "SLURMD_NODENAME"]).unwrap(),
        root: first_of(&["HOLDFAST_NODE_ROOT"]).unwrap_or_else(|| "/".to_owned()).into(),
        meeting: PathBuf::from(variable(MEETING)).join(generation),
        control,
        cache: below(cache_base()),
        barriers: 0,
    };
    program.main();
    std::process::exit(0)
}

impl Program {
    fn main(&mut self) {
        assert_eq!(variable("SCR_COPY_TYPE"), "PARTNER");
        fs::create_dir_all(&self.meeting).unwrap();
        let mut checkpoint = self.init();
        self.post("restarted", &checkpoint.to_string());
        let keep = parameter("SCR_CACHE_SIZE", 2);
        let (flush, asynchronous) = (parameter("SCR_FLUSH", 10), parameter("SCR_FLUSH_ASYNC", 0) == 1);
        let hold: Vec<u64> = variable(HOLD).split(',').filter_map(|id| id.parse().ok()).collect();
        let mut flushing = None;
        while checkpoint < number(CHECKPOINTS) {
            checkpoint += 1;
            if checkpoint > keep {
                // A checkpoint that is being flushed is not evicted.
                while flushing == Some(checkpoint - keep) && !self.end_flush(checkpoint - keep) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                flushing = flushing.filter(|begun| *begun != checkpoint - keep);
                self.delete(checkpoint - keep);
            }
            self.write(checkpoint);
            self.locate(checkpoint, |at| at.cache = true);
            self.barrier();
            if let Some(begun) = flushing
                && self.end_flush(begun)
            {
                flushing = None;
            }
            self.check_halt(true);
            if asynchronous && flush > 0 && checkpoint.is_multiple_of(flush) && flushing.is_none() {
                self.begin_flush(checkpoint);
                flushing = Some(checkpoint);
            }
            if hold.contains(&checkpoint) {
                self.post(&format!("holds.{checkpoint}"), "");
                self.wait(|program| program.meeting.with_file_name(format!("go.{checkpoint}")).exists());
            }
        }
        while flushing.is_some_and(|begun| !self.end_flush(begun)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.rank == 0 {
            HaltFile::update(&self.in_control("halt.scrinfo"), |halt| halt.set_reason(reason::FINALIZE_CALLED))
                .unwrap();
        }
        self.barrier();
    }

    fn real(&self, node_path: &str) -> PathBuf {
        self.root.join(node_path.trim_start_matches('/'))
    }

    fn in_control(&self, name: &str) -> PathBuf {
        self.real(&self.control).join(name)
    }

    /// Writes a file of this rank for the other ranks and for the test.
    fn post(&self, name: &str, text: &str) {
        fs::write(self.meeting.join(format!("{name}.{}", self.rank)), text).unwrap();
    }

    fn wait(&self, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < WITHIN, "rank {} waits for too long", self.rank);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until all ranks are here.
    fn barrier(&mut self) {
        self.barriers += 1;
        let name = format!("barrier.{}", self.barriers);
        self.post(&name, "");
        let all: Vec<PathBuf> = (0..self.ranks).map(|rank| self.meeting.join(format!("{name}.{rank}"))).collect();
        self.wait(|_| all.iter().all(|path| path.exists()));
    }

    /// What each rank posts under this name, by rank.
    fn gather(&mut self, name: &str, text: &str) -> Vec<String> {
        self.post(name, text);
        self.barrier();
        (0..self.ranks).map(|rank| fs::read_to_string(self.meeting.join(format!("{name}.{rank}"))).unwrap()).collect()
    }

    fn init(&mut self) -> u64 {
        fs::create_dir_all(self.real(&self.control)).unwrap();
        fs::create_dir_all(self.real(&format!("{}/index.0", self.cache))).unwrap();
        let _ = fs::remove_file(self.in_control("transfer.scrinfo"));
        write_in_place(&self.in_control("nodes.scrinfo"), &nodes::to_tree(self.ranks));
        self.barrier();
        if parameter("SCR_FLUSH_ASYNC", 0) == 1 {
            self.stop_flush();
        }
        self.check_halt(false);
        self.restart()
    }

    /// In `SCR_Init`: any daemon stops, and has reported so.
    fn stop_flush(&mut self) {
        let path = self.in_control("transfer.scrinfo");
        TransferFile::update(&path, |file| file.set_command(TransferCommand::Stop)).unwrap();
        self.wait(|_| {
            let file = TransferFile::read(&path).unwrap();
            file.is_some_and(|file| file.state() == Some(TransferState::Stopped))
        });
        self.barrier();
    }

    /// Ends the job if a halt condition holds; after a checkpoint that is counted.
    fn check_halt(&mut self, counts: bool) {
        let mut halted = "";
        if self.rank == 0 {
            let met = HaltFile::update(&self.in_control("halt.scrinfo"), |halt| {
                if counts {
                    halt.decrement();
                }
                let met = halt.check(0, None, None).into_iter().next();
                if let Some(met) = &met {
                    halt.set_reason(met.as_str());
                }
                met.is_some()
            });
            halted = if met.unwrap() { "halted" } else { "" };
        }
        let name = format!("halt.{}", self.barriers);
        if self.gather(&name, halted)[0] == "halted" {
            std::process::exit(0);
        }
    }

    fn directory(&self, checkpoint: u64) -> String {
        format!("{}/index.0/checkpoint.{checkpoint}", self.cache)
    }

    fn file(&self, checkpoint: u64, rank: u32) -> String {
        format!("{}/rank_{rank}.ckpt", self.directory(checkpoint))
    }

    /// The rank whose files this one copies.
    fn left(&self) -> u32 {
        (self.rank + self.ranks - 1) % self.ranks
    }

    /// The file of a rank, if this node has it.
    fn find(&self, checkpoint: u64, rank: u32) -> Option<PathBuf> {
        let path = self.real(&self.file(checkpoint, rank));
        (path.exists() && Meta::path_for(&path).exists()).then_some(path)
    }

    /// Where the file of a rank is sent to others.
    fn sent(&self, checkpoint: u64, rank: u32) -> PathBuf {
        self.meeting.join(format!("sent.{checkpoint}.{rank}"))
    }

    fn send(&self, checkpoint: u64, rank: u32) {
        copy_with_meta(&self.find(checkpoint, rank).unwrap(), &self.sent(checkpoint, rank));
    }

    fn receive(&self, checkpoint: u64, rank: u32) {
        copy_with_meta(&self.sent(checkpoint, rank), &self.real(&self.file(checkpoint, rank)));
    }

    fn restart(&mut self) -> u64 {
        let nodes = self.gather("node", &self.node.clone());
        let newest = number(CHECKPOINTS);
        let all = (1..=newest).flat_map(|id| (0..self.ranks).map(move |rank| (id, rank)));
        let held: Vec<String> =
            all.filter(|(id, rank)| self.find(*id, *rank).is_some()).map(|(id, rank)| format!("{id}:{rank}")).collect();
        let held = self.gather("held", &held.join(","));
        let held: Vec<BTreeSet<&str>> = held.iter().map(|held| held.split(',').collect()).collect();
        let holder = |id: u64, rank: u32| held.iter().position(|held| held.contains(&*format!("{id}:{rank}")));
        let usable = (1..=newest).rev().find(|id| (0..self.ranks).all(|rank| holder(*id, rank).is_some()));
        let checkpoint = usable.unwrap_or_default();
        if let Some(chosen) =
            (1..=newest).rev().find(|id| self.find(*id, self.rank).is_some()).filter(|_| checkpoint == 0)
        {
            // The library has written its choice before it knows what the other ranks have, and tries to rebuild it.
            self.change_flush_file(|flush| {
                for id in flush.checkpoints() {
                    flush.remove(id);
                }
                flush.record(CheckpointId(chosen), Locations { cache: true, pfs: false, flushing: false });
            });
            std::thread::sleep(REBUILDING);
        }
        for rank in (0..self.ranks).filter(|rank| holder(checkpoint, *rank) == Some(self.rank as usize)) {
            self.send(checkpoint, rank);
        }
        self.barrier();
        let cached = self.real(&format!("{}/index.0", self.cache));
        for entry in fs::read_dir(&cached).unwrap().flatten() {
            fs::remove_dir_all(entry.path()).unwrap();
        }
        let mut map = Filemap::new();
        let mut flush = FlushFile::new();
        if checkpoint > 0 {
            fs::create_dir_all(self.real(&self.directory(checkpoint))).unwrap();
            for rank in BTreeSet::from([self.rank, self.left()]) {
                self.receive(checkpoint, rank);
                self.enter(&mut map, checkpoint, rank, &nodes);
            }
            flush.record(CheckpointId(checkpoint), Locations { cache: true, pfs: false, flushing: false });
        }
        self.write_filemap(&map);
        write_in_place(&self.in_control("flush.scrinfo"), flush.tree());
        self.post("nodes", &nodes.join(","));
        self.barrier();
        checkpoint
    }

    /// Enters a complete file of a rank: this one's, or the copy of the left neighbour's.
    fn enter(&self, map: &mut Filemap, checkpoint: u64, rank: u32, nodes: &[String]) {
        let id = CheckpointId(checkpoint);
        map.add_file(id, Rank(rank), &self.file(checkpoint, rank));
        map.set_expected(id, Rank(rank), 1);
        map.set_descriptor(id, Rank(rank), descriptor::to_tree(&self.descriptor(rank)));
        if rank != self.rank {
            map.set_partner(id, Rank(rank), &NodeName::new(nodes[rank as usize].clone()));
        }
    }

    fn descriptor(&self, rank: u32) -> RankDescriptor {
        RankDescriptor {
            descriptor: Descriptor {
                index: 0,
                enabled: true,
                interval: 1,
                base: cache_base(),
                scheme: Scheme::new(if self.ranks == 1 { "LOCAL" } else { "PARTNER" }),
                numbers: SchemeNumbers::default(),
            },
            directory: format!("{}/index.0", self.cache),
            groups: 1,
            group_id: 0,
            group_size: self.ranks,
            group_rank: rank,
        }
    }

    fn filemap(&self) -> Filemap {
        Filemap::read(&self.in_control("filemap_0.scrinfo")).unwrap()
    }

    fn write_filemap(&self, map: &Filemap) {
        let mut master = MasterFilemap::new();
        master.add(&format!("{}/filemap_0.scrinfo", self.control));
        write_in_place(&self.in_control("filemap.scrinfo"), master.tree());
        write_in_place(&self.in_control("filemap_0.scrinfo"), map.tree());
    }

    fn write(&mut self, checkpoint: u64) {
        let (id, node_path) = (CheckpointId(checkpoint), self.file(checkpoint, self.rank));
        let nodes: Vec<String> =
            fs::read_to_string(self.meeting.join("nodes.0")).unwrap().split(',').map(str::to_owned).collect();
        fs::create_dir_all(self.real(&self.directory(checkpoint))).unwrap();
        let mut map = self.filemap();
        map.add_file(id, Rank(self.rank), &node_path);
        map.set_descriptor(id, Rank(self.rank), descriptor::to_tree(&self.descriptor(self.rank)));
        self.write_filemap(&map);
        let path = self.real(&node_path);
        let bytes = content(checkpoint, self.rank);
        fs::write(&path, &bytes).unwrap();
        let meta = Meta {
            file: format!("rank_{}.ckpt", self.rank),
            kind: FileKind::Full,
            size: BYTES as u64,
            checkpoint: id,
            rank: Rank(self.rank),
            ranks: self.ranks,
            complete: true,
            crc: (parameter("SCR_CRC_ON_COPY", 0) == 1).then(|| crc32fast::hash(&bytes)),
            output_path: None,
        };
        write_in_place(&Meta::path_for(&path), &meta.to_tree());
        self.send(checkpoint, self.rank);
        self.barrier();
        let left = self.left();
        if left != self.rank {
            self.receive(checkpoint, left);
        }
        for rank in [left, self.rank] {
            self.enter(&mut map, checkpoint, rank, &nodes);
        }
        self.write_filemap(&map);
        self.barrier();
    }

    fn delete(&mut self, checkpoint: u64) {
        let _ = fs::remove_dir_all(self.real(&self.directory(checkpoint)));
        let mut map = self.filemap();
        map.remove_checkpoint(CheckpointId(checkpoint));
        self.write_filemap(&map);
        self.change_flush_file(|flush| {
            flush.remove(CheckpointId(checkpoint));
        });
        self.barrier();
    }

    fn change_flush_file(&self, change: impl FnOnce(&mut FlushFile)) {
        let path = self.in_control("flush.scrinfo");
        let mut flush = FlushFile::read(&path).unwrap().unwrap_or_default();
        change(&mut flush);
        write_in_place(&path, flush.tree());
    }

    fn locate(&self, checkpoint: u64, change: impl FnOnce(&mut Locations)) {
        self.change_flush_file(|flush| {
            let mut at = flush.locations(CheckpointId(checkpoint)).unwrap_or_default();
            change(&mut at);
            flush.record(CheckpointId(checkpoint), at);
        });
    }

    fn begin_flush(&mut self, checkpoint: u64) {
        self.locate(checkpoint, |at| at.flushing = true);
        let directory = PathBuf::from(variable("SCR_PREFIX")).join(format!("flushed.{checkpoint}"));
        fs::create_dir_all(&directory).unwrap();
        let source = self.file(checkpoint, self.rank);
        let meta = Meta::path_for(Path::new(&source)).to_string_lossy().into_owned();
        let transfer = |source: String| FileTransfer {
            destination: directory.join(Path::new(&source).file_name().unwrap()).to_string_lossy().into_owned(),
            size: fs::metadata(self.real(&source)).unwrap().len(),
            written: 0,
            source,
        };
        let files = [source, meta].map(transfer);
        let bandwidth = number("SCR_FLUSH_ASYNC_BW") as f64 / f64::from(self.ranks);
        TransferFile::update(&self.in_control("transfer.scrinfo"), |file| file.request(&files, bandwidth, 0.0))
            .unwrap();
        self.barrier();
    }

    /// Ends a flush if all files of all ranks are written.
    fn end_flush(&mut self, checkpoint: u64) -> bool {
        let path = self.in_control("transfer.scrinfo");
        let written = TransferFile::read(&path).unwrap().is_some_and(|file| file.all_written());
        let name = format!("written.{}", self.barriers);
        if !self.gather(&name, &written.to_string()).iter().all(|written| written == "true") {
            return false;
        }
        self.locate(checkpoint, |at| {
            at.pfs = true;
            at.flushing = false;
        });
        TransferFile::update(&path, |file| {
            for transfer in file.files() {
                file.remove_file(&transfer.source);
            }
            file.set_command(TransferCommand::Stop);
        })
        .unwrap();
        self.barrier();
        true
    }
}

fn copy_with_meta(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::copy(Meta::path_for(from), Meta::path_for(to)).unwrap();
}

/// The library empties a file and writes it.
fn write_in_place(path: &Path, tree: &Tree) {
    fs::write(path, encode(tree)).unwrap();
}

/// Starts this binary as the program, if it is a rank.
pub fn program_if_rank() {
    if std::env::var_os(MEETING).is_some() {
        run();
    }
}
