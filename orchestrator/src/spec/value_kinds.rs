//! Kinds of single values: what is expected, how it is read and written, and how it is spelled in SCR parameters.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
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
use super::registered::{EntryKind, PlannedEntry, Registered};
pub use crate::params::value::ValueKind as ParameterValue;

/// A message and help for a mistake that "expected …, found …" does not describe.
pub type SpecificMistake = Option<(String, String)>;

type Read<T> = Box<dyn Fn(&str) -> Result<T, SpecificMistake>>;

/// How SCR's parameters spell values.
#[derive(Clone, Copy)]
pub struct ScrSpelling {
    /// The values of a parameter.
    pub value: ParameterValue,
    /// From the text of a parameter to that of the key.
    pub to_key: fn(&str) -> String,
    /// From the text of the key to that of a parameter.
    pub of_key: fn(&str) -> String,
}

/// Equal to that of the spec.
const SAME: ScrSpelling = ScrSpelling { value: ParameterValue::Text, to_key: str::to_owned, of_key: str::to_owned };

/// What an editor knows of a single value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Text or a number, which is read as text.
    Text,
    Switch,
    Whole(RangeInclusive<u64>),
    Keywords(Vec<String>),
}

/// A kind of single value.
pub struct ValueKind<T> {
    /// Completes "expected …".
    pub expected: String,
    pub accepted: Accepted,
    pub read: Read<T>,
    pub show: fn(&T) -> String,
    /// Its spelling in SCR.
    pub scr: ScrSpelling,
}

impl<T: 'static> ValueKind<T> {
    pub(super) fn new(
        expected: impl Into<String>,
        read: impl Fn(&str) -> Option<T> + 'static,
        show: fn(&T) -> String,
    ) -> Self {
        let read = Box::new(move |text: &str| read(text).ok_or(None));
        ValueKind { expected: expected.into(), accepted: Accepted::Text, read, show, scr: SAME }
    }

    fn accepting(self, accepted: Accepted) -> Self {
        ValueKind { accepted, ..self }
    }

    fn with_scr(self, value: ParameterValue, to_key: fn(&str) -> String, of_key: fn(&str) -> String) -> Self {
        ValueKind { scr: ScrSpelling { value, to_key, of_key }, ..self }
    }

    /// SCR's parameters spell its values in the same way.
    fn same_in_scr(self, value: ParameterValue) -> Self {
        ValueKind { scr: ScrSpelling { value, ..SAME }, ..self }
    }
}

/// `true` or `false`; 1 or 0 in SCR.
pub fn switch() -> ValueKind<bool> {
    let read = |text: &str| match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    };
    ValueKind::new("`true` or `false`", read, bool::to_string).accepting(Accepted::Switch).with_scr(
        ParameterValue::Switch,
        |text| (text == "1").to_string(),
        |text| u8::from(text == "true").to_string(),
    )
}

/// `250ms`, `5min`; seconds in SCR.
pub fn duration() -> ValueKind<Duration> {
    let expected = "a duration with a unit, such as `250ms`, `30s`, `5min` or `1h30m`";
    let show = |duration: &Duration| quantity::format_duration(*duration);
    ValueKind::new(expected, quantity::parse_duration, show).with_scr(
        ParameterValue::Whole,
        |text| format!("{text}s"),
        |text| quantity::parse_duration(text).map_or_else(|| text.to_owned(), |time| time.as_secs().to_string()),
    )
}

/// `100us`, `1ms`.
pub fn short_duration() -> ValueKind<Duration> {
    let show = |duration: &Duration| quantity::format_short_duration(*duration);
    let expected = "a duration with a unit, such as `500us`, `1ms` or `2s`";
    ValueKind::new(expected, quantity::parse_short_duration, show)
}

/// `5min`, `none`.
pub fn duration_or_none() -> ValueKind<Option<Duration>> {
    let read = |text: &str| match text {
        "none" => Some(None),
        text => quantity::parse_duration(text).map(Some),
    };
    let show = |duration: &Option<Duration>| duration.map_or_else(|| "none".to_owned(), quantity::format_duration);
    ValueKind::new("a duration with a unit, such as `30s` or `5min`, or `none`", read, show)
}

/// `1GiB`.
pub fn bytes() -> ValueKind<u64> {
    let show = |bytes: &u64| quantity::format_bytes(*bytes);
    ValueKind::new("a size, such as `512MiB` or `1GiB`", quantity::parse_bytes, show).with_scr(
        ParameterValue::Bytes,
        str::to_owned,
        in_bytes,
    )
}

/// `1MiB`, in a range.
pub fn bytes_within(range: RangeInclusive<u64>) -> ValueKind<u64> {
    let (low, high) = (quantity::format_bytes(*range.start()), quantity::format_bytes(*range.end()));
    let read = move |text: &str| quantity::parse_bytes(text).filter(|bytes| range.contains(bytes));
    ValueKind::new(format!("a size from {low} to {high}"), read, |bytes| quantity::format_bytes(*bytes)).with_scr(
        ParameterValue::Buffer,
        str::to_owned,
        in_bytes,
    )
}

fn in_bytes(text: &str) -> String {
    quantity::parse_bytes(text).map_or_else(|| text.to_owned(), |bytes| bytes.to_string())
}

/// `200MB/s`.
pub fn bandwidth() -> ValueKind<u64> {
    let show = |bytes: &u64| format!("{}/s", quantity::format_bytes(*bytes));
    let in_scr =
        |text: &str| quantity::parse_bandwidth(text).map_or_else(|| text.to_owned(), |bytes| bytes.to_string());
    ValueKind::new("bytes per second, such as `200MB/s`", quantity::parse_bandwidth, show).with_scr(
        ParameterValue::Bytes,
        str::to_owned,
        in_scr,
    )
}

/// A point in time.
pub fn time() -> ValueKind<SystemTime> {
    let expected = "a point in time, such as `2026-11-20T18:00:00` (local) or `2026-11-20T18:00:00Z`";
    ValueKind::new(expected, quantity::parse_time, |time| quantity::format_time(*time))
}

/// From 0 to 100.
pub fn percent() -> ValueKind<f64> {
    let read = |text: &str| {
        let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok()?;
        (0.0..=100.0).contains(&number).then_some(number)
    };
    ValueKind::new("a percentage from 0 to 100", read, f64::to_string).same_in_scr(ParameterValue::Percent)
}

/// Text for names: not empty, and without NUL bytes, which paths cannot contain.
pub fn text() -> ValueKind<String> {
    ValueKind::new("text", |text| is_text(text).then(|| text.to_owned()), String::clone)
}

pub fn path() -> ValueKind<PathBuf> {
    ValueKind::new("text", |text| is_text(text).then(|| PathBuf::from(text)), |path| path.display().to_string())
        .same_in_scr(ParameterValue::Directory)
}

/// `127.0.0.1:9464`.
pub fn address() -> ValueKind<SocketAddr> {
    let read = |text: &str| text.parse().ok();
    ValueKind::new("an address and a port, such as `127.0.0.1:9464`", read, SocketAddr::to_string)
}

/// A regular expression.
pub fn regular_expression() -> ValueKind<String> {
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
        accepted: Accepted::Text,
        read: Box::new(read),
        show: String::clone,
        scr: SAME,
    }
}

/// A signal that a program can handle, by its name or number.
pub fn signal_name() -> ValueKind<String> {
    let read = |text: &str| signal_of(text).is_ok().then(|| text.to_owned());
    ValueKind::new("the name of a signal that a program can handle, such as `USR1`", read, String::clone)
}

/// `file DONE` or `quiet 2s`.
pub fn save_end() -> ValueKind<Until> {
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
pub fn file_patterns() -> ValueKind<String> {
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
        accepted: Accepted::Text,
        read: Box::new(read),
        show: String::clone,
        scr: SAME,
    }
}

fn is_text(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

/// `n[3,5-7]`, each node once.
pub fn host_list() -> ValueKind<Vec<NodeName>> {
    let read = |text: &str| {
        let names = hostlist::expand(text).ok().filter(|names| !names.is_empty())?;
        Some(names.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    };
    let show = |names: &Vec<NodeName>| hostlist::compress(names);
    ValueKind::new("a host list, such as `n3` or `n[3,5-7]`", read, show).same_in_scr(ParameterValue::Hosts)
}

/// A whole number in a range.
pub fn whole<T: TryFrom<u64> + Display + 'static>(range: RangeInclusive<u64>) -> ValueKind<T> {
    let (low, high) = (*range.start(), *range.end());
    let expected = if high == u64::MAX {
        format!("a whole number, at least {low}")
    } else {
        format!("a whole number from {low} to {high}")
    };
    let accepted = Accepted::Whole(range.clone());
    let read = move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number))?;
        T::try_from(number).ok()
    };
    let value = if low == 0 { ParameterValue::Whole } else { ParameterValue::Counting };
    ValueKind::new(expected, read, T::to_string).accepting(accepted).same_in_scr(value)
}

/// A value that is written as one keyword of a list.
pub trait Choice: Copy + PartialEq + 'static {
    /// The keywords of this version.
    const AVAILABLE: &'static [(&'static str, Self)];
    /// Planned keywords that this version does not have: recognised, so that they are not reported as misspellings.
    const LATER: &'static [PlannedEntry] = &[];

    fn keyword(self) -> &'static str {
        Self::AVAILABLE.iter().find(|(_, value)| *value == self).map_or("?", |(keyword, _)| keyword)
    }
}

/// One keyword of a list; SCR spells the same keywords in upper case.
pub fn choice<T: Choice>() -> ValueKind<T> {
    let available = T::AVAILABLE.iter().map(|(keyword, value)| ((*keyword).to_owned(), *value)).collect();
    keywords(available, T::LATER, |value| value.keyword().to_owned())
}

/// A redundancy scheme that is registered.
pub fn redundancy_scheme() -> ValueKind<Scheme> {
    let available = registry::all().map(|scheme| (spelling(scheme.name()), scheme.name())).collect();
    keywords(available, &[], |scheme: &Scheme| spelling(*scheme))
}

/// A scheme in a spec.
pub fn spelling(scheme: Scheme) -> String {
    scheme.as_str().to_lowercase()
}

/// The name of a registered resource manager or launcher; `None` is `auto`.
pub fn entry_name(kind: EntryKind, registered: &Registered) -> ValueKind<Option<&'static str>> {
    let names = registered.entries(kind).into_iter().map(|(name, _)| (name.to_owned(), Some(name)));
    let available = std::iter::once(("auto".to_owned(), None)).chain(names).collect();
    keywords(available, registered.planned(kind), |name| name.unwrap_or("auto").to_owned())
}

/// The name of a registered checkpoint source.
pub fn source_name(registered: &Registered) -> ValueKind<&'static str> {
    let available = registered.sources.iter().map(|facts| (facts.agent.name.to_owned(), facts.agent.name)).collect();
    keywords(available, registered.planned(EntryKind::Source), |name: &&'static str| (*name).to_owned())
}

/// One of `available`; those of `later` are recognised, so that they are not reported as misspellings.
fn keywords<T: Copy + 'static>(
    available: Vec<(String, T)>,
    later: &'static [PlannedEntry],
    show: fn(&T) -> String,
) -> ValueKind<T> {
    let list = available.iter().map(|(keyword, _)| format!("`{keyword}`")).collect::<Vec<_>>().join(", ");
    let expected = if available.len() == 1 { list.clone() } else { format!("one of {list}") };
    let expected_text = expected.clone();
    let accepted = Accepted::Keywords(available.iter().map(|(keyword, _)| keyword.clone()).collect());
    let read = move |text: &str| {
        let lower = text.to_lowercase();
        if let Some((_, value)) = available.iter().find(|(keyword, _)| *keyword == lower) {
            return Ok(*value);
        }
        if let Some(planned) = later.iter().find(|planned| planned.name == lower) {
            let help = planned.needed.map_or_else(|| format!("available: {list}"), str::to_owned);
            return Err(Some((format!("`{text}` is not available in this version"), help)));
        }
        let later = later.iter().map(|planned| planned.name);
        let known = available.iter().map(|(keyword, _)| keyword.as_str()).chain(later);
        Err(nearest(text, known).map(|near| {
            let message = format!("expected {expected_text}, found `{}`", text.escape_debug());
            (message, format!("did you mean `{near}`?"))
        }))
    };
    ValueKind {
        expected,
        accepted,
        read: Box::new(read),
        show,
        scr: ScrSpelling { value: ParameterValue::Text, to_key: str::to_lowercase, of_key: str::to_uppercase },
    }
}

/// A whole number, at least 1, or `unlimited`.
pub fn whole_or_unlimited() -> ValueKind<Option<u32>> {
    let read = |text: &str| match text {
        "unlimited" => Some(None),
        text => text.parse::<u32>().ok().filter(|number| *number > 0).map(Some),
    };
    let show = |number: &Option<u32>| number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string());
    ValueKind::new("a whole number, at least 1, or `unlimited`", read, show)
}
