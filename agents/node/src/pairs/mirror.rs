//! Checkpoints of pairs whose copies are on two nodes: the agent of the copy that is awake sends each new one to the
//! agent of the other copy, which enters it in its own registry. If the connection is slower than the checkpoints are
//! written, only the newest is sent.
//!
//! Each message names the term of the lease under which the checkpoint was written. A receiver whose own copy worked
//! under a later term refuses it; when the first one of a later term arrives, it forgets the checkpoints of earlier
//! ones, which the work that goes on does not follow. So the term is the one under which a copy has worked: a lease
//! that is held makes no work of its own out of an older checkpoint. What is refused is sent again after a pause.
//!
//! A copy that goes on from a checkpoint of the other node, and has stored none since, works on what only its own node
//! may have: the other one may have been started again without its memory. So that checkpoint is sent back, and is
//! entered if the other node has none that is as new.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::Side;
use holdfast_model::pair::{MirroredCheckpoint, Term};
use holdfast_shm::{Checkpoint, Registry};
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
const SHORTEST_ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Before another attempt to reach a peer.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a checkpoint is sent again that was refused.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a sender sleeps between two looks at the registry.
const LOOK: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);

/// A pair whose checkpoints are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub pair: u32,
    /// The term under which a copy of this node works, or worked last.
    pub term: Term,
    pub peer: SocketAddr,
    /// The time between two checkpoints.
    pub period: Duration,
}

/// Why a checkpoint is not sent for a while.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    until: Instant,
    /// Before the next attempt, if that is refused as well.
    pause: Duration,
}

#[derive(Debug, Default)]
struct Sending {
    tasks: Vec<Task>,
    /// The peers that have a thread.
    peers: BTreeSet<SocketAddr>,
    /// Counts what the senders are woken for: a sender that does not wait at that moment must not miss it.
    wake_ups: u64,
    ended: bool,
}

/// What the senders have to do.
#[derive(Debug, Default)]
struct Orders {
    sending: Mutex<Sending>,
    changed: Condvar,
}

impl Orders {
    /// Sets what is sent from now on; returns the peers that need a thread.
    fn set(&self, tasks: Vec<Task>) -> Vec<SocketAddr> {
        let mut sending = self.sending.lock();
        if sending.tasks == tasks || sending.ended {
            return Vec::new();
        }
        let new = tasks.iter().map(|task| task.peer).filter(|peer| sending.peers.insert(*peer)).collect();
        sending.tasks = tasks;
        self.wake(&mut sending);
        new
    }

    fn flush(&self) {
        self.wake(&mut self.sending.lock());
    }

    fn end(&self) {
        let mut sending = self.sending.lock();
        sending.ended = true;
        self.wake(&mut sending);
    }

    fn wake(&self, sending: &mut Sending) {
        sending.wake_ups += 1;
        self.changed.notify_all();
    }

    /// Waits for this long, or until there was a wake-up after those that were `seen`. Returns the tasks of the peer,
    /// and whether there was one; `None` if the peer needs no thread any more.
    fn next(&self, peer: SocketAddr, seen: &mut u64, pause: Duration) -> Option<(Vec<Task>, bool)> {
        let mut sending = self.sending.lock();
        let known = *seen;
        self.changed.wait_while_for(&mut sending, |sending| sending.wake_ups == known, pause);
        *seen = sending.wake_ups;
        let tasks: Vec<Task> = sending.tasks.iter().filter(|task| task.peer == peer).copied().collect();
        if sending.ended || tasks.is_empty() {
            sending.peers.remove(&peer);
            return None;
        }
        Some((tasks, *seen != known))
    }
}

#[derive(Debug)]
pub(super) struct Mirror {
    registry: Arc<Registry>,
    requests: Requests,
    connector: PeerConnector,
    answer_limit: Duration,
    orders: Orders,
    /// The latest term of each pair under which a copy of this node worked, or a checkpoint arrived. One is locked
    /// while a checkpoint of its pair is entered: a copy of that pair is not woken meanwhile, all others are.
    terms: BTreeMap<u32, Mutex<Term>>,
}

impl Mirror {
    pub fn new(
        registry: Arc<Registry>,
        requests: Requests,
        connector: PeerConnector,
        lease: Duration,
        pairs: impl Iterator<Item = u32>,
    ) -> Mirror {
        Mirror {
            registry,
            requests,
            connector,
            answer_limit: lease.max(SHORTEST_ANSWER_LIMIT),
            orders: Orders::default(),
            terms: pairs.map(|pair| (pair, Mutex::default())).collect(),
        }
    }

    /// The copy of this node worked under this term, or is about to be woken under it.
    pub fn worked(&self, pair: u32, term: Term) {
        if let Some(known) = self.terms.get(&pair) {
            let mut known = known.lock();
            *known = term.max(*known);
        }
    }

    /// Sets what is sent from now on; returns the peers for which [`Self::begin`] is to be called.
    pub fn send(&self, tasks: Vec<Task>) -> Vec<SocketAddr> {
        self.orders.set(tasks)
    }

    /// Starts the thread for a peer. Not to be called by the watcher's thread, whose processor and short slices it
    /// would inherit.
    pub fn begin(self: &Arc<Self>, peer: SocketAddr) {
        let mirror = self.clone();
        let thread = std::thread::Builder::new().name("pairs-mirror".to_owned());
        if let Err(error) = thread.spawn(move || mirror.send_to(peer)) {
            tracing::error!(%error, "pairs_not_mirrored");
            self.orders.sending.lock().peers.remove(&peer);
        }
    }

    /// Sends what is new now.
    pub fn flush(&self) {
        self.orders.flush();
    }

    pub fn end(&self) {
        self.orders.end();
    }

    /// The thread for one peer; ends when no pair has this peer.
    fn send_to(&self, peer: SocketAddr) {
        let (mut stream, mut pause, mut seen) = (None::<OutgoingStream>, Duration::ZERO, 0);
        let mut sent: BTreeMap<u32, (u64, Term)> = BTreeMap::new();
        let mut refused: BTreeMap<u32, Refusal> = BTreeMap::new();
        let (mut bytes, mut last) = (Vec::new(), Instant::now());
        while let Some((tasks, woken)) = self.orders.next(peer, &mut seen, pause) {
            let period = tasks.iter().map(|task| task.period).min().unwrap_or_default();
            pause = (period / 2).clamp(*LOOK.start(), *LOOK.end());
            let mut connected = true;
            for Task { pair, term, .. } in tasks {
                let counter = self.registry.checkpoint_counter(pair);
                let waits = refused.get(&pair).is_some_and(|refusal| !woken && Instant::now() < refusal.until);
                if counter == 0 || waits || sent.get(&pair) == Some(&(counter, term)) {
                    continue;
                }
                // One that was mirrored to this node, where no copy goes on from it, or none: the other node has it.
                let newest = self.registry.read_newest(pair, &mut bytes);
                let is_sent = |newest: &Checkpoint| newest.side.is_some() || self.is_awake(pair);
                let Ok(Some(newest)) = newest.map(|found| found.filter(is_sent)) else {
                    sent.insert(pair, (counter, term));
                    refused.remove(&pair);
                    continue;
                };
                let checkpoint = MirroredCheckpoint { term, sequence: newest.sequence };
                let returned = newest.side.is_none();
                let content = std::mem::take(&mut bytes).into();
                let message = ToMirror::Checkpoint { pair, checkpoint, tag: newest.tag, bytes: content, returned };
                match self.exchange(&mut stream, peer, &message) {
                    Ok(MirrorAnswer::Done) => {
                        last = Instant::now();
                        sent.insert(pair, (counter, term));
                        refused.remove(&pair);
                    }
                    // The other node may accept it later: an agent that has just started has no pairs yet.
                    Ok(MirrorAnswer::Refused { reason }) => {
                        last = Instant::now();
                        let pause = refused.get(&pair).map_or(PAUSE, |refusal| refusal.pause);
                        refused.insert(pair, Refusal { until: last + pause, pause: (2 * pause).min(LONGEST_PAUSE) });
                        tracing::info!(%peer, reason, "checkpoint_not_mirrored");
                    }
                    Err(error) => {
                        tracing::debug!(%peer, %error, "mirror_broken");
                        connected = false;
                        break;
                    }
                }
            }
            if connected && stream.is_some() && last.elapsed() >= IDLE {
                connected = self.exchange(&mut stream, peer, &ToMirror::Idle).is_ok();
                last = Instant::now();
            }
            if !connected {
                (stream, pause) = (None, PAUSE);
                // There may be another agent at this address, which has nothing.
                sent.clear();
                refused.clear();
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
            none => none.insert(self.connector.connect(peer, self.answer_limit)?),
        };
        let mut answer = || -> Result<MirrorAnswer, FrameError> {
            frame::send(stream, message, MIRROR)?;
            frame::receive(stream, MIRROR)
        };
        answer().map_err(|source| StreamError::Protocol { node: stream.node.clone(), source })
    }

    /// Enters a checkpoint of the other node.
    pub fn receive(&self, message: ToMirror) -> MirrorAnswer {
        let ToMirror::Checkpoint { pair, checkpoint, tag, bytes, returned } = message else {
            return MirrorAnswer::Done;
        };
        if returned && !self.has_lost(pair, checkpoint) {
            return MirrorAnswer::Done;
        }
        match self.enter(pair, checkpoint, tag, bytes.as_slice()) {
            Ok(()) => {
                self.requests.send(Request::Mirrored { pair, checkpoint });
                MirrorAnswer::Done
            }
            Err(reason) => MirrorAnswer::Refused { reason },
        }
    }

    fn is_awake(&self, pair: u32) -> bool {
        Side::BOTH.into_iter().any(|side| self.registry.is_woken(pair, side))
    }

    /// This node has no checkpoint that is as new, and no copy of it has worked under a later lease.
    fn has_lost(&self, pair: u32, checkpoint: MirroredCheckpoint) -> bool {
        let newest = self.registry.newest(pair).map_or(0, |newest| newest.sequence);
        let worked = self.terms.get(&pair).map(|known| *known.lock());
        newest < checkpoint.sequence && worked.is_none_or(|worked| worked <= checkpoint.term)
    }

    fn enter(&self, pair: u32, checkpoint: MirroredCheckpoint, tag: i64, bytes: &[u8]) -> Result<(), String> {
        let known = self.terms.get(&pair).ok_or_else(|| format!("the node has no pair number {pair}"))?;
        let mut known = known.lock();
        if checkpoint.term < *known {
            return Err(format!("pair {pair} went on here under a later lease"));
        }
        if let Some(side) = Side::BOTH.into_iter().find(|side| self.registry.is_woken(pair, *side)) {
            return Err(format!("the {side} of pair {pair} is awake here"));
        }
        let MirroredCheckpoint { term, sequence } = checkpoint;
        let entered = match term > *known {
            true => self.registry.replace_by_mirrored(pair, sequence, tag, bytes),
            false => self.registry.put_mirrored(pair, sequence, tag, bytes),
        };
        entered.map_err(|error| error.to_string())?;
        *known = term;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u64) -> Task {
        let (peer, period) = (SocketAddr::from(([127, 0, 0, 1], 1)), Duration::from_secs(60));
        Task { pair: 0, term: Term { epoch: 1, number }, peer, period }
    }

    #[test]
    fn what_happens_while_a_sender_is_busy_is_not_missed() {
        let (orders, hours, mut seen) = (Orders::default(), Duration::from_secs(3600), 0);
        let peer = task(1).peer;
        assert_eq!(orders.set(vec![task(1)]), [peer]);
        assert_eq!(orders.next(peer, &mut seen, hours), Some((vec![task(1)], true)));
        // Nobody waits, and the next wait does not begin all the same.
        orders.flush();
        assert_eq!(orders.next(peer, &mut seen, hours), Some((vec![task(1)], true)));
        assert!(orders.set(vec![task(2)]).is_empty(), "there is a thread");
        assert_eq!(orders.next(peer, &mut seen, hours), Some((vec![task(2)], true)));
        assert_eq!(orders.next(peer, &mut seen, Duration::from_millis(1)), Some((vec![task(2)], false)));
        orders.end();
        assert_eq!(orders.next(peer, &mut seen, hours), None);
    }
}
