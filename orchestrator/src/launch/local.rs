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
        let mut plan = request.plan();
        for node in request.placement.used() {
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
    use crate::launch::rehearsal::{launch, node};
    use crate::spec::JobSpec;
    use holdfast_model::Rank;
    use std::path::Path;

    fn plan(sockets: &[(&str, &str)]) -> Result<StepPlan, LaunchError> {
        let spec = JobSpec::parse("run: {command: [./app, --fast]}\n", "job.yaml").unwrap();
        let nodes = vec![node("node2", &[1]), node("node0", &[0]), node("node1", &[])];
        launch(&LocalLauncher, &spec.steps[0].run, nodes, sockets, Path::new("/g"))
    }

    #[test]
    fn every_rank_learns_who_it_is_and_where_its_agent_listens() {
        let plan = plan(&[("node0", "/s/node0"), ("node2", "/s/node2")]).unwrap();
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
        let error = plan(&[("node0", "/s/node0")]).unwrap_err();
        assert!(error.to_string().contains("node2"));
    }
}
