//! Events: what the loop decided, what the agents report, and what the driver does itself.

use std::path::PathBuf;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::rank::RestartSource;
use serde::Serialize;

use crate::relaunch::LogEvent;
use crate::relaunch::reason::ranks_text;
use holdfast_model::RankEnd;

/// One event. All three kinds share one name space: the field `event`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Entry {
    /// The relaunch loop decided something.
    Machine(LogEvent),
    /// An agent reports.
    Agent {
        /// Its node.
        node: NodeName,
        /// What it says.
        #[serde(flatten)]
        event: AgentEvent,
    },
    /// The driver did or saw something.
    Own(OwnEvent),
}

/// What the driver does or sees.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum OwnEvent {
    /// A job begins.
    JobStarted {
        /// Its name.
        job: String,
        /// Its id.
        job_id: String,
        /// The nodes.
        nodes: Vec<NodeName>,
        /// The prefix directory.
        prefix: PathBuf,
    },
    /// A process of the application ended with an error.
    RankFailed {
        /// The generation.
        generation: Generation,
        /// The rank.
        rank: Rank,
        /// How.
        end: RankEnd,
    },
    /// The resource manager does not start the ranks yet; it is asked again.
    LaunchDelayed {
        /// The generation.
        generation: Generation,
        /// Its words.
        reason: String,
    },
    /// A rehearsed failure strikes.
    ChaosStruck {
        /// The virtual node.
        node: NodeName,
        /// Only its agent dies.
        agent_only: bool,
    },
    /// A command of `before:` or `after:` was run.
    SiteCommand {
        /// The program.
        program: String,
        /// On which nodes.
        nodes: Vec<NodeName>,
        /// How it ended, if not well.
        failure: Option<String>,
    },
    /// A dataset cannot be drained, or was passed over.
    DrainSkipped {
        /// The dataset.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// A dataset is being copied.
    DrainStarted {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// Whether an earlier drain of it is gone on with.
        resumed: bool,
    },
    /// A round of copies ended on a node.
    Copied {
        /// The round.
        round: u8,
        /// The node.
        node: NodeName,
        /// Ranks whose files were copied.
        ranks: Vec<Rank>,
        /// Bytes.
        bytes: u64,
        /// What failed, if anything.
        failure: Option<String>,
    },
    /// Lost files were computed in the prefix directory.
    RebuiltInPrefix {
        /// The dataset.
        checkpoint: CheckpointId,
        /// Whose.
        rank: Rank,
    },
    /// A file in the prefix directory does not count.
    DamagedInPrefix {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The file and what is wrong with it.
        file: String,
    },
    /// The index was written.
    Indexed {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// Complete, and now current.
        complete: bool,
    },
    /// Something that a person should know; nothing failed.
    Remark {
        /// The text.
        message: String,
    },
}

impl Entry {
    /// The line for people; `None` for what only the log keeps.
    pub fn line(&self) -> Option<String> {
        match self {
            Entry::Machine(event) => machine_line(event),
            Entry::Agent { node, event } => agent_line(node, event),
            Entry::Own(event) => own_line(event),
        }
    }
}

fn machine_line(event: &LogEvent) -> Option<String> {
    Some(match event {
        LogEvent::AgentReady { again: false, .. } => return None,
        LogEvent::AgentReady { node, again: true } => format!("{node}: agent is back"),
        LogEvent::AgentLost { node, reason } => format!("{node}: agent lost ({reason})"),
        LogEvent::NodeDown { node, reason, ranks } if ranks.is_empty() => format!("{node} is down: {reason}"),
        LogEvent::NodeDown { node, reason, ranks } => format!("{node} is down: {reason}; it had {}", ranks_text(ranks)),
        LogEvent::GenerationPlaced { generation, nodes, spares, moved } => {
            let moved = if moved.is_empty() { String::new() } else { format!(", moved: {}", ranks_text(moved)) };
            format!("generation {generation} on {}, {spares} spare(s){moved}", names(nodes))
        }
        LogEvent::GenerationLaunched { generation, relaunches: 0 } => format!("generation {generation} launched"),
        LogEvent::GenerationLaunched { generation, relaunches } => {
            format!("generation {generation} launched (relaunch {relaunches})")
        }
        LogEvent::HangSuspected { generation, reason, .. } => {
            format!("generation {generation} seems to hang, saving stacks: {reason}")
        }
        LogEvent::HangDismissed { generation } => format!("generation {generation} goes on: something moved"),
        LogEvent::Hang { generation, ranks, .. } => {
            format!("generation {generation} hangs in {}", ranks_text(ranks))
        }
        LogEvent::GenerationEnding { generation, seen } => format!("generation {generation} is being ended: {seen}"),
        LogEvent::GenerationEnded { generation, cause, newest, .. } => match newest {
            Some(id) => format!("generation {generation} ended: {cause}; newest checkpoint {id}"),
            None => format!("generation {generation} ended: {cause}; no checkpoint yet"),
        },
        LogEvent::HaltSet { reason } => format!("halt: {reason}"),
        LogEvent::HaltCleared => "the halt condition was removed".to_owned(),
        LogEvent::Signal { name, at_once: false } => format!("{name}: halting, then draining; once more ends at once"),
        LogEvent::Signal { name, at_once: true } => format!("{name} again: ending at once"),
        LogEvent::TookOver { generation } => format!("took over the running job in generation {generation}"),
        LogEvent::Stopping { reason } => format!("stopping: {reason}"),
        LogEvent::Drained { .. } => return None,
        LogEvent::Finished { exit_code, message } => format!("end (exit code {exit_code}): {message}"),
    })
}

fn agent_line(node: &NodeName, event: &AgentEvent) -> Option<String> {
    Some(match event {
        AgentEvent::RankConnected { .. }
        | AgentEvent::RankGone { .. }
        | AgentEvent::CheckpointStarted { .. }
        | AgentEvent::EncodeStarted { .. } => return None,
        AgentEvent::RestartAttempt { checkpoint, from, reason, .. } => {
            format!("checkpoint {checkpoint} from {from} cannot be used: {reason}")
        }
        AgentEvent::Restarted { checkpoint, source, rebuilt, moved, millis, .. } => {
            let from = match (checkpoint, source) {
                (Some(id), source) => format!("checkpoint {id} {}", source_text(*source)),
                (None, _) => "the beginning".to_owned(),
            };
            let mut line = format!("started from {from} in {millis} ms");
            if !rebuilt.is_empty() {
                line.push_str(&format!(", rebuilt: {}", ranks_text(rebuilt)));
            }
            if !moved.is_empty() {
                line.push_str(&format!(", moved: {}", ranks_text(moved)));
            }
            line
        }
        AgentEvent::RebuildStarted { checkpoint, ranks, .. } => {
            format!("rebuilding {} of checkpoint {checkpoint} in cache", ranks_text(ranks))
        }
        AgentEvent::CheckpointComplete { checkpoint, scheme, bytes, millis, .. } => {
            let protection = if scheme == "LOCAL" { "not protected" } else { "protected" };
            let size = indicatif::HumanBytes(*bytes);
            format!("checkpoint {checkpoint} complete, {protection} ({scheme}), {size} in {millis} ms")
        }
        AgentEvent::CheckpointFailed { checkpoint, reason, .. } => format!("checkpoint {checkpoint} dropped: {reason}"),
        AgentEvent::Flushed { checkpoint, directory, millis, .. } => {
            format!("checkpoint {checkpoint} flushed to {directory} in {millis} ms")
        }
        AgentEvent::FlushFailed { checkpoint, reason, .. } => {
            format!("checkpoint {checkpoint} was not flushed: {reason}")
        }
        AgentEvent::Halting { reason, .. } => format!("the ranks were told to stop: {reason}"),
        AgentEvent::Finalized { .. } => "the application called finalize".to_owned(),
        AgentEvent::Stranger { peer, reason } => format!("{node}: refused a stranger at {peer}: {reason}"),
        AgentEvent::Notice { message } => format!("{node}: {message}"),
    })
}

fn own_line(event: &OwnEvent) -> Option<String> {
    Some(match event {
        OwnEvent::JobStarted { job, job_id, nodes, prefix } => {
            format!("job {job} ({job_id}) on {}, prefix {}", names(nodes), prefix.display())
        }
        OwnEvent::RankFailed { rank, end, .. } => format!("rank {rank} ended with {end}"),
        OwnEvent::LaunchDelayed { generation, reason } => {
            format!("generation {generation} is not started yet, and tried again: {reason}")
        }
        OwnEvent::ChaosStruck { node, agent_only: true } => format!("chaos: the agent of {node} is killed"),
        OwnEvent::ChaosStruck { node, agent_only: false } => format!("chaos: {node} dies"),
        OwnEvent::SiteCommand { program, nodes, failure: None } => format!("{program} was run on {}", names(nodes)),
        OwnEvent::SiteCommand { program, failure: Some(failure), .. } => format!("{program} failed on {failure}"),
        OwnEvent::DrainSkipped { checkpoint, reason } => {
            format!("drain: checkpoint {checkpoint} passed over: {reason}")
        }
        OwnEvent::DrainStarted { checkpoint, directory, resumed: false } => {
            format!("drain: copying checkpoint {checkpoint} to {directory}")
        }
        OwnEvent::DrainStarted { checkpoint, directory, resumed: true } => {
            format!("drain: completing checkpoint {checkpoint} in {directory}")
        }
        OwnEvent::Copied { round, node, ranks, bytes, failure } => {
            let done = match ranks.as_slice() {
                [] => "nothing copied".to_owned(),
                ranks => format!("copied {}, {}", ranks_text(ranks), indicatif::HumanBytes(*bytes)),
            };
            let failed = failure.as_ref().map(|reason| format!("; failed: {reason}")).unwrap_or_default();
            format!("drain, round {round}: {node} {done}{failed}")
        }
        OwnEvent::RebuiltInPrefix { checkpoint, rank } => {
            format!("drain: rank {rank} of checkpoint {checkpoint} rebuilt")
        }
        OwnEvent::DamagedInPrefix { file, .. } => format!("drain: not used: {file}"),
        OwnEvent::Indexed { checkpoint, directory, complete: true } => {
            format!("checkpoint {checkpoint} is complete in {directory}, and current")
        }
        OwnEvent::Indexed { checkpoint, directory, complete: false } => {
            format!("checkpoint {checkpoint} is recorded as incomplete in {directory}")
        }
        OwnEvent::Remark { message } => message.clone(),
    })
}

fn source_text(source: RestartSource) -> &'static str {
    match source {
        RestartSource::Cache => "in cache",
        RestartSource::Rebuilt => "in cache, restored",
        RestartSource::Fetched => "from the prefix directory",
        RestartSource::Fresh => "of this run",
    }
}

/// The first few names, and how many more.
fn names(nodes: &[NodeName]) -> String {
    const NAMED: usize = 8;
    let named: Vec<&str> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
    match nodes.len().saturating_sub(NAMED) {
        0 => named.join(" "),
        more => format!("{} and {more} more", named.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_has_its_stable_name_in_one_place() {
        let halt = LogEvent::HaltSet { reason: "JOB_HALTED".to_owned() };
        let stranger = AgentEvent::Stranger { peer: "10.0.0.1:9".to_owned(), reason: "no token".to_owned() };
        let remark = OwnEvent::Remark { message: "hello".to_owned() };
        let entries = [
            (Entry::Machine(halt), "halt_set"),
            (Entry::Agent { node: "node1".into(), event: stranger }, "stranger"),
            (Entry::Own(remark), "remark"),
        ];
        for (entry, name) in entries {
            assert_eq!(serde_json::to_value(&entry).unwrap()["event"], name);
        }
    }

    #[test]
    fn a_checkpoint_without_redundancy_is_not_called_protected() {
        let complete = |scheme: &str| {
            let event = AgentEvent::CheckpointComplete {
                generation: Generation(1),
                checkpoint: CheckpointId(3),
                scheme: scheme.to_owned(),
                bytes: 1 << 20,
                millis: 7,
            };
            Entry::Agent { node: "node0".into(), event }.line().unwrap()
        };
        assert!(complete("LOCAL").contains("not protected"));
        assert!(complete("XOR").contains("complete, protected (XOR), 1.00 MiB in 7 ms"), "{}", complete("XOR"));
    }

    #[test]
    fn rows_of_ranks_are_drawn_together() {
        let ranks: Vec<Rank> = [7, 0, 1, 2, 2].into_iter().map(Rank).collect();
        assert_eq!(ranks_text(&ranks), "ranks 0-2,7");
        assert_eq!(ranks_text(&ranks[..1]), "rank 7");
    }
}
