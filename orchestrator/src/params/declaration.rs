//! What is declared for a parameter: default, who may set it, its values, and its effect.

use super::value::ValueKind;

/// A parameter, or a table of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    pub name: &'static str,
    /// As text; empty for none.
    pub default: String,
    pub source: AllowedSource,
    pub value: ValueKind,
    pub effect: Effect,
}

/// Who may set a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedSource {
    /// The environment, the user's file, the system file.
    Any,
    /// A file only: a line of a table.
    Files,
    SystemFile,
    /// `scr_srun` looks for it nowhere else.
    Environment,
}

/// What becomes of a value that is not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has the effect that the text describes.
    Acts(String),
    /// It has no effect, and a warning gives this reason.
    Warned(&'static str),
    /// Another value than the default is refused: what it does in SCR is not done, for this reason.
    Refused(&'static str),
}

impl Declaration {
    /// True for a table, each of whose lines is one entry.
    pub fn is_table(&self) -> bool {
        self.source == AllowedSource::Files
    }
}
