//! The ranks of this node, at the host's end of the connection (`holdfast node ranks`). Each is a process in its own
//! group; its output is passed on, its end reported.
//!
//! When the connection ends, the ranks are killed: the supervisor treats them as lost. (The node's agent would find
//! them too, by their environment.)

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_model::{Rank, RankEnd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::allocation::ssh::on_node::{NodeCommand, NodeError, message, when_connection_ends};
use crate::launch::children::{Children, Started};

/// Maximum size of an output message.
const PIECE_BYTES: usize = 32 << 10;
/// After the end of a rank, its pipe is read until it is empty for this long, because processes that the rank left
/// behind may keep it open.
const LEFT_OVER: Duration = Duration::from_millis(500);
/// After its end, a rank's own output is at most what its pipe holds; what follows is of processes that it left behind.
const PIPE_BYTES: u64 = 1 << 20;
/// Interval at which the ends of ranks are polled.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// The output stream for messages.
type Out<W> = Arc<Mutex<W>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRanks {
    /// The command of all ranks.
    pub command: NodeCommand,
    /// The ranks, with the variables of each.
    pub ranks: BTreeMap<Rank, BTreeMap<String, String>>,
}

/// A message about the ranks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeRanksMessage {
    /// The request was read; ranks are being started.
    Up,
    /// A rank could not be started; those that were started are killed.
    Refused {
        rank: Rank,
        reason: String,
    },
    /// A rank wrote; its bytes follow this line.
    Output {
        rank: Rank,
        /// True for standard error.
        errors: bool,
        bytes: usize,
    },
    Exited {
        rank: Rank,
        end: RankEnd,
    },
    /// No rank is left.
    Done,
}

impl NodeRanksMessage {
    /// The number of bytes that follow this message.
    pub(super) fn bytes_behind(&self) -> usize {
        match self {
            NodeRanksMessage::Output { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

/// Runs the ranks to their end.
pub fn run(input: &mut impl BufRead, output: impl Write + Send + 'static) -> Result<(), NodeError> {
    let NodeRanks { command, ranks } = message(input)?;
    let (out, children) = (Arc::new(Mutex::new(output)), Arc::new(Children::default()));
    let started = Arc::clone(&children);
    when_connection_ends(move || {
        started.kill_all();
        // Further messages could not be sent.
        std::process::exit(0);
    })?;
    run_all(&command, ranks, &out, &children).map_err(NodeError::io("report", "the ranks"))
}

fn run_all<W: Write + Send + 'static>(
    command: &NodeCommand,
    ranks: BTreeMap<Rank, BTreeMap<String, String>>,
    out: &Out<W>,
    children: &Children,
) -> io::Result<()> {
    send(out, &NodeRanksMessage::Up, &[])?;
    let mut readers = BTreeMap::new();
    for (rank, variables) in ranks {
        match start(command, rank, &variables, children) {
            Ok(Some(Started { output, errors, .. })) => {
                let of_rank = [
                    output.map(|stream| OutputReader::start(stream, rank, false, out)),
                    errors.map(|stream| OutputReader::start(stream, rank, true, out)),
                ];
                readers.insert(rank, of_rank);
            }
            Ok(None) => break,
            Err(error) => {
                children.kill_all();
                let reason = format!("cannot start {}: {error}", command.words.first().map_or("", String::as_str));
                send(out, &NodeRanksMessage::Refused { rank, reason }, &[])?;
                break;
            }
        }
    }
    while !children.is_empty() {
        let ended = children.reap();
        if ended.is_empty() {
            std::thread::sleep(POLL_EVERY);
        }
        for (rank, end) in ended {
            wait_for(readers.remove(&rank).into_iter().flatten().flatten().collect());
            send(out, &NodeRanksMessage::Exited { rank, end }, &[])?;
        }
    }
    send(out, &NodeRanksMessage::Done, &[])
}

fn start(
    command: &NodeCommand,
    rank: Rank,
    variables: &BTreeMap<String, String>,
    children: &Children,
) -> io::Result<Option<Started>> {
    let (program, arguments) = command.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut process = Command::new(program);
    process
        .args(arguments)
        .current_dir(&command.directory)
        .envs(&command.environment)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    children.start(rank, &mut process)
}

/// Passes on an output stream of a rank, on a separate thread.
struct OutputReader {
    thread: JoinHandle<()>,
    /// The reading end of the pipe, to look at what it holds.
    pipe: Option<OwnedFd>,
    passed_on: Arc<PassedOn>,
}

#[derive(Debug, Default)]
struct PassedOn {
    bytes: AtomicU64,
    /// A piece was read and is being sent, which takes as long as the connection does.
    sending: AtomicBool,
}

impl OutputReader {
    fn start<W: Write + Send + 'static>(
        mut stream: impl Read + AsFd + Send + 'static,
        rank: Rank,
        errors: bool,
        out: &Out<W>,
    ) -> Self {
        let (out, passed_on) = (Arc::clone(out), Arc::new(PassedOn::default()));
        let of_thread = Arc::clone(&passed_on);
        let pipe = stream.as_fd().try_clone_to_owned().ok();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; PIECE_BYTES];
            loop {
                let bytes = match stream.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return,
                };
                of_thread.sending.store(true, Ordering::Release);
                if send(&out, &NodeRanksMessage::Output { rank, errors, bytes }, &buffer[..bytes]).is_err() {
                    return;
                }
                of_thread.bytes.fetch_add(bytes as u64, Ordering::Release);
                of_thread.sending.store(false, Ordering::Release);
            }
        });
        OutputReader { thread, pipe, passed_on }
    }

    fn bytes(&self) -> u64 {
        self.passed_on.bytes.load(Ordering::Acquire)
    }

    /// True while output waits to be sent: on a busy node the thread may not have run for some time.
    fn has_output(&self) -> bool {
        let holds_some = |pipe| rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0);
        self.passed_on.sending.load(Ordering::Acquire) || self.pipe.as_ref().is_some_and(holds_some)
    }
}

/// Waits until the output of a rank that has ended is sent: it precedes the report of the end.
fn wait_for(readers: Vec<OutputReader>) {
    for reader in readers {
        let before = reader.bytes();
        let (mut last, mut since) = (before, Instant::now());
        while !reader.thread.is_finished() && last - before < PIPE_BYTES && since.elapsed() < LEFT_OVER {
            std::thread::sleep(POLL_EVERY / 5);
            let now = reader.bytes();
            if now != last || reader.has_output() {
                (last, since) = (now, Instant::now());
            }
        }
    }
}

fn send<W: Write>(out: &Out<W>, message: &NodeRanksMessage, bytes: &[u8]) -> io::Result<()> {
    let mut message = serde_json::to_vec(message)?;
    message.push(b'\n');
    message.extend_from_slice(bytes);
    let mut out = out.lock();
    out.write_all(&message)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::ssh::on_node::line;
    use rustix::process::{Pid, Signal};

    /// Every message of ranks that run this script, with the bytes that follow each.
    fn messages_of(script: &str, ranks: u32) -> Vec<(NodeRanksMessage, Vec<u8>)> {
        let command = NodeCommand {
            words: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            directory: "/".into(),
            environment: BTreeMap::from([("JOB".to_owned(), "17".to_owned())]),
        };
        let variables = |rank: u32| BTreeMap::from([("RANK".to_owned(), rank.to_string())]);
        let ranks = (0..ranks).map(|rank| (Rank(rank), variables(rank))).collect();
        let out = Arc::new(Mutex::new(Vec::new()));
        run_all(&command, ranks, &out, &Children::default()).unwrap();
        let bytes = out.lock().clone();
        let mut rest = &bytes[..];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message: NodeRanksMessage = serde_json::from_slice(&line(&mut rest).unwrap()).unwrap();
            let mut follow = Vec::new();
            if let NodeRanksMessage::Output { bytes, .. } = message {
                follow = rest[..bytes].to_vec();
                rest = &rest[bytes..];
            }
            messages.push((message, follow));
        }
        messages
    }

    #[test]
    fn the_output_of_each_rank_is_sent_before_its_end() {
        let messages = messages_of("echo rank $RANK of $JOB; echo oops >&2; exit $RANK", 2);
        for rank in [0, 1] {
            let output_of = |errors_only: bool| {
                let is_of = |message: &&(NodeRanksMessage, Vec<u8>)| match &message.0 {
                    NodeRanksMessage::Output { rank: of, errors, .. } => of.0 == rank && *errors == errors_only,
                    _ => false,
                };
                messages.iter().filter(is_of).flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>()
            };
            assert_eq!(output_of(false), format!("rank {rank} of 17\n").into_bytes());
            assert_eq!(output_of(true), b"oops\n");
            let end = NodeRanksMessage::Exited { rank: Rank(rank), end: RankEnd::Code(rank as i32) };
            let at = messages.iter().position(|(message, _)| *message == end).unwrap();
            let last = messages
                .iter()
                .rposition(|(message, _)| matches!(message, NodeRanksMessage::Output { rank: of, .. } if of.0 == rank));
            assert!(last.unwrap() < at);
        }
        assert_eq!(messages.last().unwrap().0, NodeRanksMessage::Done);
    }

    #[test]
    fn a_signal_is_reported_without_waiting_for_processes_that_the_rank_leaves_behind() {
        let mut messages = messages_of("sleep 600 & echo $!; kill -KILL $$", 1);
        assert_eq!(messages.remove(0).0, NodeRanksMessage::Up);
        let child: i32 = String::from_utf8(messages[0].1.clone()).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
        assert_eq!(messages[1].0, NodeRanksMessage::Exited { rank: Rank(0), end: RankEnd::Signal(9) });
    }

    #[test]
    fn a_missing_program_is_refused_once() {
        let command =
            NodeCommand { words: vec!["/no/such".to_owned()], directory: "/".into(), environment: BTreeMap::new() };
        let ranks = (0..3).map(|rank| (Rank(rank), BTreeMap::new())).collect();
        let out = Arc::new(Mutex::new(Vec::new()));
        run_all(&command, ranks, &out, &Children::default()).unwrap();
        let text = String::from_utf8(out.lock().clone()).unwrap();
        assert_eq!(text.matches("refused").count(), 1, "{text}");
        assert!(text.contains("/no/such"), "{text}");
    }
}
