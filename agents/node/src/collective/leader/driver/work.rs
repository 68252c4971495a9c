//! The leader's file work: the control directory of its node and the prefix directory. Blocks.

use std::collections::HashMap;
use std::io;

use chrono::{NaiveDateTime, Utc};
use holdfast_core::control::ControlError;
use holdfast_core::prefix::publish::{self, Publication};
use holdfast_core::prefix::window::{self, Window};
use holdfast_core::prefix::{dataset, delete, fetch, index, new_directory, reindex, summary, unfinished};
use holdfast_core::store::{self, DatasetAccess, DatasetStore, DirectoryName, PrefixError, Staged};
use holdfast_formats::sion::dataset::{DatasetCreation, is_container_name, open as open_dataset};
use holdfast_model::{ContainerRequest, HaltChange, HaltState};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::run::RunPlan;
use parking_lot::Mutex;

use super::super::action::{FetchStage, HaltWork, LeaderWork};
use super::super::event::WorkOutput;
use super::state_files;
use crate::agent::Agent;
use crate::collective::error::CallError;

/// The containers of flushes under way, by directory. Those that are not completed are removed with the leader.
pub(crate) type Containers = Mutex<HashMap<DirectoryName, DatasetCreation>>;

/// `now` is the local time, as SCR writes it into names and the index.
pub(crate) fn perform(
    agent: &Agent,
    plan: &RunPlan,
    containers: &Containers,
    work: LeaderWork,
    now: NaiveDateTime,
) -> Result<WorkOutput, CallError> {
    // Not made here: while its file system is away, it would be made below the mount point, on a disk of this node.
    let store = || store::open(&plan.settings.prefix);
    Ok(match work {
        LeaderWork::SaveMemory(leader) => {
            state_files::write_memory(&agent.paths.control(), &leader).map_err(|source| not_saved(agent, source))?;
            WorkOutput::Done
        }
        LeaderWork::SaveFlushes(flushes) => {
            state_files::write_flushes(&agent.paths.control(), &flushes).map_err(|source| not_saved(agent, source))?;
            WorkOutput::Done
        }
        LeaderWork::Halt(work) => WorkOutput::Halt(halt(agent, plan, work)?),
        LeaderWork::DatasetsHere { base: None } => WorkOutput::Datasets(agent.store.checkpoints()),
        LeaderWork::DatasetsHere { base: Some(base) } => WorkOutput::Datasets(agent.store.in_base(&base)),
        LeaderWork::LocationsHere { checkpoint } => {
            let locations = agent.store.flush.locations()?;
            WorkOutput::Locations(locations.get(&checkpoint).copied().unwrap_or_default())
        }
        LeaderWork::MakeDirectory { checkpoint, name, resume } => {
            let store = store()?;
            let directory = match resume.filter(|known| store.contains(known)) {
                Some(known) => known,
                None => {
                    let job = &agent.start.job_id;
                    new_directory::create(&*store, now, job, checkpoint, name.as_deref())?
                }
            };
            WorkOutput::Directory(directory)
        }
        LeaderWork::EnterIndex { checkpoint, directory, dataset } => {
            let (store, job) = (store()?, &agent.start.job_id);
            restore_index(agent, &*store, now)?;
            publish::begin(&*store, checkpoint, &directory, &dataset, job, now)?;
            if plan.settings.flush.keep > 0 {
                index::update(&*store, |index| index.mark_of_window(&directory, job))?;
            }
            WorkOutput::Done
        }
        LeaderWork::CreateContainer { directory, request } => {
            let ContainerRequest { ranks, streams, files } = request;
            let dataset = store()?.open(&directory, DatasetAccess::Write)?;
            // An attempt that failed: its files are removed, also those of a leader that was killed.
            containers.lock().remove(&directory);
            if let Err(error) = dataset.remove_staged(Staged::Abandoned) {
                tracing::warn!(%error, "temporary_files_not_removed");
            }
            match DatasetCreation::new(dataset, ranks, &streams, files) {
                Ok(created) => {
                    let places = created.places();
                    containers.lock().insert(directory, created);
                    WorkOutput::Container(Ok(places))
                }
                Err(error) => WorkOutput::Container(Err(error.to_string())),
            }
        }
        LeaderWork::CommitContainer { directory, packed } => {
            let created = containers.lock().remove(&directory).ok_or(CallError::NoContainer)?;
            if let Some(error) = created.commit(&packed)? {
                tracing::warn!(%error, "superseded_container_not_removed");
            }
            WorkOutput::Done
        }
        LeaderWork::Publish { directory, summary, make_current } => {
            // The flush failed: its container is not completed.
            containers.lock().remove(&directory);
            let summary = summary.map(|summary| *summary);
            let published = Publication::of_copy(directory, summary, make_current, now).publish(&*store()?)?;
            WorkOutput::Published(published.unplaced)
        }
        LeaderWork::Unverified { checkpoint } => {
            let unverified = window::unverified(&*store()?, &agent.start.job_id, checkpoint)?;
            WorkOutput::Unverified(unverified.map(|(directory, summary)| (directory, Box::new(summary))))
        }
        LeaderWork::KeepWindow { verified, keep } => {
            let (store, keep) = (store()?, usize::try_from(keep).unwrap_or(usize::MAX));
            window::mark_verified(&*store, &verified)?;
            let window = Window { job: &agent.start.job_id, keep, open: open_dataset, is_container: is_container_name };
            WorkOutput::LeftOut(window.enforce(&*store)?)
        }
        LeaderWork::MarkRestarted { .. } if !plan.settings.prefix.exists() => WorkOutput::Done,
        LeaderWork::MarkRestarted { checkpoint } => {
            window::mark_restarted(&*store()?, &agent.start.job_id, checkpoint)?;
            WorkOutput::Done
        }
        LeaderWork::ReadDataset { directory } => WorkOutput::Dataset(dataset::read(&*store()?, &directory)?),
        LeaderWork::FindDataset { name } => WorkOutput::Found(dataset::find(&*store()?, &name)?),
        LeaderWork::MakeCurrent { directory } => {
            WorkOutput::Usable(publish::make_usable_current(&*store()?, &directory)?)
        }
        LeaderWork::Withdraw { directory } => {
            publish::withdraw(&*store()?, &directory)?;
            WorkOutput::Done
        }
        // Without a prefix directory there is no flush; it is not created for that.
        LeaderWork::UnfinishedFlushes if !plan.settings.prefix.exists() => WorkOutput::UnfinishedFlushes(Vec::new()),
        LeaderWork::UnfinishedFlushes => {
            WorkOutput::UnfinishedFlushes(unfinished::of_job(&*store()?, &agent.start.job_id, open_dataset)?)
        }
        LeaderWork::AbandonFlush { directory } => WorkOutput::Removed(unfinished::abandon(&*store()?, &directory)?),
        LeaderWork::DeleteDirectory { directory } => {
            delete::delete(&*store()?, &directory)?;
            WorkOutput::Done
        }
        // Without a prefix directory there is nothing to fetch; it is not created for that.
        LeaderWork::Candidates if !plan.settings.prefix.exists() => WorkOutput::Candidates(Vec::new()),
        LeaderWork::Candidates => {
            let store = store()?;
            restore_index(agent, &*store, now)?;
            WorkOutput::Candidates(fetch::candidates(&*store)?)
        }
        LeaderWork::LookUp { directory } => {
            let index = index::read(&*store()?)?;
            let entry = index.and_then(|index| index.entry(&directory));
            WorkOutput::Usable(entry.is_some_and(|entry| entry.is_usable()))
        }
        LeaderWork::ReadSummary { directory } => WorkOutput::Summary(Box::new(summary::of(&*store()?, &directory)?)),
        LeaderWork::IsPacked { directory } => {
            // One that cannot be listed cannot be read either, which says more.
            let files = store()?.open(&directory, DatasetAccess::Read)?.list();
            WorkOutput::Packed(files.is_ok_and(|files| files.iter().any(|file| is_container_name(&file.name))))
        }
        LeaderWork::MarkFetch { directory, stage } => {
            match stage {
                FetchStage::Begun => fetch::begin(&*store()?, &directory, now)?,
                FetchStage::Failed { reason } => fetch::failed(&*store()?, &directory, now, &reason)?,
                FetchStage::Succeeded => fetch::succeeded(&*store()?, &directory)?,
            }
            WorkOutput::Done
        }
    })
}

/// A lost index is made again: a restart finds the checkpoints in it.
fn restore_index(agent: &Agent, store: &dyn DatasetStore, now: NaiveDateTime) -> Result<(), PrefixError> {
    let entered = reindex::restore(store, now, open_dataset)?;
    if entered > 0 {
        let path = store.location().display();
        let message = format!("the index of {path} was missing, and was made again with {entered} checkpoints");
        agent.events.add(AgentEvent::Notice { message });
    }
    Ok(())
}

fn halt(agent: &Agent, plan: &RunPlan, work: HaltWork) -> Result<HaltState, ControlError> {
    let moment = agent.halt.moment(Utc::now().timestamp(), &plan.settings);
    match work {
        HaltWork::Read => Ok(agent.halt.state(&moment)),
        HaltWork::Begin { seconds } => {
            let known = agent.halt.state(&moment);
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            if seconds == 0 || known.seconds.is_some() {
                return Ok(known);
            }
            agent.halt.change(&HaltChange { seconds: Some(seconds), ..HaltChange::default() }, &moment)
        }
        HaltWork::CountCheckpoint => agent.halt.decrement(&moment),
        HaltWork::SetReason(reason) => agent.halt.set_reason(&reason, &moment),
    }
}

fn not_saved(agent: &Agent, source: io::Error) -> CallError {
    CallError::NotSaved { directory: agent.paths.control(), source }
}
