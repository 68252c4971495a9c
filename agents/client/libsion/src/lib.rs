//! `libsion`: the serial functions of SIONlib 1.7, and those for MPI, for programs in C.
//!
//! A program is compiled with `include/sion.h` and linked with `-lsion`. It needs no agent: under `holdfast run` it
//! writes its file to the path that `SCR_Route_file` returns, so that the file is protected like any other.
//!
//! SIONlib gives the program the `FILE` of an open file, and lets it read and write by itself. So the data pass through
//! a [`stream`], whose position tells what the program did; the places in the file, its head and its tables are those
//! of [`holdfast_formats::sion`].
//!
//! * [`c`]: the functions, on top of the table of open [`files`];
//! * [`mode`]: the second argument of `sion_open`;
//! * [`writing`], [`reading`]: an open file;
//! * [`parallel`]: files that the processes of a parallel program write or read together;
//! * [`keys`]: the records of a task, and the positions in them;
//! * [`tables`]: tables of a file as the program gets them.
//!
//! Files are untrusted, as in [`holdfast_formats::sion`], which checks them when they are opened.

pub mod c;
pub mod error;
pub mod files;
pub mod keys;
pub mod mode;
pub mod parallel;
pub mod reading;
pub mod stream;
pub mod tables;
pub mod writing;

pub use c::*;
