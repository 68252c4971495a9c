//! What a log says last: why something that did not come up did not.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Read of a log's end.
const LOG_TAIL: u64 = 64 << 10;

/// The last thing that was said in a log behind its first so many bytes, of what counts.
pub(crate) fn last_line(log: &Path, after: u64, counts: impl Fn(&str) -> bool) -> Option<String> {
    let text = tail(log, after)?;
    text.lines().map(str::trim).rfind(|line| !line.is_empty() && counts(line)).map(str::to_owned)
}

/// The end of a log, behind its first so many bytes.
pub(crate) fn tail(log: &Path, after: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
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
    fn the_last_thing_said_is_what_explains_a_failure() {
        let base = tempfile::tempdir().unwrap();
        let log = base.path().join("log");
        assert_eq!(last_line(&log, 0, |_| true), None);
        std::fs::write(&log, "first\nsrun: error: n3: task 2: Exited\nsrun: a remark\n\n").unwrap();
        assert_eq!(last_line(&log, 0, |_| true).as_deref(), Some("srun: a remark"));
        let error = last_line(&log, 0, |line| line.contains("error"));
        assert_eq!(error.as_deref(), Some("srun: error: n3: task 2: Exited"));
        assert_eq!(last_line(&log, 7, |line| line.contains("first")), None, "an earlier agent said that");
    }
}
