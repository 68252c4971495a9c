//! The output of the ranks, passed on line by line while they run.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_model::Rank;

use super::growing_file::GrowingFile;
use super::labels::LineLabels;
use super::plan::StepPlan;

/// Maximum size of a read of one file, so that a rank with much output does not delay the others.
const PIECE_BYTES: u64 = 64 << 10;
/// Longer lines are passed on as several lines.
const LONGEST_LINE: usize = 1 << 20;

/// An output stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Errors,
}

/// A line of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    pub rank: Rank,
    pub stream: Stream,
    /// Without label and line end.
    pub text: Vec<u8>,
    /// Its bytes in the file, with label and line end.
    pub bytes: u64,
}

/// The size of the output files in a generation's directory.
///
/// # Errors
/// Those of reading the directory.
pub fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("rank") && (name.ends_with(".out") || name.ends_with(".err")) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// The output files of a generation.
#[derive(Debug)]
pub struct OutputTail {
    directory: PathBuf,
    files: Vec<Tailed>,
    labels: Option<&'static LineLabels>,
    /// Ranks with their own files that have not been started yet.
    expected: BTreeSet<Rank>,
    /// Bytes that are not passed on, since this was taken.
    hidden: u64,
}

#[derive(Debug)]
struct Tailed {
    /// `None` for a file of all ranks, where each line has a label.
    rank: Option<Rank>,
    stream: Stream,
    file: GrowingFile,
    /// Its length when growth was asked for.
    seen: u64,
}

impl OutputTail {
    /// The output of these ranks: in files of each rank, or with `labels` in one file of all. `from_end` skips what
    /// another orchestrator has shown already.
    pub fn new(
        directory: &Path,
        ranks: impl Iterator<Item = Rank>,
        labels: Option<&'static LineLabels>,
        from_end: bool,
    ) -> Self {
        let (directory, expected) = (directory.to_owned(), BTreeSet::new());
        let mut tail = OutputTail { directory, files: Vec::new(), labels, expected, hidden: 0 };
        if labels.is_some() {
            tail.add(None, Stream::Output, StepPlan::all_output_in(&tail.directory), from_end);
            tail.add(None, Stream::Errors, StepPlan::all_errors_in(&tail.directory), from_end);
        } else if from_end {
            ranks.for_each(|rank| tail.add_rank(rank, true));
        } else {
            tail.expected = ranks.collect();
        }
        tail
    }

    fn add(&mut self, rank: Option<Rank>, stream: Stream, path: PathBuf, from_end: bool) {
        let offset = if from_end { path.metadata().map_or(0, |metadata| metadata.len()) } else { 0 };
        self.hidden += offset;
        self.files.push(Tailed { rank, stream, file: GrowingFile::new(path, offset), seen: 0 });
    }

    fn add_rank(&mut self, rank: Rank, from_end: bool) {
        self.add(Some(rank), Stream::Output, StepPlan::output_in(&self.directory, rank), from_end);
        self.add(Some(rank), Stream::Errors, StepPlan::errors_in(&self.directory, rank), from_end);
    }

    /// A rank was started: its files exist. Those of ranks without this call are read at the end only.
    pub fn started(&mut self, rank: Rank) {
        if self.expected.remove(&rank) {
            self.add_rank(rank, false);
        }
    }

    /// The bytes that were read and not passed on, since the last call: messages of launchers, and what another
    /// orchestrator has shown.
    pub fn take_hidden(&mut self) -> u64 {
        std::mem::take(&mut self.hidden)
    }

    /// Passes on new lines. True if there may be more.
    pub fn pass_on(&mut self, lines: &mut Vec<OutputLine>) -> bool {
        let (mut more, labels) = (false, self.labels);
        for tailed in &mut self.files {
            match tailed.file.read(PIECE_BYTES) {
                Ok(read) => more |= read == PIECE_BYTES,
                Err(error) => {
                    tracing::debug!(path = %tailed.file.path.display(), %error, "cannot read a rank's output")
                }
            }
            self.hidden += tailed.take_lines(labels, lines);
        }
        more
    }

    /// The files of all ranks are read as soon as there are any, also of those whose start is not reported.
    pub fn follow_all(&mut self) {
        for rank in std::mem::take(&mut self.expected) {
            self.add_rank(rank, false);
        }
    }

    /// No further rank is started: the files of those that were not reported are read too, if there are any.
    pub fn all_started(&mut self) {
        let expected = std::mem::take(&mut self.expected);
        if expected.is_empty() {
            return;
        }
        // One look at the directory, not two for each of maybe 100,000 ranks that were killed before they started.
        let names = self
            .directory
            .read_dir()
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<HashSet<OsString>>>());
        let exists = |path: PathBuf| {
            names.as_ref().map_or(true, |names| path.file_name().is_some_and(|name| names.contains(name)))
        };
        for rank in expected {
            if exists(StepPlan::output_in(&self.directory, rank)) || exists(StepPlan::errors_in(&self.directory, rank))
            {
                self.add_rank(rank, false);
            }
        }
    }

    /// True if ranks have printed since this was asked last, or since lines were passed on.
    pub fn has_grown(&mut self) -> bool {
        let mut grown = false;
        for tailed in &mut self.files {
            let length = tailed.file.path.metadata().map_or(0, |metadata| metadata.len());
            grown |= length > tailed.file.offset.max(tailed.seen);
            tailed.seen = length;
        }
        grown
    }

    /// Passes on what is left, also lines that have no end.
    pub fn finish(&mut self, lines: &mut Vec<OutputLine>) {
        self.all_started();
        while self.pass_on(lines) {}
        for tailed in &mut self.files {
            if !tailed.file.rest.is_empty() {
                let bytes = tailed.file.rest.len() as u64;
                self.hidden += tailed.pass_on_line(&tailed.file.rest, bytes, self.labels, lines);
                tailed.file.rest.clear();
            }
        }
    }
}

impl Tailed {
    /// Passes on a line that has this many bytes in the file. Returns how many of them are hidden.
    fn pass_on_line(&self, line: &[u8], bytes: u64, labels: Option<&LineLabels>, lines: &mut Vec<OutputLine>) -> u64 {
        let stream = self.stream;
        match (self.rank, labels) {
            (Some(rank), _) => lines.push(OutputLine { rank, stream, text: line.to_vec(), bytes }),
            (None, None) => return bytes,
            (None, Some(labels)) => match (labels.read)(line) {
                Some((_, text)) if (labels.is_internal)(&text) => return bytes,
                Some((rank, text)) => lines.push(OutputLine { rank, stream, text: text.into_owned(), bytes }),
                None if (labels.is_internal)(line) => return bytes,
                None => {
                    // Not shown: the ends of ranks are reported as events.
                    tracing::info!(line = %String::from_utf8_lossy(line), "launcher_message");
                    return bytes;
                }
            },
        }
        0
    }

    /// Passes on complete lines. Returns the bytes of hidden ones.
    fn take_lines(&mut self, labels: Option<&LineLabels>, lines: &mut Vec<OutputLine>) -> u64 {
        let (mut begin, mut hidden) = (0, 0);
        while let Some(length) = self.file.rest[begin..].iter().position(|byte| *byte == b'\n') {
            let line = &self.file.rest[begin..begin + length];
            hidden += self.pass_on_line(line, length as u64 + 1, labels, lines);
            begin += length + 1;
        }
        self.file.rest.drain(..begin);
        if self.file.rest.len() > LONGEST_LINE {
            hidden += self.pass_on_line(&self.file.rest, self.file.rest.len() as u64, labels, lines);
            self.file.rest.clear();
        }
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{mpirun, srun};
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    fn add(path: &Path, text: &str) {
        OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn lines(tail: &mut OutputTail) -> Vec<String> {
        let mut lines = Vec::new();
        tail.pass_on(&mut lines);
        let text = |line: OutputLine| {
            let mark = if line.stream == Stream::Errors { "!" } else { "" };
            format!("{}{mark}: {}", line.rank, String::from_utf8_lossy(&line.text))
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn lines_of_all_ranks_are_passed_on_once_and_completely() {
        let base = tempfile::tempdir().unwrap();
        let mut tail = OutputTail::new(base.path(), [Rank(0), Rank(1)].into_iter(), None, false);
        assert!(lines(&mut tail).is_empty());
        tail.started(Rank(0));
        tail.started(Rank(1));
        add(&StepPlan::output_in(base.path(), Rank(0)), "one\ntw");
        add(&StepPlan::errors_in(base.path(), Rank(1)), "oops\n");
        assert_eq!(lines(&mut tail), ["0: one", "1!: oops"]);
        add(&StepPlan::output_in(base.path(), Rank(0)), "o\nthree");
        assert_eq!(lines(&mut tail), ["0: two"]);
        let mut rest = Vec::new();
        tail.finish(&mut rest);
        assert_eq!(rest, [OutputLine { rank: Rank(0), stream: Stream::Output, text: b"three".to_vec(), bytes: 5 }]);
    }

    #[test]
    fn the_output_of_a_rank_whose_start_was_not_reported_is_passed_on_at_the_end() {
        let base = tempfile::tempdir().unwrap();
        let mut tail = OutputTail::new(base.path(), [Rank(0)].into_iter(), None, false);
        add(&StepPlan::errors_in(base.path(), Rank(0)), "no such program\n");
        assert!(lines(&mut tail).is_empty());
        let mut rest = Vec::new();
        tail.finish(&mut rest);
        assert_eq!(rest[0].text, b"no such program");
    }

    #[test]
    fn the_output_of_ranks_that_are_started_later_is_passed_on_unless_none_is_started_any_more() {
        let base = tempfile::tempdir().unwrap();
        let ranks = || [Rank(0), Rank(1)].into_iter();
        let (mut follows, mut ended) =
            (OutputTail::new(base.path(), ranks(), None, false), OutputTail::new(base.path(), ranks(), None, false));
        add(&StepPlan::output_in(base.path(), Rank(0)), "one\n");
        follows.follow_all();
        ended.all_started();
        add(&StepPlan::output_in(base.path(), Rank(1)), "two\n");
        assert_eq!(lines(&mut follows), ["0: one", "1: two"]);
        assert_eq!(lines(&mut ended), ["0: one"]);
    }

    #[test]
    fn growth_is_noticed_without_reading() {
        let base = tempfile::tempdir().unwrap();
        let path = StepPlan::output_in(base.path(), Rank(0));
        let mut tail = OutputTail::new(base.path(), [Rank(0)].into_iter(), None, false);
        tail.started(Rank(0));
        assert!(!tail.has_grown());
        add(&path, "one\n");
        assert_eq!([tail.has_grown(), tail.has_grown()], [true, false]);
        add(&path, "two\n");
        assert_eq!(lines(&mut tail), ["0: one", "0: two"]);
        assert!(!tail.has_grown());
    }

    #[test]
    fn after_a_take_over_only_new_lines_are_shown() {
        let base = tempfile::tempdir().unwrap();
        let path = StepPlan::output_in(base.path(), Rank(0));
        fs::write(&path, "old\n").unwrap();
        let mut tail = OutputTail::new(base.path(), [Rank(0)].into_iter(), None, true);
        add(&path, "new\n");
        assert_eq!(lines(&mut tail), ["0: new"]);
    }

    #[test]
    fn lines_in_a_file_of_all_ranks_have_their_rank() {
        let base = tempfile::tempdir().unwrap();
        let mut tail = OutputTail::new(base.path(), [Rank(0)].into_iter(), Some(&srun::LABELS), false);
        add(&StepPlan::all_output_in(base.path()), " 0: one: two\n11: \n11:   deep\nsrun: not a rank\n");
        add(&StepPlan::all_errors_in(base.path()), "3: oops\nsrun: error: n1: task 3: Killed\n");
        assert_eq!(lines(&mut tail), ["0: one: two", "11: ", "11:   deep", "3!: oops"]);
    }

    #[test]
    fn reports_of_ranks_under_mpirun_are_not_shown() {
        let base = tempfile::tempdir().unwrap();
        let mut tail =
            OutputTail::new(base.path(), [Rank(0)].into_iter(), Some(mpirun::labels(mpirun::Dialect::Hydra)), false);
        add(&StepPlan::all_output_in(base.path()), "[0] one\n[11] two: three\n[mpiexec@n1] its own message\n");
        add(&StepPlan::all_errors_in(base.path()), "[3] @holdfast-rank 3 code 4\n[3] oops\n");
        assert_eq!(lines(&mut tail), ["0: one", "11: two: three", "3!: oops"]);
    }
}
