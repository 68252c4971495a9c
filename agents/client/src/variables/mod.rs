//! Checkpoints of variables in memory: the program names its variables once, and each checkpoint saves their current
//! content. For jobs with `checkpoint: {source: variables}`.
//!
//! The calls correspond to those of FTI. Each rank's variables are one FTI-FF file of the checkpoint; it is
//! protected, flushed, drained and restored like any other checkpoint file, and `holdfast inspect` and `verify` read
//! it.
//!
//! | call | FTI | collective |
//! |---|---|---|
//! | [`Variables::init`] | `FTI_Init` | yes |
//! | [`Variables::status`] | `FTI_Status` | no; equal result on all ranks |
//! | [`Variables::protect`], [`Variables::share`] | `FTI_Protect` | no |
//! | [`Variables::unprotect`] | | no |
//! | [`Variables::distribute`], [`Variables::uniform`] | | no |
//! | [`Variables::stored_size`] | `FTI_GetStoredSize` | no |
//! | [`Variables::verify_restart`] | a part of `FTI_Init` | yes |
//! | [`Variables::recover`] | `FTI_Recover` | yes |
//! | [`Variables::recover_variable`] | `FTI_RecoverVar` | no |
//! | [`Variables::checkpoint`] | `FTI_Checkpoint` | yes |
//! | [`Variables::start_checkpoint`] | `FTI_InitICP` | yes |
//! | [`Variables::add_variable`] | `FTI_AddVarICP` | no |
//! | [`Variables::complete_checkpoint`] | `FTI_FinalizeICP` | yes |
//! | [`Variables::identify`], [`Variables::find_identifier`] | `FTI_setIDFromString`, `FTI_getIDFromString` | no |
//! | [`Variables::describe_variable`] | `FTI_SetAttribute` | no |
//! | [`Variables::snapshot`] | `FTI_Snapshot` | yes |
//! | [`Variables::finalize`] | `FTI_Finalize` | yes |
//!
//! # A complete program
//!
//! ```no_run
//! use holdfast_client::variables::{Level, Variables, VariablesError};
//!
//! fn main() -> Result<(), VariablesError> {
//!     let mut variables = Variables::init()?;
//!     let step = variables.share(1, "step", vec![0u64]);
//!     let field = variables.share(2, "field", vec![0.0f64; 1_000_000]);
//!     if variables.status().is_restart() {
//!         variables.recover()?;
//!     }
//!     while step.lock().map_or(0, |step| step[0]) < 1000 {
//!         if let (Ok(mut step), Ok(mut field)) = (step.lock(), field.lock()) {
//!             step[0] += 1;
//!             field.iter_mut().for_each(|value| *value += 0.5);
//!         }
//!         // Saves all variables when a checkpoint is due.
//!         variables.snapshot()?;
//!     }
//!     variables.finalize()
//! }
//! ```

mod cached_files;
#[cfg(test)]
mod crash_tests;
mod descriptions;
mod distribution;
mod error;
mod load;
mod memory;
mod others;
mod save;
mod types;

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::rank::Interface;

use self::cached_files::CachedFiles;
use self::descriptions::Descriptions;
pub use self::descriptions::{Description, LONGEST_NAME, MOST_DIMENSIONS};
use self::distribution::{Block, Distribution};
pub use self::error::VariablesError;
use self::memory::{RawMemory, SharedMemory, VariableMemory};
use self::others::Survey;
use self::save::Started;
pub use self::types::{RecoverOutcome, VariableId};
use crate::client::{Builder, Client};
pub use holdfast_formats::fti_ff::differential::Written;
pub use holdfast_formats::fti_ff::variable_type::VariableType;
pub use holdfast_model::{Level, SnapshotIntervals};

/// The variables of this rank, and its connection to the agent.
pub struct Variables {
    client: Client,
    /// In the order in which they were protected, which FTI 1.1 recovers by.
    protected: Vec<Protected>,
    /// The user's id of the last checkpoint.
    last: u32,
    /// The files in the cache that this process has written or read.
    files: CachedFiles,
    /// Bytes written by the last checkpoint.
    written: Written,
    write_error: Option<VariablesError>,
    /// The checkpoint whose variables are being added.
    started: Option<Started>,
    descriptions: Descriptions,
    /// This rank has no variables: it only takes part in collective calls.
    is_idle: bool,
    /// The checkpoint to restart from, if another number of ranks wrote it.
    others: Option<Survey>,
    /// The checkpoint to restart from whose files are intact on all ranks.
    verified: Option<CheckpointId>,
}

#[derive(Debug)]
struct Protected {
    id: VariableId,
    name: String,
    kind: VariableType,
    distribution: Distribution,
    memory: Box<dyn VariableMemory>,
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}, {})", self.id, self.name, self.kind.name())
    }
}

/// Whether this launch of the program continues from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartStatus {
    /// There is no checkpoint: start from the beginning.
    Fresh,
    /// [`Variables::recover`] loads this checkpoint, or an older one.
    Restart(CheckpointId),
}

impl RestartStatus {
    /// True if there is a checkpoint to recover from.
    pub fn is_restart(self) -> bool {
        self != RestartStatus::Fresh
    }
}

impl Variables {
    /// Joins the run with default options; see [`Client::init`].
    ///
    /// # Errors
    /// When the agent cannot be reached, or the job has another checkpoint source.
    pub fn init() -> Result<Variables, VariablesError> {
        Self::with(Client::builder())
    }

    /// Joins the run with a client of these options; see [`Builder::init`].
    ///
    /// # Errors
    /// When the agent cannot be reached, or the job has another checkpoint source.
    pub fn with(builder: Builder) -> Result<Variables, VariablesError> {
        let client = builder.interface(Interface::Variables).init()?;
        let restart = client.restart();
        // The files of other ranks are in the prefix directory.
        let files = CachedFiles::new(restart.directory.as_deref().filter(|_| restart.written_by.is_none()));
        let (protected, written) = (Vec::new(), Written::default());
        let mut variables = Variables {
            client,
            protected,
            last: 0,
            files,
            written,
            write_error: None,
            started: None,
            descriptions: Descriptions::default(),
            is_idle: false,
            others: None,
            verified: None,
        };
        variables.survey()?;
        Ok(variables)
    }

    /// The client, for calls without variables: rank, allgather, halt conditions.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The number of this process among the ranks of the job, from 0.
    pub fn rank(&self) -> Rank {
        self.client.rank()
    }

    /// The number of ranks of the run.
    pub fn ranks(&self) -> u32 {
        self.client.ranks()
    }

    /// False if `SCR_ENABLE=0` disables the API.
    pub fn enabled(&self) -> bool {
        self.client.enabled()
    }

    /// This rank has no variables, and writes no files: it only takes part in the collective calls of the others, with
    /// the same arguments.
    pub fn set_idle(&mut self) {
        self.is_idle = true;
    }

    /// True if another number of ranks wrote the checkpoint to restart from.
    pub fn is_of_other_ranks(&self) -> bool {
        self.others.is_some()
    }

    /// The program's id of the last checkpoint: the next snapshot has the one after it.
    pub fn last_id(&self) -> u32 {
        self.last
    }

    /// The next snapshot has the id after this one, as on the other ranks.
    pub fn set_last_id(&mut self, last: u32) {
        self.last = last;
    }

    /// What the last checkpoint of this rank has cost.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Why this rank could not write its file of the last checkpoint.
    pub fn write_error(&self) -> Option<&VariablesError> {
        self.write_error.as_ref()
    }

    /// Whether there is a checkpoint to recover from.
    pub fn status(&self) -> RestartStatus {
        self.client.have_restart().map_or(RestartStatus::Fresh, RestartStatus::Restart)
    }

    /// Protects a variable at an address; replaces the one of the same id, which keeps its position. The size may
    /// differ from that of the previous call: call this whenever the variable was moved, grew, or shrank.
    ///
    /// # Safety
    /// `address` must be valid for reads and writes of `count` initialised elements until the variable is unprotected
    /// or protected again, or the value is dropped. No thread may write to them during `checkpoint` and `snapshot`, or
    /// access them during `recover`.
    ///
    /// # Errors
    /// When the address is null although there are elements, or the elements exceed the address space.
    #[allow(unsafe_code)]
    pub unsafe fn protect(
        &mut self,
        id: impl Into<VariableId>,
        name: &str,
        address: *mut c_void,
        count: usize,
        kind: &VariableType,
    ) -> Result<(), VariablesError> {
        let id = id.into();
        let bytes = count.checked_mul(kind.bytes()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(VariablesError::TooLarge { id, count, bytes: kind.bytes() })?;
        if address.is_null() && bytes > 0 {
            return Err(VariablesError::Null { id });
        }
        // SAFETY: the caller's guarantee is that of `RawMemory::new`.
        let memory = unsafe { RawMemory::new(address, bytes) };
        self.add(id, name, kind.clone(), Box::new(memory));
        Ok(())
    }

    /// Protects a vector that the program and the API share; replaces the variable of the same id. The program locks it
    /// to use it, and may change its length at any time; [`Variables::recover`] gives it the length of the checkpoint.
    /// A checkpoint waits until the vector is unlocked.
    pub fn share<T: Pod + Send + fmt::Debug>(
        &mut self,
        id: impl Into<VariableId>,
        name: &str,
        elements: Vec<T>,
    ) -> Arc<Mutex<Vec<T>>> {
        let shared = Arc::new(Mutex::new(elements));
        let kind = VariableType::user(std::any::type_name::<T>(), size_of::<T>());
        self.add(id.into(), name, kind, Box::new(SharedMemory(Arc::clone(&shared))));
        shared
    }

    /// Declares that the variables of this id on all ranks are the blocks of one array, in the order of the ranks, so
    /// that another number of ranks can recover it (`checkpoint.restart.ranks: any`). `shape` is that of the block in
    /// row-major order; the ranks differ in the size of `dimension` only, counted from 0. That size is not used: it is
    /// computed from the bytes of the variable. The declaration holds until the variable is unprotected.
    ///
    /// # Errors
    /// When the variable is not protected, or no array has this shape.
    pub fn distribute(
        &mut self,
        id: impl Into<VariableId>,
        shape: &[usize],
        dimension: usize,
    ) -> Result<(), VariablesError> {
        let variable = self.protected_mut("distribute", id.into())?;
        let block = Block::of(shape, dimension, variable.kind.bytes());
        let id = variable.id;
        variable.distribution = Distribution::Block(block.map_err(|reason| VariablesError::Shape { id, reason })?);
        Ok(())
    }

    /// Declares that the variable has the same value on all ranks, so that another number of ranks can recover it
    /// (`checkpoint.restart.ranks: any`). The declaration holds until the variable is unprotected.
    ///
    /// # Errors
    /// When the variable is not protected.
    pub fn uniform(&mut self, id: impl Into<VariableId>) -> Result<(), VariablesError> {
        self.protected_mut("uniform", id.into())?.distribution = Distribution::Uniform;
        Ok(())
    }

    fn protected_mut(&mut self, call: &'static str, id: VariableId) -> Result<&mut Protected, VariablesError> {
        let known = self.protected.iter_mut().find(|known| known.id == id);
        known.ok_or(VariablesError::Unprotected { call, id })
    }

    /// Ends the protection of a variable: later checkpoints do not contain it. False if it was not protected.
    pub fn unprotect(&mut self, id: impl Into<VariableId>) -> bool {
        let (id, before) = (id.into(), self.protected.len());
        self.protected.retain(|variable| variable.id != id);
        self.protected.len() < before
    }

    /// Id, name and type of the protected variables, in the order in which they were protected, for messages.
    pub fn describe(&self) -> Vec<String> {
        self.protected.iter().map(ToString::to_string).collect()
    }

    /// The ids of the protected variables, in the order in which they were protected.
    pub fn ids(&self) -> Vec<VariableId> {
        self.protected.iter().map(|variable| variable.id).collect()
    }

    /// The bytes of a protected variable in memory; `None` if it is not protected.
    pub fn size(&self, id: impl Into<VariableId>) -> Option<usize> {
        let id = id.into();
        self.protected.iter().find(|variable| variable.id == id).map(|variable| variable.memory.bytes())
    }

    /// Ends the run; see [`Client::finalize`]. A checkpoint that was started and not completed is dropped.
    ///
    /// # Errors
    /// When the agent cannot be reached.
    pub fn finalize(mut self) -> Result<(), VariablesError> {
        if self.started.take().is_some() {
            self.client.drop_checkpoint("the run was finalized before the checkpoint was completed")?;
        }
        Ok(self.client.finalize()?)
    }

    fn add(&mut self, id: VariableId, name: &str, kind: VariableType, memory: Box<dyn VariableMemory>) {
        let name = name.to_owned();
        match self.protected.iter_mut().find(|known| known.id == id) {
            Some(known) => (known.name, known.kind, known.memory) = (name, kind, memory),
            None => self.protected.push(Protected { id, name, kind, distribution: Distribution::Own, memory }),
        }
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variables").field("client", &self.client).field("protected", &self.protected).finish()
    }
}
