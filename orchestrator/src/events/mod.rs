//! The events of a job, and how they are shown.
//!
//! * `vocabulary`: the events, each with its stable name and its fields; `reason`: why something ended or is down;
//! * `wait`: ranks that wait for others;
//! * `fields`: an event in a line of the log, written and read;
//! * `cost`: what failures and checkpoints cost; `advice`: which interval would have been best;
//! * [`log`]: `<prefix>/.holdfast/events.jsonl`, one JSON line an event; [`reader`] reads it back;
//! * [`history`]: the history of a job, from its events; [`spans`]: the job as a trace, from them;
//! * [`schema`]: the lines of the log as a JSON Schema;
//! * `sentence`: the sentence of an event, made from its fields;
//! * [`screen`]: plain lines in a log; on a terminal, a live view with the application's output above it;
//! * [`report`]: the summary at the end.

mod advice;
mod cost;
#[cfg(test)]
mod documentation;
mod failure_sign;
mod failures;
mod fields;
#[cfg(test)]
pub mod fixtures;
pub mod history;
pub mod log;
mod metrics;
pub mod reader;
mod reason;
pub mod report;
pub mod schema;
pub mod screen;
mod sentence;
pub mod spans;
mod vocabulary;
mod wait;

pub use advice::{IntervalAdvice, LevelAdvice};
pub use cost::{Cost, Costs};
pub use failure_sign::FailureSign;
pub use failures::{Failure, Failures};
pub use history::{BackgroundWork, History, PastFlush};
pub use log::EventLog;
pub use metrics::JobMetrics;
pub use reason::{
    DownReason, DrainResult, EndCause, GenerationProgress, StopReason, TimedReason, nodes_text, ranks_text,
};
pub use report::{FaultReport, PrefixReport, RunReport, StepReport, StepResult};
pub use screen::{OutputNotShown, OutputTurn, PairsView, Screen, ScreenStyle, View};
pub use sentence::{domains_text, kept_directory, virtual_text};
pub use vocabulary::{
    AgentReport, CommandKey, LogEvent, SettingInForce, declared as declared_events, fields as event_fields,
};
pub use wait::Wait;
