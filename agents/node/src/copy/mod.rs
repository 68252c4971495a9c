//! Copies files from cache to the parallel file system and back, and between nodes.
//!
//! Unlike SCR, a file that cannot be copied does not stop the others of its rank and node. A file that exists with the
//! right content is not copied again, and one that was cut off is not copied from its beginning.
//!
//! * [`pipeline`]: how bytes of files move: checksummed, in bounded memory, limited in width and bandwidth,
//!   cancellable, with progress; a file appears under its name when it is complete and on disk;
//! * [`pace`]: the limits of an order: lifted when something waits for it, cancelled with it;
//! * [`cut_off`]: what killed processes have copied of a file, which another copy goes on from;
//! * [`cached`]: a file in cache and its meta file, copied into a checkpoint directory;
//! * [`transfer_record`]: the transfer file, in which a flush in the background is recorded;
//! * [`drain`]: all that a node holds of a checkpoint, at the orchestrator's request;
//! * [`on_prefix`]: verifying and rebuilding files of a checkpoint directory, at the orchestrator's request.

mod bandwidth;
pub(crate) mod cached;
pub(crate) mod cut_off;
pub mod drain;
mod error;
pub mod on_prefix;
pub(crate) mod pace;
pub(crate) mod pipeline;
pub(crate) mod processor_share;
pub(crate) mod transfer_record;

#[cfg(test)]
mod tests;

pub use error::{CopyError, CopyFault};
