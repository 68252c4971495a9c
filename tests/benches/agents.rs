//! A small cluster on this machine: real agents of virtual nodes, controlled as by the orchestrator, and rank
//! processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast::allocation::Allocation;
use holdfast::fleet::{AgentClient, AgentRecord, AgentSupervisor, Clock, FleetEvent, FleetSettings};
use holdfast_model::{
    AsyncRedundancy, CrcOnCopy, CrcPolicy, DataPlane, Generation, LevelPolicy, NodeName, Placement, Rank, RunNode,
    Scheme, SchemeNumbers, VariablesLayout,
};
use holdfast_wire::agent::{AgentEvent, KillRequest, PollRequest};
use holdfast_wire::plan::PlanParts;
use holdfast_wire::run::{AgentReady, AgentStart, Settings, SourceName, TrustMaterial};
use holdfast_wire::{VERSION, environment, fixtures, trust};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::simulated::allocation::{Simulated, template};
use crate::simulated_agents::SimulatedAgents;
use crate::{Extent, PART, Result};

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
pub const JOB: &str = "77";
const USER: &str = "bench";
/// The unit of processor time in `/proc`, which does not depend on the kernel's timer.
const TICKS_PER_SECOND: f64 = 100.0;
/// Time limit of an answer.
const ANSWER: Duration = Duration::from_secs(30);

pub struct Cluster {
    directory: TempDir,
    trust: TrustMaterial,
    pub client: AgentClient,
    pub runtime: Runtime,
    generation: u64,
    started: usize,
    agents: BTreeMap<NodeName, Agent>,
    /// The node of each rank.
    pub places: Vec<NodeName>,
    /// The prefix directory of the next generation.
    pub prefix: PathBuf,
    /// How the checkpoints of the next generation are protected.
    pub scheme: Scheme,
    /// The numbers of the scheme.
    pub numbers: SchemeNumbers,
    /// The ranks of the next generation do not wait for the redundancy.
    pub asynchronous: Option<AsyncRedundancy>,
    /// The checksums of the next generation.
    pub crc: CrcPolicy,
    /// What protects the data that the agents send to each other.
    pub data_plane: DataPlane,
    /// The ranks of the next generation save variables, in this layout.
    pub variables: Option<VariablesLayout>,
    ranks: Vec<RankProcess>,
}

/// The file system with the directories of the virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// In memory, as the cache often is.
    Memory,
    /// The temporary directory, in general on disk.
    Disk,
}

impl Medium {
    fn directory(self) -> PathBuf {
        let memory = Path::new(MEMORY);
        if self == Medium::Memory && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
    }
}

pub struct Agent {
    process: Child,
    pub address: SocketAddr,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One rank: a child process that executes commands, one per line.
pub struct RankProcess {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A process with several ranks, each in its own thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadRanks {
    pub job: String,
    pub generation: Generation,
    /// Ranks of the run.
    pub total: u32,
    pub ranks: Vec<ThreadRank>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadRank {
    pub rank: u32,
    pub node: NodeName,
    pub socket: PathBuf,
}

impl RankProcess {
    fn spawn(command: &mut Command) -> Result<RankProcess> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a rank has no pipes".into());
        };
        Ok(RankProcess { process, orders, answers: BufReader::new(answers) })
    }

    pub fn order(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{text}")?)
    }

    /// The duration of the last order, seconds.
    pub fn answer(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().parse().map_err(|_| format!("a rank failed: {line:?}"))?)
    }
}

impl Cluster {
    /// Agents of `nodes` nodes with one rank each, their directories in memory.
    pub fn start(nodes: usize) -> Result<Cluster> {
        Cluster::start_on(Medium::Memory, nodes, nodes)
    }

    /// Agents of `nodes` nodes, which share `ranks` ranks evenly.
    pub fn start_on(medium: Medium, nodes: usize, ranks: usize) -> Result<Cluster> {
        let trust = trust::generate()?;
        let directory = tempfile::Builder::new().prefix("holdfast-bench.").tempdir_in(medium.directory())?;
        let mut cluster = Cluster {
            prefix: directory.path().join("prefix"),
            directory,
            client: AgentClient::new(&trust, 64)?,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            trust,
            generation: 0,
            started: 0,
            agents: BTreeMap::new(),
            places: Vec::new(),
            scheme: Scheme::new("XOR"),
            numbers: SchemeNumbers::default(),
            asynchronous: None,
            crc: CrcPolicy { on_copy: CrcOnCopy::WithRedundancy, on_flush: true, on_restart: true, on_delete: false },
            data_plane: DataPlane::Encrypted,
            variables: None,
            ranks: Vec::new(),
        };
        for number in 0..nodes {
            let node = cluster.add_node()?;
            let local = ranks * (number + 1) / nodes - ranks * number / nodes;
            cluster.places.extend(std::iter::repeat_n(node, local));
        }
        Ok(cluster)
    }

    fn add_node(&mut self) -> Result<NodeName> {
        let node = NodeName::new(format!("node{}", self.started));
        self.started += 1;
        let root = self.root(&node);
        fs::create_dir(&root)?;
        let start = AgentStart {
            version: VERSION,
            job: "bench".to_owned(),
            job_id: JOB.to_owned(),
            step: None,
            allocation: None,
            user: USER.to_owned(),
            node: node.clone(),
            shared: None,
            root: Some(root),
            control_base: "/tmp".to_owned(),
            cache_bases: BTreeMap::from([("/tmp".to_owned(), None)]),
            control_bytes: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            trust: self.trust.clone(),
            disk_timeout: Duration::from_secs(30),
            abandon_after: Duration::from_secs(600),
            prefixes: vec![self.directory.path().join("prefix"), drain_prefix()],
            umask: None,
            drains_only: false,
            fault_injections: Vec::new(),
        };
        let log = File::create(self.directory.path().join(format!("{node}.log")))?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        if let Some(mut input) = process.stdin.take() {
            writeln!(input, "{}", serde_json::to_string(&start)?)?;
        }
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let ready: AgentReady =
            serde_json::from_str(&line).map_err(|error| format!("{node} did not start: {error}"))?;
        self.agents.insert(node.clone(), Agent { process, address: ready.address });
        Ok(node)
    }

    fn root(&self, node: &NodeName) -> PathBuf {
        self.directory.path().join(node.to_string())
    }

    /// The directory that holds rank files of a checkpoint on the rank's node.
    pub fn cache(&self, rank: usize, checkpoint: u64) -> PathBuf {
        let node = &self.places[rank];
        self.root(node).join(format!("tmp/{USER}/scr.{JOB}/index.0/checkpoint.{checkpoint}"))
    }

    pub fn agents_by_node(&self) -> impl Iterator<Item = (&NodeName, &Agent)> {
        self.agents.iter()
    }

    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Launches the next generation: agents get the plan, ranks are started. Returns the seconds in which the slowest
    /// rank's `init` returned.
    pub fn launch(&mut self, extent: Extent) -> Result<f64> {
        let (generation, sockets) = self.prepare_generation()?;
        for (rank, node) in self.places.iter().enumerate() {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .env(PART, if self.variables.is_some() { "variables" } else { "rank" })
                .env(environment::JOB, JOB)
                .env(environment::GENERATION, generation.to_string())
                .env(environment::SOCKET, &sockets[node])
                .env(environment::NODE, node.to_string())
                .env(environment::RANK, rank.to_string())
                .env(environment::RANKS, self.places.len().to_string())
                .arg(extent.bytes.to_string());
            self.ranks.push(RankProcess::spawn(&mut command)?);
        }
        self.joined()
    }

    /// As [`Cluster::launch`], with all ranks as threads of this many processes: a machine with two processors would
    /// otherwise be busy with the processes of a thousand ranks.
    pub fn launch_threads(&mut self, processes: usize) -> Result<f64> {
        let (generation, sockets) = self.prepare_generation()?;
        let ranks: Vec<ThreadRank> = (0_u32..)
            .zip(&self.places)
            .map(|(rank, node)| ThreadRank { rank, node: node.clone(), socket: sockets[node].clone() })
            .collect();
        for share in ranks.chunks(ranks.len().div_ceil(processes)) {
            let part = ThreadRanks {
                job: JOB.to_owned(),
                generation,
                total: u32::try_from(ranks.len())?,
                ranks: share.to_vec(),
            };
            let mut process = RankProcess::spawn(Command::new(std::env::current_exe()?).env(PART, "threads"))?;
            process.order(&serde_json::to_string(&part)?)?;
            self.ranks.push(process);
        }
        self.joined()
    }

    /// All processes have started before the first one begins: their start is not measured.
    fn joined(&mut self) -> Result<f64> {
        for rank in &mut self.ranks {
            rank.answer()?;
        }
        self.all("init")
    }

    /// The agents get the plan of the next generation; returns the sockets of their ranks.
    pub fn prepare_generation(&mut self) -> Result<(Generation, BTreeMap<NodeName, PathBuf>)> {
        self.generation += 1;
        let generation = Generation(self.generation);
        let nodes = self.agents.iter().map(|(name, agent)| RunNode {
            name: name.clone(),
            address: agent.address,
            failure_domain: name.to_string(),
            ranks: (0_u32..)
                .zip(&self.places)
                .filter(|(_, place)| *place == name)
                .map(|(rank, _)| Rank(rank))
                .collect(),
        });
        // As the orchestrator does: the agents check for it.
        std::fs::create_dir_all(self.prefix.join(".holdfast"))?;
        let placement = Placement { nodes: nodes.collect(), leader: self.places[0].clone() };
        let plan = PlanParts::new(generation, generation.0, Arc::new(placement), &self.settings())?;
        let mut sockets = BTreeMap::new();
        for (name, agent) in &self.agents {
            let accepted = self.runtime.block_on(self.client.run(agent.address, plan.request_to(name)?))?;
            sockets.insert(name.clone(), accepted.socket);
        }
        Ok((generation, sockets))
    }

    /// The usual settings of a job: all that is not requested has its default.
    fn settings(&self) -> Settings {
        let usual = fixtures::settings(self.prefix.clone(), "/tmp", 2, self.scheme);
        let mut settings = Settings { crc: self.crc, data_plane: self.data_plane, ..usual };
        settings.descriptors[0].numbers = self.numbers.clone();
        settings.levels = [(0, LevelPolicy { behind: self.asynchronous, keep: None })].into();
        if let Some(layout) = self.variables {
            settings.source = SourceName("variables".to_owned());
            settings.variables.layout = layout;
        }
        settings
    }

    /// All ranks carry out the order; returns the seconds of the slowest.
    pub fn all(&mut self, order: &str) -> Result<f64> {
        for rank in &mut self.ranks {
            rank.order(order)?;
        }
        let mut slowest = 0_f64;
        for rank in &mut self.ranks {
            slowest = slowest.max(rank.answer()?);
        }
        Ok(slowest)
    }

    /// Kills the node of a rank, deletes its files, and moves the rank to a new node. The other ranks are ended, as by
    /// the relaunch.
    pub fn lose_node_of(&mut self, rank: usize) -> Result<()> {
        let node = self.places[rank].clone();
        self.agents.remove(&node);
        fs::remove_dir_all(self.root(&node))?;
        self.end_ranks()?;
        self.places[rank] = self.add_node()?;
        Ok(())
    }

    /// Replaces all nodes by new ones without files.
    pub fn replace_nodes(&mut self) -> Result<()> {
        let old: Vec<NodeName> = self.agents.keys().cloned().collect();
        for node in old {
            self.agents.remove(&node);
            fs::remove_dir_all(self.root(&node))?;
            let new = self.add_node()?;
            self.places.iter_mut().filter(|place| **place == node).for_each(|place| place.clone_from(&new));
        }
        Ok(())
    }

    /// Ends the ranks, as the relaunch does.
    pub fn end_ranks(&mut self) -> Result<()> {
        let request = KillRequest { generation: Generation(self.generation), reason: "relaunch".to_owned() };
        for agent in self.agents.values() {
            self.runtime.block_on(self.client.kill(agent.address, &request))?;
        }
        self.ranks.clear();
        Ok(())
    }

    /// Polls all agents as a job does, until the result is dropped.
    pub fn polled(&self, interval: Duration) -> Result<AgentSupervisor> {
        let _runtime = self.runtime.enter();
        let settings = FleetSettings {
            template: template(self.trust.clone()),
            poll_interval: interval,
            poll_patience: ANSWER,
            allocation_end: None,
            clock: Clock::since(0),
        };
        let allocation = Simulated::new(0, Box::new(SimulatedAgents::new(0)));
        let mut fleet = AgentSupervisor::new(allocation as Arc<dyn Allocation>, self.client.clone(), settings);
        let record =
            |agent: &Agent| AgentRecord { address: agent.address, pid: agent.pid(), pulse: None, seen: (0, 0) };
        let known = self.agents.iter().map(|(node, agent)| (node.clone(), record(agent))).collect();
        self.runtime.block_on(fleet.adopt(&known));
        self.answered_for(&mut fleet, interval)?;
        Ok(fleet)
    }

    /// Receives answers for so long.
    pub fn answered_for(&self, fleet: &mut AgentSupervisor, long: Duration) -> Result<()> {
        self.runtime.block_on(async {
            let until = tokio::time::Instant::now() + long;
            while let Ok(event) = tokio::time::timeout_at(until, fleet.next()).await {
                if let FleetEvent::Lost { .. } | FleetEvent::StartFailed { .. } = event {
                    return Err(format!("while polling: {event:?}").into());
                }
            }
            Ok(())
        })
    }

    /// True while the redundancy of the newest checkpoint is made behind the ranks.
    pub fn is_encoding(&self) -> Result<bool> {
        let request = PollRequest { after: 0, wait_ms: 0, allocation_end: None, known: None };
        let leader = self.agents[&self.places[0]].address;
        let reply = self.runtime.block_on(self.client.poll(leader, &request, ANSWER))?;
        let is_protected = reply.events.iter().rev().find_map(|event| match event.event {
            AgentEvent::CheckpointComplete { protected, .. } => Some(!protected),
            AgentEvent::CheckpointProtected { .. } => Some(true),
            _ => None,
        });
        Ok(is_protected == Some(false))
    }

    /// Processor seconds that all agents have used.
    pub fn processor_seconds(&self) -> Result<f64> {
        self.agents.values().map(Agent::processor_seconds).sum()
    }
}

impl Agent {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Processor seconds that the agent has used.
    pub fn processor_seconds(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name may contain any character; utime and stime are the 12th and 13th field after it.
        let (_, fields) = status.rsplit_once(')').ok_or("no process name")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
        Ok(ticks / TICKS_PER_SECOND)
    }

    /// Of the threads that run.
    pub fn thread_times(&self) -> Result<ThreadTimes> {
        thread_times(self.process.id())
    }

    /// What the kernel notes of its memory under this name, bytes.
    pub fn memory(&self, figure: &str) -> Result<u64> {
        memory(self.process.id(), figure)
    }

    /// The peak of the resident memory, bytes.
    pub fn peak_resident(&self) -> Result<u64> {
        memory(self.process.id(), "VmHWM:")
    }
}

/// How long and how often threads ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTimes {
    /// Processor seconds, to the nanosecond.
    pub seconds: f64,
    /// How often one of them was given a processor.
    pub runs: f64,
}

/// Of the running threads of a process.
pub fn thread_times(pid: u32) -> Result<ThreadTimes> {
    let mut times = ThreadTimes::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end in between.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let fields = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        if let [nanoseconds, _, runs] = fields[..] {
            times.seconds += nanoseconds / 1e9;
            times.runs += runs;
        }
    }
    Ok(times)
}

/// Resident memory of a process, bytes.
pub fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, figure: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).ok_or("no such figure of memory")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes << 10)
}

/// The prefix directory of drains, on disk; made and removed by the benchmark.
pub fn drain_prefix() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("drain-prefix")
}
