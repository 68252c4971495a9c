//! Progress bars for long files, on a terminal.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// Smaller files need no progress bar.
const LONG_BYTES: u64 = 256 << 20;

/// A progress bar for one operation at a time; none without a terminal or for a small file.
pub(super) struct Bar {
    enabled: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new(enabled: bool) -> Bar {
        Bar { enabled: enabled && io::stderr().is_terminal(), bar: None }
    }

    /// Runs an operation that reports the bytes that are done; `name` is shown before the bar.
    pub(super) fn during<R>(&mut self, name: &str, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> R) -> R {
        let (enabled, bar) = (self.enabled, &mut self.bar);
        let result = work(&mut |done, all| {
            if enabled && all >= LONG_BYTES {
                bar.get_or_insert_with(|| start(name)).set_length(all);
            }
            if let Some(bar) = bar.as_ref() {
                bar.set_position(done);
            }
        });
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        result
    }
}

/// Progress of several items at once, by their number and the bytes that were read; none without a terminal.
pub(super) struct Items {
    bar: Option<ProgressBar>,
    bytes: AtomicU64,
}

impl Items {
    pub(super) fn new(enabled: bool, items: usize) -> Items {
        let bar = (enabled && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{pos}/{len} checkpoints {msg} {elapsed}");
            let bar = ProgressBar::new(items as u64);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Items { bar, bytes: AtomicU64::new(0) }
    }

    /// So many bytes more were read.
    pub(super) fn read(&self, bytes: u64) {
        let read = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}", HumanBytes(read)));
        }
    }

    /// An item is done.
    pub(super) fn done(&self) {
        self.bar.iter().for_each(|bar| bar.inc(1));
    }

    pub(super) fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn start(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(super::output::printable(name))
}
