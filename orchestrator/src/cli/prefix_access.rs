//! Other users who may write to a prefix directory: what is said about it, and what root does there.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::failure::Failure;
use super::output::{Style, printable};
use crate::exit;

/// The permission bits of directories that concern other users.
const WRITE_OF_GROUP: u32 = 0o020;
const WRITE_OF_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Whose an existing prefix directory is, and who may write to it.
struct PrefixAccess {
    owner: u32,
    group: u32,
    mode: u32,
}

impl PrefixAccess {
    /// `None` if it does not exist, or cannot be examined: whoever uses it reports that.
    fn of(prefix: &Path) -> Option<PrefixAccess> {
        let found = fs::metadata(prefix).ok()?;
        Some(PrefixAccess { owner: found.uid(), group: found.gid(), mode: found.mode() & 0o7777 })
    }

    /// Others than root and the user who may create, rename and remove names in it.
    fn writers(&self, user: u32) -> Option<String> {
        if self.mode & WRITE_OF_ALL != 0 {
            Some("all users".to_owned())
        } else if self.mode & WRITE_OF_GROUP != 0 && !self.has_private_group() {
            Some(format!("members of the group {}", group_name(self.group)))
        } else if self.owner != user && self.owner != 0 {
            Some(format!("its owner, {}", user_name(self.owner)))
        } else {
            None
        }
    }

    /// The group of its owner alone, as many systems make one for each user: it has the user's name.
    fn has_private_group(&self) -> bool {
        let owner = uzers::get_user_by_uid(self.owner);
        let group = uzers::get_group_by_gid(self.group);
        owner
            .zip(group)
            .is_some_and(|(owner, group)| owner.primary_group_id() == self.group && owner.name() == group.name())
    }
}

fn user_name(id: u32) -> String {
    uzers::get_user_by_uid(id).map_or_else(|| id.to_string(), |user| printable(&user.name().to_string_lossy()))
}

fn group_name(id: u32) -> String {
    uzers::get_group_by_gid(id).map_or_else(|| id.to_string(), |group| printable(&group.name().to_string_lossy()))
}

/// Warns if others may rename or remove what the job writes to its prefix directory.
pub(super) fn warn(prefix: &Path, output: Style) {
    let Some(access) = PrefixAccess::of(prefix) else { return };
    let writers = access.writers(geteuid().as_raw()).filter(|_| access.mode & STICKY == 0);
    if let Some(writers) = writers {
        output.warn(&format!(
            "{writers} may rename, replace and remove the checkpoints in {} (mode {:o}); to prevent that, set its \
             sticky bit (`chmod +t`), or use a directory of your own",
            prefix.display(),
            access.mode
        ));
    }
}

/// Root changes no datasets where other users may write: what they put there would decide what root writes.
///
/// # Errors
/// The refusal, with what to do.
pub(super) fn refuse_root(prefix: &Path, remedy: &str) -> Result<(), Failure> {
    let access = PrefixAccess::of(prefix).filter(|_| geteuid().is_root());
    match access.as_ref().and_then(|access| access.writers(0)) {
        None => Ok(()),
        Some(writers) => {
            let refused = format!("{writers} may write to the prefix directory: root changes nothing in it");
            Err(Failure::new(exit::CONFIGURATION, refused).at(prefix.display()).remedy(remedy))
        }
    }
}

/// What a user can do about the refusal of a command that has the option.
pub(super) const AS_OWNER: &str = "give --as-owner to act as its owner, or withdraw the permission with `chmod go-w`";

/// The option of the commands that change datasets.
const OPTION: &str = "--as-owner";

/// Root becomes the owner of a prefix directory, with this user's groups: before anything in it is opened, the program
/// is executed again without the option. Returns only if that failed.
///
/// # Errors
/// If this process is not root's, if the directory is, or if the system refuses.
pub(super) fn become_owner(prefix: &Path) -> Result<Infallible, Failure> {
    let usage = |problem: &str| Failure::new(exit::USAGE, format!("{OPTION}: {problem}")).at(prefix.display());
    let Some(access) = PrefixAccess::of(prefix) else {
        return Err(usage("the prefix directory cannot be examined").remedy("check the path"));
    };
    if !geteuid().is_root() {
        return Err(usage("only root can act as another user").remedy("leave it out"));
    }
    if access.owner == 0 {
        return Err(usage("the prefix directory belongs to root").remedy("leave it out"));
    }
    let user = uzers::get_user_by_uid(access.owner);
    let group = user.as_ref().map_or(access.group, uzers::User::primary_group_id);
    let of_user = user.and_then(|user| uzers::get_user_groups(user.name(), group));
    let groups: Vec<Gid> = of_user.into_iter().flatten().map(|group| Gid::from_raw(group.gid())).collect();
    let Err(error) = execute_as(&groups, Gid::from_raw(group), Uid::from_raw(access.owner));
    Err(usage("the system refuses").because(error))
}

/// The calls change this thread alone; the program that it executes has its user and groups.
fn execute_as(groups: &[Gid], group: Gid, user: Uid) -> io::Result<Infallible> {
    set_thread_groups(groups)?;
    set_thread_gid(group)?;
    set_thread_uid(user)?;
    let arguments = env::args_os().skip(1).filter(|argument| argument != OPTION);
    Err(Command::new("/proc/self/exe").args(arguments).exec())
}
