//! The host keys that a user trusts, in the format that OpenSSH's `sshd(8)` describes under SSH_KNOWN_HOSTS FILE
//! FORMAT.
//!
//! Not read with libssh2, because the kinds of the known keys determine the algorithms to offer, and because an error
//! has to name the line of a conflicting key. Lines with `@cert-authority` do not apply to plain keys and are skipped.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Maximum size of a file: that of a very large site is smaller.
const LARGEST: u64 = 32 << 20;
/// The port that is omitted in names.
const USUAL_PORT: u16 = 22;

/// Trusted keys, in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    entries: Vec<KnownKey>,
    /// The files that were read or looked for, for messages.
    pub files: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct KnownKey {
    names: Names,
    revoked: bool,
    key: Vec<u8>,
    file: PathBuf,
    line: usize,
}

#[derive(Clone, Debug)]
enum Names {
    /// Patterns; one with a `!` excludes.
    Plain(Vec<String>),
    /// HMAC-SHA1 of the name with the salt.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

/// The location of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLocation {
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
}

/// The result of the check of a host key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKeyCheck {
    Known,
    /// No key of this kind is known for the host.
    Unknown {
        /// The known kinds.
        others: Vec<String>,
    },
    /// Another key of this kind is known.
    Changed(KeyLocation),
    /// The key must not be used any more.
    Revoked(KeyLocation),
}

impl KnownHosts {
    /// Reads the file that the user named.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn named(path: &Path) -> io::Result<Self> {
        let mut known = KnownHosts::default();
        known.add(path)?;
        Ok(known)
    }

    /// Reads those of these files that exist.
    ///
    /// # Errors
    /// An existing file cannot be read.
    pub fn usual(paths: &[PathBuf]) -> io::Result<Self> {
        let mut known = KnownHosts::default();
        for path in paths {
            match known.add(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => known.files.push(path.clone()),
                other => other?,
            }
        }
        Ok(known)
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes)).map_err(named)?;
        self.files.push(path.to_owned());
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            // Invalid lines are skipped.
            let entry = std::str::from_utf8(line).ok().and_then(|line| parse(line, path, at + 1));
            self.entries.extend(entry);
        }
        Ok(())
    }

    /// The kinds of the known keys of a host, in the order of the files: `ssh-ed25519`, `ssh-rsa`, ….
    pub fn kinds(&self, host: &str, port: u16) -> Vec<String> {
        let mut kinds = Vec::new();
        for entry in self.of(host, port).filter(|entry| !entry.revoked) {
            let kind = kind_of(&entry.key);
            if !kind.is_empty() && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Checks a key of a host.
    pub fn check(&self, host: &str, port: u16, key: &[u8]) -> HostKeyCheck {
        let kind = kind_of(key);
        let place = |entry: &KnownKey| KeyLocation { file: entry.file.clone(), line: entry.line };
        let mut changed = None;
        for entry in self.of(host, port) {
            match (entry.revoked, entry.key == key) {
                (true, true) => return HostKeyCheck::Revoked(place(entry)),
                (false, false) if kind_of(&entry.key) == kind => changed = changed.or(Some(place(entry))),
                _ => {}
            }
        }
        if self.of(host, port).any(|entry| !entry.revoked && entry.key == key) {
            return HostKeyCheck::Known;
        }
        // A key that is known for the default port is valid for other ports too; a different key there is no conflict.
        if port != USUAL_PORT && changed.is_none() && self.check(host, USUAL_PORT, key) == HostKeyCheck::Known {
            return HostKeyCheck::Known;
        }
        match changed {
            Some(place) => HostKeyCheck::Changed(place),
            None => HostKeyCheck::Unknown { others: self.kinds(host, port) },
        }
    }

    fn of<'a>(&'a self, host: &str, port: u16) -> impl Iterator<Item = &'a KnownKey> {
        let name = lookup_name(host, port);
        self.entries.iter().filter(move |entry| entry.names.include(&name))
    }
}

/// The name of a host in the files: `n1`, or `[n1]:2222`.
pub fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == USUAL_PORT { host } else { format!("[{host}]:{port}") }
}

/// The kind of a key, which is its first string; empty if it is not a key.
pub fn kind_of(key: &[u8]) -> String {
    let length = key.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes) as usize;
    let name = length.checked_add(4).and_then(|end| key.get(4..end)).unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn parse(line: &str, file: &Path, number: usize) -> Option<KnownKey> {
    let mut fields = line.split_ascii_whitespace().peekable();
    if fields.peek()?.starts_with('#') {
        return None;
    }
    let mark = fields.next_if(|field| field.starts_with('@'));
    let revoked = match mark {
        None => false,
        Some("@revoked") => true,
        Some(_) => return None,
    };
    let names = Names::parse(fields.next()?)?;
    let kind = fields.next()?;
    let key = STANDARD.decode(fields.next()?).ok()?;
    (kind_of(&key) == kind).then(|| KnownKey { names, revoked, key, file: file.to_owned(), line: number })
}

impl Names {
    fn parse(field: &str) -> Option<Self> {
        let Some(hashed) = field.strip_prefix("|1|") else {
            return Some(Names::Plain(field.split(',').map(str::to_ascii_lowercase).collect()));
        };
        let (salt, hash) = hashed.split_once('|')?;
        Some(Names::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? })
    }

    fn include(&self, name: &str) -> bool {
        match self {
            Names::Plain(patterns) => {
                let fits = |pattern: &str| matches(pattern.as_bytes(), name.as_bytes());
                let excluded = patterns.iter().filter_map(|pattern| pattern.strip_prefix('!')).any(fits);
                !excluded && patterns.iter().any(|pattern| fits(pattern))
            }
            Names::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), hash).is_ok()
            }
        }
    }
}

/// `*` matches any text, `?` any single character. Takes time linear in the product of the lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[read] => (at, read) = (at + 1, read + 1),
            _ => match star {
                Some((begin, taken)) => {
                    star = Some((begin, taken + 1));
                    (at, read) = (begin + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, content: u8) -> Vec<u8> {
        let mut key = (kind.len() as u32).to_be_bytes().to_vec();
        key.extend_from_slice(kind.as_bytes());
        key.extend_from_slice(&[content; 32]);
        key
    }

    fn line(names: &str, kind: &str, content: u8) -> String {
        format!("{names} {kind} {} a comment\n", STANDARD.encode(key(kind, content)))
    }

    fn known(text: &str) -> KnownHosts {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("known_hosts");
        std::fs::write(&path, text).unwrap();
        KnownHosts::named(&path).unwrap()
    }

    const ED: &str = "ssh-ed25519";
    const RSA: &str = "ssh-rsa";

    #[test]
    fn a_key_is_known_unknown_changed_or_revoked() {
        let text = line("n1,10.0.0.1", ED, 1) + &line("n2", RSA, 2) + "@revoked " + &line("*", ED, 9);
        let known = known(&text);
        assert_eq!(known.check("n1", 22, &key(ED, 1)), HostKeyCheck::Known);
        assert_eq!(known.check("N1", 22, &key(ED, 1)), HostKeyCheck::Known);
        assert_eq!(known.check("10.0.0.1", 22, &key(ED, 1)), HostKeyCheck::Known);
        assert_eq!(known.check("n3", 22, &key(ED, 1)), HostKeyCheck::Unknown { others: Vec::new() });
        assert_eq!(known.check("n2", 22, &key(ED, 1)), HostKeyCheck::Unknown { others: vec![RSA.to_owned()] });
        assert!(matches!(known.check("n1", 22, &key(ED, 3)), HostKeyCheck::Changed(KeyLocation { line: 1, .. })));
        assert!(matches!(known.check("n1", 22, &key(ED, 9)), HostKeyCheck::Revoked(KeyLocation { line: 3, .. })));
    }

    #[test]
    fn a_host_may_have_several_keys_of_a_kind_while_it_changes_them() {
        let known = known(&(line("n1", ED, 1) + &line("n1", ED, 2)));
        assert_eq!(known.check("n1", 22, &key(ED, 2)), HostKeyCheck::Known);
        assert_eq!(known.kinds("n1", 22), [ED]);
    }

    #[test]
    fn another_port_is_another_host_unless_the_key_is_known_for_the_default_port() {
        let known = known(&(line("[n1]:2222", ED, 1) + &line("n2", ED, 2)));
        assert_eq!(known.check("n1", 2222, &key(ED, 1)), HostKeyCheck::Known);
        assert!(matches!(known.check("n1", 22, &key(ED, 1)), HostKeyCheck::Unknown { .. }));
        assert_eq!(known.check("n2", 2222, &key(ED, 2)), HostKeyCheck::Known);
        assert!(matches!(known.check("n2", 2222, &key(ED, 3)), HostKeyCheck::Unknown { .. }));
    }

    #[test]
    fn hashed_names_are_found() {
        let salt = [7; 20];
        let secret = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        let hashed = |name: &str| {
            let hash = hmac::sign(&secret, name.as_bytes());
            format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(hash.as_ref()))
        };
        let known = known(&(line(&hashed("n1"), ED, 1) + &line(&hashed("[n2]:2222"), ED, 2)));
        assert_eq!(known.check("n1", 22, &key(ED, 1)), HostKeyCheck::Known);
        assert_eq!(known.check("n2", 2222, &key(ED, 2)), HostKeyCheck::Known);
        assert!(matches!(known.check("n2", 22, &key(ED, 2)), HostKeyCheck::Unknown { .. }));
    }

    #[test]
    fn reads_hashes_of_openssh() {
        // Made with `ssh-keygen -H` from the name `n1`.
        let names = Names::parse("|1|H+ffmLs4Qrk2cZYgb6IQKSEleRY=|zbkVdJ1pTVtJmmUIxWLcyKssoVU=").unwrap();
        assert!(names.include("n1") && !names.include("n2"));
    }

    #[test]
    fn patterns_include_and_exclude() {
        let known = known(&line("*.cluster,!bad.cluster,n?", ED, 1));
        for (name, expected) in
            [("a.cluster", true), ("bad.cluster", false), ("n1", true), ("n12", false), ("cluster", false)]
        {
            assert_eq!(known.check(name, 22, &key(ED, 1)) == HostKeyCheck::Known, expected, "{name}");
        }
        assert!(matches(b"*a*b*", b"xxaxxbxx") && !matches(b"*a*b", b"xxaxxbxx") && matches(b"**", b""));
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let wrong_kind = format!("n1 {RSA} {}\n", STANDARD.encode(key(ED, 1)));
        let text = format!("# n1\n\nn1\nn1 {ED}\nn1 {ED} %%%\n{wrong_kind}@cert-authority {}", line("n1", ED, 1));
        let known = known(&text);
        assert_eq!(known.check("n1", 22, &key(ED, 1)), HostKeyCheck::Unknown { others: Vec::new() });
        assert_eq!(kind_of(b"\xff\xff\xff\xff"), "");
    }

    #[test]
    fn a_named_file_must_exist_and_the_default_ones_need_not() {
        let missing = PathBuf::from("/nowhere/known_hosts");
        assert!(KnownHosts::named(&missing).unwrap_err().to_string().contains("/nowhere/known_hosts"));
        assert!(KnownHosts::usual(&[missing]).unwrap().entries.is_empty());
    }
}
