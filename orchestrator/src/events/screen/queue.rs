//! The queue of output for one file descriptor.
//!
//! Three kinds of content, which are treated differently if the reader of the descriptor is slower than the job:
//!
//! * lines of Holdfast: accepted up to a number; those beyond it are counted, and a line in their place reports the
//!   count;
//! * output of ranks: its producer waits while much of it is here (it is in files, and stays there meanwhile);
//! * the live view: only the newest content is kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use holdfast_model::{NodeName, Progress};
use tokio::sync::oneshot;

use super::account::OutputAccount;
use super::view::View;
use crate::launch::output::Stream;

/// Maximum number of lines of Holdfast in the queue: several times those of a relaunch of thousands of nodes.
const MOST_LINES: usize = 1 << 16;
/// The producer of rank output waits while this much of it is not written.
const MUCH_OUTPUT: usize = 16 << 20;
/// Written at a time.
const BATCH_BYTES: usize = 64 << 10;

/// One thing to write, in order.
#[derive(Debug)]
pub(super) enum Message {
    /// A line of Holdfast, with its end.
    Line(Vec<u8>),
    /// Lines of ranks.
    Output(OutputText),
    /// The live view is removed.
    ClearView,
    /// The result of the command, for standard output.
    Result(Vec<u8>, oneshot::Sender<io::Result<()>>),
    /// Everything before it is written.
    Mark(oneshot::Sender<()>),
}

/// Lines of ranks, with their ends.
#[derive(Debug)]
pub(super) struct OutputText {
    pub(super) stream: Stream,
    pub(super) text: Vec<u8>,
    pub(super) account: Arc<OutputAccount>,
    /// The bytes of the ranks' files that this is.
    pub(super) bytes: u64,
}

/// The status of each step that runs beside others, by its name; of another job, the only one.
pub(super) type Views = BTreeMap<Option<Arc<str>>, View>;

/// New content of the live view.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) view: Option<Views>,
    /// The long work of nodes, where it changed.
    pub(super) progress: BTreeMap<NodeName, Vec<Progress>>,
}

impl Frame {
    fn is_empty(&self) -> bool {
        self.view.is_none() && self.progress.is_empty()
    }
}

/// The queue of one file descriptor.
#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: VecDeque<Message>,
    lines: usize,
    /// Including the output that is being written.
    output_bytes: usize,
    frame: Frame,
    /// The newest content of the status line, shown or not.
    views: Views,
    /// Nodes whose long work was shown last.
    busy: BTreeSet<NodeName>,
    /// Lines that were not accepted since the last one that was.
    dropped: u64,
    /// Messages are being written.
    is_writing: bool,
    /// Counts the batches that were written.
    pub(super) written: u64,
    /// No message follows.
    pub(super) is_closed: bool,
}

impl Queue {
    /// Adds a message, unless it is one line too many.
    pub(super) fn push(&mut self, message: Message) {
        if matches!(message, Message::Line(_)) {
            if self.lines >= MOST_LINES {
                self.dropped += 1;
                return;
            }
            self.lines += 1;
        }
        if self.dropped > 0 {
            let count = std::mem::take(&mut self.dropped);
            let text = format!(
                "{count} lines are missing here, because no output was accepted for some time; all events are in \
                 .holdfast/events.jsonl of the prefix directory\n"
            );
            self.lines += 1;
            self.messages.push_back(Message::Line(text.into_bytes()));
        }
        if let Message::Output(output) = &message {
            self.output_bytes += output.text.len();
        }
        self.messages.push_back(message);
    }

    /// Replaces the status line of a step. Returns whether it is another one.
    pub(super) fn set_view(&mut self, step: &Option<Arc<str>>, view: View) -> bool {
        if self.views.get(step) == Some(&view) {
            return false;
        }
        self.views.insert(step.clone(), view);
        self.frame.view = Some(self.views.clone());
        true
    }

    /// Removes the status line of a step. Returns whether it had one.
    pub(super) fn remove_view(&mut self, step: &Option<Arc<str>>) -> bool {
        let had = self.views.remove(step).is_some();
        self.frame.view = Some(self.views.clone());
        had
    }

    /// Replaces the long work of a node. Returns whether there is something to show.
    pub(super) fn set_progress(&mut self, node: &NodeName, work: &[Progress]) -> bool {
        if work.is_empty() && !self.busy.remove(node) {
            return false;
        }
        if !work.is_empty() {
            self.busy.insert(node.clone());
        }
        self.frame.progress.insert(node.clone(), work.to_vec());
        true
    }

    /// False while the producer of rank output is to wait.
    pub(super) fn has_room(&self) -> bool {
        self.output_bytes < MUCH_OUTPUT
    }

    /// The next messages to write, and the newest content of the live view. `None` if there is nothing to do.
    pub(super) fn take(&mut self) -> Option<(Vec<Message>, Frame)> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(message) = self.messages.pop_front()
        {
            match &message {
                Message::Line(text) => {
                    self.lines -= 1;
                    bytes += text.len();
                }
                Message::Output(output) => bytes += output.text.len(),
                Message::Result(text, _) => bytes += text.len(),
                Message::ClearView | Message::Mark(_) => {}
            }
            batch.push(message);
        }
        if batch.is_empty() && self.frame.is_empty() {
            return None;
        }
        self.is_writing = true;
        Some((batch, std::mem::take(&mut self.frame)))
    }

    /// A batch was written, with this much output of ranks.
    pub(super) fn written(&mut self, output_bytes: usize) {
        self.output_bytes -= output_bytes;
        self.is_writing = false;
        self.written += 1;
    }

    /// Everything is written.
    pub(super) fn is_idle(&self) -> bool {
        self.messages.is_empty() && !self.is_writing
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::account::Accounts;
    use super::*;

    fn output(text: Vec<u8>) -> Message {
        let account = Accounts::default().open(Path::new("/"));
        Message::Output(OutputText { stream: Stream::Output, bytes: text.len() as u64, text, account })
    }

    fn line(number: usize) -> Message {
        Message::Line(format!("{number}\n").into_bytes())
    }

    fn text(messages: &[Message]) -> String {
        let text = |message: &Message| match message {
            Message::Line(text) => String::from_utf8(text.clone()).unwrap(),
            Message::Output(output) => String::from_utf8(output.text.clone()).unwrap(),
            _ => String::new(),
        };
        messages.iter().map(text).collect()
    }

    fn take_all(queue: &mut Queue) -> String {
        let mut all = String::new();
        while let Some((messages, _)) = queue.take() {
            all += &text(&messages);
            queue.written(0);
        }
        all
    }

    #[test]
    fn messages_keep_their_order() {
        let mut queue = Queue::default();
        queue.push(line(1));
        queue.push(output(b"a\n".to_vec()));
        queue.push(line(2));
        assert_eq!(take_all(&mut queue), "1\na\n2\n");
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_in_their_place() {
        let mut queue = Queue::default();
        (0..MOST_LINES + 7).for_each(|number| queue.push(line(number)));
        assert_eq!((queue.lines, queue.dropped), (MOST_LINES, 7));
        let first = queue.take().map(|(messages, _)| text(&messages)).unwrap();
        queue.push(line(0));
        let rest = take_all(&mut queue);
        let rest: Vec<&str> = rest.lines().collect();
        assert!(first.starts_with("0\n1\n"));
        let last: Vec<&str> = rest.iter().rev().take(3).rev().copied().collect();
        assert_eq!(last[0], (MOST_LINES - 1).to_string());
        assert!(last[1].starts_with("7 lines are missing here"), "{}", last[1]);
        assert_eq!(last[2], "0");
        assert_eq!((queue.lines, queue.dropped), (0, 0));
    }

    #[test]
    fn output_that_is_not_written_keeps_its_producer_waiting() {
        let mut queue = Queue::default();
        let much = vec![b'x'; MUCH_OUTPUT];
        queue.push(output(much));
        assert!(!queue.has_room());
        assert!(queue.take().is_some());
        assert!(!queue.has_room(), "taken, and not written");
        queue.written(MUCH_OUTPUT);
        assert!(queue.has_room());
    }

    #[test]
    fn of_the_live_view_only_the_newest_content_is_kept() {
        let mut queue = Queue::default();
        for used in 1..=100 {
            assert!(queue.set_view(&None, View { used, ..View::default() }));
        }
        assert!(!queue.set_view(&None, View { used: 100, ..View::default() }));
        let (messages, frame) = queue.take().unwrap();
        assert!(messages.is_empty());
        assert_eq!(frame.view.unwrap()[&None].used, 100);
        queue.written(0);
        assert!(queue.take().is_none());
    }
}
