//! What is shown while a job runs: plain lines in a batch log, a live view on a terminal.
//!
//! Everything goes to standard error except the application's standard output, which is passed on to standard output
//! (unless a JSON document is printed there).
//!
//! No call waits for output: separate threads write, because the file, pipe or terminal of a descriptor may block for
//! minutes. At the end, [`Screen::close`] waits a limited time for the remaining output.

mod account;
mod live;
mod long_work;
mod queue;
mod turns;
mod view;
mod writer;

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Local;
use futures_util::FutureExt as _;
use holdfast_model::{NodeName, Progress};
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use self::account::OutputNotShown;
use self::account::{Accounts, OutputAccount};
use self::live::LiveView;
use self::long_work::LongWork;
use self::queue::{Message, OutputText, Queue};
use self::turns::{Turn, Turns};
pub use self::view::{PairsView, View};
use self::writer::{Standard, Writer};
use super::vocabulary::LogEvent;
use crate::launch::output::{OutputLine, Stream};

/// The time in front of a line, local: a job may run for days. Also that of the lines of the internal log.
pub(crate) const LINE_TIME: &str = "%Y-%m-%d %H:%M:%S%.3f";
/// Time limit at the end for a descriptor that accepts no output, the same as for a prefix directory that hangs.
const STALLED_AFTER: Duration = Duration::from_secs(120);
/// Time limit at the end for output of ranks that cannot be read because its file system hangs.
const OUTPUT_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for writing after a signal at the end.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Maximum size of a message with several lines of ranks.
const OUTPUT_AT_ONCE: usize = 4096;
/// Interval at which the progress of writing is checked at the end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The appearance of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenStyle {
    /// Only the application's output, and warnings; with a document only warnings.
    pub quiet: bool,
    /// A document is printed to standard output: the application's output goes to standard error.
    pub document: bool,
    /// The application's lines are prefixed with `[rank]`.
    pub labels: bool,
}

/// Standard output and standard error of a job. Clones share the same screen.
#[derive(Clone, Debug)]
pub struct Screen {
    style: ScreenStyle,
    /// There is a live view to update.
    pub is_live: bool,
    /// Writes to standard error.
    errors: Arc<Writer>,
    /// Writes to standard output. The same writer if both are the same file, so that the order of lines is kept.
    output: Arc<Writer>,
    /// The step whose lines these are, where several run side by side.
    step: Option<Arc<str>>,
    turns: Arc<Turns>,
    accounts: Arc<Accounts>,
    long_work: Arc<Mutex<LongWork>>,
}

/// The permission to show the output of a generation, after that of all earlier generations.
#[derive(Debug)]
pub struct OutputTurn {
    screen: Screen,
    turn: Turn,
    account: Arc<OutputAccount>,
}

impl Screen {
    /// A live view on a terminal, plain lines otherwise.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(style: ScreenStyle) -> io::Result<Self> {
        let is_live = !style.quiet && io::stderr().is_terminal();
        let errors = Arc::new(Writer::start("stderr", Standard { live: is_live.then(LiveView::new) })?);
        let output = match is_same_file() {
            true => Arc::clone(&errors),
            false => Arc::new(Writer::start("stdout", Standard { live: None })?),
        };
        Ok(Screen {
            style,
            is_live,
            errors,
            output,
            step: None,
            turns: Arc::default(),
            accounts: Arc::default(),
            long_work: Arc::default(),
        })
    }

    /// The same screen for a step that runs beside others: its name is in front of its lines, and its output does not
    /// wait for theirs.
    pub fn of_step(&self, name: &str) -> Self {
        Screen { step: Some(name.into()), ..self.clone() }
    }

    /// Removes the step from the live view.
    pub fn step_ended(&self) {
        if self.is_live {
            self.errors.update_view(|queue| queue.remove_view(&self.step));
        }
    }

    /// Shows an event, if it has a sentence.
    pub fn event(&self, event: &LogEvent) {
        if let Some(line) = event.sentence() {
            self.line(&line);
        }
    }

    pub fn line(&self, text: &str) {
        if !self.style.quiet || text.contains("warning: ") {
            let line = match &self.step {
                Some(step) => Self::dated(&format!("{step}: {text}")),
                None => Self::dated(text),
            };
            self.errors.push(Message::Line(line));
        }
    }

    fn dated(text: &str) -> Vec<u8> {
        // Text from the network or a file must not send commands to the terminal.
        format!("{} {}\n", Local::now().format(LINE_TIME), escaped(text, char::is_control)).into_bytes()
    }

    /// Shows the state of the job.
    pub fn show(&self, view: View) {
        if self.is_live {
            self.errors.update_view(|queue| queue.set_view(&self.step, view));
        }
    }

    /// Shows the operations of a node; those that are not in `work` any more have ended. Without a live view, a line
    /// now and then about those that take long.
    pub fn progress(&self, node: &NodeName, work: &[Progress]) {
        if self.is_live {
            self.errors.update_view(|queue| queue.set_progress(node, work));
        } else {
            let lines = self.long_work.lock().update(Instant::now(), node, work);
            lines.iter().for_each(|line| self.line(line));
        }
    }

    /// The turn of a new generation, whose output is in the files of this directory, after those of all earlier ones.
    pub fn output_turn(&self, directory: &Path) -> OutputTurn {
        OutputTurn {
            turn: self.turns.take(self.step.clone()),
            account: self.accounts.open(directory),
            screen: self.clone(),
        }
    }

    /// Removes the live view, writes the result of the command to standard output, and waits until everything is
    /// written, as long as there is progress, or until `interrupted`. If something could not be written, reports that
    /// on standard error, and returns the output of ranks that is only in their files.
    ///
    /// # Errors
    /// Those of writing the result.
    pub async fn close(
        &self,
        result: Vec<u8>,
        interrupted: impl Future<Output = ()>,
    ) -> (io::Result<()>, Option<OutputNotShown>) {
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
        let not_shown = self.not_shown().await;
        self.report_missing(written.is_none(), not_shown.as_ref()).await;
        (written.unwrap_or(Ok(())), not_shown)
    }

    /// The output of ranks that is only in their files. What cannot be read in time is not counted.
    async fn not_shown(&self) -> Option<OutputNotShown> {
        let known = self.accounts.known_missing()?;
        let accounts = Arc::clone(&self.accounts);
        let missing = tokio::task::spawn_blocking(move || accounts.missing());
        match tokio::time::timeout(AT_ONCE, missing).await {
            Ok(Ok(missing)) => missing,
            Ok(Err(_)) | Err(_) => Some(known),
        }
    }

    /// Completes when nothing has been written for too long.
    async fn stalled(&self) {
        let progress = || self.errors.look(|queue| queue.written) + self.output.look(|queue| queue.written);
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

    async fn report_missing(&self, is_blocked: bool, not_shown: Option<&OutputNotShown>) {
        // Not where a line would wait too.
        if !self.errors.look(Queue::is_idle) {
            return;
        }
        let mut parts = Vec::new();
        if is_blocked && !self.output.look(Queue::is_idle) {
            parts.push("cannot write to standard output: it is blocked; the report is missing there".to_owned());
        }
        parts.extend(not_shown.map(OutputNotShown::sentence));
        if !parts.is_empty() {
            self.errors.push(Message::Line(Self::dated(&parts.join("; "))));
            let _ = tokio::time::timeout(AT_ONCE, self.errors.mark()).await;
        }
    }
}

impl OutputTurn {
    /// True if output may be shown now: that of earlier generations has been shown, and the queue has room.
    pub fn has_room(&self) -> bool {
        let Screen { errors, output, .. } = &self.screen;
        self.turn.is_first() && errors.look(Queue::has_room) && output.look(Queue::has_room)
    }

    /// Shows lines of ranks.
    pub fn show(&self, lines: &[OutputLine]) {
        let Screen { style, errors, output, .. } = &self.screen;
        if style.quiet && style.document {
            // It is in the files only, as asked.
            let bytes = lines.iter().map(|line| line.bytes).sum();
            self.account.hand_over(bytes);
            return self.account.written(bytes);
        }
        let to = |stream: Stream| match stream {
            Stream::Output if !style.document => Stream::Output,
            Stream::Output | Stream::Errors => Stream::Errors,
        };
        for lines in lines.chunk_by(|one, next| to(one.stream) == to(next.stream)) {
            let stream = to(lines[0].stream);
            let (mut text, mut bytes) = (Vec::new(), 0);
            let push = |text: &mut Vec<u8>, bytes: &mut u64| {
                let (text, bytes) = (std::mem::take(text), std::mem::take(bytes));
                self.account.hand_over(bytes);
                let writer = if stream == Stream::Output { output } else { errors };
                let account = Arc::clone(&self.account);
                writer.push(Message::Output(OutputText { stream, text, account, bytes }));
            };
            for line in lines {
                let label = match (style.labels, &self.screen.step) {
                    (true, Some(step)) => format!("[{step} {}] ", line.rank),
                    (true, None) => format!("[{}] ", line.rank),
                    (false, _) => String::new(),
                };
                if !text.is_empty() && text.len() + label.len() + line.text.len() >= OUTPUT_AT_ONCE {
                    push(&mut text, &mut bytes);
                }
                text.extend_from_slice(label.as_bytes());
                text.extend_from_slice(&line.text);
                text.push(b'\n');
                bytes += line.bytes;
            }
            push(&mut text, &mut bytes);
        }
    }

    /// Counts bytes of the files that are not to be shown.
    pub fn hide(&self, bytes: u64) {
        self.account.hide(bytes);
    }

    /// All output of the generation was given to [`show`](Self::show).
    pub fn complete(self) {
        self.account.complete();
    }
}

/// True if standard output and standard error are the same file.
fn is_same_file() -> bool {
    match (rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())) {
        (Ok(output), Ok(errors)) => (output.st_dev, output.st_ino) == (errors.st_dev, errors.st_ino),
        _ => false,
    }
}

/// Text made safe for a terminal: characters that would be `harmful` are escaped.
pub(crate) fn escaped(text: &str, harmful: fn(char) -> bool) -> String {
    let escape = |c: char| if harmful(c) { c.escape_default().collect() } else { c.to_string() };
    if text.contains(harmful) { text.chars().map(escape).collect() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_send_commands_to_the_terminal() {
        assert_eq!(escaped("a\u{1b}[2Jb", char::is_control), "a\\u{1b}[2Jb");
    }
}
