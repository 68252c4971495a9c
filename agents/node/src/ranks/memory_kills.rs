//! Processes that the system killed for lack of memory (`memory.events`, `memory.oom_control` and `/proc/vmstat` of
//! Linux).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use procfs::ProcResult;
use procfs::process::Process;

/// What counts them for a process, and how many there were when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryKills {
    /// `None` where the control group of the process cannot be read.
    group: Option<Counter>,
    node: Option<Counter>,
}

/// A file with a line `oom_kill NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counter {
    file: PathBuf,
    before: u64,
}

/// Those since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    pub processes: u64,
    /// They were in the control group of the process; otherwise on its node.
    pub of_group: bool,
}

const OF_NODE: &str = "/proc/vmstat";

/// The mounts of control groups with counters, when the first rank of this agent began: of thousands of ranks, each
/// would read and parse all mounts of the node.
static HIERARCHIES: LazyLock<Vec<Hierarchy>> = LazyLock::new(|| hierarchies().unwrap_or_default());

/// A mount of control groups that counts what is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The group at the mount point.
    root: String,
    mount_point: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryKills {
    /// The counters of a process.
    pub fn of(pid: u32) -> MemoryKills {
        let files = group_files(pid).unwrap_or_default();
        let group = files.into_iter().find_map(Counter::open);
        MemoryKills { group, node: Counter::open(PathBuf::from(OF_NODE)) }
    }

    /// Those since the counters were opened; `None` if there were none, or nothing can be read.
    pub fn since(&self) -> Option<Killed> {
        let of_group = self.group.as_ref().map(Counter::since);
        match of_group {
            // The group of a process may be removed with it: then the counter of the node is read.
            Some(Some(processes)) => (processes > 0).then_some(Killed { processes, of_group: true }),
            _ => {
                let processes = self.node.as_ref()?.since()?;
                (processes > 0).then_some(Killed { processes, of_group: false })
            }
        }
    }
}

impl Counter {
    fn open(file: PathBuf) -> Option<Counter> {
        let before = read(&file)?;
        Some(Counter { file, before })
    }

    fn since(&self) -> Option<u64> {
        Some(read(&self.file)?.saturating_sub(self.before))
    }
}

fn read(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The files that count for the control group of the process, in both versions of control groups.
fn group_files(pid: u32) -> ProcResult<Vec<PathBuf>> {
    let groups = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?.cgroups()?;
    let mut files = Vec::new();
    for group in groups {
        let (version, name) = match group.hierarchy {
            0 => (Version::Two, "memory.events"),
            _ if group.controllers.iter().any(|controller| controller == "memory") => {
                (Version::One, "memory.oom_control")
            }
            _ => continue,
        };
        for hierarchy in HIERARCHIES.iter().filter(|hierarchy| hierarchy.version == version) {
            let directory = below(&group.pathname, &hierarchy.root, &hierarchy.mount_point);
            files.extend(directory.map(|directory| directory.join(name)));
        }
    }
    Ok(files)
}

fn hierarchies() -> ProcResult<Vec<Hierarchy>> {
    let mounts = Process::myself()?.mountinfo()?.0.into_iter();
    let counting = mounts.filter_map(|mount| {
        let version = match mount.fs_type.as_str() {
            "cgroup2" => Version::Two,
            "cgroup" if mount.super_options.contains_key("memory") => Version::One,
            _ => return None,
        };
        Some(Hierarchy { version, root: mount.root, mount_point: mount.mount_point })
    });
    Ok(counting.collect())
}

/// The directory of a control group in a mount that begins at `root`, as that of a container does.
fn below(group: &str, root: &str, mount: &Path) -> Option<PathBuf> {
    let inner = Path::new(group).strip_prefix(root).ok()?;
    Some(if inner.as_os_str().is_empty() { mount.to_owned() } else { mount.join(inner) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_group_is_that_of_the_mount_of_its_hierarchy() {
        let mount = Path::new("/sys/fs/cgroup/memory");
        assert_eq!(below("/slurm/job_7", "/", mount), Some(mount.join("slurm/job_7")));
        assert_eq!(below("/docker/4711", "/docker/4711", mount), Some(mount.to_owned()));
        assert_eq!(below("/docker/4711/step", "/docker/4711", mount), Some(mount.join("step")));
        assert_eq!(below("/other", "/docker/4711", mount), None);
        assert_eq!(below("/", "/", mount), Some(mount.to_owned()));
    }

    #[test]
    fn kills_are_those_since_the_beginning_of_the_group_or_else_of_the_node() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        };
        let group = write("memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 9\n");
        let node = write("vmstat", "nr_free_pages 9\noom_kill 7\n");
        let kills = MemoryKills { group: Counter::open(group.clone()), node: Counter::open(node) };
        assert_eq!(kills.since(), None);
        write("vmstat", "nr_free_pages 9\noom_kill 9\n");
        assert_eq!(kills.since(), None, "those were in other groups");
        write("memory.events", "low 0\noom_kill 3\n");
        assert_eq!(kills.since(), Some(Killed { processes: 1, of_group: true }));
        fs::remove_file(group).unwrap();
        assert_eq!(kills.since(), Some(Killed { processes: 2, of_group: false }));
    }

    #[test]
    fn this_process_has_a_counter() {
        let kills = MemoryKills::of(std::process::id());
        assert!(kills.group.is_some() || kills.node.is_some(), "{kills:?}");
        assert_eq!(MemoryKills::of(u32::MAX).group, None, "no such process");
    }
}
