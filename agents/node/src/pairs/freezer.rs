//! Suspension of non-critical jobs.
//!
//! Where this user may create a control group of version 2 below the agent's own, each job gets one, and the kernel
//! freezes all processes in it: also those that left the job's process group, and without a signal that they could
//! see. Elsewhere the process group gets SIGSTOP and SIGCONT.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_process::ObservedProcess;
use parking_lot::Mutex;
use rustix::process::Signal;

/// The names of the control groups: this, the number of the agent's process, and a counter.
const PREFIX: &str = "holdfast-job-";
/// Moves itself to the control group, then becomes the program: nothing of the program runs outside of it.
const ENTER: &str = r#"echo 0 > "$0" && exec "$@""#;

/// A new control group for a job; `None` where there can be none.
pub(super) fn new_group() -> Option<Freezer> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let agent = std::process::id();
    let parent = mounted(agent)?;
    remove_unused(&parent);
    let group = parent.join(format!("{PREFIX}{agent}-{}", COUNTER.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&group).ok()?;
    // Kernels before 5.2 have no freezer. The members of a group may be writable by others than the group itself.
    let writable = |file: &str| OpenOptions::new().write(true).open(group.join(file));
    match ["cgroup.freeze", "cgroup.procs"].into_iter().try_for_each(|file| writable(file).map(drop)) {
        Ok(()) => Some(Freezer(group)),
        Err(error) => {
            let _ = fs::remove_dir(&group);
            tracing::debug!(group = %group.display(), %error, "no_freezer");
            None
        }
    }
}

/// Suspends a job. True: by the freezer.
pub(super) fn suspend(process: &ObservedProcess) -> bool {
    let frozen = Freezer::of(process).is_some_and(|freezer| freezer.freeze(true));
    if !frozen {
        process.signal(Signal::STOP);
    }
    frozen
}

/// Resumes a job, whichever way it was suspended.
pub(super) fn resume(process: &ObservedProcess) {
    if let Some(freezer) = Freezer::of(process) {
        freezer.freeze(false);
    }
    process.signal(Signal::CONT);
}

/// The control group of one job.
#[derive(Debug)]
pub(super) struct Freezer(PathBuf);

impl Freezer {
    /// The control group of a job's process, also if an earlier agent has made it.
    pub fn of(process: &ObservedProcess) -> Option<Freezer> {
        let group = mounted(process.id.pid)?;
        agent_of(&group).map(|_| Freezer(group))
    }

    /// A command that runs a program in the control group. A program that does not exist ends with exit code 127.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(ENTER).arg(self.0.join("cgroup.procs")).arg(program);
        command
    }

    fn freeze(&self, frozen: bool) -> bool {
        let written = fs::write(self.0.join("cgroup.freeze"), if frozen { "1" } else { "0" });
        written.inspect_err(|error| tracing::warn!(group = %self.0.display(), %error, "freezer_failed")).is_ok()
    }

    /// Kills what the job has left, and removes the control group. One whose processes still end is removed by
    /// [`remove_left`].
    pub fn remove(self) {
        // Kernels before 5.14 have no `cgroup.kill`: the process group was killed already.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        if !is_removed(&self.0) {
            LEFT.lock().push(self.0);
        }
    }
}

/// The control groups of jobs that have ended whose processes had not.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the control groups of jobs whose processes have ended meanwhile. True: none is left.
pub(super) fn remove_left() -> bool {
    let mut left = LEFT.lock();
    left.retain(|group| !is_removed(group));
    left.is_empty()
}

fn is_removed(group: &Path) -> bool {
    fs::remove_dir(group).map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true)
}

/// Where the control group of version 2 of a process is mounted.
fn mounted(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let root = mounts.lines().find_map(root_of_version_2)?;
    Some(root.join(group))
}

/// The mount point, if this line of `mountinfo` is that of the whole hierarchy of version 2.
fn root_of_version_2(line: &str) -> Option<PathBuf> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, at) = (fields.next()?, fields.next()?);
    (file_system.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(at))
}

/// The number of the agent that has made a group; `None` if it is no group of a job.
fn agent_of(group: &Path) -> Option<u32> {
    let (agent, _) = group.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    agent.parse().ok()
}

/// Removes what agents that have ended left; a group with processes cannot be removed.
fn remove_unused(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for group in entries.flatten().map(|entry| entry.path()) {
        // Other agents may be about to start a process there.
        if agent_of(&group).is_some_and(|agent| !Path::new(&format!("/proc/{agent}")).exists()) {
            let _ = fs::remove_dir(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Stdio};

    use holdfast_process::{ProcessId, stat};
    use holdfast_testkit::cluster::until;

    /// A job whose child has a process group and session of its own, and writes its number to `child`.
    fn job(group: &Freezer, directory: &Path) -> (ObservedProcess, Child) {
        let script = "setsid sh -c 'echo $$ > child; while echo x >> ticks; do sleep 0.01; done' & \
                      while :; do sleep 0.01; done";
        let mut command = group.command(Path::new("sh"));
        let child = command.args(["-c", script]).current_dir(directory).stdout(Stdio::null()).process_group(0).spawn();
        let child = child.unwrap();
        (ObservedProcess::open(ProcessId::of(child.id()).unwrap()).unwrap(), child)
    }

    fn ticks(directory: &Path) -> u64 {
        fs::metadata(directory.join("ticks")).map_or(0, |found| found.len())
    }

    #[test]
    fn the_freezer_stops_processes_that_left_the_process_group() {
        let directory = tempfile::tempdir().unwrap();
        let Some(group) = new_group() else {
            eprintln!("not checked: this user may not create control groups of version 2 here");
            return;
        };
        let (process, mut child) = job(&group, directory.path());
        until("ticks", || ticks(directory.path()) > 2);
        let freezer = Freezer::of(&process).unwrap();
        assert_eq!(freezer.0, group.0);
        assert!(suspend(&process));
        let events = freezer.0.join("cgroup.events");
        until("frozen processes", || fs::read_to_string(&events).unwrap().contains("frozen 1"));
        let frozen = ticks(directory.path());
        assert!(stat::threads(process.id.pid).iter().all(|thread| thread.state != b'T'), "stopped by a signal");
        resume(&process);
        until("more ticks", || ticks(directory.path()) > frozen + 2);
        // A job that ends while it is frozen leaves nothing.
        assert!(suspend(&process));
        process.signal(Signal::KILL);
        child.wait().unwrap();
        let path = freezer.0.clone();
        freezer.remove();
        let orphan = fs::read_to_string(directory.path().join("child")).unwrap();
        until("end of the child", || !Path::new(&format!("/proc/{}/exe", orphan.trim())).exists());
        until("removal", || {
            remove_left();
            !path.exists()
        });
    }

    #[test]
    fn a_group_that_cannot_be_removed_yet_is_removed_later() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("group");
        fs::create_dir(&group).unwrap();
        // As a process does in a control group, a file keeps a directory from being removed.
        Freezer(group.clone()).remove();
        remove_left();
        assert!(group.exists());
        fs::remove_file(group.join("cgroup.kill")).unwrap();
        remove_left();
        assert!(!group.exists());
        assert!(!LEFT.lock().contains(&group));
    }

    #[test]
    fn groups_of_agents_that_have_ended_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (ours, other) = (std::process::id(), ended.id());
        let names = [format!("{PREFIX}{ours}-0"), format!("{PREFIX}{other}-0"), format!("other-{other}-0")];
        names.iter().for_each(|name| fs::create_dir(directory.path().join(name)).unwrap());
        remove_unused(directory.path());
        assert_eq!(names.map(|name| directory.path().join(name).exists()), [true, false, true]);
    }

    #[test]
    fn without_a_freezer_the_process_group_is_stopped() {
        // No shell: one that waits for a child of vfork, which was stopped before it became its program, is in state D.
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let process = ObservedProcess::open(ProcessId::of(child.id()).unwrap()).unwrap();
        assert!(!suspend(&process));
        until("stopped process", || stat::threads(process.id.pid).iter().all(|thread| thread.state == b'T'));
        resume(&process);
        until("running process", || stat::threads(process.id.pid).iter().all(|thread| thread.state != b'T'));
        process.signal(Signal::KILL);
        child.wait().unwrap();
    }

    #[test]
    fn only_the_whole_hierarchy_of_version_2_counts() {
        let line = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(root_of_version_2(line), Some(PathBuf::from("/sys/fs/cgroup")));
        for other in
            [&line.replace("cgroup2 cgroup2", "cgroup cgroup"), &line.replace(" / /sys", " /a /sys"), "", "1 2"]
        {
            assert_eq!(root_of_version_2(other), None, "{other}");
        }
    }
}
