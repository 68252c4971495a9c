//! `each` in a step: an array of steps that differ in one value. The elements are steps of their own in all that
//! follows: each has a name, a prefix directory and checkpoints. The array is expanded in the document, before it is
//! read, so that no other part knows of it.

use super::diagnostics::{Diagnostic, Position};
use super::document::{Value, YamlEntry, YamlNode};

/// Stands for the value of the element, wherever it is written in the step.
const PLACEHOLDER: &str = "{each}";
/// More elements are refused.
const MOST: usize = 1000;
/// More values than the largest document has are refused.
const MOST_VALUES: usize = 100_000;

/// A step of the list as it was written, with the names of its elements.
struct Written {
    name: Option<String>,
    elements: Vec<String>,
    is_array: bool,
}

/// Replaces each step with `each` by its elements; completes `needs` where the name or the default means an array.
pub(super) fn expand(root: &mut YamlNode) -> Result<(), Vec<Diagnostic>> {
    let Value::Map(entries) = &mut root.value else { return Ok(()) };
    let Some(steps) = entries.iter_mut().find(|entry| entry.key == "steps") else { return Ok(()) };
    let Value::List(items) = &mut steps.node.value else { return Ok(()) };
    if !items.iter().any(|item| entry(item, "each").is_some()) {
        return Ok(());
    }
    let (mut mistakes, mut expanded, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let mut values = 0;
    for (at, item) in std::mem::take(items).into_iter().enumerate() {
        let elements = elements(at, &item, &mut mistakes);
        values += elements.iter().map(|element| count(&element.step)).sum::<usize>();
        if values > MOST_VALUES {
            let message = format!("the steps have more than {MOST_VALUES} values together");
            mistakes.push(mistake(at, item.place, message, "write fewer elements, or a shorter step"));
            return Err(mistakes);
        }
        written.push(Written {
            name: text(&item, "name").map(str::to_owned),
            elements: elements.iter().map(|element| element.name.clone()).collect(),
            is_array: entry(&item, "each").is_some(),
        });
        let before = written.len().checked_sub(2).map(|before| &written[before]);
        let follows_array = before.is_some_and(|before| before.is_array);
        for mut element in elements {
            // By default a step needs the one before it in the list, which may be an array.
            let is_array = written.last().is_some_and(|step| step.is_array);
            if (is_array || follows_array) && entry(&element.step, "needs").is_none() {
                let names = before.map(|before| before.elements.clone()).unwrap_or_default();
                add_needs(&mut element.step, &names);
            }
            expanded.push(element.step);
        }
    }
    for step in &mut expanded {
        name_all(step, &written);
    }
    *items = expanded;
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

struct Element {
    name: String,
    step: YamlNode,
}

/// The elements of an array; the step itself if it is none.
fn elements(at: usize, item: &YamlNode, mistakes: &mut Vec<Diagnostic>) -> Vec<Element> {
    let name = text(item, "name").unwrap_or_default().to_owned();
    let itself = || vec![Element { name: name.clone(), step: item.clone() }];
    let Some(each) = entry(item, "each") else { return itself() };
    let mut refuse = |place: Position, message: String, help: &str| {
        mistakes.push(mistake(at, place, message, help));
        itself()
    };
    let Value::List(values) = &each.node.value else {
        let message = format!("expected a list, found {}", each.node.value.describe());
        return refuse(each.node.place, message, "write `each: [a, b]`; `{each}` in the step is its value");
    };
    if values.is_empty() || values.len() > MOST {
        let message = format!("the list has {} values", values.len());
        return refuse(each.node.place, message, "write from 1 to 1000 values");
    }
    if !holds(item, PLACEHOLDER) {
        let message = "the elements would all do the same: the step has no `{each}`".to_owned();
        return refuse(each.key_place, message, "write `{each}` where they differ: `command: [./app, \"{each}\"]`");
    }
    let mut found: Vec<Element> = Vec::with_capacity(values.len());
    for value in values {
        let Value::Scalar { text: value_text, .. } = &value.value else {
            let message = format!("expected text or a number, found {}", value.value.describe());
            return refuse(value.place, message, "write `each: [a, b]`");
        };
        let of_value = if name.contains(PLACEHOLDER) {
            name.replace(PLACEHOLDER, value_text)
        } else {
            format!("{name}-{value_text}")
        };
        if found.iter().any(|element| element.name == of_value) {
            let message = format!("two elements have the name `{}`", of_value.escape_debug());
            return refuse(value.place, message, "write each value once, and `{each}` in `name` if there is one");
        }
        let mut step = item.clone();
        if let Value::Map(entries) = &mut step.value {
            entries.retain(|entry| entry.key != "each");
            if let Some(named) = entries.iter_mut().find(|entry| entry.key == "name") {
                named.node.value = Value::Scalar { text: of_value.clone(), plain: false };
            }
        }
        replace(&mut step, value_text);
        found.push(Element { name: of_value, step });
    }
    found
}

/// Replaces the placeholder in every text. A text that is nothing else becomes a number if the value is one.
fn replace(node: &mut YamlNode, value: &str) {
    match &mut node.value {
        Value::Scalar { text, plain } => {
            if text == PLACEHOLDER {
                *plain = true;
            }
            *text = text.replace(PLACEHOLDER, value);
        }
        Value::List(items) => items.iter_mut().for_each(|item| replace(item, value)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| replace(&mut entry.node, value)),
        Value::Nothing => {}
    }
}

/// Replaces the name of an array in `needs` by those of its elements.
fn name_all(step: &mut YamlNode, written: &[Written]) {
    let Value::Map(entries) = &mut step.value else { return };
    let Some(needs) = entries.iter_mut().find(|entry| entry.key == "needs") else { return };
    let Value::List(items) = &mut needs.node.value else { return };
    let named = std::mem::take(items).into_iter().flat_map(|item| {
        let Value::Scalar { text, .. } = &item.value else { return vec![item] };
        match written.iter().find(|step| step.is_array && step.name.as_ref() == Some(text)) {
            Some(array) => array.elements.iter().map(|name| word(name, item.place)).collect(),
            None => vec![item],
        }
    });
    *items = named.collect();
}

fn add_needs(step: &mut YamlNode, names: &[String]) {
    let place = step.place;
    let Value::Map(entries) = &mut step.value else { return };
    let names = names.iter().map(|name| word(name, place)).collect();
    let node = YamlNode { value: Value::List(names), place };
    entries.push(YamlEntry { key: "needs".to_owned(), key_place: place, node });
}

fn word(text: &str, place: Position) -> YamlNode {
    YamlNode { value: Value::Scalar { text: text.to_owned(), plain: false }, place }
}

fn entry<'a>(step: &'a YamlNode, key: &str) -> Option<&'a YamlEntry> {
    let Value::Map(entries) = &step.value else { return None };
    entries.iter().find(|entry| entry.key == key)
}

fn text<'a>(step: &'a YamlNode, key: &str) -> Option<&'a str> {
    match &entry(step, key)?.node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn holds(node: &YamlNode, what: &str) -> bool {
    match &node.value {
        Value::Scalar { text, .. } => text.contains(what),
        Value::List(items) => items.iter().any(|item| holds(item, what)),
        Value::Map(entries) => entries.iter().any(|entry| holds(&entry.node, what)),
        Value::Nothing => false,
    }
}

fn count(node: &YamlNode) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(entries) => entries.iter().map(|entry| count(&entry.node)).sum(),
        Value::Scalar { .. } | Value::Nothing => 0,
    }
}

fn mistake(at: usize, place: Position, message: String, help: &str) -> Diagnostic {
    let key = format!("steps[{at}].each");
    Diagnostic { place: Some(place), key, message, help: Some(help.to_owned()) }
}

#[cfg(test)]
mod tests {
    use crate::spec::{Environment, JobSpec};

    fn steps(text: &str) -> Vec<(String, String, Vec<String>)> {
        let spec = JobSpec::of_test(text);
        let of = |step: &crate::spec::Step| (step.name.clone(), step.run.command.join(" "), step.needs.clone());
        spec.steps.iter().map(of).collect()
    }

    fn refused(text: &str) -> String {
        let environment = Environment::empty(crate::launch::registry::registered());
        JobSpec::parse(text, "job.yaml", &environment).unwrap_err().to_string()
    }

    #[test]
    fn an_array_has_an_element_for_each_value_and_needs_what_is_before_it() {
        let text = "steps:\n- {name: a, run: {command: [./a]}}\n\
             - {name: b, each: [x, 7], run: {command: [./b, '{each}', 'o-{each}']}}\n\
             - {name: c, run: {command: [./c]}}\n- {name: d, needs: [b, a], run: {command: [./d]}}\n";
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = [
            ("a", "./a", strings(&[])),
            ("b-x", "./b x o-x", strings(&["a"])),
            ("b-7", "./b 7 o-7", strings(&["a"])),
            ("c", "./c", strings(&["b-x", "b-7"])),
            ("d", "./d", strings(&["b-x", "b-7", "a"])),
        ];
        let expected = expected.map(|(name, command, needs)| (name.to_owned(), command.to_owned(), needs));
        assert_eq!(steps(text), expected);
    }

    #[test]
    fn an_element_may_need_one_element_of_another_array() {
        let text = "steps:\n- {name: 'run.{each}', each: [1, 2], run: {command: [./b, '{each}']}}\n\
             - {name: plot, each: [1, 2], needs: ['run.{each}'], run: {command: [./p, '{each}']}}\n";
        let needs = steps(text).into_iter().map(|(name, _, needs)| format!("{name}: {}", needs.join(" ")));
        assert_eq!(needs.collect::<Vec<_>>(), ["run.1: ", "run.2: ", "plot-1: run.1", "plot-2: run.2"]);
    }

    #[test]
    fn what_is_no_array_is_refused_at_its_place() {
        let cases = [
            ("each: 3", "expected a list, found the number `3`"),
            ("each: []", "the list has 0 values"),
            ("each: [[a]]", "expected text or a number"),
            ("each: [a, a]", "two elements have the name `b-a`"),
            ("each: [a/b]", "`b-a/b` cannot be part of a path"),
        ];
        for (each, expected) in cases {
            let found = refused(&format!("steps:\n- {{name: b, {each}, run: {{command: [./b, '{{each}}']}}}}\n"));
            assert!(found.contains(expected) && found.contains("job.yaml:2"), "{each}: {found}");
        }
        let found = refused("steps:\n- {name: b, each: [1, 2], run: {command: [./b]}}\n");
        assert!(found.contains("would all do the same"), "{found}");
    }
}
