//! What a run of a job with pairs leaves for the next one: the newest checkpoints of the pairs that are not finished,
//! and which pairs are. The agents write and read the files, of which each run has a directory below [`SAVED`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use holdfast_core::owned::OwnedError;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;

use super::super::restart_choice::RestartChoice;
use super::super::state::{JobState, PairsProgress, Stage};
use crate::exit;

/// The directory below that of the job's state.
const SAVED: &str = "pairs.saved";
/// The end of the name of each file: `<pair>.checkpoint`, or `<pair>.<side>.checkpoint` of a pair on two nodes.
const SUFFIX: &str = ".checkpoint";
/// Sides in the names.
const SIDES: [&str; 2] = [".main", ".replica"];

/// The directory of a run.
pub(super) fn directory(prefix: &Path, run: &str) -> PathBuf {
    StateDirectory::below(prefix).join(SAVED).join(run)
}

/// What a run takes over from the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Continued {
    /// The numbers of pairs that are finished.
    pub(super) finished: BTreeSet<u32>,
    /// The directories of earlier runs, the newest first.
    pub(super) restore_from: Vec<String>,
}

/// What the job goes on from. Nothing after a run that was finished, or one of another job, or if the user wants it so.
pub(super) fn continued<'a>(
    previous: Option<&JobState>,
    job: &str,
    pairs: impl Iterator<Item = &'a str>,
    restart: &RestartChoice,
) -> Continued {
    let is_over = |state: &JobState| matches!(state.stage, Stage::Finished { exit_code: exit::FINISHED, .. });
    let previous = previous.filter(|state| state.job == job && !is_over(state) && *restart == RestartChoice::Newest);
    let Some(before) = previous.and_then(|state| state.pairs.as_ref()) else { return Continued::default() };
    let PairsProgress { finished, save_to, restore_from, .. } = &before.progress;
    let numbered = || (0..).zip(&before.places);
    let was_finished = |name: &str| numbered().any(|(at, place)| place.name == name && finished.contains(&at));
    let finished = (0..).zip(pairs).filter(|(_, name)| was_finished(name)).map(|(at, _)| at).collect();
    let is_plain = |name: &&String| !name.is_empty() && !name.contains('/') && *name != "." && *name != "..";
    Continued { finished, restore_from: save_to.iter().chain(restore_from).filter(is_plain).cloned().collect() }
}

/// For which pairs checkpoints are there after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Those of this run.
    pub(super) saved: Vec<String>,
    /// Only those of an earlier run.
    pub(super) older: Vec<String>,
    pub(super) without: Vec<String>,
}

/// What there is for these pairs. Blocks.
///
/// # Errors
/// A directory cannot be listed.
pub(super) fn left(prefix: &Path, progress: &PairsProgress, pairs: Vec<String>) -> Result<Left, OwnedError> {
    let of_runs = |runs: &mut dyn Iterator<Item = &String>| {
        runs.map(|run| pairs_in(&directory(prefix, run))).collect::<Result<Vec<_>, _>>()
    };
    let saved = of_runs(&mut progress.save_to.iter())?.concat();
    let older = of_runs(&mut progress.restore_from.iter())?.concat();
    let mut left = Left::default();
    for pair in pairs {
        let has = |found: &[String]| found.iter().any(|name| is_of(name, &pair));
        match () {
            () if has(&saved) => left.saved.push(pair),
            () if has(&older) => left.older.push(pair),
            () => left.without.push(pair),
        }
    }
    Ok(left)
}

/// The names of the files without their common end.
fn pairs_in(directory: &Path) -> Result<Vec<String>, OwnedError> {
    let Some(directory) = state_files::directory(directory)? else { return Ok(Vec::new()) };
    let names = directory.names()?.into_iter();
    Ok(names.filter_map(|name| Some(name.to_str()?.strip_suffix(SUFFIX)?.to_owned())).collect())
}

fn is_of(file: &str, pair: &str) -> bool {
    file.strip_prefix(pair).is_some_and(|side| side.is_empty() || SIDES.contains(&side))
}

/// Removes what runs have left, but for these. Blocks. What cannot be removed stays until the end of the next run.
pub(super) fn remove_all_but(prefix: &Path, kept: &[String]) {
    let removed = state_files::directory(&StateDirectory::below(prefix).join(SAVED)).and_then(|saved| {
        let Some(saved) = saved else { return Ok(()) };
        let mut names = saved.names()?.into_iter().filter(|name| !kept.iter().any(|kept| name == kept.as_str()));
        names.try_for_each(|name| saved.remove_directory(name))
    });
    if let Err(error) = removed {
        tracing::warn!("checkpoints of earlier runs are not removed: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_pair_with_its_whole_name() {
        assert!(is_of("dnn1", "dnn1") && is_of("dnn1.main", "dnn1") && is_of("dnn1.replica", "dnn1"));
        assert!(!is_of("dnn10", "dnn1") && !is_of("dnn1.x", "dnn1") && !is_of("dnn", "dnn1"));
    }
}
