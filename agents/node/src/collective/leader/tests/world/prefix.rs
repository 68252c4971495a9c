//! A simulated prefix directory: index, summaries, records and the current link.

use std::collections::BTreeMap;

use holdfast_core::prefix::Summary;
use holdfast_core::prefix::fetch::RestartCandidate;
use holdfast_core::prefix::unfinished::UnfinishedFlush;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Dataset, Failure, FailureKind};

use super::super::super::{FetchStage, LeaderWork, WorkOutput, WorkResult};

/// The content of the prefix directory.
#[derive(Default)]
pub(in super::super) struct SimulatedPrefix {
    pub(in super::super) directories: BTreeMap<DirectoryName, Directory>,
    pub(in super::super) current: Option<DirectoryName>,
    made: u32,
}

#[derive(Clone, Debug, Default)]
pub(in super::super) struct Directory {
    pub(in super::super) id: u64,
    pub(in super::super) indexed: bool,
    pub(in super::super) complete: bool,
    pub(in super::super) fetched: bool,
    pub(in super::super) failed: bool,
    pub(in super::super) verified: bool,
    pub(in super::super) restarted: bool,
    pub(in super::super) dataset: Option<Dataset>,
    pub(in super::super) summary: Option<Summary>,
}

impl SimulatedPrefix {
    /// The directories with a complete entry in the index, by id.
    pub(in super::super) fn complete(&self) -> Vec<u64> {
        let mut ids: Vec<u64> =
            self.directories.values().filter(|entry| entry.indexed && entry.complete).map(|entry| entry.id).collect();
        ids.sort_unstable();
        ids
    }

    pub(in super::super) fn of(&self, id: u64) -> (&DirectoryName, &Directory) {
        self.directories.iter().find(|(_, entry)| entry.id == id).unwrap()
    }

    pub(in super::super) fn of_mut(&mut self, id: u64) -> &mut Directory {
        self.directories.values_mut().find(|entry| entry.id == id).unwrap()
    }

    pub(super) fn perform(&mut self, work: LeaderWork) -> WorkResult {
        let entry = |directories: &mut BTreeMap<DirectoryName, Directory>, name: &DirectoryName| {
            let missing = || Failure::new(FailureKind::NotFound, format!("{name} does not exist"));
            directories.get(name).cloned().ok_or_else(missing)
        };
        let directories = &mut self.directories;
        match work {
            LeaderWork::MakeDirectory { checkpoint, resume, .. } => {
                let known = resume.filter(|known| directories.contains_key(known));
                let directory = known.unwrap_or_else(|| {
                    self.made += 1;
                    DirectoryName::new(format!("d{}.{checkpoint}", self.made)).unwrap()
                });
                directories.entry(directory.clone()).or_default().id = checkpoint.0;
                return Ok(WorkOutput::Directory(directory));
            }
            // No container is configured.
            LeaderWork::CreateContainer { .. } => {
                return Ok(WorkOutput::Container(Err("no container is configured".to_owned())));
            }
            LeaderWork::CommitContainer { .. } => {}
            LeaderWork::EnterIndex { directory, dataset, .. } => {
                let mut known = entry(directories, &directory)?;
                known.indexed = true;
                known.complete = false;
                known.dataset = (!dataset.is_plain()).then_some(dataset);
                directories.insert(directory, known);
            }
            LeaderWork::Publish { directory, summary, make_current } => {
                let mut known = entry(directories, &directory)?;
                known.complete = summary.is_some();
                known.summary = summary.map(|summary| *summary);
                if known.complete && make_current {
                    self.current = Some(directory.clone());
                }
                directories.insert(directory, known);
                return Ok(WorkOutput::Published(None));
            }
            LeaderWork::Unverified { checkpoint } => {
                let mut of_id = directories.iter().filter(|(_, entry)| entry.id == checkpoint.0);
                let found = of_id.find(|(_, entry)| entry.indexed && entry.complete && !entry.verified);
                let found = found.and_then(|(directory, entry)| Some((directory.clone(), entry.summary.clone()?)));
                return Ok(WorkOutput::Unverified(found.map(|(name, summary)| (name, Box::new(summary)))));
            }
            LeaderWork::KeepWindow { verified, keep } => {
                directories.entry(verified).and_modify(|entry| entry.verified = true);
                let mut of_window: Vec<_> = directories.iter().filter(|(_, entry)| entry.verified).collect();
                of_window.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.id));
                let left_out = of_window.into_iter().skip(keep as usize).filter(|(_, entry)| !entry.restarted);
                let left_out = left_out.map(|(directory, entry)| LeftOut {
                    id: CheckpointId(entry.id),
                    directory: directory.clone(),
                    failure: None,
                });
                let left_out: Vec<LeftOut> = left_out.collect();
                left_out.iter().for_each(|left| drop(directories.remove(&left.directory)));
                return Ok(WorkOutput::LeftOut(left_out));
            }
            LeaderWork::MarkRestarted { checkpoint } => {
                directories.values_mut().for_each(|entry| entry.restarted = entry.id == checkpoint.0);
            }
            LeaderWork::ReadDataset { directory } => {
                return Ok(WorkOutput::Dataset(entry(directories, &directory)?.dataset));
            }
            LeaderWork::FindDataset { name } => {
                let mut indexed: Vec<_> = directories.iter().filter(|(_, entry)| entry.indexed).collect();
                indexed.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.id));
                let found = indexed.into_iter().find(|(directory, entry)| {
                    let given = entry.dataset.as_ref().and_then(|dataset| dataset.name.as_deref());
                    given == Some(name.as_str()) || directory.as_str() == name
                });
                return Ok(WorkOutput::Found(
                    found.map(|(directory, entry)| (CheckpointId(entry.id), directory.clone())),
                ));
            }
            LeaderWork::MakeCurrent { directory } => {
                let known = directories.get(&directory);
                let usable = known.is_some_and(|entry| entry.indexed && entry.complete && !entry.failed);
                self.current = if usable { Some(directory) } else { self.current.take() };
                return Ok(WorkOutput::Usable(usable));
            }
            LeaderWork::Withdraw { directory } => {
                self.current = self.current.take().filter(|current| *current != directory);
                directories.entry(directory).and_modify(|entry| entry.indexed = false);
            }
            LeaderWork::DeleteDirectory { directory } => drop(directories.remove(&directory)),
            LeaderWork::UnfinishedFlushes => {
                let unfinished = directories.iter().filter(|(_, entry)| entry.indexed && !entry.complete).rev();
                let unfinished = unfinished
                    .filter(|(_, entry)| entry.dataset.as_ref().is_none_or(|dataset| dataset.direct.is_none()));
                let flush = |(directory, entry): (&DirectoryName, &Directory)| UnfinishedFlush {
                    checkpoint: CheckpointId(entry.id),
                    directory: directory.clone(),
                };
                return Ok(WorkOutput::UnfinishedFlushes(unfinished.map(flush).collect()));
            }
            LeaderWork::AbandonFlush { directory } => {
                let incomplete = directories.get(&directory).is_some_and(|entry| !entry.complete);
                if incomplete {
                    directories.remove(&directory);
                }
                return Ok(WorkOutput::Removed(incomplete));
            }
            LeaderWork::Candidates => return Ok(WorkOutput::Candidates(self.candidates())),
            LeaderWork::LookUp { directory } => {
                let known = entry(directories, &directory)?;
                return Ok(WorkOutput::Usable(known.indexed && known.complete && !known.failed));
            }
            LeaderWork::ReadSummary { directory } => {
                let summary = entry(directories, &directory)?.summary;
                let none = || Failure::new(FailureKind::NotFound, format!("{directory} has no summary"));
                return summary.ok_or_else(none).map(|summary| WorkOutput::Summary(Box::new(summary)));
            }
            LeaderWork::IsPacked { .. } => return Ok(WorkOutput::Packed(false)),
            LeaderWork::MarkFetch { directory, stage } => {
                let mut known = entry(directories, &directory)?;
                match stage {
                    FetchStage::Begun => known.fetched = true,
                    FetchStage::Failed { .. } => {
                        known.failed = true;
                        self.current = self.current.take().filter(|current| *current != directory);
                    }
                    FetchStage::Succeeded => drop(self.current.get_or_insert_with(|| directory.clone())),
                }
                directories.insert(directory, known);
            }
            other => panic!("no work on the prefix directory: {other:?}"),
        }
        Ok(WorkOutput::Done)
    }

    fn candidates(&self) -> Vec<RestartCandidate> {
        let candidate = |directory: &DirectoryName, entry: &Directory, from_link| RestartCandidate {
            directory: directory.clone(),
            id: Some(CheckpointId(entry.id)),
            indexed: entry.indexed,
            from_link,
        };
        let current = self.current.as_ref().and_then(|name| self.directories.get_key_value(name));
        let mut usable: Vec<_> = self
            .directories
            .iter()
            .filter(|(name, entry)| {
                entry.indexed && entry.complete && !entry.failed && self.current.as_ref() != Some(name)
            })
            .filter(|(_, entry)| current.is_none_or(|(_, current)| entry.id <= current.id))
            .collect();
        usable.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.id));
        let first = current.map(|(name, entry)| candidate(name, entry, true));
        first.into_iter().chain(usable.into_iter().map(|(name, entry)| candidate(name, entry, false))).collect()
    }
}
