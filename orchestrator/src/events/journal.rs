//! `<prefix>/.holdfast/events.jsonl`: one JSON line an event, with its time, a stable name and fields.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use super::Entry;

/// The event log's name below `.holdfast`.
pub const FILE: &str = "events.jsonl";

/// The open event log.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    failed: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Journal {
    /// Opens the log in a `.holdfast` directory, to go on with what is there. A last line that a crash cut off is
    /// ended, so that it spoils only itself.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE);
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Journal { path, file, failed: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one event, in one write. A log that cannot be written to (disk full) must not stop the job: it is told
    /// once.
    pub fn write(&mut self, entry: &Entry) {
        let time = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let written = serde_json::to_vec(&Line { time, entry }).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)
        });
        match written {
            Ok(()) => self.failed = false,
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::warn!(path = %self.path.display(), %error, "cannot write to the event log");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::OwnEvent;

    #[test]
    fn each_event_is_one_line_with_time_and_name_and_a_broken_line_spoils_only_itself() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join(FILE), "{\"time\":\"cut o").unwrap();
        let mut journal = Journal::open(base.path()).unwrap();
        journal.write(&Entry::Own(OwnEvent::Remark { message: "a\nb".to_owned() }));
        let text = std::fs::read_to_string(journal.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let event: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(event["event"], "remark");
        assert_eq!(event["message"], "a\nb");
        assert!(chrono::DateTime::parse_from_rfc3339(event["time"].as_str().unwrap()).is_ok());
    }
}
