//! A signal has the program write its files: `checkpoint.command.signal`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use holdfast_model::CheckpointId;
use rustix::process::Signal;

use crate::error::{SaveError, Stage};
use crate::files;
use crate::program::Program;
use crate::saver::Saver;
use crate::settings::Until;

const LOOKED_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct SignalSaver {
    signal: Signal,
    until: Until,
    timeout: Duration,
    /// Signals for which the program may still write files. One that it has missed stays among them.
    unanswered: u32,
    /// What was in the directory when the last signal was sent, or when the files for one were complete.
    known: Listing,
}

/// What shows that a file changes.
type Listing = Vec<(OsString, u64, Option<SystemTime>)>;

/// The signal of this name, with or without `SIG`, or of this number.
pub fn signal_of(text: &str) -> Result<Signal, SaveError> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let named = match name {
        "HUP" => Some(Signal::HUP),
        "INT" => Some(Signal::INT),
        "QUIT" => Some(Signal::QUIT),
        "USR1" => Some(Signal::USR1),
        "USR2" => Some(Signal::USR2),
        "ALRM" => Some(Signal::ALARM),
        "TERM" => Some(Signal::TERM),
        "CONT" => Some(Signal::CONT),
        "WINCH" => Some(Signal::WINCH),
        "URG" => Some(Signal::URG),
        number => number.parse().ok().and_then(Signal::from_named_raw),
    };
    // These cannot be handled by a program.
    let named = named.filter(|signal| ![Signal::KILL, Signal::STOP].contains(signal));
    named.ok_or_else(|| SaveError::UnknownSignal { signal: text.to_owned() })
}

impl SignalSaver {
    pub(crate) fn new(signal: &str, until: Until, timeout: Duration) -> Result<Self, SaveError> {
        Ok(SignalSaver { signal: signal_of(signal)?, until, timeout, unanswered: 0, known: Listing::new() })
    }

    /// The files for a signal are complete.
    fn answered(&mut self, directory: &Path) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.known = listing(directory).unwrap_or_default();
    }

    /// Whether the files are complete.
    fn is_complete(&self, directory: &Path, seen: &mut QuietSince) -> io::Result<bool> {
        match &self.until {
            Until::File(name) => directory.join(name).try_exists(),
            Until::Quiet(time) => Ok(seen.quiet(listing(directory)?) >= *time),
        }
    }
}

impl Saver for SignalSaver {
    fn started(&mut self, _: &Program) -> Result<(), SaveError> {
        self.unanswered = 0;
        Ok(())
    }

    /// What the program writes for an earlier signal would count as the files of the next one, and some of them would
    /// be gone. A program that has written nothing at all has missed its signal, or takes both as one: it gets another.
    fn settle(&mut self, program: &Program, directory: &Path) -> Result<(), SaveError> {
        let begun = Instant::now();
        let mut seen = QuietSince { since: begun, listing: Listing::new() };
        while self.unanswered > 0 && program.end().is_none() {
            let now = listing(directory).map_err(SaveError::io("read", directory))?;
            if now.iter().all(|file| self.known.contains(file)) {
                return Ok(());
            }
            if self.is_complete(directory, &mut seen).map_err(SaveError::io("read", directory))? {
                self.answered(directory);
                return Ok(());
            }
            if begun.elapsed() >= self.timeout {
                let what = "the program still writes for the signal before: the checkpoint".to_owned();
                return Err(SaveError::TimedOut { what, limit: self.timeout });
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        Ok(())
    }

    fn save(&mut self, program: &Program, _: CheckpointId, directory: &Path) -> Result<(), SaveError> {
        let begun = Instant::now();
        // A program that does not handle the signal, or has just been started, would be ended by it.
        while !program.handles(self.signal) {
            if let Some(end) = program.end() {
                return Err(Stage::Save.ended(end));
            }
            if begun.elapsed() >= self.timeout {
                return Err(SaveError::NotHandled { signal: self.signal.as_raw(), limit: self.timeout });
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        // The directory is empty.
        self.known = Listing::new();
        program.signal(self.signal).map_err(SaveError::io("send a signal to the program for", directory))?;
        self.unanswered = self.unanswered.saturating_add(1);
        let mut seen = QuietSince { since: begun, listing: Listing::new() };
        while !self.is_complete(directory, &mut seen).map_err(SaveError::io("read", directory))? {
            if let Some(end) = program.end() {
                return Err(Stage::Save.ended(end));
            }
            if begun.elapsed() >= self.timeout {
                let what = match &self.until {
                    Until::File(name) => format!("the program has not written {name}: the checkpoint"),
                    Until::Quiet(_) if seen.listing.is_empty() => {
                        "the program wrote no file: the checkpoint".to_owned()
                    }
                    Until::Quiet(_) => "the program still writes: the checkpoint".to_owned(),
                };
                return Err(SaveError::TimedOut { what, limit: self.timeout });
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        if let Until::File(name) = &self.until {
            let mark = directory.join(name);
            files::check_own(directory)?;
            fs::remove_file(&mark).map_err(SaveError::io("remove", &mark))?;
        }
        self.answered(directory);
        Ok(())
    }
}

/// Since when the files of a directory have not changed.
struct QuietSince {
    since: Instant,
    listing: Listing,
}

impl QuietSince {
    /// How long the files have been as they are; zero without files.
    fn quiet(&mut self, now: Listing) -> Duration {
        if now.is_empty() || now != self.listing {
            (self.since, self.listing) = (Instant::now(), now);
            return Duration::ZERO;
        }
        self.since.elapsed()
    }
}

fn listing(directory: &Path) -> io::Result<Listing> {
    let mut listing = Listing::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => listing.push((entry.file_name(), metadata.len(), metadata.modified().ok())),
            // Renamed or removed meanwhile: the next listing shows it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => listing.push((entry.file_name(), 0, None)),
            Err(error) => return Err(error),
        }
    }
    listing.sort();
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["USR1", "SIGUSR1", "10"] {
            assert_eq!(signal_of(text).unwrap(), Signal::USR1);
        }
        for text in ["KILL", "9", "19", "USR3", "", "-1", "usr1"] {
            assert!(signal_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_quiet_from_their_last_change_on() {
        let mut seen = QuietSince { since: Instant::now(), listing: Listing::new() };
        let file = |size| vec![(OsString::from("a"), size, None)];
        assert_eq!(seen.quiet(Listing::new()), Duration::ZERO, "without files the program has not begun");
        assert_eq!(seen.quiet(file(1)), Duration::ZERO);
        let since = seen.since;
        seen.quiet(file(1));
        assert_eq!(seen.since, since);
        assert_eq!(seen.quiet(file(2)), Duration::ZERO);
    }
}
