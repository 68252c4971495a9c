//! Starts agents on many nodes with one step, or on a single node.
//!
//! Requests that arrive together become one `srun`. Its standard input goes to all tasks, so that they share one start
//! message, and each agent determines its node itself. The agents report on its standard output, in any order, each
//! with the name of its node.
//!
//! The step survives the loss of nodes (`--no-kill`) and of this process: it has its own process group, and its output
//! is not read once all agents are ready.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use holdfast_wire::environment::AGENT_LOGS;
use holdfast_wire::run::{AgentReady, AgentStart, NodeIdentitySource};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::environment;
use crate::allocation::agents::handshake::{self, HandshakeError, Reports, StartLog};
use crate::allocation::{AgentStartError, AgentTemplate};
use crate::host::log::{last_line, tail};
use crate::host::own_files;

/// Requests that follow each other within this time become one step.
const GATHER_FOR: Duration = Duration::from_millis(5);
/// Maximum time that a request waits for others.
const GATHER_AT_MOST: Duration = Duration::from_millis(50);
/// Interval at which the messages of srun are read while agents start.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The prefix of error messages of srun.
const SRUN_ERROR: &str = "srun: error: ";
/// The prefix of the error message if srun could not create the step.
const NO_STEP: &str = "srun: error: Unable to ";

/// Time limit for the start of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) within: Duration,
    /// True for the first agent of a node, which may share a step with those of other nodes.
    pub(super) first: bool,
}

/// The requests of a step that have no answer yet.
type Waiting = BTreeMap<NodeName, Answer>;
type Answer = oneshot::Sender<Result<AgentReady, AgentStartError>>;

#[derive(Debug)]
struct StartRequest {
    node: NodeName,
    start: AgentStart,
    patience: Patience,
    answer: Answer,
    /// Closed when the requester has stopped waiting.
    abandoned: oneshot::Receiver<()>,
}

/// The steps that hold the agents.
#[derive(Debug)]
pub(super) struct AgentSteps {
    requests: mpsc::UnboundedSender<StartRequest>,
    running: Arc<AtomicUsize>,
    give_up: watch::Sender<bool>,
    logs: PathBuf,
}

/// What the task of a step needs.
#[derive(Clone, Debug)]
struct StepContext {
    program: PathBuf,
    logs: PathBuf,
    running: Arc<AtomicUsize>,
    give_up: watch::Receiver<bool>,
}

impl AgentSteps {
    /// Agents are started as `program agent`; their logs, and those of the steps, go to `logs`.
    pub(super) fn start(program: PathBuf, logs: PathBuf) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let (give_up, gives_up) = watch::channel(false);
        let running = Arc::new(AtomicUsize::new(0));
        let context = StepContext { program, logs: logs.clone(), running: Arc::clone(&running), give_up: gives_up };
        tokio::spawn(gather(queue, context));
        AgentSteps { requests, running, give_up, logs }
    }

    /// Starts an agent on a node and waits until it is ready.
    pub(super) async fn agent(
        &self,
        node: NodeName,
        template: &AgentTemplate,
        patience: Patience,
    ) -> Result<AgentReady, AgentStartError> {
        let (answer, answered) = oneshot::channel();
        let (_waits, abandoned) = oneshot::channel();
        let log = StartLog::new(self.logs.join(format!("{node}.log")));
        let request = StartRequest {
            node: node.clone(),
            start: template.for_any_node(NodeIdentitySource::Slurm),
            patience,
            answer,
            abandoned,
        };
        let ended = || AgentStartError::not_ready(&node, HandshakeError::Abandoned, &log);
        if self.requests.send(request).is_err() {
            return Err(ended());
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// True while a step with agents runs.
    pub(super) fn are_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Kills the `srun` processes. Agents that still run end by themselves.
    pub(super) fn give_up(&self) {
        self.give_up.send_replace(true);
    }
}

/// Combines requests into steps.
async fn gather(mut queue: mpsc::UnboundedReceiver<StartRequest>, context: StepContext) {
    let mut number = 0_u32;
    while let Some(request) = queue.recv().await {
        let mut together = vec![request];
        let until = Instant::now() + GATHER_AT_MOST;
        loop {
            let wait = GATHER_FOR.min(until.saturating_duration_since(Instant::now()));
            match tokio::time::timeout(wait, queue.recv()).await {
                Ok(Some(request)) => together.push(request),
                Ok(None) | Err(_) => break,
            }
        }
        // First starts share a step; a restart must not wait for them.
        let (first, again): (Vec<_>, Vec<_>) = together.into_iter().partition(|request| request.patience.first);
        for requests in std::iter::once(first).chain(again.into_iter().map(|request| vec![request])) {
            if !requests.is_empty() {
                number += 1;
                tokio::spawn(step(requests, context.clone(), number));
            }
        }
    }
}

/// One step, from its start to its end.
async fn step(requests: Vec<StartRequest>, mut context: StepContext, number: u32) {
    let log = context.logs.join(format!("srun-{}-{number}.log", std::process::id()));
    let Some((start, within)) = requests.first().map(|first| (first.start.clone(), first.patience.within)) else {
        return;
    };
    let (mut waiting, mut abandoned) = (Waiting::new(), Vec::new());
    for request in requests {
        waiting.insert(request.node, request.answer);
        abandoned.push(request.abandoned);
    }
    let abandoned = async {
        for abandoned in abandoned {
            // Nothing is ever sent: the channel is closed with the request.
            let _ = abandoned.await;
        }
    };
    let nodes: Vec<NodeName> = waiting.keys().cloned().collect();
    let logs: BTreeMap<NodeName, StartLog> =
        nodes.iter().map(|node| (node.clone(), StartLog::new(context.logs.join(format!("{node}.log"))))).collect();
    let failures = Failures { step_log: &log, logs: &logs };
    let (mut child, input, output) = match spawn(&context, &nodes, &log) {
        Ok(spawned) => spawned,
        Err(error) => {
            let problem = Arc::new(HandshakeError::Starter(format!("cannot run srun: {error}")));
            for (node, answer) in waiting {
                let _ = answer.send(Err(failures.of(node, &problem)));
            }
            return;
        }
    };
    context.running.fetch_add(1, Ordering::AcqRel);
    let handshake = async {
        handshake::send(input, &start).await?;
        receive(output, &mut waiting, &failures).await
    };
    let problem = tokio::select! {
        // Before `abandoned`, because requesters that got their answer have closed their channels too.
        biased;
        ended = tokio::time::timeout(within, handshake) => ended.unwrap_or(Err(HandshakeError::Timeout(within))).err(),
        // All requesters have stopped waiting, because their nodes are down.
        () = abandoned => Some(HandshakeError::Abandoned),
        _ = context.give_up.wait_for(|given_up| *given_up) => Some(HandshakeError::Abandoned),
    };
    let all_failed = waiting.len() == nodes.len();
    if !waiting.is_empty() {
        let problem = Arc::new(problem.unwrap_or(HandshakeError::Ended));
        let refused = last_line(&log, 0, |line| line.starts_with(NO_STEP));
        let mut not_launched = not_launched_on(&tail(&log, 0).unwrap_or_default());
        // Without one of the step's own nodes, another attempt would have the same nodes.
        not_launched.retain(|node| nodes.contains(node));
        for (node, answer) in waiting {
            let _ = answer.send(Err(match &refused {
                Some(line) => {
                    let reason = line.trim_start_matches(SRUN_ERROR).to_owned();
                    AgentStartError::Refused { node, reason, log: log.clone() }
                }
                None if !not_launched.is_empty() && !not_launched.contains(&node) => {
                    AgentStartError::StepFailedElsewhere { node, log: log.clone() }
                }
                None => failures.of(node, &problem),
            }));
        }
    }
    let given_up = async {
        if !all_failed {
            // The sender exists as long as the allocation.
            let _ = context.give_up.wait_for(|given_up| *given_up).await;
        }
    };
    // Wait for the end of a step with agents; kill one without agents.
    tokio::select! {
        _ = child.wait() => {}
        () = given_up => {
            let _ = child.kill().await;
        }
    }
    context.running.fetch_sub(1, Ordering::AcqRel);
}

/// The options of srun for the step.
fn arguments(nodes: &[NodeName]) -> Vec<String> {
    let mut words: Vec<String> = [
        // Shares processors and memory with the application.
        "--overlap",
        "--mem=0",
        // The other agents survive the loss of a node or of an agent.
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        "--cpu-bind=none",
        "--export=ALL",
        "--job-name=holdfast-agents",
    ]
    .map(str::to_owned)
    .to_vec();
    words.push(format!("--nodes={}", nodes.len()));
    words.push(format!("--ntasks={}", nodes.len()));
    words.push("--ntasks-per-node=1".to_owned());
    words.push(format!("--nodelist={}", hostlist::compress(nodes)));
    words
}

fn spawn(context: &StepContext, nodes: &[NodeName], log: &Path) -> io::Result<(Child, ChildStdin, ChildStdout)> {
    let errors = own_files::append(log)?;
    let mut command = Command::new("srun");
    command.args(arguments(nodes)).arg(&context.program).arg("agent");
    // Not with srun's `--error`: if one node lacks the directory, no agent would start.
    command.env(AGENT_LOGS, &context.logs);
    for name in environment::removed_variables() {
        command.env_remove(name);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        // A process group of its own, so that Ctrl-C reaches only the orchestrator.
        .process_group(0)
        .spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok((child, input, output)),
        _ => Err(io::Error::other("it has no standard input or output")),
    }
}

/// Explains why an agent of a step is not ready: by its own log, or else by the messages of srun.
struct Failures<'a> {
    step_log: &'a Path,
    logs: &'a BTreeMap<NodeName, StartLog>,
}

impl Failures<'_> {
    fn of(&self, node: NodeName, problem: &Arc<HandshakeError>) -> AgentStartError {
        let own = self.logs.get(&node).and_then(|log| Some((log.last_line()?, log.path())));
        let of_step = || last_line(self.step_log, 0, |line| line.contains("error") && !line.contains(": task "));
        let (log_line, log) = match own {
            Some((line, log)) => (Some(line), log),
            None => (of_step(), self.step_log),
        };
        AgentStartError::NotReady { node, problem: Arc::clone(problem), log_line, log: log.to_owned() }
    }
}

/// Receives the reports of the agents, and srun's messages about agents that ended, until every request has an answer
/// or no more reports can arrive.
async fn receive(output: ChildStdout, waiting: &mut Waiting, failures: &Failures<'_>) -> Result<(), HandshakeError> {
    let (mut reports, mut looked) = (Reports::new(output), 0);
    let mut look = tokio::time::interval(CHECK_EVERY);
    while !waiting.is_empty() {
        tokio::select! {
            ready = reports.next() => {
                let Some(ready) = ready? else { break };
                let Some(answer) = waiting.remove(&ready.node) else { continue };
                let node = ready.node.clone();
                let checked = handshake::check_version(ready);
                let _ = answer.send(checked.map_err(|problem| failures.of(node, &Arc::new(problem))));
            }
            _ = look.tick() => {
                let length = failures.step_log.metadata().map_or(0, |metadata| metadata.len());
                if std::mem::replace(&mut looked, length) == length {
                    continue;
                }
                for node in ended_on(&tail(failures.step_log, 0).unwrap_or_default())? {
                    let Some(answer) = waiting.remove(&node) else { continue };
                    let _ = answer.send(Err(failures.of(node, &Arc::new(HandshakeError::Ended))));
                }
            }
        }
    }
    Ok(())
}

/// The nodes whose agents have ended, according to the messages of srun.
///
/// # Errors
/// A task could not be launched; srun then forwards its input to none of them.
fn ended_on(messages: &str) -> Result<Vec<NodeName>, HandshakeError> {
    let mut nodes = Vec::new();
    for line in messages.lines().filter_map(|line| line.strip_prefix(SRUN_ERROR)) {
        if line.contains("launch failed") || line.starts_with("Task launch for") {
            return Err(HandshakeError::Starter(line.to_owned()));
        }
        if let Some((hosts, _)) = line.split_once(": task") {
            nodes.extend(hostlist::expand(hosts).unwrap_or_default());
        }
    }
    Ok(nodes)
}

/// The nodes on which the step could not be launched, according to the messages of srun: a node that was lost, and
/// whose loss Slurm has not detected yet. srun then ends the step on all nodes.
fn not_launched_on(messages: &str) -> Vec<NodeName> {
    let nodes = messages.lines().filter_map(|line| {
        let line = line.strip_prefix(SRUN_ERROR)?.strip_prefix("Task launch for ")?;
        let node = line.split_once(" failed on node ")?.1.split(':').next()?;
        hostlist::expand(node.trim()).ok()
    });
    nodes.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_has_one_agent_a_node_and_survives_their_loss() {
        let nodes = ["n1", "n2", "n4"].map(NodeName::from);
        let words = arguments(&nodes);
        for expected in ["--overlap", "--no-kill", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1"] {
            assert!(words.iter().any(|option| option == expected), "{expected}: {words:?}");
        }
        assert!(words.contains(&"--nodelist=n[1-2,4]".to_owned()), "{words:?}");
    }

    #[test]
    fn messages_of_srun_about_ended_agents_name_their_nodes() {
        let messages = "srun: cluster configuration lacks support for cpu binding\n\
                    srun: error: n2: task 1: Exited with exit code 69\n\
                    srun: error: n[4-5]: tasks 3-4: Killed\n";
        assert_eq!(ended_on(messages).unwrap(), ["n2", "n4", "n5"].map(NodeName::from));
        let lost = "srun: error: Task launch for StepId=142.4 failed on node n3: Communication connection failure\n\
                    srun: error: Application launch failed: Communication connection failure\n";
        assert!(ended_on(lost).is_err());
        assert_eq!(not_launched_on(lost), [NodeName::from("n3")]);
        assert_eq!(not_launched_on(messages), Vec::<NodeName>::new());
        let error = ended_on("srun: error: task 2 launch failed: Slurmd could not connect IO\n").unwrap_err();
        assert!(error.to_string().contains("could not connect"), "{error}");
    }
}
