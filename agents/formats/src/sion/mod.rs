//! SION containers (SIONlib): the streams of many tasks in one or a few files.
//!
//! File format versions 2 to 5 are read, in both byte orders; version 5 is written (`docs/formats.md`, SION 1 to 8).
//!
//! * [`Container`]: an open, checked set of files; several threads can read its streams at any offset;
//! * [`Plan`], [`Creation`], [`TaskWriter`]: writing, by any number of threads; [`PlannedFile`] for writers that place
//!   the data by themselves, [`TaskView`] for readers of one stream;
//! * [`Records`]: key-value streams;
//! * [`dataset`]: containers with the files of a dataset of a job;
//! * [`recover()`]: reads a container that was never closed;
//! * [`describe()`], [`split()`], [`join()`], [`defrag()`], [`verify()`]: the commands.
//!
//! Containers are untrusted: every sum is checked, allocations are bounded by the file's length and by limits, and no
//! loop count is taken from a file unchecked.

mod anomaly;
mod attachment;
mod byte_order;
mod closing;
mod container;
mod copying;
mod damages;
pub mod dataset;
mod defrag;
mod description;
mod dump;
mod error;
mod fault;
mod format;
mod header;
mod input_mismatch;
mod join;
mod key_value;
mod layout;
mod limits;
mod padding;
mod physical_file;
mod plan;
mod plan_error;
mod planned_file;
mod reading;
mod recover;
mod replaced;
mod slot;
mod split;
mod split_result;
mod statistics;
mod tables;
mod task_view;
mod task_writer;
mod usage;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use anomaly::{Anomaly, Warning};
pub use byte_order::ByteOrder;
pub use container::{Container, TaskStream};
pub use defrag::{DefragOptions, Defragmented, defrag};
pub use dump::{DumpOptions, describe};
pub use error::SionError;
pub use fault::Fault;
pub use format::Sion;
pub use header::{Closed, Header, KeyValue, MAGIC};
pub use input_mismatch::InputMismatch;
pub use join::{JoinInput, JoinOptions, Joined, join};
pub use key_value::{KeyedValue, Record, Records};
pub use layout::Layout;
pub use padding::Padding;
pub use physical_file::PhysicalFile;
pub use plan::{FileDistribution, Plan, PlanOptions, TaskPlan};
pub use plan_error::PlanError;
pub use planned_file::{FileOfSet, PlannedFile};
pub use recover::recover;
pub use slot::{Slot, part_path};
pub use split::{SplitOptions, split};
pub use split_result::{Split, SplitFile};
pub use statistics::{ChunkSum, Statistics};
pub use tables::ChunkTable;
pub use task_view::TaskView;
pub use task_writer::TaskWriter;
pub use usage::Usage;
pub use verify::{VerifyOptions, verify};
pub use writer::Creation;
