//! The rules from the end of the ranks to the end of the loop: reports of the generation, its end, the cause, the
//! drain.

use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};

use super::action::Action;
use super::classify::{ActiveGeneration, Prevented};
use super::event::ProgressFound;
use super::halt::HaltCause;
use super::machine::Machine;
use super::node_state::{NodeStatus, Unfit};
use super::outcome::{DroppedDatasets, Outcome};
use super::policy::stop_after;
use super::snapshot::{HaltCheckBefore, PastGeneration, Phase};
use crate::events::DrainResult;
use crate::events::LogEvent;
use crate::events::{DownReason, EndCause, GenerationProgress, StopReason, TimedReason};

impl Machine {
    /// The generation under way, if it is this one.
    fn active_of(&mut self, generation: Generation) -> Option<&mut ActiveGeneration> {
        self.state.active.as_mut().filter(|active| active.facts.generation == generation)
    }

    /// Records a fact about the generation under way.
    pub(super) fn note_fact(&mut self, generation: Generation, note: impl FnOnce(&mut ActiveGeneration)) {
        if let Some(active) = self.active_of(generation) {
            note(active);
        }
    }

    /// The generation under way, while nothing is known that ends it: later ends of ranks are caused by the machine.
    pub(super) fn ongoing(&mut self, generation: Generation) -> Option<&mut ActiveGeneration> {
        match self.state.head.phase {
            Phase::Running => self.active_of(generation),
            _ => None,
        }
    }

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
        fetched_in: Option<Duration>,
    ) {
        let Some(active) = self.active_of(generation) else {
            return;
        };
        let repeated = std::mem::replace(&mut active.facts.joined, true);
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
        if from > self.state.head.newest {
            (self.state.head.newest, self.state.head.protected) = (from, false);
        }
    }

    pub(super) fn checkpoint_complete(
        &mut self,
        generation: Generation,
        checkpoint: CheckpointId,
        protected: bool,
        bytes: u64,
    ) {
        if let Some(active) = self.active_of(generation) {
            active.facts.joined = true;
            if Some(checkpoint) >= self.state.head.newest {
                self.state.head.drain_estimate.size_is(bytes);
                (self.state.head.newest, self.state.head.protected) = (Some(checkpoint), protected);
            }
        }
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
            self.state.head.datasets.dropped(checkpoint, reason);
        }
    }

    pub(super) fn launch_failed(
        &mut self,
        now: Duration,
        generation: Generation,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        if let Some(active) = self.ongoing(generation) {
            active.facts.launch_failed = Some(reason.clone());
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
        if !well && end != RankEnd::Unknown && active.facts.failure.is_none() {
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
        let left = nodes.filter(|((_, ranks), node)| !ranks.is_empty() && !node.is_down());
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
        self.state.unkilled.replace(left.iter().copied());
        self.state.unanswered.replace(left);
        self.advance(now, out);
    }

    pub(super) fn ranks_killed(
        &mut self,
        now: Duration,
        name: &NodeName,
        generation: Generation,
        out: &mut Vec<Action>,
    ) {
        let Some(position) = self.position(name) else {
            return;
        };
        let current = self.generation();
        if self.note_contact(position, out)
            && matches!(self.state.head.phase, Phase::Ending { .. })
            && generation >= current
            && self.state.unkilled.remove(position)
        {
            self.advance(now, out);
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
        let (generation, newest) = (active.facts.generation, self.state.head.newest);
        let found = match newest.filter(|_| newest > active.facts.newest_before) {
            Some(checkpoint) => ProgressFound::Progress(GenerationProgress::Checkpoint { checkpoint }),
            None => found,
        };
        let counts = cause.counts();
        let head = &mut self.state.head;
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
        self.state.head.after_exclusions += u32::from(!counts);
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
        match stop_after(&self.config, &self.state, &active, &cause, self.launch_until(), now) {
            Some(reason) => self.stop(now, reason, out),
            None if self.config.settle.is_zero() => {
                self.set_phase(Phase::Gathering);
                self.advance(now, out);
            }
            None => {
                self.set_phase(Phase::AskingHalt { before: HaltCheckBefore::Settling });
                out.push(Action::AskHalt);
            }
        }
    }

    pub(super) fn signalled(&mut self, now: Duration, name: String, out: &mut Vec<Action>) {
        self.state.head.signals = self.state.head.signals.saturating_add(1);
        let number = self.state.head.signals;
        let at_once = number > 2;
        self.record(LogEvent::Signal { name: name.clone(), number, at_once }, out);
        if at_once {
            return self.end_at_once(now, name, out);
        }
        let first = self.state.head.signal.get_or_insert_with(|| name.clone()).clone();
        if self.before_launch() {
            return self.stop(now, StopReason::Signal { name: first }, out);
        }
        if let Some(active) = &mut self.state.active {
            active.facts.signal = Some(first.clone());
        }
        if self.state.head.phase == Phase::Running {
            match number {
                1 => self.begin_halt(now, HaltCause::Signal, first, None, out),
                _ => self.kill_halted(now, HaltCause::Signal, format!("{name}, the second signal"), out),
            }
        }
    }

    /// The third signal: everything is ended now, without a drain. Files in the caches are kept.
    fn end_at_once(&mut self, now: Duration, name: String, out: &mut Vec<Action>) {
        if let Some(generation) = self.state.active.as_ref().map(|active| active.facts.generation) {
            let to = self.names_of(self.healthy_nodes().filter(|position| self.is_used(*position)));
            out.push(Action::KillRanks { generation, to, reason: format!("{name}, the third signal") });
            out.push(Action::CancelStep { generation });
        }
        self.cancel_before(out);
        if self.state.head.stop.is_none() {
            self.state.head.stop = Some(TimedReason { reason: StopReason::Signal { name }, at: now });
        }
        self.finish(None, out);
    }

    fn cancel_before(&self, out: &mut Vec<Action>) {
        if let Phase::RunningBefore { failed: None } = self.state.head.phase {
            out.push(Action::CancelBefore);
        }
    }

    /// The loop is over; the drain follows.
    pub(super) fn stop(&mut self, now: Duration, reason: StopReason, out: &mut Vec<Action>) {
        self.cancel_before(out);
        self.record(LogEvent::Stopping { reason: reason.clone() }, out);
        self.state.head.stop = Some(TimedReason { reason, at: now });
        self.set_phase(Phase::Stopping);
        self.advance(now, out);
    }

    pub(super) fn drain(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(stop) = &self.state.head.stop else { return };
        if self.count.healthy == 0 {
            return self.finish(None, out);
        }
        out.push(self.drain_action(stop.reason.clone()));
        self.state.head.drain_estimate.drain_began(now);
        self.set_phase(Phase::Draining);
    }

    pub(super) fn drain_action(&self, stop: StopReason) -> Action {
        let (mut healthy, mut starting, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for (name, node) in self.state.names.iter().zip(&self.state.nodes) {
            // An agent that was never up has nothing.
            let nodes = match &node.status {
                NodeStatus::Healthy => &mut healthy,
                NodeStatus::Starting(_) if node.address.is_some() => &mut starting,
                NodeStatus::Starting(_) | NodeStatus::Down { .. } => &mut down,
            };
            nodes.push(name.clone());
        }
        Action::Drain { stop, healthy, starting, down }
    }

    pub(super) fn drained(&mut self, now: Duration, result: DrainResult, out: &mut Vec<Action>) {
        if self.state.head.phase == Phase::Draining {
            self.state.head.drain_estimate.drained(now, &result);
            self.record(LogEvent::Drained { result: result.clone() }, out);
            self.finish(Some(result), out);
        }
    }

    fn finish(&mut self, drain: Option<DrainResult>, out: &mut Vec<Action>) {
        let Some(stop) = self.state.head.stop.clone() else {
            return;
        };
        let outcome = Outcome {
            stop,
            drain: drain.clone(),
            generation: self.state.head.generation,
            launches: self.state.head.launches,
            newest: self.state.head.newest,
            dropped: self.state.head.datasets.all_dropped().cloned(),
        };
        if let Some(DroppedDatasets { count, last, reason }) = outcome.dropped.clone() {
            self.record(LogEvent::AllDatasetsDropped { count, checkpoint: last, reason }, out);
        }
        self.record(LogEvent::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() }, out);
        self.end_agents(out);
        self.state.head.drain = drain;
        self.state.head.outcome = Some(outcome.clone());
        self.set_phase(Phase::Finished);
        out.push(Action::Finish(outcome));
    }

    /// Ends every agent that is up or being started; those of down nodes are fenced.
    pub(super) fn end_agents(&self, out: &mut Vec<Action>) {
        let nodes = (0u32..).zip(&self.state.nodes);
        let left = nodes.filter(|(_, node)| !node.is_down());
        let to = self.names_of(left.map(|(position, _)| position));
        if !to.is_empty() {
            out.push(Action::StopAgents { to });
        }
    }
}
