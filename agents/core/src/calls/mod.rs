//! The system calls on directories and files of datasets, of the user's own state and of everything that is replaced.
//!
//! The functions have the names and the signatures of [`rustix::fs`], and go on after a signal. A name is relative to
//! an open directory; paths are used where the user gave one ([`CWD`]). There is no other way to the
//! file system in [`crate::store`], [`crate::owned`], [`crate::durable`] and [`crate::temporary`].
//!
//! All are calls of functions of the C library (feature `use-libc` of rustix): what is loaded in front of it into a
//! program with libscr sees them, as it sees those of the program.
//!
//! In production nothing is added to the calls. Tests (feature `kill-points`) put a function in front of them, which
//! sees each call and can make it fail; each call that changes something is an instant at which a crash test can kill
//! the process; and `recording` keeps what was changed, for the states that a loss of power can leave.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;

#[cfg(not(any(test, feature = "kill-points")))]
use rustix::fs::ioctl_ficlone as ficlone;
use rustix::fs::{AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::path::Arg;

use crate::io_count;

#[cfg(any(test, feature = "kill-points"))]
mod observed;
#[cfg(any(test, feature = "kill-points"))]
pub mod recording;

#[cfg(any(test, feature = "kill-points"))]
use observed::{at_once, before, ficlone, note};
#[cfg(any(test, feature = "kill-points"))]
pub use observed::{observe, with_clones, with_interrupted_calls, with_short_writes};

/// Tests keep what a call has changed.
#[cfg(not(any(test, feature = "kill-points")))]
macro_rules! note {
    ($($change:tt)*) => {};
}

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
    ChangeMode,
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

fn through<T>(kind: Call, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    retry_on_intr(|| {
        before(kind)?;
        call()
    })
}

#[cfg(not(any(test, feature = "kill-points")))]
#[expect(clippy::unnecessary_wraps, reason = "tests return errors")]
fn before(_: Call) -> Result<()> {
    Ok(())
}

/// Calls of the standard library go on after a signal by themselves.
fn uninterrupted(kind: Call) -> Result<()> {
    retry_on_intr(|| before(kind))
}

/// What a write takes at once: in tests, a part of it.
#[cfg(not(any(test, feature = "kill-points")))]
fn at_once(bytes: &[u8]) -> &[u8] {
    bytes
}

/// Opens a file or directory, which children do not inherit.
///
/// # Errors
/// Those of the system, as in all functions here.
pub fn openat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let kind = if flags.contains(OFlags::CREATE) { Call::Create } else { Call::Open };
    let file = through(kind, || rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, mode))?;
    note!(opened(directory.as_fd(), &name, flags, file.as_fd()));
    Ok(file)
}

pub fn fstat(file: impl AsFd + Copy) -> Result<Stat> {
    through(Call::Examine, || rustix::fs::fstat(file))
}

pub fn statat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: AtFlags) -> Result<Stat> {
    through(Call::Examine, || rustix::fs::statat(directory, name, flags))
}

pub fn readlinkat(directory: impl AsFd + Copy, name: impl Arg + Copy) -> Result<OsString> {
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

pub fn mkdirat(directory: impl AsFd + Copy, name: impl Arg + Copy, mode: Mode) -> Result<()> {
    through(Call::MakeDirectory, || rustix::fs::mkdirat(directory, name, mode))?;
    note!(added(directory.as_fd(), &name));
    Ok(())
}

pub(crate) fn fchown(file: impl AsFd + Copy, owner: Option<Uid>, group: Option<Gid>) -> Result<()> {
    through(Call::ChangeGroup, || rustix::fs::fchown(file, owner, group))
}

/// The mode of what is open, also if it is open as a place only (`O_PATH`).
pub(crate) fn chmod_opened(file: impl AsFd, mode: Mode) -> Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    through(Call::ChangeMode, || rustix::fs::chmodat(CWD, path.as_str(), mode, AtFlags::empty()))
}

/// Gives a file or directory another name.
pub fn renameat(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
) -> Result<()> {
    through(Call::Rename, || rustix::fs::renameat(from, old, to, new))?;
    note!(renamed((from.as_fd(), &old), (to.as_fd(), &new), RenameFlags::empty()));
    Ok(())
}

pub(crate) fn renameat_with(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
    flags: RenameFlags,
) -> Result<()> {
    through(Call::Rename, || rustix::fs::renameat_with(from, old, to, new, flags))?;
    note!(renamed((from.as_fd(), &old), (to.as_fd(), &new), flags));
    Ok(())
}

/// Gives a file another name beside its own.
pub fn linkat(
    from: impl AsFd + Copy,
    old: impl Arg + Copy,
    to: impl AsFd + Copy,
    new: impl Arg + Copy,
    flags: AtFlags,
) -> Result<()> {
    through(Call::Link, || rustix::fs::linkat(from, old, to, new, flags))?;
    note!(added(to.as_fd(), &new));
    Ok(())
}

pub(crate) fn symlinkat(target: impl Arg + Copy, directory: impl AsFd + Copy, name: impl Arg + Copy) -> Result<()> {
    through(Call::Link, || rustix::fs::symlinkat(target, directory, name))?;
    note!(added(directory.as_fd(), &name));
    Ok(())
}

/// Removes a name.
pub fn unlinkat(directory: impl AsFd + Copy, name: impl Arg + Copy, flags: AtFlags) -> Result<()> {
    through(Call::Remove, || rustix::fs::unlinkat(directory, name, flags))?;
    note!(removed(directory.as_fd(), &name));
    Ok(())
}

/// Makes the content of a file survive the machine.
pub fn fsync(file: impl AsFd + Copy) -> Result<()> {
    io_count::synced();
    through(Call::Sync, || rustix::fs::fsync(file))?;
    note!(synced(file.as_fd()));
    Ok(())
}

/// As [`fsync`], without what reading the content does not need.
pub fn fdatasync(file: impl AsFd + Copy) -> Result<()> {
    io_count::synced();
    through(Call::Sync, || rustix::fs::fdatasync(file))?;
    note!(synced(file.as_fd()));
    Ok(())
}

/// Makes the changes of names in an open directory survive the machine.
pub(crate) fn sync_directory(directory: impl AsFd + Copy) -> Result<()> {
    match fsync(directory) {
        // Some network file systems know no fsync of directories; there the rename is as durable as it gets.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        synced => synced,
    }
}

/// Sets the size of a file.
pub fn ftruncate(file: impl AsFd + Copy, length: u64) -> Result<()> {
    through(Call::Truncate, || rustix::fs::ftruncate(file, length))?;
    note!(resized(file.as_fd(), length));
    Ok(())
}

/// Makes a file share the blocks of another one, whose content it then has. Few file systems can.
///
/// # Errors
/// [`Errno::OPNOTSUPP`], [`Errno::XDEV`], [`Errno::INVAL`] and others where the files cannot share blocks.
pub fn clone_file(to: impl AsFd + Copy, from: impl AsFd + Copy) -> Result<()> {
    through(Call::Write, || ficlone(to, from))?;
    note!(cloned(to.as_fd()));
    Ok(())
}

/// Allocates the blocks of a file's beginning.
pub(crate) fn fallocate(file: impl AsFd + Copy, length: u64) -> Result<()> {
    through(Call::Write, || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length))?;
    note!(allocated(file.as_fd(), length));
    Ok(())
}

pub(crate) fn write_all(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    uninterrupted(Call::Write)?;
    file.write_all(bytes)?;
    note!(appended(file.as_fd(), bytes));
    Ok(())
}

/// Writes all bytes at an offset.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    uninterrupted(Call::Write)?;
    file.write_all_at(bytes, offset)?;
    note!(written(file.as_fd(), bytes, offset));
    Ok(())
}

/// A new file that is being filled.
#[derive(Debug)]
pub struct Filling(pub File);

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        before(Call::Write)?;
        let written = self.0.write(at_once(bytes))?;
        note!(appended(self.0.as_fd(), bytes.get(..written).unwrap_or(bytes)));
        Ok(written)
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
