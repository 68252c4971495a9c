//! Connections of peers: the hello is checked, then the connection goes to the collectives or waits as a stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::Generation;
use holdfast_wire::frame::{self, FrameError, HELLO, receive_async, send_async};
use holdfast_wire::peer::{MIRROR, PeerHello, PeerWelcome, Purpose, RecordProtection};
use holdfast_wire::{VERSION, trust};
use tokio_rustls::server::TlsStream;

use super::guarded::GuardedStream;
use crate::agent::Agent;
use crate::collective::{self, Collectives};
use crate::pairs::QUIET;
use crate::ranks::admission::Refusal;
use crate::stream::IncomingStream;

/// The time for the run plan that a peer may already have and this agent not yet.
const PLAN_WITHIN: Duration = Duration::from_secs(10);

/// Why a connection is not one of the job's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unauthenticated {
    #[error("sent no hello: {0}")]
    NoHello(FrameError),
    #[error("presented a wrong token")]
    WrongToken,
}

/// Receives the hello of a connection on which ALPN `holdfast/1` was agreed.
///
/// # Errors
/// When the connection does not present the job's token. Nothing is answered: it would be information for an attacker.
pub(super) async fn authenticate(
    agent: &Agent,
    stream: &mut TlsStream<GuardedStream>,
) -> Result<PeerHello, Unauthenticated> {
    let hello: PeerHello = receive_async(stream, HELLO).await.map_err(Unauthenticated::NoHello)?;
    match trust::token_matches(&agent.start.trust, &hello.token.0) {
        true => Ok(hello),
        false => Err(Unauthenticated::WrongToken),
    }
}

/// Serves a connection that has presented the token: hands the stream to the thread that waits for it.
pub(super) async fn serve(
    collectives: &Collectives,
    hello: PeerHello,
    mut stream: TlsStream<GuardedStream>,
    peer: SocketAddr,
) {
    let answer = match admit(collectives, &hello).await {
        Ok(()) => PeerWelcome::Welcome,
        Err(refusal) => {
            tracing::info!(node = %hello.node, %peer, %refusal, "peer refused");
            PeerWelcome::Refused(refusal.into())
        }
    };
    let welcome = matches!(answer, PeerWelcome::Welcome);
    if send_async(&mut stream, &answer, HELLO).await.is_err() || !welcome {
        return;
    }
    match hello.purpose {
        Purpose::Link => collective::serve_link(collectives, hello.node, hello.generation, stream).await,
        Purpose::Mirror => {
            let (stream, connection) = stream.into_inner();
            match IncomingStream::from_async(stream.into_inner(), connection, hello.node) {
                Ok(incoming) => serve_mirror(&collectives.agent, incoming).await,
                Err(error) => tracing::warn!(%peer, %error, "stream_not_handed_over"),
            }
        }
        purpose => {
            let (stream, connection) = stream.into_inner();
            let incoming = IncomingStream::from_async(stream.into_inner(), connection, hello.node);
            match incoming.and_then(|incoming| in_records(incoming, hello.records.as_ref())) {
                Ok(incoming) => serve_stream(collectives, hello.generation, purpose, incoming).await,
                Err(error) => tracing::warn!(%peer, %error, "stream_not_handed_over"),
            }
        }
    }
}

/// What follows the hello on a stream, as that asked for.
fn in_records(mut incoming: IncomingStream, records: Option<&RecordProtection>) -> io::Result<IncomingStream> {
    incoming.begin_records(records)?;
    Ok(incoming)
}

/// Enters the checkpoints that arrive in the registry of the pairs, until the peer closes the connection.
async fn serve_mirror(agent: &Arc<Agent>, mut incoming: IncomingStream) {
    let mut stop = agent.stop.subscribe();
    let pairs = agent.pairs.clone();
    let serving = tokio::task::spawn_blocking(move || -> Result<(), FrameError> {
        incoming.set_timeout(QUIET)?;
        loop {
            let answer = pairs.mirrored(frame::receive(&mut incoming, MIRROR)?);
            frame::send(&mut incoming, &answer, MIRROR)?;
        }
    });
    tokio::select! {
        _ = serving => {}
        _ = stop.wait_for(Option::is_some) => {}
    }
}

/// Hands a stream to the thread that waits for it, and does the same for each further hello on it, until the peer
/// closes it.
async fn serve_stream(collectives: &Collectives, generation: Generation, purpose: Purpose, incoming: IncomingStream) {
    let mut stop = collectives.agent.stop.subscribe();
    let serving = async {
        let mut next = Some((generation, purpose, incoming));
        while let Some((generation, purpose, mut incoming)) = next {
            let returned = incoming.comes_back();
            collectives.agent.streams.deposit(generation, purpose, incoming);
            let Ok(incoming) = returned.await else { return };
            next = next_step(collectives, incoming).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "kept_connection_ended");
                None
            });
        }
    };
    tokio::select! {
        () = serving => {}
        _ = stop.wait_for(Option::is_some) => {}
    }
}

/// Waits for the next hello on a stream whose step is over.
async fn next_step(
    collectives: &Collectives,
    mut incoming: IncomingStream,
) -> Result<Option<(Generation, Purpose, IncomingStream)>, FrameError> {
    incoming.readable().await?;
    let blocking = |error: tokio::task::JoinError| FrameError::from(io::Error::other(error));
    let receive = move || frame::receive::<PeerHello>(&mut incoming, HELLO).map(|hello| (hello, incoming));
    let (hello, mut incoming) = tokio::task::spawn_blocking(receive).await.map_err(blocking)??;
    if !trust::token_matches(&collectives.agent.start.trust, &hello.token.0) {
        return Ok(None);
    }
    let refusal = match (admit(collectives, &hello).await, hello.purpose) {
        (Err(refusal), _) => refusal,
        (Ok(()), Purpose::Link | Purpose::Mirror) => return Ok(None),
        (Ok(()), purpose) => {
            let welcome = move || frame::send(&mut incoming, &PeerWelcome::Welcome, HELLO).map(|()| incoming);
            let incoming = tokio::task::spawn_blocking(welcome).await.map_err(blocking)??;
            let incoming = in_records(incoming, hello.records.as_ref())?;
            return Ok(Some((hello.generation, purpose, incoming)));
        }
    };
    let refused = PeerWelcome::Refused(refusal.into());
    tokio::task::spawn_blocking(move || frame::send(&mut incoming, &refused, HELLO)).await.map_err(blocking)??;
    Ok(None)
}

async fn admit(collectives: &Collectives, hello: &PeerHello) -> Result<(), Refusal> {
    if hello.version != VERSION {
        return Err(Refusal::Version { theirs: hello.version });
    }
    if hello.job != collectives.agent.start.job_id {
        return Err(Refusal::Job { ours: collectives.agent.start.job_id.clone(), theirs: hello.job.clone() });
    }
    // Pairs have no generations.
    if hello.purpose == Purpose::Mirror {
        return Ok(());
    }
    // A peer may receive its plan before this agent does.
    let asked = hello.generation;
    match tokio::time::timeout(PLAN_WITHIN, collectives.reached(asked)).await {
        Err(_) => Err(Refusal::TooEarly(asked)),
        Ok(serving) if serving > asked => Err(Refusal::Superseded { asked, serving }),
        Ok(_) => Ok(()),
    }
}
