//! The thread that writes to one file descriptor, or to both if they are the same file. A write may block as long as
//! the reader or the file system does.

use std::io::{self, Write as _};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::live::LiveView;
use super::queue::{Frame, Message, Queue};
use crate::launch::output::Stream;

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
    fn write(&mut self, to: Stream, text: &[u8]) -> io::Result<()>;
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
        self.shared.queue.lock().close();
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
            if queue.is_closed() {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

/// Writes messages, as few writes as their order allows. Returns how much output of ranks was among them.
fn write(sink: &mut impl Sink, messages: Vec<Message>) -> usize {
    let (mut output_bytes, mut text, mut to) = (0, Vec::new(), Stream::Errors);
    for message in messages {
        let stream = if let Message::Output(stream, _) = &message { *stream } else { Stream::Errors };
        if stream != to || !matches!(message, Message::Line(_) | Message::Output(..)) {
            flush(sink, to, &mut text);
            to = stream;
        }
        match message {
            Message::Line(line) => text.extend(line),
            Message::Output(_, lines) => {
                output_bytes += lines.len();
                text.extend(lines);
            }
            Message::ClearView => sink.clear_view(),
            // The receivers may have given up waiting.
            Message::Result(result, written) => drop(written.send(sink.write(Stream::Output, &result))),
            Message::Mark(written) => drop(written.send(())),
        }
    }
    flush(sink, to, &mut text);
    output_bytes
}

fn flush(sink: &mut impl Sink, to: Stream, text: &mut Vec<u8>) {
    if !text.is_empty() {
        // A reader that closed its end is not an error of the job.
        let _ = sink.write(to, text);
        text.clear();
    }
}

/// The process's standard output and standard error, with the live view if there is one.
pub(super) struct Standard {
    pub(super) live: Option<LiveView>,
}

impl Sink for Standard {
    fn write(&mut self, to: Stream, text: &[u8]) -> io::Result<()> {
        let write = || match to {
            Stream::Output => {
                let mut output = io::stdout().lock();
                output.write_all(text).and_then(|()| output.flush())
            }
            Stream::Errors => io::stderr().write_all(text),
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
    use std::sync::mpsc;

    use super::*;

    /// A sink that reports what it is about to write, and writes when it is permitted to.
    struct Permitted {
        permits: mpsc::Receiver<()>,
        written: mpsc::Sender<(Stream, String)>,
    }

    impl Sink for Permitted {
        fn write(&mut self, to: Stream, text: &[u8]) -> io::Result<()> {
            let _ = self.written.send((to, String::from_utf8_lossy(text).into_owned()));
            Ok(self.permits.recv().map_err(|_| io::ErrorKind::BrokenPipe)?)
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
            writer.push(Message::Output(Stream::Output, format!("rank {number}\n").into_bytes()));
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
