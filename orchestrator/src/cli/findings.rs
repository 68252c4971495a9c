//! The result of a command for each file that it visited.

use holdfast_formats::Format;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::failure::Failure;
use super::output::JSON_VERSION;
use super::walk::{Content, Visited};
use crate::exit;

/// A result for a file of a known format.
pub(super) trait FileResult {
    /// False if the file is damaged.
    fn is_intact(&self) -> bool;

    /// Writes the JSON fields in addition to path and format.
    fn fields<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error>;
}

/// A file with its result.
pub(super) struct Finding<T> {
    pub visited: Visited,
    pub outcome: FileOutcome<T>,
}

pub(super) enum FileOutcome<T> {
    Found(T),
    Unknown,
    Failed(Failure),
}

impl<T> FileOutcome<T> {
    /// The outcome for a file without a known format.
    pub(super) fn without_format(content: &Content) -> Option<Self> {
        match content {
            Content::Known(..) => None,
            Content::Unknown => Some(FileOutcome::Unknown),
            Content::Unreadable(failure) => Some(FileOutcome::Failed(failure.clone())),
        }
    }
}

impl<T: FileResult> Finding<T> {
    /// The exit code for this file alone. A file of unknown format is an error only if it was named.
    pub(super) fn code(&self) -> u8 {
        match &self.outcome {
            FileOutcome::Found(found) if found.is_intact() => exit::FINISHED,
            FileOutcome::Found(_) => exit::DAMAGED_DATA,
            FileOutcome::Unknown if self.visited.named => exit::DAMAGED_DATA,
            FileOutcome::Unknown => exit::FINISHED,
            FileOutcome::Failed(failure) => failure.code(),
        }
    }

    pub(super) fn path(&self) -> String {
        self.visited.path.display().to_string()
    }
}

impl<T: FileResult> Serialize for Finding<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("path", &self.path())?;
        fields.serialize_entry("format", &self.visited.format().map(Format::name))?;
        match &self.outcome {
            FileOutcome::Found(found) => found.fields(&mut fields)?,
            FileOutcome::Failed(failure) => fields.serialize_entry("error", &failure.message)?,
            FileOutcome::Unknown => {}
        }
        fields.end()
    }
}

/// The JSON document of a command with the fields `files`, `unknown` (files of unknown format) and `damaged` (a count),
/// written with the result of one file in memory at a time.
pub(super) struct Findings<'a, T> {
    pub list: &'a [Finding<T>],
    /// Leave intact files out.
    pub only_damaged: bool,
}

impl<T: FileResult> Serialize for Findings<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (unknown, known): (Vec<_>, Vec<_>) =
            self.list.iter().partition(|finding| matches!(finding.outcome, FileOutcome::Unknown));
        let is_bad = |finding: &&&Finding<T>| finding.code() != exit::FINISHED;
        let listed: Vec<_> = known.iter().filter(|finding| !self.only_damaged || is_bad(finding)).collect();
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("version", &JSON_VERSION)?;
        fields.serialize_entry("files", &listed)?;
        fields.serialize_entry("unknown", &unknown.iter().map(|finding| finding.path()).collect::<Vec<_>>())?;
        fields.serialize_entry("damaged", &known.iter().filter(is_bad).count())?;
        fields.end()
    }
}
