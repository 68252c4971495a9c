//! Checkpoints of pairs whose copies are on two nodes: the agent of the copy that is awake sends each new one to the
//! agent of the other copy, which enters it in its own registry. If the connection is slower than the checkpoints are
//! written, only the newest is sent.
//!
//! Each message names the term of the lease under which the checkpoint was written. A receiver whose own copy worked
//! under a later term refuses it; when the first one of a later term arrives, it forgets the checkpoints of earlier
//! ones, which the work that goes on does not follow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::Side;
use holdfast_model::pair::{MirroredCheckpoint, Term};
use holdfast_shm::Registry;
use holdfast_wire::frame::{self, FrameError};
use holdfast_wire::peer::{MIRROR, MirrorAnswer, ToMirror};
use parking_lot::{Condvar, Mutex};

use super::requests::{Request, Requests};
use crate::stream::{OutgoingStream, PeerConnector, StreamError};

/// The longest time without a message on a connection.
pub(crate) const QUIET: Duration = Duration::from_secs(30);
/// After so long, a sender without checkpoints says that it is there.
const IDLE: Duration = Duration::from_secs(10);
/// The shortest time for which an answer is waited for.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);
/// Before another attempt to reach a peer.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a sender sleeps between two looks at the registry.
const LOOK: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);

/// A pair whose checkpoints are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub pair: u32,
    /// The lease that is held, or was held last.
    pub term: Term,
    pub peer: SocketAddr,
    /// The time between two checkpoints.
    pub period: Duration,
}

#[derive(Debug, Default)]
struct Sending {
    tasks: Vec<Task>,
    /// The peers that have a thread.
    peers: BTreeSet<SocketAddr>,
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Mirror {
    registry: Arc<Registry>,
    requests: Requests,
    connector: PeerConnector,
    patience: Duration,
    sending: Mutex<Sending>,
    changed: Condvar,
    /// The latest term of each pair under which a copy of this node worked, or a checkpoint arrived. Locked while one
    /// is entered: a copy is not woken meanwhile.
    terms: Mutex<BTreeMap<u32, Term>>,
}

impl Mirror {
    pub fn new(registry: Arc<Registry>, requests: Requests, connector: PeerConnector, lease: Duration) -> Mirror {
        Mirror {
            registry,
            requests,
            connector,
            patience: lease.max(LEAST_PATIENCE),
            sending: Mutex::default(),
            changed: Condvar::new(),
            terms: Mutex::default(),
        }
    }

    /// The copy of this node worked under this term, or is about to be woken under it.
    pub fn worked(&self, pair: u32, term: Term) {
        let mut terms = self.terms.lock();
        let known = terms.entry(pair).or_default();
        *known = term.max(*known);
    }

    /// Sets what is sent from now on.
    pub fn send(self: &Arc<Self>, tasks: Vec<Task>) {
        let mut sending = self.sending.lock();
        if sending.tasks == tasks || sending.ended {
            return;
        }
        for task in &tasks {
            if sending.peers.insert(task.peer) {
                let (mirror, peer) = (self.clone(), task.peer);
                let thread = std::thread::Builder::new().name("pairs-mirror".to_owned());
                if let Err(error) = thread.spawn(move || mirror.send_to(peer)) {
                    tracing::error!(%error, "pairs_not_mirrored");
                    sending.peers.remove(&task.peer);
                }
            }
        }
        sending.tasks = tasks;
        self.changed.notify_all();
    }

    /// Sends what is new now.
    pub fn flush(&self) {
        self.changed.notify_all();
    }

    /// Sends nothing any more.
    pub fn end(&self) {
        self.sending.lock().ended = true;
        self.changed.notify_all();
    }

    /// The thread for one peer; ends when no pair has this peer.
    fn send_to(&self, peer: SocketAddr) {
        let (mut stream, mut pause) = (None::<OutgoingStream>, Duration::ZERO);
        let mut sent: BTreeMap<u32, (u64, Term)> = BTreeMap::new();
        let (mut bytes, mut last) = (Vec::new(), Instant::now());
        loop {
            let tasks: Vec<Task> = {
                let mut sending = self.sending.lock();
                if !pause.is_zero() {
                    self.changed.wait_for(&mut sending, pause);
                }
                let tasks: Vec<Task> = sending.tasks.iter().filter(|task| task.peer == peer).copied().collect();
                if sending.ended || tasks.is_empty() {
                    sending.peers.remove(&peer);
                    return;
                }
                tasks
            };
            let period = tasks.iter().map(|task| task.period).min().unwrap_or_default();
            pause = (period / 2).clamp(*LOOK.start(), *LOOK.end());
            let mut send = |message: &ToMirror| match self.exchange(&mut stream, peer, message) {
                Ok(MirrorAnswer::Done) => {
                    last = Instant::now();
                    true
                }
                Ok(MirrorAnswer::Refused { reason }) => {
                    tracing::info!(%peer, reason, "checkpoint_not_mirrored");
                    true
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "mirror_broken");
                    stream = None;
                    false
                }
            };
            let mut connected = true;
            for Task { pair, term, .. } in tasks {
                let counter = self.registry.checkpoint_counter(pair);
                if counter == 0 || sent.get(&pair) == Some(&(counter, term)) {
                    continue;
                }
                let newest = self.registry.read_newest(pair, &mut bytes);
                // One that was mirrored to this node, or none: the other node has it.
                let Ok(Some(newest)) = newest.map(|found| found.filter(|newest| newest.side.is_some())) else {
                    sent.insert(pair, (counter, term));
                    continue;
                };
                let checkpoint = MirroredCheckpoint { term, sequence: newest.sequence };
                let content = std::mem::take(&mut bytes).into();
                connected = send(&ToMirror::Checkpoint { pair, checkpoint, tag: newest.tag, bytes: content });
                if !connected {
                    break;
                }
                sent.insert(pair, (counter, term));
            }
            if connected && stream.is_some() && last.elapsed() >= IDLE {
                connected = self.exchange(&mut stream, peer, &ToMirror::Idle).is_ok();
                last = Instant::now();
            }
            if !connected {
                stream = None;
                pause = PAUSE;
            }
        }
    }

    fn exchange(
        &self,
        stream: &mut Option<OutgoingStream>,
        peer: SocketAddr,
        message: &ToMirror,
    ) -> Result<MirrorAnswer, StreamError> {
        let stream = match stream {
            Some(stream) => stream,
            none => none.insert(self.connector.connect(peer, self.patience)?),
        };
        let mut answer = || -> Result<MirrorAnswer, FrameError> {
            frame::send(stream, message, MIRROR)?;
            frame::receive(stream, MIRROR)
        };
        answer().map_err(|source| StreamError::Protocol { node: stream.node.clone(), source })
    }

    /// Enters a checkpoint of the other node.
    pub fn receive(&self, message: ToMirror) -> MirrorAnswer {
        let ToMirror::Checkpoint { pair, checkpoint, tag, bytes } = message else { return MirrorAnswer::Done };
        match self.enter(pair, checkpoint, tag, bytes.as_slice()) {
            Ok(()) => {
                self.requests.send(Request::Mirrored { pair, checkpoint });
                MirrorAnswer::Done
            }
            Err(reason) => MirrorAnswer::Refused { reason },
        }
    }

    fn enter(&self, pair: u32, checkpoint: MirroredCheckpoint, tag: i64, bytes: &[u8]) -> Result<(), String> {
        let mut terms = self.terms.lock();
        let known = terms.get(&pair).copied().unwrap_or_default();
        if checkpoint.term < known {
            return Err(format!("pair {pair} went on here under a later lease"));
        }
        if let Some(side) = Side::BOTH.into_iter().find(|side| self.registry.is_woken(pair, *side)) {
            return Err(format!("the {side} of pair {pair} is awake here"));
        }
        if checkpoint.term > known {
            self.registry.forget_checkpoints(pair).map_err(|error| error.to_string())?;
            terms.insert(pair, checkpoint.term);
        }
        self.registry.put_mirrored(pair, checkpoint.sequence, tag, bytes).map_err(|error| error.to_string())
    }
}
