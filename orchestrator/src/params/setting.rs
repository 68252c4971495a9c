//! A value with its origin, and what can be wrong with one.

use super::origin::{FileLine, Origin};

/// A parameter with its value as text, and where that came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    /// The value in force, which is one of the parameter's kind; empty for "none".
    pub value: String,
    pub origin: Origin,
}

impl Setting {
    /// The value, read by the function of its kind.
    pub fn read<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        read(&self.value)
    }
}

pub(super) fn of<'a>(settings: &'a [Setting], name: &str) -> Option<&'a Setting> {
    settings.iter().find(|setting| setting.name == name && !setting.value.is_empty())
}

/// A setting without effect. The run continues; the user is warned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamWarning {
    /// The parameter, or the key in question.
    pub name: String,
    pub origin: Origin,
    /// Why it has no effect.
    pub kind: ParamWarningKind,
}

/// Why a setting has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamWarningKind {
    /// Only the system file may set it.
    SystemFileOnly,
    /// Only the environment may set it.
    EnvironmentOnly,
    /// There is no such parameter.
    Unknown,
    /// A later line of the same file sets it again.
    SetAgain,
    /// A descriptor stores in a directory that has room for no checkpoint.
    NoCache,
    /// The system file fixes it, in this line.
    Fixed(FileLine),
    /// Holdfast does not use it, for this reason.
    NoEffect(&'static str),
}

impl std::fmt::Display for ParamWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ParamWarning { name, origin, kind } = self;
        let why = match kind {
            ParamWarningKind::SystemFileOnly => "is ignored: only the system file may set it",
            ParamWarningKind::EnvironmentOnly => "is ignored: it is looked for in the environment only",
            ParamWarningKind::Unknown => "is ignored: there is no such parameter",
            ParamWarningKind::SetAgain => "is ignored: a later line of the file sets it again",
            ParamWarningKind::Fixed(place) => return write!(f, "{name} ({origin}) is ignored: {place} fixes it"),
            ParamWarningKind::NoEffect(reason) => return write!(f, "{name} ({origin}) has no effect: {reason}"),
            ParamWarningKind::NoCache => {
                "stores no checkpoint: its BASE has no CACHEDESC with a SIZE of at least 1; add one, or change BASE"
            }
        };
        write!(f, "{name} ({origin}) {why}")
    }
}

/// A parameter that cannot be used. It is reported before anything is started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// A value is not what the parameter needs.
    #[error("{name} is {value:?} ({origin}), expected is {expected}")]
    Value {
        /// The parameter; in descriptors with the descriptor's number.
        name: String,
        value: String,
        origin: Origin,
        expected: &'static str,
    },
    /// What the value does in SCR is not done.
    #[error("{name} is {value:?} ({origin}): {reason}")]
    Refused { name: String, value: String, origin: Origin, reason: &'static str },
    /// Something that other settings need is not set.
    #[error("{name} is not set: {why}")]
    Missing {
        name: String,
        /// What needs it, and what to do.
        why: &'static str,
    },
}
