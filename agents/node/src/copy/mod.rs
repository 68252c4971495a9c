//! Whole files on their way: from cache to the parallel file system and back, and between nodes.
//!
//! Unlike the original, one bad file holds back nothing but itself: every other file of its rank and node is copied. What is
//! there already and has the right content is not copied again, so that a copy that was interrupted is resumed by repeating it.
//!
//! * [`pipeline`]: the one way in which bytes of files move: checksummed, in bounded memory, limited in width and bandwidth,
//!   cancellable, with progress; a file appears under its name when it is complete and on disk;
//! * [`cached`]: a file in cache and its meta file, copied into a checkpoint directory;
//! * [`drain`]: all that a node holds of a checkpoint, at the orchestrator's request;
//! * [`on_prefix`]: verifying and rebuilding files of a checkpoint directory, at the orchestrator's request.

mod bandwidth;
pub(crate) mod cached;
pub mod drain;
mod error;
pub mod on_prefix;
pub(crate) mod pipeline;

#[cfg(test)]
mod tests;

pub use error::{CopyError, CopyFault};
