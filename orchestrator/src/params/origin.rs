//! Which source set a value, and where.

use std::fmt;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileLine {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The source that set a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Not set by any source.
    Default,
    Environment,
    /// A line of the user's file.
    UserFile(FileLine),
    /// A line of the site's file.
    SystemFile(FileLine),
    /// A line of the site's file that users must not override.
    Fixed(FileLine),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Environment => f.write_str("environment"),
            Origin::UserFile(place) => write!(f, "user file {place}"),
            Origin::SystemFile(place) => write!(f, "system file {place}"),
            Origin::Fixed(place) => write!(f, "fixed by system file {place}"),
        }
    }
}
