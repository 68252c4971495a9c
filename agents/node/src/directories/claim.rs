//! The job's directories on the node: made, checked, claimed by one agent at a time, and removed at the end.
//!
//! They are below directories that all users may write to, and obey the rules of [`holdfast_core::owned`]: no other
//! user can exchange a component of their paths. A base or a directory of another user is refused.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, Base, Found, Marker, OwnedDirectory, OwnedError};
use rustix::fs::{AtFlags, FlockOperation, flock, fstat, statat};
use rustix::process::{Pid, Signal, kill_process};

use crate::directories::paths::{PathError, Paths, base_name};

/// How long an earlier agent may take to end after SIGTERM, which one with a busy orchestrator, or with users that ask
/// for the state of its pairs, defers. Less than the shortest time limit for the start of the new one, which would not
/// come to SIGKILL otherwise. What the earlier one watches goes on.
const TERMINATED_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take to end in all.
const LOCKED_WITHIN: Duration = Duration::from_secs(4);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// A claim lasts for so long after its agent was seen alive. Less than the time limit of an agent's first start.
const CLAIM_LASTS: Duration = Duration::from_secs(15);
/// The interval at which an agent renews its claim.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// The lock file of a control directory.
const LOCK: &str = "agent.lock";
/// The mode of missing directories in a base path. Other users are refused a base of this user in any case.
const BASE_MODE: u32 = 0o700;
/// What other users may do with directories that exist: SCR and earlier releases made them readable.
pub(crate) const EXISTING: Access = Access::Readable;

/// Why the job's directories cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    #[error("{what} {name:?} cannot be part of a directory name; it must not be empty or contain a slash")]
    Name { what: &'static str, name: String },
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another user may have a hand in it, or it cannot be made or opened.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("another agent (process {pid}) uses {} and did not end", path.display())]
    Taken { path: PathBuf, pid: String },
    #[error("the lock {} is replaced by another process again and again; end that process", path.display())]
    Replaced { path: PathBuf },
}

impl ClaimError {
    /// The prefix directory of another job to which the directory belongs, and the token of its allocation, if that is
    /// the reason.
    pub(crate) fn other_job(&self) -> Option<(&Path, Option<&str>)> {
        match self {
            ClaimError::Owned(OwnedError::Refused { found: Found::OtherPrefix { prefix, allocation }, .. }) => {
                Some((prefix, allocation.as_deref()))
            }
            _ => None,
        }
    }

    /// True if another user may have a hand in the directory: nothing below it may be used.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self, ClaimError::Owned(OwnedError::Io { .. }) | ClaimError::Io { .. })
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClaimError {
    let path = path.to_owned();
    move |source| ClaimError::Io { action, path, source }
}

/// Refuses names that are not exactly one component of a path.
///
/// # Errors
/// When the user name or the job id is such a name.
pub(crate) fn check_names(user: &str, job_id: &str) -> Result<(), ClaimError> {
    for (what, name) in [("the user name", user), ("the job id", job_id)] {
        if base_name(name).ok() != Some(name) {
            return Err(ClaimError::Name { what, name: name.to_owned() });
        }
    }
    Ok(())
}

/// The base, the name of the user's directory and that of the job's directory in a path `<base>/<user>/scr.<job id>`.
pub(super) fn parts(real: &Path) -> Option<(&Path, &OsStr, &OsStr)> {
    let of_user = real.parent()?;
    Some((of_user.parent()?, of_user.file_name()?, real.file_name()?))
}

/// The marker of all directories of a job on a node. Control and cache directory may be one.
fn marker(paths: &Paths) -> Marker<'_> {
    Marker { kind: "node", job: &paths.job_id, prefix: paths.owner(), allocation: paths.allocation() }
}

/// Opens one of the job's directories, `<base>/<user>/scr.<job id>`, and makes it if it is missing. It gets the marker
/// without which it would not be removed.
///
/// # Errors
/// When it cannot be made, or another user may have a hand in it.
pub(crate) fn directory(paths: &Paths, node_path: &str) -> Result<OwnedDirectory, ClaimError> {
    let real = paths.real(node_path)?;
    let not_made = || PathError { path: node_path.to_owned(), fault: "is not the directory of a job" };
    let (base, user, job) = parts(&real).ok_or_else(not_made)?;
    let of_user = Base::create_trusted(base, BASE_MODE)?.create_private_directory(user)?;
    let directory = of_user.create_private_directory(job)?;
    directory.mark(&marker(paths), Durability::Process)?;
    Ok(directory)
}

/// Makes a directory below one of the job's directories, which is made too if it is missing.
///
/// # Errors
/// When it cannot be made, or another user may have a hand in it.
pub(crate) fn directory_below(paths: &Paths, job_directory: &str, below: &Path) -> Result<(), ClaimError> {
    let mut at = directory(paths, job_directory)?;
    for name in below.components() {
        at = at.create_private_directory(name)?;
    }
    Ok(())
}

/// An empty directory in one of the job's directories; what an earlier process left there is removed.
///
/// # Errors
/// When it cannot be emptied or made, or another user may have a hand in it.
pub(crate) fn emptied_part(paths: &Paths, job_directory: &str, name: &str) -> Result<PathBuf, ClaimError> {
    let job = directory(paths, job_directory)?;
    job.remove_part(name, EXISTING, &marker(paths))?;
    Ok(job.create_private_directory(name)?.path().to_owned())
}

/// Removes the directories in one of the job's directories whose names match.
pub(crate) fn remove_parts(
    paths: &Paths,
    job_directory: &str,
    matches: impl Fn(&str) -> bool,
) -> Result<(), ClaimError> {
    let Some(job) = OwnedDirectory::open(&paths.real(job_directory)?, EXISTING)? else { return Ok(()) };
    for name in job.names()?.iter().filter(|name| name.to_str().is_some_and(&matches)) {
        job.remove_part(name, EXISTING, &marker(paths))?;
    }
    Ok(())
}

/// Checks that no other user can have exchanged these directories of the job since they were made, for instance after
/// an automatic cleanup of `/tmp` removed them. What is below them may then be used by path. A missing one is no error.
///
/// # Errors
/// When another user may have a hand in one of them.
pub(crate) fn check(paths: &Paths, bases: &[String]) -> Result<(), ClaimError> {
    let caches = bases.iter().map(|base| paths.cache_node_path(base));
    for node_path in caches.chain([paths.control_node_path().to_owned()]) {
        OwnedDirectory::open(&paths.real(&node_path)?, EXISTING)?;
    }
    Ok(())
}

/// The exclusive use of the control directory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    control: OwnedDirectory,
    lock: File,
}

impl Claim {
    /// The agent lives: the claim lasts for some more seconds, also if the agent is killed now.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.lock.set_modified(SystemTime::now())
    }
}

impl Drop for Claim {
    /// Removes the lock file from a control directory that is kept; the lock is held until then.
    fn drop(&mut self) {
        let _ = self.control.remove_file(LOCK, Durability::Process);
    }
}

/// Takes the control directory over. An agent that a lost orchestrator left there is ended: two agents would overwrite
/// each other's files.
///
/// # Errors
/// When it cannot be locked, or the other agent does not end.
pub(crate) fn claim(control: OwnedDirectory) -> Result<Claim, ClaimError> {
    let path = control.path().join(LOCK);
    let mut file = control.open_or_create(LOCK, Access::Private)?;
    let begun = Instant::now();
    let mut signalled = [false; 2];
    loop {
        let late = begun.elapsed() >= TERMINATED_WITHIN;
        let too_late = begun.elapsed() >= LOCKED_WITHIN;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &control) => break,
            Ok(()) if too_late => return Err(ClaimError::Replaced { path }),
            // The agent that ended has removed the file that is now locked.
            Ok(()) => {
                file = control.open_or_create(LOCK, Access::Private)?;
                continue;
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed("lock", &path)(error.into())),
        }
        let holder = holder(&mut file).unwrap_or_default();
        if too_late {
            return Err(ClaimError::Taken { path: control.path().to_owned(), pid: holder });
        }
        let pid = holder.parse().ok().and_then(Pid::from_raw).filter(|pid| *pid != rustix::process::getpid());
        if let Some(pid) = pid.filter(|pid| !signalled[usize::from(late)] && has_open(*pid, &file)) {
            signalled[usize::from(late)] = true;
            let signal = if late { Signal::KILL } else { Signal::TERM };
            tracing::warn!(pid = %holder, kill = late, "earlier_agent_ended");
            let _ = kill_process(pid, signal);
        }
        sleep(BETWEEN_ATTEMPTS);
    }
    let pid = std::process::id().to_string();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
    written.map_err(failed("write", &path))?;
    Ok(Claim { control, lock: file })
}

/// Waits until the claim of an agent that was killed has expired: its orchestrator may start another one. An agent that
/// ended by itself has removed its lock, and one that runs is not waited for.
pub(crate) fn wait_for_expiry(control: &OwnedDirectory) -> Result<(), ClaimError> {
    let begun = Instant::now();
    loop {
        let Some(file) = control.open_file(LOCK, Access::Private)? else { return Ok(()) };
        let renewed = file.metadata().and_then(|metadata| metadata.modified());
        let renewed = renewed.map_err(failed("examine", &control.path().join(LOCK)))?;
        // A clock that was set back does not prolong it.
        let age = renewed.elapsed().unwrap_or_default().max(begun.elapsed());
        let is_held = flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK);
        if is_held || age >= CLAIM_LASTS {
            return Ok(());
        }
        drop(file);
        sleep(BETWEEN_LOOKS.min(CLAIM_LASTS - age));
    }
}

/// Takes over the control directory of a job whose agent has ended; `None` while that agent runs.
pub(crate) fn claim_unused(control: OwnedDirectory) -> Result<Option<Claim>, ClaimError> {
    let file = control.open_or_create(LOCK, Access::Private)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Claim { control, lock: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed("lock", &control.path().join(LOCK))(error.into())),
    }
}

/// True if this open file is the control directory's lock.
fn is_at(file: &File, control: &OwnedDirectory) -> bool {
    let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let there = statat(control, LOCK, AtFlags::SYMLINK_NOFOLLOW).map(identity);
    fstat(file).map(identity).is_ok_and(|ours| there.is_ok_and(|theirs| theirs == ours))
}

/// True if the process has this file open. Until the holder of the lock has written its process id, the file contains
/// an older one, which may be in use by an unrelated process.
fn has_open(pid: Pid, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let Ok(ours) = file.metadata().map(identity) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
    descriptors.is_ok_and(|descriptors| {
        descriptors.flatten().any(|entry| fs::metadata(entry.path()).map(identity).is_ok_and(|theirs| theirs == ours))
    })
}

/// The process id in the lock file, which the holder of the lock wrote.
fn holder(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.take(32).read_to_string(&mut text)?;
    Ok(text)
}

/// Removes the job's directories below these bases, the control directory last, and the user's directory if it is then
/// empty.
///
/// # Errors
/// The first that could not be removed; the others are removed nevertheless.
pub(crate) fn remove(paths: &Paths, bases: impl Iterator<Item = String>) -> Result<(), ClaimError> {
    let caches = bases.map(|base| paths.cache_node_path(&base));
    let mut result = Ok(());
    for node_path in caches.chain([paths.control_node_path().to_owned()]) {
        result = result.and(remove_directory(paths, &node_path));
    }
    result
}

fn remove_directory(paths: &Paths, node_path: &str) -> Result<(), ClaimError> {
    let real = paths.real(node_path)?;
    let Some((base, user, job)) = parts(&real) else { return Ok(()) };
    let base = match Base::trusted(base) {
        Err(error) if error.is_missing() => return Ok(()),
        base => base?,
    };
    let Some(of_user) = base.open_directory(user, EXISTING)? else { return Ok(()) };
    of_user.remove_tree(job, EXISTING, &marker(paths))?;
    // Another job's directory may be in it.
    base.remove_empty_directory(user, EXISTING)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture_start;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_is_made_once_and_refused_when_others_may_write_to_it() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0"));
        let open = || directory(&paths, paths.control_node_path());
        let control = open().unwrap().path().to_owned();
        assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o700);
        assert_eq!(open().unwrap().path(), control);
        let of_user = control.parent().unwrap().to_owned();
        fs::set_permissions(&of_user, fs::Permissions::from_mode(0o777)).unwrap();
        let error = open().unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("may be written by other users"), "{error}");
        fs::set_permissions(&of_user, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(&control).unwrap();
        let elsewhere = root.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &control).unwrap();
        let found = [open().map(drop), check(&paths, &[]), remove(&paths, std::iter::empty())];
        for refused in found {
            let ClaimError::Owned(error) = refused.unwrap_err() else { panic!("another error") };
            assert!(matches!(error.found(), Some(Found::Link { .. })), "{error}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn refuses_names_that_are_not_one_path_component() {
        assert!(check_names("user1", "1145655").is_ok());
        for bad in ["", "..", "a/b", "/"] {
            assert!(check_names(bad, "7").is_err() && check_names("user1", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_earlier_agent_is_ended() {
        let control = tempfile::tempdir().unwrap();
        let lock = control.path().join(LOCK);
        // A process that holds the lock and has written its process id, as an agent does.
        let script = "umask 077; exec 9>>\"$0\"; flock 9; echo -n $$ >\"$0\"; echo held; exec sleep 60";
        let mut other = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(&lock)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut held = [0; 4];
        other.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
        let claim = claim(open(control.path())).unwrap();
        assert!(!other.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&lock).unwrap(), std::process::id().to_string());
        drop(claim);
        assert!(!lock.exists());
    }

    #[test]
    fn a_claim_expires_some_seconds_after_its_last_renewal_and_at_once_if_it_was_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join(LOCK);
        let waited = || {
            let begun = Instant::now();
            wait_for_expiry(&open(directory.path())).unwrap();
            begun.elapsed()
        };
        assert!(waited() < CLAIM_LASTS / 2, "there is none");
        let claim = claim(open(directory.path())).unwrap();
        assert!(waited() < CLAIM_LASTS / 2, "its agent runs");
        drop(claim);
        let file = File::create(&lock).unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
        file.set_modified(SystemTime::now() - CLAIM_LASTS + Duration::from_millis(500)).unwrap();
        let time = waited();
        assert!(time >= Duration::from_millis(300) && time < CLAIM_LASTS / 2, "{time:?}");
    }

    fn open(control: &Path) -> OwnedDirectory {
        OwnedDirectory::open(control, EXISTING).unwrap().unwrap()
    }

    #[test]
    fn a_lock_that_is_not_a_file_of_this_user_is_an_error_that_names_it() {
        let control = tempfile::tempdir().unwrap();
        let lock = control.path().join(LOCK);
        let target = control.path().join("target");
        fs::write(&target, "kept").unwrap();
        for target in [target.as_path(), Path::new("nowhere"), Path::new(LOCK)] {
            symlink(target, &lock).unwrap();
            let error = claim(open(control.path())).unwrap_err();
            assert!(error.is_refusal() && error.to_string().contains("agent.lock is a symbolic link"), "{error}");
            fs::remove_file(&lock).unwrap();
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, &lock, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let error = claim(open(control.path())).unwrap_err();
        assert!(error.to_string().contains("agent.lock is not a regular file"), "{error}");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert!(claim(open(control.path())).unwrap_err().to_string().contains("agent.lock"));
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn the_job_s_directories_are_removed_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0"));
        let made = |node_path: &str| directory(&paths, node_path).unwrap().path().to_owned();
        let (control, cache) = (made(paths.control_node_path()), made(&paths.cache_node_path("/ssd")));
        let other_job = cache.with_file_name("scr.8");
        fs::create_dir(&other_job).unwrap();
        remove(&paths, ["/ssd".to_owned(), "/not/there".to_owned()].into_iter()).unwrap();
        assert!(!control.exists() && !control.parent().unwrap().exists());
        assert!(!cache.exists() && other_job.exists());
        // A directory that no agent has used has no marker.
        fs::create_dir(&cache).unwrap();
        assert!(remove(&paths, ["/ssd".to_owned()].into_iter()).unwrap_err().to_string().contains("no marker"));
        assert!(cache.exists());
    }
}
