//! `holdfast verify --prefix`: checks all datasets of a prefix directory at once.

use std::io::{self, Write};
use std::path::Path;

use chrono::Local;
use holdfast_core::prefix::index::{self, IndexEntry};
use holdfast_core::prefix::{AddOptions, AddOutcome, AddReport, add, reindex};
use holdfast_core::store::{self, DatasetStore, PrefixError};
use holdfast_core::workers;
use holdfast_formats::sion::dataset;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{Report, Style, document, printable};
use super::progress::Items;
use super::walk::worst;
use crate::exit;

/// What is known of a dataset after its files were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All of its files are there, and are what was written.
    Intact,
    /// It is recorded as complete and is not, or a file is damaged.
    Damaged,
    /// It is recorded as not complete: a flush did not end, or a drain could not save all.
    Incomplete,
    /// It cannot be examined.
    Unreadable,
}

impl State {
    fn of(recorded_complete: bool, report: &Result<AddReport, PrefixError>) -> State {
        match report {
            Err(_) => State::Unreadable,
            Ok(report) if !report.damaged.is_empty() => State::Damaged,
            Ok(report) if report.outcome == AddOutcome::Complete => State::Intact,
            Ok(_) if recorded_complete => State::Damaged,
            Ok(_) => State::Incomplete,
        }
    }

    fn name(self) -> &'static str {
        match self {
            State::Intact => "intact",
            State::Damaged => "damaged",
            State::Incomplete => "incomplete",
            State::Unreadable => "unreadable",
        }
    }

    fn code(self) -> u8 {
        match self {
            State::Intact | State::Incomplete => exit::FINISHED,
            State::Damaged => exit::DAMAGED_DATA,
            State::Unreadable => exit::UNAVAILABLE,
        }
    }
}

struct Checked {
    entry: IndexEntry,
    report: Result<AddReport, PrefixError>,
    state: State,
}

/// Checks every dataset of the index, several at a time. Without an index, those whose directories are found. Changes
/// nothing.
pub(super) fn run(prefix: &Path, (details, only_damaged): (bool, bool), output: Style) -> Result<u8, Failure> {
    let store = &*store::open(prefix)?;
    let entries = match index::read(store)? {
        Some(index) => index.entries(),
        None => {
            output.warn("the prefix directory has no index: the directories of your checkpoints are checked");
            reindex::found(store, Local::now().naive_local(), dataset::open)?.entries()
        }
    };
    let threads = workers::default_threads();
    // A single dataset has all threads for its files.
    let options = AddOptions {
        dry_run: true,
        rescan: true,
        open: dataset::open,
        threads: threads.div_ceil(entries.len().max(1)),
        ..AddOptions::default()
    };
    let items = Items::new(output, entries.len());
    let datasets = workers::map(&entries, threads, 1, |entry| {
        let report = check(store, entry, &options, &items);
        items.done();
        Checked { state: State::of(entry.complete == Some(true), &report), entry: entry.clone(), report }
    });
    drop(items);
    let code = worst(datasets.iter().map(|checked| checked.state.code()));
    output.result(&PrefixReport { prefix: prefix.display().to_string(), datasets, details, only_damaged })?;
    Ok(code)
}

fn check(
    store: &dyn DatasetStore,
    entry: &IndexEntry,
    options: &AddOptions,
    items: &Items,
) -> Result<AddReport, PrefixError> {
    add(store, &entry.directory, Local::now().naive_local(), options, &|step| {
        if let add::AddStep::Verified { bytes, .. } = step {
            items.read(bytes);
        }
    })
}

struct PrefixReport {
    prefix: String,
    datasets: Vec<Checked>,
    details: bool,
    only_damaged: bool,
}

impl PrefixReport {
    fn listed(&self) -> impl Iterator<Item = &Checked> {
        self.datasets.iter().filter(|checked| !self.only_damaged || checked.state.code() != exit::FINISHED)
    }

    fn damaged(&self) -> usize {
        self.datasets.iter().filter(|checked| checked.state.code() != exit::FINISHED).count()
    }
}

fn problems(report: &AddReport) -> Vec<String> {
    let damaged = report.damaged.iter().map(ToString::to_string);
    damaged.chain(report.reasons.iter().map(ToString::to_string)).collect()
}

impl Report for PrefixReport {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        for Checked { entry, report, state } in self.listed() {
            let directory = printable(entry.directory.as_str());
            write!(to, "{directory}: checkpoint {}: {}", entry.id, state.name())?;
            let problems = match report {
                Err(error) => {
                    writeln!(to, ": {}", printable(&error.to_string()))?;
                    continue;
                }
                Ok(report) => {
                    let (files, bytes) = (report.verified.files, report.verified.bytes);
                    write!(to, ", {files} files with {bytes} bytes read")?;
                    if report.verified.without_crc > 0 {
                        write!(to, ", {} files have no checksum", report.verified.without_crc)?;
                    }
                    problems(report)
                }
            };
            if let Some(first) = problems.first() {
                write!(to, ": {}{}", printable(first), super::verify::others(problems.len(), 0))?;
            }
            writeln!(to)?;
            if self.details {
                problems.iter().skip(1).try_for_each(|problem| writeln!(to, "  {}", printable(problem)))?;
            }
            if matches!(report, Ok(report) if report.outcome == AddOutcome::Rebuildable) {
                writeln!(to, "  it can be rebuilt: `holdfast index add --rescan {directory}`")?;
            }
        }
        match self.damaged() {
            0 => writeln!(to, "{} checkpoints, none is damaged", self.datasets.len()),
            damaged => writeln!(to, "{} checkpoints, {damaged} damaged or unreadable", self.datasets.len()),
        }
    }

    fn json(&self) -> Value {
        let dataset = |Checked { entry, report, state }: &Checked| {
            let report = report.as_ref();
            json!({
                "directory": entry.directory.as_str(),
                "id": entry.id,
                "state": state.name(),
                "files": report.map_or(0, |report| report.verified.files),
                "bytes": report.map_or(0, |report| report.verified.bytes),
                "without_checksum": report.map_or(0, |report| report.verified.without_crc),
                "problems": report.map_or_else(|error| vec![error.to_string()], problems),
                "rebuildable": report.is_ok_and(|report| report.outcome == AddOutcome::Rebuildable),
            })
        };
        document(json!({
            "prefix": self.prefix,
            "datasets": self.listed().map(dataset).collect::<Vec<_>>(),
            "damaged": self.damaged(),
        }))
    }
}
