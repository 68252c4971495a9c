//! `write` and other functions that change a file by its descriptor. The writes of streams cannot be seen: they use the
//! C library's own definition; a stream keeps its errors until it is closed.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use libc::{EAGAIN, EINTR, EINVAL, iovec, off_t, off64_t, size_t, ssize_t};

use crate::tracked::{TRACKED, UNCHANGED};
use crate::{next, process};

/// What a function did.
enum Outcome {
    Complete,
    Incomplete,
    /// The error number has the reason.
    Failed,
    /// It changed nothing, and can be repeated, or was no valid call.
    Nothing,
}

/// Follows a function that changes a file. `refused` is its result if the file cannot be changed.
fn changing<T: Copy>(descriptor: RawFd, refused: T, call: impl Fn() -> T, outcome: impl Fn(T) -> Outcome) -> T {
    if !TRACKED.may_contain(descriptor) || !process::follows_descriptors() {
        return call();
    }
    if UNCHANGED.may_contain(descriptor) {
        let changed = process::with_session(|session| session.change(descriptor));
        if super::code(changed.unwrap_or(Ok(()))) != 0 {
            return refused;
        }
    }
    let result = call();
    let code = next::errno();
    let _ = match outcome(result) {
        Outcome::Complete => process::with_session(|session| {
            if session.is_incomplete(descriptor) {
                session.wrote(descriptor, Some(true));
            }
        }),
        Outcome::Incomplete => process::with_session(|session| session.wrote(descriptor, Some(false))),
        Outcome::Failed => process::with_session(|session| session.wrote(descriptor, None)),
        Outcome::Nothing => None,
    };
    next::set_errno(code);
    result
}

fn failure() -> Outcome {
    match next::errno() {
        EINTR | EAGAIN | EINVAL => Outcome::Nothing,
        _ => Outcome::Failed,
    }
}

/// Of a function that returns the number of bytes.
fn of_count(count: ssize_t, asked: size_t) -> Outcome {
    match usize::try_from(count) {
        Err(_) => failure(),
        Ok(count) if count < asked => Outcome::Incomplete,
        Ok(_) => Outcome::Complete,
    }
}

/// Of a function that returns 0, and does not continue an incomplete write.
fn of_code(code: c_int) -> Outcome {
    if code == 0 { Outcome::Nothing } else { failure() }
}

/// The bytes of all parts.
///
/// # Safety
/// `parts` points to this many parts.
unsafe fn bytes_of(parts: *const iovec, count: c_int) -> size_t {
    let Ok(count) = usize::try_from(count) else { return 0 };
    if parts.is_null() {
        return 0;
    }
    // SAFETY: as promised by the caller.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().fold(0, |sum, part| part.iov_len.saturating_add(sum))
}

macro_rules! counting {
    ($(fn $name:ident(bytes, count $(, $at:ident: $at_type:ty)?);)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int,
            bytes: *const c_void,
            count: size_t
            $(, $at: $at_type)?
        ) -> ssize_t {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(descriptor, bytes, count $(, $at)?) };
            changing(descriptor, -1, call, |written| of_count(written, count))
        }
    )*};
}

counting! {
    fn write(bytes, count);
    fn pwrite(bytes, count, at: off_t);
    fn pwrite64(bytes, count, at: off64_t);
}

macro_rules! gathering {
    ($(fn $name:ident(parts, count $(, $at:ident: $at_type:ty)?);)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int,
            parts: *const iovec,
            count: c_int
            $(, $at: $at_type)?
        ) -> ssize_t {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(descriptor, parts, count $(, $at)?) };
            // SAFETY: as promised by the caller.
            changing(descriptor, -1, call, |written| of_count(written, unsafe { bytes_of(parts, count) }))
        }
    )*};
}

gathering! {
    fn writev(parts, count);
    fn pwritev(parts, count, at: off_t);
    fn pwritev64(parts, count, at: off64_t);
}

macro_rules! sizing {
    ($(fn $name:ident($($argument:ident: $type:ty),*), $refused:expr;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int, $($argument: $type),*) -> c_int {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(descriptor, $($argument),*) };
            changing(descriptor, $refused, call, of_size)
        }
    )*};
}

/// Of a function that reserves space or sets the size: a program may continue without it.
fn of_size(_code: c_int) -> Outcome {
    Outcome::Nothing
}

sizing! {
    fn ftruncate(size: off_t), -1;
    fn ftruncate64(size: off64_t), -1;
    fn fallocate(mode: c_int, at: off_t, size: off_t), -1;
    fn fallocate64(mode: c_int, at: off64_t, size: off64_t), -1;
    fn posix_fallocate(at: off_t, size: off_t), libc::EIO;
    fn posix_fallocate64(at: off64_t, size: off64_t), libc::EIO;
}

macro_rules! syncing {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int) -> c_int {
            if UNCHANGED.may_contain(descriptor) {
                // SAFETY: as promised by the caller.
                return unsafe { next::$name(descriptor) };
            }
            // SAFETY: as promised by the caller.
            changing(descriptor, -1, || unsafe { next::$name(descriptor) }, of_code)
        }
    )*};
}

syncing! {
    fsync;
    fdatasync;
}
