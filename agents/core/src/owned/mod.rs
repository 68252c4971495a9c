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
//! **Shared directory** ([`SharedDirectory`]): reached from a shared base component by component, for datasets and
//! outputs, which members of a project share. A link of this user on the way is followed, one of another user is not;
//! what is written to must belong to this user ([`SharedDirectory::check_owner`]).
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

mod access;
mod directory;
mod error;
mod file;
mod marker;
mod remove;
mod shared;
mod walk;

pub use access::Access;
pub use directory::{Base, OwnedDirectory};
pub use error::{Found, OwnedError, Result};
pub use marker::{MARKER_FILE, Marker};
pub use remove::remove_any;
pub use shared::{MissingDirectories, SharedDirectory};
