//! Comparison of the program's output with the files in `snapshots/`. The values that differ from run to run are
//! replaced.
//!
//! After an intended change, `INSTA_UPDATE=always cargo test -p holdfast --test cli --test e2e snapshots` updates the
//! files.

use std::fs;
use std::path::Path;

use insta::{Settings, assert_snapshot};

/// Values that differ from run to run, and their replacements.
const CHANGING: [(&str, &str); 9] = [
    (r"\(\d+\.\d %\)", "([percent])"),
    // Any process of the machine may cause an event: unauthenticated connections are reported.
    (r"last event, .*", "last event, [event]"),
    (r"\b\d{14}-\d+", "[job]"),
    (r"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "[timestamp]"),
    (r"\b\d\d:\d\d:\d\d(\.\d+)?", "[time]"),
    (r"\b\d+(\.\d+)? (ms|s|min|h)\b", "[duration]"),
    (r"\b\d+(\.\d+)? [KMG]?i?B/s", "[speed]"),
    (r#""(seconds|pid|at|ms|\w+_ms|\w*millis|\w+_permille|after|orchestrator)": ?\d+(\.\d+)?"#, r#""$1": [number]"#),
    (r"pid \d+", "pid [number]"),
];

/// Compares with the snapshot of this name; `directory` is replaced.
pub fn assert_matches(directory: &Path, name: &str, output: &str) {
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    // The longer form first: temporary directories may be reached through a link.
    settings.add_filter(&regex_of(&fs::canonicalize(directory).unwrap()), "[dir]");
    settings.add_filter(&regex_of(directory), "[dir]");
    for (pattern, replacement) in CHANGING {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| assert_snapshot!(name, output));
}

fn regex_of(path: &Path) -> String {
    path.to_str().unwrap().replace('.', r"\.")
}
