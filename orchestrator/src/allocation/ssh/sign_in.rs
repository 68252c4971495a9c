//! Authentication: the keys of ssh-agent, then key files. Passwords and passphrases are not supported, because nodes
//! are replaced without a user being present.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ssh2::Session;

use super::error::SshError;
use super::known_hosts::kind_of;
use super::target::Target;

/// The files in `~/.ssh` that are tried in this order.
const USUAL: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];
/// By default, servers disconnect after six attempts.
const ATTEMPTS: usize = 5;
/// Maximum size of a key file.
const LARGEST_KEY: u64 = 64 << 10;
/// The beginning of OpenSSH's key format.
const OPENSSH_MAGIC: &[u8] = b"openssh-key-v1\0";

/// Authenticates on a host whose key has been checked.
pub(super) fn sign_in(session: &Session, target: &Target) -> Result<(), SshError> {
    let user = target.user.as_str();
    let methods = match session.auth_methods(user) {
        Ok(methods) => methods.to_owned(),
        // The host accepts connections without authentication.
        Err(_) if session.authenticated() => return Ok(()),
        Err(error) => return Err(target.session("authenticate", &error)),
    };
    if session.authenticated() {
        return Ok(());
    }
    let mut tried = Vec::new();
    if methods.split(',').any(|method| method == "publickey")
        && (with_agent(session, target, &mut tried) || with_files(session, target, &mut tried))
    {
        return Ok(());
    }
    Err(SshError::Denied { host: target.host.name.clone(), user: user.to_owned(), methods, tried })
}

/// Tries the keys of ssh-agent; if the spec names a key, only that one.
fn with_agent(session: &Session, target: &Target, tried: &mut Vec<String>) -> bool {
    let named = target.access.identity.as_deref().map(public_half);
    if std::env::var_os("SSH_AUTH_SOCK").is_none() || matches!(named, Some(None)) {
        return false;
    }
    let Ok(mut agent) = session.agent() else { return false };
    let listed = agent.connect().and_then(|()| agent.list_identities()).and_then(|()| agent.identities());
    let keys = match listed {
        Ok(keys) => keys,
        Err(error) => {
            tried.push(format!("ssh-agent: {}", error.message()));
            return false;
        }
    };
    let is_named = |blob: &[u8]| named.as_ref().is_none_or(|named| named.as_deref() == Some(blob));
    for key in keys.iter().filter(|key| is_named(key.blob())).take(ATTEMPTS) {
        match agent.userauth(&target.user, key) {
            Ok(()) => return true,
            Err(error) => {
                tried.push(format!("{} ({}) from ssh-agent: {}", key.comment(), kind_of(key.blob()), error.message()));
            }
        }
    }
    false
}

fn with_files(session: &Session, target: &Target, tried: &mut Vec<String>) -> bool {
    let files: Vec<PathBuf> = match &target.access.identity {
        Some(file) => vec![file.clone()],
        None => {
            let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
            USUAL.iter().map(|name| home.join(".ssh").join(name)).filter(|file| file.exists()).collect()
        }
    };
    for file in files {
        if tried.len() >= ATTEMPTS {
            tried.push(format!("{}: not tried after {ATTEMPTS} other keys", file.display()));
            break;
        }
        let outcome = match is_protected(&file) {
            Err(error) => error.to_string(),
            Ok(true) => "has a passphrase; load it into ssh-agent".to_owned(),
            Ok(false) => match session.userauth_pubkey_file(&target.user, None, &file, None) {
                Ok(()) => return true,
                Err(error) => error.message().to_owned(),
            },
        };
        tried.push(format!("{}: {outcome}", file.display()));
    }
    false
}

/// The public key that belongs to a key file (`.pub`).
fn public_half(file: &Path) -> Option<Vec<u8>> {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    let text = read(Path::new(&name)).ok()?;
    STANDARD.decode(text.split_whitespace().nth(1)?).ok()
}

fn is_protected(file: &Path) -> io::Result<bool> {
    Ok(needs_passphrase(&read(file)?))
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(LARGEST_KEY).read_to_string(&mut text)?;
    Ok(text)
}

/// True if a private key needs a passphrase, according to its header or, in OpenSSH's format, the name of its cipher.
fn needs_passphrase(text: &str) -> bool {
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return true;
    }
    let body: String = text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let Ok(bytes) = STANDARD.decode(body) else { return false };
    let Some(rest) = bytes.strip_prefix(OPENSSH_MAGIC) else { return false };
    kind_of(rest) != "none"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openssh(cipher: &str) -> String {
        let mut bytes = OPENSSH_MAGIC.to_vec();
        bytes.extend_from_slice(&(cipher.len() as u32).to_be_bytes());
        bytes.extend_from_slice(cipher.as_bytes());
        bytes.extend_from_slice(&[0; 200]);
        let body = STANDARD.encode(bytes);
        let lines: Vec<&str> = body.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n", lines.join("\n"))
    }

    #[test]
    fn a_key_with_a_passphrase_is_recognised() {
        assert!(needs_passphrase(&openssh("aes256-ctr")));
        assert!(!needs_passphrase(&openssh("none")));
        assert!(needs_passphrase("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII=\n"));
        assert!(needs_passphrase("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"));
        assert!(!needs_passphrase("-----BEGIN RSA PRIVATE KEY-----\nMII=\n"));
        assert!(!needs_passphrase(""));
    }

    #[test]
    fn the_public_key_is_read_from_the_file_beside_the_key() {
        let base = tempfile::tempdir().unwrap();
        let key = base.path().join("id");
        assert_eq!(public_half(&key), None);
        std::fs::write(base.path().join("id.pub"), "ssh-ed25519 AAAA me@here\n").unwrap();
        assert_eq!(public_half(&key), Some(vec![0, 0, 0]));
    }
}
