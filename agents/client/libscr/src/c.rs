//! The C functions, as `include/scr.h` declares them. Each says what has to hold of the pointers that it is given; that
//! is all the safety there is to have in C.
//!
//! Of every `#[unsafe(no_mangle)]` here: the symbol is SCR's own, and a program links one SCR.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int};

use crate::boundary::{code, code_or_exit, put_flag, put_text, some_text, text};
use crate::session::Failure;

/// What `SCR_Get_version` says: the interface that is spoken here.
const VERSION: &CStr = c"v3.1.0";

unsafe extern "C" {
    /// The C library's: the program gives what is returned to its `free`.
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// Joins the run; returns when all ranks have, and what there is to restart from is in place.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Init() -> c_int {
    code_or_exit("SCR_Init", |session| session.init())
}

/// The program is done: the job is finished, and not started again.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Finalize() -> c_int {
    code("SCR_Finalize", |session| session.finalize())
}

/// The version of the interface; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Get_version() -> *mut c_char {
    VERSION.as_ptr().cast_mut()
}

/// Is the program to end?
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

/// Sets (`KEY=value`), takes back (`KEY=`) or reads (`KEY`) a parameter. What is returned is to be freed; null: no value.
///
/// # Safety
/// `config` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Config(config: *const c_char) -> *const c_char {
    let value = crate::boundary::call("SCR_Config", |session| {
        // SAFETY: the caller's promise.
        let line = unsafe { text(config) }?.ok_or(Failure::Argument("the setting is NULL"))?;
        let value = session.config(&line)?;
        value.map(std::ffi::CString::new).transpose().map_err(|_| Failure::Argument("the value contains a NUL byte"))
    });
    match value.flatten() {
        // SAFETY: a C string, which lives until the copy is made.
        Some(value) => unsafe { strdup(value.as_ptr()) },
        None => std::ptr::null(),
    }
}

/// Where the file is to be written or read. Not collective.
///
/// # Safety
/// `name` is null or a C string; `file` is null or has `SCR_MAX_FILENAME` bytes. They may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Route_file(name: *const c_char, file: *mut c_char) -> c_int {
    code("SCR_Route_file", |session| {
        if file.is_null() {
            return Err(Failure::Argument("the buffer for the path is NULL"));
        }
        // SAFETY: the caller's promise; the name is copied before the buffer is written.
        let path = session.route(&unsafe { some_text(name) }?)?;
        let text = path.to_str().ok_or(Failure::Argument("the path is not UTF-8"))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(file, text) }
    })
}

/// Is a checkpoint due?
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

/// Begins a checkpoint without a name.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Start_checkpoint() -> c_int {
    code("SCR_Start_checkpoint", |session| session.start_checkpoint())
}

/// Ends a checkpoint.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_checkpoint(valid: c_int) -> c_int {
    code_or_exit("SCR_Complete_checkpoint", |session| session.complete(valid != 0, true))
}

/// Is there something to restart from, and what is its name?
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

/// The ranks begin to read.
///
/// # Safety
/// `name` is null or has `SCR_MAX_FILENAME` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Start_restart(name: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Start_restart", |session| unsafe { put_text(name, &session.start_restart()?) })
}

/// The ranks have read.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_restart(valid: c_int) -> c_int {
    code("SCR_Complete_restart", |session| session.complete_restart(valid != 0))
}

/// Begins a dataset; `flags` is a sum of `SCR_FLAG_CHECKPOINT` and `SCR_FLAG_OUTPUT`.
///
/// # Safety
/// `name` is null (no name) or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Start_output(name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Start_output", |session| session.start_output(unsafe { text(name) }?, flags))
}

/// Ends a dataset.
#[unsafe(no_mangle)]
pub extern "C" fn SCR_Complete_output(valid: c_int) -> c_int {
    code_or_exit("SCR_Complete_output", |session| session.complete(valid != 0, false))
}

/// The program restarted from this dataset by itself.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Current(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Current", |session| session.current(&unsafe { some_text(name) }?))
}

/// The index forgets the dataset; its files stay.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Drop(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Drop", |session| session.drop_dataset(&unsafe { some_text(name) }?))
}

/// Beyond SCR: rank and number of ranks of this process, for programs that have no MPI to tell them.
///
/// # Safety
/// `rank` and `ranks` are null (not wanted) or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HOLDFAST_Rank(rank: *mut c_int, ranks: *mut c_int) -> c_int {
    code("HOLDFAST_Rank", |session| {
        let (own, all) = session.place()?;
        for (to, value) in [(rank, own), (ranks, all)] {
            let value = c_int::try_from(value).map_err(|_| Failure::Argument("the rank does not fit into an int"))?;
            // SAFETY: not null; the rest is the caller's promise.
            (!to.is_null()).then(|| unsafe { to.write(value) });
        }
        Ok(())
    })
}

/// The dataset is deleted, in cache and on the prefix directory.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SCR_Delete(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    code("SCR_Delete", |session| session.delete_dataset(&unsafe { some_text(name) }?))
}
