//! How far the work on a long file is, on a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter work is over before one has read the line.
const LONG_BYTES: u64 = 256 << 20;

/// A bar for one piece of work at a time; none where nobody looks, or where the work is short.
pub(super) struct Bar {
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// `wanted` is false where standard error is to stay empty.
    pub(super) fn new(wanted: bool) -> Bar {
        Bar { wanted: wanted && io::stderr().is_terminal(), bar: None }
    }

    /// Does a piece of work that tells how many of its bytes are done; `name` stands in front of the bar.
    pub(super) fn during<R>(&mut self, name: &str, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> R) -> R {
        let (wanted, bar) = (self.wanted, &mut self.bar);
        let result = work(&mut |done, all| {
            if wanted && all >= LONG_BYTES {
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
