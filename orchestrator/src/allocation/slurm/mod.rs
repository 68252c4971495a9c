//! The Slurm manager: the nodes of the Slurm job of this process.
//!
//! | file | subject |
//! |---|---|
//! | `environment` | the environment variables of an allocation |
//! | `error` | errors that only Slurm has |
//! | `preflight` | requirements on this machine |
//! | `query` | queries to Slurm's commands, each with a time limit |
//! | `watch` | the first poll of down nodes and the end of the allocation |
//! | `agents` | the step of srun that starts agents |
//! | `remote_shell` | how mpirun starts its daemons on a node |
//! | [`refusal`] | why Slurm refuses a step, and how long to retry |
//!
//! Slurm is queried rarely. The loss of a node is detected by its silent agent, long before Slurm reports it.

mod agents;
pub(crate) mod environment;
mod error;
mod expedited;
mod preflight;
pub(crate) mod query;
pub mod refusal;
mod remote_shell;
mod topology;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::run::AgentReady;
use serde::{Deserialize, Serialize};

use super::agents::logs::AgentLogs;
use super::agents::start_error::AgentStartError;
use super::agents::step_agents::{RESTART, Retries, StepAgents};
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, ManagerEntry};
use super::error::AllocationError;
use super::nodes::{Allocation, RemoteShell};
use super::record::{AllocationIdentity, AllocationRecord};
use super::watch::Watch;
use crate::host::program;
use crate::spec::{Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount, RequeueFacts, RerunFacts};
use agents::Srun;
use environment::{COUNTS, Environment, JOB, NODES, REMOVED, job_of_environment, restarts_of_environment};
use refusal::{Refusal, RetrySchedule};
use watch::Watched;

pub use query::{QueryError, down as reported_down};

pub static ENTRY: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "slurm",
        doc: "uses the nodes of the current Slurm job (`sbatch`, `salloc`)",
        title: "Slurm",
        chosen: Chosen::InItsJobs {
            command: "srun",
            help: "`salloc -N NODES holdfast run job.yaml`, or a batch script as in docs/slurm.md",
        },
        nodes: NodeCount::Variables,
        variables: ManagerVariables {
            job_ids: &JOB,
            node_counts: &COUNTS,
            node_lists: &NODES,
            node_files: &[],
            ask_nodes: None,
            removed: &REMOVED,
        },
        requeue: Some(RequeueFacts {
            doc: "`true`: `scontrol requeue` of the Slurm job. It keeps its id, and runs its script again in another \
                  allocation.",
            command: |job_id| vec!["scontrol".to_owned(), "requeue".to_owned(), job_id],
            suggested: "{slurm: true}",
            check: |_| Ok(()),
            is_unknown_job: refusal::is_unknown_job,
            after_failures: Some(RerunFacts { adapt: expedited::adapt, prevent: expedited::prevent }),
        }),
        has_topology: true,
        has_remote_shells: true,
        more_nodes: |needed| format!("request at least {needed} from Slurm (`sbatch --nodes`)"),
        keys: KeyFacts {
            takes: &[],
            without: &[
                ("nodes", "Slurm sets the number of nodes (`sbatch --nodes`): leave the key out"),
                ("time_limit", "Slurm sets the end of the allocation (`sbatch --time`): leave the key out"),
            ],
        },
    },
    keys: ManagerKeys::NONE,
    check: || preflight::check(|name| std::env::var(name).ok(), std::env::var_os("PATH").as_deref()),
    preview: |_| Ok(AllocationPreview::default()),
    open: |request| {
        let (logs, user) = (request.logs, request.given_user);
        Box::pin(async move { Ok(Arc::new(Slurm::of_environment(logs, user).await?) as Arc<dyn Allocation>) })
    },
    reopen: |record, _, logs| {
        Box::pin(async move { Ok(Arc::new(Slurm::reopen(&record.identity, logs).await?) as Arc<dyn Allocation>) })
    },
    is_available: |record| {
        let variable = |name: &str| std::env::var(name).ok();
        let incarnation = record.details::<Incarnation>().unwrap_or_default();
        job_of_environment(variable).as_ref() == Some(&record.identity.job_id)
            && restarts_of_environment(variable) == incarnation.restarts
    },
    // The nodes of an allocation stay the same until its end.
    continues: |_, _| true,
    place: |record| format!("the nodes of Slurm job {}", record.identity.job_id),
};

/// What distinguishes the allocations of a job that was requeued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Incarnation {
    /// How often the job was requeued before.
    restarts: u32,
}

/// The nodes of a Slurm job.
#[derive(Debug)]
pub struct Slurm {
    identity: AllocationIdentity,
    own_node: Option<NodeName>,
    watch: Watch,
    agents: StepAgents,
}

impl Slurm {
    /// The allocation of this process. Logs of agents go to `logs`.
    ///
    /// # Errors
    /// This process is not in an allocation, or Slurm's commands do not answer.
    async fn of_environment(logs: PathBuf, user: Option<String>) -> Result<Self, AllocationError> {
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        Slurm::with(environment, logs, user).await
    }

    /// The allocation of a job whose orchestrator ended. This process must be in the same allocation.
    ///
    /// # Errors
    /// As for [`Slurm::of_environment`], or this is another allocation.
    async fn reopen(record: &AllocationIdentity, logs: PathBuf) -> Result<Self, AllocationError> {
        let here = job_of_environment(|name| std::env::var(name).ok());
        if here.as_ref() != Some(&record.job_id) {
            let job_id = record.job_id.clone();
            return Err(AllocationError::Elsewhere { manager: "slurm", job_id, here });
        }
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        // Ranks were placed by the recorded order of the nodes.
        let user = Some(record.user.clone());
        Slurm::with(Environment { nodes: record.nodes.clone(), ..environment }, logs, user).await
    }

    /// `given_user` is the user in the names of directories, if not that of the Slurm job.
    async fn with(
        environment: Environment,
        logs: PathBuf,
        given_user: Option<String>,
    ) -> Result<Self, AllocationError> {
        let Environment { job_id, nodes, own_node } = environment;
        let logs = AgentLogs::create(&logs)?;
        let program = program::ourselves()?;
        let Watched { watch, user: running_as, started } = watch::start(&job_id, &nodes).await?;
        // The variable names the user that submitted the job; the directories belong to the user that runs it.
        let user = given_user.unwrap_or(running_as);
        let agents = StepAgents::new(Srun, program, logs, retries);
        // Slurm gives an id again when its controller has lost the job.
        let identity = AllocationIdentity { job_id, token: started, user, nodes };
        Ok(Slurm { identity, own_node, watch, agents })
    }

    async fn start(&self, node: &NodeName, template: &AgentTemplate) -> Result<AgentReady, AgentStartError> {
        if !self.identity.nodes.contains(node) {
            return Err(AgentStartError::Unknown { node: node.clone() });
        }
        self.agents.start(node, template).await
    }
}

/// The retries of a step that Slurm refuses.
fn retries() -> Retries {
    let mut retries = RetrySchedule::default();
    Box::new(move |reason| retries.next_pause(Refusal::of(reason), Instant::now()))
}

impl Allocation for Slurm {
    fn manager(&self) -> &'static str {
        ENTRY.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    /// A requeued job keeps its id.
    fn allocation_id(&self) -> String {
        match restarts_of_environment(|name| std::env::var(name).ok()) {
            0 => self.job_id().to_owned(),
            restarts => format!("{}.{restarts}", self.job_id()),
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
        Box::pin(async { query::job(&self.identity.job_id).await.err()?.denial() })
    }

    fn switches(&self) -> BoxFuture<'_, Result<BTreeMap<NodeName, String>, AllocationError>> {
        Box::pin(async {
            let found = query::switches().await.map_err(|error| AllocationError::Unavailable(error.into()))?;
            if found.is_empty() { Err(AllocationError::NoTopology) } else { Ok(found) }
        })
    }

    fn own_node(&self) -> Option<NodeName> {
        self.own_node.clone()
    }

    fn record(&self) -> AllocationRecord {
        let incarnation = Incarnation { restarts: restarts_of_environment(|name| std::env::var(name).ok()) };
        AllocationRecord::new(ENTRY.facts.name, &self.identity, &incarnation)
    }

    fn release(&self) -> Result<(), AllocationError> {
        self.agents.abandon();
        Ok(())
    }

    fn starts_at_once(&self) -> usize {
        // One step starts all agents; with fewer permits, late ones would get steps of their own.
        self.identity.nodes.len().max(1)
    }

    fn restart_within(&self) -> Duration {
        // Each attempt has its own, much shorter, limit.
        RetrySchedule::at_most() + RESTART
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
        let words = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--input=none", "--quiet"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.push(format!("--nodelist={node}"));
        words
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        Some(remote_shell::remote_shell(node, std::env::var("SHELL").ok().as_deref()))
    }
}
