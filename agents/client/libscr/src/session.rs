//! What the functions do, in safe Rust: one session a process.

use std::path::PathBuf;

use holdfast_client::{CheckpointId, Client, ClientError, DatasetOptions, RestartOutcome, Surroundings};

use crate::settings::{SettingProblem, Settings};

/// The bit that says: a run can restart from it.
pub const FLAG_CHECKPOINT: i32 = 1;
/// The bit that says: it must reach the prefix directory.
pub const FLAG_OUTPUT: i32 = 2;

/// This process's part in the run.
#[derive(Debug, Default)]
pub struct Session {
    settings: Settings,
    client: Option<Client>,
    finalized: bool,
    phase: Phase,
    /// The name of what there is to restart from.
    restart_name: Option<String>,
    /// A function of SCR 3 was called: routes outside of phases mean what they mean there.
    modern: bool,
    /// The program looks at the halt conditions itself.
    asks_to_exit: bool,
    /// `SCR_Current` named what the next `SCR_Have_restart` is to load.
    load_current: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing was written yet: in an old program, files that are routed are looked for in the restart.
    #[default]
    Beginning,
    Computing,
    Writing,
    Reading,
}

/// Why a function fails.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What the client says.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Before `SCR_Init`.
    #[error("SCR_Init has not been called, or it failed")]
    NotInitialised,
    /// After `SCR_Finalize`.
    #[error("SCR_Finalize has been called")]
    Finalized,
    /// A second `SCR_Init`.
    #[error("SCR_Init was called already")]
    Twice,
    /// The flags are none that SCR knows.
    #[error("the flags {0} are unknown: add SCR_FLAG_CHECKPOINT (1) and SCR_FLAG_OUTPUT (2) as they are wanted, not 0")]
    Flags(i32),
    /// A dataset was not kept.
    #[error("dataset {0} was not kept: a rank could not write its files, or they could not be protected")]
    NotKept(CheckpointId),
    /// A restart did not work.
    #[error("a rank could not read its files; {}", match .0 {
        Some(older) => format!("checkpoint {older} was loaded instead: ask SCR_Have_restart again"),
        None => "nothing older is left: start afresh".to_owned(),
    })]
    NotRead(Option<CheckpointId>),
    /// `SCR_Config` after `SCR_Init`.
    #[error("settings are made before SCR_Init")]
    TooLate,
    /// A line of settings.
    #[error(transparent)]
    Setting(#[from] SettingProblem),
    /// A path that does not fit the program's buffer.
    #[error("{} does not fit into SCR_MAX_FILENAME bytes", .0.display())]
    LongPath(PathBuf),
    /// A pointer or a text that was given.
    #[error("{0}")]
    Argument(&'static str),
}

/// What a function returns.
pub type Answer<T> = Result<T, Failure>;

/// The process is to end with code 0: a halt condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// The condition.
    pub reason: String,
    /// One process says it for all.
    pub speaks: bool,
}

impl Session {
    /// A session without settings.
    pub const fn new() -> Self {
        Session {
            settings: Settings::new(),
            client: None,
            finalized: false,
            phase: Phase::Beginning,
            restart_name: None,
            modern: false,
            asks_to_exit: false,
            load_current: false,
        }
    }

    /// Rank and number of ranks.
    ///
    /// # Errors
    /// Before `SCR_Init` and after `SCR_Finalize`.
    pub fn place(&mut self) -> Answer<(u32, u32)> {
        let client = self.client()?;
        Ok((client.rank().0, client.ranks()))
    }

    /// The rank, once it is known.
    pub fn rank(&self) -> Option<u32> {
        self.client.as_ref().map(|client| client.rank().0)
    }

    /// Sets or reads a parameter.
    ///
    /// # Errors
    /// The line was not understood, or it sets something after `SCR_Init`.
    pub fn config(&mut self, line: &str) -> Answer<Option<String>> {
        let asks = line.split_whitespace().next_back().is_some_and(|last| !last.contains('='));
        if !asks && (self.client.is_some() || self.finalized) {
            return Err(Failure::TooLate);
        }
        Ok(self.settings.line(line, environment)?)
    }

    /// Joins the run.
    ///
    /// # Errors
    /// There is no agent, it refuses this process, or this is the second time.
    pub fn init(&mut self) -> Answer<Option<Halt>> {
        if self.client.is_some() || self.finalized {
            return Err(Failure::Twice);
        }
        let own = &self.settings;
        let lookup = |name: &str| match std::env::var_os(name) {
            None if name == holdfast_client::surroundings::ENABLE => own.get(name, |_| None).map(Into::into),
            value => value,
        };
        let surroundings = Surroundings::from_lookup(lookup).map_err(ClientError::from)?;
        let client = Client::builder().surroundings(surroundings).exit_on_halt(false).init()?;
        let halt = client.restart().halt.clone();
        let speaks = client.rank().0 == 0;
        let too_late = self.settings.too_late();
        if speaks && client.enabled() && !too_late.is_empty() {
            eprintln!(
                "SCR: {} came from SCR_Config and is not in force: the job's spec, or the environment of \
                 `holdfast run`, settles it before the program starts",
                too_late.join(", ")
            );
        }
        self.client = Some(client);
        self.learn_restart_name()?;
        let exits = self.settings.switch("SCR_HALT_EXIT", environment).unwrap_or(true);
        Ok(halt.filter(|_| exits).map(|reason| Halt { reason, speaks }))
    }

    /// The program is done.
    ///
    /// # Errors
    /// As every call of the client.
    pub fn finalize(&mut self) -> Answer<()> {
        self.client()?;
        let client = self.client.take().ok_or(Failure::NotInitialised)?;
        self.finalized = true;
        Ok(client.finalize()?)
    }

    /// Is a checkpoint due?
    ///
    /// # Errors
    /// As every call of the client.
    pub fn need_checkpoint(&mut self) -> Answer<bool> {
        Ok(self.client()?.need_checkpoint()?)
    }

    /// Is the program to end?
    ///
    /// # Errors
    /// As every call of the client.
    pub fn should_exit(&mut self) -> Answer<bool> {
        self.asks_to_exit = true;
        Ok(self.client()?.should_exit()?)
    }

    /// Begins a checkpoint without a name.
    ///
    /// # Errors
    /// As every call of the client.
    pub fn start_checkpoint(&mut self) -> Answer<()> {
        self.start(None, true, false)
    }

    /// Begins a dataset.
    ///
    /// # Errors
    /// Unknown flags; else as every call of the client.
    pub fn start_output(&mut self, name: Option<String>, flags: i32) -> Answer<()> {
        self.modern = true;
        let (checkpoint, output) = (flags & FLAG_CHECKPOINT != 0, flags & FLAG_OUTPUT != 0);
        if flags & !(FLAG_CHECKPOINT | FLAG_OUTPUT) != 0 || !(checkpoint || output) {
            return Err(Failure::Flags(flags));
        }
        self.start(name.filter(|name| !name.is_empty()), checkpoint, output)
    }

    fn start(&mut self, name: Option<String>, checkpoint: bool, output: bool) -> Answer<()> {
        let bypass = self.settings.switch("SCR_CACHE_BYPASS", environment).unwrap_or(false);
        self.client()?.start_output(&DatasetOptions { name, checkpoint, output, bypass })?;
        self.phase = Phase::Writing;
        self.restart_name = None;
        Ok(())
    }

    /// Ends a dataset. `old`: by the function that v1.1-8 has.
    ///
    /// # Errors
    /// It was not kept; else as every call of the client.
    pub fn complete(&mut self, valid: bool, old: bool) -> Answer<Option<Halt>> {
        let exits = self.settings.switch("SCR_HALT_EXIT", environment).unwrap_or(old && !self.asks_to_exit);
        let completed = self.client()?.complete_checkpoint(valid);
        if !matches!(completed, Err(ClientError::Outside { .. })) {
            self.phase = Phase::Computing;
        }
        let completed = completed?;
        let speaks = self.rank() == Some(0);
        match completed.halt.filter(|_| exits) {
            Some(reason) => Ok(Some(Halt { reason, speaks })),
            None if completed.kept => Ok(None),
            None => Err(Failure::NotKept(completed.checkpoint)),
        }
    }

    /// The name of what there is to restart from; `None`: nothing.
    ///
    /// # Errors
    /// As every call of the client.
    pub fn have_restart(&mut self) -> Answer<Option<String>> {
        self.modern = true;
        if std::mem::take(&mut self.load_current) {
            self.client()?.load_current()?;
            self.learn_restart_name()?;
        }
        let offered = self.client()?.have_restart();
        Ok(offered.and(self.restart_name.clone()))
    }

    /// The ranks begin to read.
    ///
    /// # Errors
    /// There is nothing to restart from.
    pub fn start_restart(&mut self) -> Answer<String> {
        self.modern = true;
        let checkpoint = self.client()?.start_restart()?;
        self.phase = Phase::Reading;
        Ok(self.restart_name.clone().unwrap_or_else(|| default_name(checkpoint)))
    }

    /// The ranks have read.
    ///
    /// # Errors
    /// A rank could not read its files; else as every call of the client.
    pub fn complete_restart(&mut self, valid: bool) -> Answer<()> {
        let outcome = self.client()?.complete_restart(valid)?;
        self.phase = Phase::Computing;
        self.learn_restart_name()?;
        match outcome {
            RestartOutcome::Accepted => Ok(()),
            RestartOutcome::Older(older) => Err(Failure::NotRead(Some(older))),
            RestartOutcome::Nothing => Err(Failure::NotRead(None)),
        }
    }

    /// Where a file is to be written or read.
    ///
    /// # Errors
    /// In a restart: the file is not there.
    pub fn route(&mut self, name: &str) -> Answer<PathBuf> {
        let looked_for = match self.phase {
            Phase::Writing | Phase::Reading => true,
            Phase::Beginning => !self.modern,
            Phase::Computing => false,
        };
        let client = self.client()?;
        if looked_for { Ok(client.route_file(name)?) } else { Ok(PathBuf::from(name)) }
    }

    /// The program restarted from this dataset by itself.
    ///
    /// # Errors
    /// There is no such dataset; else as every call of the client.
    pub fn current(&mut self, name: &str) -> Answer<()> {
        self.modern = true;
        self.client()?.current(name)?;
        self.load_current = true;
        Ok(())
    }

    /// Out of the index.
    ///
    /// # Errors
    /// There is no such dataset; else as every call of the client.
    pub fn drop_dataset(&mut self, name: &str) -> Answer<()> {
        Ok(self.client()?.drop_dataset(name)?)
    }

    /// Deleted everywhere.
    ///
    /// # Errors
    /// There is no such dataset; else as every call of the client.
    pub fn delete_dataset(&mut self, name: &str) -> Answer<()> {
        Ok(self.client()?.delete_dataset(name)?)
    }

    fn client(&mut self) -> Answer<&mut Client> {
        let missing = if self.finalized { Failure::Finalized } else { Failure::NotInitialised };
        self.client.as_mut().ok_or(missing)
    }

    /// All ranks are offered the same, so that all of them ask, or none.
    fn learn_restart_name(&mut self) -> Answer<()> {
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

/// A variable that is set to nothing counts as not set.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
