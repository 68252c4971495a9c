//! Files in the state directory with what a user's command requests of the job that runs: written by the command under
//! a lock, read by the orchestrator. A file belongs to the job id in it, and is ignored in later jobs.

use std::path::Path;

use holdfast_core::durable::Durability;
use holdfast_core::owned::{Access, OwnedDirectory};
use holdfast_core::state_directory::StateDirectory;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state::StateError;

const VERSION: u32 = 1;
/// One entry a node of ten thousand nodes is smaller.
const LARGEST: u64 = 16 << 20;

/// The name of such a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFile {
    pub(super) name: &'static str,
    /// Held while the file is changed.
    pub(super) lock: &'static str,
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    version: u32,
    job_id: String,
    #[serde(flatten)]
    requests: T,
}

impl RequestFile {
    /// Reads the requests to the job with this id; none if there is no file, or it belongs to an earlier job of this
    /// prefix directory.
    ///
    /// # Errors
    /// [`StateError::Owned`] if the file is not ours; [`StateError::Content`].
    pub(super) fn read<T: DeserializeOwned + Default>(self, prefix: &Path, job_id: &str) -> Result<T, StateError> {
        match StateDirectory::below(prefix).open()? {
            Some(own) => self.read_in(&own, job_id),
            None => Ok(T::default()),
        }
    }

    fn read_in<T: DeserializeOwned + Default>(self, own: &OwnedDirectory, job_id: &str) -> Result<T, StateError> {
        let Some(text) = own.read(self.name, Access::GroupRead, LARGEST)? else { return Ok(T::default()) };
        let content = |problem: String| StateError::Content { path: own.path().join(self.name), problem };
        let found: Content<T> = serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
        match found {
            Content { version, .. } if version != VERSION => {
                Err(content(format!("its version is {version}, this one reads {VERSION}")))
            }
            Content { job_id: of, requests, .. } if of == job_id => Ok(requests),
            _ => Ok(T::default()),
        }
    }

    /// Changes the requests under the lock, and returns what `change` returns; its default if there is no state
    /// directory.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`StateError::File`].
    pub(super) fn change<T, R>(
        self,
        prefix: &Path,
        job_id: &str,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StateError>
    where
        T: Serialize + DeserializeOwned + Default,
        R: Default,
    {
        let Some(own) = StateDirectory::below(prefix).open()? else { return Ok(R::default()) };
        let lock = own.open_or_create(self.lock, Access::Private)?;
        let path = own.path().join(self.lock);
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| StateError::file("lock", &path)(errno.into()))?;
        let mut requests = self.read_in(&own, job_id)?;
        let changed = change(&mut requests);
        let path = own.path().join(self.name);
        let content = Content { version: VERSION, job_id: job_id.to_owned(), requests };
        let text = serde_json::to_vec(&content).map_err(|error| StateError::file("write", &path)(error.into()))?;
        own.replace(self.name, &text, Access::Private, Durability::Machine)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const REQUESTS: RequestFile = RequestFile { name: "words.json", lock: "words.lock" };

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Words {
        words: Vec<String>,
    }

    fn add(prefix: &Path, job: &str, word: &str) -> usize {
        let push = |all: &mut Words| {
            all.words.push(word.to_owned());
            all.words.len()
        };
        REQUESTS.change(prefix, job, push).unwrap()
    }

    #[test]
    fn requests_are_of_one_job_and_of_a_known_version() {
        let base = tempfile::tempdir().unwrap();
        let prefix = base.path();
        assert_eq!(add(prefix, "1", "lost"), 0, "there is no job");
        let own = StateDirectory::below(prefix).create().unwrap();
        assert_eq!((add(prefix, "1", "a"), add(prefix, "1", "b")), (1, 2));
        let read = |job| REQUESTS.read::<Words>(prefix, job);
        assert_eq!(read("1").unwrap().words, ["a", "b"]);
        assert_eq!(read("2").unwrap(), Words::default());
        assert_eq!(add(prefix, "2", "c"), 1, "the requests of the earlier job are gone");
        let path = own.path().join(REQUESTS.name);
        let other = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":9");
        fs::write(&path, other).unwrap();
        let error = read("2").unwrap_err().to_string();
        assert!(error.contains("words.json") && error.contains("its version is 9, this one reads 1"), "{error}");
        assert!(REQUESTS.change(prefix, "2", |_: &mut Words| ()).is_err(), "it is not overwritten");
    }
}
