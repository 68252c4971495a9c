//! Processes that can still change a file.
//!
//! A file that is moved into the cache stays the same file: what a process writes into it later would damage a
//! checkpoint that is complete. `/proc` shows the processes of this user; it serves every file system, unlike leases.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_process::descendants;
use holdfast_process::stat::ProcessStat;
use procfs::process::{MMPermissions, MMapPath};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A process that has a file open when it forks shares it with the child until that executes another program; others
/// close their files just after they have reported them as complete.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// A file, whatever its path is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: (u32, u32),
    inode: u64,
    /// For messages.
    path: PathBuf,
}

impl FileIdentity {
    /// The file at this path. A symbolic link is not followed.
    pub fn at(path: &Path) -> io::Result<FileIdentity> {
        Ok(Self::of(&fs::symlink_metadata(path)?, path))
    }

    /// The file with these metadata.
    pub fn of(metadata: &fs::Metadata, path: &Path) -> FileIdentity {
        let device = metadata.dev();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        FileIdentity { device, inode: metadata.ino(), path: path.to_owned() }
    }
}

/// A process that has a file open for writing, or has mapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    pub path: PathBuf,
    pub pid: i32,
    pub name: String,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)
    }
}

/// Waits for a short time until no process can write into the files any more.
pub fn wait_until_closed(files: &[FileIdentity]) -> Result<(), Writer> {
    let begun = Instant::now();
    while let Some(writer) = writer_of(files) {
        if begun.elapsed() >= CLOSED_WITHIN {
            return Err(writer);
        }
        std::thread::sleep(LOOKED_EVERY);
    }
    Ok(())
}

/// A process that can still write into one of the files, the parent rather than its children. Those of other users are
/// not seen. A mapping whose file was closed is found in processes that this one has started.
pub fn writer_of(files: &[FileIdentity]) -> Option<Writer> {
    if files.is_empty() {
        return None;
    }
    let pids = || fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let writer = |pid, file: &FileIdentity| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Writer { path: file.path.clone(), pid, name: name.trim_end().to_owned() }
    };
    let open: BTreeMap<i32, &FileIdentity> = pids.filter_map(|pid| Some((pid, opened(pid, files)?))).collect();
    let parent = |pid| Some(ProcessStat::of(u32::try_from(pid).ok()?)?.parent);
    if let Some((pid, file)) = opener(&open, parent) {
        return Some(writer(pid, file));
    }
    descendants::pids().into_iter().find_map(|pid| Some(writer(pid, mapped(pid, files)?)))
}

/// Of processes that have a file open, one that has not inherited it from another of them: its children, of which users
/// know nothing, can have smaller numbers.
fn opener<T: Copy>(open: &BTreeMap<i32, T>, parent: impl Fn(i32) -> Option<i32>) -> Option<(i32, T)> {
    let is_inherited = |pid| parent(pid).is_some_and(|parent| open.contains_key(&parent));
    let found = open.iter().find(|(pid, _)| !is_inherited(**pid)).or(open.iter().next());
    found.map(|(pid, file)| (*pid, *file))
}

/// Linux's `AT_STATX_DONT_SYNC`, which rustix names for some C libraries only.
const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

/// The file that a process has open for writing.
fn opened(pid: i32, files: &[FileIdentity]) -> Option<&FileIdentity> {
    // Another user's process, or one that has ended.
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    entries.flatten().find_map(|entry| {
        let link = entry.path();
        // Its permissions are those with which the file was opened.
        let is_writable = fs::symlink_metadata(&link).ok()?.permissions().mode() & 0o200 != 0;
        // Sockets and pipes have no path.
        if !is_writable || !fs::read_link(&link).is_ok_and(|target| target.is_absolute()) {
            return None;
        }
        // A file system that does not answer must not block.
        let status = statx(CWD.as_fd(), &link, DONT_SYNC, StatxFlags::INO).ok()?;
        let (device, inode) = ((status.stx_dev_major, status.stx_dev_minor), status.stx_ino);
        files.iter().find(|file| file.device == device && file.inode == inode)
    })
}

/// The file that a process has mapped so that its stores reach the file.
fn mapped(pid: i32, files: &[FileIdentity]) -> Option<&FileIdentity> {
    let maps = procfs::process::Process::new(pid).and_then(|process| process.maps()).ok()?;
    let shared = MMPermissions::WRITE | MMPermissions::SHARED;
    maps.iter().filter(|map| map.perms.contains(shared)).find_map(|map| {
        let MMapPath::Path(_) = &map.pathname else { return None };
        let device = (u32::try_from(map.dev.0).ok()?, u32::try_from(map.dev.1).ok()?);
        files.iter().find(|file| file.device == device && file.inode == map.inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A process that has done this, and then waits.
    fn process(program: &str, arguments: &[&str], directory: &Path) -> Child {
        let mut command = Command::new(program);
        let mut child = command
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
        child
    }

    #[test]
    fn a_file_has_a_writer_until_the_last_process_has_closed_it_under_whatever_name() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state");
        for (script, is_writer) in
            [("exec 9>>state; echo done; read line", true), ("exec 9<state; echo done; read line", false)]
        {
            fs::write(&path, "1").unwrap();
            let mut child = process("sh", &["-c", script], base.path());
            let file = FileIdentity::at(&path).unwrap();
            fs::rename(&path, base.path().join("moved")).unwrap();
            let shown =
                writer_of(std::slice::from_ref(&file)).map(|writer| format!("{} {writer}", writer.path.display()));
            let expected = format!("{} sh ({})", path.display(), child.id());
            assert_eq!(shown, is_writer.then_some(expected), "{script}");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(writer_of(&[file]), None);
        }
    }

    #[test]
    fn the_opener_of_a_file_is_the_parent_of_those_that_have_inherited_it() {
        let parents = BTreeMap::from([(300, 31_000), (301, 300), (31_000, 7)]);
        let of = |open: &[i32]| {
            let open: BTreeMap<i32, ()> = open.iter().map(|pid| (*pid, ())).collect();
            opener(&open, |pid| parents.get(&pid).copied()).map(|(pid, ())| pid)
        };
        assert_eq!(of(&[300, 301, 31_000]), Some(31_000), "its children have smaller numbers");
        assert_eq!([of(&[301, 300]), of(&[301]), of(&[])], [Some(300), Some(301), None]);
        // It has ended meanwhile.
        assert_eq!(of(&[9]), Some(9));
    }

    #[test]
    fn a_mapping_keeps_a_file_open() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state");
        fs::write(&path, "1").unwrap();
        let script = "import mmap\nwith open('state', 'r+b') as file: map = mmap.mmap(file.fileno(), 0)\n\
                      import os\nfor fd in range(3, 20):\n    try: os.close(fd)\n    except OSError: pass\n\
                      print('done', flush=True)\ninput()";
        let mut child = process("python3", &["-c", script], base.path());
        let found = writer_of(&[FileIdentity::at(&path).unwrap()]);
        assert_eq!(found.map(|writer| writer.path), Some(path));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
