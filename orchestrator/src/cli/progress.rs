//! Progress bars for long files, on a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

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

fn start(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(super::output::printable(name))
}
