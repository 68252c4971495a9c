//! The XOR scheme: files, ring encode, rebuild (`SCR manual §7.3`, `FORMATS.md` §6).
//!
//! A set of N members protects against the loss of any one. Each member's files, put one behind the other, are its
//! *logical file*; padded with zeros and cut into N-1 chunks, they fill all *slots* 0…N-1 but the member's own. The XOR
//! data of member s is the XOR of what all others have in slot s.
//!
//! * [`name`]: the name of an XOR file; [`header`]: the hash in front of it; [`mod@file`]: header and chunk together;
//! * [`logical`]: files of a member as one;
//! * [`piece`]: the byte loop and the buffers; [`link`]: what a neighbour looks like;
//! * [`encode`]: a member's part in making the XOR files; [`rebuild`]: its part in making a lost member's files again;
//! * [`writer`]: writes a lost member's files so that they appear whole and checked or not at all;
//! * [`set`]: which member is missing; [`directory`]: the rebuild at the drain, with all files in one directory.

pub mod directory;
pub mod encode;
pub mod file;
pub mod header;
mod inside;
pub mod link;
pub mod logical;
pub mod name;
pub mod piece;
pub mod rebuild;
pub mod set;
pub mod writer;

#[cfg(test)]
mod fixture_tests;
#[cfg(test)]
mod property_tests;

use std::ops::ControlFlow;

/// Called with the number of bytes done so far; `Break` stops the step, which then leaves nothing behind.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;
