//! Durations, sizes and points in time: parsed and formatted.
//!
//! `humantime` and `bytesize` do not fit the syntax of specs: `humantime` accepts neither `1.5s` nor `0` without a
//! unit, and has months and years, which allocations do not need; `bytesize` reads `200MB` with powers of ten, whereas
//! SCR, whose parameters have the same meaning here, uses powers of two.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Local, NaiveDateTime, TimeZone, Utc};

/// In microseconds.
const DURATION_UNITS: [(&str, u64); 15] = [
    ("us", 1),
    ("ms", MILLISECOND),
    ("s", 1_000 * MILLISECOND),
    ("sec", 1_000 * MILLISECOND),
    ("second", 1_000 * MILLISECOND),
    ("seconds", 1_000 * MILLISECOND),
    ("m", 60_000 * MILLISECOND),
    ("min", 60_000 * MILLISECOND),
    ("minute", 60_000 * MILLISECOND),
    ("minutes", 60_000 * MILLISECOND),
    ("h", 3_600_000 * MILLISECOND),
    ("hour", 3_600_000 * MILLISECOND),
    ("hours", 3_600_000 * MILLISECOND),
    ("d", 86_400_000 * MILLISECOND),
    ("days", 86_400_000 * MILLISECOND),
];
const MILLISECOND: u64 = 1_000;

/// Longer durations are refused, so that the sum of two cannot overflow.
const LONGEST: u64 = 100 * 365 * 86_400_000 * MILLISECOND;

/// The last second of the year 9999, in seconds since 1970. Later points in time are refused.
pub(crate) const LATEST: u64 = 253_402_300_799;

/// Reads `250ms`, `1.5s`, `5min`, `1h30m`, `2 d`, or `0`. A number other than 0 without a unit is refused as ambiguous.
pub fn parse_duration(text: &str) -> Option<Duration> {
    parse_in(text, MILLISECOND)
}

/// Also reads `100us` and `0.1ms`.
pub fn parse_short_duration(text: &str) -> Option<Duration> {
    parse_in(text, 1)
}

/// Reads a duration that is a multiple of the smallest unit, in microseconds; parts of it are dropped.
fn parse_in(text: &str, smallest: u64) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit = DURATION_UNITS.iter().find(|(name, unit_us)| *name == unit && *unit_us >= smallest)?.1;
        total = total.checked_add(scaled(number, unit)?)?;
        rest = after.trim_start();
    }
    (!text.trim().is_empty() && total <= LONGEST).then(|| Duration::from_micros(total - total % smallest))
}

/// `number` × `unit`, rounded down; `number` may have a fraction.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
        || fraction.len() > 9
    {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return if number.ends_with('.') { None } else { Some(whole) };
    }
    let parts = fraction.parse::<u128>().ok()? * u128::from(unit) / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_add(u64::try_from(parts).ok()?)
}

/// The whole milliseconds of a time.
pub fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a duration so that [`parse_duration`] reads it back; milliseconds are the smallest unit.
pub fn format_duration(duration: Duration) -> String {
    let mut left = whole_millis(duration);
    if left == 0 {
        return "0".to_owned();
    }
    let mut text = String::new();
    for (unit, milliseconds) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)] {
        if left >= milliseconds {
            text.push_str(&format!("{}{unit}", left / milliseconds));
            left %= milliseconds;
        }
    }
    text
}

/// Writes a duration so that [`parse_short_duration`] reads it back; microseconds are the smallest unit.
pub fn format_short_duration(duration: Duration) -> String {
    match (duration.as_millis(), duration.subsec_micros() % 1_000) {
        (_, 0) => format_duration(duration),
        (0, micros) => format!("{micros}us"),
        (_, micros) => format!("{}{micros}us", format_duration(duration)),
    }
}

/// Reads a number of bytes: `4096`, `1GiB`, `200MB`, `64k`. All units are powers of 1024, as in SCR (`SCR manual §10`):
/// a `bandwidth` of `200MB/s` must mean the same in a spec and in `SCR_FLUSH_ASYNC_BW`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    scaled(number, unit)
}

/// Reads bytes per second: a size with or without `/s`.
pub fn parse_bandwidth(text: &str) -> Option<u64> {
    let text = text.trim();
    parse_bytes(text.strip_suffix("/s").unwrap_or(text))
}

/// Writes a number of bytes so that [`parse_bytes`] reads it back to the byte.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, size) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// Reads a point in time: RFC 3339 with a zone, or `2026-11-20 18:00:00` (also with a `T`, or without seconds) in
/// local time.
pub fn parse_time(text: &str) -> Option<SystemTime> {
    let within = |time: &SystemTime| {
        let distance = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_else(|before| before.duration());
        distance.as_secs() <= LATEST
    };
    any_time(text).filter(within)
}

fn any_time(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.with_timezone(&Utc).into());
    }
    let text = text.replace('T', " ");
    ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"].iter().find_map(|format| {
        let naive = NaiveDateTime::parse_from_str(&text, format).ok()?;
        Some(Local.from_local_datetime(&naive).earliest()?.into())
    })
}

/// Writes a point in time so that [`parse_time`] reads it back to the second, with the local zone.
pub fn format_time(time: SystemTime) -> String {
    // Times that calendars cannot express are written as seconds since 1970, which is what they were read as.
    let seconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i128::from(since.as_secs()),
        Err(before) => -i128::from(before.duration().as_secs()),
    };
    match i64::try_from(seconds).ok().filter(|seconds| seconds.unsigned_abs() <= LATEST) {
        Some(seconds) => match Local.timestamp_opt(seconds, 0).earliest() {
            Some(time) => time.format("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            None => seconds.to_string(),
        },
        None => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_spelling_of_the_manual_and_written_back() {
        for (text, milliseconds) in
            [("250ms", 250), ("5min", 300_000), ("1h30m", 5_400_000), ("1.5s", 1_500), ("0", 0), ("2 d", 172_800_000)]
        {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(parse_duration(&format_duration(duration)), Some(duration), "{text}");
        }
    }

    #[test]
    fn short_durations_have_microseconds() {
        for (text, micros) in [("100us", 100), ("0.1ms", 100), ("1.5ms", 1_500), ("1ms500us", 1_500), ("1s", 1_000_000)]
        {
            let duration = parse_short_duration(text).unwrap();
            assert_eq!(duration, Duration::from_micros(micros), "{text}");
            assert_eq!(parse_short_duration(&format_short_duration(duration)), Some(duration), "{text}");
        }
        assert_eq!(parse_duration("100us"), None);
        assert_eq!(parse_duration("1.5ms"), Some(Duration::from_millis(1)));
        assert_eq!(parse_short_duration("0.1us"), Some(Duration::ZERO));
    }

    #[test]
    fn a_duration_without_unit_or_with_nonsense_is_refused() {
        for text in ["", "250", "5 parsecs", "-1s", "1h30", "s", "1.s", "1..5s", "99999999999999999999s", "999999999d"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024_in_every_spelling_and_are_written_back() {
        for (text, bytes) in
            [("4096", 4096), ("1GiB", 1 << 30), ("200MB", 200 << 20), ("64k", 65_536), ("1.5 MiB", 3 << 19), ("0", 0)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes), "{text}");
        }
        assert_eq!(parse_bandwidth("200MB/s"), Some(200 << 20));
        for text in ["", "MB", "1XB", "-1", "1e9", "99999999999999999999", "20000000TB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn points_in_time_are_read_with_and_without_zone() {
        let time = parse_time("2026-11-20T18:00:00Z").unwrap();
        assert_eq!(parse_time(&format_time(time)), Some(time));
        assert_eq!(parse_time("2026-11-20 18:00"), parse_time("2026-11-20T18:00:00"));
        assert_eq!(parse_time("tomorrow"), None);
    }
}
