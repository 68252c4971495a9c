//! The events of a job as spans of a trace (OpenTelemetry): the job, its generations, restarts, checkpoints, flushes
//! and drains, each with its beginning and its end.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, Timestamp};
use holdfast_wire::agent::AgentEvent;
use serde_json::{Value, json};

use super::reason::{DrainResult, EndCause};
use super::vocabulary::LogEvent;

/// Names begin with `holdfast.`; values are texts, numbers and truth values.
type Attributes = Vec<(&'static str, Value)>;

/// A part of a job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Unique in the job, from 1.
    pub id: u64,
    /// The span that it is a part of; `None` for the job itself.
    pub parent: Option<u64>,
    pub name: String,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub attributes: Attributes,
    /// Why it failed.
    pub error: Option<String>,
}

/// The span of the job.
const JOB: u64 = 1;

/// The spans of a job that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// Numbers that were given, besides that of the job.
    given: u64,
    /// The first and the last event.
    seen: Option<(Timestamp, Timestamp)>,
    job: Attributes,
    failed: Option<String>,
    generation: Option<(Generation, u64, Timestamp)>,
    /// When each began.
    checkpoints: BTreeMap<CheckpointId, (Timestamp, Attributes)>,
    flushes: BTreeMap<CheckpointId, Timestamp>,
    drain: Option<Timestamp>,
}

impl Spans {
    /// True if an event begins or ends a span.
    pub fn counts(event: &LogEvent) -> bool {
        match event {
            LogEvent::JobStarted { .. }
            | LogEvent::GenerationLaunched { .. }
            | LogEvent::GenerationEnded { .. }
            | LogEvent::DrainStarted { .. }
            | LogEvent::Drained { .. }
            | LogEvent::Finished { .. } => true,
            LogEvent::Agent(report) => matches!(
                report.event,
                AgentEvent::Restarted { .. }
                    | AgentEvent::CheckpointStarted { .. }
                    | AgentEvent::CheckpointComplete { .. }
                    | AgentEvent::CheckpointProtected { .. }
                    | AgentEvent::ProtectionFailed { .. }
                    | AgentEvent::CheckpointFailed { .. }
                    | AgentEvent::FlushRequested { .. }
                    | AgentEvent::Flushed { .. }
                    | AgentEvent::FlushFailed { .. }
            ),
            _ => false,
        }
    }

    /// Counts an event. Returns the spans that it ends.
    pub fn add(&mut self, time: Timestamp, event: &LogEvent) -> Vec<Span> {
        let (first, last) = self.seen.unwrap_or((time, time));
        self.seen = Some((first, last.max(time)));
        match event {
            LogEvent::JobStarted { job_id, nodes, prefix, .. } => {
                self.job.push(("holdfast.job_id", json!(job_id)));
                self.job.push(("holdfast.nodes", json!(nodes.len())));
                self.job.push(("holdfast.prefix", json!(prefix)));
                Vec::new()
            }
            LogEvent::GenerationLaunched { generation, .. } => {
                self.generation = Some((*generation, self.number(), time));
                Vec::new()
            }
            LogEvent::GenerationEnded { generation, cause, .. } => self.generation_ended(time, *generation, cause),
            LogEvent::DrainStarted { .. } => {
                self.drain.get_or_insert(time);
                Vec::new()
            }
            LogEvent::Drained { result } => self.drained(time, result).into_iter().collect(),
            LogEvent::Finished { exit_code, message, .. } => {
                self.job.push(("holdfast.exit_code", json!(exit_code)));
                self.failed = (*exit_code != 0).then(|| message.clone());
                Vec::new()
            }
            LogEvent::Agent(report) => self.agent_event(time, &report.event).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The job has ended: its own span, if it began.
    pub fn end(self, job: &str) -> Option<Span> {
        let (began, ended) = self.seen?;
        let mut attributes = vec![("holdfast.job", json!(job))];
        attributes.extend(self.job);
        Some(Span { id: JOB, parent: None, name: "job".to_owned(), began, ended, attributes, error: self.failed })
    }

    fn number(&mut self) -> u64 {
        self.given += 1;
        JOB + self.given
    }

    /// A span below that of the generation, if one is under way.
    fn span(
        &mut self,
        name: &str,
        began: Timestamp,
        ended: Timestamp,
        mut attributes: Attributes,
        error: Option<String>,
    ) -> Span {
        if let Some((generation, ..)) = &self.generation {
            attributes.push(("holdfast.generation", json!(generation)));
        }
        let parent = Some(self.generation.as_ref().map_or(JOB, |(_, id, _)| *id));
        Span { id: self.number(), parent, name: name.to_owned(), began: began.min(ended), ended, attributes, error }
    }

    /// Checkpoints that have not ended ended with it.
    fn generation_ended(&mut self, time: Timestamp, generation: Generation, cause: &EndCause) -> Vec<Span> {
        let left: Vec<_> = self.checkpoints.keys().copied().collect();
        let lost = |id| self.checkpoint_ended(time, id, Some("its generation ended".to_owned()));
        let mut spans: Vec<Span> = left.into_iter().filter_map(lost).collect();
        self.flushes.clear();
        if let Some((_, id, began)) = self.generation.take().filter(|(of, ..)| *of == generation) {
            let attributes =
                vec![("holdfast.generation", json!(generation)), ("holdfast.cause", json!(cause.to_string()))];
            let error = (!cause.is_wanted()).then(|| cause.to_string());
            let name = format!("generation {generation}");
            spans.push(Span { id, parent: Some(JOB), name, began, ended: time, attributes, error });
        }
        spans
    }

    fn drained(&mut self, time: Timestamp, result: &DrainResult) -> Option<Span> {
        // Nothing was drained.
        let began = self.drain.take()?;
        let (checkpoint, error) = match result {
            DrainResult::Nothing => (None, None),
            DrainResult::Complete { checkpoint } => (Some(*checkpoint), None),
            DrainResult::Incomplete { checkpoint, reason, .. } => (Some(*checkpoint), Some(reason.clone())),
            DrainResult::Failed { reason, .. } => (None, Some(reason.clone())),
        };
        let attributes = checkpoint.map(|id| ("holdfast.checkpoint", json!(id))).into_iter().collect();
        Some(self.span("drain", began, time, attributes, error))
    }

    fn agent_event(&mut self, time: Timestamp, event: &AgentEvent) -> Option<Span> {
        let before = |millis: u64| Timestamp::from_millis(time.millis().saturating_sub_unsigned(millis));
        match event {
            AgentEvent::Restarted { checkpoint, source, rebuilt, millis, .. } => {
                let mut attributes =
                    vec![("holdfast.source", json!(source)), ("holdfast.rebuilt", json!(rebuilt.len()))];
                attributes.extend(checkpoint.map(|id| ("holdfast.checkpoint", json!(id))));
                Some(self.span("restart", before(*millis), time, attributes, None))
            }
            AgentEvent::CheckpointStarted { checkpoint, .. } => {
                self.checkpoints.insert(*checkpoint, (time, Vec::new()));
                None
            }
            AgentEvent::CheckpointComplete { checkpoint, scheme, bytes, millis, protected, .. } => {
                let begun = self.checkpoints.entry(*checkpoint).or_insert((before(*millis), Vec::new()));
                begun.1.push(("holdfast.scheme", json!(scheme)));
                begun.1.push(("holdfast.bytes", json!(bytes)));
                begun.1.push(("holdfast.complete_ms", json!(millis)));
                // Otherwise its redundancy follows.
                if *protected { None } else { self.checkpoint_ended(time, *checkpoint, None) }
            }
            AgentEvent::CheckpointProtected { checkpoint, .. } => self.checkpoint_ended(time, *checkpoint, None),
            AgentEvent::ProtectionFailed { checkpoint, reason, .. }
            | AgentEvent::CheckpointFailed { checkpoint, reason, .. } => {
                self.checkpoint_ended(time, *checkpoint, Some(reason.clone()))
            }
            AgentEvent::FlushRequested { checkpoint, .. } => {
                self.flushes.insert(*checkpoint, time);
                None
            }
            AgentEvent::Flushed { checkpoint, millis, .. } => {
                self.flushes.remove(checkpoint);
                Some(self.flush_ended(*checkpoint, before(*millis), time, None))
            }
            AgentEvent::FlushFailed { checkpoint, reason, .. } => {
                let began = self.flushes.remove(checkpoint).unwrap_or(time);
                Some(self.flush_ended(*checkpoint, began, time, Some(reason.clone())))
            }
            _ => None,
        }
    }

    fn checkpoint_ended(&mut self, at: Timestamp, id: CheckpointId, error: Option<String>) -> Option<Span> {
        let (began, attributes) = self.checkpoints.remove(&id)?;
        let attributes = with_checkpoint(id, attributes);
        Some(self.span("checkpoint", began, at, attributes, error))
    }

    fn flush_ended(&mut self, id: CheckpointId, began: Timestamp, at: Timestamp, error: Option<String>) -> Span {
        self.span("flush", began, at, with_checkpoint(id, Vec::new()), error)
    }
}

fn with_checkpoint(id: CheckpointId, attributes: Attributes) -> Attributes {
    std::iter::once(("holdfast.checkpoint", json!(id))).chain(attributes).collect()
}

impl Span {
    /// As OTLP writes it in JSON, in the trace with this id.
    pub fn otlp(&self, trace: u128) -> Value {
        let value = |value: &Value| match value {
            Value::Bool(truth) => json!({"boolValue": truth}),
            // Integers are strings there, because those of JSON are not exact everywhere.
            Value::Number(number) => json!({"intValue": number.to_string()}),
            Value::String(text) => json!({"stringValue": text}),
            other => json!({"stringValue": other.to_string()}),
        };
        let attributes = self.attributes.iter().map(|(key, of)| json!({"key": key, "value": value(of)}));
        let nanos =
            |time: Timestamp| (Duration::from_millis(u64::try_from(time.millis()).unwrap_or(0)).as_nanos()).to_string();
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            // SPAN_KIND_INTERNAL
            "kind": 1,
            "startTimeUnixNano": nanos(self.began),
            "endTimeUnixNano": nanos(self.ended),
            "attributes": attributes.collect::<Vec<_>>(),
            // STATUS_CODE_OK and STATUS_CODE_ERROR
            "status": match &self.error {
                None => json!({"code": 1}),
                Some(reason) => json!({"code": 2, "message": reason}),
            },
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::fixtures::event;

    /// The spans of these events, at these seconds; the last one is that of the job.
    fn spans(events: Vec<(i64, LogEvent)>) -> Vec<Span> {
        let mut machine = Spans::default();
        let mut found = Vec::new();
        for (seconds, event) in events {
            assert!(Spans::counts(&event), "{event:?}");
            found.extend(machine.add(Timestamp::from_secs(seconds), &event));
        }
        found.extend(machine.end("heat"));
        found
    }

    #[test]
    fn what_a_job_does_has_a_beginning_and_an_end_below_its_generation() {
        let of_checkpoint = |name: &str, millis: u64| event(name, json!({"checkpoint": 4, "millis": millis}));
        let cause = EndCause::NodeFailure { nodes: vec!["n2".into()] };
        let events = vec![
            (0, event("generation_launched", json!({}))),
            (3, event("restarted", json!({"checkpoint": null, "source": "fresh", "millis": 2000}))),
            (10, of_checkpoint("checkpoint_started", 0)),
            (12, of_checkpoint("checkpoint_complete", 2000)),
            (14, of_checkpoint("checkpoint_protected", 4000)),
            (20, event("checkpoint_started", json!({"checkpoint": 5}))),
            (21, event("generation_ended", json!(cause))),
            (22, of_checkpoint("drain_started", 0)),
            (25, event("drained", json!(DrainResult::Complete { checkpoint: CheckpointId(4) }))),
            (26, event("finished", json!({"exit_code": 75, "message": "halted"}))),
        ];
        let found = spans(events);
        let shown = |span: &Span| {
            let times = (span.began.millis() / 1000, span.ended.millis() / 1000);
            (span.name.clone(), span.parent, times, span.error.clone())
        };
        let error = |text: &str| Some(text.to_owned());
        let expected = [
            ("restart", Some(2), (1, 3), None),
            ("checkpoint", Some(2), (10, 14), None),
            ("checkpoint", Some(2), (20, 21), error("its generation ended")),
            ("generation 1", Some(JOB), (0, 21), error("node failure: n2")),
            ("drain", Some(JOB), (22, 25), None),
            ("job", None, (0, 26), error("halted")),
        ];
        let expected = expected.map(|(name, parent, times, error)| (name.to_owned(), parent, times, error));
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
        let ids: std::collections::BTreeSet<u64> = found.iter().map(|span| span.id).collect();
        assert_eq!((ids.len(), found[3].id), (found.len(), 2), "the generation is the parent of the others");
    }

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let span = Span {
            id: 7,
            parent: Some(JOB),
            name: "flush".to_owned(),
            began: Timestamp::from_millis(1500),
            ended: Timestamp::from_millis(2000),
            attributes: vec![("holdfast.checkpoint", json!(4)), ("holdfast.source", json!("cache"))],
            error: Some("the disk is full".to_owned()),
        };
        let expected = json!({
            "traceId": "0000000000000000000000000000000b",
            "spanId": "0000000000000007",
            "parentSpanId": "0000000000000001",
            "name": "flush",
            "kind": 1,
            "startTimeUnixNano": "1500000000",
            "endTimeUnixNano": "2000000000",
            "attributes": [
                {"key": "holdfast.checkpoint", "value": {"intValue": "4"}},
                {"key": "holdfast.source", "value": {"stringValue": "cache"}},
            ],
            "status": {"code": 2, "message": "the disk is full"},
        });
        assert_eq!(span.otlp(11), expected);
    }
}
