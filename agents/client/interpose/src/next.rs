//! The functions of the C library that this library replaces: the next definitions in the order of the loader.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{ENOSYS, FILE, MAP_FAILED, aiocb, iovec, mode_t, off_t, off64_t, sigevent, size_t, ssize_t};

/// The error number of the calling thread.
pub fn errno() -> c_int {
    // SAFETY: the pointer is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the error number of the calling thread.
pub fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

/// The address of a function; `None` if no library defines it.
fn address(known: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut address = known.load(Ordering::Acquire);
    if address.is_null() {
        // SAFETY: the name ends with NUL.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(address, Ordering::Release);
    }
    (!address.is_null()).then_some(address)
}

macro_rules! name_of {
    ($name:ident) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        NAME
    }};
}

macro_rules! next_functions {
    ($(
        fn $name:ident(
            $($argument:ident: $type:ty),* $(; $($variable:ident: $variable_type:ty),*)?
        ) -> $result:ty, $failure:expr;
    )*) => {
        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// As for that function.
            #[allow(non_snake_case)]
            pub unsafe fn $name($($argument: $type,)* $($($variable: $variable_type),*)?) -> $result {
                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
                let Some(address) = address(&ADDRESS, name_of!($name)) else {
                    set_errno(ENOSYS);
                    return $failure;
                };
                // SAFETY: the C library defines a function of this name with this type.
                let function =
                    unsafe { next_functions!(@cast address, ($($type),*) $result $(; $($variable_type),*)?) };
                // SAFETY: as promised by the caller.
                unsafe { function($($argument,)* $($($variable),*)?) }
            }
        )*
    };
    (@cast $address:ident, ($($type:ty),*) $result:ty) => {
        transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>($address)
    };
    (@cast $address:ident, ($($type:ty),*) $result:ty; $($variable_type:ty),*) => {
        transmute::<*mut c_void, unsafe extern "C" fn($($type),*, ...) -> $result>($address)
    };
}

next_functions! {
    // What follows the semicolon is a variable argument.
    fn open(path: *const c_char, flags: c_int; mode: mode_t) -> c_int, -1;
    fn open64(path: *const c_char, flags: c_int; mode: mode_t) -> c_int, -1;
    fn openat(directory: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int, -1;
    fn openat64(directory: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int, -1;
    fn creat(path: *const c_char, mode: mode_t) -> c_int, -1;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int, -1;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, ptr::null_mut();
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, ptr::null_mut();
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, ptr::null_mut();
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, ptr::null_mut();
    fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE, ptr::null_mut();

    fn close(descriptor: c_int) -> c_int, -1;
    fn fclose(file: *mut FILE) -> c_int, -1;
    fn dup(descriptor: c_int) -> c_int, -1;
    fn dup2(descriptor: c_int, new: c_int) -> c_int, -1;
    fn dup3(descriptor: c_int, new: c_int, flags: c_int) -> c_int, -1;
    fn fcntl(descriptor: c_int, command: c_int; argument: c_long) -> c_int, -1;
    fn fcntl64(descriptor: c_int, command: c_int; argument: c_long) -> c_int, -1;

    fn write(descriptor: c_int, bytes: *const c_void, count: size_t) -> ssize_t, -1;
    fn pwrite(descriptor: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t, -1;
    fn pwrite64(descriptor: c_int, bytes: *const c_void, count: size_t, at: off64_t) -> ssize_t, -1;
    fn writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1;
    fn pwritev(descriptor: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t, -1;
    fn pwritev64(descriptor: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t, -1;
    fn pwritev2(descriptor: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, -1;
    fn pwritev64v2(descriptor: c_int, parts: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t, -1;
    // The list of arguments is a pointer, or passed as one.
    fn vdprintf(descriptor: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, -1;
    fn __vdprintf_chk(
        descriptor: c_int,
        checks: c_int,
        format: *const c_char,
        arguments: *mut c_void
    ) -> c_int, -1;
    fn sendfile(descriptor: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t, -1;
    fn sendfile64(descriptor: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t, -1;
    fn copy_file_range(
        from: c_int,
        from_at: *mut off64_t,
        descriptor: c_int,
        at: *mut off64_t,
        count: size_t,
        flags: c_uint
    ) -> ssize_t, -1;
    fn splice(
        from: c_int,
        from_at: *mut off64_t,
        descriptor: c_int,
        at: *mut off64_t,
        count: size_t,
        flags: c_uint
    ) -> ssize_t, -1;
    fn aio_write(request: *mut aiocb) -> c_int, -1;
    fn aio_write64(request: *mut aiocb) -> c_int, -1;
    fn lio_listio(mode: c_int, requests: *const *mut aiocb, count: c_int, end: *mut sigevent) -> c_int, -1;
    fn lio_listio64(mode: c_int, requests: *const *mut aiocb, count: c_int, end: *mut sigevent) -> c_int, -1;
    fn ftruncate(descriptor: c_int, size: off_t) -> c_int, -1;
    fn ftruncate64(descriptor: c_int, size: off64_t) -> c_int, -1;
    fn fallocate(descriptor: c_int, mode: c_int, at: off_t, size: off_t) -> c_int, -1;
    fn fallocate64(descriptor: c_int, mode: c_int, at: off64_t, size: off64_t) -> c_int, -1;
    fn posix_fallocate(descriptor: c_int, at: off_t, size: off_t) -> c_int, ENOSYS;
    fn posix_fallocate64(descriptor: c_int, at: off64_t, size: off64_t) -> c_int, ENOSYS;
    fn fsync(descriptor: c_int) -> c_int, -1;
    fn fdatasync(descriptor: c_int) -> c_int, -1;

    fn mmap(
        at: *mut c_void,
        size: size_t,
        protection: c_int,
        flags: c_int,
        descriptor: c_int,
        offset: off_t
    ) -> *mut c_void, MAP_FAILED;
    fn mmap64(
        at: *mut c_void,
        size: size_t,
        protection: c_int,
        flags: c_int,
        descriptor: c_int,
        offset: off64_t
    ) -> *mut c_void, MAP_FAILED;
    fn munmap(at: *mut c_void, size: size_t) -> c_int, -1;
    fn mremap(
        old: *mut c_void,
        old_size: size_t,
        size: size_t,
        flags: c_int;
        address: *mut c_void
    ) -> *mut c_void, MAP_FAILED;

    fn stat(path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn stat64(path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn lstat(path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn lstat64(path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn fstatat(directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int) -> c_int, -1;
    fn fstatat64(directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int) -> c_int, -1;
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, found: *mut c_void) -> c_int, -1;
    fn __xstat(version: c_int, path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn __xstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn __lxstat(version: c_int, path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn __lxstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int, -1;
    fn __fxstatat(
        version: c_int,
        directory: c_int,
        path: *const c_char,
        found: *mut c_void,
        flags: c_int
    ) -> c_int, -1;
    fn __fxstatat64(
        version: c_int,
        directory: c_int,
        path: *const c_char,
        found: *mut c_void,
        flags: c_int
    ) -> c_int, -1;
    fn access(path: *const c_char, mode: c_int) -> c_int, -1;
    fn eaccess(path: *const c_char, mode: c_int) -> c_int, -1;
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int, -1;
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, -1;

    fn rename(old: *const c_char, new: *const c_char) -> c_int, -1;
    fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int, -1;
    fn renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) -> c_int, -1;
    fn link(old: *const c_char, new: *const c_char) -> c_int, -1;
    fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int, -1;
    fn unlink(path: *const c_char) -> c_int, -1;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int, -1;
    fn remove(path: *const c_char) -> c_int, -1;

    fn MPI_Init(arguments: *mut c_int, words: *mut c_void) -> c_int, -1;
    fn PMPI_Init(arguments: *mut c_int, words: *mut c_void) -> c_int, -1;
    fn MPI_Init_thread(arguments: *mut c_int, words: *mut c_void, required: c_int, provided: *mut c_int) -> c_int, -1;
    fn PMPI_Init_thread(arguments: *mut c_int, words: *mut c_void, required: c_int, provided: *mut c_int) -> c_int, -1;
}
