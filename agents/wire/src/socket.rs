//! Unix sockets at paths of any length.
//!
//! A socket address holds 108 bytes; a control directory below a long temporary directory does not fit. The
//! directory is opened instead, and the socket named below `/proc/self/fd/N`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Listens at `path`; a socket file left behind by an earlier process is replaced.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let (directory, short) = short_path(path)?;
    match std::fs::symlink_metadata(&short) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(&short)?,
        Ok(_) => {
            let what = format!("{} is not a socket; move it away", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(short)?;
    rustix::fs::chmodat(
        &directory,
        path.file_name().unwrap_or_default(),
        Mode::RUSR | Mode::WUSR,
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(listener)
}

pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_directory, short) = short_path(path)?;
    UnixStream::connect(short)
}

fn short_path(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a directory and a name"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let directory = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok((directory, short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_socket_below_a_directory_of_300_bytes_can_be_reached() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(150)).join("e".repeat(150));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("agent.sock");
        let listener = listen(&path).unwrap();
        let mut rank = connect(&path).unwrap();
        let (mut agent, _) = listener.accept().unwrap();
        rank.write_all(b"x").unwrap();
        let mut byte = [0];
        agent.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_file_or_link_in_place_of_the_socket_is_kept_and_refused() {
        let base = tempfile::tempdir().unwrap();
        let (path, kept) = (base.path().join("agent.sock"), base.path().join("kept"));
        std::fs::write(&kept, "kept").unwrap();
        std::os::unix::fs::symlink(&kept, &path).unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("agent.sock is not a socket"));
        std::fs::rename(&kept, &path).unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("agent.sock");
        drop(listen(&path).unwrap());
        assert!(connect(&path).is_err());
        let _listener = listen(&path).unwrap();
        assert!(connect(&path).is_ok());
    }
}
