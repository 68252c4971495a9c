//! The agent of a node, on the directories of the node.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use holdfast_agent::collective::leader::LeaderMachine;
use holdfast_agent::simulation::SimulatedAgent;
use holdfast_core::crash;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::plan::{OwnPlan, RunRequest, SharedPlan};
use holdfast_wire::run::{AgentStart, RunPlan};
use serde_json::json;

use super::bytes::{bytes_of, content_of};
use super::faults::with_fault;
use super::{Files, NodeFiles};
use crate::content::{Content, FileName, Origin};
use crate::names::{NodeIndex, name, planned};
use crate::prefix::JOB;
use crate::world::World;

/// Why an agent does not do what was requested.
pub enum Refusal {
    /// It was killed, and has ended.
    Killed,
    Failed(String),
}

impl Files {
    pub(super) fn node(&self, at: NodeIndex) -> &NodeFiles {
        &self.nodes[at as usize]
    }

    fn directory(&self, at: NodeIndex) -> PathBuf {
        self.root.path().join(format!("n{at}"))
    }

    fn start_message(&self, at: NodeIndex) -> AgentStart {
        serde_json::from_value(json!({
            "version": holdfast_wire::VERSION, "job": "simulated", "job_id": JOB, "user": "user1", "node": name(at),
            "root": self.directory(at), "prefixes": [self.prefix()], "control_base": "/control",
            "cache_bases": {"/cache": null}, "control_bytes": null, "listen": "127.0.0.1:0",
            "trust": {"certificate": "", "key": "", "token": ""}, "disk_timeout": 30_000, "abandon_after": 60_000,
        }))
        .unwrap()
    }

    /// The agent's process ends, and leaves its files as they are.
    pub fn agent_ends(&mut self, at: NodeIndex) {
        if self.nodes[at as usize].agent.take().is_some() {
            crash::leave_temporary_files(&self.directory(at));
            crash::leave_temporary_files(&self.prefix());
        }
    }

    /// The orchestrator's process ends in the middle of a drain.
    pub fn orchestrator_ends(&mut self) {
        self.draining = None;
        crash::leave_temporary_files(&self.prefix());
    }

    /// The node is lost with its disks.
    pub fn node_is_lost(&mut self, at: NodeIndex) {
        self.nodes[at as usize] = NodeFiles::default();
        let directory = self.directory(at);
        if directory.exists() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// The plan as the orchestrator sends it to a node.
fn request_of(plan: &RunPlan, at: NodeIndex, issued: u64) -> RunRequest {
    let RunPlan { generation, nodes, leader, settings } = plan.clone();
    let leads = leader == name(at);
    let shared = SharedPlan {
        generation,
        ranks: plan.ranks(),
        used_nodes: nodes.iter().filter(|node| !node.ranks.is_empty()).count() as u32,
        leader_address: plan.node(&leader).unwrap().address,
        leader,
        settings,
    };
    let own = OwnPlan { node: name(at), ranks: planned(plan, at).unwrap().ranks.clone() };
    RunRequest { issued, shared, own, nodes: leads.then_some(nodes) }
}

impl World {
    /// Starts an agent on the files of its node.
    pub fn start_on_files(&mut self, at: NodeIndex, instance: u64) -> Result<(), Refusal> {
        let fault = self.plan_call_fault();
        let Some(files) = &mut self.files else { return Ok(()) };
        files.tally.steps += 1;
        let (start, network) = (files.start_message(at), files.network.clone());
        for base in ["control", "cache"] {
            fs::create_dir_all(files.directory(at).join(base)).unwrap();
        }
        let (agent, fault) = with_fault(fault, || SimulatedAgent::start(start, instance, network));
        let started = agent.map(|agent| {
            let halt = Some(agent.store().paths.control().join("halt.scrinfo"));
            files.nodes[at as usize] = NodeFiles { agent: Some(agent), halt, paths: BTreeMap::new() };
        });
        if self.agent_fault_happened(at, fault) {
            return Err(Refusal::Killed);
        }
        self.read_back(at);
        self.read_back_halt(at);
        started.map_err(Refusal::Failed)
    }

    /// An agent begins a run, or adopts it. Returns the machine of the leader, if that is here.
    pub fn begin_on_files(
        &mut self,
        at: NodeIndex,
        plan: &RunPlan,
        issued: u64,
        adopted: bool,
    ) -> Result<Option<LeaderMachine>, Refusal> {
        let fault = self.plan_call_fault();
        let Some(files) = &mut self.files else { return Ok(None) };
        files.tally.steps += 1;
        let request = request_of(plan, at, issued);
        let Some(agent) = &mut files.nodes[at as usize].agent else { return Err(Refusal::Killed) };
        let (begun, fault) = with_fault(fault, || agent.begin_run(&request, !adopted));
        if self.agent_fault_happened(at, fault) {
            return Err(Refusal::Killed);
        }
        self.read_back(at);
        begun.map_err(Refusal::Failed)
    }

    /// A rank routes a file, and writes all or the first half of it. False if it cannot.
    pub fn write_on_files(&mut self, at: NodeIndex, origin: &Origin, half: bool) -> bool {
        let fault = self.plan_call_fault();
        let Some(files) = &mut self.files else { return false };
        files.tally.steps += 1;
        let Some(agent) = &files.node(at).agent else { return false };
        let Origin { rank, checkpoint, part, iteration, .. } = *origin;
        // The directory counts for the files of outputs: those of a later attempt have the same paths.
        let name = format!("output/{iteration}/{}", FileName::Application { rank, part });
        let (path, fault) = with_fault(fault, || agent.route(checkpoint, rank, &name));
        let bytes = bytes_of(origin);
        let written = if half { &bytes[..bytes.len() / 2] } else { &bytes };
        // The rank has its answer, or not; a process of its own writes the file.
        let done = path.is_ok_and(|path| fs::write(path, written).is_ok());
        let killed = self.agent_fault_happened(at, fault);
        done && !killed
    }

    /// The content of a file that a rank restarts from without the cache.
    pub fn read_bypassing(&self, at: NodeIndex, rank: Rank, name: FileName) -> Option<Content> {
        let memory = self.files.as_ref()?.node(at).agent.as_ref()?.memory()?;
        let bytes = fs::read(memory.direct.as_ref()?.path(rank, &name.to_string())).ok()?;
        Some(content_of(&bytes, true))
    }

    /// A defect: the redundancy that a node has made differs from its meta file.
    pub fn spoil_redundancy(&mut self, at: NodeIndex, of: CheckpointId) {
        let Some(files) = &self.files else { return };
        let mut known = files.node(at).paths.keys();
        let key = known.find(|(checkpoint, _, name)| *checkpoint == of && !name.is_application()).copied();
        key.into_iter().for_each(|key| self.harm_on_files(at, key, true));
    }

    /// A file in cache is removed, or one byte of it changes.
    pub fn harm_on_files(&mut self, at: NodeIndex, key: (CheckpointId, Rank, FileName), changed: bool) {
        let Some(files) = &mut self.files else { return };
        let Some(path) = files.node(at).paths.get(&key) else { return };
        match changed {
            false => drop(fs::remove_file(path)),
            true => {
                // It may have been lost before.
                let Ok(mut bytes) = fs::read(path) else { return };
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(path, bytes).unwrap();
            }
        }
        self.read_back(at);
    }
}
