//! Agents without processes, sockets and clocks, for the simulation of complete jobs: the file work of an agent is the
//! real one, on real directories, and is done by the calling thread; connections to other agents are in memory.
//!
//! A member of a group that is given its order on a thread of its own does the same whatever the other threads do, so
//! that a simulation can be repeated: it reads from each connection what was sent before the sender ended, then the end
//! of the stream; what it sends to a member that has ended is lost without an error.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::NaiveDateTime;
use holdfast_model::{CheckpointId, Failure, Inventory, NodeName, Rank};
use holdfast_wire::agent::{CopyReply, CopyRequest, RebuildRequest, VerifyRequest};
use holdfast_wire::peer::{FilesKey, GroupKey, Order, OrderResult, Purpose};
use holdfast_wire::plan::RunRequest;
use holdfast_wire::run::{AgentStart, RunPlan};
use parking_lot::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, inventory};
use crate::collective::leader::{LeaderMachine, LeaderWork, WorkResult};
use crate::collective::{leader::driver, prepare_blocking};
use crate::copy::pace::OrderControl;
use crate::copy::{drain, on_prefix};
use crate::daemon;
use crate::directories::claim;
use crate::directories::paths::Paths;
use crate::orders;
use crate::run::Run;
use crate::store::Store;
use crate::stream::{Closer, Connection, IncomingStream, OutgoingStream, StreamError};

/// The agent of a node, without what serves others. Dropping it leaves what a process that was killed leaves.
pub struct SimulatedAgent {
    agent: Arc<Agent>,
    run: Option<Arc<Run>>,
    containers: driver::Containers,
}

impl SimulatedAgent {
    /// Starts as an agent does, on the directories below the root of a virtual node.
    ///
    /// # Errors
    /// When the directories cannot be used.
    pub fn start(start: AgentStart, instance: u64, network: Arc<Network>) -> Result<Self, String> {
        let paths = Paths::new(&start);
        claim::directory(&paths, paths.control_node_path()).map_err(|error| error.to_string())?;
        let bases = daemon::usable_bases(&start, &paths);
        let mut agent = Agent::new(start, paths, bases).map_err(|error| error.to_string())?;
        agent.instance = instance;
        // It was made before, so that this is the first one.
        let _ = agent.streams.network.set(network);
        Ok(SimulatedAgent { agent: Arc::new(agent), run: None, containers: driver::Containers::default() })
    }

    /// Takes part in a run from now on: one that `begins`, or one that it adopts. Returns the leader's machine, with
    /// what an earlier leader saved, if this agent leads.
    ///
    /// # Errors
    /// When the run cannot be recorded.
    pub fn begin_run(&mut self, request: &RunRequest, begins: bool) -> Result<Option<LeaderMachine>, String> {
        let plan = request.clone().accept(&self.agent.start.node).map_err(|error| error.to_string())?;
        let (run, leader) =
            prepare_blocking(&self.agent, request, plan, begins).map_err(|error| error.to_string())?.into_parts();
        self.run = Some(run);
        self.containers.lock().clear();
        Ok(leader)
    }

    /// Carries out an order of the leader.
    ///
    /// # Errors
    /// What the leader gets.
    ///
    /// # Panics
    /// Without a run.
    #[expect(clippy::expect_used, reason = "for tests")]
    pub fn order(&self, order: u64, what: Order) -> Result<OrderResult, Failure> {
        let run = self.run.as_ref().expect("a run has begun");
        orders::execute(&self.agent, run, order, what, &OrderControl::default())
    }

    /// A rank routes a file: it is entered, and the path is returned.
    ///
    /// # Errors
    /// What the rank gets.
    pub fn route(&self, checkpoint: CheckpointId, rank: Rank, name: &str) -> Result<PathBuf, String> {
        let run = self.run.as_ref().ok_or("no run has begun")?;
        run.files_of(rank, &self.agent).add(checkpoint, name).map_err(|error| error.to_string())
    }

    /// The run's record of the checkpoints that are written and read.
    pub fn memory(&self) -> Option<Arc<crate::state::memory::Memory>> {
        Some(self.run.as_ref()?.memory.read())
    }

    /// The file work of the leader.
    ///
    /// # Errors
    /// What the leader's machine gets.
    pub fn leader_work(&self, plan: &RunPlan, work: LeaderWork, now: NaiveDateTime) -> WorkResult {
        let own = work.is_local().then(|| self.agent.start.node.clone());
        driver::perform_work(&self.agent, plan, &self.containers, work, now).map_err(|error| {
            let failure = Failure::from(error);
            own.iter().fold(failure, Failure::on_node)
        })
    }

    /// The leader is to end: containers that are not complete are removed.
    pub fn end_run(&mut self) {
        self.run = None;
        self.containers.lock().clear();
    }

    /// The node's part of a drain.
    ///
    /// # Errors
    /// What the orchestrator gets.
    pub fn copy(&self, request: &CopyRequest) -> Result<CopyReply, String> {
        drain::copy(&self.agent, request, CancellationToken::new()).map_err(|error| error.to_string())
    }

    /// Rebuilds a set below the prefix for the drain.
    ///
    /// # Errors
    /// What the orchestrator gets.
    pub fn rebuild(&self, request: &RebuildRequest) -> Result<(), String> {
        let Agent { prefixes, progress, .. } = &*self.agent;
        on_prefix::rebuild(prefixes, progress, request).map(drop).map_err(|error| error.to_string())
    }

    /// Compares files below the prefix with their checksums; returns those that differ, and why.
    ///
    /// # Errors
    /// What the orchestrator gets.
    pub fn verify(&self, request: &VerifyRequest) -> Result<BTreeMap<String, String>, String> {
        let verified = on_prefix::verify(&self.agent.prefixes, request, CancellationToken::new());
        verified.map(|reply| reply.damaged).map_err(|error| error.to_string())
    }

    /// # Errors
    /// What the orchestrator gets.
    pub fn inventory(&self) -> Result<Inventory, String> {
        inventory::inventory(&self.agent).map_err(|error| error.to_string())
    }

    pub fn store(&self) -> &Store {
        &self.agent.store
    }
}

/// The connections between simulated agents.
#[derive(Debug, Default)]
pub struct Network {
    state: Mutex<Connections>,
    changed: Condvar,
}

/// The step that is under way: an order, or a part of one, that several agents carry out together.
#[derive(Debug, Default)]
struct Connections {
    groups: BTreeMap<u32, Vec<NodeName>>,
    senders: BTreeMap<Rank, NodeName>,
    /// What has arrived and was not claimed, by receiver.
    arrived: HashMap<(NodeName, Purpose), VecDeque<IncomingStream>>,
    ended: BTreeSet<NodeName>,
    /// The members that have ended their part, by group, and their ranks. Others on the same node may wait for them.
    ended_members: BTreeSet<(u32, u32)>,
    ended_ranks: BTreeSet<Rank>,
}

impl Network {
    /// A step begins: the nodes of the members of its groups, by group, and the node that sends each rank's files.
    pub fn begin(&self, groups: BTreeMap<u32, Vec<NodeName>>, senders: BTreeMap<Rank, NodeName>) {
        *self.state.lock() = Connections { groups, senders, ..Connections::default() };
    }

    /// A node has ended its part of the step, with or without success.
    pub fn end(&self, node: &NodeName) {
        let mut state = self.state.lock();
        state.ended.insert(node.clone());
        // Those that wait for an answer on them get the end of the stream.
        state.arrived.retain(|(to, _), _| to != node);
        self.changed.notify_all();
    }

    /// A member of a group has ended its part, with or without success.
    pub(crate) fn end_member(&self, group_id: u32, member: u32, rank: Option<Rank>) {
        let mut state = self.state.lock();
        state.ended_members.insert((group_id, member));
        state.ended_ranks.extend(rank);
        self.changed.notify_all();
    }

    pub(crate) fn connect(&self, from: &NodeName, to: &NodeName, purpose: &Purpose) -> OutgoingStream {
        let (near, far) = End::pair();
        let mut state = self.state.lock();
        if !state.ended.contains(to) {
            let incoming = IncomingStream::over(far, from.clone());
            state.arrived.entry((to.clone(), purpose.clone())).or_default().push_back(incoming);
            self.changed.notify_all();
        }
        OutgoingStream::over(near, to.clone())
    }

    /// Waits until the sender has connected, or has ended without.
    pub(crate) fn claim(&self, here: &NodeName, purpose: &Purpose) -> Result<IncomingStream, StreamError> {
        let key = (here.clone(), purpose.clone());
        let mut state = self.state.lock();
        loop {
            if let Some(incoming) = state.arrived.get_mut(&key).and_then(VecDeque::pop_front) {
                return Ok(incoming);
            }
            if state.sender(purpose).is_none_or(|sender| state.ended.contains(sender)) || state.has_ended(purpose) {
                return Err(StreamError::NoPeer { what: key.1, seconds: 0 });
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Connections {
    /// The node that opens a stream.
    fn sender(&self, purpose: &Purpose) -> Option<&NodeName> {
        match purpose {
            Purpose::Group(GroupKey { group_id, from_member, .. }) => {
                self.groups.get(group_id)?.get(usize::try_from(*from_member).ok()?)
            }
            Purpose::Files(FilesKey { rank, .. }) => self.senders.get(rank),
            Purpose::Link | Purpose::Mirror => None,
        }
    }

    /// The member that opens a stream has ended.
    fn has_ended(&self, purpose: &Purpose) -> bool {
        match purpose {
            Purpose::Group(GroupKey { group_id, from_member, .. }) => {
                self.ended_members.contains(&(*group_id, *from_member))
            }
            Purpose::Files(FilesKey { rank, .. }) => self.ended_ranks.contains(rank),
            Purpose::Link | Purpose::Mirror => false,
        }
    }
}

/// The bytes of one direction, and whether the sender has ended.
#[derive(Debug, Default)]
struct Direction {
    bytes: Mutex<(VecDeque<u8>, bool)>,
    changed: Condvar,
}

impl Direction {
    fn close(&self) {
        self.bytes.lock().1 = true;
        self.changed.notify_all();
    }
}

/// One end of a connection in memory. Nothing that was sent is lost when an end is dropped.
#[derive(Debug)]
struct End {
    incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
}

impl End {
    fn pair() -> (End, End) {
        let (one, other) = (Arc::<Direction>::default(), Arc::<Direction>::default());
        (End { incoming: one.clone(), outgoing: other.clone() }, End { incoming: other, outgoing: one })
    }
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.incoming.bytes.lock();
        while bytes.0.is_empty() && !bytes.1 {
            self.incoming.changed.wait(&mut bytes);
        }
        bytes.0.read(buffer)
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.bytes.lock().0.extend(bytes);
        self.outgoing.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for End {
    fn socket(&self) -> Option<&TcpStream> {
        None
    }

    fn closer(&self) -> io::Result<Closer> {
        let incoming = self.incoming.clone();
        Ok(Closer::new(move || incoming.close()))
    }

    fn has_arrived(&mut self) -> io::Result<bool> {
        Ok(!self.incoming.bytes.lock().0.is_empty())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.outgoing.close();
    }
}
