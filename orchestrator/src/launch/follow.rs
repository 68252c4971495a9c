//! Follows the events of a step supervisor, in the orchestrator that started it or in one that took over.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::growing_file::GrowingFile;
use super::lock;
use super::plan::{StepEvent, StepPlan};

/// Maximum size of a read.
const PIECE_BYTES: u64 = 256 << 10;
/// Longer lines were not written by a supervisor.
const LONGEST_LINE: usize = 1 << 20;

/// After this many polls without an event, the supervisor's lock is checked.
const POLLS_BETWEEN_LOCK_CHECKS: u32 = 20;
/// A supervisor that was just started has this many polls to take its lock.
const POLLS_TO_BEGIN: u32 = 2_000;

/// Follows the events of one step.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    events: GrowingFile,
    /// Stays open: whether the supervisor lives does not depend on the directory, which may be away for a while.
    lock: Option<File>,
    quiet: u32,
    begun: bool,
    /// True after [`StepEvent::Done`].
    pub done: bool,
}

/// The result of a poll.
#[derive(Debug, PartialEq, Eq)]
pub enum Followed {
    /// The new events, possibly none.
    Events(Vec<StepEvent>),
    /// The supervisor ended without [`StepEvent::Done`]: the ends of its ranks are unknown.
    Orphaned,
}

impl Follower {
    /// Follows the step in a generation's directory from its first event. `begun` is true if its supervisor was not
    /// just started.
    pub fn new(directory: &Path, begun: bool) -> Self {
        let events = GrowingFile::new(StepPlan::events_in(directory), 0);
        Follower { directory: directory.to_owned(), events, lock: None, quiet: 0, begun, done: false }
    }

    /// The events since the last poll. There are none after [`StepEvent::Done`].
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn poll(&mut self) -> io::Result<Followed> {
        if self.done {
            return Ok(Followed::Events(Vec::new()));
        }
        let mut events = self.read()?;
        if events.is_empty() {
            self.quiet += 1;
            let ask =
                self.quiet.is_multiple_of(POLLS_BETWEEN_LOCK_CHECKS) && (self.begun || self.quiet > POLLS_TO_BEGIN);
            if ask && !self.is_supervised() {
                // The supervisor may have written events between our read and its end.
                events = self.read()?;
                if events.is_empty() {
                    return Ok(Followed::Orphaned);
                }
            }
        } else {
            (self.quiet, self.begun) = (0, true);
            self.open_lock();
        }
        self.done = events.contains(&StepEvent::Done);
        Ok(Followed::Events(events))
    }

    fn open_lock(&mut self) {
        if self.lock.is_none() {
            self.lock = lock::lock_file(&self.directory);
        }
    }

    fn is_supervised(&mut self) -> bool {
        self.open_lock();
        self.lock.as_ref().is_some_and(lock::is_held)
    }

    fn read(&mut self) -> io::Result<Vec<StepEvent>> {
        self.events.read(PIECE_BYTES)?;
        let complete = self.events.complete();
        let lines = self.events.rest[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
        self.events.rest.drain(..complete);
        if self.events.rest.len() > LONGEST_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of the step's events is too long"));
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::Rank;
    use holdfast_model::RankEnd;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::time::Duration;

    fn write(directory: &Path, text: &str) {
        let path = StepPlan::events_in(directory);
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn events_are_returned_once_and_incomplete_lines_later() {
        let base = tempfile::tempdir().unwrap();
        let mut follower = Follower::new(base.path(), false);
        write(base.path(), "{\"event\":\"supervisor\",\"pid\":7}\n{\"event\":\"exited\",\"rank\":1,");
        assert_eq!(follower.poll().unwrap(), Followed::Events(vec![StepEvent::Supervisor { pid: 7 }]));
        write(base.path(), "\"end\":{\"code\":3}}\n{\"event\":\"done\"}\n");
        let exited = StepEvent::Exited { rank: Rank(1), end: RankEnd::Code(3) };
        assert_eq!(follower.poll().unwrap(), Followed::Events(vec![exited, StepEvent::Done]));
        assert_eq!(follower.poll().unwrap(), Followed::Events(vec![]));
    }

    #[test]
    fn a_supervisor_that_ended_without_done_is_detected() {
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "{\"event\":\"supervisor\",\"pid\":7}\n");
        let mut follower = Follower::new(base.path(), false);
        follower.poll().unwrap();
        let polls = (0..POLLS_BETWEEN_LOCK_CHECKS).map(|_| follower.poll().unwrap());
        assert_eq!(polls.last(), Some(Followed::Orphaned));
    }

    #[test]
    fn a_supervisor_is_followed_while_its_directory_is_away() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("generation");
        std::fs::create_dir(&directory).unwrap();
        let lock = std::fs::File::create(StepPlan::lock_in(&directory)).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        write(&directory, "{\"event\":\"supervisor\",\"pid\":7}\n");
        let mut follower = Follower::new(&directory, false);
        follower.poll().unwrap();
        let away = base.path().join("away");
        std::fs::rename(&directory, &away).unwrap();
        let mut polls = || (0..POLLS_BETWEEN_LOCK_CHECKS).map(|_| follower.poll().unwrap()).last();
        assert_eq!(polls(), Some(Followed::Events(Vec::new())));
        assert_eq!(polls(), Some(Followed::Events(Vec::new())));
        write(&away, "{\"event\":\"exited\",\"rank\":1,\"end\":{\"code\":3}}\n");
        let exited = StepEvent::Exited { rank: Rank(1), end: RankEnd::Code(3) };
        assert_eq!(follower.poll().unwrap(), Followed::Events(vec![exited]));
        drop(lock);
        // A process that another test starts at this moment has the lock too, until it runs its program.
        let is_orphaned = |_| {
            std::thread::sleep(Duration::from_millis(1));
            follower.poll().unwrap() == Followed::Orphaned
        };
        assert!((0..10_000).any(is_orphaned));
    }

    #[test]
    fn an_invalid_line_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "garbage\n");
        assert!(Follower::new(base.path(), true).poll().is_err());
    }
}
