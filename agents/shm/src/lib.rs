//! The registry of pairs: one file for each node and job, mapped by the node's agent and by the copies of its pairs.
//! Through it, copies register, beat, are woken and told to stop, and store checkpoints.
//!
//! * [`Registry`]: the agent's view of all pairs;
//! * [`Seat`]: a copy's view of its own pair;
//! * [`layout`]: the layout of the file, and the checks of its header;
//! * [`control`]: the words of a pair, and which incarnation may use them;
//! * [`ring`]: checkpoints: writing, and reading without seeing a torn one;
//! * [`mapping`]: the mapped memory; [`checksum`]: copying and checking in one pass. Nearly all `unsafe`
//!   code is in these two;
//! * [`clients`]: where programs that users start become copies;
//! * [`process`]: clocks, the signals and time slices of threads, the pages of the program.
//!
//! # Layout, version 2
//!
//! Numbers are those of the machine (the file is never moved to another one). Areas start at multiples of 64 KiB.
//!
//! | offset | content |
//! |---|---|
//! | 0 | header: see [`layout`] |
//! | 64 | counter of registrations, 4 bytes: a futex word, which each registration increments |
//! | 128 | the largest checkpoint of each pair, 8 bytes each |
//! | next multiple of 64 KiB | the area of pair 0, then of each next pair |
//!
//! The area of a pair:
//!
//! | offset | content |
//! |---|---|
//! | 0, 128 | heartbeats of main and replica, 8 bytes each, each in a cache line of its own |
//! | 256, 384 | control of main and replica, written by the agent: the word; + 8: incarnation; + 16: lease; + 24: end |
//! | 512, 640 | slot of main and replica, written by the copy: state, pid, start time, check, time of waking, claim |
//! | 768 | the sequence number of the newest checkpoint |
//! | 1024 | heads of the ring's entries, 64 bytes each: sequence, length, tag, check sums, origin, time |
//! | 65536 | the entries' bytes, each a multiple of 64 |
//!
//! * A heartbeat counts in its lower 40 bits; the upper 24 are the incarnation's lowest bits.
//! * A control word has 4 bytes and is a futex word: incarnation × 4, plus 0 to wait, 1 to be awake, 2 to stop.
//! * A lease is the time at which a copy that is awake must have ended, in nanoseconds of `CLOCK_BOOTTIME`; 0: none.
//!   The copy's heartbeat kills it then: its agent may be dead, and the other copy be awake on another node.
//! * An end is the incarnation of a copy that failed or was killed; 0: none. What it does has no effect any more, and
//!   its heartbeat kills it: it may be in a process group that the agent's signal has not reached.
//! * A claim is process id × 2³², plus the lowest bits of its start time. The process that enters it first may
//!   register; another one only when that has ended.
//! * A state is incarnation × 256, plus 1 asleep, 2 awake, 3 finished.
//!
//! # What protects it
//!
//! * The file belongs to this user, has mode 0600, is no link, and is in a directory of mode 0700: no other user can
//!   open, replace or truncate it. This is checked each time it is mapped.
//! * The header has a check sum. Offsets are computed from it, compared with the size of the file, and then kept in
//!   private memory: nothing that is changed in the shared memory later can lead to an access outside of the mapping.
//! * All space is allocated when the file is created, so that a full disk or memory is an error there, and not a
//!   SIGBUS at a store. Nothing here truncates a registry. Memory seals (`F_SEAL_SHRINK`) do not exist for files, and
//!   copies must be able to open the registry by its path after its agent has died; a program of the same user that
//!   truncates it ends the processes that have mapped it.
//! * A copy maps the beginning of the file and the area of its own pair only: a stray pointer in one program cannot
//!   damage another pair.
//! * What an older incarnation writes is ignored, because each word names its incarnation. Words that make no sense
//!   are reported ([`SlotState::Damaged`], [`ShmError`]).

pub mod checksum;
pub mod clients;
pub mod control;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod layout;
pub mod mapping;
pub mod process;
mod registry;
pub mod ring;
pub mod schedule;
mod seat;

pub use control::{CopySlot, SlotState};
pub use error::ShmError;
pub use holdfast_model::pair::Side;
pub use layout::Layout;
pub use registry::Registry;
pub use ring::{Checkpoint, CheckpointView};
pub use seat::{Seat, Woken};
