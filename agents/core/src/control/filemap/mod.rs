//! The filemap: which files of which ranks and checkpoints a node has (`docs/scr-files.md` §4, `SCR manual §5`).
//!
//! An entry is in the filemap on disk before its file may exist, and leaves it after the file is deleted. Operations
//! keep the original's element order, so that the same operations give the same bytes.
//!
//! The tree has two branches: `RANK/<r>/CKPT/<id>` holds what is known, `CKPT/<id>/RANK/<r>` is an index into it.
//! Paths are as the node sees them; [`super::node_path`] makes real ones of them.
//!
//! * [`map`](Filemap): the tree; [`change`](FilemapChange): one change of it; [`log`]: the changes since the file was
//!   written.

mod change;
pub mod log;
mod map;

pub use change::{ChangeKind, FilemapChange, RankChange};
pub use map::{Filemap, MasterFilemap};
