//! The ranks of this node, at the host's end of the connection (`holdfast node ranks`). Each is a process in its own
//! group; its output is passed on, its end reported.
//!
//! When the connection ends, the ranks are killed: the supervisor treats them as lost. (The node's agent would find
//! them too, by their environment.)

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::{Rank, RankEnd};
use holdfast_process::{Children, OutputPipes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGCHLD;

use crate::allocation::ssh::on_node::{NodeCommand, NodeError, message, when_connection_ends};
use crate::launch::Obstacle;
use crate::launch::ranks::{self, RankCommand, RankReports};

/// Maximum size of an output message.
const PIECE_BYTES: usize = 32 << 10;
/// After the end of a rank, its pipe is read until it is empty for this long, because processes that the rank left
/// behind may keep it open.
const LEFT_OVER: Duration = Duration::from_millis(500);
/// After its end, a rank's own output is at most what its pipe holds; what follows is of processes that it left behind.
const PIPE_BYTES: usize = 1 << 20;
/// Interval at which it is checked whether a rank that has ended has left its pipes empty.
const LOOK_AT_ENDING: Duration = Duration::from_millis(20);

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
        #[serde(default)]
        obstacle: Obstacle,
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
pub fn run(input: &mut impl BufRead, output: impl Write) -> Result<(), NodeError> {
    let NodeRanks { command, ranks } = message(input)?;
    let children = Arc::new(Children::default());
    let started = Arc::clone(&children);
    when_connection_ends(move || {
        started.kill_all();
        // Further messages could not be sent.
        std::process::exit(0);
    })?;
    run_all(&command, &ranks, output, &children).map_err(NodeError::io("report", "the ranks"))
}

fn run_all(
    command: &NodeCommand,
    ranks: &BTreeMap<Rank, BTreeMap<String, String>>,
    output: impl Write,
    children: &Children,
) -> io::Result<()> {
    let (program, arguments) = command.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let of_all = RankCommand {
        program: Path::new(program),
        arguments,
        directory: &command.directory,
        environment: &command.environment,
    };
    let mut connection = RankConnection::new(output)?;
    connection.send(&NodeRanksMessage::Up, &[])?;
    let ranks = ranks.iter().map(|(rank, variables)| (*rank, variables));
    ranks::run(children, of_all, ranks, &mut connection)?;
    connection.send(&NodeRanksMessage::Done, &[])
}

/// The ranks' output and ends, passed on by one thread. A rank whose output is not taken waits in its pipe.
struct RankConnection<W> {
    out: W,
    /// Readable when a child has ended.
    child_ended: UnixStream,
    pipes: Vec<RankPipe>,
    /// Ranks that have ended, and whose output is still read.
    ending: BTreeMap<Rank, EndingRank>,
    buffer: Vec<u8>,
}

/// An output stream of a rank.
struct RankPipe {
    rank: Rank,
    /// True for standard error.
    errors: bool,
    pipe: OwnedFd,
}

struct EndingRank {
    end: RankEnd,
    /// What was passed on since the end.
    bytes: usize,
    /// When output was passed on last.
    since: Instant,
}

impl<W: Write> RankConnection<W> {
    fn new(out: W) -> io::Result<Self> {
        let (child_ended, signalled) = UnixStream::pair()?;
        child_ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, signalled)?;
        Ok(RankConnection {
            out,
            child_ended,
            pipes: Vec::new(),
            ending: BTreeMap::new(),
            buffer: vec![0; PIECE_BYTES],
        })
    }

    fn send(&mut self, message: &NodeRanksMessage, bytes: &[u8]) -> io::Result<()> {
        send(&mut self.out, message, bytes)
    }

    /// Waits for output or an end, and passes on a piece of each stream that has output.
    fn pass_on(&mut self) -> io::Result<()> {
        let limit = Some(LOOK_AT_ENDING).filter(|_| !self.ending.is_empty());
        let limit = limit.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let ended = PollFd::new(&self.child_ended, PollFlags::IN);
        let pipes = self.pipes.iter().map(|stream| PollFd::new(&stream.pipe, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = std::iter::once(ended).chain(pipes).collect();
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let readable: Vec<bool> = polled.iter().skip(1).map(|stream| !stream.revents().is_empty()).collect();
        while (&self.child_ended).read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        let mut readable = readable.into_iter();
        let mut pipes = std::mem::take(&mut self.pipes);
        let mut sent = Ok(());
        pipes.retain(|stream| match &sent {
            Ok(()) if readable.next() == Some(true) => self.pass_on_piece(stream).unwrap_or_else(|error| {
                sent = Err(error);
                false
            }),
            _ => true,
        });
        self.pipes = pipes;
        sent
    }

    /// Passes on what a stream has. False at its end.
    fn pass_on_piece(&mut self, stream: &RankPipe) -> io::Result<bool> {
        let bytes = match rustix::io::read(&stream.pipe, &mut self.buffer) {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(Errno::INTR) => return Ok(true),
            Err(_) => return Ok(false),
        };
        let &RankPipe { rank, errors, .. } = stream;
        send(&mut self.out, &NodeRanksMessage::Output { rank, errors, bytes }, &self.buffer[..bytes])?;
        if let Some(ending) = self.ending.get_mut(&rank) {
            (ending.bytes, ending.since) = (ending.bytes + bytes, Instant::now());
        }
        Ok(true)
    }

    /// Reports the ends of ranks whose output was passed on.
    fn report_ends(&mut self) -> io::Result<()> {
        let is_over = |rank: &Rank, ending: &EndingRank| {
            ending.bytes >= PIPE_BYTES
                || ending.since.elapsed() >= LEFT_OVER
                || !self.pipes.iter().any(|stream| stream.rank == *rank)
        };
        let over: Vec<(Rank, RankEnd)> = self
            .ending
            .iter()
            .filter(|(rank, ending)| is_over(rank, ending))
            .map(|(rank, it)| (*rank, it.end))
            .collect();
        for (rank, end) in over {
            self.ending.remove(&rank);
            self.send(&NodeRanksMessage::Exited { rank, end }, &[])?;
        }
        Ok(())
    }
}

impl<W: Write> RankReports for RankConnection<W> {
    type Error = io::Error;

    fn streams(&mut self, _rank: Rank) -> io::Result<(Stdio, Stdio)> {
        Ok((Stdio::piped(), Stdio::piped()))
    }

    fn started(&mut self, rank: Rank, _pid: u32, pipes: OutputPipes) -> io::Result<()> {
        let output = pipes.output.map(|pipe| RankPipe { rank, errors: false, pipe: pipe.into() });
        let errors = pipes.errors.map(|pipe| RankPipe { rank, errors: true, pipe: pipe.into() });
        self.pipes.extend(output.into_iter().chain(errors));
        Ok(())
    }

    fn refused(&mut self, rank: Rank, error: &io::Error) -> io::Result<()> {
        self.send(
            &NodeRanksMessage::Refused { rank, reason: error.to_string(), obstacle: Obstacle::of_error(error) },
            &[],
        )
    }

    fn wait(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.report_ends()
    }

    fn ended(&mut self, rank: Rank, end: RankEnd) -> io::Result<()> {
        self.ending.insert(rank, EndingRank { end, bytes: 0, since: Instant::now() });
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ending.is_empty()
    }
}

fn send(out: &mut impl Write, message: &NodeRanksMessage, bytes: &[u8]) -> io::Result<()> {
    let mut message = serde_json::to_vec(message)?;
    message.push(b'\n');
    message.extend_from_slice(bytes);
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
        let ranks: BTreeMap<Rank, _> = (0..ranks).map(|rank| (Rank(rank), variables(rank))).collect();
        let mut bytes = Vec::new();
        run_all(&command, &ranks, &mut bytes, &Children::default()).unwrap();
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
        let ranks: BTreeMap<Rank, _> = (0..3).map(|rank| (Rank(rank), BTreeMap::new())).collect();
        let mut bytes = Vec::new();
        run_all(&command, &ranks, &mut bytes, &Children::default()).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("refused").count(), 1, "{text}");
        assert!(text.contains("/no/such"), "{text}");
    }
}
