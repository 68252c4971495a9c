//! Words for a shell, and the shell that reads them.

use std::path::Path;

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The shell for command lines that were written for the user's login shell: `sh`, except for csh and tcsh.
pub fn for_lines_of(login_shell: Option<&str>) -> &str {
    let name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    match login_shell {
        Some(path) if name(path).is_some_and(|name| name == "csh" || name == "tcsh") => path,
        _ => "sh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unchanged_for_the_shell() {
        assert_eq!(quoted("/tmp:1000,/x"), "/tmp:1000,/x");
        assert_eq!(quoted("/opt/a b/$x"), "'/opt/a b/$x'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
