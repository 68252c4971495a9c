//! The sentence of an event, made from its fields; it is not stored.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Local};
use holdfast_model::pair::PairChange;
use holdfast_model::{Location, NodeName, RestartSource, Unplaced};
use holdfast_wire::agent::AgentEvent;

use super::advice::Protection;
use super::reason::{GenerationProgress, nodes_text, ranks_text};
use super::screen::OutputNotShown;
use super::vocabulary::{AgentReport, LogEvent};
use crate::spec::quantity::format_duration;

impl LogEvent {
    /// The sentence to show; `None` for events that are only logged.
    pub fn sentence(&self) -> Option<String> {
        Some(match self {
            LogEvent::Agent(report) => return report.sentence(),
            LogEvent::AgentReady { again: false, .. } => return None,
            LogEvent::AgentReady { node, again: true } => format!("{node}: agent restarted"),
            LogEvent::AgentLost { node, reason } => format!("{node}: agent lost ({reason})"),
            LogEvent::AgentSilent { node, millis } => {
                format!("{node}: its agent has not answered for {millis} ms and is being checked")
            }
            LogEvent::AgentAnswers { node, millis } => format!("{node}: its agent answers again, after {millis} ms"),
            LogEvent::MostAgentsSilent { silent, agents } => format!(
                "warning: {silent} of {agents} agents do not answer; this machine or its network is the likely cause, \
                 and no agent is replaced that may be alive"
            ),
            LogEvent::OrchestratorStalled { millis } => format!(
                "warning: the orchestrator did not run for {millis} ms (stopped, or no processor time); all agents are \
                 asked again"
            ),
            LogEvent::NodeDown { node, reason, ranks } if ranks.is_empty() => format!("{node} is down: {reason}"),
            LogEvent::NodeDown { node, reason, ranks } => {
                format!("{node} is down: {reason}; lost {}", ranks_text(ranks))
            }
            LogEvent::NodeExcluded { node, reason, ranks, .. } if ranks.is_empty() => {
                format!("{node} is excluded: {reason}")
            }
            LogEvent::NodeExcluded { node, reason, ranks, now } => {
                let ranks = ranks_text(ranks);
                match now {
                    true => format!("{node} is excluded: {reason}; relaunched on other nodes: {ranks}"),
                    false => format!("{node} is excluded: {reason}; it keeps {ranks} until the generation ends"),
                }
            }
            LogEvent::NodeIncluded { node } => format!("{node} is no longer excluded"),
            LogEvent::NodesLent { nodes } => format!("the job lends this step {}", nodes_text(nodes)),
            LogEvent::NodesAwaited { left, needed } => {
                format!("too few nodes are left ({left} of {needed}): waiting for those of other steps")
            }
            LogEvent::ExclusionDelayed { nodes, left, needed } => format!(
                "warning: the ranks on {} go on: only {left} other nodes are left, and a launch needs {needed}",
                nodes_text(nodes)
            ),
            LogEvent::UnknownNodesExcluded { nodes } => {
                let plural = if nodes.len() == 1 { " is" } else { "s are" };
                format!("warning: the excluded node{plural} not in the allocation: {}", nodes_text(nodes))
            }
            LogEvent::GenerationPlaced { generation, nodes, spares, moved } => {
                let moved = if moved.is_empty() { String::new() } else { format!(", moved: {}", ranks_text(moved)) };
                let plural = if *spares == 1 { "" } else { "s" };
                format!("generation {generation} on {}, {spares} spare{plural}{moved}", nodes_text(nodes))
            }
            LogEvent::GenerationLaunched { generation, relaunches: 0 } => format!("generation {generation} launched"),
            LogEvent::GenerationLaunched { generation, relaunches } => {
                format!("generation {generation} launched (relaunch {relaunches})")
            }
            LogEvent::HangSuspected { generation, reason, .. } => {
                format!("generation {generation} seems to hang, saving stacks: {reason}")
            }
            LogEvent::ApiNotCalled { generation, called_before: true } => format!(
                "warning: no rank of generation {generation} has called the checkpoint API since its launch: the \
                 ranks may hang before their first call, in MPI_Init for instance. With `health.hang_after` the job \
                 is relaunched then"
            ),
            LogEvent::ApiNotCalled { .. } => {
                "no rank has called the checkpoint API: nothing is protected, and a lost node \
                                              costs all work since the launch. See `checkpoint.source` for programs \
                                              without its calls"
                    .to_owned()
            }
            LogEvent::RanksWait { wait, .. } if wait.have_ended => format!("warning: {wait}"),
            LogEvent::RanksWait { wait, .. } => wait.to_string(),
            LogEvent::HangDismissed { generation } => format!("generation {generation} continues: it does not hang"),
            LogEvent::Hang { generation, ranks, .. } => {
                format!("generation {generation} hangs in {}", ranks_text(ranks))
            }
            LogEvent::GenerationEnding { generation, seen } => {
                format!("stopping generation {generation}: {seen}")
            }
            LogEvent::GenerationEnded { generation, cause, newest, progress, .. } => {
                let progress = progress.as_ref().and_then(GenerationProgress::beyond_checkpoints);
                let newest = match (newest, progress) {
                    (_, Some(progress)) => format!("progress: {progress}"),
                    (Some(id), _) => format!("newest checkpoint {id}"),
                    (None, _) => "no checkpoint yet".to_owned(),
                };
                format!("generation {generation} ended: {cause}; {newest}")
            }
            LogEvent::FailureExplained { line, .. } => format!("failure: {line}"),
            LogEvent::ProgressUnknown { generation, reason } => {
                format!("it is not known whether generation {generation} made progress: {reason}")
            }
            LogEvent::HaltSet { reason } => format!("halt: {reason}"),
            LogEvent::HaltCleared => "the halt condition was removed".to_owned(),
            LogEvent::HaltRequested { generation, reason, within_ms } => {
                let within = within(*within_ms);
                format!("halting generation {generation} at its next checkpoint, at the latest {within}: {reason}")
            }
            LogEvent::RanksTerminated { generation, within_ms, .. } => {
                let within = within(*within_ms);
                format!("SIGTERM to the ranks of generation {generation}; they are killed {within}")
            }
            LogEvent::Signal { name, number: 2, at_once: false } => {
                format!("{name} again: killing the ranks, then draining; a third signal ends without a drain")
            }
            LogEvent::Signal { name, at_once: false, .. } => {
                format!("{name}: stopping the ranks, then draining; a second signal kills the ranks at once")
            }
            LogEvent::Signal { name, at_once: true, .. } => format!("{name} again: ending at once, without a drain"),
            LogEvent::TookOver { generation } => format!("took over the running job at generation {generation}"),
            LogEvent::PairsTakenOver { epoch } => format!("took over the running pairs (orchestrator number {epoch})"),
            LogEvent::PairsEnding { reason } => format!("ending all copies and jobs: {reason}"),
            LogEvent::PairsSaved { pairs, older, without } => pairs_saved(*pairs, older, without),
            LogEvent::Stopping { reason } => format!("stopping: {reason}"),
            LogEvent::Drained { .. } => return None,
            LogEvent::ScriptEvent { kind, note, .. } => match note {
                Some(note) => format!("script: {kind}: {note}"),
                None => format!("script: {kind}"),
            },
            LogEvent::Finished { exit_code, message, .. } => format!("end (exit code {exit_code}): {message}"),
            LogEvent::AllDatasetsDropped { count, checkpoint, reason } => format!(
                "warning: all {count} datasets that the application wrote were dropped, none was kept; the last, \
                 {checkpoint}: {reason}"
            ),
            LogEvent::MpiStartCrashed { crashes, limit, .. } => format!(
                "the ranks crashed before they had joined, as when MPI cannot start: they are launched again, which is \
                 no attempt ({crashes} of at most {limit} times)"
            ),
            LogEvent::LaunchSpaced { disturbances, millis, counts, .. } => format!(
                "{disturbances} node losses or refused launches, each within 30 s of the one before: the next launch \
                 waits {} s{}",
                millis / 1000,
                if *counts { "" } else { ", and is no attempt" }
            ),
            LogEvent::DirectoryKept { node, path, prefix } => kept_directory(node, path, prefix),
            LogEvent::AllocationDenied { reason } => format!(
                "warning: the resource manager does not know the allocation any more ({reason}); the ranks go on while \
                 their agents answer"
            ),
            LogEvent::FailureDomains { kind, number, without } if without.is_empty() => {
                format!("failure domains: {}", domains_text(*number, kind))
            }
            LogEvent::FailureDomains { kind, number, without } => format!(
                "warning: failure domains: {}; in none, and each one of its own: {}",
                domains_text(*number, kind),
                nodes_text(without)
            ),
            LogEvent::CheckpointsBlock { percent, limit, every_ms } => format!(
                "warning: checkpoints blocked the ranks for {percent} % of the time; `checkpoint: {{every: {}s}}` \
                 would have kept it at {limit} %, and `every: auto` keeps it there",
                every_ms.div_ceil(1000).max(1)
            ),
            LogEvent::FailuresExpected { mtbf_ms, given, auto, .. } => format!(
                "a failure is expected every {} s ({}){}",
                mtbf_ms.div_ceil(1000),
                if *given { "`health.mtbf`" } else { "observed" },
                if *auto { ": checkpoints are as far apart as is best for it" } else { "" }
            ),
            LogEvent::FromBeginning { generation, reason } => {
                format!("warning: generation {generation} starts from the beginning: {reason}")
            }
            LogEvent::LibraryLeftNothing { base, .. } => format!(
                "no files of SCR v1.1-8 below {base}: `checkpoint.control.base` must be the SCR_CNTL_BASE of the \
                 system configuration file of their SCR library, and that must not be a later version"
            ),
            LogEvent::JobStarted { job_id, nodes, prefix, virtual_nodes } => {
                let kind = if *virtual_nodes { format!("{}, ", virtual_text(nodes.len())) } else { String::new() };
                format!("job {job_id} on {}, {kind}prefix {}", nodes_text(nodes), prefix.display())
            }
            LogEvent::SettingsInForce { version, settings } => {
                let changed = settings.iter().filter(|setting| !setting.is_default()).count();
                format!("Holdfast {version}; {changed} of {} settings are not defaults", settings.len())
            }
            LogEvent::RankFailed { rank, node, end, .. } | LogEvent::RankEnded { rank, node, end, .. } => match node {
                Some(node) => format!("rank {rank} on {node} ended with {end}"),
                None => format!("rank {rank} ended with {end}"),
            },
            LogEvent::LaunchDelayed { generation, reason } => {
                format!("generation {generation} cannot start yet, retrying: {reason}")
            }
            LogEvent::FaultInjected { node, agent_only, action, rank } => {
                let what = match (action.as_deref(), rank) {
                    (_, Some(rank)) => format!("killing rank {rank} on {node}"),
                    (Some("pause"), _) => format!("stopping ranks and agent of {node} for a while"),
                    (Some("fill-cache"), _) => format!("filling the caches of {node}"),
                    _ if *agent_only => format!("killing the agent of {node}"),
                    _ => format!("killing {node}"),
                };
                format!("fault injection: {what}")
            }
            LogEvent::PrefixStalled { millis } => {
                format!("fault injection: Holdfast's calls on the prefix directory wait for {millis} ms")
            }
            LogEvent::FaultNotInjected { fault, reason } => {
                format!(
                    "warning: the fault {fault} was not injected: {reason}; this run does not show what it would do"
                )
            }
            LogEvent::SiteCommandStarted { key, program, nodes } => {
                format!("running `{key}` command {program} on {}", nodes_text(nodes))
            }
            LogEvent::SiteCommand { key, program, nodes, failure, output } => {
                let key = key.map(|key| format!("`{key}` ")).unwrap_or_default();
                match (failure, output) {
                    (None, _) => format!("{key}command {program} finished on {}", nodes_text(nodes)),
                    (Some(failure), None) => format!("{key}command {program} failed on {failure}"),
                    (Some(failure), Some(output)) => {
                        format!("{key}command {program} failed on {failure}; its output is in {}", output.display())
                    }
                }
            }
            LogEvent::SupersededNotRecorded { reason, .. } => {
                format!("the directories that the restart supersedes are not recorded yet: {reason}")
            }
            LogEvent::DrainSkipped { checkpoint, reason } => {
                format!("drain: checkpoint {checkpoint} skipped: {reason}")
            }
            LogEvent::FlushedCopyDamaged { checkpoint, reason } => {
                format!("drain: checkpoint {checkpoint} was flushed, but its copy cannot be used: {reason}")
            }
            LogEvent::FlushAbandoned { directory } => format!("the unfinished flush to {directory} was removed"),
            LogEvent::DrainStarted { checkpoint, directory, resumed: false } => {
                format!("drain: copying checkpoint {checkpoint} to {directory}")
            }
            LogEvent::DrainStarted { checkpoint, directory, resumed: true } => {
                format!("drain: completing checkpoint {checkpoint} in {directory}")
            }
            LogEvent::Copied { round, node, ranks, bytes, failure } => {
                let done = match ranks.as_slice() {
                    [] => "nothing copied".to_owned(),
                    ranks => format!("copied {}, {}", ranks_text(ranks), indicatif::HumanBytes(*bytes)),
                };
                let failed = failure.as_ref().map(|reason| format!("; failed: {reason}")).unwrap_or_default();
                format!("drain, round {round}: {node} {done}{failed}")
            }
            LogEvent::RebuiltInPrefix { checkpoint, rank } => {
                format!("drain: rank {rank} of checkpoint {checkpoint} rebuilt")
            }
            LogEvent::DamagedInPrefix { file, .. } => format!("drain: file not used: {file}"),
            LogEvent::Indexed { checkpoint, directory, complete: true } => {
                format!("checkpoint {checkpoint} is complete in {directory}, and current")
            }
            LogEvent::Indexed { checkpoint, directory, complete: false } => {
                format!("checkpoint {checkpoint} is recorded as incomplete in {directory}")
            }
            LogEvent::AgentNotStarted { node, reason } => format!("{node}: its agent could not be started: {reason}"),
            LogEvent::InventoryFault { node, fault } => format!("{node}: {fault}"),
            LogEvent::ClockSkew { node, ahead_ms } => {
                let direction = if *ahead_ms > 0 { "ahead of" } else { "behind" };
                let seconds = ahead_ms.unsigned_abs() / 1000;
                format!("{node}: clock {seconds} s {direction} the orchestrator's; check the time service of the node")
            }
            LogEvent::AllocationEndChanged { end } => {
                let local = |end: i64| DateTime::from_timestamp(end, 0).map(|at| at.with_timezone(&Local));
                match end.and_then(local) {
                    Some(at) => format!("the allocation now ends at {}", at.format("%Y-%m-%d %H:%M:%S")),
                    None => "the allocation now has no end".to_owned(),
                }
            }
            LogEvent::StacksNotSaved { reason, .. } => {
                format!("could not save the stacks of the hung ranks: {reason}")
            }
            LogEvent::DataKept { place, prefix } => {
                let prefix = prefix.display();
                format!("undrained datasets are kept in {place}; to retry: `holdfast drain --prefix {prefix}`")
            }
            LogEvent::CacheKept { place } => format!(
                "the caches are kept in {place}: `holdfast run` continues from them, `holdfast drain` removes them"
            ),
            LogEvent::RunContinues { place, after } => {
                format!("continues after generation {after} with the caches in {place}")
            }
            LogEvent::OutputNotShown { bytes, directories } => {
                OutputNotShown { bytes: *bytes, more: false, directories: directories.clone() }.sentence()
            }
            LogEvent::Requeued { command, message, without_progress: 0 } => {
                format!("next allocation submitted by {command}: {message}")
            }
            LogEvent::Requeued { command, message, without_progress } => format!(
                "next allocation submitted by {command}: {message}; allocations in a row without progress: \
                 {without_progress}"
            ),
            LogEvent::RequeueEnded { allocations } => format!(
                "the next allocation was not submitted: {allocations} allocations in a row (requeue.no_progress_limit) \
                 made no progress"
            ),
            LogEvent::RequeueSkipped => {
                "the next allocation is not submitted: an earlier run in this allocation did so, or was about to"
                    .to_owned()
            }
            LogEvent::RequeueFailed { reason } => format!("the next allocation was not submitted: {reason}"),
            LogEvent::ReleaseFailed { reason } => reason.clone(),
        })
    }
}

/// What nodes are that are processes on one machine.
pub fn virtual_text(nodes: usize) -> String {
    match nodes {
        1 => "a virtual node on this machine".to_owned(),
        _ => "virtual nodes on this machine".to_owned(),
    }
}

impl AgentReport {
    fn sentence(&self) -> Option<String> {
        let node = self.node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
        Some(match &self.event {
            AgentEvent::RankConnected { .. }
            | AgentEvent::RankGone { .. }
            | AgentEvent::RankLeft { .. }
            | AgentEvent::CheckpointStarted { .. }
            | AgentEvent::EncodeStarted { .. }
            | AgentEvent::FlushRequested { .. }
            | AgentEvent::RanksBlocked { .. } => return None,
            AgentEvent::RestartAttempt { checkpoint, from, reason, .. } => {
                let from = if *from == Location::Cache { "cache" } else { "prefix" };
                format!("checkpoint {checkpoint} from {from} cannot be used: {reason}")
            }
            AgentEvent::MemoryExhausted { rank, killed, of_group, .. } => {
                let processes = if *killed == 1 { "a process" } else { "processes" };
                let place = if *of_group { "of the job" } else { "on this node" };
                format!("{node}the system killed {processes} {place} for lack of memory while rank {rank} ran")
            }
            AgentEvent::KernelReported { rank, message, .. } => {
                format!("{node}the kernel reported while rank {rank} ran: {message}")
            }
            AgentEvent::RankRefused { rank, reason, .. } => format!("rank {rank} was refused: {reason}"),
            AgentEvent::RestartPrevented { faulty: Some(_), reason, .. } => {
                format!("restart failed, and the node is not used again: {reason}")
            }
            AgentEvent::RestartPrevented { faulty: None, reason, .. } => format!("restart failed: {reason}"),
            AgentEvent::Restarted { checkpoint, protected, source, written_by, rebuilt, moved, millis, .. } => {
                let from = match (checkpoint, source) {
                    (Some(id), source) => {
                        let written = written_by.map(|ranks| match ranks {
                            1 => ", written by one rank,".to_owned(),
                            ranks => format!(", written by {ranks} ranks,"),
                        });
                        format!("checkpoint {id}{} {}", written.unwrap_or_default(), source_text(*source))
                    }
                    (None, _) => "the beginning".to_owned(),
                };
                let mut line = format!("started from {from} in {millis} ms");
                if !rebuilt.is_empty() {
                    line.push_str(&format!(", rebuilt: {}", ranks_text(rebuilt)));
                }
                if !moved.is_empty() {
                    line.push_str(&format!(", moved: {}", ranks_text(moved)));
                }
                if *protected == Some(false) {
                    line.push_str("; it is not protected from the loss of a node");
                }
                line
            }
            AgentEvent::RebuildStarted { checkpoint, ranks, .. } => {
                format!("rebuilding {} of checkpoint {checkpoint} in cache", ranks_text(ranks))
            }
            AgentEvent::CheckpointComplete {
                checkpoint, scheme, descriptor, level, protected, bytes, millis, ..
            } => {
                let level = match (level, descriptor) {
                    (Some(level), _) => format!(" at level {level}"),
                    (None, Some(descriptor)) => format!(" for redundancy[{descriptor}]"),
                    (None, None) => String::new(),
                };
                let protection = if *protected { String::new() } else { format!(" not protected ({scheme}),") };
                let size = indicatif::HumanBytes(*bytes);
                format!("checkpoint {checkpoint} complete{level},{protection} {size} in {millis} ms")
            }
            AgentEvent::CheckpointProtected { checkpoint, scheme, descriptor, millis, .. } => {
                let protection = Protection { descriptor: *descriptor, level: None, scheme: *scheme };
                format!("checkpoint {checkpoint} protected ({protection}) after {millis} ms")
            }
            AgentEvent::ProtectionFailed { checkpoint, reason, .. } => {
                format!("warning: checkpoint {checkpoint} is not protected from the loss of a node: {reason}")
            }
            AgentEvent::CheckpointFailed { checkpoint, reason, .. } => {
                format!("checkpoint {checkpoint} dropped: {reason}")
            }
            AgentEvent::Flushed { checkpoint, directory, millis, .. } => {
                format!("checkpoint {checkpoint} flushed to {directory} in {millis} ms")
            }
            AgentEvent::PlainFilesKept { checkpoint, directory, reason, .. } => {
                format!("warning: files of checkpoint {checkpoint} in {directory} are not in a container: {reason}")
            }
            AgentEvent::OutputNotPlaced { checkpoint, directory, path, files } => {
                let unplaced = Unplaced { directory: directory.clone(), path: path.clone(), files: *files };
                format!("warning: dataset {checkpoint}: {unplaced}")
            }
            AgentEvent::PrefixDeleted { checkpoint, directory, keep } => {
                let newer = if *keep == 1 { "a newer one is" } else { "newer ones are" };
                format!(
                    "checkpoint {checkpoint} in {directory} was deleted from the prefix directory: {keep} {newer} \
                     complete and verified there (`checkpoint.flush.keep`)"
                )
            }
            AgentEvent::PrefixNotDeleted { checkpoint, directory, reason } => format!(
                "warning: checkpoint {checkpoint} in {directory} stays in the prefix directory, though newer ones are \
                 kept: {reason}"
            ),
            AgentEvent::FlushDamaged { checkpoint, directory, reason } => format!(
                "warning: checkpoint {checkpoint} is damaged in the prefix directory: {directory}: {reason}; older \
                 ones stay there: check the file system, and the checkpoints with `holdfast verify --prefix`"
            ),
            AgentEvent::FlushFailed { checkpoint, reason, .. } => {
                format!("checkpoint {checkpoint} was not flushed: {reason}")
            }
            AgentEvent::Halting { reason, .. } => format!("halting the ranks: {reason}"),
            AgentEvent::Finalized { .. } => "the application called finalize".to_owned(),
            AgentEvent::UnauthenticatedConnection { peer, reason } => {
                format!("{node}refused an unauthenticated connection from {peer}: {reason}")
            }
            AgentEvent::LibraryStarted { .. } => "the SCR library initialises the ranks".to_owned(),
            AgentEvent::Pair { name, change, .. } => format!("{node}{name}: {}", pair_text(change)),
            AgentEvent::Notice { message } => format!("{node}{message}"),
        })
    }
}

/// Directories that are kept on a node, and how to save what is in them.
pub fn kept_directory(node: &NodeName, path: &str, prefix: &Path) -> String {
    let prefix = prefix.display();
    format!(
        "{node}: {path} is kept: it has checkpoints of an earlier job with the same id that are not in its prefix \
         directory; when this job has ended, save them with `holdfast drain --prefix {prefix}` in this allocation"
    )
}

/// `1 rack`, `3 switches`: failure domains of this kind.
pub fn domains_text(number: usize, kind: &str) -> String {
    let plural = match number {
        1 => "",
        _ if kind.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {kind}{plural}")
}

fn source_text(source: RestartSource) -> &'static str {
    match source {
        RestartSource::Cache => "in cache",
        RestartSource::Rebuilt => "in cache, restored",
        RestartSource::Fetched => "from the prefix directory",
        RestartSource::Fresh => "of this run",
    }
}

fn within(millis: u64) -> String {
    match millis {
        0 => "now".to_owned(),
        millis => format!("in {}", format_duration(Duration::from_millis(millis))),
    }
}

/// What the next run of a job with pairs goes on from.
fn pairs_saved(pairs: usize, older: &[String], without: &[String]) -> String {
    let mut text = match pairs {
        0 => "no checkpoint of this run is saved".to_owned(),
        1 => "the newest checkpoint of 1 pair is saved, `holdfast run` goes on from it".to_owned(),
        pairs => format!("the newest checkpoints of {pairs} pairs are saved, `holdfast run` goes on from them"),
    };
    for (names, what) in
        [(older, "from an older checkpoint, of an earlier run"), (without, "from the start, without a checkpoint")]
    {
        if !names.is_empty() {
            let (shown, more) = (names.iter().take(8).cloned().collect::<Vec<_>>(), names.len().saturating_sub(8));
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_str(&format!("; {}{more}: {what}", shown.join(", ")));
        }
    }
    text
}

/// What changed in a pair, or in a non-critical job.
fn pair_text(change: &PairChange) -> String {
    match change {
        PairChange::Started { side, pid, .. } => format!("{side} started, process {pid}"),
        PairChange::Adopted { side, pid, state, .. } => format!("{side} goes on ({state}), process {pid}"),
        PairChange::Asleep { side } => format!("{side} waits for its turn"),
        PairChange::Awake { side, checkpoint: 0 } => format!("{side} woken"),
        PairChange::Awake { side, checkpoint } => format!("{side} woken, newest checkpoint {checkpoint}"),
        PairChange::Failed { side, state, cause } => format!("{side} failed ({state}): {cause}"),
        PairChange::FailOver { cause, checkpoint, micros } => {
            format!("replica took over in {micros} µs from checkpoint {checkpoint}: main: {cause}")
        }
        PairChange::FailBack { checkpoint, micros } => {
            format!("main took over again in {micros} µs from checkpoint {checkpoint}")
        }
        PairChange::GivenUp { side, failures } => format!("{side} given up after {failures} failures"),
        PairChange::Finished { side } => format!("finished by its {side}"),
        PairChange::LeaseExpired { side } => format!("{side} killed: its lease ran out"),
        PairChange::Restored { checkpoint, tag } => {
            format!("goes on from checkpoint {checkpoint} of an earlier run (tag {tag})")
        }
        PairChange::NotRestored { reason } => format!("a checkpoint of an earlier run cannot be used: {reason}"),
        PairChange::Saved { checkpoint, tag } => {
            format!("checkpoint {checkpoint} (tag {tag}) saved for the next run")
        }
        PairChange::NotSaved { reason } => {
            format!("the newest checkpoint is not saved, and is lost when the nodes are released: {reason}")
        }
        PairChange::RegistryReplaced { reason } => {
            format!("copies killed, checkpoints in shared memory lost, because the registry was replaced: {reason}")
        }
        PairChange::JobStarted { pid } => format!("job started, process {pid}"),
        PairChange::JobAdopted { pid } => format!("job goes on, process {pid}"),
        PairChange::JobFailed { end } => format!("job failed: {end}"),
        PairChange::JobFinished => "job finished".to_owned(),
        PairChange::JobGivenUp { failures } => format!("job given up after {failures} failures"),
        PairChange::JobSuspended { pair, freezer: true } => format!("job frozen for {pair}"),
        PairChange::JobSuspended { pair, freezer: false } => format!("job stopped for {pair}"),
        PairChange::JobResumed => "job resumed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::fixtures::event;

    #[test]
    fn a_checkpoint_without_redundancy_is_not_shown_as_protected() {
        let complete = |scheme: &str, descriptor: Option<u32>, level: Option<u32>, protected: bool| {
            let fields = json!({
                "checkpoint": 3, "scheme": scheme, "descriptor": descriptor, "level": level, "protected": protected,
                "bytes": 1 << 20, "millis": 7,
            });
            event("checkpoint_complete", fields).sentence().unwrap()
        };
        let local = complete("LOCAL", None, None, false);
        assert_eq!(local, "checkpoint 3 complete, not protected (LOCAL), 1.00 MiB in 7 ms");
        // Whether it is protected, only another event says.
        let xor = complete("XOR", None, Some(3), true);
        assert_eq!(xor, "checkpoint 3 complete at level 3, 1.00 MiB in 7 ms");
        let of_second = complete("RS", Some(1), None, true);
        assert_eq!(of_second, "checkpoint 3 complete for redundancy[1], 1.00 MiB in 7 ms");
        let protected = |descriptor: Option<u32>| {
            let fields = json!({"checkpoint": 3, "descriptor": descriptor, "survives": 1, "millis": 9});
            event("checkpoint_protected", fields).sentence().unwrap()
        };
        assert_eq!(protected(None), "checkpoint 3 protected (XOR) after 9 ms");
        assert_eq!(protected(Some(0)), "checkpoint 3 protected (redundancy[0]: XOR) after 9 ms");
    }

    #[test]
    fn a_clock_is_ahead_or_behind() {
        let skew = |ahead_ms| LogEvent::ClockSkew { node: "n1".into(), ahead_ms }.sentence().unwrap();
        assert!(skew(37_000).contains("n1: clock 37 s ahead of the orchestrator's"));
        assert!(skew(-37_999).contains("37 s behind the orchestrator's"));
    }
}
