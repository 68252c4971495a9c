//! The table of events for users, `docs/events.md`: generated from the declarations of the vocabulary.

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::events::log::SCHEMA;
    use crate::events::vocabulary::{self, AGENT_NODE};
    use holdfast_wire::agent::AGENT_EVENTS;

    /// The text of fields whose name is enough.
    const MEANINGS: [(&str, &str); 10] = [
        ("generation", "The generation."),
        ("checkpoint", "The checkpoint."),
        ("node", "The node."),
        ("nodes", "On which nodes."),
        ("rank", "The rank."),
        ("pid", "The process id."),
        ("scheme", "The redundancy scheme."),
        ("directory", "The directory's name below the prefix."),
        ("program", "The program."),
        ("reason", "Why."),
    ];

    fn table() -> String {
        let mut text = String::new();
        for event in vocabulary::declared() {
            let _ = writeln!(text, "\n### `{}`\n\n{}", event.name(), event.meaning.trim());
            let is_agents = AGENT_EVENTS.iter().any(|of_agents| of_agents.variant == event.variant);
            let fields = is_agents.then_some(&AGENT_NODE).into_iter().chain(event.fields);
            for (at, (field, meaning)) in fields.enumerate() {
                if at == 0 {
                    text.push_str("\n| field | meaning |\n|---|---|\n");
                }
                let by_name = MEANINGS.iter().find(|(name, _)| meaning.is_empty() && name == field);
                let meaning = by_name.map_or(*meaning, |(_, meaning)| meaning);
                assert!(!meaning.is_empty(), "{}: {field}", event.name());
                // A flattened value is in the line by its tag, not under the name of the field.
                let tag = meaning.trim().strip_prefix('`').and_then(|rest| rest.strip_suffix("`, and its fields."));
                let _ = match tag {
                    Some(tag) => writeln!(text, "| `{tag}` | Which kind it is; each kind has fields of its own. |"),
                    None => writeln!(text, "| `{field}` | {} |", meaning.trim()),
                };
            }
        }
        text
    }

    #[test]
    fn the_documentation_lists_every_event_with_its_fields() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written.contains(&format!("`\"v\": \"{SCHEMA}\"`")), "the version is not {SCHEMA}");
        let (head, _) = written.split_once("\n### ").unwrap();
        let expected = format!("{head}{}", table());
        if expected != written {
            let new = std::env::temp_dir().join("events.md");
            std::fs::write(&new, expected).unwrap();
            panic!("docs/events.md does not match the declarations; the expected text is in {}", new.display());
        }
    }
}
