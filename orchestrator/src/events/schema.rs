//! The lines of an event log as a JSON Schema (draft 7), from the declarations of the events.
//!
//! It describes the lines that this version writes. A reader of logs of later versions leaves events and fields out
//! that it does not know, as [`SCHEMA`] explains.

use holdfast_model::vocabulary::{DeclaredEvent, DeclaredType};
use serde_json::{Map, Value, json};

use super::log::SCHEMA;
use super::vocabulary;

/// The schema of one line.
pub fn document() -> Value {
    let events: Vec<&DeclaredEvent> = vocabulary::declared().collect();
    let names: Vec<String> = events.iter().map(|event| event.name()).collect();
    let kinds = events.iter().zip(&names).map(|(event, name)| {
        json!({
            "if": {"properties": {"event": {"const": name}}},
            "then": fields_of(event),
        })
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("A line of the event log of a job, version {SCHEMA}"),
        "type": "object",
        "properties": {
            "v": {"type": "string", "description": "The version of the schema, major.minor."},
            "time": {"type": "string", "format": "date-time", "description": "When it happened, in UTC."},
            "job": {"type": "string", "description": "The name of the job."},
            "event": {"enum": names},
        },
        "required": ["v", "time", "job", "event"],
        "allOf": kinds.collect::<Vec<_>>(),
    })
}

/// The fields of an event.
fn fields_of(event: &'static DeclaredEvent) -> Value {
    let described = vocabulary::fields(event);
    // The node of an agent's event stands before its own fields.
    let of_agents = described.len() - event.types.len();
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (at, (field, meaning)) in described.into_iter().enumerate() {
        let declared = at.checked_sub(of_agents).and_then(|own| event.types.get(own));
        let mut schema = declared.map_or_else(|| json!({"type": ["string", "null"]}), |of| type_of(of.name));
        schema["description"] = json!(meaning);
        if declared.is_some_and(is_always_there) {
            required.push(field);
        }
        properties.insert(field.to_owned(), schema);
    }
    json!({"description": event.meaning.trim(), "properties": properties, "required": required})
}

/// A value that may be absent has a default, or is an `Option`. A flattened one has its tag in the line.
fn is_always_there(declared: &DeclaredType) -> bool {
    declared.attribute != "default" && !declared.name.starts_with("Option")
}

/// The schema of a type; an empty one accepts everything.
fn type_of(name: &str) -> Value {
    let inner = |wrapper: &str| {
        let name = name.replace(' ', "");
        Some(name.strip_prefix(wrapper)?.strip_prefix('<')?.strip_suffix('>')?.to_owned())
    };
    if let Some(inner) = inner("Option") {
        let schema = type_of(&inner);
        return match schema.get("type").and_then(Value::as_str) {
            Some(kind) => {
                let mut schema = schema.clone();
                schema["type"] = json!([kind, "null"]);
                schema
            }
            None => json!({}),
        };
    }
    if let Some(inner) = inner("Vec") {
        return json!({"type": "array", "items": type_of(&inner)});
    }
    match name {
        "u8" | "u32" | "u64" | "usize" | "Generation" | "CheckpointId" | "Rank" => {
            json!({"type": "integer", "minimum": 0})
        }
        "i32" | "i64" => json!({"type": "integer"}),
        "bool" => json!({"type": "boolean"}),
        "String" | "PathBuf" | "NodeName" | "Scheme" | "CommandKey" | "RestartSource" | "Location" | "OutputPath" => {
            json!({"type": "string"})
        }
        "SettingInForce" => {
            let text = json!({"type": "string"});
            let properties = json!({"key": text, "value": text, "origin": text});
            json!({"type": "object", "properties": properties, "required": ["key", "value", "origin"]})
        }
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_their_values() {
        let number = json!({"type": "integer", "minimum": 0});
        assert_eq!(type_of("u64"), number);
        assert_eq!(type_of("Option<u64>"), json!({"type": ["integer", "null"], "minimum": 0}));
        assert_eq!(type_of("Vec<Rank>"), json!({"type": "array", "items": number}));
        assert_eq!(type_of("Option<Vec<NodeName>>")["items"], json!({"type": "string"}));
        assert_eq!(type_of("EndCause"), json!({}));
        assert_eq!(type_of("Option<EndCause>"), json!({}));
    }

    #[test]
    fn only_values_that_have_fields_of_their_own_are_not_described() {
        let types = vocabulary::declared().flat_map(|event| event.types).filter(|of| type_of(of.name) == json!({}));
        let unknown: std::collections::BTreeSet<&str> = types.map(|of| of.name).collect();
        let known = ["DownReason", "DrainResult", "EndCause", "Option<GenerationProgress>", "Option<IntervalAdvice>"];
        let others = ["PairChange", "RankEnd", "StopReason", "Timestamp", "Wait"];
        assert_eq!(unknown, known.into_iter().chain(others).collect());
    }
}
