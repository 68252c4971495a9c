//! The report of a step at its end.

use std::time::{Duration, Instant};

use holdfast_core::prefix::Prefix;

use super::error::RunError;
use super::start;
use super::state;
use super::step::StepDriver;
use crate::events::report::GenerationReport;
use crate::events::{DrainResult, EndCause, RunReport};
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
        launched: !past.ended.as_ref().is_some_and(|ended| matches!(ended.reason, EndCause::LaunchFailed { .. })),
        ended: past.ended.as_ref().map_or_else(|| "still running".to_owned(), |ended| ended.reason.to_string()),
        newest: past.newest,
    });
    let down = explanation.nodes.iter().filter_map(|node| match &node.condition {
        NodeCondition::Down(cause) => Some((node.node.clone(), cause.reason.to_string())),
        NodeCondition::Starting { .. } | NodeCondition::Healthy => None,
    });
    let (drained, complete) = match outcome.and_then(|outcome| outcome.drain.as_ref()) {
        Some(DrainResult::Complete { checkpoint }) => (Some(*checkpoint), Some(true)),
        Some(DrainResult::Incomplete { .. } | DrainResult::Failed { .. }) => (None, Some(false)),
        Some(DrainResult::Nothing) | None => (None, None),
    };
    let read_from = prefix.clone();
    let read = tokio::task::spawn_blocking(move || {
        let prefix = Prefix::open(&read_from).ok()?;
        let directory = prefix.current().ok().flatten()?;
        Some((directory.parts().map(|parts| parts.id), prefix.checkpoint_path(&directory)))
    });
    let current = tokio::time::timeout(READ_WITHIN, read).await.ok().and_then(Result::ok).flatten();
    let last = explanation.generations.last().map(|past| state::generation_directory(prefix, past.generation));
    RunReport {
        job: driver.spec.job.clone(),
        job_id: driver.allocation.job_id().to_owned(),
        outcome: outcome.map_or_else(|| "the loop ended without an outcome".to_owned(), ToString::to_string),
        exit_code: outcome.map_or(exit::INTERNAL, Outcome::exit_code),
        generations: generations.collect(),
        nodes_down: down.collect(),
        checkpoint: current.as_ref().and_then(|current| current.0).or(drained),
        checkpoint_directory: current.map(|current| current.1),
        complete,
        prefix: prefix.clone(),
        output: last,
        events: state::directory(prefix).join(crate::events::log::FILE),
        took: began.elapsed(),
    }
}

/// The report of a job whose steps were all finished in earlier runs.
pub(super) fn finished_before(spec: &JobSpec) -> Result<RunReport, RunError> {
    let prefix = start::make_prefix(&spec.prefix)?;
    Ok(RunReport {
        job: spec.job.clone(),
        job_id: String::new(),
        outcome: "all steps were finished in earlier runs".to_owned(),
        exit_code: exit::FINISHED,
        generations: Vec::new(),
        nodes_down: Vec::new(),
        checkpoint: None,
        checkpoint_directory: None,
        complete: None,
        output: None,
        events: state::directory(&prefix).join(crate::events::log::FILE),
        prefix,
        took: Duration::ZERO,
    })
}
