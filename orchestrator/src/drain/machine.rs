//! The drain as a pure state machine.

mod dataset;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::prefix::flushed::FlushedCopy;
use holdfast_core::prefix::scan::Scan;
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::redundancy::inventory;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Inventory, NodeName, Rank};
use holdfast_wire::agent::AgentEvent;

use super::action::{DrainAction, DrainRequest};
use super::agenda::{Agenda, DrainTarget};
use super::completion::{Dataset, Failures, Published, Rebuilds};
use super::config::DrainConfig;
use super::copying::{Copying, NextCopies};
use super::error::{DrainError, RequestFailure};
use super::event::{Answer, DrainEvent};
use super::inventory_round::InventoryRound;
use super::plan::{self, DrainPlan, OtherDatasets};
use super::reachable::ReachableAgents;
use super::report::{DrainEnd, DrainReport, FlushedDataset, Survey};
use super::requests::{Destination, FileTask, NodeTask, PrefixStep, RequestPurpose, Requests, Task};
use crate::events::{DrainResult, LogEvent};
use crate::fleet::roster::RosterChange;

const LOST: &str = "its agent is lost";
const DOWN: &str = "it is down";
const LOST_DURING_COPY: &str = "its agent was lost during the copy";

/// The phase of a drain. The phases from [`Opening`](Phase::Opening) on are repeated for every dataset.
#[derive(Clone, Debug)]
enum Phase {
    /// [`DrainMachine::begin`] was not called yet.
    NotBegun,
    TakingInventory(InventoryRound),
    /// Waits for what is known of a flushed dataset in the prefix directory.
    ExaminingFlushed(Box<Surveyed>, CheckpointId, Option<Result<FlushedCopy, RequestFailure>>),
    /// Waits for the directory of a dataset.
    Opening(DrainTarget),
    Copying(Box<Copying>, DrainTarget, Arc<Destination>),
    /// Waits for the completion of the container.
    Committing(Dataset),
    /// Waits for the content of the directory.
    Scanning(Dataset),
    Verifying(Dataset, Box<Scan>, Failures),
    /// Waits for the rebuilds of lost members.
    Rebuilding(Dataset, Failures, Rebuilds),
    /// Waits for the container that plain files are moved into.
    Repacking(Dataset, Failures, BTreeSet<Rank>, Vec<String>),
    /// Waits for the content of the directory after the rebuilds, or after files were moved.
    Rescanning(Dataset, Failures, BTreeSet<Rank>, Vec<String>),
    /// Waits for summary, index and link.
    Publishing(Published),
    /// Waits for the removal of the record of the drain under way.
    Closing(Published),
    /// Waits for the agents, which record where the dataset is.
    Noting(Published),
    /// Waits for the removal of flushes that did not end.
    Abandoning(Box<DrainReport>),
    /// Older checkpoints in the prefix directory are deleted, if only some are kept.
    KeepingWindow(Box<DrainReport>),
    /// Nothing could be completed. Waits for the older checkpoint that a restart takes.
    FindingOlder(Box<DrainReport>),
    Finished,
}

/// What the nodes hold, and what is known of the prefix directory.
#[derive(Clone, Debug)]
struct Surveyed {
    inventories: Vec<Inventory>,
    silent: BTreeMap<NodeName, String>,
    /// Flushed datasets whose copies in the prefix directory cannot be used.
    damaged: BTreeMap<CheckpointId, String>,
}

/// Drains the nodes' datasets to the prefix directory. Input: [`DrainEvent`]s, output: [`DrainAction`]s.
///
/// ```text
///                           ┌──────────── the next dataset, if this one is not complete ─────────────┐
///             all answered  ▼                                                                        │
///  TakingInventory ────▶ Opening ──▶ Copying ──▶ Scanning ──▶ Verifying ──▶ Rebuilding ──▶ Rescanning │
///                           2 rounds, then Committing             │ nothing to rebuild           │    │
///                                                                 │   [Repacking ──▶ Rescanning] │    │
///                                                                 └───▶ Publishing ◀─────────────┘    │
///       Finished ◀── Abandoning ◀── Noting ◀── Closing ◀── complete ───┘   └───── incomplete ────────┘
/// ```
///
/// If only some checkpoints are kept in the prefix directory, `KeepingWindow` follows `Abandoning`.
///
/// Before it relies on a flushed dataset, it examines that in `ExaminingFlushed`. If no dataset can be completed, it
/// ends with `FindingOlder`.
#[derive(Clone, Debug)]
pub struct DrainMachine {
    config: DrainConfig,
    agents: ReachableAgents,
    requests: Requests,
    phase: Phase,
    agenda: Agenda,
    /// What is not drained because one dataset was requested.
    others: OtherDatasets,
    /// Every node reported its inventory.
    all_answered: bool,
    /// The nodes that did not report what they hold and have copied nothing, with the reason.
    unseen: BTreeMap<NodeName, String>,
    /// The newest dataset that was flushed according to the nodes, if no newer one is to be drained.
    flushed: Option<FlushedDataset>,
    now: Duration,
    actions: Vec<DrainAction>,
}

impl DrainMachine {
    /// A drain that has not begun.
    pub fn new(mut config: DrainConfig) -> Self {
        let [lost, down] = [&mut config.lost, &mut config.down].map(mem::take);
        DrainMachine {
            agents: ReachableAgents::new(mem::take(&mut config.agents), lost, down),
            requests: Requests::new(config.requests_at_once),
            config,
            phase: Phase::NotBegun,
            agenda: Agenda::default(),
            others: OtherDatasets::default(),
            all_answered: true,
            unseen: BTreeMap::new(),
            flushed: None,
            now: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// Begins the drain. Times are counted from an arbitrary moment, the same for all calls.
    pub fn begin(&mut self, now: Duration) -> Vec<DrainAction> {
        if matches!(self.phase, Phase::NotBegun) {
            let nodes: Vec<NodeName> = self.agents.up().cloned().collect();
            let task = self.inventory_task();
            self.requests.add(nodes.iter().cloned().map(|node| Task::OfNode(node, task.clone())));
            let mut inventory_round = InventoryRound::new(nodes, self.config.lost_agent_wait);
            for node in self.agents.lost() {
                inventory_round.failed(node.clone(), LOST.to_owned(), false);
            }
            self.phase = Phase::TakingInventory(inventory_round);
        }
        self.proceed(now)
    }

    pub fn handle(&mut self, now: Duration, event: DrainEvent) -> Vec<DrainAction> {
        self.now = self.now.max(now);
        match event {
            DrainEvent::Roster(RosterChange::Up { node, address }) => {
                let current = self.agents.get(&node).map(|agent| agent.address);
                if current != Some(address) {
                    self.end_requests_at(&node);
                    self.agents.came_up(&node, address);
                    self.came_up(&node);
                }
            }
            DrainEvent::Roster(RosterChange::Lost { node }) => {
                self.agents.went_lost(&node);
                self.end_requests_at(&node);
            }
            DrainEvent::Roster(RosterChange::Down { node }) => {
                self.agents.went_down(&node);
                self.end_requests_at(&node);
                match &mut self.phase {
                    Phase::TakingInventory(inventory_round) => drop(inventory_round.awaited.remove(&node)),
                    Phase::Copying(copying, ..) => drop(copying.awaited.remove(&node)),
                    _ => {}
                }
            }
            DrainEvent::Answered { request, answer } => {
                if let Some((purpose, _)) = self.requests.end(request) {
                    self.answered(purpose, answer);
                }
            }
            DrainEvent::Failed { request, failure } => {
                if let Some((purpose, node)) = self.requests.end(request) {
                    self.failed(purpose, node.is_some(), failure);
                }
            }
            DrainEvent::Tick => {}
        }
        self.proceed(now)
    }

    /// When to send a [`DrainEvent::Tick`].
    pub fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::TakingInventory(inventory_round) => inventory_round.awaited.deadline(),
            Phase::Copying(copying, ..) => copying.awaited.deadline(),
            _ => None,
        }
    }

    /// True after [`DrainAction::Finish`].
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    fn emit(&mut self, events: impl IntoIterator<Item = LogEvent>) {
        self.actions.extend(events.into_iter().map(DrainAction::Emit));
    }

    /// A drain ends the run first, so that no flush of the run writes beside it.
    fn inventory_task(&self) -> NodeTask {
        NodeTask::Inventory { end_run: !self.config.survey_only }
    }

    fn came_up(&mut self, node: &NodeName) {
        let inventory = Task::OfNode(node.clone(), self.inventory_task());
        match &mut self.phase {
            Phase::TakingInventory(inventory_round) => {
                let again = inventory_round.came_up(node).then_some(inventory);
                self.requests.add(again);
            }
            Phase::NotBegun | Phase::Finished => {}
            phase => {
                // The inventory comes too late; but an agent that was not reached before has not ended the run.
                self.requests.add([inventory]);
                if let Phase::Copying(copying, _, destination) = phase {
                    let again = copying.came_up(node);
                    self.requests.add(again.map(|order| Task::copy(order, destination)));
                }
            }
        }
    }

    fn end_requests_at(&mut self, node: &NodeName) {
        for request in self.requests.at(node) {
            if let Some((purpose, _)) = self.requests.end(request) {
                self.actions.push(DrainAction::Cancel { request });
                let copies = matches!(&purpose, RequestPurpose::Task(Task::OfNode(_, NodeTask::Copy(..))));
                let reason = if copies { LOST_DURING_COPY } else { LOST };
                self.failed(purpose, true, reason.into());
            }
        }
    }

    /// Begins requests, and enters the next phase when all requests of a phase have ended.
    fn proceed(&mut self, now: Duration) -> Vec<DrainAction> {
        self.now = self.now.max(now);
        match &mut self.phase {
            Phase::TakingInventory(inventory_round) => inventory_round.awaited.pass(self.now),
            Phase::Copying(copying, ..) => copying.awaited.pass(self.now),
            _ => {}
        }
        loop {
            while let Some(task) = self.requests.next_to_begin() {
                self.start(task);
            }
            if !self.requests.are_done() || !self.advance() {
                return mem::take(&mut self.actions);
            }
        }
    }

    fn start(&mut self, task: Task) {
        match task {
            Task::OfNode(node, task) => {
                let Some(agent) = self.agents.get(&node) else {
                    return self.node_failed(node, task, LOST.into());
                };
                let purpose = RequestPurpose::Task(Task::OfNode(node, task.clone()));
                let request = self.requests.begin(purpose, Some(&agent.node));
                self.actions.push(DrainAction::Request(request, task.request(agent)));
            }
            Task::OnFiles { task, destination, here } => {
                let agent = if here { None } else { self.agents.next() };
                let purpose = RequestPurpose::Task(Task::OnFiles {
                    task: task.clone(),
                    destination: Arc::clone(&destination),
                    here,
                });
                let request = self.requests.begin(purpose, agent.as_ref().map(|agent| &agent.node));
                self.actions.push(DrainAction::Request(request, task.request(agent, &destination)));
            }
        }
    }

    /// Begins a step of the orchestrator itself.
    fn start_here(&mut self, step: PrefixStep, what: DrainRequest) {
        let request = self.requests.begin(RequestPurpose::Prefix(step), None);
        self.actions.push(DrainAction::Request(request, what));
    }

    fn answered(&mut self, purpose: RequestPurpose, answer: Answer) {
        match (purpose, answer) {
            (RequestPurpose::Task(Task::OfNode(node, NodeTask::Inventory { .. })), Answer::Inventory(inventory)) => {
                if let Phase::TakingInventory(inventory_round) = &mut self.phase {
                    inventory_round.answered(node, *inventory);
                }
            }
            (RequestPurpose::Task(Task::OfNode(node, NodeTask::Copy(order, _))), Answer::Copied(reply)) => {
                self.unseen.remove(&node);
                self.copy_ended(order, Ok(reply));
            }
            (RequestPurpose::Task(Task::OfNode(_, NodeTask::NoteFlushed(_))), Answer::FlushNoted) => {}
            (
                RequestPurpose::Task(Task::OnFiles { task: FileTask::Verify(files), .. }),
                Answer::Verified { damaged },
            ) => {
                if let Phase::Verifying(_, _, failures) = &mut self.phase {
                    let damage = |unit: &VerifyUnit| Some((unit.clone(), damaged.get(&unit.name)?.clone()));
                    let damaged = files.iter().filter_map(damage);
                    failures.extend(damaged.map(|(unit, damage)| ((unit.rank, unit.name.clone()), (unit, damage))));
                }
            }
            (RequestPurpose::Task(Task::OnFiles { task: FileTask::Rebuild(number, set), .. }), Answer::Rebuilt) => {
                self.rebuild_ended(number, set, Ok(()));
            }
            (RequestPurpose::Prefix(PrefixStep::ExamineFlushed), Answer::FlushedExamined { copy }) => {
                self.note_examined(Ok(copy));
            }
            (
                RequestPurpose::Prefix(PrefixStep::OpenDirectory),
                Answer::DirectoryOpened { directory, resumed, container },
            ) => {
                self.opened(directory, resumed, container);
            }
            (RequestPurpose::Prefix(PrefixStep::CommitContainer), Answer::ContainerCommitted) => self.committed(),
            (RequestPurpose::Prefix(PrefixStep::Repack), Answer::ContainerCommitted) => self.repacked(None),
            (RequestPurpose::Prefix(PrefixStep::Repack), Answer::RepackFoundDamage { rank, reason }) => {
                self.found_damaged(rank, reason);
            }
            (RequestPurpose::Prefix(PrefixStep::Scan), Answer::Scanned(scan)) => self.scanned(scan),
            (RequestPurpose::Prefix(PrefixStep::Publish), Answer::Published { refused, unplaced }) => {
                self.published(refused, unplaced)
            }
            (RequestPurpose::Prefix(PrefixStep::CloseDirectory), Answer::DirectoryClosed) => {}
            (RequestPurpose::Prefix(PrefixStep::AbandonFlushes), Answer::FlushesAbandoned { directories }) => {
                let removed = |directory: DirectoryName| LogEvent::FlushAbandoned { directory: directory.to_string() };
                self.emit(directories.into_iter().map(removed));
            }
            (RequestPurpose::Prefix(PrefixStep::KeepWindow), Answer::WindowKept { left_out }) => {
                let keep = self.config.keep;
                self.emit(left_out.into_iter().map(|LeftOut { id: checkpoint, directory, failure }| {
                    let directory = directory.to_string();
                    LogEvent::of_drain(match failure {
                        None => AgentEvent::PrefixDeleted { checkpoint, directory, keep },
                        Some(reason) => AgentEvent::PrefixNotDeleted { checkpoint, directory, reason },
                    })
                }));
            }
            (RequestPurpose::Prefix(PrefixStep::FindOlder), Answer::OlderFound { checkpoint }) => {
                if let Phase::FindingOlder(report) = &mut self.phase
                    && let DrainResult::Incomplete { older, .. } = &mut report.result
                {
                    *older = checkpoint;
                }
            }
            (purpose, _) => self.failed(purpose, false, "the answer is to another request".into()),
        }
    }

    /// A request failed; `at_agent` if it was sent to one.
    fn failed(&mut self, purpose: RequestPurpose, at_agent: bool, failure: RequestFailure) {
        match purpose {
            RequestPurpose::Task(Task::OfNode(node, task)) => self.node_failed(node, task, failure),
            RequestPurpose::Task(Task::OnFiles { task, destination, .. }) if at_agent => {
                self.requests.add_first(Task::OnFiles { task, destination, here: true });
            }
            RequestPurpose::Task(Task::OnFiles { task: FileTask::Rebuild(number, set), .. }) => {
                self.rebuild_ended(number, set, Err(failure));
            }
            RequestPurpose::Prefix(PrefixStep::ExamineFlushed) => self.note_examined(Err(failure)),
            RequestPurpose::Prefix(PrefixStep::Repack) => self.repacked(Some(failure.reason)),
            // The dataset is drained. The next drain tries again, and `holdfast index prune` removes them.
            RequestPurpose::Prefix(PrefixStep::AbandonFlushes | PrefixStep::KeepWindow | PrefixStep::FindOlder) => {}
            RequestPurpose::Task(Task::OnFiles { task: FileTask::Verify(_), .. }) | RequestPurpose::Prefix(_) => {
                let RequestFailure { reason, unwritable } = failure;
                self.finish(DrainEnd::Failed(DrainError::Prefix { reason, unwritable }));
            }
        }
    }

    fn node_failed(&mut self, node: NodeName, task: NodeTask, failure: RequestFailure) {
        match task {
            NodeTask::Inventory { .. } => {
                if let Phase::TakingInventory(inventory_round) = &mut self.phase {
                    let is_down = self.agents.is_down(&node);
                    inventory_round.failed(node, failure.reason, is_down);
                }
            }
            NodeTask::Copy(order, _) => self.copy_ended(order, Err(failure)),
            // The flush file of the node is out of date: a later drain may copy the dataset again.
            NodeTask::NoteFlushed(_) => {}
        }
    }

    /// All requests of a phase have ended: begins the next phase. False if the phase still waits, or the drain is over.
    fn advance(&mut self) -> bool {
        match mem::replace(&mut self.phase, Phase::Finished) {
            phase @ Phase::NotBegun => {
                self.phase = phase;
                return false;
            }
            Phase::Finished => return false,
            Phase::TakingInventory(mut inventory_round) => {
                inventory_round.awaited.begin(self.now);
                if !inventory_round.awaited.is_over() {
                    self.phase = Phase::TakingInventory(inventory_round);
                    return false;
                }
                self.surveyed(inventory_round);
            }
            // Not with the answer: an agent that came up meanwhile first ends its part in the run.
            Phase::ExaminingFlushed(surveyed, checkpoint, Some(copy)) => {
                self.examined(*surveyed, checkpoint, copy);
            }
            Phase::Copying(mut copying, target, destination) => {
                let (next, events) = copying.proceed();
                self.emit(events);
                match next {
                    NextCopies::Wait => {
                        self.phase = Phase::Copying(copying, target, destination);
                        return false;
                    }
                    NextCopies::Orders(orders) => {
                        self.requests.add(orders.into_iter().map(|order| Task::copy(order, &destination)));
                        self.phase = Phase::Copying(copying, target, destination);
                    }
                    NextCopies::Done => {
                        self.copied(Dataset::new(target, destination, copying.finish()));
                    }
                }
            }
            Phase::Verifying(dataset, scan, failures) => self.verified(dataset, *scan, failures),
            Phase::Rebuilding(dataset, failures, rebuilds) => self.rebuilt(dataset, failures, rebuilds),
            Phase::Publishing(published) if published.complete => {
                self.phase = Phase::Closing(published);
                self.start_here(PrefixStep::CloseDirectory, DrainRequest::CloseDirectory);
            }
            Phase::Closing(published) => {
                let checkpoint = published.dataset.destination.checkpoint;
                let task = |node: &NodeName| Task::OfNode(node.clone(), NodeTask::NoteFlushed(checkpoint));
                self.requests.add(self.agents.up().map(task));
                self.phase = Phase::Noting(published);
            }
            Phase::Publishing(published) | Phase::Noting(published) => self.drained(&published),
            Phase::Abandoning(report) if self.config.keep > 0 => {
                self.phase = Phase::KeepingWindow(report);
                self.start_here(PrefixStep::KeepWindow, DrainRequest::KeepWindow { keep: self.config.keep });
            }
            Phase::Abandoning(report) | Phase::KeepingWindow(report) | Phase::FindingOlder(report) => {
                self.finish_drained(*report);
            }
            // These phases end with the answer to their only request.
            phase @ (Phase::ExaminingFlushed(_, _, None)
            | Phase::Opening(_)
            | Phase::Committing(_)
            | Phase::Scanning(_)
            | Phase::Repacking(..)
            | Phase::Rescanning(..)) => {
                self.phase = phase;
                return false;
            }
        }
        true
    }

    fn surveyed(&mut self, inventory_round: InventoryRound) {
        let (inventories, silent) = inventory_round.finish();
        for inventory in &inventories {
            let Some(node) = &inventory.node else { continue };
            let fault = |fault: &String| LogEvent::InventoryFault { node: node.clone(), fault: fault.clone() };
            self.actions.extend(inventory.faults.iter().map(fault).map(DrainAction::Emit));
        }
        if inventories.is_empty() {
            let reason = silent.into_values().next().unwrap_or_else(|| "no agent is up".to_owned());
            return self.finish(DrainEnd::Failed(DrainError::NoInventory { reason }));
        }
        self.all_answered = silent.is_empty();
        self.unseen.clone_from(&silent);
        for node in self.agents.not_up() {
            self.unseen.entry(node.clone()).or_insert_with(|| DOWN.to_owned());
        }
        self.make_plan(Surveyed { inventories, silent, damaged: BTreeMap::new() });
    }

    /// Makes the plan. If that relies on a dataset in the prefix directory, the directory is examined first: the copies
    /// on the nodes may be the last ones.
    fn make_plan(&mut self, surveyed: Surveyed) {
        let plan = plan::plan(&surveyed.inventories, None, &surveyed.damaged);
        match plan.flushed {
            Some(checkpoint) => {
                self.phase = Phase::ExaminingFlushed(Box::new(surveyed), checkpoint, None);
                self.start_here(PrefixStep::ExamineFlushed, DrainRequest::ExamineFlushed { checkpoint });
            }
            None => self.carry_out_plan(surveyed, plan),
        }
    }

    fn note_examined(&mut self, outcome: Result<FlushedCopy, RequestFailure>) {
        if let Phase::ExaminingFlushed(_, _, copy) = &mut self.phase {
            *copy = Some(outcome);
        }
    }

    /// What is left of a flushed dataset is known, or the prefix directory could not be read.
    fn examined(
        &mut self,
        mut surveyed: Surveyed,
        checkpoint: CheckpointId,
        copy: Result<FlushedCopy, RequestFailure>,
    ) {
        match copy {
            Ok(FlushedCopy::Damaged(reason)) => {
                if !self.config.survey_only {
                    self.emit([LogEvent::FlushedCopyDamaged { checkpoint, reason: reason.clone() }]);
                }
                surveyed.damaged.insert(checkpoint, reason);
                self.make_plan(surveyed);
            }
            Ok(copy @ (FlushedCopy::Complete | FlushedCopy::Unlisted)) => {
                self.flushed = Some(FlushedDataset { checkpoint, is_listed: copy == FlushedCopy::Complete });
                let plan = plan::plan(&surveyed.inventories, None, &surveyed.damaged);
                self.carry_out_plan(surveyed, plan);
            }
            Err(RequestFailure { reason, unwritable }) => {
                let plan = plan::plan(&surveyed.inventories, None, &surveyed.damaged);
                if plan.candidates.is_empty() && self.config.requested.is_none() {
                    return self.finish(DrainEnd::Failed(DrainError::Prefix { reason, unwritable }));
                }
                self.carry_out_plan(surveyed, plan);
            }
        }
    }

    /// Carries out the plan, or the part of it that was requested.
    fn carry_out_plan(&mut self, surveyed: Surveyed, mut plan: DrainPlan) {
        let Surveyed { inventories, silent, damaged } = surveyed;
        if let Some(requested) = self.config.requested {
            let others = OtherDatasets::of(&plan, requested);
            plan = DrainPlan { others, ..plan::plan(&inventories, Some(requested), &damaged) };
        }
        if let Some(id) = self.config.requested
            && plan.candidates.is_empty()
            && plan.remnant.is_none()
        {
            let known = inventory::candidates(&inventories);
            return self.finish(DrainEnd::Failed(DrainError::NoSuchDataset { id, known }));
        }
        if self.config.survey_only {
            return self.finish(DrainEnd::Surveyed(Box::new(Survey { inventories, silent, plan })));
        }
        let skipped = plan.skipped.iter().cloned();
        self.emit(skipped.map(|(checkpoint, reason)| LogEvent::DrainSkipped { checkpoint, reason }));
        self.others = mem::take(&mut plan.others);
        self.agenda = Agenda::of(plan);
        self.next_target();
    }

    fn finish_drained(&mut self, mut report: DrainReport) {
        report.left = self.others.left(matches!(report.result, DrainResult::Complete { .. }));
        report.flushed = self.flushed;
        for (node, reason) in mem::take(&mut self.unseen) {
            report.failed_nodes.entry(node).or_insert(reason);
        }
        self.finish(DrainEnd::Drained(report));
    }

    fn finish(&mut self, end: DrainEnd) {
        self.phase = Phase::Finished;
        let cancelled = self.requests.clear();
        self.actions.extend(cancelled.into_iter().map(|request| DrainAction::Cancel { request }));
        self.actions.push(DrainAction::Finish(Box::new(end)));
    }
}
