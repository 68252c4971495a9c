//! The local launcher: every rank is a child of the step supervisor.

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;

use holdfast_core::state_files;
use holdfast_model::{NodeName, Rank, RankEnd};
use holdfast_process::OutputPipes;
use holdfast_process::children::wait_for_any;
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

use super::error::LaunchError;
use super::launcher::{LaunchRequest, Launcher, LauncherEntry, PlainLaunch};
use super::obstacle::Obstacle;
use super::plan::{StepEvent, StepPlan};
use super::ranks::{self, RankCommand, RankReports};
use super::step::{Step, Supervision};
use crate::spec::{KeyFacts, LauncherFacts, Suits};

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "local",
        doc: "",
        suits: Suits::Manager("local"),
        keys: KeyFacts { takes: &[], without: &[] },
    },
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
        let (children, plan) = (Arc::clone(&step.children), step.plan.clone());
        let command = RankCommand {
            program: &plan.program,
            arguments: &plan.arguments,
            directory: &plan.working_directory,
            environment: &plan.environment,
        };
        let nodes = self.processes.iter().map(|process| (process.rank, &process.node)).collect();
        let processes = self.processes.iter().map(|process| (process.rank, &process.environment));
        ranks::run(&children, command, processes, &mut StepReports { step, nodes })
    }
}

/// The output goes to files, so that it never waits for a reader; ends are events of the step.
struct StepReports<'a> {
    step: &'a mut Step,
    nodes: BTreeMap<Rank, &'a NodeName>,
}

impl RankReports for StepReports<'_> {
    type Error = LaunchError;

    fn streams(&mut self, rank: Rank) -> io::Result<(Stdio, Stdio)> {
        let directory = &self.step.directory;
        let output = state_files::append(&StepPlan::output_in(directory, rank))?;
        Ok((output.into(), state_files::append(&StepPlan::errors_in(directory, rank))?.into()))
    }

    fn started(&mut self, rank: Rank, pid: u32, _pipes: OutputPipes) -> Result<(), LaunchError> {
        match self.nodes.get(&rank) {
            Some(node) => self.step.emit(&StepEvent::Started { rank, node: (*node).clone(), pid }),
            None => Ok(()),
        }
    }

    fn refused(&mut self, rank: Rank, error: &io::Error) -> Result<(), LaunchError> {
        self.step.emit(&StepEvent::Refused { rank, reason: error.to_string(), obstacle: Obstacle::of_error(error) })
    }

    fn wait(&mut self) -> Result<(), LaunchError> {
        wait_for_any();
        Ok(())
    }

    fn ended(&mut self, rank: Rank, end: RankEnd) -> Result<(), LaunchError> {
        self.step.emit(&StepEvent::Exited { rank, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::spec::JobSpec;
    use std::path::Path;

    fn plan(sockets: &[(&str, &str)]) -> Result<StepPlan, LaunchError> {
        let spec = JobSpec::of_test("run: {command: [./app, --fast]}\n");
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
