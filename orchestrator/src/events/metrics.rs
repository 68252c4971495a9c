//! Figures of a job for monitoring, from its events, in the text format of Prometheus. Names and units follow its
//! conventions: seconds and bytes, `_total` for what only grows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{NodeName, Timestamp};
use holdfast_wire::agent::AgentEvent;

use super::cost::Costs;
use super::reason::DrainResult;
use super::vocabulary::LogEvent;

/// The figures of a job: of each of several steps, by its name, or of the job.
#[derive(Clone, Debug)]
pub struct JobMetrics {
    job: String,
    steps: BTreeMap<Option<Arc<str>>, Metrics>,
}

impl JobMetrics {
    /// Those of a job of this name, before its first event.
    pub fn new(job: &str) -> Self {
        JobMetrics { job: job.to_owned(), steps: BTreeMap::new() }
    }

    /// Counts an event of a step, or of the job.
    pub fn add(&mut self, step: Option<Arc<str>>, time: Timestamp, event: &LogEvent) {
        self.steps.entry(step).or_insert_with(|| Metrics::new(&self.job)).add(time, event);
    }

    /// All figures at this time. Those of steps have a label `step`.
    pub fn text(&self, now: Timestamp) -> String {
        let (mut to, before) = (Text::default(), Metrics::new(&self.job));
        let has_steps = self.steps.keys().any(Option::is_some);
        let shown = self.steps.iter().filter(|(step, _)| step.is_some() == has_steps);
        for (step, metrics) in shown {
            to.step.clone_from(step);
            metrics.write(&mut to, now);
        }
        if self.steps.is_empty() {
            before.write(&mut to, now);
        }
        to.text()
    }
}

/// What has been counted since the job began in its allocation.
#[derive(Clone, Debug, Default)]
struct Metrics {
    job: String,
    job_id: String,
    began: Option<Timestamp>,
    allocated: usize,
    down: BTreeSet<NodeName>,
    excluded: BTreeSet<NodeName>,
    generation: u64,
    relaunches: u32,
    rank_failures: u64,
    checkpoint_bytes: u64,
    flushed: u64,
    flush_failures: u64,
    drain_incomplete: bool,
    exit_code: Option<u8>,
    costs: Costs,
}

impl Metrics {
    fn new(job: &str) -> Self {
        Metrics { job: job.to_owned(), ..Metrics::default() }
    }

    fn add(&mut self, time: Timestamp, event: &LogEvent) {
        self.costs.add(time, event, None);
        match event {
            LogEvent::JobStarted { job_id, nodes, .. } => {
                let (job, costs) = (std::mem::take(&mut self.job), std::mem::take(&mut self.costs));
                let (job_id, allocated, began) = (job_id.clone(), nodes.len(), Some(time));
                *self = Metrics { job, job_id, allocated, began, costs, ..Metrics::default() };
            }
            LogEvent::NodeDown { node, .. } => drop(self.down.insert(node.clone())),
            LogEvent::NodeExcluded { node, .. } => drop(self.excluded.insert(node.clone())),
            LogEvent::NodeIncluded { node } => drop(self.excluded.remove(node)),
            LogEvent::GenerationLaunched { generation, relaunches } => {
                (self.generation, self.relaunches) = (generation.0, *relaunches);
            }
            LogEvent::RankFailed { .. } => self.rank_failures += 1,
            LogEvent::Drained { result } => {
                self.drain_incomplete = matches!(result, DrainResult::Incomplete { .. } | DrainResult::Failed { .. });
            }
            LogEvent::Finished { exit_code, .. } => self.exit_code = Some(*exit_code),
            LogEvent::Agent(report) => match &report.event {
                AgentEvent::CheckpointComplete { bytes, .. } => {
                    self.checkpoint_bytes = self.checkpoint_bytes.saturating_add(*bytes);
                }
                AgentEvent::Flushed { .. } => self.flushed += 1,
                AgentEvent::FlushFailed { .. } => self.flush_failures += 1,
                _ => {}
            },
            _ => {}
        }
    }

    fn write(&self, to: &mut Text, now: Timestamp) {
        let name = [("job", self.job.as_str()), ("job_id", &self.job_id), ("version", env!("CARGO_PKG_VERSION"))];
        to.gauge("holdfast_job_info", "The job.", &[(&name, 1.0)]);
        to.gauge(
            "holdfast_job_running",
            "1 while the orchestrator runs.",
            &[(&[], if self.exit_code.is_none() { 1.0 } else { 0.0 })],
        );
        if let Some(code) = self.exit_code {
            to.gauge("holdfast_job_exit_code", "The exit code of the job, after its end.", &[(&[], code.into())]);
        }
        if let Some(began) = self.began {
            let text = "When the job began in its allocation, seconds since the epoch.";
            to.gauge("holdfast_job_start_time_seconds", text, &[(&[], seconds_at(began))]);
        }
        to.gauge(
            "holdfast_nodes",
            "Nodes of the allocation.",
            &[
                (&[("state", "allocated")], count(self.allocated as u64)),
                (&[("state", "down")], count(self.down.len() as u64)),
                (&[("state", "excluded")], count(self.excluded.len() as u64)),
            ],
        );
        to.gauge("holdfast_generation", "The generation that was launched last.", &[(&[], count(self.generation))]);
        to.counter("holdfast_relaunches_total", "Relaunches.", &[(&[], self.relaunches.into())]);
        let text = "Ranks that ended with an error, not those that were ended in consequence.";
        to.counter("holdfast_rank_failures_total", text, &[(&[], count(self.rank_failures))]);
        self.checkpoints(to, now);
        let drain = if self.drain_incomplete { 1.0 } else { 0.0 };
        to.gauge(
            "holdfast_drain_incomplete",
            "1 after a drain that saved not all of the newest checkpoint.",
            &[(&[], drain)],
        );
    }

    fn checkpoints(&self, to: &mut Text, now: Timestamp) {
        let Some(cost) = self.costs.cost(Some(now)) else { return };
        to.counter(
            "holdfast_checkpoints_total",
            "Datasets that the ranks have written.",
            &[(&[("result", "complete")], count(cost.complete)), (&[("result", "dropped")], count(cost.dropped))],
        );
        let text = "Bytes of complete checkpoints.";
        to.counter("holdfast_checkpoint_bytes_total", text, &[(&[], count(self.checkpoint_bytes))]);
        to.counter(
            "holdfast_flushes_total",
            "Copies of checkpoints to the prefix directory.",
            &[(&[("result", "complete")], count(self.flushed)), (&[("result", "failed")], count(self.flush_failures))],
        );
        let newest = [("protected", cost.protected), ("flushed", cost.flushed)];
        for (state, newest) in newest {
            let Some((id, age)) = newest else { continue };
            let labels = [("state", state)];
            to.gauge("holdfast_newest_checkpoint", "The number of the newest checkpoint.", &[(&labels, count(id.0))]);
            let text = "When the newest checkpoint was begun, seconds since the epoch.";
            let begun = seconds_at(now) - age.as_secs_f64();
            to.gauge("holdfast_newest_checkpoint_time_seconds", text, &[(&labels, begun)]);
        }
        let seconds = |time: Duration| time.as_secs_f64();
        to.counter("holdfast_failures_total", "Generations that failed.", &[(&[], cost.failures.into())]);
        to.counter(
            "holdfast_lost_seconds_total",
            "Time that failures and checkpoints have cost.",
            &[
                (&[("cause", "lost_work")], seconds(cost.lost)),
                (&[("cause", "detection")], seconds(cost.detection)),
                (&[("cause", "restart")], seconds(cost.restart)),
                (&[("cause", "checkpoints")], seconds(cost.blocked.unwrap_or_default())),
            ],
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "the format has floating point numbers only")]
fn count(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds since the epoch fit")]
fn seconds_at(time: Timestamp) -> f64 {
    time.millis() as f64 / 1000.0
}

type Labels<'a> = [(&'a str, &'a str)];

/// The families of samples, in the order in which they were first written.
#[derive(Debug, Default)]
struct Text {
    /// A label of all samples that are written.
    step: Option<Arc<str>>,
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    /// Its help and its type.
    head: String,
    samples: String,
}

impl Text {
    fn gauge(&mut self, name: &'static str, help: &str, samples: &[(&Labels<'_>, f64)]) {
        self.family(name, "gauge", help, samples);
    }

    fn counter(&mut self, name: &'static str, help: &str, samples: &[(&Labels<'_>, f64)]) {
        self.family(name, "counter", help, samples);
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str, samples: &[(&Labels<'_>, f64)]) {
        let at = self.families.iter().position(|family| family.name == name).unwrap_or_else(|| {
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push(Family { name, head, samples: String::new() });
            self.families.len() - 1
        });
        let step = self.step.as_deref().map(|step| ("step", step));
        for (labels, value) in samples {
            let labels = labels.iter().copied().chain(step);
            let labels: Vec<String> = labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            // Writing to a string cannot fail.
            let _ = writeln!(self.families[at].samples, "{name}{labels} {value}");
        }
    }

    fn text(&self) -> String {
        self.families.iter().flat_map(|family| [family.head.as_str(), &family.samples]).collect()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use holdfast_model::RankEnd;
    use serde_json::json;

    use super::*;
    use crate::events::fixtures::event;

    #[test]
    fn figures_follow_the_events() {
        let mut metrics = JobMetrics::new("heat \"1\"");
        let events = [
            event("job_started", json!({"job_id": "17", "nodes": ["n0", "n1"]})),
            event("generation_launched", json!({"relaunches": 1})),
            event("rank_failed", json!({"end": RankEnd::Code(1)})),
            event("checkpoint_complete", json!({"bytes": 4096})),
        ];
        events.iter().for_each(|event| metrics.add(None, Timestamp::from_secs(100), event));
        let text = metrics.text(Timestamp::from_secs(200));
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            format!("holdfast_job_info{{job=\"heat \\\"1\\\"\",job_id=\"17\",version=\"{version}\"}} 1").as_str(),
            "holdfast_job_running 1",
            "holdfast_job_start_time_seconds 100",
            "holdfast_nodes{state=\"allocated\"} 2",
            "holdfast_relaunches_total 1",
            "holdfast_rank_failures_total 1",
            "holdfast_checkpoints_total{result=\"complete\"} 1",
            "holdfast_checkpoint_bytes_total 4096",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        let helps = text.lines().filter(|line| line.starts_with("# HELP holdfast_nodes "));
        assert_eq!(helps.count(), 1);
        metrics.add(None, Timestamp::from_secs(300), &event("finished", json!({"exit_code": 75})));
        let text = metrics.text(Timestamp::from_secs(300));
        assert!(text.contains("holdfast_job_running 0\n") && text.contains("holdfast_job_exit_code 75\n"), "{text}");
    }

    #[test]
    fn figures_of_steps_side_by_side_have_the_name_of_the_step() {
        let mut metrics = JobMetrics::new("ensemble");
        let mut add = |step: &str, event| metrics.add(Some(step.into()), Timestamp::from_secs(100), &event);
        for step in ["a", "b"] {
            add(step, event("job_started", json!({"job_id": "17", "nodes": ["n0", "n1"]})));
        }
        add("a", event("finished", json!({"exit_code": 0})));
        let text = metrics.text(Timestamp::from_secs(200));
        for line in [
            "holdfast_job_running{step=\"a\"} 0",
            "holdfast_job_running{step=\"b\"} 1",
            "holdfast_nodes{state=\"allocated\",step=\"b\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE holdfast_job_running ")).count(), 1);
    }
}
