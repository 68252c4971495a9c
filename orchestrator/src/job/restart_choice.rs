//! The checkpoint that a run restarts from, as its user chose, and whether the job fits it. A job of another size is
//! refused before anything is changed: no checkpoint is marked, deleted or passed over for a mistake in the spec.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use holdfast_agent::sources::SourceEntry;
use holdfast_core::prefix::{Summary, fetch, index, publish, summary};
use holdfast_core::store::{self, DatasetStore, DirectoryName, PrefixError};
use holdfast_model::{CheckpointId, RestartRanks};
use holdfast_wire::rank::Interface;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::start;
use super::state::{JobState, Stage};
use crate::launch::registry::registered;
use crate::relaunch::Snapshot;
use crate::spec::{JobSpec, Step};

/// What the user chose for a run. An orchestrator that takes over has the choices of the one that began the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunChoices {
    /// Repeat a job, or steps, that were finished in earlier runs.
    pub again: bool,
    pub restart: RestartChoice,
}

impl RunChoices {
    /// True if the user chose nothing.
    pub fn is_default(&self) -> bool {
        *self == RunChoices::default()
    }
}

/// What a run restarts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// Checks that the job fits the checkpoints that its steps would restart from. Changes nothing. Of a checkpoint that
/// cannot be read, a restart finds that.
///
/// # Errors
/// [`RunError::OtherRanks`], [`RunError::OtherSource`], [`RunError::NoSuchCheckpoint`], [`RunError::OfFinishedStep`]
/// and [`RunError::UnderWay`]; [`RunError::CannotRestart`] if an index cannot be read that a restart would need.
pub fn check(spec: &JobSpec, choices: &RunChoices) -> Result<(), RunError> {
    let RunChoices { again, restart: choice } = choices;
    let is_finished =
        |step: &Step, state: Option<&JobState>| !*again && state.is_some_and(|state| state.is_finished(spec, step));
    if let RestartChoice::Checkpoint(name) = choice {
        let mut of = Vec::new();
        for step in &spec.steps {
            of.extend(summary_of(&step.prefix, name)?.map(|_| step));
        }
        let Some(first) = of.first() else {
            let prefixes = spec.steps.iter().map(|step| start::canonical(&step.prefix)).collect();
            return Err(RunError::NoSuchCheckpoint { name: name.clone(), prefixes });
        };
        let step = first.name.clone();
        if of.iter().all(|step| is_finished(step, JobState::read(&step.prefix).ok().flatten().as_ref())) {
            return Err(RunError::OfFinishedStep { name: name.clone(), step });
        }
    }
    for step in &spec.steps {
        let state = JobState::read(&step.prefix).ok().flatten();
        if is_finished(step, state.as_ref()) {
            continue;
        }
        let under_way = || RunError::UnderWay { prefix: start::canonical(&step.prefix) };
        let source = state.as_ref().and_then(|state| state.source.clone());
        let state = state.filter(JobState::has_nodes);
        if state.as_ref().is_some_and(|state| state.stage == Stage::Running) {
            match choice {
                // The next orchestrator takes over: the caches are as they were.
                RestartChoice::Newest => {
                    let ranks = state.as_ref().and_then(|state| state.snapshot.as_ref()?.ranks());
                    let newest = state.as_ref().and_then(in_cache);
                    let ranks = ranks.or(newest.as_ref().map(|newest| newest.ranks));
                    fits(step, newest)?;
                    if !runs_as_many(step, ranks) {
                        return Err(under_way());
                    }
                }
                RestartChoice::Beginning | RestartChoice::Checkpoint(_) => return Err(under_way()),
            }
            continue;
        }
        let written = match choice {
            RestartChoice::Beginning => None,
            RestartChoice::Checkpoint(name) => match summary_of(&step.prefix, name)? {
                Some(summary) => Some(Written::new(&step.prefix, name, &summary)),
                None => newest(step, state.as_ref())?,
            },
            RestartChoice::Newest => newest(step, state.as_ref())?,
        };
        if *choice == RestartChoice::Newest {
            is_readable(step, source, written.as_ref())?;
        }
        fits(step, written)?;
    }
    Ok(())
}

/// Programs of the step's source can read what those of the last run's source wrote. All sources whose
/// programs make SCR's calls write the same format.
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

/// The step can restart from the checkpoint.
fn fits(step: &Step, written: Option<Written>) -> Result<(), RunError> {
    match step.checkpoint.restart.ranks {
        RestartRanks::Same => is_of_as_many(step, written),
        RestartRanks::Any => Ok(()),
    }
}

/// True if the step has as many ranks as its run that is under way, or if that has none yet. A checkpoint of that run
/// may be in the caches although the orchestrator that ended has not recorded it.
fn runs_as_many(step: &Step, under_way: Option<u32>) -> bool {
    under_way.is_none_or(|ranks| ranks == step.run.ranks)
}

fn is_of_as_many(step: &Step, written: Option<Written>) -> Result<(), RunError> {
    let running = step.run.ranks;
    match written {
        Some(Written { ranks, checkpoint, place }) if ranks != running => {
            Err(RunError::OtherRanks { step: step.name.clone(), checkpoint, place, written: ranks, running })
        }
        Some(_) | None => Ok(()),
    }
}

/// True if the run before left a checkpoint of another number of ranks on its nodes: it is drained, and read in the
/// prefix directory.
pub(super) fn is_drained_for(step: &Step, kept: &JobState) -> bool {
    in_cache(kept).is_some_and(|written| written.ranks != step.run.ranks)
}

/// What the step would restart from without a choice of the user.
fn newest(step: &Step, left: Option<&JobState>) -> Result<Option<Written>, RunError> {
    if let Some(written) = left.and_then(in_cache) {
        return Ok(Some(written));
    }
    let has_no_restart = step.source.facts.keys.without.iter().any(|(key, _)| *key == "restart");
    if !step.checkpoint.restart.fetch || has_no_restart {
        return Ok(None);
    }
    let Some(store) = opened(&step.prefix) else { return Ok(None) };
    let first = fetch::first_complete(&*store).map_err(RunError::CannotRestart)?;
    Ok(first.map(|(directory, summary)| Written::new(&step.prefix, directory.as_str(), &summary)))
}

/// The newest checkpoint that the last run left on its nodes.
fn in_cache(state: &JobState) -> Option<Written> {
    let (checkpoint, ranks) = state.snapshot.as_ref().and_then(Snapshot::newest_written_by)?;
    let place = "the caches of its nodes, where the last run left it".to_owned();
    Some(Written { ranks, checkpoint, place })
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
fn summary_of(prefix: &Path, name: &str) -> Result<Option<Summary>, RunError> {
    let (Some(store), Ok(directory)) = (opened(prefix), DirectoryName::given(name)) else { return Ok(None) };
    let index = index::read(&*store).map_err(RunError::CannotRestart)?;
    if index.is_none_or(|index| index.entry(&directory).is_none()) {
        return Ok(None);
    }
    Ok(summary::of(&*store, &directory).ok().filter(|summary| summary.accept(summary.ranks).is_ok()))
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
            if summary_of(prefix, name)?.is_some() {
                publish::make_current(&*store::open(prefix)?, &DirectoryName::given(name).map_err(PrefixError::from)?)?;
            }
            Ok(BTreeSet::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn step(source: &str) -> Step {
        let text = format!("run: {{command: [./app], nodes: 2, ranks_per_node: 2}}\ncheckpoint: {{{source}}}\n");
        let spec = JobSpec::of_test(&text);
        spec.steps.into_iter().next().unwrap()
    }

    fn written(ranks: u32) -> Written {
        Written { ranks, checkpoint: CheckpointId(8), place: "/pfs/ckpt.8".to_owned() }
    }

    #[test]
    fn only_a_checkpoint_of_as_many_ranks_fits() {
        let step = step("source: scr");
        assert!(fits(&step, None).is_ok() && fits(&step, Some(written(4))).is_ok());
        for ranks in [3, 5] {
            let error = fits(&step, Some(written(ranks))).unwrap_err();
            assert_eq!(error.exit_code(), exit::CONFIGURATION);
            let expected = format!("checkpoint 8 of `job` was written by {ranks} ranks, and this run has 4; nothing");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_run_under_way_is_taken_over_with_as_many_ranks() {
        let step = step("source: scr");
        assert!(runs_as_many(&step, None) && runs_as_many(&step, Some(4)));
        assert!(!runs_as_many(&step, Some(3)));
    }

    #[test]
    fn programs_that_make_the_calls_of_scr_read_each_others_files_and_no_others_do() {
        let command = "source: command, watch: {files: [state]}";
        let cases = [
            ("scr", "source: scr-files", true),
            ("scr-files", "source: scr", true),
            ("scr", "source: variables", false),
            ("variables", "source: scr", false),
            ("variables", "source: variables", true),
            ("scr", command, false),
            ("command", command, true),
            ("of another version", "source: scr", true),
        ];
        for (writer, reader, expected) in cases {
            let step = step(reader);
            let readable = is_readable(&step, Some(writer.to_owned()), Some(&written(4)));
            assert_eq!(readable.is_ok(), expected, "{writer}, {reader}");
            assert!(is_readable(&step, Some(writer.to_owned()), None).is_ok(), "there is nothing to read");
        }
    }
}
