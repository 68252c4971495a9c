//! What reaches the watcher's thread from others: requests of the orchestrator, processes that were started, mirrored
//! checkpoints.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use holdfast_failover::CommandRefused;
use holdfast_model::pair::{Grant, MirroredCheckpoint, PairCommand, PairStatus, Revocation};
use holdfast_process::ObservedProcess;
use holdfast_wire::pairs::{PairsPlan, PeerOfPair};
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::process::ProcessOwner;

#[derive(Debug)]
pub(super) enum Request {
    Started {
        owner: ProcessOwner,
        process: Result<ObservedProcess, String>,
    },
    /// The same plan, perhaps of another orchestrator, or with other addresses.
    Plan(PairsPlan),
    /// From the orchestrator, for this instance of the agent.
    Leases {
        leases: Vec<Grant>,
        revoke: Vec<Revocation>,
        finished: Vec<u32>,
    },
    Command {
        pair: u32,
        command: PairCommand,
        reply: oneshot::Sender<Result<PairStatus, CommandFault>>,
    },
    /// Pairs whose other copy has moved to another agent, or whose agent has another address now.
    Peers(Vec<PeerOfPair>),
    /// The newest checkpoint of the other node is in the registry.
    Mirrored {
        pair: u32,
        checkpoint: MirroredCheckpoint,
    },
    /// Ends all copies and jobs; answered when they are gone.
    Stop {
        /// Kills them without SIGTERM and `stop_grace`.
        at_once: bool,
        reply: oneshot::Sender<()>,
    },
}

/// Why a command was not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandFault {
    #[error("the node has no pair number {0}")]
    NoSuchPair(u32),
    #[error(transparent)]
    Refused(#[from] CommandRefused),
}

/// Hands requests to the watcher's thread; clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    sender: Sender<Request>,
    event: Arc<OwnedFd>,
}

/// The requests that the watcher's thread has not taken yet.
#[derive(Debug)]
pub(super) struct Inbox {
    receiver: Receiver<Request>,
    event: Arc<OwnedFd>,
}

pub(super) fn requests() -> std::io::Result<(Requests, Inbox)> {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = channel();
    Ok((Requests { sender, event: event.clone() }, Inbox { receiver, event }))
}

impl Requests {
    /// Hands a request to the watcher; without effect after it has ended.
    pub fn send(&self, request: Request) {
        if self.sender.send(request).is_ok() {
            // Fails only if the counter is full: then the watcher is woken anyway.
            let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Inbox {
    /// Readable when there is a request.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The next request, if there is one.
    pub fn next(&self) -> Option<Request> {
        self.receiver.try_recv().ok()
    }

    /// Forgets that there were requests; to be called before they are taken.
    pub fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.event, &mut count);
    }
}
