//! A command has the program write its files: `checkpoint.command.save`.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_model::CheckpointId;

use crate::error::{SaveError, Stage};
use crate::guard::{CommandEnd, GuardedCommand};
use crate::program::Program;
use crate::program_end::ProgramEnd;
use crate::saver::Saver;
use crate::words::{PROGRAM_PID, Variables, expand, shown};

/// How often it is checked whether the program still runs.
const PROGRAM_CHECKED_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub(crate) struct CommandSaver {
    pub(crate) words: Vec<String>,
    pub(crate) timeout: Duration,
    pub(crate) variables: Variables,
}

impl Saver for CommandSaver {
    fn save(&mut self, program: &Program, _: CheckpointId, directory: &Path) -> Result<(), SaveError> {
        let mut variables = self.variables.clone();
        variables.insert(PROGRAM_PID, program.pid().to_string());
        let words: Vec<String> = self.words.iter().map(|word| expand(word, &variables)).collect();
        let command = shown(&words);
        let begun = Instant::now();
        let mut running =
            GuardedCommand::start(&words, &variables).map_err(SaveError::io("run", Path::new(&command)))?;
        let end = loop {
            let left = self.timeout.saturating_sub(begun.elapsed());
            if let Some(end) = running.wait(left.min(PROGRAM_CHECKED_EVERY)) {
                break end;
            }
            if let Some(end) = program.end() {
                return Err(Stage::Save.ended(end));
            }
            if left.is_zero() {
                return Err(SaveError::TimedOut { what: command, limit: self.timeout });
            }
        };
        match end {
            CommandEnd::Ended(ProgramEnd::SUCCESS) if is_empty(directory) => {
                Err(SaveError::Empty { what: "the save command", directory: directory.to_owned() })
            }
            CommandEnd::Ended(ProgramEnd::SUCCESS) => Ok(()),
            CommandEnd::Ended(end) => Err(SaveError::Failed { command, end }),
            CommandEnd::Left(names) => Err(SaveError::LeftProcesses { command, names }),
            CommandEnd::NotStarted(reason) => Err(SaveError::NotStarted { command, reason }),
        }
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}
