//! The behaviour of the functions: one session per process.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;

use holdfast_boundary::{ArgumentError, Halt};
use holdfast_client::variables::{
    Level, RecoverOutcome, SnapshotIntervals, VariableId, VariableType, Variables, VariablesError,
};
use holdfast_client::{CheckpointId, Client};

use crate::heads::{Command, Role};

/// The state of the library in this process.
#[derive(Debug, Default)]
pub struct Session {
    variables: Option<Variables>,
    /// The process has joined the run, and its initialisation was refused since. The next one continues with this.
    refused: Option<Variables>,
    /// Rank and number of ranks.
    place: Option<(u32, u32)>,
    finalized: bool,
    /// The types that the program has defined, from [`FIRST_USER_TYPE`] on.
    types: Vec<VariableType>,
    /// What the program has protected, by its id.
    protected: BTreeMap<i32, Protected>,
    /// The bytes of the variables in the newest checkpoint of this process.
    saved: BTreeMap<i32, u64>,
    /// Whether there are head processes, and this is one.
    role: Role,
    /// The program has called `holdfast_should_exit`.
    calls_should_exit: bool,
}

#[derive(Clone, Debug)]
struct Protected {
    name: String,
    kind: VariableType,
}

/// The number of the first type that the program defines. Those before it are [`VariableType::BASIC`].
pub const FIRST_USER_TYPE: c_int = VariableType::BASIC.len() as c_int;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// An error of the variables API.
    #[error(transparent)]
    Variables(#[from] VariablesError),
    /// An argument that cannot be converted.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error("the library is not initialised: call its init function first, and check what it returns")]
    NotInitialised,
    #[error("the library has been finalized")]
    Finalized,
    #[error("the library has already been initialised")]
    Twice,
    /// The program's rank is not the rank in the run.
    #[error("rank {0} of the run has another number in the communicator; its message has the remedy")]
    Misplaced(usize),
    #[error("type {0} is not defined: use a basic type, or define it first")]
    Type(c_int),
    #[error("the size of a type is at least 1 byte, and at most that of the largest int")]
    TypeSize,
    #[error("level {0} is invalid: use 1 (node), 2 (partner), 3 (parity) or 4 (prefix directory)")]
    Level(c_int),
    #[error("checkpoint id {0} is negative")]
    CheckpointId(c_int),
    #[error("head processes need the agents, which SCR_ENABLE=0 disables: unset it, or set Head = 0")]
    HeadsWithoutAgent,
    #[error(
        "another number of ranks wrote the checkpoint to restart from, which head processes do not allow: run with as \
         many ranks, or set Head = 0"
    )]
    HeadsOfOtherRanks,
    /// A node would have no rank of the application.
    #[error(
        "node {0} has one rank, which would be its head process: start two ranks a node or more \
         (run.ranks_per_node), or set Head = 0"
    )]
    OneRank(String),
    #[error("the call cannot be passed to the head processes: {0}; use one Holdfast version on all ranks")]
    Announcement(String),
    /// A number that does not fit into the type of the interface.
    #[error("{what} is {value}, which does not fit into an int")]
    Range { what: &'static str, value: u64 },
    #[error("no variable {0} is protected: protect it first")]
    Unprotected(c_int),
    /// This rank cannot write its file of the checkpoint that was started.
    #[error("{0}; complete the checkpoint, which is dropped on all ranks")]
    NotWritable(String),
    #[error("the shape of variable {0} is null: pass an array with the size of each dimension")]
    NoShape(c_int),
    /// The variable in the checkpoint is not a multiple of the element's size.
    #[error("variable {id} has {stored} bytes in the checkpoint, which are not a multiple of its {element} byte type")]
    Elements { id: i32, stored: u64, element: usize },
    #[error("variable {id} cannot be allocated with the {bytes} bytes that it has in the checkpoint")]
    NoMemory { id: i32, bytes: u64 },
}

/// The result of a function.
pub type SessionResult<T> = Result<T, SessionError>;

/// The end of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The checkpoint is protected.
    Kept,
    /// A rank could not write its file, or the checkpoint could not be protected: it was dropped on all ranks.
    Dropped {
        checkpoint: CheckpointId,
        /// Why this rank could not write its file; `None` if the reason is elsewhere.
        reason: Option<String>,
    },
    /// A halt condition holds: the process must end.
    Halted(Halt),
}

impl holdfast_boundary::Session for Session {
    fn rank(&self) -> Option<u32> {
        self.place.map(|(rank, _)| rank)
    }

    fn is_joined(&self) -> bool {
        self.variables.as_ref().or(self.refused.as_ref()).is_some_and(Variables::enabled)
    }
}

impl Session {
    /// A session before its initialisation.
    pub const fn new() -> Self {
        Session {
            variables: None,
            refused: None,
            place: None,
            finalized: false,
            types: Vec::new(),
            protected: BTreeMap::new(),
            saved: BTreeMap::new(),
            role: Role::Alone,
            calls_should_exit: false,
        }
    }

    /// Joins the run.
    ///
    /// # Errors
    /// There is no agent, it rejects this process, or this is the second call.
    pub fn init(&mut self) -> SessionResult<Option<Halt>> {
        let variables = self.join()?;
        Ok(self.begin(variables))
    }

    /// As [`Session::init`], where the program states its rank; `in_place` is true if that is the rank in the run. If
    /// it is false on any rank, this fails on all ranks, and can be repeated.
    pub fn init_in_place(&mut self, in_place: bool) -> SessionResult<Option<Halt>> {
        let mut variables = self.join()?;
        let client = variables.client();
        let misplaced = match client.enabled() {
            true => {
                let all = client.allgather(&[u8::from(in_place)]);
                all.map(|all| all.iter().position(|part| *part != [1])).map_err(VariablesError::from)
            }
            // Without an agent the ranks do not know of each other.
            false => Ok((!in_place).then_some(client.rank().0 as usize)),
        };
        match misplaced {
            Ok(None) => Ok(self.begin(variables)),
            Ok(Some(rank)) => {
                self.refused = Some(variables);
                Err(SessionError::Misplaced(rank))
            }
            Err(error) => {
                self.refused = Some(variables);
                Err(error.into())
            }
        }
    }

    fn join(&mut self) -> SessionResult<Variables> {
        if self.variables.is_some() || self.finalized {
            return Err(SessionError::Twice);
        }
        match self.refused.take() {
            Some(variables) => Ok(variables),
            None => Ok(Variables::with(Client::builder().exit_on_halt(false))?),
        }
    }

    /// The next initialisation continues with the connection of this one.
    pub(crate) fn refuse(&mut self) {
        self.refused = self.variables.take();
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn set_role(&mut self, role: Role) -> SessionResult<()> {
        if role == Role::Head {
            self.variables()?.set_idle();
        }
        self.role = role;
        Ok(())
    }

    fn begin(&mut self, mut variables: Variables) -> Option<Halt> {
        let client = variables.client();
        let (rank, ranks) = (client.rank().0, client.ranks());
        let halt = client.restart().halt.clone();
        self.place = Some((rank, ranks));
        self.variables = Some(variables);
        halt.map(|reason| Halt { reason, reports: rank == 0 })
    }

    pub fn finalize(&mut self) -> SessionResult<()> {
        self.variables()?;
        self.announce(&Command::Finalize)?;
        self.finalized = true;
        self.protected.clear();
        self.variables.take().map_or(Ok(()), |variables| Ok(variables.finalize()?))
    }

    /// Rank and number of ranks.
    pub fn rank_and_size(&mut self) -> SessionResult<(u32, u32)> {
        self.variables()?;
        self.place.ok_or(SessionError::NotInitialised)
    }

    /// True if there is a checkpoint to recover from.
    pub fn is_restart(&mut self) -> SessionResult<bool> {
        Ok(self.variables()?.status().is_restart())
    }

    /// Defines a type of elements of this size; returns its number.
    ///
    /// # Errors
    /// The size is 0, or there are too many types.
    pub fn define_type(&mut self, bytes: usize) -> SessionResult<c_int> {
        if bytes == 0 || c_int::try_from(bytes).is_err() {
            return Err(SessionError::TypeSize);
        }
        let number = c_int::try_from(self.types.len()).ok().and_then(|defined| FIRST_USER_TYPE.checked_add(defined));
        let number = number.ok_or(SessionError::TypeSize)?;
        self.types.push(VariableType::user(format!("type {number}"), bytes));
        Ok(number)
    }

    /// Protects a variable.
    ///
    /// # Errors
    /// The type is not defined, the address is null, or the elements exceed the address space.
    ///
    /// # Safety
    /// As [`Variables::protect`].
    pub unsafe fn protect(
        &mut self,
        id: c_int,
        name: Option<String>,
        address: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> SessionResult<()> {
        let kind = self.type_of(kind).ok_or(SessionError::Type(kind))?;
        let known = self.protected.get(&id).map(|known| known.name.clone());
        let name = name.or(known).unwrap_or_else(|| format!("variable {id}"));
        // SAFETY: the caller gives the same guarantee.
        unsafe { self.protect_as(id, Protected { name, kind }, address, count) }
    }

    /// # Safety
    /// As [`Variables::protect`].
    unsafe fn protect_as(
        &mut self,
        id: c_int,
        protected: Protected,
        address: *mut c_void,
        count: usize,
    ) -> SessionResult<()> {
        // SAFETY: the caller gives the same guarantee.
        unsafe { self.variables()?.protect(id, &protected.name, address, count, &protected.kind) }?;
        self.protected.insert(id, protected);
        Ok(())
    }

    /// Declares that the variable is a block of an array; see [`Variables::distribute`].
    pub fn distribute(&mut self, id: c_int, shape: &[usize], dimension: usize) -> SessionResult<()> {
        Ok(self.variables()?.distribute(id, shape, dimension)?)
    }

    /// Declares that the variable is equal on all ranks.
    pub fn uniform(&mut self, id: c_int) -> SessionResult<()> {
        Ok(self.variables()?.uniform(id)?)
    }

    /// Ends the protection of a variable.
    pub fn unprotect(&mut self, id: c_int) -> SessionResult<()> {
        if !self.variables()?.unprotect(id) {
            return Err(SessionError::Unprotected(id));
        }
        self.protected.remove(&id);
        Ok(())
    }

    /// The ids of the protected variables.
    pub fn ids(&self) -> impl Iterator<Item = c_int> {
        self.protected.keys().copied()
    }

    /// The bytes of a variable in the newest checkpoint: that to recover from, or the last one of this process.
    pub fn stored_size(&mut self, id: c_int) -> SessionResult<Option<u64>> {
        let saved = self.saved.get(&id).copied();
        let variables = self.variables()?;
        Ok(if variables.status().is_restart() { variables.stored_size(id) } else { saved })
    }

    /// Gives the memory of a variable the size that it has in the checkpoint to recover from, and protects it again.
    /// Returns its new address; `None` if the size is unchanged by this call: there is no checkpoint, the variable is
    /// not in it, or empty there.
    ///
    /// # Errors
    /// The variable is not protected, or there is no memory. It is then unchanged.
    ///
    /// # Safety
    /// `address` is null, or memory of `malloc`; it is invalid after the call, unless that returns `None` or an error.
    pub unsafe fn reallocate(&mut self, id: c_int, address: *mut c_void) -> SessionResult<Option<*mut c_void>> {
        let known = self.protected.get(&id).cloned();
        let is_restart = self.is_restart()?;
        let known = known.ok_or(SessionError::Unprotected(id))?;
        let stored = if is_restart { self.stored_size(id)?.filter(|bytes| *bytes > 0) } else { None };
        let Some(stored) = stored else { return Ok(None) };
        let element = known.kind.bytes();
        let bytes = usize::try_from(stored).map_err(|_| SessionError::NoMemory { id, bytes: stored })?;
        if !bytes.is_multiple_of(element) {
            return Err(SessionError::Elements { id, stored, element });
        }
        // SAFETY: null or memory of the same allocator; the caller gives up the old address.
        let moved = unsafe { realloc(address, bytes) };
        if moved.is_null() {
            return Err(SessionError::NoMemory { id, bytes: stored });
        }
        // SAFETY: memory of this size. Where it grew, it is not initialised by the program before `recover`; to the
        // compiler, which does not see the allocation, it is.
        unsafe { self.protect_as(id, known, moved, bytes / element) }?;
        Ok(Some(moved))
    }

    /// Loads the newest checkpoint that is intact on all ranks.
    pub fn recover(&mut self) -> SessionResult<RecoverOutcome> {
        self.variables()?;
        self.announce(&Command::Recover { exactly: false })?;
        let outcome = self.variables()?.recover()?;
        self.recovered(outcome)
    }

    /// As [`Session::recover`], if the protected variables are those of the checkpoint.
    pub fn recover_exactly(&mut self) -> SessionResult<RecoverOutcome> {
        self.variables()?;
        self.announce(&Command::Recover { exactly: true })?;
        let outcome = self.variables()?.recover_exactly()?;
        self.recovered(outcome)
    }

    /// Chooses the checkpoint to recover from: the newest that is intact on all ranks. Collective.
    pub fn verify_restart(&mut self) -> SessionResult<()> {
        self.variables()?.verify_restart()?;
        Ok(())
    }

    /// Loads one variable of the checkpoint to recover from; see [`Variables::recover_variable`].
    pub fn recover_variable(&mut self, id: c_int) -> SessionResult<()> {
        Ok(self.variables()?.recover_variable(id)?)
    }

    fn recovered(&mut self, outcome: RecoverOutcome) -> SessionResult<RecoverOutcome> {
        if outcome.checkpoint.is_some() {
            // The sizes in memory are those of the checkpoint now.
            self.note_sizes(&outcome.absent)?;
        }
        Ok(outcome)
    }

    pub fn checkpoint(&mut self, id: c_int, level: c_int) -> SessionResult<Saved> {
        let (number, parsed) = checkpoint_arguments(id, level)?;
        self.variables()?.check_start(number)?;
        self.announce(&Command::Checkpoint { id, level })?;
        let completed = self.variables()?.checkpoint(number, parsed)?;
        self.saved(completed)
    }

    /// Starts a checkpoint whose variables are added one by one; see [`Variables::start_checkpoint`].
    ///
    /// # Errors
    /// As [`Variables::start_checkpoint`], and when this rank cannot write its file.
    pub fn start_checkpoint(&mut self, id: c_int, level: c_int) -> SessionResult<()> {
        let (number, parsed) = checkpoint_arguments(id, level)?;
        self.variables()?.check_start(number)?;
        self.announce(&Command::Start { id, level })?;
        let variables = self.variables()?;
        variables.start_checkpoint(number, parsed)?;
        match variables.write_error() {
            Some(error) => Err(SessionError::NotWritable(error.to_string())),
            None => Ok(()),
        }
    }

    /// The program's id of the checkpoint that was started and not completed.
    pub fn started(&mut self) -> SessionResult<Option<u32>> {
        Ok(self.variables()?.started())
    }

    /// Writes a variable into the checkpoint that was started.
    pub fn add_variable(&mut self, id: c_int) -> SessionResult<()> {
        Ok(self.variables()?.add_variable(id)?)
    }

    /// Completes the checkpoint that was started.
    pub fn complete_checkpoint(&mut self) -> SessionResult<Saved> {
        if self.started()?.is_some() {
            self.announce(&Command::Complete)?;
        }
        let completed = self.variables()?.complete_checkpoint()?;
        self.saved(completed)
    }

    /// The id of the variable with this identifier, or a new one; see [`Variables::identify`].
    pub fn identify(&mut self, identifier: &str) -> SessionResult<c_int> {
        Ok(self.variables()?.identify(identifier)?.0)
    }

    /// The id of the variable with this identifier, if there is one.
    pub fn find_identifier(&mut self, identifier: &str) -> SessionResult<Option<c_int>> {
        Ok(self.variables()?.find_identifier(identifier)?.map(|id| id.0))
    }

    /// Describes a variable; see [`Variables::describe_variable`].
    pub fn describe(&mut self, id: c_int, name: Option<&str>, dimensions: Option<&[u64]>) -> SessionResult<()> {
        Ok(self.variables()?.describe_variable(id, name, dimensions)?)
    }

    /// Saves all variables if a checkpoint is due by the intervals of the job; `None` if none is due.
    pub fn snapshot(&mut self) -> SessionResult<Option<Saved>> {
        self.announce_snapshot(None)?;
        let completed = self.variables()?.snapshot()?;
        completed.map(|completed| self.saved(completed)).transpose()
    }

    /// As [`Session::snapshot`], with intervals of the program.
    pub fn snapshot_by(&mut self, intervals: SnapshotIntervals) -> SessionResult<Option<Saved>> {
        self.announce_snapshot(Some(intervals))?;
        let completed = self.variables()?.snapshot_by(intervals)?;
        completed.map(|completed| self.saved(completed)).transpose()
    }

    fn announce_snapshot(&mut self, intervals: Option<SnapshotIntervals>) -> SessionResult<()> {
        if self.role != Role::Application {
            return Ok(());
        }
        let variables = self.variables()?;
        let last = variables.last_id();
        variables.check_start(last.saturating_add(1))?;
        self.announce(&Command::Snapshot { last, intervals })
    }

    /// True if the program must end. After the first call, checkpoints do not end the process.
    pub fn should_exit(&mut self) -> SessionResult<bool> {
        self.variables()?;
        self.announce(&Command::ShouldExit)?;
        self.calls_should_exit = true;
        Ok(self.variables()?.client().should_exit().map_err(VariablesError::from)?)
    }

    /// An empty directory on the node for files of this process; see [`Client::workspace`].
    pub fn workspace(&mut self) -> SessionResult<PathBuf> {
        Ok(self.variables()?.client().workspace().map_err(VariablesError::from)?)
    }

    /// The client, for calls without variables.
    pub fn client(&mut self) -> SessionResult<&mut Client> {
        Ok(self.variables()?.client())
    }

    fn saved(&mut self, completed: holdfast_client::Completed) -> SessionResult<Saved> {
        let reports = self.place.is_some_and(|(rank, _)| rank == 0);
        if completed.kept {
            self.note_sizes(&[])?;
        }
        match completed.halt {
            Some(reason) if !self.calls_should_exit => Ok(Saved::Halted(Halt { reason, reports })),
            _ if completed.kept => Ok(Saved::Kept),
            _ => {
                let reason = self.variables()?.write_error().map(ToString::to_string);
                Ok(Saved::Dropped { checkpoint: completed.checkpoint, reason })
            }
        }
    }

    /// The newest checkpoint has all variables but these, with the sizes that they have in memory.
    fn note_sizes(&mut self, absent: &[VariableId]) -> SessionResult<()> {
        let ids: Vec<c_int> = self.ids().filter(|id| !absent.contains(&(*id).into())).collect();
        let variables = self.variables()?;
        self.saved = ids.into_iter().filter_map(|id| Some((id, variables.size(id)? as u64))).collect();
        Ok(())
    }

    fn type_of(&self, number: c_int) -> Option<VariableType> {
        let number = usize::try_from(number).ok()?;
        let defined = number.checked_sub(VariableType::BASIC.len());
        defined.map_or_else(|| Some(VariableType::BASIC.get(number)?()), |at| self.types.get(at).cloned())
    }

    pub(crate) fn variables(&mut self) -> SessionResult<&mut Variables> {
        let missing = if self.finalized { SessionError::Finalized } else { SessionError::NotInitialised };
        self.variables.as_mut().ok_or(missing)
    }
}

fn checkpoint_arguments(id: c_int, level: c_int) -> SessionResult<(u32, Level)> {
    let number = u32::try_from(id).map_err(|_| SessionError::CheckpointId(id))?;
    let level = u32::try_from(level).ok().and_then(Level::from_number).ok_or(SessionError::Level(level))?;
    Ok((number, level))
}

unsafe extern "C" {
    /// Of the C library, as the memory is that of the program.
    fn realloc(address: *mut c_void, bytes: usize) -> *mut c_void;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_types_have_the_numbers_of_fti_and_defined_types_follow() {
        let mut session = Session::new();
        let bytes: Vec<usize> = (0..FIRST_USER_TYPE).map(|number| session.type_of(number).unwrap().bytes()).collect();
        assert_eq!(bytes, [1, 2, 4, size_of::<std::ffi::c_long>(), 1, 2, 4, size_of::<std::ffi::c_ulong>(), 4, 8, 16]);
        assert!(session.type_of(FIRST_USER_TYPE).is_none() && session.type_of(-1).is_none());
        assert_eq!(session.define_type(24).unwrap(), FIRST_USER_TYPE);
        assert_eq!(session.define_type(3).unwrap(), FIRST_USER_TYPE + 1);
        assert_eq!(session.type_of(FIRST_USER_TYPE + 1).unwrap().bytes(), 3);
        assert!(matches!(session.define_type(0), Err(SessionError::TypeSize)));
    }

    #[test]
    fn calls_before_the_initialisation_are_refused() {
        let mut session = Session::new();
        assert!(matches!(session.recover(), Err(SessionError::NotInitialised)));
        assert!(matches!(session.checkpoint(1, 9), Err(SessionError::Level(9))));
        assert!(matches!(session.checkpoint(-1, 1), Err(SessionError::CheckpointId(-1))));
    }
}
