//! The report as one page: no request to anywhere, readable without its script.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::time::Duration;

use holdfast_model::{NodeName, Timestamp};

use super::job::{Incident, IncidentKind, JobReport, PastCheckpoint, ReportedStep};
use super::text::{bandwidth, bytes_text, duration_text, offset_seconds, time_text};
use crate::events::{Failure, SettingInForce};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Nodes with a lane of their own.
const LANES: usize = 64;
/// Marks in a lane: more than a screen has columns.
const MARKS: usize = 2_000;
/// Rows of a table.
const ROWS: usize = 200;

/// The page of a job, or of a job of several steps, one after the other.
pub fn page(report: &JobReport, steps: &[ReportedStep]) -> String {
    let mut page = Page { text: String::new(), report, level: 2, axis: (report.began, report.until) };
    page.document(steps);
    page.text
}

struct Page<'a> {
    text: String,
    /// That of the job, or of a step.
    report: &'a JobReport,
    /// Of its headings.
    level: u8,
    /// Begin and end of the time line.
    axis: (Timestamp, Timestamp),
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

impl<'a> Page<'a> {
    fn put(&mut self, text: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{text}");
    }

    fn document(&mut self, steps: &'a [ReportedStep]) {
        let title = escaped(format!("{} ({})", self.report.job, self.report.job_id));
        self.put(format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n\
             {STYLE}</style>\n</head>\n<body>\n<h1>Job {title}</h1>\n"
        ));
        if steps.is_empty() {
            self.parts();
        } else {
            self.steps(steps);
        }
        self.put(format_args!(
            "<p class=\"soft\">Written by Holdfast {}; the events are in <code>.holdfast/events.jsonl</code> of the \
             prefix directory.</p>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        ));
    }

    fn parts(&mut self) {
        self.facts();
        self.time();
        self.time_line();
        self.failures();
        self.generations();
        self.checkpoints();
        self.nodes();
        self.settings();
    }

    /// The steps of a job, together and one after the other.
    fn steps(&mut self, steps: &'a [ReportedStep]) {
        let known = || steps.iter().filter_map(|step| Some((step, step.report.as_ref()?)));
        let rows = steps.iter().map(|step| {
            let of_report = |text: fn(&JobReport) -> String| step.report.as_ref().map(text).unwrap_or_default();
            [
                step.name.clone(),
                of_report(|report| time_text(report.began)),
                of_report(|report| duration_text(report.time.elapsed)),
                of_report(|report| format!("{:.1} %", report.time.percent(report.time.computing))),
                of_report(|report| report.failures.len().to_string()),
                of_report(|report| report.checkpoints.len().to_string()),
                step.state.clone(),
            ]
        });
        let heads = ["step", "begun", "took", "goodput", "failures", "checkpoints", "state"];
        self.table(&format!("Steps: {}", steps.len()), heads, rows.collect());
        let began = known().map(|(_, report)| report.began).min().unwrap_or(self.report.began);
        let until = known().map(|(_, report)| report.until).max().unwrap_or(self.report.until);
        self.line("Time line of the steps", (began, until), |page| {
            page.put("<div class=\"lane\"><b>steps</b>");
            for (at, (step, report)) in known().enumerate() {
                let class = if at % 2 == 0 { "even" } else { "odd" };
                page.span(report.began, report.until, class, &format!("{}: {}", step.name, step.state), &step.name);
            }
            page.put("</div>\n");
        });
        self.level = 3;
        for (step, report) in known() {
            let name = escaped(&step.name);
            self.put(format_args!("<section aria-label=\"step {name}\">\n<h2 class=\"step\">Step {name}</h2>\n"));
            self.report = report;
            self.parts();
            self.put("</section>\n");
        }
    }

    fn heading(&mut self, text: impl Display) {
        let level = self.level;
        self.put(format_args!("<h{level}>{}</h{level}>\n", escaped(text)));
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
        if !report.versions.is_empty() {
            rows.push(("version", format!("Holdfast {}", report.versions.join(", then "))));
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
        self.heading("Where the time went");
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
        self.line("Time line", (report.began, report.until), Page::lanes);
        let nodes: BTreeSet<&NodeName> = report.incidents.iter().map(|incident| &incident.node).collect();
        if nodes.len() > LANES {
            let hidden = nodes.len() - LANES;
            self.put(format_args!(
                "<p class=\"soft\">{hidden} more nodes with incidents are in the table below.</p>\n"
            ));
        }
    }

    /// A time line that can be zoomed.
    fn line(&mut self, title: &str, axis: (Timestamp, Timestamp), lanes: impl FnOnce(&mut Self)) {
        let (level, (began, until)) = (self.level, axis);
        self.axis = axis;
        self.put(format_args!(
            "<div class=\"line\">\n<h{level}>{title} <span class=\"soft zoom\"></span></h{level}>\n\
             <p class=\"soft keys\" hidden>\
             + and - zoom while it has the focus, and the wheel with Ctrl; 0 shows all of it. <button>+</button> \
             <button>-</button> <button>0</button></p>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">\n<div class=\"track\" \
             data-began=\"{}\" data-until=\"{}\" data-offset=\"{}\">\n",
            began.millis(),
            until.millis(),
            offset_seconds(began)
        ));
        lanes(self);
        let (from, to) = (time_text(began), time_text(until));
        self.put(format_args!(
            "</div>\n</div>\n<div class=\"axis\"><span>{from}</span><span>{to}</span></div>\n</div>\n"
        ));
    }

    fn lanes(&mut self) {
        let report = self.report;
        self.put("<div class=\"lane\"><b>phases</b>");
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
        for (node, incidents) in of_nodes.into_iter().take(LANES) {
            self.node_lane(node, &incidents);
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
        let (began, until) = self.axis;
        let whole = until.since(began).max(Duration::from_millis(1)).as_secs_f64();
        let left = from.since(began).as_secs_f64() / whole * 100.0;
        let width = to.since(from).as_secs_f64() / whole * 100.0;
        let (title, label) = (escaped(title), escaped(label));
        self.put(format_args!(
            "<i class=\"{class}\" style=\"left:{left:.4}%;width:{width:.4}%\" title=\"{title}\">{label}</i>"
        ));
    }

    fn failures(&mut self) {
        let failures = &self.report.failures;
        self.heading(format_args!("Failures: {}", failures.len()));
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

    /// The settings in force; those that are defaults are hidden at first.
    fn settings(&mut self) {
        let settings = &self.report.settings;
        let (defaults, others): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.is_default());
        let row = |setting: &SettingInForce| [setting.key.clone(), setting.origin.clone(), setting.value.clone()];
        let heads = ["setting", "origin", "value"];
        if !others.is_empty() {
            let title = format!("Settings that are not defaults: {}", others.len());
            self.table(&title, heads, others.into_iter().map(row).collect());
        }
        if !defaults.is_empty() {
            let title = format!("Defaults: {}", defaults.len());
            self.put(format_args!("<details>\n<summary>{title}</summary>\n"));
            self.table(&title, heads, defaults.into_iter().map(row).collect());
            self.put("</details>\n");
        }
    }

    /// A table; its last column is text.
    fn table<const N: usize>(&mut self, title: &str, heads: [&str; N], rows: Vec<[String; N]>) {
        self.heading(title);
        self.put(format_args!(
            "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n<table>\n\
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
