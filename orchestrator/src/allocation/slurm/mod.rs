//! The Slurm manager: the nodes of the Slurm job of this process.
//!
//! | file | subject |
//! |---|---|
//! | `environment` | the environment variables of an allocation |
//! | `error` | errors that only Slurm has |
//! | `preflight` | requirements on this machine |
//! | `query` | queries to Slurm's commands, each with a time limit |
//! | `watch` | polls down nodes and the end of the allocation |
//! | `agents` | the step of srun that starts agents |
//! | `remote_shell` | how mpirun starts its daemons on a node |
//! | [`refusal`] | why Slurm refuses a step, and how long to retry |
//!
//! Slurm is queried rarely. The loss of a node is detected by its silent agent, long before Slurm reports it.

mod agents;
pub(crate) mod environment;
mod error;
mod preflight;
pub(crate) mod query;
pub mod refusal;
mod remote_shell;
mod topology;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use holdfast_model::NodeName;
use holdfast_wire::reachable::ProbeResult;
use holdfast_wire::run::AgentReady;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::agents::logs::AgentLogs;
use super::agents::shared_step::{AgentSteps, StartLimit};
use super::agents::start_error::AgentStartError;
use super::agents::template::AgentTemplate;
use super::entry::{AllocationPreview, ManagerEntry};
use super::error::AllocationError;
use super::nodes::{Allocation, RemoteShell};
use super::reachable;
use super::record::{AllocationIdentity, AllocationRecord};
use crate::host::program;
use crate::spec::{Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerVariables, NodeCount, RequeueFacts};
use agents::Srun;
use environment::{COUNTS, Environment, JOB, NODES, REMOVED, job_of_environment, restarts_of_environment};
use refusal::{Refusal, RetrySchedule};
use watch::Watch;

pub use query::{QueryError, down as reported_down};

/// Time limit for first starts: agents of all nodes at once, on a busy machine.
const FIRST_START: Duration = Duration::from_secs(60);
/// Time limit for a restart on a healthy node. `srun` needs ten seconds to find that the controller does not answer.
const RESTART: Duration = Duration::from_secs(15);
/// Time limits for the restart of a silent agent whose node still accepts connections. Either only the agent hangs, and
/// a restart takes about as long as the first start; or the node is frozen, and Slurm cannot start anything there. So
/// the limit is a multiple of the longest first start, within these bounds.
const RESTART_OF_SILENT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
/// The multiple.
const RESTART_OF_SILENT_FACTOR: u32 = 3;
/// Interval at which the end of agents is checked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

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
            removed: &REMOVED,
        },
        requeue: Some(RequeueFacts {
            doc: "`true`: `scontrol requeue` of the Slurm job. It keeps its id, and runs its script again in another \
                  allocation.",
            command: |job_id| vec!["scontrol".to_owned(), "requeue".to_owned(), job_id],
            suggested: "{slurm: true}",
            check: |_| Ok(()),
            is_unknown_job: refusal::is_unknown_job,
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
    steps: AgentSteps,
    /// Nodes that had an agent, with its last address if it is known.
    known: Mutex<BTreeMap<NodeName, Option<SocketAddr>>>,
    /// Duration of the slowest first start of an agent, milliseconds; zero before the first one.
    slowest_start_ms: AtomicU64,
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
        let Environment { job_id, user, nodes, own_node } = environment;
        let logs = AgentLogs::create(&logs)?;
        let program = program::ourselves()?;
        let watch = Watch::start(&job_id, &nodes).await?;
        // The variable names the user that submitted the job; the directories belong to the user that runs it.
        let user = given_user.or_else(|| watch.user()).unwrap_or(user);
        let steps = AgentSteps::start(Srun, program, logs);
        // Slurm gives an id again when its controller has lost the job.
        let token = watch.started();
        let identity = AllocationIdentity { job_id, token, user, nodes };
        Ok(Slurm { identity, own_node, watch, steps, known: Mutex::default(), slowest_start_ms: AtomicU64::new(0) })
    }

    async fn start(&self, node: &NodeName, template: &AgentTemplate) -> Result<AgentReady, AgentStartError> {
        if !self.identity.nodes.contains(node) {
            return Err(AgentStartError::Unknown { node: node.clone() });
        }
        let before = self.known.lock().get(node).copied();
        let ready = match before {
            None => {
                let begun = Instant::now();
                let ready = self.ask(node, template, StartLimit { within: FIRST_START, first: true }).await?;
                let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.slowest_start_ms.fetch_max(took, Ordering::Relaxed);
                ready
            }
            Some(None) => self.ask(node, template, StartLimit { within: RESTART, first: false }).await?,
            Some(Some(address)) => self.start_again(node, template, address).await?,
        };
        self.known.lock().insert(node.clone(), Some(ready.address));
        Ok(ready)
    }

    /// Starts an agent with its own or a shared step. Retries while Slurm refuses the step for a temporary reason, and
    /// if a shared step failed because of other nodes.
    async fn ask(
        &self,
        node: &NodeName,
        template: &AgentTemplate,
        limit: StartLimit,
    ) -> Result<AgentReady, AgentStartError> {
        let mut retries = RetrySchedule::default();
        loop {
            let started = self.steps.agent(node, template, limit).await;
            match &started {
                // Every time there are fewer nodes: those at fault have got their answers.
                Err(AgentStartError::StepFailedElsewhere { log, .. }) => {
                    let log = log.display();
                    tracing::info!(%node, %log, "the step of the agents failed on another node; retrying");
                }
                Err(AgentStartError::Refused { reason, .. }) => {
                    let Some(pause) = retries.next_pause(Refusal::of(reason), Instant::now()) else { return started };
                    tracing::info!(%node, reason, "Slurm refused to start an agent; retrying");
                    tokio::time::sleep(pause).await;
                }
                _ => return started,
            }
        }
    }

    /// Time limit for the restart of a silent agent whose node still accepts connections.
    fn restart_of_silent(&self) -> Duration {
        let first = Duration::from_millis(self.slowest_start_ms.load(Ordering::Relaxed));
        let (least, most) = RESTART_OF_SILENT;
        // After a take-over no start has been measured.
        if first.is_zero() { most } else { (first * RESTART_OF_SILENT_FACTOR).clamp(least, most) }
    }

    /// Starts the agent of a node that had one at this address. The machine is probed in the meantime, because a step
    /// on a lost machine would only fail after Slurm's own, much longer, time limits.
    async fn start_again(
        &self,
        node: &NodeName,
        template: &AgentTemplate,
        address: SocketAddr,
    ) -> Result<AgentReady, AgentStartError> {
        let lost = || {
            let reason = format!("no answer from {}, the address of its agent", address.ip());
            AgentStartError::NodeLost { node: node.clone(), reason }
        };
        let probed = reachable::probe(address).await;
        let within = match probed {
            ProbeResult::Refused | ProbeResult::NoAnswer => RESTART,
            ProbeResult::Accepted(_) => self.restart_of_silent(),
        };
        tokio::select! {
            started = self.ask(node, template, StartLimit { within, first: false }) => started,
            () = reachable::wait_until_unreachable(address, probed) => Err(lost()),
        }
    }
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
        self.steps.abandon();
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
        // Its step belongs to an earlier orchestrator. Whether it is alive is found by its address.
        self.known.lock().entry(node.clone()).or_insert(None);
    }

    fn kill_agent(&self, _node: &NodeName) {
        // Not possible from here. A new agent kills its predecessor on the node itself.
    }

    fn terminate_agents(&self, _agents: &[(NodeName, u32)], patience: Duration) {
        let begun = Instant::now();
        while self.steps.are_running() && begun.elapsed() < patience.min(Duration::from_secs(1)) {
            std::thread::sleep(LOOK_EVERY);
        }
        // A step with a dead node would run until Slurm reports the node as down.
        self.steps.abandon();
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
