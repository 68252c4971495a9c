//! Requests to addresses that the user or the environment names: what the recipients of `notify` and of traces share.

use std::thread;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, StatusCode, Url};
use tokio_rustls::rustls::crypto::ring;

/// Pauses before further attempts to reach an address.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// How a request names the program.
const USER_AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// Why a request did not succeed, and whether another attempt can help.
pub(super) struct Undelivered {
    pub(super) reason: String,
    pub(super) again: bool,
}

/// A client whose requests have these headers and this time limit.
///
/// # Errors
/// Those of the library.
pub(super) fn client(headers: HeaderMap, within: Duration) -> reqwest::Result<Client> {
    // It may be set already.
    let _ = ring::default_provider().install_default();
    let builder = Client::builder().default_headers(headers).user_agent(USER_AGENT).timeout(within);
    // The headers, which may have a secret, are for this address.
    builder.redirect(reqwest::redirect::Policy::none()).build()
}

/// Sends a body from a thread without a runtime.
pub(super) fn post(client: &Client, url: &Url, body: &[u8]) -> Result<(), Undelivered> {
    let failed = |reason: String| Undelivered { reason, again: true };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    // Within the runtime, whose clock the time limit needs.
    let sent = runtime.block_on(async { client.post(url.clone()).body(body.to_owned()).send().await });
    let status = sent.map_err(|error| failed(reasons(&error.without_url())))?.status();
    if status.is_success() {
        return Ok(());
    }
    let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    Err(Undelivered { reason: format!("the answer is {status}"), again })
}

/// An error and its causes.
fn reasons(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Delivers, with pauses between the attempts.
pub(super) fn in_attempts(mut deliver: impl FnMut() -> Result<(), Undelivered>) -> Result<(), String> {
    for pause in PAUSES {
        match deliver() {
            Err(Undelivered { again: true, .. }) => thread::sleep(pause),
            ended => return ended.map_err(|undelivered| undelivered.reason),
        }
    }
    deliver().map_err(|undelivered| undelivered.reason)
}
