//! `<prefix>/.holdfast/events.jsonl`: one JSON line an event, with the version of the schema, time, job, name and fields.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::LogEvent;

/// The event log's name below `.holdfast`.
pub const FILE: &str = "events.jsonl";

/// The schema of the lines that are written: `major.minor`. A new minor version has new events or fields; a new major
/// version may change everything but this field's own name, `v`.
pub const SCHEMA: &str = "1.0";

/// The open event log.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    job: String,
    file: File,
    failed: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    v: &'static str,
    #[serde(with = "rfc3339")]
    time: Timestamp,
    job: &'a str,
    #[serde(flatten)]
    event: &'a LogEvent,
}

/// A line of the log that was read back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Record {
    /// When it happened, to the millisecond.
    #[serde(with = "rfc3339")]
    pub time: Timestamp,
    /// The job's name.
    pub job: String,
    /// What happened.
    #[serde(flatten)]
    pub event: LogEvent,
}

impl Journal {
    /// Opens the log of a job in a `.holdfast` directory, to add to what is there. A last line that a crash cut off is
    /// ended, so that it spoils only itself.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(directory: &Path, job: &str) -> io::Result<Self> {
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
        Ok(Journal { path, job: job.to_owned(), file, failed: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one event, in one write. A log that cannot be written to (disk full) must not stop the job: it is
    /// reported once.
    pub fn write(&mut self, event: &LogEvent) {
        let line = Line { v: SCHEMA, time: SystemTime::now().into(), job: &self.job, event };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
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

/// Points in time as text, in UTC: `2026-11-21T23:00:00.000Z`.
mod rfc3339 {
    use chrono::{DateTime, SecondsFormat, Utc};
    use holdfast_model::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de, ser};

    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        let time = DateTime::<Utc>::from_timestamp_millis(time.millis());
        let time = time.ok_or_else(|| ser::Error::custom("a time that no calendar has"))?;
        serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = DateTime::parse_from_rfc3339(&text).map_err(de::Error::custom)?;
        Ok(Timestamp::from_millis(time.timestamp_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_line_with_version_time_job_and_name_and_a_broken_line_spoils_only_itself() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join(FILE), "{\"time\":\"cut o").unwrap();
        let mut journal = Journal::open(base.path(), "heat").unwrap();
        journal.write(&LogEvent::HaltSet { reason: "a\nb".to_owned() });
        let text = std::fs::read_to_string(journal.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let event: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!((&event["v"], &event["job"], &event["event"]), (&"1.0".into(), &"heat".into(), &"halt_set".into()));
        assert_eq!(event["reason"], "a\nb");
        assert!(chrono::DateTime::parse_from_rfc3339(event["time"].as_str().unwrap()).is_ok());
    }
}
