//! A value with its origin, and what can be wrong with one.

use super::origin::Origin;

/// A value, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// Who set it.
    pub origin: Origin,
}

/// One line of an explanation: a parameter, its value as text, who set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The parameter's name.
    pub name: &'static str,
    /// The value in force; empty for "none".
    pub value: String,
    /// Who set it.
    pub origin: Origin,
}

/// Something in the sources that has no effect. The run goes on; the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The parameter, or the key in question.
    pub name: String,
    /// Where it stands.
    pub origin: Origin,
    /// Why it has no effect.
    pub kind: WarningKind,
}

/// Why a setting has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarningKind {
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
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Warning { name, origin, kind } = self;
        let why = match kind {
            WarningKind::SystemFileOnly => "is ignored: only the system file may set it",
            WarningKind::EnvironmentOnly => "is ignored: it is looked for in the environment only",
            WarningKind::Unknown => "is ignored: there is no such parameter",
            WarningKind::SetAgain => "is ignored: a later line of the file sets it again",
            WarningKind::NoCache => {
                "stores no checkpoint: its BASE has no CACHEDESC with a SIZE of at least 1; add one, or change BASE"
            }
        };
        write!(f, "{name} ({origin}) {why}")
    }
}

/// A parameter that cannot be used. Nothing has been started then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// A value is not what the parameter needs.
    #[error("{name} is {value:?} ({origin}), expected is {expected}")]
    Value {
        /// The parameter; in descriptors with the descriptor's number.
        name: String,
        /// The value as it stands there.
        value: String,
        /// Where it stands.
        origin: Origin,
        /// What may stand there.
        expected: &'static str,
    },
    /// Something that other settings need is not set.
    #[error("{name} is not set: {why}")]
    Missing {
        /// The parameter.
        name: String,
        /// What needs it, and what to do.
        why: &'static str,
    },
}
