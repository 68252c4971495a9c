//! Requests of the orchestrator over one connection, several at a time: a poll that an agent holds back delays no other
//! request, and no other request needs a TLS handshake of its own.
//!
//! The orchestrator sends a [`ChannelHello`] as a frame ([`frame`](crate::frame)), then [`Request`]s; the agent answers
//! each with an [`Answer`] of the same number, in any order. A poll that is held is answered when the next one that may
//! be held arrives, so that only the orchestrator needs a timer for it. The paths, the bodies and the status of an
//! answer are those of [`agent`](crate::agent); a request without a body is a GET there, every other one a POST.
//!
//! | message | bytes, integers big-endian |
//! |---|---|
//! | request | number `u32`, length of the body `u32`, length of the path `u8`, path, body |
//! | answer | number `u32`, status `u16`, length of the body `u32`, body |

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::agent::{LARGEST_ANSWER, largest_request};
use crate::bytes::Base64;

/// ALPN name of these connections.
pub const ALPN_CHANNEL: &[u8] = b"holdfast-requests/2";

/// The first message on the connection. The version is that of the agent's start message, which was compared before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelHello {
    pub token: Base64,
}

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the request in its answer; unique among those that are not answered yet.
    pub number: u32,
    /// At most 255 bytes.
    pub path: String,
    pub body: Bytes,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// That of the request.
    pub number: u32,
    /// As in HTTP.
    pub status: u16,
    pub body: Bytes,
}

/// The bytes are not what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    #[error("a request to {path:?} of {bytes} bytes was announced, the limit is {limit}")]
    LargeRequest { path: String, bytes: usize, limit: usize },
    #[error("an answer of {bytes} bytes was announced, the limit is {LARGEST_ANSWER}")]
    LargeAnswer { bytes: usize },
    #[error("the path of a request is not text: is the other end a Holdfast of this version?")]
    Path,
}

/// What travels on the connection.
pub trait Message: Sized {
    /// Appends the message to what is to be sent.
    fn encode(&self, to: &mut BytesMut);

    /// Takes the first message from what was received; `None` if it is not complete. No more is allocated than was
    /// received.
    ///
    /// # Errors
    /// Something else was received, or a larger message was announced than is accepted.
    fn decode(from: &mut BytesMut) -> Result<Option<Self>, ChannelError>;
}

const REQUEST_HEAD: usize = 9;
const ANSWER_HEAD: usize = 10;

impl Message for Request {
    fn encode(&self, to: &mut BytesMut) {
        debug_assert!(self.path.len() <= usize::from(u8::MAX) && u32::try_from(self.body.len()).is_ok());
        to.reserve(REQUEST_HEAD + self.path.len() + self.body.len());
        to.put_u32(self.number);
        to.put_u32(self.body.len() as u32);
        to.put_u8(self.path.len() as u8);
        to.put_slice(self.path.as_bytes());
        to.put_slice(&self.body);
    }

    fn decode(from: &mut BytesMut) -> Result<Option<Self>, ChannelError> {
        let mut head = &from[..];
        if head.len() < REQUEST_HEAD {
            return Ok(None);
        }
        let (number, bytes, path_bytes) = (head.get_u32(), head.get_u32() as usize, usize::from(head.get_u8()));
        let Some(path) = head.get(..path_bytes) else { return Ok(None) };
        let path = std::str::from_utf8(path).map_err(|_| ChannelError::Path)?;
        let limit = largest_request(path);
        if bytes > limit {
            return Err(ChannelError::LargeRequest { path: path.to_owned(), bytes, limit });
        }
        if head.len() - path_bytes < bytes {
            return Ok(None);
        }
        let path = path.to_owned();
        from.advance(REQUEST_HEAD + path_bytes);
        Ok(Some(Request { number, path, body: from.split_to(bytes).freeze() }))
    }
}

impl Message for Answer {
    fn encode(&self, to: &mut BytesMut) {
        debug_assert!(u32::try_from(self.body.len()).is_ok());
        to.reserve(ANSWER_HEAD + self.body.len());
        to.put_u32(self.number);
        to.put_u16(self.status);
        to.put_u32(self.body.len() as u32);
        to.put_slice(&self.body);
    }

    fn decode(from: &mut BytesMut) -> Result<Option<Self>, ChannelError> {
        let mut head = &from[..];
        if head.len() < ANSWER_HEAD {
            return Ok(None);
        }
        let (number, status, bytes) = (head.get_u32(), head.get_u16(), head.get_u32() as usize);
        if bytes > LARGEST_ANSWER {
            return Err(ChannelError::LargeAnswer { bytes });
        }
        if head.len() < bytes {
            return Ok(None);
        }
        from.advance(ANSWER_HEAD);
        Ok(Some(Answer { number, status, body: from.split_to(bytes).freeze() }))
    }
}

#[cfg(feature = "transport")]
pub use pipe::{Pipe, PipeError};

#[cfg(feature = "transport")]
mod pipe {
    use std::future::{Future as _, poll_fn};
    use std::io;
    use std::marker::PhantomData;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, ready};

    use bytes::{Buf as _, BytesMut};
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

    use super::{ChannelError, Message};

    /// Room for what is received next: nearly all messages are small, and there are ten thousand connections.
    const SMALL: usize = 1 << 10;
    /// Room while a large message arrives.
    const LARGE: usize = 64 << 10;

    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum PipeError {
        #[error(transparent)]
        Io(#[from] io::Error),
        #[error(transparent)]
        Channel(#[from] ChannelError),
    }

    /// A connection on which messages are sent and `Received` ones arrive, at the same time.
    #[derive(Debug)]
    pub struct Pipe<S, Received> {
        stream: S,
        incoming: BytesMut,
        outgoing: BytesMut,
        /// Something was written that the stream may still keep.
        unflushed: bool,
        /// A large message is on its way: its memory is not kept for the next one.
        sends_much: bool,
        received: PhantomData<fn() -> Received>,
    }

    impl<S: AsyncRead + AsyncWrite + Unpin, Received: Message> Pipe<S, Received> {
        /// Messages over a stream.
        pub fn new(stream: S) -> Self {
            let (incoming, outgoing) = (BytesMut::new(), BytesMut::new());
            Pipe { stream, incoming, outgoing, unflushed: false, sends_much: false, received: PhantomData }
        }

        /// Has a message sent by the next calls of [`next`](Self::next).
        pub fn queue(&mut self, message: &impl Message) {
            message.encode(&mut self.outgoing);
            self.sends_much |= self.outgoing.len() > LARGE;
        }

        /// True when all messages were handed over to the system.
        pub fn is_sent(&self) -> bool {
            self.outgoing.is_empty() && !self.unflushed
        }

        /// Sends what is queued until a message was received, and returns that; `None` when the other end has closed
        /// the connection between two messages. Cancel safe.
        ///
        /// # Errors
        /// The connection failed, or something else than a message was received.
        pub async fn next(&mut self) -> Result<Option<Received>, PipeError> {
            loop {
                let had = self.incoming.len();
                if let Some(message) = Received::decode(&mut self.incoming)? {
                    if self.incoming.is_empty() && had > LARGE {
                        self.incoming = BytesMut::new();
                    }
                    return Ok(Some(message));
                }
                if poll_fn(|cx| self.poll_transfer(cx)).await? == 0 {
                    return match self.incoming.is_empty() {
                        true => Ok(None),
                        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    };
                }
            }
        }

        /// Sends all that is queued. Cancel safe.
        ///
        /// # Errors
        /// The connection failed.
        pub async fn send_all(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_send(cx)).await
        }

        /// Writes what the stream takes, and returns how many bytes were received.
        fn poll_transfer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            self.incoming.reserve(if self.incoming.len() < SMALL { SMALL } else { LARGE });
            // Reading is cancel safe: the future keeps nothing.
            pin!(self.stream.read_buf(&mut self.incoming)).poll(cx)
        }

        /// Ready when all was handed over to the system.
        fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            while !self.outgoing.is_empty() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outgoing))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.outgoing.advance(written);
                self.unflushed = true;
            }
            if self.unflushed {
                ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
                self.unflushed = false;
                if std::mem::take(&mut self.sends_much) {
                    self.outgoing = BytesMut::new();
                }
            }
            Poll::Ready(Ok(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u32, body: &'static [u8]) -> Request {
        Request { number, path: crate::agent::POLL.to_owned(), body: Bytes::from_static(body) }
    }

    #[test]
    fn messages_are_taken_when_they_are_complete_and_in_order() {
        let mut sent = BytesMut::new();
        let requests = [request(1, b"{}"), request(2, b"")];
        requests.iter().for_each(|request| request.encode(&mut sent));
        let (mut received, mut taken) = (BytesMut::new(), Vec::new());
        for byte in sent {
            received.put_u8(byte);
            taken.extend(Request::decode(&mut received).unwrap());
        }
        assert_eq!(taken, requests);
        let answer = Answer { number: 7, status: 204, body: Bytes::new() };
        let mut sent = BytesMut::new();
        answer.encode(&mut sent);
        assert_eq!(Answer::decode(&mut sent).unwrap(), Some(answer));
        assert!(sent.is_empty() && Answer::decode(&mut sent).unwrap().is_none());
    }

    #[test]
    fn larger_messages_than_accepted_are_refused_when_they_are_announced() {
        let mut announced = BytesMut::new();
        announced.put_u32(1);
        announced.put_u32(largest_request(crate::agent::POLL) as u32 + 1);
        announced.put_u8(crate::agent::POLL.len() as u8);
        announced.put_slice(crate::agent::POLL.as_bytes());
        let refused = Request::decode(&mut announced).unwrap_err();
        assert_eq!(refused.to_string(), "a request to \"/v1/poll\" of 65537 bytes was announced, the limit is 65536");
        let mut announced = BytesMut::new();
        announced.put_u32(1);
        announced.put_u16(200);
        announced.put_u32(u32::MAX);
        assert!(matches!(Answer::decode(&mut announced), Err(ChannelError::LargeAnswer { .. })));
        let mut text = BytesMut::from(&b"\0\0\0\x01\0\0\0\0\x01\xff"[..]);
        assert!(matches!(Request::decode(&mut text), Err(ChannelError::Path)));
    }
}
