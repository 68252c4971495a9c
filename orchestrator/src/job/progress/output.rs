//! `progress.output`: lines that the ranks printed.

use holdfast_model::Rank;
use regex::bytes::Regex;
use tokio_util::sync::CancellationToken;

use super::baseline::Baseline;
use super::error::ProgressError;
use super::source::{EndedGeneration, ProgressSource};
use crate::events::GenerationProgress;
use crate::launch::output::{OutputLine, OutputTail};
use crate::launch::{LineLabels, StepPlan, registry};

/// Characters of a line that are shown.
const SHOWN: usize = 200;

#[derive(Debug)]
pub(super) struct OutputProgress {
    expression: String,
}

/// The line with the largest number.
#[derive(Debug, Default)]
struct Largest {
    number: Option<f64>,
    line: Option<(Rank, String)>,
}

impl Largest {
    fn add(&mut self, number: f64, line: &OutputLine) {
        if self.number.is_none_or(|largest| number > largest) {
            self.number = Some(number);
            self.line = Some((line.rank, shown(line)));
        }
    }
}

fn shown(line: &OutputLine) -> String {
    String::from_utf8_lossy(&line.text).trim_end().chars().take(SHOWN).collect()
}

impl OutputProgress {
    pub(super) fn new(expression: &str) -> Self {
        OutputProgress { expression: expression.to_owned() }
    }
}

/// How the launcher of a generation labels the lines of its ranks.
fn labels(ended: &EndedGeneration) -> Option<&'static LineLabels> {
    let plan = StepPlan::read(&StepPlan::path_in(&ended.directory)).ok()?;
    registry::supervision(&plan).ok()?.labels()
}

impl ProgressSource for OutputProgress {
    /// The lines of a generation are in its own directory, and the largest number is in the baseline already.
    fn begin(&self, _: &mut Baseline, _: &CancellationToken) {}

    fn check(
        &self,
        ended: &EndedGeneration,
        baseline: &mut Baseline,
        cancelled: &CancellationToken,
    ) -> Result<Option<GenerationProgress>, ProgressError> {
        let expression = Regex::new(&self.expression)?;
        let has_group = expression.captures_len() > 1;
        let mut tail = OutputTail::new(&ended.directory, (0..ended.ranks).map(Rank), labels(ended), false);
        tail.all_started();
        let (mut lines, mut largest, mut more) = (Vec::new(), Largest::default(), true);
        while more {
            if cancelled.is_cancelled() {
                return Err(ProgressError::Cancelled);
            }
            lines.clear();
            more = tail.pass_on(&mut lines);
            if !more {
                tail.finish(&mut lines);
            }
            for line in &lines {
                if has_group {
                    if let Some(number) = number_in(&expression, &line.text) {
                        largest.add(number, line);
                    }
                } else if expression.is_match(&line.text) {
                    return Ok(Some(GenerationProgress::Output { rank: line.rank, line: shown(line) }));
                }
            }
        }
        if largest.number > baseline.largest {
            baseline.largest = largest.number;
        }
        let progress = largest.line.filter(|_| largest.number > baseline.largest_before);
        Ok(progress.map(|(rank, line)| GenerationProgress::Output { rank, line }))
    }
}

/// The number in the first group of the expression, if the line matches and the text is a number.
fn number_in(expression: &Regex, line: &[u8]) -> Option<f64> {
    let text = expression.captures(line)?.get(1)?.as_bytes();
    let number: f64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}
