//! What failed: one entry for each generation that failed, with its first sign, what followed from it, what it cost and
//! what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::time::millis;
use holdfast_model::{Generation, NodeName, Rank, RankEnd, RestartSource, Timestamp, kernel_message};
use holdfast_wire::agent::AgentEvent;
use serde::Serialize;
use signal_hook::low_level::signal_name;

use super::cost::Costs;
use super::reason::{EndCause, ranks_text};
use super::vocabulary::LogEvent;
use crate::spec::quantity::whole_millis;

/// A generation that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The first sign of it.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    pub generation: Generation,
    /// What failed first, and how.
    pub cause: String,
    /// Where, if that is known.
    pub node: Option<NodeName>,
    pub rank: Option<Rank>,
    /// What this way to end is known for, and what to look at.
    pub hint: Option<&'static str>,
    /// The last lines of the standard error of the rank.
    pub output: Vec<String>,
    /// Other ranks that ended with an error in consequence, and other nodes that went down.
    pub ranks_followed: u32,
    pub nodes_followed: u32,
    #[serde(rename = "detection_ms", with = "millis")]
    pub detection: Duration,
    /// From its detection until the ranks of the next generation had their files.
    #[serde(rename = "restart_ms", with = "optional_millis")]
    pub restart: Option<Duration>,
    /// The work that had to be done again.
    #[serde(rename = "lost_work_ms", with = "optional_millis")]
    pub lost: Option<Duration>,
    /// What was done.
    pub then: String,
}

mod optional_millis {
    use std::time::Duration;

    use serde::{Serialize as _, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(crate::spec::quantity::whole_millis).serialize(serializer)
    }
}

impl Failure {
    /// Adds the last lines of what the rank wrote to standard error, and what they are known for.
    pub fn quote(&mut self, lines: Vec<String>) {
        self.hint = self.hint.or_else(|| lines.iter().rev().find_map(|line| hint_of_line(line)));
        self.output = lines;
    }

    /// One line: `generation 2: rank 3 on n5 ended with SIGKILL; 15 other ranks followed; …`.
    pub fn line(&self) -> String {
        let mut text = format!("generation {}: {}", self.generation, self.cause);
        let counted = |count: u32, what: &str| {
            (count > 0).then(|| format!("{count} other {what}{} followed", if count == 1 { "" } else { "s" }))
        };
        let parts = [
            counted(self.ranks_followed, "rank"),
            counted(self.nodes_followed, "node"),
            Some(format!("detected in {:.1} s", self.detection.as_secs_f64())),
            self.lost.filter(|lost| !lost.is_zero()).map(|lost| format!("{:.1} s of work lost", lost.as_secs_f64())),
            Some(self.then.clone()).filter(|then| !then.is_empty()),
            self.restart.map(|restart| format!("running again after {:.1} s", restart.as_secs_f64())),
        ];
        for part in parts.into_iter().flatten() {
            text.push_str("; ");
            text.push_str(&part);
        }
        text
    }

    fn event(&self) -> LogEvent {
        LogEvent::FailureExplained {
            generation: self.generation,
            cause: self.cause.clone(),
            node: self.node.clone(),
            rank: self.rank,
            ranks_followed: self.ranks_followed,
            nodes_followed: self.nodes_followed,
            detection_ms: whole_millis(self.detection),
            restart_ms: self.restart.map(whole_millis),
            lost_work_ms: self.lost.map(whole_millis),
            then: self.then.clone(),
            line: self.line(),
        }
    }
}

/// What the lines of a program that ends are known for.
const LINES: [(&str, &str); 9] = [
    ("error while loading shared libraries", "a library is missing on the node: load the modules of the job there too"),
    ("fallen off the bus", "the GPU does not answer any more: exclude the node"),
    ("CUDA error", "an error of the GPU or of its program"),
    ("Out of memory", "the node had too little memory"),
    ("oom-kill", "the node had too little memory"),
    ("Bus error", "a file in memory could not be extended: /dev/shm is full, or the memory of the job"),
    ("No space left on device", "a file system is full"),
    ("MPI_ABORT was invoked", "the application called MPI_Abort: what it printed before is the cause"),
    ("application called MPI_Abort", "the application called MPI_Abort: what it printed before is the cause"),
];

/// By the counters of the system, while the rank ran.
const MEMORY_OF_JOB: &str = "the system killed a process of the job on this node for lack of memory: ask for more \
                             memory, or place fewer ranks on a node";
const MEMORY: &str = "the system killed a process on this node for lack of memory while the rank ran: dmesg on the \
                      node names it";

const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;

fn hint_of_line(line: &str) -> Option<&'static str> {
    LINES.iter().find(|(words, _)| line.contains(words)).map(|(_, hint)| *hint)
}

fn hint_of_end(end: RankEnd) -> Option<&'static str> {
    match end {
        RankEnd::Signal(SIGBUS) => hint_of_line("Bus error"),
        RankEnd::Signal(SIGKILL) => {
            Some("something else than Holdfast killed it: often the system, for lack of memory (dmesg on the node)")
        }
        RankEnd::Signal(SIGSEGV) => Some("the program accessed memory that is not its own"),
        _ => None,
    }
}

/// `SIGKILL` for a signal that has a name.
fn end_text(end: RankEnd) -> String {
    match end {
        RankEnd::Signal(signal) => signal_name(signal).map_or_else(|| end.to_string(), str::to_owned),
        _ => end.to_string(),
    }
}

/// What the system of a node reported.
#[derive(Clone, Debug)]
enum SystemReport {
    /// It killed processes for lack of memory, of the job or others.
    KilledProcesses { of_job: bool },
    /// A message of the kernel.
    Message(String),
}

impl SystemReport {
    fn hint(&self) -> Option<&'static str> {
        match self {
            SystemReport::KilledProcesses { of_job: true } => Some(MEMORY_OF_JOB),
            SystemReport::KilledProcesses { of_job: false } => Some(MEMORY),
            SystemReport::Message(message) => kernel_message::hint(message),
        }
    }

    /// What it adds to the text of how a rank ended.
    fn text(&self, end: Option<RankEnd>) -> String {
        match self {
            SystemReport::KilledProcesses { of_job: true } if end == Some(RankEnd::Signal(SIGKILL)) => {
                " for lack of memory".to_owned()
            }
            SystemReport::KilledProcesses { .. } => String::new(),
            SystemReport::Message(message) => format!(" (its kernel reported: {message})"),
        }
    }
}

/// The failures of a run until now.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    list: Vec<Failure>,
    /// What the present generation shows.
    sign: Option<Timestamp>,
    ending: Option<Timestamp>,
    ranks: BTreeMap<Rank, (Option<NodeName>, RankEnd)>,
    followed: BTreeSet<Rank>,
    /// What the systems of nodes reported while ranks ran: the node, and the rank that ended.
    reports: Vec<(Option<NodeName>, Rank, SystemReport)>,
    /// The nodes that went down: how, and the ranks on them.
    nodes: BTreeMap<NodeName, (String, Vec<Rank>)>,
    /// The work that was lost before the last failure.
    lost: Duration,
}

impl Failures {
    /// Counts an event, after `costs` have counted it. Returns the last failure as an event, when it has come to an
    /// end: the ranks run again, or the job stops.
    pub fn add(&mut self, time: Timestamp, event: &LogEvent, costs: &Costs) -> Option<LogEvent> {
        match event {
            LogEvent::JobStarted { .. } => *self = Failures::default(),
            LogEvent::GenerationPlaced { .. } => self.begin(),
            LogEvent::AgentSilent { millis, .. } => {
                self.sign.get_or_insert(Timestamp::from_millis(time.millis().saturating_sub_unsigned(*millis)));
            }
            LogEvent::AgentAnswers { .. } | LogEvent::HangDismissed { .. } => self.sign = None,
            LogEvent::AgentLost { .. } | LogEvent::HangSuspected { .. } => drop(self.sign.get_or_insert(time)),
            LogEvent::RankFailed { rank, node, end, .. } => {
                self.sign.get_or_insert(time);
                self.ranks.entry(*rank).or_insert((node.clone(), *end));
            }
            LogEvent::RankEnded { rank, .. } => drop(self.followed.insert(*rank)),
            LogEvent::NodeDown { node, reason, ranks } => {
                self.sign.get_or_insert(time);
                let with = if ranks.is_empty() { String::new() } else { format!(" with {}", ranks_text(ranks)) };
                let text = format!("node {node} was lost{with}: {reason}");
                self.nodes.entry(node.clone()).or_insert((text, ranks.clone()));
            }
            LogEvent::GenerationEnding { .. } => drop(self.ending.get_or_insert(time)),
            LogEvent::GenerationEnded { generation, cause, .. } => self.end(time, *generation, cause),
            LogEvent::GenerationLaunched { generation, .. } => {
                let _ = self.last(|failure| failure.then = format!("relaunched as generation {generation}"));
            }
            LogEvent::Stopping { reason } => {
                return self.last(|failure| {
                    failure.then = format!("the job stopped: {reason}");
                    failure.event()
                });
            }
            LogEvent::Agent(report) => {
                let reported = match &report.event {
                    AgentEvent::MemoryExhausted { rank, of_group, .. } => {
                        Some((*rank, SystemReport::KilledProcesses { of_job: *of_group }))
                    }
                    AgentEvent::KernelReported { rank, message, .. } => {
                        Some((*rank, SystemReport::Message(message.clone())))
                    }
                    _ => None,
                };
                self.reports.extend(reported.map(|(rank, reported)| (report.node.clone(), rank, reported)));
                if let AgentEvent::Restarted { generation, checkpoint, source, .. } = &report.event {
                    let lost = costs.cost(None).map(|cost| cost.lost);
                    let before = self.lost;
                    self.lost = lost.unwrap_or(before);
                    let from = match checkpoint {
                        Some(checkpoint) => format!("from checkpoint {checkpoint} ({})", place(*source)),
                        None => "from the beginning".to_owned(),
                    };
                    return self.last(|failure| {
                        failure.restart = Some(time.since(failure.at).saturating_sub(failure.detection));
                        failure.lost = lost.map(|lost| lost.saturating_sub(before));
                        failure.then = format!("relaunched as generation {generation} {from}");
                        failure.event()
                    });
                }
            }
            _ => {}
        }
        None
    }

    pub fn into_list(self) -> Vec<Failure> {
        self.list
    }

    /// A generation begins: what was seen before is not of it.
    fn begin(&mut self) {
        *self = Failures { list: std::mem::take(&mut self.list), lost: self.lost, ..Failures::default() };
    }

    /// Changes the last failure, if nothing has been computed since.
    fn last<R>(&mut self, change: impl FnOnce(&mut Failure) -> R) -> Option<R> {
        self.list.last_mut().filter(|failure| failure.restart.is_none()).map(change)
    }

    fn end(&mut self, time: Timestamp, generation: Generation, cause: &EndCause) {
        if cause.is_wanted() {
            return;
        }
        let ending = self.ending.unwrap_or(time);
        let at = self.sign.unwrap_or(ending).min(ending);
        let (mut text, node, rank, end) = self.first(cause);
        // Those of the node that failed first, and the rank that failed first, are the cause.
        let of_node = node.as_ref().filter(|_| rank.is_none()).and_then(|node| self.nodes.get(node));
        let is_cause = |of: &Rank| rank == Some(*of) || of_node.is_some_and(|(_, ranks)| ranks.contains(of));
        let ranks = self.ranks.keys().chain(&self.followed).filter(|of| !is_cause(of));
        let ranks: BTreeSet<Rank> = ranks.copied().collect();
        let nodes_followed = match cause {
            EndCause::NodeFailure { nodes } => nodes.len().saturating_sub(1),
            _ => self.nodes.len(),
        };
        let is_there = |(on, of, _): &&(Option<NodeName>, Rank, SystemReport)| {
            rank == Some(*of) || (node.is_some() && *on == node)
        };
        let reported = self.reports.iter().find(is_there).map(|(.., reported)| reported);
        text.extend(reported.map(|reported| reported.text(end)));
        let hint = reported.and_then(SystemReport::hint).or_else(|| end.and_then(hint_of_end));
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.list.push(Failure {
            at,
            generation,
            cause: text,
            node,
            rank,
            hint,
            output: Vec::new(),
            ranks_followed: count(ranks.len()),
            nodes_followed: count(nodes_followed),
            detection: ending.since(at),
            restart: None,
            lost: None,
            then: String::new(),
        });
    }

    /// What failed first: the text, its node, its rank, and how that ended.
    fn first(&self, cause: &EndCause) -> (String, Option<NodeName>, Option<Rank>, Option<RankEnd>) {
        match cause {
            EndCause::NodeFailure { nodes } => {
                let node = nodes.first();
                let text =
                    node.and_then(|node| Some(self.nodes.get(node)?.0.clone())).unwrap_or_else(|| cause.to_string());
                (text, node.cloned(), None, None)
            }
            EndCause::Application { rank: Some(rank), end } => {
                let node = self.ranks.get(rank).and_then(|(node, _)| node.clone());
                let place = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
                (format!("rank {rank}{place} ended with {}", end_text(*end)), node, Some(*rank), Some(*end))
            }
            EndCause::Application { rank: None, end } => (cause.to_string(), None, None, Some(*end)),
            EndCause::RestartPrevented { nodes, .. } => (cause.to_string(), nodes.first().cloned(), None, None),
            _ => (cause.to_string(), None, None, None),
        }
    }
}

fn place(source: RestartSource) -> &'static str {
    match source {
        RestartSource::Cache => "in cache",
        RestartSource::Rebuilt => "rebuilt in cache",
        RestartSource::Fetched => "fetched from the prefix directory",
        RestartSource::Fresh => "none",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::fixtures::event;
    use crate::events::{DownReason, StopReason};

    /// The events of a run, counted as a reporter does; returns the lines of the failures that have come to an end.
    fn explained(events: Vec<(i64, LogEvent)>) -> Vec<String> {
        let (mut costs, mut failures) = (Costs::default(), Failures::default());
        let mut lines = Vec::new();
        for (secs, event) in events {
            let time = Timestamp::from_secs(secs);
            costs.add(time, &event, None);
            if let Some(LogEvent::FailureExplained { line, .. }) = failures.add(time, &event, &costs) {
                lines.push(line);
            }
        }
        lines
    }

    fn restarted(generation: u64, checkpoint: Option<u64>) -> LogEvent {
        let source = checkpoint.map_or(RestartSource::Fresh, |_| RestartSource::Rebuilt);
        event("restarted", json!({"generation": generation, "checkpoint": checkpoint, "source": source}))
    }

    fn placed(generation: u64) -> LogEvent {
        event("generation_placed", json!({"generation": generation}))
    }

    fn ended(cause: EndCause) -> LogEvent {
        event("generation_ended", json!(cause))
    }

    fn failed(rank: u32, end: RankEnd) -> LogEvent {
        event("rank_failed", json!({"rank": rank, "node": "n2", "end": end}))
    }

    /// A generation that has begun a checkpoint at six seconds and runs.
    fn running() -> Vec<(i64, LogEvent)> {
        let (started, begun) = (event("job_started", json!({})), event("checkpoint_started", json!({})));
        vec![(0, started), (1, placed(1)), (2, restarted(1, None)), (6, begun)]
    }

    #[test]
    fn a_lost_node_has_what_followed_what_it_cost_and_what_was_done() {
        let mut events = running();
        let reason = DownReason::Health { fault: "its disk is full".to_owned() };
        let down = LogEvent::NodeDown { node: "n1".into(), reason, ranks: vec![Rank(3), Rank(4)] };
        events.extend([
            (10, failed(5, RankEnd::Code(1))),
            (10, failed(3, RankEnd::Signal(9))),
            (11, down),
            (12, event("generation_ending", json!({}))),
            (13, ended(EndCause::NodeFailure { nodes: vec!["n1".into()] })),
            (13, placed(2)),
            (15, restarted(2, Some(1))),
        ]);
        let line = "generation 1: node n1 was lost with ranks 3-4: a health test failed: its disk is full; 1 other \
                    rank followed; detected in 2.0 s; 4.0 s of work lost; relaunched as generation 2 from checkpoint 1 \
                    (rebuilt in cache); running again after 3.0 s";
        assert_eq!(explained(events), [line]);
    }

    #[test]
    fn a_rank_that_was_killed_is_named_with_its_node_and_signal() {
        let mut events = running();
        let (first, end) = (Rank(7), RankEnd::Signal(SIGSEGV));
        let stopping = LogEvent::Stopping { reason: StopReason::Finished };
        events.extend([
            (10, failed(7, end)),
            (10, failed(8, RankEnd::Code(1))),
            (10, failed(9, RankEnd::Code(1))),
            (10, ended(EndCause::Application { rank: Some(first), end })),
            (10, stopping),
        ]);
        let line = "generation 1: rank 7 on n2 ended with SIGSEGV; 2 other ranks followed; detected in 0.0 s; the job \
                    stopped: the job is finished";
        assert_eq!(explained(events), [line]);
    }

    #[test]
    fn the_reports_of_the_system_explain_the_end_of_a_rank() {
        let end = RankEnd::Signal(SIGKILL);
        let of = |node: &str, rank: Rank, of_group: bool| {
            let fields = json!({"node": node, "rank": rank, "pid": 41, "killed": 1, "of_group": of_group});
            event("memory_exhausted", fields)
        };
        let hint = |seen: LogEvent| {
            let (mut failures, costs) = (Failures::default(), Costs::default());
            let cause = EndCause::Application { rank: Some(Rank(7)), end };
            for event in [seen, failed(7, end), ended(cause)] {
                failures.add(Timestamp::from_secs(10), &event, &costs);
            }
            let failure = failures.into_list().pop().unwrap();
            (failure.cause, failure.hint)
        };
        let killed = "rank 7 on n2 ended with SIGKILL";
        let certain = (format!("{killed} for lack of memory"), Some(MEMORY_OF_JOB));
        assert_eq!(hint(of("n2", Rank(7), true)), certain);
        assert_eq!(hint(of("n2", Rank(6), true)), certain, "the first rank of the node that was seen to end");
        assert_eq!(hint(of("n2", Rank(7), false)), (killed.to_owned(), Some(MEMORY)), "it may have been another one");
        assert_eq!(hint(of("n1", Rank(3), true)), (killed.to_owned(), hint_of_end(end)), "on another node");
        let message = "I/O error, dev sda, sector 7";
        let reported = event("kernel_reported", json!({"node": "n2", "rank": 7, "pid": 41, "message": message}));
        let by_kernel = (format!("{killed} (its kernel reported: {message})"), kernel_message::hint(message));
        assert_eq!(hint(reported), by_kernel);
    }

    #[test]
    fn an_end_that_was_wanted_is_no_failure() {
        let mut events = running();
        events.extend([
            (10, ended(EndCause::Halted { reason: "signal".to_owned() })),
            (11, placed(2)),
            (12, restarted(2, Some(1))),
        ]);
        assert_eq!(explained(events), [""; 0]);
    }

    #[test]
    fn known_lines_have_a_hint() {
        assert!(hint_of_line("./app: error while loading shared libraries: libx.so").unwrap().contains("library"));
        assert_eq!(hint_of_line("step 7"), None);
    }
}
