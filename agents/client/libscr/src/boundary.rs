//! Pointers in and out, one call at a time, and no panic that leaves the library.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::session::{Answer, Failure, Halt, Session};

/// The bytes of a buffer for names and paths, with the NUL.
pub const MAX_FILENAME: usize = 1024;
/// It went well.
pub const SUCCESS: c_int = 0;
/// It did not, and standard error says why.
pub const FAILURE: c_int = 1;

/// Held for the length of a call: threads of a program take turns.
static SESSION: Mutex<Session> = Mutex::new(Session::new());

/// Makes a call. A failure is said on standard error, a panic (a mistake of ours) too: unwinding into C is undefined.
pub fn call<T>(function: &str, work: impl FnOnce(&mut Session) -> Answer<T>) -> Option<T> {
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut session);
        result.map_err(|failure| (failure, session.rank()))
    }));
    let who = |rank: Option<u32>| rank.map_or_else(String::new, |rank| format!(" rank {rank}:"));
    match worked {
        Ok(Ok(value)) => Some(value),
        Ok(Err((failure, rank))) => {
            say(format_args!("SCR:{} {function}: {failure}", who(rank)));
            None
        }
        Err(_) => {
            say(format_args!("SCR: {function} failed inside the library: please report it"));
            None
        }
    }
}

/// As [`call`], with SCR's return code.
pub fn code(function: &str, work: impl FnOnce(&mut Session) -> Answer<()>) -> c_int {
    if call(function, work).is_some() { SUCCESS } else { FAILURE }
}

/// As [`code`], for calls after which the process may have to end. It ends here, outside of the call, so that whatever
/// the program has registered with `atexit` can still use the library.
pub fn code_or_exit(function: &str, work: impl FnOnce(&mut Session) -> Answer<Option<Halt>>) -> c_int {
    match call(function, work) {
        None => FAILURE,
        Some(None) => SUCCESS,
        Some(Some(halt)) => {
            if halt.speaks {
                say(format_args!("SCR: the run ends here: {}", halt.reason));
            }
            std::process::exit(0)
        }
    }
}

/// Standard error may be closed, and that is no reason to panic.
fn say(text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A text that a C program gave; `None` for a null pointer.
///
/// # Errors
/// It is no UTF-8, which our messages are written in.
///
/// # Safety
/// `text` is null, or points to a NUL-terminated string that nobody changes during the call.
pub unsafe fn text(text: *const c_char) -> Answer<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    let text = bytes.to_str().map_err(|_| Failure::Argument("names are to be UTF-8"))?;
    Ok(Some(text.to_owned()))
}

/// The same where there has to be a text.
///
/// # Errors
/// There is none, or it is no UTF-8.
///
/// # Safety
/// As [`text`].
pub unsafe fn some_text(given: *const c_char) -> Answer<String> {
    // SAFETY: the caller's promise is the same.
    unsafe { text(given) }?.ok_or(Failure::Argument("the name is NULL"))
}

/// Sets a number of the program.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// `to` is null, or points to an `int` that the program owns.
pub unsafe fn put_flag(to: *mut c_int, flag: bool) -> Answer<()> {
    if to.is_null() {
        return Err(Failure::Argument("the pointer to the flag is NULL"));
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { to.write(c_int::from(flag)) };
    Ok(())
}

/// Copies a text into the program's buffer of [`MAX_FILENAME`] bytes, with its NUL; a null pointer means that it is not
/// wanted.
///
/// # Errors
/// It does not fit. The buffer then holds an empty text.
///
/// # Safety
/// `to` is null, or points to [`MAX_FILENAME`] bytes that the program owns and that `value` is no part of.
pub unsafe fn put_text(to: *mut c_char, value: &str) -> Answer<()> {
    if to.is_null() {
        return Ok(());
    }
    let bytes = value.as_bytes();
    let fits = bytes.len() < MAX_FILENAME && !bytes.contains(&0);
    let bytes = if fits { bytes } else { b"" };
    // SAFETY: not null; at most MAX_FILENAME - 1 bytes and the NUL are written, which the caller promises are there.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    if fits { Ok(()) } else { Err(Failure::LongPath(value.into())) }
}
