//! The local launcher: every rank is a child of the step supervisor.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_model::{NodeName, Rank};
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

use super::children::{Started, wait_for_any};
use super::{LaunchError, LaunchRequest, Launcher, LauncherEntry, PlainLaunch, Step, StepEvent, StepPlan, Supervision};
use crate::host::own_files;
use crate::spec::{KeyFacts, LauncherFacts};

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts { name: "local", doc: "", managers: &["local"], keys: KeyFacts { takes: &[], without: &[] } },
    open: |_| Ok(Box::new(LocalLauncher)),
    supervision: |plan| Ok(Box::new(LocalSupervision { processes: plan.details()? })),
};

#[derive(Clone, Copy, Debug, Default)]
struct LocalLauncher;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StepProcess {
    rank: Rank,
    node: NodeName,
    environment: BTreeMap<String, String>,
}

impl Launcher for LocalLauncher {
    fn plain(&self, launch: &PlainLaunch<'_>) -> Result<Vec<Command>, LaunchError> {
        let ranks = launch.run.ranks;
        let command = |rank: u32| {
            let mut command = Command::new(launch.program);
            command.args(launch.run.command.iter().skip(1)).envs(&launch.run.env);
            command.env(environment::RANK, rank.to_string()).env(environment::RANKS, ranks.to_string());
            command
        };
        Ok((0..ranks).map(command).collect())
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let mut processes = Vec::new();
        for node in request.placement.used() {
            let socket = request.socket(&node.name)?;
            let of_node = request.node_variables.get(&node.name).cloned().unwrap_or_default();
            for rank in &node.ranks {
                let mut environment = of_node.clone();
                environment.extend([
                    (environment::RANK.to_owned(), rank.to_string()),
                    (environment::NODE.to_owned(), node.name.to_string()),
                    (environment::SOCKET.to_owned(), socket.to_string_lossy().into_owned()),
                ]);
                processes.push(StepProcess { rank: *rank, node: node.name.clone(), environment });
            }
        }
        processes.sort_by_key(|process| process.rank);
        request.plan().with_details(ENTRY.facts.name, &processes)
    }
}

struct LocalSupervision {
    processes: Vec<StepProcess>,
}

impl Supervision for LocalSupervision {
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError> {
        for process in &self.processes {
            match start(step, process) {
                Ok(Some(Started { pid, .. })) => {
                    step.emit(&StepEvent::Started { rank: process.rank, node: process.node.clone(), pid })?;
                }
                Ok(None) => break,
                Err(error) => {
                    step.kill_all();
                    step.emit(&StepEvent::Refused { rank: process.rank, reason: error.to_string() })?;
                }
            }
        }
        while !step.children.is_empty() {
            wait_for_any();
            let ended = step.children.reap();
            step.emit_all(ended.into_iter().map(|(rank, end)| StepEvent::Exited { rank, end }))?;
        }
        Ok(())
    }
}

fn start(step: &Step, process: &StepProcess) -> io::Result<Option<Started>> {
    let (plan, directory): (&StepPlan, &Path) = (&step.plan, &step.directory);
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.arguments)
        .current_dir(&plan.working_directory)
        .envs(&plan.environment)
        .envs(&process.environment)
        .stdin(Stdio::null())
        .stdout(own_files::append(&StepPlan::output_in(directory, process.rank))?)
        .stderr(own_files::append(&StepPlan::errors_in(directory, process.rank))?);
    step.children.start(process.rank, &mut command).map_err(|error| {
        let message = format!("cannot start {} for rank {}: {error}", plan.program.display(), process.rank);
        io::Error::new(error.kind(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::launch::registry::registered;
    use crate::spec::{Environment, JobSpec};

    fn plan(sockets: &[(&str, &str)]) -> Result<StepPlan, LaunchError> {
        let spec =
            JobSpec::parse("run: {command: [./app, --fast]}\n", "job.yaml", &Environment::empty(registered())).unwrap();
        let nodes = vec![node("node2", &[1]), node("node0", &[0]), node("node1", &[])];
        launch(&LocalLauncher, &spec.steps[0].run, nodes, sockets, Path::new("/g"))
    }

    #[test]
    fn every_rank_gets_its_number_and_the_socket_of_its_agent() {
        let plan = plan(&[("node0", "/s/node0"), ("node2", "/s/node2")]).unwrap();
        assert_eq!(plan.arguments, ["--fast"]);
        assert_eq!(plan.environment["HOLDFAST_JOB"], "17");
        assert_eq!(plan.environment["HOLDFAST_GENERATION"], "3");
        assert_eq!(plan.environment["HOLDFAST_RANKS"], "2");
        let second = &details::<Vec<StepProcess>>(&plan)[1];
        assert_eq!((second.rank, second.node.as_str()), (Rank(1), "node2"));
        assert_eq!(second.environment["HOLDFAST_RANK"], "1");
        assert_eq!(second.environment["HOLDFAST_NODE"], "node2");
        assert_eq!(second.environment["HOLDFAST_SOCKET"], "/s/node2");
    }

    #[test]
    fn a_node_without_socket_is_an_error() {
        let error = plan(&[("node0", "/s/node0")]).unwrap_err();
        assert!(error.to_string().contains("node2"));
    }
}
