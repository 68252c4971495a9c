//! One rank of `launcher: torchrun`: `holdfast rank --role torchrun -- PROGRAM ARGUMENTS`. Sets the variables that
//! differ from rank to rank, and becomes the program.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use holdfast_model::Rank;
use holdfast_wire::environment;

use super::{RankSettings, local_ranks};

/// The program was not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error(
        "{name} is not set, or not valid; this command is started by `holdfast run` with `launcher: torchrun`, not by \
        hand"
    )]
    Variable { name: String },
    #[error("cannot run {program}: {source}; check `run.command`")]
    Program { program: String, source: io::Error },
}

/// Runs the program in the place of this process.
///
/// # Errors
/// The program was not started.
pub fn run(command: &[String]) -> Result<Infallible, NotStarted> {
    let variables = variables(|name| std::env::var(name).ok())?;
    let program = command.first().cloned().unwrap_or_default();
    let source = Command::new(&program).args(command.iter().skip(1)).envs(variables).exec();
    Err(NotStarted::Program { program, source })
}

/// The variables of this rank.
fn variables(variable: impl Fn(&str) -> Option<String>) -> Result<[(&'static str, String); 3], NotStarted> {
    let settings = variable(environment::TORCHRUN).and_then(|text| serde_json::from_str::<RankSettings>(&text).ok());
    let settings = settings.ok_or_else(|| NotStarted::Variable { name: environment::TORCHRUN.to_owned() })?;
    let rank = variable(&settings.rank_variable).and_then(|text| text.parse().ok()).map(Rank);
    let place = rank.and_then(|rank| Some((rank, local_ranks::find(&settings.local_ranks, rank)?)));
    let (rank, local) = place.ok_or(NotStarted::Variable { name: settings.rank_variable })?;
    Ok([
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", local.rank.to_string()),
        ("LOCAL_WORLD_SIZE", local.ranks.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_that_of_the_launcher_of_the_manager() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            variables(find).map(|variables| variables.map(|(name, value)| format!("{name}={value}")))
        };
        let settings = r#"{"rank_variable":"SLURM_PROCID","local_ranks":"0:2/2*3"}"#;
        let set = [(environment::TORCHRUN, settings), ("SLURM_PROCID", "3"), ("RANK", "0")];
        assert_eq!(of(&set).unwrap(), ["RANK=3", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"]);
        for (set, named) in [(&set[1..], environment::TORCHRUN), (&set[..1], "SLURM_PROCID")] {
            assert!(of(set).unwrap_err().to_string().contains(named));
        }
        let unknown = of(&[set[0], ("SLURM_PROCID", "6")]).unwrap_err().to_string();
        assert!(unknown.contains("SLURM_PROCID"), "{unknown}");
    }
}
