//! SCR's hash: an ordered tree of string keys, its packed form and its files.
//!
//! Every control file, meta file, index and summary is one of these (`SCR manual §3`, `FORMATS.md` §1).

mod tree;

pub use tree::{Element, Tree};
