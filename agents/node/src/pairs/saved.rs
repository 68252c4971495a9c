//! The newest checkpoints of pairs in the prefix directory, between two runs of a job.
//!
//! A job that ends before its pairs are finished writes one file for each pair and node: a line of JSON, and the bytes
//! of the checkpoint. The agents of the next run enter them in their registries before a copy is started. Each run has
//! a directory of its own, so that what an earlier one has left never counts as newer.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use holdfast_core::owned::OwnedError;
use holdfast_core::state_files;
use holdfast_model::pair::{MirroredCheckpoint, PairChange, Side, Term};
use holdfast_shm::Registry;
use holdfast_wire::pairs::{PairOnNode, PairsPlan, SidesOnNode};
use serde::{Deserialize, Serialize};

use super::state::State;

const VERSION: u32 = 1;
/// The end of a file's name.
const SUFFIX: &str = ".checkpoint";
/// A longer first line is not ours.
const LONGEST_HEAD: u64 = 4 << 10;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    version: u32,
    pair: String,
    /// Its number, and the term under which a copy of the node worked last, or under which it arrived there.
    #[serde(flatten)]
    checkpoint: MirroredCheckpoint,
    tag: i64,
    bytes: u64,
    /// CRC32 of the bytes.
    crc: u32,
}

#[derive(Debug, thiserror::Error)]
enum SavedError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} has {bytes} bytes, more than `checkpoint.size` now, {most}", path.display())]
    TooLarge { path: PathBuf, bytes: u64, most: u64 },
}

/// The name of the file of a pair; two nodes of one pair write two.
fn file_name(pair: &str, sides: SidesOnNode) -> String {
    match sides {
        SidesOnNode::Both => format!("{pair}{SUFFIX}"),
        SidesOnNode::Main => format!("{pair}.{}{SUFFIX}", Side::Main),
        SidesOnNode::Replica => format!("{pair}.{}{SUFFIX}", Side::Replica),
    }
}

/// Writes the newest checkpoint of each pair of the node that is not finished. Returns what is to be reported, with the
/// names of the pairs. To be called when no copy runs any more.
pub(super) fn save(registry: &Registry, plan: &PairsPlan, state: Option<&State>) -> Vec<(String, PairChange)> {
    let Some(directory) = &plan.settings.save_to else { return Vec::new() };
    let mut changes = Vec::new();
    for pair in &plan.pairs {
        let of_pair = state.and_then(|state| state.pairs.get(&pair.index));
        if plan.finished.contains(&pair.index) || of_pair.is_some_and(|state| state.snapshot.finished) {
            continue;
        }
        let worked = of_pair.and_then(|state| state.worked).unwrap_or_default();
        let arrived = of_pair.map(|state| state.snapshot.mirrored.term).unwrap_or_default();
        let change = match save_pair(registry, pair, worked.max(arrived), directory) {
            Ok(None) => continue,
            Ok(Some(head)) => PairChange::Saved { checkpoint: head.checkpoint.sequence, tag: head.tag },
            Err(error) => PairChange::NotSaved { reason: error.to_string() },
        };
        changes.push((pair.config.name.clone(), change));
    }
    changes
}

fn save_pair(registry: &Registry, pair: &PairOnNode, term: Term, directory: &Path) -> Result<Option<Head>, SavedError> {
    let path = directory.join(file_name(&pair.config.name, pair.sides));
    let mut bytes = Vec::new();
    let newest = registry.read_newest(pair.index, &mut bytes);
    let newest = newest.map_err(|error| SavedError::Io { path: path.clone(), source: io::Error::other(error) })?;
    let Some(newest) = newest else { return Ok(None) };
    let head = Head {
        version: VERSION,
        pair: pair.config.name.clone(),
        checkpoint: MirroredCheckpoint { term, sequence: newest.sequence },
        tag: newest.tag,
        bytes: bytes.len() as u64,
        crc: crc32fast::hash(&bytes),
    };
    let failed = |source| SavedError::Io { path: path.clone(), source };
    let mut content = serde_json::to_vec(&head).map_err(|error| failed(error.into()))?;
    content.push(b'\n');
    content.append(&mut bytes);
    state_files::create_directory(directory)?;
    state_files::replace(&path, &content)?;
    Ok(Some(head))
}

/// Enters what earlier runs have saved of the pairs that have not been awake in this run into a new registry. Returns
/// what is to be reported, with the names of the pairs.
pub(super) fn restore(registry: &Registry, plan: &PairsPlan) -> Vec<(String, PairChange)> {
    let mut changes = Vec::new();
    for pair in plan.pairs.iter().filter(|pair| pair.restore && !plan.finished.contains(&pair.index)) {
        let mut report = |change| changes.push((pair.config.name.clone(), change));
        for directory in &plan.settings.restore_from {
            let mut best: Option<(Head, Vec<u8>)> = None;
            for sides in [SidesOnNode::Both, SidesOnNode::Main, SidesOnNode::Replica] {
                match read(&directory.join(file_name(&pair.config.name, sides)), pair) {
                    Ok(Some(found)) if best.as_ref().is_none_or(|(head, _)| head.checkpoint < found.0.checkpoint) => {
                        best = Some(found);
                    }
                    Ok(_) => {}
                    Err(error) => report(PairChange::NotRestored { reason: error.to_string() }),
                }
            }
            let Some((head, bytes)) = best else { continue };
            match registry.put_mirrored(pair.index, head.checkpoint.sequence, head.tag, &bytes) {
                Ok(()) => {
                    report(PairChange::Restored { checkpoint: head.checkpoint.sequence, tag: head.tag });
                    break;
                }
                Err(error) => report(PairChange::NotRestored { reason: error.to_string() }),
            }
        }
    }
    changes
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path, pair: &PairOnNode) -> Result<Option<(Head, Vec<u8>)>, SavedError> {
    let Some(file) = state_files::open(path)? else { return Ok(None) };
    let failed = |source| SavedError::Io { path: path.to_owned(), source };
    let damaged = |what: String| SavedError::Damaged { path: path.to_owned(), what };
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    file.by_ref().take(LONGEST_HEAD).read_until(b'\n', &mut line).map_err(failed)?;
    let head: Head = serde_json::from_slice(&line).map_err(|error| damaged(format!("its first line: {error}")))?;
    if head.version != VERSION {
        return Err(damaged(format!("its version is {}, this one reads {VERSION}", head.version)));
    }
    if head.pair != pair.config.name {
        return Err(damaged(format!("it is of the pair {:?}", head.pair)));
    }
    let most = pair.config.checkpoint_bytes;
    if head.bytes > most {
        return Err(SavedError::TooLarge { path: path.to_owned(), bytes: head.bytes, most });
    }
    let mut bytes = Vec::new();
    file.take(head.bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 != head.bytes {
        return Err(damaged(format!("{} bytes follow its first line, which announces {}", bytes.len(), head.bytes)));
    }
    match crc32fast::hash(&bytes) {
        crc if crc == head.crc => Ok(Some((head, bytes))),
        crc => Err(damaged(format!("its CRC32 is {crc:08x}, not {:08x}", head.crc))),
    }
}
