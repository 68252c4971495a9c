//! The C functions, as declared in `include/holdfast.h`. Each documents the requirements on its pointers, which a C
//! program must guarantee.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: no other library has symbols that start with `holdfast_`.

use std::ffi::{c_char, c_int, c_void};

use holdfast_boundary::c::{put, text};

use crate::boundary::{BOUNDARY, FAILURE, NO_CHECKPOINT, NOT_KEPT, SUCCESS, code, kept_or_exit};
use crate::session::{SessionError, SessionResult};

/// Joins the run. Returns when all ranks have joined, and the checkpoint to recover from is in place.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_init() -> c_int {
    match BOUNDARY.call("holdfast_init", |session| session.init()) {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(halt)) => BOUNDARY.exit(&halt),
    }
}

/// Ends the run: the job is finished, and not launched again. Does nothing in a process that was forked from the rank.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_finalize() -> c_int {
    match BOUNDARY.finalize("holdfast_finalize", |session| session.finalize()) {
        Some(()) => SUCCESS,
        None => FAILURE,
    }
}

/// Stores the rank of this process and the number of ranks.
///
/// # Safety
/// `rank` and `ranks` are null (not wanted) or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rank(rank: *mut c_int, ranks: *mut c_int) -> c_int {
    code("holdfast_rank", |session| {
        let (own, all) = session.rank_and_size()?;
        // SAFETY: the caller's promise.
        unsafe { put_number(rank, "the rank", own.into()).and_then(|()| put_number(ranks, "the size", all.into())) }
    })
}

/// Sets `flag` to 1 if there is a checkpoint to recover from.
///
/// # Safety
/// `flag` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_have_checkpoint(flag: *mut c_int) -> c_int {
    code("holdfast_have_checkpoint", |session| {
        // SAFETY: the caller's promise.
        unsafe { put(flag, 0, "the pointer to the flag") }?;
        let restart = c_int::from(session.is_restart()?);
        // SAFETY: the caller's promise.
        Ok(unsafe { put(flag, restart, "the pointer to the flag") }?)
    })
}

/// Defines a type with elements of this size.
///
/// # Safety
/// `kind` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_define_type(bytes: usize, kind: *mut c_int) -> c_int {
    code("holdfast_define_type", |session| {
        let defined = session.define_type(bytes)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { put(kind, defined, "the pointer to the type") }?)
    })
}

/// Protects a variable, or a variable that moved or has another size.
///
/// # Safety
/// `name` is null or a C string. `address` points to `count` elements of the type, until the variable is unprotected or
/// protected again, or the library finalized; no other thread writes to them during `holdfast_checkpoint` and
/// `holdfast_snapshot`, nor accesses them during `holdfast_recover`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_protect(
    id: c_int,
    name: *const c_char,
    address: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    code("holdfast_protect", |session| {
        // SAFETY: the caller's promise, here and below.
        let name = unsafe { text(name) }?;
        unsafe { session.protect(id, name, address, count, kind) }
    })
}

/// Declares that the variables of this id are the blocks of one array, in the order of the ranks.
///
/// # Safety
/// `shape` points to `dimensions` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_distribute(
    id: c_int,
    dimensions: c_int,
    shape: *const usize,
    dimension: c_int,
) -> c_int {
    code("holdfast_distribute", |session| {
        let (count, dimension) = (usize::try_from(dimensions).unwrap_or(0), usize::try_from(dimension));
        let shape = match shape.is_null() {
            // SAFETY: the caller's promise.
            false => unsafe { std::slice::from_raw_parts(shape, count) },
            true => return Err(SessionError::NoShape(id)),
        };
        session.distribute(id, shape, dimension.unwrap_or(usize::MAX))
    })
}

/// Declares that the variable is equal on all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_uniform(id: c_int) -> c_int {
    code("holdfast_uniform", |session| session.uniform(id))
}

/// Ends the protection of a variable.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_unprotect(id: c_int) -> c_int {
    code("holdfast_unprotect", |session| session.unprotect(id))
}

/// Stores the bytes of a variable in the newest checkpoint; 0 if it is not there.
///
/// # Safety
/// `bytes` is null or points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_stored_size(id: c_int, bytes: *mut usize) -> c_int {
    code("holdfast_stored_size", |session| {
        let stored = session.stored_size(id)?.unwrap_or(0);
        let stored = usize::try_from(stored).map_err(|_| SessionError::NoMemory { id, bytes: stored })?;
        // SAFETY: the caller's promise.
        Ok(unsafe { put(bytes, stored, "the pointer to the size") }?)
    })
}

/// Gives the memory of a variable the size that it has in the checkpoint to recover from, and protects it again.
/// Returns its address, which is `address` if there is nothing to change; null after an error.
///
/// # Safety
/// `address` is null, or was returned by `malloc`, `calloc` or `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_realloc(id: c_int, address: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    match BOUNDARY.call("holdfast_realloc", |session| unsafe { session.reallocate(id, address) }) {
        Some(moved) => moved.unwrap_or(address),
        None => std::ptr::null_mut(),
    }
}

/// Loads the newest checkpoint that is intact on all ranks, and stores the id that the program gave to it.
///
/// # Safety
/// `id` is null (not wanted) or points to an `int`. The guarantee of [`holdfast_protect`] holds for all variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_recover(id: *mut c_int) -> c_int {
    let recovered = BOUNDARY.call("holdfast_recover", |session| {
        let outcome = session.recover()?;
        if let Some(loaded) = outcome.id {
            // SAFETY: the caller's promise.
            unsafe { put_number(id, "the id of the checkpoint", loaded.into()) }?;
        }
        Ok::<_, SessionError>(outcome)
    });
    let Some(outcome) = recovered else { return FAILURE };
    for variable in &outcome.absent {
        BOUNDARY.note(&format!("holdfast_recover: variable {variable} is not in the checkpoint, and unchanged"));
    }
    for variable in &outcome.unclaimed {
        BOUNDARY
            .note(&format!("holdfast_recover: variable {variable} of the checkpoint is not protected, and ignored"));
    }
    if outcome.checkpoint.is_some() { SUCCESS } else { NO_CHECKPOINT }
}

/// Saves all variables. May end the process.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_checkpoint(id: c_int, level: c_int) -> c_int {
    match BOUNDARY.call("holdfast_checkpoint", |session| session.checkpoint(id, level)) {
        None => FAILURE,
        Some(saved) if kept_or_exit("holdfast_checkpoint", &saved) => SUCCESS,
        Some(_) => NOT_KEPT,
    }
}

/// Saves all variables if a checkpoint is due; sets `taken` to 1 if so. May end the process.
///
/// # Safety
/// `taken` is null (not wanted) or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_snapshot(taken: *mut c_int) -> c_int {
    let saved = BOUNDARY.call("holdfast_snapshot", |session| {
        let saved = session.snapshot()?;
        // SAFETY: the caller's promise.
        unsafe { put_number(taken, "the flag", u64::from(saved.is_some())) }?;
        Ok::<_, SessionError>(saved)
    });
    match saved {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(saved)) if kept_or_exit("holdfast_snapshot", &saved) => SUCCESS,
        Some(Some(_)) => NOT_KEPT,
    }
}

/// Sets `flag` to 1 if the program must end.
///
/// # Safety
/// `flag` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_should_exit(flag: *mut c_int) -> c_int {
    code("holdfast_should_exit", |session| {
        // SAFETY: the caller's promise.
        unsafe { put(flag, 0, "the pointer to the flag") }?;
        let exits = c_int::from(session.should_exit()?);
        // SAFETY: the caller's promise.
        Ok(unsafe { put(flag, exits, "the pointer to the flag") }?)
    })
}

/// The text of the last error in this thread; not to be freed, and valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_error() -> *const c_char {
    holdfast_boundary::last_error()
}

/// Whether errors are printed to standard error: 1 (from the beginning) or 0.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_print_errors(print: c_int) {
    BOUNDARY.print_errors(print != 0);
}

/// Stores a number, unless the pointer is null.
///
/// # Safety
/// `to` is null or points to an `int`.
unsafe fn put_number(to: *mut c_int, what: &'static str, value: u64) -> SessionResult<()> {
    if to.is_null() {
        return Ok(());
    }
    let value = c_int::try_from(value).map_err(|_| SessionError::Range { what, value })?;
    // SAFETY: the caller's promise.
    Ok(unsafe { put(to, value, what) }?)
}
