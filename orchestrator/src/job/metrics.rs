//! `metrics:`: figures of the job for monitoring, in a file and over HTTP.
//!
//! A thread of its own counts the events and writes the file: nothing waits for its file system. The end of the job is
//! in the file before the process ends, if that takes no longer than some seconds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use holdfast_core::durable::{self, CreationMode};
use holdfast_model::Timestamp;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::reporter::EventSink;
use super::secret_file::{self, SecretFileError};
use crate::events::{JobMetrics, LogEvent};
use crate::spec;

/// How often the file is written.
const WRITTEN_EVERY: Duration = Duration::from_secs(5);
/// Time limit for the last write.
const ENDED_WITHIN: Duration = Duration::from_secs(3);
/// Connections at a time: they take descriptors, which the connections to agents need. Others wait.
const CONNECTIONS: usize = 32;
/// Time limit for a request and its answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be accepted, for instance for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The content type of the text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    #[error("cannot listen on {address} (metrics.listen): {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Token(#[from] SecretFileError),
    #[error("no thread for the metrics: {0}")]
    Thread(std::io::Error),
}

/// The step that it is of, where steps run side by side; and the event.
type Counted = (Option<Arc<str>>, Timestamp, LogEvent);

/// The running service; the figures of the end are written when it is dropped.
#[derive(Debug)]
pub(super) struct MetricsService {
    events: Option<Sender<Counted>>,
    ended: Receiver<()>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl MetricsService {
    /// Starts what the spec asks for; `None` if that is nothing.
    ///
    /// # Errors
    /// The address is in use, or the token cannot be read.
    pub(super) async fn start(job: &str, settings: &spec::Metrics) -> Result<Option<Self>, MetricsError> {
        if settings.file.is_none() && settings.listen.is_none() {
            return Ok(None);
        }
        let metrics = Arc::new(Mutex::new(JobMetrics::new(job)));
        let serving = match settings.listen {
            Some(address) => Some(serve(address, settings.token_file.clone(), Arc::clone(&metrics)).await?),
            None => None,
        };
        let (events, receiver) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        let file = settings.file.clone();
        let count = move || {
            count_all(&receiver, &metrics, file.as_ref());
            let _ = done.send(());
        };
        thread::Builder::new().name("metrics".to_owned()).spawn(count).map_err(MetricsError::Thread)?;
        Ok(Some(MetricsService { events: Some(events), ended, serving }))
    }

    /// For the reporter of a job, or of a step of several.
    pub(super) fn sink(&self, step: Option<Arc<str>>) -> Option<EventSink> {
        let events = self.events.clone()?;
        // The thread ends with the job only.
        Some(Box::new(move |time: Timestamp, event: &LogEvent| drop(events.send((step.clone(), time, event.clone())))))
    }
}

impl Drop for MetricsService {
    fn drop(&mut self) {
        drop(self.events.take());
        let _ = self.ended.recv_timeout(ENDED_WITHIN);
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Counts until all senders are gone, and writes the file now and then.
fn count_all(events: &Receiver<Counted>, metrics: &Mutex<JobMetrics>, file: Option<&PathBuf>) {
    let mut due = Instant::now();
    let mut failed = false;
    loop {
        let received = events.recv_timeout(due.saturating_duration_since(Instant::now()));
        let is_over = matches!(received, Err(RecvTimeoutError::Disconnected));
        if let Ok((step, time, event)) = received {
            metrics.lock().add(step, time, &event);
        }
        if is_over || Instant::now() >= due {
            due = Instant::now() + WRITTEN_EVERY;
            if let Some(file) = file {
                let text = metrics.lock().text(SystemTime::now().into());
                let written = durable::replace(file, CreationMode::Umask, text.as_bytes());
                match written {
                    Ok(()) => failed = false,
                    Err(error) if !std::mem::replace(&mut failed, true) => {
                        tracing::warn!(%error, "the file of the metrics cannot be written; it is tried again");
                    }
                    Err(_) => {}
                }
            }
        }
        if is_over {
            return;
        }
    }
}

/// What a request needs.
#[derive(Clone)]
struct Served {
    metrics: Arc<Mutex<JobMetrics>>,
    /// `Bearer …`; anybody may read without one.
    authorization: Option<Arc<str>>,
}

async fn serve(
    address: SocketAddr,
    token_file: Option<PathBuf>,
    metrics: Arc<Mutex<JobMetrics>>,
) -> Result<tokio::task::JoinHandle<()>, MetricsError> {
    let authorization = token_file.map(|path| secret_file::authorization("metrics.token_file", &path)).transpose()?;
    let listener = TcpListener::bind(address).await.map_err(|source| MetricsError::Listen { address, source })?;
    let router = Router::new().route("/metrics", get(answer)).with_state(Served { metrics, authorization });
    let router = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    Ok(tokio::spawn(async move {
        // Never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection for the metrics is not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // One request each, so that none is cut off that comes later over the same connection.
            let mut http = http1::Builder::new();
            http.keep_alive(false);
            let connection = http.serve_connection(TokioIo::new(stream), router.clone());
            tokio::spawn(async move {
                // Who is late or breaks off asks again.
                let _ = tokio::time::timeout(ANSWERED_WITHIN, connection).await;
                drop(place);
            });
        }
    }))
}

async fn answer(State(served): State<Served>, headers: HeaderMap) -> Response {
    if let Some(expected) = &served.authorization {
        let given = headers.get(axum::http::header::AUTHORIZATION).map(|value| value.as_bytes());
        if !given.is_some_and(|given| given.ct_eq(expected.as_bytes()).into()) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
    }
    let text = served.metrics.lock().text(SystemTime::now().into());
    ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}
