//! The body of an agent's answer.

use std::net::SocketAddr;

use holdfast_model::Failure;
use holdfast_wire::agent::LARGEST_ANSWER;
use serde::de::DeserializeOwned;

use super::error::RequestError;

pub(super) fn too_large(address: SocketAddr, path: &'static str) -> RequestError {
    let reason = format!("it is larger than {} MiB", LARGEST_ANSWER >> 20);
    RequestError::Answer { address, path, reason }
}

pub(super) fn read_answer<R: DeserializeOwned>(
    address: SocketAddr,
    path: &'static str,
    status: u16,
    body: &[u8],
) -> Result<R, RequestError> {
    if !(200..300).contains(&status) {
        let (kind, message) = match serde_json::from_slice::<Failure>(body) {
            Ok(failure) => (Some(failure.kind), failure.to_string()),
            Err(_) => (None, String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()),
        };
        return Err(RequestError::Refused { address, path, status, kind, message });
    }
    serde_json::from_slice(body).map_err(|error| RequestError::Answer { address, path, reason: error.to_string() })
}

/// The system's own message: the outer errors only state that a request failed.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        // A killed process closes its connections without TLS's own end, which the TLS library reports as an attack.
        Some(std::io::ErrorKind::UnexpectedEof) => "the connection was closed".to_owned(),
        _ => {
            let text = error.to_string();
            if text.contains("close_notify") { "the connection was closed".to_owned() } else { text }
        }
    }
}
