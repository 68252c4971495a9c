//! The report as one page: no request to anywhere, readable without its script.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::time::Duration;

use holdfast_model::{NodeName, Timestamp};

use super::job::{Incident, IncidentKind, JobReport, PastCheckpoint};
use super::text::{bandwidth, bytes_text, duration_text, offset_seconds, time_text};
use crate::events::Failure;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Nodes with a lane of their own.
const LANES: usize = 64;
/// Marks in a lane: more than a screen has columns.
const MARKS: usize = 2_000;
/// Rows of a table.
const ROWS: usize = 200;

/// The page.
pub fn page(report: &JobReport) -> String {
    let mut page = Page { text: String::new(), report };
    page.document();
    page.text
}

struct Page<'a> {
    text: String,
    report: &'a JobReport,
}

/// Text for an element or an attribute in quotes.
fn escaped(text: impl Display) -> String {
    let mut safe = String::new();
    for character in text.to_string().chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            _ if character.is_control() => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}

impl Page<'_> {
    fn put(&mut self, text: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{text}");
    }

    fn document(&mut self) {
        let title = escaped(format!("{} ({})", self.report.job, self.report.job_id));
        self.put(format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n\
             {STYLE}</style>\n</head>\n<body>\n<h1>Job {title}</h1>\n"
        ));
        self.facts();
        self.time();
        self.time_line();
        self.failures();
        self.generations();
        self.checkpoints();
        self.nodes();
        self.put(format_args!(
            "<p class=\"soft\">Holdfast {}; the events are in <code>.holdfast/events.jsonl</code> of the prefix \
             directory.</p>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        ));
    }

    fn facts(&mut self) {
        let report = self.report;
        let end = if report.is_running { "now, it runs".to_owned() } else { time_text(report.until) };
        let span = format!("{} to {end} ({})", time_text(report.began), duration_text(report.time.elapsed));
        let outcome = match &report.outcome {
            Some(outcome) => outcome.clone(),
            None if report.is_running => "it runs".to_owned(),
            None => "the orchestrator ended unexpectedly, or the log is incomplete".to_owned(),
        };
        let kind = if report.virtual_nodes { ", virtual ones on one machine" } else { "" };
        let survives = match report.newest_protected() {
            Some((checkpoint, Some(1))) => format!("checkpoint {checkpoint} survives the loss of any node"),
            Some((checkpoint, Some(nodes))) => {
                format!("checkpoint {checkpoint} survives the loss of any {nodes} nodes at once")
            }
            Some((checkpoint, None)) => format!("checkpoint {checkpoint} is protected from the loss of a node"),
            None => "no checkpoint survives the loss of a node".to_owned(),
        };
        let mut rows = vec![
            ("outcome", outcome),
            ("time", span),
            ("nodes", format!("{}{kind}", report.nodes.len())),
            ("prefix", report.prefix.display().to_string()),
            ("protection", survives),
            (
                "goodput",
                format!("{:.1} % of the time was computing that counts", report.time.percent(report.time.computing)),
            ),
        ];
        if let Some(cost) = &report.cost {
            rows.push(("newest", cost.ages()));
        }
        if report.earlier_runs > 0 {
            rows.push(("earlier runs", report.earlier_runs.to_string()));
        }
        self.put("<dl>\n");
        for (name, value) in rows {
            self.put(format_args!("<dt>{name}</dt><dd>{}</dd>\n", escaped(value)));
        }
        self.put("</dl>\n");
    }

    fn time(&mut self) {
        let time = self.report.time;
        self.put("<h2>Where the time went</h2>\n");
        let parts = || time.parts().into_iter().filter(|(_, part)| !part.is_zero());
        self.put("<div class=\"bar\" role=\"img\" aria-label=\"parts of the time, as in the list below\">");
        for (name, part) in parts() {
            let (class, percent) = (class(name), time.percent(part));
            self.put(format_args!("<i class=\"{class}\" style=\"width:{percent:.3}%\" title=\"{name}\"></i>"));
        }
        self.put("</div>\n<ul class=\"legend\">\n");
        for (name, part) in parts() {
            let (class, percent, length) = (class(name), time.percent(part), duration_text(part));
            self.put(format_args!("<li><i class=\"{class}\"></i>{name} {percent:.1} % ({length})</li>\n"));
        }
        self.put("</ul>\n");
        if let Some(advice) = self.report.cost.as_ref().and_then(|cost| cost.interval.as_ref()) {
            self.put(format_args!("<p>Interval between checkpoints: {}</p>\n", escaped(advice)));
        }
    }

    fn time_line(&mut self) {
        let report = self.report;
        self.put(format_args!(
            "<h2>Time line <span class=\"soft\" id=\"zoom\"></span></h2>\n<p class=\"soft\" id=\"keys\" hidden>\
             + and - zoom while it has the focus, and the wheel with Ctrl; 0 shows all of it. <button>+</button> \
             <button>-</button> <button>0</button></p>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"time line\">\n<div class=\"track\" \
             data-began=\"{}\" data-until=\"{}\" data-offset=\"{}\">\n<div class=\"lane\"><b>phases</b>",
            report.began.millis(),
            report.until.millis(),
            offset_seconds(report.began)
        ));
        for span in &report.phases {
            let (name, length) = (span.phase.name(), duration_text(span.length()));
            self.span(span.from, span.to, name, &format!("{name}, {length}"), "");
        }
        self.put("</div>\n<div class=\"lane\"><b>generations</b>");
        let first = report.generations.len().saturating_sub(MARKS);
        for (at, past) in report.generations.iter().enumerate().skip(first) {
            let end = past.ended.unwrap_or(report.until);
            let class = if at % 2 == 0 { "even" } else { "odd" };
            let text = format!("generation {}: {}", past.generation, past.end.as_deref().unwrap_or("runs"));
            self.span(past.launched.unwrap_or(past.placed), end, class, &text, &past.generation.to_string());
        }
        self.put("</div>\n<div class=\"lane\"><b>checkpoints</b>");
        let step = report.checkpoints.len().div_ceil(MARKS).max(1);
        for past in report.checkpoints.iter().enumerate().filter(|(at, past)| at % step == 0 || past.dropped.is_some())
        {
            self.checkpoint_mark(past.1);
        }
        self.put("</div>\n");
        let flush = |past: &PastCheckpoint| Some((past.checkpoint, past.flushed?, past.flush_ms?));
        let flushes: Vec<_> = report.checkpoints.iter().filter_map(flush).collect();
        if !flushes.is_empty() {
            self.put("<div class=\"lane\"><b>flushes</b>");
            for (checkpoint, end, millis) in flushes.iter().step_by(flushes.len().div_ceil(MARKS)) {
                let length = duration_text(Duration::from_millis(*millis));
                let begun = Timestamp::from_millis(end.millis().saturating_sub_unsigned(*millis));
                self.span(begun, *end, "drain", &format!("flush of checkpoint {checkpoint}, {length}"), "");
            }
            self.put("</div>\n");
        }
        let mut of_nodes: BTreeMap<&NodeName, Vec<&Incident>> = BTreeMap::new();
        report.incidents.iter().for_each(|incident| of_nodes.entry(&incident.node).or_default().push(incident));
        let hidden = of_nodes.len().saturating_sub(LANES);
        for (node, incidents) in of_nodes.into_iter().take(LANES) {
            self.node_lane(node, &incidents);
        }
        let (from, to) = (time_text(report.began), time_text(report.until));
        self.put(format_args!("</div>\n</div>\n<div class=\"axis\"><span>{from}</span><span>{to}</span></div>\n"));
        if hidden > 0 {
            self.put(format_args!(
                "<p class=\"soft\">{hidden} more nodes with incidents are in the table below.</p>\n"
            ));
        }
    }

    fn checkpoint_mark(&mut self, past: &PastCheckpoint) {
        let id = past.checkpoint;
        let (class, text) = match (&past.dropped, past.protected, past.complete) {
            (Some(reason), _, _) => ("bad", format!("checkpoint {id} was dropped: {reason}")),
            (None, Some(_), _) => ("checkpoints", format!("checkpoint {id}, protected")),
            (None, None, Some(_)) => ("detection", format!("checkpoint {id}, not protected")),
            (None, None, None) => ("start", format!("checkpoint {id} was begun")),
        };
        let end = past.protected.or(past.complete).unwrap_or(past.started);
        self.span(past.started, end, class, &text, "");
    }

    fn node_lane(&mut self, node: &NodeName, incidents: &[&Incident]) {
        self.put(format_args!("<div class=\"lane\"><b>{}</b>", escaped(node)));
        for incident in incidents {
            let text = format!("{}: {} {}", incident.node, incident.kind.name(), incident.text);
            match incident.kind {
                IncidentKind::Down => self.span(incident.at, self.report.until, "bad", &text, "down"),
                IncidentKind::Excluded => {
                    let again =
                        incidents.iter().find(|next| next.kind == IncidentKind::Included && next.at > incident.at);
                    let end = again.map_or(self.report.until, |again| again.at);
                    self.span(incident.at, end, "start", &text, "excluded");
                }
                IncidentKind::AgentLost | IncidentKind::Silent => {
                    self.span(incident.at, incident.at, "detection mark", &text, "");
                }
                IncidentKind::Included => {}
            }
        }
        self.put("</div>\n");
    }

    /// A bar in a lane.
    fn span(&mut self, from: Timestamp, to: Timestamp, class: &str, title: &str, label: &str) {
        let whole = self.report.until.since(self.report.began).max(Duration::from_millis(1)).as_secs_f64();
        let left = from.since(self.report.began).as_secs_f64() / whole * 100.0;
        let width = to.since(from).as_secs_f64() / whole * 100.0;
        let (title, label) = (escaped(title), escaped(label));
        self.put(format_args!(
            "<i class=\"{class}\" style=\"left:{left:.4}%;width:{width:.4}%\" title=\"{title}\">{label}</i>"
        ));
    }

    fn failures(&mut self) {
        let failures = &self.report.failures;
        self.put(format_args!("<h2>Failures: {}</h2>\n", failures.len()));
        for failure in failures.iter().take(ROWS) {
            self.failure(failure);
        }
        self.more(failures.len());
    }

    fn failure(&mut self, failure: &Failure) {
        let (time, line) = (time_text(failure.at), escaped(failure.line()));
        self.put(format_args!("<article>\n<p class=\"soft\">{time}</p>\n<p>{line}</p>\n"));
        if let Some(hint) = failure.hint {
            self.put(format_args!("<p><strong>{}</strong></p>\n", escaped(hint)));
        }
        if !failure.output.is_empty() {
            self.put(format_args!("<pre>{}</pre>\n", escaped(failure.output.join("\n"))));
        }
        self.put("</article>\n");
    }

    fn generations(&mut self) {
        let past = &self.report.generations;
        let rows = past.iter().rev().take(ROWS).map(|past| {
            let optional = |time: Option<Timestamp>| time.map(time_text).unwrap_or_default();
            [
                past.generation.to_string(),
                time_text(past.placed),
                optional(past.restarted),
                past.checkpoint.map(|checkpoint| checkpoint.to_string()).unwrap_or_default(),
                past.rebuilt.to_string(),
                past.moved.to_string(),
                past.nodes.to_string(),
                past.spares.to_string(),
                past.end.clone().unwrap_or_else(|| "runs".to_owned()),
            ]
        });
        let heads =
            ["generation", "placed", "running", "from checkpoint", "rebuilt", "moved", "nodes", "spares", "end"];
        let rows = rows.collect();
        self.table(&format!("Generations: {}", past.len()), heads, rows);
        self.more(past.len());
    }

    fn checkpoints(&mut self) {
        let past = &self.report.checkpoints;
        let rows = past.iter().rev().take(ROWS).map(|past| {
            let millis =
                |millis: Option<u64>| millis.map(|it| duration_text(Duration::from_millis(it))).unwrap_or_default();
            let state = match (&past.dropped, past.flushed, past.protected, past.complete) {
                (Some(reason), ..) => format!("dropped: {reason}"),
                (None, Some(_), ..) => "flushed".to_owned(),
                (None, None, Some(_), _) => "protected".to_owned(),
                (None, None, None, Some(_)) => "complete".to_owned(),
                (None, None, None, None) => "begun".to_owned(),
            };
            [
                past.checkpoint.to_string(),
                time_text(past.started),
                past.scheme.map(|scheme| scheme.to_string()).unwrap_or_default(),
                if past.bytes > 0 { bytes_text(past.bytes) } else { String::new() },
                bandwidth(past).map(|bytes| format!("{}/s", bytes_text(bytes))).unwrap_or_default(),
                millis(past.blocked_ms),
                millis(past.flush_ms),
                past.survives.map(|nodes| nodes.to_string()).unwrap_or_default(),
                state,
            ]
        });
        let heads = ["checkpoint", "begun", "scheme", "size", "bandwidth", "blocked", "flush", "survives", "state"];
        let rows = rows.collect();
        self.table(&format!("Checkpoints: {}", past.len()), heads, rows);
        self.more(past.len());
    }

    fn nodes(&mut self) {
        let incidents = &self.report.incidents;
        if incidents.is_empty() {
            return;
        }
        let rows = incidents.iter().rev().take(ROWS).map(|incident| {
            [incident.node.to_string(), time_text(incident.at), incident.kind.name().to_owned(), incident.text.clone()]
        });
        let rows = rows.collect();
        self.table("Nodes", ["node", "time", "what", "why"], rows);
        self.more(incidents.len());
    }

    /// A table; its last column is text.
    fn table<const N: usize>(&mut self, title: &str, heads: [&str; N], rows: Vec<[String; N]>) {
        self.put(format_args!(
            "<h2>{0}</h2>\n<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table>\n\
             <thead><tr>",
            escaped(title)
        ));
        for (at, head) in heads.into_iter().enumerate() {
            let class = if at + 1 == N { " class=\"left\"" } else { "" };
            self.put(format_args!("<th scope=\"col\"{class}>{head}</th>"));
        }
        self.put("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.put("<tr>");
            for (at, cell) in row.into_iter().enumerate() {
                let class = if at + 1 == N { " class=\"left\"" } else { "" };
                self.put(format_args!("<td{class}>{}</td>", escaped(cell)));
            }
            self.put("</tr>\n");
        }
        self.put("</tbody>\n</table>\n</div>\n");
    }

    fn more(&mut self, all: usize) {
        if all > ROWS {
            let hidden = all - ROWS;
            self.put(format_args!("<p class=\"soft\">{hidden} more are in <code>holdfast report --json</code>.</p>\n"));
        }
    }
}

/// The class of a part of the time.
fn class(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_written_is_text_in_the_page() {
        assert_eq!(escaped("<b a=\"1\">&'\u{1b}[1m"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;\u{fffd}[1m");
    }
}
