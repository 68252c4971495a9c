//! The agents' processes: they start, adopt or begin a run, kill ranks, end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use holdfast::relaunch::Event;
use holdfast_model::{Failure, Generation, Rank, RankEnd};
use holdfast_wire::agent::PeersUpdate;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Call;
use holdfast_wire::run::RunPlan;

use crate::files::Refusal;
use crate::leading::Leading;
use crate::names::{NodeIndex, address, name, planned, position, start_of};
use crate::queue::{MS, Time};
use crate::store::{DiskFault, MemberMemory};
use crate::world::{Defect, Life, SimulatedEvent, World, trace};

pub struct Agent {
    /// Random, new for each process.
    pub instance: u64,
    /// The number of this start of the node's agent; determines its address.
    pub start: u16,
    pub part: Option<Participation>,
    pub leading: Option<Leading>,
    /// The addresses of other agents: the number of their start, with the number under which it was issued.
    pub addresses: HashMap<NodeIndex, (u64, u16)>,
    /// Events for the orchestrator.
    pub events: Vec<Event>,
    /// How many of them the polls of the newest orchestrator have fetched, and the number of that orchestrator.
    pub fetched: (u32, usize),
    /// The ranks of this generation are to halt.
    pub halt_request: Option<(Generation, String)>,
}

/// An agent's participation in a run.
pub struct Participation {
    /// Unique.
    pub number: u64,
    pub plan: Arc<RunPlan>,
    pub leader: NodeIndex,
    pub local: Vec<Rank>,
    /// The agent was restarted during the run: calls are forwarded one by one.
    pub adopted: bool,
    /// Unanswered calls, by sequence number.
    pub calls: BTreeMap<u64, BTreeMap<Rank, Call>>,
    /// The highest sequence number of a call.
    pub newest: u64,
    /// The ranks that have called.
    pub known: BTreeSet<Rank>,
    pub link: Option<u64>,
    /// Pause before the next attempt to connect to the leader.
    pub pause: Time,
    pub running: BTreeMap<u64, Running>,
}

/// An order that is being carried out.
pub struct Running {
    /// The joint steps that it has joined.
    pub joints: Vec<u32>,
    /// The link that its result is sent over.
    pub link: u64,
    pub what: Order,
    /// Groups or transfers that are not finished.
    pub open: u32,
    pub failure: Option<Failure>,
    pub cancelled: bool,
}

impl Participation {
    pub fn new(number: u64, plan: Arc<RunPlan>, at: NodeIndex, adopted: bool) -> Participation {
        let local = planned(&plan, at).map(|node| node.ranks.clone()).unwrap_or_default();
        Participation {
            number,
            leader: position(&plan.leader).unwrap(),
            local,
            adopted,
            calls: BTreeMap::new(),
            newest: 0,
            known: BTreeSet::new(),
            link: None,
            pause: 5 * MS,
            running: BTreeMap::new(),
            plan,
        }
    }
}

impl Agent {
    /// An address that was issued earlier does not replace one that was issued later.
    fn record_address(&mut self, at: NodeIndex, issued: u64, start: u16) {
        let known = self.addresses.entry(at).or_insert((issued, start));
        if issued >= known.0 {
            *known = (issued, start);
        }
    }
}

impl World {
    /// The agent of a node, if it is still this process.
    pub fn agent(&mut self, at: NodeIndex, instance: u64) -> Option<&mut Agent> {
        self.nodes[at as usize].agent.as_mut().filter(|agent| agent.instance == instance)
    }

    /// A node's participation in a generation.
    pub fn part(&mut self, at: NodeIndex, generation: Generation) -> Option<&mut Participation> {
        let part = self.nodes[at as usize].agent.as_mut()?.part.as_mut()?;
        (part.plan.generation == generation).then_some(part)
    }

    pub fn serving(&self, at: NodeIndex) -> Option<Generation> {
        Some(self.nodes[at as usize].agent.as_ref()?.part.as_ref()?.plan.generation)
    }

    pub fn start_agent(&mut self, at: NodeIndex) {
        match self.nodes[at as usize].life {
            Life::Dead => {
                let node_lost = self.dice.percent(70);
                self.notify(Event::AgentStartFailed { node: name(at), reason: "unreachable".into(), node_lost });
            }
            Life::Frozen => {}
            Life::Alive => {
                self.agent_dies(at);
                let instance = self.dice.roll();
                let adopts = self.dice.percent(97);
                let node = &mut self.nodes[at as usize];
                node.starts += 1;
                let start = node.starts;
                let agent = Agent {
                    instance,
                    start,
                    part: None,
                    leading: None,
                    addresses: HashMap::new(),
                    events: Vec::new(),
                    halt_request: None,
                    fetched: (0, 0),
                };
                node.agent = Some(agent);
                match self.start_on_files(at, instance) {
                    Ok(()) => {}
                    Err(Refusal::Killed) => return,
                    Err(Refusal::Failed(reason)) => {
                        self.agent_dies(at);
                        return self.notify(Event::AgentStartFailed { node: name(at), reason, node_lost: false });
                    }
                }
                let node = &mut self.nodes[at as usize];
                // What the former agent had received is not known any more.
                node.disk.halt_received = node.disk.halt.clone();
                node.disk.halted_by_user = false;
                let known = node.disk.plan.clone().filter(|_| adopts && node.disk.fault.is_none());
                let adopted = known.filter(|(plan, _)| planned(plan, at).is_some());
                trace!(
                    self,
                    "n{at}: agent {start} starts, adopts {:?}",
                    adopted.as_ref().map(|(plan, _)| plan.generation)
                );
                let mut generation = adopted.as_ref().map(|(plan, _)| plan.generation);
                let ended = self.nodes[at as usize].disk.ended;
                if let Some((plan, issued)) = adopted.filter(|_| generation > ended) {
                    match self.begin_part(at, plan, issued, true) {
                        Ok(()) => {}
                        Err(Refusal::Killed) => return,
                        Err(Refusal::Failed(_)) => generation = None,
                    }
                }
                self.notify(Event::AgentReady { node: name(at), address: address(at, start), adopted: generation });
                self.ranks_connect(at);
            }
        }
    }

    fn begin_part(&mut self, at: NodeIndex, plan: Arc<RunPlan>, issued: u64, adopted: bool) -> Result<(), Refusal> {
        let leader = self.begin_on_files(at, &plan, issued, adopted)?;
        self.made_parts += 1;
        let part = Participation::new(self.made_parts, plan.clone(), at, adopted);
        let node = &mut self.nodes[at as usize];
        if self.files.is_none() {
            node.disk.begin_run(&part.local);
        }
        if node.disk.member.as_ref().is_none_or(|known| known.generation != plan.generation) {
            node.disk.member = Some(MemberMemory::fresh(plan.generation));
        }
        let leads = part.leader == at;
        let Some(agent) = &mut node.agent else { return Ok(()) };
        let instance = agent.instance;
        if let Some(leader) = plan.node(&plan.leader) {
            agent.record_address(part.leader, issued, start_of(leader.address));
        }
        agent.part = Some(part);
        agent.leading = None;
        if leads {
            self.begin_leading(at, plan, leader);
        }
        let delay = self.hop();
        self.after(delay, SimulatedEvent::Connect(at, instance));
        Ok(())
    }

    pub fn prepare(&mut self, at: NodeIndex, start: u16, plan: &Arc<RunPlan>, issued: u64) {
        let generation = plan.generation;
        let node = &mut self.nodes[at as usize];
        let Some(agent) = node.agent.as_mut().filter(|agent| agent.start == start) else { return };
        let refused = |reason: &str| Event::RunRefused { node: name(at), generation, reason: reason.to_owned() };
        if let Some(part) = &agent.part {
            if part.plan.generation > generation {
                return self.notify(refused("it is over"));
            }
            if *part.plan == **plan {
                return self.notify(Event::RunPrepared { node: name(at), generation });
            }
        }
        if node.disk.fault.is_some() {
            return self.notify(refused("the disk fails"));
        }
        trace!(self, "n{at}: begins generation {generation}");
        self.kill_ranks(at, Generation(generation.0.saturating_sub(1)));
        self.break_links(at);
        let disk = &mut self.nodes[at as usize].disk;
        (disk.plan, disk.ended) = (Some((plan.clone(), issued)), None);
        match self.begin_part(at, plan.clone(), issued, false) {
            Ok(()) => {}
            Err(Refusal::Killed) => return,
            Err(Refusal::Failed(reason)) => {
                if let Some(agent) = &mut self.nodes[at as usize].agent {
                    (agent.part, agent.leading) = (None, None);
                }
                return self.notify(Event::RunRefused { node: name(at), generation, reason });
            }
        }
        self.notify(Event::RunPrepared { node: name(at), generation });
        self.ranks_connect(at);
    }

    /// The agent ends its part in the run, because the job is being drained. The driver waits for the work that is
    /// under way.
    pub fn end_run(&mut self, at: NodeIndex) {
        let Some(generation) = self.serving(at) else { return };
        trace!(self, "n{at}: ends generation {generation}");
        self.break_links(at);
        let node = &mut self.nodes[at as usize];
        node.disk.ended = Some(generation);
        if let Some(agent) = &mut node.agent {
            (agent.part, agent.leading) = (None, None);
        }
    }

    pub fn kill(&mut self, at: NodeIndex, start: u16, generation: Generation) {
        if self.nodes[at as usize].agent.as_ref().is_some_and(|agent| agent.start == start) {
            if self.defect != Some(Defect::RanksNotKilled) {
                self.kill_ranks(at, generation);
            }
            let killed = &mut self.nodes[at as usize].killed;
            *killed = (*killed).max(Some(generation));
            let may_halt = self.nodes[at as usize].disk.halt_condition().is_some();
            self.notify(Event::RanksKilled { node: name(at), generation, may_halt });
        }
    }

    /// The leader is to halt the ranks at their next checkpoint, or not any more.
    pub fn halt_ranks(&mut self, at: NodeIndex, start: u16, generation: Generation, reason: Option<String>) {
        let agent = self.nodes[at as usize].agent.as_mut().filter(|agent| agent.start == start);
        if let Some(agent) = agent {
            agent.halt_request = reason.map(|reason| (generation, reason));
        }
    }

    /// Some ranks handle SIGTERM, some end, and some ignore it.
    pub fn terminate(&mut self, at: NodeIndex, start: u16, generation: Generation) {
        let reached = self.nodes[at as usize].agent.as_ref().is_some_and(|agent| agent.start == start);
        let ranks = self.nodes[at as usize].ranks == Some(generation);
        let Some(application) = self.applications.get(&generation).filter(|_| reached && ranks) else { return };
        for rank in application.by_home.get(&at).cloned().unwrap_or_default() {
            match self.dice.below(4) {
                0 => {}
                1 => self.rank_ends(generation, rank, RankEnd::SUCCESS),
                _ => self.rank_ends(generation, rank, RankEnd::Signal(15)),
            }
        }
    }

    /// The driver ends the processes on a node that is down, as soon as it can be reached.
    pub fn fence(&mut self, at: NodeIndex) {
        match self.nodes[at as usize].life {
            Life::Alive => {
                trace!(self, "n{at}: fenced");
                self.agent_dies(at);
                self.kill_ranks(at, Generation(u64::MAX));
            }
            Life::Frozen => self.after(2000 * MS, SimulatedEvent::Fence(at)),
            Life::Dead => {}
        }
    }

    pub fn update_peers(&mut self, at: NodeIndex, start: u16, update: &PeersUpdate) {
        let agent = self.nodes[at as usize].agent.as_mut().filter(|agent| agent.start == start);
        let Some(agent) = agent else { return };
        for (node, address) in &update.addresses {
            agent.record_address(position(node).unwrap(), update.issued, start_of(*address));
        }
        let Some(part) = self.part(at, update.generation) else { return };
        part.pause = 5 * MS;
        for node in &update.down {
            self.leader_node_down(at, update.generation, node);
        }
    }

    /// The agent's process ends; its files stay.
    pub fn agent_dies(&mut self, at: NodeIndex) {
        if self.nodes[at as usize].agent.is_some() {
            self.break_links(at);
            if let Some(files) = &mut self.files {
                files.agent_ends(at);
            }
            self.nodes[at as usize].agent = None;
            self.nodes[at as usize].undisturbed = false;
        }
    }

    /// Whether an agent is to die in the middle of what it does, which then counts as an injected fault.
    pub fn is_to_die_midway(&mut self) -> bool {
        let chance = self.scenario.faults.dies_midway;
        let limit = self.scenario.faults.most;
        let dies = chance > 0 && self.injected_faults < limit && self.dice.below(1_000_000) < chance;
        self.injected_faults += u32::from(dies);
        dies
    }

    /// The agent dies alone, in the middle of a step.
    pub fn dies_midway(&mut self, at: NodeIndex) -> bool {
        if !self.is_to_die_midway() {
            return false;
        }
        trace!(self, "n{at}: its agent dies in the middle of this");
        self.agent_dies(at);
        self.notice_agent_loss(at, "killed");
        true
    }

    /// The orchestrator may be notified of it.
    pub fn notice_agent_loss(&mut self, at: NodeIndex, reason: &str) {
        if self.dice.percent(80) {
            self.notify(Event::AgentLost { node: name(at), reason: reason.to_owned() });
        }
    }

    /// Whether a write or a read fails because of the disk.
    pub fn disk_fails(&self, at: NodeIndex, writes: bool) -> bool {
        match self.nodes[at as usize].disk.fault {
            None => false,
            Some(DiskFault::Full) => writes,
            Some(DiskFault::Broken) => true,
        }
    }
}
