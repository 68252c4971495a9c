//! SCR_* parameters: environment, user file, job spec, system file, default (`FORMATS.md` §16, `SCR manual §10`).
//!
//! * [`conf`]: the text format of the user and system files;
//! * [`source`]: where values come from, in which order, and what a user may not set;
//! * [`value`]: numbers, sizes and switches as text;
//! * [`Parameters`]: all of them, typed, each with where it came from;
//! * [`descriptors`]: the redundancy and cache descriptors that they ask for.
//!
//! Nothing here reads the environment: it is passed in, so that a test, or the agent of another user, has its own.

pub mod conf;
pub mod descriptors;
mod origin;
mod parameters;
mod setting;
pub mod source;
pub mod value;

pub use origin::{Origin, Place};
pub use parameters::{CopyType, Parameters, Runs};
pub use setting::{Explained, ParamError, Setting, Warning, WarningKind};
