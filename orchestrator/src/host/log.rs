//! The end of a log file, which explains why a process did not start.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use holdfast_core::state_files;

/// Maximum size of the end that is read.
const LOG_TAIL: u64 = 64 << 10;

/// The last line after the first `after` bytes that is not empty and that `counts`.
pub(crate) fn last_line(log: &Path, after: u64, counts: impl Fn(&str) -> bool) -> Option<String> {
    let text = tail(log, after)?;
    text.lines().map(str::trim).rfind(|line| !line.is_empty() && counts(line)).map(str::to_owned)
}

/// Lines of a program's output that are quoted, and what is read for them.
const LINES_QUOTED: usize = 5;
const BYTES_QUOTED: u64 = 4096;

/// The end of a log, without its first `after` bytes.
pub(crate) fn tail(log: &Path, after: u64) -> Option<String> {
    end_of(state_files::open(log).ok()??, after, LOG_TAIL).ok()
}

/// The last lines of the output of a program, with control characters replaced; `None` without the file.
pub(crate) fn last_lines(path: &Path) -> Option<Vec<String>> {
    let text = end_of(state_files::open(path).ok()??, 0, BYTES_QUOTED).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let escaped = |line: &&str| line.replace(char::is_control, "\u{fffd}");
    Some(lines.iter().skip(lines.len().saturating_sub(LINES_QUOTED)).map(escaped).collect())
}

/// The last `most` bytes of a file, without its first `after` bytes.
pub(crate) fn end_of(mut file: File, after: u64, most: u64) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most).max(after)))?;
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_last_line_that_counts() {
        let base = tempfile::tempdir().unwrap();
        let log = base.path().join("log");
        assert_eq!(last_line(&log, 0, |_| true), None);
        std::fs::write(&log, "first\nsrun: error: n3: task 2: Exited\nsrun: a note\n\n").unwrap();
        assert_eq!(last_line(&log, 0, |_| true).as_deref(), Some("srun: a note"));
        let error = last_line(&log, 0, |line| line.contains("error"));
        assert_eq!(error.as_deref(), Some("srun: error: n3: task 2: Exited"));
        assert_eq!(last_line(&log, 7, |line| line.contains("first")), None, "that line is of an earlier agent");
    }
}
