//! Which step of a job runs next. Pure: no I/O.
//!
//! The steps are in the order of the spec, in which each follows all that it needs. Which of them have nodes is decided
//! in [`lending`](super::lending). A step is skipped if one that it
//! needs failed or was skipped; the others run.

use std::collections::BTreeSet;

use crate::exit;
use crate::spec::Step;

/// The state of a step in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepState {
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running,
    Finished {
        /// In an earlier run of the job.
        earlier: bool,
    },
    /// It ended with another exit code than [`exit::FINISHED`].
    Failed { exit_code: u8 },
    /// A step that it needs failed or was skipped.
    Skipped {
        /// The name of that step.
        needs: String,
    },
}

/// What follows a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follows {
    /// Another step, if this one is finished.
    pub finished: bool,
    /// Another step, if this one fails and the job goes on.
    pub failed: bool,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    steps: Vec<ScheduledStep>,
    /// The exit code of the first step that failed.
    failed: Option<u8>,
}

#[derive(Clone, Debug)]
struct ScheduledStep {
    name: String,
    /// Positions of steps before it.
    needs: Vec<usize>,
    state: StepState,
}

impl Schedule {
    /// No step has begun.
    pub fn new(steps: &[Step]) -> Self {
        let position = |name: &String| steps.iter().position(|step| step.name == *name);
        let steps = steps.iter().map(|step| ScheduledStep {
            name: step.name.clone(),
            needs: step.needs.iter().filter_map(position).collect(),
            state: StepState::Waiting,
        });
        Schedule { steps: steps.collect(), failed: None }
    }

    /// The step was finished in an earlier run, or by an orchestrator that died.
    pub fn finished_earlier(&mut self, at: usize) {
        self.steps[at].state = StepState::Finished { earlier: true };
    }

    /// The step begins, before others that could begin: it is under way.
    pub fn take_over(&mut self, at: usize) {
        self.steps[at].state = StepState::Running;
    }

    /// The step has ended.
    pub fn ended(&mut self, at: usize, exit_code: u8) {
        self.steps[at].state = match exit_code {
            exit::FINISHED => StepState::Finished { earlier: false },
            exit_code => {
                self.failed.get_or_insert(exit_code);
                StepState::Failed { exit_code }
            }
        };
    }

    /// The next step, which begins. Skips those whose needs failed.
    pub fn begin_next(&mut self) -> Option<usize> {
        let next = self.ready().first().copied()?;
        self.begin(next);
        Some(next)
    }

    /// The step begins.
    pub fn begin(&mut self, at: usize) {
        self.steps[at].state = StepState::Running;
    }

    /// The steps that could begin now, in their order. Skips those whose needs failed.
    pub fn ready(&mut self) -> Vec<usize> {
        let mut ready = Vec::new();
        for at in 0..self.steps.len() {
            if self.steps[at].state != StepState::Waiting {
                continue;
            }
            let needs = self.steps[at].needs.iter().map(|need| &self.steps[*need]);
            let unmet = needs.filter(|need| !matches!(need.state, StepState::Finished { .. })).collect::<Vec<_>>();
            let lost =
                unmet.iter().find(|need| matches!(need.state, StepState::Failed { .. } | StepState::Skipped { .. }));
            if let Some(lost) = lost {
                let needs = lost.name.clone();
                self.steps[at].state = StepState::Skipped { needs };
            } else if unmet.is_empty() {
                ready.push(at);
            }
        }
        ready
    }

    /// The steps that have not ended and may run while this one does: none of the two needs the other.
    pub fn beside(&self, at: usize) -> impl Iterator<Item = usize> {
        let before = self.needed_by(at);
        let is_left = |state: &StepState| matches!(state, StepState::Waiting | StepState::Running);
        (0..self.steps.len()).filter(move |other| {
            let is_independent = !before.contains(other) && !self.needed_by(*other).contains(&at);
            *other != at && is_independent && is_left(&self.steps[*other].state)
        })
    }

    /// All steps that have to end before this one.
    fn needed_by(&self, at: usize) -> BTreeSet<usize> {
        let (mut found, mut open) = (BTreeSet::new(), vec![at]);
        while let Some(next) = open.pop() {
            open.extend(self.steps[next].needs.iter().filter(|need| found.insert(**need)));
        }
        found
    }

    /// What follows the step that is under way.
    pub fn follows(&self, at: usize) -> Follows {
        let follows = |exit_code| {
            let mut then = self.clone();
            then.ended(at, exit_code);
            then.begin_next().is_some()
        };
        Follows { finished: follows(exit::FINISHED), failed: follows(exit::APPLICATION_ERROR) }
    }

    pub fn state(&self, at: usize) -> &StepState {
        &self.steps[at].state
    }

    /// The exit code of the job: that of the first step that failed; without one, steps that never began leave the job
    /// unfinished.
    pub fn exit_code(&self) -> u8 {
        let is_left = |step: &ScheduledStep| step.state == StepState::Waiting;
        let without_failure = if self.steps.iter().any(is_left) { exit::NOT_FINISHED } else { exit::FINISHED };
        self.failed.unwrap_or(without_failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;

    /// Steps with their needs, as in a spec.
    fn schedule(steps: &[(&str, &str)]) -> (Vec<String>, Schedule) {
        let step = |(name, needs): &(&str, &str)| format!("- {{name: {name}, run: {{command: [a]}}{needs}}}\n");
        let text = format!("steps:\n{}", steps.iter().map(step).collect::<String>());
        let spec = JobSpec::of_test(&text);
        (spec.steps.iter().map(|step| step.name.clone()).collect(), Schedule::new(&spec.steps))
    }

    /// Runs all steps with these exit codes; returns the names in the order in which they ran.
    fn run((names, mut schedule): (Vec<String>, Schedule), codes: &[(&str, u8)]) -> (String, Schedule) {
        let mut ran = Vec::new();
        while let Some(at) = schedule.begin_next() {
            let code = codes.iter().find(|(name, _)| *name == names[at]).map_or(exit::FINISHED, |(_, code)| *code);
            let (follows, before) = (schedule.follows(at), schedule.clone());
            schedule.ended(at, code);
            let mut then = schedule.clone();
            let expected = if code == exit::FINISHED { follows.finished } else { follows.failed };
            assert_eq!(then.begin_next().is_some(), expected, "{before:?}");
            ran.push(names[at].clone());
        }
        (ran.join(" "), schedule)
    }

    #[test]
    fn without_needs_the_steps_run_in_their_order_until_one_fails() {
        let steps = [("a", ""), ("b", ""), ("c", "")];
        let (ran, done) = run(schedule(&steps), &[]);
        assert_eq!((ran.as_str(), done.exit_code()), ("a b c", exit::FINISHED));
        let (ran, done) = run(schedule(&steps), &[("b", 90)]);
        assert_eq!((ran.as_str(), done.exit_code()), ("a b", 90));
        assert_eq!(done.state(2), &StepState::Skipped { needs: "b".to_owned() });
    }

    #[test]
    fn a_step_is_skipped_only_if_what_it_needs_failed_or_was_skipped() {
        let steps =
            [("a", ""), ("b", ", needs: []"), ("c", ", needs: [a]"), ("d", ", needs: [b]"), ("e", ", needs: [c, d]")];
        let (ran, done) = run(schedule(&steps), &[("a", 91), ("d", 65)]);
        assert_eq!((ran.as_str(), done.exit_code()), ("a b d", 91));
        assert_eq!(done.state(4), &StepState::Skipped { needs: "c".to_owned() });
    }

    #[test]
    fn a_step_follows_those_that_it_needs_wherever_they_are_in_the_list() {
        let steps = [("a", ", needs: [c]"), ("b", ", needs: []"), ("c", ", needs: []")];
        assert_eq!(run(schedule(&steps), &[]).0, "b c a");
    }

    #[test]
    fn steps_of_an_earlier_run_are_not_repeated_and_a_step_under_way_goes_first() {
        let (names, mut schedule) = schedule(&[("a", ""), ("b", ", needs: []"), ("c", ", needs: [a, b]")]);
        schedule.finished_earlier(0);
        schedule.take_over(1);
        assert_eq!(schedule.begin_next(), None);
        schedule.ended(1, exit::FINISHED);
        assert_eq!(schedule.begin_next().map(|at| names[at].as_str()), Some("c"));
    }

    #[test]
    fn steps_run_beside_each_other_if_none_needs_the_other() {
        let steps = [("a", ""), ("b", ", needs: [a]"), ("c", ", needs: [a]"), ("d", ", needs: [b, c]")];
        let (_, mut schedule) = schedule(&steps);
        let beside = |schedule: &Schedule, at| schedule.beside(at).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(|at| beside(&schedule, at)), [vec![], vec![2], vec![1], vec![]]);
        assert_eq!(schedule.ready(), [0]);
        schedule.begin(0);
        schedule.ended(0, exit::FINISHED);
        assert_eq!(schedule.ready(), [1, 2]);
        assert_eq!(schedule.exit_code(), exit::NOT_FINISHED, "no step has failed, and not all have run");
        schedule.begin(2);
        assert_eq!(schedule.ready(), [1]);
        schedule.ended(2, 90);
        assert_eq!((schedule.ready(), beside(&schedule, 1)), (vec![1], vec![]));
        assert!(matches!(schedule.state(3), StepState::Skipped { .. }));
    }
}
