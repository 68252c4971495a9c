//! Progress of long operations on standard error: a bar on a terminal, elsewhere a line every ten seconds.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::prefix::add::AddStep;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::output::{Style, printable};

/// Smaller files need no progress bar.
const LONG_BYTES: u64 = 256 << 20;
/// The time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
const BAR: &str = "{msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";

/// The progress of one operation at a time, of one thread.
pub(super) struct Bar {
    shown: Arc<Shown>,
}

impl Bar {
    pub(super) fn new(style: Style) -> Bar {
        Bar { shown: Arc::new(Shown::new(style, BAR)) }
    }

    /// Runs an operation that reports the bytes that are done; `name` is shown before them.
    pub(super) fn during<R>(&mut self, name: &str, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> R) -> R {
        let bytes = Bytes { name: printable(name), shown: Arc::clone(&self.shown), known: Mutex::default() };
        work(&mut |done, all| bytes.set(done, all))
    }
}

/// The bytes of an operation of one or several threads; no longer shown when dropped.
pub(super) struct Bytes {
    name: String,
    shown: Arc<Shown>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Bytes.
    done: u64,
    /// Bytes; 0 if that is not known.
    total: u64,
    /// Of each set that is rebuilt.
    sets: BTreeMap<String, (u64, u64)>,
}

impl Bytes {
    pub(super) fn new(style: Style, name: &str) -> Bytes {
        Bytes { name: printable(name), shown: Arc::new(Shown::new(style, BAR)), known: Mutex::default() }
    }

    fn set(&self, done: u64, total: u64) {
        self.change(|known| (known.done, known.total) = (done, total));
    }

    /// So many bytes more are done, of an unknown number.
    pub(super) fn add(&self, bytes: u64) {
        self.change(|known| known.done = known.done.saturating_add(bytes));
    }

    /// A step of adding a checkpoint directory to the index.
    pub(super) fn step(&self, step: AddStep<'_>) {
        self.change(|known| match step {
            AddStep::Verified { bytes, total } => {
                known.done = known.done.saturating_add(bytes);
                known.total = total;
            }
            AddStep::Rebuilding { set, bytes, total } => {
                known.sets.insert(set.to_string(), (bytes, total));
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let (done, total) = {
            let mut known = self.known.lock();
            change(&mut known);
            // Sizes come from files that others may have written.
            let sum = |all: (u64, u64), of: &(u64, u64)| (all.0.saturating_add(of.0), all.1.saturating_add(of.1));
            known.sets.values().fold((known.done, known.total), sum)
        };
        if done.max(total) >= LONG_BYTES {
            self.shown.bar(|bar| {
                bar.set_length(total.max(done));
                bar.set_position(done);
                bar.set_message(self.name.clone());
            });
        }
        self.shown.line(|| match total {
            0 => format!("{}: {}", self.name, HumanBytes(done)),
            total => format!("{}: {} of {}", self.name, HumanBytes(done), HumanBytes(total)),
        });
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.shown.clear();
    }
}

/// The progress of several checkpoints at once, by their number and the bytes that were read.
pub(super) struct Items {
    shown: Shown,
    items: usize,
    /// Items that are done, and bytes.
    known: Mutex<(usize, u64)>,
}

impl Items {
    pub(super) fn new(style: Style, items: usize) -> Items {
        Items { shown: Shown::new(style, "{msg} {elapsed}"), items, known: Mutex::default() }
    }

    /// So many bytes more were read.
    pub(super) fn read(&self, bytes: u64) {
        self.change(|known| known.1 = known.1.saturating_add(bytes));
    }

    /// An item is done.
    pub(super) fn done(&self) {
        self.change(|known| known.0 += 1);
    }

    fn change(&self, change: impl FnOnce(&mut (usize, u64))) {
        let (done, read) = {
            let mut known = self.known.lock();
            change(&mut known);
            *known
        };
        let text = || format!("{done}/{} checkpoints, {} read", self.items, HumanBytes(read));
        self.shown.bar(|bar| bar.set_message(text()));
        self.shown.line(text);
    }
}

/// Where progress is shown.
enum Shown {
    Terminal {
        template: &'static str,
        bar: Mutex<Option<ProgressBar>>,
    },
    /// With the time of the last line.
    Lines(Mutex<Instant>),
    Nowhere,
}

impl Shown {
    fn new(style: Style, template: &'static str) -> Shown {
        match style.shows_progress() {
            true if io::stderr().is_terminal() => Shown::Terminal { template, bar: Mutex::default() },
            true => Shown::Lines(Mutex::new(Instant::now())),
            false => Shown::Nowhere,
        }
    }

    fn bar(&self, update: impl FnOnce(&ProgressBar)) {
        if let Shown::Terminal { template, bar } = self {
            update(bar.lock().get_or_insert_with(|| {
                let style = ProgressStyle::with_template(template);
                ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            }));
        }
    }

    fn line(&self, text: impl FnOnce() -> String) {
        if let Shown::Lines(last) = self {
            let mut last = last.lock();
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                // If standard error is closed, there is nowhere to report that.
                let _ = writeln!(io::stderr(), "{}", text());
            }
        }
    }

    fn clear(&self) {
        if let Shown::Terminal { bar, .. } = self
            && let Some(bar) = bar.lock().take()
        {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_any_files_can_be_added_up() {
        let bytes = Bytes::new(Style::Quiet, "dataset");
        bytes.step(AddStep::Verified { bytes: u64::MAX, total: u64::MAX });
        bytes.known.lock().sets.insert("set".to_owned(), (u64::MAX, u64::MAX));
        bytes.add(1);
        let items = Items::new(Style::Quiet, 2);
        items.read(u64::MAX);
        items.read(1);
    }
}
