//! Checkpoint file formats behind one trait: recognise, describe, verify, extract.
//!
//! A format is known by its content, whatever the file is called; where the content is too damaged to speak for itself
//! the name may speak for it, so that an empty `Ckpt7-Rank2.fti` is reported as a damaged checkpoint and not as
//! an unknown file. [`recognise`] asks every format in [`all`]; a new format is one file that implements [`Format`] and
//! one line there.
//!
//! * [`input`]: a file read at any offset, from several threads, in pieces of bounded size;
//! * [`verdict`]: what a verification found, each damage with its place;
//! * [`destination`]: the directory that an extraction writes to, and never outside of it;
//! * [`error`]: why a file could not be worked on;
//! * [`fti_ff`]: FTI's file format and the files of its levels 2 and 3;
//! * [`sion`]: SION containers;
//! * [`jubatus`]: the model files of Jubatus servers;
//! * [`scr_hash`], [`scr_redundancy`]: the files of SCR itself.
//!
//! Every file is untrusted: no number read from one is believed before it was compared with the file's size.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod destination;
pub mod error;
mod format;
pub mod fti_ff;
pub mod input;
pub mod jubatus;
mod recognise;
pub mod scr_hash;
pub mod scr_redundancy;
pub mod sion;
pub mod verdict;

pub use destination::Destination;
pub use error::FormatsError;
pub use format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};
pub use input::Input;
pub use recognise::{Recognised, all, by_name, recognise};
pub use verdict::{Damage, Verdict};

#[cfg(test)]
mod tests;
