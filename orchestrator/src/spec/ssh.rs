//! `allocation.hosts` and `allocation.ssh`: machines that no resource manager lends, and how they are reached.
//!
//! What stands here is all that anybody who goes to a host needs to know: the agents' starter, and a launcher that has a
//! remote shell of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::hostlist;
use serde::{Deserialize, Serialize};

use super::reading::{DURATION, Reader, Section, TEXT};

/// Where sshd listens unless somebody says otherwise.
const PORT: u16 = 22;
/// A list of hosts of the largest machine is smaller.
const LARGEST_FILE: u64 = 16 << 20;
/// As many as [`super::run::Run`] can place.
const MAX_HOSTS: usize = 1 << 16;
/// A connection that takes longer to be made will not be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A signing-in costs both sides a few milliseconds of computing; many more at a time only wait for each other.
const AT_ONCE: u64 = 32;

/// A host, and who signs in on it where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshHost {
    /// Its name or address, as written: also the node's name.
    pub name: String,
    /// The user; `None` = the one who runs `holdfast`.
    pub user: Option<String>,
    /// The port of its ssh server.
    pub port: u16,
}

/// How all hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshAccess {
    /// The private key; `None` = those of ssh-agent, then the usual files in `~/.ssh`.
    pub identity: Option<PathBuf>,
    /// The file of known host keys; `None` = the user's and the system's.
    pub known_hosts: Option<PathBuf>,
    /// So long may a connection, and each step of signing in, take.
    pub connect_timeout: Duration,
    /// So many connections are made at a time.
    pub at_once: u32,
    /// The path of `holdfast` on the hosts; `None` = the same as here.
    pub program: Option<PathBuf>,
}

impl Default for SshAccess {
    fn default() -> Self {
        SshAccess {
            identity: None,
            known_hosts: None,
            connect_timeout: CONNECT_TIMEOUT,
            at_once: AT_ONCE as u32,
            program: None,
        }
    }
}

/// What was written about hosts.
#[derive(Default)]
pub(super) struct Written {
    /// The hosts, if `hosts` or `hosts_file` stands there.
    pub(super) hosts: Option<Vec<SshHost>>,
    pub(super) access: SshAccess,
}

impl Written {
    /// Reads the keys of `allocation:` that are about hosts.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let reader = section.reader();
        let (list_key, file_key) = (section.path_of("hosts"), section.path_of("hosts_file"));
        let list = section.words("hosts");
        let file = section.optional("hosts_file", &TEXT);
        if list.is_some() && file.is_some() {
            let message = "`hosts` and `hosts_file` exclude each other";
            reader.mistake(&file_key, message, "keep the list here, or the file, but one of them");
        }
        let mut ssh = section.section("ssh");
        let user = ssh.optional("user", &TEXT);
        if let Some(user) = user.as_deref().filter(|user| !is_user(user)) {
            let message = format!("`{}` cannot be a user's name", user.escape_debug());
            reader.mistake(&ssh.path_of("user"), message, "write the name that you sign in with on the hosts");
        }
        let port = ssh.number("port", 1..=65_535, PORT.into()) as u16;
        let defaults = SshAccess::default();
        let identity = ssh.optional("identity", &TEXT).map(|path| at_home(&path));
        let known_hosts = ssh.optional("known_hosts", &TEXT).map(|path| at_home(&path));
        let connect_timeout = ssh.value("connect_timeout", &DURATION, defaults.connect_timeout);
        if connect_timeout.is_zero() {
            let message = "no connection is made in no time";
            reader.mistake(&ssh.path_of("connect_timeout"), message, "write a duration such as `10s`");
        }
        let at_once = ssh.number("at_once", 1..=1024, AT_ONCE) as u32;
        let program = ssh.optional("program", &TEXT).map(PathBuf::from);
        if program.as_ref().is_some_and(|program| !program.is_absolute()) {
            let message = "a path on the hosts must be absolute: nobody stands anywhere there";
            reader.mistake(&ssh.path_of("program"), message, "write, for example, `/opt/holdfast/bin/holdfast`");
        }
        ssh.finish();
        let items = match (list, file) {
            (Some(list), _) => Some(
                list.iter().enumerate().map(|(at, text)| (format!("{list_key}[{at}]"), text.clone(), None)).collect(),
            ),
            (None, Some(file)) => Some(read_file(reader, &file_key, Path::new(&file))),
            (None, None) => None,
        };
        let key = if file_key_is_used(reader, &file_key) { file_key } else { list_key };
        let hosts = items.map(|items| take(reader, &key, items, user.as_deref(), port));
        let access = SshAccess { identity, known_hosts, connect_timeout, at_once, program };
        Written { hosts, access }
    }
}

fn file_key_is_used(reader: &Reader, key: &str) -> bool {
    reader.is_written(key)
}

/// One thing that was written: the key for messages, the text, and the line of the hosts file.
type Item = (String, String, Option<usize>);

/// The lines of a hosts file: one or more hosts each, `#` begins a comment.
fn read_file(reader: &Reader, key: &str, path: &Path) -> Vec<Item> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    if let Err(error) = read {
        let message = format!("the hosts file {} cannot be read: {error}", path.display());
        reader.mistake(key, message, "name a text file with one host a line; its path is seen from where you stand");
        return Vec::new();
    }
    if text.len() as u64 > LARGEST_FILE {
        let message = format!("the hosts file {} is larger than 16 MiB", path.display());
        reader.mistake(key, message, "is this the right file? One host a line, nothing else");
        return Vec::new();
    }
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default()));
    lines
        .flat_map(|(number, line)| line.split_whitespace().map(move |word| (number, word.to_owned())))
        .map(|(number, word)| (key.to_owned(), word, Some(number)))
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
            Err(message) => {
                reader.mistake(&key, format!("{message}{at}"), "write `n1`, `user@n1:2222`, `n[1-6]` or `[::1]:22`");
                continue;
            }
        };
        for host in found {
            if let Some(first) = seen.insert(host.name.clone(), line) {
                let first = first.map(|line| format!("; the first is on line {line}")).unwrap_or_default();
                let message = format!("the host `{}` stands here a second time{at}{first}", host.name);
                reader.mistake(&key, message, "remove one of them; `run.ranks_per_node` puts several ranks on a node");
            } else if hosts.len() < MAX_HOSTS {
                hosts.push(host);
            }
        }
    }
    if nothing {
        reader.mistake(key, "there is no host in it", "name at least one host, such as `hosts: [n1, n2]`");
    }
    hosts
}

/// `n1`, `user@n1`, `n1:2222`, `user@n[1-4]:2222`, `[::1]`, `[::1]:2222`.
fn parse(text: &str, user: Option<&str>, port: u16) -> Result<Vec<SshHost>, String> {
    let wrong = |what: &str| format!("`{}` {what}", text.escape_debug());
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, _)) if !is_user(user) => return Err(wrong("has no user in front of the `@`")),
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (user.map(str::to_owned), text),
    };
    let (names, port_text) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        // Brackets in front are those of an IPv6 address, not of a list.
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("is no host: between brackets in front stands an IPv6 address"));
            }
            match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return Err(wrong("is no host: behind the address stands `:port`, or nothing")),
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
        Some(_) => return Err(wrong("has no port behind the `:`: a number from 1 to 65535")),
    };
    let names: Vec<String> = if names.contains(':') {
        vec![names.to_owned()]
    } else {
        let names = hostlist::expand(names).map_err(|error| error.to_string())?;
        names.iter().map(ToString::to_string).collect()
    };
    if names.is_empty() {
        return Err(wrong("names no host"));
    }
    if let Some(name) = names.iter().find(|name| !is_host(name)) {
        return Err(format!("`{}` cannot be a host's name", name.escape_debug()));
    }
    Ok(names.into_iter().map(|name| SshHost { name, user: user.clone(), port }).collect())
}

/// No option of a command, no part of a path, nothing that a shell takes for more than a word.
fn is_host(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !name.is_empty() && name.len() <= 253 && !name.starts_with(['-', '.']) && name.chars().all(plain)
}

fn is_user(name: &str) -> bool {
    // A user of a directory service may have an `@` or a `\`.
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '@' | '\\' | '$');
    !name.is_empty() && name.len() <= 256 && !name.starts_with('-') && name.chars().all(plain)
}

/// The path for whoever stands elsewhere later. No shell replaces a `~` in a spec.
fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        // It fails where there is no working directory; then nothing else works either.
        _ => std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)),
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
    fn a_host_may_bring_its_own_user_and_port() {
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
    fn what_is_no_host_is_refused() {
        for text in ["", "@n1", "n1:", "n1:0", "n1:66000", "n1:ssh", "-oProxyCommand=x", "a b", "n[1", "../n1", "[n1]"]
        {
            assert!(parse(text, None, 22).is_err(), "{text:?}");
        }
        for text in ["-l@n1", "a b@n1", "$(x)@n1"] {
            assert!(parse(text, None, 22).is_err(), "{text:?}");
        }
    }
}
