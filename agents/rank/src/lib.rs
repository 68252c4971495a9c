//! The rank process: it makes the calls of the checkpoint API for a program that does not use it.
//!
//! The launcher starts `holdfast rank --role checkpoints -- PROGRAM` in the program's place. This process joins the
//! run, puts the files of a checkpoint back, starts the program as its child, and waits together with the rank
//! processes of all other ranks until a checkpoint is due. A [`Saver`] then has the program write its files. When the
//! programs of all ranks have ended with exit code 0, the run is finished; with any other end, this process ends in the
//! same way, so that launchers report what they would report of the program.
//!
//! * [`process`]: the order of the calls;
//! * [`saver`]: the trait of what has the program write its files; [`command`], [`signal`], [`watch`],
//!   [`jubatus`]: its implementations; `registry`: which one the settings ask for;
//! * [`error`]: why files are not complete;
//! * [`files`]: the files of a checkpoint, between the program's directories and the cache;
//! * [`writers`]: the processes that can still change a file;
//! * [`program`]: the program: start, signals; [`program_end`]: how it ended;
//! * [`guard`]: the processes in which programs and commands are started, so that none is left behind;
//! * [`words`]: variables in the words of a command;
//! * [`settings`]: the settings from the job spec.

#![forbid(unsafe_code)]

pub mod command;
pub mod error;
pub mod files;
pub mod guard;
pub mod jubatus;
pub mod process;
pub mod program;
pub mod program_end;
mod registry;
pub mod saver;
pub mod settings;
pub mod signal;
pub mod watch;
pub mod words;
pub mod writers;

pub use error::SaveError;
pub use process::{RankError, run};
pub use program::Program;
pub use program_end::ProgramEnd;
pub use saver::{Saver, SaverContext};
pub use settings::{JubatusEndpoint, JubatusServers, RankSettings, SaverSettings, Until};
