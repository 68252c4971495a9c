//! The trait of what has a program write the files of a checkpoint.

use std::path::{Path, PathBuf};

use holdfast_client::Interrupter;
use holdfast_model::{CheckpointId, NodeName, Rank};

use crate::error::SaveError;
use crate::program::Program;
use crate::words::Variables;

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
    pub node: Option<NodeName>,
    /// To be used when [`Saver::is_ready`] has changed.
    pub interrupter: Interrupter,
    /// A directory of the saver's own, in the file system of the checkpoint files. Not made yet.
    pub directory: PathBuf,
    /// The variables of the rank: its number, and the directories.
    pub variables: Variables,
}
