//! Fixtures of the launchers' tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_model::{Generation, Placement, Rank, RunNode};
use serde::de::DeserializeOwned;

use super::error::LaunchError;
use super::launcher::{LaunchRequest, Launcher};
use super::plan::StepPlan;
use super::registry;
use crate::allocation::RemoteShell;
use crate::spec::RunSpec;

/// A node with these ranks.
pub(super) fn node(name: &str, ranks: &[u32]) -> RunNode {
    RunNode {
        name: name.into(),
        address: ([10, 0, 0, 1], 1).into(),
        failure_domain: name.to_owned(),
        ranks: ranks.iter().copied().map(Rank).collect(),
    }
}

/// Plans `/bin/app` as the third generation of job 17; the leader is on the first node.
pub(super) fn launch(
    launcher: &dyn Launcher,
    run: &RunSpec,
    nodes: Vec<RunNode>,
    sockets: &[(&str, &str)],
    directory: &Path,
) -> Result<StepPlan, LaunchError> {
    let leader = nodes[0].name.clone();
    let placement = Placement { nodes, leader };
    let sockets = sockets.iter().map(|(name, path)| ((*name).into(), PathBuf::from(path))).collect();
    let words = ["sh", "-c"].map(str::to_owned).to_vec();
    let shell = |node: &RunNode| (node.name.clone(), RemoteShell { words: words.clone(), inherits: true });
    let reach = placement.used().map(shell).collect();
    launcher.plan(LaunchRequest {
        job_id: "17",
        generation: Generation(3),
        placement: &placement,
        sockets: &sockets,
        reach: &reach,
        run,
        variables: &BTreeMap::new(),
        node_variables: &BTreeMap::new(),
        program: Path::new("/bin/app"),
        leading_arguments: &[],
        working_directory: Path::new("/"),
        directory,
    })
}

/// The details of a plan, as the supervisor reads them. The plan must have a registered launcher.
pub(super) fn details<T: DeserializeOwned>(plan: &StepPlan) -> T {
    registry::supervision(plan).unwrap();
    plan.details().unwrap()
}
