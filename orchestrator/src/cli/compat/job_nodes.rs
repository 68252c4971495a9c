//! The nodes of a job, and where their files are, as `scr_flush` and `scr_inspect` take them.

use std::path::PathBuf;

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::directories;
use super::hosts::expand;
use super::result::{CompatError, print};

#[derive(clap::Args)]
pub(super) struct JobNodes {
    /// The nodes of the job [default: those of the allocation]
    #[arg(short, long, value_name = "HOSTS")]
    jobset: Option<String>,
    /// The nodes that can be used [default: all but those of `--down`]
    #[arg(short, long, value_name = "HOSTS")]
    up: Option<String>,
    /// The nodes that cannot be used
    #[arg(short, long, value_name = "HOSTS")]
    down: Option<String>,
    /// The control directory
    #[arg(short, long, value_name = "DIR")]
    pub(super) from: PathBuf,
}

/// The nodes of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UsableNodes {
    pub(super) up: Vec<NodeName>,
    pub(super) down: Vec<NodeName>,
}

impl JobNodes {
    /// The nodes, by whether they can be used. `None`, with a message that begins with the command's name, if there is
    /// no list of them.
    pub(super) fn usable(&self, command: &str) -> Result<Option<UsableNodes>, CompatError> {
        let Some(list) = self.jobset.clone().or_else(directories::node_list) else {
            print(format!("{command}: ERROR: Could not determine nodeset."))?;
            return Ok(None);
        };
        let nodes = expand(&list)?;
        Ok(Some(match (&self.down, &self.up) {
            (Some(down), _) => {
                let down = expand(down)?;
                UsableNodes { up: hostlist::subtract(&nodes, &down), down }
            }
            (None, Some(up)) => {
                let up = expand(up)?;
                UsableNodes { down: hostlist::subtract(&nodes, &up), up }
            }
            (None, None) => UsableNodes { up: nodes, down: Vec::new() },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_not_down_are_up_and_those_that_are_not_up_are_down() {
        let names = |list: &str| hostlist::expand(list).unwrap();
        let usable = |up: Option<&str>, down: Option<&str>| {
            let option = |list: Option<&str>| list.map(str::to_owned);
            let jobset = Some("n[0-3]".to_owned());
            let nodes = JobNodes { jobset, up: option(up), down: option(down), from: PathBuf::new() };
            nodes.usable("scr_flush").ok().flatten().map(|it| (it.up, it.down))
        };
        assert_eq!(usable(None, Some("n2")), Some((names("n[0-1,3]"), names("n2"))));
        assert_eq!(usable(Some("n[1-2]"), None), Some((names("n[1-2]"), names("n[0,3]"))));
        assert_eq!(usable(None, None), Some((names("n[0-3]"), Vec::new())));
    }
}
