//! Programs that do not use the API are silent between two checkpoints, which must not count as a hang.

use std::time::Duration;

use crate::spec::{StepCheck, quantity};

/// A time in which the ranks may be silent.
pub(super) struct Silence {
    /// The key that sets it.
    pub(super) key: &'static str,
    pub(super) time: Duration,
}

/// Refuses a `limit` of `health` that is not longer than the longest silence.
pub(super) fn check(step: &StepCheck<'_>, limit: &str, after: Option<Duration>, silences: &[Silence]) {
    let Some(after) = after else { return };
    let Some(Silence { key, time }) = silences.iter().max_by_key(|silence| silence.time) else { return };
    if after <= *time {
        let (after, silence) = (quantity::format_duration(after), quantity::format_duration(*time));
        let message = format!(
            "`{}` ({silence}) is not shorter than `{limit}` ({after}): the time between two checkpoints would count \
             as a hang",
            step.path_of(key)
        );
        let help = format!("make `{limit}` longer, or `{key}` shorter");
        step.mistake_in_job(&format!("health.{limit}"), message, help);
    }
}
