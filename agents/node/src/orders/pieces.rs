//! The pieces of a ring on a connection.
//!
//! A thread in front of the incoming connection reads ahead into a bounded queue: that is the buffering which the
//! ring needs in order not to deadlock, and it lets decryption and XOR work side by side.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use holdfast_core::redundancy::xor::link::{Left, Right};
use holdfast_core::redundancy::xor::piece::{MAX_PIECE_BYTES, Pool};

use crate::stream::{Incoming, Outgoing};

/// Pieces that may wait in the queue.
const AHEAD: usize = 4;
/// In place of a length: all own files, and those of all before, were sound.
const SOUND: u32 = u32::MAX;

/// Pieces from the left neighbour.
pub(super) struct FromLeft {
    queue: Receiver<io::Result<Arrival>>,
}

enum Arrival {
    Piece(Vec<u8>),
    Sound,
}

impl FromLeft {
    /// Begins to read ahead.
    pub(super) fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, stream: Incoming, pool: Pool) -> Self {
        let (sender, queue) = sync_channel(AHEAD);
        scope.spawn(move || read_ahead(stream, &pool, &sender));
        FromLeft { queue }
    }

    /// After the last piece: waits for the word that the survivors' files were sound.
    pub(super) fn verdict(&self) -> io::Result<()> {
        match self.next()? {
            Arrival::Sound => Ok(()),
            Arrival::Piece(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a piece too many")),
        }
    }

    fn next(&self) -> io::Result<Arrival> {
        self.queue.recv().unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl Left for FromLeft {
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        match self.next()? {
            Arrival::Piece(piece) => Ok(piece),
            Arrival::Sound => Err(io::Error::new(io::ErrorKind::InvalidData, "a piece too few")),
        }
    }
}

fn read_ahead(mut stream: Incoming, pool: &Pool, queue: &SyncSender<io::Result<Arrival>>) {
    loop {
        let arrival = next(&mut stream, pool);
        let last = !matches!(arrival, Ok(Arrival::Piece(_)));
        if queue.send(arrival).is_err() || last {
            return;
        }
    }
}

fn next(stream: &mut impl Read, pool: &Pool) -> io::Result<Arrival> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length == SOUND {
        return Ok(Arrival::Sound);
    }
    if length as usize > MAX_PIECE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a piece of {length} bytes was announced")));
    }
    let mut piece = pool.take(length as usize);
    stream.read_exact(&mut piece)?;
    Ok(Arrival::Piece(piece))
}

/// Pieces to the right neighbour.
pub(super) struct ToRight {
    stream: Outgoing,
    pool: Pool,
}

impl ToRight {
    /// On a connection that was greeted.
    pub(super) fn new(stream: Outgoing, pool: Pool) -> Self {
        ToRight { stream, pool }
    }

    /// After the last piece: everything was sound.
    pub(super) fn sound(mut self) -> io::Result<()> {
        self.stream.write_all(&SOUND.to_be_bytes())?;
        self.stream.finish()
    }
}

impl Right for ToRight {
    fn send(&mut self, piece: Vec<u8>) -> io::Result<()> {
        let length = u32::try_from(piece.len()).map_err(io::Error::other)?;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(&piece)?;
        self.pool.give(piece);
        Ok(())
    }
}
