//! Removes what finished steps of the job left on this node before the next step begins. Its checkpoints count from 1
//! again, and it must neither restart from theirs nor stop because of their halt conditions.
//!
//! The directories of another job with the same id are removed too, before an agent uses them.
//!
//! A state file records up to which step this was done. It is written last, so that the request is repeated if the
//! agent dies before; an agent that is restarted later keeps what the present step has in cache.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::control::ControlError;
use holdfast_model::{CheckpointId, Generation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::directories::claim::{self, ClaimError};
use crate::directories::kept;
use crate::directories::paths::Paths;
use crate::state::{memory, state_file};
use crate::store::{FlushRecord, StoreError};

/// The state file with the last generation of the steps whose remains were removed.
const FORGOTTEN: &str = "holdfast.forgotten";
/// That with the number of runs whose halt conditions were removed.
const ENDED_RUNS: &str = "holdfast.ended_runs";

/// Why the remains of a finished step could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Halt(#[from] ControlError),
    #[error("cannot record in {directory} what was removed: {source}; is it full or read-only?")]
    Record { directory: String, source: std::io::Error },
    #[error(
        "the control directory holds checkpoint {checkpoint} of the prefix directory {}, which is not there yet; save \
         it with `holdfast drain --prefix {}`",
        prefix.display(),
        prefix.display()
    )]
    Undrained { checkpoint: CheckpointId, prefix: PathBuf },
    #[error(
        "checkpoint {checkpoint} of the node is in the prefix directory {} already: restart from there, or use \
         `holdfast drain --prefix {}`",
        prefix.display(),
        prefix.display()
    )]
    Drained { checkpoint: CheckpointId, prefix: PathBuf },
    #[error(
        "{} is used by the job in the prefix directory {}, which runs in the same allocation; run one job after the \
         other, or give each directories of its own (`checkpoint.control.base` and the bases of `checkpoint.cache`)",
        control.display(),
        prefix.display()
    )]
    Running { control: PathBuf, prefix: PathBuf },
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Deletes datasets and halt conditions of the steps up to generation `finished`, unless that was done before. Blocks.
///
/// # Errors
/// When something cannot be deleted; it can be done again.
pub fn finished_steps(agent: &Agent, finished: Generation) -> Result<(), ForgetError> {
    let control = agent.paths.control();
    if known(&control, FORGOTTEN)?.unwrap_or(Generation::NONE) >= finished {
        return Ok(());
    }
    agent.halt.clear()?;
    // Also datasets that LLNL's library has written since this agent read the filemaps.
    agent.store.begin_run(&[], &[])?;
    agent.store.clear()?;
    record(&control, FORGOTTEN, &finished)
}

/// Removes the directories of the job in another prefix directory: two jobs in one Slurm allocation have the same id,
/// and so the same directories. The agent of that job must have ended, and its newest checkpoint be on its prefix
/// directory. No file of its state may stay: its generations have the same numbers. A drain leaves its checkpoints:
/// `drains_only`. Those of a job in an earlier `allocation` with the same id are set aside instead. Blocks.
///
/// # Errors
/// [`ForgetError::Running`], [`ForgetError::Undrained`], [`ForgetError::Drained`], or something cannot be removed.
pub(crate) fn other_job(
    paths: &Paths,
    (prefix, allocation): (&Path, Option<&str>),
    bases: &[String],
    drains_only: bool,
) -> Result<(), ForgetError> {
    let is_earlier = paths.allocation().zip(allocation).is_some_and(|(ours, theirs)| ours != theirs);
    let paths = paths.of_owner(prefix);
    let control = claim::directory(&paths, paths.control_node_path())?;
    if is_earlier {
        claim::wait_for_expiry(&control)?;
    }
    let running = || ForgetError::Running { control: paths.control(), prefix: prefix.to_owned() };
    let claim = claim::claim_unused(control)?.ok_or_else(running)?;
    let bases = all_bases(&paths.control(), bases);
    let locations = FlushRecord::open(&paths).locations()?;
    if is_earlier && (drains_only || locations.values().any(|at| at.cache && !at.pfs)) {
        kept::set_aside(&paths, (prefix, allocation), &bases)?;
        drop(claim);
        return Ok(());
    }
    let newest = locations.iter().rev().find(|(_, at)| at.cache);
    match newest {
        Some((&checkpoint, at)) if !at.pfs => {
            return Err(ForgetError::Undrained { checkpoint, prefix: prefix.to_owned() });
        }
        Some((&checkpoint, _)) if drains_only => {
            return Err(ForgetError::Drained { checkpoint, prefix: prefix.to_owned() });
        }
        _ => {}
    }
    claim::remove(&paths, bases.into_iter())?;
    drop(claim);
    Ok(())
}

/// These bases, and those of the plan in a control directory.
pub(crate) fn all_bases(control: &Path, bases: &[String]) -> Vec<String> {
    let planned = memory::read_plan(control).ok().flatten();
    let planned = planned.map(|plan| plan.shared.settings.caches).unwrap_or_default();
    let planned = planned.into_iter().map(|cache| cache.base);
    let all: BTreeSet<String> = bases.iter().cloned().chain(planned).collect();
    all.into_iter().collect()
}

/// Removes the halt conditions of earlier runs in this allocation, unless that was done before: each run has conditions
/// of its own, and the reason why the last one ended must not end this one. Blocks.
///
/// # Errors
/// When they cannot be removed; it can be done again.
pub fn earlier_runs(agent: &Agent, runs: u32) -> Result<(), ForgetError> {
    let control = agent.paths.control();
    if known(&control, ENDED_RUNS)?.unwrap_or(0) >= runs {
        return Ok(());
    }
    agent.halt.clear()?;
    record(&control, ENDED_RUNS, &runs)
}

fn known<T: DeserializeOwned>(control: &Path, file: &str) -> Result<Option<T>, ForgetError> {
    state_file::read(&control.join(file)).map_err(unrecorded(control))
}

fn record(control: &Path, file: &str, value: &impl Serialize) -> Result<(), ForgetError> {
    state_file::write(&control.join(file), value).map_err(unrecorded(control))
}

fn unrecorded(control: &Path) -> impl FnOnce(io::Error) -> ForgetError {
    |source| ForgetError::Record { directory: control.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::fixtures::fixture_agent;
    use crate::agent::fixtures::set_up;
    use crate::state::halt::Moment;
    use holdfast_model::Locations;

    #[test]
    fn a_finished_step_is_forgotten_once_even_if_the_agent_is_restarted() {
        let (_root, agent) = fixture_agent("node0", "1145655");
        let moment = Moment::default();
        let files = |agent: &Agent| agent.store.checkpoints().len();
        assert!(files(&agent) > 0 && agent.store.flush.newest().is_some());
        agent.halt.set_reason("FINALIZE_CALLED", &moment).unwrap();
        finished_steps(&agent, Generation(2)).unwrap();
        assert_eq!((files(&agent), agent.store.flush.newest()), (0, None));
        assert_eq!(agent.halt.state(&moment).met, None);

        agent.halt.set_reason("of the next step", &moment).unwrap();
        let restarted = set_up(agent.start.clone(), agent.paths.clone()).unwrap();
        assert_eq!(files(&restarted), 0);
        finished_steps(&restarted, Generation(2)).unwrap();
        assert!(restarted.halt.state(&moment).met.is_some());
        finished_steps(&restarted, Generation(5)).unwrap();
        assert_eq!(restarted.halt.state(&moment).met, None);
    }
    #[test]
    fn halt_conditions_of_an_earlier_run_are_removed_once_and_files_are_kept() {
        let (_root, agent) = fixture_agent("node0", "1145655");
        let moment = Moment::default();
        let files = agent.store.checkpoints().len();
        agent.halt.set_reason("USER_REQUEST", &moment).unwrap();
        earlier_runs(&agent, 1).unwrap();
        assert_eq!(agent.halt.state(&moment).met, None);
        assert_eq!(agent.store.checkpoints().len(), files);

        agent.halt.set_reason("of the second run", &moment).unwrap();
        earlier_runs(&agent, 1).unwrap();
        assert!(agent.halt.state(&moment).met.is_some());
        earlier_runs(&agent, 2).unwrap();
        assert_eq!(agent.halt.state(&moment).met, None);
    }
    #[test]
    fn directories_of_another_job_with_the_same_id_are_removed_when_its_files_are_on_its_prefix_directory() {
        let (_root, agent) = fixture_agent("node0", "1145655");
        let other = Path::new("/other");
        let bases: Vec<String> = agent.start.cache_bases.keys().cloned().collect();
        let paths = agent.paths.of_owner(other);
        for node_path in [paths.control_node_path().to_owned(), paths.cache_node_path(&bases[0])] {
            claim::directory(&paths, &node_path).unwrap();
        }
        let ours = agent.paths.of_owner(Path::new("/ours"));
        let refused = claim::directory(&ours, ours.control_node_path()).unwrap_err();
        assert_eq!(refused.other_job(), Some((other, None)));

        let newest = agent.store.flush.newest().unwrap();
        let undrained = Locations { cache: true, ..Locations::default() };
        agent.store.flush.note(newest, undrained).unwrap();
        let refused = other_job(&ours, (other, None), &bases, false).unwrap_err().to_string();
        assert!(refused.contains("holdfast drain --prefix /other"), "{refused}");

        agent.store.flush.note_flushed(newest).unwrap();
        let running = claim::claim(claim::directory(&paths, paths.control_node_path()).unwrap()).unwrap();
        let refused = other_job(&ours, (other, None), &bases, false).unwrap_err();
        assert!(matches!(&refused, ForgetError::Running { prefix, .. } if prefix == other), "{refused}");
        drop(running);
        let left = other_job(&ours, (other, None), &bases, true).unwrap_err().to_string();
        assert!(left.contains("is in the prefix directory /other already"), "{left}");
        assert!(paths.control().exists());
        other_job(&ours, (other, None), &bases, false).unwrap();
        assert!(!paths.control().exists() && !paths.real(&paths.cache_node_path(&bases[0])).unwrap().exists());
        claim::directory(&ours, ours.control_node_path()).unwrap();
    }

    #[test]
    fn directories_of_an_earlier_allocation_with_the_same_id_are_set_aside_unless_all_is_on_their_prefix_directory() {
        let (_root, agent) = fixture_agent("node0", "1145655");
        let other = Path::new("/other");
        let bases: Vec<String> = agent.start.cache_bases.keys().cloned().collect();
        let theirs = agent.paths.of_owner(other);
        claim::directory(&theirs, theirs.control_node_path()).unwrap();
        let newest = agent.store.flush.newest().unwrap();
        agent.store.flush.note(newest, Locations { cache: true, ..Locations::default() }).unwrap();
        let start = holdfast_wire::run::AgentStart { allocation: Some("2".to_owned()), ..agent.start.clone() };
        let ours = Paths::new(&start);
        other_job(&ours, (other, Some("1")), &bases, false).unwrap();
        assert!(!theirs.control().exists());
        assert_eq!(kept::all(&theirs).len(), 1);

        kept::restore(&theirs, |control| all_bases(control, &bases)).unwrap();
        for checkpoint in agent.store.flush.locations().unwrap().into_keys() {
            agent.store.flush.note_flushed(checkpoint).unwrap();
        }
        other_job(&ours, (other, Some("1")), &bases, false).unwrap();
        assert!(!theirs.control().exists() && kept::all(&theirs).is_empty());
    }
}
