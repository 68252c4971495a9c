//! The ssh launcher: the ranks of every node are started over one connection to it; the node needs only `holdfast`. For
//! programs without MPI, or with an MPI that reads variables such as `HOLDFAST_RANK`.
//!
//! The step supervisor holds the connections. Over them it receives the output of the ranks, which it writes to files,
//! and their ends. When the supervisor ends, so do the connections and with them the ranks.

pub mod on_node;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use holdfast_core::state_files;
use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_wire::environment;
use on_node::{NodeRanks, NodeRanksMessage};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::error::LaunchError;
use super::launcher::{LaunchRequest, Launcher, LauncherEntry};
use super::obstacle::Obstacle;
use super::plan::{StepEvent, StepPlan};
use super::step::{Step, Supervision};
use crate::allocation::ssh::on_node::NodeCommand;
use crate::allocation::ssh::{self, SshError, Target};
use crate::host::user_name;
use crate::spec::{KeyFacts, LauncherFacts, Suits};

/// Interval at which it is checked whether the step is to end.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of queued messages; an application that prints faster is slowed down.
const WAITING: usize = 256;
/// Time limit for receiving the last output of ranks before they are killed.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// The end of ranks whose supervisor ends.
const KILLED: RankEnd = RankEnd::Signal(9);

/// Variables that belong to a machine or session, not to a job. All others of `holdfast run` are passed to the ranks,
/// as with `srun`.
const NOT_PASSED_ON: [&str; 20] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "HOSTNAME",
    "TMPDIR",
    "TMP",
    "TEMP",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "MAIL",
    "TERM",
    "TTY",
    "LS_COLORS",
    "INVOCATION_ID",
];
const NOT_PASSED_ON_PREFIXES: [&str; 5] = ["SSH_", "XDG_", "DBUS_", "SUDO_", "SYSTEMD_"];

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "ssh",
        doc: "one connection a node",
        suits: Suits::Manager("ssh"),
        keys: KeyFacts { takes: &[], without: &[] },
    },
    open: |context| Ok(Box::new(SshLauncher::new(ssh::targets(context.allocation, &user_name())?))),
    supervision: |plan| Ok(Box::new(SshSupervision { nodes: plan.details()? })),
};

/// The nodes of a step that is started over ssh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RemoteStep {
    /// The number of connections that are opened at a time.
    at_once: usize,
    /// The nodes with their ranks.
    nodes: BTreeMap<NodeName, RemoteNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RemoteNode {
    target: Target,
    program: PathBuf,
    /// The ranks with their variables.
    ranks: BTreeMap<Rank, BTreeMap<String, String>>,
}

/// One connection a node.
#[derive(Clone, Debug)]
struct SshLauncher {
    targets: BTreeMap<NodeName, Target>,
}

impl SshLauncher {
    fn new(targets: Vec<Target>) -> Self {
        let named = |target: Target| (NodeName::new(target.host.name.clone()), target);
        SshLauncher { targets: targets.into_iter().map(named).collect() }
    }
}

impl Launcher for SshLauncher {
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let is_ourselves = std::env::current_exe().is_ok_and(|own| own == request.program);
        let mut nodes = BTreeMap::new();
        for node in request.placement.used() {
            let (Some(socket), Some(target)) = (request.sockets.get(&node.name), self.targets.get(&node.name)) else {
                return Err(LaunchError::NoSocket { node: node.name.clone() });
            };
            // Without the node's name, which is only for virtual nodes.
            let variables = |rank: &Rank| {
                let variables = BTreeMap::from([
                    (environment::RANK.to_owned(), rank.to_string()),
                    (environment::SOCKET.to_owned(), socket.to_string_lossy().into_owned()),
                ]);
                (*rank, variables)
            };
            // The built-in examples are in the `holdfast` executable on the host.
            let program = if is_ourselves { target.program.clone().into() } else { request.program.to_owned() };
            let ranks = node.ranks.iter().map(variables).collect();
            nodes.insert(node.name.clone(), RemoteNode { target: target.clone(), program, ranks });
        }
        let at_once = nodes.values().next().map_or(1, |node| node.target.access.at_once.max(1) as usize);
        request.plan().with_details(ENTRY.facts.name, &RemoteStep { at_once, nodes })
    }
}

/// An event from the thread of a node.
enum NodeEvent {
    Message(NodeRanksMessage, Vec<u8>),
    Lost(SshError),
}

struct SshSupervision {
    nodes: RemoteStep,
}

impl Supervision for SshSupervision {
    /// Starts the ranks of all nodes, writes their output to files and reports their ends, until none is left. The
    /// process ends afterwards, and with it everything that still runs.
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError> {
        let (events, without) = start_all(&step.plan, &self.nodes);
        let mut watched = RunningRanks::new(&self.nodes);
        for node in &without {
            step.emit_all(watched.lost(node))?;
        }
        supervise(step, watched, &events)
    }
}

fn supervise(
    step: &mut Step,
    mut watched: RunningRanks,
    events: &mpsc::Receiver<(NodeName, NodeEvent)>,
) -> Result<(), LaunchError> {
    let mut end = RankEnd::Unknown;
    while !watched.is_over() {
        if step.children.is_ending() {
            end = KILLED;
            break;
        }
        match events.recv_timeout(POLL_EVERY) {
            Ok((node, event)) => watched.record(step, &node, event)?,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // The last output of the ranks may still be in the queue or in the network.
    let deadline = Instant::now() + LAST_OUTPUT;
    while let left = deadline.saturating_duration_since(Instant::now())
        && let Ok((node, event)) = events.recv_timeout(left.min(POLL_EVERY))
    {
        watched.record(step, &node, event)?;
    }
    step.emit_all(watched.give_up(end))
}

/// The ranks that have not ended.
struct RunningRanks {
    left: BTreeMap<NodeName, BTreeSet<Rank>>,
    printed: BTreeSet<Rank>,
    refused: bool,
}

impl RunningRanks {
    fn new(remote: &RemoteStep) -> Self {
        let ranks = |(node, remote): (&NodeName, &RemoteNode)| (node.clone(), remote.ranks.keys().copied().collect());
        RunningRanks { left: remote.nodes.iter().map(ranks).collect(), printed: BTreeSet::new(), refused: false }
    }

    fn is_over(&self) -> bool {
        self.refused || self.left.is_empty()
    }

    /// Appends what a rank printed to its file, and reports how ranks ended.
    fn record(&mut self, step: &mut Step, node: &NodeName, event: NodeEvent) -> Result<(), LaunchError> {
        if let NodeEvent::Message(NodeRanksMessage::Output { rank, errors, .. }, bytes) = &event {
            return self.print(step, *rank, *errors, bytes);
        }
        if let NodeEvent::Lost(error) = &event {
            // Users look into the output of the rank first.
            let message = format!("holdfast: {error}\n");
            if let Some(rank) = self.first_of(node) {
                self.print(step, rank, true, message.as_bytes())?;
            }
        }
        step.emit_all(self.receive(node, event))
    }

    fn print(&mut self, step: &mut Step, rank: Rank, errors: bool, bytes: &[u8]) -> Result<(), LaunchError> {
        append_output(&step.directory, rank, errors, bytes)?;
        if self.printed.insert(rank) { step.emit(&StepEvent::Printed { rank }) } else { Ok(()) }
    }

    fn first_of(&self, node: &NodeName) -> Option<Rank> {
        self.left.get(node)?.first().copied()
    }

    fn receive(&mut self, node: &NodeName, event: NodeEvent) -> Vec<StepEvent> {
        match event {
            NodeEvent::Message(NodeRanksMessage::Exited { rank, end }, _) => {
                let is_new = self.left.get_mut(node).is_some_and(|left| left.remove(&rank));
                if is_new { vec![StepEvent::Exited { rank, end }] } else { Vec::new() }
            }
            NodeEvent::Message(NodeRanksMessage::Refused { rank, reason, obstacle }, _) => {
                self.refused = true;
                vec![StepEvent::Refused { rank, reason: format!("{node}: {reason}"), obstacle }]
            }
            NodeEvent::Message(NodeRanksMessage::Done, _) => self.lost(node),
            // A retry would fail too.
            NodeEvent::Lost(error @ (SshError::NoProgram { .. } | SshError::NotBuilt)) => {
                self.refused = true;
                let rank = self.first_of(node).unwrap_or(Rank(0));
                vec![StepEvent::Refused { rank, reason: error.to_string(), obstacle: Obstacle::Job }]
            }
            // The node may be down, which is detected elsewhere.
            NodeEvent::Lost(_) => self.lost(node),
            NodeEvent::Message(NodeRanksMessage::Up | NodeRanksMessage::Output { .. }, _) => Vec::new(),
        }
    }

    /// The connection to a node was lost: the ends of its ranks are unknown.
    fn lost(&mut self, node: &NodeName) -> Vec<StepEvent> {
        let left = self.left.remove(node).unwrap_or_default();
        left.into_iter().map(|rank| StepEvent::Exited { rank, end: RankEnd::Unknown }).collect()
    }

    fn give_up(&mut self, end: RankEnd) -> Vec<StepEvent> {
        let left = std::mem::take(&mut self.left);
        let mut ranks: Vec<Rank> = left.into_values().flatten().collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| StepEvent::Exited { rank, end }).collect()
    }
}

/// Starts one thread a node; the number of connections that are opened at a time is limited. Also returns the nodes
/// whose thread could not be started.
fn start_all(plan: &StepPlan, remote: &RemoteStep) -> (mpsc::Receiver<(NodeName, NodeEvent)>, Vec<NodeName>) {
    let mut without = Vec::new();
    let (sender, events) = mpsc::sync_channel(WAITING);
    let (free, permits) = mpsc::sync_channel(remote.at_once.max(1));
    for _ in 0..remote.at_once.max(1) {
        let _ = free.send(());
    }
    let permits = Arc::new(Mutex::new(permits));
    let inherited = passed_on(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    for (node, remote) in &remote.nodes {
        let words = [remote.program.to_string_lossy().into_owned()].into_iter().chain(plan.arguments.iter().cloned());
        let environment = inherited.clone().into_iter().chain(plan.environment.clone()).collect();
        let command = NodeCommand { words: words.collect(), directory: plan.working_directory.clone(), environment };
        let ranks = NodeRanks { command, ranks: remote.ranks.clone() };
        let (sender, free, permits) = (sender.clone(), free.clone(), Arc::clone(&permits));
        let (name, target) = (node.clone(), remote.target.clone());
        let follow = move || {
            let mut permit = permits.lock().recv().ok();
            let followed = ssh::follow(&target, "ranks", &ranks, NodeRanksMessage::bytes_behind, |message, bytes| {
                if permit.take().is_some() {
                    let _ = free.try_send(());
                }
                let done = message == NodeRanksMessage::Done;
                sender.send((name.clone(), NodeEvent::Message(message, bytes))).is_ok() && !done
            });
            if permit.take().is_some() {
                let _ = free.try_send(());
            }
            if let Err(error) = followed {
                let _ = sender.send((name, NodeEvent::Lost(error)));
            }
        };
        let thread = std::thread::Builder::new().name("node".to_owned()).stack_size(512 << 10).spawn(follow);
        if let Err(error) = thread {
            tracing::error!(%node, %error, "cannot start a thread for a node");
            without.push(node.clone());
        }
    }
    (events, without)
}

/// The variables that are passed to the ranks.
fn passed_on(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let is_local = |name: &str| {
        NOT_PASSED_ON.contains(&name) || NOT_PASSED_ON_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    variables.filter(|(name, _)| !is_local(name)).collect()
}

fn append_output(directory: &Path, rank: Rank, errors: bool, bytes: &[u8]) -> Result<(), LaunchError> {
    let path = if errors { StepPlan::errors_in(directory, rank) } else { StepPlan::output_in(directory, rank) };
    state_files::append(&path)?.write_all(bytes).map_err(LaunchError::file("write to", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::spec::JobSpec;

    fn plan() -> StepPlan {
        let text =
            "allocation: {hosts: [n1, ben@n2, n3], ssh: {program: /opt/holdfast}}\nrun: {command: [./app, --fast]}\n";
        let spec = JobSpec::of_test(text);
        let launcher = SshLauncher::new(ssh::targets(&spec.allocation, "anna").unwrap());
        let nodes = vec![node("n3", &[0, 2]), node("n1", &[]), node("n2", &[1])];
        let sockets = [("n1", "/s/n1"), ("n2", "/s/n2"), ("n3", "/s/n3")];
        launch(&launcher, &spec.steps[0].run, nodes, &sockets, Path::new("/g")).unwrap()
    }

    #[test]
    fn every_node_gets_its_ranks_with_their_variables() {
        let plan = plan();
        let remote: RemoteStep = details(&plan);
        assert_eq!(remote.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n2", "n3"]);
        let n3 = &remote.nodes[&NodeName::from("n3")];
        assert_eq!((n3.program.as_path(), n3.target.user.as_str()), (Path::new("/bin/app"), "anna"));
        assert_eq!(n3.ranks[&Rank(2)]["HOLDFAST_RANK"], "2");
        assert_eq!(n3.ranks[&Rank(2)]["HOLDFAST_SOCKET"], "/s/n3");
        assert_eq!(remote.nodes[&NodeName::from("n2")].target.user, "ben");
        assert_eq!(plan.environment["HOLDFAST_RANKS"], "3");
        assert_eq!(plan.arguments, ["--fast"]);
    }

    fn watched() -> RunningRanks {
        RunningRanks::new(&details(&plan()))
    }

    #[test]
    fn a_lost_node_ends_only_its_own_ranks() {
        let mut step = watched();
        let fine = NodeRanksMessage::Exited { rank: Rank(0), end: RankEnd::SUCCESS };
        assert_eq!(step.receive(&"n3".into(), NodeEvent::Message(fine.clone(), Vec::new())).len(), 1);
        assert!(step.receive(&"n3".into(), NodeEvent::Message(fine, Vec::new())).is_empty(), "reported once");
        let broken = || SshError::Session { host: "n3".into(), doing: "follow", problem: "lost".into() };
        let lost = step.receive(&"n3".into(), NodeEvent::Lost(broken()));
        assert_eq!(lost, [StepEvent::Exited { rank: Rank(2), end: RankEnd::Unknown }]);
        assert!(!step.is_over());
        assert_eq!(step.give_up(KILLED), [StepEvent::Exited { rank: Rank(1), end: KILLED }]);
        assert!(step.is_over());
    }

    #[test]
    fn output_that_was_received_before_the_ranks_are_killed_is_kept() {
        let base = tempfile::tempdir().unwrap();
        let mut step = Step::new(plan(), base.path()).unwrap();
        let (send, received) = mpsc::sync_channel(8);
        for bytes in [b"one\n", b"two\n"] {
            let output = NodeRanksMessage::Output { rank: Rank(2), errors: false, bytes: bytes.len() };
            send.send(("n3".into(), NodeEvent::Message(output, bytes.to_vec()))).unwrap();
        }
        step.kill_all();
        supervise(&mut step, watched(), &received).unwrap();
        let output = std::fs::read_to_string(StepPlan::output_in(base.path(), Rank(2))).unwrap();
        assert_eq!(output, "one\ntwo\n");
        let events = std::fs::read_to_string(StepPlan::events_in(base.path())).unwrap();
        let printed = serde_json::to_string(&StepEvent::Printed { rank: Rank(2) }).unwrap();
        assert_eq!(events.lines().next(), Some(&*printed));
        assert_eq!(events.matches("printed").count(), 1, "{events}");
        assert_eq!(events.matches("exited").count(), 3, "{events}");
    }

    #[test]
    fn a_program_that_cannot_be_started_ends_the_step_and_names_the_node() {
        let mut step = watched();
        let reason = "no such file".to_owned();
        let refused = NodeRanksMessage::Refused { rank: Rank(1), reason, obstacle: Obstacle::Job };
        let events = step.receive(&"n2".into(), NodeEvent::Message(refused, Vec::new()));
        let (reason, obstacle) = ("n2: no such file".to_owned(), Obstacle::Job);
        assert_eq!(events, [StepEvent::Refused { rank: Rank(1), reason, obstacle }]);
        assert!(step.is_over());
    }

    #[test]
    fn session_variables_are_not_passed_on() {
        let variables = [("PATH", "/bin"), ("HOME", "/root"), ("SSH_AUTH_SOCK", "/x"), ("OMP_NUM_THREADS", "4")];
        let handed = passed_on(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter());
        assert_eq!(handed.keys().collect::<Vec<_>>(), ["OMP_NUM_THREADS", "PATH"]);
    }
}
