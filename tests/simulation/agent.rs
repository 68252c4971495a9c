//! The agents' processes: they start, adopt or begin a run, kill ranks, die.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast::relaunch::Event;
use holdfast_model::{Failure, Generation, Rank};
use holdfast_wire::agent::PeersUpdate;
use holdfast_wire::rank::Call;
use holdfast_wire::run::RunPlan;

use crate::leading::Leading;
use crate::names::{At, address, name, planned, position, start_of};
use crate::queue::{MS, Time};
use crate::store::{DiskFault, MemberMemory};
use crate::world::{Defect, Happening, Life, World, trace};

/// An agent's process.
pub struct Agent {
    /// Chosen when it starts.
    pub instance: u64,
    /// The how manieth start of its node's agent it is; tells where it listens.
    pub start: u16,
    pub part: Option<Part>,
    pub leading: Option<Leading>,
    /// Where others listen: the start of their agents, with the number under which that was issued.
    pub learned: HashMap<At, (u64, u16)>,
    /// What the orchestrator is to know.
    pub events: Vec<Event>,
    /// How many of them a poll of which incarnation has fetched.
    pub fetched: (u32, usize),
}

/// Its part in a run.
pub struct Part {
    /// No other part has this number.
    pub number: u64,
    pub plan: Arc<RunPlan>,
    pub leader: At,
    pub local: Vec<Rank>,
    /// The agent was restarted in the middle of the run: calls are passed on one by one.
    pub adopted: bool,
    /// Calls that are not answered, by their number.
    pub calls: BTreeMap<u64, BTreeMap<Rank, Call>>,
    /// The highest number that a rank has called.
    pub newest: u64,
    pub link: Option<u64>,
    /// Pause before the leader is tried again.
    pub pause: Time,
    /// Orders under way.
    pub running: BTreeMap<u64, Running>,
}

/// An order that is being carried out.
pub struct Running {
    /// The joint steps that it has joined.
    pub joints: Vec<u32>,
    /// Over which link its result goes.
    pub link: u64,
    /// Groups or transfers that are not finished.
    pub open: u32,
    pub failure: Option<Failure>,
    pub cancelled: bool,
}

impl Part {
    pub fn new(number: u64, plan: Arc<RunPlan>, at: At, adopted: bool) -> Part {
        let local = planned(&plan, at).map(|node| node.ranks.clone()).unwrap_or_default();
        Part {
            number,
            leader: position(&plan.leader).unwrap(),
            local,
            adopted,
            calls: BTreeMap::new(),
            newest: 0,
            link: None,
            pause: 5 * MS,
            running: BTreeMap::new(),
            plan,
        }
    }
}

impl Agent {
    /// What was issued earlier does not replace what was issued later, whichever arrives first.
    fn learn(&mut self, at: At, issued: u64, start: u16) {
        let known = self.learned.entry(at).or_insert((issued, start));
        if issued >= known.0 {
            *known = (issued, start);
        }
    }
}

impl World {
    /// The agent of a node, if this process of it is still there.
    pub fn agent(&mut self, at: At, instance: u64) -> Option<&mut Agent> {
        self.nodes[at as usize].agent.as_mut().filter(|agent| agent.instance == instance)
    }

    /// This agent's part in this generation.
    pub fn part(&mut self, at: At, generation: Generation) -> Option<&mut Part> {
        let part = self.nodes[at as usize].agent.as_mut()?.part.as_mut()?;
        (part.plan.generation == generation).then_some(part)
    }

    pub fn serving(&self, at: At) -> Option<Generation> {
        Some(self.nodes[at as usize].agent.as_ref()?.part.as_ref()?.plan.generation)
    }

    pub fn start_agent(&mut self, at: At) {
        match self.nodes[at as usize].life {
            Life::Dead => {
                let node_lost = self.dice.percent(70);
                self.tell(Event::AgentStartFailed { node: name(at), reason: "unreachable".into(), node_lost });
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
                    learned: HashMap::new(),
                    events: Vec::new(),
                    fetched: (0, 0),
                };
                node.agent = Some(agent);
                let known = node.disk.plan.clone().filter(|_| adopts && node.disk.fault.is_none());
                let adopted = known.filter(|(plan, _)| planned(plan, at).is_some());
                trace!(
                    self,
                    "n{at}: agent {start} starts, goes on with {:?}",
                    adopted.as_ref().map(|(plan, _)| plan.generation)
                );
                let generation = adopted.as_ref().map(|(plan, _)| plan.generation);
                if let Some((plan, issued)) = adopted {
                    self.begin_part(at, plan, issued, true);
                }
                self.tell(Event::AgentReady { node: name(at), address: address(at, start), adopted: generation });
                self.ranks_connect(at);
            }
        }
    }

    fn begin_part(&mut self, at: At, plan: Arc<RunPlan>, issued: u64, adopted: bool) {
        self.made_parts += 1;
        let part = Part::new(self.made_parts, plan.clone(), at, adopted);
        let node = &mut self.nodes[at as usize];
        node.disk.begin_run(&part.local);
        if node.disk.member.as_ref().is_none_or(|known| known.generation != plan.generation) {
            node.disk.member = Some(MemberMemory::fresh(plan.generation));
        }
        let leads = part.leader == at;
        let Some(agent) = &mut node.agent else { return };
        let instance = agent.instance;
        if let Some(leader) = plan.node(&plan.leader) {
            agent.learn(part.leader, issued, start_of(leader.address));
        }
        agent.part = Some(part);
        agent.leading = None;
        if leads {
            self.begin_leading(at, plan);
        }
        let delay = self.hop();
        self.after(delay, Happening::Connect(at, instance));
    }

    pub fn prepare(&mut self, at: At, start: u16, plan: &Arc<RunPlan>, issued: u64) {
        let generation = plan.generation;
        let node = &mut self.nodes[at as usize];
        let Some(agent) = node.agent.as_mut().filter(|agent| agent.start == start) else { return };
        let refused = |reason: &str| Event::RunRefused { node: name(at), generation, reason: reason.to_owned() };
        if let Some(part) = &agent.part {
            if part.plan.generation > generation {
                return self.tell(refused("it is over"));
            }
            if *part.plan == **plan {
                return self.tell(Event::RunPrepared { node: name(at), generation });
            }
        }
        if node.disk.fault.is_some() {
            return self.tell(refused("the disk fails"));
        }
        trace!(self, "n{at}: begins generation {generation}");
        self.kill_ranks(at, Generation(generation.0.saturating_sub(1)));
        self.break_links(at);
        self.nodes[at as usize].disk.plan = Some((plan.clone(), issued));
        self.begin_part(at, plan.clone(), issued, false);
        self.tell(Event::RunPrepared { node: name(at), generation });
        self.ranks_connect(at);
    }

    pub fn kill(&mut self, at: At, start: u16, generation: Generation) {
        if self.nodes[at as usize].agent.as_ref().is_some_and(|agent| agent.start == start) {
            if self.defect != Some(Defect::RanksNotKilled) {
                self.kill_ranks(at, generation);
            }
            let killed = &mut self.nodes[at as usize].killed;
            *killed = (*killed).max(Some(generation));
            self.tell(Event::RanksKilled { node: name(at), generation });
        }
    }

    /// The driver ends what may still run on a node that is down, as soon as it can be reached.
    pub fn fence(&mut self, at: At) {
        match self.nodes[at as usize].life {
            Life::Alive => {
                trace!(self, "n{at}: fenced");
                self.agent_dies(at);
                self.kill_ranks(at, Generation(u64::MAX));
            }
            Life::Frozen => self.after(2000 * MS, Happening::Fence(at)),
            Life::Dead => {}
        }
    }

    pub fn update_peers(&mut self, at: At, start: u16, update: &PeersUpdate) {
        let agent = self.nodes[at as usize].agent.as_mut().filter(|agent| agent.start == start);
        let Some(agent) = agent else { return };
        for (node, address) in &update.addresses {
            agent.learn(position(node).unwrap(), update.issued, start_of(*address));
        }
        let Some(part) = self.part(at, update.generation) else { return };
        part.pause = 5 * MS;
        for node in &update.down {
            self.leader_learns_of_loss(at, update.generation, node);
        }
    }

    /// The agent's process ends; what it had on disk stays.
    pub fn agent_dies(&mut self, at: At) {
        if self.nodes[at as usize].agent.is_some() {
            self.break_links(at);
            self.nodes[at as usize].agent = None;
        }
    }

    /// The agent dies alone, half-way through what it does.
    pub fn dies_midway(&mut self, at: At) -> bool {
        let chance = self.scenario.weather.dies_midway;
        if chance == 0 || self.misfortunes >= self.scenario.weather.misfortunes || self.dice.below(1_000_000) >= chance
        {
            return false;
        }
        self.misfortunes += 1;
        trace!(self, "n{at}: its agent dies in the middle of this");
        self.agent_dies(at);
        self.notice_agent_loss(at, "killed");
        true
    }

    /// The orchestrator notices some time later.
    pub fn notice_agent_loss(&mut self, at: At, reason: &str) {
        if self.dice.percent(80) {
            self.tell(Event::AgentLost { node: name(at), reason: reason.to_owned() });
        }
    }

    /// What a failed disk makes of a write, or of a read.
    pub fn disk_fails(&self, at: At, writes: bool) -> bool {
        match self.nodes[at as usize].disk.fault {
            None => false,
            Some(DiskFault::Full) => writes,
            Some(DiskFault::Broken) => true,
        }
    }
}
