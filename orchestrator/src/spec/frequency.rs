//! `checkpoint.every`: how often there are checkpoints, one key for all sources. Each source has finer keys, which set
//! the same.

use std::time::Duration;

use holdfast_model::{NeedPolicy, SnapshotIntervals};
use holdfast_wire::run::CheckpointSchedule;

use super::checkpoint::Checkpoint;
use super::checkpoint_source::StepCheck;
use super::quantity;
use super::registered::FrequencyFacts;
use super::value_kinds::ValueKind;

/// With `auto`, checkpoints block the ranks for at most this percentage of the time.
pub const SHARE: u8 = 5;
/// Shorter intervals leave a program no time.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);

/// How often there are checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// So long after the end of the last one.
    Time(Duration),
    /// At every so many calls of the program that asks.
    Calls(u32),
    /// As often as they block the ranks for at most [`SHARE`] percent of the time.
    Auto,
}

/// `10min`, `50 calls` or `auto`.
pub(super) fn frequency() -> ValueKind<Frequency> {
    let read = |text: &str| {
        if text == "auto" {
            return Some(Frequency::Auto);
        }
        if let Some(count) = text.strip_suffix("calls").or_else(|| text.strip_suffix("call")) {
            return count.trim().parse().ok().filter(|count| *count > 0).map(Frequency::Calls);
        }
        quantity::parse_duration(text).filter(|time| !time.is_zero()).map(Frequency::Time)
    };
    let show = |frequency: &Frequency| match frequency {
        Frequency::Time(time) => quantity::format_duration(*time),
        Frequency::Calls(1) => "1 call".to_owned(),
        Frequency::Calls(count) => format!("{count} calls"),
        Frequency::Auto => "auto".to_owned(),
    };
    ValueKind::new("a time, `N calls` or `auto`, such as `10min` or `50 calls`", read, show)
}

impl Checkpoint {
    /// When `SCR_Need_checkpoint` returns true.
    pub fn need_in_force(&self) -> NeedPolicy {
        match self.every {
            None => self.need,
            Some(Frequency::Time(time)) => NeedPolicy { time, ..NeedPolicy::default() },
            Some(Frequency::Calls(interval)) => NeedPolicy { interval, ..NeedPolicy::default() },
            Some(Frequency::Auto) => NeedPolicy { overhead: SHARE.into(), ..NeedPolicy::default() },
        }
    }

    /// When rank processes make a checkpoint; `own` is the finer key of the source.
    pub fn schedule_in_force(&self, own: Option<Duration>) -> CheckpointSchedule {
        match (self.every, own) {
            (Some(Frequency::Time(time)), _) | (None, Some(time)) => CheckpointSchedule::Every(time),
            (Some(Frequency::Auto | Frequency::Calls(_)) | None, _) => CheckpointSchedule::Share(SHARE),
        }
    }

    /// What is in force without the key, if that is one frequency. `schedule` is that of rank processes.
    pub fn default_frequency(&self, schedule: Option<CheckpointSchedule>) -> Option<String> {
        match (schedule, self.every) {
            (_, Some(_)) => None,
            (Some(CheckpointSchedule::Every(time)), _) => Some((frequency().show)(&Frequency::Time(time))),
            (Some(CheckpointSchedule::Share(_)), _) => Some((frequency().show)(&Frequency::Auto)),
            (Some(CheckpointSchedule::WhenReady) | None, _) => None,
        }
    }

    /// True for `auto`, by the key or by default. `schedule` is that of rank processes.
    pub fn is_auto(&self, schedule: Option<CheckpointSchedule>) -> bool {
        self.every == Some(Frequency::Auto) || matches!(schedule, Some(CheckpointSchedule::Share(_)))
    }

    /// When snapshots of variables are due. A time is that of level 1; the other levels keep FTI's proportions.
    pub fn snapshots_in_force(&self) -> SnapshotIntervals {
        let known = self.variables.snapshots;
        let Some(Frequency::Time(time)) = self.every else { return known };
        let scaled = |interval: Duration| {
            let millis = time.as_millis().saturating_mul(interval.as_millis()) / known.local.as_millis().max(1);
            Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        SnapshotIntervals {
            local: time,
            partner: scaled(known.partner),
            parity: scaled(known.parity),
            prefix: scaled(known.prefix),
        }
    }
}

/// What `auto` does, in words. `mtbf` is `health.mtbf`.
pub fn explained(mtbf: Option<Duration>) -> String {
    let bound = format!("but so that checkpoints block the ranks for at most {SHARE} % of the time");
    match mtbf {
        Some(mtbf) => {
            format!("Daly's interval for a failure every {} (`health.mtbf`), {bound}", quantity::format_duration(mtbf))
        }
        None => format!(
            "Daly's interval for the failures of the job from the first one on (`health.mtbf` is not set), {bound}; \
             before it, as often as that allows"
        ),
    }
}

/// Refuses a frequency that the source cannot keep, or that a finer key contradicts.
pub(super) fn check(step: &StepCheck<'_>, source: &str, facts: &FrequencyFacts) {
    let Some(every) = step.checkpoint.every else { return };
    let mistake = |message: String, help: &str| step.mistake("every", message, help);
    match facts {
        FrequencyFacts::None { help } => mistake(format!("`every` has no effect with `source: {source}`"), help),
        FrequencyFacts::Keys { counts_calls, whole_seconds, finer } => {
            if matches!(every, Frequency::Calls(_)) && !counts_calls {
                let message = format!("`source: {source}` counts no calls");
                mistake(message, "write a time or `auto`: `every: 10min`");
            }
            if matches!(every, Frequency::Time(time) if time < SHORTEST) {
                mistake("shorter than 100ms".to_owned(), "write `every: 10min`");
            }
            if matches!(every, Frequency::Time(time) if time.subsec_nanos() > 0) && *whole_seconds {
                mistake(format!("`source: {source}` counts whole seconds"), "write `every: 10min`");
            }
            for key in *finer {
                let message = format!("`{key}` and `every` set the same");
                step.refuse(key, message, "remove one of them");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_explained_with_the_mean_time_between_failures() {
        assert!(explained(Some(Duration::from_secs(43_200))).starts_with("Daly's interval for a failure every 12h ("));
        assert!(explained(None).contains("`health.mtbf` is not set"));
    }

    #[test]
    fn a_frequency_is_a_time_a_number_of_calls_or_auto() {
        let kind = frequency();
        for (text, expected) in [
            ("10min", Frequency::Time(Duration::from_secs(600))),
            ("50 calls", Frequency::Calls(50)),
            ("1 call", Frequency::Calls(1)),
            ("auto", Frequency::Auto),
        ] {
            let read = (kind.read)(text).unwrap();
            assert_eq!(read, expected);
            assert_eq!((kind.show)(&read), text);
        }
        for text in ["0 calls", "calls", "0s", "often", "-3 calls", ""] {
            assert!((kind.read)(text).is_err(), "{text}");
        }
    }
}
