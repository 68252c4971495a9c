//! The decision journal: `<prefix>/.holdfast/job.journal`, beside `job.json`.
//!
//! `job.json` is the state of the job at some time; the journal has the changes since then, an entry for each batch of
//! events of the loop. Entries are appended, and are as large as the change. When the journal has become larger than
//! the state, and at the end, `job.json` is replaced and a new journal begun. Readers read both files.
//!
//! | file | subject |
//! |---|---|
//! | [`frame`] | entries as bytes: length, checksum, content; an incomplete last entry is recognised |
//! | [`file`](mod@file) | the journal as a file |
//! | [`writer`] | the thread that writes, so that the loop never waits for a file system |

pub mod file;
mod frame;
#[cfg(test)]
mod tests;
pub mod writer;

pub use file::{JournalFile, replay};
pub use writer::{JournalWriter, Written};
