//! Traces in OTLP, compared with the events of the job.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::job::Job;
use crate::notify::receiver;
use crate::world::World;

/// All spans of the requests so far, until that of the job, which is the last.
fn spans(received: &std::sync::mpsc::Receiver<crate::notify::Request>) -> Vec<Value> {
    let mut spans: Vec<Value> = Vec::new();
    while spans.iter().all(|span| span["name"] != "job") {
        let request = received.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(request.head[0].starts_with("post /v1/traces "), "{:?}", request.head);
        assert!(request.head.contains(&"api-key: a b".to_owned()), "{:?}", request.head);
        let of_service = &request.body["resourceSpans"][0];
        let name = &of_service["resource"]["attributes"][0];
        assert_eq!((&name["key"], &name["value"]["stringValue"]), (&"service.name".into(), &"heat".into()));
        spans.extend(of_service["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    spans
}

fn attribute(span: &Value, key: &str) -> Option<Value> {
    let found = span["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    Some(found["value"].as_object()?.values().next()?.clone())
}

#[test]
fn the_spans_of_a_job_are_those_of_its_events() {
    for (flush, saved) in [("{every: 3}", "flush"), ("{every: 0}", "drain")] {
        the_spans_are_those_of_the_events(flush, saved);
    }
}

/// `saved`: the span of what brings its checkpoint to the prefix directory.
fn the_spans_are_those_of_the_events(flush: &str, saved: &str) {
    let world = World::new();
    // The first request is repeated.
    let (address, received) = receiver(None, &[503]);
    let job = Job::new(&world, 1).flush(flush).faults("{node: 1, after_checkpoint: 4}");
    let mut command = job.command_line();
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
        .env("OTEL_SERVICE_NAME", "heat");
    world.start(command).ends_with(0);
    let refused = received.recv_timeout(Duration::from_secs(60)).unwrap();
    let spans = spans(&received);
    let repeated = &refused.body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert!(repeated.as_array().unwrap().iter().all(|span| spans.contains(span)), "{repeated}");

    // One span for each event that ends something.
    let count = |name: &str| spans.iter().filter(|span| span["name"].as_str().unwrap().starts_with(name)).count();
    for (span, event) in [
        ("generation ", "generation_launched"),
        ("restart", "restarted"),
        ("flush", "flushed"),
        ("drain", "drain_started"),
        ("job", "job_started"),
    ] {
        assert_eq!(count(span), world.all(event).len(), "{span}");
    }
    assert!(count(saved) > 0, "{spans:?}");
    assert_eq!(count("generation "), 2);
    for event in world.all("checkpoint_complete") {
        let is_it = |span: &&Value| {
            span["name"] == "checkpoint"
                && attribute(span, "holdfast.checkpoint") == Some(event["checkpoint"].to_string().into())
                && attribute(span, "holdfast.bytes") == Some(event["bytes"].to_string().into())
        };
        assert!(spans.iter().any(|span| is_it(&span)), "{event}");
    }

    // A tree of one trace: a part lies in its whole, and the generation that lost its node failed.
    let by_id: BTreeMap<&str, &Value> = spans.iter().map(|span| (span["spanId"].as_str().unwrap(), span)).collect();
    assert_eq!(by_id.len(), spans.len());
    let time = |span: &Value, of: &str| span[of].as_str().unwrap().parse::<u64>().unwrap();
    for span in &spans {
        assert_eq!(span["traceId"], spans[0]["traceId"]);
        assert!(time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano"), "{span}");
        if span["name"] != "job" {
            let parent = by_id[span["parentSpanId"].as_str().unwrap()];
            assert!(time(parent, "startTimeUnixNano") <= time(span, "endTimeUnixNano"), "{span} in {parent}");
        }
    }
    let of_generation = |number: u32| spans.iter().find(|span| span["name"] == format!("generation {number}")).unwrap();
    assert_eq!((&of_generation(1)["status"]["code"], &of_generation(2)["status"]["code"]), (&2.into(), &1.into()));
    assert!(of_generation(1)["status"]["message"].as_str().unwrap().contains("node1"), "{}", of_generation(1));
}

#[test]
fn a_job_runs_without_traces_where_they_are_not_possible_and_the_reason_is_printed() {
    for (variable, value, reason) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT is not an address"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "Holdfast sends http/json"),
    ] {
        let world = World::unchecked();
        let mut command = Job::new(&world, 0).command_line();
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env(variable, value);
        let ran = world.start(command).ends_with(0);
        assert!(ran.err.contains("no traces are sent") && ran.err.contains(reason), "{}", ran.err);
    }
}
