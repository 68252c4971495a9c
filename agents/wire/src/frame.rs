//! Messages on a connection, in frames: a big-endian `u32`, then so many bytes.
//!
//! The two upper bits of the `u32` are flags, the others the length, at most [`FRAME_BYTES`]:
//!
//! * `MORE`: the message continues in the next frame;
//! * `RAW`: not JSON, but the payloads that belong beside it ([`Payload`](crate::payload::Payload)), one after the
//!   other.
//!
//! A message is its JSON, in one frame or several, then its payloads, if it has any. Its size is limited by its kind
//! ([`Limit`]), with the same limit on both sides: a message over its limit is an error at the sender, before anything
//! is sent, so that the connection stays usable and the caller gets the error. A receiver allocates for what has
//! arrived, never for what is announced.

use std::io::{self, Read, Write};

use ::bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::payload;

pub const FRAME_BYTES: usize = 1 << 20;

const MORE: u32 = 1 << 31;
const RAW: u32 = 1 << 30;
const LENGTH: u32 = RAW - 1;
const PREFIX: usize = 4;

/// The most bytes of one message of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The kind, for messages to people.
    pub what: &'static str,
    /// The most bytes, JSON and payloads.
    pub bytes: usize,
}

/// The first message on a connection, and the answer to it. It is read before the token is checked.
pub const HELLO: Limit = Limit { what: "a hello or the answer to it", bytes: 8 << 10 };

/// What can go wrong with a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("{what} would have {bytes} bytes, the limit is {limit}")]
    TooLarge { what: &'static str, bytes: usize, limit: usize },
    /// Not received: it is over its limit. Not one of our programs on the other end, or a damaged stream.
    #[error("{what} of more than {limit} bytes was announced: is the other end a Holdfast of this version?")]
    Oversized { what: &'static str, limit: usize },
    #[error("{0}: is the other end a Holdfast of this version?")]
    Sequence(&'static str),
    /// The bytes are not the message that was expected.
    #[error("the message could not be read: {0}: is the other end a Holdfast of this version?")]
    Malformed(#[from] serde_json::Error),
}

/// A message in frames, ready to be sent. Payloads are shared with the message, not copied.
#[derive(Clone, Debug)]
pub struct Frames {
    pieces: Vec<Bytes>,
}

impl Frames {
    /// What is to be sent, in this order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// A message as frames.
///
/// # Errors
/// When it is over its limit, or cannot be encoded.
pub fn encode(message: &impl Serialize, limit: Limit) -> Result<Frames, FrameError> {
    // Room for the prefix of the first frame: nearly all messages are one frame, and so one piece.
    let mut json = vec![0; PREFIX];
    let payloads = payload::encode(message, &mut json)?;
    let raw: usize = payloads.iter().map(payload::Payload::len).sum();
    let bytes = json.len() - PREFIX + raw;
    if bytes > limit.bytes {
        return Err(FrameError::TooLarge { what: limit.what, bytes, limit: limit.bytes });
    }
    let mut pieces = Vec::new();
    let first = (json.len() - PREFIX).min(FRAME_BYTES);
    let more = first < json.len() - PREFIX || raw > 0;
    json[..PREFIX].copy_from_slice(&prefix(first, more, false));
    let mut json = Bytes::from(json);
    pieces.push(json.split_to(PREFIX + first));
    while !json.is_empty() {
        let part = json.split_to(json.len().min(FRAME_BYTES));
        pieces.push(Bytes::copy_from_slice(&prefix(part.len(), !json.is_empty() || raw > 0, false)));
        pieces.push(part);
    }
    let (mut left, mut room) = (raw, 0);
    for payload in &payloads {
        let mut rest = payload.bytes().clone();
        while !rest.is_empty() {
            if room == 0 {
                room = left.min(FRAME_BYTES);
                pieces.push(Bytes::copy_from_slice(&prefix(room, left > room, true)));
            }
            let part = rest.split_to(rest.len().min(room));
            room -= part.len();
            left -= part.len();
            pieces.push(part);
        }
    }
    Ok(Frames { pieces })
}

/// `length` is at most [`FRAME_BYTES`].
fn prefix(length: usize, more: bool, raw: bool) -> [u8; PREFIX] {
    let flags = if more { MORE } else { 0 } | if raw { RAW } else { 0 };
    (length as u32 & LENGTH | flags).to_be_bytes()
}

/// A message that arrives.
struct Assembly {
    limit: Limit,
    json: Vec<u8>,
    raw: Vec<u8>,
    /// The frame under way is of payloads.
    in_raw: bool,
    more: bool,
}

impl Assembly {
    fn new(limit: Limit) -> Self {
        Assembly { limit, json: Vec::new(), raw: Vec::new(), in_raw: false, more: true }
    }

    /// A frame begins; returns its length.
    fn begin(&mut self, prefix: [u8; PREFIX]) -> Result<usize, FrameError> {
        let prefix = u32::from_be_bytes(prefix);
        let (length, more, raw) = ((prefix & LENGTH) as usize, prefix & MORE != 0, prefix & RAW != 0);
        let arrived = self.json.len() + self.raw.len();
        if length > FRAME_BYTES || length > self.limit.bytes - arrived.min(self.limit.bytes) {
            return Err(FrameError::Oversized { what: self.limit.what, limit: self.limit.bytes });
        }
        if self.in_raw && !raw {
            return Err(FrameError::Sequence("a message went on after its payloads"));
        }
        if more && length == 0 {
            return Err(FrameError::Sequence("an empty frame came in the middle of a message"));
        }
        (self.in_raw, self.more) = (raw, more);
        Ok(length)
    }

    /// Where the bytes of the frame under way go.
    fn buffer(&mut self) -> &mut Vec<u8> {
        if self.in_raw { &mut self.raw } else { &mut self.json }
    }

    fn decode<T: DeserializeOwned>(self) -> Result<T, FrameError> {
        Ok(payload::decode(&self.json, self.raw.into())?)
    }
}

pub fn send(stream: &mut impl Write, message: &impl Serialize, limit: Limit) -> Result<(), FrameError> {
    Ok(write(stream, &encode(message, limit)?)?)
}

pub fn write(stream: &mut impl Write, frames: &Frames) -> io::Result<()> {
    frames.pieces().try_for_each(|piece| stream.write_all(piece))?;
    stream.flush()
}

pub fn receive<T: DeserializeOwned>(stream: &mut impl Read, limit: Limit) -> Result<T, FrameError> {
    let mut message = Assembly::new(limit);
    while message.more {
        let mut prefix = [0; PREFIX];
        stream.read_exact(&mut prefix)?;
        let length = message.begin(prefix)?;
        // `take` instead of a buffer of the announced length: a peer that only announces costs nothing.
        if stream.take(length as u64).read_to_end(message.buffer())? < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    message.decode()
}

/// Sends one message on an async stream.
#[cfg(feature = "transport")]
pub async fn send_async(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    message: &impl Serialize,
    limit: Limit,
) -> Result<(), FrameError> {
    let frames = encode(message, limit)?;
    Ok(write_async(stream, &frames).await?)
}

#[cfg(feature = "transport")]
pub async fn write_async(stream: &mut (impl tokio::io::AsyncWrite + Unpin), frames: &Frames) -> io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    for piece in frames.pieces() {
        stream.write_all(piece).await?;
    }
    stream.flush().await
}

/// Receives one message from an async stream. Not cancel-safe: give it a task of its own.
#[cfg(feature = "transport")]
pub async fn receive_async<T: DeserializeOwned>(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    limit: Limit,
) -> Result<T, FrameError> {
    use tokio::io::AsyncReadExt as _;
    let mut message = Assembly::new(limit);
    while message.more {
        let mut prefix = [0; PREFIX];
        stream.read_exact(&mut prefix).await?;
        let length = message.begin(prefix)?;
        if (&mut *stream).take(length as u64).read_to_end(message.buffer()).await? < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    message.decode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    const LIMIT: Limit = Limit { what: "a test message", bytes: 16 << 20 };

    fn sent(message: &impl Serialize) -> Vec<u8> {
        let mut stream = Vec::new();
        send(&mut stream, message, LIMIT).unwrap();
        stream
    }

    fn bytes(length: usize, seed: usize) -> Payload {
        (0..length).map(|at| (at * 31 + seed) as u8).collect::<Vec<u8>>().into()
    }

    /// The flags and the length of each frame.
    fn frames(mut stream: &[u8]) -> Vec<(bool, bool, usize)> {
        let mut found = Vec::new();
        while !stream.is_empty() {
            let prefix = u32::from_be_bytes(stream[..4].try_into().unwrap());
            let length = (prefix & LENGTH) as usize;
            found.push((prefix & MORE != 0, prefix & RAW != 0, length));
            stream = &stream[4 + length..];
        }
        found
    }

    #[test]
    fn a_small_message_is_one_frame_of_json_as_in_all_versions() {
        let stream = sent(&("heat", 7));
        assert_eq!(stream, b"\x00\x00\x00\x0a[\"heat\",7]");
        let back: (String, u32) = receive(&mut stream.as_slice(), LIMIT).unwrap();
        assert_eq!(back, ("heat".to_owned(), 7));
    }

    #[test]
    fn a_large_message_is_split_and_put_together_with_its_payloads() {
        let text = "x".repeat(2 * FRAME_BYTES + 5);
        let payloads = vec![bytes(3, 1), bytes(FRAME_BYTES, 2), Payload::default(), bytes(FRAME_BYTES + 7, 3)];
        let stream = sent(&(&text, &payloads));
        let found = frames(&stream);
        assert!(found.iter().all(|(_, _, length)| *length <= FRAME_BYTES));
        assert_eq!(
            found.iter().filter(|(_, raw, _)| *raw).map(|(_, _, length)| length).sum::<usize>(),
            2 * FRAME_BYTES + 10
        );
        assert_eq!(found.iter().position(|(more, _, _)| !more), Some(found.len() - 1));
        assert!(found.len() <= 6, "{found:?}");
        let back: (String, Vec<Payload>) = receive(&mut stream.as_slice(), LIMIT).unwrap();
        assert!(back == (text, payloads));
    }

    #[test]
    fn a_message_of_exactly_a_frame_is_not_split() {
        let text = "x".repeat(FRAME_BYTES - 2);
        assert_eq!(frames(&sent(&text)), [(false, false, FRAME_BYTES)]);
        let stream = sent(&bytes(FRAME_BYTES, 0));
        assert_eq!(frames(&stream), [(true, false, 7), (false, true, FRAME_BYTES)]);
    }

    #[test]
    fn a_message_over_its_limit_is_an_error_of_the_sender_that_names_it_and_nothing_is_sent() {
        let mut stream = Vec::new();
        let limit = Limit { what: "the calls of a rank", bytes: 100 };
        let error = send(&mut stream, &(1, bytes(99, 0)), limit).unwrap_err();
        assert_eq!(error.to_string(), "the calls of a rank would have 105 bytes, the limit is 100");
        assert!(stream.is_empty());
        send(&mut stream, &bytes(98, 0), limit).unwrap();
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_anything_is_read() {
        let mut stream = &[0x3f, 0xff, 0xff, 0xff, b'{'][..];
        assert!(matches!(receive::<()>(&mut stream, LIMIT), Err(FrameError::Oversized { .. })));
        assert_eq!(stream, b"{");
        let mut stream = &[0, 0, 0x20, 1, b'{'][..];
        let refused = receive::<()>(&mut stream, HELLO);
        assert!(matches!(refused, Err(FrameError::Oversized { limit: 8192, .. })), "{refused:?}");
    }

    #[test]
    fn many_frames_cannot_exceed_the_limit_of_the_message() {
        let mut stream = Vec::new();
        for _ in 0..5 {
            stream.extend((2048 | MORE).to_be_bytes());
            stream.extend([b' '; 2048]);
        }
        let mut rest = stream.as_slice();
        assert!(matches!(receive::<()>(&mut rest, HELLO), Err(FrameError::Oversized { .. })));
        assert_eq!(rest.len(), 2048, "the fifth frame is not read");
    }

    #[test]
    fn memory_grows_with_what_arrives_and_not_with_what_is_announced() {
        let mut message = Assembly::new(LIMIT);
        let length = message.begin((FRAME_BYTES as u32 | MORE).to_be_bytes()).unwrap();
        let mut stream = &b"few"[..];
        (&mut stream).take(length as u64).read_to_end(message.buffer()).unwrap();
        assert!(message.json.capacity() < 4096, "{}", message.json.capacity());
    }

    #[test]
    fn frames_in_an_invalid_sequence_are_refused() {
        let json_after_raw =
            [&(2 | MORE).to_be_bytes()[..], b"[1", &(1 | RAW | MORE).to_be_bytes(), b"x", &[0, 0, 0, 1], b"]"];
        let refused = receive::<Vec<u8>>(&mut json_after_raw.concat().as_slice(), LIMIT);
        assert!(matches!(refused, Err(FrameError::Sequence(_))), "{refused:?}");
        let refused = receive::<()>(&mut &MORE.to_be_bytes()[..], LIMIT);
        assert!(matches!(refused, Err(FrameError::Sequence(_))), "{refused:?}");
        let unannounced = [&(4 | MORE).to_be_bytes()[..], b"null", &(1 | RAW).to_be_bytes(), b"x"].concat();
        assert!(matches!(receive::<()>(&mut unannounced.as_slice(), LIMIT), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn a_message_cut_short_is_an_error_and_not_a_message() {
        let stream = sent(&("checkpoint", bytes(40, 0)));
        for end in 0..stream.len() {
            assert!(receive::<(String, Payload)>(&mut &stream[..end], LIMIT).is_err(), "{end} bytes");
        }
    }
}
