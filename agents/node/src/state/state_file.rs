//! The agent's own small state files in the control directory.
//!
//! They must survive the process, not the machine: the control directory of a lost node is lost, too. So they are
//! renamed into place and not synced: a collective must not wait for a disk.

use std::io::{self, Read as _};
use std::path::Path;

use holdfast_core::durable::{self, DurableError};
use holdfast_core::regular_file;
use holdfast_wire::payload;
use holdfast_wire::peer::LINK;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest state file contains the result of an allgather, or the plan of a run.
const LARGEST: u64 = LINK.bytes as u64;

/// Reads a state file; a file that is damaged or not a state file counts as absent.
///
/// # Errors
/// When descriptors or memory are exhausted: what is in the file is not known then, and must not be replaced.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let read = || -> io::Result<T> {
        let mut bytes = Vec::new();
        regular_file::open_no_link(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(payload::from_file(bytes)?)
    };
    match read() {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "state_file_unreadable");
            if durable::is_exhaustion(&error) { Err(error) } else { Ok(None) }
        }
    }
}

pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let bytes = payload::to_file(value).map_err(io::Error::other)?;
    durable::replace_unsynced(path, &bytes).map_err(|error| match error {
        DurableError::Io { source, .. } => source,
        other => io::Error::other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    use holdfast_model::{CheckpointId, Generation, Rank};
    use holdfast_testkit::mutation::mutate_bytes;
    use holdfast_testkit::{Dice, fast_directory, mutation_rounds, mutation_seed};
    use holdfast_wire::payload::Payload;
    use holdfast_wire::plan::RunRequest;
    use holdfast_wire::rank::Reply;

    use crate::collective::leader::LeaderMemory;
    use crate::fixtures::fixture_request;
    use crate::state::memory::{Direct, Memory};

    /// Reads a changed file as each kind of state.
    fn read_all(path: &Path) -> usize {
        let found = [
            read::<Memory>(path).unwrap().is_some(),
            read::<LeaderMemory>(path).unwrap().is_some(),
            read::<RunRequest>(path).unwrap().is_some(),
            read::<Generation>(path).unwrap().is_some(),
        ];
        found.into_iter().filter(|found| *found).count()
    }

    #[test]
    fn mutated_state_files_are_read_or_ignored() {
        let directory = fast_directory();
        let path = directory.path().join("state");
        let files = [(Rank(1), vec!["a".to_owned()])].into();
        let direct = Direct { files, ..Direct::in_directory("/p/scr.3".into()) };
        let open = Some(CheckpointId(3));
        let memory = Memory { open, direct: Some(direct), ..Memory::fresh(Generation(2)) };
        let gathered = Reply::Gathered(vec![Payload::from(vec![1; 50]), Payload::default()]);
        let leader = LeaderMemory { outcome: std::sync::Arc::new(Ok(gathered)), ..LeaderMemory::fresh(Generation(2)) };
        let mut files = Vec::new();
        let mut keep = |written: io::Result<()>| {
            written.unwrap();
            assert_eq!(read_all(&path), 1);
            files.push(fs::read(&path).unwrap());
        };
        keep(write(&path, &memory));
        keep(write(&path, &leader));
        keep(write(&path, &fixture_request(Generation(2), "node1", &[1, 2])));
        keep(write(&path, &Generation(7)));
        let (seed, mut ignored) = (mutation_seed(), 0);
        println!("seed {seed}");
        for round in mutation_rounds(2000) {
            let mut dice = Dice(seed.wrapping_add(round));
            let mut bytes = files[dice.below(files.len())].clone();
            mutate_bytes(&mut dice, &mut bytes);
            fs::write(&path, &bytes).unwrap();
            ignored += usize::from(read_all(&path) == 0);
        }
        assert!(ignored > 0);
    }
}
