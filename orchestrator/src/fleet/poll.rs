//! The task that always has a question to one agent under way.
//!
//! The agent holds its answer back until there is news or the poll interval is over. When its process dies, the system
//! closes the connection, and the question ends at once: the loss is noticed within a millisecond, not after an interval.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::{PollReply, PollRequest};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::{AgentClient, Clock, RequestError};

/// What a poller reports.
#[derive(Debug)]
pub enum PollReport {
    /// An answer, its events new.
    Answered {
        /// The node.
        node: NodeName,
        /// Which start of the node's agent was asked.
        start: u64,
        /// When the question was sent.
        sent: Duration,
        /// The answer.
        reply: Box<PollReply>,
    },
    /// The agent is lost; the poller has ended.
    Lost {
        /// The node.
        node: NodeName,
        /// Which start of the node's agent was asked.
        start: u64,
        /// What was seen.
        reason: String,
    },
}

/// Whom to poll, and how.
#[derive(Clone, Debug)]
pub struct PollTarget {
    /// The node.
    pub node: NodeName,
    /// Counts the starts of this node's agent, so that reports about an old one do not count.
    pub start: u64,
    /// Where the agent listens.
    pub address: SocketAddr,
    /// How long the agent may hold an answer back.
    pub interval: Duration,
    /// How much longer than that an answer may take.
    pub patience: Duration,
    /// What an earlier orchestrator has seen of its events: the instance and the highest number.
    pub seen: Option<(u64, u64)>,
    /// When the allocation ends, as the manager says now.
    pub end: watch::Receiver<Option<i64>>,
}

/// A running poller; dropping it ends it.
#[derive(Debug)]
pub struct Poller {
    task: JoinHandle<()>,
    now: Arc<Notify>,
}

impl Poller {
    /// Polls until the agent is lost.
    pub fn spawn(
        client: AgentClient,
        target: PollTarget,
        clock: Clock,
        reports: mpsc::UnboundedSender<PollReport>,
    ) -> Self {
        let now = Arc::new(Notify::new());
        let asked = Arc::clone(&now);
        let task = tokio::spawn(async move { poll(client, target, clock, reports, asked).await });
        Poller { task, now }
    }

    /// Sends another question now, whatever is under way.
    pub fn poll_now(&self) {
        self.now.notify_one();
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was seen of an agent's events.
#[derive(Debug, Default)]
struct Seen {
    instance: Option<u64>,
    number: u64,
}

impl Seen {
    /// Takes the events out that were seen before. After a change of the instance, counting begins again: an answer
    /// that was asked for with an old number may lack events, so none of it are taken, and they are asked for anew.
    fn filter(&mut self, reply: &mut PollReply, asked_after: u64) {
        if self.instance != Some(reply.instance) {
            self.instance = Some(reply.instance);
            self.number = 0;
            if asked_after > 0 {
                reply.events.clear();
            }
        }
        reply.events.retain(|event| event.number > self.number);
        self.number = reply.events.iter().map(|event| event.number).max().unwrap_or(self.number);
    }
}

async fn poll(
    client: AgentClient,
    target: PollTarget,
    clock: Clock,
    reports: mpsc::UnboundedSender<PollReport>,
    now: Arc<Notify>,
) {
    let wait_ms = u64::try_from(target.interval.as_millis()).unwrap_or(u64::MAX);
    let mut seen = match target.seen {
        Some((instance, number)) => Seen { instance: Some(instance), number },
        None => Seen::default(),
    };
    let reason = 'lost: loop {
        let allocation_end = *target.end.borrow();
        let (sent, long) = (clock.now(), PollRequest { after: seen.number, wait_ms, allocation_end });
        let question = client.poll(target.address, &long, target.patience);
        tokio::pin!(question);
        let answer = loop {
            tokio::select! {
                answer = &mut question => break answer,
                () = now.notified() => {
                    // Beside the question that is under way: breaking that off would cost its connection.
                    let (sent, short) = (clock.now(), PollRequest { after: seen.number, wait_ms: 0, allocation_end });
                    match client.poll(target.address, &short, target.patience).await {
                        Ok(reply) => if !answered(&target, &reports, &mut seen, short.after, sent, reply) { return },
                        Err(error) => break 'lost error,
                    }
                }
            }
        };
        match answer {
            Ok(reply) => {
                if !answered(&target, &reports, &mut seen, long.after, sent, reply) {
                    return;
                }
            }
            Err(error) => break error,
        }
    };
    lost(&target, &reports, &reason);
}

fn answered(
    target: &PollTarget,
    reports: &mpsc::UnboundedSender<PollReport>,
    seen: &mut Seen,
    asked_after: u64,
    sent: Duration,
    mut reply: PollReply,
) -> bool {
    seen.filter(&mut reply, asked_after);
    let (node, start, reply) = (target.node.clone(), target.start, Box::new(reply));
    reports.send(PollReport::Answered { node, start, sent, reply }).is_ok()
}

fn lost(target: &PollTarget, reports: &mpsc::UnboundedSender<PollReport>, error: &RequestError) {
    // Not received any more when the orchestrator is ending.
    let _ = reports.send(PollReport::Lost { node: target.node.clone(), start: target.start, reason: error.seen() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::Generation;
    use holdfast_wire::agent::{AgentEvent, Health, NumberedEvent};

    fn reply(instance: u64, numbers: &[u64]) -> PollReply {
        let health = Health {
            node: "node0".into(),
            generation: Generation(1),
            ranks: vec![],
            memory_total: 0,
            memory_available: 0,
            load: 0.0,
            directories: vec![],
            strangers: 0,
            newest: None,
            agent_memory: 0,
            quiet: vec![],
        };
        let event =
            |number: &u64| NumberedEvent { number: *number, event: AgentEvent::Notice { message: number.to_string() } };
        PollReply { instance, health, events: numbers.iter().map(event).collect(), progress: vec![] }
    }

    fn numbers(reply: &PollReply) -> Vec<u64> {
        reply.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn an_event_that_two_answers_carry_is_reported_once() {
        let mut seen = Seen::default();
        let mut first = reply(7, &[1, 2]);
        seen.filter(&mut first, 0);
        let mut second = reply(7, &[2, 3]);
        seen.filter(&mut second, 1);
        assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2], vec![3]));
    }

    #[test]
    fn an_agent_that_was_restarted_counts_anew_and_nothing_is_skipped() {
        let mut seen = Seen::default();
        seen.filter(&mut reply(7, &[1, 2, 3, 4]), 0);
        let mut asked_too_late = reply(8, &[5]);
        seen.filter(&mut asked_too_late, 4);
        assert!(numbers(&asked_too_late).is_empty());
        assert_eq!(seen.number, 0);
        let mut again = reply(8, &[1, 2, 3, 4, 5]);
        seen.filter(&mut again, 0);
        assert_eq!(numbers(&again).len(), 5);
    }
}
