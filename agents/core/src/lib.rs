//! Holdfast's core: everything that is true of checkpoint files without a network.
//!
//! No network, no async, no clock of its own: callers pass times in, and call the file work from threads that
//! may block. What all parts of Holdfast share is in the crate `holdfast-model`. The modules:
//!
//! * [`kvtree`]: SCR's hash, the tree that every control file is made of;
//! * [`control`]: the files of the control directory and the meta files beside checkpoint files;
//! * [`redundancy`]: descriptors, groups, and what rebuilds a lost member;
//! * [`prefix`]: the job's directory on the parallel file system: index, summary, scan, rebuild at drain;
//! * [`dataset_files`]: reading the files of a dataset in the prefix directory, plain or packed;
//! * [`params`]: SCR_* parameters and their order of precedence;
//! * [`workers`]: a map over many small files with a few threads;
//! * [`hostlist`]: `node[1-4,7]` and sets of them;
//! * [`owned`]: files and directories that must belong to this user, where other users may write;
//! * [`output_files`]: the files of outputs, at the paths that the application named;
//! * [`durable`]: the one way to replace a file; [`temporary`]: the names of its temporary files, and the removal of
//!   those that killed processes left; [`regular_file`]: opening one that must be a regular file.

#![forbid(unsafe_code)]

pub mod control;
pub mod dataset_files;
pub mod durable;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod hostlist;
pub mod io_count;
#[cfg(any(test, feature = "kill-points"))]
pub mod kill_point;
#[cfg(not(any(test, feature = "kill-points")))]
mod kill_point;
pub mod kvtree;
pub mod output_files;
pub mod owned;
pub mod params;
pub mod prefix;
pub mod redundancy;
pub mod regular_file;
pub mod temporary;
pub mod workers;
