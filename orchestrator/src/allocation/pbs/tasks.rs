//! Tasks of a PBS job with standard input and output.
//!
//! `pbs_tmrsh NODE COMMAND` starts a task, which the node's daemon kills at the end of the job, and waits for its end.
//! But the task reads nothing, writes to the output of the job, and has neither the environment nor the working
//! directory of its caller. So the task is this program too, `pbs-task join`. It reads what to run from a file in a
//! directory that all nodes share (mode 0600, removed as soon as all tasks have read it), and connects its output to
//! the process that started it. It authenticates with a digest of the file's secret: the secret is on no command line
//! and not on the network.
//!
//! | command | purpose |
//! |---|---|
//! | `pbs-task start` | one program on several nodes, which outlives its starter: agents |
//! | `pbs-task run` | one command on a node, which ends with its starter: daemons of mpirun, commands of the site |
//! | `pbs-task join` | the task on the node |

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use holdfast_core::owned::OwnedError;
use holdfast_core::state_files;
use holdfast_model::NodeName;
use holdfast_process::end::{self, shell_code};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream as AsyncStream};
use tokio::task::JoinSet;

use super::task_file::{Stream, Surroundings, Task, authenticated};

/// PBS's command that starts a task.
pub(super) const TMRSH: &str = "pbs_tmrsh";
/// The subcommand.
const OURSELVES: &str = "pbs-task";
/// The prefix of a message that the task of a node has ended.
pub(super) const ENDED: &str = "pbs-task: ended: ";
/// The variables of a task with the name of its node, and the address of the machine that started it.
pub(super) const NODE: &str = "HOLDFAST_TASK_NODE";
pub(super) const TOWARD: &str = "HOLDFAST_TASK_TOWARD";
/// The extension of the files.
const EXTENSION: &str = "task";
const LARGEST_FILE: u64 = 16 << 20;
/// Maximum size of the first line of standard input: the start message of agents.
const LONGEST_INPUT: u64 = 1 << 20;
/// A task that has connected authenticates at once.
const TOKEN_WITHIN: Duration = Duration::from_secs(10);
/// Time limit of a task's connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// Output that is on its way when `pbs_tmrsh` has ended; processes that the task left behind may keep it open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// Variables that differ between the tasks of a job.
const OF_A_TASK: [&str; 3] = ["HOSTNAME", "PBS_NODENUM", "PBS_TASKNUM"];

/// How tasks are started from here.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// This program, here and on the nodes.
    pub(super) program: PathBuf,
    /// The address at which the nodes reach this machine.
    pub(super) toward: IpAddr,
    /// A directory that all nodes share.
    pub(super) directory: PathBuf,
}

impl Launch {
    /// The arguments of this program before the program that is started on each of these nodes.
    pub(super) fn start(&self, nodes: &[NodeName]) -> Vec<String> {
        let nodes = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
        [self.arguments("start"), vec![nodes, "--".to_owned()]].concat()
    }

    /// The command line before a command that runs on a node.
    pub(super) fn run(&self, node: &NodeName) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        [vec![program], self.arguments("run"), vec![node.to_string(), "--".to_owned()]].concat()
    }

    fn arguments(&self, verb: &str) -> Vec<String> {
        let (toward, directory) = (self.toward.to_string(), self.directory.to_string_lossy().into_owned());
        [OURSELVES, verb, "--toward", &toward, "--directory", &directory].map(str::to_owned).to_vec()
    }

    /// Removes the files of tasks that were never started. Errors do not matter: the files are of no use to others.
    pub(super) fn remove_files(&self) {
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == EXTENSION) {
                let _ = state_files::remove(&entry.path());
            }
        }
    }
}

/// A task could not be started, or could not join its starter.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("this command is started by `holdfast run` in a PBS job, not by hand: {0}")]
    ByHand(&'static str),
    #[error("cannot listen at {address} for the tasks: {source}; check the network of this node")]
    Listen { address: IpAddr, source: io::Error },
    #[error("the task's file cannot be used: {0}")]
    File(#[from] OwnedError),
    #[error("{} does not exist: is it on a file system that all nodes share?", .0.display())]
    NoFile(PathBuf),
    #[error("{} is invalid: {source}", path.display())]
    Invalid { path: PathBuf, source: serde_json::Error },
    #[error("cannot reach {address}, from which this task was started: {source}; check the network between the nodes")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("cannot run {program}: {source}")]
    Run { program: String, source: io::Error },
    #[error("cannot pass standard input or output on: {0}")]
    Io(#[from] io::Error),
    #[error("there is no random number for the tasks: {0}")]
    Random(getrandom::Error),
}

/// `pbs-task start`: the program on each node. Its input is the first line of ours; what it writes is written here.
/// Ends with the last of the tasks.
///
/// # Errors
/// [`TaskError`]; a task that could not be started is a message on standard error.
pub async fn start(toward: IpAddr, directory: &Path, nodes: &[String], words: Vec<String>) -> Result<u8, TaskError> {
    let mut input = String::new();
    // Nothing else has to be done meanwhile.
    BufReader::new(io::stdin().lock().take(LONGEST_INPUT)).read_line(&mut input)?;
    let tasks = Tasks::begin(toward, directory, nodes, new_task(words, None, input)?).await?;
    tasks.finish(false).await.map(|_| 0)
}

/// `pbs-task run`: the command on the node, with our environment and working directory. Returns its exit code.
///
/// # Errors
/// [`TaskError`].
pub async fn run(toward: IpAddr, directory: &Path, node: String, words: Vec<String>) -> Result<u8, TaskError> {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = variables.filter(|(name, _)| !OF_A_TASK.contains(&name.as_str())).collect();
    let surroundings = Surroundings { directory: std::env::current_dir()?, environment };
    let task = new_task(words, Some(surroundings), String::new())?;
    Tasks::begin(toward, directory, &[node], task).await?.finish(true).await
}

fn new_task(words: Vec<String>, surroundings: Option<Surroundings>, input: String) -> Result<Task, TaskError> {
    Task::new(words, surroundings, input).map_err(TaskError::Random)
}

/// Tasks that have been started.
struct Tasks {
    listener: TcpListener,
    /// The connections that are expected: their nodes and streams.
    expected: BTreeMap<String, (String, Stream)>,
    /// The `pbs_tmrsh` of each node.
    children: JoinSet<(String, io::Result<ExitStatus>)>,
    /// Nodes whose task has ended.
    ended: BTreeSet<String>,
    path: PathBuf,
}

impl Tasks {
    async fn begin(toward: IpAddr, directory: &Path, nodes: &[String], task: Task) -> Result<Self, TaskError> {
        let listen = |source| TaskError::Listen { address: toward, source };
        let listener = TcpListener::bind((toward, 0)).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let path = directory.join(format!("{}.{EXTENSION}", task.file_stem()));
        let bytes = serde_json::to_vec(&task).map_err(|source| TaskError::Invalid { path: path.clone(), source })?;
        state_files::replace(&path, &bytes)?;
        let program = std::env::current_exe()?;
        let mut children = JoinSet::new();
        for node in nodes {
            let mut command = tokio::process::Command::new(TMRSH);
            command.arg(node).arg(&program).args([OURSELVES, "join"]).arg(&path);
            command.args([address.to_string(), node.clone()]);
            // What PBS itself has to say about a task is a message.
            let errors = rustix::io::dup(rustix::stdio::stderr()).map_err(io::Error::from)?;
            command.stdin(Stdio::null()).stdout(Stdio::from(errors)).kill_on_drop(true);
            let (node, child) = (node.clone(), command.spawn());
            children.spawn(async move {
                match child {
                    Ok(mut child) => (node, child.wait().await),
                    Err(error) => (node, Err(error)),
                }
            });
        }
        let streams = || task.streams().iter().copied();
        let expected =
            nodes.iter().flat_map(|node| streams().map(|stream| (task.token(node, stream), (node.clone(), stream))));
        Ok(Tasks { listener, expected: expected.collect(), children, ended: BTreeSet::new(), path })
    }

    /// Passes the output of the tasks on until all have ended. Returns the exit code of the last one.
    async fn finish(mut self, is_alone: bool) -> Result<u8, TaskError> {
        let (mut connections, mut copies) = (JoinSet::new(), JoinSet::new());
        let mut code = 0;
        let mut has_file = true;
        loop {
            if has_file && self.expected.values().all(|(node, _)| self.ended.contains(node)) {
                has_file = state_files::remove(&self.path).is_err();
            }
            tokio::select! {
                // A task connects before it runs anything: its connections come before its end.
                biased;
                accepted = self.listener.accept() => if let Ok((connection, _)) = accepted {
                    connections.spawn(authenticated(connection, TOKEN_WITHIN));
                },
                Some(connected) = connections.join_next() => self.pass_on(connected.ok().flatten(), &mut copies),
                ended = self.children.join_next() => {
                    let Some(ended) = ended else { break };
                    let Ok((node, status)) = ended else { continue };
                    code = status.as_ref().map_or(127, |status| shell_code(end::of(*status)));
                    match status {
                        Ok(_) if is_alone => {}
                        Ok(status) => say(&format!("{ENDED}{node}: {status}")),
                        Err(error) => say(&format!("{TMRSH} cannot be run: {error}\n{ENDED}{node}: not started")),
                    }
                    self.ended.insert(node);
                },
            }
        }
        if has_file {
            let _ = state_files::remove(&self.path);
        }
        let last = async {
            while let Some(connected) = connections.join_next().await {
                self.pass_on(connected.ok().flatten(), &mut copies);
            }
            while copies.join_next().await.is_some() {}
        };
        // Processes that a task left behind do not keep us.
        let _ = tokio::time::timeout(LAST_OUTPUT, last).await;
        Ok(code)
    }

    /// Passes what arrives on an authenticated connection on.
    fn pass_on(&mut self, connected: Option<(String, AsyncStream)>, copies: &mut JoinSet<()>) {
        let Some((token, connection)) = connected else { return };
        match self.expected.remove(&token) {
            Some((_, Stream::Output)) => drop(copies.spawn(copy(connection, io::stdout()))),
            Some((_, Stream::Errors)) => drop(copies.spawn(copy(connection, io::stderr()))),
            None => tracing::warn!("a connection that no task made was closed"),
        }
    }
}

/// Writes a message, for a reader that may have ended.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Writes what arrives; a reader that has ended does not end the task.
async fn copy(mut connection: AsyncStream, mut to: impl io::Write) {
    let mut bytes = vec![0; 32 << 10];
    while let Ok(count @ 1..) = connection.read(&mut bytes).await {
        if to.write_all(&bytes[..count]).is_err() || to.flush().is_err() {
            return;
        }
    }
}

/// `pbs-task join`: the task on the node. Does not return after the start of a program that outlives its starter.
///
/// # Errors
/// [`TaskError`].
pub fn join(path: &Path, address: SocketAddr, node: &str) -> Result<u8, TaskError> {
    if std::env::var_os(super::environment::JOB).is_none() {
        return Err(TaskError::ByHand("PBS_JOBID is not set"));
    }
    let bytes = state_files::read(path, LARGEST_FILE)?.ok_or_else(|| TaskError::NoFile(path.to_owned()))?;
    let task = Task::parse(&bytes).map_err(|source| TaskError::Invalid { path: path.to_owned(), source })?;
    let connect = |stream| {
        let connected = TcpStream::connect_timeout(&address, CONNECT_WITHIN).and_then(|mut connection| {
            connection.write_all(task.token(node, stream).as_bytes())?;
            Ok(connection)
        });
        connected.map_err(|source| TaskError::Connect { address, source })
    };
    let (program, arguments) = task.words.split_first().ok_or(TaskError::ByHand("there is no command"))?;
    let failed = |source| TaskError::Run { program: program.clone(), source };
    let mut input = tempfile::tempfile()?;
    input.write_all(task.input.as_bytes())?;
    input.rewind()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).env(NODE, node).env(TOWARD, address.ip().to_string());
    let output = connect(Stream::Output)?;
    let Some(surroundings) = &task.surroundings else {
        let error = command.stdout(Stdio::from(OwnedFd::from(output))).exec();
        return Err(failed(error));
    };
    let errors = connect(Stream::Errors)?;
    command.envs(&surroundings.environment).env(NODE, node).current_dir(&surroundings.directory).process_group(0);
    command
        .stdout(Stdio::from(OwnedFd::from(output.try_clone()?)))
        .stderr(Stdio::from(OwnedFd::from(errors.try_clone()?)));
    let spawned = command.spawn();
    // Otherwise this process would keep the connections open.
    drop(command);
    let mut child = spawned.map_err(|error| {
        let error = failed(error);
        let _ = writeln!(&errors, "{error}");
        error
    })?;
    drop(errors);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The starter sends nothing: its connection is read until it has ended. The command ends with it.
    std::thread::spawn(move || {
        let _ = (&output).read(&mut [0]);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = output.shutdown(Shutdown::Both);
    });
    Ok(shell_code(end::of(child.wait()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_not_started_by_hand() {
        let error = join(Path::new("/nowhere/x.task"), SocketAddr::from(([127, 0, 0, 1], 9)), "n1").unwrap_err();
        assert!(error.to_string().contains("not by hand"), "{error}");
    }
}
