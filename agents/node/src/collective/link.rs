//! A connection between a member and the leader as a pair of channels.
//!
//! The channels are not bounded, because the protocol limits what waits in them: for a member, at most one message of
//! each order under way and the results of one collective. Large results are shared by all links, not copied. The link
//! of a member that does not read for [`STALLED`] is closed: the member connects again when it can, and gets what it
//! has missed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Failure, NodeName};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::frame::{self, FrameError, Frames, receive_async};
use holdfast_wire::peer::{Delivery, Endpoint, LINK, ToLeader, ToMember};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::error::CallError;
use crate::agent::Agent;

/// How long the other end may not read.
const STALLED: Duration = Duration::from_secs(60);

/// A link as channels: to the other end, and from it.
pub(super) type Channels<Out, In> = (mpsc::UnboundedSender<Out>, mpsc::UnboundedReceiver<In>);

/// The leader's end of a link. Orders are sent with the addresses of the peers that they concern: a member has no
/// others.
pub(super) fn to_member<S>(agent: Arc<Agent>, node: &NodeName, stream: S) -> Channels<ToMember, ToLeader>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut sent = HashMap::new();
    let address = {
        let agent = agent.clone();
        move |message: ToMember| {
            let addresses = match &message {
                ToMember::Order { what, .. } => {
                    // The node's own as well: after a restart in another shape it may run several members of a group.
                    let peers = what.peers().into_iter();
                    let known = peers.filter_map(|peer| Some((peer.clone(), agent.streams.endpoint(peer)?)));
                    new_addresses(&mut sent, known)
                }
                ToMember::Cancel { .. } | ToMember::LiftLimits { .. } | ToMember::Results { .. } => Vec::new(),
            };
            Delivery { addresses, message }
        }
    };
    carry(agent, node, stream, address, |message| message)
}

/// The member's end of a link.
pub(super) fn to_leader<S>(agent: Arc<Agent>, leader: &NodeName, stream: S) -> Channels<ToLeader, ToMember>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let receive = {
        let agent = agent.clone();
        move |delivery: Delivery| {
            agent.streams.update_addresses(delivery.addresses);
            delivery.message
        }
    };
    carry(agent, leader, stream, |message| message, receive)
}

/// The addresses that are not in `sent`, or have changed; adds them to `sent`.
fn new_addresses(
    sent: &mut HashMap<NodeName, Endpoint>,
    known: impl Iterator<Item = (NodeName, Endpoint)>,
) -> Vec<(NodeName, Endpoint)> {
    known.filter(|(node, endpoint)| sent.insert(node.clone(), *endpoint) != Some(*endpoint)).collect()
}

/// A message on a link, and its replacement if it is too large to be sent: without one, the other end would wait for it
/// for ever.
trait OnLink: Serialize + Sized {
    /// The messages in the other direction.
    type Back;

    fn unsendable(&self, failure: Failure) -> Replacement<Self, Self::Back>;
}

/// In place of a message that cannot be sent.
#[derive(Debug)]
enum Replacement<Out, In> {
    Send(Out),
    /// Acts as if the other end had sent this answer.
    Receive(In),
    /// The message is never too large.
    Nothing,
}

impl OnLink for Delivery {
    type Back = ToLeader;

    fn unsendable(&self, failure: Failure) -> Replacement<Delivery, ToLeader> {
        match self.message {
            ToMember::Order { order, .. } => Replacement::Receive(ToLeader::Done { order, result: Err(failure) }),
            ToMember::Results { seq, .. } => {
                let message = ToMember::Results { seq, outcome: Err(failure) };
                Replacement::Send(Delivery { addresses: Vec::new(), message })
            }
            ToMember::Cancel { .. } | ToMember::LiftLimits { .. } => Replacement::Nothing,
        }
    }
}

impl OnLink for ToLeader {
    type Back = ToMember;

    fn unsendable(&self, failure: Failure) -> Replacement<ToLeader, ToMember> {
        match self {
            ToLeader::Done { order, .. } => Replacement::Send(ToLeader::Done { order: *order, result: Err(failure) }),
            ToLeader::Calls { seq, .. } => Replacement::Receive(ToMember::Results { seq: *seq, outcome: Err(failure) }),
            ToLeader::Terminated => Replacement::Nothing,
        }
    }
}

/// The frames of a message, or of its replacement; `None` if nothing is to be sent.
fn frames<Out: OnLink>(message: &Out, back: impl FnOnce(Out::Back)) -> Result<Option<Frames>, FrameError> {
    let error = match frame::encode(message, LINK) {
        Ok(frames) => return Ok(Some(frames)),
        Err(error) => error,
    };
    tracing::error!(%error, "message_not_sent");
    match message.unsendable(CallError::from(error).into()) {
        Replacement::Send(replacement) => frame::encode(&replacement, LINK).map(Some),
        Replacement::Receive(answer) => {
            back(answer);
            Ok(None)
        }
        Replacement::Nothing => Ok(None),
    }
}

/// Connects a pair of channels to a connection; both end with it.
fn carry<S, Out, Sent, Received, In>(
    agent: Arc<Agent>,
    other: &NodeName,
    stream: S,
    mut outgoing: impl FnMut(Out) -> Sent + Send + 'static,
    mut incoming: impl FnMut(Received) -> In + Send + 'static,
) -> Channels<Out, In>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    Out: Send + 'static,
    Sent: OnLink<Back = In> + Send + Sync + 'static,
    Received: DeserializeOwned + Send + 'static,
    In: Send + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (out_sender, mut out_receiver) = mpsc::unbounded_channel::<Out>();
    let (in_sender, in_receiver) = mpsc::unbounded_channel();
    // A weak sender: the channel ends with the reading task.
    let back = in_sender.downgrade();
    let other = other.clone();
    let reading = tokio::spawn(async move {
        loop {
            match receive_async(&mut reader, LINK).await {
                Ok(message) => {
                    if in_sender.send(incoming(message)).is_err() {
                        return;
                    }
                }
                Err(FrameError::Io(_)) => return,
                Err(error) => {
                    // The next connection would fail in the same way, so the user has to be informed.
                    let message = format!("a message on the link to node {other} could not be read: {error}");
                    return agent.events.add(AgentEvent::Notice { message });
                }
            }
        }
    });
    tokio::spawn(async move {
        while let Some(message) = out_receiver.recv().await {
            let receive = |answer| {
                // If the connection has ended, the answer is not needed.
                let _ = back.upgrade().map(|sender| sender.send(answer));
            };
            let sent = match frames(&outgoing(message), receive) {
                Ok(Some(frames)) => write(&mut writer, &frames).await,
                Ok(None) => Ok(()),
                Err(error) => Err(io::Error::other(error)),
            };
            if let Err(error) = sent {
                tracing::info!(%error, "link_lost");
                break;
            }
        }
        // Nothing is sent any more: the connection is closed, so that the other end notices.
        reading.abort();
    });
    (out_sender, in_receiver)
}

/// Sends frames; an error if the other end does not read for [`STALLED`].
async fn write(writer: &mut (impl AsyncWrite + Unpin), frames: &Frames) -> io::Result<()> {
    for piece in frames.pieces() {
        tokio::time::timeout(STALLED, writer.write_all(piece)).await??;
    }
    tokio::time::timeout(STALLED, writer.flush()).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_wire::payload::Payload;
    use holdfast_wire::peer::{Order, OrderResult};
    use holdfast_wire::rank::{LARGEST_GATHERED, Reply};

    #[test]
    fn an_address_is_sent_once_and_again_when_it_has_changed() {
        let mut sent = HashMap::new();
        let at = |port| Endpoint { address: std::net::SocketAddr::from(([127, 0, 0, 1], port)), issued: 1 };
        let two = [("a".into(), at(1)), ("b".into(), at(2))];
        assert_eq!(new_addresses(&mut sent, two.clone().into_iter()), two);
        assert_eq!(new_addresses(&mut sent, two.into_iter()), []);
        let changed = [("a".into(), at(1)), ("b".into(), at(3))];
        assert_eq!(new_addresses(&mut sent, changed.into_iter()), [("b".into(), at(3))]);
    }

    fn decoded<T: DeserializeOwned>(frames: &Frames) -> T {
        let bytes: Vec<u8> = frames.pieces().flat_map(|piece| piece.to_vec()).collect();
        frame::receive(&mut bytes.as_slice(), LINK).unwrap()
    }

    #[test]
    fn results_over_the_limit_reach_the_member_as_a_failure_that_names_the_size() {
        // The same bytes many times: shared, so that the test needs little memory.
        let part = Payload::from(vec![7; 1 << 20]);
        let gathered = vec![part; (LARGEST_GATHERED >> 20) + 65];
        let message = ToMember::Results { seq: 3, outcome: Ok(Reply::Gathered(gathered)) };
        let sent = frames(&Delivery { addresses: Vec::new(), message }, |_| panic!("no answer to oneself"));
        let Delivery { message: ToMember::Results { seq: 3, outcome: Err(failure) }, .. } =
            decoded(&sent.unwrap().unwrap())
        else {
            panic!("the results are replaced")
        };
        assert!(failure.to_string().contains("the limit is 335544320"), "{failure}");
        assert!(!failure.retryable && failure.remedy.is_some());
    }

    #[test]
    fn an_order_over_the_limit_fails_at_the_leader_and_a_result_over_it_fails_the_order() {
        let huge = "x".repeat(LINK.bytes);
        let directory = std::path::PathBuf::from(&huge);
        let what = Order::OpenDirect { checkpoint: holdfast_model::CheckpointId(1), directory };
        let order = Delivery { addresses: Vec::new(), message: ToMember::Order { order: 9, what } };
        let mut answer = None;
        assert!(frames(&order, |instead| answer = Some(instead)).unwrap().is_none());
        assert!(matches!(answer, Some(ToLeader::Done { order: 9, result: Err(failure) }) if !failure.retryable));

        let files = std::collections::BTreeMap::from([(holdfast_model::Rank(0), vec![huge])]);
        let done = ToLeader::Done { order: 9, result: Ok(OrderResult::Files(files)) };
        let sent = frames(&done, |_| panic!("no answer to oneself")).unwrap().unwrap();
        assert!(matches!(decoded(&sent), ToLeader::Done { order: 9, result: Err(_) }));
    }
}
