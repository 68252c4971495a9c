//! The table of events for users, `docs/events.md`: generated from the declarations of the vocabulary.

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::events::log::SCHEMA;
    use crate::events::vocabulary;

    fn table() -> String {
        let mut text = String::new();
        for event in vocabulary::declared() {
            let _ = writeln!(text, "\n### `{}`\n\n{}", event.name(), event.meaning.trim());
            for (at, (field, meaning)) in vocabulary::fields(event).into_iter().enumerate() {
                if at == 0 {
                    text.push_str("\n| field | meaning |\n|---|---|\n");
                }
                assert!(!meaning.is_empty(), "{}: {field}", event.name());
                let _ = writeln!(text, "| `{field}` | {meaning} |");
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
