//! Starts agents on many nodes with one command of a resource manager (a step), or on a single node.
//!
//! Requests that arrive together become one step. The command's standard input goes to all agents, so that they share
//! one start message, and each determines its node itself. The agents report on its standard output, in any order, each
//! with the name of its node.
//!
//! The step survives the loss of nodes and of this process: it has its own process group, and its output is not read
//! once all agents are ready.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_core::state_files;
use holdfast_model::NodeName;
use holdfast_wire::run::{AgentReady, AgentStart, SharedStart};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::handshake::{self, HandshakeError, Reports};
use super::logs::{AgentLogs, StartLog};
use super::start_error::AgentStartError;
use super::template::AgentTemplate;
use crate::host::log::tail;

/// Requests that follow each other within this time become one step.
const GATHER_FOR: Duration = Duration::from_millis(5);
/// Maximum time that a request waits for others.
const GATHER_AT_MOST: Duration = Duration::from_millis(50);
/// Interval at which the messages of the command are read while agents start.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A command of a resource manager that starts one process on each of several nodes.
pub trait StepCommand: Debug + Send + Sync + 'static {
    /// The program, for messages and the names of logs.
    fn name(&self) -> &'static str;

    /// How the agents find what a message to all of them cannot contain. Their logs are in the directory `logs`.
    fn shared_start(&self, logs: &Path) -> SharedStart;

    /// The command up to the program that it starts on each of these nodes.
    fn command(&self, nodes: &[NodeName]) -> Command;

    /// What its messages, written to standard error so far, mean for the agents.
    fn messages(&self, text: &str) -> StepMessages;
}

/// What the messages of a step mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepMessages {
    /// Why the resource manager did not create the step.
    pub refused: Option<String>,
    /// Why none of its agents can become ready.
    pub failed: Option<String>,
    /// Nodes on which the step could not be launched.
    pub not_launched: Vec<NodeName>,
    /// Nodes whose agents have ended.
    pub ended: Vec<NodeName>,
    /// The line that explains an agent that is not ready and has written nothing.
    pub explanation: Option<String>,
}

/// The time limit of a start, and whether it may share a step.
#[derive(Clone, Copy, Debug)]
pub struct StartLimit {
    pub within: Duration,
    /// True for the first agent of a node: it may share a step with those of other nodes.
    pub first: bool,
}

/// The requests of a step that have no answer yet.
type Waiting = BTreeMap<NodeName, Answer>;
type Answer = oneshot::Sender<Result<AgentReady, AgentStartError>>;

#[derive(Debug)]
struct StartRequest {
    node: NodeName,
    start: AgentStart,
    limit: StartLimit,
    answer: Answer,
    /// Closed when the requester has stopped waiting.
    abandoned: oneshot::Receiver<()>,
}

/// The steps that hold the agents.
#[derive(Debug)]
pub struct AgentSteps {
    requests: mpsc::UnboundedSender<StartRequest>,
    context: StepContext,
    ending: watch::Sender<bool>,
}

/// What the task of a step needs.
#[derive(Clone, Debug)]
struct StepContext {
    command: Arc<dyn StepCommand>,
    program: PathBuf,
    logs: AgentLogs,
    running: Arc<AtomicUsize>,
    ending: watch::Receiver<bool>,
}

impl AgentSteps {
    /// Agents are started as `program agent`; their logs, and those of the steps, go to `logs`.
    pub fn start(command: impl StepCommand, program: PathBuf, logs: AgentLogs) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let (ending, ends) = watch::channel(false);
        let (command, running) = (Arc::new(command), Arc::default());
        let context = StepContext { command, program, logs, running, ending: ends };
        tokio::spawn(gather(queue, context.clone()));
        AgentSteps { requests, context, ending }
    }

    /// Starts an agent on a node and waits until it is ready.
    ///
    /// # Errors
    /// [`AgentStartError`]: `Refused` and `StepFailedElsewhere` may succeed later.
    pub async fn agent(
        &self,
        node: &NodeName,
        template: &AgentTemplate,
        limit: StartLimit,
    ) -> Result<AgentReady, AgentStartError> {
        let (answer, answered) = oneshot::channel();
        let (_waits, abandoned) = oneshot::channel();
        let logs = &self.context.logs;
        let start = template.for_any_node(self.context.command.shared_start(&logs.directory));
        let request = StartRequest { node: node.clone(), start, limit, answer, abandoned };
        let ended = || AgentStartError::not_ready(node, HandshakeError::Abandoned, None, &logs.of(node));
        if self.requests.send(request).is_err() {
            return Err(ended());
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// True while a step with agents runs.
    pub fn are_running(&self) -> bool {
        self.context.running.load(Ordering::Acquire) > 0
    }

    /// Kills the commands. Agents that still run end by themselves.
    pub fn abandon(&self) {
        self.ending.send_replace(true);
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
        let (first, again): (Vec<_>, Vec<_>) = together.into_iter().partition(|request| request.limit.first);
        // Agents of different steps of the job get different messages.
        let mut of_steps: BTreeMap<Option<String>, Vec<StartRequest>> = BTreeMap::new();
        for request in first {
            of_steps.entry(request.start.step.clone()).or_default().push(request);
        }
        for requests in of_steps.into_values().chain(again.into_iter().map(|request| vec![request])) {
            number += 1;
            tokio::spawn(step(requests, context.clone(), number));
        }
    }
}

/// One step, from its start to its end.
async fn step(requests: Vec<StartRequest>, mut context: StepContext, number: u32) {
    let Some((start, within)) = requests.first().map(|first| (first.start.clone(), first.limit.within)) else {
        return;
    };
    let (mut waiting, mut abandoned) = (Waiting::new(), Vec::new());
    for request in requests {
        waiting.insert(request.node, request.answer);
        abandoned.push(request.abandoned);
    }
    let mut ending = context.ending.clone();
    // Nobody waits any more: all requesters have stopped because their nodes are down, or the job is ending.
    let mut abandoned = pin!(async {
        let all = async {
            for abandoned in abandoned {
                // Nothing is ever sent: the channel is closed with the request.
                let _ = abandoned.await;
            }
        };
        tokio::select! {
            () = all => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    });
    let nodes: Vec<NodeName> = waiting.keys().cloned().collect();
    let name = context.command.name();
    let step_log = context.logs.directory.join(format!("{name}-{}-{number}.log", std::process::id()));
    let begun = tokio::select! {
        begun = begin(&context, &nodes, &step_log) => begun,
        () = &mut abandoned => Err(HandshakeError::Abandoned),
    };
    let (logs, mut child, (input, output)) = match begun {
        Ok(begun) => begun,
        Err(problem) => {
            let problem = Arc::new(problem);
            for (node, answer) in waiting {
                let (problem, log) = (Arc::clone(&problem), step_log.clone());
                let _ = answer.send(Err(AgentStartError::NotReady { node, problem, log_line: None, log }));
            }
            return;
        }
    };
    context.running.fetch_add(1, Ordering::AcqRel);
    let failures = Failures { context: &context, step_log: &step_log, logs: &logs };
    let handshake = async {
        handshake::send(input, &start).await?;
        receive(output, &mut waiting, &failures).await
    };
    let problem = tokio::select! {
        // Before `abandoned`, because requesters that got their answer have closed their channels too.
        biased;
        ended = tokio::time::timeout(within, handshake) => ended.unwrap_or(Err(HandshakeError::Timeout(within))).err(),
        () = &mut abandoned => Some(HandshakeError::Abandoned),
    };
    let all_failed = waiting.len() == nodes.len();
    if !waiting.is_empty() {
        failures.answer(waiting, problem.unwrap_or(HandshakeError::Ended)).await;
    }
    let abandoned = async {
        if !all_failed {
            // The sender exists as long as the allocation.
            let _ = context.ending.wait_for(|ending| *ending).await;
        }
    };
    // Wait for the end of a step with agents; kill one without agents.
    tokio::select! {
        _ = child.wait() => {}
        () = abandoned => {
            let _ = child.kill().await;
        }
    }
    context.running.fetch_sub(1, Ordering::AcqRel);
}

/// The logs of the agents, the command, and its pipes.
type Begun = (BTreeMap<NodeName, StartLog>, Child, (ChildStdin, ChildStdout));

/// Opens the log of the step, for as long as that takes, and starts the command.
async fn begin(context: &StepContext, nodes: &[NodeName], step_log: &Path) -> Result<Begun, HandshakeError> {
    let name = context.command.name();
    let failed = |error: io::Error| HandshakeError::Starter(format!("cannot run {name}: {error}"));
    let (paths, log) = (nodes.iter().map(|node| (node.clone(), context.logs.of(node))).collect::<Vec<_>>(), step_log);
    let log = log.to_owned();
    let open = move || {
        let opened = state_files::append(&log)?;
        io::Result::Ok((opened, paths.into_iter().map(|(node, path)| (node, StartLog::begin(path))).collect()))
    };
    let (errors, logs) = context.logs.run(open).await.and_then(|opened| opened).map_err(failed)?;
    let (child, pipes) = spawn(context, nodes, errors).map_err(failed)?;
    Ok((logs, child, pipes))
}

fn spawn(context: &StepContext, nodes: &[NodeName], errors: File) -> io::Result<(Child, (ChildStdin, ChildStdout))> {
    let mut command = context.command.command(nodes);
    command.arg(&context.program).arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    // A process group of its own, so that Ctrl-C reaches only the orchestrator.
    let mut child = command.process_group(0).spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    Ok((child, pipes.ok_or_else(|| io::Error::other("it has no standard input or output"))?))
}

/// Explains why an agent of a step is not ready: by its own log, or else by the messages of the command.
struct Failures<'a> {
    context: &'a StepContext,
    step_log: &'a Path,
    logs: &'a BTreeMap<NodeName, StartLog>,
}

impl Failures<'_> {
    /// Answers these requests, all of which failed.
    async fn answer(&self, waiting: Waiting, problem: HandshakeError) {
        let problem = Arc::new(problem);
        let logs: Vec<StartLog> = waiting.keys().filter_map(|node| self.logs.get(node)).cloned().collect();
        let (command, step_log) = (Arc::clone(&self.context.command), self.step_log.to_owned());
        // All of them at once, with one time limit.
        let look = move || {
            let messages = command.messages(&tail(&step_log, 0).unwrap_or_default());
            Some((messages, logs.iter().map(StartLog::last_line).collect::<Vec<_>>()))
        };
        let (mut messages, lines) = self.context.logs.read(look).await.unwrap_or_default();
        // Without one of the step's own nodes, another attempt would have the same nodes.
        messages.not_launched.retain(|node| self.logs.contains_key(node));
        let lines = lines.into_iter().chain(std::iter::repeat(None));
        for ((node, answer), line) in waiting.into_iter().zip(lines) {
            let step_log = self.step_log.to_owned();
            let _ = answer.send(Err(match &messages {
                StepMessages { refused: Some(reason), .. } => {
                    AgentStartError::Refused { node, reason: reason.clone(), log: step_log }
                }
                StepMessages { not_launched, .. } if !not_launched.is_empty() && !not_launched.contains(&node) => {
                    AgentStartError::StepFailedElsewhere { node, log: step_log }
                }
                messages => {
                    let (log_line, log) = match (line, self.logs.get(&node)) {
                        (Some(line), Some(log)) => (Some(line), log.path.clone()),
                        _ => (messages.explanation.clone(), step_log),
                    };
                    AgentStartError::NotReady { node, problem: Arc::clone(&problem), log_line, log }
                }
            }));
        }
    }

    /// The messages of the command, as soon as their length is another one. Never, if their file system hangs.
    async fn next_messages(&self, known: u64) -> (u64, StepMessages) {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let log = self.step_log.to_owned();
            let look = move || {
                let length = log.metadata().ok()?.len();
                if length == known { None } else { Some((length, tail(&log, 0)?)) }
            };
            if let Ok(Some((length, text))) = self.context.logs.run(look).await {
                return (length, self.context.command.messages(&text));
            }
        }
    }
}

/// Receives the reports of the agents, and the command's messages about agents that ended, until every request has an
/// answer or no more reports can arrive.
async fn receive(output: ChildStdout, waiting: &mut Waiting, failures: &Failures<'_>) -> Result<(), HandshakeError> {
    let mut reports = Reports::new(output);
    let mut look = pin!(failures.next_messages(0));
    while !waiting.is_empty() {
        tokio::select! {
            ready = reports.next() => {
                let Some(ready) = ready? else { break };
                let Some(answer) = waiting.remove(&ready.node) else { continue };
                let node = ready.node.clone();
                match handshake::check_version(ready) {
                    Ok(ready) => drop(answer.send(Ok(ready))),
                    Err(problem) => failures.answer([(node, answer)].into(), problem).await,
                }
            }
            (length, messages) = &mut look => {
                look.set(failures.next_messages(length));
                if let Some(failed) = messages.failed {
                    return Err(HandshakeError::Starter(failed));
                }
                let ended: Waiting = messages.ended.iter().filter_map(|node| waiting.remove_entry(node)).collect();
                if !ended.is_empty() {
                    failures.answer(ended, HandshakeError::Ended).await;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::agents::template::AgentSettings;
    use holdfast_wire::run::Lookup;
    use std::sync::mpsc::channel;

    /// A command that is a script. It is given the nodes, and then the program and `agent`, which it does not start.
    #[derive(Debug)]
    struct Script(&'static str);

    impl StepCommand for Script {
        fn name(&self) -> &'static str {
            "script"
        }

        fn shared_start(&self, logs: &Path) -> SharedStart {
            let lookup = || Lookup::Variable("NODE".to_owned());
            SharedStart { node: lookup(), toward: lookup(), logs: logs.to_owned(), is_signalled_with_job: false }
        }

        fn command(&self, nodes: &[NodeName]) -> Command {
            let mut command = Command::new("sh");
            let nodes = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ");
            command.args(["-c", self.0, &nodes]).env("NODES", nodes);
            command
        }

        fn messages(&self, text: &str) -> StepMessages {
            let after = |start: &'static str| text.lines().filter_map(move |line| line.strip_prefix(start));
            StepMessages {
                refused: after("refused: ").next().map(str::to_owned),
                failed: after("failed: ").next().map(str::to_owned),
                not_launched: after("not launched: ").map(NodeName::from).collect(),
                ended: after("ended: ").map(NodeName::from).collect(),
                explanation: after("because ").next_back().map(str::to_owned),
            }
        }
    }

    const READY: &str = "for node in $NODES; do [ $node = n9 ] || echo \"{\\\"version\\\":$VERSION,\
                         \\\"node\\\":\\\"$node\\\",\
                         \\\"address\\\":\\\"127.0.0.1:7\\\",\\\"pid\\\":7,\
                         \\\"adopted\\\":null}\"; done; cat >/dev/null";
    const LIMIT: StartLimit = StartLimit { within: Duration::from_secs(600), first: true };

    fn template() -> AgentTemplate {
        let trust = holdfast_wire::trust::generate().unwrap();
        AgentTemplate { settings: AgentSettings::of_test_job(), trust, drains_only: false }
    }

    fn steps(script: &'static str, directory: &Path) -> AgentSteps {
        let logs = AgentLogs::create(&directory.join("logs")).unwrap();
        AgentSteps::start(Script(script), "/bin/holdfast".into(), logs)
    }

    async fn both(steps: &AgentSteps) -> [Result<AgentReady, AgentStartError>; 2] {
        let (template, nodes) = (template(), ["n1", "n9"].map(NodeName::from));
        let (first, second) =
            tokio::join!(steps.agent(&nodes[0], &template, LIMIT), steps.agent(&nodes[1], &template, LIMIT));
        [first, second]
    }

    #[tokio::test]
    async fn requests_that_arrive_together_share_a_step_and_each_gets_its_own_answer() {
        let base = tempfile::tempdir().unwrap();
        let script = format!("VERSION={}; {READY}; echo ended: n9 >&2; sleep 600", holdfast_wire::VERSION);
        let steps = steps(Box::leak(script.into_boxed_str()), base.path());
        let [first, second] = both(&steps).await;
        assert_eq!(first.unwrap().pid, 7);
        let second = second.unwrap_err().to_string();
        assert!(second.contains("ended before it was ready"), "{second}");
        let logs = std::fs::read_dir(base.path().join("logs")).unwrap().count();
        assert_eq!(logs, 1, "one step");
        assert!(steps.are_running());
        steps.abandon();
        while steps.are_running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn what_the_command_says_distinguishes_a_refusal_from_nodes_that_are_lost() {
        let of_script = async |script| {
            let base = tempfile::tempdir().unwrap();
            both(&steps(script, base.path())).await.map(Result::unwrap_err)
        };
        for error in of_script("echo refused: busy >&2").await {
            assert!(matches!(&error, AgentStartError::Refused { reason, .. } if reason == "busy"), "{error}");
        }
        let [first, second] =
            of_script("echo failed: n9 >&2; echo not launched: n9 >&2; echo because it is lost >&2").await;
        assert!(matches!(first, AgentStartError::StepFailedElsewhere { .. }), "{first}");
        assert!(second.to_string().contains("it is lost"), "{second}");
    }

    #[tokio::test]
    async fn a_step_waits_for_a_log_directory_that_hangs_and_nothing_else_does() {
        let base = tempfile::tempdir().unwrap();
        let mark = base.path().join("mark");
        let script = format!("touch {}", mark.display());
        let steps = steps(Box::leak(script.into_boxed_str()), base.path());
        // Operations on the directory, as many as are done at a time, that do not end.
        let mut hung = Vec::new();
        for _ in 0..4 {
            let (logs, (end, ends), (begun, begins)) = (steps.context.logs.clone(), channel::<()>(), channel());
            let operation = async move { logs.run(move || (begun.send(()), ends.recv())).await };
            hung.push((tokio::spawn(operation), end));
            tokio::task::spawn_blocking(move || begins.recv()).await.unwrap().unwrap();
        }
        let waits = tokio::time::timeout(Duration::from_millis(300), both(&steps)).await;
        assert!(waits.is_err(), "the requests have no answer, and this thread is not blocked");
        // Nobody waits for these agents any more: when the directory responds again, they are not started.
        for (operation, end) in hung {
            drop(end);
            let _ = operation.await.unwrap().unwrap();
        }
        let again = both(&steps).await;
        assert!(again.iter().all(Result::is_err) && mark.exists());
        let logs = std::fs::read_dir(base.path().join("logs")).unwrap().count();
        assert!(logs <= 2, "the second step, and the log of the first if it was about to be opened: {logs}");
        // Both answers are sent while the step's command is being waited for.
        while steps.are_running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
