//! `open`, `creat`, `fopen` and their variants.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::RawFd;

use libc::{AT_FDCWD, FILE, O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, mode_t};

use super::{Matched, matched};
use crate::session::{OpenArguments, OpenRequest};
use crate::tracked::{TRACKED, UNCHANGED};
use crate::{next, process};

/// Opens a checkpoint file with `call`, which gets other arguments than the program's, if any.
fn open_matched(
    matched: &Matched,
    flags: c_int,
    is_stream: bool,
    mut call: impl FnMut(Option<OpenArguments<'_>>) -> RawFd,
) -> RawFd {
    let Matched { name, expression } = matched;
    let request = OpenRequest { name, expression: *expression, flags, is_stream };
    match process::with_session(|session| session.open(request, &mut call)) {
        Some(descriptor) => descriptor,
        None => call(None),
    }
}

macro_rules! opening {
    ($($name:ident, $checked:ident, $at:ident, $checked_at:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                match matched(AT_FDCWD, path) {
                    None => next::$name(path, flags, mode),
                    Some(file) => open_matched(&file, flags, false, |other| match other {
                        Some((path, flags)) => next::$name(path.as_ptr(), flags, mode),
                        None => next::$name(path, flags, mode),
                    }),
                }
            }
        }

        /// The variant of programs that were compiled with `_FORTIFY_SOURCE`.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as promised by the caller. Without O_CREAT there is no mode.
            unsafe { $name(path, flags, 0) }
        }

        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $at(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                match matched(directory, path) {
                    None => next::$at(directory, path, flags, mode),
                    Some(file) => open_matched(&file, flags, false, |other| match other {
                        Some((path, flags)) => next::$at(AT_FDCWD, path.as_ptr(), flags, mode),
                        None => next::$at(directory, path, flags, mode),
                    }),
                }
            }
        }

        /// The variant of programs that were compiled with `_FORTIFY_SOURCE`.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $checked_at(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as promised by the caller. Without O_CREAT there is no mode.
            unsafe { $at(directory, path, flags, 0) }
        }
    )*};
}

opening! {
    open, __open_2, openat, __openat_2;
    open64, __open64_2, openat64, __openat64_2;
}

macro_rules! creating {
    ($($name:ident, $open:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: mode_t) -> c_int {
            // SAFETY: as promised by the caller.
            unsafe { $open(path, O_CREAT | O_WRONLY | O_TRUNC, mode) }
        }
    )*};
}

creating! {
    creat, open;
    creat64, open64;
}

/// The flags of `open` for a mode of `fopen`.
///
/// # Safety
/// `mode` points to a NUL-terminated string.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    // What follows a comma names an encoding.
    let mode = mode.split(|byte| *byte == b',').next().unwrap_or_default();
    let access = |alone| if mode.contains(&b'+') { O_RDWR } else { alone };
    let exclusive = if mode.contains(&b'x') { O_EXCL } else { 0 };
    match mode.first() {
        Some(b'w') => access(O_WRONLY) | O_CREAT | O_TRUNC | exclusive,
        Some(b'a') => access(O_WRONLY) | O_CREAT | O_APPEND | exclusive,
        _ => access(O_RDONLY),
    }
}

/// The descriptor of a stream, or -1.
///
/// # Safety
/// `file` is null, or a stream.
unsafe fn descriptor_of(file: *mut FILE) -> RawFd {
    // SAFETY: not null; the rest is promised by the caller.
    if file.is_null() { -1 } else { unsafe { libc::fileno(file) } }
}

macro_rules! streams {
    ($($name:ident, $again:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                let Some(file) = matched(AT_FDCWD, path) else { return next::$name(path, mode) };
                let mut opened = std::ptr::null_mut();
                open_matched(&file, flags_of(mode), true, |other| {
                    opened = next::$name(other.map_or(path, |(path, _)| path.as_ptr()), mode);
                    descriptor_of(opened)
                });
                opened
            }
        }

        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $again(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                let old = descriptor_of(file);
                if TRACKED.may_contain(old) && process::follows_descriptors() {
                    // The stream is closed by the call; what it holds is written before.
                    let _ = process::with_session(|session| {
                        session.close(old, || libc::fflush(file) == 0 && libc::ferror(file) == 0);
                    });
                }
                let Some(matched) = matched(AT_FDCWD, path) else { return next::$again(path, mode, file) };
                let mut opened = std::ptr::null_mut();
                open_matched(&matched, flags_of(mode), true, |other| {
                    opened = next::$again(other.map_or(path, |(path, _)| path.as_ptr()), mode, file);
                    descriptor_of(opened)
                });
                opened
            }
        }
    )*};
}

streams! {
    fopen, freopen;
    fopen64, freopen64;
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as promised by the caller.
    unsafe {
        // The writes of a stream cannot be seen.
        if UNCHANGED.may_contain(descriptor) && flags_of(mode) != O_RDONLY && !super::prepare(descriptor) {
            return std::ptr::null_mut();
        }
        next::fdopen(descriptor, mode)
    }
}
