//! Files and directories that must belong to this user: opened, created, read, replaced and removed without trusting
//! what another user may have put in their place.
//!
//! Holdfast works in directories that other users may write to: `/tmp`, a node's scratch directory, the prefix
//! directory of a project. Another user can make a directory, a file or a link of a name that Holdfast is going to use,
//! before or while it runs. Everything here therefore works on open descriptors: a component of a path is opened
//! relative to the directory above it (`openat` with `O_NOFOLLOW`), and what was opened is checked (`fstat`) before it
//! is used. A name that is exchanged after the check has no effect, because nothing is looked up twice.
//!
//! # The rules
//!
//! **Trusted base** ([`Base::trusted`]): each component of the path, links included, belongs to root or to this user,
//! and no other user may write to it, except to directories with the sticky bit, such as `/tmp`. Links that obey this
//! are followed. Below a directory of this user that no other user may enter (mode 0700), the modes are not checked,
//! but owners are. Thus no other user can exchange a component, and the path may be passed on to other processes.
//!
//! **Shared base** ([`Base::shared`]): a directory that other users may own or write to, for example a prefix directory
//! of a project. It is opened as it is. They can rename and remove what is in it, so that each use of something below
//! it starts at the base again or at a descriptor that was checked; a path is not passed on without that.
//!
//! **Directory of ours** ([`OwnedDirectory`]): reached from a base component by component. Each component below the
//! base is a directory, not a link, belongs to this user, and has a mode that [`Access`] permits.
//!
//! A directory of another user is read only where that user permitted it to a group of ours and to no other user
//! ([`Base::open_of_group_member`]); what is in it is shown, never obeyed.
//!
//! **Files in it**: regular files of this user, not links, with a mode that [`Access`] permits.
//!
//! **Removal** ([`Base::remove_tree`]): only trees with a [`Marker`] file in them, which names the kind of directory
//! and the job; it is written when the directory is made, and removed last. Links are removed, never followed, and
//! other file systems are not entered.
//!
//! A violation is an [`OwnedError::Refused`]: the path, what was found there, and the remedy.

mod directory;
mod error;
mod file;
mod marker;
mod remove;
mod walk;

pub use directory::{Base, OwnedDirectory};
pub use error::{Found, OwnedError};
pub use marker::{MARKER_FILE, Marker};

/// What the mode of a file or directory of ours may permit to other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: files 0600, directories 0700.
    Private,
    /// The group may read it, and other users may not: files 0640, directories 0750.
    GroupRead,
    /// Others may read it and may not write to it.
    Readable,
}

impl Access {
    /// The bits of a mode that must not be set.
    fn forbidden(self) -> u32 {
        match self {
            Access::Private => 0o077,
            Access::GroupRead => 0o027,
            Access::Readable => 0o022,
        }
    }

    /// The mode of new directories, less the umask.
    pub fn directory_mode(self) -> u32 {
        0o777 & !self.forbidden()
    }

    /// The mode of new files, less the umask.
    pub fn file_mode(self) -> u32 {
        0o666 & !self.forbidden()
    }
}
