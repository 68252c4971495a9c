//! SCR's hash files (filemaps, meta files, index, summary, halt file): the tree of [`holdfast_core::kvtree`].

use std::io::{BufReader, Read};
use std::path::Path;

use crate::destination::Destination;
use crate::error::FormatsError;
use crate::file_check::{Damage, FileCheck};
use crate::format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};
use crate::input::Input;
use holdfast_core::kvtree::limits::Limits;
use holdfast_core::kvtree::packed::HashFormatError;
use holdfast_core::kvtree::{Tree, file, json, print};

/// The first bytes of every hash file, and so of a redundancy file.
const MAGIC: [u8; 4] = [0x95, 0x1f, 0xc3, 0xf5];
/// Endings of the names that SCR gives to hash files.
const NAMES: [&str; 3] = [".scrinfo", ".scr", ".scrfilemap"];
/// Magic, type, version, size.
const SIZE_FIELD: std::ops::Range<usize> = 8..16;

/// The format of SCR's hash files.
#[derive(Debug, Clone, Copy)]
pub struct ScrHash;

impl Format for ScrHash {
    fn name(&self) -> &'static str {
        "scr-hash"
    }

    fn title(&self) -> &'static str {
        "SCR hash file"
    }

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        match starts_with_hash(probe) {
            // A hash file followed by other data may be a redundancy file.
            Some(bytes) if bytes >= probe.size => Confidence::Certain,
            Some(_) => Confidence::Likely,
            None if NAMES.iter().any(|end| probe.name.ends_with(end)) => Confidence::ByName,
            None => Confidence::No,
        }
    }

    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        let (found, _) = read(path)?;
        let (tree, _) = found.map_err(|why| FormatsError::damaged("describe", path, why))?;
        Ok(Description::new(print::text(&tree), json::value(&tree), Vec::new()))
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck, FormatsError> {
        let (found, size) = read(path)?;
        let mut check = FileCheck { checked_bytes: size, ..FileCheck::default() };
        match found {
            Ok((_, bytes)) if bytes < size => {
                let extra = size - bytes;
                let place = "after the hash";
                check.note(Damage::new("trailing", place, format!("{extra} bytes that readers ignore")).at(bytes));
            }
            Ok(_) => {}
            Err(fault) => check.damage(Damage::new("hash-file", "hash file", fault.to_string())),
        }
        progress(size, size);
        Ok(check)
    }

    fn extract(&self, path: &Path, _: &Destination, _: &Options, _: Progress<'_>) -> Result<Extracted, FormatsError> {
        let why = "a hash file holds no files; `holdfast inspect --json` prints its content".to_owned();
        Err(FormatsError::NotPossible { action: "extract from", path: path.to_owned(), why })
    }
}

/// The size that a hash file at the start of a file declares; `None` if there is none.
pub(super) fn starts_with_hash(probe: &Probe<'_>) -> Option<u64> {
    let size: [u8; 8] = probe.head.get(SIZE_FIELD)?.try_into().ok()?;
    probe.head.starts_with(&MAGIC).then(|| u64::from_be_bytes(size))
}

type Decoded = Result<(Tree, u64), HashFormatError>;

/// The tree at the start of a file and the size of its encoding, or why it cannot be decoded; and the file's size.
pub(super) fn read(path: &Path) -> Result<(Decoded, u64), FormatsError> {
    let input = Input::open(path)?;
    let decoded = match file::decode_prefix(&mut BufReader::new(input.stream().take(input.size)), Limits::of(path)) {
        Ok(decoded) => Ok(decoded),
        Err(file::LeadingHashError::Format(error)) => Err(error),
        Err(file::LeadingHashError::Io(error)) => return Err(FormatsError::reading("read", path)(error)),
    };
    Ok((decoded, input.size))
}
