//! The output of a running job: plain lines in a batch log, a live view on a terminal.
//!
//! Everything goes to standard error but the application's own standard output, which stays what it is (unless standard
//! output belongs to a JSON document).
//!
//! Showing something never waits: threads of their own write, since the file, the pipe or the terminal behind a
//! descriptor may accept nothing for minutes. At the end [`Screen::close`] waits for what is left, bounded.

mod live;
mod queue;
mod turns;
mod writer;

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Local;
use futures_util::FutureExt as _;
use holdfast_model::{CheckpointId, Generation, NodeName, Progress, Rank};
use tokio::sync::oneshot;

use self::live::LiveView;
use self::queue::{Message, Queue};
use self::turns::{Turn, Turns};
use self::writer::{Standard, Writer};
use super::LogEvent;
use crate::launch::output::Stream;

/// At the end, a descriptor that accepts nothing is given up after this: as long as a prefix directory that hangs.
const STALLED_AFTER: Duration = Duration::from_secs(120);
/// At the end, output of ranks that nothing keeps from being shown, but that does not come, is given up after this: its
/// file system hangs.
const OUTPUT_WITHIN: Duration = Duration::from_secs(5);
/// After a signal at the end, what can be written at once still is.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Lines of ranks in one message.
const LINES_AT_ONCE: usize = 256;
/// How often the end looks whether something is being written.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The appearance of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenStyle {
    /// Nothing but the application's output.
    pub quiet: bool,
    /// Standard output belongs to a document: the application's output goes to standard error.
    pub document: bool,
    /// `[rank]` in front of the application's lines.
    pub labels: bool,
}

/// The state that the live view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The phase of the job.
    pub phase: String,
    pub generation: Option<Generation>,
    /// Nodes with ranks.
    pub used: usize,
    /// Healthy nodes without.
    pub spare: usize,
    /// Nodes that are down.
    pub down: usize,
    /// The newest complete checkpoint, and whether it survives the loss of a node.
    pub newest: Option<(CheckpointId, bool)>,
}

/// Standard output and standard error of a job. Clones are the same screen.
#[derive(Clone, Debug)]
pub struct Screen {
    style: ScreenStyle,
    is_live: bool,
    /// Of standard error.
    errors: Arc<Writer>,
    /// Of standard output. The same one if both are the same file, so that the order of lines stays.
    output: Arc<Writer>,
    turns: Arc<Turns>,
}

/// The permission to show the output of one generation, after that of the generations before it.
#[derive(Debug)]
pub struct OutputTurn {
    screen: Screen,
    turn: Turn,
}

impl Screen {
    /// Live on a terminal, plain lines otherwise.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn new(style: ScreenStyle) -> io::Result<Self> {
        let is_live = !style.quiet && io::stderr().is_terminal();
        let errors = Arc::new(Writer::start("stderr", Standard { live: is_live.then(LiveView::new) })?);
        let output = match is_same_file() {
            true => Arc::clone(&errors),
            false => Arc::new(Writer::start("stdout", Standard { live: None })?),
        };
        Ok(Screen { style, is_live, errors, output, turns: Arc::default() })
    }

    /// True if there is a live view to keep up to date.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Shows an event, if it has a sentence for people.
    pub fn event(&self, event: &LogEvent) {
        if let Some(line) = event.sentence() {
            self.line(&line);
        }
    }

    pub fn line(&self, text: &str) {
        if self.style.quiet {
            return;
        }
        // Text from the network or a file must not control the terminal.
        let text = printable(text);
        self.errors.push(Message::Line(format!("{} {text}\n", Local::now().format("%H:%M:%S%.3f")).into_bytes()));
    }

    /// Shows the state of the job.
    pub fn show(&self, view: View) {
        if self.is_live {
            self.errors.update_view(|queue| queue.set_view(view));
        }
    }

    /// Shows the long work of a node; what is not listed any more is over.
    pub fn progress(&self, node: &NodeName, work: &[Progress]) {
        if self.is_live {
            self.errors.update_view(|queue| queue.set_progress(node, work));
        }
    }

    /// The turn of a generation that begins: behind those that have begun.
    pub fn output_turn(&self) -> OutputTurn {
        OutputTurn { turn: self.turns.take(), screen: self.clone() }
    }

    /// Removes the live view, writes the result of the command to standard output, and waits until everything is
    /// written: as long as some of it is accepted, and not after `interrupted`. What is not written then is named on
    /// standard error, if that accepts it.
    ///
    /// # Errors
    /// Those of writing the result.
    pub async fn close(&self, result: Vec<u8>, interrupted: impl Future<Output = ()>) -> io::Result<()> {
        let interrupted = interrupted.shared();
        tokio::select! {
            biased;
            () = self.turns.wait_for_all() => {}
            () = interrupted.clone() => {}
            () = self.stalled() => {}
        }
        self.errors.push(Message::ClearView);
        let (written, result_written) = oneshot::channel();
        self.output.push(Message::Result(result, written));
        let errors_written = self.errors.mark();
        let everything_written = async {
            let written = result_written.await;
            let _ = errors_written.await;
            written
        };
        let interrupted = async {
            interrupted.await;
            tokio::time::sleep(AT_ONCE).await;
        };
        let written = tokio::select! {
            biased;
            written = everything_written => written.ok(),
            () = interrupted => None,
            () = self.stalled() => None,
        };
        match written {
            Some(written) => written,
            None => {
                self.name_what_is_missing().await;
                Ok(())
            }
        }
    }

    /// Completes when nothing was written for too long.
    async fn stalled(&self) {
        let progress = || self.errors.look(Queue::progress) + self.output.look(Queue::progress);
        let (mut last, mut since) = (progress(), Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = progress();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let is_idle = self.errors.look(Queue::is_idle) && self.output.look(Queue::is_idle);
            if since.elapsed() >= if is_idle { OUTPUT_WITHIN } else { STALLED_AFTER } {
                return;
            }
        }
    }

    async fn name_what_is_missing(&self) {
        if !self.output.look(Queue::is_idle) && self.errors.look(Queue::is_idle) {
            self.line(
                "standard output accepts nothing: the report and the last lines of ranks are not written there; \
                 the output of ranks is in .holdfast/generations of the prefix directory, all events are in \
                 .holdfast/events.jsonl",
            );
            let _ = tokio::time::timeout(AT_ONCE, self.errors.mark()).await;
        }
    }
}

impl OutputTurn {
    /// True if output may be shown now: that of earlier generations is shown, and not much waits to be written.
    pub fn has_room(&self) -> bool {
        let Screen { errors, output, .. } = &self.screen;
        self.turn.is_first() && errors.look(Queue::has_room) && output.look(Queue::has_room)
    }

    /// Shows lines of ranks, without their ends.
    pub fn show(&self, lines: &[(Rank, Stream, Vec<u8>)]) {
        let Screen { style, errors, output, .. } = &self.screen;
        let to = |stream: Stream| match stream {
            Stream::Output if !style.document => Stream::Output,
            Stream::Output | Stream::Errors => Stream::Errors,
        };
        for lines in lines.chunk_by(|one, next| to(one.1) == to(next.1)) {
            for lines in lines.chunks(LINES_AT_ONCE) {
                let (stream, mut text) = (to(lines[0].1), Vec::new());
                for (rank, _, line) in lines {
                    if style.labels {
                        text.extend_from_slice(format!("[{rank}] ").as_bytes());
                    }
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
                let writer = if stream == Stream::Output { output } else { errors };
                writer.push(Message::Output(stream, text));
            }
        }
    }
}

/// True if standard output and standard error are the same file.
fn is_same_file() -> bool {
    match (rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())) {
        (Ok(output), Ok(errors)) => (output.st_dev, output.st_ino) == (errors.st_dev, errors.st_ino),
        _ => false,
    }
}

fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
    if text.contains(char::is_control) { text.chars().map(escape).collect() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_control_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
    }
}
