//! SCR_* parameters: environment, user file, system file, default (`SCR manual §10`).
//!
//! A job spec has its place between the two files; its reader combines the parameters with its keys.
//!
//! * [`declaration`]: the list of all parameters, with the effect of each;
//! * [`conf`]: the text format of the user and system files;
//! * [`source`]: where values come from and in which order, and what has no effect;
//! * [`value`]: numbers, sizes and switches as text;
//! * [`Parameters`]: all of them, typed, each with where it came from;
//! * [`descriptors`]: the redundancy and cache descriptors that they ask for.
//!
//! Nothing here reads the environment: it is passed in, so that a test, or the agent of another user, has its own.

pub mod conf;
pub mod declaration;
pub mod descriptors;
mod origin;
mod parameters;
mod setting;
pub mod source;
pub mod value;

pub use descriptors::CopyType;
pub use origin::{FileLine, Origin};
pub use parameters::{LaunchLimit, Parameters};
pub use setting::{Explained, ParamError, ParamWarning, ParamWarningKind, Setting};
