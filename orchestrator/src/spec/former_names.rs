//! Keys under the names that they had in earlier versions: they are read, with a note.

use super::document::{Value, YamlNode};

/// Section, former name, name.
const RENAMED: [(&str, &str, &str); 1] = [("allocation", "chaos", "faults")];

/// Gives keys of the spec their present names, and returns a note about each. A section that has both keeps both, so
/// that the former name is reported as an unknown key.
pub(super) fn replace(root: &mut YamlNode) -> Vec<String> {
    let mut notes = Vec::new();
    let Value::Map(sections) = &mut root.value else { return notes };
    for (section, former, name) in RENAMED {
        let Some(found) = sections.iter_mut().find(|entry| entry.key == section) else { continue };
        let Value::Map(keys) = &mut found.node.value else { continue };
        if keys.iter().any(|entry| entry.key == name) {
            continue;
        }
        for entry in keys.iter_mut().filter(|entry| entry.key == former) {
            name.clone_into(&mut entry.key);
            let line = entry.key_place.line;
            notes.push(format!("`{section}.{former}` (line {line}) has another name now: write `{section}.{name}`"));
        }
    }
    notes
}
