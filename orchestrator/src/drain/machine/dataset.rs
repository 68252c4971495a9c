//! The drain of one dataset, from its directory to the report.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use holdfast_core::prefix::inspect::{Completeness, Inspection, SetRebuild, inspect};
use holdfast_core::prefix::scan::Scan;
use holdfast_core::store::DirectoryName;
use holdfast_model::{ContainerPlaces, ContainerRequest, Rank, Unplaced};
use holdfast_wire::agent::{AgentEvent, CopyReply};

use super::{DrainMachine, Phase};
use crate::drain::action::{DrainRequest, Findings};
use crate::drain::completion::{self, Dataset, Failures, Published, Rebuilds};
use crate::drain::copying::Copying;
use crate::drain::error::RequestFailure;
use crate::drain::plan::Packing;
use crate::drain::report::DrainReport;
use crate::drain::requests::{Destination, FileTask, PlannedContainer, PrefixStep, Task};
use crate::drain::rounds::CopyOrder;
use crate::events::{DrainResult, LogEvent};

impl DrainMachine {
    pub(super) fn next_target(&mut self) {
        let Some(target) = self.agenda.next() else {
            let report = self.agenda.report();
            return self.abandon_flushes(report);
        };
        let (checkpoint, name) = (target.candidate.checkpoint, target.candidate.name.clone());
        let packing = self.config.container.zip(target.candidate.packing.as_ref());
        let container = packing.map(|(policy, packing)| {
            let Packing { ranks, streams, .. } = packing;
            Box::new(ContainerRequest { ranks: *ranks, streams: streams.clone(), files: policy.files })
        });
        self.phase = Phase::Opening(target);
        self.start_here(PrefixStep::OpenDirectory, DrainRequest::OpenDirectory { checkpoint, name, container });
    }

    pub(super) fn copy_ended(&mut self, order: CopyOrder, outcome: Result<CopyReply, RequestFailure>) {
        if let Phase::Copying(copying, ..) = &mut self.phase {
            let is_down = self.agents.is_down(&order.node);
            let events = copying.ended(self.now, order, outcome, is_down);
            self.emit(events);
        }
    }

    pub(super) fn rebuild_ended(&mut self, number: usize, set: SetRebuild, outcome: Result<(), RequestFailure>) {
        if let Phase::Rebuilding(_, _, rebuilds) = &mut self.phase {
            rebuilds.insert(number, (set, outcome));
        }
    }

    pub(super) fn opened(
        &mut self,
        directory: DirectoryName,
        resumed: bool,
        container: Option<Result<Arc<ContainerPlaces>, String>>,
    ) {
        let target = match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Opening(target) => target,
            other => {
                self.phase = other;
                return;
            }
        };
        let checkpoint = target.candidate.checkpoint;
        self.emit([LogEvent::DrainStarted { checkpoint, directory: directory.to_string(), resumed }]);
        let places = match container {
            Some(Ok(places)) => Some(places),
            Some(Err(reason)) => {
                let directory = directory.to_string();
                self.emit([LogEvent::of_drain(AgentEvent::PlainFilesKept { checkpoint, directory, reason })]);
                None
            }
            None => None,
        };
        let container = target.candidate.packing.clone().zip(places);
        let container = container.map(|(packing, places)| PlannedContainer { packing, places });
        let destination = Arc::new(Destination { checkpoint, directory, container });
        let patience = self.config.lost_agent_wait;
        let (copying, orders) = Copying::new(&target.candidate, &self.agents, patience);
        self.requests.add(orders.into_iter().map(|order| Task::copy(order, &destination)));
        self.phase = Phase::Copying(Box::new(copying), target, destination);
    }

    /// No copy is under way: completes the container, if there is one, then reads what is there.
    pub(super) fn copied(&mut self, mut dataset: Dataset) {
        let directory = dataset.destination.directory.clone();
        if dataset.destination.container.is_none() {
            return self.scan(dataset);
        }
        let packed = mem::take(&mut dataset.copied.packed);
        self.phase = Phase::Committing(dataset);
        self.start_here(PrefixStep::CommitContainer, DrainRequest::CommitContainer { directory, packed });
    }

    pub(super) fn committed(&mut self) {
        match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Committing(dataset) => self.scan(dataset),
            other => self.phase = other,
        }
    }

    fn scan(&mut self, dataset: Dataset) {
        let directory = dataset.destination.directory.clone();
        self.phase = Phase::Scanning(dataset);
        self.start_here(PrefixStep::Scan, DrainRequest::Scan { directory });
    }

    pub(super) fn scanned(&mut self, mut scan: Box<Scan>) {
        match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Scanning(dataset) => {
                let is_packed = dataset.destination.container.is_some();
                // Before older ones are deleted, it is read again.
                let trusts_copies = self.config.crc && self.config.keep == 0;
                let batches = completion::batches(&scan, trusts_copies.then_some(&dataset.copied), is_packed);
                let task = |files| file_task(FileTask::Verify(files), &dataset.destination);
                self.requests.add(batches.into_iter().map(task));
                self.phase = Phase::Verifying(dataset, scan, Failures::new());
            }
            Phase::Rescanning(dataset, failures, rebuilt, reasons) => {
                completion::apply(&mut scan, &failures, &rebuilt);
                let inspection = inspect(&scan);
                self.settle(dataset, failures, *scan, inspection, rebuilt, reasons);
            }
            other => self.phase = other,
        }
    }

    /// Removes files that failed their checksum, and begins the rebuilds that are possible.
    pub(super) fn verified(&mut self, dataset: Dataset, mut scan: Scan, failures: Failures) {
        completion::apply(&mut scan, &failures, &BTreeSet::new());
        let inspection = inspect(&scan);
        let checkpoint = dataset.destination.checkpoint;
        let damaged = inspection.damaged.iter();
        let events = damaged.map(|file| LogEvent::DamagedInPrefix { checkpoint, file: file.to_string() });
        self.emit(events);
        if inspection.rebuildable.is_empty() {
            return self.settle(dataset, failures, scan, inspection, BTreeSet::new(), Vec::new());
        }
        let sets = inspection.rebuildable.into_iter().enumerate();
        let task = |(number, set)| file_task(FileTask::Rebuild(number, set), &dataset.destination);
        self.requests.add(sets.map(task));
        self.phase = Phase::Rebuilding(dataset, failures, Rebuilds::new());
    }

    pub(super) fn rebuilt(&mut self, mut dataset: Dataset, failures: Failures, rebuilds: Rebuilds) {
        dataset.unwritable_rebuilds = completion::are_unwritable(&rebuilds);
        let (ranks, reasons) = completion::outcome(rebuilds);
        let checkpoint = dataset.destination.checkpoint;
        self.emit(ranks.iter().map(|rank| LogEvent::RebuiltInPrefix { checkpoint, rank: *rank }));
        self.rescan(dataset, failures, ranks.into_iter().collect(), reasons);
    }

    fn rescan(&mut self, dataset: Dataset, failures: Failures, rebuilt: BTreeSet<Rank>, reasons: Vec<String>) {
        let directory = dataset.destination.directory.clone();
        self.phase = Phase::Rescanning(dataset, failures, rebuilt, reasons);
        self.start_here(PrefixStep::Scan, DrainRequest::Scan { directory });
    }

    /// Nothing is left to rebuild: publishes the dataset. If its files are in a container, the plain ones, those that
    /// were rebuilt and those of an earlier drain, are first moved into another.
    fn settle(
        &mut self,
        dataset: Dataset,
        failures: Failures,
        scan: Scan,
        inspection: Inspection,
        rebuilt: BTreeSet<Rank>,
        reasons: Vec<String>,
    ) {
        let is_packed = dataset.destination.container.is_some() && !dataset.repacked;
        let policy = self.config.container.filter(|_| is_packed && inspection.completeness == Completeness::Complete);
        let files = policy.map(|_| completion::plain_files(&scan)).unwrap_or_default();
        let container = policy.and_then(|policy| completion::container_for(&scan, &files, policy.files));
        let Some(container) = container.filter(|_| !files.is_empty()).map(Box::new) else {
            return self.publish(dataset, scan, inspection, rebuilt, reasons);
        };
        let directory = dataset.destination.directory.clone();
        self.phase = Phase::Repacking(dataset, failures, rebuilt, reasons);
        self.start_here(PrefixStep::Repack, DrainRequest::Repack { directory, container, files });
    }

    /// Plain files were moved into a container, or stay plain for a reason.
    pub(super) fn repacked(&mut self, failure: Option<String>) {
        match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Repacking(dataset, failures, rebuilt, reasons) => {
                let Destination { checkpoint, directory, .. } = &*dataset.destination;
                let (checkpoint, directory) = (*checkpoint, directory.to_string());
                let kept = |reason| LogEvent::of_drain(AgentEvent::PlainFilesKept { checkpoint, directory, reason });
                self.emit(failure.map(kept));
                self.rescan(Dataset { repacked: true, ..dataset }, failures, rebuilt, reasons);
            }
            other => self.phase = other,
        }
    }

    /// A file that was to be moved is damaged: all that was not copied just now is verified again, and rebuilt if that
    /// is possible.
    pub(super) fn found_damaged(&mut self, rank: Option<Rank>, reason: String) {
        match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Repacking(mut dataset, _, rebuilt, _) => {
                let Destination { checkpoint, directory, .. } = &*dataset.destination;
                let (checkpoint, directory) = (*checkpoint, directory.to_string());
                self.emit([LogEvent::of_drain(AgentEvent::PlainFilesKept { checkpoint, directory, reason })]);
                dataset.repacked = true;
                dataset.rebuilt_before = rebuilt;
                if let Some(rank) = rank {
                    dataset.rebuilt_before.remove(&rank);
                }
                self.scan(dataset);
            }
            other => self.phase = other,
        }
    }

    fn publish(
        &mut self,
        dataset: Dataset,
        scan: Scan,
        inspection: Inspection,
        mut rebuilt: BTreeSet<Rank>,
        mut reasons: Vec<String>,
    ) {
        rebuilt.extend(&dataset.rebuilt_before);
        reasons.extend(completion::reasons(&inspection));
        let complete = inspection.completeness == Completeness::Complete;
        let (directory, make_current) = (dataset.destination.directory.clone(), dataset.target.make_current());
        let findings = Box::new(Findings { directory, scan, inspection, make_current });
        self.phase = Phase::Publishing(Published { dataset, rebuilt, reasons, complete });
        self.start_here(PrefixStep::Publish, DrainRequest::Publish { findings });
    }

    pub(super) fn published(&mut self, refused: Option<String>, unplaced: Option<Unplaced>) {
        let Phase::Publishing(Published { dataset, complete, reasons, .. }) = &mut self.phase else { return };
        let (checkpoint, directory) = (dataset.destination.checkpoint, dataset.destination.directory.to_string());
        let skipped = refused.map(|reason| {
            *complete = false;
            reasons.push(reason.clone());
            LogEvent::DrainSkipped { checkpoint, reason }
        });
        let indexed = LogEvent::Indexed { checkpoint, directory, complete: *complete };
        let unplaced = unplaced.map(|Unplaced { directory, path, files }| {
            LogEvent::of_drain(AgentEvent::OutputNotPlaced { checkpoint, directory, path, files })
        });
        self.emit(skipped.into_iter().chain([indexed]).chain(unplaced));
    }

    /// A dataset was drained as completely as possible.
    pub(super) fn drained(&mut self, published: &Published) {
        let report = published.report(self.all_answered);
        match self.agenda.drained(&published.dataset.target, report) {
            Some(report) => self.abandon_flushes(report),
            None => self.next_target(),
        }
    }

    /// The last step: removes what flushes left beside the drained dataset. If a dataset could not be completed, all is
    /// kept for another attempt.
    fn abandon_flushes(&mut self, report: DrainReport) {
        match report.result {
            DrainResult::Nothing | DrainResult::Complete { .. } => {
                self.phase = Phase::Abandoning(Box::new(report));
                self.start_here(PrefixStep::AbandonFlushes, DrainRequest::AbandonFlushes);
            }
            // Nothing more can be saved: a restart needs an older one.
            DrainResult::Incomplete { .. } if !report.retry_may_help => {
                self.phase = Phase::FindingOlder(Box::new(report));
                self.start_here(PrefixStep::FindOlder, DrainRequest::FindOlder);
            }
            DrainResult::Incomplete { .. } | DrainResult::Failed { .. } => self.finish_drained(report),
        }
    }
}

fn file_task(task: FileTask, destination: &Arc<Destination>) -> Task {
    Task::OnFiles { task, destination: Arc::clone(destination), here: false }
}
