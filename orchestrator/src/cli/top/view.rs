//! What `holdfast top` draws, from the state of the job.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Local;
use holdfast_model::CheckpointId;
use indicatif::{HumanBytes, HumanDuration};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::keys::Keys;
use crate::cli::output::printable;
use crate::cli::pairs::write_pairs;
use crate::cli::status::{NodeLine, Status};
use crate::events::{BackgroundWork, PastFlush};

/// How a text is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    /// It may need attention.
    Warning,
    Bad,
}

/// A line about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// A job at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    /// Name and id of the job.
    pub(super) title: String,
    /// The time of day, with the zone.
    pub(super) time: String,
    pub(super) facts: Vec<Fact>,
    pub(super) nodes: Vec<NodeLine>,
    /// Why no request is possible.
    pub(super) refusal: Option<&'static str>,
    /// When it stops if it is halted.
    pub(super) halts: &'static str,
}

/// When a job stops that is halted.
pub(super) fn halts(has_pairs: bool) -> &'static str {
    if has_pairs { "now" } else { "at its next checkpoint" }
}

/// Nodes that are named in one line.
const NAMED: usize = 6;
/// The most lines that a fact takes.
const LONGEST: usize = 3;
const NAME_WIDTH: u16 = 12;
const KEYS: &str = "q quit   c checkpoint   h halt   x exclude node   i include node   ↑↓ select";

impl Picture {
    pub(super) fn of(status: &Status) -> Picture {
        let state = &status.job.state;
        let nodes = status.nodes();
        let refusal = if status.has_ended() {
            Some("the job has ended: nothing can be requested")
        } else if !status.job.directory.is_ours() {
            Some("the job belongs to another user: nothing can be requested")
        } else {
            None
        };
        Picture {
            title: printable(&format!("{} ({})", state.job, state.agents.job_id)),
            time: Local::now().format("%H:%M:%S %z").to_string(),
            facts: facts(status, &nodes),
            nodes,
            refusal,
            halts: halts(status.pairs.is_some()),
        }
    }
}

fn facts(status: &Status, nodes: &[NodeLine]) -> Vec<Fact> {
    let has_pairs = status.pairs.is_some();
    let cost = status.cost();
    let mut facts = Vec::new();
    let mut add = |name, text: String, tone| facts.push(Fact { name, text: printable(&text), tone });
    let without_orchestrator = !status.has_ended() && !status.job.has_orchestrator;
    match without_orchestrator {
        true => add("state", "its orchestrator has ended; `holdfast run` takes the job over".to_owned(), Tone::Bad),
        false => add("state", status.doing(), Tone::Plain),
    }
    add("nodes", nodes_text(nodes), if nodes.iter().any(is_missing) { Tone::Warning } else { Tone::Plain });
    if !has_pairs {
        match status.checkpoint() {
            None => add("checkpoint", "none yet".to_owned(), Tone::Plain),
            Some(id) => {
                let (protection, tone) = match status.protected() {
                    Some(true) => (", protected", Tone::Good),
                    Some(false) => (", not protected", Tone::Warning),
                    None => ("", Tone::Plain),
                };
                add("checkpoint", format!("{id}{protection}"), tone);
            }
        }
        add("protected", aged(cost.as_ref().and_then(|cost| cost.protected)), Tone::Plain);
        let flushed = aged(cost.as_ref().and_then(|cost| cost.flushed));
        let rate = status.history.last_flush.map(|flush| format!("; last flush: {}", rate(&flush)));
        add("flushed", format!("{flushed}{}", rate.unwrap_or_default()), Tone::Plain);
    }
    if let Some(overview) = &status.pairs {
        let mut lines = Vec::new();
        // Writing to memory does not fail.
        let _ = write_pairs(overview, &mut lines, "");
        String::from_utf8_lossy(&lines).lines().for_each(|line| add("pair", line.to_owned(), Tone::Plain));
    }
    if status.history.background != BackgroundWork::default() && !status.has_ended() {
        add("background", status.history.background.to_string(), Tone::Plain);
    }
    if let Some(wait) = status.wait() {
        add("waiting", wait.to_string(), Tone::Warning);
    }
    if !status.has_ended() {
        add("time left", status.allocation_end().unwrap_or_else(|| "not known".to_owned()), Tone::Plain);
    }
    if let Some(met) = status.halt.as_ref().and_then(|halt| halt.met.as_ref()) {
        add("halt", met.clone(), Tone::Warning);
    }
    if let Some(cost) = &cost {
        add("cost", cost.times(), Tone::Plain);
    }
    if let Some(failure) = status.history.failures.last() {
        add("last failure", failure.clone(), Tone::Bad);
    }
    if let Some((_, sentence)) = &status.history.last {
        add("last event", sentence.clone(), Tone::Plain);
    }
    facts
}

/// Neither used nor a spare, in a job that runs.
fn is_missing(node: &NodeLine) -> bool {
    matches!(node.state, "down" | "silent" | "excluded")
}

/// `6: 4 used, 1 spare, 1 down (n3); 8 ranks`
fn nodes_text(nodes: &[NodeLine]) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().for_each(|node| *states.entry(node.state).or_default() += 1);
    let counts = states.into_iter().rev().map(|(state, count)| {
        let of_state = nodes.iter().filter(|node| node.state == state && is_missing(node));
        let mut names: Vec<&str> = of_state.take(NAMED).map(|node| node.name.as_str()).collect();
        if names.len() == NAMED && count > NAMED {
            names.push("…");
        }
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!("{count} {state}{names}")
    });
    let counts: Vec<String> = counts.collect();
    let ranks: usize = nodes.iter().map(|node| node.ranks.len()).sum();
    let ranks = if ranks == 0 { String::new() } else { format!("; {ranks} ranks") };
    format!("{}: {}{ranks}", nodes.len(), counts.join(", "))
}

fn aged(newest: Option<(CheckpointId, Duration)>) -> String {
    newest.map_or_else(|| "none".to_owned(), |(id, age)| format!("checkpoint {id}, {} old", HumanDuration(age)))
}

/// `checkpoint 4, 1.00 GiB in 2.0 s, 512.00 MiB/s`
fn rate(flush: &PastFlush) -> String {
    let PastFlush { checkpoint, bytes, took } = *flush;
    let per_second = bytes.saturating_mul(1000) / u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    format!(
        "checkpoint {checkpoint}, {} in {:.1} s, {}/s",
        HumanBytes(bytes),
        took.as_secs_f64(),
        HumanBytes(per_second)
    )
}

/// Draws it. Without `colours` only bold and reversed text is used (NO_COLOR).
pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture, keys: &Keys, colours: bool) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let width = frame.area().width.saturating_sub(NAME_WIDTH + 1);
    let heights: Vec<u16> = picture.facts.iter().map(|fact| lines_of(&fact.text, width)).collect();
    let shown: u16 = heights.iter().sum();
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(shown),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, facts, columns, nodes, foot] = areas.areas(frame.area());

    let title = Line::from(vec![Span::styled(picture.title.as_str(), bold)]);
    frame.render_widget(Paragraph::new(title), head);
    frame.render_widget(Paragraph::new(picture.time.as_str()).right_aligned(), head);

    let mut top = facts.y;
    for (fact, height) in picture.facts.iter().zip(heights) {
        let height = height.min(facts.bottom().saturating_sub(top));
        let name = Rect { y: top, width: NAME_WIDTH.min(facts.width), height, ..facts };
        let text = Rect { x: (facts.x + NAME_WIDTH + 1).min(facts.right()), y: top, width, height };
        frame.render_widget(Paragraph::new(fact.name), name);
        let style = toned(fact.tone, colours);
        frame.render_widget(Paragraph::new(Span::styled(&*fact.text, style)).wrap(Wrap { trim: true }), text);
        top += height;
    }

    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let names = picture.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).clamp(8, 32);
    let title = format!("{:names$}  {:9}  ranks", "node", "state");
    frame.render_widget(Paragraph::new(Span::styled(title, bold)), columns);
    let visible = usize::from(nodes.height).max(1);
    // The selected one is in sight.
    let first = (keys.selected + 1).saturating_sub(visible);
    let lines = picture.nodes.iter().enumerate().skip(first).take(visible).map(|(at, node)| {
        let text = node_text(node, names);
        let tone = match node.state {
            "down" | "undrained" => Tone::Bad,
            "silent" | "excluded" => Tone::Warning,
            _ => Tone::Plain,
        };
        let style = if at == keys.selected { toned(tone, colours).patch(reversed) } else { toned(tone, colours) };
        Line::from(Span::styled(text, style))
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), nodes);

    let style = if keys.asks() { bold.patch(reversed) } else { Style::new() };
    frame.render_widget(Paragraph::new(Span::styled(keys.line().unwrap_or(KEYS), style)), foot);
}

fn node_text(node: &NodeLine, names: usize) -> String {
    let NodeLine { name, state, ranks, reason, .. } = node;
    let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let reason = reason.as_ref().map(|reason| format!("  {}", printable(reason))).unwrap_or_default();
    format!("{:names$}  {state:9}  {}{reason}", printable(name), ranks.join(","))
}

/// The lines that a text takes.
fn lines_of(text: &str, width: u16) -> u16 {
    let width = usize::from(width).max(1);
    // Words are not broken, so that a line may be shorter than the width.
    let lines = match text.chars().count() {
        short if short <= width => 1,
        long => long * 5 / 4 / width + 1,
    };
    u16::try_from(lines.min(LONGEST)).unwrap_or(1)
}

fn toned(tone: Tone, colours: bool) -> Style {
    let colour = match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Warning => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
    };
    match colour.filter(|_| colours) {
        Some(colour) => Style::new().fg(colour),
        None if tone == Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
        None => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn node(number: usize, state: &'static str) -> NodeLine {
        NodeLine { name: format!("n{number}"), state, ranks: vec![7], ..NodeLine::default() }
    }

    fn picture(nodes: Vec<NodeLine>) -> Picture {
        let fact = |name, text: &str, tone| Fact { name, text: text.to_owned(), tone };
        Picture {
            title: "heat (4711)".to_owned(),
            time: "18:00:00 +0100".to_owned(),
            facts: vec![
                fact("state", "running, generation 3", Tone::Plain),
                fact("last failure", &"a long story ".repeat(20), Tone::Bad),
            ],
            nodes,
            ..Picture::default()
        }
    }

    fn drawn(picture: &Picture, keys: &Keys, (width, height): (u16, u16)) -> (Vec<String>, Vec<Color>) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture, keys, true)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        ((0..height).map(row).collect(), buffer.content().iter().map(|cell| cell.fg).collect())
    }

    #[test]
    fn facts_stand_above_the_nodes_and_the_keys_below() {
        let (rows, colours) = drawn(&picture(vec![node(1, "used"), node(2, "down")]), &Keys::default(), (60, 12));
        assert!(rows[0].starts_with("heat (4711)") && rows[0].ends_with("18:00:00 +0100"), "{rows:?}");
        assert_eq!(rows[1], "state        running, generation 3");
        assert!(rows[2].starts_with("last failure a long story") && rows[4].contains("a long story"), "{rows:?}");
        assert!(rows[5].starts_with("node ") && rows[6].starts_with("n1 ") && rows[7].starts_with("n2 "), "{rows:?}");
        assert!(rows[7].contains("down") && rows[11].starts_with("q quit"), "{rows:?}");
        assert!(colours.contains(&Color::Red));
        let mut terminal = Terminal::new(TestBackend::new(60, 12)).unwrap();
        let two = picture(vec![node(1, "used"), node(2, "down")]);
        terminal.draw(|frame| draw(frame, &two, &Keys::default(), false)).unwrap();
        assert!(terminal.backend().buffer().content().iter().all(|cell| cell.fg == Color::Reset), "NO_COLOR");
    }

    #[test]
    fn the_selected_node_is_in_sight_and_a_small_terminal_is_no_failure() {
        let nodes: Vec<NodeLine> = (0..100).map(|number| node(number, "used")).collect();
        let keys = Keys::at(90);
        let (rows, _) = drawn(&picture(nodes.clone()), &keys, (60, 12));
        assert!(rows.iter().any(|row| row.starts_with("n90 ")), "{rows:?}");
        for size in [(1, 1), (5, 3), (14, 4), (200, 2)] {
            drawn(&picture(nodes.clone()), &keys, size);
        }
    }

    #[test]
    fn nodes_are_counted_and_those_that_are_missing_are_named() {
        let nodes = [node(1, "used"), node(2, "used"), node(3, "down"), node(4, "spare")];
        assert_eq!(nodes_text(&nodes), "4: 2 used, 1 spare, 1 down (n3); 4 ranks");
        let many: Vec<NodeLine> = (0..9).map(|number| node(number, "silent")).collect();
        assert_eq!(nodes_text(&many), "9: 9 silent (n0, n1, n2, n3, n4, n5, …); 9 ranks");
        let flush = PastFlush { checkpoint: CheckpointId(4), bytes: 1 << 30, took: Duration::from_secs(2) };
        assert_eq!(rate(&flush), "checkpoint 4, 1.00 GiB in 2.0 s, 512.00 MiB/s");
    }
}
