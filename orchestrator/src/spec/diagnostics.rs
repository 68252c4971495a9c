//! Mistakes in a spec: file, position, key, what was expected, and how to write it instead.
//!
//! A spec is read to its end first, so that all mistakes are reported at once.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// A position in the spec. Lines and columns start at 1; columns are in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
    /// Characters to underline, at least 1.
    pub width: usize,
}

impl Position {
    /// The beginning of the file, where a missing key of the root is reported.
    pub const START: Position = Position { line: 1, column: 1, width: 1 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `None` if the mistake is not in the file.
    pub place: Option<Position>,
    /// The key path (`checkpoint.redundancy[0].set_size`); empty for the entire file.
    pub key: String,
    /// What is wrong, as a sentence without its full stop.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// The mistakes in one spec, sorted by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The name as the user wrote it.
    pub file: String,
    /// The spec, for the lines that are quoted under a message.
    text: String,
    list: Vec<Diagnostic>,
}

/// Longer lines are cut around the position.
const WIDTH: usize = 140;

/// At most this many are shown: a file with more mistakes is not a job spec.
const SHOWN: usize = 50;

impl Diagnostics {
    /// Sorts the mistakes by position.
    pub(super) fn new(file: &str, text: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|diagnostic| diagnostic.place);
        list.dedup();
        Diagnostics { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// A mistake that concerns the entire file, such as a file that cannot be read.
    pub(super) fn of_file(file: &str, message: String, help: impl Into<String>) -> Self {
        let one = Diagnostic { place: None, key: String::new(), message, help: Some(help.into()) };
        Diagnostics { file: file.to_owned(), text: String::new(), list: vec![one] }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// The number of mistakes, at least one.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The first line can be parsed by editors: file, line, column, key, message.
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

/// A line of the spec made safe to print, and the byte range of the position in it. Control characters become blanks:
/// they could misplace the carets or send commands to the terminal.
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

/// The candidate nearest to `written`, if it is near enough to be a misspelling.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len().max(lower.len()) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
