//! `scr_postrun`: saves the newest checkpoint in the caches.

use std::path::{Path, PathBuf};

use clap::Parser;
use holdfast_core::hostlist;
use holdfast_core::store;

use super::super::drain;
use super::super::job;
use super::super::output::{Style, printable};
use super::arguments::parse;
use super::directories;
use super::hosts::expand;
use super::result::{CompatError, ExitResult, NO, YES, failed};
use super::scripts::{ScriptOutput, is_disabled};
use crate::drain::DrainReport;
use crate::events::{DrainResult, Screen};
use crate::host::host_name;
use crate::job::standalone::{self, LibraryJob, Source, StandaloneError};
use crate::job::state::JobState;
use crate::params::Parameters;
use crate::spec::JobSpec;

/// Save the newest checkpoint in the caches
#[derive(Parser)]
#[command(name = "scr_postrun", no_binary_name = true)]
struct PostrunArgs {
    /// The prefix directory
    #[arg(short, value_name = "DIR")]
    p: Option<PathBuf>,
}

pub(super) fn postrun(words: &[String]) -> ExitResult {
    if is_disabled() {
        return Ok(YES);
    }
    let args: PostrunArgs = parse(words)?;
    let output = ScriptOutput::start("scr_postrun")?;
    let parameters = directories::parameters()?;
    let prefix = args.p.unwrap_or_else(|| directories::prefix(&parameters));
    let prefix = prefix.canonicalize().map_err(|error| failed(&error))?;
    let state = JobState::read(&prefix)?;
    let nodes = match &state {
        Some(state) => state.allocation.nodes().to_vec(),
        None => match parameters.text("SCR_NODELIST").map(str::to_owned).or_else(directories::node_list) {
            Some(list) => expand(&list)?,
            None => Vec::new(),
        },
    };
    output.line(&format!("NODES:     {}", hostlist::compress(&nodes)))?;
    output.line("Looking for latest checkpoint set id")?;
    let drained = super::super::runtime::with_screen(Style::Human { verbose: false }, async |screen| {
        drained(&prefix, state.is_some(), &parameters, &screen).await.map(drain::Drained)
    });
    let code = match drained {
        Ok((drain::Drained(report), _)) => result(&prefix, report.as_ref(), &output)?,
        Err(failure) => {
            output.line(&printable(&failure.to_string()))?;
            NO
        }
    };
    output.end(code)
}

/// Drains the nodes of Holdfast's job, or those of an allocation in which it launched nothing.
async fn drained(
    prefix: &Path,
    known: bool,
    parameters: &Parameters,
    screen: &Screen,
) -> Result<Option<DrainReport>, super::super::failure::Failure> {
    let drained = if known {
        standalone::of_prefix(prefix, &[], None, screen).await
    } else {
        let environment = job::environment(Style::Human { verbose: false })?.for_drain();
        // Only the settings of checkpoints and nodes are used; a spec needs a command.
        let spec = JobSpec::from_command(&["true".to_owned()], &environment)?;
        let source = Source::Library(Box::new(LibraryJob::new(spec, parameters)));
        standalone::of_source(prefix, source, None, screen).await.map(Some)
    };
    drained.map_err(|error: StandaloneError| drain::failed(error))
}

/// Prints what the drain did; returns the exit code.
fn result(prefix: &Path, report: Option<&DrainReport>, output: &ScriptOutput) -> Result<u8, CompatError> {
    if let Some(doubt) = report.and_then(DrainReport::doubt) {
        output.line(&printable(&doubt))?;
        return Ok(NO);
    }
    let is_saved = || Ok::<_, CompatError>(store::open(prefix)?.current()?.is_some());
    let result = report.map(|report| (&report.result, report.directory.as_deref().unwrap_or_default()));
    match result {
        None | Some((DrainResult::Nothing, _)) if is_saved()? => {
            output.line(&format!("Latest checkpoint set has already been flushed from {}", host_name()))?;
            Ok(YES)
        }
        None | Some((DrainResult::Nothing, _)) => {
            output.line(&format!("Found no checkpoint set to flush on {}", host_name()))?;
            Ok(NO)
        }
        Some((DrainResult::Complete { checkpoint }, directory)) => {
            output.line(&format!("Flushed checkpoint {checkpoint} to {}", prefix.join(directory).display()))?;
            output.line("Updating scr.current symlink")?;
            output.line(&format!("  {} --> {directory}", prefix.join("scr.current").display()))?;
            Ok(YES)
        }
        Some((DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason, .. }, _)) => {
            output.line(&format!("Cannot recover any checkpoint: {}", printable(reason)))?;
            Ok(NO)
        }
    }
}
