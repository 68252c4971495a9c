//! The member's end of the link to the leader: carries out orders, and passes results to this node's ranks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Failure, FailureKind, Rank};
use holdfast_wire::peer::{Outcome, ToLeader, ToMember};
use holdfast_wire::rank::Reply;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::CallError;
use super::link;
use super::participation::Participation;
use crate::agent::Agent;
use crate::copy::pace::OrderControl;
use crate::orders;
use crate::run::Run;
use crate::sources::PutBack;
use crate::stream::StreamError;

/// The first and the longest pause before another attempt to connect to the leader.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Keeps the link to the leader for the entire run.
pub async fn keep_link(agent: Arc<Agent>, part: Arc<Participation>, mut from_ranks: mpsc::UnboundedReceiver<ToLeader>) {
    let mut pause = PAUSE.0;
    loop {
        let (to_leader, from_leader) = match connect(&agent, &part).await {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!(leader = %part.run.plan.leader, %error, "leader_not_connected");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                continue;
            }
        };
        let received = follow(&agent, &part, to_leader, from_leader, &mut from_ranks).await;
        tracing::info!(leader = %part.run.plan.leader, "leader_link_lost");
        if received {
            pause = PAUSE.0;
        } else {
            // Nothing was received: not at once again.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Serves a link until it breaks. True if anything was received on it.
async fn follow(
    agent: &Arc<Agent>,
    part: &Arc<Participation>,
    to_leader: mpsc::UnboundedSender<ToLeader>,
    mut from_leader: mpsc::UnboundedReceiver<ToMember>,
    from_ranks: &mut mpsc::UnboundedReceiver<ToLeader>,
) -> bool {
    for message in part.repeat() {
        if to_leader.send(message).is_err() {
            return false;
        }
    }
    // Dropped when the link breaks: the leader, or its successor, repeats its orders.
    let mut orders = BTreeMap::new();
    let mut received = false;
    loop {
        tokio::select! {
            message = from_leader.recv() => match message {
                Some(message) => {
                    received = true;
                    handle(agent, part, &to_leader, &mut orders, message);
                }
                None => return received,
            },
            message = from_ranks.recv() => match message {
                Some(message) => if to_leader.send(message).is_err() { return received },
                None => return received,
            },
        }
    }
}

/// An order that is being carried out; its copies are cancelled when this is dropped.
struct RunningOrder {
    task: JoinHandle<()>,
    /// Lifts its limits.
    unlimited: CancellationToken,
    _cancel: DropGuard,
}

fn handle(
    agent: &Arc<Agent>,
    part: &Arc<Participation>,
    to_leader: &mpsc::UnboundedSender<ToLeader>,
    orders: &mut BTreeMap<u64, RunningOrder>,
    message: ToMember,
) {
    match message {
        ToMember::Order { order, what } => {
            let (agent, run, to_leader) = (agent.clone(), part.run.clone(), to_leader.clone());
            let control = OrderControl { cancelled: run.cancelled.child_token(), ..OrderControl::default() };
            let _cancel = control.cancelled.clone().drop_guard();
            let unlimited = control.unlimited.clone();
            let counted = run.work.token();
            let task = tokio::spawn(async move {
                let work = tokio::task::spawn_blocking(move || {
                    let result = orders::execute(&agent, &run, order, what, &control);
                    drop(counted);
                    result
                });
                let result = work.await.unwrap_or_else(|error| {
                    Err(Failure::new(FailureKind::Internal, format!("the agent failed: {error}")))
                });
                let _ = to_leader.send(ToLeader::Done { order, result });
            });
            orders.retain(|_, running| !running.task.is_finished());
            orders.insert(order, RunningOrder { task, unlimited, _cancel });
        }
        ToMember::Cancel { order } => {
            orders.remove(&order);
            agent.streams.cancel(order);
        }
        ToMember::LiftLimits { order } => {
            if let Some(running) = orders.get(&order) {
                running.unlimited.cancel();
            }
        }
        ToMember::Results { seq, outcome } => {
            let waiting = part.calls.take(seq);
            let (agent, run) = (agent.clone(), part.run.clone());
            // The filemaps may be locked by a change that waits for a disk.
            tokio::task::spawn_blocking(move || {
                for (rank, answer) in waiting {
                    // A rank that has ended needs no answer.
                    let _ = answer.send(localise(&agent, &run, rank, outcome.clone()));
                }
            });
        }
    }
}

/// Adds the paths of the files on this node.
fn localise(agent: &Agent, run: &Run, rank: Rank, outcome: Outcome) -> Outcome {
    let files = run.files_of(rank, agent);
    match outcome? {
        Reply::Restart(mut restart) => {
            if let Some(checkpoint) = restart.checkpoint {
                let PutBack { directory, files } = run.source.put_back(&files, checkpoint).map_err(CallError::from)?;
                restart.directory = Some(directory);
                restart.files = files;
            }
            Ok(Reply::Restart(restart))
        }
        Reply::Started { checkpoint, .. } => {
            let directory = files.directory(checkpoint).map_err(CallError::from)?;
            Ok(Reply::Started { checkpoint, directory, mirrored: files.mirrored(checkpoint) })
        }
        other => Ok(other),
    }
}

type Link = (mpsc::UnboundedSender<ToLeader>, mpsc::UnboundedReceiver<ToMember>);

/// Connects to the leader; on the leader's own node through channels.
async fn connect(agent: &Arc<Agent>, part: &Arc<Participation>) -> Result<Link, StreamError> {
    let node = &agent.start.node;
    if let Some(leader) = &part.leader {
        let (to_member, from_leader) = mpsc::unbounded_channel();
        let (to_leader, mut from_member) = mpsc::unbounded_channel();
        let link = leader.link_up(node, to_member);
        let (leader, node) = (leader.clone(), node.clone());
        tokio::spawn(async move {
            while let Some(message) = from_member.recv().await {
                leader.receive(&node, message);
            }
            leader.link_down(&node, link);
        });
        return Ok((to_leader, from_leader));
    }
    let stream = agent.streams.connect_link(part.run.plan.generation, &part.run.plan.leader).await?;
    Ok(link::to_leader(agent.clone(), &part.run.plan.leader, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_model::{CheckpointId, Generation};
    use holdfast_wire::rank::Call;

    use crate::agent::fixtures::fixture_agent;
    use crate::collective::{Collectives, begin_run};
    use crate::fixtures::fixture_request;

    #[tokio::test]
    async fn results_that_need_the_filemaps_do_not_block_the_task_while_a_disk_hangs() {
        let (_root, agent) = fixture_agent("node1", "1145655");
        let collectives = Collectives::new(agent.clone());
        begin_run(&collectives, fixture_request(Generation(2), "node1", &[1])).await.unwrap();
        let part = collectives.participation().unwrap();
        let answer = part.call(Rank(1), 1, Call::Start);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (stalled, has_stalled) = std::sync::mpsc::channel();
        let disk = std::thread::spawn({
            let agent = agent.clone();
            move || {
                let _held = agent.store.stall();
                stalled.send(()).unwrap();
                let _ = released.recv_timeout(Duration::from_secs(30));
            }
        });
        has_stalled.recv().unwrap();
        let started = Reply::Started { checkpoint: CheckpointId(3), directory: "".into(), mirrored: None };
        let (to_leader, _messages) = mpsc::unbounded_channel();
        handle(&agent, &part, &to_leader, &mut BTreeMap::new(), ToMember::Results { seq: 1, outcome: Ok(started) });
        assert!(!disk.is_finished(), "the task waited for the disk");
        drop(release);
        let Ok(Reply::Started { directory, .. }) = answer.await.unwrap() else { panic!("not the answer") };
        assert!(directory.ends_with("checkpoint.3"), "{directory:?}");
        disk.join().unwrap();
    }
}
