//! `mmap`, `munmap` and `mremap`: a file that is mapped for writing is open until its mapping is removed.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use libc::{MAP_FAILED, MAP_FIXED, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE, PROT_WRITE, off_t, off64_t, size_t};

use crate::mapped::MAPPED;
use crate::tracked::TRACKED;
use crate::{next, process};

/// The pages that contain this part of memory.
fn memory(start: *const c_void, size: size_t) -> Range<usize> {
    // SAFETY: without conditions.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1).max(1);
    start.addr()..start.addr().saturating_add(size).checked_next_multiple_of(page).unwrap_or(usize::MAX)
}

fn is_followed(memory: &Range<usize>) -> bool {
    MAPPED.overlaps(memory) && process::follows_descriptors()
}

/// Calls a function that removes mappings in this range.
fn removing<T: Copy>(memory: &Range<usize>, call: impl Fn() -> T) -> T {
    if !is_followed(memory) {
        return call();
    }
    let mut result = None;
    let _ = process::with_session(|session| session.unmapped(memory, || result = Some(call())));
    result.unwrap_or_else(call)
}

macro_rules! mapping {
    ($($name:ident, $offset:ty;)*) => {$(
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            size: size_t,
            protection: c_int,
            flags: c_int,
            descriptor: c_int,
            offset: $offset,
        ) -> *mut c_void {
            // SAFETY: as promised by the caller.
            let call = || unsafe { next::$name(at, size, protection, flags, descriptor, offset) };
            let call = || if flags & MAP_FIXED == 0 { call() } else { removing(&memory(at, size), call) };
            let is_shared = matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE);
            let is_written = is_shared && protection & PROT_WRITE != 0;
            if !is_written || !TRACKED.may_contain(descriptor) || !process::follows_descriptors() {
                return call();
            }
            if !super::prepare(descriptor) {
                return MAP_FAILED;
            }
            let mapped = call();
            if mapped != MAP_FAILED {
                let _ = process::with_session(|session| session.mapped(descriptor, memory(mapped, size)));
            }
            mapped
        }
    )*};
}

mapping! {
    mmap, off_t;
    mmap64, off64_t;
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, size: size_t) -> c_int {
    // SAFETY: as promised by the caller.
    removing(&memory(at, size), || unsafe { next::munmap(at, size) })
}

/// The address is a variable argument, as that of `fcntl`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: size_t,
    size: size_t,
    flags: c_int,
    address: *mut c_void,
) -> *mut c_void {
    // SAFETY: as promised by the caller.
    let call = || unsafe { next::mremap(old, old_size, size, flags, address) };
    let before = memory(old, old_size.max(1));
    if !is_followed(&before) {
        return call();
    }
    let keeps_old = old_size == 0 || flags & libc::MREMAP_DONTUNMAP != 0;
    let mut moved = None;
    let _ = process::with_session(|session| {
        session.remapped(&before, keeps_old, || {
            let moved = *moved.insert(call());
            (moved != MAP_FAILED).then(|| memory(moved, size))
        });
    });
    moved.unwrap_or_else(call)
}
