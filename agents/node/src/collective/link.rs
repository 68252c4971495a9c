//! A connection between a member and the leader as a pair of channels.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_model::NodeName;
use holdfast_wire::frame::{receive_async, send_async};
use holdfast_wire::peer::{Delivery, ToLeader, ToMember};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::agent::Agent;

/// The leader's end of a link. Orders go with the addresses of the peers that they concern: a member has no others.
pub(super) fn to_member<S>(
    agent: Arc<Agent>,
    node: &NodeName,
    stream: S,
) -> (mpsc::UnboundedSender<ToMember>, mpsc::UnboundedReceiver<ToLeader>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let node = node.clone();
    let mut sent = HashMap::new();
    let address = move |message: ToMember| {
        let addresses = match &message {
            ToMember::Order { what, .. } => {
                let peers = what.peers().into_iter().filter(|peer| **peer != node);
                let known = peers.filter_map(|peer| Some((peer.clone(), agent.streams.address(peer)?)));
                new_addresses(&mut sent, known)
            }
            ToMember::Cancel { .. } | ToMember::Results { .. } => Vec::new(),
        };
        Delivery { addresses, message }
    };
    carry(stream, address, |message| message)
}

/// The member's end of a link.
pub(super) fn to_leader<S>(
    agent: Arc<Agent>,
    stream: S,
) -> (mpsc::UnboundedSender<ToLeader>, mpsc::UnboundedReceiver<ToMember>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let receive = move |delivery: Delivery| {
        agent.streams.learn(delivery.addresses);
        delivery.message
    };
    carry(stream, |message| message, receive)
}

/// Those that are not `sent` yet, or have changed; they count as sent from now on.
fn new_addresses(
    sent: &mut HashMap<NodeName, SocketAddr>,
    known: impl Iterator<Item = (NodeName, SocketAddr)>,
) -> Vec<(NodeName, SocketAddr)> {
    known.filter(|(node, address)| sent.insert(node.clone(), *address) != Some(*address)).collect()
}

/// Makes a pair of channels of a connection; both end with it.
fn carry<S, Out, Sent, Received, In>(
    stream: S,
    mut outgoing: impl FnMut(Out) -> Sent + Send + 'static,
    mut incoming: impl FnMut(Received) -> In + Send + 'static,
) -> (mpsc::UnboundedSender<Out>, mpsc::UnboundedReceiver<In>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    Out: Send + 'static,
    Sent: serde::Serialize + Send + Sync + 'static,
    Received: serde::de::DeserializeOwned + Send + 'static,
    In: Send + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (out_sender, mut out_receiver) = mpsc::unbounded_channel::<Out>();
    let (in_sender, in_receiver) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Ok(message) = receive_async(&mut reader).await {
            if in_sender.send(incoming(message)).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(message) = out_receiver.recv().await {
            if send_async(&mut writer, &outgoing(message)).await.is_err() {
                break;
            }
        }
        // Nobody sends any more: the link is given up, and the other end is to notice.
        reading.abort();
    });
    (out_sender, in_receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_sent_once_and_again_when_it_has_changed() {
        let mut sent = HashMap::new();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let two = [("a".into(), at(1)), ("b".into(), at(2))];
        assert_eq!(new_addresses(&mut sent, two.clone().into_iter()), two);
        assert_eq!(new_addresses(&mut sent, two.into_iter()), []);
        let changed = [("a".into(), at(1)), ("b".into(), at(3))];
        assert_eq!(new_addresses(&mut sent, changed.into_iter()), [("b".into(), at(3))]);
    }
}
