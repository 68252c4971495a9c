//! What can go wrong on the way to a host, each with what the user can do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// This build has no ssh.
    #[error("this build of Holdfast has no ssh; use one that was built with the feature `ssh`, which is on by default")]
    NotBuilt,
    /// The name leads nowhere.
    #[error("the name {host} cannot be resolved ({source}); check its spelling, DNS and /etc/hosts")]
    Name { host: String, source: io::Error },
    #[error("{host} refuses connections on port {port}; does its ssh server run, and on this port?")]
    Refused { host: String, port: u16 },
    #[error(
        "{host} did not answer on port {port} within {} s ({doing}); is it up, and does a firewall let us through? (`allocation.ssh.connect_timeout`)",
        within.as_secs_f64()
    )]
    Timeout {
        host: String,
        port: u16,
        doing: &'static str,
        /// How long it was waited.
        within: Duration,
    },
    /// The network said no.
    #[error("{host} cannot be reached on port {port}: {source}; check the network between here and there")]
    Network { host: String, port: u16, source: io::Error },
    /// What answers is no ssh server that we can talk to.
    #[error("{host} port {port}: {problem}; is it an ssh server, and does it accept new connections? (`MaxStartups`)")]
    Handshake {
        host: String,
        port: u16,
        /// What libssh2 said.
        problem: String,
    },
    /// The files of trusted keys.
    #[error("the file of known host keys cannot be read: {0}; check `allocation.ssh.known_hosts`")]
    KnownHosts(io::Error),
    /// The key stands in none of them.
    #[error(
        "the host key of {host} is not known{}: {key}; sign in once by hand (`ssh {}{host}`), or add it with `ssh-keyscan {}{host} >>{}` after you have compared it",
        known_by.as_ref().map(|kinds| format!(" (only {kinds})")).unwrap_or_default(), options("-p", *port), options("-p", *port), file.display()
    )]
    UnknownKey {
        host: String,
        port: u16,
        /// `SHA256:…`, as `ssh-keygen -l` shows it, and the kind of key.
        key: String,
        /// The kinds of key that are known of the host, if any.
        known_by: Option<String>,
        /// Where it would have to stand.
        file: PathBuf,
    },
    /// Another key stands there.
    #[error(
        "THE HOST KEY OF {host} HAS CHANGED: it is now {key}, and {}:{line} has another. Somebody may be listening in; if the host was installed anew, remove that line (`ssh-keygen -f {} -R '{name}'`) and sign in once by hand",
        file.display(), file.display()
    )]
    ChangedKey {
        host: String,
        /// The name under which its key is noted.
        name: String,
        /// The key it shows, and its kind.
        key: String,
        /// Where the other stands.
        file: PathBuf,
        line: usize,
    },
    /// The key is marked as stolen or retired.
    #[error("the host key of {host} is revoked by {}:{line}; ask the administrator of the host", file.display())]
    RevokedKey {
        host: String,
        /// Where that stands.
        file: PathBuf,
        line: usize,
    },
    /// Nobody is let in.
    #[error(
        "{host} does not let {user} in; it accepts {methods}; tried: {}; put the public key into ~/.ssh/authorized_keys there (`ssh-copy-id {user}@{host}`), load a key that has a passphrase into ssh-agent (`ssh-add`), or name another with `allocation.ssh.identity`",
        tried_or_nothing(tried)
    )]
    Denied {
        host: String,
        /// Who wanted in.
        user: String,
        /// What the server accepts.
        methods: String,
        /// What was tried, and what came of it.
        tried: Vec<String>,
    },
    /// A command on the host.
    #[error("{host}: cannot {doing}: {problem}")]
    Session {
        host: String,
        doing: &'static str,
        /// What libssh2 said.
        problem: String,
    },
    /// The program is not there.
    #[error(
        "{host} has no program {program} that can be run ({shell_message}); install Holdfast there at this path, or say where it is with `allocation.ssh.program`"
    )]
    NoProgram { host: String, program: String, shell_message: String },
    #[error("{host} has Holdfast {found} at {program}, and this is {ours}; install one version on all nodes")]
    Version { host: String, program: String, found: String, ours: String },
    /// It answers something else than it should.
    #[error("{host}: {program} {problem}")]
    UnexpectedAnswer { host: String, program: String, problem: String },
    /// A directory, or the program, that has to be the same everywhere.
    #[error(
        "{host} does not see {} as this machine does ({problem}); it must be the same on all hosts: a shared file system",
        path.display()
    )]
    NotShared {
        host: String,
        /// The directory or program.
        path: PathBuf,
        /// What it sees instead.
        problem: String,
    },
    /// Other hosts could not talk to it.
    #[error(
        "the name {host} leads to {address}, which only this machine can reach; list the host by a name or address that all hosts can use"
    )]
    Loopback {
        host: String,
        /// Where the name leads.
        address: std::net::IpAddr,
    },
}

fn options(option: &str, port: u16) -> String {
    if port == 22 { String::new() } else { format!("{option} {port} ") }
}

fn tried_or_nothing(tried: &[String]) -> String {
    if tried.is_empty() { "nothing: there is no key in ssh-agent, nor in ~/.ssh".to_owned() } else { tried.join("; ") }
}
