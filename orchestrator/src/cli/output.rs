//! The output of commands: text, JSON (`--json`), or nothing (`--quiet`).
//!
//! Results go to standard output, everything else to standard error, so that a pipe gets results only. With `--json`,
//! standard output is exactly one document: `{"version": 2, …}` with the fields in `schemas/documents.yaml`, which
//! `holdfast schema` prints; for a failure it is that of `holdfast schema error`.

use std::io::{self, BufWriter, Write};

use serde_json::Value;

use crate::events::screen::escaped;

/// The version of every JSON document; a change that could break a script raises it.
pub const JSON_VERSION: u32 = 2;

/// A result of a command.
pub trait Report {
    /// Writes the result as text.
    fn human(&self, to: &mut dyn Write) -> io::Result<()>;

    /// The entire JSON document; see [`document`].
    fn json(&self) -> Value;

    /// Writes the JSON document. A report that is much larger than its data writes it piece by piece.
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer_pretty(to, &self.json())?)
    }
}

/// A small result, without a type of its own.
struct SmallReport<H> {
    json: Value,
    human: H,
}

/// A result with these JSON fields, and a function that writes it as text.
pub fn report(fields: Value, human: impl Fn(&mut dyn Write) -> io::Result<()>) -> impl Report {
    SmallReport { json: document(fields), human }
}

impl<H: Fn(&mut dyn Write) -> io::Result<()>> Report for SmallReport<H> {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        (self.human)(to)
    }

    fn json(&self) -> Value {
        self.json.clone()
    }
}

/// The output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Human {
        /// With details.
        verbose: bool,
    },
    Json {
        /// With details.
        verbose: bool,
        /// Nothing but the document, warnings and errors.
        quiet: bool,
    },
    /// Nothing but warnings and errors.
    Quiet,
}

impl Style {
    /// Writes a result in this style.
    pub fn write(self, report: &dyn Report, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Style::Human { .. } => report.human(to),
            Style::Json { .. } => {
                report.write_json(to)?;
                to.write_all(b"\n")
            }
            Style::Quiet => Ok(()),
        }
    }

    /// Prints the result, once per command.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn result(self, report: &dyn Report) -> io::Result<()> {
        let mut to = BufWriter::new(io::stdout().lock());
        self.write(report, &mut to)?;
        to.flush()
    }

    /// Reports damage in a printed result to standard error.
    pub fn report_damage(self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// True if nothing but the result, warnings and errors is shown.
    pub fn is_quiet(self) -> bool {
        matches!(self, Style::Quiet | Style::Json { quiet: true, .. })
    }

    /// True if progress may be shown on standard error.
    pub fn shows_progress(self) -> bool {
        !self.is_quiet()
    }

    /// Prints a warning, also with `--quiet`.
    pub fn warn(self, text: &str) {
        // If standard error is closed, there is nowhere to report that.
        let _ = writeln!(io::stderr(), "warning: {text}");
    }
}

/// A JSON document: the version, followed by `fields`, which must be an object.
pub fn document(fields: Value) -> Value {
    let mut document = serde_json::Map::new();
    document.insert("version".to_owned(), JSON_VERSION.into());
    match fields {
        Value::Object(fields) => document.extend(fields),
        other => {
            document.insert("value".to_owned(), other);
        }
    }
    Value::Object(document)
}

/// Text from a file or the network made safe for a terminal: control characters are escaped.
pub fn printable(text: &str) -> String {
    escaped(text, char::is_control)
}

/// [`printable`] for a text of several lines, which may contain tabs.
pub fn printable_text(text: &str) -> String {
    escaped(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// Writes lines as [`printable_text`].
pub struct PrintableLines<'a> {
    to: &'a mut dyn Write,
    line: Vec<u8>,
}

impl<'a> PrintableLines<'a> {
    /// Writes lines to `to`; [`PrintableLines::finish`] writes the last one.
    pub fn new(to: &'a mut dyn Write) -> PrintableLines<'a> {
        PrintableLines { to, line: Vec::new() }
    }

    /// Writes a last line without a line end.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn finish(mut self) -> io::Result<()> {
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.to.write_all(printable_text(&String::from_utf8_lossy(&self.line)).as_bytes())?;
        self.line.clear();
        Ok(())
    }
}

impl Write for PrintableLines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(line);
            if line.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
