//! The decision journal: `<prefix>/.holdfast/job.journal`, beside `job.json`.
//!
//! `job.json` is the state of the job at some time; the journal has the changes since then, an entry for each batch of
//! events of the loop. Entries are appended, and are as large as the change. When the journal has become larger than
//! the state, and at the end, `job.json` is replaced and a new journal begun. Readers read both files.
//!
//! **Why changes, and not the machine's events to be replayed.** A replay would save the collections that track
//! changes (`relaunch/tracked.rs`, `relaunch/changes.rs`), and not the snapshots, which keep the journal small and
//! readers fast. It costs more than it saves:
//!
//! * *Growth.* Answered polls are events on which later decisions depend, and they change nothing in the state. Today
//!   they add no byte. Written as events of about 70 bytes, those of 10,000 nodes that are polled once a second are
//!   700 kB a second, and a reader would replay them. To leave them out, the machine would have to write that an agent
//!   became silent instead: facts with a function that applies each, which is what changes are.
//! * *Versions.* A replay reaches the same state only with the same rules and the same configuration. A newer build, or
//!   a spec whose limits were changed before the take-over, would place a generation elsewhere than where it runs.
//!   Changes are what was decided, whatever the rules are now.
//! * *Formats.* Every event, with the reports of agents in it, would become a format on disk.
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
pub use writer::{JournalWriter, StateStore, Written};
