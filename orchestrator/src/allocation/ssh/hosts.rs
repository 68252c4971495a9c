//! `allocation.hosts` and `allocation.ssh`: machines without a resource manager, and how they are reached.
//!
//! Used to start agents, and by launchers that have their own remote shell.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde::{Deserialize, Serialize};

use crate::spec::keys::{Section, keys, section, words};
use crate::spec::reading::Reader;
use crate::spec::value_kinds::{duration, path, text, whole};
use crate::spec::{self, ManagerSettings};

/// The default port of sshd.
const PORT: u16 = 22;
/// The host list of the largest machine is smaller.
const LARGEST_FILE: u64 = 16 << 20;
/// The limit of `run.nodes`.
const MAX_HOSTS: usize = 1 << 16;
/// The default of `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The default of `at_once`. A key exchange costs both sides a few milliseconds of processor time: more at a time would
/// only wait for each other.
const AT_ONCE: u32 = 32;

/// The keys of the ssh manager.
#[derive(Clone, Debug, Default)]
pub struct SshSettings {
    pub hosts: Vec<SshHost>,
    /// How they are reached.
    pub access: SshAccess,
}

keys! {
    SshSettings => SshSettings;
    /// {takers}: the machines, each once: `[n1, user@n2:2222, "n[3-6]"]`. Their names are the nodes' names.
    hosts = words(),
    /// Instead of `hosts`: a file with one host a line; `#` begins a comment. Relative to the directory of the
    /// spec file.
    hosts_file = text().optional(),
    /// {takers}: how hosts are reached; see docs/ssh.md. `~/.ssh/config` is not read.
    ssh = section::<SshAccess>(),
    |section| {
        SshSettings { hosts: listed(section, hosts, hosts_file, &ssh).unwrap_or_default(), access: ssh.access }
    }
}

impl SshSettings {
    /// Those of a spec; no hosts if the manager was not registered.
    pub(super) fn of(allocation: &spec::Allocation) -> Self {
        allocation.settings_of().cloned().unwrap_or_default()
    }
}

impl ManagerSettings for SshSettings {
    fn hosts(&self) -> Vec<NodeName> {
        self.hosts.iter().map(|host| NodeName::new(host.name.clone())).collect()
    }

    fn program(&self) -> Option<&Path> {
        self.access.program.as_deref()
    }
}

/// A host with user and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshHost {
    /// Name or address as written; also the node's name.
    pub name: String,
    /// `None` = the user of `holdfast`.
    pub user: Option<String>,
    pub port: u16,
}

/// How hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshAccess {
    /// The private key; `None` = those of ssh-agent, then the default files in `~/.ssh`.
    pub identity: Option<PathBuf>,
    /// The file of known host keys; `None` = the user's and the system's.
    pub known_hosts: Option<PathBuf>,
    /// Time limit of a connection, and of each step of the authentication.
    pub connect_timeout: Duration,
    /// The number of connections that are opened at a time.
    pub at_once: u32,
    /// The path of `holdfast` on the hosts; `None` = the same as here.
    pub program: Option<PathBuf>,
}

/// The section as written.
pub struct WrittenSsh {
    /// For hosts without a user.
    user: Option<String>,
    /// For hosts without a port.
    port: u16,
    access: SshAccess,
}

keys! {
    SshAccess => WrittenSsh;
    /// For hosts without a user. Default: your user name.
    user = text().optional(),
    /// For hosts without a port.
    port = whole(1..=65_535).or(PORT),
    /// A private key without passphrase. Relative to the directory of the spec file. Default: ssh-agent, then
    /// ~/.ssh/id_ed25519, id_ecdsa, id_rsa.
    identity = path().optional(),
    /// Relative to the directory of the spec file. Default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts.
    known_hosts = path().optional(),
    /// Time limit of a connection, and of each step of the authentication.
    connect_timeout = duration().or(CONNECT_TIMEOUT),
    /// Connections that are opened at a time.
    at_once = whole(1..=1024).or(AT_ONCE),
    /// Path of `holdfast` on the hosts. Default: the same as here.
    program = path().optional(),
    |section| {
        if let Some(user) = user.as_deref().filter(|user| !is_user(user)) {
            let message = format!("`{}` is not a valid user name", user.escape_debug());
            section.mistake("user", message, "write your user name on the hosts");
        }
        if connect_timeout.is_zero() {
            let message = "a timeout of 0 would let every connection fail";
            section.mistake("connect_timeout", message, "write a duration such as `10s`");
        }
        if program.as_ref().is_some_and(|program| !program.is_absolute()) {
            let message = "paths on remote hosts must be absolute: there is no working directory";
            section.mistake("program", message, "write, for example, `/opt/holdfast/bin/holdfast`");
        }
        let read_here = |key: &str, path: PathBuf| section.reader().absolute(&section.path_of(key), at_home(path));
        let identity = identity.map(|path| read_here("identity", path));
        let known_hosts = known_hosts.map(|path| read_here("known_hosts", path));
        WrittenSsh { user, port, access: SshAccess { identity, known_hosts, connect_timeout, at_once, program } }
    }
}

/// The hosts of `hosts` or `hosts_file`; `None` if neither is written.
fn listed(
    section: &Section<'_>,
    list: Option<Vec<String>>,
    file: Option<String>,
    ssh: &WrittenSsh,
) -> Option<Vec<SshHost>> {
    let reader = section.reader();
    let (list_key, file_key) = (section.path_of("hosts"), section.path_of("hosts_file"));
    if list.is_some() && file.is_some() {
        let message = "`hosts` and `hosts_file` exclude each other";
        reader.mistake(&file_key, message, "keep one of them");
    }
    let items: Vec<Item> = match (list, file) {
        (Some(list), _) => {
            list.iter().enumerate().map(|(at, text)| (format!("{list_key}[{at}]"), text.clone(), None)).collect()
        }
        (None, Some(file)) => read_file(reader, &file_key, &reader.absolute(&file_key, file.into())),
        (None, None) => return None,
    };
    let key = if reader.is_written(&file_key) { file_key } else { list_key };
    Some(take(reader, &key, items, ssh.user.as_deref(), ssh.port))
}

/// An item of either list: the key for messages, the text, and the line of the hosts file.
type Item = (String, String, Option<usize>);

/// The lines of a hosts file: one or more hosts each, `#` begins a comment.
fn read_file(reader: &Reader, key: &str, path: &Path) -> Vec<Item> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    if let Err(error) = read {
        let message = format!("the hosts file {} cannot be read: {error}", path.display());
        reader.mistake(
            key,
            message,
            "give a text file with one host a line; the path is relative to the directory of the spec",
        );
        return Vec::new();
    }
    if text.len() as u64 > LARGEST_FILE {
        let message = format!("the hosts file {} is larger than 16 MiB", path.display());
        reader.mistake(key, message, "check that this is the hosts file: one host a line");
        return Vec::new();
    }
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default()));
    lines
        .flat_map(|(number, line)| line.split_whitespace().map(move |text| (number, text.to_owned())))
        .map(|(number, text)| (key.to_owned(), text, Some(number)))
        .collect()
}

/// The hosts of all items, each once.
fn take(reader: &Reader, key: &str, items: Vec<Item>, user: Option<&str>, port: u16) -> Vec<SshHost> {
    let mut hosts: Vec<SshHost> = Vec::new();
    let mut seen: BTreeMap<String, Option<usize>> = BTreeMap::new();
    let nothing = items.is_empty();
    for (key, text, line) in items {
        let at = line.map(|line| format!(" (line {line} of the hosts file)")).unwrap_or_default();
        let found = match parse(&text, user, port) {
            Ok(found) => found,
            Err(error) => {
                reader.mistake(&key, format!("{error}{at}"), "write `n1`, `user@n1:2222`, `n[1-6]` or `[::1]:22`");
                continue;
            }
        };
        for host in found {
            if let Some(first) = seen.insert(host.name.clone(), line) {
                let first = first.map(|line| format!("; the first is on line {line}")).unwrap_or_default();
                let message = format!("the host `{}` is listed twice{at}{first}", host.name);
                reader.mistake(&key, message, "remove one of them; `run.ranks_per_node` puts several ranks on a node");
            } else if hosts.len() < MAX_HOSTS {
                hosts.push(host);
            }
        }
    }
    if nothing {
        reader.mistake(key, "the list of hosts is empty", "name at least one host, such as `hosts: [n1, n2]`");
    }
    hosts
}

/// A text that is not a host.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error("`{}` {what}", text.escape_debug())]
    Form { text: String, what: &'static str },
    #[error(transparent)]
    List(#[from] hostlist::HostlistError),
}

/// `n1`, `user@n1`, `n1:2222`, `user@n[1-4]:2222`, `[::1]`, `[::1]:2222`.
fn parse(text: &str, user: Option<&str>, port: u16) -> Result<Vec<SshHost>, HostError> {
    let wrong = |what: &'static str| HostError::Form { text: text.to_owned(), what };
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, _)) if !is_user(user) => return Err(wrong("has no valid user before the `@`")),
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (user.map(str::to_owned), text),
    };
    let (names, port_text) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        // Leading brackets belong to an IPv6 address, not to a list.
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("is not a host: leading brackets must contain an IPv6 address"));
            }
            match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return Err(wrong("is not a host: only `:port` may follow the address")),
            }
        }
        None if rest.parse::<std::net::Ipv6Addr>().is_ok() => (rest, None),
        None => match rest.rsplit_once(':') {
            Some((names, port)) => (names, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port_text.map(str::parse::<u16>) {
        None => port,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return Err(wrong("has no valid port after the `:`: a number from 1 to 65535")),
    };
    let names: Vec<String> = if names.contains(':') {
        vec![names.to_owned()]
    } else {
        let names = hostlist::expand(names)?;
        names.iter().map(ToString::to_string).collect()
    };
    if names.is_empty() {
        return Err(wrong("names no host"));
    }
    if let Some(name) = names.iter().find(|name| !is_host(name)) {
        return Err(HostError::Form { text: name.clone(), what: "is not a valid host name" });
    }
    Ok(names.into_iter().map(|name| SshHost { name, user: user.clone(), port }).collect())
}

/// True for names that are safe as an argument of a command, as a part of a path, and in a shell.
fn is_host(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !name.is_empty() && name.len() <= 253 && !name.starts_with(['-', '.']) && name.chars().all(plain)
}

fn is_user(name: &str) -> bool {
    // Users of directory services may contain an `@` or a `\`.
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '@' | '\\' | '$');
    !name.is_empty() && name.len() <= 256 && !name.starts_with('-') && name.chars().all(plain)
}

/// The path as an absolute one. A `~` is replaced here, because no shell reads a spec.
fn at_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        // Fails only without a working directory, which is reported elsewhere.
        _ => std::path::absolute(&path).unwrap_or(path),
    }
}

impl Default for SshAccess {
    fn default() -> Self {
        let (connect_timeout, at_once) = (CONNECT_TIMEOUT, AT_ONCE);
        SshAccess { identity: None, known_hosts: None, connect_timeout, at_once, program: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> SshHost {
        let mut hosts = parse(text, Some("anna"), 22).unwrap();
        assert_eq!(hosts.len(), 1, "{hosts:?}");
        hosts.remove(0)
    }

    fn host(name: &str, user: &str, port: u16) -> SshHost {
        SshHost { name: name.to_owned(), user: Some(user.to_owned()), port }
    }

    #[test]
    fn a_host_may_have_its_own_user_and_port() {
        assert_eq!(one("n1"), host("n1", "anna", 22));
        assert_eq!(one("ben@n1"), host("n1", "ben", 22));
        assert_eq!(one("ben@n1.cluster:2222"), host("n1.cluster", "ben", 2222));
        assert_eq!(one("10.0.0.7:23"), host("10.0.0.7", "anna", 23));
        assert_eq!(one("fe80::7"), host("fe80::7", "anna", 22));
        assert_eq!(one("ben@[fe80::7]:2222"), host("fe80::7", "ben", 2222));
    }

    #[test]
    fn a_list_of_hosts_shares_user_and_port() {
        let hosts = parse("ben@n[1-2,4]:2222", None, 22).unwrap();
        assert_eq!(hosts, ["n1", "n2", "n4"].map(|name| host(name, "ben", 2222)));
    }

    #[test]
    fn refuses_invalid_hosts() {
        for text in ["", "@n1", "n1:", "n1:0", "n1:66000", "n1:ssh", "-oProxyCommand=x", "a b", "n[1", "../n1", "[n1]"]
        {
            assert!(parse(text, None, 22).is_err(), "{text:?}");
        }
        for text in ["-l@n1", "a b@n1", "$(x)@n1"] {
            assert!(parse(text, None, 22).is_err(), "{text:?}");
        }
    }
}
