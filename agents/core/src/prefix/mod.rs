//! What a store of datasets contains: its files, which of them can be used, and how a drained checkpoint becomes one
//! that a restart takes. The [store](crate::store) itself is behind a trait.
//!
//! * [`new_directory`]: the names of the directories of new datasets;
//! * [`index`]: `index.scr`, which directories there are, and their state; [`fetch`]: which of them a restart takes;
//! * [`dataset`]: what the application declared about a dataset, above all its name;
//! * [`summary`]: `summary.scr`, which rank wrote which files; [`rank_filemap`]: `<rank>.scrfilemap` of a drain;
//! * [`scan`](mod@scan): which files a checkpoint directory contains; [`verify`]: whether the contents are what was
//!   written;
//! * [`inspect`](mod@inspect): the judgement; [`rebuild`]: computing what is lost;
//! * [`publish`]: recording a dataset in summary, index and link;
//! * [`add`](mod@add): all of that as one call;
//! * [`copy`](mod@copy): a copy of a dataset of another user;
//! * [`outputs`]: the files of outputs, at the paths that the application named;
//! * [`ownership`]: whose a dataset and its records are;
//! * [`delete`](mod@delete): removing a dataset with its files; [`prune`]: which datasets of a prefix to delete;
//!   [`window`]: the newest checkpoints of a job stay, older ones are deleted;
//! * [`flushed`]: whether a dataset that was copied is still there; [`reindex`]: making a lost index again;
//! * [`unfinished`]: the directories that flushes left unfinished;
//! * [`application_name`]: which names the application may give to its files.
//!
//! Follows `SCR manual §8, §9.1, §9.2, §11.10` and `docs/scr-files.md` §2, §11 to §13. Names read from any file pass
//! [`base_name`](crate::store::base_name) before they become paths.

pub mod add;
pub mod application_name;
mod checksum;
pub mod copy;
pub mod dataset;
pub mod delete;
mod expected;
pub mod fetch;
pub mod flushed;
pub mod index;
pub mod inspect;
pub mod new_directory;
pub mod outputs;
pub mod ownership;
pub mod prune;
pub mod publish;
pub mod rank_filemap;
pub mod rebuild;
pub mod reindex;
pub mod scan;
pub mod summary;
pub mod unfinished;
pub mod verify;
pub mod window;

#[cfg(test)]
pub(crate) mod tests;

pub use add::{AddOptions, AddOutcome, AddReport, add};
pub use index::Index;
pub use summary::Summary;
