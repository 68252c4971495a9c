//! The local manager: virtual nodes on this machine.
//!
//! A virtual node is a root directory, which is put before all its paths, and an agent process. The roots are in a
//! workspace of the job below the temporary directory, or in a directory of the user, in which nothing is ever deleted.
//! A node without its root is lost. Faults are injected on these nodes only ([`fault_schedule`]).

pub mod fault_schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_model::NodeName;
use holdfast_wire::run::AgentStart;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::agents::handshake::{self, StartLog};
use super::{
    AgentControl, AgentStartError, AgentTemplate, AllocatedNodes, Allocation, AllocationError, AllocationIdentity,
    AllocationRecord, AllocationRequest, Fault, FaultInjection, ManagerEntry, NodeAccess, Observation, Pending,
    RemoteShell, RunningAgent,
};
use crate::host::{process, program};
use crate::spec::{Chosen, InjectedFault, KeyFacts, ManagerFacts, NodeCount, virtual_node};
use fault_schedule::FaultSchedule;

/// Maximum number of agents that are being started at a time: each is a process of this machine.
const STARTS_AT_ONCE: usize = 32;
/// Time limit for the start of an agent, also on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time that a dying process gets before it counts as alive.
const ENDING: Duration = Duration::from_millis(50);
/// Time limit for the end of a killed process.
const KILLED: Duration = Duration::from_secs(5);

/// The line of the registry.
pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "local",
        doc: "starts virtual nodes on this machine",
        chosen: Chosen::Otherwise,
        nodes: NodeCount::Asked,
        more_nodes: |needed| format!("raise `allocation.nodes` to at least {needed}"),
        keys: KeyFacts {
            takes: &[
                ("nodes", ""),
                ("time_limit", ""),
                ("chaos", "faults are injected on virtual nodes only: write `manager: local`"),
            ],
            without: &[],
        },
    },
    check: || Ok(()),
    preview: |_| Ok(Vec::new()),
    open: |request| Box::pin(async move { Ok(Arc::new(Local::create(request)?) as Arc<dyn Allocation>) }),
    reopen: |record, faults, logs| {
        let opened =
            record.details().and_then(|directories| Local::with(record.identity.clone(), directories, faults, logs));
        Box::pin(async move { Ok(Arc::new(opened?) as Arc<dyn Allocation>) })
    },
    is_available: |record| record.details::<LocalDirectories>().is_ok_and(|directories| directories.exist()),
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
}

impl LocalDirectories {
    fn exist(&self) -> bool {
        self.workspace.as_ref().unwrap_or(&self.roots).is_dir()
    }
}

/// Virtual nodes on this machine.
#[derive(Debug)]
pub struct Local {
    identity: AllocationIdentity,
    directories: LocalDirectories,
    logs: PathBuf,
    program: PathBuf,
    state: Arc<Mutex<LocalState>>,
}

#[derive(Debug)]
struct LocalState {
    agents: BTreeMap<NodeName, LocalAgent>,
    /// Nodes whose injected loss has begun. It takes a while in the background; no agent is started meanwhile.
    lost: BTreeSet<NodeName>,
    faults: FaultSchedule,
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
        let AllocationRequest { spec, job_id, user, faults, logs, .. } = request;
        let nodes: Vec<NodeName> = (0..spec.nodes).map(virtual_node).collect();
        check_name("the job id", &job_id)?;
        check_name("the user", &user)?;
        let workspace = std::env::temp_dir().join(format!("holdfast-{user}-{job_id}"));
        make_directory(&workspace)?;
        let roots = workspace.join("nodes");
        make_directory(&roots)?;
        for node in &nodes {
            check_name("the node", node.as_str())?;
            make_directory(&roots.join(node.as_str()))?;
        }
        let end = spec.time_limit.map(|limit| SystemTime::now() + limit);
        let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok()).map(|end| end.as_secs());
        let directories = LocalDirectories { workspace: Some(workspace), roots, end };
        Local::with(AllocationIdentity { job_id, user, nodes }, directories, faults, logs)
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
        check_name("the job id", &job_id)?;
        check_name("the user", &user)?;
        for node in &nodes {
            check_name("the node", node.as_str())?;
        }
        let roots = absolute(&roots)?;
        let directories = LocalDirectories { workspace: None, roots, end: None };
        Local::with(AllocationIdentity { job_id, user, nodes }, directories, Vec::new(), logs)
    }

    fn with(
        identity: AllocationIdentity,
        directories: LocalDirectories,
        faults: Vec<InjectedFault>,
        logs: PathBuf,
    ) -> Result<Self, AllocationError> {
        let program = program::ourselves()?;
        make_directory(&logs)?;
        let injected = directories.workspace.as_deref().map(injected_in).unwrap_or_default();
        let faults = FaultSchedule::new(faults, injected);
        let state = LocalState { agents: BTreeMap::new(), lost: BTreeSet::new(), faults, discarded: 0 };
        Ok(Local { identity, directories, logs, program, state: Arc::new(Mutex::new(state)) })
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
        self.directories.roots.join(node.as_str())
    }

    fn lock(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock()
    }

    fn is_lost(&self, node: &NodeName) -> bool {
        self.lock().lost.contains(node)
    }

    /// Records on disk that a fault was injected: a successor must not repeat it.
    fn record_injected(&self, number: usize) {
        if let Some(workspace) = &self.directories.workspace
            && let Err(error) = fs::write(workspace.join(format!("injected-{number}")), b"")
        {
            tracing::warn!(%error, number, "cannot record that a fault was injected");
        }
    }

    /// Deletes a node's directories. They are renamed first, so that no reader sees a part of them.
    fn delete_root(&self, node: &NodeName) {
        let Some(workspace) = &self.directories.workspace else { return };
        let number = {
            let mut state = self.lock();
            state.discarded += 1;
            state.discarded
        };
        let trash_dir = workspace.join(format!("deleted-{node}-{number}"));
        match fs::rename(self.root(node), &trash_dir) {
            Ok(()) => remove_tree(&trash_dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, %node, "cannot delete the directories of a virtual node"),
        }
    }

    /// Removes the dead agent of a node before the next one starts. If it injected a fault that takes the node along,
    /// the node is deleted.
    fn reap_agent(&self, node: &NodeName) {
        let Some(agent) = self.lock().agents.get(node).copied() else { return };
        let by_itself = !agent.killed && process::wait_for_end(agent.pid, ENDING);
        if !by_itself {
            process::kill_agent(agent.pid, KILLED);
        }
        let fault = {
            let mut state = self.lock();
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

    fn log_of(&self, node: &NodeName) -> PathBuf {
        self.logs.join(format!("{node}.log"))
    }

    async fn start(&self, node: &NodeName, mut start: AgentStart) -> Result<RunningAgent, AgentStartError> {
        if !self.identity.nodes.contains(node) {
            return Err(AgentStartError::Unknown { node: node.clone() });
        }
        let log = tokio::task::block_in_place(|| {
            self.reap_agent(node);
            StartLog::new(self.log_of(node))
        });
        let root = self.root(node);
        if self.is_lost(node) || !root.is_dir() {
            let reason = format!("its root directory {} does not exist", root.display());
            return Err(AgentStartError::NodeLost { node: node.clone(), reason });
        }
        start.root = Some(root);
        start.fault_injections = self.lock().faults.armed(node).into_iter().map(|(_, fault)| fault).collect();
        let mut command = tokio::process::Command::new(&self.program);
        // A process group of its own, so that Ctrl-C reaches only the orchestrator.
        let adopt = |pid| self.adopt_agent(node, pid);
        let started = handshake::start(command.arg("agent").process_group(0), &start, &log, READY_WITHIN, adopt).await;
        let ready = started.map_err(|problem| AgentStartError::not_ready(node, problem, &log))?;
        self.adopt_agent(node, ready.pid);
        Ok(RunningAgent { ready, log: log.path().to_owned() })
    }
}

impl Allocation for Local {
    fn fault_injection(&self) -> Option<&dyn FaultInjection> {
        Some(self)
    }
}

impl AllocatedNodes for Local {
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

    fn own_node(&self) -> Option<NodeName> {
        None
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &self.directories)
    }

    fn release(&self) -> Result<(), AllocationError> {
        let Some(workspace) = &self.directories.workspace else { return Ok(()) };
        remove_tree(workspace);
        match workspace.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => {
                let source = io::Error::other("a process still writes to it");
                let (path, remedy) = (workspace.clone(), "remove it by hand");
                Err(AllocationError::Directory { action: "remove", path, source, remedy })
            }
        }
    }
}

impl AgentControl for Local {
    fn starts_at_once(&self) -> usize {
        STARTS_AT_ONCE
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pending<'a, Result<RunningAgent, AgentStartError>> {
        Box::pin(self.start(node, template.for_node(node)))
    }

    fn adopt_agent(&self, node: &NodeName, pid: u32) {
        let killed = {
            let mut state = self.lock();
            let killed = state.lost.contains(node);
            state.agents.insert(node.clone(), LocalAgent { pid, killed });
            killed
        };
        if killed {
            // The injected loss of the node began while this agent was being started.
            process::signal(pid, Signal::KILL);
        }
    }

    fn kill_agent(&self, node: &NodeName) {
        let pid = self.lock().agents.get_mut(node).map(|agent| {
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
        for (_, pid) in agents {
            process::wait_for_end(*pid, patience);
        }
        self.identity.nodes.iter().for_each(|node| self.kill_agent(node));
    }
}

impl NodeAccess for Local {
    fn command_prefix(&self, _node: &NodeName) -> Vec<String> {
        Vec::new()
    }

    fn remote_shell(&self, _node: &NodeName) -> Option<RemoteShell> {
        None
    }
}

impl FaultInjection for Local {
    fn due_faults(&self, observation: Observation) -> Vec<Fault> {
        let mut state = self.lock();
        let due = state.faults.due(observation);
        let lost = due.iter().filter(|fault| !fault.agent_only).map(|fault| fault.node.clone());
        state.lost.extend(lost);
        due
    }

    fn inject_fault(&self, fault: &Fault) {
        tracing::info!(node = %fault.node, agent_only = fault.agent_only, "injecting a fault");
        self.record_injected(fault.number);
        self.kill_agent(&fault.node);
        if !fault.agent_only {
            self.delete_root(&fault.node);
        }
    }
}

/// The numbers of the faults that [`Local::record_injected`] recorded.
fn injected_in(workspace: &Path) -> BTreeSet<usize> {
    let Ok(entries) = fs::read_dir(workspace) else { return BTreeSet::new() };
    let number =
        |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.strip_prefix("injected-")?.parse().ok();
    entries.filter_map(number).collect()
}

/// Removes a tree. A process that was just killed may still have written to it, so this is retried.
fn remove_tree(path: &Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(Duration::from_millis(10)),
            _ => return,
        }
    }
    tracing::warn!(path = %path.display(), "cannot remove a directory");
}

fn make_directory(path: &Path) -> Result<(), AllocationError> {
    let remedy = "check the directory above it, or set another TMPDIR";
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(directory_error("make", path, remedy))
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

fn check_name(what: &'static str, name: &str) -> Result<(), AllocationError> {
    let bad = name.is_empty() || name == "." || name == ".." || name.len() > 200;
    if bad || name.contains(|c: char| c == '/' || c.is_control()) {
        return Err(AllocationError::Name { what, name: name.to_owned() });
    }
    Ok(())
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
            assert!(check_name("the node", name).is_err(), "{name:?}");
        }
    }
}
