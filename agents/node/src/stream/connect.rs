//! Connecting to the agents of other nodes.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{DataPlane, Generation, NodeName};
use holdfast_wire::frame::HELLO;
use holdfast_wire::peer::{PeerHello, PeerWelcome, Purpose, RecordProtection};
use holdfast_wire::{ALPN_PEER, VERSION, frame, trust};
use rustls::{ClientConfig, ClientConnection};
use tokio_rustls::{TlsConnector, client};

use super::StreamSettings;
use super::bulk::{OutgoingStream, set_timeout};
use super::error::StreamError;
use super::inbox::Streams;

const CONNECT: Duration = Duration::from_secs(5);

/// Connects to agents by their addresses, to mirror checkpoints of pairs: no run is needed for that.
#[derive(Debug)]
pub(crate) struct PeerConnector {
    config: Arc<ClientConfig>,
    hello: PeerHello,
}

impl PeerConnector {
    /// Opens a stream that may carry no data for `timeout`. Blocks.
    ///
    /// # Errors
    /// When the agent cannot be reached, or refuses.
    pub fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<OutgoingStream, StreamError> {
        let node = NodeName::new(address.to_string());
        let broken = |source| StreamError::Connection { node: node.clone(), source };
        let protocol = |source| StreamError::Protocol { node: node.clone(), source };
        let socket = TcpStream::connect_timeout(&address, timeout).map_err(broken)?;
        socket.set_nodelay(true).and_then(|()| set_timeout(&socket, timeout)).map_err(broken)?;
        let connection = ClientConnection::new(self.config.clone(), trust::server_name())
            .map_err(|error| StreamError::Trust(error.into()))?;
        let mut stream = OutgoingStream::new(connection, socket, node.clone());
        frame::send(&mut stream, &self.hello, HELLO).map_err(protocol)?;
        welcomed(&node, frame::receive(&mut stream, HELLO).map_err(protocol)?)?;
        Ok(stream)
    }
}

impl Streams {
    /// Connects to agents of pairs.
    ///
    /// # Errors
    /// When the job's certificate cannot be used.
    pub(crate) fn peer_connector(&self) -> Result<PeerConnector, StreamError> {
        let hello = self.hello(Generation::NONE, Purpose::Mirror, None);
        Ok(PeerConnector { config: self.client_config()?, hello })
    }

    /// Opens a stream to the agent of `node`. The settings are the same for all streams of a generation. Blocks.
    ///
    /// # Errors
    /// When the node is unknown, cannot be reached or refuses, and when the run or the order is over.
    pub fn connect(
        &self,
        generation: Generation,
        node: &NodeName,
        purpose: Purpose,
        StreamSettings { timeout, data_plane }: StreamSettings,
    ) -> Result<OutgoingStream, StreamError> {
        #[cfg(feature = "simulation")]
        if let Some(network) = self.network.get() {
            return Ok(network.connect(&self.own.node, node, &purpose));
        }
        if matches!(purpose, Purpose::Group(_))
            && let Some(kept) = self.idle.take(generation, node)
        {
            match self.introduce(kept, generation, purpose.clone(), data_plane) {
                // The peer may have been restarted meanwhile.
                Err(error @ (StreamError::Connection { .. } | StreamError::Protocol { .. })) => {
                    tracing::debug!(%node, %error, "kept_connection_broken");
                }
                result => return result,
            }
        }
        let address = self.address(node).ok_or_else(|| StreamError::UnknownNode(node.clone()))?;
        let broken = |source| StreamError::Connection { node: node.clone(), source };
        let socket = TcpStream::connect_timeout(&address, CONNECT).map_err(broken)?;
        socket.set_nodelay(true).and_then(|()| set_timeout(&socket, timeout)).map_err(broken)?;
        let connection = ClientConnection::new(self.client_config()?, trust::server_name())
            .map_err(|error| StreamError::Trust(error.into()))?;
        self.introduce(OutgoingStream::new(connection, socket, node.clone()), generation, purpose, data_plane)
    }

    /// Sends the hello with the purpose of the connection, and waits for the answer.
    fn introduce(
        &self,
        mut stream: OutgoingStream,
        generation: Generation,
        purpose: Purpose,
        data_plane: DataPlane,
    ) -> Result<OutgoingStream, StreamError> {
        let node = stream.node.clone();
        let protocol = |source| StreamError::Protocol { node: node.clone(), source };
        let broken = |source| StreamError::Connection { node: node.clone(), source };
        self.note(generation, &purpose, stream.socket().map_err(broken)?)?;
        let hello = self.hello(generation, purpose, trust::record_protection(data_plane)?);
        frame::send(&mut stream, &hello, HELLO).map_err(protocol)?;
        welcomed(&node, frame::receive(&mut stream, HELLO).map_err(protocol)?)?;
        stream.begin_records(hello.records.as_ref()).map_err(broken)?;
        Ok(stream)
    }

    /// The step on this stream has ended without error: the stream is kept for the next one.
    pub fn keep(&self, generation: Generation, mut stream: OutgoingStream) {
        #[cfg(feature = "simulation")]
        if self.network.get().is_some() {
            return;
        }
        if stream.end_records() {
            self.idle.keep(generation, stream);
        }
    }

    /// One configuration for all connections: to create one takes as long as part of a handshake.
    fn client_config(&self) -> Result<Arc<ClientConfig>, StreamError> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let config = Arc::new(trust::client_config(&self.own.trust, &[ALPN_PEER])?);
        Ok(self.config.get_or_init(|| config).clone())
    }

    /// Opens the link to the leader.
    ///
    /// # Errors
    /// When the leader is unknown, cannot be reached or refuses.
    pub async fn connect_link(
        &self,
        generation: Generation,
        leader: &NodeName,
    ) -> Result<client::TlsStream<tokio::net::TcpStream>, StreamError> {
        let address = self.address(leader).ok_or_else(|| StreamError::UnknownNode(leader.clone()))?;
        let broken = |source| StreamError::Connection { node: leader.clone(), source };
        let protocol = |source| StreamError::Protocol { node: leader.clone(), source };
        let connecting = tokio::net::TcpStream::connect(address);
        let socket = tokio::time::timeout(CONNECT, connecting).await.map_err(|late| broken(late.into()))?;
        let socket = socket.map_err(broken)?;
        socket.set_nodelay(true).map_err(broken)?;
        let connector = TlsConnector::from(self.client_config()?);
        let mut stream = connector.connect(trust::server_name(), socket).await.map_err(broken)?;
        frame::send_async(&mut stream, &self.hello(generation, Purpose::Link, None), HELLO).await.map_err(protocol)?;
        welcomed(leader, frame::receive_async(&mut stream, HELLO).await.map_err(protocol)?)?;
        Ok(stream)
    }

    fn hello(&self, generation: Generation, purpose: Purpose, records: Option<RecordProtection>) -> PeerHello {
        PeerHello {
            version: VERSION,
            token: self.own.trust.token.clone(),
            job: self.own.job_id.clone(),
            generation,
            node: self.own.node.clone(),
            purpose,
            records,
        }
    }
}

fn welcomed(node: &NodeName, answer: PeerWelcome) -> Result<(), StreamError> {
    match answer {
        PeerWelcome::Welcome => Ok(()),
        PeerWelcome::Refused(failure) => Err(StreamError::Refused { node: node.clone(), failure }),
    }
}
