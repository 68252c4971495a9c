//! The end of a log file, which explains why a process did not start.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::own_files;

/// Maximum size of the end that is read.
const LOG_TAIL: u64 = 64 << 10;

/// The last line after the first `after` bytes that is not empty and that `counts`.
pub(crate) fn last_line(log: &Path, after: u64, counts: impl Fn(&str) -> bool) -> Option<String> {
    let text = tail(log, after)?;
    text.lines().map(str::trim).rfind(|line| !line.is_empty() && counts(line)).map(str::to_owned)
}

/// The end of a log, without its first `after` bytes.
pub(crate) fn tail(log: &Path, after: u64) -> Option<String> {
    let mut file = own_files::open(log).ok()??;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL).max(after))).ok()?;
    let mut text = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
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
