//! A connection to a host: connecting, host key check, authentication, and commands. All calls block, and have a time
//! limit, except for the run time of a command.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::net::sockopt;
use ssh2::{Channel, HashType, MethodType, Session};

use super::error::SshError;
use super::known_hosts::{self, HostKeyCheck, KnownHosts, lookup_name};
use super::sign_in;
use super::target::Target;
use crate::host::shell::quoted;

/// The system's file of trusted keys.
const SYSTEM_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
/// A lost host is detected within one to two times this.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// libssh2's error number for an expired time limit.
const TIMEOUT: ssh2::ErrorCode = ssh2::ErrorCode::Session(-9);
/// Size of the read buffer.
const PIECE_BYTES: usize = 32 << 10;
/// Maximum size of the standard error of a command that is kept.
const KEPT_ERRORS: u64 = 4 << 10;
/// Supported kinds of host keys, best first, with their signature algorithms.
const KINDS: [(&str, &[&str]); 5] = [
    ("ssh-ed25519", &["ssh-ed25519"]),
    ("ecdsa-sha2-nistp256", &["ecdsa-sha2-nistp256"]),
    ("ecdsa-sha2-nistp384", &["ecdsa-sha2-nistp384"]),
    ("ecdsa-sha2-nistp521", &["ecdsa-sha2-nistp521"]),
    ("ssh-rsa", &["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]),
];

/// An authenticated connection.
pub struct Connection {
    session: Session,
    target: Target,
    /// Where the host is.
    pub address: IpAddr,
}

/// A running command on the host.
pub struct Command {
    channel: Channel,
    output: BufReader<ssh2::Stream>,
    target: Target,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// The beginning of its standard error.
    pub errors: String,
}

impl Connection {
    /// Connects, checks the host key, and authenticates.
    ///
    /// # Errors
    /// [`SshError`], each with what the user can do.
    pub fn open(target: &Target) -> Result<Self, SshError> {
        let known = known_hosts(target)?;
        let (stream, address) = connect(target)?;
        let session_failed = |error: ssh2::Error| target.session("begin an ssh session", &error);
        let mut session = Session::new().map_err(session_failed)?;
        session.set_timeout(milliseconds(target.access.connect_timeout));
        let kinds = preferred(&known.kinds(&target.host.name, target.host.port));
        let supported = session.supported_algs(MethodType::HostKey).unwrap_or_default();
        let usable: Vec<&str> = kinds.into_iter().filter(|kind| supported.contains(kind)).collect();
        if !usable.is_empty() {
            session.method_pref(MethodType::HostKey, &usable.join(",")).map_err(session_failed)?;
        }
        session.set_tcp_stream(stream);
        session.handshake().map_err(|error| match error.code() {
            TIMEOUT => target.timeout("exchanging keys"),
            _ => SshError::Handshake {
                host: target.host.name.clone(),
                port: target.host.port,
                problem: error.message().to_owned(),
            },
        })?;
        check_host_key(&session, target, &known)?;
        sign_in::sign_in(&session, target)?;
        Ok(Connection { session, target: target.clone(), address })
    }

    /// Starts `holdfast` on the host with these arguments and writes `input` to its standard input. That stays open;
    /// its end means that the connection was lost.
    ///
    /// # Errors
    /// [`SshError::Session`], [`SshError::Timeout`].
    pub fn start(&self, arguments: &[&str], input: &[u8]) -> Result<Command, SshError> {
        let target = &self.target;
        let failed = |doing| {
            move |error: ssh2::Error| match error.code() {
                TIMEOUT => target.timeout(doing),
                _ => target.session(doing, &error),
            }
        };
        let words: Vec<String> =
            [target.program.as_str()].iter().chain(arguments).map(|argument| quoted(argument)).collect();
        let mut channel = self.session.channel_session().map_err(failed("open a channel"))?;
        channel.exec(&words.join(" ")).map_err(failed("start a command"))?;
        let mut command = Command {
            output: BufReader::with_capacity(PIECE_BYTES, channel.stream(0)),
            channel,
            target: target.clone(),
        };
        command.channel.write_all(input).and_then(|()| command.channel.flush()).map_err(|error| {
            // A missing program ends before it reads its input.
            match command.end() {
                Ok(ended) => command.error_for(&ended, "ended before it read its input"),
                Err(_) => target.io("write the input of a command", &error),
            }
        })?;
        Ok(command)
    }

    /// Sets the time limit for further output of commands; `None` = no limit.
    pub fn set_timeout(&self, within: Option<Duration>) {
        self.session.set_timeout(within.map_or(0, milliseconds));
    }
}

impl Command {
    /// The next line of the output without its line end; `None` at the end.
    ///
    /// # Errors
    /// The connection was lost, or there was no output within the time limit.
    pub fn line(&mut self, longest: u64) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if (&mut self.output).take(longest).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        line.pop_if(|last| *last == b'\n');
        Ok(Some(line))
    }

    /// Exactly `count` further bytes of the output.
    ///
    /// # Errors
    /// The output has ended, or the connection was lost.
    pub fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.output.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Waits for the end of the command.
    ///
    /// # Errors
    /// The connection was lost, or the command does not end in time.
    pub fn end(&mut self) -> io::Result<CommandEnd> {
        let mut errors = Vec::new();
        self.channel.stderr().take(KEPT_ERRORS).read_to_end(&mut errors)?;
        let broken = |error: ssh2::Error| io::Error::other(error.to_string());
        let _ = self.channel.send_eof();
        self.channel.wait_eof().map_err(broken)?;
        self.channel.close().map_err(broken)?;
        self.channel.wait_close().map_err(broken)?;
        let signal = self.channel.exit_signal().ok().and_then(|signal| signal.exit_signal);
        let code = self.channel.exit_status().ok().filter(|_| signal.is_none());
        Ok(CommandEnd { code, errors: String::from_utf8_lossy(&errors).trim().to_owned() })
    }

    /// The error for a command that ended without the expected output.
    pub fn error_for(&self, ended: &CommandEnd, problem: &str) -> SshError {
        let (host, program) = (self.target.host.name.clone(), self.target.program.clone());
        let last = ended.errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned();
        match ended.code {
            // The codes of shells for a program that does not exist or cannot be executed.
            Some(126 | 127) => SshError::NoProgram { host, program, shell_message: last },
            _ if last.is_empty() => SshError::UnexpectedAnswer { host, program, problem: problem.to_owned() },
            _ => SshError::UnexpectedAnswer { host, program, problem: format!("{problem}: {last}") },
        }
    }
}

impl Target {
    fn timeout(&self, doing: &'static str) -> SshError {
        let within = self.access.connect_timeout;
        SshError::Timeout { host: self.host.name.clone(), port: self.host.port, doing, within }
    }

    pub(super) fn session(&self, doing: &'static str, error: &ssh2::Error) -> SshError {
        SshError::Session { host: self.host.name.clone(), doing, problem: error.message().to_owned() }
    }

    pub(super) fn io(&self, doing: &'static str, error: &io::Error) -> SshError {
        if error.kind() == io::ErrorKind::TimedOut || error.kind() == io::ErrorKind::WouldBlock {
            return self.timeout(doing);
        }
        SshError::Session { host: self.host.name.clone(), doing, problem: error.to_string() }
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Tries all addresses, one after the other, within the time limit of a connection.
fn connect(target: &Target) -> Result<(TcpStream, IpAddr), SshError> {
    let (host, port) = (target.host.name.clone(), target.host.port);
    let resolved = (host.as_str(), port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|source| SshError::Name { host: host.clone(), source })?.collect();
    let deadline = Instant::now() + target.access.connect_timeout;
    let mut last = None;
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                // Messages are small, and a lost host must be detected.
                let _ = stream.set_nodelay(true);
                let _ = sockopt::set_socket_keepalive(&stream, true);
                let _ = sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE);
                let _ = sockopt::set_tcp_keepintvl(&stream, KEEP_ALIVE / 3);
                let _ = sockopt::set_tcp_keepcnt(&stream, 3);
                return Ok((stream, address.ip()));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => SshError::Refused { host, port },
        Some(error) if error.kind() != io::ErrorKind::TimedOut => SshError::Network { host, port, source: error },
        _ => target.timeout("connecting"),
    })
}

fn known_hosts(target: &Target) -> Result<KnownHosts, SshError> {
    let read = match &target.access.known_hosts {
        Some(file) => KnownHosts::named(file),
        None => {
            let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh/known_hosts"));
            let files: Vec<PathBuf> = own.into_iter().chain([PathBuf::from(SYSTEM_KNOWN_HOSTS)]).collect();
            KnownHosts::usual(&files)
        }
    };
    read.map_err(SshError::KnownHosts)
}

/// The signature algorithms to offer: first those of the known keys of the host. Otherwise a host of which only the RSA
/// key is known would present another, unknown key.
fn preferred(known: &[String]) -> Vec<&'static str> {
    let (mut first, mut then) = (Vec::new(), Vec::new());
    for (kind, signatures) in KINDS {
        if known.iter().any(|other| other == kind) { &mut first } else { &mut then }.extend_from_slice(signatures);
    }
    first.append(&mut then);
    first
}

fn check_host_key(session: &Session, target: &Target, known: &KnownHosts) -> Result<(), SshError> {
    let (host, port) = (target.host.name.clone(), target.host.port);
    let Some((key, _)) = session.host_key() else {
        let problem = "it presented no host key".to_owned();
        return Err(SshError::Handshake { host, port, problem });
    };
    let hash = session.host_key_hash(HashType::Sha256).unwrap_or_default();
    let shown = format!("SHA256:{} ({})", STANDARD_NO_PAD.encode(hash), known_hosts::kind_of(key));
    match known.check(&host, port, key) {
        HostKeyCheck::Known => Ok(()),
        HostKeyCheck::Unknown { others } => {
            let known_by = (!others.is_empty()).then(|| others.join(", "));
            let file = known.files.first().cloned().unwrap_or_default();
            Err(SshError::UnknownKey { host, port, key: shown, known_by, file })
        }
        HostKeyCheck::Changed(place) => {
            let name = lookup_name(&host, port);
            Err(SshError::ChangedKey { host, name, key: shown, file: place.file, line: place.line })
        }
        HostKeyCheck::Revoked(place) => Err(SshError::RevokedKey { host, file: place.file, line: place.line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds_of_keys_are_preferred() {
        assert_eq!(preferred(&[])[0], "ssh-ed25519");
        assert_eq!(preferred(&["ssh-rsa".to_owned()])[..3], ["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]);
        let both = preferred(&["ssh-rsa".to_owned(), "ecdsa-sha2-nistp256".to_owned()]);
        assert_eq!(both[..2], ["ecdsa-sha2-nistp256", "rsa-sha2-512"]);
        assert_eq!(
            both.len(),
            preferred(&[]).len(),
            "other kinds are still offered, to show the fingerprint of an unknown key"
        );
    }
}
