//! What happened in a run, from successive states of the control directory on the node of rank 0.
//!
//! * The nodes file is written at each start of the library, and by no other process.
//! * A checkpoint is listed in a filemap when its first file is routed, and in the flush file when it is complete.
//! * At its start the library restarts from one checkpoint and deletes all others, then writes the flush file.
//! * It writes the flush file before it knows whether all ranks have their files: a restart from cache is certain when
//!   a higher number follows, or when that checkpoint stays.
//! * A reason in the halt file is recorded when the application is finished, or ends because of a halt condition.
//!
//! `docs/scr-files.md` §4, §7 to §9, §17.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_core::control::halt::reason::FINALIZE_CALLED;
use holdfast_model::{CheckpointId, Locations, RestartSource};

use super::file_version::FileVersion;

/// A checkpoint that stays in cache for so long after the start of the library is the one of the restart, unless its
/// files are rebuilt for longer.
const CERTAIN_AFTER: Duration = Duration::from_secs(2);

/// A state of the control directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryState {
    pub nodes_file: Option<FileVersion>,
    pub flush_file: Option<FileVersion>,
    /// The content of the flush file.
    pub flush: BTreeMap<CheckpointId, Locations>,
    /// Checkpoints that the filemaps list.
    pub listed: BTreeSet<CheckpointId>,
    /// ExitReason of the halt file.
    pub halt_reason: Option<String>,
}

/// A change that two successive states of the control directory show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryEvent {
    /// The library has begun to initialise the ranks.
    Started,
    Restarted {
        checkpoint: Option<CheckpointId>,
        source: RestartSource,
    },
    CheckpointStarted(CheckpointId),
    /// A checkpoint is complete; it took this time, as far as that was observed.
    CheckpointComplete {
        checkpoint: CheckpointId,
        took: Duration,
    },
    /// A checkpoint reached the prefix directory; it took this time since it was complete.
    Flushed {
        checkpoint: CheckpointId,
        took: Duration,
    },
    Halting(String),
    Finalized,
}

/// The checkpoint in cache from which the ranks restart if all of them have their files.
#[derive(Clone, Copy, Debug)]
struct ChosenCheckpoint {
    id: CheckpointId,
    since: Duration,
    /// Where it is, while the flush file has it.
    locations: Option<Locations>,
}

/// The events of one generation.
#[derive(Debug, Default)]
pub struct LibraryProgress {
    /// The state before the launch.
    before: LibraryState,
    /// The newest checkpoint that earlier generations completed.
    newest: Option<CheckpointId>,
    /// Checkpoints that were in the prefix directory before the launch.
    in_prefix: BTreeSet<CheckpointId>,
    /// True if the library has begun to initialise the ranks.
    pub started: bool,
    /// The checkpoint in cache that the library has chosen, while some rank may still lack its files.
    chosen: Option<ChosenCheckpoint>,
    /// The restart is reported.
    restarted: bool,
    /// The checkpoint that it was reported from.
    from: Option<CheckpointId>,
    /// No checkpoint of before the launch is left.
    emptied: bool,
    begun: BTreeMap<CheckpointId, Duration>,
    complete: BTreeMap<CheckpointId, Duration>,
    flushed: BTreeSet<CheckpointId>,
    /// The reason that was reported last.
    reason: Option<String>,
}

impl LibraryProgress {
    /// Before the launch of a generation.
    pub fn new(before: LibraryState, newest: Option<CheckpointId>) -> Self {
        LibraryProgress { before, newest, ..LibraryProgress::default() }
    }

    /// In the middle of a generation, by an agent that was restarted: what the earlier one reported after the launch
    /// is reported again.
    pub fn adopted(now: LibraryState, newest: Option<CheckpointId>) -> Self {
        let known = now.flush.keys().filter(|id| Some(**id) <= newest).map(|id| (*id, Duration::ZERO));
        let complete: BTreeMap<_, _> = known.collect();
        let begun = complete.clone();
        let before = LibraryState { nodes_file: None, ..LibraryState::default() };
        let restarted = now.nodes_file.is_some();
        LibraryProgress { complete, begun, restarted, ..LibraryProgress::new(before, newest) }
    }

    /// Adds checkpoints that were in the prefix directory before the launch.
    pub fn known_in_prefix(&mut self, checkpoints: impl IntoIterator<Item = CheckpointId>) {
        self.in_prefix.extend(checkpoints);
    }

    /// What happened since the last state.
    pub fn observe(&mut self, now: Duration, state: &LibraryState) -> Vec<LibraryEvent> {
        let mut events = Vec::new();
        if !self.started {
            if state.nodes_file.is_none() || state.nodes_file == self.before.nodes_file {
                return events;
            }
            self.started = true;
            events.push(LibraryEvent::Started);
        }
        let cached: Vec<CheckpointId> = state.flush.iter().filter(|(_, at)| at.cache).map(|(id, _)| *id).collect();
        if !self.restarted {
            self.examine_choice(now, state, &mut events);
            if !self.restarted {
                self.find_restart(now, state, &cached, &mut events);
            }
        } else if self.from.is_some_and(|from| self.was_dropped(from, state)) {
            self.begin_anew(now, &mut events);
        }
        for id in state.listed.iter().filter(|id| !state.flush.contains_key(*id)) {
            if self.is_new(*id) && !self.begun.contains_key(id) {
                self.begun.insert(*id, now);
                events.push(LibraryEvent::CheckpointStarted(*id));
            }
        }
        for id in &cached {
            if self.complete.contains_key(id) || (!self.restarted && !self.is_new(*id)) {
                continue;
            }
            if !self.restarted {
                let from = self.restarted_before(*id);
                self.restart(now, from, RestartSource::Cache, &mut events);
            }
            let took = self.begun.get(id).map_or(Duration::ZERO, |begun| now.saturating_sub(*begun));
            self.complete.insert(*id, now);
            events.push(LibraryEvent::CheckpointComplete { checkpoint: *id, took });
        }
        for (id, _) in state.flush.iter().filter(|(_, at)| at.pfs) {
            if let Some(complete) = self.complete.get(id).copied()
                && self.flushed.insert(*id)
            {
                events.push(LibraryEvent::Flushed { checkpoint: *id, took: now.saturating_sub(complete) });
            }
        }
        // The ids of a later restart from an older checkpoint are used again.
        self.complete.retain(|id, _| state.flush.contains_key(id));
        self.begun.retain(|id, _| state.listed.contains(id));
        self.flushed.retain(|id| state.flush.contains_key(id));
        if state.halt_reason != self.reason {
            self.reason.clone_from(&state.halt_reason);
            match &self.reason {
                Some(reason) if reason == FINALIZE_CALLED => events.push(LibraryEvent::Finalized),
                Some(reason) => events.push(LibraryEvent::Halting(reason.clone())),
                None => {}
            }
        }
        events
    }

    /// What the time alone shows.
    pub fn pass(&mut self, now: Duration) -> Vec<LibraryEvent> {
        let mut events = Vec::new();
        let stays =
            |chosen: &ChosenCheckpoint| chosen.locations.is_some() && now.saturating_sub(chosen.since) >= CERTAIN_AFTER;
        if let Some(chosen) = self.chosen.filter(stays) {
            self.restart_from_choice(now, chosen, &mut events);
        }
        events
    }

    /// Finds out whether the ranks restarted from the chosen checkpoint, or it was dropped.
    fn examine_choice(&mut self, now: Duration, state: &LibraryState, events: &mut Vec<LibraryEvent>) {
        let Some(chosen) = &mut self.chosen else { return };
        chosen.locations = state.flush.get(&chosen.id).copied();
        let chosen = *chosen;
        let has_higher = state.listed.iter().chain(state.flush.keys()).any(|id| *id > chosen.id);
        let has_ended = state.halt_reason.is_some() && state.halt_reason != self.before.halt_reason;
        if has_higher || has_ended && chosen.locations.is_some() {
            self.restart_from_choice(now, chosen, events);
        } else if self.was_dropped(chosen.id, state) {
            self.begin_anew(now, events);
        }
    }

    fn restart_from_choice(&mut self, now: Duration, chosen: ChosenCheckpoint, events: &mut Vec<LibraryEvent>) {
        self.restart(now, Some(chosen.id), RestartSource::Cache, events);
        if chosen.locations.is_some_and(|at| at.pfs) {
            self.flushed.insert(chosen.id);
        }
    }

    /// The ranks began from the beginning: their numbers count from one again.
    fn begin_anew(&mut self, now: Duration, events: &mut Vec<LibraryEvent>) {
        self.emptied = true;
        self.complete.clear();
        self.restart(now, None, RestartSource::Fresh, events);
    }

    /// True if the library began from the beginning although it had chosen a checkpoint: some rank had lost its files.
    /// It has deleted that checkpoint, and the first one that follows has a lower number.
    fn was_dropped(&self, from: CheckpointId, state: &LibraryState) -> bool {
        let of_run = || state.listed.iter().chain(state.flush.keys());
        of_run().all(|id| *id < from && !self.before.flush.contains_key(id)) && of_run().next().is_some()
    }

    /// True for a checkpoint from which the ranks cannot be restarting.
    fn is_new(&self, id: CheckpointId) -> bool {
        if self.restarted || self.emptied {
            return !self.complete.contains_key(&id);
        }
        Some(id) > self.newest && !self.before.flush.contains_key(&id) && !self.in_prefix.contains(&id)
    }

    /// The checkpoint from which the ranks restarted, if `first` is the first new one that was seen: ids continue from
    /// it. It may have been evicted meanwhile.
    fn restarted_before(&self, first: CheckpointId) -> Option<CheckpointId> {
        let before = self.before.flush.keys().chain(&self.newest).chain(&self.in_prefix);
        before.filter(|id| !self.emptied && **id < first).max().copied()
    }

    /// Finds out from which checkpoint the ranks restart: the only one that is left when the flush file was written.
    fn find_restart(
        &mut self,
        now: Duration,
        state: &LibraryState,
        cached: &[CheckpointId],
        events: &mut Vec<LibraryEvent>,
    ) {
        let written = state.flush_file != self.before.flush_file;
        if written && cached.is_empty() && state.listed.is_empty() {
            self.emptied = true;
        }
        let [only] = cached else { return };
        if !written || self.is_new(*only) {
            return;
        }
        let fetched = !self.before.flush.contains_key(only)
            && self.in_prefix.contains(only)
            && state.flush.get(only).is_some_and(|at| at.pfs);
        if !fetched {
            if self.chosen.is_none_or(|chosen| chosen.id != *only) {
                self.chosen =
                    Some(ChosenCheckpoint { id: *only, since: now, locations: state.flush.get(only).copied() });
            }
            return;
        }
        self.restart(now, Some(*only), RestartSource::Fetched, events);
        if state.flush.get(only).is_some_and(|at| at.pfs) {
            self.flushed.insert(*only);
        }
    }

    fn restart(
        &mut self,
        now: Duration,
        checkpoint: Option<CheckpointId>,
        source: RestartSource,
        events: &mut Vec<LibraryEvent>,
    ) {
        (self.restarted, self.from, self.chosen) = (true, checkpoint, None);
        let source = if checkpoint.is_none() { RestartSource::Fresh } else { source };
        self.complete.extend(checkpoint.map(|id| (id, now)));
        events.push(LibraryEvent::Restarted { checkpoint, source });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: Locations = Locations { cache: true, pfs: false, flushing: false };
    const BOTH: Locations = Locations { cache: true, pfs: true, flushing: false };

    fn id(number: u64) -> CheckpointId {
        CheckpointId(number)
    }

    fn state(nodes: u64, flush: &[(u64, Locations)], listed: &[u64]) -> LibraryState {
        LibraryState {
            nodes_file: (nodes > 0).then(|| FileVersion::of_test(nodes)),
            // Written whenever its content changes, and at each start.
            flush_file: Some(FileVersion::of_test(1000 * nodes + flush.iter().map(|(id, _)| 10 * id + 1).sum::<u64>())),
            flush: flush.iter().map(|(number, at)| (id(*number), *at)).collect(),
            listed: listed.iter().map(|number| id(*number)).collect(),
            halt_reason: None,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_first_run_reports_its_checkpoints_flushes_and_end() {
        let mut progress = LibraryProgress::new(LibraryState::default(), None);
        assert_eq!(progress.observe(at(0), &LibraryState::default()), []);
        let mut started = state(1, &[], &[]);
        started.flush_file = None;
        assert_eq!(progress.observe(at(1), &started), [LibraryEvent::Started]);
        assert_eq!(progress.observe(at(2), &state(1, &[], &[1])), [LibraryEvent::CheckpointStarted(id(1))]);
        assert_eq!(
            progress.observe(at(5), &state(1, &[(1, CACHE)], &[1])),
            [
                LibraryEvent::Restarted { checkpoint: None, source: RestartSource::Fresh },
                LibraryEvent::CheckpointComplete { checkpoint: id(1), took: at(3) }
            ]
        );
        assert_eq!(
            progress.observe(at(9), &state(1, &[(1, BOTH)], &[1])),
            [LibraryEvent::Flushed { checkpoint: id(1), took: at(4) }]
        );
        let end = LibraryState { halt_reason: Some(FINALIZE_CALLED.to_owned()), ..state(1, &[(1, BOTH)], &[1]) };
        assert_eq!(progress.observe(at(10), &end), [LibraryEvent::Finalized]);
        assert_eq!(progress.observe(at(11), &end), []);
    }

    #[test]
    fn a_restart_from_cache_is_no_new_checkpoint_and_the_next_one_is() {
        let before = state(1, &[(2, CACHE), (3, CACHE)], &[2, 3]);
        let mut progress = LibraryProgress::new(before.clone(), Some(id(3)));
        assert_eq!(progress.observe(at(0), &before), []);
        let begins = LibraryState { nodes_file: Some(FileVersion::of_test(2)), ..before };
        assert_eq!(progress.observe(at(1), &begins), [LibraryEvent::Started]);
        assert_eq!(progress.observe(at(2), &state(2, &[(3, CACHE)], &[3])), []);
        assert_eq!(progress.pass(at(3)), [], "some rank may lack its files");
        let both = state(2, &[(3, CACHE), (4, CACHE)], &[3, 4]);
        let restarted = LibraryEvent::Restarted { checkpoint: Some(id(3)), source: RestartSource::Cache };
        assert_eq!(
            progress.observe(at(4), &both),
            [restarted, LibraryEvent::CheckpointComplete { checkpoint: id(4), took: at(0) }]
        );
        assert!(progress.observe(at(5), &both).is_empty());
    }

    #[test]
    fn a_restart_whose_checkpoint_is_gone_when_lower_numbers_follow_is_from_the_beginning() {
        let before = state(1, &[(8, CACHE)], &[8]);
        let empty = state(2, &[], &[]);
        let fresh = LibraryEvent::Restarted { checkpoint: None, source: RestartSource::Fresh };
        let from_cache = LibraryEvent::Restarted { checkpoint: Some(id(8)), source: RestartSource::Cache };
        for (seen, late) in [(true, false), (false, false), (true, true)] {
            let mut progress = LibraryProgress::new(before.clone(), Some(id(8)));
            assert_eq!(progress.observe(at(1), &state(2, &[(8, CACHE)], &[8])), [LibraryEvent::Started]);
            if late {
                // The library rebuilds files for longer: what was reported is corrected.
                assert_eq!(progress.pass(at(3)), std::slice::from_ref(&from_cache));
            }
            if seen {
                // A cache for one checkpoint looks the same before the next one.
                assert_eq!(progress.observe(at(3), &empty), []);
                assert_eq!(progress.pass(at(4)), []);
            }
            let complete = |number| LibraryEvent::CheckpointComplete { checkpoint: id(number), took: at(0) };
            assert_eq!(progress.observe(at(4), &state(2, &[(1, CACHE)], &[1])), [fresh.clone(), complete(1)]);
            assert_eq!(progress.observe(at(5), &state(2, &[(2, CACHE)], &[2])), [complete(2)]);
        }
        let mut progress = LibraryProgress::new(before.clone(), Some(id(8)));
        progress.observe(at(1), &state(2, &[(8, CACHE)], &[8]));
        assert_eq!(progress.observe(at(2), &empty), []);
        let next = progress.observe(at(3), &state(2, &[], &[9]));
        assert_eq!(next, [from_cache, LibraryEvent::CheckpointStarted(id(9))]);
    }

    #[test]
    fn a_spare_that_takes_rank_0_knows_the_restart_by_the_newest_checkpoint_of_the_job() {
        let mut progress = LibraryProgress::new(LibraryState::default(), Some(id(3)));
        let restored = state(1, &[(3, CACHE)], &[3]);
        assert_eq!(progress.observe(at(1), &restored), [LibraryEvent::Started]);
        assert_eq!(
            progress.pass(at(3)),
            [LibraryEvent::Restarted { checkpoint: Some(id(3)), source: RestartSource::Cache }]
        );
        assert_eq!(progress.pass(at(4)), []);
    }

    #[test]
    fn a_restart_is_known_by_the_first_new_checkpoint_if_nothing_was_seen_before_it() {
        let before = state(1, &[(1, CACHE), (2, CACHE)], &[1, 2]);
        let mut progress = LibraryProgress::new(before, Some(id(2)));
        let events = progress.observe(at(1), &state(2, &[(3, CACHE), (4, CACHE)], &[3, 4]));
        assert_eq!(
            events[1..],
            [
                LibraryEvent::Restarted { checkpoint: Some(id(2)), source: RestartSource::Cache },
                LibraryEvent::CheckpointComplete { checkpoint: id(3), took: at(0) },
                LibraryEvent::CheckpointComplete { checkpoint: id(4), took: at(0) }
            ]
        );
    }

    #[test]
    fn a_fetched_checkpoint_is_a_restart_and_a_new_one_that_was_flushed_at_once_is_not() {
        for (known, expected) in [
            (Some(6), LibraryEvent::Restarted { checkpoint: Some(id(6)), source: RestartSource::Fetched }),
            (None, LibraryEvent::Restarted { checkpoint: None, source: RestartSource::Fresh }),
        ] {
            let mut progress = LibraryProgress::new(LibraryState::default(), None);
            progress.known_in_prefix(known.map(id));
            let events = progress.observe(at(1), &state(1, &[(6, BOTH)], &[6]));
            assert_eq!(events[1], expected);
            let complete = events.contains(&LibraryEvent::CheckpointComplete { checkpoint: id(6), took: at(0) });
            assert_eq!(complete, known.is_none(), "{events:?}");
        }
    }

    #[test]
    fn a_run_that_finds_no_usable_checkpoint_counts_from_one_again() {
        let before = state(1, &[(2, CACHE), (3, CACHE)], &[2, 3]);
        let mut progress = LibraryProgress::new(before, Some(id(3)));
        assert_eq!(progress.observe(at(1), &state(2, &[], &[])), [LibraryEvent::Started]);
        assert_eq!(
            progress.observe(at(2), &state(2, &[(1, CACHE)], &[1])),
            [
                LibraryEvent::Restarted { checkpoint: None, source: RestartSource::Fresh },
                LibraryEvent::CheckpointComplete { checkpoint: id(1), took: at(0) }
            ]
        );
    }

    #[test]
    fn a_halt_reason_is_reported_when_it_changes_and_only_once_the_library_has_started() {
        let halted = |reason: &str| LibraryState { halt_reason: Some(reason.to_owned()), ..state(1, &[], &[]) };
        let mut progress = LibraryProgress::new(LibraryState::default(), None);
        let early = LibraryState { nodes_file: None, ..halted("JOB_HALTED") };
        assert_eq!(progress.observe(at(0), &early), []);
        assert_eq!(
            progress.observe(at(1), &halted("JOB_HALTED")),
            [LibraryEvent::Started, LibraryEvent::Halting("JOB_HALTED".to_owned())]
        );
        assert_eq!(progress.observe(at(2), &state(1, &[], &[])), []);
        assert_eq!(
            progress.observe(at(3), &halted("NO_CHECKPOINTS_LEFT")),
            [LibraryEvent::Halting("NO_CHECKPOINTS_LEFT".to_owned())]
        );
    }

    #[test]
    fn an_agent_that_was_restarted_reports_the_checkpoints_since_the_launch() {
        let now = state(2, &[(3, CACHE), (4, CACHE)], &[3, 4, 5]);
        let mut progress = LibraryProgress::adopted(now.clone(), Some(id(3)));
        assert_eq!(
            progress.observe(at(1), &now),
            [
                LibraryEvent::Started,
                LibraryEvent::CheckpointStarted(id(5)),
                LibraryEvent::CheckpointComplete { checkpoint: id(4), took: at(0) }
            ]
        );
    }
}
