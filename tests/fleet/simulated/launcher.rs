//! A launcher for simulated ranks: only the first rank of a generation is a process, with the real supervision.

use std::path::{Path, PathBuf};

use holdfast::allocation::local;
use holdfast::launch::{LaunchError, LaunchRequest, Launcher, LauncherContext, StepPlan, registry};
use holdfast_model::Placement;
use holdfast_wire::environment;

/// Plans the first rank of a placement with the local launcher.
pub struct FirstRankOnly(Box<dyn Launcher>);

impl FirstRankOnly {
    pub fn new(context: &LauncherContext<'_>) -> Result<Self, LaunchError> {
        Ok(FirstRankOnly(registry::open(&local::ENTRY.facts, Some("local"), context)?))
    }
}

impl Launcher for FirstRankOnly {
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let mut nodes: Vec<_> = request.placement.used().take(1).cloned().collect();
        nodes.iter_mut().for_each(|node| node.ranks.truncate(1));
        let placement = Placement { nodes, leader: request.placement.leader.clone() };
        self.0.plan(LaunchRequest { placement: &placement, ..request })
    }
}

/// A program that makes the file of its generation, and runs until `file` is removed.
pub fn until_removed(file: &Path) -> Vec<String> {
    let (file, generation) = (file.display(), environment::GENERATION);
    let script = format!("touch '{file}'.${generation}; while test -e '{file}'; do sleep 0.05; done");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
}

/// The file that [`until_removed`] makes when it starts.
pub fn started(file: &Path, generation: u64) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(format!(".{generation}"));
    path.into()
}
