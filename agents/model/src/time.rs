//! Points in time and durations as they travel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    /// From seconds since the epoch, as SCR's files have them.
    pub const fn from_secs(secs: i64) -> Timestamp {
        Timestamp(secs.saturating_mul(1000))
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(millis(after)),
            Err(before) => Timestamp(-millis(before.duration())),
        }
    }
}

/// A module for `#[serde(with = …)]`: durations as whole units.
macro_rules! durations_as {
    ($(#[$meta:meta])* $unit:ident, $as_unit:ident, $from_unit:ident) => {
        $(#[$meta])*
        pub mod $unit {
            use std::time::Duration;

            use serde::{Deserialize, Deserializer, Serializer};

            /// # Errors
            /// Those of the serializer.
            pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(u64::try_from(value.$as_unit()).unwrap_or(u64::MAX))
            }

            /// # Errors
            /// Those of the deserializer.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
                u64::deserialize(deserializer).map(Duration::$from_unit)
            }
        }
    };
}

durations_as! {
    /// Durations as whole milliseconds: `#[serde(with = "holdfast_model::time::millis")]`.
    millis, as_millis, from_millis
}

durations_as! {
    /// Durations as whole microseconds: `#[serde(with = "holdfast_model::time::micros")]`.
    micros, as_micros, from_micros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_towards_the_past() {
        assert_eq!(Timestamp::from_millis(-1).secs(), -1);
        assert_eq!(Timestamp::from_millis(1999).secs(), 1);
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_millis(1500)), Timestamp::from_millis(1500));
    }

    #[test]
    fn a_later_time_is_not_before_an_earlier_one() {
        let (early, late) = (Timestamp::from_secs(10), Timestamp::from_secs(12));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
