//! Containers that hold the files of a dataset of a job, so that a dataset of many ranks is a few files.
//!
//! A container is a set of SION files, `holdfast-<number>.sion` and its further parts, in the dataset's directory. Task
//! `n` is rank `n`: its stream is of key-value records, one for each of the rank's files (data, redundancy, meta files
//! and file map) with the keys 0, 1, 2 and so on. One more task at the end has a single record: the table of contents,
//! a hash file with the names of all files. So SIONlib's tools can read the container, and `unpack` restores the
//! plain directory.
//!
//! * `plan`: the places of the ranks' streams, from the sizes of their files;
//! * [`DatasetCreation`], [`RankWriter`]: writing, by several processes;
//! * [`open`]: the files of a directory, packed or plain, for the rest of Holdfast;
//! * [`repack`]: plain files that are in the directory, moved into a container;
//! * `unpack`: all files of a container as plain files;
//! * [`verify_files`]: the files of a container, against the checksums in their meta files.
//!
//! A directory can have several containers, and plain files beside them: those of members that were rebuilt, until a
//! drain moves them into a further container, or of a copy that was repeated. A plain file replaces a packed one of the
//! same name, and a container with a higher number replaces the files of one with a lower number.

mod contents;
mod create;
mod names;
mod packed_files;
mod plan;
mod rank_writer;
mod repack;
mod unpack;
mod verify;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

pub use create::DatasetCreation;
pub use names::is_container_name;
pub(super) use names::is_rank_file;
pub use packed_files::open;
pub use plan::stream_bytes;
pub use rank_writer::{PlacedFiles, RankWriter};
pub use repack::{RepackError, repack};
pub(super) use unpack::{is_dataset, unpack};
pub(super) use verify::verify_files;
