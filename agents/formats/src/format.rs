//! The [`Format`] trait, its options and its results.

use std::io::{self, Write};
use std::path::Path;

use crate::destination::Destination;
use crate::error::Result;
use crate::file_check::{Damage, FileCheck};
use crate::input::Input;

/// One format of checkpoint files.
pub trait Format: Send + Sync {
    /// The short name in commands and JSON: `fti-ff`, `sion`, `jubatus`, `scr-hash`, `scr-xor`.
    fn name(&self) -> &'static str;

    /// The name shown to users: `FTI-FF checkpoint`.
    fn title(&self) -> &'static str;

    /// How certain it is that a file has this format. Reads only the probe and a bounded number of bytes.
    fn recognise(&self, probe: &Probe<'_>) -> Confidence;

    /// Describes the file from its metadata; a damaged file as far as it can be parsed.
    ///
    /// # Errors
    /// When the file cannot be read, or nothing in it can be parsed.
    fn describe(&self, path: &Path) -> Result<Description>;

    /// Checks everything that the format allows to check, in bounded memory. Damage is part of the result, not an
    /// error.
    fn verify(&self, path: &Path, options: &Options, progress: Progress<'_>) -> Result<FileCheck>;

    /// Writes the content to a directory, one file for each part: complete, or not at all. Damaged parts are left out
    /// and listed in [`Extracted::damages`], unless `options.recover` is set.
    ///
    /// # Errors
    /// When the file system fails, an output file exists, or nothing in the file can be parsed.
    fn extract(&self, path: &Path, to: &Destination, options: &Options, progress: Progress<'_>) -> Result<Extracted>;
}

/// Called from time to time with the bytes done and the total bytes. Consecutive calls may have equal numbers.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Options of a verification or an extraction; a format ignores those that do not concern it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Apply the rules of the format's document where the released programs differ from it (Jubatus).
    pub as_documented: bool,
    /// Also write what can be recovered from a damaged or never closed file.
    pub recover: bool,
}

/// What a format may look at to recognise a file.
#[derive(Debug)]
pub struct Probe<'a> {
    /// The open file, for formats whose magic number is not at the start.
    pub input: &'a Input,
    /// The file's name without its directory; empty if it is not UTF-8.
    pub name: &'a str,
    /// The first bytes, up to [`Probe::HEAD_BYTES`].
    pub head: &'a [u8],
    /// The file's size in bytes.
    pub size: u64,
}

impl Probe<'_> {
    /// The largest size of [`Probe::head`].
    pub const HEAD_BYTES: usize = 4096;
}

/// How certain it is that a file has a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The file has another format.
    No,
    /// Only the file's name matches.
    ByName,
    /// The structure matches, but the hash or magic number that would prove it is damaged.
    Likely,
    /// A magic number or a hash matches.
    Certain,
}

/// A file's description, for people and for programs. Its JSON is that of [`serde::Serialize`].
#[derive(Debug)]
pub struct Description {
    /// What is in the file.
    pub content: Box<dyn Content>,
    /// Damage that was found on the way; [`Format::verify`] finds all of it.
    pub damages: Vec<Damage>,
}

/// The content of a description: in memory, or read from the file when it is written. As JSON, fields have the names
/// that the format's own project uses.
pub trait Content: std::fmt::Debug + erased_serde::Serialize {
    /// Writes the content for people: complete lines, each ended by a newline.
    ///
    /// # Errors
    /// When the file cannot be read any more, or `out` fails.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()>;
}

#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
struct Document {
    #[serde(skip)]
    text: String,
    json: serde_json::Value,
}

impl Content for Document {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.text.as_bytes())
    }
}

impl Description {
    pub fn new(text: String, json: serde_json::Value, damages: Vec<Damage>) -> Description {
        Description { content: Box::new(Document { text, json }), damages }
    }

    /// Writes the description for people: complete lines, each ended by a newline.
    ///
    /// # Errors
    /// When the file cannot be read any more, or `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.content.write_text(out)
    }
}

impl std::fmt::Display for Description {
    /// The text of [`Description::write_text`].
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = Vec::new();
        self.write_text(&mut text).map_err(|_| std::fmt::Error)?;
        out.write_str(&String::from_utf8_lossy(&text))
    }
}

impl serde::Serialize for Description {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        erased_serde::serialize(&*self.content, serializer)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extracted {
    /// The names of the files in the destination, in the order of writing.
    pub files: Vec<String>,
    /// The total size of these files in bytes.
    pub bytes: u64,
    /// What was not written, or only partly.
    pub damages: Vec<Damage>,
}
