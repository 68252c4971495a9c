//! `stat`, `access`, `rename`, `link`, `unlink` and their variants.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::path::PathBuf;

use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, ENOENT, RENAME_EXCHANGE, RENAME_NOREPLACE};

use super::{Matched, code, matched, resolved, with_content};
use crate::next;
use crate::process::{self, Inside};

macro_rules! of_path {
    ($(fn $name:ident[$($before:ident: $before_type:ty),*](path $(, $after:ident: $after_type:ty)*);)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)*
            path: *const c_char
            $(, $after: $after_type)*
        ) -> c_int {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                let Some(file) = matched(AT_FDCWD, path) else { return next::$name($($before,)* path $(, $after)*) };
                with_content(&file, -1, |other| {
                    let path = other.map_or(path, |path| path.as_ptr());
                    next::$name($($before,)* path $(, $after)*)
                })
            }
        }
    )*};
}

of_path! {
    fn stat[](path, found: *mut c_void);
    fn stat64[](path, found: *mut c_void);
    fn lstat[](path, found: *mut c_void);
    fn lstat64[](path, found: *mut c_void);
    // Programs that were compiled with a C library before 2.33.
    fn __xstat[version: c_int](path, found: *mut c_void);
    fn __xstat64[version: c_int](path, found: *mut c_void);
    fn __lxstat[version: c_int](path, found: *mut c_void);
    fn __lxstat64[version: c_int](path, found: *mut c_void);
    fn access[](path, mode: c_int);
    fn eaccess[](path, mode: c_int);
    fn euidaccess[](path, mode: c_int);
}

macro_rules! of_path_at {
    ($(
        fn $name:ident[$($before:ident: $before_type:ty),*](directory, path $(, $after:ident: $after_type:ty)*);
    )*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)*
            directory: c_int,
            path: *const c_char
            $(, $after: $after_type)*
        ) -> c_int {
            // SAFETY: the arguments of the caller, or a path that lasts during the call.
            unsafe {
                let Some(file) = matched(directory, path) else {
                    return next::$name($($before,)* directory, path $(, $after)*);
                };
                with_content(&file, -1, |other| match other {
                    Some(path) => next::$name($($before,)* AT_FDCWD, path.as_ptr() $(, $after)*),
                    None => next::$name($($before,)* directory, path $(, $after)*),
                })
            }
        }
    )*};
}

of_path_at! {
    fn fstatat[](directory, path, found: *mut c_void, flags: c_int);
    fn fstatat64[](directory, path, found: *mut c_void, flags: c_int);
    fn statx[](directory, path, flags: c_int, mask: c_uint, found: *mut c_void);
    fn __fxstatat[version: c_int](directory, path, found: *mut c_void, flags: c_int);
    fn __fxstatat64[version: c_int](directory, path, found: *mut c_void, flags: c_int);
    fn faccessat[](directory, path, mode: c_int, flags: c_int);
}

/// A name of `rename` or `link`.
struct End {
    matched: Option<Matched>,
    /// Absolute.
    name: PathBuf,
}

/// The names, if one of them is that of a checkpoint file.
///
/// # Safety
/// As for `matched`.
unsafe fn ends(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> Option<(End, End)> {
    // SAFETY: as promised by the caller.
    let (before, after) = unsafe { (matched(from, old), matched(to, new)) };
    if before.is_none() && after.is_none() {
        return None;
    }
    let end = |matched: Option<Matched>, directory, path| {
        // SAFETY: as promised by the caller.
        let name =
            matched.as_ref().map(|matched| matched.name.clone()).or_else(|| unsafe { absolute(directory, path) });
        Some(End { matched, name: name? })
    };
    let (before, after) = (end(before, from, old)?, end(after, to, new)?);
    // Directories are not files of a checkpoint.
    let _inside = Inside::enter()?;
    (!before.name.is_dir()).then_some((before, after))
}

/// # Safety
/// As for `matched`.
unsafe fn absolute(directory: c_int, path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null; the rest is promised by the caller.
    resolved(directory, unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Renames a file, or gives it a second name. `None`: the C library's function does it.
fn rename_matched(before: &End, after: &End, keeps_old: bool, replaces: bool) -> Option<io::Result<()>> {
    process::with_session(|session| {
        let content = before.matched.as_ref().and_then(|_| session.content(&before.name));
        let is_own_name = content.is_none();
        let content = content.unwrap_or_else(|| before.name.clone());
        if !content.exists() {
            return Some(Err(io::Error::from_raw_os_error(ENOENT)));
        }
        let renamed = match &after.matched {
            Some(new) => {
                let target = session.target(&new.name);
                let exists = match target {
                    crate::session::Target::OwnName => new.name.exists(),
                    crate::session::Target::Path(_) => true,
                    crate::session::Target::Absent => false,
                };
                if exists && !replaces {
                    return Some(Err(io::Error::from_raw_os_error(libc::EEXIST)));
                }
                session.enter(&content, &new.name, new.expression)
            }
            // A file of the working directory stays outside.
            None if is_own_name => return None,
            None if !replaces && after.name.exists() => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            None => session.leave(&content, &after.name),
        };
        Some(renamed.and_then(|()| match (keeps_old, is_own_name) {
            (true, _) => Ok(()),
            (false, true) => std::fs::remove_file(&before.name),
            (false, false) => {
                session.forget(&before.name);
                Ok(())
            }
        }))
    })?
}

macro_rules! naming {
    ($(
        fn $name:ident([$($from:ident)?] old, [$($to:ident)?] new, [$($flags:ident)?]),
        [$from_directory:expr, $to_directory:expr], $is_followed:expr, $keeps_old:expr, $replaces:expr;
    )*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($from: c_int,)?
            old: *const c_char,
            $($to: c_int,)?
            new: *const c_char
            $(, $flags: c_uint)?
        ) -> c_int {
            // SAFETY: as promised by the caller.
            let ends = if $is_followed { unsafe { ends($from_directory, old, $to_directory, new) } } else { None };
            let named = ends.and_then(|(before, after)| rename_matched(&before, &after, $keeps_old, $replaces));
            // SAFETY: as promised by the caller.
            named.map_or_else(|| unsafe { next::$name($($from,)? old, $($to,)? new $(, $flags)?) }, code)
        }
    )*};
}

naming! {
    fn rename([] old, [] new, []), [AT_FDCWD, AT_FDCWD], true, false, true;
    fn renameat([from] old, [to] new, []), [from, to], true, false, true;
    fn renameat2([from] old, [to] new, [flags]), [from, to],
        flags & RENAME_EXCHANGE == 0, false, flags & RENAME_NOREPLACE == 0;
    fn link([] old, [] new, []), [AT_FDCWD, AT_FDCWD], true, true, false;
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let opened = unsafe { unnamed(from, old, to, new, flags) };
    let ends = match &opened {
        // SAFETY: as promised by the caller, and a path that lasts during the call.
        Some(opened) => unsafe { ends(AT_FDCWD, opened.as_ptr(), to, new) },
        // SAFETY: as promised by the caller.
        None => unsafe { ends(from, old, to, new) },
    };
    let linked = ends.and_then(|(before, after)| rename_matched(&before, &after, true, false));
    // SAFETY: as promised by the caller.
    linked.map_or_else(|| unsafe { next::linkat(from, old, to, new, flags) }, code)
}

/// The path of the file that `linkat` names by its descriptor alone, if it gets the name of a checkpoint file.
///
/// # Safety
/// As for `matched`.
unsafe fn unnamed(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> Option<CString> {
    // SAFETY: not null; the rest is promised by the caller.
    let is_unnamed = flags & AT_EMPTY_PATH != 0 && from >= 0 && !old.is_null() && unsafe { *old } == 0;
    // SAFETY: as promised by the caller.
    if !is_unnamed || unsafe { matched(to, new) }.is_none() {
        return None;
    }
    CString::new(format!("/proc/self/fd/{from}")).ok()
}

/// Removes a checkpoint file; `None`: the C library's function does it.
fn remove_matched(file: &Matched) -> Option<c_int> {
    match process::with_session(|session| session.remove(&file.name))? {
        Ok(false) => None,
        Ok(true) => Some(0),
        Err(error) => Some(code(Err(error))),
    }
}

macro_rules! removing {
    ($(fn $name:ident([$($directory:ident)?] path, [$($flags:ident)?]), $from:expr, $is_followed:expr;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($directory: c_int,)? path: *const c_char $(, $flags: c_int)?) -> c_int {
            // SAFETY: as promised by the caller.
            let file = if $is_followed { unsafe { matched($from, path) } } else { None };
            let removed = file.and_then(|file| remove_matched(&file));
            // SAFETY: as promised by the caller.
            removed.unwrap_or_else(|| unsafe { next::$name($($directory,)? path $(, $flags)?) })
        }
    )*};
}

removing! {
    fn unlink([] path, []), AT_FDCWD, true;
    fn remove([] path, []), AT_FDCWD, true;
    fn unlinkat([directory] path, [flags]), directory, flags & AT_REMOVEDIR == 0;
}
