//! Typed file work: each function requests one kind of [`LeaderWork`].

use std::collections::BTreeMap;

use holdfast_core::prefix::Summary;
use holdfast_core::prefix::fetch::RestartCandidate;
use holdfast_core::prefix::unfinished::UnfinishedFlush;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{
    CheckpointId, ContainerPlaces, ContainerRequest, Dataset, HaltState, Locations, PackedRank, Rank, Unplaced,
};
use holdfast_wire::agent::AgentEvent;

use super::action::{FetchStage, HaltWork, LeaderWork};
use super::context::Context;
use super::event::WorkOutput;
use super::memory::LeaderMemory;
use crate::collective::error::CallError;

/// The output of this kind, or an error that names the other kind.
macro_rules! expect {
    ($output:expr, $kind:ident) => {
        match $output {
            WorkOutput::$kind(value) => Ok(value),
            other => Err(CallError::WrongOutput { expected: stringify!($kind), found: other.kind() }),
        }
    };
}

async fn done(cx: &Context, work: LeaderWork) -> Result<(), CallError> {
    match cx.work(work).await? {
        WorkOutput::Done => Ok(()),
        other => Err(CallError::WrongOutput { expected: "Done", found: other.kind() }),
    }
}

pub(super) async fn save_memory(cx: &Context, memory: LeaderMemory) -> Result<(), CallError> {
    done(cx, LeaderWork::SaveMemory(Box::new(memory))).await
}

pub(super) async fn halt(cx: &Context, work: HaltWork) -> Result<HaltState, CallError> {
    expect!(cx.work(LeaderWork::Halt(work)).await?, Halt)
}

/// The datasets of which the leader's node has anything in cache, all or those below one base; ascending.
pub(super) async fn datasets_here(cx: &Context, base: Option<&str>) -> Result<Vec<CheckpointId>, CallError> {
    expect!(cx.work(LeaderWork::DatasetsHere { base: base.map(str::to_owned) }).await?, Datasets)
}

pub(super) async fn locations_here(cx: &Context, checkpoint: CheckpointId) -> Result<Locations, CallError> {
    expect!(cx.work(LeaderWork::LocationsHere { checkpoint }).await?, Locations)
}

pub(super) async fn make_directory(
    cx: &Context,
    checkpoint: CheckpointId,
    name: Option<String>,
    resume: Option<DirectoryName>,
) -> Result<DirectoryName, CallError> {
    expect!(cx.work(LeaderWork::MakeDirectory { checkpoint, name, resume }).await?, Directory)
}

pub(super) async fn enter_index(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
    dataset: Dataset,
) -> Result<(), CallError> {
    done(cx, LeaderWork::EnterIndex { checkpoint, directory: directory.clone(), dataset }).await
}

pub(super) async fn create_container(
    cx: &Context,
    directory: &DirectoryName,
    request: ContainerRequest,
) -> Result<Result<ContainerPlaces, String>, CallError> {
    let directory = directory.clone();
    expect!(cx.work(LeaderWork::CreateContainer { directory, request }).await?, Container)
}

pub(super) async fn commit_container(
    cx: &Context,
    directory: &DirectoryName,
    packed: BTreeMap<Rank, PackedRank>,
) -> Result<(), CallError> {
    done(cx, LeaderWork::CommitContainer { directory: directory.clone(), packed }).await
}

pub(super) async fn publish(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
    summary: Option<Summary>,
    make_current: bool,
) -> Result<(), CallError> {
    let publish = LeaderWork::Publish { directory: directory.clone(), summary: summary.map(Box::new), make_current };
    if let Some(Unplaced { directory, path, files }) = expect!(cx.work(publish).await?, Published)? {
        cx.emit(AgentEvent::OutputNotPlaced { checkpoint, directory, path, files });
    }
    Ok(())
}

pub(super) async fn unverified(
    cx: &Context,
    checkpoint: CheckpointId,
) -> Result<Option<(DirectoryName, Box<Summary>)>, CallError> {
    expect!(cx.work(LeaderWork::Unverified { checkpoint }).await?, Unverified)
}

pub(super) async fn keep_window(cx: &Context, verified: DirectoryName) -> Result<Vec<LeftOut>, CallError> {
    let keep = cx.settings().flush.keep;
    expect!(cx.work(LeaderWork::KeepWindow { verified, keep }).await?, LeftOut)
}

pub(super) async fn mark_restarted(cx: &Context, checkpoint: CheckpointId) -> Result<(), CallError> {
    done(cx, LeaderWork::MarkRestarted { checkpoint }).await
}

pub(super) async fn read_dataset(cx: &Context, directory: &DirectoryName) -> Result<Option<Dataset>, CallError> {
    expect!(cx.work(LeaderWork::ReadDataset { directory: directory.clone() }).await?, Dataset)
}

pub(super) async fn find_dataset(cx: &Context, name: &str) -> Result<Option<(CheckpointId, DirectoryName)>, CallError> {
    expect!(cx.work(LeaderWork::FindDataset { name: name.to_owned() }).await?, Found)
}

/// Restarts are to take this directory.
///
/// # Errors
/// The next run could not restart from it: it is incomplete, or has been deleted meanwhile.
pub(super) async fn make_current(cx: &Context, directory: &DirectoryName) -> Result<(), CallError> {
    let usable = expect!(cx.work(LeaderWork::MakeCurrent { directory: directory.clone() }).await?, Usable)?;
    if usable { Ok(()) } else { Err(CallError::Incomplete(directory.clone())) }
}

pub(super) async fn withdraw(cx: &Context, directory: &DirectoryName) -> Result<(), CallError> {
    done(cx, LeaderWork::Withdraw { directory: directory.clone() }).await
}

pub(super) async fn delete_directory(cx: &Context, directory: &DirectoryName) -> Result<(), CallError> {
    done(cx, LeaderWork::DeleteDirectory { directory: directory.clone() }).await
}

/// The flushes of this job that did not end, newest first.
pub(super) async fn unfinished_flushes(cx: &Context) -> Result<Vec<UnfinishedFlush>, CallError> {
    expect!(cx.work(LeaderWork::UnfinishedFlushes).await?, UnfinishedFlushes)
}

/// Ends a flush that is not continued; returns whether its directory was removed.
pub(super) async fn abandon_flush(cx: &Context, directory: &DirectoryName) -> Result<bool, CallError> {
    expect!(cx.work(LeaderWork::AbandonFlush { directory: directory.clone() }).await?, Removed)
}

pub(super) async fn candidates(cx: &Context) -> Result<Vec<RestartCandidate>, CallError> {
    expect!(cx.work(LeaderWork::Candidates).await?, Candidates)
}

/// Whether the index lists this directory as complete and without a failure.
pub(super) async fn is_usable(cx: &Context, directory: &DirectoryName) -> Result<bool, CallError> {
    expect!(cx.work(LeaderWork::LookUp { directory: directory.clone() }).await?, Usable)
}

pub(super) async fn read_summary(cx: &Context, directory: &DirectoryName) -> Result<Summary, CallError> {
    let summary = expect!(cx.work(LeaderWork::ReadSummary { directory: directory.clone() }).await?, Summary)?;
    Ok(*summary)
}

/// Whether a container holds the files in this directory: the ranks cannot read them there.
pub(super) async fn is_packed(cx: &Context, directory: &DirectoryName) -> Result<bool, CallError> {
    expect!(cx.work(LeaderWork::IsPacked { directory: directory.clone() }).await?, Packed)
}

pub(super) async fn mark_fetch(cx: &Context, directory: &DirectoryName, stage: FetchStage) -> Result<(), CallError> {
    done(cx, LeaderWork::MarkFetch { directory: directory.clone(), stage }).await
}
