//! `write` and other functions that change a file by its descriptor. The writes of streams cannot be seen: they use the
//! C library's own definition; a stream keeps its errors until it is closed.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;

use libc::{
    EAGAIN, EINTR, EINVAL, ENOSYS, EOPNOTSUPP, EXDEV, LIO_WRITE, aiocb, iovec, off_t, off64_t, sigevent, size_t,
    ssize_t,
};

use super::prepare;
use crate::tracked::{TRACKED, UNCHANGED};
use crate::{next, process};

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
    if !prepare(descriptor) {
        return refused;
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

/// Of a function that copies as much as there is, and that some kinds of files do not allow: the program does it in
/// another way then.
fn of_copied(count: ssize_t) -> Outcome {
    match (count >= 0, next::errno()) {
        (true, _) => Outcome::Complete,
        (false, EXDEV | ENOSYS | EOPNOTSUPP) => Outcome::Nothing,
        (false, _) => failure(),
    }
}

/// Of a function that prints, and returns the number of bytes.
fn of_printed(count: c_int) -> Outcome {
    if count >= 0 { Outcome::Complete } else { failure() }
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
    ($(fn $name:ident(parts, count $(, $at:ident: $at_type:ty)*);)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int,
            parts: *const iovec,
            count: c_int
            $(, $at: $at_type)*
        ) -> ssize_t {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(descriptor, parts, count $(, $at)*) };
            // SAFETY: as promised by the caller.
            changing(descriptor, -1, call, |written| of_count(written, unsafe { bytes_of(parts, count) }))
        }
    )*};
}

gathering! {
    fn writev(parts, count);
    fn pwritev(parts, count, at: off_t);
    fn pwritev64(parts, count, at: off64_t);
    fn pwritev2(parts, count, at: off_t, flags: c_int);
    fn pwritev64v2(parts, count, at: off64_t, flags: c_int);
}

macro_rules! copying {
    ($(fn $name:ident($($before:ident: $before_type:ty),*; descriptor, $($after:ident: $after_type:ty),*);)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)*
            descriptor: c_int,
            $($after: $after_type),*
        ) -> ssize_t {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name($($before,)* descriptor, $($after),*) };
            changing(descriptor, -1, call, of_copied)
        }
    )*};
}

copying! {
    fn sendfile(; descriptor, from: c_int, at: *mut off_t, count: size_t);
    fn sendfile64(; descriptor, from: c_int, at: *mut off64_t, count: size_t);
    fn copy_file_range(
        from: c_int, from_at: *mut off64_t;
        descriptor, at: *mut off64_t, count: size_t, flags: c_uint
    );
    fn splice(from: c_int, from_at: *mut off64_t; descriptor, at: *mut off64_t, count: size_t, flags: c_uint);
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(descriptor: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    // SAFETY: as promised by the caller. It is called once only: it uses the arguments up.
    let call = || unsafe { next::vdprintf(descriptor, format, arguments) };
    changing(descriptor, -1, call, of_printed)
}

/// The variant of programs that were compiled with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    descriptor: c_int,
    checks: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    // SAFETY: as for `vdprintf`.
    let call = || unsafe { next::__vdprintf_chk(descriptor, checks, format, arguments) };
    changing(descriptor, -1, call, of_printed)
}

/// A function with variable arguments, which is called as `$list` with a list of them. A Rust function cannot have
/// variable arguments: this is what a compiler of C makes of it, by the ABI of x86-64. `$named` is the size of the
/// registers of the named arguments, and `$register` has the list, which is the argument after them.
#[cfg(target_arch = "x86_64")]
macro_rules! listing {
    ($($name:ident, $list:ident, $named:literal, $register:literal;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                // 24 bytes for the list, 176 from 32 on for the registers; aligned to 16 with the return address.
                "sub rsp, 216",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $named),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $register, ", rsp"),
                "call {list}",
                "add rsp, 216",
                "ret",
                list = sym $list,
            )
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
listing! {
    dprintf, vdprintf, 16, "rdx";
    __dprintf_chk, __vdprintf_chk, 24, "rcx";
}

/// Prepares the file of a request to write.
///
/// # Safety
/// `request` is null, or points to a request.
unsafe fn prepare_request(request: *const aiocb) -> bool {
    // SAFETY: not null; the rest is promised by the caller.
    request.is_null() || prepare(unsafe { (*request).aio_fildes })
}

macro_rules! requesting {
    ($($one:ident, $list:ident;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $one(request: *mut aiocb) -> c_int {
            // SAFETY: as promised by the caller.
            if unsafe { prepare_request(request) } { unsafe { next::$one(request) } } else { -1 }
        }

        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $list(
            mode: c_int,
            requests: *const *mut aiocb,
            count: c_int,
            end: *mut sigevent,
        ) -> c_int {
            for index in 0..usize::try_from(count).unwrap_or(0) {
                // SAFETY: as promised by the caller, there are so many requests.
                let request = unsafe { *requests.add(index) };
                // SAFETY: as promised by the caller; not null.
                let is_write = !request.is_null() && unsafe { (*request).aio_lio_opcode } == LIO_WRITE;
                // SAFETY: as promised by the caller.
                if is_write && !unsafe { prepare_request(request) } {
                    return -1;
                }
            }
            // SAFETY: as promised by the caller.
            unsafe { next::$list(mode, requests, count, end) }
        }
    )*};
}

requesting! {
    aio_write, lio_listio;
    // The same type on systems with file positions of 64 bits, and the same beginning on others.
    aio_write64, lio_listio64;
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
