//! The keys of a job spec as a JSON Schema (draft 7, which editors know): `configs/spec.schema.json`, which `holdfast
//! schema` prints. It is generated from the declarations of the keys, and accepts every spec that is written as the
//! reference shows; what only the values together show is found by `holdfast check` alone.

use serde_json::{Map, Value, json};

use super::job::JobSpec;
use super::keys::{Declared, Form, Keys as _, Shape};
use super::reference;
use super::registered::EntryKind;
use super::registry::Registry;
use super::value_kinds::Accepted;

pub fn document(registered: &Registry) -> Value {
    let mut schema = object(&JobSpec::declared(), registered);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("A job spec of Holdfast");
    schema
}

/// A section. A key without a value counts as not written.
fn object(keys: &[Declared], registered: &Registry) -> Value {
    let mut properties = Map::new();
    keys.iter().for_each(|key| add(key, registered, &mut properties));
    json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false})
}

fn add(key: &Declared, registered: &Registry, to: &mut Map<String, Value>) {
    let mut schema = match &key.shape {
        Shape::Value { default, form, .. } => {
            let mut schema = value(form, registered);
            if let Some(default) = default {
                schema["default"] = as_written(default, form);
            }
            schema
        }
        Shape::Section { keys, is_described: true } if is_of_top_level(key.name, keys) => {
            let place = format!("#/properties/{}", key.name);
            to.insert(key.name.to_owned(), json!({"$ref": place}));
            return;
        }
        Shape::Section { keys, .. } => object(keys, registered),
        Shape::Elements(keys) | Shape::List(keys) => {
            json!({"type": ["array", "null"], "items": object(keys, registered)})
        }
        Shape::Keys(beside) => return beside.iter().for_each(|key| add(key, registered, to)),
        Shape::OfManagers => {
            let declared = registered.manager_keys.iter().flat_map(|keys| (keys.declared)());
            return declared.for_each(|key| add(&key, registered, to));
        }
        Shape::RequeueByManager => {
            for facts in registered.requeuing() {
                let meaning = facts.requeue.as_ref().map_or("", |requeue| requeue.doc);
                let switch = json!({"type": ["boolean", "null"], "default": false, "description": meaning});
                to.insert(facts.name.to_owned(), switch);
            }
            return;
        }
    };
    schema["description"] = json!(reference::documentation(key, registered));
    to.insert(key.name.to_owned(), schema);
}

/// A section of the top level has this name and these keys, too.
fn is_of_top_level(name: &str, keys: &[Declared]) -> bool {
    let names = |keys: &[Declared]| keys.iter().map(|key| key.name).collect::<Vec<_>>();
    JobSpec::declared().iter().any(|top| {
        top.name == name && matches!(&top.shape, Shape::Section { keys: of_top, .. } if names(of_top) == names(keys))
    })
}

fn value(form: &Form, registered: &Registry) -> Value {
    let one_of = |keywords: Vec<&str>| {
        let all: Vec<Value> = keywords.into_iter().map(Value::from).chain([Value::Null]).collect();
        json!({"enum": all})
    };
    match form {
        // Numbers, and words such as `on`, are read as their text.
        Form::Single(Accepted::Text) => json!({"type": ["string", "number", "boolean", "null"]}),
        Form::Single(Accepted::Switch) => json!({"type": ["boolean", "null"]}),
        Form::Single(Accepted::Whole(range)) => {
            let mut schema = json!({"type": ["integer", "null"], "minimum": range.start()});
            if *range.end() < u64::MAX {
                schema["maximum"] = json!(range.end());
            }
            schema
        }
        Form::Single(Accepted::Keywords(keywords)) => one_of(keywords.iter().map(String::as_str).collect()),
        Form::Entry(kind) => {
            let auto = Some("auto").filter(|_| !matches!(kind, EntryKind::Source));
            one_of(auto.into_iter().chain(registered.entries(*kind).into_iter().map(|(name, _)| name)).collect())
        }
        Form::Words => json!({"type": ["array", "null"], "items": scalar()}),
        Form::Choices(keywords) => json!({"type": ["array", "null"], "items": {"enum": keywords}}),
        Form::Names => json!({"type": ["object", "null"], "additionalProperties": scalar()}),
    }
}

/// An element of a list or a map of strings.
fn scalar() -> Value {
    json!({"type": ["string", "number", "boolean"]})
}

/// A default as a value of the schema's type.
fn as_written(default: &str, form: &Form) -> Value {
    match form {
        Form::Single(Accepted::Switch | Accepted::Whole(_)) | Form::Names => {
            serde_json::from_str(default).unwrap_or_else(|_| json!(default))
        }
        _ => json!(default),
    }
}
