//! Links between the members of a group: messages on a connection.
//!
//! A thread reads ahead from the incoming connection into a bounded queue. A scheme needs this buffer in order not to
//! deadlock, and decryption and computation overlap. For small messages ([`SMALL`]) the buffers of the connection are
//! sufficient, and a thread would cost more than it saves.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use holdfast_core::redundancy::link::{self, MAX_MESSAGE_BYTES};
use holdfast_core::redundancy::piece::BufferPool;
use holdfast_model::Generation;

use crate::agent::Agent;
use crate::stream::{self, Closer, IncomingStream, OutgoingStream};

/// Messages that may wait in the queue.
const AHEAD: usize = 2;
/// The largest small message: the buffers of a connection hold several of them.
pub(super) const SMALL: usize = 4 << 10;
/// So many bytes of a message are allocated for its announced length, more as they arrive; pieces are usually smaller.
const AT_ONCE: usize = 1 << 20;
/// In place of a length: the end of the messages, all of which were sent without error.
const FINISHED: u32 = u32::MAX;

pub(super) struct FromMember {
    source: MessageSource,
}

enum MessageSource {
    /// Read when a message is requested.
    Direct(Option<Box<IncomingStream>>, BufferPool),
    /// Read by a thread.
    Ahead(ReadingThread),
}

struct ReadingThread {
    queue: Option<Receiver<io::Result<Arrival>>>,
    /// Of the connection that it reads.
    closer: Option<Closer>,
    reading: Option<JoinHandle<()>>,
}

enum Arrival {
    Message(Vec<u8>),
    Finished,
}

impl FromMember {
    /// Begins to read ahead.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub(super) fn reading_ahead(stream: IncomingStream, pool: BufferPool) -> io::Result<Self> {
        let closer = stream.closer().ok();
        let (sender, queue) = sync_channel(AHEAD);
        let read = move || read_ahead(stream, &pool, &sender);
        let reading = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read)?;
        let thread = ReadingThread { queue: Some(queue), closer, reading: Some(reading) };
        Ok(FromMember { source: MessageSource::Ahead(thread) })
    }

    /// For a link of which every message, and what this member sends before it reads, is at most [`SMALL`] bytes long.
    pub(super) fn of_small_messages(stream: IncomingStream, pool: BufferPool) -> Self {
        FromMember { source: MessageSource::Direct(Some(Box::new(stream)), pool) }
    }

    fn next(&mut self) -> io::Result<Arrival> {
        match &mut self.source {
            MessageSource::Direct(stream, pool) => match stream {
                Some(stream) => next(stream, pool),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
            MessageSource::Ahead(thread) => {
                let queue = thread.queue.as_ref().and_then(|queue| queue.recv().ok());
                queue.unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }
}

impl link::LinkReceiver for FromMember {
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        match self.next()? {
            Arrival::Message(message) => Ok(message),
            Arrival::Finished => Err(io::Error::new(io::ErrorKind::InvalidData, "a message is missing")),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.next()? {
            Arrival::Finished => {
                match &mut self.source {
                    MessageSource::Direct(stream, _) => {
                        if let Some(stream) = stream.take() {
                            stream.give_back();
                        }
                    }
                    // Another step may already use the connection.
                    MessageSource::Ahead(thread) => thread.closer = None,
                }
                Ok(())
            }
            Arrival::Message(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "there is a surplus message")),
        }
    }
}

impl Drop for ReadingThread {
    fn drop(&mut self) {
        // The thread may wait for space in the queue, or for bytes that are not needed any more.
        self.queue = None;
        let Some(reading) = self.reading.take() else { return };
        if !reading.is_finished()
            && let Some(closer) = &self.closer
        {
            closer.close();
        }
        let _ = reading.join();
    }
}

fn read_ahead(mut stream: IncomingStream, pool: &BufferPool, queue: &SyncSender<io::Result<Arrival>>) {
    loop {
        let arrival = next(&mut stream, pool);
        if matches!(arrival, Ok(Arrival::Finished)) {
            stream.give_back();
            let _ = queue.send(arrival);
            return;
        }
        let last = arrival.is_err();
        if queue.send(arrival).is_err() || last {
            return;
        }
    }
}

fn next(stream: &mut impl Read, pool: &BufferPool) -> io::Result<Arrival> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length == FINISHED {
        return Ok(Arrival::Finished);
    }
    if length as usize > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes was announced")));
    }
    let length = length as usize;
    let mut message = pool.take(length.min(AT_ONCE));
    stream.read_exact(&mut message)?;
    while message.len() < length {
        let arrived = message.len();
        message.resize(length.min(arrived.saturating_mul(2)), 0);
        stream.read_exact(&mut message[arrived..])?;
    }
    Ok(Arrival::Message(message))
}

pub(super) struct ToMember {
    agent: Arc<Agent>,
    generation: Generation,
    /// Until all is sent.
    stream: Option<OutgoingStream>,
    pool: BufferPool,
}

impl ToMember {
    pub(super) fn new(agent: Arc<Agent>, generation: Generation, stream: OutgoingStream, pool: BufferPool) -> Self {
        ToMember { agent, generation, stream: Some(stream), pool }
    }

    fn stream(&mut self) -> io::Result<&mut OutgoingStream> {
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl link::LinkSender for ToMember {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length as usize <= MAX_MESSAGE_BYTES);
        let length = length.ok_or_else(|| {
            let what = format!("a message of {} bytes is longer than {MAX_MESSAGE_BYTES}", message.len());
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let stream = self.stream()?;
        if message.len() <= SMALL {
            // One record is cheaper than two.
            stream.write_all(&[&length.to_be_bytes(), message.as_slice()].concat())?;
        } else {
            stream::write_all(stream, &mut [IoSlice::new(&length.to_be_bytes()), IoSlice::new(&message)])?;
        }
        self.pool.give(message);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let stream = self.stream()?;
        stream.write_all(&FINISHED.to_be_bytes())?;
        stream.flush()?;
        if let Some(stream) = self.stream.take() {
            self.agent.streams.keep(self.generation, stream);
        }
        Ok(())
    }
}
