//! The order of the calls of a rank process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_client::{Awaited, CheckpointId, Client, ClientError, ProgramState};
use holdfast_wire::environment;
use parking_lot::Mutex;
use rustix::process::Signal;
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::error::SaveError;
use crate::files;
use crate::program::Program;
use crate::program_end::ProgramEnd;
use crate::saver::{Saver, SaverContext};
use crate::settings::RankSettings;
use crate::words::{CHECKPOINT_DIR, RESTART_DIR, Variables, expand, shown};
use crate::writers::{self, FileIdentity};

/// Signals that are passed on to the program.
const PASSED_ON: [i32; 9] = [SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// Without a program, these end the rank process.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Why a rank process ended without the end of its program. The program is killed.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    #[error(
        "{} is not set or damaged: this command is started by `holdfast run`, not by hand",
        environment::RANK_SETTINGS
    )]
    Settings,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Saver(#[from] SaveError),
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("cannot handle signals: {0}")]
    Signals(std::io::Error),
}

/// The program that runs, if any.
type Running = Arc<Mutex<Option<Program>>>;

/// Runs a rank to its end: as the program ended, or with exit code 0 when all are finished or the run halts. Must be
/// called by the main thread: see [`Program::start`].
///
/// # Errors
/// The calls of the checkpoint API failed, or the program could not be started.
pub fn run(words: &[String]) -> Result<ProgramEnd, RankError> {
    let settings = std::env::var(environment::RANK_SETTINGS).ok();
    let settings: Option<RankSettings> = settings.and_then(|text| serde_json::from_str(&text).ok());
    let settings = settings.ok_or(RankError::Settings)?;
    let running = Running::default();
    pass_signals_on(&running).map_err(RankError::Signals)?;
    let mut client = Client::builder().exit_on_halt(false).init()?;
    if client.restart().halt.is_some() {
        return Ok(ProgramEnd::SUCCESS);
    }
    let workspace = client.workspace()?;
    let rank = RankProcess::new(client, settings, words, workspace, running.clone())?;
    let ended = rank.run();
    // After an error it may still run.
    if let Some(program) = running.lock().take() {
        program.kill();
    }
    ended
}

/// Passes signals on to the program and the processes of its group: it is not in the group of this process.
fn pass_signals_on(running: &Running) -> std::io::Result<()> {
    let mut signals = Signals::new(PASSED_ON)?;
    let running = running.clone();
    let pass_on = move || {
        for number in signals.forever() {
            let program = running.lock().clone().filter(|program| program.end().is_none());
            match (program, Signal::from_named_raw(number)) {
                (Some(program), Some(signal)) => program.signal_group(signal),
                _ if ENDING.contains(&number) => {
                    let _ = signal_hook::low_level::emulate_default_handler(number);
                }
                _ => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(pass_on).map(drop)
}

struct RankProcess<'a> {
    client: Client,
    settings: RankSettings,
    words: &'a [String],
    saver: Box<dyn Saver>,
    running: Running,
    /// Into which the program writes.
    checkpoint_directory: PathBuf,
    restart_directory: PathBuf,
    variables: Variables,
    /// The program ended with exit code 0 before the checkpoint was made from which the run was restarted.
    ended_before: bool,
}

impl<'a> RankProcess<'a> {
    fn new(
        client: Client,
        settings: RankSettings,
        words: &'a [String],
        workspace: PathBuf,
        running: Running,
    ) -> Result<Self, RankError> {
        let (checkpoint_directory, restart_directory) = (workspace.join("checkpoint"), workspace.join("restart"));
        files::empty(&checkpoint_directory)?;
        let mut variables = BTreeMap::from([
            (environment::RANK, client.rank().to_string()),
            (environment::RANKS, client.ranks().to_string()),
            (CHECKPOINT_DIR, checkpoint_directory.to_string_lossy().into_owned()),
        ]);
        let interrupter = client.interrupter();
        let context = SaverContext {
            rank: client.rank(),
            node: client.node().cloned(),
            interrupter,
            directory: workspace.join("saver"),
            variables: variables.clone(),
        };
        let saver = settings.saver.saver(context)?;
        variables.extend(saver.variables());
        let ended_before = false;
        Ok(RankProcess {
            client,
            settings,
            words,
            saver,
            running,
            checkpoint_directory,
            restart_directory,
            variables,
            ended_before,
        })
    }

    fn run(mut self) -> Result<ProgramEnd, RankError> {
        if let Err(error) = self.restart() {
            let Some(end) = self.failure() else { return Err(error) };
            eprintln!("holdfast: rank {}: {error}", self.client.rank());
            return Ok(end);
        }
        loop {
            if let Some(end) = self.failure() {
                return Ok(end);
            }
            match self.client.await_checkpoint(self.state())? {
                // The state of the program has changed.
                None => {}
                Some(Awaited::Ended) => {
                    self.client.finalize()?;
                    return Ok(ProgramEnd::SUCCESS);
                }
                Some(Awaited::Checkpoint) => {
                    if let Some(end) = self.checkpoint()? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    fn program(&self) -> Option<Program> {
        self.running.lock().clone()
    }

    /// How the program ended, if that is not with exit code 0.
    fn failure(&self) -> Option<ProgramEnd> {
        self.program().and_then(|program| program.end()).filter(|end| *end != ProgramEnd::SUCCESS)
    }

    fn has_ended(&self) -> bool {
        self.ended_before || self.program().is_none_or(|program| program.end().is_some())
    }

    fn state(&self) -> ProgramState {
        match self.has_ended() {
            true => ProgramState::Ended,
            false if self.saver.is_ready() => ProgramState::Ready,
            false => ProgramState::Running,
        }
    }

    /// Starts the program from the newest checkpoint that all programs can restart from, or from its beginning.
    fn restart(&mut self) -> Result<(), RankError> {
        while self.client.have_restart().is_some() {
            self.client.start_restart()?;
            let outcome = match self.restart_once()? {
                Ok(()) => self.client.complete_restart(true)?,
                // Something else may have ended it. The next generation restarts from the same checkpoint.
                Err(error @ SaveError::ProgramEnded { .. }) => return Err(error.into()),
                Err(error) => {
                    eprintln!("holdfast: rank {} cannot restart: {error}", self.client.rank());
                    self.client.refuse_restart(&error.to_string())?
                }
            };
            if outcome.accepted() {
                return Ok(());
            }
            self.ended_before = false;
            if let Some(program) = self.running.lock().take() {
                program.kill();
            }
        }
        self.variables.remove(RESTART_DIR);
        self.start(None)?;
        Ok(())
    }

    /// Puts the files of a checkpoint back and starts the program from them. The inner error is that of the files.
    fn restart_once(&mut self) -> Result<Result<(), SaveError>, RankError> {
        match self.put_files_back() {
            Ok(()) if self.ended_before => return Ok(Ok(())),
            Ok(()) => {}
            Err(error) => return Ok(Err(error)),
        }
        self.variables.insert(RESTART_DIR, self.restart_directory.to_string_lossy().into_owned());
        let resume = self.settings.resume.clone();
        let program = self.start(resume.as_deref())?;
        Ok(self.saver.restore(&program, &self.restart_directory))
    }

    fn put_files_back(&mut self) -> Result<(), SaveError> {
        let rank = self.client.rank();
        files::empty(&self.restart_directory)?;
        let names = self.client.restart().files.clone();
        if names == [files::ended_name(rank)] {
            self.ended_before = true;
            return Ok(());
        }
        for name in names {
            let from = self.client.route_file(&name).map_err(call_failed)?;
            files::copy(&from, &self.restart_directory.join(files::program_name(rank, &name)))?;
        }
        Ok(())
    }

    /// Starts the program with these words, or with its usual ones.
    fn start(&mut self, words: Option<&[String]>) -> Result<Program, RankError> {
        self.saver.before_start()?;
        let words = words.unwrap_or(self.words).iter();
        let words: Vec<String> = words.map(|word| expand(word, &self.variables)).collect();
        let started = Program::start(&words, &self.variables, self.client.interrupter());
        let cannot = |source| RankError::Start { program: shown(&words), source };
        let program = started.map_err(cannot)?;
        *self.running.lock() = Some(program.clone());
        self.saver.started(&program)?;
        Ok(program)
    }

    /// Makes a checkpoint; returns how the rank ends, if it does.
    fn checkpoint(&mut self) -> Result<Option<ProgramEnd>, RankError> {
        let Some(checkpoint) = unless_failed(self.client.start_checkpoint())? else { return Ok(None) };
        let saved = self.save(checkpoint);
        if let Some(end) = self.failure() {
            return Ok(Some(end));
        }
        let has_ended = matches!(saved, Ok(Saved::End));
        let all_have_ended = unless_failed(self.client.allgather(&[u8::from(has_ended)]))?
            .is_some_and(|all| all.iter().all(|has_ended| has_ended == &[1]));
        let completed = match saved {
            // It has no state of a program, and would take the place of a checkpoint that has.
            Ok(_) if all_have_ended => self.client.end_checkpoint(),
            Ok(Saved::End) => self.client.complete_with_end(),
            Ok(Saved::Files) => self.client.complete_checkpoint(true),
            Err(error) => self.client.drop_checkpoint(&error.to_string()),
        };
        let halts = unless_failed(completed)?.is_some_and(|completed| completed.halt.is_some());
        if !halts {
            return Ok(None);
        }
        if let Some(program) = self.program() {
            program.terminate(self.settings.grace);
        }
        Ok(Some(ProgramEnd::SUCCESS))
    }

    /// Has the program write its files, and moves them into the checkpoint.
    fn save(&mut self, checkpoint: CheckpointId) -> Result<Saved, SaveError> {
        let program = self.program().filter(|_| !self.has_ended());
        files::make(&self.checkpoint_directory)?;
        if let Some(program) = &program {
            self.saver.settle(program, &self.checkpoint_directory)?;
        }
        files::empty(&self.checkpoint_directory)?;
        let saved = match program {
            Some(program) => self.saver.save(&program, checkpoint, &self.checkpoint_directory),
            None => Ok(()),
        };
        // Also if it ended meanwhile.
        if self.has_ended() {
            return self.save_end();
        }
        saved?;
        let mut taken = Vec::new();
        for (path, name) in files::written(&self.checkpoint_directory)? {
            let to = self.route(&files::dataset_name(self.client.rank(), &name))?;
            taken.push(FileIdentity::at(&path).map_err(SaveError::io("read", &path))?);
            files::move_file(&path, &to)?;
        }
        // Only now can no process open them by their names.
        writers::wait_until_closed(&taken).map_err(SaveError::StillOpen)?;
        Ok(Saved::Files)
    }

    /// Records that the program has ended.
    fn save_end(&mut self) -> Result<Saved, SaveError> {
        let to = self.route(&files::ended_name(self.client.rank()))?;
        std::fs::write(&to, files::ENDED_CONTENT).map_err(SaveError::io("write", &to))?;
        Ok(Saved::End)
    }

    fn route(&mut self, name: &str) -> Result<PathBuf, SaveError> {
        self.client.route_file(Path::new(name)).map_err(call_failed)
    }
}

/// What a rank has in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    /// The files of its program.
    Files,
    /// That its program has ended.
    End,
}

/// `None` if the agents could not carry out a call, on any rank: the program continues without this checkpoint.
fn unless_failed<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Err(error @ ClientError::Failed { .. }) => {
            eprintln!("holdfast: a checkpoint could not be made: {error}");
            Ok(None)
        }
        result => result.map(Some),
    }
}

fn call_failed(error: ClientError) -> SaveError {
    SaveError::Other(Box::new(error))
}
