//! What is wrong with a spec: file, place, key, what was expected, and how to write it instead.
//!
//! A spec is read to its end before anything is said, so that several mistakes are corrected in one go.

use std::fmt;

/// Where something stands in the spec: lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters to underline; at least 1.
    pub width: usize,
}

impl Place {
    /// The very beginning of the file: where something that is missing altogether is reported.
    pub const START: Place = Place { line: 1, column: 1, width: 1 };
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where it stands, if it stands anywhere.
    pub place: Option<Place>,
    /// The key path (`checkpoint.redundancy[0].set_size`); empty for the file as a whole.
    pub key: String,
    /// What is wrong, as a sentence without its full stop.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// The mistakes of one spec, in the order in which they stand in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    file: String,
    /// The lines that are quoted under a message.
    text: String,
    list: Vec<Diagnostic>,
}

/// More than these are not shown: after so many the file is not a job spec at all.
const SHOWN: usize = 50;

impl Diagnostics {
    /// Sorts the mistakes by their place.
    pub(super) fn new(file: &str, text: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|diagnostic| diagnostic.place);
        list.dedup();
        Diagnostics { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// A mistake that concerns the file as a whole: it cannot be read.
    pub(super) fn of_file(file: &str, message: String, help: &str) -> Self {
        let one = Diagnostic { place: None, key: String::new(), message, help: Some(help.to_owned()) };
        Diagnostics { file: file.to_owned(), text: String::new(), list: vec![one] }
    }

    /// The file as the user named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Each mistake.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// How many mistakes there are; at least one.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn write_one(&self, f: &mut fmt::Formatter<'_>, diagnostic: &Diagnostic) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(place) = diagnostic.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        f.write_str(": ")?;
        if !diagnostic.key.is_empty() {
            write!(f, "{}: ", diagnostic.key)?;
        }
        f.write_str(&diagnostic.message)?;
        if let Some(place) = diagnostic.place
            && let Some(line) = self.text.lines().nth(place.line - 1)
        {
            write_snippet(f, place, line)?;
        }
        if let Some(help) = &diagnostic.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// The line of the spec with carets under the place. A very long line is cut around it.
fn write_snippet(f: &mut fmt::Formatter<'_>, place: Place, line: &str) -> fmt::Result {
    const SHOWN_BEFORE: usize = 60;
    const SHOWN_ALTOGETHER: usize = 120;
    let start = (place.column - 1).saturating_sub(SHOWN_BEFORE);
    // One column a character: a tab or a control character would move the caret away from what it points at.
    let shown: String = line
        .chars()
        .skip(start)
        .take(SHOWN_ALTOGETHER)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    let indent = place.column - 1 - start;
    let room = shown.chars().count().saturating_sub(indent).max(1);
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    write!(f, "\n {margin} |\n {number} | {}\n {margin} | ", shown.trim_end())?;
    write!(f, "{}{}", " ".repeat(indent), "^".repeat(place.width.clamp(1, room)))
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.list.iter().take(SHOWN).enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            self.write_one(f, diagnostic)?;
        }
        if self.list.len() > SHOWN {
            write!(f, "\n\n{}: and {} more mistakes", self.file, self.list.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The nearest of `known` to what was written, if it is near enough to be what was meant.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len().max(lower.len()) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
