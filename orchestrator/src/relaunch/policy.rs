//! Relaunch or stop: what follows from the end of a generation.

use std::time::Duration;

use holdfast_model::RankEnd;

use super::classify::ActiveGeneration;
use super::config::Config;
use super::snapshot::Snapshot;
use crate::events::{EndCause, StopReason};
use crate::launch::Obstacle;
use crate::spec::ExitAction;

/// The exit codes with which a shell, a launcher or the loader reports a program that cannot be started.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// A program that runs for longer was loaded.
const LOADED_WITHIN: Duration = Duration::from_secs(60);

/// Why the loop stops after a generation that ended for this cause, which counts for the limits or not; `None` if it
/// goes on.
pub(super) fn stop_after(
    config: &Config,
    state: &Snapshot,
    active: &ActiveGeneration,
    (cause, counts): (&EndCause, bool),
    launch_until: Option<Duration>,
    now: Duration,
) -> Option<StopReason> {
    match cause {
        cause if cause.is_finished() => return Some(StopReason::Finished),
        EndCause::Halted { reason } if active.facts.signal.is_none() => {
            return Some(StopReason::Halted { reason: reason.clone() });
        }
        EndCause::TimeLimit => return Some(StopReason::TimeLimit),
        EndCause::Application { rank, end } if config.action_after(*end) == ExitAction::Stop => {
            return Some(StopReason::ApplicationError { rank: *rank, end: *end });
        }
        // Another generation, or another allocation, would only end the same way.
        EndCause::RestartPrevented { nodes, reason } if nodes.is_empty() => {
            return Some(StopReason::CannotRestart { reason: reason.clone() });
        }
        // It had called finalize: another launch would only end the same way.
        EndCause::Application { rank, end } if active.facts.finalized => {
            return Some(StopReason::FailedAfterFinalize { rank: *rank, end: *end });
        }
        _ => {}
    }
    if let Some(reason) = incurable(state, active, cause, now) {
        return Some(StopReason::Incurable { reason });
    }
    if let Some(name) = active.facts.signal.as_ref().or(state.head.signal.as_ref()) {
        return Some(StopReason::Signal { name: name.clone() });
    }
    if let Some(reason) = state.head.halt.as_ref().or(active.facts.halting.as_ref()) {
        return Some(StopReason::Halted { reason: reason.clone() });
    }
    if launch_until.is_some_and(|limit| now >= limit) {
        return Some(StopReason::TimeLimit);
    }
    if counts { limit_reached(config, state, cause) } else { None }
}

/// Why another launch would end in the same way: an agent refused the program, or the first generation could not be
/// started or loaded.
fn incurable(state: &Snapshot, active: &ActiveGeneration, cause: &EndCause, now: Duration) -> Option<String> {
    let facts = &active.facts;
    if facts.joined {
        return None;
    }
    let is_first = state.history.len() == 1;
    match cause {
        EndCause::Application { end: RankEnd::Code(NOT_EXECUTABLE | NOT_FOUND), .. } => {
            let is_soon = now.saturating_sub(facts.launched) < LOADED_WITHIN;
            let what = "the program, or a library that it needs, cannot be loaded; its output has the reason";
            (is_first && is_soon).then(|| format!("{cause}: {what}"))
        }
        EndCause::Application { .. } | EndCause::WithoutFinalize => state.head.refused.clone(),
        EndCause::LaunchFailed { reason } if facts.obstacle == Some(Obstacle::Job) => is_first.then(|| reason.clone()),
        _ => None,
    }
}

/// The limit of relaunches that is reached after a generation that ended for this cause, if there is one.
pub(super) fn limit_reached(config: &Config, state: &Snapshot, cause: &EndCause) -> Option<StopReason> {
    if state.head.without_progress >= config.no_progress_limit.max(1) {
        return Some(StopReason::NoProgress {
            generations: state.head.without_progress,
            checkpoint: state.head.secured,
            other_sources: config.checks_progress,
            last: cause.clone(),
        });
    }
    if state.head.launches - state.head.uncounted_launches > config.attempts {
        return Some(StopReason::AttemptsUsed { attempts: config.attempts, last: cause.clone() });
    }
    None
}
