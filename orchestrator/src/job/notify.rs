//! `notify`: reports events of the job to addresses and programs.
//!
//! A thread for each recipient: neither the job nor another recipient waits for one that does not answer. What could
//! not be delivered is a warning. The end of the job waits a limited time for the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_model::Timestamp;
use holdfast_wire::environment;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use serde::Serialize;

use super::post::{self, Undelivered};
use super::reporter::EventSink;
use super::secret_file::{self, SecretFileError};
use crate::events::{DrainResult, LogEvent, log};
use crate::host::external_command;
use crate::spec::value_kinds::Choice as _;
use crate::spec::{Notification, NotifiedEvent, Recipient};

/// Time limit for what is left at the end of the job.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error("the secret of notify.secret_file has characters that a header cannot have")]
    SecretCharacters,
    #[error("no requests to the addresses of `notify` are possible: {0}")]
    Client(#[from] reqwest::Error),
    #[error("no thread for the recipients of `notify`: {0}")]
    Thread(#[from] std::io::Error),
}

/// An event for a recipient.
#[derive(Clone, Debug)]
struct Report {
    kind: NotifiedEvent,
    step: Option<Arc<str>>,
    time: Timestamp,
    event: LogEvent,
}

/// The threads of all recipients.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    recipients: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    events: Vec<NotifiedEvent>,
    /// `None` after the end of the job.
    reports: Option<Sender<Report>>,
    ended: Receiver<()>,
    name: String,
}

impl Notifier {
    /// Starts the threads of the recipients.
    ///
    /// # Errors
    /// A secret cannot be read, or a thread not be started.
    pub(super) fn start(job: &str, prefix: &Path, list: &[Notification]) -> Result<Self, NotifyError> {
        let mut notifier = Notifier::default();
        for notification in list {
            let route = Route::new(notification)?;
            let name = route.to_string();
            let (reports, received) = mpsc::channel();
            let (done, ended) = mpsc::channel();
            let source = Source { job: job.to_owned(), prefix: prefix.to_owned() };
            let time_limit = notification.time_limit;
            thread::Builder::new().name("notify".to_owned()).spawn(move || {
                deliver_all(&route, &source, time_limit, &received);
                // After the time limit nothing receives this.
                let _ = done.send(());
            })?;
            let events = notification.events.clone();
            notifier.recipients.push(Running { events, reports: Some(reports), ended, name });
        }
        Ok(notifier)
    }

    /// For the reporter of a job, or of a step of several; `None` without recipients.
    pub(super) fn sink(&self, step: Option<Arc<str>>) -> Option<EventSink> {
        let each =
            self.recipients.iter().filter_map(|running| Some((running.events.clone(), running.reports.clone()?)));
        let each: Vec<(Vec<NotifiedEvent>, Sender<Report>)> = each.collect();
        let add = move |time: Timestamp, event: &LogEvent| {
            let Some(kind) = kind(event) else { return };
            for (_, reports) in each.iter().filter(|(events, _)| events.contains(&kind)) {
                // A thread ends with the job only.
                let _ = reports.send(Report { kind, step: step.clone(), time, event: event.clone() });
            }
        };
        (!self.recipients.is_empty()).then(|| Box::new(add) as EventSink)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.recipients.iter_mut().for_each(|running| running.reports = None);
        let until = Instant::now() + ENDED_WITHIN;
        for Running { ended, name, .. } in &self.recipients {
            let left = until.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(left) {
                tracing::warn!(recipient = name, "notify: the last events could not be delivered in time");
            }
        }
    }
}

/// The kind under which an event is reported; `None`: it is not.
fn kind(event: &LogEvent) -> Option<NotifiedEvent> {
    Some(match event {
        LogEvent::NodeDown { .. } => NotifiedEvent::NodeDown,
        LogEvent::GenerationLaunched { relaunches: 1.., .. } => NotifiedEvent::Relaunched,
        LogEvent::FailureExplained { .. } => NotifiedEvent::FailureExplained,
        LogEvent::Stopping { .. } | LogEvent::PairsEnding { .. } => NotifiedEvent::Stopping,
        LogEvent::Drained { result: DrainResult::Incomplete { .. } | DrainResult::Failed { .. } } => {
            NotifiedEvent::DrainIncomplete
        }
        LogEvent::Finished { .. } => NotifiedEvent::Finished,
        _ => return None,
    })
}

/// The job that reports.
struct Source {
    job: String,
    prefix: PathBuf,
}

/// What a recipient gets.
#[derive(Serialize)]
struct Document<'a, E> {
    version: u32,
    notification: &'static str,
    prefix: &'a Path,
    /// In a job of several steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    text: &'a str,
    /// As in the event log.
    event: E,
}

/// The sentence of an event.
fn text(event: &LogEvent) -> String {
    match event {
        LogEvent::Drained { result: DrainResult::Incomplete { checkpoint, reason, .. } } => {
            format!("checkpoint {checkpoint} could not be completed in the prefix directory: {reason}")
        }
        LogEvent::Drained { result: DrainResult::Failed { reason, .. } } => format!("the drain failed: {reason}"),
        event => event.sentence().unwrap_or_default(),
    }
}

/// How a recipient is reached.
enum Route {
    Webhook { url: Url, client: Client },
    Command(Vec<String>),
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // Its path can be a secret.
            Route::Webhook { url, .. } => write!(f, "{}", url.host_str().unwrap_or_default()),
            Route::Command(command) => write!(f, "{}", command.first().map(String::as_str).unwrap_or_default()),
        }
    }
}

impl Route {
    fn new(notification: &Notification) -> Result<Self, NotifyError> {
        let (url, secret_file) = match &notification.to {
            Recipient::Command(command) => return Ok(Route::Command(command.clone())),
            Recipient::Webhook { url, secret_file } => (url.clone(), secret_file),
        };
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some(path) = secret_file {
            let text = secret_file::authorization("notify.secret_file", path)?;
            let mut value = HeaderValue::from_str(&text).map_err(|_| NotifyError::SecretCharacters)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Route::Webhook { url, client: post::client(headers, notification.time_limit)? })
    }

    fn deliver(&self, body: &[u8], report: &Report, text: &str, within: Duration) -> Result<(), Undelivered> {
        match self {
            Route::Webhook { url, client } => post::post(client, url, body),
            Route::Command(command) => {
                let variable = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
                let variables = BTreeMap::from([
                    variable("HOLDFAST_NOTIFICATION", Some(report.kind.keyword())),
                    variable(environment::STEP, report.step.as_deref()),
                    variable("HOLDFAST_TEXT", Some(text)),
                ]);
                run(command, &variables, body, within).map_err(|reason| Undelivered { reason, again: false })
            }
        }
    }
}

fn run(
    command: &[String],
    environment: &BTreeMap<String, Option<String>>,
    input: &[u8],
    within: Duration,
) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = external_command::run_with_input(program, &arguments, environment, input, within);
    let ran = ran.map_err(|error| error.to_string())?;
    if ran.success {
        return Ok(());
    }
    let last = ran.errors.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| "it failed".to_owned(), |line| format!("it failed: {line}")))
}

/// Delivers in their order until all senders are gone.
fn deliver_all(route: &Route, source: &Source, within: Duration, reports: &Receiver<Report>) {
    for report in reports {
        let text = text(&report.event);
        let document = Document {
            version: 1,
            notification: report.kind.keyword(),
            prefix: &source.prefix,
            step: report.step.as_deref(),
            text: &text,
            event: log::line(report.time, &source.job, &report.event),
        };
        let delivered = match serde_json::to_vec(&document) {
            Ok(body) => post::in_attempts(|| route.deliver(&body, &report, &text, within)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = delivered {
            let notification = report.kind.keyword();
            tracing::warn!(recipient = %route, notification, reason, "notify: an event could not be delivered");
        }
    }
}
