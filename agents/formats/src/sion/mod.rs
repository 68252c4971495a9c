//! SION containers: the streams of many tasks in one file, or a few.
//!
//! Read in the file format versions 2 to 5 in either byte order, written in version 5 (`sion/FORMAT.md` of the fixtures
//! has every byte). What is where:
//!
//! * [`Container`]: a set of files opened and checked; streams read at any offset by any number of threads;
//! * [`Plan`], [`Creation`], [`Attachment`], [`TaskWriter`]: writing, by one process or many at once;
//! * [`Records`]: key-value streams;
//! * [`recover()`]: what a container holds that was never closed;
//! * [`dump()`], [`split()`], [`join()`], [`defrag()`], [`verify()`]: the commands.
//!
//! Containers are untrusted: every sum is checked, nothing is allocated before the file's length and the limits below
//! have bounded it, and no loop depends on a number of the file alone.

mod byte_order;
mod container;
mod copying;
mod defrag;
mod dump;
mod error;
mod format;
mod header;
mod join;
mod key_value;
mod layout;
mod part;
mod plan;
mod recover;
mod split;
mod statistics;
mod tables;
mod task_writer;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use byte_order::ByteOrder;
pub use container::{Container, Slot, TaskStream, part_path};
pub use defrag::{DefragOptions, Defragmented, defrag};
pub use dump::{DumpOptions, describe, dump};
pub use error::{Fault, Oddity, SionError, Warning};
pub use format::Sion;
pub use header::{Closed, Header, KeyValue, MAGIC};
pub use join::{JoinInput, JoinOptions, Joined, join};
pub use key_value::{KeyedValue, Record, Records};
pub use layout::Layout;
pub use part::Part;
pub use plan::{Plan, PlanError, PlanOptions, PlannedPart, Shape, TaskPlan};
pub use recover::recover;
pub use split::{Split, SplitFile, SplitOptions, split};
pub use statistics::{ChunkSum, Statistics};
pub use tables::{ChunkTable, Mapping};
pub use task_writer::{TaskWriter, Usage};
pub use verify::{VerifyOptions, verify};
pub use writer::{Attachment, Creation};

/// Most tasks of one physical file that are accepted: ten times those of the largest runs written so.
const MOST_TASKS: u64 = 1 << 24;
/// Most byte counts of one physical file that are accepted: 256 MiB of table.
const MOST_CHUNKS: u64 = 1 << 25;
/// Most records of one task that are followed.
const MOST_RECORDS: u64 = 1 << 24;
