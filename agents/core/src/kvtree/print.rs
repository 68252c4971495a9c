//! The text of `scr_print_hash_file`: one key a line, two blanks a level, the top level already indented by one.

use std::fmt::Write;

use super::tree::Tree;

/// The tree as `scr_print_hash_file` prints it.
///
/// Control characters in keys come out as they are: who prints to a terminal escapes them.
pub fn text(tree: &Tree) -> String {
    let mut text = String::new();
    append(tree, 1, &mut text);
    text
}

fn append(tree: &Tree, level: usize, text: &mut String) {
    for (key, value) in tree.iter() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:indent$}{key}", "", indent = 2 * level);
        append(value, level + 1, text);
    }
}
