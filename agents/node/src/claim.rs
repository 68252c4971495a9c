//! The job's directories on the node: made, checked, claimed by one agent at a time, and removed at the end.
//!
//! They lie below directories that everybody may write to. One that belongs to another user, or that others may write
//! to, is refused: its owner could exchange our files under our hands.

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

/// How long an agent that is in our place may take to end by itself, and then to be gone.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Why the job's directories cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A name that cannot be part of a path.
    #[error("{what} {name:?} cannot be part of a directory name; it must be one word without slashes")]
    Name {
        /// User or job id.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A base that must not be followed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It could not be made.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// It belongs to somebody else, or others may write to it.
    #[error("{} {fault}; remove it, or choose another base directory", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// It could not be looked at, locked or removed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent serves there and does not end.
    #[error("another agent (process {pid}) serves {} and could not be ended", path.display())]
    Taken {
        /// The control directory.
        path: PathBuf,
        /// Its process, as it says.
        pid: String,
    },
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ClaimError + 'a {
    move |source| ClaimError::Io { action, path: path.to_owned(), source }
}

/// Refuses names that would lead a path astray.
///
/// # Errors
/// When user or job id is more, or less, than one part of a path.
pub(crate) fn check_names(user: &str, job_id: &str) -> Result<(), ClaimError> {
    for (what, name) in [("the user name", user), ("the job id", job_id)] {
        if base_name(name).ok() != Some(name) {
            return Err(ClaimError::Name { what, name: name.to_owned() });
        }
    }
    Ok(())
}

/// Makes one of the job's directories, `<base>/<user>/scr.<job id>`, and checks whose it is.
///
/// # Errors
/// When it cannot be made, or is not ours alone.
pub(crate) fn directory(paths: &Paths, node_path: &str) -> Result<PathBuf, ClaimError> {
    let real = paths.real(node_path)?;
    durable::create_directory_unsynced(&real, 0o750)?;
    check_owner(&real)?;
    if let Some(of_user) = real.parent() {
        check_owner(of_user)?;
    }
    Ok(real)
}

fn check_owner(path: &Path) -> Result<(), ClaimError> {
    let metadata = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    let foreign = |fault: String| Err(ClaimError::Foreign { path: path.to_owned(), fault });
    let own = geteuid().as_raw();
    if !metadata.is_dir() {
        return foreign("is no directory".to_owned());
    }
    if metadata.uid() != own {
        return foreign(format!("belongs to user id {}, this agent is {own}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return foreign(format!("may be written by others (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// The control directory is this agent's as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    _lock: File,
}

impl Drop for Claim {
    /// Leaves nothing behind in a control directory that stays; the lock is held until the file is gone.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the control directory over. An agent that is still there, of an orchestrator that is gone, is ended: two
/// agents would each overwrite what the other has written.
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
    let mut asked = [false; 2];
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => break,
            // The agent that ended has removed the file which is locked now.
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
        if let Some(pid) = pid.filter(|pid| !asked[usize::from(late)] && has_open(*pid, &file)) {
            asked[usize::from(late)] = true;
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

/// True if the process has this file open. Until the holder of the lock has written its number, another one stands there,
/// which may belong to anybody by now.
fn has_open(pid: Pid, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let Ok(ours) = file.metadata().map(identity) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
    descriptors.is_ok_and(|descriptors| {
        descriptors.flatten().any(|entry| fs::metadata(entry.path()).map(identity).is_ok_and(|theirs| theirs == ours))
    })
}

/// The process that the lock file names: whoever has the lock wrote it.
fn holder(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.take(32).read_to_string(&mut text)?;
    Ok(text)
}

/// Removes the job's directories below these bases, the control directory last, and the user's directory if nothing else
/// is in it.
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
        assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o750);
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
    fn names_that_lead_elsewhere_are_refused() {
        assert!(check_names("user1", "1145655").is_ok());
        for bad in ["", "..", "a/b", "/"] {
            assert!(check_names(bad, "7").is_err() && check_names("user1", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_earlier_agent_in_our_place_is_ended() {
        let control = tempfile::tempdir().unwrap();
        let lock = control.path().join("agent.lock");
        // A process that holds the lock and says who it is, as an agent does.
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
    fn what_the_job_had_on_the_node_is_removed_and_nothing_else() {
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
