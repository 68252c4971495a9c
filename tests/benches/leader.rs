//! The leader of a large run: the cost of its decisions, without networks and disks. Members without files answer
//! every order at once; only the time in the machine is measured.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_agent::collective::leader::{
    LeaderAction, LeaderEvent, LeaderMachine, LeaderMemory, LeaderStart, LeaderWork, UnfinishedFlushes, WorkOutput,
};
use holdfast_agent::sources;
use holdfast_model::{Generation, HaltState, Inventory, Locations, NodeName, Rank, RunNode, Scheme};
use holdfast_wire::fixtures;
use holdfast_wire::peer::{Order, OrderResult, SealedFiles, ToLeader, ToMember};
use holdfast_wire::rank::Call;
use holdfast_wire::run::RunPlan;

use crate::agents::resident;
use crate::figures::{Samples, below, title};
use crate::{Extent, Result};

const GENERATION: Generation = Generation(1);
/// Aim for forming the groups of a run, seconds.
const AIM: f64 = 1.0;

pub fn run(extent: Extent) -> Result<()> {
    for (ranks, nodes) in extent.led.iter().copied() {
        for scheme in ["XOR", "PARTNER"] {
            of(ranks, nodes, scheme, extent.tries)?;
        }
    }
    Ok(())
}

fn of(ranks: u32, nodes: u32, scheme: &str, tries: usize) -> Result<()> {
    title(&format!("The leader's decisions, {ranks} ranks on {nodes} nodes, {scheme}"));
    let plan = Arc::new(plan(ranks, nodes, scheme)?);
    let (mut layout, mut events, mut memory) = (Samples::default(), Samples::default(), Samples::default());
    let mut calls: BTreeMap<&str, Samples> = BTreeMap::new();
    for _ in 0..tries {
        let before = resident(std::process::id())?;
        let begun = Instant::now();
        let machine = machine(&plan)?;
        layout.add(begun.elapsed().as_secs_f64());
        let mut cluster = Cluster { plan: &plan, machine, pending: VecDeque::new(), spent: Duration::ZERO, events: 0 };
        for (link, node) in (1..).zip(&plan.nodes) {
            cluster.pending.push_back(LeaderEvent::LinkUp { node: node.name.clone(), link });
        }
        cluster.settle()?;
        let three = [Call::Init, Call::Start, Call::Complete { valid: true }];
        for (seq, call) in (1..).zip(three) {
            let before = cluster.spent;
            cluster.all_call(seq, &call)?;
            let spent = (cluster.spent - before).as_secs_f64();
            calls.entry(call.name()).or_default().add(spent);
        }
        events.add(cluster.spent.as_secs_f64() * 1e6 / f64::from(cluster.events));
        cluster.pending = VecDeque::new();
        memory.add(resident(std::process::id())?.saturating_sub(before) as f64 / f64::from(1 << 20));
    }
    layout.show_seconds("forming the groups", None);
    for (name, samples) in &calls {
        samples.show_seconds(name, None);
    }
    events.show("each event, of all together", "µs");
    memory.show("memory that the run added to the process", "MiB");
    below("forming the groups", layout.median(), AIM, "s");
    Ok(())
}

struct Cluster<'a> {
    plan: &'a RunPlan,
    machine: LeaderMachine,
    pending: VecDeque<LeaderEvent>,
    /// Time in the machine.
    spent: Duration,
    events: u32,
}

impl Cluster<'_> {
    fn all_call(&mut self, seq: u64, call: &Call) -> Result<()> {
        for node in self.plan.nodes.iter().filter(|node| !node.ranks.is_empty()) {
            let calls = node.ranks.iter().map(|rank| (*rank, call.clone())).collect();
            let message = ToLeader::Calls { seq, calls };
            self.pending.push_back(LeaderEvent::Received { node: node.name.clone(), message });
        }
        let answered = self.settle()?;
        if answered == Some(seq) { Ok(()) } else { Err(format!("{} did not end", call.name()).into()) }
    }

    /// Handles events until there are none; returns the last collective that was answered.
    fn settle(&mut self) -> Result<Option<u64>> {
        let mut answered = None;
        while let Some(event) = self.pending.pop_front() {
            let begun = Instant::now();
            let actions = self.machine.handle(Duration::ZERO, event);
            self.spent += begun.elapsed();
            self.events += 1;
            for action in actions {
                match action {
                    LeaderAction::Send { node, message: ToMember::Order { order, what } } => {
                        let message = ToLeader::Done { order, result: Ok(self.result(&node, &what)) };
                        self.pending.push_back(LeaderEvent::Received { node, message });
                    }
                    LeaderAction::Answer { seq, outcome, .. } => {
                        outcome.as_ref().as_ref().map_err(ToString::to_string)?;
                        answered = Some(seq);
                    }
                    LeaderAction::Perform { id, work } => {
                        self.pending.push_back(LeaderEvent::WorkFinished { id, result: Ok(output(&work)) });
                    }
                    LeaderAction::Send { .. } | LeaderAction::Emit(_) => {}
                }
            }
        }
        Ok(answered)
    }

    fn result(&self, node: &NodeName, what: &Order) -> OrderResult {
        match what {
            Order::Inventory => OrderResult::Inventory(Inventory::default()),
            Order::Seal { .. } => {
                let number = node.as_str().trim_start_matches('n').parse().unwrap_or(usize::MAX);
                let ranks = self.plan.nodes.get(number).map_or(&[][..], |node| &node.ranks);
                let sealed = |rank: &Rank| SealedFiles { bytes: 1, names: vec![format!("rank_{rank}.ckpt")] };
                OrderResult::Sealed(ranks.iter().map(|rank| (*rank, sealed(rank))).collect())
            }
            Order::Verify { .. } | Order::VerifyStored { .. } => OrderResult::Verified(BTreeMap::new()),
            _ => OrderResult::Done,
        }
    }
}

/// The results of file work on empty directories.
fn output(work: &LeaderWork) -> WorkOutput {
    match work {
        LeaderWork::Halt(_) => WorkOutput::Halt(HaltState::default()),
        LeaderWork::DatasetsHere { .. } => WorkOutput::Datasets(Vec::new()),
        LeaderWork::LocationsHere { .. } => WorkOutput::Locations(Locations::default()),
        LeaderWork::Candidates => WorkOutput::Candidates(Vec::new()),
        _ => WorkOutput::Done,
    }
}

fn machine(plan: &Arc<RunPlan>) -> Result<LeaderMachine> {
    Ok(LeaderMachine::new(LeaderStart {
        plan: plan.clone(),
        directories: vec!["/dev/shm/index.0".to_owned()],
        instance: 1,
        memory: LeaderMemory::fresh(GENERATION),
        flushes: UnfinishedFlushes::fresh(GENERATION),
        policy: sources::open(&plan.settings)?.policy(),
    })?)
}

/// Ranks distributed to the nodes in blocks, as launchers do.
fn plan(ranks: u32, nodes: u32, scheme: &str) -> Result<RunPlan> {
    let settings = fixtures::settings("/prefix", "/dev/shm", 1, scheme.parse::<Scheme>()?);
    let block = |at: u32| (u64::from(at) * u64::from(ranks) / u64::from(nodes)) as u32;
    let node = |at: u32| {
        Ok(RunNode {
            name: NodeName::new(format!("n{at}")),
            address: "127.0.0.1:1".parse()?,
            failure_domain: format!("n{at}"),
            ranks: (block(at)..block(at + 1)).map(Rank).collect(),
        })
    };
    let nodes = (0..nodes).map(node).collect::<Result<Vec<_>>>()?;
    Ok(RunPlan { generation: GENERATION, nodes, leader: "n0".into(), settings })
}
