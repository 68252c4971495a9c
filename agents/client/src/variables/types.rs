//! Identification of variables.

use std::fmt;

/// The id that the program gives to a variable: any number, unique in the process. It is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableId(pub i32);

impl fmt::Display for VariableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i32> for VariableId {
    fn from(id: i32) -> Self {
        VariableId(id)
    }
}
