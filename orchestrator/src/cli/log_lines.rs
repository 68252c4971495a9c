//! The lines of the internal log: `2026-11-26 07:41:22.123 INFO holdfast_agent::daemon: ready node=n3 address=…`.
//!
//! In local time, as the lines on the screen. A value with blanks has quotes; control characters are escaped, because
//! values come from files and the network.

use std::fmt::{self, Debug, Write as _};

use chrono::Local;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::output::printable;
use crate::events::screen::LINE_TIME;

/// Writes an event as a line.
pub(super) struct LogLines;

impl<S, N> FormatEvent<S, N> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let Fields { message, others } = fields;
        writeln!(to, "{} {level} {target}: {message}{others}", Local::now().format(LINE_TIME))
    }
}

/// The message of an event, and ` name=value` for each of its other fields.
#[derive(Debug, Default, PartialEq)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn add(&mut self, name: &str, value: &str) {
        let plain = printable(value);
        // Writing to a string cannot fail.
        let _ = match (name, value.contains([' ', '"', '='])) {
            ("message", _) => write!(self.message, "{plain}"),
            (_, true) => write!(self.others, " {name}=\"{}\"", plain.replace('"', "\\\"")),
            (_, false) => write!(self.others, " {name}={plain}"),
        };
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    /// Numbers, and values that the macros of `tracing` format.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_plain_unless_they_have_blanks() {
        let mut fields = Fields::default();
        fields.add("message", "not written");
        fields.add("node", "n3");
        fields.add("error", "no \"such\" file");
        fields.add("line", "a\u{1b}[0mb\nc");
        assert_eq!(fields.message, "not written");
        assert_eq!(fields.others, r#" node=n3 error="no \"such\" file" line=a\u{1b}[0mb\nc"#);
    }
}
