//! What a person sees while a job runs: plain lines in a batch log, a live view on a terminal.
//!
//! Everything goes to standard error but the application's own standard output, which stays what it is (unless standard
//! output belongs to a JSON document).

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use chrono::Local;
use holdfast_model::{CheckpointId, Generation, NodeName, Progress, Rank};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::LogEvent;
use crate::launch::output::Stream;

/// How often a bar is redrawn for the time that passes.
const REDRAW: Duration = Duration::from_millis(250);
/// So many bars at a time; a terminal has few lines.
const MOST_BARS: usize = 8;

/// What is wanted.
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
    /// What the loop is doing.
    pub phase: String,
    pub generation: Option<Generation>,
    /// Nodes with ranks.
    pub used: usize,
    /// Healthy nodes without.
    pub spare: usize,
    /// Nodes that are down.
    pub down: usize,
    /// The newest complete checkpoint, and whether it survives a node.
    pub newest: Option<(CheckpointId, bool)>,
}

/// Where people look.
#[derive(Debug)]
pub struct Screen {
    style: ScreenStyle,
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    bars: MultiProgress,
    status: ProgressBar,
    work: BTreeMap<(NodeName, String), ProgressBar>,
    shown: View,
}

impl Screen {
    /// Live on a terminal, plain lines otherwise.
    pub fn new(style: ScreenStyle) -> Self {
        let live = (!style.quiet && io::stderr().is_terminal()).then(|| {
            let bars = MultiProgress::new();
            let status = bars.add(ProgressBar::new_spinner());
            status.enable_steady_tick(REDRAW);
            Live { bars, status, work: BTreeMap::new(), shown: View::default() }
        });
        Screen { style, live }
    }

    /// True if there is a live view to keep up to date.
    pub fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Shows an event, if it is one for people.
    pub fn event(&self, event: &LogEvent) {
        if let Some(line) = event.sentence() {
            self.line(&line);
        }
    }

    pub fn line(&self, text: &str) {
        if self.style.quiet {
            return;
        }
        // Text from the network or a file must not command the terminal.
        let text = printable(text);
        let line = format!("{} {text}", Local::now().format("%H:%M:%S%.3f"));
        self.above(|| drop(writeln!(io::stderr(), "{line}")));
    }

    /// Passes on a line of the application.
    pub fn rank_line(&self, rank: Rank, stream: Stream, line: &[u8]) {
        let mut whole = Vec::with_capacity(line.len() + 16);
        if self.style.labels {
            whole.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        whole.extend_from_slice(line);
        whole.push(b'\n');
        self.above(|| {
            // Nobody is left to tell when the reader is gone.
            if stream == Stream::Output && !self.style.document {
                drop(io::stdout().write_all(&whole).and_then(|()| io::stdout().flush()));
            } else {
                drop(io::stderr().write_all(&whole));
            }
        });
    }

    /// Shows the state of the job.
    pub fn show(&mut self, view: &View) {
        if let Some(live) = &mut self.live
            && live.shown != *view
        {
            live.shown = view.clone();
            live.status.set_message(status_text(view));
        }
    }

    /// Shows the long work of a node; what is not named any more is over.
    pub fn progress(&mut self, node: &NodeName, work: &[Progress]) {
        let Some(live) = &mut self.live else { return };
        let name = |item: &Progress| (node.clone(), format!("{} {}", item.task, item.checkpoint));
        let current: BTreeMap<_, _> = work.iter().map(|item| (name(item), item)).collect();
        live.work.retain(|key, bar| {
            let stays = key.0 != *node || current.contains_key(key);
            if !stays {
                bar.finish_and_clear();
            }
            stays
        });
        for (key, item) in current {
            if !live.work.contains_key(&key) && live.work.len() >= MOST_BARS {
                continue;
            }
            let bars = &live.bars;
            let bar = live.work.entry(key).or_insert_with_key(|(node, task)| {
                let bar = bars.add(ProgressBar::new(item.total));
                bar.set_style(bar_style());
                bar.set_prefix(format!("{node} {task}"));
                bar
            });
            bar.set_length(item.total);
            bar.set_position(item.done);
        }
    }

    /// Removes the live view; lines go on.
    pub fn close(&mut self) {
        if let Some(live) = self.live.take() {
            for bar in live.work.values() {
                bar.finish_and_clear();
            }
            live.status.finish_and_clear();
        }
    }

    fn above(&self, write: impl FnOnce()) {
        match &self.live {
            Some(live) => live.bars.suspend(write),
            None => write(),
        }
    }
}

fn bar_style() -> ProgressStyle {
    // The template is a constant; should it be wrong, a plain bar is shown.
    ProgressStyle::with_template("  {prefix:24} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn status_text(view: &View) -> String {
    let generation = view.generation.map(|it| format!(", generation {it}")).unwrap_or_default();
    let newest = match view.newest {
        Some((id, true)) => format!("checkpoint {id}, protected"),
        Some((id, false)) => format!("checkpoint {id}, not protected"),
        None => "no checkpoint yet".to_owned(),
    };
    let View { phase, used, spare, down, .. } = view;
    format!("{phase}{generation} | nodes: {used} used, {spare} spare, {down} down | {newest}")
}

fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
    if text.contains(char::is_control) { text.chars().map(escape).collect() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_says_whether_the_newest_checkpoint_is_protected() {
        let view = View {
            phase: "running".to_owned(),
            generation: Some(Generation(2)),
            used: 4,
            spare: 1,
            down: 1,
            newest: Some((CheckpointId(7), true)),
        };
        let text = status_text(&view);
        assert_eq!(text, "running, generation 2 | nodes: 4 used, 1 spare, 1 down | checkpoint 7, protected");
    }

    #[test]
    fn a_message_cannot_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
    }
}
