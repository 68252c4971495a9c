//! The connection to the agent: one call at a time, with reconnection when it breaks.
//!
//! Reads have no time limit: a collective call takes as long as the slowest rank. A call ends with its reply or with
//! the end of the connection, which the kernel reports at once when the agent ends.
//!
//! A process that was forked from the rank inherits the connection. Its calls are refused: they would be taken for
//! those of the rank, and their replies would be read by either process.

use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_model::{Failure, NodeName, VariablesLayout};
use holdfast_wire::frame::{self, FrameError, Frames, HELLO};
use holdfast_wire::rank::{Call, Hello, Interface, Reply, TO_AGENT, TO_RANK, ToAgent, ToRank};
use holdfast_wire::{VERSION, socket};

use crate::environment::{AgentAddress, Environment};
use crate::error::ClientError;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The minimum time limit of a handshake.
const MIN_HANDSHAKE: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    agent: AgentAddress,
    hello: Hello,
    budget: Duration,
    /// Buffered: one system call reads a complete reply.
    stream: Option<BufReader<UnixStream>>,
    node: Option<NodeName>,
    layout: VariablesLayout,
    interrupter: Interrupter,
    /// The process that may use the connection.
    process: u32,
}

/// Ends a [`Client::await_checkpoint`](crate::Client::await_checkpoint) of another thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupter {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    interrupted: bool,
    /// The connection of the call that waits, and the process that made the call.
    stream: Option<(UnixStream, u32)>,
}

impl Interrupter {
    /// Makes the call return, or the next one if none is waiting.
    pub fn interrupt(&self) {
        let mut waiting = self.waiting();
        waiting.interrupted = true;
        if let Some((stream, process)) = waiting.stream.take()
            && process == std::process::id()
        {
            // The call is repeated on a new connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The call no longer waits: later interruptions must not break the connection of other calls.
    fn end(&self) {
        self.waiting().stream = None;
    }

    /// True once for each interruption.
    fn take(&self) -> bool {
        std::mem::take(&mut self.waiting().interrupted)
    }

    /// A call begins to wait; false if it was interrupted before.
    fn begin(&self, stream: &UnixStream) -> io::Result<bool> {
        let stream = stream.try_clone()?;
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.interrupted) {
            return Ok(false);
        }
        waiting.stream = Some((stream, std::process::id()));
        Ok(true)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub(crate) fn new(agent: AgentAddress, environment: &Environment, interface: Interface) -> Self {
        let hello = Hello {
            version: VERSION,
            job: agent.job.clone(),
            generation: agent.generation,
            rank: environment.rank,
            ranks: environment.ranks,
            interface,
        };
        Connection {
            agent,
            hello,
            budget: environment.reconnect,
            stream: None,
            node: None,
            interrupter: Interrupter::default(),
            layout: VariablesLayout::default(),
            process: std::process::id(),
        }
    }

    /// Fails in a process that was forked from the one that joined the run.
    pub(crate) fn check_process(&self, call: &'static str) -> Result<(), ClientError> {
        let own = std::process::id();
        if own == self.process { Ok(()) } else { Err(ClientError::OtherProcess { call, own, rank: self.process }) }
    }

    /// The node's name, as reported by the agent.
    pub(crate) fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// The layout in which the job's variables are written.
    #[cfg(feature = "variables")]
    pub(crate) fn layout(&self) -> VariablesLayout {
        self.layout
    }

    /// Makes a call; the inner error is a failure reported by the agent.
    pub(crate) fn call(&mut self, seq: u64, call: &Call) -> Result<Result<Reply, Failure>, ClientError> {
        loop {
            // There is always a result: the call cannot be interrupted.
            if let Some(result) = self.exchange(seq, call, false)? {
                return Ok(result);
            }
        }
    }

    /// Makes a call that [`Interrupter::interrupt`] ends; then `None`.
    pub(crate) fn call_interruptibly(
        &mut self,
        seq: u64,
        call: &Call,
    ) -> Result<Option<Result<Reply, Failure>>, ClientError> {
        self.exchange(seq, call, true)
    }

    fn exchange(
        &mut self,
        seq: u64,
        call: &Call,
        interruptible: bool,
    ) -> Result<Option<Result<Reply, Failure>>, ClientError> {
        let name = call.name();
        self.check_process(name)?;
        let message = ToAgent::Call { seq, call: call.clone() };
        let request =
            frame::encode(&message, TO_AGENT).map_err(|source| ClientError::Unsendable { call: name, source })?;
        let mut budget = RetryBudget::new(self.budget);
        loop {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => self.connect(name, &mut budget)?,
            };
            let answer = match interruptible {
                true => match self.interrupter.begin(stream.get_ref()) {
                    Ok(true) => exchange(&mut stream, &request),
                    Ok(false) => {
                        self.stream = Some(stream);
                        return Ok(None);
                    }
                    Err(error) => Err(FrameError::Io(error)),
                },
                false => exchange(&mut stream, &request),
            };
            if interruptible {
                self.interrupter.end();
                if answer.is_err() && self.interrupter.take() {
                    return Ok(None);
                }
            }
            match answer {
                Ok(ToRank::Reply { seq: answered, result }) if answered == seq => {
                    self.stream = Some(stream);
                    return Ok(Some(result));
                }
                Ok(ToRank::Refused { failure }) => return Err(self.refused(name, failure)),
                Ok(other) => {
                    let answer = format!("{other:?}").chars().take(200).collect::<String>();
                    return Err(ClientError::Unexpected { call: name, answer: format!("{answer} to call {seq}") });
                }
                // The agent ended. Its successor may end during the same call too, so this uses the budget as well.
                Err(FrameError::Io(source)) => budget.pause(self, name, source)?,
                Err(source) => return Err(self.garbled(name, source)),
            }
        }
    }

    fn connect(&mut self, call: &'static str, budget: &mut RetryBudget) -> Result<BufReader<UnixStream>, ClientError> {
        loop {
            match self.handshake(budget.left.max(MIN_HANDSHAKE)) {
                Ok((stream, ToRank::Welcome { node, layout })) => {
                    (self.node, self.layout) = (Some(node), layout);
                    return Ok(BufReader::new(stream));
                }
                Ok((_, ToRank::Refused { failure })) => return Err(self.refused(call, failure)),
                Ok((_, ToRank::Reply { seq, .. })) => {
                    return Err(ClientError::Unexpected { call, answer: format!("a reply to call {seq} to hello") });
                }
                Err(FrameError::Io(source)) => {
                    if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                        budget.left = Duration::ZERO;
                    }
                    budget.pause(self, call, source)?;
                }
                Err(source) => return Err(self.garbled(call, source)),
            }
        }
    }

    fn handshake(&self, limit: Duration) -> Result<(UnixStream, ToRank), FrameError> {
        let mut stream = socket::connect(&self.agent.socket)?;
        // A handshake does not depend on other ranks: an agent that does not reply is stuck.
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

/// The remaining time for reconnecting. Only pauses count, not the time of a long collective call between failures.
struct RetryBudget {
    left: Duration,
    pause: Duration,
}

impl RetryBudget {
    fn new(total: Duration) -> Self {
        RetryBudget { left: total, pause: FIRST_PAUSE }
    }

    fn pause(&mut self, connection: &Connection, call: &'static str, source: io::Error) -> Result<(), ClientError> {
        if self.left.is_zero() {
            let socket = connection.agent.socket.clone();
            return Err(ClientError::Unreachable { call, socket, waited: connection.budget, source });
        }
        let pause = self.pause.min(self.left);
        std::thread::sleep(pause);
        self.left -= pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}
