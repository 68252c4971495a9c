//! What is wrong with a spec: file, place, key, what was expected, and how to write it instead.
//!
//! A spec is read to its end before anything is said, so that several mistakes are corrected in one go.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// Where something stands in the spec: lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters to underline; at least 1.
    pub width: usize,
}

impl Position {
    /// The very beginning of the file: where something that is missing altogether is reported.
    pub const START: Position = Position { line: 1, column: 1, width: 1 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where it stands, if it stands anywhere.
    pub place: Option<Position>,
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

/// A longer line is cut around the place.
const WIDTH: usize = 140;

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

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// How many mistakes there are; at least one.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The first line is for people and for editors: file, line, column, key, message.
    fn render(&self, diagnostic: &Diagnostic) -> String {
        let Diagnostic { place, key, message, help } = diagnostic;
        let place_text = place.map(|place| format!(":{}:{}", place.line, place.column)).unwrap_or_default();
        let key_text = if key.is_empty() { String::new() } else { format!("{key}: ") };
        let title = format!("{}{place_text}: {key_text}{message}", self.file);
        let line = place.and_then(|place| Some((place, self.text.lines().nth(place.line - 1)?)));
        let Some((place, line)) = line else {
            let help = help.as_ref().map(|help| format!("\n  = help: {help}"));
            return title + &help.unwrap_or_default();
        };
        let (line, span) = quoted(line, place);
        let snippet = Snippet::source(line).line_start(place.line).annotation(AnnotationKind::Primary.span(span));
        let group = Level::ERROR.no_name().primary_title(title).element(snippet);
        let help = help.as_ref().map(|help| Level::HELP.message(help));
        Renderer::plain().term_width(WIDTH).render(&[group.elements(help)])
    }
}

/// A line of the spec as it may be printed, and the bytes of it that the place is about. A control character becomes a
/// blank: it could move the carets away from what they point at, or command the terminal.
fn quoted(line: &str, place: Position) -> (String, Range<usize>) {
    let shown: String = line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    let byte = |column: usize| shown.char_indices().nth(column).map_or(shown.len(), |(at, _)| at);
    let span = byte(place.column - 1)..byte(place.column - 1 + place.width);
    (shown, span)
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.list.iter().take(SHOWN).enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&self.render(diagnostic))?;
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
