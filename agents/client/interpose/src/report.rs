//! Messages of the library.

use std::io::Write as _;

/// Prints to standard error; errors are ignored, because it may be closed.
pub fn report(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "libscr_interpose: {text}");
}
