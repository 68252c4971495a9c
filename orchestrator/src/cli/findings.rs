//! The result of a command for each file that it visited.

use holdfast_formats::Format;
use serde_json::{Map, Value};

use super::walk::{Content, FileFailure, Visited};
use crate::exit;

/// A result for a file of a known format.
pub(super) trait FileResult {
    /// False if the file is damaged.
    fn is_intact(&self) -> bool;

    /// The JSON fields in addition to path and format.
    fn json(&self) -> Map<String, Value>;
}

/// A file with its result.
pub(super) struct Finding<T> {
    pub visited: Visited,
    pub outcome: FileOutcome<T>,
}

pub(super) enum FileOutcome<T> {
    Found(T),
    Unknown,
    Failed(FileFailure),
}

impl<T> FileOutcome<T> {
    /// The outcome for a file without a known format.
    pub(super) fn without_format(content: &Content) -> Option<Self> {
        match content {
            Content::Known(..) => None,
            Content::Unknown => Some(FileOutcome::Unknown),
            Content::Unreadable(FileFailure { message, code }) => {
                Some(FileOutcome::Failed(FileFailure { message: message.clone(), code: *code }))
            }
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
            FileOutcome::Failed(failure) => failure.code,
        }
    }

    fn json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("path".to_owned(), self.path().into());
        fields.insert("format".to_owned(), self.visited.format().map(Format::name).into());
        match &self.outcome {
            FileOutcome::Found(found) => fields.extend(found.json()),
            FileOutcome::Failed(failure) => {
                fields.insert("error".to_owned(), failure.message.clone().into());
            }
            FileOutcome::Unknown => {}
        }
        fields.into()
    }

    pub(super) fn path(&self) -> String {
        self.visited.path.display().to_string()
    }
}

/// The fields `files`, `unknown` (files of unknown format) and `damaged` (a count). With `only_damaged`, intact files
/// are left out.
pub(super) fn json<T: FileResult>(findings: &[Finding<T>], only_damaged: bool) -> Map<String, Value> {
    let (unknown, known): (Vec<_>, Vec<_>) =
        findings.iter().partition(|finding| matches!(finding.outcome, FileOutcome::Unknown));
    let is_bad = |finding: &&&Finding<T>| finding.code() != exit::FINISHED;
    let damaged = known.iter().filter(is_bad).count();
    let listed: Vec<Value> =
        known.iter().filter(|finding| !only_damaged || is_bad(finding)).map(|finding| finding.json()).collect();
    let unknown: Vec<Value> = unknown.iter().map(|finding| finding.path().into()).collect();
    [("files", listed.into()), ("unknown", unknown.into()), ("damaged", damaged.into())]
        .map(|(key, value): (&str, Value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}
