//! What users request for pairs whose copies are on two nodes, where the orchestrator decides:
//! `<prefix>/.holdfast/pairs.json`. The file belongs to the job id in it, and is ignored in later jobs.

use std::path::Path;

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_model::pair::{MOST_PAIRS, PairCommand};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::job::state::{self, StateError};

const VERSION: u32 = 1;
const FILE: &str = "pairs.json";
/// Held while the file is changed.
const LOCK_FILE: &str = "pairs.lock";
/// One entry a pair is smaller.
const LARGEST: u64 = 1 << 20;

/// The last request for each pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRequests {
    version: u32,
    job_id: String,
    /// In the order of their numbers.
    requests: Vec<PairRequest>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRequest {
    /// Counts from 1; larger than that of every earlier request.
    pub number: u64,
    pub pair: u32,
    pub command: PairCommand,
}

impl PairRequests {
    fn none(job_id: &str) -> Self {
        PairRequests { version: VERSION, job_id: job_id.to_owned(), requests: Vec::new() }
    }

    /// Reads the requests of the job with this id.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub fn read(prefix: &Path, job_id: &str) -> Result<Self, StateError> {
        match state::open_directory(prefix)? {
            Some(own) => PairRequests::read_in(&own, job_id),
            None => Ok(PairRequests::none(job_id)),
        }
    }

    fn read_in(own: &OwnedDirectory, job_id: &str) -> Result<Self, StateError> {
        let Some(text) = own.read(FILE, Access::GroupRead, LARGEST)? else { return Ok(PairRequests::none(job_id)) };
        let content = |problem: String| StateError::Content { path: own.path().join(FILE), problem };
        let found: PairRequests = serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
        match found {
            found if found.version != VERSION => {
                Err(content(format!("its version is {}, this one reads {VERSION}", found.version)))
            }
            found if found.job_id == job_id => Ok(found),
            // Of an earlier job of this prefix directory.
            _ => Ok(PairRequests::none(job_id)),
        }
    }

    /// Adds a request for each of these pairs. Returns the number of the last one.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`StateError::File`].
    pub fn add(prefix: &Path, job_id: &str, pairs: &[u32], command: PairCommand) -> Result<u64, StateError> {
        let Some(own) = state::open_directory(prefix)? else { return Ok(0) };
        let lock = own.open_or_create(LOCK_FILE, Access::Private)?;
        let path = own.path().join(LOCK_FILE);
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| StateError::file("lock", &path)(errno.into()))?;
        let mut all = PairRequests::read_in(&own, job_id)?;
        let mut number = all.requests.last().map_or(0, |request| request.number);
        for pair in pairs.iter().copied().filter(|pair| *pair < MOST_PAIRS) {
            number += 1;
            all.requests.retain(|request| request.pair != pair);
            all.requests.push(PairRequest { number, pair, command });
        }
        let path = own.path().join(FILE);
        let text = serde_json::to_vec(&all).map_err(|error| StateError::file("write", &path)(error.into()))?;
        own.replace(FILE, &text, Access::Private, Durability::Machine)?;
        Ok(number)
    }

    /// The requests after the one with this number.
    pub fn after(&self, done: u64) -> impl Iterator<Item = PairRequest> + '_ {
        self.requests.iter().copied().filter(move |request| request.number > done)
    }
}
