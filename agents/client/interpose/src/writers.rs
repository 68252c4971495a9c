//! Who has a file open for writing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;

use libc::{EAGAIN, F_GETFL, F_RDLCK, F_SETLEASE, F_UNLCK, O_ACCMODE, O_RDONLY, SIGURG};

/// The signal of a lease; `libc` does not define the command.
const F_SETSIG: libc::c_int = 10;
/// File systems of one machine. Those of a network refuse leases for reasons of their own.
const LOCAL: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630];

/// The descriptors of this process that are open for writing to this file.
pub fn own(file: &File) -> io::Result<BTreeSet<RawFd>> {
    let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
    let wanted = identity(file)?;
    let mut descriptors = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(descriptor) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        // SAFETY: it changes nothing; a descriptor that is not open is an error.
        let flags = unsafe { libc::fcntl(descriptor, F_GETFL) };
        if flags < 0 || flags & O_ACCMODE == O_RDONLY {
            continue;
        }
        // SAFETY: a descriptor of the program, that is not closed here.
        let other = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        if identity(&other).is_ok_and(|found| found == wanted) {
            descriptors.insert(descriptor);
        }
    }
    Ok(descriptors)
}

/// True if the file, which was opened for reading, is open for writing in any process. Always false on file systems
/// that do not report it.
pub fn has_others(file: &File) -> bool {
    let descriptor = file.as_raw_fd();
    // SAFETY: all zeros is a valid value.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the place is valid.
    let is_known = unsafe { libc::fstatfs(descriptor, &raw mut system) } == 0;
    let kind = u64::try_from(system.f_type).unwrap_or_default();
    if !is_known || !LOCAL.contains(&kind) {
        return false;
    }
    // A lease for reading is refused while the file is open for writing. It lasts for an instant; a process that opens
    // the file meanwhile makes the kernel send a signal, which must be one that is ignored.
    // SAFETY: the descriptor is open, and belongs to this library.
    unsafe {
        if libc::fcntl(descriptor, F_SETSIG, SIGURG) != 0 {
            return false;
        }
        if libc::fcntl(descriptor, F_SETLEASE, F_RDLCK) == 0 {
            libc::fcntl(descriptor, F_SETLEASE, F_UNLCK);
            return false;
        }
    }
    io::Error::last_os_error().raw_os_error() == Some(EAGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::{Command, Stdio};

    #[test]
    fn writers_of_this_process_and_of_others_are_found_and_readers_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        let duplicate = writer.try_clone().unwrap();
        let _other = File::create(directory.path().join("other")).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(own(&reader).unwrap(), [writer.as_raw_fd(), duplicate.as_raw_fd()].into());
        drop((writer, duplicate));
        assert_eq!(own(&reader).unwrap(), BTreeSet::new());
        assert!(!has_others(&reader));
        let mut process = Command::new("cat");
        process.stdin(Stdio::piped()).stdout(File::options().append(true).open(&path).unwrap());
        let mut child = process.spawn().unwrap();
        // The command has a descriptor of its own.
        drop(process);
        assert_eq!(own(&reader).unwrap(), BTreeSet::new());
        // Not on a file system of a network.
        assert!(has_others(&reader));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!has_others(&reader));
    }
}
