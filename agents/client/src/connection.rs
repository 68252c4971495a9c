//! The connection to the agent: one call at a time, and a new connection when the old one breaks.
//!
//! A read has no time limit: a collective takes as long as the slowest rank. What ends a call is its answer, or the
//! end of the connection, which the kernel tells at once when the agent dies.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdfast_model::{Failure, NodeName};
use holdfast_wire::frame::{self, FrameError, Frames, HELLO};
use holdfast_wire::rank::{Call, Hello, Reply, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::{VERSION, socket};

use crate::error::ClientError;
use crate::surroundings::{AgentAddress, Surroundings};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The least time that an agent gets to answer hello.
const LEAST_WELCOME: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    agent: AgentAddress,
    hello: Hello,
    patience: Duration,
    /// Buffered: one system call reads a whole reply.
    stream: Option<BufReader<UnixStream>>,
    node: Option<NodeName>,
}

impl Connection {
    pub(crate) fn new(agent: AgentAddress, surroundings: &Surroundings) -> Self {
        let hello = Hello {
            version: VERSION,
            job: agent.job.clone(),
            generation: agent.generation,
            rank: surroundings.rank,
            ranks: surroundings.ranks,
        };
        Connection { agent, hello, patience: surroundings.reconnect, stream: None, node: None }
    }

    /// The node's name, as the agent gave it.
    pub(crate) fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    /// Makes a call; the agent's own "no" is the inner result.
    pub(crate) fn call(&mut self, seq: u64, call: &Call) -> Result<Result<Reply, Failure>, ClientError> {
        let name = call.name();
        let message = ToAgent::Call { seq, call: call.clone() };
        let request =
            frame::encode(&message, TO_AGENT).map_err(|source| ClientError::Unsendable { call: name, source })?;
        let mut patience = Patience::new(self.patience);
        loop {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => self.connect(name, &mut patience)?,
            };
            match exchange(&mut stream, &request) {
                Ok(ToRank::Reply { seq: answered, result }) if answered == seq => {
                    self.stream = Some(stream);
                    return Ok(result);
                }
                Ok(ToRank::Refused { failure }) => return Err(self.refused(name, failure)),
                Ok(other) => {
                    let answer = format!("{other:?}").chars().take(200).collect::<String>();
                    return Err(ClientError::Unexpected { call: name, answer: format!("{answer} to call {seq}") });
                }
                // The agent is gone. Its successor may die of the same call, so this counts as waiting too.
                Err(FrameError::Io(source)) => patience.pause(self, name, source)?,
                Err(source) => return Err(self.garbled(name, source)),
            }
        }
    }

    fn connect(&mut self, call: &'static str, patience: &mut Patience) -> Result<BufReader<UnixStream>, ClientError> {
        loop {
            match self.greet(patience.left.max(LEAST_WELCOME)) {
                Ok((stream, ToRank::Welcome { node })) => {
                    self.node = Some(node);
                    return Ok(BufReader::new(stream));
                }
                Ok((_, ToRank::Refused { failure })) => return Err(self.refused(call, failure)),
                Ok((_, ToRank::Reply { seq, .. })) => {
                    return Err(ClientError::Unexpected { call, answer: format!("a reply to call {seq} to hello") });
                }
                Err(FrameError::Io(source)) => {
                    if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                        patience.left = Duration::ZERO;
                    }
                    patience.pause(self, call, source)?;
                }
                Err(source) => return Err(self.garbled(call, source)),
            }
        }
    }

    fn greet(&self, limit: Duration) -> Result<(UnixStream, ToRank), FrameError> {
        let mut stream = socket::connect(&self.agent.socket)?;
        // Here nobody waits for other ranks: an agent that does not answer is stuck.
        stream.set_read_timeout(Some(limit))?;
        frame::send(&mut stream, &ToAgent::Hello(self.hello.clone()), HELLO)?;
        let answer = frame::receive(&mut stream, HELLO)?;
        stream.set_read_timeout(None)?;
        Ok((stream, answer))
    }

    fn refused(&self, call: &'static str, source: Failure) -> ClientError {
        ClientError::Refused { call, socket: self.agent.socket.clone(), source }
    }

    fn garbled(&self, call: &'static str, source: FrameError) -> ClientError {
        ClientError::Garbled { call, socket: self.agent.socket.clone(), source }
    }
}

fn exchange(stream: &mut BufReader<UnixStream>, request: &Frames) -> Result<ToRank, FrameError> {
    frame::write(stream.get_mut(), request)?;
    frame::receive(stream, TO_RANK)
}

/// How long we still try. Only waiting counts, so that a long collective between two failures costs nothing.
struct Patience {
    left: Duration,
    pause: Duration,
}

impl Patience {
    fn new(total: Duration) -> Self {
        Patience { left: total, pause: FIRST_PAUSE }
    }

    fn pause(&mut self, connection: &Connection, call: &'static str, source: io::Error) -> Result<(), ClientError> {
        if self.left.is_zero() {
            let socket = connection.agent.socket.clone();
            return Err(ClientError::Unreachable { call, socket, waited: connection.patience, source });
        }
        let pause = self.pause.min(self.left);
        std::thread::sleep(pause);
        self.left -= pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
