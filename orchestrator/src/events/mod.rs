//! The events of a job, and what a person sees of them.
//!
//! * `vocabulary`: what an event is: its stable name and its fields; `reason`: why something ended or is down;
//! * [`log`]: `<prefix>/.holdfast/events.jsonl`, one JSON line an event; [`reader`] reads it back;
//! * [`history`]: what became of a job, from its events;
//! * `sentence`: the line for people, made of the fields;
//! * [`screen`]: plain lines in a log, a live view on a terminal, the application's output passing above it;
//! * [`report`]: the summary at the end.

#[cfg(test)]
mod documentation;
pub mod history;
pub mod log;
pub mod reader;
mod reason;
pub mod report;
pub mod screen;
mod sentence;
mod vocabulary;

pub use history::History;
pub use log::EventLog;
pub use reason::{DownReason, DrainResult, EndCause, StopReason, TimedReason, ranks_text};
pub use report::RunReport;
pub use screen::{OutputTurn, Screen, ScreenStyle, View};
pub use vocabulary::LogEvent;
