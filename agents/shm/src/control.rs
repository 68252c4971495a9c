//! The words of a pair. The agent writes control words, a copy its heartbeat and its slot; each names the incarnation
//! that it is for, so that what an older one writes has no effect.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use holdfast_process::identity::running_since;

use crate::layout::MOST_RING;

pub const MOST_INCARNATION: u64 = (1 << 48) - 1;

/// Bits of a heartbeat that count.
const BEAT_BITS: u32 = 40;
const BEAT_COUNT: u64 = (1 << BEAT_BITS) - 1;
const STATE_BITS: u32 = 8;
const WORD_BITS: u32 = 2;

/// The first page of an area. Lines of 128 bytes, because processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ControlPage {
    pub beats: [Line<AtomicU64>; 2],
    pub controls: [Line<Control>; 2],
    pub slots: [Line<Slot>; 2],
    pub newest: Line<AtomicU64>,
    reserved: Line<AtomicU64>,
    pub heads: [Head; MOST_RING as usize],
}

// The documented offsets.
const _: () = assert!(std::mem::offset_of!(ControlPage, controls) == 256);
const _: () = assert!(std::mem::offset_of!(ControlPage, slots) == 512);
const _: () = assert!(std::mem::offset_of!(ControlPage, newest) == 768);
const _: () = assert!(std::mem::offset_of!(ControlPage, heads) == 1024);
const _: () = assert!(size_of::<ControlPage>() <= 4096 && size_of::<Head>() == 64);

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub T);

/// Written by the agent.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// A futex word: the incarnation's lowest bits, and what it must do.
    pub word: AtomicU32,
    unused: AtomicU32,
    /// The incarnation that was started last; 0: none.
    pub expected: AtomicU64,
    /// The end of the lease, nanoseconds of `CLOCK_BOOTTIME`; 0: the pair needs none.
    pub held_until: AtomicU64,
    /// The incarnation that was ended last; what it does has no effect any more. 0: none.
    pub ended: AtomicU64,
}

/// Written by the copy.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// The incarnation and its state. Written last when the copy registers.
    pub state: AtomicU64,
    pub pid: AtomicU64,
    pub start_time: AtomicU64,
    /// CRC32 of incarnation, process id and start time.
    pub check: AtomicU64,
    /// Monotonic clock, nanoseconds.
    pub awoken_at: AtomicU64,
    /// The process that may register: see [`claim_of`]. 0: none has claimed the slot.
    pub claim: AtomicU64,
}

/// The head of an entry of the ring; see [`crate::ring`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Head {
    /// 0 while the entry is written.
    pub sequence: AtomicU64,
    pub length: AtomicU64,
    pub tag: AtomicI64,
    /// CRC32 of the bytes (upper half) and of the other fields (lower half).
    pub sums: AtomicU64,
    pub origin: AtomicU64,
    /// Boot-time clock, nanoseconds.
    pub stored_at: AtomicU64,
}

/// What a copy must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Wait,
    Awake,
    Stop,
}

/// The control word of an incarnation.
pub(crate) fn word(incarnation: u64, request: Request) -> u32 {
    let request = match request {
        Request::Wait => 0,
        Request::Awake => 1,
        Request::Stop => 2,
    };
    ((incarnation as u32) << WORD_BITS) | request
}

/// What a control word requests of an incarnation. A word for another incarnation: it must stop. `None`: no such word.
pub(crate) fn request(word: u32, incarnation: u64) -> Option<Request> {
    if word >> WORD_BITS != (incarnation as u32) << WORD_BITS >> WORD_BITS {
        return Some(Request::Stop);
    }
    match word & ((1 << WORD_BITS) - 1) {
        0 => Some(Request::Wait),
        1 => Some(Request::Awake),
        2 => Some(Request::Stop),
        _ => None,
    }
}

/// The heartbeat of an incarnation.
pub(crate) fn beat(incarnation: u64, count: u64) -> u64 {
    (incarnation << BEAT_BITS) | (count & BEAT_COUNT)
}

/// The count of a heartbeat; 0 if it is that of another incarnation.
pub(crate) fn beats(beat: u64, incarnation: u64) -> u64 {
    if beat >> BEAT_BITS == (incarnation << BEAT_BITS) >> BEAT_BITS { beat & BEAT_COUNT } else { 0 }
}

/// The state of a copy as the registry has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    Empty,
    /// A copy is expected, and has not registered.
    Starting,
    /// It waits for its turn.
    Asleep,
    /// It has been woken, and has noticed that.
    Awake,
    /// Its work is done; it may still run.
    Finished,
    Damaged,
}

const ASLEEP: u64 = 1;
const AWAKE: u64 = 2;
const FINISHED: u64 = 3;

/// What the registry says about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySlot {
    /// The expected incarnation; 0: none.
    pub incarnation: u64,
    pub state: SlotState,
    /// Its process; 0 unless it has registered.
    pub pid: u32,
    /// When that was started ([`holdfast_process::identity::start_time`]); 0 unless it has registered.
    pub start_time: u64,
    /// When it noticed that it was woken, monotonic clock, nanoseconds; 0 if it was not.
    pub awoken_at_ns: u64,
}

impl CopySlot {
    pub const EMPTY: CopySlot =
        CopySlot { incarnation: 0, state: SlotState::Empty, pid: 0, start_time: 0, awoken_at_ns: 0 };
}

impl Slot {
    /// Empties the slot: its state first, so that no reader takes old fields for those of a copy.
    pub fn clear(&self) {
        self.state.store(0, Ordering::Release);
        for field in [&self.pid, &self.start_time, &self.check, &self.awoken_at] {
            field.store(0, Ordering::Relaxed);
        }
        self.claim.store(0, Ordering::Release);
    }

    /// Claims the slot for a process, unless another one that runs has done so.
    ///
    /// # Errors
    /// The other one's process id.
    pub fn claim(&self, pid: u32, start_time: u64) -> Result<(), u32> {
        let own = claim_of(pid, start_time);
        let mut found = self.claim.load(Ordering::Acquire);
        while found != own {
            let other = (found >> u32::BITS) as u32;
            if found != 0 && running_since(other).is_some_and(|since| claim_of(other, since) == found) {
                return Err(other);
            }
            match self.claim.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(changed) => found = changed,
            }
        }
        Ok(())
    }

    pub fn give_up(&self, pid: u32, start_time: u64) {
        let own = claim_of(pid, start_time);
        let _ = self.claim.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Registers a copy, asleep.
    pub fn register(&self, incarnation: u64, pid: u32, start_time: u64) {
        self.pid.store(pid.into(), Ordering::Relaxed);
        self.start_time.store(start_time, Ordering::Relaxed);
        self.check.store(identity_check(incarnation, pid.into(), start_time), Ordering::Relaxed);
        self.awoken_at.store(0, Ordering::Relaxed);
        self.set_state(incarnation, SlotState::Asleep);
    }

    /// Changes the state of a registered copy.
    pub fn set_state(&self, incarnation: u64, state: SlotState) {
        let state = match state {
            SlotState::Awake => AWAKE,
            SlotState::Finished => FINISHED,
            _ => ASLEEP,
        };
        self.state.store((incarnation << STATE_BITS) | state, Ordering::Release);
    }

    /// The copy of the expected incarnation.
    pub fn read(&self, expected: u64) -> CopySlot {
        let nobody = |state| CopySlot { incarnation: expected, state, ..CopySlot::EMPTY };
        if expected == 0 {
            return CopySlot::EMPTY;
        }
        let state = self.state.load(Ordering::Acquire);
        if state >> STATE_BITS != expected {
            // An older incarnation, or not registered yet.
            return nobody(SlotState::Starting);
        }
        let state = match state & ((1 << STATE_BITS) - 1) {
            ASLEEP => SlotState::Asleep,
            AWAKE => SlotState::Awake,
            FINISHED => SlotState::Finished,
            _ => return nobody(SlotState::Damaged),
        };
        let (pid, start_time) = (self.pid.load(Ordering::Relaxed), self.start_time.load(Ordering::Relaxed));
        let right = self.check.load(Ordering::Relaxed) == identity_check(expected, pid, start_time);
        // A process id of 0 or 1, or a negative one, names other processes when it is given to `kill`.
        let Some(pid) = u32::try_from(pid).ok().filter(|pid| right && (2..1 << 31).contains(pid)) else {
            return nobody(SlotState::Damaged);
        };
        let awoken_at_ns = self.awoken_at.load(Ordering::Relaxed);
        CopySlot { incarnation: expected, state, pid, start_time, awoken_at_ns }
    }
}

/// A process in one word, which is changed at once: its id, and the lowest bits of its start time.
fn claim_of(pid: u32, start_time: u64) -> u64 {
    (u64::from(pid) << u32::BITS) | (start_time & u64::from(u32::MAX))
}

fn identity_check(incarnation: u64, pid: u64, start_time: u64) -> u64 {
    let mut crc = crc32fast::Hasher::new();
    for field in [incarnation, pid, start_time] {
        crc.update(&field.to_ne_bytes());
    }
    // Never the content of a cleared slot.
    u64::from(crc.finalize()) | 1 << 32
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use holdfast_process::identity::start_time;

    #[test]
    fn a_slot_is_claimed_by_one_process_that_runs() {
        let slot = Slot {
            state: AtomicU64::new(0),
            pid: AtomicU64::new(0),
            start_time: AtomicU64::new(0),
            check: AtomicU64::new(0),
            awoken_at: AtomicU64::new(0),
            claim: AtomicU64::new(0),
        };
        let own = std::process::id();
        let claims = |pid: u32| slot.claim(pid, start_time(pid).unwrap());
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(claims(other.id()), Ok(()));
        assert_eq!((claims(own), claims(other.id())), (Err(other.id()), Ok(())));
        // A zombie has ended.
        other.kill().unwrap();
        while running_since(other.id()).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(claims(own), Ok(()));
        other.wait().unwrap();
        // Another process has its id now.
        slot.clear();
        assert_eq!((slot.claim(own, start_time(own).unwrap() + 1), claims(own)), (Ok(()), Ok(())));
    }

    #[test]
    fn words_and_beats_of_other_incarnations_are_not_obeyed() {
        for incarnation in [1, 2, 1 << 24, 1 << 30, MOST_INCARNATION] {
            for given in [Request::Wait, Request::Awake, Request::Stop] {
                assert_eq!(request(word(incarnation, given), incarnation), Some(given));
                assert_eq!(request(word(incarnation + 1, given), incarnation), Some(Request::Stop));
            }
            assert_eq!(request(word(incarnation, Request::Wait) | 3, incarnation), None);
            assert_eq!(beats(beat(incarnation, 17), incarnation), 17);
            assert_eq!(beats(beat(incarnation + 1, 17), incarnation), 0);
        }
    }
}
