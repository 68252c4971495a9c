//! The ssh manager: machines that the spec lists, without a resource manager.
//!
//! | file | subject |
//! |---|---|
//! | `hosts` | the keys of the spec: which hosts, and how they are reached |
//! | `connection` | a connection to a host, and commands over it |
//! | `known_hosts` | the host keys that a user trusts |
//! | `sign_in` | authentication with ssh-agent and key files |
//! | `survey_answer` | the answer of a host to the survey |
//! | `survey` | which hosts can be used, checked before anything is started |
//! | `agents` | starting and ending an agent, following the ranks of a node |
//! | `target` | a host with everything that is needed to connect to it |
//! | `remote_shell` | how mpirun starts its daemons on a host |
//! | `error` | errors of connections to hosts |
//!
//! [`on_node`] is the other end, on the hosts; the launcher's part of it is in [`crate::launch::ssh`]. An agent
//! survives the connection that started it. There are no secrets on command lines: the job's key is sent on standard
//! input.

#[cfg_attr(not(feature = "ssh"), path = "agents_not_built.rs")]
mod agents;
#[cfg(feature = "ssh")]
mod connection;
mod error;
pub mod hosts;
#[cfg(feature = "ssh")]
pub(crate) mod known_hosts;
pub mod on_node;
mod remote_shell;
#[cfg(feature = "ssh")]
mod sign_in;
mod survey;
mod survey_answer;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use holdfast_core::state_files;
use holdfast_core::{hostlist, workers};
use holdfast_model::NodeName;
use holdfast_wire::reachable::ProbeResult;
use holdfast_wire::run::AgentReady;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::agents::handshake::{self, HandshakeError};
use super::agents::logs::AgentLogs;
use super::agents::start_error::AgentStartError;
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, AllocationRequest, ManagerEntry, has_ended};
use super::error::AllocationError;
use super::nodes::{Allocation, RemoteShell};
use super::reachable;
use super::record::{AllocationIdentity, AllocationRecord};
use crate::host::{self, host_name};
use crate::spec::{Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount};

pub use agents::{follow, run_command};
use error::HostsError;
pub use error::SshError;
use hosts::{SshAccess, SshHost, SshSettings};
use on_node::SurveyRequest;
pub use survey::{UsableHost, survey};
pub use target::{Target, targets};

/// Time limit for the restart of a silent agent whose machine answers. On a frozen machine nothing can be started.
const RESTART_OF_SILENT: Duration = Duration::from_secs(3);
/// Interval at which the port of an agent is checked; it is closed as soon as the agent ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time limit for the answer of a machine.
const LOOK_WITHIN: Duration = Duration::from_millis(250);

pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "ssh",
        doc: "uses the listed hosts, without a resource manager",
        title: "ssh",
        chosen: Chosen::ByKeys {
            keys: &["hosts", "hosts_file"],
            help: "list the machines: `hosts: [n1, user@n2:2222]`, or use a file with one a line: `hosts_file: hosts`",
        },
        nodes: NodeCount::Hosts,
        variables: ManagerVariables::NONE,
        requeue: None,
        has_topology: false,
        has_remote_shells: true,
        more_nodes: |needed| format!("list at least {needed} hosts"),
        keys: KeyFacts {
            takes: &[
                ("time_limit", ""),
                ("hosts", ""),
                ("hosts_file", ""),
                ("ssh", "it needs a list of hosts: write `hosts: [n1, n2]` and `manager: ssh`"),
            ],
            without: &[("nodes", "the list of hosts sets the number of nodes: leave the key out")],
        },
    },
    keys: ManagerKeys::of::<SshSettings>(),
    check: || if cfg!(feature = "ssh") { Ok(()) } else { Err(AllocationError::Unsuitable(SshError::NotBuilt.into())) },
    preview,
    open: |request| Box::pin(async move { Ok(Arc::new(Ssh::open(request).await?) as Arc<dyn Allocation>) }),
    reopen: |record, _, logs| {
        let opened = record.details().and_then(|hosts| Ssh::reopen(record.identity.clone(), hosts, logs));
        Box::pin(async move { Ok(Arc::new(opened?) as Arc<dyn Allocation>) })
    },
    // There is no resource manager that could reclaim them.
    is_available: |_| true,
    continues: |record, next| {
        next.left >= next.needed
            && record.identity.nodes == next.spec.hosts
            && record.details::<Hosts>().is_ok_and(|hosts| !has_ended(hosts.end))
    },
    place: |record| format!("the hosts {}", hostlist::compress(&record.identity.nodes)),
};

/// What a successor of this orchestrator needs to know of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hosts {
    hosts: Vec<SshHost>,
    access: SshAccess,
    /// The path of `holdfast` on the hosts.
    program: String,
    /// When the allocation ends, seconds since the epoch.
    end: Option<u64>,
    /// The host of the orchestrator, if it is one of these, with its host name.
    own: Option<(NodeName, String)>,
}

/// Machines that the spec lists.
#[derive(Debug)]
pub struct Ssh {
    identity: AllocationIdentity,
    hosts: Hosts,
    logs: AgentLogs,
    /// Hosts that failed the survey, with the reason.
    refused: BTreeMap<NodeName, String>,
    /// Started or adopted agents.
    agents: Mutex<BTreeMap<NodeName, HostAgent>>,
}

#[derive(Clone, Copy, Debug)]
struct HostAgent {
    pid: u32,
    /// `None` for adopted agents.
    address: Option<SocketAddr>,
}

/// What is checked on every host.
fn survey_request(request: &AllocationRequest<'_>) -> SurveyRequest {
    let own = host::program::ourselves().ok();
    let owned = |paths: &BTreeSet<&Path>| paths.iter().map(|path| (*path).to_owned()).collect();
    let programs = request.programs.iter().copied().filter(|program| own.as_deref() != Some(*program));
    let directories = request.working_directories.iter().copied();
    SurveyRequest { directories: owned(&directories.collect()), programs: owned(&programs.collect()), mark: None }
}

/// The lines of a dry run about the hosts, and why a run would refuse them.
fn preview(request: &AllocationRequest<'_>) -> Result<AllocationPreview, AllocationError> {
    let targets = targets(request.spec, &request.user)?;
    let mut asked = survey_request(request);
    // A prefix directory that does not exist yet is made before the hosts of a run are surveyed.
    if request.prefix.is_dir() {
        asked.directories.insert(0, request.prefix.to_owned());
    }
    let surveyed = survey(&targets, &asked, SshSettings::of(request.spec).access.at_once as usize);
    let line = |(node, found): &(NodeName, Result<UsableHost, SshError>)| match found {
        Ok(UsableHost { address, version, clock: (apart, ahead), .. }) => {
            let clock = match (apart.as_secs(), *ahead) {
                (0, _) => String::new(),
                (seconds, true) => format!(", clock {seconds} s ahead"),
                (seconds, false) => format!(", clock {seconds} s behind"),
            };
            format!("{node} at {address}: Holdfast {version}{clock}")
        }
        Err(error) => format!("cannot be used: {error}"),
    };
    let refusal = too_few_hosts(&surveyed, request.needed).map(AllocationError::from);
    Ok(AllocationPreview { lines: surveyed.iter().map(line).collect(), refusal })
}

/// The error if fewer hosts can be used than the run needs.
fn too_few_hosts(found: &[(NodeName, Result<UsableHost, SshError>)], needed: u32) -> Option<HostsError> {
    let refused = || found.iter().filter_map(|(_, found)| Some(found.as_ref().err()?.to_string()));
    let (of, have) = (found.len(), found.len() - refused().count());
    if have >= needed as usize {
        return None;
    }
    let mut problems: Vec<String> = refused().collect();
    problems.dedup();
    Some(HostsError::TooFew { have, of, needed, problems })
}

impl Ssh {
    /// Surveys all hosts of a new job; those that cannot be used are down. The logs of agents, like everything below
    /// the prefix, are on a shared file system.
    async fn open(request: AllocationRequest<'_>) -> Result<Self, AllocationError> {
        let AllocationRequest { spec, job_id, user, needed, state, .. } = &request;
        let logs = AgentLogs::create(&request.logs)?;
        let mark = state.join(format!("mark-{job_id}"));
        let mut asked = survey_request(&request);
        asked.directories.insert(0, request.prefix.to_owned());
        asked.mark = Some((mark.clone(), job_id.clone()));
        state_files::replace(&mark, job_id.as_bytes())?;
        let settings = SshSettings::of(spec);
        let (targets, at_once) = (targets(spec, user)?, settings.access.at_once as usize);
        let surveying = tokio::task::spawn_blocking(move || survey(&targets, &asked, at_once));
        let found = surveying.await.map_err(HostsError::Survey);
        let _ = state_files::remove(&mark);
        let found = found?;
        if let Some(error) = too_few_hosts(&found, *needed) {
            return Err(error.into());
        }
        let refused: BTreeMap<NodeName, String> =
            found.iter().filter_map(|(node, found)| Some((node.clone(), found.as_ref().err()?.to_string()))).collect();
        let own = found.iter().find(|(_, found)| found.as_ref().is_ok_and(|found| found.is_here));
        let hosts = Hosts {
            own: own.map(|(node, _)| (node.clone(), host_name())),
            hosts: settings.hosts,
            program: target::program(&settings.access)?,
            access: settings.access,
            end: spec.end_from(SystemTime::now()),
        };
        let nodes = found.into_iter().map(|(node, _)| node).collect();
        let identity = AllocationIdentity { job_id: job_id.clone(), token: None, user: user.clone(), nodes };
        Ok(Ssh { identity, hosts, logs, refused, agents: Mutex::default() })
    }

    /// Takes the hosts over from an orchestrator that ended. They are not surveyed: an answer of the agent is enough.
    fn reopen(identity: AllocationIdentity, mut hosts: Hosts, logs: PathBuf) -> Result<Self, AllocationError> {
        (ENTRY.check)()?;
        let logs = AgentLogs::create(&logs)?;
        let here = host_name();
        hosts.own = hosts.own.filter(|(_, name)| *name == here);
        Ok(Ssh { identity, hosts, logs, refused: BTreeMap::new(), agents: Mutex::default() })
    }

    fn target(&self, node: &NodeName) -> Option<Target> {
        let host = self.hosts.hosts.iter().find(|host| host.name == node.as_str())?;
        Some(target::target(host, &self.hosts.access, &self.identity.user, &self.hosts.program))
    }

    async fn start(&self, node: &NodeName, template: &AgentTemplate) -> Result<AgentReady, AgentStartError> {
        let lost = |reason: String| AgentStartError::NodeLost { node: node.clone(), reason };
        let Some(target) = self.target(node) else {
            return Err(AgentStartError::Unknown { node: node.clone() });
        };
        if let Some(reason) = self.refused.get(node) {
            return Err(lost(reason.clone()));
        }
        let log = self.logs.begin(node).await;
        let earlier = self.agents.lock().get(node).copied();
        let (start, place) = (template.for_node(node), log.path.clone());
        // Cancelled when this future is dropped. A blocking thread cannot be stopped, and a host that answers too late
        // must not be left with an agent.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let starting = tokio::task::spawn_blocking(move || agents::start(&target, start, &place, &cancelled));
        let started = async {
            let started = match starting.await {
                Ok(Ok(ready)) => handshake::check_version(ready),
                Ok(Err(error @ SshError::UnexpectedAnswer { .. })) => Err(HandshakeError::Starter(error.to_string())),
                // A second attempt would fail too.
                Ok(Err(error)) => return Err(lost(error.to_string())),
                Err(error) => Err(io::Error::other(error).into()),
            };
            match started {
                Ok(ready) => Ok(ready),
                Err(problem) => {
                    let line = self.logs.last_line(&log).await;
                    Err(AgentStartError::not_ready(node, problem, line, &log.path))
                }
            }
        };
        let ready = match earlier.and_then(|agent| agent.address) {
            None => started.await?,
            Some(address) => self.start_again(node, address, started).await?,
        };
        self.agents.lock().insert(node.clone(), HostAgent { pid: ready.pid, address: Some(ready.address) });
        Ok(ready)
    }

    /// Waits for the start of an agent on a node that had one at this address. The machine is probed in the meantime,
    /// because a connection to a lost machine fails only after a much longer time.
    async fn start_again(
        &self,
        node: &NodeName,
        address: SocketAddr,
        started: impl Future<Output = Result<AgentReady, AgentStartError>>,
    ) -> Result<AgentReady, AgentStartError> {
        let lost = |reason: String| AgentStartError::NodeLost { node: node.clone(), reason };
        let probed = reachable::probe(address).await;
        let accepts = matches!(probed, ProbeResult::Accepted(_));
        let limited = async {
            if !accepts {
                return started.await;
            }
            let frozen =
                || lost(format!("it accepts connections, but no agent could be started within {RESTART_OF_SILENT:?}"));
            tokio::time::timeout(RESTART_OF_SILENT, started).await.unwrap_or_else(|_| Err(frozen()))
        };
        tokio::select! {
            started = limited => started,
            () = reachable::wait_until_unreachable(address, probed) => {
                Err(lost(format!("no answer from {}, the address of its agent", address.ip())))
            }
        }
    }

    /// Kills a process on a host if it is an agent and still runs after `patience`.
    fn end(&self, node: &NodeName, pid: u32, patience: Duration) {
        let Some(target) = self.target(node) else { return };
        if let Err(error) = agents::end(&target, pid, patience) {
            tracing::info!(%node, pid, %error, "cannot end an agent");
        }
    }
}

/// Waits up to `patience` until no process listens at the address; true if none does.
fn is_closed_within(address: SocketAddr, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        if TcpStream::connect_timeout(&address, LOOK_WITHIN).is_err() {
            return true;
        }
        if begun.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Allocation for Ssh {
    fn manager(&self) -> &'static str {
        ENTRY.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.refused.iter().map(|(node, reason)| (node.clone(), reason.clone())).collect()
    }

    fn end(&self) -> Option<SystemTime> {
        self.hosts.end.map(|end| UNIX_EPOCH + Duration::from_secs(end))
    }

    fn own_node(&self) -> Option<NodeName> {
        self.hosts.own.as_ref().map(|(node, _)| node.clone())
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &self.hosts)
    }

    fn starts_at_once(&self) -> usize {
        self.hosts.access.at_once.max(1) as usize
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>> {
        Box::pin(self.start(node, template))
    }

    fn adopt_agent(&self, node: &NodeName, pid: u32) {
        self.agents.lock().entry(node.clone()).or_insert(HostAgent { pid, address: None });
    }

    fn kill_agent(&self, node: &NodeName) {
        let agent = self.agents.lock().get(node).copied();
        if let Some(HostAgent { pid, .. }) = agent {
            self.end(node, pid, Duration::ZERO);
        }
    }

    fn terminate_agents(&self, agents: &[(NodeName, u32)], patience: Duration) {
        let known = self.agents.lock().clone();
        workers::map(agents, self.starts_at_once(), 1, |(node, pid)| {
            // An agent whose port is closed has ended, or is about to.
            let address = known.get(node).filter(|agent| agent.pid == *pid).and_then(|agent| agent.address);
            if !address.is_some_and(|address| is_closed_within(address, patience)) {
                let left = if address.is_some() { Duration::ZERO } else { patience };
                self.end(node, *pid, left);
            }
        });
    }

    fn end_agents(&self, _nodes: &[NodeName], agents: &[(NodeName, u32)], patience: Duration) {
        self.terminate_agents(agents, patience);
    }

    fn command_prefix(&self, node: &NodeName) -> Vec<String> {
        let target = self.target(node).and_then(|target| serde_json::to_string(&target).ok());
        match (target, std::env::current_exe()) {
            (Some(target), Ok(own)) => {
                vec![own.to_string_lossy().into_owned(), "reach".to_owned(), target, "--".to_owned()]
            }
            _ => Vec::new(),
        }
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        let target = self.target(node)?;
        let host = SshHost { user: Some(target.user), ..target.host };
        Some(remote_shell::remote_shell(&host, &target.access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_port_means_that_the_agent_has_ended() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!is_closed_within(address, Duration::ZERO));
        drop(listener);
        assert!(is_closed_within(address, Duration::ZERO));
    }

    #[test]
    fn the_time_limit_of_a_list_of_hosts_ends_its_allocation_also_after_a_take_over() {
        let spec = crate::spec::JobSpec::of_test(
            "allocation: {hosts: [n1], time_limit: 2h, ssh: {program: /opt/holdfast}}\nrun: {command: [./app]}\n",
        );
        let began = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let base = tempfile::tempdir().unwrap();
        let settings = SshSettings::of(&spec.allocation);
        let hosts = Hosts {
            own: None,
            program: target::program(&settings.access).unwrap(),
            hosts: settings.hosts,
            access: settings.access,
            end: spec.allocation.end_from(began),
        };
        let hosts: Hosts = serde_json::from_value(serde_json::to_value(&hosts).unwrap()).unwrap();
        let nodes = vec![NodeName::new("n1")];
        let identity = AllocationIdentity { job_id: "1".to_owned(), token: None, user: "u".to_owned(), nodes };
        let allocation = Ssh::reopen(identity, hosts, base.path().join("logs")).unwrap();
        assert_eq!(Allocation::end(&allocation), Some(began + Duration::from_secs(7200)));
    }
}
