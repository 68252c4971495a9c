//! Variables in the words of a command: no shell is involved, and paths are known only when the program is started.

use std::collections::BTreeMap;

/// The directory into which the program writes the files of a checkpoint.
pub const CHECKPOINT_DIR: &str = "HOLDFAST_CHECKPOINT_DIR";
/// The directory with the files of the checkpoint from which the program restarts; not set at the beginning.
pub const RESTART_DIR: &str = "HOLDFAST_RESTART_DIR";
/// In the environment of a save command: the process id of the program.
pub const PROGRAM_PID: &str = "HOLDFAST_PROGRAM_PID";

/// The variables that a rank process sets for its program and its commands.
pub type Variables = BTreeMap<&'static str, String>;

/// The first word of a command, for messages.
pub(crate) fn shown(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}

/// Replaces `$NAME` and `${NAME}` for our own variables; one that is not set is empty. Other text is unchanged.
pub fn expand(word: &str, variables: &Variables) -> String {
    let mut expanded = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        expanded.push_str(before);
        let (name, length) = name_after(after);
        match name.filter(|name| name.starts_with("HOLDFAST_")) {
            Some(name) => expanded.push_str(variables.get(name).map_or("", String::as_str)),
            None => expanded.push_str(&after[..length]),
        }
        rest = &after[length..];
    }
    expanded + rest
}

/// The name behind a `$`, and the length of both.
fn name_after(text: &str) -> (Option<&str>, usize) {
    let end_of_name =
        |text: &str| text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len());
    let behind = &text[1..];
    if let Some(braced) = behind.strip_prefix('{') {
        let end = end_of_name(braced);
        return match braced[end..].starts_with('}') {
            true => (Some(&braced[..end]), end + "${}".len()),
            false => (None, 1),
        };
    }
    let end = end_of_name(behind);
    (Some(&behind[..end]), end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_own_variables_only() {
        let variables = Variables::from([(RESTART_DIR, "/c/r".to_owned()), ("HOLDFAST_RANK", "3".to_owned())]);
        for (word, expected) in [
            ("$HOLDFAST_RESTART_DIR", "/c/r"),
            ("--from=${HOLDFAST_RESTART_DIR}/a_$HOLDFAST_RANK.ckpt", "--from=/c/r/a_3.ckpt"),
            ("$HOLDFAST_CHECKPOINT_DIR/x", "/x"),
            ("$HOME/${PATH} costs 3$ ${HOLDFAST_RANK", "$HOME/${PATH} costs 3$ ${HOLDFAST_RANK"),
            ("ü$$HOLDFAST_RANK", "ü$3"),
            ("", ""),
        ] {
            assert_eq!(expand(word, &variables), expected);
        }
    }
}
