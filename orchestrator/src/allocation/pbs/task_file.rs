//! What a task of a PBS job runs, and how its connections authenticate: the parts of [`tasks`](super::tasks) that read
//! what another process has written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of a token: a digest in hexadecimal digits.
pub(crate) const TOKEN: usize = 64;

/// What a task runs: the content of its file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    secret: String,
    pub(super) words: Vec<String>,
    /// The environment and the working directory of the command; those that PBS gives it if there are none.
    pub(super) surroundings: Option<Surroundings>,
    pub(super) input: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Surroundings {
    pub(super) directory: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
}

/// Which output a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Errors,
}

impl Task {
    pub(super) fn new(
        words: Vec<String>,
        surroundings: Option<Surroundings>,
        input: String,
    ) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Task { secret: hexadecimal(&secret), words, surroundings, input })
    }

    /// The content of a file.
    ///
    /// # Errors
    /// The file was not written by this release.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The name of its file, which does not show the secret.
    pub(super) fn file_stem(&self) -> String {
        let mut name = hexadecimal(&Sha256::digest(&self.secret));
        name.truncate(16);
        name
    }

    /// With it, the task of a node authenticates its connection for a stream.
    pub(crate) fn token(&self, node: &str, stream: Stream) -> String {
        let digest = Sha256::new().chain_update(&self.secret).chain_update([0, stream as u8]).chain_update(node);
        hexadecimal(&digest.finalize())
    }

    pub(crate) fn streams(&self) -> &'static [Stream] {
        // An agent writes to its own log.
        if self.surroundings.is_some() { &[Stream::Output, Stream::Errors] } else { &[Stream::Output] }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The token that a connection begins with, if it arrives within this time.
pub(crate) async fn authenticated<C: AsyncRead + Unpin>(mut connection: C, within: Duration) -> Option<(String, C)> {
    let mut token = [0; TOKEN];
    tokio::time::timeout(within, connection.read_exact(&mut token)).await.ok()?.ok()?;
    Some((String::from_utf8(token.to_vec()).ok()?, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_by_node_stream_and_task_and_do_not_show_the_secret() {
        let task = || Task::new(vec!["a".to_owned()], None, String::new()).unwrap();
        let (first, second) = (task(), task());
        let tokens = [
            first.token("n1", Stream::Output),
            first.token("n1", Stream::Errors),
            first.token("n2", Stream::Output),
            second.token("n1", Stream::Output),
        ];
        for (index, token) in tokens.iter().enumerate() {
            assert!(token.len() == TOKEN && !tokens[..index].contains(token) && !token.contains(&first.secret));
        }
    }
}
