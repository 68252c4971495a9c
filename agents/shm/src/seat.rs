//! A copy's view of its pair.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_model::pair::Side;
use holdfast_process::identity::start_time;
use parking_lot::Mutex;
use rustix::process::Signal;
use rustix::thread::futex::{self, Timespec};
use rustix::time::ClockId;

use crate::control::{MOST_INCARNATION, Request, SlotState, beat, request};
use crate::error::ShmError;
use crate::layout::{AreaGeometry, UNIT};
use crate::mapping::{Area, Mapping};
use crate::process::nanoseconds;
use crate::registry::open_checked;
use crate::ring::Checkpoint;

/// A copy that sleeps looks this often whether its registry still exists: a job that was removed wakes nobody.
const LOOK: Duration = Duration::from_secs(5);

/// The place of a copy in its pair.
#[derive(Debug)]
pub struct Seat {
    /// To see whether it was removed.
    file: File,
    /// The beginning of the file: the counter of registrations.
    header: Mapping,
    mapping: Mapping,
    geometry: AreaGeometry,
    /// The number of the pair.
    pub pair: u32,
    /// The side of this copy.
    pub side: Side,
    incarnation: u64,
    beats: AtomicU64,
    /// The number of the next checkpoint, after the first one. Locked while one is written.
    next: Mutex<Option<u64>>,
}

/// Why a copy no longer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// It is its turn.
    Awake,
    /// It must end.
    Stop,
}

impl Seat {
    /// Registers this process as a copy, asleep.
    ///
    /// # Errors
    /// The registry cannot be used, has no such pair, or expects another incarnation, or another process that runs has
    /// registered as this copy.
    pub fn take(path: &Path, pair: u32, side: Side, incarnation: u64) -> Result<Seat, ShmError> {
        let failed = |what, source| ShmError::Io { what, path: path.to_owned(), source };
        let (file, geometry) = open_checked(path)?;
        let pairs = geometry.areas.len() as u32;
        let area = *geometry.areas.get(pair as usize).ok_or(ShmError::NoSuchPair { pair, pairs })?;
        let header = Mapping::new(&file, 0, UNIT).map_err(|source| failed("map", source))?;
        let mapping = Mapping::new(&file, area.offset, area.bytes).map_err(|source| failed("map", source))?;
        // While nobody waits for it: the first checkpoints after waking then cause no page faults.
        mapping.populate();
        let pid = std::process::id();
        let started =
            start_time(pid).ok_or_else(|| failed("enter this process in", std::io::ErrorKind::NotFound.into()));
        let (started, next) = (started?, Mutex::new(None));
        let seat =
            Seat { file, header, mapping, geometry: area, pair, side, incarnation, beats: AtomicU64::new(0), next };
        let area = seat.area()?;
        let expects = || area.control(side).expected.load(Ordering::Acquire);
        let expected = expects();
        if incarnation == 0 || incarnation > MOST_INCARNATION || expected != incarnation {
            return Err(ShmError::Superseded { side, incarnation, expected });
        }
        let slot = area.slot(side);
        slot.claim(pid, started).map_err(|other| ShmError::Taken { side, pid, other })?;
        // The agent may have cleared the slot for another one meanwhile.
        let expected = expects();
        if expected != incarnation {
            slot.give_up(pid, started);
            return Err(ShmError::Superseded { side, incarnation, expected });
        }
        slot.register(incarnation, pid, started);
        if let Some(counter) = seat.header.registrations() {
            counter.fetch_add(1, Ordering::Release);
            // Cannot fail: the address is valid.
            let _ = futex::wake(counter, futex::Flags::empty(), u32::MAX >> 1);
        }
        Ok(seat)
    }

    fn area(&self) -> Result<Area<'_>, ShmError> {
        let area = self.mapping.area(0, &self.geometry);
        area.ok_or(ShmError::NoSuchPair { pair: self.pair, pairs: self.pair })
    }

    /// The largest checkpoint, in bytes.
    pub fn most_checkpoint_bytes(&self) -> u64 {
        self.geometry.capacity
    }

    fn request(&self) -> Result<Request, ShmError> {
        let word = self.area()?.control(self.side).word.load(Ordering::Acquire);
        request(word, self.incarnation).ok_or(ShmError::DamagedWord(self.side))
    }

    /// Sleeps until this copy is woken or told to stop. Uses no processor time meanwhile. Also stops when the registry
    /// has been removed. A copy that was woken has beaten once when this returns.
    ///
    /// # Errors
    /// The control word is damaged.
    pub fn wait(&self) -> Result<Woken, ShmError> {
        let area = self.area()?;
        let word = &area.control(self.side).word;
        loop {
            let seen = word.load(Ordering::Acquire);
            match request(seen, self.incarnation).ok_or(ShmError::DamagedWord(self.side))? {
                Request::Stop => return Ok(Woken::Stop),
                Request::Awake if self.is_fenced() => return Ok(Woken::Stop),
                Request::Awake => {
                    self.begin(area);
                    return Ok(Woken::Awake);
                }
                Request::Wait if self.is_removed() => return Ok(Woken::Stop),
                Request::Wait => {
                    let look = Timespec::try_from(LOOK).ok();
                    // Woken, changed, interrupted or timed out: the word says what to do.
                    let _ = futex::wait(word, futex::Flags::empty(), seen, look.as_ref());
                }
            }
        }
    }

    fn begin(&self, area: Area<'_>) {
        let slot = area.slot(self.side);
        slot.awoken_at.store(nanoseconds(ClockId::Monotonic), Ordering::Relaxed);
        self.beat();
        slot.set_state(self.incarnation, SlotState::Awake);
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Whether this copy runs under a lease, which [`Self::beat`] or [`Self::obey_lease`] must look at.
    pub fn has_lease(&self) -> bool {
        self.area().is_ok_and(|area| held_until(area, self.side) != 0)
    }

    /// Kills this process group if the lease has run out: from then on, the other copy may be awake on another node.
    pub fn obey_lease(&self) {
        if self.lease_expired() {
            kill_group();
        }
    }

    /// Whether the agent has ended this copy, or has started another one in its place: nothing that this one does has
    /// an effect any more.
    pub fn is_fenced(&self) -> bool {
        let Ok(area) = self.area() else { return false };
        let control = area.control(self.side);
        let expected = control.expected.load(Ordering::Acquire);
        let is_superseded = (self.incarnation + 1..=MOST_INCARNATION).contains(&expected) && self.stop_requested();
        is_superseded || control.ended.load(Ordering::Acquire) == self.incarnation
    }

    /// Kills this process group if the agent has ended this copy, and its signal has not come here: what the agent has
    /// started may have put the program into another process group.
    pub fn obey_fence(&self) {
        if self.is_fenced() {
            kill_group();
        }
    }

    fn lease_expired(&self) -> bool {
        let until = self.area().map_or(0, |area| held_until(area, self.side));
        until != 0 && nanoseconds(ClockId::Boottime) >= until
    }

    /// A heartbeat. To be called by one thread. Kills this process group if its lease has run out. Without effect when
    /// the agent has ended this copy.
    pub fn beat(&self) {
        self.obey_lease();
        if self.is_fenced() {
            return;
        }
        let count = self.beats.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(area) = self.area() {
            area.beats(self.side).store(beat(self.incarnation, count), Ordering::Relaxed);
        }
    }

    /// Whether this copy must end: it was told to, or another one was started in its place.
    pub fn stop_requested(&self) -> bool {
        self.request().is_ok_and(|request| request == Request::Stop)
    }

    /// The work of the pair is done: if this process now ends with exit code 0, the pair is finished.
    pub fn finish(&self) {
        self.set_state(SlotState::Finished);
    }

    /// There is more work: takes [`Self::finish`] back.
    pub fn resume(&self) {
        self.set_state(SlotState::Awake);
    }

    fn set_state(&self, state: SlotState) {
        if let Ok(area) = self.area() {
            area.slot(self.side).set_state(self.incarnation, state);
        }
    }

    /// Stores a checkpoint, and returns its number.
    ///
    /// # Errors
    /// It is too large, this copy is not awake, or another one was started in its place.
    pub fn update_checkpoint(&self, tag: i64, bytes: &[u8]) -> Result<u64, ShmError> {
        let mut next = self.next.lock();
        let area = self.area()?;
        let control = area.control(self.side);
        let expected = control.expected.load(Ordering::Acquire);
        let (side, incarnation) = (self.side, self.incarnation);
        if expected != incarnation {
            return Err(ShmError::Superseded { side, incarnation, expected });
        }
        // A copy that was told to stop may store its last one.
        if self.request()? == Request::Wait || self.beats.load(Ordering::Relaxed) == 0 {
            return Err(ShmError::NotAwake(side));
        }
        if self.is_fenced() {
            return Err(ShmError::Ended { side, incarnation });
        }
        if self.lease_expired() {
            return Err(ShmError::LeaseExpired(side));
        }
        let sequence = match *next {
            Some(next) => next,
            None => area.newest().map_or(0, |newest| newest.sequence).saturating_add(1),
        };
        let following = sequence.checked_add(1).ok_or(ShmError::NoNextSequence(self.pair))?;
        area.store(sequence, Some(side), tag, bytes)?;
        *next = Some(following);
        Ok(sequence)
    }

    /// Reads the newest checkpoint that is intact; it replaces the content of `into`. `None`: there is none yet.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn newest_checkpoint(&self, into: &mut Vec<u8>) -> Result<Option<Checkpoint>, ShmError> {
        self.area()?.load(into)
    }
}

/// The agent has given the copy a process group of its own.
fn kill_group() {
    let _ = rustix::process::kill_current_process_group(Signal::KILL);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

fn held_until(area: Area<'_>, side: Side) -> u64 {
    area.control(side).held_until.load(Ordering::Acquire)
}
