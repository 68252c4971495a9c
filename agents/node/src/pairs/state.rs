//! What must survive the agent's process: the plan, how far each pair is, and which processes run.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use holdfast_failover::{BackOff, Snapshot};
use holdfast_model::pair::Term;
use holdfast_process::ProcessId;
use holdfast_wire::pairs::PairsPlan;
use serde::{Deserialize, Serialize};

use super::clock;
use super::error::PairsError;
use crate::state::state_file;

const STATE: &str = "state";

/// The state of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairState {
    pub snapshot: Snapshot,
    /// The processes of main and replica, with their incarnations.
    pub processes: [Option<(u64, ProcessId)>; 2],
    /// The programs that registered as these copies, where they are other processes.
    #[serde(default)]
    pub programs: [Option<(u64, ProcessId)>; 2],
    /// The term that is held; its end is in the registry.
    pub lease: Option<Term>,
    /// The term under which a copy of this node worked last.
    pub worked: Option<Term>,
}

/// The state of a non-critical job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobState {
    pub process: Option<ProcessId>,
    pub back_off: BackOff,
    pub finished: bool,
    pub given_up: bool,
}

/// The content of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Process ids, start times and leases are of this boot.
    pub boot: String,
    pub plan: PairsPlan,
    /// By the pair's number.
    pub pairs: BTreeMap<u32, PairState>,
    /// By the name of the job.
    pub jobs: BTreeMap<String, JobState>,
}

impl State {
    /// The state before a pair was started.
    pub fn of(plan: PairsPlan) -> State {
        State { boot: clock::boot(), plan, pairs: BTreeMap::new(), jobs: BTreeMap::new() }
    }

    pub fn change(&mut self, change: StateChange) {
        let StateChange { plan, pairs, jobs } = change;
        if let Some(plan) = plan {
            self.plan = plan;
        }
        self.pairs.extend(pairs);
        if let Some(jobs) = jobs {
            self.jobs = jobs;
        }
    }
}

/// What differs from the state before.
#[derive(Debug, Default)]
pub(super) struct StateChange {
    pub plan: Option<PairsPlan>,
    /// Numbers and states of pairs.
    pub pairs: Vec<(u32, PairState)>,
    /// The states of all jobs, if one has changed.
    pub jobs: Option<BTreeMap<String, JobState>>,
}

impl StateChange {
    pub fn is_empty(&self) -> bool {
        self.plan.is_none() && self.pairs.is_empty() && self.jobs.is_none()
    }
}

/// The state of an earlier agent. What is of another boot is left out; a damaged file counts as absent.
///
/// # Errors
/// When descriptors or memory are exhausted: copies of an earlier agent may run.
pub(super) fn read(directory: &Path, boot: &str) -> Result<Option<State>, PairsError> {
    let path = directory.join(STATE);
    let failed = |source| PairsError::Io { action: format!("read {}", path.display()), source };
    let Some(mut state) = state_file::read::<State>(&path).map_err(failed)? else { return Ok(None) };
    if let Err(error) = state.plan.check() {
        tracing::warn!(%error, "pairs_state_damaged");
        return Ok(None);
    }
    if state.boot != boot {
        for pair in state.pairs.values_mut() {
            (pair.processes, pair.programs) = ([None, None], [None, None]);
            pair.lease = None;
        }
        state.jobs.values_mut().for_each(|job| job.process = None);
    }
    Ok(Some(state))
}

pub(super) fn remove(directory: &Path) -> Result<(), PairsError> {
    remove_file(&directory.join(STATE))
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> Result<(), PairsError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(PairsError::Io { action: format!("remove {}", path.display()), source })
        }
        _ => Ok(()),
    }
}

pub(super) fn write(directory: &Path, state: &State) -> io::Result<()> {
    state_file::write(&directory.join(STATE), state)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use holdfast_core::crash::{EXHAUSTED, Subject};
    use holdfast_core::temporary;
    use holdfast_wire::pairs::PairsSettings;

    use super::*;

    const PAIR: u32 = 0;
    const HELD: Term = Term { epoch: 1, number: 3 };
    const NEXT: Term = Term { epoch: 1, number: 4 };

    fn plan() -> PairsPlan {
        let (lease, directory) = (Duration::from_secs(2), "/p".into());
        let settings = PairsSettings { lease, directory, ..PairsSettings::default() };
        PairsPlan { epoch: 1, pairs: Vec::new(), jobs: Vec::new(), settings, finished: BTreeSet::new() }
    }

    fn save(directory: &Path, lease: Term) -> Result<(), String> {
        let known = read(directory, &clock::boot()).map_err(|error| error.to_string())?;
        let mut state = known.unwrap_or_else(|| State::of(plan()));
        let pair = state.pairs.get(&PAIR).cloned().unwrap_or_default();
        let change =
            StateChange { pairs: vec![(PAIR, PairState { lease: Some(lease), ..pair })], ..Default::default() };
        state.change(change);
        write(directory, &state).map_err(|error| error.to_string())
    }

    /// An agent that starts again knows the lease that it holds, and under which one a copy has worked.
    #[test]
    fn crash_the_lease_of_a_pair() {
        let prepare = |directory: &Path| {
            fs::create_dir(directory).unwrap();
            let mut state = State::of(plan());
            state.pairs.insert(PAIR, PairState { lease: Some(HELD), worked: Some(HELD), ..PairState::default() });
            write(directory, &state).unwrap();
        };
        let work = |directory: &Path| {
            temporary::remove_abandoned_below(directory).map_err(|error| error.to_string())?;
            save(directory, NEXT)
        };
        let check = |directory: &Path| {
            let state = read(directory, &clock::boot()).map_err(|error| error.to_string())?.ok_or("it is gone")?;
            let pair = state.pairs.get(&PAIR).ok_or("the pair is gone")?;
            let known = [HELD, NEXT].map(Some).contains(&pair.lease) && pair.worked == Some(HELD);
            known.then_some(()).ok_or(format!("{pair:?}"))
        };
        let result = |directory: &Path| {
            let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
            format!("{:?} {:?}", read(directory, &clock::boot()).unwrap(), names.collect::<BTreeSet<_>>())
        };
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let (name, power, errors) = ("lease of a pair", false, EXHAUSTED);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.kills > 3 && tried.errors > 8, "{tried:?}");
    }
}
