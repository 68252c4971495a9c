//! Files that the processes of a parallel program write or read together, each its own task.
//!
//! The library makes no MPI calls. `include/sion_mpi.h` is compiled into the program: its functions gather and
//! distribute plain structures, and call the functions of [`crate::c::parallel`]. The first task of each physical file
//! plans and completes it ([`create`]), or reads its tables ([`read`]). A process has one task, or, in files of the
//! mapped functions ([`mapped`]), several. In each physical file, its tasks are those of a file that has no other: what
//! reads and writes a file of the serial functions works on it, too.

pub mod create;
pub mod mapped;
pub mod read;
pub mod task;

pub use create::Joined;
pub use mapped::Mapped;
pub use task::Task;

use std::ffi::c_int;

use holdfast_formats::sion::Padding;

/// What an open file of a parallel program has besides the stream of the process.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The index of the task in its physical file.
    pub local_rank: c_int,
    /// The address of the program's communicators.
    pub communicators: usize,
    /// When writing.
    pub padding: Padding,
}
