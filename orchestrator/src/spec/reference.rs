//! Every key of a job spec with its default and meaning, in the form of a spec: `configs/reference.yaml`, which
//! `holdfast check --reference` prints. It is generated from the declarations of the keys.

use super::job::JobSpec;
use super::keys::{Declared, Keys as _, Parameter, Shape};
use super::registered::{Chosen, EntryKind, LauncherFacts, SourceFacts};
use super::registry::Registry;

/// The text before the first key.
const HEAD: &str = "\
# Every key of a job spec with its default. Only `run.command` has none.
#
# `holdfast check job.yaml` reports the mistakes in a spec without starting anything. With `--explain` it prints each
# setting in force and its origin; `holdfast check --reference` prints this page.
#
# Durations: 250ms, 30s, 5min, 1h30m, 2d.   Sizes: 4096, 512KiB, 1GiB, 200MB (powers of 1024, as in SCR).
# Times: 2026-11-20T18:00:00 (local), 2026-11-20T18:00:00Z.   A key without a value counts as not written.
#
# SCR_… in parentheses is the parameter that sets the key. The order of precedence: the environment (SCR_FLUSH=5 sets
# `checkpoint.flush.every`), the file that SCR_CONF_FILE names, this spec, the site's file /etc/holdfast/scr.conf.
";

/// The widest line.
const WIDTH: usize = 120;
/// The column of comments behind a value.
const COMMENT_COLUMN: usize = 26;

pub fn text(registered: &Registry) -> String {
    let mut text = HEAD.to_owned();
    for key in JobSpec::declared() {
        text.push('\n');
        write_key(&key, 0, registered, &mut text);
    }
    text
}

/// A key as `holdfast explain` shows it.
#[derive(Clone, Debug)]
pub struct DescribedKey {
    /// `checkpoint.flush.every`; `[*]` is behind the name of a list.
    pub path: String,
    /// Markdown.
    pub documentation: String,
    pub default: Option<String>,
}

/// Every key, sections included.
pub fn keys(registered: &Registry) -> Vec<DescribedKey> {
    let mut found = Vec::new();
    describe(&JobSpec::declared(), "", registered, &mut found);
    found
}

fn describe(keys: &[Declared], above: &str, registered: &Registry, found: &mut Vec<DescribedKey>) {
    for key in keys {
        let path = format!("{above}{}", key.name);
        let described =
            |default| DescribedKey { path: path.clone(), documentation: documentation(key, registered), default };
        match &key.shape {
            Shape::Value { default, .. } => found.push(described(default.clone())),
            Shape::Section { keys, .. } => {
                found.push(described(None));
                describe(keys, &format!("{path}."), registered, found);
            }
            Shape::Elements(keys) | Shape::List(keys) => {
                found.push(described(None));
                describe(keys, &format!("{path}[*]."), registered, found);
            }
            Shape::Keys(keys) => describe(keys, above, registered, found),
            Shape::OfManagers => {
                let keys: Vec<_> = registered.manager_keys.iter().flat_map(|keys| (keys.declared)()).collect();
                describe(&keys, above, registered, found);
            }
            Shape::RequeueByManager => found.extend(registered.requeuing().map(|facts| DescribedKey {
                path: format!("{above}{}", facts.name),
                documentation: facts.requeue.as_ref().map_or("", |requeue| requeue.doc).to_owned(),
                default: Some("false".to_owned()),
            })),
        }
    }
}

fn write_key(key: &Declared, indent: usize, registered: &Registry, text: &mut String) {
    let margin = " ".repeat(indent);
    let documentation = documentation(key, registered);
    match &key.shape {
        Shape::Value { default, .. } => {
            let default = default.as_ref().map(|default| format!(" {default}")).unwrap_or_default();
            let line = format!("{margin}{}:{default}", key.name);
            let short = format!("{line:COMMENT_COLUMN$}# {documentation}");
            if indent > 0 && short.chars().count() <= WIDTH && line.len() < COMMENT_COLUMN {
                push_line(text, &short);
            } else {
                write_comment(&documentation, &margin, text);
                push_line(text, &line);
            }
        }
        Shape::RequeueByManager => {
            for facts in registered.requeuing() {
                write_comment(facts.requeue.as_ref().map_or("", |requeue| requeue.doc), &margin, text);
                push_line(text, &format!("{margin}{}: false", facts.name));
            }
        }
        Shape::Section { keys, .. } => {
            write_comment(&documentation, &margin, text);
            push_line(text, &format!("{margin}{}:", key.name));
            keys.iter().for_each(|key| write_key(key, indent + 2, registered, text));
        }
        Shape::OfManagers => {
            let keys = registered.manager_keys.iter().flat_map(|keys| (keys.declared)());
            keys.for_each(|key| write_key(&key, indent, registered, text));
        }
        Shape::Keys(keys) => keys.iter().for_each(|key| write_key(key, indent, registered, text)),
        Shape::Elements(keys) => {
            write_comment(&documentation, &margin, text);
            push_line(text, &format!("{margin}{}:", key.name));
            let mut element = String::new();
            keys.iter().for_each(|key| write_key(key, indent + 4, registered, &mut element));
            // The first line that is not a comment begins the element.
            let first = element.lines().position(|line| !line.trim_start().starts_with('#')).unwrap_or(0);
            for (at, line) in element.lines().enumerate() {
                let line = if at == first { format!("{margin}  - {}", line.trim_start()) } else { line.to_owned() };
                push_line(text, &line);
            }
        }
        Shape::List(keys) => {
            write_comment(&documentation, &margin, text);
            push_line(text, &format!("{margin}# Keys of an element:"));
            keys.iter().for_each(|key| write_element_key(key, &margin, 3, registered, text));
            // An empty list of steps or pairs would be a mistake.
            let value = if ["steps", "pairs"].contains(&key.name) { "" } else { " []" };
            push_line(text, &format!("{margin}{}:{value}", key.name));
        }
    }
}

/// A key of an empty list, or of a section in its elements, as a comment; `depth` blanks are in front of it.
fn write_element_key(key: &Declared, margin: &str, depth: usize, registered: &Registry, text: &mut String) {
    let default = match &key.shape {
        Shape::Value { default: Some(default), .. } => format!(" {default}"),
        _ => String::new(),
    };
    let line = format!("{margin}#{:depth$}{}:{default}", "", key.name);
    let mut lines = wrapped(&documentation(key, registered), WIDTH - COMMENT_COLUMN - 2).into_iter();
    push_line(text, &format!("{line:COMMENT_COLUMN$}# {}", lines.next().unwrap_or_default()));
    let below = format!("{margin}#");
    lines.for_each(|more| push_line(text, &format!("{below:COMMENT_COLUMN$}# {more}")));
    if let Shape::Section { keys, is_described: false } = &key.shape {
        keys.iter().for_each(|key| write_element_key(key, margin, depth + 2, registered, text));
    }
}

/// The doc comment as one paragraph, with the parameter that sets the key. `{managers}`, `{launchers}` and `{sources}`
/// are replaced by the documentation of the registered entries, `{takers}` by the names of those that declare the key.
pub(super) fn documentation(key: &Declared, registered: &Registry) -> String {
    let parts: Vec<&str> = key.documentation.split_whitespace().collect();
    let text = parts
        .join(" ")
        .replace("{managers}", &managers(registered))
        .replace("{launchers}", &launchers(registered))
        .replace("{sources}", &sources(registered))
        .replace("{takers}", &takers(key.name, registered));
    match &key.shape {
        Shape::Value { parameter: Some(Parameter { name, .. }), .. } => format!("{text} ({name})"),
        _ => text,
    }
}

fn managers(registered: &Registry) -> String {
    let entries: Vec<_> = registered.managers.iter().map(|facts| format!("`{}` {}", facts.name, facts.doc)).collect();
    let mut text = format!("{}.", entries.join(", "));
    for facts in &registered.managers {
        if let Chosen::ByKeys { keys, .. } = facts.chosen {
            let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
            let (name, keys) = (facts.name, keys.join(" or "));
            text +=
                &format!(" `auto` selects `{name}` if and only if {keys} is written, also inside other allocations.");
        }
    }
    text
}

fn launchers(registered: &Registry) -> String {
    let described = |facts: &&LauncherFacts| match facts.doc {
        "" => format!("`{}`", facts.name),
        doc => format!("`{}` ({doc})", facts.name),
    };
    registered.launchers.iter().map(described).collect::<Vec<_>>().join(", ")
}

/// "`scr`: the application. …"
fn sources(registered: &Registry) -> String {
    let described = |facts: &&SourceFacts| format!("`{}`: {}.", facts.agent.name, facts.doc);
    registered.sources.iter().map(described).collect::<Vec<_>>().join(" ")
}

/// `Local and ssh`.
fn takers(key: &str, registered: &Registry) -> String {
    let kinds = [EntryKind::Manager, EntryKind::Launcher].into_iter();
    let names: Vec<_> = kinds.flat_map(|kind| registered.takers(kind, key)).collect();
    let mut text = names.join(" and ");
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

fn write_comment(documentation: &str, margin: &str, text: &mut String) {
    let lines = wrapped(documentation, WIDTH - margin.len() - 2);
    lines.iter().for_each(|line| push_line(text, &format!("{margin}# {line}")));
}

/// Lines of at most `width` characters, broken at blanks outside of backticks.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut quoted = false;
    let is_break = |character: char| {
        quoted ^= character == '`';
        character == ' ' && !quoted
    };
    for part in text.split(is_break) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + part.chars().count() <= width => {
                line.push(' ');
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::registry::registered;

    #[test]
    fn configs_reference_matches_the_declarations() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/reference.yaml");
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == text(&registered()), "regenerate it: holdfast check --reference >configs/reference.yaml");
    }

    #[test]
    fn lines_fit_the_width() {
        for line in text(&registered()).lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}
