//! The job's directories on the node: made, checked, claimed by one agent at a time, and removed at the end.
//!
//! They are below directories that all users may write to. A directory that belongs to another user, or that other
//! users may write to, is refused: they could replace our files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_core::durable::{self, DurableError};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::paths::{PathError, Paths, base_name};

/// How long an earlier agent may take to end after SIGTERM, and then after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Why the job's directories cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    #[error("{what} {name:?} cannot be part of a directory name; it must not be empty or contain a slash")]
    Name { what: &'static str, name: String },
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// It belongs to another user, or other users may write to it.
    #[error("{} {fault}; remove it, or choose another base directory", path.display())]
    Foreign { path: PathBuf, fault: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("another agent (process {pid}) uses {} and did not end", path.display())]
    Taken { path: PathBuf, pid: String },
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ClaimError + 'a {
    move |source| ClaimError::Io { action, path: path.to_owned(), source }
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

/// Makes one of the job's directories, `<base>/<user>/scr.<job id>`, and checks its owner.
///
/// # Errors
/// When it cannot be made, or other users may write to it.
pub(crate) fn directory(paths: &Paths, node_path: &str) -> Result<PathBuf, ClaimError> {
    let real = paths.real(node_path)?;
    durable::create_directory_unsynced(&real)?;
    check_owner(&real)?;
    if let Some(of_user) = real.parent() {
        check_owner(of_user)?;
    }
    Ok(real)
}

fn check_owner(path: &Path) -> Result<(), ClaimError> {
    let metadata = fs::symlink_metadata(path).map_err(failed("stat", path))?;
    let foreign = |fault: String| Err(ClaimError::Foreign { path: path.to_owned(), fault });
    let own = geteuid().as_raw();
    if !metadata.is_dir() {
        return foreign("is not a directory".to_owned());
    }
    if metadata.uid() != own {
        return foreign(format!("belongs to user id {}, this agent is {own}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return foreign(format!("may be written by others (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// The exclusive use of the control directory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    _lock: File,
}

impl Drop for Claim {
    /// Removes the lock file from a control directory that is kept; the lock is held until then.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the control directory over. An agent that a lost orchestrator left there is ended: two agents would overwrite
/// each other's files.
///
/// # Errors
/// When it cannot be locked, or the other agent does not end.
pub(crate) fn claim(control: &Path) -> Result<Claim, ClaimError> {
    let path = control.join("agent.lock");
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(failed("open", &path))
    };
    let mut file = open()?;
    let begun = Instant::now();
    let mut signalled = [false; 2];
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => break,
            // The agent that ended has removed the file that is now locked.
            Ok(()) => {
                file = open()?;
                continue;
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed("lock", &path)(error.into())),
        }
        let holder = holder(&mut file).unwrap_or_default();
        let late = begun.elapsed() >= PATIENCE;
        if begun.elapsed() >= PATIENCE * 2 {
            return Err(ClaimError::Taken { path: control.to_owned(), pid: holder });
        }
        let pid = holder.parse().ok().and_then(Pid::from_raw).filter(|pid| *pid != rustix::process::getpid());
        if let Some(pid) = pid.filter(|pid| !signalled[usize::from(late)] && has_open(*pid, &file)) {
            signalled[usize::from(late)] = true;
            let signal = if late { Signal::KILL } else { Signal::TERM };
            tracing::warn!(pid = %holder, ?signal, "earlier_agent_ended");
            let _ = kill_process(pid, signal);
        }
        sleep(BETWEEN_ATTEMPTS);
    }
    let pid = std::process::id().to_string();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
    written.map_err(failed("write", &path))?;
    Ok(Claim { path, _lock: file })
}

/// True if this open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|ours| there.is_ok_and(|theirs| theirs == ours))
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
        let real = paths.real(&node_path)?;
        match fs::remove_dir_all(&real) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                result = result.and(Err(failed("remove", &real)(error)));
            }
            _ => {}
        }
        if let Some(of_user) = real.parent() {
            // Another job's directory may be in it.
            let _ = fs::remove_dir(of_user);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixture_node::fixture_start;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_is_made_once_and_refused_when_others_may_write_to_it() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0"));
        let control = directory(&paths, paths.control_node_path()).unwrap();
        assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o700);
        assert_eq!(directory(&paths, paths.control_node_path()).unwrap(), control);
        let of_user = control.parent().unwrap().to_owned();
        fs::set_permissions(&of_user, fs::Permissions::from_mode(0o777)).unwrap();
        let error = directory(&paths, paths.control_node_path()).unwrap_err();
        assert!(error.to_string().contains("may be written by others"), "{error}");
        fs::set_permissions(&of_user, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir(&control).unwrap();
        std::os::unix::fs::symlink("/etc", &control).unwrap();
        assert!(matches!(directory(&paths, paths.control_node_path()), Err(ClaimError::Foreign { .. })));
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
        let lock = control.path().join("agent.lock");
        // A process that holds the lock and has written its process id, as an agent does.
        let script = "exec 9>>\"$0\"; flock 9; echo -n $$ >\"$0\"; echo held; exec sleep 60";
        let mut other = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(&lock)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut held = [0; 4];
        other.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
        let claim = claim(control.path()).unwrap();
        assert!(!other.wait().unwrap().success());
        assert_eq!(fs::read_to_string(&lock).unwrap(), std::process::id().to_string());
        drop(claim);
    }

    #[test]
    fn the_job_s_directories_are_removed_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(&fixture_start(root.path(), "node0"));
        let control = directory(&paths, paths.control_node_path()).unwrap();
        let cache = directory(&paths, &paths.cache_node_path("/ssd")).unwrap();
        let other_job = cache.with_file_name("scr.8");
        fs::create_dir(&other_job).unwrap();
        remove(&paths, ["/ssd".to_owned(), "/not/there".to_owned()].into_iter()).unwrap();
        assert!(!control.exists() && !control.parent().unwrap().exists());
        assert!(!cache.exists() && other_job.exists());
    }
}
