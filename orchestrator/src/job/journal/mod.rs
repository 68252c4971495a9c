//! The decision journal: `<prefix>/.holdfast/job.journal`, beside `job.json`.
//!
//! `job.json` is the state of the job as it was once; the journal holds what has changed since, an entry for each batch of
//! events of the loop. An entry is as large as the change, and appended; `job.json` is replaced, and the journal begun
//! anew, when the journal has become larger than the state, and at the end. Whoever reads the state reads both.
//!
//! | file | subject |
//! |---|---|
//! | [`frame`] | entries as bytes: length, checksum, content; a tail that a crash tore off is recognised |
//! | [`file`](mod@file) | the journal as a file: begun, appended to, read back |
//! | [`writer`] | the thread that writes, so that the loop never waits for a file system |

pub mod file;
mod frame;
#[cfg(test)]
mod tests;
pub mod writer;

pub use file::{JournalFile, replay};
pub use writer::{JournalWriter, Written};
