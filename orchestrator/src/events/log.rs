//! `<prefix>/.holdfast/events.jsonl`: one JSON line an event, with schema version, time, job, name and fields.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, SystemTime};

use holdfast_core::owned::Access;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::fields;
use super::vocabulary::LogEvent;

/// The event log's name below `.holdfast`.
pub const FILE: &str = "events.jsonl";

/// The schema version of the lines: `major.minor`. A new minor version adds events or fields; a new major version may
/// change everything except the name of this field, `v`.
pub const SCHEMA: &str = "1.20";

/// Maximum number of lines that wait to be written: several times those of a relaunch of thousands of nodes.
const WAITING_LINES: usize = 1 << 17;
/// Size of a write.
const WRITTEN_AT_ONCE: usize = 1 << 20;
/// Time limit for writing the remaining lines at the end.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// The open event log. A separate thread writes the lines in their order, so that logging never waits for a file
/// system. If too many lines wait, further ones are lost, and counted. On drop, it waits a limited time for the
/// remaining lines.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    job: String,
    lines: Option<SyncSender<Vec<u8>>>,
    closed: Receiver<()>,
    /// Lines lost since the last one that was accepted.
    lost: u64,
}

/// The writer thread's state.
struct Lines {
    path: PathBuf,
    file: File,
    failed: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    v: &'static str,
    #[serde(with = "rfc3339")]
    time: Timestamp,
    job: &'a str,
    #[serde(flatten, serialize_with = "fields::serialize")]
    event: &'a LogEvent,
}

/// An event as a line of the log has it.
pub fn line<'a>(time: Timestamp, job: &'a str, event: &'a LogEvent) -> impl Serialize + 'a {
    Line { v: SCHEMA, time, job, event }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Record {
    /// With a precision of milliseconds.
    #[serde(with = "rfc3339")]
    pub time: Timestamp,
    pub job: String,
    #[serde(flatten, with = "fields")]
    pub event: LogEvent,
}

impl EventLog {
    /// Opens the log of a job in a `.holdfast` directory for appending, and gives it the mode for this access. A last
    /// line that a crash cut off is terminated, so that it does not affect the next one.
    ///
    /// # Errors
    /// Those of opening the file; it is refused if it is not ours.
    pub fn open(directory: &Path, job: &str, access: Access) -> io::Result<Self> {
        let path = directory.join(FILE);
        let mut file = state_files::append_for(&path, access)?;
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        EventLog::writing_to(file, path, job)
    }

    /// Opens the log of the job in a prefix directory; `None` without access: the job writes none.
    ///
    /// # Errors
    /// Those of [`EventLog::open`].
    pub fn in_state_of(prefix: &Path, job: &str, access: Option<Access>) -> io::Result<Option<Self>> {
        access.map(|access| EventLog::open(StateDirectory::below(prefix).path(), job, access)).transpose()
    }

    /// The log in an open file, with the thread that writes it.
    fn writing_to(file: File, path: PathBuf, job: &str) -> io::Result<Self> {
        let (lines, received) = mpsc::sync_channel::<Vec<u8>>(WAITING_LINES);
        let (close, closed) = mpsc::channel();
        let mut writer = Lines { path: path.clone(), file, failed: false };
        std::thread::Builder::new().name("event-log".to_owned()).spawn(move || {
            while let Ok(mut text) = received.recv() {
                while text.len() < WRITTEN_AT_ONCE
                    && let Ok(line) = received.try_recv()
                {
                    text.extend(line);
                }
                writer.write(&text);
            }
            // The receiver may have reached its time limit.
            let _ = close.send(());
        })?;
        Ok(EventLog { path, job: job.to_owned(), lines: Some(lines), closed, lost: 0 })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues an event for writing.
    pub fn write(&mut self, event: &LogEvent) {
        let line = line(SystemTime::now().into(), &self.job, event);
        let line = serde_json::to_vec(&line).map(|mut line| {
            line.push(b'\n');
            line
        });
        match (line, &self.lines) {
            (Ok(line), Some(lines)) => match lines.try_send(line) {
                Ok(()) if self.lost > 0 => {
                    tracing::warn!(path = %self.path.display(), lost = self.lost, "events were lost");
                    self.lost = 0;
                }
                Ok(()) => {}
                Err(_) => self.lost += 1,
            },
            (Ok(_), None) => {}
            (Err(error), _) => tracing::warn!(%error, "cannot serialise an event for the event log"),
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Err(RecvTimeoutError::Timeout) = self.closed.recv_timeout(CLOSED_WITHIN) {
            let path = self.path.display();
            tracing::warn!(%path, "cannot write to the event log in time; its last lines are lost");
        }
        if self.lost > 0 {
            tracing::warn!(path = %self.path.display(), lost = self.lost, "events were lost");
        }
    }
}

impl Lines {
    /// Writes lines in one write. An error (disk full) must not stop the job: it is reported once.
    fn write(&mut self, text: &[u8]) {
        match self.file.write_all(text) {
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
        let time = time.ok_or_else(|| ser::Error::custom("the time is out of range"))?;
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
    fn logging_does_not_wait_for_a_file_that_accepts_nothing_and_the_end_waits_for_a_limited_time() {
        let (_reader, writer) = io::pipe().unwrap();
        let fill = writer.try_clone().unwrap();
        rustix::fs::fcntl_setfl(&fill, rustix::fs::OFlags::NONBLOCK).unwrap();
        while rustix::io::write(&fill, &[b' '; 4096]).is_ok() {}
        rustix::fs::fcntl_setfl(&fill, rustix::fs::OFlags::empty()).unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let mut event_log = EventLog::writing_to(file, PathBuf::from("events.jsonl"), "heat").unwrap();
        for _ in 0..2 * WAITING_LINES {
            event_log.write(&LogEvent::HaltSet { reason: String::new() });
        }
        assert!(event_log.lost > 0);
        drop(event_log);
    }

    #[test]
    fn each_event_is_one_line_with_version_time_job_and_name_also_after_an_incomplete_line() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join(FILE), "{\"time\":\"cut o").unwrap();
        let mut event_log = EventLog::open(base.path(), "heat", Access::Private).unwrap();
        event_log.write(&LogEvent::HaltSet { reason: "a\nb".to_owned() });
        let path = event_log.path().to_owned();
        drop(event_log);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let event: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!((&event["v"], &event["job"], &event["event"]), (&SCHEMA.into(), &"heat".into(), &"halt_set".into()));
        assert_eq!(event["reason"], "a\nb");
        assert!(chrono::DateTime::parse_from_rfc3339(event["time"].as_str().unwrap()).is_ok());
    }
}
