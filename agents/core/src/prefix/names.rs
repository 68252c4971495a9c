//! Names that were read from a file or a link: what a single path component may look like.
//!
//! Index, summary, filemap and meta files name files and directories. A name that contains a slash or is `..` would
//! make us read or write outside the prefix directory, so every name passes here before it is joined to a path.

/// The longest component that file systems take, in bytes.
const LONGEST: usize = 255;

/// Why a name cannot be a single path component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// `.` or `..`.
    #[error("it names a directory relative to itself")]
    Dots,
    /// An absolute path.
    #[error("it is an absolute path where a base name belongs")]
    Absolute,
    /// More than one component.
    #[error("it leads into another directory where a base name belongs")]
    Separator,
    /// A NUL byte or a line break, which no tool could print in a list.
    #[error("it contains a control character")]
    Control,
    /// Longer than a file system takes.
    #[error("it is longer than 255 bytes")]
    TooLong,
}

/// Accepts exactly the names that stay in the directory they are joined to.
///
/// # Errors
/// The reason why `name` is not a base name.
pub fn check_base_name(name: &str) -> Result<(), NameProblem> {
    if name.is_empty() {
        Err(NameProblem::Empty)
    } else if name.starts_with('/') {
        Err(NameProblem::Absolute)
    } else if name.contains('/') {
        Err(NameProblem::Separator)
    } else if name == "." || name == ".." {
        Err(NameProblem::Dots)
    } else if name.chars().any(char::is_control) {
        Err(NameProblem::Control)
    } else if name.len() > LONGEST {
        Err(NameProblem::TooLong)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_checkpoint_names_pass() {
        for name in ["rank_0.ckpt", "1_of_4_in_0.xor", "scr.2011-04-15_12:00:00.1145655.3", "..hidden", "a b"] {
            assert_eq!(check_base_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_name_that_leaves_its_directory_is_refused_with_its_reason() {
        assert_eq!(check_base_name("../../etc/passwd"), Err(NameProblem::Separator));
        assert_eq!(check_base_name("/etc/passwd"), Err(NameProblem::Absolute));
        assert_eq!(check_base_name(".."), Err(NameProblem::Dots));
        assert_eq!(check_base_name("."), Err(NameProblem::Dots));
        assert_eq!(check_base_name(""), Err(NameProblem::Empty));
        assert_eq!(check_base_name("a\0b"), Err(NameProblem::Control));
        assert_eq!(check_base_name(&"x".repeat(256)), Err(NameProblem::TooLong));
    }
}
