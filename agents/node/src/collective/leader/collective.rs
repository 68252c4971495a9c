//! One collective call, from the ranks' calls to their results.

use std::sync::Arc;

use holdfast_core::control::halt::reason;
use holdfast_model::{Dataset, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Outcome;
use holdfast_wire::rank::{Call, Reply};

use super::action::HaltWork;
use super::context::Context;
use super::gather::{Calls, agree, ranks_where};
use super::halt::{halt_condition, spread_halt};
use super::{awaiting, checkpoint, datasets, files, flush, restart, window};
use crate::collective::error::{CallError, named};

/// Carries out a collective. Its results are on disk when this returns.
pub(super) async fn carry_out(cx: Context, seq: u64, calls: Calls) -> Arc<Outcome> {
    cx.with(|state| state.collective = seq);
    let outcome = Arc::new(dispatch(&cx, calls).await);
    let mut memory = cx.memory(|memory| memory.clone());
    memory.seq = seq;
    memory.outcome = outcome.clone();
    // The driver reports a failure. The run can go on; only a restart of this agent before the next results are saved
    // ends it, with an error at the next call.
    let _ = files::save_memory(&cx, memory).await;
    // Not before: until then, a repeated call is answered with the results of the previous collective.
    cx.memory(|memory| {
        memory.seq = seq;
        memory.outcome = outcome.clone();
    });
    outcome
}

async fn dispatch(cx: &Context, calls: Calls) -> Outcome {
    Ok(call(cx, calls).await?)
}

async fn call(cx: &Context, calls: Calls) -> Result<Reply, CallError> {
    let first = agree(&calls.by_rank)?.clone();
    match first {
        Call::Init => restart::init(cx).await,
        Call::Need => checkpoint::need(cx).await,
        Call::Start => checkpoint::begin(cx, Dataset::default(), false).await,
        Call::StartOutput { .. } => {
            if let Some((rank, _)) = calls.by_rank.iter().find(|(_, other)| **other != first) {
                return Err(CallError::DifferentDatasets(*rank));
            }
            let Call::StartOutput { name, checkpoint, output, bypass } = first else { return Err(CallError::NoRun) };
            datasets::start_output(cx, Dataset { name, checkpoint, output, ..Dataset::default() }, bypass).await
        }
        Call::StartLevel { level, id } => {
            let other_id = |other: &Call| matches!(other, Call::StartLevel { id: other, .. } if *other != id);
            if let Some(rank) = ranks_where(&calls.by_rank, other_id).first() {
                return Err(CallError::DifferentIds(*rank));
            }
            if let Some((rank, _)) = calls.by_rank.iter().find(|(_, other)| **other != first) {
                return Err(CallError::DifferentLevels(*rank));
            }
            checkpoint::begin(cx, Dataset { level: Some(level), ..Dataset::default() }, false).await
        }
        Call::Snapshot { intervals } => checkpoint::snapshot(cx, intervals).await,
        Call::RestartName => Ok(datasets::restart_name(cx)),
        Call::Current { name } => datasets::current(cx, name).await,
        Call::Load => datasets::load(cx).await,
        Call::Drop { name } => datasets::drop_from_index(cx, name).await,
        Call::Delete { name } => datasets::delete_named(cx, name).await,
        Call::Complete { .. } | Call::NotWritten { .. } | Call::ProgramsEnded | Call::CompleteEnded => {
            checkpoint::complete(cx, not_written(cx, &calls)).await
        }
        Call::CompleteRestart { .. } | Call::NotRead { .. } => restart::complete_restart(cx, not_read(&calls)).await,
        Call::ShouldExit => Ok(Reply::Flag(halt_condition(cx).await?.is_some())),
        Call::Allgather { .. } => calls.into_gathered(),
        Call::Finalize if is_terminated(cx, &calls) => Ok(Reply::Done),
        Call::Finalize => finalize(cx).await,
        Call::Await { .. } => awaiting::next_checkpoint(cx, &calls).await,
        Call::Route { .. } | Call::RestartFiles | Call::Workspace | Call::Leave => {
            Err(CallError::NotCollective(first.name()))
        }
    }
}

/// Why the files of a checkpoint are not complete, if a rank reported that.
fn not_written(cx: &Context, calls: &Calls) -> Option<CallError> {
    let reported = calls.by_rank.iter().find_map(|(rank, call)| match call {
        Call::NotWritten { reason } => Some(CallError::ProgramFailed { rank: *rank, reason: reason.clone() }),
        _ => None,
    });
    let invalid = || ranks_where(&calls.by_rank, |call| matches!(call, Call::Complete { valid: false }));
    let invalid = || Some(invalid()).filter(|ranks| !ranks.is_empty()).map(CallError::NotWritten);
    let ended = || calls.by_rank.values().any(|call| *call == Call::ProgramsEnded).then_some(CallError::ProgramsEnded);
    // A program that was recorded as finished would not be started again.
    let terminated = || {
        let mut ended = ranks_where(&calls.by_rank, |call| *call == Call::CompleteEnded).into_iter();
        let by_sigterm =
            cx.with(|state| ended.find(|rank| !state.terminated.is_empty() && !state.ended.contains(rank)));
        by_sigterm.map(CallError::Terminated)
    };
    reported.or_else(invalid).or_else(ended).or_else(terminated)
}

/// Why the restart files cannot be used, if a rank reported that.
fn not_read(calls: &Calls) -> Option<String> {
    let reported = calls.by_rank.iter().find_map(|(rank, call)| match call {
        Call::NotRead { reason } => Some(format!("rank {rank}: {reason}")),
        _ => None,
    });
    let invalid = || ranks_where(&calls.by_rank, |call| matches!(call, Call::CompleteRestart { valid: false }));
    let could_not = |ranks: Vec<Rank>| format!("the application could not read it on {}", named(&ranks));
    reported.or_else(|| Some(invalid()).filter(|ranks| !ranks.is_empty()).map(could_not))
}

/// True if the ranks may have called finalize because they were sent SIGTERM: another run must continue the job.
fn is_terminated(cx: &Context, calls: &Calls) -> bool {
    // Rank processes call it after the end of their programs.
    calls.after_sigterm && cx.with(|state| calls.by_rank.keys().any(|rank| !state.ended.contains(rank)))
}

/// The application has finished: the halt reason is recorded first, so that no other run is started, then the newest
/// checkpoint is flushed.
async fn finalize(cx: &Context) -> Result<Reply, CallError> {
    let state = files::halt(cx, HaltWork::SetReason(reason::FINALIZE_CALLED.to_owned())).await?;
    spread_halt(cx, state).await?;
    cx.ended(|_| true).await;
    let newest = cx.memory(|memory| memory.complete);
    if let Some(checkpoint) = newest {
        flush::if_needed(cx, checkpoint).await;
    }
    window::kept(cx).await;
    cx.memory(|memory| memory.finalized = true);
    cx.emit(AgentEvent::Finalized { generation: cx.generation() });
    Ok(Reply::Done)
}
