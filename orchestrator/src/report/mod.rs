//! The report of a job, from its event log: what happened, why it failed, where the time went.
//!
//! * `phases`: where the time went;
//! * `job`: all of it, with generations, checkpoints and nodes;
//! * `text`, `html`: how it is shown.
//!
//! Everything here is computed from events; reading the log and the output of ranks is left to the caller.

mod html;
mod job;
mod phases;
mod text;

pub use html::page;
pub use job::{JobFacts, JobReport, ReportedStep};
pub use phases::{Phase, Span};
pub use text::write_steps;
