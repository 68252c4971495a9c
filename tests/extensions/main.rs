//! A redundancy scheme and a checkpoint source that are declared here only: everything that asks the registries knows
//! them. In a program of its own, because what is registered is registered for the process.

// Helpers of tests report as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scheme;
mod source;

use std::path::Path;

use holdfast::launch::registry::registered;
use holdfast::spec::{CheckpointSource, Environment, JobSpec};

/// The spec with these checkpoints, or the mistakes in it.
fn spec_in(checkpoint: &str, variables: &[(&str, &str)], sources: &[&'static CheckpointSource]) -> Spec {
    let mut registered = registered();
    sources.iter().for_each(|source| registered.add_source(source));
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment =
        Environment::new(registered, variables, Path::new("/nonexistent")).map_err(|error| error.to_string())?;
    let text = format!("run: {{command: [./app]}}\ncheckpoint: {checkpoint}\n");
    JobSpec::parse(&text, "job.yaml", &environment).map_err(|mistakes| mistakes.to_string())
}

type Spec = Result<JobSpec, String>;
