//! Errors of connections to hosts, each with a remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinError;

use crate::allocation::error::AllocationError;

/// A host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error("this build of Holdfast does not support ssh; use one with the feature `ssh`, which is enabled by default")]
    NotBuilt,
    #[error("the name {host} cannot be resolved ({source}); check its spelling, DNS and /etc/hosts")]
    Name { host: String, source: io::Error },
    #[error("{host} refuses connections on port {port}; check that its ssh server runs, and on this port")]
    Refused { host: String, port: u16 },
    #[error(
        "{host} did not answer on port {port} within {} s ({doing}); check that it is up and that no firewall blocks \
        the connection, or raise `allocation.ssh.connect_timeout`",
        within.as_secs_f64()
    )]
    Timeout { host: String, port: u16, doing: &'static str, within: Duration },
    #[error("{host} cannot be reached on port {port}: {source}; check the network to the host")]
    Network { host: String, port: u16, source: io::Error },
    /// The peer is not a usable ssh server.
    #[error(
        "{host} port {port}: {problem}; check that it is an ssh server and that it accepts new connections \
        (`MaxStartups`)"
    )]
    Handshake {
        host: String,
        port: u16,
        /// What libssh2 said.
        problem: String,
    },
    #[error("the file of known host keys cannot be read: {0}; check `allocation.ssh.known_hosts`")]
    KnownHosts(io::Error),
    #[error(
        "the host key of {host} is not known{}: {key}; connect once by hand (`ssh {}{host}`), or verify the key and \
        add it with `ssh-keyscan {}{host} >>{}`",
        known_by.as_ref().map(|kinds| format!(" (only {kinds})")).unwrap_or_default(),
        options("-p", *port),
        options("-p", *port),
        file.display()
    )]
    UnknownKey {
        host: String,
        port: u16,
        /// `SHA256:…`, as `ssh-keygen -l` shows it, and the kind of key.
        key: String,
        /// The kinds of the known keys of the host, if any.
        known_by: Option<String>,
        /// The file in which it would be expected.
        file: PathBuf,
    },
    #[error(
        "THE HOST KEY OF {host} HAS CHANGED: it is now {key}, and {}:{line} has another. This may be an attack. If the \
        host was reinstalled, remove that line (`ssh-keygen -f {} -R '{name}'`) and connect once by hand",
        file.display(), file.display()
    )]
    ChangedKey {
        host: String,
        /// The name in the file.
        name: String,
        /// The presented key and its kind.
        key: String,
        file: PathBuf,
        line: usize,
    },
    /// The key is marked as revoked.
    #[error("the host key of {host} is revoked by {}:{line}; ask the administrator of the host", file.display())]
    RevokedKey { host: String, file: PathBuf, line: usize },
    #[error(
        "{host} denied access to {user}; it accepts {methods}; tried: {}; add the public key to ~/.ssh/authorized_keys \
        on the host (`ssh-copy-id {user}@{host}`), load a key with a passphrase into ssh-agent (`ssh-add`), or set \
        another key with `allocation.ssh.identity`",
        tried_or_nothing(tried)
    )]
    Denied {
        host: String,
        user: String,
        /// The authentication methods of the server.
        methods: String,
        /// Each key that was tried, with the result.
        tried: Vec<String>,
    },
    #[error("{host}: cannot {doing}: {problem}")]
    Session {
        host: String,
        doing: &'static str,
        /// What libssh2 said.
        problem: String,
    },
    #[error(
        "{host} has no program {program} that can be run ({shell_message}); install Holdfast on the host at this path, \
        or set its path with `allocation.ssh.program`"
    )]
    NoProgram { host: String, program: String, shell_message: String },
    #[error("{host} has Holdfast {found} at {program}, and this is {ours}; install one version on all nodes")]
    Version { host: String, program: String, found: String, ours: String },
    #[error("{host}: {program} {problem}")]
    UnexpectedAnswer { host: String, program: String, problem: String },
    /// A directory or program that has to be the same on all hosts.
    #[error(
        "{} on {host} differs from this machine ({problem}); it must be the same on all hosts: use a shared file \
        system",
        path.display()
    )]
    NotShared {
        host: String,
        /// The directory or program.
        path: PathBuf,
        problem: String,
    },
    /// Other hosts could not connect to it.
    #[error(
        "the name {host} resolves to {address}, which only this machine can reach; list the host by a name or address \
        that all hosts can reach"
    )]
    Loopback { host: String, address: std::net::IpAddr },
}

/// The hosts of a job cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// Too few hosts of the list can be used.
    #[error(
        "{have} of {of} hosts can be used, and {needed} must be; nothing was started:{}",
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    TooFew {
        /// Usable hosts.
        have: usize,
        /// Hosts in the list.
        of: usize,
        /// Usable hosts that a run, or a drain, needs.
        needed: u32,
        /// The problems of the other hosts, without duplicates.
        problems: Vec<String>,
    },
    /// The thread that surveys the hosts panicked.
    #[error("the survey of the hosts failed: {0}; this is a defect of Holdfast")]
    Survey(JoinError),
}

impl From<HostsError> for AllocationError {
    fn from(error: HostsError) -> Self {
        AllocationError::Unavailable(error.into())
    }
}

fn options(option: &str, port: u16) -> String {
    if port == 22 { String::new() } else { format!("{option} {port} ") }
}

fn tried_or_nothing(tried: &[String]) -> String {
    if tried.is_empty() { "no key: there is none in ssh-agent or in ~/.ssh".to_owned() } else { tried.join("; ") }
}
