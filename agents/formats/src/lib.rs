//! Checkpoint file formats behind one trait: recognise, describe, verify, extract.
//!
//! A format is known by its content, whatever the file is called; where the content is too damaged to speak for itself
//! the name may speak for it, so that an empty `Ckpt7-Rank2.fti` is reported as a damaged checkpoint and not as
//! an unknown file. [`recognise`] asks every format in [`all`]; a new format is one file that implements [`Format`] and
//! one line there.
//!
//! * [`input`]: a file read at any offset, from several threads, in pieces of bounded size;
//! * [`verdict`]: what a verification found, each damage with its place;
//! * [`destination`]: the directory that an extraction writes to, and never outside of it;
//! * [`error`]: why a file could not be worked on;
//! * [`fti_ff`]: FTI's file format and the files of its levels 2 and 3;
//! * [`sion`]: SION containers;
//! * [`jubatus`]: the model files of Jubatus servers;
//! * [`scr_hash`], [`scr_xor`]: the files of SCR itself.
//!
//! Every file is untrusted: no number read from one is believed before it was compared with the file's size.

#![forbid(unsafe_code)]

use std::path::Path;

pub mod destination;
pub mod error;
pub mod fti_ff;
pub mod input;
pub mod jubatus;
pub mod scr_hash;
pub mod scr_xor;
pub mod sion;
pub mod verdict;

pub use destination::Destination;
pub use error::FormatsError;
pub use input::Input;
pub use verdict::{Damage, Verdict};

/// The formats, in the order in which they are asked: the surest signs first.
pub fn all() -> &'static [&'static dyn Format] {
    &[&scr_hash::ScrHash, &scr_xor::ScrXor, &fti_ff::FtiFf, &sion::Sion, &jubatus::Jubatus]
}

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

/// A file that was recognised, or not.
#[derive(Clone, Copy)]
pub struct Recognised {
    /// Its format; `None` is an unknown file.
    pub format: Option<&'static dyn Format>,
    /// How sure that is.
    pub confidence: Confidence,
}

impl std::fmt::Debug for Recognised {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.format.map_or("unknown", |format| format.name());
        write!(out, "{name} ({:?})", self.confidence)
    }
}

/// Which format a file has. The surest answer wins, the earlier in [`all`] between equals.
///
/// # Errors
/// When the file cannot be opened or read, or is no regular file.
pub fn recognise(path: &Path) -> Result<Recognised, FormatsError> {
    let input = Input::open(path)?;
    let head_bytes = usize::try_from(input.size()).unwrap_or(usize::MAX).min(Probe::HEAD_BYTES);
    let head = input.bytes_at(0, head_bytes)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let probe = Probe { input: &input, name, head: &head, size: input.size() };
    let mut best = Recognised { format: None, confidence: Confidence::No };
    for format in all() {
        let confidence = format.recognise(&probe);
        if confidence > best.confidence {
            best = Recognised { format: Some(*format), confidence };
        }
    }
    Ok(best)
}

/// The format of this short name.
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.name() == name)
}

#[cfg(test)]
mod tests;
