//! The halt file of the control directory: recorded reasons to end the job (`docs/scr-files.md` §8).
//!
//! Only the one on the node of rank 0 counts. A file that cannot be read may have held a reason: it is reported as a
//! condition that holds until the file is repaired or removed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Local;
use holdfast_core::control::ControlError;
use holdfast_core::control::halt::{HaltFile, HaltReason};
use holdfast_model::{Generation, HaltChange, HaltCondition, HaltState};
use holdfast_wire::agent::{HaltReport, HaltRequest};
use holdfast_wire::run::Settings;
use parking_lot::Mutex;

use crate::directories::paths::Paths;

/// The time and the limits with which the halt conditions are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since the epoch.
    pub now: i64,
    /// Seconds that are left of the allocation, where that is known.
    pub remaining: Option<i64>,
    /// SCR_HALT_SECONDS, for a file without it.
    pub halt_seconds: Option<i64>,
}

impl Moment {
    /// This instant of a run with these settings.
    pub fn at(now: i64, settings: &Settings) -> Self {
        Moment {
            now,
            remaining: settings.allocation_end.map(|end| end.saturating_sub(now)),
            halt_seconds: i64::try_from(settings.halt_seconds).ok().filter(|seconds| *seconds > 0),
        }
    }
}

/// A health report has the file read again whose content is older. SCR's commands change it without the agent, which
/// [refreshes](HaltKeeper::refresh) it every three seconds.
const FILE_CACHED: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct HaltKeeper {
    path: PathBuf,
    memory: Arc<Mutex<HaltMemory>>,
}

/// The part that is not in the file.
#[derive(Debug, Default)]
struct HaltMemory {
    /// The end of the allocation, if the orchestrator has changed it since the run began; seconds since the epoch.
    end: Option<i64>,
    /// The ranks of this generation are to halt at their next checkpoint.
    requested: Option<HaltRequest>,
    /// The recorded reason is to end the ranks at once.
    immediate: bool,
    /// The conditions of the leader's node that were received last. After a start of the agent: those in the file,
    /// which an earlier agent received.
    received: HaltState,
    file: CachedFile,
}

/// The last content of the halt file.
#[derive(Debug, Default)]
struct CachedFile {
    content: Option<Result<HaltFile, String>>,
    read: Option<Instant>,
    reading: bool,
    /// Counts the changes by this agent: what was read before one is old.
    changes: u64,
}

impl HaltKeeper {
    /// The halt file of the control directory.
    pub fn new(paths: &Paths) -> Self {
        HaltKeeper::of_file(paths.control().join("halt.scrinfo"))
    }

    fn of_file(path: PathBuf) -> Self {
        let file = HaltFile::read(&path).ok().flatten().unwrap_or_default();
        let memory = HaltMemory { received: conditions_of(&file), ..HaltMemory::default() };
        HaltKeeper { path, memory: Arc::new(Mutex::new(memory)) }
    }

    /// Replaces the end of the allocation in the run's settings.
    pub fn allocation_ends(&self, end: i64) {
        self.memory.lock().end = Some(end);
    }

    /// The ranks of a generation are to halt, or need not any more.
    pub fn request(&self, request: HaltRequest) {
        let requested = &mut self.memory.lock().requested;
        if requested.as_ref().is_none_or(|known| known.generation <= request.generation) {
            *requested = Some(request);
        }
    }

    /// Requests for older generations are over.
    pub fn run_begins(&self, generation: Generation) {
        self.memory.lock().requested.take_if(|known| known.generation < generation);
    }

    /// This instant of a run with these settings.
    pub fn moment(&self, now: i64, settings: &Settings) -> Moment {
        let end = self.memory.lock().end;
        let moment = Moment::at(now, settings);
        Moment { remaining: end.map(|end| end.saturating_sub(now)).or(moment.remaining), ..moment }
    }

    /// The conditions, and the first that holds. A file that cannot be read is a condition that holds.
    pub fn state(&self, moment: &Moment) -> HaltState {
        let state = match HaltFile::read(&self.path) {
            Ok(file) => state_of(&file.unwrap_or_default(), moment),
            Err(error) => {
                tracing::warn!(%error, "halt_file_unreadable");
                HaltState { met: Some(unreadable(&error)), ..HaltState::default() }
            }
        };
        self.with_request(state)
    }

    fn with_request(&self, mut state: HaltState) -> HaltState {
        let requested = || self.memory.lock().requested.as_ref().and_then(|request| request.reason.clone());
        state.met = state.met.or_else(requested);
        state
    }

    /// The condition that holds, for a health report; `None` also if the application is finished. Accesses no file: the
    /// content of the file is that of the last read, and the next one is begun when it is old.
    pub fn report(&self, moment: &Moment) -> Option<HaltReport> {
        let mut memory = self.memory.lock();
        let immediate = memory.immediate;
        let file = &mut memory.file;
        if !file.reading && file.read.is_none_or(|read| read.elapsed() >= FILE_CACHED) {
            file.reading = true;
            let (keeper, changes) = (self.clone(), file.changes);
            tokio::task::spawn_blocking(move || keeper.read_again(changes));
        }
        match file.content.as_ref()? {
            Ok(file) => report_of(file, moment, immediate),
            Err(reason) => Some(HaltReport { reason: reason.clone(), immediate: false, ends: None }),
        }
    }

    /// Reads the file for health reports.
    pub fn refresh(&self) {
        let changes = self.memory.lock().file.changes;
        self.read_again(changes);
    }

    fn read_again(&self, changes: u64) {
        let content = HaltFile::read(&self.path).map(Option::unwrap_or_default).map_err(|error| unreadable(&error));
        let file = &mut self.memory.lock().file;
        file.reading = false;
        if file.changes == changes {
            (file.content, file.read) = (Some(content), Some(Instant::now()));
        }
    }

    /// The conditions that hold, in the order in which SCR checks them.
    ///
    /// # Errors
    /// When the file is there and cannot be read: treat it as a reason to halt.
    pub fn reasons(&self, moment: &Moment) -> Result<Vec<HaltReason>, ControlError> {
        let file = HaltFile::read(&self.path)?.unwrap_or_default();
        Ok(file.check(moment.now, moment.remaining, moment.halt_seconds))
    }

    /// Reads the halt file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn check(&self) -> Result<(), ControlError> {
        HaltFile::read(&self.path).map(drop)
    }

    /// Changes the conditions: first removes, then sets.
    ///
    /// # Errors
    /// When the file cannot be changed; it is then as it was.
    pub fn change(&self, change: &HaltChange, moment: &Moment) -> Result<HaltState, ControlError> {
        // The request for the present state, which is asked for before each launch.
        if *change == HaltChange::default() {
            return Ok(self.state(moment));
        }
        self.update(moment, |file| {
            for condition in &change.unset {
                file.unset(*condition);
            }
            if let Some(reason) = &change.reason {
                file.set_reason(reason);
            }
            set_numbers(file, change.checkpoints_left, change.after, change.before, change.seconds);
            let mut memory = self.memory.lock();
            if change.reason.is_some() || change.unset.contains(&HaltCondition::Reason) {
                memory.immediate = change.immediate;
            }
        })
    }

    /// Counts a good checkpoint.
    pub fn decrement(&self, moment: &Moment) -> Result<HaltState, ControlError> {
        self.update(moment, HaltFile::decrement)
    }

    /// Records why the job ends.
    pub fn set_reason(&self, reason: &str, moment: &Moment) -> Result<HaltState, ControlError> {
        self.update(moment, |file| file.set_reason(reason))
    }

    /// Takes over the conditions of the leader's node, except for those that were changed here since the last time: see
    /// [`HaltState::updated`].
    pub fn take_over(&self, leader: &HaltState, moment: &Moment) -> Result<HaltState, ControlError> {
        let leader = HaltState { met: None, ..leader.clone() };
        let before = self.memory.lock().received.clone();
        // They come with every checkpoint, usually unchanged.
        if let Ok(Some(file)) = HaltFile::read(&self.path) {
            let known = conditions_of(&file);
            if known == known.updated(&before, &leader) {
                self.memory.lock().received = leader;
                return Ok(state_of(&file, moment));
            }
        }
        let state = self.update(moment, |file| {
            let conditions = conditions_of(file).updated(&before, &leader);
            *file = HaltFile::new();
            let HaltState { reason, checkpoints_left, after, before, seconds, met: _ } = conditions;
            set_numbers(file, checkpoints_left, after, before, seconds);
            if let Some(reason) = &reason {
                file.set_reason(reason);
            }
        })?;
        self.memory.lock().received = leader;
        Ok(state)
    }

    /// Removes all conditions.
    pub fn clear(&self) -> Result<(), ControlError> {
        HaltFile::remove(&self.path)?;
        self.memory.lock().received = HaltState::default();
        self.changed(HaltFile::new());
        Ok(())
    }

    fn update(&self, moment: &Moment, change: impl FnOnce(&mut HaltFile)) -> Result<HaltState, ControlError> {
        let file = HaltFile::update(&self.path, |file| {
            change(file);
            file.clone()
        })?;
        let state = state_of(&file, moment);
        self.changed(file);
        Ok(self.with_request(state))
    }

    /// Health reports have the change at once.
    fn changed(&self, content: HaltFile) {
        let file = &mut self.memory.lock().file;
        file.changes += 1;
        (file.content, file.read) = (Some(Ok(content)), Some(Instant::now()));
    }
}

fn unreadable(error: &ControlError) -> String {
    format!("The halt file may hold a reason, but {error}.")
}

fn report_of(file: &HaltFile, moment: &Moment, immediate: bool) -> Option<HaltReport> {
    let reasons = file.check(moment.now, moment.remaining, moment.halt_seconds);
    if reasons.iter().any(HaltReason::is_finished) {
        return None;
    }
    let is_recorded = |reason: &HaltReason| matches!(reason, HaltReason::Recorded(_));
    if immediate && let Some(recorded) = reasons.iter().find(|reason| is_recorded(reason)) {
        return Some(HaltReport { reason: recorded.message(&Local), immediate, ends: None });
    }
    // A reason that is about the present is more urgent than one that is about a later time.
    let ends = |reason: &HaltReason| match reason {
        HaltReason::TimeLimit { remaining, .. } => Some(moment.now.saturating_add(*remaining)),
        HaltReason::ExitBefore { .. } => file.number(HaltCondition::Before),
        _ => None,
    };
    let urgent = reasons.iter().find(|reason| ends(reason).is_none());
    let reason = urgent.or(reasons.first())?;
    let text = match (reason, ends(reason)) {
        // Without the time that is left: a report that changes every second would be sent every second.
        (HaltReason::TimeLimit { halt_seconds, .. }, Some(_)) => {
            format!("the allocation halts {halt_seconds} s before its end")
        }
        _ => reason.message(&Local),
    };
    Some(HaltReport { reason: text, immediate: false, ends: ends(reason) })
}

fn set_numbers(file: &mut HaltFile, left: Option<i64>, after: Option<i64>, before: Option<i64>, seconds: Option<i64>) {
    let given = [
        (HaltCondition::CheckpointsLeft, left),
        (HaltCondition::After, after),
        (HaltCondition::Before, before),
        (HaltCondition::Seconds, seconds),
    ];
    for (condition, number) in given.into_iter().filter_map(|(condition, number)| Some((condition, number?))) {
        file.set_number(condition, number);
    }
}

/// Without the one that holds.
fn conditions_of(file: &HaltFile) -> HaltState {
    HaltState {
        reason: file.reason().map(str::to_owned),
        checkpoints_left: file.number(HaltCondition::CheckpointsLeft),
        after: file.number(HaltCondition::After),
        before: file.number(HaltCondition::Before),
        seconds: file.number(HaltCondition::Seconds),
        met: None,
    }
}

fn state_of(file: &HaltFile, moment: &Moment) -> HaltState {
    let reasons = file.check(moment.now, moment.remaining, moment.halt_seconds);
    HaltState { met: reasons.first().map(|reason| reason.message(&Local)), ..conditions_of(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> (tempfile::TempDir, HaltKeeper) {
        let directory = tempfile::tempdir().unwrap();
        let keeper = HaltKeeper::of_file(directory.path().join("halt.scrinfo"));
        (directory, keeper)
    }

    fn at(now: i64) -> Moment {
        Moment { now, ..Moment::default() }
    }

    #[test]
    fn a_changed_condition_holds_from_its_time_on_and_can_be_removed() {
        let (_directory, keeper) = keeper();
        assert_eq!(keeper.state(&at(5)).met, None);
        let change = HaltChange { before: Some(1000), seconds: Some(100), ..HaltChange::default() };
        assert_eq!(keeper.change(&change, &at(899)).unwrap().met, None);
        assert!(keeper.state(&at(900)).met.unwrap().contains("(`before` minus `seconds`)"));
        let unset = HaltChange { unset: vec![HaltCondition::Before], ..HaltChange::default() };
        let state = keeper.change(&unset, &at(900)).unwrap();
        assert_eq!((state.before, state.seconds, state.met), (None, Some(100), None));
    }

    #[test]
    fn the_last_requested_checkpoint_halts() {
        let (_directory, keeper) = keeper();
        keeper.change(&HaltChange { checkpoints_left: Some(2), ..HaltChange::default() }, &at(0)).unwrap();
        assert_eq!(keeper.decrement(&at(0)).unwrap().met, None);
        assert_eq!(
            keeper.decrement(&at(0)).unwrap().met.as_deref(),
            Some("the requested number of checkpoints is reached")
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_halts_and_is_named() {
        let (_directory, keeper) = keeper();
        std::fs::write(&keeper.path, "not a hash file, and longer than the header of one").unwrap();
        assert!(keeper.state(&at(0)).met.unwrap().contains("halt.scrinfo"));
        assert!(keeper.reasons(&at(0)).is_err());
        assert!(keeper.decrement(&at(0)).is_err());
        assert!(keeper.check().is_err());
    }

    #[test]
    fn a_request_holds_for_its_generation_only_and_is_not_recorded() {
        let (_directory, keeper) = keeper();
        keeper.request(HaltRequest { generation: Generation(2), reason: Some("SIGTERM".to_owned()) });
        assert_eq!(keeper.state(&at(0)).met.as_deref(), Some("SIGTERM"));
        keeper.request(HaltRequest { generation: Generation(1), reason: None });
        assert_eq!(keeper.decrement(&at(0)).unwrap().met.as_deref(), Some("SIGTERM"));
        assert_eq!(keeper.reasons(&at(0)).unwrap(), []);
        keeper.run_begins(Generation(2));
        assert!(keeper.state(&at(0)).met.is_some());
        keeper.run_begins(Generation(3));
        assert_eq!(keeper.state(&at(0)).met, None);
    }

    #[test]
    fn a_health_report_has_the_most_urgent_condition_and_none_of_a_finished_application() {
        let mut file = HaltFile::new();
        assert_eq!(report_of(&file, &at(0), false), None);
        file.set_number(HaltCondition::Before, 1000);
        file.set_number(HaltCondition::Seconds, 300);
        let ends = |file: &HaltFile, moment: &Moment| report_of(file, moment, false).unwrap().ends;
        assert_eq!(ends(&file, &at(700)), Some(1000));
        let moment = Moment { remaining: Some(50), ..at(10) };
        assert_eq!(ends(&file, &moment), Some(60));
        file.set_reason("JOB_HALTED");
        let report = HaltReport { reason: "JOB_HALTED".to_owned(), immediate: false, ends: None };
        assert_eq!(report_of(&file, &moment, false), Some(report.clone()));
        assert_eq!(report_of(&file, &moment, true), Some(HaltReport { immediate: true, ..report }));
        file.set_reason(holdfast_core::control::halt::reason::FINALIZE_CALLED);
        assert_eq!(report_of(&file, &moment, false), None);
    }

    #[tokio::test]
    async fn a_health_report_has_own_changes_at_once_and_those_of_others_later() {
        let (_directory, keeper) = keeper();
        let change = HaltChange { reason: Some("NOW".to_owned()), immediate: true, ..HaltChange::default() };
        keeper.change(&change, &at(0)).unwrap();
        let report = keeper.report(&at(0)).unwrap();
        assert_eq!((report.reason.as_str(), report.immediate), ("NOW", true));
        let unset = HaltChange { unset: vec![HaltCondition::Reason], ..HaltChange::default() };
        keeper.change(&unset, &at(0)).unwrap();
        assert_eq!(keeper.report(&at(0)), None);
        HaltFile::update(&keeper.path, |file| file.set_reason("SCR")).unwrap();
        let begun = Instant::now();
        while keeper.report(&at(0)).is_none_or(|report| report.reason != "SCR") {
            assert!(begun.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[test]
    fn conditions_of_the_leader_replace_those_that_an_earlier_agent_received() {
        let (directory, keeper) = keeper();
        keeper.change(&HaltChange { after: Some(3), ..HaltChange::default() }, &at(0)).unwrap();
        let keeper = HaltKeeper::of_file(directory.path().join("halt.scrinfo"));
        let leader = HaltState { reason: Some("JOB_HALTED".to_owned()), seconds: Some(7), ..HaltState::default() };
        let state = keeper.take_over(&leader, &at(10)).unwrap();
        assert_eq!(state.met.as_deref(), Some("JOB_HALTED"));
        assert_eq!((state.after, state.seconds), (None, Some(7)));
    }

    #[test]
    fn a_condition_that_is_set_while_the_conditions_of_the_leader_are_under_way_is_kept() {
        let (_directory, keeper) = keeper();
        let of_checkpoint = HaltState { seconds: Some(7), ..HaltState::default() };
        keeper.take_over(&of_checkpoint, &at(0)).unwrap();
        keeper.change(&HaltChange { reason: Some("NOW".to_owned()), ..HaltChange::default() }, &at(0)).unwrap();
        let state = keeper.take_over(&of_checkpoint, &at(0)).unwrap();
        assert_eq!((state.met.as_deref(), state.seconds), (Some("NOW"), Some(7)));
        assert_eq!(keeper.state(&at(0)).met.as_deref(), Some("NOW"));
        // The leader has received the condition, and then its removal.
        keeper.take_over(&HaltState { reason: Some("NOW".to_owned()), ..of_checkpoint.clone() }, &at(0)).unwrap();
        keeper.take_over(&of_checkpoint, &at(0)).unwrap();
        assert_eq!(keeper.state(&at(0)).met, None);
    }
}
