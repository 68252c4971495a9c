//! Documents of commands, compared with the JSON Schemas that the program prints: every test that reads a document
//! checks its shape.
//!
//! [`problems`] knows the part of JSON Schema that the program uses, and fails with any other keyword.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// The words of a command line after the program's name; empty if it does not start Holdfast.
pub fn words_of(command: &Command) -> Vec<String> {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let all: Vec<&OsStr> = all.collect();
    let program = all.iter().position(|word| Path::new(word).file_name() == Some(OsStr::new("holdfast")));
    let words = program.map_or(&[][..], |at| &all[at + 1..]);
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The one document that a command printed. It is as the schema of the command describes it.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn document(program: &Path, words: &[String], text: &str) -> Value {
    static ALL: OnceLock<Value> = OnceLock::new();
    let document: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
    let all = ALL.get_or_init(|| {
        let printed = Command::new(program).args(["schema", "documents"]).output().unwrap();
        serde_json::from_slice(&printed.stdout).unwrap()
    });
    let definitions = all["definitions"].as_object().unwrap();
    let name = if document.get("error").is_some() && document.as_object().is_some_and(|fields| fields.len() == 2) {
        "error"
    } else if words.is_empty() {
        return document;
    } else {
        let names = definitions.keys().filter(|name| is_of(name, words));
        let name = names.max_by_key(|name| name.len()).unwrap_or_else(|| panic!("no schema of {words:?}"));
        // The content of one file is the whole document.
        let of_file = format!("{name} file");
        definitions.keys().find(|other| **other == of_file && document.get("version").is_none()).unwrap_or(name)
    };
    let mut found = Vec::new();
    problems(&definitions[name], definitions, &document, name, &mut found);
    assert!(found.is_empty(), "{found:#?} in the document of {words:?}:\n{document:#}");
    document
}

/// True if `name` is of the command: its words are first, apart from options, and each other is an option.
fn is_of(name: &str, words: &[String]) -> bool {
    if words.iter().find(|word| !word.starts_with('-')).is_none_or(|first| !name.starts_with(first.as_str())) {
        return false;
    }
    let mut plain = words.iter().filter(|word| !word.starts_with('-'));
    let is_option = |word: &str| words.iter().any(|given| given.strip_prefix("--").is_some_and(|given| given == word));
    name.split(' ').all(|word| is_option(word) || plain.next().is_some_and(|given| given == word))
}

/// What of a value is not as the schema describes it.
pub fn problems(
    schema: &Value,
    definitions: &serde_json::Map<String, Value>,
    value: &Value,
    at: &str,
    found: &mut Vec<String>,
) {
    let known = |name: &str| schema["properties"].get(name);
    for (keyword, expected) in schema.as_object().unwrap() {
        let is_valid = match keyword.as_str() {
            "description" | "title" => true,
            "$ref" => {
                let name = expected.as_str().unwrap().rsplit('/').next().unwrap().replace("%20", " ");
                problems(&definitions[&name], definitions, value, at, found);
                true
            }
            "type" => match expected {
                Value::Array(kinds) => kinds.iter().any(|kind| is_a(value, kind)),
                kind => is_a(value, kind),
            },
            "const" => value == expected,
            "enum" => expected.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= expected.as_f64().unwrap()),
            "anyOf" => expected.as_array().unwrap().iter().any(|one| {
                let mut of_this = Vec::new();
                problems(one, definitions, value, at, &mut of_this);
                of_this.is_empty()
            }),
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    problems(expected, definitions, item, &format!("{at}[{number}]"), found);
                }
                true
            }
            "properties" => {
                for (name, schema) in expected.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        problems(schema, definitions, value, &format!("{at}.{name}"), found);
                    }
                }
                true
            }
            "required" => {
                let missing = expected.as_array().unwrap().iter().filter_map(Value::as_str);
                let missing: Vec<&str> =
                    missing.filter(|name| value.is_object() && value.get(name).is_none()).collect();
                found.extend(missing.iter().map(|name| format!("{at}.{name} is missing")));
                true
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| known(name).is_none()) {
                    if expected == &Value::Bool(false) {
                        found.push(format!("{at}.{name} is not described"));
                    } else {
                        problems(expected, definitions, value, &format!("{at}.{name}"), found);
                    }
                }
                true
            }
            other => panic!("{other} in a schema"),
        };
        if !is_valid {
            found.push(format!("{at}: {keyword} is {expected}, not {value}"));
        }
    }
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the type {other} in a schema"),
    }
}
