//! The health of the node: memory, load, and whether its directories can be written and are as large as expected.
//!
//! A poll must be answered whatever the disks do: only the check of the directories accesses a file system, and no lock
//! that is needed here is held during file access elsewhere.
//!
//! The orchestrator polls thousands of nodes several times a second. So values are cached for a moment, and directories
//! are checked every few seconds, on a thread of their own: a file system that hangs is reported after the time limit
//! that the orchestrator gave. A disk that is busy with the pages of a large checkpoint does not hang: the time counts
//! only while its device completes nothing.
//!
//! A report has a version. As long as nothing changes by more than noise, the version stays the same, and a poller that
//! has it does not get the report again. Memory, load and free space always vary: they count as changed when they
//! differ by a sixteenth from the published values.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::durable::{self, Durability};
use holdfast_core::owned::{Access, OwnedDirectory, OwnedError};
use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use holdfast_wire::agent::{DirectoryHealth, HaltReport, Health, KeptDirectory, QuietRank, WaitingRanks};
use holdfast_wire::run::AgentStart;
use parking_lot::Mutex;
use sysinfo::System;
use tokio::sync::Notify;

use crate::directories::claim::EXISTING;
use crate::directories::kept;
use crate::directories::paths::Paths;
use crate::report::usage::{self, NodeUsage};

/// How long memory and load are cached. The kernel renews its load averages as often.
const USAGE_CACHED: Duration = Duration::from_secs(5);
/// A quantity counts as unchanged if it differs from the published one by less than one part in this.
const NOISE: u64 = 16;
/// Load averages below this count as equal.
const NO_LOAD: f64 = 0.5;
/// How long the state of the directories is cached, unless the time limit of a check is shorter.
const DIRECTORIES_CACHED: Duration = Duration::from_secs(5);
/// The state of the device is read when a check has taken this long.
const CHECK_IS_SLOW: Duration = Duration::from_millis(50);
/// A directory is faulty after this many time limits even if its device works.
const LONGEST_CHECK: u32 = 10;
/// A directory counts as it was found last for so many rounds in which the agent has no descriptor or memory left to
/// check it: that is no fault of the node, and may pass.
const LONGEST_UNCHECKED: u32 = 10;
/// How long a poll waits for the first check.
const FIRST_CHECK_AWAITED: Duration = Duration::from_secs(3);
/// A file that is created and removed to check whether a directory can be written. Not hidden, so that `ls` shows it if
/// it is left behind.
const PROBE: &str = "holdfast.probe";

/// What is kept between polls.
#[derive(Debug)]
pub struct HealthMonitor {
    expected: Vec<ExpectedDirectory>,
    /// A directory whose check takes longer is faulty.
    disk_timeout: Duration,
    usage: Mutex<Option<(Instant, NodeUsage)>>,
    system: Mutex<Option<System>>,
    directories: Arc<Mutex<Directories>>,
    /// See [`Health::kept`].
    kept: Vec<KeptDirectory>,
    /// The directories have been checked.
    checked: Arc<Notify>,
    published: Mutex<Option<Published>>,
}

/// A report, and its version in this instance of the agent.
#[derive(Clone, Debug)]
pub struct Published {
    /// Counts up from 1.
    pub version: u64,
    pub health: Arc<Health>,
}

#[derive(Clone, Debug)]
struct ExpectedDirectory {
    node_path: String,
    real: PathBuf,
    bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct Directories {
    found: Arc<[DirectoryHealth]>,
    /// When the last round of checks ended.
    checked: Option<Instant>,
    /// The last rounds in which the agent was not able to check a directory.
    unchecked: u32,
    /// The round that is under way.
    round: Option<CheckRound>,
}

/// A round of checks: one directory after the other.
#[derive(Debug)]
struct CheckRound {
    began: Instant,
    /// When the check of the present directory began.
    since: Instant,
    /// The device of the present directory, as soon as it is known.
    device: Option<BlockDevice>,
    /// When the device was last seen to complete something.
    progress: Instant,
    done: Vec<DirectoryHealth>,
}

impl CheckRound {
    fn begin(now: Instant) -> Self {
        CheckRound { began: now, since: now, device: None, progress: now, done: Vec::new() }
    }

    /// The check of the present directory has ended, and that of the next one begins.
    fn next(&mut self, now: Instant, found: DirectoryHealth) {
        self.done.push(found);
        (self.since, self.progress, self.device) = (now, now, None);
    }

    /// The present directory of this round as a fault, if its check has been late for the time limit.
    fn late(&mut self, expected: &[ExpectedDirectory], limit: Duration) -> Option<DirectoryHealth> {
        let (present, now) = (expected.get(self.done.len())?, Instant::now());
        let taken = now.saturating_duration_since(self.since);
        if taken >= CHECK_IS_SLOW && self.device.as_mut().is_some_and(BlockDevice::has_progressed) {
            self.progress = now;
        }
        let is_late = now.saturating_duration_since(self.progress) >= limit || taken >= limit * LONGEST_CHECK;
        is_late.then(|| DirectoryHealth {
            path: present.node_path.clone(),
            full: None,
            fault: Some(format!("its file system has not responded for {} (health.disk_timeout)", seconds(taken))),
            total: 0,
            available: 0,
        })
    }
}

/// The device of a file system.
#[derive(Debug)]
struct BlockDevice {
    /// In sysfs, which never waits for the device.
    statistics: PathBuf,
    completed: u64,
}

impl BlockDevice {
    /// The device of a file on a local disk; `None` on a network file system or in memory.
    fn of(device: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Some(BlockDevice { completed: completed(&statistics)?, statistics })
    }

    /// True if it has completed reads or writes since the last call.
    fn has_progressed(&mut self) -> bool {
        let before = self.completed;
        self.completed = completed(&self.statistics).unwrap_or(before);
        self.completed != before
    }
}

/// Reads and writes that a device has completed: the first and the fifth field.
fn completed(statistics: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(statistics).ok()?;
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let (reads, writes) = (fields.next()?.ok()?, fields.nth(3)?.ok()?);
    Some(reads.wrapping_add(writes))
}

/// Seconds with one decimal place below ten.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

impl HealthMonitor {
    /// Watches the directories that the orchestrator named.
    pub fn new(start: &AgentStart, paths: &Paths) -> Self {
        let control = (paths.control_node_path().to_owned(), start.control_bytes);
        let caches = start.cache_bases.iter().map(|(base, bytes)| (paths.cache_node_path(base), *bytes));
        let mut expected: Vec<ExpectedDirectory> = Vec::new();
        for (node_path, bytes) in std::iter::once(control).chain(caches) {
            match expected.iter_mut().find(|known| known.node_path == node_path) {
                // Control and cache directory may be one: the larger expectation counts.
                Some(known) => known.bytes = known.bytes.max(bytes),
                // A path that may not be followed was refused at the start.
                None => {
                    expected.extend(paths.real(&node_path).map(|real| ExpectedDirectory { node_path, real, bytes }))
                }
            }
        }
        HealthMonitor {
            expected,
            disk_timeout: start.disk_timeout,
            usage: Mutex::default(),
            system: Mutex::default(),
            directories: Arc::default(),
            kept: kept::all(paths),
            checked: Arc::default(),
            published: Mutex::default(),
        }
    }

    fn usage(&self) -> NodeUsage {
        let mut cached = self.usage.lock();
        if let Some((when, usage)) = *cached
            && when.elapsed() < USAGE_CACHED
        {
            return usage;
        }
        let usage = usage::measure(&mut self.system.lock());
        *cached = Some((Instant::now(), usage));
        usage
    }

    /// The state of the directories. Begins another round of checks when it is old, and waits only for the first one,
    /// for a limited time.
    async fn directories(&self) -> Arc<[DirectoryHealth]> {
        let (is_first, is_due) = {
            let mut now = self.directories.lock();
            let cached = DIRECTORIES_CACHED.min(self.disk_timeout);
            let is_due = now.round.is_none() && now.checked.is_none_or(|when| when.elapsed() >= cached);
            if is_due {
                now.round = Some(CheckRound::begin(Instant::now()));
            }
            (now.checked.is_none(), is_due)
        };
        if is_due {
            let (expected, directories, checked) =
                (self.expected.clone(), self.directories.clone(), self.checked.clone());
            tokio::task::spawn_blocking(move || {
                check_all(&expected, &directories);
                checked.notify_waiters();
            });
        }
        // All polls before the end of the first round wait for it.
        if is_first {
            self.first_check().await;
        }
        let mut now = self.directories.lock();
        let late = now.round.as_mut().and_then(|round| round.late(&self.expected, self.disk_timeout));
        match late {
            Some(late) => {
                let others = now.found.iter().filter(|directory| directory.path != late.path).cloned();
                std::iter::once(late.clone()).chain(others).collect()
            }
            None => now.found.clone(),
        }
    }

    /// Returns when the first round of checks has ended, or has taken long.
    async fn first_check(&self) {
        // Registered before the state is read, so that no notification in between is missed.
        let checked = self.checked.notified();
        tokio::pin!(checked);
        checked.as_mut().enable();
        let began = {
            let now = self.directories.lock();
            now.round.as_ref().filter(|_| now.checked.is_none()).map(|round| round.began)
        };
        if let Some(began) = began {
            let left = FIRST_CHECK_AWAITED.min(self.disk_timeout).saturating_sub(began.elapsed());
            let _ = tokio::time::timeout(left, checked).await;
        }
    }

    /// Has the directories checked again before the next report, because files were removed.
    pub fn expire(&self) {
        self.directories.lock().checked = None;
    }

    /// The report that was published last, or a new one if it differs by more than noise.
    pub async fn report(&self, status: AgentStatus) -> Published {
        let usage = self.usage();
        let directories = self.directories().await;
        let mut published = self.published.lock();
        if let Some(last) = published.as_ref()
            && !status.differs(&last.health)
            && !usage.differs(&last.health)
            && !directories_differ(&directories, &last.health.directories)
        {
            return last.clone();
        }
        let AgentStatus { node, generation, ranks, unauthenticated, newest, quiet, waiting, halt } = status;
        let health = Health {
            node,
            generation,
            ranks,
            memory_total: usage.memory_total,
            memory_available: usage.memory_available,
            load: usage.load,
            directories: directories.to_vec(),
            kept: self.kept.clone(),
            unauthenticated,
            newest,
            agent_memory: usage.agent_memory,
            quiet,
            waiting,
            halt,
        };
        let version = published.as_ref().map_or(1, |last| last.version + 1);
        published.insert(Published { version, health: Arc::new(health) }).clone()
    }
}

/// True if the two differ by more than noise.
fn quantities_differ(now: u64, published: u64) -> bool {
    now.abs_diff(published) > now.max(published) / NOISE
}

impl NodeUsage {
    fn differs(&self, published: &Health) -> bool {
        let (load, before) = (self.load.max(NO_LOAD), published.load.max(NO_LOAD));
        self.memory_total != published.memory_total
            || quantities_differ(self.memory_available, published.memory_available)
            || quantities_differ(self.agent_memory, published.agent_memory)
            || (load - before).abs() > load.max(before) / NOISE as f64
    }
}

/// A fault counts as a change in every report, until the orchestrator has acted on it.
fn directories_differ(now: &[DirectoryHealth], published: &[DirectoryHealth]) -> bool {
    let differ = |(now, published): (&DirectoryHealth, &DirectoryHealth)| {
        now.fault.is_some()
            || (&now.path, &now.fault, now.total) != (&published.path, &published.fault, published.total)
            || quantities_differ(now.available, published.available)
    };
    now.len() != published.len() || now.iter().zip(published).any(differ)
}

/// The part of a health report that comes from other modules.
#[derive(Debug)]
pub struct AgentStatus {
    pub node: NodeName,
    pub generation: Generation,
    pub ranks: Vec<Rank>,
    /// Unauthenticated connections since the start.
    pub unauthenticated: u64,
    pub newest: Option<CheckpointId>,
    /// Ranks that have been inactive for long.
    pub quiet: Vec<QuietRank>,
    pub waiting: Option<WaitingRanks>,
    /// The halt condition that holds.
    pub halt: Option<HaltReport>,
}

impl AgentStatus {
    /// Inactive ranks count as a change in every report: their time has grown.
    fn differs(&self, published: &Health) -> bool {
        let AgentStatus { node, generation, ranks, unauthenticated, newest, quiet, waiting, halt } = self;
        !quiet.is_empty()
            || long_wait(waiting.as_ref()) != long_wait(published.waiting.as_ref())
            || !published.quiet.is_empty()
            || (node, generation, ranks) != (&published.node, &published.generation, &published.ranks)
            || (unauthenticated, newest, halt) != (&published.unauthenticated, &published.newest, &published.halt)
    }
}

/// The call and the ranks of a long wait. One that only lasts longer than before is no change.
fn long_wait(waiting: Option<&WaitingRanks>) -> Option<(&String, &[Rank])> {
    waiting.filter(|waiting| waiting.is_long()).map(|waiting| (&waiting.call, &*waiting.ranks))
}

/// Checks the directories one after the other. The lock is not held during a check.
fn check_all(expected: &[ExpectedDirectory], directories: &Mutex<Directories>) {
    let mut is_checked = true;
    for directory in expected {
        // The metadata of a directory that is in use is in memory, also if its disk is busy.
        let device = rustix::fs::stat(&directory.real).ok().and_then(|metadata| BlockDevice::of(metadata.st_dev));
        if let Some(round) = &mut directories.lock().round {
            round.device = device;
        }
        let found = check(directory);
        let mut directories = directories.lock();
        let found = found.unwrap_or_else(|error| {
            is_checked = false;
            directories.unchecked(directory, &error)
        });
        if let Some(round) = &mut directories.round {
            round.next(Instant::now(), found);
        }
    }
    let mut directories = directories.lock();
    let found = directories.round.take().map(|round| round.done).unwrap_or_default();
    let unchecked = if is_checked { 0 } else { directories.unchecked + 1 };
    *directories = Directories { found: found.into(), checked: Some(Instant::now()), unchecked, round: None };
}

impl Directories {
    /// The last state of a directory that the agent is not able to check.
    fn unchecked(&self, directory: &ExpectedDirectory, error: &OwnedError) -> DirectoryHealth {
        let last = self.found.iter().find(|found| found.path == directory.node_path);
        match last.filter(|_| self.unchecked < LONGEST_UNCHECKED) {
            Some(last) => {
                tracing::warn!(directory = directory.node_path, %error, "directory_not_checked");
                last.clone()
            }
            None => directory.faulty(format!("cannot be checked: {error}")),
        }
    }
}

impl ExpectedDirectory {
    fn faulty(&self, fault: String) -> DirectoryHealth {
        DirectoryHealth { path: self.node_path.clone(), fault: Some(fault), full: None, total: 0, available: 0 }
    }
}

/// Checks one directory: that it exists, that no other user has a hand in it, that a file can be created and removed in
/// it, and the size of its file system.
///
/// # Errors
/// The agent has no descriptor or memory left for the check.
fn check(expected: &ExpectedDirectory) -> Result<DirectoryHealth, OwnedError> {
    let faulty = |fault: String| Ok(expected.faulty(fault));
    let directory = match OwnedDirectory::open(&expected.real, EXISTING) {
        Ok(Some(directory)) => directory,
        Ok(None) => return faulty("cannot be reached: it does not exist".to_owned()),
        Err(refused @ OwnedError::Refused { .. }) => return faulty(format!("is not used: {refused}")),
        Err(error) if is_exhaustion(&error) => return Err(error),
        Err(error) => return faulty(format!("cannot be reached: {error}")),
    };
    let (total, available) = match rustix::fs::fstatvfs(&directory) {
        Ok(sizes) => (sizes.f_blocks.saturating_mul(sizes.f_frsize), sizes.f_bavail.saturating_mul(sizes.f_frsize)),
        Err(error) => return faulty(format!("cannot be reached: {}", std::io::Error::from(error))),
    };
    let too_small = || {
        let bytes = expected.bytes.filter(|bytes| total < *bytes)?;
        Some(format!("is on a file system of {total} bytes, expected are {bytes}"))
    };
    let (mut fault, mut full) = (None, None);
    match probe(&directory) {
        Ok(()) => {}
        Err(error) if is_exhaustion(&error) => return Err(error),
        Err(error) if is_full(&error) => full = Some(format!("cannot be written: {error}")),
        Err(error) => fault = Some(format!("cannot be written: {error}")),
    }
    let fault = fault.or_else(too_small);
    Ok(DirectoryHealth { path: expected.node_path.clone(), fault, full, total, available })
}

fn is_exhaustion(error: &OwnedError) -> bool {
    error.system().is_some_and(durable::is_exhaustion)
}

/// Checkpoints use the space: a file system that is full for a moment works, and what does not fit is dropped.
fn is_full(error: &OwnedError) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    error.system().is_some_and(|source| matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
}

/// Writes one byte: an empty file can be created on a full file system.
fn probe(directory: &OwnedDirectory) -> Result<(), OwnedError> {
    let write = |mut file: File| {
        let failed = |source| OwnedError::Io { action: "write", path: directory.path().join(PROBE), source };
        file.write_all(b"x").map_err(failed)
    };
    let written = directory.truncate(PROBE, Access::Private).and_then(write);
    let removed = directory.remove_file(PROBE, Durability::Process);
    written.and(removed).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::with_error;
    use rustix::io::Errno;

    use super::*;

    fn expected(real: &Path, bytes: Option<u64>) -> ExpectedDirectory {
        ExpectedDirectory { node_path: "/ssd/user1/scr.7".to_owned(), real: real.to_owned(), bytes }
    }

    #[test]
    fn a_directory_that_can_be_written_has_no_fault_and_stays_empty() {
        let directory = tempfile::tempdir().unwrap();
        let health = check(&expected(directory.path(), Some(1))).unwrap();
        assert_eq!(health.fault, None);
        assert!(health.total > 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_a_file_in_its_place_and_a_file_system_that_is_too_small_are_faults() {
        let directory = tempfile::tempdir().unwrap();
        let fault = |real: &Path, bytes| check(&expected(real, bytes)).unwrap().fault.unwrap();
        assert!(fault(&directory.path().join("missing"), None).contains("cannot be reached"));
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(fault(&file, None).contains("is not a directory"));
        assert!(fault(directory.path(), Some(u64::MAX)).contains("expected are"));
    }

    fn of(errno: Errno) -> OwnedError {
        OwnedError::Io { action: "create", path: "/ssd/holdfast.probe".into(), source: errno.into() }
    }

    #[test]
    fn a_directory_that_the_agent_is_not_able_to_check_counts_as_it_was_found_last_for_some_rounds() {
        let base = tempfile::tempdir().unwrap();
        let directory = expected(base.path(), None);
        let state = Mutex::new(Directories::default());
        let first = state.lock().unchecked(&directory, &of(Errno::MFILE));
        assert!(first.fault.unwrap().contains("cannot be checked"), "nothing is known of it");
        let check = || {
            state.lock().round = Some(CheckRound::begin(Instant::now()));
            check_all(std::slice::from_ref(&directory), &state);
            state.lock().found[0].fault.clone()
        };
        let unable = || {
            let (fault, refused) = with_error(1, Errno::MFILE, check);
            assert!(refused.is_some());
            fault
        };
        assert_eq!(check(), None);
        assert!((0..LONGEST_UNCHECKED).all(|_| unable().is_none()));
        assert!(unable().unwrap().contains("cannot be checked"));
        assert_eq!((check(), unable()), (None, None), "counted from the last check");
    }

    #[test]
    fn no_space_is_no_fault_and_a_file_system_that_is_read_only_or_faulty_is() {
        assert!([Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().all(|errno| is_full(&of(errno))));
        assert!(![Errno::ROFS, Errno::IO, Errno::ACCESS].into_iter().any(|errno| is_full(&of(errno))));
    }

    fn status() -> AgentStatus {
        AgentStatus {
            node: "node1".into(),
            generation: Generation(2),
            ranks: vec![Rank(3)],
            unauthenticated: 0,
            newest: Some(CheckpointId(4)),
            quiet: Vec::new(),
            waiting: None,
            halt: None,
        }
    }

    fn usage(memory_available: u64, load: f64) -> NodeUsage {
        NodeUsage { memory_total: 1 << 30, memory_available, load, agent_memory: 20 << 20 }
    }

    /// Sets the cached values.
    fn set(monitor: &HealthMonitor, usage: NodeUsage, available: u64, fault: Option<&str>) {
        *monitor.usage.lock() = Some((Instant::now() + Duration::from_secs(600), usage));
        let path = "/ssd/user1/scr.7".to_owned();
        let found =
            vec![DirectoryHealth { path, fault: fault.map(str::to_owned), full: None, total: 1 << 40, available }];
        let checked = Some(Instant::now() + Duration::from_secs(600));
        *monitor.directories.lock() = Directories { found: found.into(), checked, ..Directories::default() };
    }

    fn monitor(expected: Vec<ExpectedDirectory>) -> HealthMonitor {
        HealthMonitor {
            expected,
            disk_timeout: Duration::from_secs(8),
            usage: Mutex::default(),
            system: Mutex::default(),
            directories: Arc::default(),
            kept: Vec::new(),
            checked: Arc::default(),
            published: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn a_report_stays_the_same_until_something_changes_by_more_than_noise() {
        let monitor = monitor(Vec::new());
        let version = async |status| monitor.report(status).await.version;
        set(&monitor, usage(1000, 0.1), 10_000, None);
        assert_eq!(version(status()).await, 1);
        set(&monitor, usage(1050, 0.4), 9_500, None);
        assert_eq!(version(status()).await, 1);
        set(&monitor, usage(1100, 0.4), 9_500, None);
        let report = monitor.report(status()).await;
        assert_eq!((report.version, report.health.memory_available), (2, 1100));
        set(&monitor, usage(1100, 2.0), 9_500, None);
        assert_eq!(version(status()).await, 3);
        set(&monitor, usage(1100, 2.0), 5_000, None);
        assert_eq!(version(status()).await, 4);
        assert_eq!(version(AgentStatus { newest: None, ..status() }).await, 5);
        assert_eq!(version(AgentStatus { ranks: Vec::new(), ..status() }).await, 6);
    }

    #[tokio::test]
    async fn faults_and_inactive_ranks_make_every_report_a_new_version() {
        let monitor = monitor(Vec::new());
        let quiet = QuietRank {
            rank: Rank(3),
            waiting_in: None,
            quiet_for: Duration::from_secs(60),
            idle_for: Duration::from_secs(60),
        };
        set(&monitor, usage(1000, 0.1), 10_000, None);
        for version in [1, 2] {
            let status = AgentStatus { quiet: vec![quiet.clone()], ..status() };
            assert_eq!(monitor.report(status).await.version, version);
        }
        assert_eq!(monitor.report(status()).await.version, 3, "it moves again");
        set(&monitor, usage(1000, 0.1), 10_000, Some("cannot be written"));
        for version in [4, 5] {
            assert_eq!(monitor.report(status()).await.version, version);
        }
        set(&monitor, usage(1000, 0.1), 10_000, None);
        assert_eq!(monitor.report(status()).await.version, 6);
        assert_eq!(monitor.report(status()).await.version, 6);
    }

    #[tokio::test]
    async fn a_wait_makes_a_new_version_when_it_is_long_and_when_other_ranks_wait() {
        let monitor = monitor(Vec::new());
        set(&monitor, usage(1000, 0.1), 10_000, None);
        let wait = async |ranks: &[u32], millis| {
            let ranks = ranks.iter().map(|rank| Rank(*rank)).collect();
            let call = "start_checkpoint".to_owned();
            let waiting = WaitingRanks { call, ranks, waits_for: Duration::from_millis(millis) };
            monitor.report(AgentStatus { waiting: Some(waiting), ..status() }).await.version
        };
        assert_eq!(monitor.report(status()).await.version, 1);
        assert_eq!((wait(&[3], 10).await, wait(&[3], 990).await), (1, 1));
        assert_eq!((wait(&[3], 1200).await, wait(&[3], 70_000).await), (2, 2));
        assert_eq!(wait(&[3, 4], 70_250).await, 3);
        assert_eq!(monitor.report(status()).await.version, 4, "they have their answers");
    }

    #[tokio::test]
    async fn names_the_directory_whose_check_takes_longer_than_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let other = ExpectedDirectory { node_path: "/nvme".to_owned(), ..expected(directory.path(), None) };
        let monitor = monitor(vec![expected(directory.path(), None), other]);
        monitor.directories().await;
        let hang = |ago: u64, done: usize| {
            let mut directories = monitor.directories.lock();
            let done = directories.found[..done].to_vec();
            let since = Instant::now() - Duration::from_secs(ago);
            directories.round = Some(CheckRound { done, ..CheckRound::begin(since) });
        };
        let faulty = async || {
            let directories = monitor.directories().await.to_vec().into_iter();
            directories.filter_map(|directory| Some((directory.path, directory.fault?))).collect::<Vec<_>>()
        };
        hang(7, 1);
        assert_eq!(faulty().await, []);
        for (done, path) in [(0, "/ssd/user1/scr.7"), (1, "/nvme")] {
            hang(12, done);
            let fault = "its file system has not responded for 12 s (health.disk_timeout)".to_owned();
            assert_eq!(faulty().await, [(path.to_owned(), fault)]);
        }
    }

    #[test]
    fn a_disk_that_completes_other_work_is_busy_and_does_not_hang() {
        let base = tempfile::tempdir().unwrap();
        let statistics = base.path().join("stat");
        fs::write(&statistics, "       3        0       24        1        5        0\n").unwrap();
        let (directories, limit) = ([expected(base.path(), None)], Duration::from_secs(8));
        let round = |ago: u64| {
            let device = BlockDevice { completed: completed(&statistics).unwrap(), statistics: statistics.clone() };
            CheckRound { device: Some(device), ..CheckRound::begin(Instant::now() - Duration::from_secs(ago)) }
        };
        assert!(round(12).late(&directories, limit).is_some());
        let (mut busy, mut too_long) = (round(12), round(90));
        fs::write(&statistics, "       3        0       24        1        6        0\n").unwrap();
        assert_eq!(busy.late(&directories, limit), None);
        assert!(too_long.late(&directories, limit).is_some());
    }

    #[tokio::test]
    async fn a_poll_is_answered_while_the_first_check_hangs() {
        let mut monitor = monitor(vec![expected(Path::new("/"), None)]);
        monitor.disk_timeout = Duration::from_millis(10);
        let since = Instant::now();
        monitor.directories.lock().round = Some(CheckRound::begin(since));
        let found = monitor.directories().await;
        assert!(found[0].fault.as_ref().is_some_and(|fault| fault.contains("has not responded")), "{found:?}");
        monitor.disk_timeout = Duration::from_secs(600);
        monitor.directories.lock().round = Some(CheckRound::begin(since - FIRST_CHECK_AWAITED));
        assert!(monitor.directories().await.is_empty());
    }

    #[tokio::test]
    async fn the_state_of_directories_is_cached_until_it_is_old() {
        let directory = tempfile::tempdir().unwrap();
        let removed = directory.path().join("cache");
        fs::create_dir(&removed).unwrap();
        let monitor = monitor(vec![expected(&removed, None)]);
        // Also for a poll during the first check.
        let (one, other) = tokio::join!(monitor.directories(), monitor.directories());
        assert_eq!((&one[0].fault, &other[0].fault), (&None, &None));
        assert_eq!(monitor.directories().await[0].fault, None);
        fs::remove_dir(&removed).unwrap();
        assert_eq!(monitor.directories().await[0].fault, None);
        monitor.directories.lock().checked = None;
        assert!(monitor.directories().await[0].fault.is_some());
    }
}
