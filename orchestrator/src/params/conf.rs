//! The text format of SCR's user and system files: `KEY=VALUE [KEY2=VALUE2 …]` a line (`docs/scr-files.md` §16).
//!
//! Further pairs of a line belong to the first. Blanks are allowed around `=`; keys are upper-cased, values kept; `#`
//! starts a comment only where a key, `=` or value could start; values contain no blanks and no `=`.
//!
//! Where the original's two parsers disagreed or guessed, a line is refused, with its number: a missing `=`, a missing
//! value, a value with a blank or a `=`. A carriage return at the end of a line is not part of the value (it was, in
//! C). `FIXED=1` behind a pair of the system file is ours: users cannot override what the line sets.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::origin::{FileLine, Origin};
use holdfast_core::durable;

/// Largest file that is read: ten thousand lines are far less.
const MAX_BYTES: u64 = 1 << 20;

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfError {
    #[error("cannot read the configuration file {}: {source}; {}", path.display(), durable::remedy(source))]
    Read { path: PathBuf, source: io::Error },
    /// It is too large to be one.
    #[error("the configuration file {} is larger than {MAX_BYTES} bytes; it is probably another file", path.display())]
    TooLarge { path: PathBuf },
    /// A line that is not made of pairs.
    #[error("{place}: {what}; a line is KEY=VALUE or KEY=VALUE KEY2=VALUE2, values without blanks and without `=`")]
    Line { place: FileLine, what: ConfLineError },
}

/// Why a line is not made of pairs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfLineError {
    #[error("not UTF-8 text")]
    NotText,
    /// A byte that no value can carry.
    #[error("contains a NUL")]
    Nul,
    #[error("a `=` without a key")]
    NoKey,
    #[error("{0} has no value")]
    NoValue(String),
    #[error("{0} has no `=` and no value")]
    KeyOnly(String),
    #[error("found {found:?} where the `=` of {key} belongs")]
    NoEquals { key: String, found: String },
    #[error("FIXED is {0:?}, expected is 0 or 1")]
    Fixed(String),
}

/// The pair of a line of the system file whose value 1 fixes what the line sets: users cannot override it.
pub const FIXED: &str = "FIXED";

/// One line: the first pair, and the pairs that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfLine {
    /// The first key, upper-case.
    pub key: String,
    pub value: String,
    /// The further pairs, keys upper-case.
    pub pairs: Vec<(String, String)>,
    pub origin: Origin,
}

/// Whose file it is, which determines its precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// `$SCR_CONF_FILE`.
    User,
    /// The site's file.
    System,
}

/// Reads a configuration file.
///
/// # Errors
/// When it cannot be read, or a line is not made of pairs.
pub fn read(path: &Path, owner: FileOwner) -> Result<Vec<ConfLine>, ConfError> {
    let cannot = |source| ConfError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ConfError::TooLarge { path: path.to_owned() });
    }
    parse(&bytes, &path.to_string_lossy(), owner)
}

/// The lines of a configuration file of this name.
///
/// # Errors
/// The first line that is not made of pairs.
pub fn parse(bytes: &[u8], name: &str, owner: FileOwner) -> Result<Vec<ConfLine>, ConfError> {
    let mut entries = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let place = FileLine { file: name.to_owned(), line: index + 1 };
        let entry = parse_line(line, || match owner {
            FileOwner::User => Origin::UserFile(place.clone()),
            FileOwner::System => Origin::SystemFile(place.clone()),
        });
        entries.extend(entry.map_err(|what| ConfError::Line { place, what })?);
    }
    Ok(entries)
}

fn parse_line(line: &[u8], origin: impl FnOnce() -> Origin) -> Result<Option<ConfLine>, ConfLineError> {
    let line = std::str::from_utf8(line).map_err(|_| ConfLineError::NotText)?;
    if line.contains('\0') {
        return Err(ConfLineError::Nul);
    }
    let mut words = words(line).into_iter();
    let mut pairs = Vec::new();
    while let Some(key) = words.next() {
        if key == "=" {
            return Err(ConfLineError::NoKey);
        }
        match (words.next(), words.next()) {
            (Some("="), Some("=") | None) => return Err(ConfLineError::NoValue(key.to_owned())),
            (Some("="), Some(value)) => pairs.push((key.to_ascii_uppercase(), value.to_owned())),
            (Some(found), _) => {
                return Err(ConfLineError::NoEquals { key: key.to_owned(), found: found.to_owned() });
            }
            (None, _) => return Err(ConfLineError::KeyOnly(key.to_owned())),
        }
    }
    let mut pairs = pairs.into_iter();
    let Some((key, value)) = pairs.next() else { return Ok(None) };
    let (mut origin, mut pairs) = (origin(), pairs.collect::<Vec<_>>());
    if let Origin::SystemFile(place) = &origin {
        let fixed: Vec<(String, String)> = pairs.extract_if(.., |(key, _)| key == FIXED).collect();
        match fixed.last().map(|(_, value)| value.as_str()) {
            None | Some("0") => {}
            Some("1") => origin = Origin::Fixed(place.clone()),
            Some(other) => return Err(ConfLineError::Fixed(other.to_owned())),
        }
    }
    Ok(Some(ConfLine { key, value, pairs, origin }))
}

/// The tokens of a line up to a comment; every `=` is a token of its own.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '#' => break,
            '=' => 1,
            _ => rest.find(|character: char| character.is_whitespace() || character == '=').unwrap_or(rest.len()),
        };
        let (word, behind) = rest.split_at(end);
        words.push(word);
        rest = behind.trim_start();
    }
    words
}
