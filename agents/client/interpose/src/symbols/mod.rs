//! The functions that are replaced, by subject. Each calls the next definition, with another path for a checkpoint
//! file.
//!
//! `open`, `openat` and `fcntl` have a variable argument, which a Rust function cannot have. It is declared as a fixed
//! one of the type that callers pass: the ABIs of Linux pass it in the same register. Where a caller passes none, the
//! register's content is passed on, and is not used.

mod descriptors;
mod mapping;
mod mpi;
mod names;
mod opening;
mod writing;

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::process;
use crate::tracked::UNCHANGED;

/// Called by the loader before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        process::begin();
    }
    begin
};

struct Matched {
    /// As from [`resolved`].
    name: PathBuf,
    expression: usize,
}

/// The name, if it is one of a checkpoint file.
///
/// # Safety
/// `path` is null, or points to a NUL-terminated string that is not changed during the call.
unsafe fn matched(directory: RawFd, path: *const c_char) -> Option<Matched> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null; the rest is promised by the caller.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let expression = process::matches(bytes)?;
    Some(Matched { name: resolved(directory, bytes)?, expression })
}

/// The one name of the file: absolute, with a directory that contains neither links nor `..`. A link in the last
/// component is not followed: it is a file of its own.
fn resolved(directory: RawFd, name: &[u8]) -> Option<PathBuf> {
    // Its calls are the library's own.
    let _inside = process::Inside::enter()?;
    let name = Path::new(OsStr::from_bytes(name));
    let name = if directory == libc::AT_FDCWD || name.is_absolute() {
        std::path::absolute(name).ok()?
    } else {
        std::fs::read_link(format!("/proc/self/fd/{directory}")).ok()?.join(name)
    };
    let (Some(parent), Some(base)) = (name.parent(), name.file_name()) else { return Some(name) };
    // With a directory that does not exist, the program's call fails.
    Some(parent.canonicalize().unwrap_or_else(|_| parent.to_owned()).join(base))
}

/// Calls a function with the path of a file's content; `call` gets `None` for the program's own arguments. `absent` is
/// its result if the file does not exist.
fn with_content<T>(matched: &Matched, absent: T, call: impl Fn(Option<&CString>) -> T) -> T {
    use crate::session::Target;
    match process::with_session(|session| session.target(&matched.name)) {
        Some(Target::Path(path)) => call(Some(&path)),
        Some(Target::Absent) => {
            crate::next::set_errno(libc::ENOENT);
            absent
        }
        Some(Target::OwnName) | None => call(None),
    }
}

/// A file that was opened for update is going to be written to. False if it cannot be; the error number has the reason.
fn prepare(descriptor: RawFd) -> bool {
    if !UNCHANGED.may_contain(descriptor) || !process::follows_descriptors() {
        return true;
    }
    let changed = process::with_session(|session| session.change(descriptor));
    code(changed.unwrap_or(Ok(()))) == 0
}

/// The return code of a function that sets `errno`.
fn code(result: std::io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            crate::next::set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    }
}
