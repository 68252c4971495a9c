//! JSON Schemas of the documents that commands print with `--json`, expanded from `schemas/documents.yaml`.
//!
//! The file has an entry for each document: the words of the command, and the fields without `version`. Of a field,
//! `name?` may be absent and `name~` may be null. A type is `string`, `integer` (from 0), `signed`, `number`,
//! `boolean`, `any`, `= one | of | these`, or `$shape` of the section `$shapes`, with `~` for values that may be null,
//! and after `; ` what it means. A list of one element is an array of those, a map an object without other fields, and
//! `"*"` stands for any name.

use serde_json::{Map, Value, json};
use serde_yaml::Value as Yaml;

use super::failure::Failure;
use super::output::JSON_VERSION;
use crate::exit;

const SHAPES: &str = "$shapes";
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The entries: the words of commands, and what they print.
pub struct Documents {
    entries: serde_yaml::Mapping,
}

impl Documents {
    /// Those of this version of Holdfast.
    ///
    /// # Errors
    /// [`exit::INTERNAL`]: the file cannot be read.
    pub fn read() -> Result<Documents, Failure> {
        let entries = serde_yaml::from_str(include_str!("schemas/documents.yaml"));
        Ok(Documents { entries: entries.map_err(|error| Failure::of(exit::INTERNAL, &error))? })
    }

    /// The words of all commands with a document.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().filter_map(Yaml::as_str).filter(|name| *name != SHAPES)
    }

    /// The schema of what a command prints.
    pub fn schema(&self, name: &str) -> Option<Value> {
        let fields = self.entries.get(name).filter(|_| name != SHAPES)?;
        let mut schema = json!({"$schema": DRAFT, "title": format!("Document of Holdfast: {name}")});
        extend(&mut schema, self.document(fields));
        extend(&mut schema, json!({"definitions": self.shapes()}));
        Some(schema)
    }

    /// The schemas of all documents, by the words of their commands.
    pub fn all(&self) -> Value {
        let mut definitions = self.shapes();
        for name in self.names() {
            definitions.insert(name.to_owned(), self.entries.get(name).map_or(Value::Null, |it| self.document(it)));
        }
        let references: Vec<Value> = self.names().map(reference).collect();
        json!({"$schema": DRAFT, "title": "What commands of Holdfast print with --json", "anyOf": references,
            "definitions": definitions})
    }

    fn document(&self, fields: &Yaml) -> Value {
        let mut document = expanded(fields);
        if fields.is_mapping() {
            let described = "The version of all documents that commands print.";
            let mut properties = Map::new();
            properties.insert("version".to_owned(), json!({"const": JSON_VERSION, "description": described}));
            if let Some(Value::Object(own)) = document.get_mut("properties") {
                properties.append(own);
                *own = properties;
            }
            if let Some(Value::Array(required)) = document.get_mut("required") {
                required.insert(0, "version".into());
            }
        }
        document
    }

    fn shapes(&self) -> Map<String, Value> {
        let shapes = self.entries.get(SHAPES).and_then(Yaml::as_mapping);
        let shapes = shapes.into_iter().flatten().filter_map(|(name, shape)| Some((name.as_str()?, shape)));
        shapes.map(|(name, shape)| (name.to_owned(), expanded(shape))).collect()
    }
}

fn extend(schema: &mut Value, with: Value) {
    if let (Value::Object(schema), Value::Object(with)) = (schema, with) {
        schema.extend(with);
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{}", name.replace(' ', "%20"))})
}

fn expanded(written: &Yaml) -> Value {
    match written {
        Yaml::Sequence(items) => json!({"type": "array", "items": items.first().map_or(json!({}), expanded)}),
        Yaml::Mapping(fields) => object(fields),
        other => scalar(other.as_str().unwrap_or_default()),
    }
}

fn object(fields: &serde_yaml::Mapping) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let mut schema = json!({"type": "object"});
    let mut others = json!(false);
    for (name, written) in fields {
        match name.as_str().unwrap_or_default() {
            "" => schema["description"] = written.as_str().unwrap_or_default().into(),
            "*" => others = expanded(written),
            name => {
                let (name, is_null) = name.strip_suffix('~').map_or((name, false), |name| (name, true));
                let (name, is_absent) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
                let schema = expanded(written);
                properties.insert(name.to_owned(), if is_null { or_null(schema) } else { schema });
                if !is_absent {
                    required.push(Value::from(name));
                }
            }
        }
    }
    extend(&mut schema, json!({"properties": properties, "required": required, "additionalProperties": others}));
    schema
}

fn scalar(written: &str) -> Value {
    let (kind, meaning) = written.split_once("; ").map_or((written, None), |(kind, meaning)| (kind, Some(meaning)));
    let (kind, is_null) = kind.strip_suffix('~').map_or((kind, false), |kind| (kind, true));
    let schema = match kind.trim() {
        "any" => json!({}),
        "integer" => json!({"type": "integer", "minimum": 0}),
        "signed" => json!({"type": "integer"}),
        other => match (other.strip_prefix('='), other.strip_prefix('$')) {
            (Some(values), _) => json!({"enum": values.split('|').map(str::trim).collect::<Vec<_>>()}),
            (None, Some(shape)) => reference(shape),
            (None, None) => json!({"type": other}),
        },
    };
    let mut schema = if is_null { or_null(schema) } else { schema };
    if let Some(meaning) = meaning {
        schema["description"] = meaning.into();
    }
    schema
}

/// The schema with null among its values.
fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    } else if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    } else if schema.get("$ref").is_some() {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Commands that print no document: they run something, or serve.
    const WITHOUT: [&str; 6] = ["top", "agent", "pairs client", "example heat", "example heat-init", "example pair"];

    /// The words of all commands that are no group of others.
    fn commands(command: &clap::Command, before: &str, all: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let words = format!("{before}{}", sub.get_name());
            if sub.has_subcommands() {
                commands(sub, &format!("{words} "), all);
            } else {
                all.push(words);
            }
        }
    }

    #[test]
    fn every_command_with_a_document_has_a_schema() {
        let mut all = Vec::new();
        commands(&Cli::command(), "", &mut all);
        let documents = Documents::read().unwrap();
        let missing: Vec<&String> = all.iter().filter(|words| documents.schema(words).is_none()).collect();
        let known = |words: &&&String| !WITHOUT.contains(&words.as_str());
        assert_eq!(missing.iter().filter(known).collect::<Vec<_>>(), Vec::<&&String>::new());
        // Each word of an entry is that of a command, or chooses one of several documents.
        let others = ["dry-run", "explain", "resolved", "reference", "prefix", "file"];
        for name in documents.names() {
            let command =
                name.rsplit_once(' ').filter(|(_, last)| others.contains(last)).map_or(name, |(first, _)| first);
            assert!(all.iter().any(|words| words == command) || name == "error", "{name}");
        }
    }

    #[test]
    fn fields_may_be_absent_or_null_as_written() {
        let fields = serde_yaml::from_str("{a?: integer, b~: = x | y, c: [signed~], \"*\": $s, d~: $s}").unwrap();
        let schema = expanded(&fields);
        assert_eq!(schema["required"], json!(["b", "c", "d"]));
        assert_eq!(schema["properties"]["a"], json!({"type": "integer", "minimum": 0}));
        assert_eq!(schema["properties"]["b"], json!({"enum": ["x", "y", null]}));
        assert_eq!(schema["properties"]["c"]["items"], json!({"type": ["integer", "null"]}));
        assert_eq!(schema["additionalProperties"], json!({"$ref": "#/definitions/s"}));
        assert_eq!(schema["properties"]["d"]["anyOf"][1], json!({"type": "null"}));
    }
}
