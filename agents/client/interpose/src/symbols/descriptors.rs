//! `close`, `fclose`, `dup` and their variants.

use std::ffi::{c_int, c_long};
use std::os::fd::RawFd;

use libc::{F_DUPFD, F_DUPFD_CLOEXEC, FILE};

use crate::tracked::TRACKED;
use crate::{next, process};

fn is_followed(descriptor: RawFd) -> bool {
    TRACKED.may_contain(descriptor) && process::follows_descriptors()
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if !is_followed(descriptor) {
        // SAFETY: as promised by the caller.
        return unsafe { next::close(descriptor) };
    }
    let mut closed = None;
    let _ = process::with_session(|session| {
        session.close(descriptor, || {
            // SAFETY: as promised by the caller.
            *closed.insert(unsafe { next::close(descriptor) }) == 0
        });
    });
    // SAFETY: as promised by the caller; it was not closed.
    closed.unwrap_or_else(|| unsafe { next::close(descriptor) })
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: as promised by the caller. A stream in memory has no descriptor.
    let descriptor = unsafe { libc::fileno(file) };
    if !is_followed(descriptor) {
        // SAFETY: as promised by the caller.
        return unsafe { next::fclose(file) };
    }
    let mut closed = None;
    let _ = process::with_session(|session| {
        session.close(descriptor, || {
            // SAFETY: as promised by the caller.
            let had_error = unsafe { libc::ferror(file) } != 0;
            // SAFETY: as promised by the caller.
            *closed.insert(unsafe { next::fclose(file) }) == 0 && !had_error
        });
    });
    // SAFETY: as promised by the caller; it was not closed.
    closed.unwrap_or_else(|| unsafe { next::fclose(file) })
}

/// Records a duplicate that `call` makes. It replaces `over`, if that is open.
fn duplicate(descriptor: RawFd, over: Option<RawFd>, call: impl FnOnce() -> RawFd) -> RawFd {
    let replaced = over.filter(|over| *over != descriptor && is_followed(*over));
    if replaced.is_none() && !is_followed(descriptor) {
        return call();
    }
    let mut new = -1;
    let mut call = Some(call);
    let _ = process::with_session(|session| {
        let mut make = || {
            new = call.take().map_or(-1, |call| call());
            new >= 0
        };
        match replaced {
            Some(replaced) => session.close(replaced, make),
            None => drop(make()),
        }
        if new >= 0 && new != descriptor {
            session.duplicated(descriptor, new);
        }
    });
    call.map_or(new, |call| call())
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    duplicate(descriptor, None, || unsafe { next::dup(descriptor) })
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(descriptor: c_int, new: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    duplicate(descriptor, Some(new), || unsafe { next::dup2(descriptor, new) })
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(descriptor: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    duplicate(descriptor, Some(new), || unsafe { next::dup3(descriptor, new, flags) })
}

macro_rules! control {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(descriptor, command, argument) };
            match command {
                F_DUPFD | F_DUPFD_CLOEXEC => duplicate(descriptor, None, call),
                _ => call(),
            }
        }
    )*};
}

control! {
    fcntl;
    fcntl64;
}
