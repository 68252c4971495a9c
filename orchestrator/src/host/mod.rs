//! This machine: its name, its user, its processes and programs. The lowest layer of the orchestrator.
//!
//! | file | subject |
//! |---|---|
//! | [`descriptors`] | the limit of open file descriptors |
//! | [`external_command`] | running commands of the system or the site with a time limit |
//! | [`program`] | finding the program of a command |
//! | [`libraries`] | the shared libraries of a program |
//! | [`process`] | inspecting and killing processes, safe against reused process ids |
//! | [`shell`] | words for a shell |
//! | [`log`] | the end of a log file, which explains a failure |

pub mod descriptors;
pub mod external_command;
pub mod libraries;
pub mod log;
pub mod process;
pub mod program;
pub mod shell;

use std::env;

/// The name of this machine; empty if it has none.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's identifier of this boot; containers on one machine share it.
pub fn boot_id() -> String {
    procfs::sys::kernel::random::boot_id().unwrap_or_default().trim().to_owned()
}

/// The user name: from the environment, the user database, or else the user id.
pub fn user_name() -> String {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| env::var(name).ok().filter(|user| !user.is_empty()));
    let in_database = || uzers::get_current_username().and_then(|name| name.into_string().ok());
    named.or_else(in_database).unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()))
}
