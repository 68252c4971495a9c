//! The summary at the end of `holdfast run`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Local};
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::{CheckpointId, Generation, NodeName, Timestamp};
use serde::Serialize;

use super::cost::Cost;
use super::log;
use super::reason::GenerationProgress;
use super::screen::LINE_TIME;
use super::sentence::virtual_text;

/// The summary of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GenerationReport {
    pub generation: Generation,
    pub from: Option<CheckpointId>,
    /// Why it started from the beginning, if it did and is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beginning: Option<String>,
    /// False if the launcher could not start it.
    pub launched: bool,
    /// Its ranks have joined: before that, it is not known from which checkpoint they would go on.
    pub joined: bool,
    pub ended: String,
    /// The newest complete checkpoint at its end.
    pub newest: Option<CheckpointId>,
    /// The progress that it made.
    pub progress: Option<GenerationProgress>,
}

/// How a step of a job is at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    Finished,
    Failed,
    /// A step that it needs failed or was skipped.
    Skipped,
    NotStarted,
}

/// What is in a prefix directory at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefixReport {
    /// The dataset that its `scr.current` names.
    pub checkpoint: Option<CheckpointId>,
    /// The directory of that dataset.
    pub checkpoint_directory: Option<PathBuf>,
    /// Whether the drained dataset is complete; absent if nothing was drained.
    pub complete: Option<bool>,
    pub prefix: PathBuf,
    /// The directory with the output of the last generation.
    pub output: Option<PathBuf>,
    /// The event log, if one is written.
    pub events: Option<PathBuf>,
}

impl PrefixReport {
    /// A prefix directory without datasets and output.
    pub fn new(prefix: PathBuf, has_event_log: bool) -> Self {
        let events = has_event_log.then(|| StateDirectory::below(&prefix).join(log::FILE));
        PrefixReport { events, prefix, ..PrefixReport::default() }
    }
}

/// The summary of a step of a job of several steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepReport {
    pub name: String,
    pub result: StepResult,
    /// Absent if it did not run.
    pub exit_code: Option<u8>,
    /// The outcome as a sentence.
    pub outcome: String,
    /// Its generations in this run, oldest first.
    pub generations: Vec<GenerationReport>,
    #[serde(flatten)]
    pub files: PrefixReport,
}

/// A change of the copy of a pair that is awake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairSwitch {
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// The copy that was woken.
    pub to: &'static str,
    /// Why the main failed; absent in a fail-back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// From the detection to the moment at which the copy was woken, microseconds.
    pub micros: u64,
}

/// The end of the output of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastOutput {
    /// `main` or `replica`.
    pub copy: String,
    pub file: PathBuf,
    /// The last lines, oldest first.
    pub lines: Vec<String>,
}

/// The summary of a pair of main and replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairReport {
    pub name: String,
    /// The copy that was awake at the end.
    pub awake: Option<String>,
    pub finished: bool,
    /// Both copies failed too often.
    pub given_up: bool,
    /// The sequence number of its newest checkpoint; 0: none.
    pub checkpoint: u64,
    pub fail_overs: u64,
    pub fail_backs: u64,
    /// Periods without a heartbeat.
    pub missed: u64,
    /// Of a pair whose copies were given up: the ends of what they printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_output: Vec<LastOutput>,
    /// The first fail-overs and fail-backs of this run.
    pub switches: Vec<PairSwitch>,
}

/// Pairs whose switches the text lists.
const MOST_PAIRS_LISTED: usize = 16;
/// Switches of a pair that the text lists.
const MOST_SWITCHES_LISTED: usize = 8;

/// What became of a fault of the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// Its action and its moment.
    pub fault: String,
    pub injected: bool,
    /// Why it was not injected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The summary of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunReport {
    pub job: String,
    pub job_id: String,
    /// The outcome as a sentence.
    pub outcome: String,
    pub exit_code: u8,
    /// The generations of all steps, oldest first.
    pub generations: Vec<GenerationReport>,
    /// The steps in the order in which they run; none in a job of one step. Its files are those of the last step that
    /// ran, but the prefix directory is that of the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepReport>,
    /// Its pairs; absent in a job of another kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<PairReport>>,
    /// The number of its nodes, if they are processes on one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_nodes: Option<usize>,
    /// Down nodes, each with its reason.
    pub nodes_down: Vec<(NodeName, String)>,
    /// Nodes that the user excluded, each with its reason.
    pub nodes_excluded: Vec<(NodeName, String)>,
    /// The faults of the spec (`allocation.faults`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultReport>,
    #[serde(flatten)]
    pub files: PrefixReport,
    /// What failures and checkpoints cost; absent if no agent reported anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    #[serde(serialize_with = "holdfast_model::time::millis::serialize", rename = "millis")]
    pub took: Duration,
}

impl RunReport {
    /// The summary as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\njob {} ({}): {}", self.job, self.job_id, self.outcome);
        if self.steps.is_empty() {
            write_generations(&mut text, "  ", &self.generations);
        }
        for step in &self.steps {
            let _ = writeln!(text, "  step {}: {}", step.name, step.outcome);
            write_generations(&mut text, "    ", &step.generations);
            if let (Some(id), Some(directory)) = (&step.files.checkpoint, &step.files.checkpoint_directory) {
                let _ = writeln!(text, "    checkpoint {id}, in {}", directory.display());
            }
            if let Some(output) = &step.files.output {
                let _ = writeln!(text, "    output in {}", output.display());
            }
        }
        write_pairs(&mut text, self.pairs.as_deref().unwrap_or_default());
        if let Some(nodes) = self.virtual_nodes {
            let _ = writeln!(text, "  nodes         {nodes}: {}", virtual_text(nodes));
        }
        for (node, reason) in &self.nodes_down {
            let _ = writeln!(text, "  {node} down: {reason}");
        }
        for (node, reason) in &self.nodes_excluded {
            let _ = writeln!(text, "  {node} excluded: {reason}");
        }
        for FaultReport { fault, reason, .. } in &self.faults {
            let _ = match reason {
                Some(reason) => writeln!(text, "  fault not injected: {fault}: {reason}"),
                None => writeln!(text, "  fault injected: {fault}"),
            };
        }
        match (&self.files.checkpoint, &self.files.checkpoint_directory) {
            _ if !self.steps.is_empty() || self.pairs.is_some() => {}
            (Some(id), Some(directory)) => {
                let _ = writeln!(text, "  checkpoint    {id}, in {}", directory.display());
            }
            _ => text.push_str("  checkpoint    none in the prefix directory\n"),
        }
        let _ = writeln!(text, "  prefix        {}", self.files.prefix.display());
        if self.steps.is_empty() {
            if let Some(output) = &self.files.output {
                let _ = writeln!(text, "  output        {}", output.display());
            }
            if let Some(events) = &self.files.events {
                let _ = writeln!(text, "  events        {}", events.display());
            }
        }
        if let Some(cost) = self.cost.as_ref().filter(|_| self.steps.is_empty()) {
            let _ = writeln!(text, "  cost          {}", cost.times());
            if let Some(interval) = &cost.interval {
                let _ = writeln!(text, "  interval      {interval}");
                for level in &interval.levels {
                    let _ = writeln!(text, "                {level}");
                }
            }
            let _ = writeln!(text, "  newest        {}", cost.ages());
            if let Some(dropped) = cost.dropped() {
                let _ = writeln!(text, "  {dropped}");
            }
        }
        let _ = writeln!(text, "  took          {:.1} s, exit code {}", self.took.as_secs_f64(), self.exit_code);
        text
    }
}

/// A point in time in local time.
pub fn local_time(time: Timestamp, format: &str) -> String {
    let local = DateTime::from_timestamp_millis(time.millis()).map(|time| time.with_timezone(&Local));
    local.map_or_else(|| time.secs().to_string(), |time| time.format(format).to_string())
}

fn write_pairs(text: &mut String, pairs: &[PairReport]) {
    let is_shown = |pair: &&PairReport| pair.fail_overs + pair.fail_backs > 0 || !pair.finished;
    let shown: Vec<&PairReport> = pairs.iter().filter(is_shown).take(MOST_PAIRS_LISTED).collect();
    for pair in &shown {
        let state = match (pair.finished, pair.given_up, &pair.awake) {
            (true, ..) => "finished".to_owned(),
            (_, true, _) => "given up".to_owned(),
            (_, _, Some(side)) => format!("its {side} was awake"),
            (_, _, None) => "not finished".to_owned(),
        };
        let PairReport { name, fail_overs, fail_backs, missed, .. } = pair;
        let _ = writeln!(
            text,
            "  pair {name}: {state}; fail-overs {fail_overs}, fail-backs {fail_backs}, heartbeats missed {missed}"
        );
        for switch in pair.switches.iter().take(MOST_SWITCHES_LISTED) {
            let cause = switch.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
            let at = local_time(switch.at, LINE_TIME);
            let _ = writeln!(text, "    {at} {} woken in {} µs{cause}", switch.to, switch.micros);
        }
        for LastOutput { copy, file, lines } in &pair.last_output {
            let _ = writeln!(text, "    last lines of its {copy}, {}:", file.display());
            for line in lines {
                let _ = writeln!(text, "      {line}");
            }
        }
        if pair.switches.len() > MOST_SWITCHES_LISTED {
            let _ = writeln!(text, "    and {} more", pair.switches.len() - MOST_SWITCHES_LISTED);
        }
    }
    if shown.len() < pairs.len() {
        let finished = pairs.iter().filter(|pair| pair.finished).count();
        let _ = writeln!(text, "  pairs         {} in all, {finished} finished", pairs.len());
    }
}

/// Where a generation started that did not start from a checkpoint, and why if it was not the first.
pub fn from_beginning(reason: Option<impl std::fmt::Display>) -> String {
    reason.map_or_else(|| "from the beginning".to_owned(), |reason| format!("from the beginning ({reason})"))
}

fn write_generations(text: &mut String, margin: &str, generations: &[GenerationReport]) {
    for generation in generations {
        let from = match (generation.launched, generation.from) {
            (false, _) => "not started".to_owned(),
            (true, None) if !generation.joined => "launched".to_owned(),
            (true, None) => from_beginning(generation.beginning.as_deref()),
            (true, Some(id)) => format!("from checkpoint {id}"),
        };
        let newest = generation.newest.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let progress = generation.progress.as_ref().and_then(GenerationProgress::beyond_checkpoints);
        let progress = progress.map(|progress| format!("; progress: {progress}")).unwrap_or_default();
        let GenerationReport { generation, ended, .. } = generation;
        let _ =
            writeln!(text, "{margin}generation {generation}: {from}; {ended}; newest checkpoint: {newest}{progress}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_every_generation_and_all_directories() {
        let generation = GenerationReport {
            generation: Generation(1),
            from: None,
            beginning: None,
            launched: true,
            joined: true,
            ended: "node failure: node1".to_owned(),
            newest: Some(CheckpointId(3)),
            progress: Some(GenerationProgress::Files { file: "state/7".into() }),
        };
        let refused = GenerationReport {
            generation: Generation(2),
            launched: false,
            ended: "the launch failed: busy".to_owned(),
            progress: None,
            ..generation.clone()
        };
        let ended_early = GenerationReport { generation: Generation(3), joined: false, ..generation.clone() };
        let report = RunReport {
            job: "heat".to_owned(),
            job_id: "17".to_owned(),
            outcome: "the job is finished".to_owned(),
            exit_code: 0,
            generations: vec![generation, refused, ended_early],
            steps: Vec::new(),
            pairs: None,
            nodes_down: vec![("node1".into(), "lost".to_owned())],
            nodes_excluded: vec![("node2".into(), "noisy".to_owned())],
            faults: vec![FaultReport {
                fault: "`kill` of node1".to_owned(),
                injected: false,
                reason: Some("its moment did not come".to_owned()),
            }],
            files: PrefixReport {
                checkpoint: Some(CheckpointId(9)),
                checkpoint_directory: Some("/p/scr.x.17.9".into()),
                complete: Some(true),
                ..PrefixReport::new("/p".into(), true)
            },
            cost: None,
            virtual_nodes: Some(4),
            took: Duration::from_millis(12_340),
        };
        let text = report.text();
        for part in [
            "from the beginning; node failure: node1; newest checkpoint: 3; progress: state/7 was written",
            "generation 2: not started; the launch failed",
            "generation 3: launched; node failure",
            "nodes         4: virtual nodes on this machine",
            "node1 down: lost",
            "fault not injected: `kill` of node1: its moment did not come",
            "9, in /p/scr.x.17.9",
            "events.jsonl",
            "12.3 s",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
