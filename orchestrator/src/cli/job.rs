//! Which job a command is about: its spec, or its prefix directory.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::output::Output;
use crate::exit;
use crate::spec::{JobSpec, Surroundings};

/// The parameters around this process. What has no effect among them is told.
pub(super) fn surroundings(output: &dyn Output) -> Result<Surroundings, Failure> {
    let surroundings = Surroundings::of_process().map_err(|error| Failure::of(exit::CONFIGURATION, &error))?;
    surroundings.warnings().iter().for_each(|warning| output.warn(warning));
    Ok(surroundings)
}

/// The job that a command is about, as it was typed.
#[derive(Clone, Debug, clap::Args)]
pub struct JobSelection {
    /// The job spec [default: the job whose prefix is the current directory]
    #[arg(value_name = "SPEC", conflicts_with = "prefix")]
    pub spec: Option<PathBuf>,
    /// The job's prefix directory, instead of its spec
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

impl JobSelection {
    /// The spec, if one was named.
    ///
    /// # Errors
    /// The mistakes in it.
    pub fn spec(&self, surroundings: &Surroundings) -> Result<Option<JobSpec>, Failure> {
        self.spec.as_deref().map(|path| Ok(JobSpec::load(path, surroundings)?)).transpose()
    }

    /// The prefix directory: as named, as the spec says, or the current directory.
    ///
    /// # Errors
    /// The mistakes in the spec.
    pub fn prefix(&self, surroundings: &Surroundings) -> Result<PathBuf, Failure> {
        if let Some(prefix) = &self.prefix {
            return Ok(prefix.clone());
        }
        Ok(self.spec(surroundings)?.map_or_else(|| Path::new(".").to_owned(), |spec| spec.prefix))
    }
}

/// A duration on the command line.
pub(super) fn duration(text: &str) -> Result<std::time::Duration, &'static str> {
    crate::spec::quantity::parse_duration(text).ok_or("write a duration with its unit: `20ms`, `90s`, `5min`")
}
