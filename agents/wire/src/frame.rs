//! Frames: a big-endian `u32` length, then that many bytes of JSON. The length is checked before anything is
//! allocated, so that a stranger cannot ask for four gigabytes.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame that is sent or accepted, in bytes.
pub const LARGEST: usize = 64 << 20;

/// What can go wrong with a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed or ended.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The length is over the limit: not one of our programs on the other end, or a damaged stream.
    #[error("a frame of {0} bytes was announced, the limit is {LARGEST}: is the other end a Holdfast of this version?")]
    TooLarge(usize),
    /// The bytes are not the message that was expected.
    #[error("the message could not be read: {0}: is the other end a Holdfast of this version?")]
    Malformed(#[from] serde_json::Error),
}

/// A message as a frame, ready to send.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= LARGEST).ok_or(FrameError::TooLarge(length))?;
    frame[..4].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame)
}

/// The length of the frame that these four bytes announce.
pub fn announced(prefix: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length > LARGEST { Err(FrameError::TooLarge(length)) } else { Ok(length) }
}

/// Sends one message.
pub fn send(stream: &mut impl Write, message: &impl Serialize) -> Result<(), FrameError> {
    stream.write_all(&encode(message)?)?;
    stream.flush()?;
    Ok(())
}

/// Receives one message.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, FrameError> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let length = announced(prefix)?;
    // `take` instead of a buffer of the announced length: a peer that only announces costs us nothing.
    let mut body = Vec::new();
    if stream.take(length as u64).read_to_end(&mut body)? < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

/// Sends one message on an async stream.
#[cfg(feature = "transport")]
pub async fn send_async(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    message: &impl Serialize,
) -> Result<(), FrameError> {
    use tokio::io::AsyncWriteExt as _;
    stream.write_all(&encode(message)?).await?;
    stream.flush().await?;
    Ok(())
}

/// Receives one message from an async stream. Not cancel-safe: give it a task of its own.
#[cfg(feature = "transport")]
pub async fn receive_async<T: DeserializeOwned>(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> Result<T, FrameError> {
    use tokio::io::AsyncReadExt as _;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).await?;
    let length = announced(prefix)?;
    let mut body = Vec::new();
    if stream.take(length as u64).read_to_end(&mut body).await? < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_round_trip() {
        let mut stream = Vec::new();
        send(&mut stream, &("heat", 7)).unwrap();
        let back: (String, u32) = receive(&mut stream.as_slice()).unwrap();
        assert_eq!(back, ("heat".to_owned(), 7));
    }

    #[test]
    fn an_announced_length_over_the_limit_is_refused_before_it_is_read() {
        let mut stream = &[0xff, 0xff, 0xff, 0xff, b'{'][..];
        assert!(matches!(receive::<()>(&mut stream), Err(FrameError::TooLarge(0xffff_ffff))));
    }

    #[test]
    fn a_frame_cut_short_is_an_error_and_not_a_message() {
        let whole = encode(&"checkpoint").unwrap();
        for end in 0..whole.len() {
            assert!(receive::<String>(&mut &whole[..end]).is_err(), "{end} bytes");
        }
    }
}
