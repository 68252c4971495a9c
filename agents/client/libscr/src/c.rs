//! The C functions, as declared in `include/scr.h`. Each documents the requirements on its pointers, which a C program
//! must guarantee.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is SCR's own, and a program links one SCR.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int};

use holdfast_boundary::c::text;

use crate::boundary::{code, code_if, code_or_exit, finalize, put_flag, put_text, some_name};
use crate::session::SessionError;

/// The version of the interface.
const VERSION: &CStr = c"v3.1.0";

unsafe extern "C" {
    /// Of the C library, so that the program can `free` the copy.
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// Joins the run. Returns when all ranks have joined, and the checkpoint to restart from is in place.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Init() -> c_int {
    code_or_exit("SCR_Init", |session| session.init())
}

/// Ends the run: the job is finished, and not launched again. Does nothing in a process that was forked from the rank.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Finalize() -> c_int {
    finalize("SCR_Finalize", |session| session.finalize())
}

/// The version of the interface; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Get_version() -> *mut c_char {
    VERSION.as_ptr().cast_mut()
}

/// Sets `flag` to 1 if the program must end.
///
/// # Safety
/// `flag` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Should_exit(flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Should_exit", |session| unsafe {
        put_flag(flag, false).and_then(|()| put_flag(flag, session.should_exit()?))
    })
}

/// Sets (`KEY=value`), unsets (`KEY=`) or reads (`KEY`) a parameter. Returns the value that was read, to be freed by
/// the caller; null if there is none, or if a parameter was set.
///
/// # Safety
/// `config` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Config(config: *const c_char) -> *const c_char {
    let value = crate::boundary::call("SCR_Config", |session| {
        // SAFETY: the caller's promise.
        let line = unsafe { text(config) }?.ok_or(SessionError::Argument("the setting is NULL"))?;
        let value = session.config(&line)?;
        value
            .map(std::ffi::CString::new)
            .transpose()
            .map_err(|_| SessionError::Argument("the value contains a NUL byte"))
    });
    match value.flatten() {
        // SAFETY: a C string, which is valid until the copy is made.
        Some(value) => unsafe { strdup(value.as_ptr()) },
        None => std::ptr::null(),
    }
}

/// Stores the path to write the file to, or to read it from. Not collective.
///
/// # Safety
/// `name` is null or a C string; `file` is null or has `SCR_MAX_FILENAME` bytes. They may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Route_file(name: *const c_char, file: *mut c_char) -> c_int {
    code_if("SCR_Route_file", |session| {
        if file.is_null() {
            return Err(SessionError::Argument("the buffer for the path is NULL"));
        }
        // SAFETY: guaranteed by the caller; the name is copied before the buffer is written.
        let Some(path) = session.route(&unsafe { some_name(name) }?)? else { return Ok(false) };
        let text = path.to_str().ok_or(SessionError::Argument("the path is not UTF-8"))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(file, text) }.map(|()| true)
    })
}

/// Sets `flag` to 1 if a checkpoint is due.
///
/// # Safety
/// `flag` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Need_checkpoint(flag: *mut c_int) -> c_int {
    code("SCR_Need_checkpoint", |session| {
        // SAFETY: the caller's promise.
        unsafe { put_flag(flag, false).and_then(|()| put_flag(flag, session.need_checkpoint()?)) }
    })
}

/// Starts a checkpoint without a name.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Start_checkpoint() -> c_int {
    code("SCR_Start_checkpoint", |session| session.start_checkpoint())
}

#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_checkpoint(valid: c_int) -> c_int {
    code_or_exit("SCR_Complete_checkpoint", |session| session.complete(valid != 0, true))
}

/// Sets `flag` to 1 if there is a checkpoint to restart from, and stores its name.
///
/// # Safety
/// `flag` is null or points to an `int`; `name` is null or has `SCR_MAX_FILENAME` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Have_restart(flag: *mut c_int, name: *mut c_char) -> c_int {
    code("SCR_Have_restart", |session| {
        // SAFETY: the caller's promise.
        unsafe { put_flag(flag, false) }?;
        if let Some(found) = session.have_restart()? {
            // SAFETY: the caller's promise.
            unsafe { put_text(name, &found).and_then(|()| put_flag(flag, true)) }?;
        }
        Ok(())
    })
}

/// Starts a restart.
///
/// # Safety
/// `name` is null or has `SCR_MAX_FILENAME` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Start_restart(name: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Start_restart", |session| unsafe { put_text(name, &session.start_restart()?) })
}

#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_restart(valid: c_int) -> c_int {
    code("SCR_Complete_restart", |session| session.complete_restart(valid != 0))
}

/// Starts a dataset; `flags` is a sum of `SCR_FLAG_CHECKPOINT` and `SCR_FLAG_OUTPUT`.
///
/// # Safety
/// `name` is null (no name) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Start_output(name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Start_output", |session| session.start_output(unsafe { text(name) }?, flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_output(valid: c_int) -> c_int {
    code_or_exit("SCR_Complete_output", |session| session.complete(valid != 0, false))
}

/// Reports that the program restarted from this dataset itself.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Current(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Current", |session| session.current(&unsafe { some_name(name) }?))
}

/// Removes the dataset from the index; its files are kept.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Drop(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Drop", |session| session.drop_dataset(&unsafe { some_name(name) }?))
}

/// Extension of SCR: the rank of this process and the number of ranks, for programs without MPI.
///
/// # Safety
/// `rank` and `ranks` are null (not wanted) or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HOLDFAST_Rank(rank: *mut c_int, ranks: *mut c_int) -> c_int {
    code("HOLDFAST_Rank", |session| {
        let (own, all) = session.rank_and_size()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put_number(rank, own).and_then(|()| put_number(ranks, all)) }
    })
}

/// Extension of SCR: lists the files of the checkpoint to restart from that this process can route: its own, or, if
/// another number of ranks wrote it, those of all ranks. Stores the number of ranks that wrote it, and that of the
/// files. Not collective.
///
/// # Safety
/// `ranks` and `files` are null (not wanted) or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HOLDFAST_Restart_files(ranks: *mut c_int, files: *mut c_int) -> c_int {
    code("HOLDFAST_Restart_files", |session| {
        let (written, listed) = session.restart_files()?;
        // SAFETY: guaranteed by the caller.
        unsafe { put_number(ranks, written).and_then(|()| put_number(files, listed)) }
    })
}

/// Extension of SCR: stores the name of a file that `HOLDFAST_Restart_files` listed, for `SCR_Route_file`, and the rank
/// that wrote it. Not collective.
///
/// # Safety
/// `name` is null or has `SCR_MAX_FILENAME` bytes; `rank` is null or points to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HOLDFAST_Restart_file(index: c_int, name: *mut c_char, rank: *mut c_int) -> c_int {
    code("HOLDFAST_Restart_file", |session| {
        let file = session.restart_file(usize::try_from(index).unwrap_or(usize::MAX))?;
        if !name.is_null() {
            // SAFETY: not null; the rest is guaranteed by the caller.
            unsafe { put_text(name, &file.name) }?;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { put_number(rank, file.rank.0) }
    })
}

/// Stores a number where one is wanted.
///
/// # Safety
/// `to` is null or points to an `int`.
unsafe fn put_number(to: *mut c_int, value: impl TryInto<c_int>) -> Result<(), SessionError> {
    let value = value.try_into().map_err(|_| SessionError::Argument("the number does not fit into an int"))?;
    // SAFETY: not null; the rest is guaranteed by the caller.
    (!to.is_null()).then(|| unsafe { to.write(value) });
    Ok(())
}

/// Deletes the dataset from the cache and the prefix directory.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Delete(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Delete", |session| session.delete_dataset(&unsafe { some_name(name) }?))
}
