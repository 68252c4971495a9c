//! The live view on a terminal: a status line, and progress bars of long operations.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::{NodeName, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::queue::{Frame, Views};
use super::view::{PairsView, View};

/// Interval at which a progress bar is redrawn.
const REDRAW: Duration = Duration::from_millis(250);
/// Maximum number of status lines.
const MOST_LINES: usize = 8;
/// Maximum number of progress bars, because a terminal has few lines.
const MOST_BARS: usize = 8;

#[derive(Debug)]
pub(super) struct LiveView {
    bars: MultiProgress,
    /// The status line of each step; at least one.
    status: Vec<ProgressBar>,
    work: BTreeMap<(NodeName, String), ProgressBar>,
    shown: Views,
}

impl LiveView {
    pub(super) fn new() -> Self {
        let bars = MultiProgress::new();
        let status = vec![status_line(&bars, 0)];
        LiveView { bars, status, work: BTreeMap::new(), shown: Views::new() }
    }

    pub(super) fn show(&mut self, frame: Frame) {
        if let Some(views) = frame.view.filter(|views| *views != self.shown) {
            self.show_status(&views);
            self.shown = views;
        }
        for (node, work) in &frame.progress {
            self.progress(node, work);
        }
    }

    /// A line for each step, up to a number; the last line has the number of the others.
    fn show_status(&mut self, views: &Views) {
        let mut lines: Vec<String> = views.iter().map(|(step, view)| line_of(step.as_deref(), view)).collect();
        if lines.len() > MOST_LINES {
            let others = lines.len() - (MOST_LINES - 1);
            lines.truncate(MOST_LINES - 1);
            lines.push(format!("{others} other steps"));
        }
        while self.status.len() > lines.len().max(1)
            && let Some(line) = self.status.pop()
        {
            line.finish_and_clear();
        }
        while self.status.len() < lines.len() {
            self.status.push(status_line(&self.bars, self.status.len()));
        }
        self.status.iter().zip(lines).for_each(|(bar, line)| bar.set_message(line));
    }

    /// Shows the long operations of a node; those that are not in `work` any more have ended.
    fn progress(&mut self, node: &NodeName, work: &[Progress]) {
        let name = |item: &Progress| (node.clone(), format!("{} {}", item.task, item.checkpoint));
        let current: BTreeMap<_, _> = work.iter().map(|item| (name(item), item)).collect();
        self.work.retain(|key, bar| {
            let keep = key.0 != *node || current.contains_key(key);
            if !keep {
                bar.finish_and_clear();
            }
            keep
        });
        for (key, item) in current {
            if !self.work.contains_key(&key) && self.work.len() >= MOST_BARS {
                continue;
            }
            let bars = &self.bars;
            let bar = self.work.entry(key).or_insert_with_key(|(node, task)| {
                let bar = bars.add(ProgressBar::new(item.total));
                bar.set_style(bar_style());
                bar.set_prefix(format!("{node} {task}"));
                bar
            });
            bar.set_length(item.total);
            bar.set_position(item.done);
        }
    }

    /// Writes above the view.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }

    pub(super) fn clear(self) {
        for bar in self.work.values() {
            bar.finish_and_clear();
        }
        self.status.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// A status line, in this place from above.
fn status_line(bars: &MultiProgress, at: usize) -> ProgressBar {
    let line = bars.insert(at, ProgressBar::new_spinner());
    line.enable_steady_tick(REDRAW);
    line
}

fn line_of(step: Option<&str>, view: &View) -> String {
    step.map_or_else(|| status_text(view), |step| format!("{step}: {}", status_text(view)))
}

fn bar_style() -> ProgressStyle {
    // The template is a constant; if it is invalid, the default bar is shown.
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
    let View { phase, used, spare, excluded, down, .. } = view;
    if let Some(pairs) = &view.pairs {
        let PairsView { mains, replicas, asleep, finished, fail_overs, missed } = pairs;
        // A narrow terminal shows the beginning only.
        return format!(
            "{phase} | mains {mains}, replicas {replicas}, asleep {asleep}, finished {finished} | \
             fail-overs {fail_overs}, missed {missed} | agents: {used} up, {down} down"
        );
    }
    let excluded = if *excluded > 0 { format!(", {excluded} excluded") } else { String::new() };
    format!("{phase}{generation} | nodes: {used} used, {spare} spare{excluded}, {down} down | {newest}")
}

#[cfg(test)]
mod tests {
    use holdfast_model::{CheckpointId, Generation};

    use super::*;

    #[test]
    fn the_status_line_shows_whether_the_newest_checkpoint_is_protected() {
        let view = View {
            phase: "running".to_owned(),
            generation: Some(Generation(2)),
            used: 4,
            spare: 1,
            excluded: 0,
            down: 1,
            newest: Some((CheckpointId(7), true)),
            pairs: None,
        };
        let text = status_text(&view);
        assert_eq!(text, "running, generation 2 | nodes: 4 used, 1 spare, 1 down | checkpoint 7, protected");
        let text = status_text(&View { excluded: 2, ..view });
        assert!(text.contains("nodes: 4 used, 1 spare, 2 excluded, 1 down"), "{text}");
    }

    #[test]
    fn the_status_line_of_pairs_shows_which_copies_are_awake() {
        let pairs = PairsView { mains: 97, replicas: 2, asleep: 1, finished: 0, fail_overs: 3, missed: 11 };
        let view = View { phase: "running".to_owned(), used: 2, pairs: Some(pairs), ..View::default() };
        let text = status_text(&view);
        assert!(text.contains("mains 97, replicas 2, asleep 1, finished 0"), "{text}");
        assert!(text.contains("fail-overs 3, missed 11"), "{text}");
    }
}
