//! The checkpoint that a run restarts from, as its user chose, and whether the job fits it. A job of another size is
//! refused before anything is changed: no checkpoint is marked, deleted or passed over for a mistake in the spec.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use holdfast_agent::sources::SourceEntry;
use holdfast_core::prefix::{Summary, fetch, index, publish, summary};
use holdfast_core::store::{self, DatasetStore, DirectoryName, PrefixError};
use holdfast_model::CheckpointId;
use holdfast_wire::rank::Interface;

use super::error::RunError;
use super::start;
use super::state::{JobState, Stage};
use crate::launch::registry::registered;
use crate::spec::{JobSpec, Step};

/// What a run restarts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RestartChoice {
    /// The newest checkpoint in cache, else that of the prefix directory.
    #[default]
    Newest,
    /// Nothing that was there before the run.
    Beginning,
    /// This directory below the prefix.
    Checkpoint(String),
}

/// A checkpoint that a run would restart from, and the number of ranks that wrote it.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    ranks: u32,
    checkpoint: CheckpointId,
    /// Where it is, for the message.
    place: String,
}

/// Checks that the job fits the checkpoints that its steps would restart from. Changes nothing. What cannot be read is
/// left to those who use it.
///
/// # Errors
/// [`RunError::OtherRanks`], [`RunError::OtherSource`], [`RunError::NoSuchCheckpoint`] and [`RunError::UnderWay`].
pub fn check(spec: &JobSpec, again: bool, choice: &RestartChoice) -> Result<(), RunError> {
    if let RestartChoice::Checkpoint(name) = choice
        && !spec.steps.iter().any(|step| summary_of(&step.prefix, name).is_some())
    {
        return Err(RunError::NoSuchCheckpoint { name: name.clone(), prefix: start::canonical(&spec.prefix) });
    }
    for step in &spec.steps {
        let state = JobState::read(&step.prefix).ok().flatten();
        if !again && state.as_ref().is_some_and(|state| state.is_finished(spec, step)) {
            continue;
        }
        let source = state.as_ref().and_then(|state| state.source.clone());
        let state = state.filter(JobState::has_nodes);
        if state.as_ref().is_some_and(|state| state.stage == Stage::Running) {
            // The orchestrator that takes over compares the state itself, and restarts nothing that was not chosen.
            match choice {
                RestartChoice::Newest => continue,
                RestartChoice::Beginning | RestartChoice::Checkpoint(_) => {
                    return Err(RunError::UnderWay { prefix: start::canonical(&step.prefix) });
                }
            }
        }
        let written = match choice {
            RestartChoice::Beginning => None,
            RestartChoice::Checkpoint(name) => match summary_of(&step.prefix, name) {
                Some(summary) => Some(Written::new(&step.prefix, name, &summary)),
                None => newest(step, state.as_ref()),
            },
            RestartChoice::Newest => newest(step, state.as_ref()),
        };
        if *choice == RestartChoice::Newest {
            is_readable(step, source, written.as_ref())?;
        }
        fits(step, written)?;
    }
    Ok(())
}

/// Programs of the step's source can read what those of the last run's source wrote. SCR's files have one format,
/// whoever wrote them for programs that make SCR's calls.
fn is_readable(step: &Step, source: Option<String>, written: Option<&Written>) -> Result<(), RunError> {
    let (Some(name), Some(newest)) = (source, written) else { return Ok(()) };
    let makes_calls_of_scr = |source: &SourceEntry| source.interface == Interface::Files && !source.has_rank_processes;
    let reader = step.source.facts.agent;
    let readable = registered().source(&name).is_none_or(|writer| {
        let writer = writer.facts.agent;
        writer.name == reader.name || makes_calls_of_scr(writer) && makes_calls_of_scr(reader)
    });
    if readable {
        return Ok(());
    }
    let (step, checkpoint, place) = (step.name.clone(), newest.checkpoint, newest.place.clone());
    Err(RunError::OtherSource { step, checkpoint, place, written: name, running: reader.name })
}

fn fits(step: &Step, written: Option<Written>) -> Result<(), RunError> {
    let running = step.run.ranks;
    match written {
        Some(Written { ranks, checkpoint, place }) if ranks != running => {
            Err(RunError::OtherRanks { step: step.name.clone(), checkpoint, place, written: ranks, running })
        }
        Some(_) | None => Ok(()),
    }
}

/// What the step would restart from without a choice of the user.
fn newest(step: &Step, left: Option<&JobState>) -> Option<Written> {
    let snapshot = left.and_then(|state| state.snapshot.as_ref());
    if let Some((checkpoint, ranks)) = snapshot.and_then(|snapshot| snapshot.newest().zip(snapshot.ranks())) {
        let place = "the caches of its nodes, where the last run left it".to_owned();
        return Some(Written { ranks, checkpoint, place });
    }
    let has_no_restart = step.source.facts.keys.without.iter().any(|(key, _)| *key == "restart");
    if !step.checkpoint.restart.fetch || has_no_restart {
        return None;
    }
    let (directory, summary) = fetch::first_complete(&*opened(&step.prefix)?).ok().flatten()?;
    Some(Written::new(&step.prefix, directory.as_str(), &summary))
}

impl Written {
    fn new(prefix: &Path, directory: &str, summary: &Summary) -> Self {
        let place = start::canonical(prefix).join(directory).display().to_string();
        Written { ranks: summary.ranks, checkpoint: summary.id, place }
    }
}

fn opened(prefix: &Path) -> Option<Arc<dyn DatasetStore>> {
    prefix.is_dir().then(|| store::open(prefix).ok()).flatten()
}

/// The summary of a complete checkpoint that the index of a prefix directory lists.
fn summary_of(prefix: &Path, name: &str) -> Option<Summary> {
    let (store, directory) = (opened(prefix)?, DirectoryName::given(name).ok()?);
    index::read(&*store).ok()??.entry(&directory)?;
    summary::of(&*store, &directory).ok().filter(|summary| summary.accept(summary.ranks).is_ok())
}

/// Makes the choice effective in the prefix directory of a step that begins; returns the directories that the run
/// ignores.
///
/// # Errors
/// The index cannot be read, or `scr.current` not be written.
pub(super) fn apply(choice: &RestartChoice, prefix: &Path) -> Result<BTreeSet<String>, RunError> {
    match choice {
        RestartChoice::Newest => Ok(BTreeSet::new()),
        RestartChoice::Beginning => {
            let store = store::open(prefix)?;
            let entries = index::read(&*store)?.unwrap_or_default().entries().into_iter();
            let listed = entries.map(|entry| entry.directory).chain(store.current().ok().flatten());
            Ok(listed.map(|directory| directory.to_string()).collect())
        }
        RestartChoice::Checkpoint(name) => {
            if summary_of(prefix, name).is_some() {
                publish::make_current(&*store::open(prefix)?, &DirectoryName::given(name).map_err(PrefixError::from)?)?;
            }
            Ok(BTreeSet::new())
        }
    }
}
