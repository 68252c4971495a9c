//! The report of a job at its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::prefix::index;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::store;
use holdfast_model::CheckpointId;

use super::earlier_steps::EarlierSteps;
use super::schedule::{Schedule, StepState};
use super::state;
use super::step::StepDriver;
use crate::events::reader::Reader;
use crate::events::report::GenerationReport;
use crate::events::{
    Cost, DownReason, DrainResult, EndCause, History, PrefixReport, RunReport, StepReport, StepResult, TimedReason,
};
use crate::exit;
use crate::relaunch::Outcome;
use crate::relaunch::explain::NodeCondition;
use crate::spec::JobSpec;

/// The checkpoint in the prefix directory is left out of the report if it cannot be read within this.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The report of a step whose loop is over.
pub(super) async fn of_step(driver: &StepDriver<'_>, began: Instant) -> RunReport {
    let (outcome, prefix) = (driver.outcome.as_ref(), &driver.settings.prefix);
    let explanation = driver.machine.explain();
    let generations = explanation.generations.iter().map(|past| GenerationReport {
        generation: past.generation,
        from: past.from,
        beginning: past.beginning.clone(),
        launched: !past.ended.as_ref().is_some_and(|ended| matches!(ended.reason, EndCause::LaunchFailed { .. })),
        ended: past.ended.as_ref().map_or_else(|| "still running".to_owned(), |ended| ended.reason.to_string()),
        joined: past.joined,
        newest: past.newest,
        progress: past.progress.clone(),
    });
    let down = explanation.nodes.iter().filter_map(|node| match &node.condition {
        NodeCondition::Down(TimedReason { reason: DownReason::Excluded { .. }, .. }) => None,
        NodeCondition::Down(cause) => Some((node.node.clone(), cause.reason.to_string())),
        NodeCondition::Starting { .. } | NodeCondition::Healthy => None,
    });
    let excluded =
        explanation.nodes.iter().filter_map(|node| Some((node.node.clone(), node.excluded.as_ref()?.reason.clone())));
    let (drained, complete) = match outcome.and_then(|outcome| outcome.drain.as_ref()) {
        Some(DrainResult::Complete { checkpoint }) => (Some(*checkpoint), Some(true)),
        Some(DrainResult::Incomplete { .. } | DrainResult::Failed { .. }) => (None, Some(false)),
        Some(DrainResult::Nothing) | None => (None, None),
    };
    let read_from = prefix.clone();
    let read = tokio::task::spawn_blocking(move || current_checkpoint(&read_from));
    let current = tokio::time::timeout(READ_WITHIN, read).await.ok().and_then(Result::ok).flatten();
    let cost = cost(driver).await;
    let last = explanation.generations.last().map(|past| state::generation_directory(prefix, past.generation));
    RunReport {
        job: driver.spec.job.clone(),
        job_id: driver.allocation.job_id().to_owned(),
        outcome: outcome.map_or_else(|| "the loop ended without an outcome".to_owned(), ToString::to_string),
        exit_code: outcome.map_or(exit::INTERNAL, Outcome::exit_code),
        generations: generations.collect(),
        virtual_nodes: driver.allocation.record().has_virtual_nodes().then(|| driver.allocation.nodes().len()),
        nodes_down: down.collect(),
        nodes_excluded: excluded.collect(),
        files: PrefixReport {
            checkpoint: current.as_ref().and_then(|current| current.0).or(drained),
            checkpoint_directory: current.map(|current| current.1),
            complete,
            output: last,
            ..PrefixReport::new(prefix.clone(), driver.spec.event_log)
        },
        cost,
        took: began.elapsed(),
        ..RunReport::default()
    }
}

/// What the step has cost since the job began. An orchestrator that took over knows the events before only from the
/// log; they are left out if there is none, or if it cannot be read in time.
async fn cost(driver: &StepDriver<'_>) -> Option<Cost> {
    let reporter = &driver.reporter;
    if reporter.costs.is_complete() {
        return reporter.costs.cost(None);
    }
    let directory = StateDirectory::below(&driver.settings.prefix).path().to_owned();
    reporter.event_log.as_ref()?;
    let read = tokio::task::spawn_blocking(move || History::of(Reader::open(&directory).ok()??).ok());
    tokio::time::timeout(READ_WITHIN, read).await.ok().and_then(Result::ok).flatten()?.costs.cost(None)
}

/// The current checkpoint of a prefix directory: its id, if it is known, and its directory.
fn current_checkpoint(prefix: &Path) -> Option<(Option<CheckpointId>, PathBuf)> {
    let store = store::open(prefix).ok()?;
    let directory = store.current().ok().flatten()?;
    // Without an entry in the index, the name of the directory may have the id.
    let indexed = index::read(&*store).ok().flatten().and_then(|index| index.id_of(&directory));
    Some((indexed.or_else(|| directory.parts().map(|parts| parts.id)), store.path_of(&directory)))
}

/// The report of a job: of its only step, or of all its steps.
pub(super) fn of_job(
    spec: &JobSpec,
    schedule: &Schedule,
    mut reports: BTreeMap<usize, RunReport>,
    earlier: &EarlierSteps,
    took: Duration,
) -> RunReport {
    if spec.has_short_form() {
        return reports.remove(&0).unwrap_or_else(|| of_earlier_step(spec, 0, earlier));
    }
    let steps =
        (0..spec.steps.len()).map(|at| of_scheduled_step(spec, at, schedule.state(at), reports.get(&at), earlier));
    let steps: Vec<StepReport> = steps.collect();
    let generations = reports.values().flat_map(|report| report.generations.clone()).collect();
    let finished = steps.iter().filter(|step| step.result == StepResult::Finished).count();
    let failed = steps.iter().filter(|step| step.result == StepResult::Failed);
    let outcome = match failed.min_by_key(|step| step.exit_code != Some(schedule.exit_code())) {
        None if reports.is_empty() => format!("all {finished} steps were finished in earlier runs; {REPEAT}"),
        None if finished < steps.len() => format!("{finished} of {} steps are finished", steps.len()),
        None => format!("all {finished} steps are finished"),
        Some(step) => format!("{finished} of {} steps are finished; {}: {}", steps.len(), step.name, step.outcome),
    };
    let last = reports.into_values().last().unwrap_or_else(|| of_earlier_step(spec, spec.steps.len() - 1, earlier));
    RunReport {
        outcome,
        exit_code: schedule.exit_code(),
        generations,
        steps,
        files: PrefixReport { prefix: spec.prefix.clone(), ..last.files },
        took,
        ..last
    }
}

fn of_scheduled_step(
    spec: &JobSpec,
    at: usize,
    state: &StepState,
    report: Option<&RunReport>,
    earlier: &EarlierSteps,
) -> StepReport {
    let (result, outcome) = match state {
        StepState::Finished { earlier: true } => (StepResult::Finished, "finished in an earlier run".to_owned()),
        StepState::Finished { earlier: false } => (StepResult::Finished, "finished".to_owned()),
        StepState::Failed { .. } => {
            let message = earlier.message(at).unwrap_or("it failed before its orchestrator ended");
            (StepResult::Failed, message.to_owned())
        }
        StepState::Skipped { needs } => (StepResult::Skipped, format!("skipped: it needs {needs}")),
        StepState::Waiting | StepState::Running => (StepResult::NotStarted, "not started".to_owned()),
    };
    let exit_code = match state {
        StepState::Finished { .. } => Some(exit::FINISHED),
        StepState::Failed { exit_code } => Some(*exit_code),
        StepState::Skipped { .. } | StepState::Waiting | StepState::Running => None,
    };
    // The reason why a loop stops is that of a job of one step.
    let outcome = report.map_or(outcome, |report| report.outcome.replacen("the job is finished", "finished", 1));
    let report = report.cloned().unwrap_or_else(|| of_earlier_step(spec, at, earlier));
    let RunReport { generations, files, .. } = report;
    StepReport { name: spec.steps[at].name.clone(), result, exit_code, outcome, generations, files }
}

/// How to run a finished job again.
const REPEAT: &str = "`holdfast run --again` repeats it";

/// The report of a step that did not run now.
fn of_earlier_step(spec: &JobSpec, at: usize, earlier: &EarlierSteps) -> RunReport {
    let step = &spec.steps[at];
    let prefix = step.prefix.canonicalize().unwrap_or_else(|_| step.prefix.clone());
    let current = current_checkpoint(&prefix);
    RunReport {
        job: spec.job.clone(),
        job_id: earlier.job_id(at).unwrap_or_default().to_owned(),
        outcome: format!("the job was finished in an earlier run; {REPEAT}"),
        exit_code: exit::FINISHED,
        files: PrefixReport {
            checkpoint: current.as_ref().and_then(|current| current.0),
            checkpoint_directory: current.map(|current| current.1),
            ..PrefixReport::new(prefix, spec.event_log)
        },
        ..RunReport::default()
    }
}
