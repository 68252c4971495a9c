//! The steps of a job that ended, or were begun, in earlier runs.

use super::error::RunError;
use super::restart_choice::RunChoices;
use super::schedule::Schedule;
use super::state::{JobState, Stage};
use crate::exit;
use crate::spec::{JobSpec, Step};

/// What earlier runs left of each step, in the order of the spec.
pub(super) struct EarlierSteps {
    states: Vec<Option<JobState>>,
    /// The steps that an orchestrator that died left under way: several, if they ran side by side.
    under_way: Vec<usize>,
    /// The steps whose nodes the run before kept: see `keep_cache`.
    kept: Vec<usize>,
    /// Those of the run that is under way, or of this one.
    pub(super) choices: RunChoices,
}

impl EarlierSteps {
    /// Reads the states of all steps. Removes what an orchestrator that was killed left of the keys of steps that have
    /// ended.
    ///
    /// # Errors
    /// A state cannot be read.
    pub(super) fn read(spec: &JobSpec, choices: &RunChoices) -> Result<Self, RunError> {
        let states = spec.steps.iter().map(|step| JobState::read(&step.prefix)).collect::<Result<Vec<_>, _>>()?;
        for (step, state) in spec.steps.iter().zip(&states) {
            if let Some(Err(error)) = state.as_ref().map(|state| state.remove_old_secret(&step.prefix)) {
                tracing::warn!(%error, "the key of a step that has ended is not removed");
            }
        }
        let with_nodes = |is: fn(&Stage) -> bool| {
            let found = |state: &JobState| is(&state.stage) && state.has_nodes();
            let has = |(at, state): (usize, &Option<JobState>)| state.as_ref().is_some_and(found).then_some(at);
            states.iter().enumerate().filter_map(has).collect::<Vec<_>>()
        };
        let under_way = with_nodes(|stage| *stage == Stage::Running);
        let kept = with_nodes(|stage| matches!(stage, Stage::Kept { .. }));
        let begun = under_way.first().and_then(|at| Some(states[*at].as_ref()?.choices.clone()));
        let again = choices.again;
        let mut choices = begun.unwrap_or_else(|| choices.clone());
        choices.again |= again;
        Ok(EarlierSteps { states, under_way, kept, choices })
    }

    /// The steps that are continued before others begin: their nodes still exist. Those under way come first, because
    /// their allocation is the job's.
    pub(super) fn continued(&self) -> impl Iterator<Item = usize> {
        self.under_way.iter().chain(&self.kept).copied()
    }

    /// The schedule of what is left to do. With a step under way, steps that failed in the same allocation are not
    /// repeated.
    pub(super) fn schedule(&self, spec: &JobSpec) -> Schedule {
        let mut schedule = Schedule::new(&spec.steps);
        for (at, step) in spec.steps.iter().enumerate() {
            let same_job = self
                .job_id(at)
                .is_some_and(|job_id| self.under_way.iter().any(|under_way| self.job_id(*under_way) == Some(job_id)));
            match self.exit_code(at) {
                _ if self.continued().any(|continued| continued == at) => schedule.take_over(at),
                Some(exit::FINISHED) if self.is_finished(spec, step, at) && (same_job || !self.choices.again) => {
                    schedule.finished_earlier(at);
                }
                Some(code) if same_job && code != exit::FINISHED => schedule.ended(at, code),
                _ => {}
            }
        }
        schedule
    }

    fn is_finished(&self, spec: &JobSpec, step: &Step, at: usize) -> bool {
        self.states[at].as_ref().is_some_and(|state| state.is_finished(spec, step))
    }

    fn exit_code(&self, at: usize) -> Option<u8> {
        match self.states[at].as_ref()?.stage {
            Stage::Finished { exit_code, .. } => Some(exit_code),
            Stage::Running | Stage::Undrained { .. } | Stage::Kept { .. } => None,
        }
    }

    /// The id of the job in which the step ran last.
    pub(super) fn job_id(&self, at: usize) -> Option<&str> {
        Some(self.states[at].as_ref()?.agents.job_id.as_str())
    }

    /// How the step ended, as a sentence.
    pub(super) fn message(&self, at: usize) -> Option<&str> {
        match &self.states[at].as_ref()?.stage {
            Stage::Finished { message, .. } | Stage::Kept { message, .. } => Some(message),
            Stage::Running | Stage::Undrained { .. } => None,
        }
    }
}
