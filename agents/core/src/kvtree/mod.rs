//! SCR's hash: an ordered tree of string keys, its packed form and its files.
//!
//! Every control file, meta file, index and summary is one of these (`SCR manual §3`, `docs/scr-files.md` §1).
//!
//! * [`tree`](Tree): the tree, with the element order of the original;
//! * [`packed`]: bytes to tree and back; [`limits`]: how large each kind of file may be;
//! * [`file`](mod@file): reading and replacing hash files; [`lock`]: locked read-modify-write;
//! * [`print`](mod@print): the text of `scr_print_hash_file`;
//! * [`json`]: nested objects, for `--json` and for messages.

pub mod file;
pub mod json;
pub mod limits;
pub mod lock;
pub mod packed;
pub mod print;
mod tree;

pub use tree::{Element, Tree};
