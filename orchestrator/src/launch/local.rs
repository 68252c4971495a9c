//! The local launcher: every rank is a child of the step supervisor on this machine.

use std::collections::BTreeMap;

use holdfast_wire::environment;

use super::{LaunchError, LaunchRequest, Launcher, StepPlan, StepProcess};

/// One process a rank, on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalLauncher;

impl Launcher for LocalLauncher {
    fn name(&self) -> &'static str {
        "local"
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let LaunchRequest { job_id, generation, placement, run, .. } = request;
        let mut plan = StepPlan::new(
            job_id.to_owned(),
            generation,
            request.program.to_owned(),
            request.working_directory.to_owned(),
        );
        plan.arguments = run.command.iter().skip(1).cloned().collect();
        plan.environment = run.env.clone();
        plan.environment.extend([
            (environment::JOB.to_owned(), job_id.to_owned()),
            (environment::GENERATION.to_owned(), generation.to_string()),
            (environment::RANKS.to_owned(), placement.ranks().to_string()),
        ]);
        for node in placement.used() {
            let Some(socket) = request.sockets.get(&node.name) else {
                return Err(LaunchError::NoSocket { node: node.name.clone() });
            };
            for rank in &node.ranks {
                let environment = BTreeMap::from([
                    (environment::RANK.to_owned(), rank.to_string()),
                    (environment::NODE.to_owned(), node.name.to_string()),
                    (environment::SOCKET.to_owned(), socket.to_string_lossy().into_owned()),
                ]);
                plan.processes.push(StepProcess { rank: *rank, node: node.name.clone(), environment });
            }
        }
        plan.processes.sort_by_key(|process| process.rank);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relaunch::Placement;
    use crate::spec::JobSpec;
    use holdfast_core::ids::{Generation, NodeName, Rank};
    use holdfast_wire::run::RunNode;
    use std::path::{Path, PathBuf};

    fn node(name: &str, ranks: &[u32]) -> RunNode {
        RunNode {
            name: name.into(),
            address: ([127, 0, 0, 1], 1).into(),
            failure_domain: name.to_owned(),
            ranks: ranks.iter().copied().map(Rank).collect(),
        }
    }

    fn plan(sockets: &BTreeMap<NodeName, PathBuf>) -> Result<StepPlan, LaunchError> {
        let spec = JobSpec::parse("run: {command: [./app, --fast]}\n", "job.yaml").unwrap();
        let nodes = vec![node("node2", &[1]), node("node0", &[0]), node("node1", &[])];
        let placement = Placement { nodes, leader: "node2".into() };
        LocalLauncher.plan(LaunchRequest {
            job_id: "17",
            generation: Generation(3),
            placement: &placement,
            sockets,
            reach: &BTreeMap::new(),
            run: &spec.steps[0].run,
            program: Path::new("/bin/app"),
            working_directory: Path::new("/"),
            directory: Path::new("/g"),
        })
    }

    #[test]
    fn every_rank_learns_who_it_is_and_where_its_agent_listens() {
        let sockets = ["node0", "node2"].map(|name| (name.into(), PathBuf::from(format!("/s/{name}")))).into();
        let plan = plan(&sockets).unwrap();
        assert_eq!(plan.arguments, ["--fast"]);
        assert_eq!(plan.environment["HOLDFAST_JOB"], "17");
        assert_eq!(plan.environment["HOLDFAST_GENERATION"], "3");
        assert_eq!(plan.environment["HOLDFAST_RANKS"], "2");
        let second = &plan.processes[1];
        assert_eq!((second.rank, second.node.as_str()), (Rank(1), "node2"));
        assert_eq!(second.environment["HOLDFAST_RANK"], "1");
        assert_eq!(second.environment["HOLDFAST_NODE"], "node2");
        assert_eq!(second.environment["HOLDFAST_SOCKET"], "/s/node2");
    }

    #[test]
    fn a_node_without_socket_stops_the_launch_before_it_begins() {
        let sockets = [("node0".into(), PathBuf::from("/s/node0"))].into();
        assert!(plan(&sockets).unwrap_err().to_string().contains("node2"));
    }
}
