//! Checkpoint file formats behind one trait: recognise, describe, verify, extract.
//!
//! A format is recognised by the content of a file. If the content is too damaged, the file's name decides: an empty
//! `Ckpt7-Rank2.fti` is reported as a damaged checkpoint, not as an unknown file. [`recognise`] tries every format in
//! [`all`]; a new format is one file that implements [`Format`], and one line there.
//!
//! * [`input`]: a file that several threads can read at any offset, in pieces of bounded size;
//! * [`file_check`]: the result of a verification: each damage with its place;
//! * [`destination`]: the directory that an extraction writes to; nothing is written outside of it;
//! * [`error`]: why an operation on a file failed;
//! * [`fti_ff`]: FTI's file format and the files of its levels 2 and 3;
//! * [`sion`]: SION containers;
//! * [`jubatus`]: the model files of Jubatus servers;
//! * [`scr_hash`], [`scr_redundancy`]: the files of SCR itself.
//!
//! Every file is untrusted: each number read from a file is compared with the file's size before it is used.

#![deny(unsafe_code)]

pub mod destination;
pub mod error;
pub mod file_check;
mod format;
pub mod fti_ff;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hex;
pub mod input;
pub mod jubatus;
mod recognise;
pub mod scr_hash;
pub mod scr_redundancy;
pub mod sion;

pub use destination::Destination;
pub use error::FormatsError;
pub use file_check::{Damage, FileCheck};
pub use format::{Confidence, Content, Description, Extracted, Format, Options, Probe, Progress};
pub use input::Input;
pub use recognise::{Recognised, all, by_name, recognise};

#[cfg(test)]
mod tests;
