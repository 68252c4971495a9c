//! The event log and what a person sees.
//!
//! * [`journal`]: `<prefix>/.holdfast/events.jsonl`, one JSON line an event;
//! * [`entry`]: what an event is, and its line for people;
//! * [`screen`]: plain lines in a log, a live view on a terminal, the application's output passing above it;
//! * [`report`]: the summary at the end.

pub mod entry;
pub mod journal;
pub mod report;
pub mod screen;

pub use entry::{Entry, OwnEvent};
pub use journal::Journal;
pub use report::RunReport;
pub use screen::{Screen, ScreenStyle, View};
