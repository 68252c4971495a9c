//! The drain as a whole: ask, decide, copy in rounds, complete, tell the agents.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::Local;
use holdfast_core::prefix::Prefix;
use holdfast_model::{CheckpointId, Inventory, NodeName, Rank};
use holdfast_wire::agent::{CopyReply, CopyRequest, FlushedNote};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::complete::{Completed, Completion, ranks_of};
use super::plan::{self, Candidate, DrainPlan};
use super::rounds::{Copied, Order, Rounds};
use super::{DrainError, resume};
use crate::events::{DrainResult, LogEvent};
use crate::fleet::{AgentClient, RequestError, Roster};

/// A copy may take this long; an agent that is lost is noticed long before.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);
/// An agent that dies in the middle of a copy gets so long to be restarted before others copy for its node.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(5);

/// What is to be drained.
#[derive(Clone, Debug)]
pub struct DrainOrder {
    /// Requests to agents.
    pub client: AgentClient,
    /// The agents.
    pub roster: Roster,
    /// Nodes without agent.
    pub down: Vec<NodeName>,
    /// The prefix directory.
    pub prefix: PathBuf,
    /// The job id, part of the checkpoint directory's name.
    pub job_id: String,
    /// Compute checksums while copying.
    pub crc: bool,
    /// Size of a copy's buffer, bytes.
    pub buffer_bytes: usize,
    /// This dataset instead of the newest.
    pub wanted: Option<CheckpointId>,
    /// Who is told what happens.
    pub events: mpsc::UnboundedSender<LogEvent>,
}

/// How a drain went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// In one word, as the relaunch loop sees it.
    pub result: DrainResult,
    /// The directory that was written, below the prefix.
    pub directory: Option<String>,
    /// Bytes copied.
    pub bytes: u64,
    /// Ranks whose files were copied.
    pub copied: Vec<Rank>,
    /// Ranks whose files were computed.
    pub rebuilt: Vec<Rank>,
    /// Nodes whose files could not be copied.
    pub failed_nodes: BTreeMap<NodeName, String>,
    /// What the nodes still hold could complete the dataset in another attempt.
    pub retry_may_help: bool,
}

impl DrainReport {
    fn new(result: DrainResult) -> Self {
        DrainReport {
            result,
            directory: None,
            bytes: 0,
            copied: Vec::new(),
            rebuilt: Vec::new(),
            failed_nodes: BTreeMap::new(),
            retry_may_help: false,
        }
    }

    /// The report of a drain that could not be carried out.
    pub fn failed(error: &DrainError) -> Self {
        let mut report = DrainReport::new(DrainResult::Failed { reason: error.to_string() });
        report.retry_may_help = true;
        report
    }
}

/// Drains.
///
/// # Errors
/// The drain could not be carried out; what was copied stays.
pub async fn drain(order: &DrainOrder) -> Result<DrainReport, DrainError> {
    let emit = |event| tell(order, event);
    let (inventories, silent) = inventories(&order.client, &order.roster, emit).await?;
    let plan = plan::plan(&inventories, order.wanted);
    for (checkpoint, reason) in &plan.skipped {
        tell(order, LogEvent::DrainSkipped { checkpoint: *checkpoint, reason: reason.clone() });
    }
    if let Some(wanted) = order.wanted
        && plan.candidates.is_empty()
        && plan.remnant.is_none()
    {
        return Err(DrainError::NoSuchDataset { id: wanted });
    }
    let DrainPlan { candidates, remnant, output, .. } = plan;
    // Older than what a restart takes, or not for restarts: the link does not lead there.
    for candidate in &output {
        drain_one(order, candidate, &silent, false).await?;
    }
    let mut first_failure: Option<DrainReport> = None;
    for candidate in candidates.iter().chain(candidates.is_empty().then_some(remnant.as_ref()).flatten()) {
        let report = drain_one(order, candidate, &silent, candidate.checkpoint_data).await?;
        if matches!(report.result, DrainResult::Complete { .. }) {
            return Ok(report);
        }
        first_failure.get_or_insert(report);
    }
    Ok(first_failure.unwrap_or_else(|| DrainReport::new(DrainResult::Nothing)))
}

/// What the nodes hold, and which nodes did not answer, with the reason.
pub type Inventories = (Vec<Inventory>, BTreeMap<NodeName, String>);

/// Asks all agents that are up what their nodes hold.
///
/// # Errors
/// [`DrainError::NobodyAnswers`].
pub async fn inventories(
    client: &AgentClient,
    roster: &Roster,
    mut emit: impl FnMut(LogEvent),
) -> Result<Inventories, DrainError> {
    let answers =
        client.each(roster.agents(), |(node, address)| async move { (node, client.inventory(address).await) });
    let (mut inventories, mut silent) = (Vec::new(), BTreeMap::new());
    for (node, answer) in answers.await {
        match answer {
            Ok(mut inventory) => {
                for fault in &inventory.faults {
                    emit(LogEvent::InventoryFault { node: node.clone(), fault: fault.clone() });
                }
                inventory.node = Some(node);
                inventories.push(inventory);
            }
            Err(error) => drop(silent.insert(node, error.to_string())),
        }
    }
    if inventories.is_empty() {
        let reason = silent.into_values().next().unwrap_or_else(|| "no agent is there".to_owned());
        return Err(DrainError::NobodyAnswers { reason });
    }
    Ok((inventories, silent))
}

async fn drain_one(
    order: &DrainOrder,
    candidate: &Candidate,
    silent: &BTreeMap<NodeName, String>,
    make_current: bool,
) -> Result<DrainReport, DrainError> {
    let checkpoint = candidate.checkpoint;
    let (path, job_id) = (order.prefix.clone(), order.job_id.clone());
    let prepared = spawn_blocking(move || {
        let prefix = Prefix::open(path)?;
        let found = resume::directory_of(&prefix, &job_id, checkpoint)?;
        let resumed = found.is_some();
        let directory = match found {
            Some(directory) => directory,
            None => prefix.create_checkpoint_directory(Local::now().naive_local(), &job_id, checkpoint)?,
        };
        resume::begin(&prefix, &job_id, checkpoint, &directory)?;
        Ok::<_, DrainError>((prefix, directory, resumed))
    });
    let (prefix, directory, resumed) = prepared.await??;
    tell(order, LogEvent::DrainStarted { checkpoint, directory: directory.to_string(), resumed });
    let copied = copy(order, candidate, prefix.checkpoint_path(&directory)).await;
    let completion = Completion {
        client: order.client.clone(),
        roster: order.roster.clone(),
        prefix: prefix.clone(),
        directory: directory.clone(),
        checkpoint,
        make_current,
        fresh: if order.crc { copied.ranks.keys().copied().collect() } else { BTreeSet::new() },
        events: order.events.clone(),
    };
    let Completed { complete, rebuilt, reasons } = completion.run().await?;
    let result = if complete {
        resume::end(&prefix)?;
        note_flushed(order, checkpoint).await;
        DrainResult::Complete { checkpoint }
    } else {
        let mut reason = candidate.incomplete.clone().unwrap_or_else(|| reasons.join("; "));
        if let Some((rank, why)) = copied.failed.first_key_value() {
            reason = format!("rank {rank} was not copied: {why}; {reason}");
        }
        if let Some((node, why)) = copied.unreachable.first_key_value() {
            reason = format!("{node} did not copy: {why}; {reason}");
        }
        DrainResult::Incomplete { checkpoint, reason }
    };
    let troubled = !copied.failed.is_empty() || !copied.unreachable.is_empty() || !silent.is_empty();
    Ok(DrainReport {
        result,
        directory: Some(directory.to_string()),
        bytes: copied.ranks.values().sum(),
        copied: ranks_of(&copied.ranks),
        rebuilt,
        failed_nodes: copied.unreachable,
        retry_may_help: !complete && troubled,
    })
}

/// Both rounds. An agent that dies and comes back is asked again before others copy for it.
async fn copy(order: &DrainOrder, candidate: &Candidate, directory: PathBuf) -> Copied {
    let healthy: Vec<NodeName> = order.roster.agents().into_keys().collect();
    let mut rounds = Rounds::new(healthy, order.down.iter().cloned(), candidate.partner_copies);
    let mut again = Vec::new();
    for (copy, old, answer) in carry_out(order, candidate, &directory, rounds.first()).await {
        if answer.is_err()
            && let Some(old) = old
            && candidate.holders.contains(&copy.node)
        {
            again.push((copy.node.clone(), old));
        }
        take_in(order, &mut rounds, &copy, answer);
    }
    if !again.is_empty() {
        let roster = order.roster.clone();
        let back = order.client.each(again, move |(node, old)| {
            let roster = roster.clone();
            async move { roster.back(&node, old, COMES_BACK_WITHIN).await.map(|_| node) }
        });
        let repeated = back.await.into_iter().flatten().map(|node| rounds.first_of(&node)).collect();
        for (copy, _, answer) in carry_out(order, candidate, &directory, repeated).await {
            take_in(order, &mut rounds, &copy, answer);
        }
    }
    for (copy, _, answer) in carry_out(order, candidate, &directory, rounds.second()).await {
        take_in(order, &mut rounds, &copy, answer);
    }
    rounds.finish()
}

/// Why a node did not copy.
#[derive(Debug, thiserror::Error)]
enum CopyFailure {
    #[error("its agent is lost")]
    NoAgent,
    #[error("its agent was lost during the copy")]
    AgentLost,
    #[error("{}", .0.seen())]
    Request(#[from] RequestError),
}

type Answer = (Order, Option<SocketAddr>, Result<CopyReply, CopyFailure>);

async fn carry_out(order: &DrainOrder, candidate: &Candidate, directory: &Path, orders: Vec<Order>) -> Vec<Answer> {
    let context = Arc::new((order.clone(), candidate.checkpoint, directory.to_owned()));
    let answers = order.client.each(orders, move |copy| {
        let context = Arc::clone(&context);
        async move {
            let (order, checkpoint, directory) = &*context;
            let Some(address) = order.roster.address(&copy.node) else {
                return (copy, None, Err(CopyFailure::NoAgent));
            };
            let request = CopyRequest {
                checkpoint: *checkpoint,
                directory: directory.clone(),
                crc: order.crc,
                on_behalf_of: copy.on_behalf_of.clone(),
                partners_only: copy.partners_only,
                buffer_bytes: order.buffer_bytes,
            };
            let answer = tokio::select! {
                answer = order.client.copy(address, &request, LONGEST_COPY) => answer.map_err(CopyFailure::from),
                () = order.roster.gone(&copy.node, address) => Err(CopyFailure::AgentLost),
            };
            (copy, Some(address), answer)
        }
    });
    answers.await
}

fn take_in(order: &DrainOrder, rounds: &mut Rounds, copy: &Order, answer: Result<CopyReply, CopyFailure>) {
    let (node, round) = (copy.node.clone(), copy.round);
    match answer {
        Ok(reply) => {
            if !reply.copied.is_empty() || !reply.failed.is_empty() {
                let failure = reply.failed.first_key_value().map(|(rank, reason)| match reply.failed.len() {
                    1 => format!("rank {rank}: {reason}"),
                    more => format!("rank {rank}: {reason} (and {} more ranks)", more - 1),
                });
                let (ranks, bytes) = (ranks_of(&reply.copied), reply.copied.values().sum());
                tell(order, LogEvent::Copied { round, node, ranks, bytes, failure });
            }
            rounds.answered(copy, reply);
        }
        Err(error) => {
            let reason = error.to_string();
            let failure = Some(reason.clone());
            tell(order, LogEvent::Copied { round, node, ranks: Vec::new(), bytes: 0, failure });
            rounds.unanswered(copy, reason);
        }
    }
}

/// The nodes' flush files are to say that the dataset is safe. A node that does not learn it copies again some day.
async fn note_flushed(order: &DrainOrder, checkpoint: CheckpointId) {
    let client = &order.client;
    let told = client.each(order.roster.agents(), |(node, address)| async move {
        client.flushed(address, &FlushedNote { checkpoint }).await.map_err(|error| (node, error))
    });
    for (node, error) in told.await.into_iter().filter_map(Result::err) {
        tracing::warn!(%node, %error, "a node does not know that its dataset is on the prefix directory");
    }
}

fn tell(order: &DrainOrder, event: LogEvent) {
    let _ = order.events.send(event);
}
