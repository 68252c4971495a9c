//! The fields of an event among others in a line of the log: an agent's event has them as the orchestrator's own has.

use holdfast_wire::agent::AGENT_EVENTS;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use serde_json::{Map, Value};

use super::vocabulary::LogEvent;

pub fn serialize<S: Serializer>(event: &LogEvent, serializer: S) -> Result<S::Ok, S::Error> {
    match event {
        LogEvent::Agent(report) => report.serialize(serializer),
        event => event.serialize(serializer),
    }
}

/// By its name an event of agents or of the orchestrator: so the error names the field.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogEvent, D::Error> {
    let fields = Map::deserialize(deserializer)?;
    let name = fields.get("event").and_then(Value::as_str);
    let is_agents = name.is_some_and(|name| AGENT_EVENTS.iter().any(|event| event.is_named(name)));
    let fields = Value::Object(fields);
    let event = match is_agents {
        true => serde_json::from_value(fields).map(LogEvent::Agent),
        false => serde_json::from_value(fields),
    };
    event.map_err(serde::de::Error::custom)
}
