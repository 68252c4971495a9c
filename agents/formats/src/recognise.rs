//! The list of all formats, and the recognition of a file's format.

use std::path::Path;
use std::sync::LazyLock;

use crate::error::FormatsError;
use crate::format::{Confidence, Format, Probe};
use crate::input::Input;
use crate::{fti_ff, jubatus, scr_hash, scr_redundancy, sion};

/// All formats, in the order in which they are tried: those with the most certain signs first.
pub fn all() -> &'static [&'static dyn Format] {
    static ALL: LazyLock<Vec<&'static dyn Format>> = LazyLock::new(|| {
        let mut all: Vec<&'static dyn Format> = vec![&scr_hash::ScrHash];
        all.extend(scr_redundancy::all().iter().map(|format| format as &'static dyn Format));
        all.extend([&fti_ff::FtiFf as &'static dyn Format, &sion::Sion, &jubatus::Jubatus]);
        all
    });
    &ALL
}

#[derive(Clone, Copy)]
pub struct Recognised {
    /// The file's format; `None` if it is unknown.
    pub format: Option<&'static dyn Format>,
    /// How certain the format is.
    pub confidence: Confidence,
}

impl std::fmt::Debug for Recognised {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.format.map_or("unknown", |format| format.name());
        write!(out, "{name} ({:?})", self.confidence)
    }
}

/// Finds the format of a file: the one with the highest confidence; among equals, the first in [`all`].
///
/// # Errors
/// When the file cannot be opened or read, or is not a regular file.
pub fn recognise(path: &Path) -> Result<Recognised, FormatsError> {
    let input = Input::open(path)?;
    let head_bytes = usize::try_from(input.size).unwrap_or(usize::MAX).min(Probe::HEAD_BYTES);
    let head = input.bytes_at(0, head_bytes)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let probe = Probe { input: &input, name, head: &head, size: input.size };
    let mut best = Recognised { format: None, confidence: Confidence::No };
    for format in all() {
        let confidence = format.recognise(&probe);
        if confidence > best.confidence {
            best = Recognised { format: Some(*format), confidence };
        }
    }
    Ok(best)
}

/// The format with this short name ([`Format::name`]).
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.name() == name)
}
