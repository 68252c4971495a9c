//! The relaunch machine alone: the cost of its decisions, and the size of their journal. Simulated agents answer
//! at once; nothing is sent or stored.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdfast::relaunch::{Action, AllocatedNode, Config, Event, HeldActions, Machine};
use holdfast_model::{Generation, NodeName};

use crate::figures::{Samples, below, once, title};
use crate::{Extent, Result};

/// Aim for placing and preparing the largest run, seconds.
const AIM: f64 = 1.0;
/// The number of events that are passed together.
const BATCH: usize = 256;

pub fn run(extent: Extent) -> Result<()> {
    let (ranks, nodes) = extent.led[0];
    let mut syncs = Vec::new();
    for (ranks, nodes) in [(64, 64.min(nodes)), (ranks, nodes)] {
        title(&format!("The relaunch machine, {ranks} ranks on {nodes} nodes"));
        let (mut launched, mut relaunched, mut polled) = (Samples::default(), Samples::default(), Samples::default());
        let mut written = (0, 0);
        for _ in 0..extent.tries {
            let mut job = Job::new(ranks, nodes)?;
            let actions = job.machine.begin(job.now);
            job.settle(actions);
            job.expect_launches(1)?;
            launched.add(job.spent.as_secs_f64());
            polled.add(job.poll_all() * 1e6);
            let (spent, commits, bytes) = (job.spent, job.commits, job.bytes);
            // Ranks are placed on the first nodes.
            job.lose(1);
            job.expect_launches(2)?;
            relaunched.add((job.spent - spent).as_secs_f64());
            written = (job.commits - commits, job.bytes - bytes);
        }
        launched.show_seconds("agents up, placed, prepared, launched", None);
        relaunched.show_seconds("a node lost, relaunched", None);
        polled.show("an answered poll", "µs");
        once("written for the relaunch", written.1 as f64, "bytes", &format!("   {} syncs", written.0));
        below("agents up, placed, prepared, launched", launched.median(), AIM, "s");
        syncs.push(written.0);
    }
    if syncs.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(format!("a relaunch costs more syncs where there are more nodes: {syncs:?}").into());
    }
    Ok(())
}

/// The machine, and the effects of its actions.
struct Job {
    machine: Machine,
    held: HeldActions,
    now: Duration,
    /// Nodes that do not answer.
    lost: Option<NodeName>,
    launches: u32,
    /// Time in the machine, and for the encoding of its journal.
    spent: Duration,
    /// Entries of the journal that an action waited for.
    commits: u64,
    /// Bytes of all entries.
    bytes: usize,
}

fn name(node: u32) -> NodeName {
    NodeName::new(format!("n{node}"))
}

fn address(node: &NodeName) -> Option<SocketAddr> {
    let number: u32 = node.as_str().get(1..)?.parse().ok()?;
    Some((std::net::Ipv4Addr::from_bits(0x0A00_0000 + number), 4000).into())
}

impl Job {
    /// A spare for every hundred nodes.
    fn new(ranks: u32, nodes: u32) -> Result<Self> {
        let node = |node| AllocatedNode { name: name(node), failure_domain: format!("{node}") };
        let needed = nodes - nodes.div_ceil(100);
        let mut config = Config::new((0..nodes).map(node).collect(), needed, ranks.div_ceil(needed));
        config.ranks = ranks;
        config.nodes_needed = ranks.div_ceil(config.ranks_per_node);
        config.min_nodes = config.nodes_needed;
        Ok(Job {
            machine: Machine::new(config),
            held: HeldActions::new(Generation::NONE),
            now: Duration::ZERO,
            lost: None,
            launches: 0,
            spent: Duration::ZERO,
            commits: 0,
            bytes: 0,
        })
    }

    /// Performs actions until there are none.
    fn settle(&mut self, actions: Vec<Action>) {
        let mut events: VecDeque<Event> = VecDeque::new();
        let mut actions = Some(actions);
        while let Some(decided) = actions.take() {
            let begun = Instant::now();
            let mut to_do = self.held.admit(self.commits + 1, decided);
            if self.held.waits() {
                self.commits += 1;
            }
            let changes = self.machine.take_changes();
            if !changes.is_empty() {
                self.bytes += serde_json::to_vec(&changes).map_or(0, |text| text.len());
            }
            to_do.extend(self.held.release(self.commits, &self.machine));
            self.spent += begun.elapsed();
            to_do.into_iter().for_each(|action| self.answer(action, &mut events));
            if !events.is_empty() {
                let batch: Vec<Event> = events.drain(..events.len().min(BATCH)).collect();
                self.now += Duration::from_millis(1);
                let begun = Instant::now();
                actions = Some(self.machine.handle_all(self.now, batch));
                self.spent += begun.elapsed();
            }
        }
    }

    fn answer(&mut self, action: Action, events: &mut VecDeque<Event>) {
        let lives = |node: &NodeName| self.lost.as_ref() != Some(node);
        let sent = self.now;
        match action {
            Action::StartAgent { node } if !lives(&node) => {
                events.push_back(Event::AgentStartFailed { node, reason: "gone".into(), node_lost: true });
            }
            Action::StartAgent { node } => {
                if let Some(address) = address(&node) {
                    events.push_back(Event::AgentReady { node, address, adopted: None });
                }
            }
            Action::AskHalt { .. } => events.push_back(Event::HaltAnswered { met: None, silent: Vec::new() }),
            Action::Prepare { generation, to, .. } => {
                events.extend(to.into_iter().filter(lives).map(|node| Event::RunPrepared { node, generation }));
            }
            Action::Launch { generation, .. } => {
                self.launches += 1;
                events.push_back(Event::StepStarted { generation });
            }
            Action::KillRanks { generation, to, .. } => {
                events.extend(to.into_iter().filter(lives).map(|node| Event::RanksKilled {
                    node,
                    generation,
                    may_halt: false,
                }));
            }
            Action::PollNow { to } => {
                let answered = |node| Event::PollAnswered { node, sent, fault: None };
                events.extend(to.into_iter().filter(lives).map(answered));
            }
            _ => {}
        }
    }

    /// Every agent answers a poll; returns the seconds for each poll.
    fn poll_all(&mut self) -> f64 {
        let polls: Vec<Event> = self
            .machine
            .agents()
            .map(|(node, _)| Event::PollAnswered { node: node.clone(), sent: self.now, fault: None })
            .collect();
        let count = polls.len().max(1) as f64;
        let begun = Instant::now();
        for poll in polls {
            self.machine.handle(self.now, poll);
        }
        begun.elapsed().as_secs_f64() / count
    }

    /// A node with ranks is lost.
    fn lose(&mut self, node: u32) {
        let node = name(node);
        self.lost = Some(node.clone());
        let begun = Instant::now();
        let actions = self.machine.handle(self.now, Event::AgentLost { node, reason: "connection closed".into() });
        self.spent += begun.elapsed();
        self.settle(actions);
    }

    fn expect_launches(&self, wanted: u32) -> Result<()> {
        match self.launches == wanted {
            true => Ok(()),
            false => Err(format!("{} launches instead of {wanted}", self.launches).into()),
        }
    }
}
