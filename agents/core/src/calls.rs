//! The system calls on directories and files of datasets, of the user's own state and of everything that is replaced.
//!
//! The functions have the names and the signatures of [`rustix::fs`], and go on after a signal. A name is relative to
//! an open directory; paths are used where the user gave one ([`CWD`](rustix::fs::CWD)). There is no other way to the
//! file system in [`crate::store`], [`crate::owned`], [`crate::durable`] and [`crate::temporary`].
//!
//! In production nothing is added to the calls. Tests (feature `kill-points`) put a function in front of them, which
//! sees each call and can make it fail; and each call that changes something is an instant at which a crash test can
//! kill the process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::path::Arg;

use crate::io_count;

#[cfg(any(test, feature = "kill-points"))]
pub use observed::observe;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Examine,
    List,
    ReadLink,
    Create,
    MakeDirectory,
    Write,
    Truncate,
    Sync,
    ChangeGroup,
    Rename,
    Link,
    Remove,
}

impl Call {
    /// True if a kill before it leaves something else than a kill after it.
    pub fn changes(self) -> bool {
        !matches!(self, Call::Open | Call::Examine | Call::List | Call::ReadLink)
    }
}

fn through<T>(kind: Call, call: impl FnMut() -> Result<T>) -> Result<T> {
    before(kind)?;
    retry_on_intr(call)
}

#[cfg(not(any(test, feature = "kill-points")))]
#[expect(clippy::unnecessary_wraps, reason = "tests return errors")]
fn before(_: Call) -> Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "kill-points"))]
use observed::before;

pub(crate) fn openat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let kind = if flags.contains(OFlags::CREATE) { Call::Create } else { Call::Open };
    through(kind, || rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, mode))
}

pub(crate) fn fstat(file: impl AsFd + Copy) -> Result<Stat> {
    through(Call::Examine, || rustix::fs::fstat(file))
}

pub(crate) fn statat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: AtFlags) -> Result<Stat> {
    through(Call::Examine, || rustix::fs::statat(directory, name, flags))
}

pub(crate) fn readlinkat(directory: impl AsFd + Copy, name: impl Arg + Copy) -> Result<OsString> {
    let target = through(Call::ReadLink, || rustix::fs::readlinkat(directory, name, Vec::new()))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// The entries of an open directory, without `.` and `..`. The type may be unknown: not every file system lists it.
pub(crate) fn entries(directory: impl AsFd + Copy) -> Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    for entry in through(Call::List, || Dir::read_from(directory))? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push((OsString::from_vec(name.to_vec()), entry.file_type()));
        }
    }
    Ok(entries)
}

/// The names in an open directory, without `.` and `..`.
pub(crate) fn names(directory: impl AsFd + Copy) -> Result<Vec<OsString>> {
    Ok(entries(directory)?.into_iter().map(|(name, _)| name).collect())
}

pub(crate) fn mkdirat(directory: impl AsFd + Copy, name: impl Arg + Copy, mode: Mode) -> Result<()> {
    through(Call::MakeDirectory, || rustix::fs::mkdirat(directory, name, mode))
}

pub(crate) fn fchown(file: impl AsFd + Copy, owner: Option<Uid>, group: Option<Gid>) -> Result<()> {
    through(Call::ChangeGroup, || rustix::fs::fchown(file, owner, group))
}

pub(crate) fn renameat(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
) -> Result<()> {
    through(Call::Rename, || rustix::fs::renameat(from, old, to, new))
}

pub(crate) fn renameat_with(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
    flags: RenameFlags,
) -> Result<()> {
    through(Call::Rename, || rustix::fs::renameat_with(from, old, to, new, flags))
}

pub(crate) fn linkat(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
    flags: AtFlags,
) -> Result<()> {
    through(Call::Link, || rustix::fs::linkat(from, old, to, new, flags))
}

pub(crate) fn symlinkat(target: impl Arg + Copy, directory: impl AsFd + Copy, name: impl Arg + Copy) -> Result<()> {
    through(Call::Link, || rustix::fs::symlinkat(target, directory, name))
}

pub(crate) fn unlinkat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: AtFlags) -> Result<()> {
    through(Call::Remove, || rustix::fs::unlinkat(directory, name, flags))
}

/// Makes the content of a file survive the machine.
pub(crate) fn fsync(file: impl AsFd + Copy) -> Result<()> {
    io_count::synced();
    through(Call::Sync, || rustix::fs::fsync(file))
}

/// Makes the changes of names in an open directory survive the machine.
pub(crate) fn sync_directory(directory: impl AsFd + Copy) -> Result<()> {
    match fsync(directory) {
        // Some network file systems know no fsync of directories; there the rename is as durable as it gets.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        synced => synced,
    }
}

pub(crate) fn ftruncate(file: impl AsFd + Copy, length: u64) -> Result<()> {
    through(Call::Truncate, || rustix::fs::ftruncate(file, length))
}

/// Allocates the blocks of a file's beginning.
pub(crate) fn fallocate(file: impl AsFd + Copy, length: u64) -> Result<()> {
    through(Call::Write, || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length))
}

pub(crate) fn write_all(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    before(Call::Write)?;
    file.write_all(bytes)
}

pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    before(Call::Write)?;
    file.write_all_at(bytes, offset)
}

/// A new file that is being filled.
#[derive(Debug)]
pub struct Filling(pub File);

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        before(Call::Write)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Filling {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.0.seek(position)
    }
}

impl AsFd for Filling {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(any(test, feature = "kill-points"))]
mod observed {
    use std::cell::RefCell;

    use rustix::io::Result;

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

    /// Does `work` with `observer` in front of each call of this thread; an error of it is that of the call, which is
    /// then not made. It makes no such call itself.
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
}
