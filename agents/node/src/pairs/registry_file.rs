//! The file of the registry: opening that of an earlier agent, or replacing it.

use std::fs;
use std::path::Path;

use holdfast_core::durable::is_exhaustion;
use holdfast_model::Side;
use holdfast_model::pair::CHECKPOINT_RING;
use holdfast_process::ObservedProcess;
use holdfast_shm::{Layout, Registry, ShmError};
use holdfast_wire::pairs::PairsPlan;
use rustix::process::Signal;

use super::error::PairsError;
use super::process::registered_id;
use super::state::{self, State};

/// The registry's name in the directory of pairs.
pub(super) const NAME: &str = "registry";

/// The registry of an earlier agent or a new one, and what is left of the earlier agent's state.
pub(super) struct OpenedRegistry {
    pub registry: Registry,
    pub kept: Option<State>,
    pub is_new: bool,
    /// Why there is a new one in place of an earlier one.
    pub replaced: Option<String>,
}

/// If the earlier registry is damaged, its copies can be neither woken nor stopped by it: they are killed.
pub(super) fn open(
    path: &Path,
    job: &str,
    plan: &PairsPlan,
    kept: Option<State>,
) -> Result<OpenedRegistry, PairsError> {
    let layout = layout(plan);
    let mut replaced = None;
    if fs::symlink_metadata(path).is_ok() {
        let reason = match Registry::open(path) {
            Ok(registry) if registry.is_of_job(job) && registry.layout() == layout => {
                return Ok(OpenedRegistry { registry, kept, is_new: false, replaced });
            }
            Ok(registry) => {
                kill_registered(&registry);
                "it is of another plan".to_owned()
            }
            // The copies run, and their checkpoints are there.
            Err(ShmError::Io { what, path, source }) if is_exhaustion(&source) => {
                return Err(ShmError::Io { what, path, source }.into());
            }
            Err(error) => error.to_string(),
        };
        state::remove_file(path)?;
        replaced = Some(reason);
    } else if kept.as_ref().is_some_and(|kept| !kept.pairs.is_empty()) {
        // The file is removed after the state when pairs end.
        replaced = Some("the file is gone".to_owned());
    }
    if let Some(reason) = &replaced {
        tracing::warn!(path = %path.display(), reason, "registry_replaced");
    }
    if let Some(kept) = &kept {
        let processes = kept.pairs.values().flat_map(|pair| pair.processes.into_iter().chain(pair.programs)).flatten();
        processes.filter_map(|(_, id)| ObservedProcess::open(id)).for_each(|process| process.signal(Signal::KILL));
    }
    let kept = kept.map(without_copies);
    Ok(OpenedRegistry { registry: Registry::create(path, &layout, job)?, kept, is_new: true, replaced })
}

/// The state after all copies were killed.
fn without_copies(mut kept: State) -> State {
    kept.pairs.values_mut().for_each(|pair| {
        (pair.processes, pair.programs) = ([None, None], [None, None]);
        // Their checkpoints went with the registry.
        pair.worked = None;
    });
    kept
}

fn kill_registered(registry: &Registry) {
    for pair in 0..registry.pairs() {
        let ids = Side::BOTH.map(|side| registered_id(&registry.copy(pair, side)));
        let processes = ids.into_iter().flatten().filter_map(ObservedProcess::open);
        processes.for_each(|process| process.signal(Signal::KILL));
    }
}

/// A place for each pair of the node, by its number in the job; those of other nodes have no room for checkpoints.
fn layout(plan: &PairsPlan) -> Layout {
    let pairs = plan.pairs.iter().map(|pair| pair.index + 1).max().unwrap_or(1);
    let mut checkpoint_bytes = vec![0; pairs as usize];
    for pair in &plan.pairs {
        if let Some(bytes) = checkpoint_bytes.get_mut(pair.index as usize) {
            *bytes = pair.config.checkpoint_bytes;
        }
    }
    Layout { pairs, checkpoint_bytes, ring: CHECKPOINT_RING }
}
