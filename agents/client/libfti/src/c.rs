//! The C functions, as declared in `include/fti.h`. Each documents the requirements on its pointers, which a C program
//! must guarantee.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own or starts with `holdfast_fti_`, and a program
//! links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_long, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::text;
use holdfast_client::variables::{SnapshotIntervals, VariablesError};
use holdfast_client::{ClientError, Environment};
use holdfast_variables_c::boundary::{BOUNDARY, kept_or_exit};
use holdfast_variables_c::heads::Role;
use holdfast_variables_c::session::{Saved, Session, SessionError, SessionResult};

use crate::attributes::AttributeError;
use crate::configuration::{Configuration, ConfigurationError, Heads};
use crate::refused::Refused;
use crate::staging::{self, StagingError};
use crate::types::{DefinitionError, FTIT_type};

/// A checkpoint was taken.
const DONE: c_int = 1;
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const FAILURE: c_int = -1;
/// There is no checkpoint that could be recovered.
const NOT_RECOVERED: c_int = -2;

/// The intervals of the configuration file; `None`: those of the job.
static INTERVALS: Mutex<Option<SnapshotIntervals>> = Mutex::new(None);

#[derive(Debug, thiserror::Error)]
pub(crate) enum FtiError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("FTI_InitICP has failed, and no checkpoint was started: its message has the remedy")]
    NothingStarted,
    #[error(
        "this process is rank {rank} of {ranks} in the communicator, and rank {own} of {all} in the run: pass \
         MPI_COMM_WORLD, and start all its processes by `holdfast run`"
    )]
    Communicator { rank: c_int, ranks: c_int, own: u32, all: u32 },
    #[error(
        "Basic:head of the configuration file is 1, and the program was compiled with an older fti.h or fti.f90, which \
         cannot separate head processes: compile it again, or set it to 0"
    )]
    OldHeader,
    #[error("{0} elements: the number is negative")]
    Count(c_long),
    #[error("the type was not initialised by FTI_InitType: {0} bytes")]
    Type(c_int),
    #[error("no checkpoint is usable: start from the beginning")]
    NoCheckpoint,
}

pub(crate) fn code(function: &str, work: impl FnOnce(&mut Session) -> Result<(), FtiError>) -> c_int {
    if BOUNDARY.call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// Joins the run; called by `FTI_Init` of the header with the place of this process in its communicator. Without a
/// communicator both numbers are -1. For programs without head processes: headers before that of this version call it.
///
/// # Safety
/// `file` is null (no configuration file) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fti_init(file: *const c_char, rank: c_int, ranks: c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { initialise(file, rank, ranks, false) } {
        Some(_) => SUCCESS,
        None => FAILURE,
    }
}

/// Joins the run; returns the role of this process, and the head processes that the configuration file wants. `None`
/// after an error. `separates_heads`: the caller separates them from the application.
///
/// # Safety
/// As [`holdfast_fti_init`].
pub(crate) unsafe fn initialise(
    file: *const c_char,
    rank: c_int,
    ranks: c_int,
    separates_heads: bool,
) -> Option<(Role, Option<Heads>)> {
    let initialised = BOUNDARY.call("FTI_Init", |session| {
        // SAFETY: the caller's promise.
        let file = unsafe { text(file) }?.filter(|file| !file.is_empty());
        let configuration = file.map(|file| Configuration::read(Path::new(&file))).transpose()?.unwrap_or_default();
        if configuration.heads.is_some() && !separates_heads {
            return Err(FtiError::OldHeader);
        }
        let process = Environment::from_environment()
            .map_err(ClientError::from)
            .map_err(VariablesError::from)
            .map_err(SessionError::from)?;
        let (own, all) = (process.rank.0, process.ranks);
        let job = process.agent.map(|agent| agent.job).unwrap_or_default();
        let refusal = FtiError::Communicator { rank, ranks, own, all };
        let has_communicator = (rank, ranks) != (-1, -1);
        // All processes of the communicator see this, so that none has to join the run, where it would wait for others.
        if has_communicator && u32::try_from(ranks) != Ok(all) {
            return Err(refusal);
        }
        let in_place = !has_communicator || u32::try_from(rank) == Ok(own);
        let halt = match session.init_in_place(in_place) {
            Err(SessionError::Misplaced(_)) if !in_place => return Err(refusal),
            initialised => initialised?,
        };
        if own == 0 {
            configuration.notes.iter().for_each(|note| BOUNDARY.note(&format!("FTI_Init: {note}")));
        }
        *INTERVALS.lock().unwrap_or_else(PoisonError::into_inner) = configuration.intervals;
        let has_heads = configuration.heads.is_some() && halt.is_none();
        let role = if has_heads { session.separate_heads()? } else { Role::Alone };
        if halt.is_none() {
            session.verify_restart()?;
        }
        if configuration.staging {
            staging::enable(&job, own);
        }
        Ok::<_, FtiError>((role, configuration.heads, halt))
    });
    match initialised? {
        (role, heads, None) => Some((role, heads)),
        (_, _, Some(halt)) => BOUNDARY.exit(&halt),
    }
}

/// 1 if there is a checkpoint to recover from, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_Status() -> c_int {
    c_int::from(BOUNDARY.call("FTI_Status", |session| session.is_restart()).unwrap_or(false))
}

/// Protects a variable, or one that moved or has another size.
///
/// # Safety
/// As [`holdfast_variables_c::c::holdfast_protect`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_Protect(id: c_int, address: *mut c_void, count: c_long, kind: FTIT_type) -> c_int {
    code("FTI_Protect", |session| {
        let elements = usize::try_from(count).map_err(|_| FtiError::Count(count))?;
        if kind.size <= 0 {
            return Err(FtiError::Type(kind.size));
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { session.protect(id, None, address, elements, kind.id) }?)
    })
}

/// The bytes of a variable in the newest checkpoint; 0 if it is not there.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_GetStoredSize(id: c_int) -> c_long {
    let stored = BOUNDARY.call("FTI_GetStoredSize", |session| session.stored_size(id)).flatten();
    stored.and_then(|bytes| c_long::try_from(bytes).ok()).unwrap_or(0)
}

/// Gives the memory of a variable the size that it has in the checkpoint to recover from, and protects it again.
/// Returns its address: after an error `address`, as FTI does, so that programs can store it where they had that; null
/// only if there is no memory.
///
/// # Safety
/// As [`holdfast_fti_realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_Realloc(id: c_int, address: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { reallocate(id, address) } {
        Ok(moved) => moved,
        Err(NoMemory(true)) => std::ptr::null_mut(),
        Err(NoMemory(false)) => address,
    }
}

/// As [`FTI_Realloc`], for the Fortran module, whose function also returns a code: null after any error.
///
/// # Safety
/// `address` is null, or was returned by `malloc`, `calloc` or `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fti_realloc(id: c_int, address: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { reallocate(id, address) }.unwrap_or(std::ptr::null_mut())
}

/// The reallocation failed; true: because there is no memory.
struct NoMemory(bool);

/// # Safety
/// As [`holdfast_fti_realloc`].
unsafe fn reallocate(id: c_int, address: *mut c_void) -> Result<*mut c_void, NoMemory> {
    let mut no_memory = false;
    let moved = BOUNDARY.call("FTI_Realloc", |session| {
        // SAFETY: the caller's promise.
        let moved = unsafe { session.reallocate(id, address) };
        no_memory = matches!(moved, Err(SessionError::NoMemory { .. }));
        moved
    });
    moved.map(|moved| moved.unwrap_or(address)).ok_or(NoMemory(no_memory))
}

/// Saves all variables. May end the process.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_Checkpoint(id: c_int, level: c_int) -> c_int {
    taken("FTI_Checkpoint", BOUNDARY.call("FTI_Checkpoint", |session| session.checkpoint(id, level).map(Some)))
}

/// Loads the newest checkpoint that is intact on all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_Recover() -> c_int {
    // Of a process that cannot make calls: not before FTI_Init, and not forked.
    let mut failure = FAILURE;
    let recovered = BOUNDARY.call("FTI_Recover", |session| {
        session.rank_and_size()?;
        failure = NOT_RECOVERED;
        recover(session)
    });
    if recovered.is_some() { SUCCESS } else { failure }
}

/// In a restart: loads one variable; the others are unchanged, and the checkpoint stays the one to recover from until
/// the next one is taken. Does nothing if there is no checkpoint to recover from. Not collective.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_RecoverVar(id: c_int) -> c_int {
    let mut failure = FAILURE;
    let recovered = BOUNDARY.call("FTI_RecoverVar", |session| {
        if !session.is_restart()? {
            return Ok(());
        }
        failure = NOT_RECOVERED;
        session.recover_variable(id)
    });
    if recovered.is_some() { SUCCESS } else { failure }
}

/// Before single variables are recovered. There is nothing to do: the calls open the file themselves.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_RecoverVarInit() -> c_int {
    code("FTI_RecoverVarInit", |session| Ok(session.is_restart().map(drop)?))
}

/// After single variables were recovered. There is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_RecoverVarFinalize() -> c_int {
    code("FTI_RecoverVarFinalize", |session| Ok(session.is_restart().map(drop)?))
}

/// In a restart the first call recovers; any other saves all variables if a checkpoint is due. May end the process.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_Snapshot() -> c_int {
    match BOUNDARY.call("FTI_Snapshot", |session| session.is_restart()) {
        None => FAILURE,
        Some(true) if BOUNDARY.call("FTI_Snapshot", recover).is_some() => SUCCESS,
        Some(true) => NOT_RECOVERED,
        Some(false) => taken("FTI_Snapshot", BOUNDARY.call("FTI_Snapshot", snapshot)),
    }
}

/// Ends the run: the job is finished, and not launched again. Does nothing in a process that was forked from the rank.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_Finalize() -> c_int {
    staging::finish();
    match BOUNDARY.finalize("FTI_Finalize", |session| session.finalize()) {
        Some(()) => SUCCESS,
        None => FAILURE,
    }
}

fn snapshot(session: &mut Session) -> SessionResult<Option<Saved>> {
    let intervals = *INTERVALS.lock().unwrap_or_else(PoisonError::into_inner);
    match intervals {
        Some(intervals) => session.snapshot_by(intervals),
        None => session.snapshot(),
    }
}

fn recover(session: &mut Session) -> Result<(), FtiError> {
    match session.recover_exactly()?.checkpoint {
        Some(_) => Ok(()),
        None => Err(FtiError::NoCheckpoint),
    }
}

/// The return code of a call that may have taken a checkpoint; `None`: it failed.
fn taken(function: &str, saved: Option<Option<Saved>>) -> c_int {
    match saved {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(saved)) if is_kept(function, &saved) => DONE,
        Some(Some(_)) => FAILURE,
    }
}

/// True if the checkpoint was kept. Ends the process if a halt condition holds, after its files were copied.
pub(crate) fn is_kept(function: &str, saved: &Saved) -> bool {
    if matches!(saved, Saved::Halted(_)) {
        staging::finish();
    }
    kept_or_exit(function, saved)
}
