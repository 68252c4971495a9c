//! What a member sees of its neighbours in the ring.
//!
//! Pieces travel by value: a received buffer is XORed into and sent on, so that no byte is copied between links.
//!
//! **What a link has to give.** `send` may block until the neighbour has taken an earlier piece, but each link must
//! be able to hold at least *one* piece that was not received yet, even while the receiver itself is blocked in its own
//! `send` (a receiver thread in front of a bounded queue does; so does a bounded channel of capacity 1). Then a ring of
//! members that each send and receive in turn cannot deadlock: a member that blocks is always at least one step ahead of
//! its right neighbour, and not all members of a ring can be ahead of their right neighbour. More places in the queue
//! hide latency: 2 to 4 are useful.

use std::io;

/// The link from the left neighbour.
pub trait Left {
    /// The next piece, in the order in which the neighbour sent them. An error if the neighbour is gone.
    fn receive(&mut self) -> io::Result<Vec<u8>>;
}

/// The link to the right neighbour.
pub trait Right {
    /// Hands a piece over. A link that copies the bytes away can give the buffer back to the
    /// [`Pool`](super::piece::Pool) that its receiver takes from.
    fn send(&mut self, piece: Vec<u8>) -> io::Result<()>;
}

impl Left for std::sync::mpsc::Receiver<Vec<u8>> {
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.recv().map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }
}

impl Right for std::sync::mpsc::SyncSender<Vec<u8>> {
    fn send(&mut self, piece: Vec<u8>) -> io::Result<()> {
        std::sync::mpsc::SyncSender::send(self, piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl<L: Left + ?Sized> Left for &mut L {
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        (**self).receive()
    }
}

impl<R: Right + ?Sized> Right for &mut R {
    fn send(&mut self, piece: Vec<u8>) -> io::Result<()> {
        (**self).send(piece)
    }
}
