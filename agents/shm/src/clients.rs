//! Where programs that users start themselves become copies of pairs.
//!
//! A copy of such a pair is a process of Holdfast at first, which waits at a socket in the directory `clients` beside
//! the registry. A program that connects receives its place, which a program that the agent starts finds in its
//! environment: lines `NAME=value` up to the end of the stream. The socket accepts one program.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use holdfast_model::pair::Side;

/// The variable with the directory, in the environment of users' programs.
pub const DIRECTORY: &str = "HOLDFAST_PAIRS_CLIENTS";
/// The most bytes of the lines.
pub const LONGEST_PLACE: u64 = 64 << 10;

/// The directory of the sockets of a registry.
pub fn directory(registry: &Path) -> PathBuf {
    registry.with_file_name("clients")
}

/// The socket of a copy.
#[derive(Debug)]
pub struct ClientSocket {
    /// Open: a socket's address has 108 bytes only.
    directory: File,
    name: String,
}

impl ClientSocket {
    /// That of a side of the pair with this number in the job. The directory must exist.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(directory: &Path, pair: u32, side: Side) -> io::Result<ClientSocket> {
        Ok(ClientSocket { directory: File::open(directory)?, name: format!("{pair}.{side}") })
    }

    /// The path that this process uses, while this exists.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}/{}", self.directory.as_raw_fd(), self.name).into()
    }
}
