//! The names of temporary files, and the removal of those that killed processes left.
//!
//! A temporary file is removed or renamed by the process that made it. If that process is killed, the file stays. A
//! command that writes to a directory therefore first removes the temporary files in it that no process uses any more.
//!
//! The name contains the machine and the process that made the file: `.hf-<machine>-<pid>-<start>-<number>.tmp`.
//! `<machine>` is a hash of the boot id, the PID namespace and the host name, `<start>` is the start time of the
//! process, so that a reused process id is not mistaken for the same process. A file is abandoned if it belongs to this
//! user, and
//!
//! * this machine made it, and the process has ended; or
//! * another machine made it (or this one before a reboot, or an earlier release, whose names lack these parts), and it
//!   was not modified for a day: whether the process runs cannot be found out from here, but a process that writes
//!   changes the time of modification.
//!
//! Only files and links are removed. A directory that is being deleted has such a name in a directory of its own
//! (`store::posix::trash`).

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::calls;

const PREFIX: &str = ".hf-";
const SUFFIX: &str = ".tmp";
/// A file of another machine that was not modified for so long is abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Directories below a root that are searched: those of a job are fewer levels deep.
const LEVELS: u32 = 16;

static NEXT_NAME: AtomicU64 = AtomicU64::new(0);

/// The next name of a temporary file: unique among all processes and machines.
pub(crate) fn name() -> String {
    let number = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
    let Maker { machine, pid, start } = this_process();
    format!("{PREFIX}{machine:016x}-{pid}-{start}-{number}{SUFFIX}")
}

/// As [`name`], of a file that this process does not use any more, and leaves for another one.
pub(crate) fn abandoned_name() -> String {
    let number = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
    let Maker { machine, pid, .. } = this_process();
    // No process has this start time.
    format!("{PREFIX}{machine:016x}-{pid}-0-{number}{SUFFIX}")
}

/// True for the name of a temporary file: what a crash can leave, and what a scan of a directory must not take for a
/// checkpoint's file.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Removes the abandoned temporary files in an open directory; returns their number.
///
/// # Errors
/// The directory cannot be read, or a file cannot be removed; the others are removed.
pub fn remove_abandoned(directory: impl AsFd + Copy) -> io::Result<u32> {
    remove_in(directory, 0)
}

/// As [`remove_abandoned`], in the directory at a path and those below it. Links are not followed. A missing directory
/// has none.
///
/// # Errors
/// As [`remove_abandoned`].
pub fn remove_abandoned_below(directory: &Path) -> io::Result<u32> {
    match calls::openat(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => Ok(0),
        opened => remove_in(&opened?, LEVELS),
    }
}

/// Removes all temporary files in a directory, also those of processes that run: the directory is removed.
pub(crate) fn remove_all(directory: impl AsFd + Copy) -> io::Result<()> {
    for name in calls::names(directory)? {
        if name.to_str().is_some_and(is_temporary) && !examine(directory, &name)?.is_none_or(is_directory) {
            calls::unlinkat(directory, &name, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn remove_in(directory: impl AsFd + Copy, levels: u32) -> io::Result<u32> {
    let (mut removed, mut failure) = (0, None);
    for (name, file_type) in calls::entries(directory)? {
        let may_be_entered = levels > 0 && matches!(file_type, FileType::Directory | FileType::Unknown);
        let result = match name.to_str().filter(|name| is_temporary(name)) {
            Some(name) => remove_if_abandoned(directory, name).map(u32::from),
            None if may_be_entered => remove_below(directory, &name, levels - 1),
            None => Ok(0),
        };
        match result {
            Ok(count) => removed += count,
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
    failure.map_or(Ok(removed), Err)
}

/// In what has this name, if it is a directory.
fn remove_below(directory: impl AsFd + Copy, name: &OsStr, levels: u32) -> io::Result<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match calls::openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => Ok(0),
        opened => remove_in(&opened?, levels),
    }
}

fn remove_if_abandoned(directory: impl AsFd + Copy, name: &str) -> io::Result<bool> {
    match examine(directory, OsStr::new(name))? {
        // A directory may be anything that another user has given such a name.
        Some(found) if !is_directory(found) && is_abandoned(name, &found) => {}
        _ => return Ok(false),
    }
    match calls::unlinkat(directory, name, AtFlags::empty()) {
        // Its process, or another command, was faster.
        Err(Errno::NOENT) => Ok(false),
        removed => Ok(removed.map(|()| true)?),
    }
}

fn examine(directory: impl AsFd + Copy, name: &OsStr) -> io::Result<Option<Stat>> {
    match calls::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        examined => Ok(Some(examined?)),
    }
}

fn is_directory(found: Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

/// True if something with the name of a temporary file belongs to this user and is not used any more.
pub(crate) fn is_abandoned(name: &str, found: &Stat) -> bool {
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return false;
    }
    match Maker::of(name) {
        Some(maker) if maker.machine == this_process().machine => !maker.runs(),
        _ => {
            let age = u64::try_from(found.st_mtime).ok().and_then(|seconds| {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).ok()
            });
            age.is_some_and(|age| age > ABANDONED_AFTER)
        }
    }
}

/// The process that made a temporary file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maker {
    machine: u64,
    pid: u32,
    /// Start time of the process, clock ticks since the boot.
    start: u64,
}

impl Maker {
    fn of(name: &str) -> Option<Maker> {
        let mut parts = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split('-');
        let (machine, pid, start, number) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let machine = (machine.len() == 16).then(|| u64::from_str_radix(machine, 16).ok()).flatten()?;
        let maker = Maker { machine, pid: pid.parse().ok()?, start: start.parse().ok()? };
        (number.parse::<u64>().is_ok() && parts.next().is_none()).then_some(maker)
    }

    /// False only if the process is known to have ended.
    fn runs(self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => {
                parse_stat(&stat).is_none_or(|(state, start)| start == self.start && !matches!(state, 'Z' | 'X'))
            }
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// State and start time of a process. The name before them may contain any character.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The 22nd field of the line; the state is the third.
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn this_process() -> Maker {
    static THIS: OnceLock<Maker> = OnceLock::new();
    *THIS.get_or_init(|| {
        let start = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Some(parse_stat(&stat)?.1));
        Maker { machine: this_machine(), pid: std::process::id(), start: start.unwrap_or_default() }
    })
}

/// Two machines differ in boot id or host name (copies of a virtual machine share the former); containers of one
/// machine differ in the PID namespace.
fn this_machine() -> u64 {
    let mut hash = DefaultHasher::new();
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hash);
    fs::read_link("/proc/self/ns/pid").unwrap_or_default().hash(&mut hash);
    rustix::system::uname().nodename().to_bytes().hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    fn make(directory: &Path, maker: Maker, number: u64) -> std::path::PathBuf {
        let Maker { machine, pid, start } = maker;
        let path = directory.join(format!("{PREFIX}{machine:016x}-{pid}-{start}-{number}{SUFFIX}"));
        fs::write(&path, "half").unwrap();
        path
    }

    fn open(directory: &Path) -> File {
        File::open(directory).unwrap()
    }

    fn set_age(path: &Path, age: Duration) {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn a_name_contains_its_process() {
        let first = name();
        assert!(is_temporary(&first) && first != name());
        assert_eq!(Maker::of(&first), Some(this_process()));
        assert!(this_process().runs() && this_process().start > 0);
        for other in [".hf-12-3.tmp", ".hf-1_of_4_in_0.2.tmp", "rank_0.ckpt"] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
        assert!(!is_temporary("rank_0.ckpt"));
    }

    #[test]
    fn files_of_a_process_that_has_ended_are_removed_and_those_of_one_that_runs_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let maker = Maker { pid: child.id(), start: parse_stat(&stat).unwrap().1, ..this_process() };
        let of_child = make(directory.path(), maker, 1);
        // However old they are.
        set_age(&of_child, 3 * ABANDONED_AFTER);
        let own = make(directory.path(), this_process(), 2);
        let reused = make(directory.path(), Maker { start: maker.start + 1, ..maker }, 3);
        fs::write(directory.path().join("rank_0.ckpt"), "").unwrap();
        assert_eq!(remove_abandoned(&open(directory.path())).unwrap(), 1, "the process id was reused");
        assert!(of_child.exists() && own.exists() && !reused.exists());
        child.kill().unwrap();
        // Ended, and not yet waited for.
        while maker.runs() {
            std::thread::yield_now();
        }
        assert_eq!(remove_abandoned(&open(directory.path())).unwrap(), 1);
        child.wait().unwrap();
        assert!(!of_child.exists() && own.exists() && directory.path().join("rank_0.ckpt").exists());
    }

    #[test]
    fn files_of_other_machines_are_removed_after_a_day_without_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = Maker { machine: this_process().machine ^ 1, ..this_process() };
        let earlier_release = directory.path().join(".hf-12-3.tmp");
        fs::write(&earlier_release, "").unwrap();
        let fresh = make(directory.path(), elsewhere, 1);
        let old = make(directory.path(), elsewhere, 2);
        set_age(&old, ABANDONED_AFTER + Duration::from_secs(60));
        assert_eq!(remove_abandoned(&open(directory.path())).unwrap(), 1);
        assert!(fresh.exists() && earlier_release.exists() && !old.exists());
        set_age(&earlier_release, 2 * ABANDONED_AFTER);
        assert_eq!(remove_abandoned(&open(directory.path())).unwrap(), 1);
        assert!(!earlier_release.exists());
    }

    #[test]
    fn directories_below_are_searched_and_links_are_not_followed() {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ended = Maker { start: this_process().start + 1, ..this_process() };
        let below = directory.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let found = make(&below, ended, 1);
        let linked = make(outside.path(), ended, 2);
        std::os::unix::fs::symlink(outside.path(), directory.path().join("link")).unwrap();
        // A directory that another user has given such a name.
        let directory_of_user =
            directory.path().join(format!("{PREFIX}{:016x}-{}-{}-3{SUFFIX}", ended.machine, ended.pid, ended.start));
        fs::create_dir_all(directory_of_user.join("inside")).unwrap();
        assert_eq!(remove_abandoned_below(&below.join("missing")).unwrap(), 0);
        assert_eq!(remove_abandoned_below(directory.path()).unwrap(), 1);
        assert!(!found.exists() && directory_of_user.join("inside").is_dir() && linked.exists());
    }

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(parse_stat(stat), Some(('S', 4711)));
    }
}
