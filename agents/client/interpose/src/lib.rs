//! `libscr_interpose`: checkpoints of programs that call no function of SCR.
//!
//! The library is loaded with `LD_PRELOAD`. It replaces functions of the C library that open, close and name files.
//! Files whose names match `SCR_CHECKPOINT_PATTERN` become files of a dataset: the first one that is opened for writing
//! starts it, the last one that is closed completes it. It does what the program would do with libscr, and is linked
//! with no MPI.
//!
//! * [`files`]: where the content of each file is, and when a dataset is complete. Pure.
//! * [`session`]: the calls of the rank, and its open files.
//! * [`process`]: which process takes part, and how it ends.
//! * [`next`]: the functions of the C library.
//! * [`tracked`]: the file descriptors that matter, for a test without a lock.
//! * [`mapped`]: memory that is mapped to the files.
//! * [`writers`]: who has a file open for writing.
//! * [`report`](mod@report): messages.
//! * `symbols`: the functions that are replaced.
//!
//! # Rules of the functions
//!
//! A function that is called with another name or descriptor costs the comparison of the name, or the test of a bit. It
//! allocates nothing and takes no lock, so that it may be called where the original may be called, also in a signal
//! handler or between `fork` and `exec`. A function with a name that matches locks the session, allocates, and may wait
//! for the other ranks.
//!
//! The library's own input and output passes through the same functions: [`process::Inside`] marks it.

pub mod files;
pub mod mapped;
pub mod next;
pub mod process;
pub mod report;
pub mod session;
// A test binary would be interposed itself.
#[cfg(not(test))]
mod symbols;
pub mod tracked;
pub mod writers;
