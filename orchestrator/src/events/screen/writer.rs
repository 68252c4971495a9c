//! The thread that writes to one file descriptor, or to both if they are the same file. A write may block as long as
//! the reader or the file system does.

use std::io::{self, Write as _};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::account::OutputAccount;
use super::live::LiveView;
use super::queue::{Frame, Message, OutputText, Queue};
use crate::launch::output::Stream;

/// A pipe accepts a write of this size completely or, while it is full, not at all. So it is known what was written.
const PIECE_BYTES: usize = 4096;

/// The handle of the thread. After it is dropped, the thread writes what is left and ends.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Where the thread writes to.
pub(super) trait Sink: Send + 'static {
    /// Writes pieces, and reports each one that was [written](Piece::written).
    fn write(&mut self, to: Stream, pieces: &[Piece]) -> io::Result<()>;
    fn show(&mut self, frame: Frame);
    fn clear_view(&mut self);
}

impl Writer {
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(name: &str, mut sink: impl Sink) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some((messages, frame)) = of_thread.next() {
                let output_bytes = write(&mut sink, messages);
                sink.show(frame);
                of_thread.queue.lock().written(output_bytes);
            }
        })?;
        Ok(Writer { shared })
    }

    pub(super) fn push(&self, message: Message) {
        self.shared.queue.lock().push(message);
        self.shared.changed.notify_one();
    }

    /// Changes the content of the live view; `update` returns whether there is something to show.
    pub(super) fn update_view(&self, update: impl FnOnce(&mut Queue) -> bool) {
        if update(&mut self.shared.queue.lock()) {
            self.shared.changed.notify_one();
        }
    }

    /// Reads a property of the queue.
    pub(super) fn look<T>(&self, property: impl FnOnce(&Queue) -> T) -> T {
        property(&self.shared.queue.lock())
    }

    /// Completes when everything that was pushed before is written.
    pub(super) fn mark(&self) -> oneshot::Receiver<()> {
        let (written, receiver) = oneshot::channel();
        self.push(Message::Mark(written));
        receiver
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// Waits for messages or a frame. `None` at the end.
    fn next(&self) -> Option<(Vec<Message>, Frame)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(taken) = queue.take() {
                return Some(taken);
            }
            if queue.is_closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

/// What is written by one system call: at most [`PIECE_BYTES`], or one longer line.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    /// The output of ranks in it.
    output: Vec<(Arc<OutputAccount>, u64)>,
}

impl Piece {
    /// It was written.
    pub(super) fn written(&self) {
        self.output.iter().for_each(|(account, bytes)| account.written(*bytes));
    }
}

/// Messages for one stream that are written together.
#[derive(Debug, Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn add(&mut self, text: Vec<u8>, output: Option<(Arc<OutputAccount>, u64)>) {
        match self.0.last_mut() {
            Some(last) if last.text.len() + text.len() <= PIECE_BYTES => {
                last.text.extend(text);
                last.output.extend(output);
            }
            _ => self.0.push(Piece { text, output: output.into_iter().collect() }),
        }
    }
}

/// Writes messages, as few writes as their order allows. Returns how much output of ranks was among them.
fn write(sink: &mut impl Sink, messages: Vec<Message>) -> usize {
    let (mut output_bytes, mut pieces, mut to) = (0, Pieces::default(), Stream::Errors);
    for message in messages {
        let stream = if let Message::Output(output) = &message { output.stream } else { Stream::Errors };
        if stream != to || !matches!(message, Message::Line(_) | Message::Output(_)) {
            flush(sink, to, &mut pieces);
            to = stream;
        }
        match message {
            Message::Line(line) => pieces.add(line, None),
            Message::Output(OutputText { text, account, bytes, .. }) => {
                output_bytes += text.len();
                pieces.add(text, Some((account, bytes)));
            }
            Message::ClearView => sink.clear_view(),
            // The receivers may have given up waiting.
            Message::Result(text, written) => {
                let piece = Piece { text, output: Vec::new() };
                drop(written.send(sink.write(Stream::Output, &[piece])));
            }
            Message::Mark(written) => drop(written.send(())),
        }
    }
    flush(sink, to, &mut pieces);
    output_bytes
}

fn flush(sink: &mut impl Sink, to: Stream, pieces: &mut Pieces) {
    let pieces = std::mem::take(pieces).0;
    if pieces.is_empty() {
        return;
    }
    match sink.write(to, &pieces) {
        // A reader that closed its end does not want the rest.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => pieces.iter().for_each(Piece::written),
        // Output that could not be written is reported at the end.
        _ => {}
    }
}

/// The process's standard output and standard error, with the live view if there is one.
pub(super) struct Standard {
    pub(super) live: Option<LiveView>,
}

impl Sink for Standard {
    fn write(&mut self, to: Stream, pieces: &[Piece]) -> io::Result<()> {
        let write_piece = |piece: &Piece| match to {
            Stream::Output => {
                let mut output = io::stdout().lock();
                output.write_all(&piece.text).and_then(|()| output.flush())
            }
            Stream::Errors => io::stderr().write_all(&piece.text),
        };
        let write = || {
            pieces.iter().try_for_each(|piece| {
                write_piece(piece)?;
                piece.written();
                Ok(())
            })
        };
        match &self.live {
            Some(live) => live.suspend(write),
            None => write(),
        }
    }

    fn show(&mut self, frame: Frame) {
        if let Some(live) = &mut self.live {
            live.show(frame);
        }
    }

    fn clear_view(&mut self) {
        if let Some(live) = self.live.take() {
            live.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use super::super::account::Accounts;
    use super::*;

    /// A sink that reports what it is about to write, and writes when it is permitted to.
    struct Permitted {
        permits: mpsc::Receiver<()>,
        written: mpsc::Sender<(Stream, String)>,
    }

    impl Sink for Permitted {
        fn write(&mut self, to: Stream, pieces: &[Piece]) -> io::Result<()> {
            pieces.iter().try_for_each(|piece| {
                let _ = self.written.send((to, String::from_utf8_lossy(&piece.text).into_owned()));
                self.permits.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
                piece.written();
                Ok(())
            })
        }

        fn show(&mut self, _: Frame) {}

        fn clear_view(&mut self) {}
    }

    fn line(text: &str) -> Message {
        Message::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn pushing_never_waits_for_the_sink_and_the_order_stays() {
        let (permit, permits) = mpsc::channel();
        let (written, texts) = mpsc::channel();
        let writer = Writer::start("test", Permitted { permits, written }).unwrap();
        for number in 0..100 {
            writer.push(line(&format!("{number}\n")));
            let text = format!("rank {number}\n").into_bytes();
            let (stream, account) = (Stream::Output, Accounts::default().open(Path::new("/")));
            writer.push(Message::Output(OutputText { stream, bytes: text.len() as u64, text, account }));
        }
        let mark = writer.mark();
        (0..200).for_each(|_| permit.send(()).unwrap());
        mark.blocking_recv().unwrap();
        let mut expected = Vec::new();
        for number in 0..100 {
            expected.push((Stream::Errors, format!("{number}\n")));
            expected.push((Stream::Output, format!("rank {number}\n")));
        }
        assert_eq!(texts.try_iter().collect::<Vec<_>>(), expected);
        assert!(writer.look(Queue::has_room));
    }

    #[test]
    fn lines_that_wait_are_written_together() {
        let (permit, permits) = mpsc::channel();
        let (written, texts) = mpsc::channel();
        let writer = Writer::start("test", Permitted { permits, written }).unwrap();
        writer.push(line("first\n"));
        let first = texts.recv().unwrap().1;
        writer.push(line("second\n"));
        writer.push(line("third\n"));
        (0..2).for_each(|_| permit.send(()).unwrap());
        writer.mark().blocking_recv().unwrap();
        let texts: Vec<_> = texts.try_iter().map(|(_, text)| text).collect();
        assert_eq!((first, texts), ("first\n".to_owned(), vec!["second\nthird\n".to_owned()]));
    }

    #[test]
    fn the_error_of_writing_the_result_is_reported() {
        let (permit, permits) = mpsc::channel();
        drop(permit);
        let writer = Writer::start("test", Permitted { permits, written: mpsc::channel().0 }).unwrap();
        let (written, receiver) = oneshot::channel();
        writer.push(Message::Result(b"{}".to_vec(), written));
        assert_eq!(receiver.blocking_recv().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
