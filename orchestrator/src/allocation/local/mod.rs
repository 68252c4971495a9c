//! The local manager: virtual nodes on this machine.
//!
//! A virtual node is a root directory, which is put before all its paths, and an agent process. The roots are in a
//! workspace of the job below the temporary directory, or in a directory of the user, in which nothing is ever deleted.
//! A node without its root is lost.
//!
//! Other users may write to the temporary directory. The workspace therefore has a random name, is refused if a
//! component of its path can be exchanged by another user, and has a marker with the job's id, without which nothing in
//! it is removed: see [`holdfast_core::owned`].
//!
//! Agents of these nodes inject some faults themselves: see `phase_faults`.

mod phase_faults;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use holdfast_core::owned::{Access, Found, OwnedError};
use holdfast_model::NodeName;
use holdfast_wire::environment;
use holdfast_wire::run::{AgentReady, AgentStart};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::agents::handshake;
use super::agents::logs::AgentLogs;
use super::agents::start_error::AgentStartError;
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, AllocationRequest, ManagerEntry, has_ended};
use super::error::AllocationError;
use super::nodes::{AgentPresence, Allocation, RemoteShell};
use super::record::{AllocationIdentity, AllocationRecord};
use crate::host::{host_name, process, program};
use crate::spec::{
    Chosen, InjectedFault, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount, virtual_node,
};
use phase_faults::PhaseFaults;
use workspace::{ROOTS, Workspace, marker};

/// Maximum number of agents that are being started at a time: for each processor of this machine, and in total.
const STARTS_A_PROCESSOR: usize = 4;
const STARTS_AT_ONCE: usize = 32;
/// Time limit for the start of an agent, also on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time that a dying process gets before it counts as alive.
const ENDING: Duration = Duration::from_millis(50);
/// How often the removal of a directory is tried, and the time in between.
const REMOVALS: u32 = 20;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(10);
/// Time limit for the end of a killed process.
const KILLED: Duration = Duration::from_secs(5);

/// The line of the registry.
pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "local",
        doc: "starts virtual nodes on this machine",
        title: "local",
        chosen: Chosen::Otherwise,
        nodes: NodeCount::Asked,
        variables: ManagerVariables::NONE,
        requeue: None,
        has_topology: false,
        has_remote_shells: true,
        more_nodes: |needed| format!("raise `allocation.nodes` to at least {needed}"),
        keys: KeyFacts { takes: &[("nodes", ""), ("time_limit", "")], without: &[] },
    },
    keys: ManagerKeys::NONE,
    check: || Ok(()),
    preview: |_| {
        let line = "the nodes are virtual: processes on this machine".to_owned();
        Ok(AllocationPreview { lines: vec![line], ..AllocationPreview::default() })
    },
    open: |request| Box::pin(async move { Ok(Arc::new(Local::create(request)?) as Arc<dyn Allocation>) }),
    reopen: |record, spec, logs| {
        let (identity, faults) = (record.identity.clone(), spec.map_or(&[][..], |spec| &spec.faults));
        let opened = record.details().and_then(|directories| Local::with(identity, directories, faults, logs));
        Box::pin(async move { Ok(Arc::new(opened?) as Arc<dyn Allocation>) })
    },
    is_available: |record| record.details::<LocalDirectories>().is_ok_and(|directories| directories.exist()),
    continues: |record, next| {
        let details = record.details::<LocalDirectories>();
        next.left >= next.needed
            && record.identity.nodes.len() == next.spec.nodes as usize
            && details.is_ok_and(|directories| {
                let roots = record.identity.nodes.iter().filter(|node| directories.roots.join(node.as_str()).is_dir());
                let stays = directories.workspace.as_ref().is_some_and(|path| !workspace::has_expired(path));
                stays && !has_ended(directories.end) && roots.count() >= next.needed
            })
    },
    place: |record| {
        record
            .details::<LocalDirectories>()
            .map_or_else(|_| "?".to_owned(), |directories| directories.roots.display().to_string())
    },
};

/// What a successor of this orchestrator needs to know about the virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LocalDirectories {
    /// The job's directory below the temporary directory; `None` if the roots belong to the user.
    workspace: Option<PathBuf>,
    /// The directory with the roots of the nodes.
    roots: PathBuf,
    /// When the allocation ends, seconds since the epoch.
    end: Option<u64>,
    /// The only node is this machine itself.
    #[serde(default)]
    is_machine: bool,
}

impl LocalDirectories {
    fn exist(&self) -> bool {
        self.workspace.as_ref().unwrap_or(&self.roots).is_dir()
    }

    /// Opens the workspace, if there is one: refused if it was not made for this job.
    fn check(&self, job_id: &str) -> Result<Option<Workspace>, OwnedError> {
        let Some(path) = &self.workspace else { return Ok(None) };
        let Some(workspace) = Workspace::open(path, job_id)? else { return Ok(None) };
        // What is removed with a node is below the workspace and nowhere else.
        if self.roots != path.join(ROOTS) {
            return Err(OwnedError::Refused { path: self.roots.clone(), found: Found::NoMarker });
        }
        Ok(Some(workspace))
    }
}

/// Virtual nodes on this machine.
#[derive(Debug)]
pub struct Local {
    identity: AllocationIdentity,
    directories: LocalDirectories,
    /// `None` if the roots belong to the user.
    workspace: Option<Workspace>,
    logs: AgentLogs,
    program: PathBuf,
    state: Arc<Mutex<LocalState>>,
}

#[derive(Debug)]
struct LocalState {
    agents: BTreeMap<NodeName, LocalAgent>,
    /// Nodes whose injected loss has begun. It takes a while in the background; no agent is started meanwhile.
    lost: BTreeSet<NodeName>,
    faults: PhaseFaults,
    discarded: u32,
}

#[derive(Clone, Copy, Debug)]
struct LocalAgent {
    pid: u32,
    /// We killed it: it has not injected any of its faults.
    killed: bool,
}

impl Local {
    /// Creates the virtual nodes of a new job.
    fn create(request: AllocationRequest<'_>) -> Result<Self, AllocationError> {
        let AllocationRequest { spec, job_id, user, logs, .. } = request;
        let nodes: Vec<NodeName> = (0..spec.nodes).map(virtual_node).collect();
        let identity = checked(job_id, user, nodes)?;
        let AllocationIdentity { job_id, user, nodes, .. } = &identity;
        workspace::remove_expired(&std::env::temp_dir(), user, SystemTime::now());
        let workspace = Workspace::create(user, job_id).map_err(AllocationError::Workspace)?;
        workspace.make_roots(nodes, job_id)?;
        let end = spec.end_from(SystemTime::now());
        let path = workspace.directory.path().to_owned();
        let directories = LocalDirectories { roots: path.join(ROOTS), workspace: Some(path), end, is_machine: false };
        Local::with(identity, directories, &spec.faults, logs)
    }

    /// Virtual nodes with roots of the user, `<roots>/<node>` each. Nothing in them is ever deleted.
    ///
    /// # Errors
    /// A name cannot be a directory.
    pub fn over_roots(
        job_id: String,
        user: String,
        nodes: Vec<NodeName>,
        roots: PathBuf,
        logs: PathBuf,
    ) -> Result<Self, AllocationError> {
        let identity = checked(job_id, user, nodes)?;
        let roots = absolute(&roots)?;
        let directories = LocalDirectories { workspace: None, roots, end: None, is_machine: false };
        Local::with(identity, directories, &[], logs)
    }

    /// This machine as the only node, for what a job without resource manager left on it. Nothing is ever deleted.
    ///
    /// # Errors
    /// A name cannot be a directory.
    pub fn this_machine(job_id: String, user: String, logs: PathBuf) -> Result<Self, AllocationError> {
        let identity = checked(job_id, user, vec![NodeName::new(host_name())])?;
        let directories = LocalDirectories { workspace: None, roots: "/".into(), end: None, is_machine: true };
        Local::with(identity, directories, &[], logs)
    }

    fn with(
        identity: AllocationIdentity,
        directories: LocalDirectories,
        faults: &[InjectedFault],
        logs: PathBuf,
    ) -> Result<Self, AllocationError> {
        let program = program::ourselves()?;
        let workspace = directories.check(&identity.job_id)?;
        if let Some(workspace) = &workspace {
            workspace.use_again()?;
        }
        let logs = AgentLogs::create(&logs)?;
        let injected = workspace.as_ref().map(injected_in).unwrap_or_default();
        let faults = PhaseFaults::new(faults, &identity.nodes, injected);
        let state = LocalState { agents: BTreeMap::new(), lost: BTreeSet::new(), faults, discarded: 0 };
        Ok(Local { identity, directories, workspace, logs, program, state: Arc::new(Mutex::new(state)) })
    }

    /// The names of the nodes whose roots are in this directory, sorted, numbers by value.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn nodes_below(roots: &Path) -> Result<Vec<NodeName>, AllocationError> {
        let failed = directory_error("list the nodes' roots in", roots, "check the path");
        let mut names = Vec::new();
        for entry in fs::read_dir(roots).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            if let Some(name) = entry.file_name().to_str().filter(|_| entry.path().is_dir()) {
                names.push(name.to_owned());
            }
        }
        names.sort_by_key(|name| {
            let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let (stem, number) = name.split_at(name.len() - digits);
            (stem.to_owned(), number.parse::<u64>().unwrap_or(0), name.clone())
        });
        Ok(names.into_iter().map(NodeName::new).collect())
    }

    fn root(&self, node: &NodeName) -> PathBuf {
        match self.directories.is_machine {
            true => self.directories.roots.clone(),
            false => self.directories.roots.join(node.as_str()),
        }
    }

    fn is_lost(&self, node: &NodeName) -> bool {
        self.state.lock().lost.contains(node)
    }

    /// Records on disk that a fault was injected: a successor must not repeat it.
    fn record_injected(&self, number: usize) {
        if let Some(Workspace { directory }) = &self.workspace
            && let Err(error) = directory.append(format!("injected-{number}"), Access::Private)
        {
            tracing::warn!(%error, number, "cannot record that a fault was injected");
        }
    }

    /// Deletes a node's directories. They are renamed first, so that no reader sees a part of them.
    fn delete_root(&self, node: &NodeName) {
        let Some(workspace) = &self.workspace else { return };
        let number = {
            let mut state = self.state.lock();
            state.discarded += 1;
            state.discarded
        };
        let trash = format!("deleted-{node}-{number}");
        let moved = workspace.roots().and_then(|roots| roots.move_to(node.as_str(), &workspace.directory, &trash));
        let marker = marker(&self.identity.job_id);
        match moved {
            Ok(()) => {
                // Its mode may have been changed by what ran on the node.
                if let Err(error) = remove(|| workspace.directory.remove_part(&trash, Access::Readable, &marker)) {
                    tracing::warn!(%error, %node, "cannot delete the directories of a virtual node");
                }
            }
            Err(error) if error.is_missing() => {}
            Err(error) => tracing::warn!(%error, %node, "cannot delete the directories of a virtual node"),
        }
    }

    /// Removes the dead agent of a node before the next one starts. If it injected a fault that takes the node along,
    /// the node is deleted.
    fn reap_agent(&self, node: &NodeName) {
        let Some(agent) = self.state.lock().agents.get(node).copied() else { return };
        let by_itself = !agent.killed && process::wait_for_end(agent.pid, ENDING);
        if !by_itself {
            process::kill_agent(agent.pid, KILLED);
        }
        let fault = {
            let mut state = self.state.lock();
            state.agents.remove(node);
            if by_itself { state.faults.agent_died(node) } else { None }
        };
        if let Some(fault) = fault {
            tracing::info!(%node, agent_only = fault.agent_only, "the agent injected a fault");
            self.record_injected(fault.number);
            if !fault.agent_only {
                self.delete_root(node);
            }
        }
    }

    async fn start(&self, node: &NodeName, mut start: AgentStart) -> Result<AgentReady, AgentStartError> {
        if !self.identity.nodes.contains(node) {
            return Err(AgentStartError::Unknown { node: node.clone() });
        }
        tokio::task::block_in_place(|| self.reap_agent(node));
        let root = self.root(node);
        if self.is_lost(node) || !root.is_dir() {
            let reason = format!("its root directory {} does not exist", root.display());
            return Err(AgentStartError::NodeLost { node: node.clone(), reason });
        }
        start.root = (!self.directories.is_machine).then_some(root);
        start.fault_injections = self.state.lock().faults.armed(node);
        let path = self.logs.of(node);
        let not_ready = |problem, line| AgentStartError::not_ready(node, problem, line, &path);
        let (log, file) = self.logs.open(node).await.map_err(|error| not_ready(error.into(), None))?;
        let mut command = tokio::process::Command::new(&self.program);
        // A process group of its own, so that Ctrl-C reaches only the orchestrator.
        let adopt = |pid| self.adopt_agent(node, pid);
        let started = handshake::start(command.arg("agent").process_group(0), &start, file, READY_WITHIN, adopt).await;
        let ready = match started {
            Ok(ready) => ready,
            Err(problem) => return Err(not_ready(problem, self.logs.last_line(&log).await)),
        };
        self.adopt_agent(node, ready.pid);
        Ok(ready)
    }
}

impl Allocation for Local {
    fn manager(&self) -> &'static str {
        ENTRY.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        let lost = |node: &&NodeName| !self.root(node).is_dir();
        self.identity
            .nodes
            .iter()
            .filter(lost)
            .map(|node| (node.clone(), "its root directory does not exist".to_owned()))
            .collect()
    }

    fn end(&self) -> Option<SystemTime> {
        self.directories.end.map(|end| UNIX_EPOCH + Duration::from_secs(end))
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &self.directories)
    }

    fn keep(&self) -> Result<(), AllocationError> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        Ok(workspace.keep(&self.identity.job_id, self.end(), SystemTime::now())?)
    }

    fn release(&self) -> Result<(), AllocationError> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        remove(|| workspace.remove(&self.identity.job_id))?;
        Ok(())
    }

    fn starts_at_once(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (STARTS_A_PROCESSOR * processors).min(STARTS_AT_ONCE)
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>> {
        Box::pin(self.start(node, template.for_node(node)))
    }

    fn adopt_agent(&self, node: &NodeName, pid: u32) {
        let killed = {
            let mut state = self.state.lock();
            let killed = state.lost.contains(node);
            state.agents.insert(node.clone(), LocalAgent { pid, killed });
            killed
        };
        if killed {
            // The injected loss of the node began while this agent was being started.
            process::signal(pid, Signal::KILL);
        }
    }

    /// By its process: its machine is this one.
    fn check_agent<'a>(&'a self, node: &'a NodeName, _address: SocketAddr) -> BoxFuture<'a, AgentPresence> {
        let pid = self.state.lock().agents.get(node).map(|agent| agent.pid);
        let exists = pid.is_some_and(|pid| process::runs_as(pid, "agent") && process::is_alive(pid));
        Box::pin(async move { if exists { AgentPresence::Present } else { AgentPresence::Ended } })
    }

    fn kill_agent(&self, node: &NodeName) {
        let pid = self.state.lock().agents.get_mut(node).map(|agent| {
            agent.killed = true;
            agent.pid
        });
        if let Some(pid) = pid
            && !process::kill_agent(pid, KILLED)
        {
            tracing::warn!(%node, pid, "an agent has not ended after SIGKILL");
        }
    }

    fn terminate_agents(&self, agents: &[(NodeName, u32)], patience: Duration) {
        self.end_agents(&self.identity.nodes, agents, patience);
    }

    fn end_agents(&self, nodes: &[NodeName], agents: &[(NodeName, u32)], patience: Duration) {
        for (_, pid) in agents {
            process::wait_for_end(*pid, patience);
        }
        nodes.iter().for_each(|node| self.kill_agent(node));
    }

    fn remote_shell(&self, _node: &NodeName) -> Option<RemoteShell> {
        Some(RemoteShell { words: vec!["sh".to_owned(), "-c".to_owned()], inherits: true })
    }

    fn lose_node(&self, node: &NodeName) {
        self.state.lock().lost.insert(node.clone());
        self.kill_agent(node);
        self.delete_root(node);
    }

    fn agent_is_killed(&self, node: &NodeName) {
        if let Some(agent) = self.state.lock().agents.get_mut(node) {
            agent.killed = true;
        }
    }

    fn injected_faults(&self) -> BTreeSet<usize> {
        self.state.lock().faults.injected().clone()
    }

    fn rank_variables(&self, node: &NodeName) -> Option<BTreeMap<String, String>> {
        let root = self.root(node).to_string_lossy().into_owned();
        let variables = [(environment::NODE, node.to_string()), (environment::NODE_ROOT, root)];
        Some(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

/// The numbers of the faults that [`Local::record_injected`] recorded.
fn injected_in(workspace: &Workspace) -> BTreeSet<usize> {
    let names = workspace.directory.names().unwrap_or_default();
    names.iter().filter_map(|name| name.to_str()?.strip_prefix("injected-")?.parse().ok()).collect()
}

/// Removes a tree. A process that was just killed may still have written to it, so this is retried.
fn remove(attempt: impl Fn() -> Result<bool, OwnedError>) -> Result<bool, OwnedError> {
    for _ in 1..REMOVALS {
        match attempt() {
            Err(OwnedError::Io { .. }) => std::thread::sleep(BETWEEN_REMOVALS),
            removed => return removed,
        }
    }
    attempt()
}

fn absolute(path: &Path) -> Result<PathBuf, AllocationError> {
    path.canonicalize().map_err(directory_error("find", path, "give the directory with one root directory a node"))
}

fn directory_error<'a>(
    action: &'static str,
    path: &'a Path,
    remedy: &'static str,
) -> impl Fn(io::Error) -> AllocationError + 'a {
    move |source| AllocationError::Directory { action, path: path.to_owned(), source, remedy }
}

/// An identity whose names can be directories.
fn checked(job_id: String, user: String, nodes: Vec<NodeName>) -> Result<AllocationIdentity, AllocationError> {
    let names = [("the job id", &*job_id), ("the user", &*user)];
    for (what, name) in names.into_iter().chain(nodes.iter().map(|node| ("the node", node.as_str()))) {
        let bad = name.is_empty() || name == "." || name == ".." || name.len() > 200;
        if bad || name.contains(|c: char| c == '/' || c.is_control()) {
            return Err(AllocationError::Name { what, name: name.to_owned() });
        }
    }
    Ok(AllocationIdentity { job_id, token: None, user, nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local_over(roots: &Path) -> Local {
        let logs = roots.join("logs");
        let nodes = ["node0", "node1"].map(NodeName::from).to_vec();
        Local::over_roots("17".to_owned(), "user1".to_owned(), nodes, roots.to_owned(), logs).unwrap()
    }

    #[test]
    fn a_node_whose_root_is_missing_is_down() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("node0")).unwrap();
        let down = local_over(base.path()).down_nodes();
        assert_eq!(down.len(), 1);
        assert_eq!(down[0].0, "node1".into());
    }

    #[test]
    fn roots_of_the_user_survive_a_release() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("node0")).unwrap();
        let local = local_over(base.path());
        local.delete_root(&"node0".into());
        local.release().unwrap();
        assert!(base.path().join("node0").is_dir());
    }

    #[test]
    fn nodes_are_listed_by_their_numbers() {
        let base = tempfile::tempdir().unwrap();
        for name in ["node10", "node2", "node1"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        fs::write(base.path().join("notes"), b"").unwrap();
        let names = Local::nodes_below(base.path()).unwrap();
        assert_eq!(names, ["node1", "node2", "node10"].map(NodeName::from));
    }

    #[test]
    fn refuses_names_with_a_path() {
        for name in ["", "..", "a/b", "/etc", "a\0"] {
            assert!(checked("17".into(), "u".into(), vec![name.into()]).is_err(), "{name:?}");
        }
    }
}
