//! Where a file of an output belongs: the path below the prefix directory that the application named
//! (`SCR_Route_file` of SCR 3).

use std::fmt;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

/// The longest path, in bytes: `PATH_MAX` of Linux without the NUL, and without the shortest prefix directory.
const LONGEST: usize = 4093;
/// The longest component that file systems take, in bytes.
const LONGEST_COMPONENT: usize = 255;
/// Names directly below the prefix directory that SCR and Holdfast use themselves.
const RESERVED: [&str; 4] = [".holdfast", ".scr", "index.scr", "scr.current"];

/// A path below the prefix directory: relative, and without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutputPath(String);

/// Why a file of an output cannot have a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputPathError {
    #[error("it does not end in the name of a file")]
    NoFile,
    #[error("it is outside of the prefix directory")]
    Outside,
    #[error("it contains `..`")]
    Parent,
    #[error("it contains a control character")]
    Control,
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a component of it is longer than {LONGEST_COMPONENT} bytes")]
    LongComponent,
    #[error("`{0}` below the prefix directory is reserved for SCR and Holdfast")]
    Reserved(&'static str),
}

impl OutputPath {
    /// The path of a file that the application named: relative to the prefix directory, or absolute and below one of
    /// its names in `prefixes`.
    ///
    /// # Errors
    /// Why the file cannot be there.
    pub fn of_name(name: &str, prefixes: &[&Path]) -> Result<Self, OutputPathError> {
        let named = Path::new(name);
        let below = match named.is_absolute() {
            true => prefixes.iter().find_map(|prefix| named.strip_prefix(prefix).ok()).ok_or(OutputPathError::Outside),
            false => Ok(named),
        }?;
        if name.ends_with('/') {
            return Err(OutputPathError::NoFile);
        }
        let mut components = Vec::new();
        for component in below.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => components.push(part.to_str().ok_or(OutputPathError::Control)?),
                Component::ParentDir => return Err(OutputPathError::Parent),
                Component::RootDir | Component::Prefix(_) => return Err(OutputPathError::Outside),
            }
        }
        OutputPath::checked(components.join("/"))
    }

    /// A path that was read from a file or a message.
    ///
    /// # Errors
    /// Why it is refused. Only the form that [`OutputPath::of_name`] returns is accepted.
    pub fn parse(path: &str) -> Result<Self, OutputPathError> {
        OutputPath::checked(path.to_owned())
    }

    fn checked(path: String) -> Result<Self, OutputPathError> {
        if path.is_empty() {
            return Err(OutputPathError::NoFile);
        }
        if path.len() > LONGEST {
            return Err(OutputPathError::TooLong);
        }
        if path.chars().any(char::is_control) {
            return Err(OutputPathError::Control);
        }
        for component in path.split('/') {
            match component {
                "" | "." => return Err(OutputPathError::Outside),
                ".." => return Err(OutputPathError::Parent),
                _ if component.len() > LONGEST_COMPONENT => return Err(OutputPathError::LongComponent),
                _ => {}
            }
        }
        let first = path.split('/').next().unwrap_or_default();
        match RESERVED.into_iter().find(|reserved| *reserved == first) {
            Some(reserved) => Err(OutputPathError::Reserved(reserved)),
            None => Ok(OutputPath(path)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the file.
    pub fn base_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The directories below the prefix directory that lead to the file.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        let parents = self.0.rsplit_once('/').map(|(parents, _)| parents);
        parents.into_iter().flat_map(|parents| parents.split('/'))
    }
}

impl fmt::Display for OutputPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for OutputPath {
    type Error = OutputPathError;

    fn try_from(path: String) -> Result<Self, OutputPathError> {
        OutputPath::checked(path)
    }
}

impl From<OutputPath> for String {
    fn from(path: OutputPath) -> String {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_name(name: &str) -> Result<String, OutputPathError> {
        OutputPath::of_name(name, &[Path::new("/pfs/run"), Path::new("/lustre/run")]).map(Into::into)
    }

    #[test]
    fn names_below_the_prefix_are_accepted_in_one_form() {
        for (name, path) in [
            ("rank_0.ckpt", "rank_0.ckpt"),
            ("output_1/rank_0.ckpt", "output_1/rank_0.ckpt"),
            ("./a//b/./c", "a/b/c"),
            ("/pfs/run/a/b", "a/b"),
            ("/lustre/run/a", "a"),
            ("a b/.hidden", "a b/.hidden"),
        ] {
            assert_eq!(of_name(name).as_deref(), Ok(path), "{name}");
            assert_eq!(OutputPath::parse(path).unwrap().as_str(), path);
        }
        let path = OutputPath::parse("a/b/c").unwrap();
        assert_eq!((path.base_name(), path.parents().collect::<Vec<_>>()), ("c", vec!["a", "b"]));
    }

    #[test]
    fn names_that_leave_the_prefix_are_refused() {
        use OutputPathError::{Control, LongComponent, NoFile, Outside, Parent, Reserved, TooLong};
        let (long, longer) = ("x".repeat(256), "x/".repeat(2100) + "y");
        for (name, problem) in [
            ("", NoFile),
            ("a/", NoFile),
            ("/pfs/run", NoFile),
            ("/pfs/other/a", Outside),
            ("/pfs/running/a", Outside),
            ("../a", Parent),
            ("a/../../b", Parent),
            ("/pfs/run/../a", Parent),
            ("a\nb", Control),
            (long.as_str(), LongComponent),
            (longer.as_str(), TooLong),
            (".holdfast/state", Reserved(".holdfast")),
            ("./index.scr", Reserved("index.scr")),
        ] {
            assert_eq!(of_name(name), Err(problem), "{name}");
        }
        for path in ["/a", "a//b", "./a", "a/", "a/..", ""] {
            assert!(OutputPath::parse(path).is_err(), "{path}");
        }
    }
}
