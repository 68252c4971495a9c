//! The job of a command, selected by its spec or its prefix directory.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::output::Style;
use crate::exit;
use crate::job::state::{JobState, Stage, StateError};
use crate::job::step_names;
use crate::launch::registry::registered;
use crate::spec::{Environment, JobSpec};

/// The environment of this process. Warns of parameters without effect.
pub(super) fn environment(output: Style) -> Result<Environment, Failure> {
    let environment =
        Environment::of_process(registered()).map_err(|error| Failure::of(exit::CONFIGURATION, &error))?;
    environment.warnings.iter().for_each(|warning| output.warn(warning));
    Ok(environment)
}

/// The job that a command is about, as it was typed.
#[derive(Clone, Debug, clap::Args)]
pub struct JobSelection {
    /// The job spec [default: the job whose prefix is SCR_PREFIX, or the current directory]
    #[arg(value_name = "SPEC", conflicts_with = "prefix")]
    pub spec: Option<PathBuf>,
    /// The job's prefix directory, instead of its spec
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

impl JobSelection {
    /// The environment of this process. Warns of parameters without effect, also on the job of the spec.
    ///
    /// # Errors
    /// A mistake in the parameters or in the spec.
    pub(super) fn environment(&self, output: Style) -> Result<Environment, Failure> {
        self.warn_with(environment(output)?, output)
    }

    /// As [`environment`](Self::environment), for a drain.
    ///
    /// # Errors
    /// A mistake in the parameters or in the spec.
    pub(super) fn environment_for_drain(&self, output: Style) -> Result<Environment, Failure> {
        self.warn_with(environment(output)?.for_drain(), output)
    }

    fn warn_with(&self, environment: Environment, output: Style) -> Result<Environment, Failure> {
        if let Some(spec) = self.spec(&environment)? {
            spec.warnings.iter().for_each(|warning| output.warn(warning));
        }
        Ok(environment)
    }

    /// The spec, if one was named.
    ///
    /// # Errors
    /// The mistakes in it.
    pub fn spec(&self, environment: &Environment) -> Result<Option<JobSpec>, Failure> {
        self.spec.as_deref().map(|path| Ok(JobSpec::load(path, environment)?)).transpose()
    }

    /// The prefix directory, absolute: of the arguments, of the spec, of `SCR_PREFIX`, or the current directory.
    ///
    /// # Errors
    /// The mistakes in the spec.
    pub fn prefix(&self, environment: &Environment) -> Result<PathBuf, Failure> {
        if let Some(spec) = self.spec(environment)? {
            return Ok(spec.prefix);
        }
        let given = self.prefix.clone().or_else(|| environment.prefix()).unwrap_or_else(|| Path::new(".").to_owned());
        Ok(std::path::absolute(&given).unwrap_or(given))
    }
}

/// The job that a command is about, or one step of it.
#[derive(Clone, Debug, clap::Args)]
pub struct StepSelection {
    #[command(flatten)]
    pub job: JobSelection,
    /// The step, in a job of several [default: that which runs]
    #[arg(long, value_name = "NAME")]
    pub step: Option<String>,
}

impl From<JobSelection> for StepSelection {
    fn from(job: JobSelection) -> Self {
        StepSelection { job, step: None }
    }
}

/// The steps of the job: name and prefix directory of each. None for a job of one step.
pub(super) fn steps(
    selection: &JobSelection,
    environment: &Environment,
    prefix: &Path,
) -> Result<Vec<(String, PathBuf)>, Failure> {
    match selection.spec(environment)? {
        Some(spec) if spec.has_short_form() => Ok(Vec::new()),
        Some(spec) => Ok(spec.steps.into_iter().map(|step| (step.name, step.prefix)).collect()),
        None => Ok(step_names::read(prefix)?),
    }
}

/// The prefix directories with a state of the job that has not ended, each with the name of its step; that of the last
/// step that ran if all have ended. Those that run come first. At least one: in a job of one step, that of the job.
pub(super) fn prefixes_with_state(
    StepSelection { job, step }: &StepSelection,
    environment: &Environment,
    read: impl Fn(&Path) -> Result<Option<JobState>, StateError>,
) -> Result<Vec<(Option<String>, PathBuf)>, Failure> {
    let prefix = job.prefix(environment)?;
    let steps = steps(job, environment, &prefix)?;
    if let Some(name) = step {
        let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
        let remedy = match names[..] {
            [] => "the job has one step: leave out `--step`".to_owned(),
            _ => format!("steps: {}", names.join(", ")),
        };
        let unknown = || Failure::new(exit::USAGE, format!("there is no step {name}")).remedy(remedy);
        let found = steps.iter().find(|(known, _)| known == name).ok_or_else(unknown)?;
        return Ok(vec![(Some(found.0.clone()), found.1.clone())]);
    }
    let of_job = (None, prefix.clone());
    let candidates =
        std::iter::once(of_job.clone()).chain(steps.into_iter().map(|(name, prefix)| (Some(name), prefix)));
    let (mut found, mut last) = (Vec::new(), of_job);
    for candidate in candidates {
        match read(&candidate.1)?.map(|state| state.stage) {
            Some(Stage::Finished { .. }) => last = candidate,
            Some(stage) => found.push((stage == Stage::Running, candidate)),
            None => {}
        }
    }
    if found.is_empty() {
        return Ok(vec![last]);
    }
    // Those that run, before those that have ended and whose nodes still hold something.
    found.sort_by_key(|(runs, _)| !runs);
    Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
}

/// The first of [`prefixes_with_state`].
pub(super) fn prefix_with_state(
    selection: &StepSelection,
    environment: &Environment,
    read: impl Fn(&Path) -> Result<Option<JobState>, StateError>,
) -> Result<PathBuf, Failure> {
    let found = prefixes_with_state(selection, environment, read)?;
    Ok(found.into_iter().next().map(|(_, prefix)| prefix).unwrap_or_default())
}
