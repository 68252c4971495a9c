//! Why the files of a checkpoint are not complete.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::program_end::ProgramEnd;
use crate::writers::Writer;

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("{command}: {reason}")]
    NotStarted { command: String, reason: String },
    #[error("{command} ended with {end}")]
    Failed { command: String, end: ProgramEnd },
    #[error("{what} took longer than {} s and was ended (`checkpoint.command.timeout`)", limit.as_secs_f64())]
    TimedOut { what: String, limit: Duration },
    #[error(
        "{command} left processes behind ({}), which may still write its files: it must wait for them",
        names.join(", ")
    )]
    LeftProcesses { command: String, names: Vec<String> },
    #[error("the program ended with {end} {}", stage.text())]
    ProgramEnded { end: ProgramEnd, stage: Stage },
    #[error("{what} wrote no file into {}", directory.display())]
    Empty { what: &'static str, directory: PathBuf },
    #[error("{} is {found}: a checkpoint can contain regular files only", path.display())]
    NotAFile { path: PathBuf, found: &'static str },
    #[error(
        "{} is still open for writing by {_0}, which could change the checkpoint later: a file must be closed when it \
         is complete; write a copy of one that stays open",
        _0.path.display()
    )]
    StillOpen(Writer),
    #[error(
        "{} was renamed into place, and moved on or removed before it could be opened: it must stay until the next one \
         takes its place",
        path.display()
    )]
    Gone { path: PathBuf },
    #[error(
        "{} is {found}, not the directory that was made there: the program must write into that directory itself",
        directory.display()
    )]
    Replaced { directory: PathBuf, found: &'static str },
    #[error("the name {name:?} of a file is not UTF-8")]
    Name { name: std::ffi::OsString },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the program does not handle signal {signal}, which would end it: it was not sent within {} s",
        limit.as_secs_f64()
    )]
    NotHandled { signal: i32, limit: Duration },
    #[error("{signal} is not the name or number of a signal that can be sent to a program")]
    UnknownSignal { signal: String },
    #[error("`{pattern}` is not a pattern of files: {problem}")]
    Pattern { pattern: String, problem: String },
    #[error("the files of the checkpoint have not been written yet")]
    NotReady,
    /// Of the protocol with which a program is saved.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// What a program was doing when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Start,
    Load,
    Save,
}

impl Stage {
    fn text(self) -> &'static str {
        match self {
            Stage::Start => "before it was ready",
            Stage::Load => "while it loaded its checkpoint",
            Stage::Save => "while it was saved",
        }
    }

    pub(crate) fn ended(self, end: ProgramEnd) -> SaveError {
        SaveError::ProgramEnded { end, stage: self }
    }
}

impl SaveError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SaveError {
        let path = path.to_owned();
        move |source| SaveError::Io { action, path, source }
    }
}
