//! The PBS manager: the nodes of the OpenPBS job of this process.
//!
//! | file | subject |
//! |---|---|
//! | [`environment`] | the environment of a job |
//! | `error` | errors that only PBS has |
//! | [`query`] | queries to PBS's commands, each with a time limit |
//! | `watch` | the first poll of down nodes and the end of the job |
//! | [`tasks`] | tasks with standard input and output, which PBS does not have |
//! | `agents` | the step of tasks that starts agents |
//!
//! Everything on the nodes is a task of PBS, which its daemon there kills at the end of the job. The loss of a node is
//! detected by its silent agent. The job survives it only if it was submitted with `-W tolerate_node_failures=all`.

pub(crate) mod agents;
pub(crate) mod environment;
mod error;
pub(crate) mod query;
pub(crate) mod task_file;
pub mod tasks;
mod watch;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{env, io};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};

use super::agents::logs::AgentLogs;
use super::agents::start_error::AgentStartError;
use super::agents::step_agents::{RESTART, StepAgents};
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, ManagerEntry};
use super::error::AllocationError;
use super::nodes::{Allocation, RemoteShell};
use super::record::{AllocationIdentity, AllocationRecord};
use super::watch::Watch;
use crate::host::{program, shell};
use crate::spec::{
    Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount, RequeueFacts, nodes_in_file,
};
use agents::TaskStarter;
use environment::{Environment, JOB, NODE_FILE, allocation_of_environment, directory_name, job_of_environment};
use error::PbsError;
use tasks::{Launch, TMRSH};

/// The commands of PBS that we use.
const COMMANDS: [&str; 3] = [TMRSH, "qstat", "pbsnodes"];
/// Any port will do: nothing is sent.
const NO_PORT: u16 = 9;
/// Nodes whose address is looked up until one has one.
const LOOKED_UP: usize = 8;

pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "pbs",
        doc: "uses the nodes of the current OpenPBS job (`qsub`); docs/pbs.md",
        title: "PBS",
        chosen: Chosen::InItsJobs {
            command: TMRSH,
            help: "a batch script as in docs/pbs.md, or `holdfast run` in an interactive job (`qsub -I`)",
        },
        nodes: NodeCount::Variables,
        variables: ManagerVariables {
            job_ids: &[JOB],
            node_counts: &[],
            node_lists: &[],
            node_files: &[NODE_FILE],
            ask_nodes: None,
            removed: &[],
        },
        requeue: Some(RequeueFacts {
            doc: "`true`: `qrerun` of the PBS job. It keeps its id, and runs its script again in another allocation. \
                  PBS permits it to operators and managers only.",
            command: |job_id| vec!["qrerun".to_owned(), job_id],
            suggested: "{command: [qsub, job.pbs]}",
            check: may_be_rerun,
            is_unknown_job: query::is_unknown_job,
            after_failures: None,
        }),
        has_topology: false,
        has_remote_shells: true,
        more_nodes: |needed| format!("request at least {needed} from PBS (`qsub -l select={needed} -l place=scatter`)"),
        keys: KeyFacts {
            takes: &[],
            without: &[
                ("nodes", "PBS sets the number of nodes (`qsub -l select`): leave the key out"),
                ("time_limit", "PBS sets the end of the job (`qsub -l walltime`): leave the key out"),
            ],
        },
    },
    keys: ManagerKeys::NONE,
    check,
    preview: |_| Ok(AllocationPreview::default()),
    open: |request| {
        let (logs, user) = (request.logs, request.given_user);
        Box::pin(async move { Ok(Arc::new(Pbs::with(read_environment()?, logs, user).await?) as Arc<dyn Allocation>) })
    },
    reopen: |record, _, logs| {
        Box::pin(async move { Ok(Arc::new(Pbs::reopen(&record.identity, logs).await?) as Arc<dyn Allocation>) })
    },
    is_available: |record| {
        let incarnation = record.details::<Incarnation>().unwrap_or_default();
        job_of_environment(variable).map(|job| directory_name(&job)).as_ref() == Some(&record.identity.job_id)
            && allocation_of_environment(variable) == incarnation.allocation
    },
    // The nodes of an allocation stay the same until its end.
    continues: |_, _| true,
    place: |record| format!("the nodes of PBS job {}", record.identity.job_id),
};

/// What distinguishes the allocations of a job that was run again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Incarnation {
    /// See [`allocation_of_environment`].
    allocation: Option<String>,
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn read_environment() -> Result<Environment, PbsError> {
    Environment::read(variable, nodes_in_file)
}

/// Checks PBS's commands on this machine.
fn check() -> Result<(), AllocationError> {
    if job_of_environment(variable).is_none() {
        return Err(PbsError::Outside { missing: JOB }.into());
    }
    let path = env::var_os("PATH");
    for command in COMMANDS {
        if program::find(command, std::path::Path::new("/"), path.as_deref()).is_err() {
            return Err(AllocationError::NoCommand { command, manager: "PBS" });
        }
    }
    Ok(())
}

/// Why PBS would not run the job again. Whether this user may requeue is known only when `qrerun` answers.
fn may_be_rerun(job_id: &str) -> Result<(), String> {
    match query::job_now(job_id) {
        Ok(job) if job.may_be_rerun => Ok(()),
        Ok(_) => Err(format!("PBS will not run job {job_id} again (Rerunable = False); submit it with `qsub -r y`")),
        Err(error) => Err(error.to_string()),
    }
}

/// The address of this machine that leads to other nodes of the job. Blocks.
fn address_toward(others: &[&NodeName]) -> Result<IpAddr, PbsError> {
    let toward = |node: &NodeName| -> io::Result<IpAddr> {
        let mut addresses: Vec<SocketAddr> = (node.as_str(), NO_PORT).to_socket_addrs()?.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        let address = addresses.first().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let any: IpAddr =
            if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        // Sends nothing: the system only looks up the route.
        socket.connect(address)?;
        Ok(socket.local_addr()?.ip())
    };
    let mut failure = None;
    for node in others.iter().take(LOOKED_UP) {
        match toward(node) {
            Ok(address) => return Ok(address),
            Err(source) => failure = Some(PbsError::NoAddress { node: node.to_string(), source }),
        }
    }
    // A job with one node.
    failure.map_or(Ok(Ipv4Addr::LOCALHOST.into()), Err)
}

/// The nodes of a PBS job.
#[derive(Debug)]
pub struct Pbs {
    /// The id with which PBS's commands are called.
    job: String,
    identity: AllocationIdentity,
    own_node: Option<NodeName>,
    watch: Watch,
    launch: Launch,
    agents: StepAgents,
}

impl Pbs {
    /// The allocation of a job whose orchestrator ended. This process must be in the same job.
    ///
    /// # Errors
    /// As for [`Pbs::with`], or this is another job.
    async fn reopen(record: &AllocationIdentity, logs: PathBuf) -> Result<Self, AllocationError> {
        let here = job_of_environment(variable);
        if here.as_deref().map(directory_name).as_ref() != Some(&record.job_id) {
            return Err(AllocationError::Elsewhere { manager: "pbs", job_id: record.job_id.clone(), here });
        }
        // Ranks were placed by the recorded order of the nodes.
        let environment = Environment { nodes: record.nodes.clone(), ..read_environment()? };
        Pbs::with(environment, logs, Some(record.user.clone())).await
    }

    /// Logs of agents go to `logs`. `given_user` is the user in the names of directories, if not that of the job.
    ///
    /// # Errors
    /// PBS's commands do not answer, the job does not run, or no other node has an address.
    async fn with(
        environment: Environment,
        logs: PathBuf,
        given_user: Option<String>,
    ) -> Result<Self, AllocationError> {
        let Environment { job, user, nodes, own_node } = environment;
        let directory = logs;
        let logs = AgentLogs::create(&directory)?;
        let program = program::ourselves()?;
        let watch = watch::start(&job, &nodes).await?;
        let others: Vec<NodeName> = nodes.iter().filter(|node| Some(*node) != own_node.as_ref()).cloned().collect();
        let looked_up = move || address_toward(&others.iter().collect::<Vec<_>>());
        let toward = tokio::task::spawn_blocking(looked_up).await.map_err(|error| {
            let source = io::Error::other(error);
            PbsError::NoAddress { node: "any".to_owned(), source }
        })??;
        let launch = Launch { program: program.clone(), toward, directory };
        let starter = TaskStarter { launch: launch.clone() };
        // A task is started or it is not: nothing is refused for a time.
        let agents = StepAgents::new(starter, program, logs, || Box::new(|_| None));
        let identity = AllocationIdentity {
            job_id: directory_name(&job),
            token: allocation_of_environment(variable),
            user: given_user.unwrap_or(user),
            nodes,
        };
        Ok(Pbs { job, identity, own_node, watch, launch, agents })
    }

    async fn start(&self, node: &NodeName, template: &AgentTemplate) -> Result<AgentReady, AgentStartError> {
        if !self.identity.nodes.contains(node) {
            return Err(AgentStartError::Unknown { node: node.clone() });
        }
        self.agents.start(node, template).await.map_err(|error| match error {
            AgentStartError::NotReady { log_line: Some(line), .. } if agents::is_lost(&line, node) => {
                AgentStartError::NodeLost { node: node.clone(), reason: line }
            }
            error => error,
        })
    }
}

impl Allocation for Pbs {
    fn manager(&self) -> &'static str {
        ENTRY.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    /// A job that is run again keeps its id.
    fn allocation_id(&self) -> String {
        match &self.identity.token {
            None => self.job_id().to_owned(),
            Some(allocation) => format!("{}.{allocation}", self.job_id()),
        }
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.watch.down_nodes()
    }

    fn end(&self) -> Option<SystemTime> {
        self.watch.end()
    }

    fn denial(&self) -> Option<String> {
        self.watch.denial()
    }

    fn ask_denial(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { query::job(&self.job).await.err()?.denial() })
    }

    fn own_node(&self) -> Option<NodeName> {
        self.own_node.clone()
    }

    fn record(&self) -> AllocationRecord {
        let incarnation = Incarnation { allocation: self.identity.token.clone() };
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &incarnation)
    }

    fn release(&self) -> Result<(), AllocationError> {
        self.agents.abandon();
        self.launch.remove_files();
        Ok(())
    }

    fn starts_at_once(&self) -> usize {
        // One step starts all agents; with fewer permits, late ones would get steps of their own.
        self.identity.nodes.len().max(1)
    }

    fn restart_within(&self) -> Duration {
        RESTART
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> BoxFuture<'a, Result<AgentReady, AgentStartError>> {
        Box::pin(self.start(node, template))
    }

    fn adopt_agent(&self, node: &NodeName, _pid: u32) {
        self.agents.adopt(node);
    }

    fn kill_agent(&self, _node: &NodeName) {
        // Not possible from here. A new agent kills its predecessor on the node itself.
    }

    fn terminate_agents(&self, _agents: &[(NodeName, u32)], patience: Duration) {
        self.agents.terminate(patience);
    }

    fn command_prefix(&self, node: &NodeName) -> Vec<String> {
        self.launch.run(node)
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        let login_shell = variable("SHELL");
        let line = [shell::for_lines_of(login_shell.as_deref()).to_owned(), "-c".to_owned()];
        Some(RemoteShell { words: [self.launch.run(node), line.to_vec()].concat(), inherits: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_route_to_another_node() {
        let local = NodeName::from("127.0.0.2");
        let unknown = NodeName::from("no-such-host.invalid");
        assert_eq!(address_toward(&[&unknown, &local]).unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(address_toward(&[]).unwrap(), IpAddr::from([127, 0, 0, 1]));
        let error = address_toward(&[&unknown]).unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}
