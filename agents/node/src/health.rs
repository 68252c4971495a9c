//! How the node is: memory, load, and whether its directories can be written and are as large as expected.
//!
//! A poll must be answered whatever the disks do: nothing here touches a file system but the look at the directories,
//! and no lock that is needed here is held during file access elsewhere.
//!
//! Polls come several times a second, from an orchestrator that watches thousands of nodes: what they ask for is kept for a
//! moment, and the directories are looked at every few seconds, on a thread of their own, so that a file system that
//! hangs is reported instead of hanging the report.
//!
//! A report is published with a number. As long as nothing changes by more than noise, it stays the same one, and who
//! has it need not get it again. Memory, load and free space are never still: they count when they differ by a
//! sixteenth from what was published, so that a limit is noticed in time however small it is.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use holdfast_wire::agent::{DirectoryHealth, Health, QuietRank};
use holdfast_wire::run::AgentStart;
use parking_lot::Mutex;
use procfs::process::Process;
use sysinfo::{MemoryRefreshKind, System};
use tokio::sync::Notify;

use crate::paths::Paths;

/// How long what the system says of itself is good for.
const MACHINE_KEPT: Duration = Duration::from_secs(1);
/// A quantity that differs from the published one by less than one part in this is the same.
const NOISE: u64 = 16;
/// Load averages below this are all the same: nothing runs.
const NO_LOAD: f64 = 0.5;
/// How long what was found about the directories is good for.
const DIRECTORIES_KEPT: Duration = Duration::from_secs(3);
/// A directory that has not answered after this long is at fault.
const DIRECTORIES_LATE: Duration = Duration::from_secs(8);
/// What is made and removed again to see whether a directory can be written. Not hidden: `ls` shows who is to blame if it
/// stays.
const PROBE: &str = "holdfast.probe";

/// What is kept between polls.
#[derive(Debug)]
pub struct HealthMonitor {
    wanted: Vec<Wanted>,
    machine: Mutex<Option<(Instant, Machine)>>,
    system: Mutex<Option<System>>,
    directories: Arc<Mutex<Directories>>,
    /// The directories have been looked at.
    looked: Arc<Notify>,
    published: Mutex<Option<Published>>,
}

/// A report, and its number in this instance of the agent.
#[derive(Clone, Debug)]
pub struct Published {
    /// Counts up from 1.
    pub version: u64,
    /// The report.
    pub health: Arc<Health>,
}

/// A directory and what is expected of it.
#[derive(Clone, Debug)]
struct Wanted {
    node_path: String,
    real: PathBuf,
    bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    memory_total: u64,
    memory_available: u64,
    load: f64,
    agent_memory: u64,
}

#[derive(Debug, Default)]
struct Directories {
    found: Vec<DirectoryHealth>,
    /// When the last look ended.
    looked: Option<Instant>,
    /// When the one under way began.
    looking: Option<Instant>,
}

impl HealthMonitor {
    /// Watches the directories that the orchestrator named.
    pub fn new(start: &AgentStart, paths: &Paths) -> Self {
        let control = (paths.control_node_path().to_owned(), start.control_bytes);
        let caches = start.cache_bases.iter().map(|(base, bytes)| (paths.cache_node_path(base), *bytes));
        let mut wanted: Vec<Wanted> = Vec::new();
        for (node_path, bytes) in std::iter::once(control).chain(caches) {
            match wanted.iter_mut().find(|known| known.node_path == node_path) {
                // Control and cache directory may be one: the larger expectation counts.
                Some(known) => known.bytes = known.bytes.max(bytes),
                // A path that may not be followed was refused at the start.
                None => wanted.extend(paths.real(&node_path).map(|real| Wanted { node_path, real, bytes })),
            }
        }
        HealthMonitor {
            wanted,
            machine: Mutex::default(),
            system: Mutex::default(),
            directories: Arc::default(),
            looked: Arc::default(),
            published: Mutex::default(),
        }
    }

    fn machine(&self) -> Machine {
        let mut kept = self.machine.lock();
        if let Some((when, machine)) = *kept
            && when.elapsed() < MACHINE_KEPT
        {
            return machine;
        }
        let mut machine = Machine { agent_memory: resident(), ..Machine::default() };
        let mut system = self.system.lock();
        if system.is_none() {
            *system = System::new().ok();
        }
        if let Some(system) = system.as_mut() {
            system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
            machine.memory_total = system.total_memory();
            machine.memory_available = system.available_memory();
        }
        machine.load = System::load_average().map_or(0.0, |load| load.one);
        *kept = Some((Instant::now(), machine));
        machine
    }

    /// What is known of the directories; begins to look again when that is old, and waits only for the first look.
    async fn directories(&self) -> Vec<DirectoryHealth> {
        // Listening begins before the look at what is known, or the news could come in between.
        let news = self.looked.notified();
        tokio::pin!(news);
        news.as_mut().enable();
        let (first, due) = {
            let mut now = self.directories.lock();
            let due = now.looking.is_none() && now.looked.is_none_or(|when| when.elapsed() >= DIRECTORIES_KEPT);
            if due {
                now.looking = Some(Instant::now());
            }
            // Whoever asks before the first look has ended waits for it, not only the one who began it.
            let first = now.looking.filter(|_| now.looked.is_none());
            (first.map(|since| DIRECTORIES_KEPT.saturating_sub(since.elapsed())), due)
        };
        if due {
            let (wanted, directories, looked) = (self.wanted.clone(), self.directories.clone(), self.looked.clone());
            tokio::task::spawn_blocking(move || {
                let found = wanted.iter().map(look).collect();
                *directories.lock() = Directories { found, looked: Some(Instant::now()), looking: None };
                looked.notify_waiters();
            });
        }
        if let Some(left) = first {
            let _ = tokio::time::timeout(left, news).await;
        }
        let now = self.directories.lock();
        match now.looking {
            Some(since)
                if since.elapsed() >= if now.looked.is_none() { DIRECTORIES_KEPT } else { DIRECTORIES_LATE } =>
            {
                let late = format!("has not answered for {} s: its file system hangs", since.elapsed().as_secs());
                let hanging = |wanted: &Wanted| DirectoryHealth {
                    path: wanted.node_path.clone(),
                    fault: Some(late.clone()),
                    total: 0,
                    available: 0,
                };
                self.wanted.iter().map(hanging).collect()
            }
            _ => now.found.clone(),
        }
    }
}

impl HealthMonitor {
    /// How the node is: the report that was published last, or a new one if that differs by more than noise. What is not
    /// known here comes from `known`.
    pub async fn report(&self, known: Known) -> Published {
        let machine = self.machine();
        let directories = self.directories().await;
        let mut published = self.published.lock();
        if let Some(last) = published.as_ref()
            && !known.differs(&last.health)
            && !machine.differs(&last.health)
            && !directories_differ(&directories, &last.health.directories)
        {
            return last.clone();
        }
        let Known { node, generation, ranks, unauthenticated, newest, quiet } = known;
        let health = Health {
            node,
            generation,
            ranks,
            memory_total: machine.memory_total,
            memory_available: machine.memory_available,
            load: machine.load,
            directories,
            unauthenticated,
            newest,
            agent_memory: machine.agent_memory,
            quiet,
        };
        let version = published.as_ref().map_or(1, |last| last.version + 1);
        published.insert(Published { version, health: Arc::new(health) }).clone()
    }
}

/// True if the two are not the same but for noise.
fn quantities_differ(now: u64, published: u64) -> bool {
    now.abs_diff(published) > now.max(published) / NOISE
}

impl Machine {
    fn differs(&self, published: &Health) -> bool {
        let (load, before) = (self.load.max(NO_LOAD), published.load.max(NO_LOAD));
        self.memory_total != published.memory_total
            || quantities_differ(self.memory_available, published.memory_available)
            || quantities_differ(self.agent_memory, published.agent_memory)
            || (load - before).abs() > load.max(before) / NOISE as f64
    }
}

/// A fault is new in every report: it counts until the orchestrator has acted on it.
fn directories_differ(now: &[DirectoryHealth], published: &[DirectoryHealth]) -> bool {
    let differ = |(now, published): (&DirectoryHealth, &DirectoryHealth)| {
        now.fault.is_some()
            || (&now.path, &now.fault, now.total) != (&published.path, &published.fault, published.total)
            || quantities_differ(now.available, published.available)
    };
    now.len() != published.len() || now.iter().zip(published).any(differ)
}

/// The part of a health report that other modules know.
#[derive(Debug)]
pub struct Known {
    /// This node.
    pub node: NodeName,
    /// The run that it serves.
    pub generation: Generation,
    /// Ranks that are connected and alive.
    pub ranks: Vec<Rank>,
    /// Unauthenticated connections.
    pub unauthenticated: u64,
    /// The newest checkpoint in cache.
    pub newest: Option<CheckpointId>,
    /// Ranks in which nothing has moved for long.
    pub quiet: Vec<QuietRank>,
}

impl Known {
    /// Quiet ranks are so for longer in every report.
    fn differs(&self, published: &Health) -> bool {
        let Known { node, generation, ranks, unauthenticated, newest, quiet } = self;
        !quiet.is_empty()
            || !published.quiet.is_empty()
            || (node, generation, ranks) != (&published.node, &published.generation, &published.ranks)
            || (unauthenticated, newest) != (&published.unauthenticated, &published.newest)
    }
}

/// Looks at one directory: is it there, can a file be made and removed in it, is its file system as large as it should.
fn look(wanted: &Wanted) -> DirectoryHealth {
    let (total, available) = match rustix::fs::statvfs(&wanted.real) {
        Ok(sizes) => (sizes.f_blocks.saturating_mul(sizes.f_frsize), sizes.f_bavail.saturating_mul(sizes.f_frsize)),
        Err(error) => {
            let fault = format!("cannot be reached: {}", std::io::Error::from(error));
            return DirectoryHealth { path: wanted.node_path.clone(), fault: Some(fault), total: 0, available: 0 };
        }
    };
    let too_small = || {
        let expected = wanted.bytes.filter(|expected| total < *expected)?;
        Some(format!("is on a file system of {total} bytes, expected are {expected}"))
    };
    let fault = probe(&wanted.real).err().map(|error| format!("cannot be written: {error}")).or_else(too_small);
    DirectoryHealth { path: wanted.node_path.clone(), fault, total, available }
}

/// A full file system lets an empty file be made, so that a byte goes with it.
fn probe(directory: &Path) -> std::io::Result<()> {
    let path = directory.join(PROBE);
    let made = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(b"x"));
    let removed = fs::remove_file(&path);
    made.and(removed)
}

/// The agent's own resident memory, bytes; 0 where `/proc` does not say.
fn resident() -> u64 {
    let resident = Process::myself().and_then(|own| own.statm()).map_or(0, |statm| statm.resident);
    resident * procfs::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(real: &Path, bytes: Option<u64>) -> Wanted {
        Wanted { node_path: "/ssd/user1/scr.7".to_owned(), real: real.to_owned(), bytes }
    }

    #[test]
    fn a_directory_that_can_be_written_is_well_and_nothing_stays_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let health = look(&wanted(directory.path(), Some(1)));
        assert_eq!(health.fault, None);
        assert!(health.total > 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_a_file_in_its_place_and_a_file_system_that_is_too_small_are_faults() {
        let directory = tempfile::tempdir().unwrap();
        assert!(look(&wanted(&directory.path().join("missing"), None)).fault.unwrap().contains("cannot be reached"));
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(look(&wanted(&file, None)).fault.unwrap().contains("cannot be written"));
        assert!(look(&wanted(directory.path(), Some(u64::MAX))).fault.unwrap().contains("expected are"));
    }

    #[test]
    fn the_agent_knows_its_own_memory() {
        assert!(resident() > 100_000);
    }

    fn known() -> Known {
        Known {
            node: "node1".into(),
            generation: Generation(2),
            ranks: vec![Rank(3)],
            unauthenticated: 0,
            newest: Some(CheckpointId(4)),
            quiet: Vec::new(),
        }
    }

    fn machine(memory_available: u64, load: f64) -> Machine {
        Machine { memory_total: 1 << 30, memory_available, load, agent_memory: 20 << 20 }
    }

    /// Sets what the system is taken to have said just now.
    fn set(monitor: &HealthMonitor, machine: Machine, available: u64, fault: Option<&str>) {
        *monitor.machine.lock() = Some((Instant::now() + Duration::from_secs(600), machine));
        let path = "/ssd/user1/scr.7".to_owned();
        let found = vec![DirectoryHealth { path, fault: fault.map(str::to_owned), total: 1 << 40, available }];
        let looked = Some(Instant::now() + Duration::from_secs(600));
        *monitor.directories.lock() = Directories { found, looked, looking: None };
    }

    fn monitor(wanted: Vec<Wanted>) -> HealthMonitor {
        HealthMonitor {
            wanted,
            machine: Mutex::default(),
            system: Mutex::default(),
            directories: Arc::default(),
            looked: Arc::default(),
            published: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn a_report_stays_the_same_until_something_changes_by_more_than_noise() {
        let monitor = monitor(Vec::new());
        let version = async |known| monitor.report(known).await.version;
        set(&monitor, machine(1000, 0.1), 10_000, None);
        assert_eq!(version(known()).await, 1);
        set(&monitor, machine(1050, 0.4), 9_500, None);
        assert_eq!(version(known()).await, 1);
        set(&monitor, machine(1100, 0.4), 9_500, None);
        let report = monitor.report(known()).await;
        assert_eq!((report.version, report.health.memory_available), (2, 1100));
        set(&monitor, machine(1100, 2.0), 9_500, None);
        assert_eq!(version(known()).await, 3);
        set(&monitor, machine(1100, 2.0), 5_000, None);
        assert_eq!(version(known()).await, 4);
        assert_eq!(version(Known { newest: None, ..known() }).await, 5);
        assert_eq!(version(Known { ranks: Vec::new(), ..known() }).await, 6);
    }

    #[tokio::test]
    async fn a_fault_and_a_quiet_rank_are_reported_anew_each_time() {
        let monitor = monitor(Vec::new());
        let quiet = QuietRank {
            rank: Rank(3),
            waiting_in: None,
            quiet_for: Duration::from_secs(60),
            idle_for: Duration::from_secs(60),
        };
        set(&monitor, machine(1000, 0.1), 10_000, None);
        for version in [1, 2] {
            let known = Known { quiet: vec![quiet.clone()], ..known() };
            assert_eq!(monitor.report(known).await.version, version);
        }
        assert_eq!(monitor.report(known()).await.version, 3, "it moves again");
        set(&monitor, machine(1000, 0.1), 10_000, Some("cannot be written"));
        for version in [4, 5] {
            assert_eq!(monitor.report(known()).await.version, version);
        }
        set(&monitor, machine(1000, 0.1), 10_000, None);
        assert_eq!(monitor.report(known()).await.version, 6);
        assert_eq!(monitor.report(known()).await.version, 6);
    }

    #[tokio::test]
    async fn what_was_found_is_kept_until_it_is_old() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("cache");
        fs::create_dir(&gone).unwrap();
        let monitor = monitor(vec![wanted(&gone, None)]);
        // Also for those who ask while the first look is under way.
        let (one, other) = tokio::join!(monitor.directories(), monitor.directories());
        assert_eq!((&one[0].fault, &other[0].fault), (&None, &None));
        assert_eq!(monitor.directories().await[0].fault, None);
        fs::remove_dir(&gone).unwrap();
        assert_eq!(monitor.directories().await[0].fault, None);
        monitor.directories.lock().looked = None;
        assert!(monitor.directories().await[0].fault.is_some());
    }
}
