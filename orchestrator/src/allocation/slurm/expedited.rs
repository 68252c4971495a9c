//! Jobs of `sbatch --requeue=expedite`, which Slurm has since 25.11: if the script of such a job ends with any exit
//! code but 0, Slurm runs it again at once, before all other jobs.

use std::path::Path;

use super::query;
use crate::host::external_command;
use crate::spec::AdaptedCommand;

/// The option, and the same one of older versions.
const OPTION: &str = "--requeue=expedite";
const OLDER: &str = "--requeue";
/// How `sbatch --help` names the option.
const IN_HELP: &str = "--requeue[=expedite]";
/// What `scontrol show job` prints of such a job.
const OF_JOB: &str = "ExpeditedRequeue=Yes";

/// A command of `sbatch` without the option, if the installed version does not have it.
pub(super) fn adapt(words: &[String]) -> Option<AdaptedCommand> {
    let program = words.first()?;
    let is_sbatch = Path::new(program).file_name().is_some_and(|name| name == "sbatch");
    let has_option = is_sbatch && words.iter().any(|word| word == OPTION);
    if !has_option || is_installed(program) {
        return None;
    }
    let adapted = words.iter().map(|word| if word == OPTION { OLDER.to_owned() } else { word.clone() });
    let change = format!("this `sbatch` has no `{OPTION}`: the job is submitted with `{OLDER}`");
    Some(AdaptedCommand { words: adapted.collect(), change })
}

fn is_installed(sbatch: &str) -> bool {
    let help = external_command::run(sbatch, &["--help"], &query::environment(), query::WITHIN);
    help.is_ok_and(|help| help.output.contains(IN_HELP))
}

/// Makes sure that Slurm does not run the job again, if it was submitted with the option.
pub(super) fn prevent(job_id: &str) -> Option<Result<String, String>> {
    if !is_installed("sbatch") {
        return None;
    }
    let scontrol = |arguments: &[&str]| {
        let ran = external_command::run("scontrol", arguments, &query::environment(), query::WITHIN);
        let ran = ran.map_err(|error| error.to_string())?;
        let last = || ran.errors.lines().last().unwrap_or("without a message").to_owned();
        if ran.success { Ok(ran.output.clone()) } else { Err(format!("scontrol {}: {}", arguments.join(" "), last())) }
    };
    let job = format!("JobId={job_id}");
    let update = ["update", &job, "Requeue=0"];
    match scontrol(&["show", "job", job_id]) {
        Ok(text) if text.contains(OF_JOB) => Some(scontrol(&update).map(|_| format!("scontrol {}", update.join(" ")))),
        Ok(_) => None,
        Err(reason) => Some(Err(reason)),
    }
}
