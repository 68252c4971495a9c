//! Polls: the reported events, their latency, and the number of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast::allocation::Allocation;
use holdfast::fleet::{AgentClient, AgentRecord, AgentSupervisor, Clock, FleetEvent, FleetSettings};
use holdfast_model::NodeName;
use holdfast_wire::agent::{self, AgentEvent, PollReply};
use holdfast_wire::reachable::silent_address;
use holdfast_wire::trust;

use crate::here::Here;
use crate::simulated::allocation::{Simulated, template};
use crate::simulated::{Agents, address, node};

/// Longer than any test: a report does not wait for the end of the poll.
const HOURS: Duration = Duration::from_secs(3600);

struct World {
    agents: Arc<Agents>,
    allocation: Arc<Simulated>,
    fleet: AgentSupervisor,
    clock: Clock,
}

impl World {
    /// Agents that are polled; returns when their first reports have arrived.
    async fn of(count: usize, interval: Duration) -> World {
        let trust = trust::generate().unwrap();
        let agents = Agents::serve(trust.clone(), count).unwrap();
        let clock = Clock::since(0);
        let settings = FleetSettings {
            template: template(trust.clone()),
            poll_interval: interval,
            poll_patience: HOURS,
            allocation_end: None,
            clock,
        };
        let allocation = Simulated::new(count, Box::new(Here::new(count)));
        let client = AgentClient::new(&trust, 2).unwrap();
        let fleet = AgentSupervisor::new(Arc::clone(&allocation) as Arc<dyn Allocation>, client, settings);
        let mut world = World { agents, allocation, fleet, clock };
        let record = |index| record(address(index, world.agents.port()));
        let known: BTreeMap<NodeName, AgentRecord> = (0..count).map(|index| (node(index), record(index))).collect();
        world.fleet.adopt(&known).await;
        let (mut up, mut reported) = (0, 0);
        while up < count || reported < count {
            match world.fleet.next().await {
                FleetEvent::Up { .. } => up += 1,
                FleetEvent::Answered { .. } => reported += 1,
                FleetEvent::Unchanged { .. } | FleetEvent::PollsRan { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        world
    }

    /// The next answer with content.
    async fn news(&mut self) -> (NodeName, PollReply) {
        loop {
            match self.fleet.next().await {
                FleetEvent::Answered { node, reply, .. } => return (node, *reply),
                FleetEvent::Unchanged { .. } | FleetEvent::PollsRan { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn record(address: SocketAddr) -> AgentRecord {
    AgentRecord { address, pid: 0, pulse: None, seen: (0, 0) }
}

fn notice(text: &str) -> AgentEvent {
    AgentEvent::Notice { message: text.to_owned() }
}

#[tokio::test]
async fn lost_agent_is_reported_at_once_during_long_poll() {
    let mut world = World::of(3, HOURS).await;
    world.agents.lose(1);
    loop {
        match world.fleet.next().await {
            FleetEvent::PollsRan { .. } => {}
            FleetEvent::Lost { node: lost, .. } => break assert_eq!(lost, node(1)),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn machine_that_neither_this_process_nor_other_agents_reach_is_lost_before_its_manager_knows() {
    let mut world = World::of(3, HOURS).await;
    let (silent, _waiting) = silent_address().unwrap();
    world.fleet.adopt(&BTreeMap::from([(node(1), record(silent.local_addr().unwrap()))])).await;
    world.allocation.hang(1);
    world.fleet.start(node(1));
    loop {
        match world.fleet.next().await {
            FleetEvent::StartFailed { node: lost, reason, node_lost } => {
                assert!(lost == node(1) && node_lost);
                let expected = "127.0.0.1 answers neither this node nor node00000 nor node00002";
                break assert!(reason.ends_with(expected), "{reason}");
            }
            FleetEvent::PollsRan { .. } | FleetEvent::Unchanged { .. } | FleetEvent::Lost { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.agents.received()[agent::PULSE].requests, 2, "each of the others was asked once");
}

#[tokio::test]
async fn agent_that_closes_its_connections_and_is_alive_is_not_lost() {
    let mut world = World::of(2, Duration::from_millis(50)).await;
    for text in ["a", "b", "c"] {
        world.agents.close_connections(1);
        world.agents.emit(1, notice(text));
        // Answers without this event may arrive before it.
        loop {
            let (from, reply) = world.news().await;
            if from == node(1) && reply.events.iter().any(|event| event.event == notice(text)) {
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_event_is_reported_at_once_and_once() {
    let mut world = World::of(2, HOURS).await;
    for text in ["a", "b"] {
        world.agents.emit(1, notice(text));
        let (from, reply) = world.news().await;
        let events: Vec<_> = reply.events.into_iter().map(|event| event.event).collect();
        assert_eq!((from, events), (node(1), vec![notice(text)]));
    }
}

#[tokio::test]
async fn idle_agents_answer_polls_without_report() {
    let mut world = World::of(20, Duration::from_millis(10)).await;
    let (mut heard, mut answers) = (BTreeSet::new(), 0);
    while heard.len() < 20 || answers < 200 {
        match world.fleet.next().await {
            FleetEvent::Unchanged { answers: unchanged } => {
                answers += unchanged.len();
                heard.extend(unchanged.into_iter().map(|(node, _)| node));
            }
            FleetEvent::PollsRan { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn all_agents_answer_later_polls() {
    let mut world = World::of(10, HOURS).await;
    let since = world.clock.now();
    let nodes: Vec<NodeName> = (0..10).map(node).collect();
    world.fleet.poll_now(&nodes);
    let mut heard = BTreeSet::new();
    while heard.len() < 10 {
        match world.fleet.next().await {
            FleetEvent::Answered { node, sent, .. } => {
                assert!(sent >= since);
                heard.insert(node);
            }
            FleetEvent::Unchanged { answers } => {
                assert!(answers.iter().all(|(_, sent)| *sent >= since));
                heard.extend(answers.into_iter().map(|(node, _)| node));
            }
            FleetEvent::PollsRan { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn keeps_connections_unless_descriptors_are_short() {
    let trust = trust::generate().unwrap();
    let agents = Agents::serve(trust.clone(), 3).unwrap();
    let mut connections = agents.connections.subscribe();
    let addresses: Vec<_> = (0..3).map(|index| address(index, agents.port())).collect();
    let ask_all = async |client: &AgentClient| {
        for answer in client.each(addresses.clone(), |address| client.halt(address)).await {
            answer.unwrap();
        }
    };
    let client = AgentClient::new(&trust, 3).unwrap();
    let closing = client.clone().closing_connections();
    ask_all(&closing).await;
    ask_all(&closing).await;
    // If they were kept, they would be open for four seconds.
    tokio::time::timeout(Duration::from_secs(3), connections.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    ask_all(&client).await;
    assert_eq!(*connections.borrow(), 3);
}
