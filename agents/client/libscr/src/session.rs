//! The behaviour of the functions, in safe Rust: one session per process.

use std::path::PathBuf;

use holdfast_boundary::{ArgumentError, Halt, Session as _};
use holdfast_client::{
    CheckpointId, Client, ClientError, DatasetOptions, Environment, FailureKind, RestartFile, RestartFiles,
    RestartOutcome,
};

use crate::settings::{Setting, SettingError, Settings};

/// Flag of a dataset that a run can restart from.
pub const FLAG_CHECKPOINT: i32 = 1;
/// Flag of a dataset that must be flushed to the prefix directory.
pub const FLAG_OUTPUT: i32 = 2;

/// The state of the library in this process.
#[derive(Debug, Default)]
pub struct Session {
    settings: Settings,
    client: Option<Client>,
    finalized: bool,
    phase: Phase,
    /// The name of the checkpoint to restart from.
    restart_name: Option<String>,
    /// A function of SCR 3 was called: outside of phases, names are routed as in SCR 3.
    uses_scr3: bool,
    /// The program has called `SCR_Should_exit`.
    calls_should_exit: bool,
    /// The next `SCR_Have_restart` loads the dataset of `SCR_Current`.
    load_current: bool,
    /// The files that `HOLDFAST_Restart_files` counted last.
    restart_files: Vec<RestartFile>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Before the first dataset: a program for SCR v1 reads its restart files.
    #[default]
    Beginning,
    Computing,
    Writing,
    Reading,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// An error of the client.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("SCR_Init has not been called, or it failed")]
    NotInitialised,
    #[error("SCR_Finalize has been called")]
    Finalized,
    #[error("SCR_Init has already been called")]
    Twice,
    #[error("the flags {0} are invalid: use SCR_FLAG_CHECKPOINT (1), SCR_FLAG_OUTPUT (2), or their sum")]
    Flags(i32),
    #[error("dataset {0} was not kept: a rank could not write its files, or they could not be protected")]
    NotKept(CheckpointId),
    /// A rank could not read its restart files.
    #[error("a rank could not read its files; {}", match .0 {
        Some(older) => format!("checkpoint {older} was loaded instead: call SCR_Have_restart again"),
        None => "there is no older checkpoint: start from the beginning".to_owned(),
    })]
    NotRead(Option<CheckpointId>),
    #[error("parameters must be set before SCR_Init")]
    TooLate,
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A path that does not fit into the program's buffer.
    #[error("{} does not fit into SCR_MAX_FILENAME bytes", .0.display())]
    LongPath(PathBuf),
    /// An argument that cannot be converted.
    #[error(transparent)]
    Conversion(#[from] ArgumentError),
    #[error("{0}")]
    Argument(&'static str),
}

/// The result of a function.
pub type SessionResult<T> = Result<T, SessionError>;

impl holdfast_boundary::Session for Session {
    fn rank(&self) -> Option<u32> {
        self.client.as_ref().map(|client| client.rank().0)
    }

    fn is_joined(&self) -> bool {
        self.client.as_ref().is_some_and(Client::enabled)
    }
}

impl Session {
    pub const fn new() -> Self {
        Session {
            settings: Settings::new(),
            client: None,
            finalized: false,
            phase: Phase::Beginning,
            restart_name: None,
            uses_scr3: false,
            calls_should_exit: false,
            load_current: false,
            restart_files: Vec::new(),
        }
    }

    /// Rank and number of ranks.
    pub fn rank_and_size(&mut self) -> SessionResult<(u32, u32)> {
        let client = self.client()?;
        Ok((client.rank().0, client.ranks()))
    }

    /// Sets or reads a parameter. Returns the value that was read.
    ///
    /// # Errors
    /// The line is invalid, or sets a parameter after `SCR_Init`.
    pub fn config(&mut self, line: &str) -> SessionResult<Option<String>> {
        let setting = Setting::parse(line)?;
        if matches!(setting, Setting::Set(_)) && (self.client.is_some() || self.finalized) {
            return Err(SessionError::TooLate);
        }
        Ok(self.settings.apply(&setting, environment)?)
    }

    /// Joins the run.
    ///
    /// # Errors
    /// There is no agent, it rejects this process, or this is the second call.
    pub fn init(&mut self) -> SessionResult<Option<Halt>> {
        if self.client.is_some() || self.finalized {
            return Err(SessionError::Twice);
        }
        let own = &self.settings;
        let lookup = |name: &str| match std::env::var_os(name) {
            None if name == holdfast_client::environment::ENABLE => own.get(name, |_| None).map(Into::into),
            value => value,
        };
        let process = Environment::from_lookup(lookup).map_err(ClientError::from)?;
        let client = Client::builder().environment(process).exit_on_halt(false).init()?;
        let halt = client.restart().halt.clone();
        let reports = client.rank().0 == 0;
        let without_effect = self.settings.without_effect();
        if reports && client.enabled() && !without_effect.is_empty() {
            eprintln!(
                "SCR: {} of SCR_Config has no effect: set it in the job spec, or in the environment of \
                 `holdfast run`",
                without_effect.join(", ")
            );
        }
        self.client = Some(client);
        self.update_restart_name()?;
        let exits = self.settings.switch("SCR_HALT_EXIT", environment).unwrap_or(true);
        Ok(halt.filter(|_| exits).map(|reason| Halt { reason, reports }))
    }

    pub fn finalize(&mut self) -> SessionResult<()> {
        self.client()?;
        let client = self.client.take().ok_or(SessionError::NotInitialised)?;
        self.finalized = true;
        Ok(client.finalize()?)
    }

    /// True if a checkpoint is due.
    pub fn need_checkpoint(&mut self) -> SessionResult<bool> {
        Ok(self.client()?.need_checkpoint()?)
    }

    /// True if the program must end.
    pub fn should_exit(&mut self) -> SessionResult<bool> {
        self.calls_should_exit = true;
        Ok(self.client()?.should_exit()?)
    }

    /// Starts a checkpoint without a name.
    pub fn start_checkpoint(&mut self) -> SessionResult<()> {
        self.start(None, true, false)
    }

    /// Starts a dataset.
    ///
    /// # Errors
    /// Invalid flags; otherwise as every call of the client.
    pub fn start_output(&mut self, name: Option<String>, flags: i32) -> SessionResult<()> {
        self.uses_scr3 = true;
        let (checkpoint, output) = (flags & FLAG_CHECKPOINT != 0, flags & FLAG_OUTPUT != 0);
        if flags & !(FLAG_CHECKPOINT | FLAG_OUTPUT) != 0 || !(checkpoint || output) {
            return Err(SessionError::Flags(flags));
        }
        self.start(name.filter(|name| !name.is_empty()), checkpoint, output)
    }

    fn start(&mut self, name: Option<String>, checkpoint: bool, output: bool) -> SessionResult<()> {
        let bypass = self.settings.switch("SCR_CACHE_BYPASS", environment).unwrap_or(false);
        self.client()?.start_output(&DatasetOptions { name, checkpoint, output, bypass })?;
        self.phase = Phase::Writing;
        self.restart_name = None;
        Ok(())
    }

    /// Ends a dataset. `old` is true for `SCR_Complete_checkpoint`, the function of v1.1-8.
    ///
    /// # Errors
    /// It was not kept; otherwise as every call of the client.
    pub fn complete(&mut self, valid: bool, old: bool) -> SessionResult<Option<Halt>> {
        let exits = self.settings.switch("SCR_HALT_EXIT", environment).unwrap_or(old && !self.calls_should_exit);
        let completed = self.client()?.complete_checkpoint(valid);
        if !matches!(completed, Err(ClientError::Outside { .. })) {
            self.phase = Phase::Computing;
        }
        let completed = completed?;
        let reports = self.rank() == Some(0);
        match completed.halt.filter(|_| exits) {
            Some(reason) => Ok(Some(Halt { reason, reports })),
            None if completed.kept => Ok(None),
            None => Err(SessionError::NotKept(completed.checkpoint)),
        }
    }

    /// The name of the checkpoint to restart from, if there is one.
    pub fn have_restart(&mut self) -> SessionResult<Option<String>> {
        self.uses_scr3 = true;
        if std::mem::take(&mut self.load_current) {
            self.client()?.load_current()?;
            self.update_restart_name()?;
        }
        let offered = self.client()?.have_restart();
        Ok(offered.and(self.restart_name.clone()))
    }

    pub fn start_restart(&mut self) -> SessionResult<String> {
        self.uses_scr3 = true;
        let checkpoint = self.client()?.start_restart()?;
        self.phase = Phase::Reading;
        Ok(self.restart_name.clone().unwrap_or_else(|| default_name(checkpoint)))
    }

    /// Lists the files of the checkpoint to restart from that this rank can route; returns the number of ranks that
    /// wrote it, and that of the files.
    pub fn restart_files(&mut self) -> SessionResult<(u32, usize)> {
        let RestartFiles { ranks, files } = self.client()?.restart_files()?;
        self.restart_files = files;
        Ok((ranks, self.restart_files.len()))
    }

    /// One of the files that were listed last.
    ///
    /// # Errors
    /// There are not so many.
    pub fn restart_file(&self, index: usize) -> SessionResult<&RestartFile> {
        let outside = SessionError::Argument("no file has this index: HOLDFAST_Restart_files counts them");
        self.restart_files.get(index).ok_or(outside)
    }

    /// Ends a restart.
    ///
    /// # Errors
    /// A rank could not read its files; otherwise as every call of the client.
    pub fn complete_restart(&mut self, valid: bool) -> SessionResult<()> {
        let outcome = self.client()?.complete_restart(valid)?;
        self.phase = Phase::Computing;
        self.update_restart_name()?;
        match outcome {
            RestartOutcome::Accepted => Ok(()),
            RestartOutcome::Older(older) => Err(SessionError::NotRead(Some(older))),
            RestartOutcome::Nothing => Err(SessionError::NotRead(None)),
        }
    }

    /// The path to write a file to, or to read it from; `None` if there is no checkpoint to read at the start.
    ///
    /// # Errors
    /// In a restart, the file does not exist. Otherwise, the name is empty, or no dataset can contain it.
    pub fn route(&mut self, name: &str) -> SessionResult<Option<PathBuf>> {
        let routed = match self.phase {
            Phase::Writing | Phase::Reading => true,
            Phase::Beginning => !self.uses_scr3,
            Phase::Computing => false,
        };
        let client = self.client()?;
        if !routed && name.is_empty() {
            return Err(SessionError::Argument("the name of the file is empty"));
        }
        if !routed {
            return Ok(Some(PathBuf::from(name)));
        }
        match client.route_file(name) {
            // A program of SCR 1 asks in this way whether there is a checkpoint.
            Err(ClientError::Failed { source, .. })
                if self.phase == Phase::Beginning && source.kind == FailureKind::NotFound =>
            {
                Ok(None)
            }
            routed => Ok(Some(routed?)),
        }
    }

    /// Reports that the program restarted from this dataset itself. Without such a dataset this has no effect, as in
    /// SCR.
    pub fn current(&mut self, name: &str) -> SessionResult<()> {
        self.uses_scr3 = true;
        let done = self.client()?.current(name);
        self.load_current |= self.found("SCR_Current", done)?;
        Ok(())
    }

    /// Removes the dataset from the index, if it is there.
    pub fn drop_dataset(&mut self, name: &str) -> SessionResult<()> {
        let done = self.client()?.drop_dataset(name);
        self.found("SCR_Drop", done).map(drop)
    }

    /// Deletes the dataset from the cache and the prefix directory, if it is there.
    pub fn delete_dataset(&mut self, name: &str) -> SessionResult<()> {
        let done = self.client()?.delete_dataset(name);
        self.found("SCR_Delete", done).map(drop)
    }

    /// False if there is no dataset of the name, which rank 0 prints: SCR's functions succeed then, and programs depend
    /// on it, for example when they delete a checkpoint that has left the cache without a flush.
    fn found(&self, function: &str, done: Result<(), ClientError>) -> SessionResult<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(ClientError::Failed { source, .. }) if source.kind == FailureKind::NotFound => {
                if self.rank() == Some(0) {
                    eprintln!("SCR: {function} has no effect: {source}");
                }
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn client(&mut self) -> SessionResult<&mut Client> {
        let missing = if self.finalized { SessionError::Finalized } else { SessionError::NotInitialised };
        self.client.as_mut().ok_or(missing)
    }

    /// Collective, like `restart_name`: all ranks have the same checkpoint to restart from, or none.
    fn update_restart_name(&mut self) -> SessionResult<()> {
        let client = self.client()?;
        let name = match client.have_restart() {
            None => None,
            Some(checkpoint) => Some(client.restart_name()?.unwrap_or_else(|| default_name(checkpoint))),
        };
        self.restart_name = name;
        Ok(())
    }
}

fn default_name(checkpoint: CheckpointId) -> String {
    format!("scr.dataset.{checkpoint}")
}

/// The value of an environment variable; an empty one counts as not set.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
