//! Traces of the job (OpenTelemetry, OTLP over HTTP as JSON), where the environment names what collects them.
//!
//! A thread delivers the spans: the job does not wait for it. What could not be delivered is a warning, and so is what
//! the variables ask for and Holdfast does not do.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use holdfast_model::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use serde_json::json;

use super::post;
use super::reporter::EventSink;
use crate::events::LogEvent;
use crate::events::spans::{Span, Spans};

/// Spans are collected for this time, so that several are in a request.
const COLLECTED_FOR: Duration = Duration::from_secs(1);
/// Time limit for what is left at the end of the job.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Time limit of a request, if the environment has none.
const WITHIN: Duration = Duration::from_secs(10);
/// Sent to the path of traces below the endpoint.
const PATH: &str = "v1/traces";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// The variables of OpenTelemetry, as far as they concern traces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Collector {
    url: Url,
    headers: Vec<(String, String)>,
    within: Duration,
    /// `service.name`.
    service: String,
}

impl Collector {
    /// Reads the variables; an empty one counts as not set. `None` where no traces are wanted.
    ///
    /// # Errors
    /// What Holdfast cannot do.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Collector>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let first = |names: &[&'static str]| names.iter().find_map(|name| Some((*name, variable(name)?)));
        let (name, url) = match (variable(TRACES_ENDPOINT), variable(ENDPOINT)) {
            (Some(url), _) => (TRACES_ENDPOINT, url),
            (None, Some(url)) => (ENDPOINT, format!("{}/{PATH}", url.trim_end_matches('/'))),
            (None, None) => return Ok(None),
        };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        if is_off {
            return Ok(None);
        }
        let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| format!("{name} is not an address with http: or https:"))?;
        if let Some((name, protocol)) = first(&PROTOCOL).filter(|(_, protocol)| !protocol.starts_with("http/")) {
            return Err(format!(
                "{name} is {protocol}, and Holdfast sends http/json: name the HTTP port of the collector (4318) in \
                 {TRACES_ENDPOINT}, and set {} to http/json",
                PROTOCOL[0]
            ));
        }
        let headers = first(&HEADERS).map_or_else(|| Ok(Vec::new()), |(name, text)| headers(name, &text))?;
        let within = match first(&TIMEOUT) {
            None => WITHIN,
            Some((name, text)) => {
                let millis = text.trim().parse().map_err(|_| format!("{name} is not a number of milliseconds"))?;
                Duration::from_millis(millis)
            }
        };
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "holdfast".to_owned());
        Ok(Some(Collector { url, headers, within, service }))
    }

    fn client(&self) -> Result<Client, String> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value)) else {
                return Err(format!("{} has characters that a header cannot have", HEADERS[1]));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        post::client(headers, self.within).map_err(|error| error.to_string())
    }

    /// The request with these spans, each of a trace.
    fn body(&self, spans: &[(u128, Span)]) -> Vec<u8> {
        let spans: Vec<_> = spans.iter().map(|(trace, span)| span.otlp(*trace)).collect();
        let service = json!({"key": "service.name", "value": {"stringValue": self.service}});
        let scope = json!({"name": "holdfast", "version": env!("CARGO_PKG_VERSION")});
        let of_service = json!({
            "resource": {"attributes": [service]},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        });
        json!({ "resourceSpans": [of_service] }).to_string().into_bytes()
    }
}

/// `name=value,name=value` with `%20` for what cannot stand there.
fn headers(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())?))
    };
    pairs.map(header).collect::<Option<_>>().ok_or_else(|| format!("{variable} is not `name=value,name=value`"))
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_owned();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// The step that it is of, in a job of several; and the event.
type StepEvent = (Option<Arc<str>>, Timestamp, LogEvent);

/// The thread that delivers spans.
#[derive(Debug)]
pub(super) struct Tracer {
    /// `None` after the end of the job.
    events: Option<Sender<StepEvent>>,
    ended: Receiver<()>,
}

impl Tracer {
    /// Starts the thread if the environment names a collector. A job runs without traces where that is not possible.
    pub(super) fn start(job: &str) -> Option<Tracer> {
        let variable = |name: &str| std::env::var(name).ok();
        let collector = Collector::read(variable).and_then(|collector| match collector {
            Some(collector) => Ok(Some((collector.client()?, collector))),
            None => Ok(None),
        });
        let (client, collector) = match collector {
            Ok(found) => found?,
            Err(reason) => {
                tracing::warn!(reason, "no traces are sent");
                return None;
            }
        };
        let (events, received) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        let job = job.to_owned();
        let started = thread::Builder::new().name("traces".to_owned()).spawn(move || {
            deliver_all(&job, &collector, &client, &received);
            // After the time limit nothing receives this.
            let _ = done.send(());
        });
        match started {
            Ok(_) => Some(Tracer { events: Some(events), ended }),
            Err(error) => {
                tracing::warn!(%error, "no traces are sent: no thread can be started");
                None
            }
        }
    }

    /// For the reporter of a job, or of a step of several.
    pub(super) fn sink(&self, step: Option<Arc<str>>) -> Option<EventSink> {
        let events = self.events.clone()?;
        Some(Box::new(move |time: Timestamp, event: &LogEvent| {
            if Spans::counts(event) {
                // The thread ends with the job only.
                let _ = events.send((step.clone(), time, event.clone()));
            }
        }))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.events = None;
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(ENDED_WITHIN) {
            tracing::warn!("the last spans of the traces could not be delivered in time");
        }
    }
}

/// A trace that has not ended: that of the job, or of a step of several.
struct Trace {
    id: u128,
    spans: Spans,
}

impl Trace {
    fn new() -> Self {
        let random = || RandomState::new().build_hasher().finish();
        Trace { id: (u128::from(random()) << 64) | u128::from(random()), spans: Spans::default() }
    }
}

/// Delivers the spans of a job until all senders are gone, at last its own.
fn deliver_all(job: &str, collector: &Collector, client: &Client, events: &Receiver<StepEvent>) {
    let mut traces: BTreeMap<Option<Arc<str>>, Trace> = BTreeMap::new();
    let (mut waiting, mut lost) = (Vec::new(), 0);
    let mut send = |waiting: &mut Vec<(u128, Span)>| {
        let body = collector.body(waiting);
        if let Err(reason) = post::in_attempts(|| post::post(client, &collector.url, &body)) {
            if lost == 0 {
                tracing::warn!(reason, "spans of the traces could not be delivered; the next ones are tried");
            }
            lost += waiting.len();
        }
        waiting.clear();
        lost
    };
    loop {
        match events.recv_timeout(COLLECTED_FOR) {
            Ok((step, time, event)) => {
                let Trace { id, spans } = traces.entry(step).or_insert_with(Trace::new);
                waiting.extend(spans.add(time, &event).into_iter().map(|span| (*id, span)));
            }
            Err(RecvTimeoutError::Timeout) if waiting.is_empty() => {}
            Err(RecvTimeoutError::Timeout) => drop(send(&mut waiting)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let has_steps = traces.keys().any(Option::is_some);
    for (step, Trace { id, spans }) in traces.into_iter().filter(|(step, _)| step.is_some() == has_steps) {
        let name = step.map_or_else(|| job.to_owned(), |step| format!("{job} {step}"));
        waiting.extend(spans.end(&name).map(|span| (id, span)));
    }
    let lost = if waiting.is_empty() { 0 } else { send(&mut waiting) };
    if lost > 0 {
        tracing::warn!(lost, "spans of the traces were not delivered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Collector>, String> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Collector::read(find)
    }

    #[test]
    fn the_variables_of_opentelemetry_name_address_headers_and_service() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(ENDPOINT, " ")]), Ok(None), "an empty one is not set");
        let collector = read(&[(ENDPOINT, "http://localhost:4318/")]).unwrap().unwrap();
        assert_eq!(collector.url.as_str(), "http://localhost:4318/v1/traces");
        assert_eq!((collector.within, collector.service.as_str()), (WITHIN, "holdfast"));
        let all = [
            (ENDPOINT, "http://a"),
            (TRACES_ENDPOINT, "https://b/x"),
            (HEADERS[1], "api-key=a%20b+c, other=1"),
            (TIMEOUT[1], "500"),
            ("OTEL_SERVICE_NAME", "heat"),
            (PROTOCOL[1], "http/protobuf"),
        ];
        let collector = read(&all).unwrap().unwrap();
        assert_eq!(collector.url.as_str(), "https://b/x");
        let headers = [("api-key", "a b+c"), ("other", "1")];
        assert_eq!(collector.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((collector.within, collector.service.as_str()), (Duration::from_millis(500), "heat"));
    }

    #[test]
    fn what_is_not_possible_is_an_error_and_what_is_off_is_off() {
        let to = (ENDPOINT, "http://a");
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(read(&[to, off]), Ok(None));
        }
        for (wrong, named) in [
            ((ENDPOINT, "localhost:4318"), ENDPOINT),
            ((PROTOCOL[1], "grpc"), "4318"),
            ((HEADERS[1], "secret"), HEADERS[1]),
            ((HEADERS[1], "key=%zz"), HEADERS[1]),
            ((TIMEOUT[1], "1s"), TIMEOUT[1]),
        ] {
            let error = read(&[wrong, to]).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
