//! What users request for pairs whose copies are on two nodes, where the orchestrator decides:
//! `<prefix>/.holdfast/pairs.json`, see [`request_file`](crate::job::request_file).

use std::path::Path;

use holdfast_model::pair::{MOST_PAIRS, PairCommand};
use serde::{Deserialize, Serialize};

use crate::job::request_file::RequestFile;
use crate::job::state::StateError;

const FILE: RequestFile = RequestFile { name: "pairs.json", lock: "pairs.lock" };

/// The last request for each pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRequests {
    /// In the order of their numbers.
    requests: Vec<PairRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRequest {
    /// Counts from 1; larger than that of every earlier request.
    pub number: u64,
    pub pair: u32,
    pub command: PairCommand,
}

impl PairRequests {
    /// Reads the requests of the job with this id.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path, job_id: &str) -> Result<Self, StateError> {
        FILE.read(prefix, job_id)
    }

    /// Adds a request for each of these pairs. Returns the number of the last one.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`StateError::File`].
    pub fn add(prefix: &Path, job_id: &str, pairs: &[u32], command: PairCommand) -> Result<u64, StateError> {
        FILE.change(prefix, job_id, |all: &mut PairRequests| {
            let mut number = all.requests.last().map_or(0, |request| request.number);
            for pair in pairs.iter().copied().filter(|pair| *pair < MOST_PAIRS) {
                number += 1;
                all.requests.retain(|request| request.pair != pair);
                all.requests.push(PairRequest { number, pair, command });
            }
            number
        })
    }

    /// The requests after the one with this number.
    pub fn after(&self, done: u64) -> impl Iterator<Item = PairRequest> + '_ {
        self.requests.iter().copied().filter(move |request| request.number > done)
    }
}
