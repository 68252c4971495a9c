//! Agents that steps of a resource manager hold: their first start, and their restart after they became silent.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::NodeName;
use holdfast_wire::reachable::ProbeResult;
use holdfast_wire::run::AgentReady;
use parking_lot::Mutex;

use super::logs::AgentLogs;
use super::shared_step::{AgentSteps, StartLimit, StepCommand};
use super::start_error::AgentStartError;
use super::template::AgentTemplate;
use crate::allocation::reachable;

/// Time limit for first starts: agents of all nodes at once, on a busy machine.
const FIRST_START: Duration = Duration::from_secs(60);
/// Time limit for a restart on a healthy node. `srun` needs ten seconds to find that the controller does not answer.
pub const RESTART: Duration = Duration::from_secs(15);
/// Time limits for the restart of a silent agent whose node still accepts connections. Either only the agent hangs, and
/// a restart takes about as long as the first start; or the node is frozen, and the manager cannot start anything
/// there. So the limit is a multiple of the longest first start, within these bounds.
const RESTART_OF_SILENT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
/// The multiple.
const RESTART_OF_SILENT_FACTOR: u32 = 3;
/// Interval at which the end of agents is checked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The pauses before the retries of one start, by the reason for which the manager refused it; `None`: no retry.
pub type Retries = Box<dyn FnMut(&str) -> Option<Duration> + Send>;

/// The agents of an allocation.
pub struct StepAgents {
    steps: AgentSteps,
    retries: fn() -> Retries,
    /// Nodes that had an agent, with its last address if it is known.
    known: Mutex<BTreeMap<NodeName, Option<SocketAddr>>>,
    /// Duration of the slowest first start of an agent, milliseconds; zero before the first one.
    slowest_start_ms: AtomicU64,
}

impl fmt::Debug for StepAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepAgents").field("steps", &self.steps).field("known", &self.known).finish_non_exhaustive()
    }
}

impl StepAgents {
    /// Agents are started as `program agent`; their logs, and those of the steps, go to `logs`.
    pub fn new(command: impl StepCommand, program: PathBuf, logs: AgentLogs, retries: fn() -> Retries) -> Self {
        let steps = AgentSteps::start(command, program, logs);
        StepAgents { steps, retries, known: Mutex::default(), slowest_start_ms: AtomicU64::new(0) }
    }

    /// Starts the agent of a node of the allocation, and waits until it is ready.
    ///
    /// # Errors
    /// Those of [`Allocation::start_agent`](crate::allocation::Allocation::start_agent).
    pub async fn start(&self, node: &NodeName, template: &AgentTemplate) -> Result<AgentReady, AgentStartError> {
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

    /// True if the node had an agent.
    pub fn had_agent(&self, node: &NodeName) -> bool {
        self.known.lock().contains_key(node)
    }

    /// The agent of a node belongs to a step of an earlier orchestrator. Whether it is alive is found by its address.
    pub fn adopt(&self, node: &NodeName) {
        self.known.lock().entry(node.clone()).or_insert(None);
    }

    /// Waits for the end of the steps for at most a second, then kills their commands. Blocks.
    pub fn terminate(&self, patience: Duration) {
        let begun = Instant::now();
        while self.steps.are_running() && begun.elapsed() < patience.min(Duration::from_secs(1)) {
            std::thread::sleep(LOOK_EVERY);
        }
        // A step with a dead node would run until the manager reports the node as down.
        self.steps.abandon();
    }

    /// Kills the commands of the steps.
    pub fn abandon(&self) {
        self.steps.abandon();
    }

    /// Starts an agent with its own or a shared step. Retries while the manager refuses the step for a temporary
    /// reason, and if a shared step failed because of other nodes.
    async fn ask(
        &self,
        node: &NodeName,
        template: &AgentTemplate,
        limit: StartLimit,
    ) -> Result<AgentReady, AgentStartError> {
        let mut next_pause = (self.retries)();
        loop {
            let started = self.steps.agent(node, template, limit).await;
            match &started {
                // Every time there are fewer nodes: those at fault have got their answers.
                Err(AgentStartError::StepFailedElsewhere { log, .. }) => {
                    let log = log.display();
                    tracing::info!(%node, %log, "the step of the agents failed on another node; retrying");
                }
                Err(AgentStartError::Refused { reason, .. }) => {
                    let Some(pause) = next_pause(reason) else { return started };
                    tracing::info!(%node, reason, "the resource manager refused to start an agent; retrying");
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
    /// on a lost machine would only fail after the manager's own, much longer, time limits.
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
