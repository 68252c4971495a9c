//! The Flux manager: the nodes of the Flux instance of this process's batch job.
//!
//! `flux batch` and `flux alloc` start an instance for the job, with a broker on each node, and the script beside the
//! first broker. Its nodes are ours: agents run beside the scheduler (`flux exec`), ranks are jobs of the instance
//! (`flux run`). The instance survives the loss of all nodes but the first one, if they are not more than its brokers
//! have direct connections (`tbon.topo`, 32 by default).
//!
//! | file | subject |
//! |---|---|
//! | `environment` | the environment variables of an allocation |
//! | `error` | errors that only Flux has |
//! | `preflight` | requirements on this machine |
//! | `query` | queries to Flux's commands, each with a time limit |
//! | `watch` | the first poll of down nodes and the end of the allocation |
//! | `exec` | `flux exec`: starts agents and other commands on nodes |

pub(crate) mod environment;
mod error;
pub(crate) mod exec;
mod preflight;
pub(crate) mod query;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::run::AgentReady;

use super::agents::logs::AgentLogs;
use super::agents::start_error::AgentStartError;
use super::agents::step_agents::{RESTART, StepAgents};
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, ManagerEntry};
use super::error::AllocationError;
use super::nodes::{Allocation, RemoteShell};
use super::record::{AllocationIdentity, AllocationRecord};
use super::watch::Watch;
use crate::host::program;
use crate::spec::{Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount};
use environment::{Environment, JOB, REMOVED, TASK_JOB, job_of_environment};
use exec::FluxExec;
use query::Instance;

/// A program of flux-core that nothing else has: `flux` is also the name of other programs.
const OWN_PROGRAM: &str = "flux-python";

pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "flux",
        doc: "uses the nodes of the current Flux job (`flux batch`, `flux alloc`)",
        title: "Flux",
        chosen: Chosen::InItsJobs {
            command: OWN_PROGRAM,
            help: "`flux alloc -N NODES holdfast run job.yaml`, or a batch script as in docs/flux.md",
        },
        nodes: NodeCount::Variables,
        variables: ManagerVariables {
            job_ids: &[JOB, TASK_JOB],
            ask_nodes: Some(query::nodes_of_instance),
            removed: &REMOVED,
            ..ManagerVariables::NONE
        },
        // A job that has run cannot run again, and there is no command to submit its script again.
        requeue: None,
        has_topology: false,
        has_remote_shells: true,
        more_nodes: |needed| format!("request at least {needed} from Flux (`flux batch --nodes`)"),
        keys: KeyFacts {
            takes: &[],
            without: &[
                ("nodes", "Flux sets the number of nodes (`flux batch --nodes`): leave the key out"),
                ("time_limit", "Flux sets the end of the allocation (`flux batch --time-limit`): leave the key out"),
            ],
        },
    },
    keys: ManagerKeys::NONE,
    check: || preflight::check(|name| std::env::var(name).ok(), std::env::var_os("PATH").as_deref()),
    preview: |_| Ok(AllocationPreview::default()),
    open: |request| {
        let (logs, user) = (request.logs, request.given_user);
        Box::pin(async move { Ok(Arc::new(Flux::of_environment(logs, user).await?) as Arc<dyn Allocation>) })
    },
    reopen: |record, _, logs| {
        Box::pin(async move { Ok(Arc::new(Flux::reopen(&record.identity, logs).await?) as Arc<dyn Allocation>) })
    },
    is_available: |record| {
        job_of_environment(|name| std::env::var(name).ok()).as_ref() == Some(&record.identity.job_id)
    },
    // The nodes of an allocation stay the same until its end.
    continues: |_, _| true,
    place: |record| format!("the nodes of Flux job {}", record.identity.job_id),
};

/// The nodes of a Flux job.
#[derive(Debug)]
pub struct Flux {
    identity: AllocationIdentity,
    own_node: Option<NodeName>,
    /// The nodes in the order of their brokers.
    brokers: Vec<NodeName>,
    watch: Watch,
    agents: StepAgents,
}

impl Flux {
    /// The allocation of this process. Logs of agents go to `logs`.
    ///
    /// # Errors
    /// This process is not in an allocation, or Flux's commands do not answer.
    async fn of_environment(logs: PathBuf, given_user: Option<String>) -> Result<Self, AllocationError> {
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        let Instance { nodes: brokers, own_node, address: head } = query::instance().await?;
        let logs = AgentLogs::create(&logs)?;
        let program = program::ourselves()?;
        let (watch, started) = watch::start(&brokers).await?;
        // An instance inside another one numbers its jobs from its own start.
        let token = Some(started);
        let user = given_user.unwrap_or(environment.user);
        let identity = AllocationIdentity { job_id: environment.job_id, token, user, nodes: brokers.clone() };
        let command = FluxExec { nodes: brokers.clone(), head };
        // `flux exec` does not wait for resources: what fails is not refused for a time.
        let agents = StepAgents::new(command, program, logs, || Box::new(|_| None));
        Ok(Flux { identity, own_node, brokers, watch, agents })
    }

    /// The allocation of a job whose orchestrator ended. This process must be in the same allocation.
    ///
    /// # Errors
    /// As for [`Flux::of_environment`], or this is another allocation.
    async fn reopen(record: &AllocationIdentity, logs: PathBuf) -> Result<Self, AllocationError> {
        let here = job_of_environment(|name| std::env::var(name).ok());
        if here.as_ref() != Some(&record.job_id) {
            let job_id = record.job_id.clone();
            return Err(AllocationError::Elsewhere { manager: ENTRY.facts.name, job_id, here });
        }
        let mut flux = Flux::of_environment(logs, Some(record.user.clone())).await?;
        // Ranks were placed by the recorded order of the nodes.
        flux.identity.nodes.clone_from(&record.nodes);
        Ok(flux)
    }
}

impl Allocation for Flux {
    fn manager(&self) -> &'static str {
        ENTRY.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        self.watch.down_nodes()
    }

    fn end(&self) -> Option<SystemTime> {
        self.watch.end()
    }

    fn own_node(&self) -> Option<NodeName> {
        self.own_node.clone()
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &())
    }

    fn release(&self) -> Result<(), AllocationError> {
        self.agents.abandon();
        Ok(())
    }

    fn starts_at_once(&self) -> usize {
        // One command starts all agents; with fewer permits, late ones would get commands of their own.
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
        Box::pin(async move {
            if !self.brokers.contains(node) {
                return Err(AgentStartError::Unknown { node: node.clone() });
            }
            let is_again = self.agents.had_agent(node);
            let started = self.agents.start(node, template).await;
            if is_again && started.as_ref().is_err_and(AgentStartError::is_silence) {
                // A frozen machine still accepts connections: Flux would keep its jobs.
                match query::disconnect(node).await {
                    Ok(()) => tracing::info!(%node, "flux_node_disconnected"),
                    Err(error) => tracing::info!(%node, %error, "flux_node_not_disconnected"),
                }
            }
            started
        })
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
        exec::prefix(&self.brokers, node)
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        let mut words = exec::prefix(&self.brokers, node);
        words.extend(["sh", "-c"].map(str::to_owned));
        Some(RemoteShell { words, inherits: true })
    }
}
