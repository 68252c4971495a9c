//! Events for tests.

use serde_json::{Value, json};

use super::fields;
use super::vocabulary::LogEvent;

/// An event of generation 1 and checkpoint 1 with these fields, as a line of the log has them. The other fields that it
/// needs have small values.
pub fn event(name: &str, fields: Value) -> LogEvent {
    let mut line = json!({
        "node": "n1", "generation": 1, "checkpoint": 1, "millis": 1,
        "job_id": "1", "nodes": [], "prefix": "/p",
        "spares": 0, "moved": [], "relaunches": 0, "rank": 0, "ranks": [], "seen": "", "without_progress": 0,
        "source": "cache", "rebuilt": [], "directory": "d", "resumed": false,
        "scheme": "XOR", "protected": true, "bytes": 1,
        "redundancy_millis": 0, "flush_millis": 0,
        "message": "",
    });
    line["event"] = name.into();
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    fields.into_iter().for_each(|(field, value)| line[field] = value);
    fields::deserialize(line).unwrap()
}
