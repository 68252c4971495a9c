//! What tests put in front of the calls and behind them.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;

use rustix::io::{Errno, Result};

use super::Call;
use crate::kill_point;

type Observer = Box<dyn FnMut(Call) -> Result<()>>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

pub(super) fn before(call: Call) -> Result<()> {
    if call.changes() {
        kill_point::reach();
    }
    OBSERVER.with_borrow_mut(|observer| observer.as_mut().map_or(Ok(()), |observer| observer(call)))
}

/// Does `work` with `observer` in front of each call of this thread; an error of it is that of the call, which is then
/// not made. It makes no such call itself.
pub fn observe<T>(observer: impl FnMut(Call) -> Result<()> + 'static, work: impl FnOnce() -> T) -> T {
    struct Removal;
    impl Drop for Removal {
        fn drop(&mut self) {
            OBSERVER.set(None);
        }
    }
    OBSERVER.set(Some(Box::new(observer)));
    let _removal = Removal;
    work()
}

thread_local! {
    /// The most bytes that a write of this thread takes at once.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What a write takes at once.
pub(super) fn at_once(bytes: &[u8]) -> &[u8] {
    bytes.get(..MOST.get()).unwrap_or(bytes)
}

/// Does `work` with writes that take seven bytes at most.
pub fn with_short_writes(work: &mut dyn FnMut()) {
    struct Removal;
    impl Drop for Removal {
        fn drop(&mut self) {
            MOST.set(usize::MAX);
        }
    }
    MOST.set(7);
    let _removal = Removal;
    work();
}

thread_local! {
    static CLONES: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` as on a file system that clones files: a copy takes the place of a clone.
pub fn with_clones<T>(work: impl FnOnce() -> T) -> T {
    struct Removal;
    impl Drop for Removal {
        fn drop(&mut self) {
            CLONES.set(false);
        }
    }
    CLONES.set(true);
    let _removal = Removal;
    work()
}

pub(super) fn ficlone(to: impl AsFd, from: impl AsFd) -> Result<()> {
    if !CLONES.get() {
        return rustix::fs::ioctl_ficlone(to, from);
    }
    let (mut bytes, mut end) = ([0; 4096], 0);
    loop {
        let read = rustix::io::pread(&from, &mut bytes, end)?;
        let Some(bytes) = bytes.get(..read).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        end += rustix::io::pwrite(&to, bytes, end)? as u64;
    }
}

/// Does `work` with calls of which every other one is interrupted by a signal.
pub fn with_interrupted_calls(work: &mut dyn FnMut()) {
    let mut interrupted = false;
    let observer = move |_| {
        interrupted = !interrupted;
        if interrupted { Err(Errno::INTR) } else { Ok(()) }
    };
    observe(observer, work);
}

/// Keeps what a call has changed, if anything is recorded.
macro_rules! note {
    ($change:ident($($argument:expr),* $(,)?)) => {
        $crate::calls::recording::note(|recording| recording.$change($($argument),*))
    };
}
pub(super) use note;
