//! What a format can do, and what it is asked and answers with.

use std::path::Path;

use crate::{Damage, Destination, FormatsError, Input, Verdict};

/// One format of checkpoint files.
pub trait Format: Send + Sync {
    /// The short name in commands and JSON: `fti-ff`, `sion`, `jubatus`, `scr-hash`, `scr-xor`.
    fn name(&self) -> &'static str;

    /// What a person reads: `FTI-FF checkpoint`.
    fn title(&self) -> &'static str;

    /// How sure it is that a file is of this format. Looks at no more than the probe, and a bounded number of bytes.
    fn recognise(&self, probe: &Probe<'_>) -> Confidence;

    /// The file's description, without reading its data. Of a damaged file what can still be read.
    ///
    /// # Errors
    /// When the file cannot be read, or nothing in it can be understood.
    fn describe(&self, path: &Path) -> Result<Description, FormatsError>;

    /// Checks everything that the format lets one check, in bounded memory. Damage is part of the verdict and not an
    /// error.
    ///
    /// # Errors
    /// When the file system fails.
    fn verify(&self, path: &Path, options: &Options, progress: Progress<'_>) -> Result<Verdict, FormatsError>;

    /// Writes what the file holds into a directory, each part as a file of its own that is whole or not there.
    /// Parts that are damaged are left out and told in [`Extracted::damages`], unless `options.recover` asks for them.
    ///
    /// # Errors
    /// When the file system fails, a file is there already, or nothing in the file can be understood.
    fn extract(
        &self,
        path: &Path,
        to: &Destination,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Extracted, FormatsError>;
}

/// Called now and then with the bytes done and the bytes in all. May be called with the same numbers twice.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// What a user may ask of a verification or an extraction; a format ignores what does not concern it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The rules of the format's document where the released programs differ from it (Jubatus).
    pub as_documented: bool,
    /// Write out what a damaged or never closed file still allows.
    pub recover: bool,
}

/// What is known of a file before its format is.
#[derive(Debug)]
pub struct Probe<'a> {
    /// The open file, for formats whose mark is not at the start.
    pub input: &'a Input,
    /// The file's name without its directory; empty if it is not UTF-8.
    pub name: &'a str,
    /// The first bytes, up to [`Probe::HEAD_BYTES`].
    pub head: &'a [u8],
    /// The file's size in bytes.
    pub size: u64,
}

impl Probe<'_> {
    /// So many bytes of the start are read before the formats are asked.
    pub const HEAD_BYTES: usize = 4096;
}

/// How sure a format is of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// It is something else.
    No,
    /// Only the file's name says so.
    ByName,
    /// The shape fits, and what would prove it is damaged.
    Likely,
    /// A magic number or a hash proves it.
    Certain,
}

/// A file's description, for people and for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// For people: complete lines, each ended by a newline.
    pub text: String,
    /// For programs, in the names of the format's own world.
    pub json: serde_json::Value,
    /// Damage that was met on the way; [`Format::verify`] looks for all of it.
    pub damages: Vec<Damage>,
}

/// What an extraction wrote.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extracted {
    /// The names of the files in the destination, in the order of writing.
    pub files: Vec<String>,
    /// Bytes in these files.
    pub bytes: u64,
    /// What could not be written, or only in part.
    pub damages: Vec<Damage>,
}
