//! The agent's view of a registry, and how the file is created and checked.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_model::pair::Side;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::control::{Control, CopySlot, MOST_INCARNATION, Request, beat, beats, word};
use crate::error::ShmError;
use crate::layout::{FIXED_BYTES, Geometry, Layout, REGISTRATIONS};
use crate::mapping::{Area, Mapping};
use crate::ring::{Checkpoint, CheckpointView};

/// A registry as the agent uses it.
#[derive(Debug)]
pub struct Registry {
    mapping: Mapping,
    geometry: Geometry,
    /// Device and inode of the file.
    file: (u64, u64),
    /// The expected incarnations, in private memory.
    expected: Vec<[AtomicU64; 2]>,
}

impl Registry {
    /// Creates the file, with all its space, and maps it. It appears under its path when it is complete.
    ///
    /// # Errors
    /// The file exists, the layout is out of range, or the system refuses it, for example for lack of space.
    pub fn create(path: &Path, layout: &Layout, job: &str) -> Result<Registry, ShmError> {
        let geometry = Geometry::of(layout, job_hash(job))?;
        let new = path.with_added_extension("new");
        let result = create_file(&new, &geometry).and_then(|()| {
            // Unlike `rename`, this refuses to replace an existing file.
            fs::hard_link(&new, path).map_err(|source| failed("create", path, source))
        });
        let _ = fs::remove_file(&new);
        result?;
        Registry::open(path)
    }

    /// Opens and checks a registry that exists, and takes over the incarnations that it expects.
    ///
    /// # Errors
    /// The file is not a registry of this user, or damaged.
    pub fn open(path: &Path) -> Result<Registry, ShmError> {
        let (file, geometry) = open_checked(path)?;
        let map = Mapping::new(&file, 0, geometry.file_bytes);
        let mapping = map.map_err(|source| failed("map", path, source))?;
        let found = file.metadata().map_err(|source| failed("open", path, source))?;
        let registry = Registry { mapping, expected: Vec::new(), geometry, file: (found.dev(), found.ino()) };
        let expected = (0..registry.pairs()).map(|pair| {
            Side::BOTH.map(|side| {
                let expected =
                    registry.control(pair, side).map_or(0, |control| control.expected.load(Ordering::Acquire));
                // Garbage: no copy is adopted.
                AtomicU64::new(if expected <= MOST_INCARNATION { expected } else { 0 })
            })
        });
        let expected = expected.collect();
        Ok(Registry { expected, ..registry })
    }

    /// Writes the header again if it was overwritten: no program that starts could use the registry. True if it was.
    ///
    /// # Errors
    /// There is another file under the path, of another size, or the system refuses it.
    pub fn repair(&self, path: &Path) -> Result<bool, ShmError> {
        if open_checked(path).is_ok_and(|(_, geometry)| geometry == self.geometry) {
            return Ok(false);
        }
        let file = File::from(open(path).map_err(|errno| failed("open", path, errno))?);
        let found = file.metadata().map_err(|source| failed("open", path, source))?;
        if (found.dev(), found.ino()) != self.file || found.len() != self.geometry.file_bytes {
            let reason = "it is not the file that the agent has mapped, or was truncated".to_owned();
            return Err(ShmError::Refused { path: path.to_owned(), reason });
        }
        let header = self.geometry.header();
        // Not the counter of registrations, which is between the two.
        for part in [0..REGISTRATIONS, FIXED_BYTES..header.len()] {
            let (bytes, offset) = (header.get(part.clone()).unwrap_or_default(), part.start as u64);
            file.write_all_at(bytes, offset).map_err(|source| failed("write", path, source))?;
        }
        Ok(true)
    }

    pub fn pairs(&self) -> u32 {
        self.geometry.areas.len() as u32
    }

    /// What the registry was made for.
    pub fn layout(&self) -> Layout {
        let checkpoint_bytes = self.geometry.areas.iter().map(|area| area.capacity).collect();
        Layout { pairs: self.pairs(), checkpoint_bytes, ring: self.geometry.ring }
    }

    /// Whether the registry was made for this job.
    pub fn is_of_job(&self, job: &str) -> bool {
        self.geometry.job_hash == job_hash(job)
    }

    fn area(&self, pair: u32) -> Option<Area<'_>> {
        let geometry = self.geometry.areas.get(pair as usize)?;
        self.mapping.area(geometry.offset, geometry)
    }

    fn control(&self, pair: u32, side: Side) -> Option<&Control> {
        Some(self.area(pair)?.control(side))
    }

    fn some_area(&self, pair: u32) -> Result<Area<'_>, ShmError> {
        self.area(pair).ok_or(ShmError::NoSuchPair { pair, pairs: self.pairs() })
    }

    fn expected(&self, pair: u32, side: Side) -> u64 {
        let pair = self.expected.get(pair as usize);
        pair.and_then(|sides| sides.get(side.index())).map_or(0, |expected| expected.load(Ordering::Relaxed))
    }

    /// The heartbeats of the expected incarnation; 0 before the first one. One relaxed load.
    pub fn beats(&self, pair: u32, side: Side) -> u64 {
        let beat = self.area(pair).map_or(0, |area| area.beats(side).load(Ordering::Relaxed));
        beats(beat, self.expected(pair, side))
    }

    /// What the registry says about a copy.
    pub fn copy(&self, pair: u32, side: Side) -> CopySlot {
        self.area(pair).map_or(CopySlot::EMPTY, |area| area.slot(side).read(self.expected(pair, side)))
    }

    /// To be called before a copy is started: clears its slot. Older incarnations have no effect from here on, and
    /// those that sleep are told to stop. Incarnations count from 1; 0 expects no copy.
    pub fn expect(&self, pair: u32, side: Side, incarnation: u64) {
        let incarnation = incarnation.min(MOST_INCARNATION);
        let (Some(area), Some(expected)) = (self.area(pair), self.expected.get(pair as usize)) else { return };
        expected[side.index()].store(incarnation, Ordering::Relaxed);
        area.slot(side).clear();
        area.beats(side).store(beat(incarnation, 0), Ordering::Relaxed);
        let control = area.control(side);
        control.held_until.store(0, Ordering::Release);
        control.ended.store(0, Ordering::Release);
        control.expected.store(incarnation, Ordering::Release);
        self.request(pair, side, incarnation, Request::Wait);
    }

    /// Wakes a copy, which may not have registered yet. Has no effect on other incarnations than the expected one.
    pub fn wake(&self, pair: u32, side: Side, incarnation: u64) {
        self.request(pair, side, incarnation, Request::Awake);
    }

    /// Whether the expected copy was woken, whether or not it has noticed that.
    pub fn is_woken(&self, pair: u32, side: Side) -> bool {
        let (expected, control) = (self.expected(pair, side), self.control(pair, side));
        let woken = word(expected, Request::Awake);
        expected != 0 && control.is_some_and(|control| control.word.load(Ordering::Acquire) == woken)
    }

    /// Tells a copy to stop. Has no effect on other incarnations than the expected one.
    pub fn request_stop(&self, pair: u32, side: Side, incarnation: u64) {
        self.request(pair, side, incarnation, Request::Stop);
    }

    /// The copy is ended: from here on it stores no checkpoint and has no heartbeats, and its library ends the process
    /// where a signal has not reached it. Has no effect on other incarnations than the expected one.
    pub fn fence(&self, pair: u32, side: Side, incarnation: u64) {
        if incarnation == 0 || incarnation != self.expected(pair, side) {
            return;
        }
        if let Some(control) = self.control(pair, side) {
            control.ended.store(incarnation, Ordering::Release);
            self.request(pair, side, incarnation, Request::Stop);
        }
    }

    fn request(&self, pair: u32, side: Side, incarnation: u64, request: Request) {
        if incarnation != self.expected(pair, side) {
            return;
        }
        if let Some(control) = self.control(pair, side) {
            control.word.store(word(incarnation, request), Ordering::Release);
            // Cannot fail: the address is valid.
            let _ = futex::wake(&control.word, futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    /// The copy of this side, once awake, may run until this time, nanoseconds of `CLOCK_BOOTTIME`; then its heartbeat
    /// kills its process group, also when no agent is left to do so. `None`: for ever. [`Self::expect`] sets it to
    /// that.
    pub fn hold_until(&self, pair: u32, side: Side, until: Option<u64>) {
        if let Some(control) = self.control(pair, side) {
            control.held_until.store(until.map_or(0, |until| until.max(1)), Ordering::Release);
        }
    }

    /// What [`Self::hold_until`] has set.
    pub fn held_until(&self, pair: u32, side: Side) -> Option<u64> {
        self.control(pair, side).map(|control| control.held_until.load(Ordering::Acquire)).filter(|until| *until != 0)
    }

    /// Counts the registrations of all pairs.
    pub fn registrations(&self) -> u32 {
        self.mapping.registrations().map_or(0, |counter| counter.load(Ordering::Acquire))
    }

    /// The newest checkpoint; its bytes are not read.
    pub fn newest(&self, pair: u32) -> Option<CheckpointView> {
        self.area(pair)?.newest()
    }

    /// Reads the newest checkpoint that is intact; it replaces the content of `into`.
    ///
    /// # Errors
    /// There is no such pair, or no memory.
    pub fn read_newest(&self, pair: u32, into: &mut Vec<u8>) -> Result<Option<Checkpoint>, ShmError> {
        self.some_area(pair)?.load(into)
    }

    /// Stores a checkpoint that the pair's copy on another node has written. To be called in the order in which that
    /// node's agent has sent them: what is newer here is from a copy that lost its turn, and is dropped. Repeating the
    /// last call changes nothing.
    ///
    /// # Errors
    /// It is too large, or a copy of this node is awake: what arrives then is too late.
    pub fn put_mirrored(&self, pair: u32, sequence: u64, tag: i64, bytes: &[u8]) -> Result<(), ShmError> {
        self.asleep_area(pair)?.store_mirrored(pair, sequence, tag, bytes, false)
    }

    /// The same; drops all other checkpoints of the pair once this one is stored: those of another course of the work.
    ///
    /// # Errors
    /// As [`Self::put_mirrored`]; then nothing is dropped.
    pub fn replace_by_mirrored(&self, pair: u32, sequence: u64, tag: i64, bytes: &[u8]) -> Result<(), ShmError> {
        self.asleep_area(pair)?.store_mirrored(pair, sequence, tag, bytes, true)
    }

    /// The area of a pair of which no copy of this node is awake.
    fn asleep_area(&self, pair: u32) -> Result<Area<'_>, ShmError> {
        let area = self.some_area(pair)?;
        let awake = Side::BOTH.into_iter().find(|side| self.is_woken(pair, *side));
        awake.map_or(Ok(area), |side| Err(ShmError::AwakeHere(side)))
    }

    /// Changes with each new checkpoint of the pair. One load.
    pub fn checkpoint_counter(&self, pair: u32) -> u64 {
        self.area(pair).map_or(0, |area| area.words().newest.0.load(Ordering::Acquire))
    }
}

fn job_hash(job: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(job.as_bytes())
}

fn failed(what: &'static str, path: &Path, source: impl Into<io::Error>) -> ShmError {
    ShmError::Io { what, path: path.to_owned(), source: source.into() }
}

/// Writes a complete registry under a temporary path.
fn create_file(path: &Path, geometry: &Geometry) -> Result<(), ShmError> {
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            ShmError::NoSpace { path: path.to_owned(), bytes: geometry.file_bytes }
        }
        _ => failed("create", path, source),
    };
    // Left by an agent that was killed while it created it; no other program writes to this directory.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(rustix::fs::open(path, flags, mode).map_err(|errno| failed(errno.into()))?);
    // The umask may have removed bits.
    rustix::fs::fchmod(&file, mode).map_err(|errno| failed(errno.into()))?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, geometry.file_bytes) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&file, geometry.file_bytes).map_err(failed)?,
        Err(errno) => return Err(failed(errno.into())),
    }
    file.write_all_at(&geometry.header(), 0).map_err(failed)
}

/// Allocates the space of a file where `fallocate` is missing.
fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let piece = zeros.get(..left.min(zeros.len() as u64) as usize).unwrap_or_default();
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

/// Opens a file; is not blocked by a pipe in its place.
fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// Opens a registry, and checks whose it is and its header.
pub(crate) fn open_checked(path: &Path) -> Result<(File, Geometry), ShmError> {
    let refused = |reason: String| ShmError::Refused { path: PathBuf::from(path), reason };
    let file = match open(path) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(refused("it is a symbolic link".to_owned())),
        Err(errno) => return Err(failed("open", path, errno)),
    };
    let found = file.metadata().map_err(|source| failed("open", path, source))?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(refused(format!("it belongs to user {}, and this process runs as {user}", found.uid())));
    }
    let mode = found.mode() & 0o7777;
    if mode != 0o600 {
        return Err(refused(format!("its mode is {mode:04o}, and must be 0600")));
    }
    let mut fixed = [0; FIXED_BYTES];
    if found.len() < fixed.len() as u64 {
        return Err(refused(format!("it has only {} bytes", found.len())));
    }
    file.read_exact_at(&mut fixed, 0).map_err(|source| failed("read", path, source))?;
    let geometry = Geometry::read(&fixed, found.len(), |bytes| {
        let mut table = vec![0; bytes];
        let read = file.read_exact_at(&mut table, FIXED_BYTES as u64);
        read.map(|()| table).map_err(|error| format!("its table of pairs cannot be read: {error}"))
    });
    Ok((file, geometry.map_err(refused)?))
}

#[cfg(test)]
mod tests;
