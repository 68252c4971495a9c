//! Errors of the system on files of Holdfast.

use std::io;

/// What a user can do about an I/O error on a file of Holdfast; in one place, so that the same error gets the same
/// advice.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check that the directory exists on this node",
        io::ErrorKind::PermissionDenied => "check owner and mode of the directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space there, or choose another directory",
        io::ErrorKind::FileTooLarge => "raise the limit on file sizes (`ulimit -f`), or use another file system",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory on a writable file system",
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "move away what is in the file's place"
        }
        _ => "check the file system's health",
    }
}
