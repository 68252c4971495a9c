//! Links between the members of a group: one direction each, messages in order.
//!
//! Pieces travel by value: a received buffer is computed into and sent on, so that no byte is copied between links.
//!
//! **What a link has to guarantee.** `send` may block until the neighbour has taken an earlier message, but each link
//! must be able to hold at least *one* message that was not received yet, even while the receiver itself is blocked in
//! its own `send` (a receiver thread in front of a bounded queue does; so does a bounded channel of capacity 1). Then a
//! ring of members that each send and receive in turn cannot deadlock: a member that blocks is always at least one step
//! ahead of its right neighbour, and not all members of a ring can be ahead of their right neighbour. More places in
//! the queue hide latency: 2 to 4 are useful.

use std::io;

/// The longest message that a link takes: limits how much a peer can make this process allocate.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

pub trait LinkReceiver: Send {
    /// The next message, in the order in which they were sent. An error if the sender has ended.
    fn receive(&mut self) -> io::Result<Vec<u8>>;

    /// After the last message: waits until the sender confirms that all it has sent is valid.
    fn finish(&mut self) -> io::Result<()>;
}

pub trait LinkSender: Send {
    /// Sends a message of at least one byte. A link that copies the bytes can return the buffer to the
    /// [`BufferPool`](super::piece::BufferPool) that its receiver takes from.
    fn send(&mut self, message: Vec<u8>) -> io::Result<()>;

    /// After the last message: confirms that all that was sent is valid. A link that is dropped before counts as
    /// broken.
    fn finish(&mut self) -> io::Result<()>;
}

impl LinkReceiver for std::sync::mpsc::Receiver<Vec<u8>> {
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.recv().map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.receive()?.len() {
            0 => Ok(()),
            more => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{more} bytes more than expected"))),
        }
    }
}

/// An empty message marks the end.
impl LinkSender for std::sync::mpsc::SyncSender<Vec<u8>> {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        std::sync::mpsc::SyncSender::send(self, message).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(&mut self) -> io::Result<()> {
        LinkSender::send(self, Vec::new())
    }
}
