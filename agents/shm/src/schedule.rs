//! When copies beat, and when their beats are read.
//!
//! All copies of a machine beat at the multiples of their period, by the monotonic clock; the agent reads the beats
//! half a period later. Just after the heartbeat whose absence makes a copy one that hangs, they are read once more.

use std::ffi::CStr;
use std::time::Duration;

/// The name of a copy's thread while it beats, by which the agent finds it.
pub const BEAT_THREAD: &CStr = c"holdfast-beat";

/// The first time after this one at which a copy beats.
pub fn next_beat(period: Duration, now: Duration) -> Duration {
    let since = now.as_nanos() % period.as_nanos().max(1);
    now + period.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(0)))
}

/// The first time after this one at which beats are read.
pub fn next_look(period: Duration, now: Duration) -> Duration {
    next_beat(period, now + period / 2) - period / 2
}

/// The first time after this one that is just after a heartbeat.
pub fn early_look(period: Duration, now: Duration) -> Duration {
    let after = period / 10;
    next_beat(period, now.saturating_sub(after)) + after
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn beats_are_at_multiples_of_the_period_and_not_made_up_for() {
        assert_eq!(next_beat(MS(1), MS(10)), MS(11));
        assert_eq!(next_beat(MS(1), MS(10) + Duration::from_micros(200)), MS(11));
        assert_eq!(next_beat(MS(20), MS(507)), MS(520));
    }

    #[test]
    fn beats_are_read_half_a_period_after_them() {
        assert_eq!([500, 509, 510, 519].map(|now| next_look(MS(20), MS(now))), [510, 510, 530, 530].map(MS));
    }

    #[test]
    fn an_early_look_is_a_tenth_of_a_period_after_a_heartbeat() {
        assert_eq!([500, 501, 502, 510, 521].map(|now| early_look(MS(20), MS(now))), [502, 502, 522, 522, 522].map(MS));
    }
}
