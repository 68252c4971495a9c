//! The connection to an agent that is kept for its polls.
//!
//! Ten thousand agents are polled once a second or more often, and nearly all answers report no change. A connection
//! pool, a new request and a new timer for each poll would cost more than the poll itself.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use holdfast_wire::agent::{POLL, PollReply, PollRequest};
use holdfast_wire::trust;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::{LARGEST_ANSWER, innermost, read_answer, too_large};
use super::error::RequestError;

/// What a connection to an agent needs: the job's certificate, and the token.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsConnector,
    pub(super) bearer: HeaderValue,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector(…)")
    }
}

#[derive(Debug)]
pub(super) enum PollAnswer {
    Unchanged,
    Reply(Box<PollReply>),
}

type Body = Full<Bytes>;

/// A connection that carries one request at a time.
pub(super) struct PollConnection {
    address: SocketAddr,
    sender: SendRequest<Body>,
    /// The task of the connection; ends with it.
    exchange: Connection<TokioIo<TlsStream<TcpStream>>, Body>,
    /// The head of every request.
    template: Request<()>,
    /// The last request and its text: most requests equal the one before.
    encoded: Option<(PollRequest, Bytes)>,
}

impl PollConnection {
    /// Connects to the agent at an address.
    ///
    /// # Errors
    /// [`RequestError::Silent`], [`RequestError::Broken`].
    pub(super) async fn open(
        connector: &Connector,
        address: SocketAddr,
        within: Duration,
    ) -> Result<Self, RequestError> {
        let connecting = tokio::time::timeout(within, Self::connect(connector, address));
        connecting.await.unwrap_or(Err(RequestError::Silent { address, path: POLL, within }))
    }

    async fn connect(connector: &Connector, address: SocketAddr) -> Result<Self, RequestError> {
        let socket = TcpStream::connect(address).await.map_err(|error| broken(address, &error))?;
        socket.set_nodelay(true).map_err(|error| broken(address, &error))?;
        let stream = connector.tls.connect(trust::server_name(), socket).await;
        let stream = stream.map_err(|error| broken(address, &error))?;
        let (sender, exchange) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(address, &error))?;
        let template = Self::template(connector, address);
        let template = template.map_err(|error| broken(address, &error))?;
        Ok(PollConnection { address, sender, exchange, template, encoded: None })
    }

    fn template(connector: &Connector, address: SocketAddr) -> Result<Request<()>, hyper::http::Error> {
        Request::builder()
            .method(Method::POST)
            .uri(Uri::from_static(POLL))
            .header(HOST, address.to_string())
            .header(AUTHORIZATION, connector.bearer.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(())
    }

    /// Sends a poll and waits for the answer, without a time limit. After an error the connection cannot be used any
    /// more. Not cancel safe.
    pub(super) async fn poll(&mut self, request: &PollRequest) -> Result<PollAnswer, RequestError> {
        let address = self.address;
        let message = self.template.clone().map(|()| ());
        let message = message.map({
            let text = self.encode(request)?;
            |()| Full::new(text)
        });
        let sender = &mut self.sender;
        let answer = async {
            let response = sender.send_request(message).await.map_err(|error| broken(address, &error))?;
            let status = response.status();
            if status == StatusCode::NO_CONTENT {
                return Ok(PollAnswer::Unchanged);
            }
            let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
            let body = body.map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => too_large(address, POLL),
                None => broken(address, &*error),
            })?;
            read_answer(address, POLL, status, &body.to_bytes()).map(|reply| PollAnswer::Reply(Box::new(reply)))
        };
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // The answer was polled first, so that an answer before the end of the connection is not lost.
            ended = &mut self.exchange => match ended {
                // The agent has closed the connection in order. A request that was not sent before is never answered,
                // and its answer must not be awaited.
                Ok(()) => answer.now_or_never().unwrap_or_else(|| Err(closed(address))),
                Err(error) => Err(broken(address, &error)),
            },
        }
    }

    fn encode(&mut self, request: &PollRequest) -> Result<Bytes, RequestError> {
        if let Some((known, text)) = &self.encoded
            && known == request
        {
            return Ok(text.clone());
        }
        let text = serde_json::to_vec(request).map_err(|error| broken(self.address, &error))?;
        let text = Bytes::from(text);
        self.encoded = Some((*request, text.clone()));
        Ok(text)
    }
}

fn closed(address: SocketAddr) -> RequestError {
    RequestError::Broken { address, path: POLL, reason: "the connection was closed".to_owned() }
}

fn broken(address: SocketAddr, error: &(dyn std::error::Error + 'static)) -> RequestError {
    RequestError::Broken { address, path: POLL, reason: innermost(error) }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use holdfast_wire::ALPN_HTTP;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[tokio::test]
    async fn a_poll_over_a_connection_that_the_agent_has_closed_in_order_fails_and_does_not_wait() {
        let material = trust::generate().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(trust::server_config(&material, &[ALPN_HTTP]).unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (closed, is_closed) = oneshot::channel();
        tokio::spawn(async move {
            let mut stream = acceptor.accept(listener.accept().await?.0).await?;
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                stream.read_buf(&mut request).await?;
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
            // The end of TLS; the socket stays open.
            stream.shutdown().await?;
            let _ = closed.send(stream);
            io::Result::Ok(())
        });
        let connector = Connector {
            tls: TlsConnector::from(Arc::new(trust::client_config(&material, &[ALPN_HTTP]).unwrap())),
            bearer: HeaderValue::from_static("Bearer x"),
        };
        let mut connection = PollConnection::open(&connector, address, Duration::from_secs(60)).await.unwrap();
        assert!(matches!(connection.poll(&PollRequest::HEALTH_ONLY).await, Ok(PollAnswer::Unchanged)));
        let _stream = is_closed.await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(60), connection.poll(&PollRequest::HEALTH_ONLY)).await;
        assert!(matches!(answer.expect("no answer is awaited"), Err(RequestError::Broken { .. })));
    }
}
