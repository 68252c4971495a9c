//! Holdfast's core: everything that is true of checkpoint files without a network.
//!
//! No network, no async, no clock of its own: callers pass times in, and call the file work from threads that
//! may block. What all parts of Holdfast share is in the crate `holdfast-model`. The modules:
//!
//! * [`kvtree`]: SCR's hash, the tree that every control file is made of;
//! * [`control`]: the files of the control directory and the meta files beside checkpoint files;
//! * [`redundancy`]: descriptors, groups, and what rebuilds a lost member;
//! * [`store`]: where datasets are kept: the traits, and the store in a directory of a parallel file system;
//! * [`prefix`]: what a store contains: index, summary, scan, rebuild at drain, publication;
//! * [`state_directory`]: where the state of a job is, and [`state_files`]: the files in it;
//! * [`workers`]: work on several threads;
//! * [`galois`]: arithmetic of GF(2^8) and GF(2^16), for redundancy of several lost members;
//! * [`hostlist`]: `node[1-4,7]` and sets of them;
//! * [`owned`]: files and directories that must belong to this user, where other users may write;
//! * [`calls`]: the system calls on files and directories that all of these make;
//! * [`io_error`]: what a user can do about an error of the system;
//! * [`durable`]: the one way to replace a file; [`temporary`]: the names of its temporary files, and the removal of
//!   those that killed processes left; [`regular_file`]: opening one that must be a regular file.

// Allowed in the vector instructions of `galois` only.
#![deny(unsafe_code)]

pub mod calls;
pub mod control;
#[cfg(any(test, feature = "kill-points"))]
pub mod crash;
#[cfg(test)]
mod crash_tests;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod durable;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod galois;
pub mod hostlist;
pub mod io_count;
pub mod io_error;
#[cfg(any(test, feature = "kill-points"))]
pub mod kill_point;
pub mod kvtree;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod owned;
pub mod prefix;
pub mod redundancy;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod regular_file;
#[cfg(test)]
mod scheme_tests;
pub mod state_directory;
pub mod state_files;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod store;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod temporary;
pub mod workers;
