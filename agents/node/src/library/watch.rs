//! Reads the control directory of the node during a run, and reports what happened.
//!
//! Every agent keeps the newest checkpoint of its health report up to date; the agent of rank 0 reports the events of
//! the run, because the library counts and records halt conditions on that node.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::control::halt::HaltFile;
use holdfast_core::prefix::index;
use holdfast_core::redundancy::descriptor;
use holdfast_core::redundancy::registry::{self, is_redundancy_file};
use holdfast_core::store;
use holdfast_model::{CheckpointId, Rank, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::plan::MemberPlan;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::file_version::FileVersion;
use super::progress::{LibraryEvent, LibraryProgress, LibraryState};
use crate::agent::Agent;
use crate::agent::inventory::inventory;
use crate::report::events::total_bytes;

/// The interval between two looks at the control directory.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A file that cannot be read this often in a row is damaged, not being written.
const LOOKS_AT_TORN: u32 = 20;
/// Ranks that have left nothing in the control directory for so long are reported.
const NOTHING_LEFT_AFTER: Duration = Duration::from_secs(30);

/// The watch of one generation on this node.
#[derive(Debug)]
pub struct LibraryWatch {
    plan: Arc<MemberPlan>,
    /// The run is over.
    cancelled: CancellationToken,
    /// One reader at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    watched: Mutex<Watched>,
    since: Instant,
}

#[derive(Debug)]
struct Watched {
    /// On the node of rank 0.
    progress: Option<LibraryProgress>,
    /// The versions of all files of the control directory at the last look.
    versions: BTreeMap<String, FileVersion>,
    /// How often in a row a file could not be read.
    torn: u32,
    /// Ranks that leave nothing have been reported.
    reported: bool,
}

impl LibraryWatch {
    /// `adopted`: the generation runs already. Blocks.
    pub fn begin(agent: &Agent, plan: Arc<MemberPlan>, adopted: bool, cancelled: CancellationToken) -> Self {
        let progress = plan.local.contains(&Rank(0)).then(|| {
            let ((state, _), newest) = (read(agent), plan.settings.newest);
            if adopted { LibraryProgress::adopted(state, newest) } else { LibraryProgress::new(state, newest) }
        });
        let watched = Watched { progress, versions: BTreeMap::new(), torn: 0, reported: false };
        LibraryWatch { plan, cancelled, turn: Arc::default(), watched: Mutex::new(watched), since: Instant::now() }
    }

    fn look(&self, agent: &Arc<Agent>) {
        let now = self.since.elapsed();
        let versions = versions(&agent.paths.control());
        let mut watched = self.watched.lock();
        let Watched { progress, versions: known, torn, reported } = &mut *watched;
        if versions != *known {
            let (state, readable) = read(agent);
            *torn = if readable { 0 } else { *torn + 1 };
            // A file that is being written is read again at the next look.
            if readable || *torn > LOOKS_AT_TORN {
                *known = versions;
                for event in progress.iter_mut().flat_map(|progress| progress.observe(now, &state)) {
                    report(agent, &self.plan, event);
                }
            }
        }
        for event in progress.iter_mut().flat_map(|progress| progress.pass(now)) {
            report(agent, &self.plan, event);
        }
        let nothing = progress.as_ref().is_some_and(|progress| !progress.started);
        if nothing && now >= NOTHING_LEFT_AFTER && !std::mem::replace(reported, true) {
            agent.events.add(AgentEvent::Notice {
                message: format!(
                    "no SCR control files in {} after {} s: `checkpoint.control.base` must be the SCR_CNTL_BASE of the \
                     system configuration file of the ranks' library",
                    agent.paths.control_node_path(),
                    NOTHING_LEFT_AFTER.as_secs()
                ),
            });
        }
    }
}

/// Looks at the control directory again and again; ends with the run.
pub async fn keep_watch(agent: Arc<Agent>, watch: Arc<LibraryWatch>) {
    let reader = watch.clone();
    // The prefix directory may not answer: the watch does not wait for it.
    tokio::task::spawn_blocking(move || {
        let known = in_prefix(&reader.plan.settings.prefix);
        if let Some(progress) = &mut reader.watched.lock().progress {
            progress.known_in_prefix(known.into_keys());
        }
    });
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        observe(&agent, &watch).await;
    }
}

/// Looks at the control directory once, and reports what happened.
pub async fn observe(agent: &Arc<Agent>, watch: &Arc<LibraryWatch>) {
    if watch.cancelled.is_cancelled() {
        return;
    }
    let turn = watch.turn.clone().lock_owned().await;
    let (agent, watch) = (agent.clone(), watch.clone());
    let looked = tokio::task::spawn_blocking(move || {
        watch.look(&agent);
        drop(turn);
    });
    if let Err(error) = looked.await {
        tracing::error!(%error, "library_watch_failed");
    }
}

/// The library's files; those of the agent change more often.
fn versions(control: &Path) -> BTreeMap<String, FileVersion> {
    let Ok(entries) = fs::read_dir(control) else { return BTreeMap::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let of_library = names.filter(|name| name.ends_with(".scrinfo") && name != "transfer.scrinfo");
    of_library.filter_map(|name| FileVersion::of(&control.join(&name)).map(|version| (name, version))).collect()
}

/// The state of the control directory, and whether all of it could be read: the library empties a file and writes it,
/// without a lock. Also updates the newest checkpoint of the health report.
fn read(agent: &Agent) -> (LibraryState, bool) {
    let control = agent.paths.control();
    let flush_file = FileVersion::of(&control.join("flush.scrinfo"));
    let flush = agent.store.flush.locations();
    let on_disk = agent.store.on_disk().map(|(on_disk, _)| on_disk);
    let halt = HaltFile::read(&control.join("halt.scrinfo"));
    let readable = flush.is_ok() && halt.is_ok() && on_disk.as_ref().is_ok_and(|on_disk| on_disk.faults.is_empty());
    let state = LibraryState {
        nodes_file: FileVersion::of(&control.join("nodes.scrinfo")),
        flush_file,
        flush: flush.unwrap_or_default(),
        listed: on_disk.iter().flat_map(|on_disk| &on_disk.slots).flat_map(|(_, map)| map.checkpoints()).collect(),
        halt_reason: halt.ok().flatten().and_then(|halt| halt.reason().map(str::to_owned)),
    };
    (state, readable)
}

fn report(agent: &Arc<Agent>, plan: &MemberPlan, event: LibraryEvent) {
    let generation = plan.generation;
    let event = match event {
        LibraryEvent::Started => AgentEvent::LibraryStarted { generation },
        LibraryEvent::Restarted { checkpoint, source } => {
            let protected = checkpoint.map(|checkpoint| describe(agent, plan, checkpoint).2);
            let (rebuilt, moved) = (Vec::new(), Vec::new());
            let written_by = None;
            AgentEvent::Restarted { generation, checkpoint, protected, source, written_by, rebuilt, moved, millis: 0 }
        }
        LibraryEvent::CheckpointStarted(checkpoint) => AgentEvent::CheckpointStarted { generation, checkpoint },
        LibraryEvent::CheckpointComplete { checkpoint, took } => {
            let (scheme, bytes, protected) = describe(agent, plan, checkpoint);
            let (level, millis) = (None, millis(took));
            let descriptor = descriptor::level(checkpoint, &plan.settings.descriptors);
            agent.events.add(AgentEvent::CheckpointComplete {
                generation,
                checkpoint,
                scheme,
                descriptor,
                protected,
                level,
                bytes,
                millis,
            });
            if !protected {
                return;
            }
            AgentEvent::CheckpointProtected { generation, checkpoint, scheme, descriptor, survives: None, millis }
        }
        LibraryEvent::Flushed { checkpoint, took } => {
            // The prefix directory may not answer.
            let (agent, prefix) = (agent.clone(), plan.settings.prefix.clone());
            tokio::task::spawn_blocking(move || {
                let directory = in_prefix(&prefix).remove(&checkpoint).unwrap_or_default();
                agent.events.add(AgentEvent::Flushed { generation, checkpoint, directory, millis: millis(took) });
            });
            return;
        }
        LibraryEvent::Halting(reason) => AgentEvent::Halting { generation, reason },
        LibraryEvent::Finalized => AgentEvent::Finalized { generation },
    };
    agent.events.add(event);
}

/// The scheme of a checkpoint, the bytes of all ranks' files if all nodes have as many as this one for each rank, and
/// whether the files here are protected.
fn describe(agent: &Agent, plan: &MemberPlan, checkpoint: CheckpointId) -> (Scheme, u64, bool) {
    let held = inventory(agent).inspect_err(|error| tracing::warn!(%error, %checkpoint, "checkpoint_not_examined"));
    let held = held.unwrap_or_default().holdings.into_iter().filter(|holding| {
        let is_own = holding.partner_of.is_none() && plan.local.contains(&holding.rank);
        holding.checkpoint == checkpoint && is_own && !holding.files.is_empty()
    });
    let (mut scheme, mut bytes, mut ranks, mut protected) = (registry::DEFAULT, 0, 0, true);
    for holding in held {
        scheme = holding.descriptor.map_or(scheme, |descriptor| descriptor.descriptor.scheme);
        protected &= holding.protection.is_complete();
        let of_application = holding.files.iter().filter(|file| !is_redundancy_file(&file.name));
        bytes = total_bytes([bytes, total_bytes(of_application.map(|file| file.size))]);
        ranks += 1;
    }
    let all = bytes.checked_div(ranks).map_or(0, |each| each.saturating_mul(u64::from(plan.ranks)));
    (scheme, all, protected && ranks > 0)
}

/// The complete checkpoints of the index, with their directories.
fn in_prefix(prefix: &Path) -> BTreeMap<CheckpointId, String> {
    let found = store::open(prefix).and_then(|store| index::read(&*store));
    let entries = match found {
        Ok(index) => index.map(|index| index.entries()).unwrap_or_default(),
        Err(error) => {
            tracing::info!(%error, "index_unreadable");
            Vec::new()
        }
    };
    let complete = entries.into_iter().filter(|entry| entry.complete == Some(true));
    complete.map(|entry| (entry.id, entry.directory.as_str().to_owned())).collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
