//! Reading the event log back.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use holdfast_core::owned::{Access, OwnedDirectory, OwnedError};
use holdfast_core::state_files;
use serde::Deserialize;
use serde_json::Value;

use super::log::{FILE, Record, SCHEMA};
use super::vocabulary;

/// Maximum length: the longest line names all nodes and ranks of a generation.
const LONGEST_LINE: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the event log {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A line with an unsupported schema version.
    #[error(
        "{}:{line}: the event has schema version {found}, and this version of Holdfast reads {SCHEMA}; \
        use the version of Holdfast that wrote the log",
        path.display()
    )]
    Version {
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// `none` if the line has no version.
        found: String,
    },
    /// An event that is not in the schema version of its line, or lacks a required field.
    #[error("{}:{line}: {problem}; the line was not written by Holdfast: repair or remove it", path.display())]
    Event {
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        problem: serde_json::Error,
    },
}

/// The events of a log, oldest first. Skips lines that are not JSON, because a crash cut them off, and events that a
/// newer minor version of the schema added.
#[derive(Debug)]
pub struct Reader<R> {
    path: PathBuf,
    lines: R,
    line: u64,
    left_out: &'static [&'static str],
}

/// What is read of each line first.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    v: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
}

impl Reader<BufReader<File>> {
    /// Opens the log in a `.holdfast` directory; `None` if there is none.
    ///
    /// # Errors
    /// Those of opening the file; it is refused if it is not ours.
    pub fn open(directory: &Path) -> Result<Option<Self>, ReadError> {
        let path = directory.join(FILE);
        Self::of(state_files::open(&path), path)
    }

    /// As [`open`](Self::open), in a directory that is open.
    ///
    /// # Errors
    /// Those of opening the file; it is refused if it does not belong to the directory's owner.
    pub fn open_in(directory: &OwnedDirectory) -> Result<Option<Self>, ReadError> {
        Self::of(directory.open_file(FILE, Access::Readable), directory.path().join(FILE))
    }

    fn of(opened: Result<Option<File>, OwnedError>, path: PathBuf) -> Result<Option<Self>, ReadError> {
        match opened {
            Ok(file) => Ok(file.map(|file| Reader { path, lines: BufReader::new(file), line: 0, left_out: &[] })),
            Err(error) => Err(ReadError::File { path, source: error.into() }),
        }
    }
}

impl<R: BufRead> Reader<R> {
    /// Leaves out the events with these names: those of processes are most of the log of a large job.
    pub fn without(self, names: &'static [&'static str]) -> Self {
        Reader { left_out: names, ..self }
    }

    /// The event of a line; `None` if the line is skipped.
    fn record(&self, text: &[u8]) -> Result<Option<Record>, ReadError> {
        let head: Option<Head<'_>> = serde_json::from_slice(text).ok();
        let is_left_out = |head: &Head<'_>| {
            let (v, name) = (head.v.as_deref().unwrap_or_default(), head.event.as_deref().unwrap_or_default());
            self.left_out.contains(&name) && version(v).map(|(major, _)| major) == version(SCHEMA).map(|(own, _)| own)
        };
        if head.as_ref().is_some_and(is_left_out) {
            return Ok(None);
        }
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return Ok(None) };
        let (path, line) = (&self.path, self.line);
        let unsupported = |found: &str| ReadError::Version { path: path.clone(), line, found: found.to_owned() };
        let found = value["v"].as_str().ok_or_else(|| unsupported("none"))?;
        let (major, minor) = version(found).ok_or_else(|| unsupported(found))?;
        let (own_major, own_minor) = version(SCHEMA).ok_or_else(|| unsupported(SCHEMA))?;
        if major != own_major {
            return Err(unsupported(found));
        }
        let is_known = value["event"].as_str().is_some_and(vocabulary::is_known);
        if !is_known && minor > own_minor {
            return Ok(None);
        }
        let event = |problem| ReadError::Event { path: path.clone(), line, problem };
        serde_json::from_value(value).map(Some).map_err(event)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = Vec::new();
            self.line += 1;
            match self.lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(source) => return Some(Err(ReadError::File { path: self.path.clone(), source })),
            }
            match self.record(&text) {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// `1.0` as numbers.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use holdfast_model::pair::PairChange;
    use holdfast_model::{CheckpointId, Generation, Rank, RankEnd, RestartSource, Timestamp};
    use holdfast_wire::agent::AgentEvent;

    use super::*;
    use crate::events::{DownReason, DrainResult, EndCause, EventLog, LogEvent, StopReason};

    fn read(text: &str) -> Result<Vec<LogEvent>, ReadError> {
        let reader = Reader { path: "events.jsonl".into(), lines: text.as_bytes(), line: 0, left_out: &[] };
        reader.map(|record| record.map(|record| record.event)).collect()
    }

    fn line(version: &str, rest: &str) -> String {
        format!("{{\"v\":\"{version}\",\"time\":\"2026-11-21T23:00:00.000Z\",\"job\":\"heat\",{rest}}}\n")
    }

    #[test]
    fn written_events_are_read_back() {
        let base = tempfile::tempdir().unwrap();
        let mut event_log = EventLog::open(base.path(), "heat", Access::Private).unwrap();
        let (generation, checkpoint) = (Generation(2), CheckpointId(7));
        let application = EndCause::Application { rank: Some(Rank(3)), end: RankEnd::Signal(9) };
        let events = [
            LogEvent::JobStarted {
                job_id: "17".to_owned(),
                nodes: vec!["n1".into()],
                prefix: "/p".into(),
                virtual_nodes: false,
            },
            LogEvent::NodeDown {
                node: "n1".into(),
                reason: DownReason::AgentSilent { reason: "a".to_owned(), restart: "b".to_owned() },
                ranks: vec![Rank(1)],
            },
            LogEvent::of_agent(
                &"n1".into(),
                AgentEvent::Restarted {
                    generation,
                    checkpoint: Some(checkpoint),
                    protected: Some(true),
                    source: RestartSource::Rebuilt,
                    written_by: None,
                    rebuilt: vec![Rank(0)],
                    moved: Vec::new(),
                    millis: 4,
                },
            ),
            LogEvent::of_agent(
                &"n1".into(),
                AgentEvent::Pair {
                    name: "dnn1".to_owned(),
                    at: Timestamp::from_millis(5),
                    change: PairChange::FailBack { checkpoint: 7, micros: 120 },
                },
            ),
            LogEvent::RankFailed { generation, rank: Rank(3), node: None, end: RankEnd::Code(-1) },
            LogEvent::GenerationEnded {
                generation,
                cause: application.clone(),
                newest: None,
                without_progress: 1,
                progress: None,
            },
            LogEvent::GenerationEnded {
                generation,
                cause: EndCause::Finalized,
                newest: None,
                without_progress: 0,
                progress: None,
            },
            LogEvent::Stopping { reason: StopReason::AttemptsUsed { attempts: 5, last: application } },
            LogEvent::HaltCleared,
            LogEvent::Drained {
                result: DrainResult::Incomplete {
                    checkpoint,
                    reason: "two members".to_owned(),
                    unwritable: false,
                    older: None,
                },
            },
            LogEvent::AllocationEndChanged { end: None },
        ];
        events.iter().for_each(|event| event_log.write(event));
        drop(event_log);
        let records: Vec<Record> = Reader::open(base.path()).unwrap().unwrap().map(Result::unwrap).collect();
        assert!(records.iter().all(|record| record.job == "heat"));
        assert_eq!(records.into_iter().map(|record| record.event).collect::<Vec<_>>(), events);
        assert!(Reader::open(&base.path().join("missing")).unwrap().is_none());
    }

    #[test]
    fn events_and_fields_of_a_newer_minor_version_are_skipped() {
        let text = line("1.999", "\"event\":\"coffee\",\"cups\":3")
            + &line("1.999", "\"event\":\"halt_set\",\"reason\":\"why\",\"by\":\"anna\"");
        assert_eq!(read(&text).unwrap(), [LogEvent::HaltSet { reason: "why".to_owned() }]);
    }

    #[test]
    fn a_command_s_key_is_absent_in_logs_of_version_1_0() {
        let rest = "\"event\":\"site_command\",\"program\":\"sh\",\"nodes\":[\"n1\"],\"failure\":null";
        let expected = LogEvent::SiteCommand {
            key: None,
            program: "sh".to_owned(),
            nodes: vec!["n1".into()],
            failure: None,
            output: None,
        };
        assert_eq!(read(&line("1.0", rest)).unwrap(), [expected]);
    }

    #[test]
    fn other_major_versions_are_refused_with_their_line() {
        let known = line("1.0", "\"event\":\"halt_cleared\"");
        for (foreign, found) in [
            (line("2.0", "\"event\":\"halt_cleared\""), "version 2.0"),
            (line("new", "\"event\":\"halt_cleared\""), "version new"),
            ("{\"time\":\"2026-11-21T23:00:00.000Z\",\"event\":\"halt_cleared\"}\n".to_owned(), "version none"),
        ] {
            let error = read(&(known.clone() + &foreign)).unwrap_err().to_string();
            assert!(error.contains("events.jsonl:2: ") && error.contains(found), "{error}");
            assert!(error.contains(&format!("reads {SCHEMA}; use the version")), "{error}");
        }
    }

    #[test]
    fn an_event_that_is_not_in_its_version_is_an_error_and_an_incomplete_line_is_not() {
        let error = read(&line(SCHEMA, "\"event\":\"coffee\"")).unwrap_err().to_string();
        assert!(error.contains("events.jsonl:1: ") && error.contains("coffee"), "{error}");
        let error = read(&line("1.0", "\"event\":\"halt_set\"")).unwrap_err().to_string();
        assert!(error.contains("missing field `reason`"), "{error}");
        let error = read(&line("1.6", "\"event\":\"rank_gone\",\"node\":\"n1\",\"rank\":1")).unwrap_err().to_string();
        assert!(error.contains("missing field `generation`"), "{error}");
        let complete = line("1.0", "\"event\":\"halt_cleared\"");
        let text = format!("{}\n{complete}{}", &complete[..30], &complete[..40]);
        assert_eq!(read(&text).unwrap(), [LogEvent::HaltCleared]);
    }

    #[test]
    fn events_that_are_left_out_are_not_read_but_those_of_other_versions_are_refused() {
        let line = |version: &str, event: &str| format!(r#"{{"v":"{version}","event":"{event}"}}"#) + "\n";
        let left_out = |text: String| {
            let text = text.as_bytes();
            let reader = Reader { path: "events.jsonl".into(), lines: text, line: 0, left_out: &[] };
            reader.without(&["rank_gone"]).map(|record| record.map(drop).map_err(|error| error.to_string())).collect()
        };
        let read: Result<Vec<()>, String> = left_out(line(SCHEMA, "rank_gone") + &line("1.999", "rank_gone"));
        assert_eq!(read, Ok(Vec::new()), "these lines have not even a time");
        let refused: Result<Vec<()>, String> = left_out(line(SCHEMA, "rank_gone") + &line("2.0", "rank_gone"));
        assert!(refused.is_err_and(|error| error.starts_with("events.jsonl:2: the event has schema version 2.0")));
    }
}
