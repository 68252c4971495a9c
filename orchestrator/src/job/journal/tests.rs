//! The state that a reader finds after the writer was killed at any instant, and the cost of writing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use holdfast_core::crash::{ALL_ERRORS, Subject};
use holdfast_core::io_count;
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::{CheckpointId, NodeName};

use super::file::{JournalFile, path};
use super::writer::{JournalWriter, Written};
use crate::fleet::AgentRecord;
use crate::job::claim::Claim;
use crate::job::state::{JobState, Stage, StateChanges, StateError};
use crate::job::state_file::JobLock;
use crate::relaunch::{AllocatedNode, Config, Event, Machine};
use crate::spec::GroupAccess;

const NODES: u16 = 40;

fn name(node: u16) -> NodeName {
    NodeName::new(format!("node{node}"))
}

fn machine() -> Machine {
    let node = |node| AllocatedNode { name: name(node), failure_domain: format!("{node}") };
    Machine::new(Config::new((0..NODES).map(node).collect(), u32::from(NODES), 2))
}

/// The state of a job that begins in a prefix directory, written.
fn begun(prefix: &Path, machine: &Machine) -> JobState {
    drop(JobLock::take(prefix, GroupAccess::None).unwrap());
    let mut state = JobState::of_test("17", prefix);
    state.snapshot = Some(machine.snapshot());
    state.write(prefix).unwrap();
    state
}

/// The changes of one batch of events.
fn step(machine: &mut Machine, number: u16) -> StateChanges {
    let now = Duration::from_millis(u64::from(number));
    if number == 0 {
        machine.begin(now);
    } else {
        let node = name(number - 1);
        let address = ([10, 0, 0, 1], 1000 + number).into();
        machine.handle(now, Event::AgentReady { node, address, adopted: None });
    }
    let record = AgentRecord {
        address: ([10, 0, 0, 1], 1000 + number).into(),
        pid: u32::from(number),
        pulse: None,
        seen: (1, 2),
    };
    StateChanges {
        agents: vec![(name(number), Some(record))],
        memory: machine.take_changes(),
        ..StateChanges::default()
    }
}

/// Adds the changes to the state and to its journal.
fn append(journal: &mut JournalFile, state: &mut JobState, changes: StateChanges) -> Result<(), StateError> {
    state.apply(changes.clone()).unwrap();
    state.entries += 1;
    journal.append(state.entries, changes)
}

/// The part of a state that the tests compare.
fn content(state: &JobState) -> (u64, Option<crate::relaunch::Snapshot>, Vec<u32>) {
    (state.entries, state.snapshot.clone(), state.running.values().map(|record| record.pid).collect())
}

#[test]
fn a_journal_cut_off_at_any_byte_is_read_to_its_last_complete_entry() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut state = begun(base.path(), &machine);
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    let mut known = vec![(journal.bytes, content(&state))];
    for number in 0..5 {
        append(&mut journal, &mut state, step(&mut machine, number)).unwrap();
        known.push((journal.bytes, content(&state)));
    }
    journal.sync().unwrap();
    let journal = path(base.path());
    assert_eq!(fs::metadata(&journal).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = fs::read(&journal).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&journal, &whole[..cut]).unwrap();
        let expected = known.iter().rev().find(|(end, _)| *end <= cut as u64).unwrap_or(&known[0]);
        assert_eq!(content(&JobState::read(base.path()).unwrap().unwrap()), expected.1, "cut at {cut}");
    }
}

/// The state with these many entries, in memory.
fn with_entries(mut state: JobState, entries: u64) -> (JobState, Machine) {
    let mut machine = machine();
    for number in 0..entries {
        let changes = step(&mut machine, u16::try_from(number).unwrap());
        if number >= state.entries {
            state.apply(changes).unwrap();
            state.entries += 1;
        }
    }
    (state, machine)
}

/// An orchestrator that takes over, and goes on to the last entry.
fn go_on(prefix: &Path, last: u16) -> Result<(), StateError> {
    let found = JobState::read(prefix)?.unwrap();
    let entries = found.entries;
    let (mut state, mut machine) = with_entries(found, entries);
    state.replace(prefix)?;
    let mut journal = JournalFile::begin(prefix, &state)?;
    for number in u16::try_from(entries).unwrap()..last {
        append(&mut journal, &mut state, step(&mut machine, number))?;
        journal.sync()?;
    }
    Ok(())
}

#[test]
fn crash_the_state_of_a_job_has_every_entry_that_was_synchronised() {
    const BEFORE: u16 = 2;
    const AFTER: u16 = 4;
    let at = tempfile::tempdir().unwrap();
    let first = begun(at.path(), &machine());
    let prepare = |prefix: &Path| {
        fs::create_dir(prefix).unwrap();
        drop(JobLock::take(prefix, GroupAccess::None).unwrap());
        first.write(prefix).unwrap();
        go_on(prefix, BEFORE).unwrap();
    };
    let check = |prefix: &Path| {
        let state = JobState::read(prefix).map_err(|error| error.to_string())?.ok_or("there is no state")?;
        let expected = content(&with_entries(first.clone(), state.entries).0);
        let has_trust = state.trust.is_some();
        let right = state.entries >= u64::from(BEFORE) && content(&state) == expected && has_trust;
        right.then_some(()).ok_or(format!("{} entries, key and token: {has_trust}", state.entries))
    };
    let subject = Subject {
        name: "job state",
        prepare: &prepare,
        work: &|prefix| {
            // As `holdfast run` does before it takes over.
            drop(JobLock::take(prefix, GroupAccess::None).map_err(|error| error.to_string())?);
            go_on(prefix, AFTER).map_err(|error| error.to_string())
        },
        check: &check,
        result: &|prefix| {
            let names = holdfast_testkit::files_below(prefix);
            let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
            format!("{:?} {names:#?}", content(&JobState::read(prefix).unwrap().unwrap()))
        },
        power: true,
        errors: ALL_ERRORS,
    };
    let tried = subject.interrupt();
    assert!(tried.kills > 10 && tried.losses > 15 && tried.errors > 50, "{tried:?}");
}

#[test]
fn a_state_that_was_replaced_before_its_journal_is_read_once() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut state = begun(base.path(), &machine);
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    for number in 0..3 {
        append(&mut journal, &mut state, step(&mut machine, number)).unwrap();
    }
    // Killed between the two: the journal's entries are in the state.
    state.replace(base.path()).unwrap();
    assert_eq!(content(&JobState::read(base.path()).unwrap().unwrap()), content(&state));
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    append(&mut journal, &mut state, step(&mut machine, 3)).unwrap();
    assert_eq!(content(&JobState::read(base.path()).unwrap().unwrap()), content(&state));
}

#[test]
fn the_journal_of_another_job_is_ignored() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut former = begun(base.path(), &machine);
    former.agents.job_id = "16".to_owned();
    let mut journal = JournalFile::begin(base.path(), &former).unwrap();
    journal.append(1, step(&mut machine, 0)).unwrap();
    assert_eq!(JobState::read(base.path()).unwrap().unwrap().entries, 0);
}

#[test]
fn an_entry_that_does_not_follow_the_state_is_an_error_with_the_journals_path() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let state = begun(base.path(), &machine);
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    journal.append(2, step(&mut machine, 0)).unwrap();
    let error = JobState::read(base.path()).unwrap_err().to_string();
    assert!(error.contains("job.journal") && error.contains("entry 2"), "{error}");
}

fn running(prefix: &Path, machine: &Machine) -> JournalWriter {
    JournalWriter::start(prefix.to_owned(), begun(prefix, machine), None).unwrap()
}

#[tokio::test]
async fn what_is_reported_as_written_can_be_read() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut writer = running(base.path(), &machine);
    for number in 0..20 {
        let commit = u64::from(number) + 1;
        writer.write(commit, step(&mut machine, number), number % 3 == 0);
        assert_eq!(writer.next().await, Written { commit });
        let state = JobState::read(base.path()).unwrap().unwrap();
        assert_eq!((state.entries, state.snapshot), (commit, Some(machine.snapshot())));
    }
    writer.write_last(99, StateChanges::default());
    assert_eq!(writer.next().await, Written { commit: 99 });
    fs::remove_file(path(base.path())).unwrap();
    let state = JobState::read(base.path()).unwrap().unwrap();
    assert_eq!((state.snapshot, state.stage), (Some(machine.snapshot()), Stage::Running), "all of it is in one file");
}

#[tokio::test]
async fn an_error_counts_as_written_and_the_next_changes_bring_the_whole_state() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut writer = running(base.path(), &machine);
    writer.write(1, step(&mut machine, 0), true);
    assert_eq!(writer.next().await, Written { commit: 1 });
    let (own, aside) = (StateDirectory::below(base.path()).path().to_owned(), base.path().join("aside"));
    fs::rename(&own, &aside).unwrap();
    // The open journal can be written to; the first state that is replaced cannot.
    writer.write_last(2, step(&mut machine, 1));
    assert_eq!(writer.next().await, Written { commit: 2 });
    assert!(JobState::read(base.path()).unwrap().is_none());
    writer.write(3, step(&mut machine, 2), true);
    assert_eq!(writer.next().await, Written { commit: 3 });
    fs::rename(&aside, &own).unwrap();
    writer.write(4, step(&mut machine, 3), true);
    assert_eq!(writer.next().await, Written { commit: 4 });
    let state = JobState::read(base.path()).unwrap().unwrap();
    assert_eq!((state.entries, state.snapshot), (4, Some(machine.snapshot())));
}

#[tokio::test]
async fn the_journal_is_begun_anew_when_it_is_large_and_reading_finds_the_same() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let mut writer = running(base.path(), &machine);
    writer.write(1, step(&mut machine, 0), false);
    writer.next().await;
    let large = "x".repeat(300_000);
    for commit in 2..12 {
        let node = name(u16::try_from(commit).unwrap());
        machine.handle(Duration::from_millis(commit), Event::HealthFault { node, fault: large.clone() });
        writer.write(commit, StateChanges { memory: machine.take_changes(), ..StateChanges::default() }, false);
        writer.next().await;
        let state = JobState::read(base.path()).unwrap().unwrap();
        assert_eq!((state.entries, state.snapshot), (commit, Some(machine.snapshot())));
    }
    writer.write_last(12, StateChanges::default());
    writer.next().await;
    assert!(fs::metadata(path(base.path())).unwrap().len() < 1000);
}

#[tokio::test]
async fn nothing_is_written_when_another_orchestrator_has_claimed_the_job() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let state = begun(base.path(), &machine);
    let claim = Claim::make(base.path(), "17", 1).unwrap();
    let mut writer = JournalWriter::start(base.path().to_owned(), state, Some(claim)).unwrap();
    writer.write(1, step(&mut machine, 0), true);
    assert_eq!(writer.next().await, Written { commit: 1 });
    let read = || JobState::read(base.path()).unwrap().unwrap().entries;
    assert_eq!(read(), 1);
    Claim::make(base.path(), "17", 1).unwrap();
    writer.write(2, step(&mut machine, 1), true);
    writer.write_last(3, StateChanges::default());
    assert_eq!([writer.next().await, writer.next().await].map(|written| written.commit), [2, 3]);
    assert_eq!(read(), 1, "the state is that of the other one");
}

#[test]
fn a_batch_costs_one_sync_however_much_it_changed() {
    let base = tempfile::tempdir().unwrap();
    let mut machine = machine();
    let state = begun(base.path(), &machine);
    let mut journal = JournalFile::begin(base.path(), &state).unwrap();
    machine.begin(Duration::ZERO);
    for number in 0..NODES {
        let address = ([10, 0, 0, 1], 1000 + number).into();
        machine.handle(Duration::ZERO, Event::AgentReady { node: name(number), address, adopted: None });
    }
    machine.handle(
        Duration::ZERO,
        Event::CheckpointComplete {
            generation: machine.generation(),
            checkpoint: CheckpointId(1),
            protected: true,
            bytes: 1,
        },
    );
    let before = io_count::now();
    journal.append(1, StateChanges { memory: machine.take_changes(), ..StateChanges::default() }).unwrap();
    journal.sync().unwrap();
    // Other tests of this process count too: at least these.
    let after = io_count::now();
    assert!(after.syncs > before.syncs && after.bytes > before.bytes);
}
