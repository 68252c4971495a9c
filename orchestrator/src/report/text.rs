//! The report as text.

use std::io::{self, Write};
use std::time::Duration;

use chrono::{DateTime, Local};
use holdfast_model::Timestamp;
use indicatif::HumanBytes;

use super::job::{JobReport, PastCheckpoint, ReportedStep};

/// Lines of a list of generations, failures or nodes that are shown.
const SHOWN: usize = 20;

/// Local time with its zone.
pub(super) fn time_text(time: Timestamp) -> String {
    let utc = DateTime::from_timestamp_millis(time.millis()).unwrap_or_default();
    utc.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S %:z").to_string()
}

/// What local time is ahead of UTC at a time, seconds.
pub(super) fn offset_seconds(time: Timestamp) -> i32 {
    let utc = DateTime::from_timestamp_millis(time.millis()).unwrap_or_default();
    utc.with_timezone(&Local).offset().local_minus_utc()
}

/// `1h 02min`, `3min 20s`, `4.2 s`, `12 ms`.
pub(super) fn duration_text(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0 if time < Duration::from_millis(1) => "0 s".to_owned(),
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{}min {:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h {:02}min", secs / 3600, secs % 3600 / 60),
        _ => format!("{}d {:02}h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// `1.50 GiB`.
pub(super) fn bytes_text(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// Bytes a second while a checkpoint was written; none if it took no measurable time.
pub(super) fn bandwidth(past: &PastCheckpoint) -> Option<u64> {
    (past.bytes > 0).then(|| past.bytes.saturating_mul(1000).checked_div(past.complete_ms)).flatten()
}

impl JobReport {
    /// Writes the report for a terminal.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, to: &mut dyn Write) -> io::Result<()> {
        let nodes = self.nodes.len();
        let virtual_nodes = if self.virtual_nodes { " virtual" } else { "" };
        writeln!(to, "job {} (id {}), {nodes}{virtual_nodes} nodes", self.job, self.job_id)?;
        writeln!(to, "  prefix     {}", self.prefix.display())?;
        let end = if self.is_running { "now, it runs".to_owned() } else { time_text(self.until) };
        writeln!(to, "  time       {} to {end}: {}", time_text(self.began), duration_text(self.time.elapsed))?;
        match &self.outcome {
            Some(outcome) => writeln!(to, "  outcome    {outcome}")?,
            None if self.is_running => {}
            None => writeln!(to, "  outcome    the orchestrator ended unexpectedly, or the log is incomplete")?,
        }
        if !self.versions.is_empty() {
            writeln!(to, "  version    Holdfast {}", self.versions.join(", then "))?;
        }
        if self.earlier_runs > 0 {
            writeln!(to, "  earlier    {} runs of the job are in the log too", self.earlier_runs)?;
        }
        self.write_time(to)?;
        self.write_failures(to)?;
        self.write_generations(to)?;
        self.write_checkpoints(to)?;
        self.write_incidents(to)?;
        self.write_settings(to)
    }

    fn write_settings(&self, to: &mut dyn Write) -> io::Result<()> {
        let decided = || self.settings.iter().filter(|setting| !setting.is_default());
        let (Some(keys), defaults) = (decided().map(|setting| setting.key.len()).max(), self.settings.len()) else {
            return Ok(());
        };
        writeln!(to, "\nsettings:")?;
        for setting in decided() {
            writeln!(to, "  {:keys$}  {}  ({})", setting.key, setting.value, setting.origin)?;
        }
        writeln!(to, "  and {} defaults: --json and --html have them", defaults - decided().count())
    }

    fn write_time(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "\nwhere the time went: {:.1} % computing that counts", self.time.percent(self.time.computing))?;
        for (name, time) in self.time.parts().into_iter().filter(|(_, time)| !time.is_zero()) {
            writeln!(to, "  {name:12} {:>12}  {:>5.1} %", duration_text(time), self.time.percent(time))?;
        }
        if let Some(advice) = self.cost.as_ref().and_then(|cost| cost.interval.as_ref()) {
            writeln!(to, "  {advice}")?;
        }
        Ok(())
    }

    fn write_failures(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.failures.is_empty() {
            return writeln!(to, "\nno failures");
        }
        writeln!(to, "\nfailures: {}", self.failures.len())?;
        let hidden = self.failures.len().saturating_sub(SHOWN);
        for failure in self.failures.iter().take(SHOWN) {
            writeln!(to, "  {}  {}", time_text(failure.at), failure.line())?;
            failure.hint.iter().try_for_each(|hint| writeln!(to, "      {hint}"))?;
            failure.output.iter().try_for_each(|line| writeln!(to, "      | {line}"))?;
        }
        more(to, hidden)
    }

    fn write_generations(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "\ngenerations: {}", self.generations.len())?;
        let hidden = self.generations.len().saturating_sub(SHOWN);
        for past in self.generations.iter().skip(hidden) {
            let from = match past.checkpoint {
                Some(checkpoint) if past.rebuilt > 0 => {
                    format!("from checkpoint {checkpoint}, files of {} ranks rebuilt", past.rebuilt)
                }
                Some(checkpoint) => format!("from checkpoint {checkpoint}"),
                None if past.restarted.is_some() => "from the beginning".to_owned(),
                None => "its ranks have not joined".to_owned(),
            };
            let end = past.end.as_deref().unwrap_or("runs");
            let (number, nodes, spares) = (past.generation, past.nodes, past.spares);
            writeln!(to, "  {number}  {}  {nodes} nodes, {spares} spares, {from}: {end}", time_text(past.placed))?;
        }
        more(to, hidden)
    }

    fn write_checkpoints(&self, to: &mut dyn Write) -> io::Result<()> {
        let count = |which: fn(&&PastCheckpoint) -> bool| self.checkpoints.iter().filter(which).count();
        let complete = count(|past| past.complete.is_some());
        let protected = count(|past| past.protected.is_some());
        let flushed = count(|past| past.flushed.is_some());
        let dropped = count(|past| past.dropped.is_some());
        writeln!(
            to,
            "\ncheckpoints: {complete} complete, {protected} protected, {flushed} flushed, {dropped} dropped"
        )?;
        if let Some(cost) = &self.cost {
            writeln!(to, "  {}", cost.ages())?;
        }
        match self.newest_protected() {
            Some((checkpoint, Some(1))) => writeln!(to, "  checkpoint {checkpoint} survives the loss of any node")?,
            Some((checkpoint, Some(nodes))) => {
                writeln!(to, "  checkpoint {checkpoint} survives the loss of any {nodes} nodes at once")?;
            }
            Some(_) => {}
            None if complete > 0 => writeln!(to, "  none survives the loss of a node: the scheme protects from none")?,
            None => {}
        }
        let last = self.checkpoints.iter().rev().find(|past| past.complete.is_some());
        if let Some((last, bandwidth)) = last.and_then(|last| Some((last, bandwidth(last)?))) {
            let (bytes, bandwidth) = (bytes_text(last.bytes), bytes_text(bandwidth));
            writeln!(to, "  the newest one, {}: {bytes} at {bandwidth}/s", last.checkpoint)?;
        }
        let reasons = self.checkpoints.iter().filter_map(|past| Some((past.checkpoint, past.dropped.as_ref()?)));
        reasons.rev().take(3).try_for_each(|(id, reason)| writeln!(to, "  checkpoint {id} was dropped: {reason}"))
    }

    fn write_incidents(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.incidents.is_empty() {
            return Ok(());
        }
        writeln!(to, "\nnodes:")?;
        let hidden = self.incidents.len().saturating_sub(SHOWN);
        for incident in self.incidents.iter().take(SHOWN) {
            let what = incident.kind.name();
            let text = if incident.text.is_empty() { String::new() } else { format!(": {}", incident.text) };
            writeln!(to, "  {}  {}: {what}{text}", time_text(incident.at), incident.node)?;
        }
        more(to, hidden)
    }
}

/// Writes the steps of a job, a line each, for a terminal.
///
/// # Errors
/// Those of the writer.
pub fn write_steps(steps: &[ReportedStep], to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "steps:")?;
    for step in steps {
        let report = step.report.as_ref().map(|report| {
            let (began, time, failures) = (time_text(report.began), report.time, report.failures.len());
            let (elapsed, computing) = (duration_text(time.elapsed), time.percent(time.computing));
            format!(", {began}, {elapsed}, {computing:.1} % computing that counts, {failures} failures")
        });
        writeln!(to, "  {}: {}{}", step.name, step.state, report.unwrap_or_default())?;
        writeln!(to, "      its report: holdfast report --prefix {}", step.prefix.display())?;
    }
    writeln!(to, "\nthe step that runs, or ran last:")
}

fn more(to: &mut dyn Write, hidden: usize) -> io::Result<()> {
    if hidden > 0 { writeln!(to, "  and {hidden} more: --json has all of them") } else { Ok(()) }
}
