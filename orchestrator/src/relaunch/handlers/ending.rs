//! The rules from the end of the ranks to the end of the loop: reports of the generation, its end, the cause, the
//! drain.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};

use crate::events::LogEvent;
use crate::events::{DownReason, EndCause, GenerationProgress, StopReason, TimedReason};
use crate::launch::Obstacle;
use crate::relaunch::action::Action;
use crate::relaunch::classify::Prevented;
use crate::relaunch::config::MPI_START_RETRIES;
use crate::relaunch::event::ProgressFound;
use crate::relaunch::machine::{Machine, NotHalted};
use crate::relaunch::node_state::Unfit;
use crate::relaunch::policy::{limit_reached, stop_after};
use crate::relaunch::snapshot::{HaltCheckBefore, PastGeneration, Phase};

impl Machine {
    /// The library does not say from which checkpoint the ranks go on.
    pub(super) fn library_started(&mut self, generation: Generation) {
        self.note_fact(generation, |active| active.facts.joined = true);
        if self.state.history.last().is_some_and(|past| past.generation == generation && !past.joined)
            && let Some(past) = self.state.history.change_last()
        {
            past.joined = true;
        }
    }

    pub(super) fn restarted(
        &mut self,
        generation: Generation,
        from: Option<CheckpointId>,
        protected: bool,
        fetched_in: Option<Duration>,
        out: &mut Vec<Action>,
    ) {
        let Some(active) = self.active_of(generation) else {
            return;
        };
        let repeated = std::mem::replace(&mut active.facts.joined, true);
        if from.is_none() {
            self.explain_beginning(generation, out);
        }
        self.supersede(from, out);
        if let Some(took) = fetched_in.filter(|_| !repeated) {
            self.state.head.drain_estimate.transferred(took);
        }
        let Some(active) = self.active_of(generation) else {
            return;
        };
        // The checkpoint that they restart from existed before: it is no progress.
        active.facts.newest_before = active.facts.newest_before.max(from);
        let differs = |past: &PastGeneration| past.generation == generation && (past.from != from || !past.joined);
        if self.state.history.last().is_some_and(differs)
            && let Some(past) = self.state.history.change_last()
        {
            (past.from, past.joined) = (from, true);
        }
        if self.config.library_control.is_some() && from < self.state.head.newest {
            self.library_began_from(generation, from);
        }
        let head = &mut self.state.head;
        (head.newest, head.secured) = (head.newest.max(from), head.secured.max(from));
        // The restart may have lost its protection, or made it.
        head.protected =
            if protected { head.protected.max(from) } else { head.protected.filter(|id| Some(*id) != from) };
    }

    /// Of the checkpoints that cannot be used, the first that is tried is the newest.
    pub(super) fn checkpoint_unusable(&mut self, generation: Generation, checkpoint: CheckpointId, reason: &str) {
        let head = &mut self.state.head;
        if head.generation == generation {
            head.unusable.get_or_insert_with(|| format!("checkpoint {checkpoint} cannot be used: {reason}"));
        }
    }

    /// A generation that is not the first, or for which checkpoints were found, has a reason to start from the
    /// beginning.
    fn explain_beginning(&mut self, generation: Generation, out: &mut Vec<Action>) {
        let head = &self.state.head;
        let reason = match (&head.unusable, head.newest) {
            (Some(unusable), _) => unusable.clone(),
            (None, _) if self.state.history.len() < 2 => return,
            (None, None) => "no checkpoint was completed".to_owned(),
            (None, Some(newest)) => format!("nothing is left of checkpoint {newest} or of an older one"),
        };
        // The report may be received again.
        if !self.state.history.last().is_some_and(|past| past.generation == generation && past.beginning.is_none()) {
            return;
        }
        if let Some(past) = self.state.history.change_last() {
            past.beginning = Some(reason.clone());
        }
        self.record(LogEvent::FromBeginning { generation, reason }, out);
    }

    /// LLNL's library has deleted all newer checkpoints, and gives their numbers again. A report that is received
    /// again, after the generation has completed a checkpoint, changes nothing.
    fn library_began_from(&mut self, generation: Generation, from: Option<CheckpointId>) {
        let secured = self.state.head.secured;
        let Some(active) = self.active_of(generation).filter(|active| active.facts.newest_before >= secured) else {
            return;
        };
        active.facts.newest_before = from;
        let head = &mut self.state.head;
        (head.newest, head.secured) = (from, from);
        head.protected = head.protected.filter(|id| Some(*id) <= from);
    }

    /// A checkpoint whose redundancy is still being made is no progress yet: the loss of a node ends it.
    pub(super) fn checkpoint_complete(
        &mut self,
        generation: Generation,
        checkpoint: CheckpointId,
        protected: bool,
        bytes: u64,
    ) {
        let Some(active) = self.active_of(generation) else {
            return;
        };
        active.facts.joined = true;
        let head = &mut self.state.head;
        // The files of this id are others now.
        head.protected = head.protected.filter(|known| *known != checkpoint);
        if Some(checkpoint) >= head.newest {
            head.drain_estimate.size_is(bytes);
            head.newest = Some(checkpoint);
        }
        if !protected {
            self.checkpoint_secured(generation, checkpoint);
        }
    }

    pub(super) fn checkpoint_protected(&mut self, generation: Generation, checkpoint: CheckpointId) {
        let Some(active) = self.active_of(generation) else {
            return;
        };
        active.facts.joined = true;
        self.state.head.protected = self.state.head.protected.max(Some(checkpoint));
        self.checkpoint_secured(generation, checkpoint);
    }

    /// It is kept all the same: as one of a scheme that does not protect it.
    pub(super) fn protection_failed(&mut self, generation: Generation, checkpoint: CheckpointId) {
        if self.active_of(generation).is_some() {
            self.checkpoint_secured(generation, checkpoint);
        }
    }

    fn checkpoint_secured(&mut self, generation: Generation, checkpoint: CheckpointId) {
        let head = &mut self.state.head;
        // The event that it is complete may have been lost with the leader's agent.
        (head.newest, head.secured) = (head.newest.max(Some(checkpoint)), head.secured.max(Some(checkpoint)));
        self.dataset_kept(generation);
    }

    /// No restart is possible: the faulty node gets no more ranks. Its agent goes on to run, so that its files in cache
    /// are used. If it is faulty again, its directories cannot even be read: the node is down.
    pub(super) fn restart_prevented(
        &mut self,
        now: Duration,
        generation: Generation,
        faulty: Option<&NodeName>,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        if self.active_of(generation).is_none() {
            return;
        }
        let position = faulty.and_then(|node| self.position(node));
        if let Some(position) = position {
            match self.state.nodes[position as usize].unfit.as_ref().map(|unfit| unfit.reason.generation) {
                Some(before) if before == generation => return,
                Some(_) => self.set_down(now, position, DownReason::Health { fault: reason.clone() }, out),
                None => {
                    let unfit = Unfit { generation, reason: reason.clone() };
                    self.state.nodes.change(position).unfit = Some(TimedReason { reason: unfit, at: now });
                    self.index_homes();
                }
            }
        }
        let node = position.map(|position| self.name(position));
        // A node that is unknown here is none of this job: the restart itself failed.
        if let Some(active) = self.active_of(generation) {
            let prevented =
                active.facts.prevented.get_or_insert_with(|| Prevented { nodes: Vec::new(), reason: reason.clone() });
            prevented.nodes.extend(node);
        }
        if self.state.head.phase == Phase::Running {
            self.end_generation(now, reason, out);
        }
    }

    /// A dataset was kept: complete in cache, or in the prefix directory.
    pub(super) fn dataset_kept(&mut self, generation: Generation) {
        if self.active_of(generation).is_some() {
            self.state.head.datasets.kept();
        }
    }

    pub(super) fn dataset_dropped(&mut self, generation: Generation, checkpoint: CheckpointId, reason: String) {
        if self.active_of(generation).is_some() {
            let head = &mut self.state.head;
            head.datasets.dropped(checkpoint, reason);
            if head.newest == Some(checkpoint) {
                // It was complete, and its redundancy could not be made.
                head.newest = head.secured;
            }
        }
    }

    pub(super) fn launch_failed(
        &mut self,
        now: Duration,
        generation: Generation,
        reason: String,
        obstacle: Obstacle,
        out: &mut Vec<Action>,
    ) {
        if let Some(active) = self.ongoing(generation) {
            (active.facts.launch_failed, active.facts.obstacle) = (Some(reason.clone()), Some(obstacle));
            self.end_generation(now, format!("the launch failed: {reason}"), out);
        }
    }

    pub(super) fn step_lost(&mut self, now: Duration, generation: Generation, reason: String, out: &mut Vec<Action>) {
        if let Some(active) = self.ongoing(generation) {
            active.facts.step_lost = Some(reason.clone());
            self.end_generation(now, format!("the step cannot be followed: {reason}"), out);
        }
    }

    pub(super) fn rank_left(&mut self, generation: Generation, rank: Rank) {
        if rank.0 < self.config.ranks
            && let Some(active) = self.active_of(generation)
        {
            active.left.insert(rank.0);
        }
    }

    pub(super) fn rank_exited(
        &mut self,
        now: Duration,
        generation: Generation,
        rank: Rank,
        end: RankEnd,
        out: &mut Vec<Action>,
    ) {
        if rank.0 >= self.config.ranks {
            return;
        }
        let well = end == RankEnd::SUCCESS;
        let ranks = self.config.ranks as usize;
        let Some(active) = self.ongoing(generation) else {
            return;
        };
        if active.ended.contains_key(&rank) {
            return;
        }
        active.ended.insert(rank, end);
        if !well && end != RankEnd::Unknown && !active.is_terminated() {
            // A signal to all processes of the job: the others may be handling it too.
            if active.facts.signal.is_some() && active.facts.halt.is_some() && active.ended.len() < ranks {
                return self.terminate_ranks(now, out);
            }
            active.facts.failure = Some((Some(rank), end));
            return self.end_generation(now, format!("rank {rank} ended with {end}"), out);
        }
        // Exit status unknown: ask the leader whether the rank had called finalize.
        let unexplained = end == RankEnd::Unknown && !active.expects_end() && active.facts.unknown_end_since.is_none();
        if unexplained {
            active.facts.unknown_end_since = Some(now);
        }
        if self.state.active.as_ref().is_some_and(|active| active.all_ended(&self.config)) {
            self.end_generation(now, "all ranks ended".to_owned(), out);
        } else if unexplained && let Some(leader) = self.leader {
            out.push(Action::PollNow { to: vec![self.name(leader)] });
        }
    }

    /// The leader answered: ends the generation if a rank ended without exit status, and was not expected to end.
    pub(super) fn resolve_unknown_end(&mut self, now: Duration, position: u32, sent: Duration, out: &mut Vec<Action>) {
        if self.state.head.phase != Phase::Running || self.leader != Some(position) {
            return;
        }
        let Some(active) = self.state.active.as_mut() else {
            return;
        };
        if active.facts.unknown_end_since.is_some_and(|since| sent >= since) {
            active.facts.unknown_end_since = None;
            if !active.expects_end() {
                self.end_generation(now, "a rank has ended, its exit status is unknown".to_owned(), out);
            }
        }
    }

    pub(super) fn step_ended(&mut self, now: Duration, generation: Generation, end: RankEnd, out: &mut Vec<Action>) {
        let well = end == RankEnd::SUCCESS;
        let Some(active) = self.ongoing(generation) else {
            return;
        };
        active.facts.step_ended = Some(end);
        // Open MPI's mpirun ends with 1 if the ranks end without MPI_Finalize, as a halted program of SCR does.
        let halted = active.facts.halting.is_some();
        if !well && end != RankEnd::Unknown && active.facts.failure.is_none() && !halted {
            active.facts.failure = Some((None, end));
        }
        self.end_generation(now, format!("the launcher ended with {end}"), out);
    }

    /// Ends the generation: its ranks are killed on all of its nodes at once; the cause is decided when each of these
    /// nodes has answered or is down.
    pub(super) fn end_generation(&mut self, now: Duration, seen: String, out: &mut Vec<Action>) {
        let Some(active) = &self.state.active else { return };
        let generation = active.facts.generation;
        let step_is_over = active.facts.step_ended.is_some() || active.facts.launch_failed.is_some();
        self.record(LogEvent::GenerationEnding { generation, seen: seen.clone() }, out);
        let nodes = (0u32..).zip(&self.ranks_on).zip(&self.state.nodes);
        let left = nodes.filter(|((_, ranks), node)| !ranks.is_empty() && !node.is_out());
        let left: Vec<u32> = left.map(|((position, _), _)| position).collect();
        let to = self.names_of(left.iter().copied().filter(|at| self.state.nodes[*at as usize].is_healthy()));
        if !to.is_empty() {
            out.push(Action::KillRanks { generation, to: to.clone(), reason: seen });
        }
        if !step_is_over {
            out.push(Action::CancelStep { generation });
        }
        if !to.is_empty() {
            out.push(Action::PollNow { to });
        }
        self.set_phase(Phase::Ending { since: now });
        self.not_halted = NotHalted { since: now, nodes: BTreeSet::new() };
        self.state.unkilled.replace(left.iter().copied());
        self.state.unanswered.replace(left);
    }

    pub(super) fn ranks_killed(
        &mut self,
        position: u32,
        generation: Generation,
        may_halt: bool,
        out: &mut Vec<Action>,
    ) {
        let current = self.generation();
        if self.note_contact(position, out)
            && matches!(self.state.head.phase, Phase::Ending { .. })
            && generation >= current
        {
            self.state.unkilled.remove(position);
            if !may_halt {
                self.not_halted.nodes.insert(position);
            }
        }
    }

    /// Every node of the generation has answered or is down: decides why it ended. What follows may depend on sources
    /// of progress that are checked first.
    pub(super) fn conclude(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(active) = &mut self.state.active else { return };
        let cause = active.cause(&self.config);
        let has_run = active.facts.launch_failed.is_none();
        if self.config.checks_progress && has_run && !cause.is_finished() {
            // Nodes that go down from now on are not the cause.
            active.facts.cause = Some(cause);
            let generation = active.facts.generation;
            self.set_phase(Phase::CheckingProgress);
            return out.push(Action::CheckProgress { generation });
        }
        let unchecked =
            if self.config.observes_progress() { ProgressFound::NoProgress } else { ProgressFound::NotObserved };
        self.end_with(now, cause, unchecked, out);
    }

    pub(super) fn progress_checked(
        &mut self,
        now: Duration,
        generation: Generation,
        found: ProgressFound,
        out: &mut Vec<Action>,
    ) {
        if self.state.head.phase != Phase::CheckingProgress {
            return;
        }
        let cause = self.active_of(generation).and_then(|active| active.facts.cause.take());
        if let Some(cause) = cause {
            self.end_with(now, cause, found, out);
        }
    }

    /// The generation ended for this cause: decides what follows. `found`: progress besides a newer checkpoint.
    fn end_with(&mut self, now: Duration, cause: EndCause, found: ProgressFound, out: &mut Vec<Action>) {
        let Some(active) = self.state.active.take() else {
            return;
        };
        let (generation, newest, secured) = (active.facts.generation, self.state.head.newest, self.state.head.secured);
        let found = match secured.filter(|_| secured > active.facts.newest_before) {
            Some(checkpoint) => ProgressFound::Progress(GenerationProgress::Checkpoint { checkpoint }),
            None => found,
        };
        let head = &mut self.state.head;
        let retries_start =
            head.mpi_start_crashes < MPI_START_RETRIES && self.config.is_crash_of_mpi_start(&active, &cause, now);
        head.mpi_start_crashes += u32::from(retries_start);
        let counts_as_disturbance = if active.is_disturbance(&cause, now) {
            head.disturbances.add(now)
        } else {
            head.disturbances.other_end();
            true
        };
        let (disturbances, pause) = (head.disturbances.ends, head.disturbances.pause);
        let counts = cause.counts() && !retries_start && counts_as_disturbance;
        head.made_progress |= cause.is_finished();
        let progress = match found {
            ProgressFound::Progress(progress) => {
                (head.without_progress, head.made_progress) = (0, true);
                Some(progress)
            }
            ProgressFound::NoProgress => {
                head.without_progress = head.without_progress.saturating_add(u32::from(counts));
                None
            }
            ProgressFound::NotObserved => None,
            // Neither progress nor the lack of it.
            ProgressFound::Unknown { reason } => {
                self.record(LogEvent::ProgressUnknown { generation, reason }, out);
                None
            }
        };
        self.state.head.uncounted_launches += u32::from(!counts);
        if let Some(past) = self.state.history.change_last() {
            past.ended = Some(TimedReason { reason: cause.clone(), at: now });
            past.newest = newest;
            past.progress.clone_from(&progress);
        }
        let ended = LogEvent::GenerationEnded {
            generation,
            cause: cause.clone(),
            newest,
            without_progress: self.state.head.without_progress,
            progress,
        };
        self.record(ended, out);
        if let Some(base) = self.config.library_control.clone()
            && active.facts.started
            && !active.facts.joined
        {
            let generation = active.facts.generation;
            self.record(LogEvent::LibraryLeftNothing { generation, base }, out);
        }
        if retries_start {
            let crashes = self.state.head.mpi_start_crashes;
            self.record(LogEvent::MpiStartCrashed { generation, crashes, limit: MPI_START_RETRIES }, out);
        }
        let is_unknown = active.facts.obstacle == Some(Obstacle::UnknownAllocation);
        let limits_apply = counts && !is_unknown;
        let stop = stop_after(&self.config, &self.state, &active, (&cause, limits_apply), self.launch_until(), now);
        if let Some(reason) = stop {
            return self.stop(now, reason, out);
        }
        if !pause.is_zero() {
            let millis = pause.as_millis() as u64;
            self.record(LogEvent::LaunchSpaced { generation, disturbances, millis, counts }, out);
        }
        if is_unknown { self.check_allocation(out) } else { self.settle(now, out) }
    }

    /// Waits before the next launch, if there can be one, and a delay is set or launches are spaced.
    fn settle(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.delay().is_zero() || self.obstacle(now).is_some() {
            return self.set_phase(Phase::Gathering);
        }
        self.ask_halt(now, HaltCheckBefore::Settling, out);
    }

    /// The delay between the last generation and the next launch.
    pub(super) fn delay(&self) -> Duration {
        self.config.settle.max(self.state.head.disturbances.pause)
    }

    /// Whether the allocation exists decides what follows. The word of the resource manager alone is not believed: a
    /// controller that was restarted may not know its jobs for some seconds.
    pub(super) fn check_allocation(&mut self, out: &mut Vec<Action>) {
        self.set_phase(Phase::CheckingAllocation);
        out.push(Action::CheckAllocation);
    }

    pub(super) fn allocation_checked(&mut self, now: Duration, denial: Option<String>, out: &mut Vec<Action>) {
        if self.state.head.phase != Phase::CheckingAllocation {
            return;
        }
        let lost = denial.map(|reason| StopReason::AllocationLost { reason });
        let last = || self.state.history.last()?.ended.as_ref();
        let limit = || limit_reached(&self.config, &self.state, &last()?.reason);
        match lost.or_else(|| self.obstacle(now)).or_else(limit) {
            Some(reason) => self.stop(now, reason, out),
            None => self.settle(now, out),
        }
    }
}
