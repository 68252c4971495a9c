//! Names that were read from a file or a link: what a single path component may look like.
//!
//! Index, summary, filemap and meta files name files and directories. A name that contains a slash or is `..` would
//! make us read or write outside the prefix directory, so every name passes here before it is joined to a path.

/// The longest component that file systems take, in bytes.
pub(crate) const LONGEST: usize = 255;

/// Why a name cannot be a single path component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("it is empty")]
    Empty,
    #[error("it names a directory relative to itself")]
    Dots,
    #[error("it is an absolute path where a base name belongs")]
    Absolute,
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
pub fn check_base_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.starts_with('/') {
        Err(NameError::Absolute)
    } else if name.contains('/') {
        Err(NameError::Separator)
    } else if name == "." || name == ".." {
        Err(NameError::Dots)
    } else if name.chars().any(char::is_control) {
        Err(NameError::Control)
    } else if name.len() > LONGEST {
        Err(NameError::TooLong)
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
        assert_eq!(check_base_name("../../etc/passwd"), Err(NameError::Separator));
        assert_eq!(check_base_name("/etc/passwd"), Err(NameError::Absolute));
        assert_eq!(check_base_name(".."), Err(NameError::Dots));
        assert_eq!(check_base_name("."), Err(NameError::Dots));
        assert_eq!(check_base_name(""), Err(NameError::Empty));
        assert_eq!(check_base_name("a\0b"), Err(NameError::Control));
        assert_eq!(check_base_name(&"x".repeat(256)), Err(NameError::TooLong));
    }
}
