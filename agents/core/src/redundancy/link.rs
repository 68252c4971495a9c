//! Links between the members of a group: one direction each, messages in order.
//!
//! Pieces travel by value: a received buffer is computed into and sent on, so that no byte is copied between links.
//!
//! **What a link has to give.** `send` may block until the neighbour has taken an earlier message, but each link must
//! be able to hold at least *one* message that was not received yet, even while the receiver itself is blocked in its
//! own `send` (a receiver thread in front of a bounded queue does; so does a bounded channel of capacity 1). Then a
//! ring of members that each send and receive in turn cannot deadlock: a member that blocks is always at least one step
//! ahead of its right neighbour, and not all members of a ring can be ahead of their right neighbour. More places in
//! the queue hide latency: 2 to 4 are useful.

use std::io;

/// The longest message that a link takes: bounds what a peer can make us allocate.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// A link from another member.
pub trait Incoming: Send {
    /// The next message, in the order in which they were sent. An error if the sender is gone.
    fn receive(&mut self) -> io::Result<Vec<u8>>;

    /// After the last message: waits until the sender confirms that all it has sent is sound.
    fn finish(&mut self) -> io::Result<()>;
}

/// A link to another member.
pub trait Outgoing: Send {
    /// Hands a message over, at least one byte. A link that copies the bytes away can give the buffer back to the
    /// [`Pool`](super::piece::Pool) that its receiver takes from.
    fn send(&mut self, message: Vec<u8>) -> io::Result<()>;

    /// After the last message: confirms that all that was sent is sound. A link that is dropped without is broken.
    fn finish(&mut self) -> io::Result<()>;
}

impl Incoming for std::sync::mpsc::Receiver<Vec<u8>> {
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
impl Outgoing for std::sync::mpsc::SyncSender<Vec<u8>> {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        std::sync::mpsc::SyncSender::send(self, message).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(&mut self) -> io::Result<()> {
        Outgoing::send(self, Vec::new())
    }
}
