//! The transition from one step of a job to the next: the same nodes and agents, another prefix directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::owned::Access;

use super::error::RunError;
use super::preflight::Prepared;
use super::reporter::Reporter;
use super::restart_choice::RunChoices;
use super::shell::Observers;
use super::state::{JobState, Stage};
use super::state_file::JobLock;
use super::step::StepDriver;
use super::{restart_choice, standalone, start};
use crate::events::EventLog;
use crate::spec::{GroupAccess, Step};

/// After a signal, the state of the next step is waited for at most this long.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A step that has not run yet.
pub(super) struct NextStep<'job> {
    /// Its position in the spec.
    pub(super) at: usize,
    pub(super) step: &'job Step,
    pub(super) prepared: Prepared,
}

/// A step that is about to begin. Its state is on disk.
pub(super) struct OpenedStep<'job> {
    /// Its position in the spec.
    pub(super) at: usize,
    pub(super) step: &'job Step,
    pub(super) prepared: Prepared,
    pub(super) prefix: PathBuf,
    /// The lock of its own prefix directory, in a job of several steps.
    pub(super) lock: Option<JobLock>,
    pub(super) reporter: Reporter,
    pub(super) state: JobState,
}

/// Opens the step after one that ended. Afterwards the agents are in the states of both steps, so that an orchestrator
/// that takes over finds them in either.
pub(super) async fn hand_over<'job>(
    driver: &mut StepDriver<'_>,
    next: NextStep<'job>,
    choices: &RunChoices,
    observers: &Observers,
) -> Result<OpenedStep<'job>, RunError> {
    let NextStep { at, step, prepared } = next;
    let (path, job, group_access) = (step.prefix.clone(), driver.spec.job.clone(), driver.spec.group_access);
    let log_access = driver.spec.log_access();
    let opened = driver.signals.or(on_thread(move || OpenedPrefix::open(&path, &job, group_access, log_access)));
    let OpenedPrefix { prefix, lock, event_log, left } = opened.await?;
    let mut reporter = observers.reporter(event_log, driver.reporter.screen.clone(), Some(step));
    let former = &driver.record.state;
    let state = match left {
        // The orchestrator that began it died before it recorded the end of the former step.
        Some(state) if is_begun(&state, former) => state,
        left => {
            if let Some(left) = left {
                driver.signals.or(standalone::finish_earlier(driver.spec, &prefix, left, &reporter.screen)).await?;
            }
            let (allocation, template) = (former.allocation.clone(), former.template()?);
            let mut state = start::state_of_step(driver.spec, step, choices, allocation, template);
            state.running = driver.agents.hand_over().await;
            state.snapshot = Some(driver.machine.snapshot().next_step());
            let (choice, to) = (choices.restart.clone(), prefix.clone());
            state.ignored = driver.signals.or(on_thread(move || restart_choice::apply(&choice, &to))).await?;
            // The times of injected faults are counted from the first launch of the job.
            state.first_launch_ms = former.first_launch_ms;
            state.faults_injected = former.faults_injected.clone();
            begin_step(driver, &state, &prefix).await?;
            start::announce(&state, &prefix, &mut reporter);
            state
        }
    };
    Ok(OpenedStep { at, step, prepared, prefix, lock: Some(lock), reporter, state })
}

/// Writes the state of a step that begins. If a signal comes first, the state is written nevertheless, and then that
/// the job has ended, so that its key does not stay in the prefix directory.
async fn begin_step(driver: &mut StepDriver<'_>, state: &JobState, prefix: &Path) -> Result<(), RunError> {
    let (written, to) = (state.clone(), prefix.to_owned());
    let mut begin = std::pin::pin!(on_thread(move || record_begin(&written, &to)));
    let begun = driver.signals.or(&mut begin).await;
    if let Err(error @ RunError::Signal(_)) = &begun {
        let (mut ended, to) = (state.clone(), prefix.to_owned());
        let (exit_code, message) = (error.exit_code(), error.to_string());
        let end = async {
            if let Err(error) = begin.await {
                tracing::warn!(%error, "the state of the next step is not written");
            }
            on_thread(move || {
                ended.end(&to, exit_code, message);
                Ok(())
            })
            .await
        };
        if tokio::time::timeout(END_WITHIN, end).await.is_err() {
            tracing::warn!("the prefix directory of the next step does not answer; its state is not recorded as ended");
        }
    }
    begun
}

/// True if the state is that of the step after the former one.
fn is_begun(state: &JobState, former: &JobState) -> bool {
    state.stage == Stage::Running && state.is_same_job(former)
}

pub(super) fn record_begin(state: &JobState, prefix: &Path) -> Result<(), RunError> {
    start::set_old_generations_aside(prefix);
    Ok(state.write(prefix)?)
}

/// The prefix directory of a step that is about to begin.
pub(super) struct OpenedPrefix {
    pub(super) prefix: PathBuf,
    pub(super) lock: JobLock,
    pub(super) event_log: Option<EventLog>,
    /// The state of an earlier job there that is to be continued or drained.
    pub(super) left: Option<JobState>,
}

impl OpenedPrefix {
    pub(super) fn open(
        prefix: &Path,
        job: &str,
        group_access: GroupAccess,
        log_access: Option<Access>,
    ) -> Result<Self, RunError> {
        let prefix = start::make_prefix(prefix)?;
        let lock = JobLock::take(&prefix, group_access)?;
        let event_log = EventLog::in_state_of(&prefix, job, log_access).map_err(RunError::io("open the event log"))?;
        let left = JobState::read(&prefix)?.filter(JobState::has_nodes);
        let left = left.filter(|state| !matches!(state.stage, Stage::Finished { .. }));
        Ok(OpenedPrefix { prefix, lock, event_log, left })
    }
}

/// Runs work on a file system on another thread, so that signals are handled meanwhile.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, RunError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RunError::io("open the prefix directory of the next step")(error.into())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};
    use holdfast_core::state_directory::StateDirectory;

    use super::*;
    use crate::exit;

    /// The prefix directories of both steps.
    fn steps(above: &Path) -> [PathBuf; 2] {
        ["former", "next"].map(|step| above.join(step))
    }

    fn is_running(state: &Option<JobState>) -> bool {
        state.as_ref().is_some_and(|state| state.stage == Stage::Running && state.has_nodes())
    }

    /// One of the two steps runs at every instant, with the key of its agents.
    #[test]
    fn crash_a_hand_over_between_two_steps() {
        let roots = tempfile::tempdir().unwrap();
        fs::create_dir(roots.path().join("node0")).unwrap();
        let (former, earlier) = (JobState::of_test("18", roots.path()), JobState::of_test("17", roots.path()));
        let old_output = |next: &Path, name: &str| StateDirectory::below(next).join(name).join("output");
        let prepare = |above: &Path| {
            let [of_former, of_next] = steps(above);
            fs::create_dir(above).unwrap();
            for prefix in [&of_former, &of_next] {
                fs::create_dir(prefix).unwrap();
                drop(JobLock::take(prefix, GroupAccess::None).unwrap());
            }
            former.write(&of_former).unwrap();
            // An earlier job ran the next step.
            earlier.write(&of_next).unwrap();
            earlier.clone().end(&of_next, exit::FINISHED, "finished".to_owned());
            let output = old_output(&of_next, "generations");
            fs::create_dir(output.parent().unwrap()).unwrap();
            fs::write(output, "of the earlier job").unwrap();
        };
        let text = |error: RunError| error.to_string();
        let work = |above: &Path| {
            let [of_former, of_next] = steps(above);
            let take = |prefix: &Path| JobLock::take(prefix, GroupAccess::None).map_err(|error| error.to_string());
            let former = JobState::read(&of_former).map_err(|error| error.to_string())?;
            former
                .iter()
                .try_for_each(|state| state.remove_old_secret(&of_former))
                .map_err(|error| error.to_string())?;
            // The next orchestrator goes on with the first step that runs.
            let Some(mut former) = former.filter(|state| state.stage == Stage::Running) else {
                return take(&of_next).map(drop);
            };
            let _lock = take(&of_former)?;
            let opened = OpenedPrefix::open(&of_next, "heat", GroupAccess::None, None).map_err(text)?;
            if !opened.left.is_some_and(|state| is_begun(&state, &former)) {
                record_begin(&former, &opened.prefix).map_err(text)?;
            }
            former.end(&of_former, exit::FINISHED, "finished".to_owned());
            Ok(())
        };
        let states = |above: &Path| steps(above).map(|prefix| JobState::read(&prefix));
        let check = |above: &Path| {
            let [of_former, of_next] = states(above).map(|state| state.map_err(|error| error.to_string()));
            let (of_former, of_next) = (of_former?, of_next?);
            let owners =
                [&of_former, &of_next].map(|state| is_running(state) && state.as_ref().unwrap().is_same_job(&former));
            let [_, prefix] = steps(above);
            let output = ["generations", "generations.17", "generations.earlier"]
                .map(|name| fs::read_to_string(old_output(&prefix, name)));
            let is_kept = output.iter().any(|text| text.as_ref().is_ok_and(|text| text == "of the earlier job"));
            (owners != [false, false] && is_kept).then_some(()).ok_or(format!("{owners:?}, output kept: {is_kept}"))
        };
        let result = |above: &Path| {
            let names = steps(above).map(|prefix| {
                let names = fs::read_dir(StateDirectory::below(&prefix).path())
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name());
                let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
                // If it cannot be renamed, the output of both jobs is in one directory.
                names.retain(|name| !name.starts_with("generations"));
                names.sort();
                names
            });
            format!("{:?} {names:?}", states(above).map(|state| is_running(&state.unwrap())))
        };
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let (name, power, errors) = ("hand over between steps", true, ALL_ERRORS);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.kills > 10 && tried.losses > 10 && tried.errors > 40, "{tried:?}");
    }
}
