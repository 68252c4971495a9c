//! What has a program write the files of a checkpoint.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_client::Interrupter;
use holdfast_model::{CheckpointId, NodeName, Rank};

use crate::command::CommandSaver;
use crate::jubatus::JubatusSaver;
use crate::program::{Program, ProgramEnd};
use crate::settings::SaverSettings;
use crate::signal::SignalSaver;
use crate::watch::WatchSaver;
use crate::words::Variables;
use crate::writers::Writer;

/// One for each rank process. Its calls are made one at a time, in step with the other ranks.
pub trait Saver: Send {
    /// Further variables for the program.
    fn variables(&self) -> Variables {
        Variables::new()
    }

    /// The program is to be started.
    ///
    /// # Errors
    /// It cannot be started here: the rank fails.
    fn before_start(&mut self) -> Result<(), SaveError> {
        Ok(())
    }

    /// The program was started. Blocks until it runs as it should.
    ///
    /// # Errors
    /// It does not: the rank fails.
    fn started(&mut self, _program: &Program) -> Result<(), SaveError> {
        Ok(())
    }

    /// Has the program continue from the files of a checkpoint, if it does not read them when it starts. Blocks until
    /// then.
    ///
    /// # Errors
    /// It cannot: the program is killed, and the next older checkpoint is loaded on all ranks. After
    /// [`SaveError::ProgramEnded`] the rank fails instead: nothing shows that the files are the cause.
    fn restore(&mut self, _program: &Program, _directory: &Path) -> Result<(), SaveError> {
        Ok(())
    }

    /// Waits until the program writes no more for a checkpoint that was dropped: its directory is emptied next.
    ///
    /// # Errors
    /// It still writes: this checkpoint is dropped, too.
    fn settle(&mut self, _program: &Program, _directory: &Path) -> Result<(), SaveError> {
        Ok(())
    }

    /// Has the program write its files into a directory, which is empty. Blocks until they are complete.
    ///
    /// # Errors
    /// They are not: the checkpoint is dropped on all ranks, and the program continues.
    fn save(&mut self, program: &Program, checkpoint: CheckpointId, directory: &Path) -> Result<(), SaveError>;

    /// True if the program has written the files of its next checkpoint without a request.
    fn is_ready(&self) -> bool {
        false
    }
}

/// What a saver is made with.
#[derive(Clone, Debug)]
pub struct SaverContext {
    pub rank: Rank,
    /// The name of its node.
    pub node: Option<NodeName>,
    /// To be used when [`Saver::is_ready`] has changed.
    pub interrupter: Interrupter,
    /// A directory of the saver's own, in the file system of the checkpoint files. Not made yet.
    pub directory: PathBuf,
    /// The variables of the rank: its number, and the directories.
    pub variables: Variables,
}

impl SaverSettings {
    /// # Errors
    /// The settings cannot be used on this machine.
    pub fn saver(&self, context: SaverContext) -> Result<Box<dyn Saver>, SaveError> {
        Ok(match self.clone() {
            SaverSettings::Command { save, timeout } => {
                Box::new(CommandSaver { words: save, timeout, variables: context.variables })
            }
            SaverSettings::Signal { signal, until, timeout } => Box::new(SignalSaver::new(&signal, until, timeout)?),
            SaverSettings::Watch { files } => Box::new(WatchSaver::start(&files, context)?),
            SaverSettings::Jubatus { servers, timeout, start_timeout } => {
                Box::new(JubatusSaver::new(&servers, timeout, start_timeout, context)?)
            }
        })
    }
}

/// Why the files of a checkpoint are not complete.
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

/// What a program did when it ended.
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

    /// The program has ended.
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
