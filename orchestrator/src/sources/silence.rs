//! Programs that do not use the API are silent between two checkpoints, which must not count as a hang.

use std::time::Duration;

use holdfast_wire::run::CheckpointSchedule;

use crate::spec::{StepCheck, quantity};

/// A time in which the ranks may be silent.
pub(super) struct Silence {
    /// The key that sets it.
    pub(super) key: &'static str,
    /// `None`: it has no limit.
    pub(super) time: Option<Duration>,
}

impl Silence {
    /// The time between two checkpoints; `own` is the key of the source that sets it.
    pub(super) fn between_checkpoints(step: &StepCheck<'_>, own: &'static str, time: Option<Duration>) -> Silence {
        match step.checkpoint.schedule_in_force(time) {
            CheckpointSchedule::Every(every) if time == Some(every) => Silence { key: own, time },
            CheckpointSchedule::Every(every) => Silence { key: "every", time: Some(every) },
            CheckpointSchedule::Share(_) | CheckpointSchedule::WhenReady => Silence { key: "every", time: None },
        }
    }
}

/// Refuses a `limit` of `health` that is not longer than the longest silence.
pub(super) fn check(step: &StepCheck<'_>, limit: &str, after: Option<Duration>, silences: &[Silence]) {
    let Some(after) = after else { return };
    let longest = silences.iter().max_by_key(|silence| silence.time.unwrap_or(Duration::MAX));
    let Some(Silence { key, time }) = longest else { return };
    let (path, after_text) = (step.path_of(key), quantity::format_duration(after));
    let (message, help) = match time {
        None => (
            format!(
                "with `{path}: auto` the time between two checkpoints has no limit, and a long one would count as a \
                 hang after `{limit}` ({after_text})"
            ),
            format!("write a time that is shorter than `{limit}`: `checkpoint: {{every: …}}`"),
        ),
        Some(time) if after <= *time => (
            format!(
                "`{path}` ({}) is not shorter than `{limit}` ({after_text}): the time between two checkpoints would \
                 count as a hang",
                quantity::format_duration(*time)
            ),
            format!("make `{limit}` longer, or `{key}` shorter"),
        ),
        Some(_) => return,
    };
    step.mistake_in_job(&format!("health.{limit}"), message, help);
}
