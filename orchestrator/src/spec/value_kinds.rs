//! Kinds of single values: what is expected, how it is read and written, and how it is spelled in SCR parameters.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use holdfast_core::hostlist;
use holdfast_core::redundancy::registry;
use holdfast_model::{NodeName, Scheme};
use holdfast_patterns::FilePatterns;
use holdfast_rank::Until;
use holdfast_rank::signal::signal_of;

use super::diagnostics::nearest;
use super::quantity;
use super::registered::{Registered, RegistryEntry};

/// A message and help for a mistake that "expected …, found …" does not describe.
pub(super) type SpecificMistake = Option<(String, String)>;

type Read<T> = Box<dyn Fn(&str) -> Result<T, SpecificMistake>>;

/// A kind of single value.
pub(super) struct ValueKind<T> {
    /// Completes "expected …".
    pub(super) expected: String,
    pub(super) read: Read<T>,
    pub(super) show: fn(&T) -> String,
    /// Converts the text of an SCR parameter to the spelling of the spec.
    pub(super) from_scr: fn(&str) -> String,
}

impl<T: 'static> ValueKind<T> {
    fn new(expected: impl Into<String>, read: impl Fn(&str) -> Option<T> + 'static, show: fn(&T) -> String) -> Self {
        let read = Box::new(move |text: &str| read(text).ok_or(None));
        ValueKind { expected: expected.into(), read, show, from_scr: str::to_owned }
    }

    fn with_scr(self, from_scr: fn(&str) -> String) -> Self {
        ValueKind { from_scr, ..self }
    }
}

/// `true` or `false`; 1 or 0 in SCR.
pub(super) fn switch() -> ValueKind<bool> {
    let read = |text: &str| match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    };
    ValueKind::new("`true` or `false`", read, bool::to_string).with_scr(|text| (text == "1").to_string())
}

/// `250ms`, `5min`; seconds in SCR.
pub(super) fn duration() -> ValueKind<Duration> {
    let expected = "a duration with a unit, such as `250ms`, `30s`, `5min` or `1h30m`";
    let show = |duration: &Duration| quantity::format_duration(*duration);
    ValueKind::new(expected, quantity::parse_duration, show).with_scr(|text| format!("{text}s"))
}

/// `100us`, `1ms`.
pub(super) fn short_duration() -> ValueKind<Duration> {
    let show = |duration: &Duration| quantity::format_short_duration(*duration);
    let expected = "a duration with a unit, such as `500us`, `1ms` or `2s`";
    ValueKind::new(expected, quantity::parse_short_duration, show)
}

/// `5min`, `none`.
pub(super) fn duration_or_none() -> ValueKind<Option<Duration>> {
    let read = |text: &str| match text {
        "none" => Some(None),
        text => quantity::parse_duration(text).map(Some),
    };
    let show = |duration: &Option<Duration>| duration.map_or_else(|| "none".to_owned(), quantity::format_duration);
    ValueKind::new("a duration with a unit, such as `30s` or `5min`, or `none`", read, show)
}

/// `1GiB`.
pub(super) fn bytes() -> ValueKind<u64> {
    let show = |bytes: &u64| quantity::format_bytes(*bytes);
    ValueKind::new("a size, such as `512MiB` or `1GiB`", quantity::parse_bytes, show)
}

/// `1MiB`, in a range.
pub(super) fn bytes_within(range: RangeInclusive<u64>) -> ValueKind<u64> {
    let (low, high) = (quantity::format_bytes(*range.start()), quantity::format_bytes(*range.end()));
    let read = move |text: &str| quantity::parse_bytes(text).filter(|bytes| range.contains(bytes));
    ValueKind::new(format!("a size from {low} to {high}"), read, |bytes| quantity::format_bytes(*bytes))
}

/// `200MB/s`.
pub(super) fn bandwidth() -> ValueKind<u64> {
    let show = |bytes: &u64| format!("{}/s", quantity::format_bytes(*bytes));
    ValueKind::new("bytes per second, such as `200MB/s`", quantity::parse_bandwidth, show)
}

/// A point in time.
pub(super) fn time() -> ValueKind<SystemTime> {
    let expected = "a point in time, such as `2026-11-20T18:00:00` (local) or `2026-11-20T18:00:00Z`";
    ValueKind::new(expected, quantity::parse_time, |time| quantity::format_time(*time))
}

/// From 0 to 100.
pub(super) fn percent() -> ValueKind<f64> {
    let read = |text: &str| {
        let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok()?;
        (0.0..=100.0).contains(&number).then_some(number)
    };
    ValueKind::new("a percentage from 0 to 100", read, f64::to_string)
}

/// Text for names: not empty, and without NUL bytes, which paths cannot contain.
pub(super) fn text() -> ValueKind<String> {
    ValueKind::new("text", |text| is_text(text).then(|| text.to_owned()), String::clone)
}

pub(super) fn path() -> ValueKind<PathBuf> {
    ValueKind::new("text", |text| is_text(text).then(|| PathBuf::from(text)), |path| path.display().to_string())
}

/// A regular expression.
pub(super) fn regular_expression() -> ValueKind<String> {
    let read = |text: &str| match regex::bytes::Regex::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            // A syntax error is several lines, of which the last one has the reason.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            let message = format!("`{}` is not a regular expression: {reason}", text.escape_debug());
            Err(Some((message, "write it as for the crate `regex`: `\"step ([0-9]+)\"`".to_owned())))
        }
    };
    ValueKind {
        expected: "a regular expression, such as `\"step ([0-9]+)\"`".to_owned(),
        read: Box::new(read),
        show: String::clone,
        from_scr: str::to_owned,
    }
}

/// A signal that a program can handle, by its name or number.
pub(super) fn signal_name() -> ValueKind<String> {
    let read = |text: &str| signal_of(text).is_ok().then(|| text.to_owned());
    ValueKind::new("the name of a signal that a program can handle, such as `USR1`", read, String::clone)
}

/// `file DONE` or `quiet 2s`.
pub(super) fn save_end() -> ValueKind<Until> {
    let read = |text: &str| match text.split_once(' ').map(|(kind, rest)| (kind, rest.trim()))? {
        ("file", name) => {
            (is_text(name) && !name.contains('/') && !matches!(name, "." | "..")).then(|| Until::File(name.to_owned()))
        }
        ("quiet", time) => quantity::parse_duration(time).filter(|time| !time.is_zero()).map(Until::Quiet),
        _ => None,
    };
    let show = |until: &Until| match until {
        Until::File(name) => format!("file {name}"),
        Until::Quiet(time) => format!("quiet {}", quantity::format_duration(*time)),
    };
    ValueKind::new("`file NAME` or `quiet TIME`, such as `file DONE` or `quiet 2s`", read, show)
}

/// Patterns of checkpoint files: a list of regular expressions, each of which may be for a range of ranks.
pub(super) fn file_patterns() -> ValueKind<String> {
    let read = |text: &str| match text.parse::<FilePatterns>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let help = "write expressions with commas between them, each for all ranks or after a range of them: \
                        `'state_[0-9]+\\.ckpt$'`, `'0-0:latest$,0-N:part_[0-9]+$'`";
            Err(Some((error.to_string(), help.to_owned())))
        }
    };
    ValueKind {
        expected: "a regular expression for names of files, such as `'state_[0-9]+\\.ckpt$'`".to_owned(),
        read: Box::new(read),
        show: String::clone,
        from_scr: str::to_owned,
    }
}

fn is_text(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

/// `n[3,5-7]`, each node once.
pub(super) fn host_list() -> ValueKind<Vec<NodeName>> {
    let read = |text: &str| {
        let names = hostlist::expand(text).ok().filter(|names| !names.is_empty())?;
        Some(names.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    };
    let show = |names: &Vec<NodeName>| hostlist::compress(names);
    ValueKind::new("a host list, such as `n3` or `n[3,5-7]`", read, show)
}

/// A whole number in a range.
pub(super) fn whole<T: TryFrom<u64> + Display + 'static>(range: RangeInclusive<u64>) -> ValueKind<T> {
    let (low, high) = (*range.start(), *range.end());
    let expected = if high == u64::MAX {
        format!("a whole number, at least {low}")
    } else {
        format!("a whole number from {low} to {high}")
    };
    let read = move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number))?;
        T::try_from(number).ok()
    };
    ValueKind::new(expected, read, T::to_string)
}

/// A value that is written as one keyword of a list.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// The keywords of this version.
    const AVAILABLE: &'static [(&'static str, Self)];
    /// Planned keywords that this version does not have: recognised, so that they are not reported as misspellings.
    const LATER: &'static [&'static str] = &[];

    fn keyword(self) -> &'static str {
        Self::AVAILABLE.iter().find(|(_, value)| *value == self).map_or("?", |(keyword, _)| keyword)
    }
}

/// One keyword of a list; SCR spells the same keywords in upper case.
pub(super) fn choice<T: Choice>() -> ValueKind<T> {
    let available = T::AVAILABLE.iter().map(|(keyword, value)| ((*keyword).to_owned(), *value)).collect();
    keywords(available, T::LATER.to_vec(), |value| value.keyword().to_owned())
}

/// A redundancy scheme that is registered.
pub(super) fn redundancy_scheme() -> ValueKind<Scheme> {
    let show = |scheme: &Scheme| scheme.as_str().to_lowercase();
    let available = registry::all().map(|scheme| (show(&scheme.name()), scheme.name())).collect();
    keywords(available, vec!["rs"], show)
}

/// The name of a registered resource manager or launcher; `None` is `auto`.
pub(super) fn entry_name<E: RegistryEntry>(registered: &Registered) -> ValueKind<Option<&'static str>> {
    let names = E::all(registered).iter().map(|entry| (entry.name().to_owned(), Some(entry.name())));
    let available = std::iter::once(("auto".to_owned(), None)).chain(names).collect();
    keywords(available, E::later(), |name| name.unwrap_or("auto").to_owned())
}

/// One of `available`; those of `later` are recognised, so that they are not reported as misspellings.
fn keywords<T: Copy + 'static>(
    available: Vec<(String, T)>,
    later: Vec<&'static str>,
    show: fn(&T) -> String,
) -> ValueKind<T> {
    let list = available.iter().map(|(keyword, _)| format!("`{keyword}`")).collect::<Vec<_>>().join(", ");
    let expected = if available.len() == 1 { list.clone() } else { format!("one of {list}") };
    let expected_text = expected.clone();
    let read = move |text: &str| {
        let lower = text.to_lowercase();
        if let Some((_, value)) = available.iter().find(|(keyword, _)| *keyword == lower) {
            return Ok(*value);
        }
        if later.contains(&lower.as_str()) {
            return Err(Some((format!("`{text}` is not available in this version"), format!("available: {list}"))));
        }
        let known = available.iter().map(|(keyword, _)| keyword.as_str()).chain(later.iter().copied());
        Err(nearest(text, known).map(|near| {
            let message = format!("expected {expected_text}, found `{}`", text.escape_debug());
            (message, format!("did you mean `{near}`?"))
        }))
    };
    ValueKind { expected, read: Box::new(read), show, from_scr: |text| text.to_lowercase() }
}

/// A whole number, at least 1, or `unlimited`.
pub(super) fn whole_or_unlimited() -> ValueKind<Option<u32>> {
    let read = |text: &str| match text {
        "unlimited" => Some(None),
        text => text.parse::<u32>().ok().filter(|number| *number > 0).map(Some),
    };
    let show = |number: &Option<u32>| number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string());
    ValueKind::new("a whole number, at least 1, or `unlimited`", read, show)
}
