//! The flux launcher: all ranks are one job of the Flux instance (`flux run`).
//!
//! The job gets exactly the nodes with ranks (`--requires=hosts:`), and a host file with one line a rank
//! (`--taskmap=hostfile:`) places each rank on its node, so that survivors stay where their files are. Flux does not
//! report how single ranks end, so each has a parent that does ([`rank`](super::mpirun::rank)).
//!
//! A job belongs to the instance, not to `flux run`: if that is killed, the job is cancelled by its name.

mod messages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_core::{hostlist, state_files};
use holdfast_model::NodeName;
use holdfast_wire::environment;
use messages::{FluxMessages, LABELS};
use serde::{Deserialize, Serialize};

use super::command::{self, LauncherCommand};
use super::error::LaunchError;
use super::labels::LineLabels;
use super::launcher::{LaunchRequest, Launcher, LauncherEntry, PlainLaunch};
use super::named_files;
use super::plan::StepPlan;
use super::step::{Step, Supervision};
use crate::allocation::flux::environment::REMOVED;
use crate::host::{external_command, program};
use crate::spec::{KeyFacts, LauncherFacts, Suits};

const FLUX: &str = "flux";
/// The file with the node of each rank.
const HOST_FILE: &str = "hosts";
/// Time limit of the cancellation of a job. One with a rank on a node that does not answer ends when Flux has given the
/// node up; the next job waits for that in Flux's queue.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: FLUX,
        doc: "`flux run`; docs/flux.md",
        suits: Suits::Manager("flux"),
        keys: KeyFacts { takes: &[("launcher_options", "")], without: &[] },
    },
    open: |_| Ok(Box::new(FluxLauncher { holdfast: program::ourselves()? })),
    supervision: |plan| Ok(Box::new(FluxSupervision { step: plan.details()? })),
};

/// The plan's details for the supervision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FluxStep {
    /// The name of the job: no other one has it.
    job_name: String,
    command: LauncherCommand,
}

/// One job of the instance.
#[derive(Clone, Debug)]
struct FluxLauncher {
    /// The parent of each rank: our own executable.
    holdfast: PathBuf,
}

impl Launcher for FluxLauncher {
    fn plain(&self, launch: &PlainLaunch<'_>) -> Result<Vec<Command>, LaunchError> {
        let options = ["run".to_owned(), format!("--nodes={}", launch.run.nodes)];
        let options = [&options[..], &[format!("--ntasks={}", launch.run.ranks)]].concat();
        Ok(vec![launch.command(Path::new(FLUX), &options)])
    }

    fn starts_mpi(&self) -> bool {
        true
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let homes = request.homes();
        let files = named_files::directory_for(request.directory, request.job_id)?;
        let host_file = files.path.join(HOST_FILE);
        let hosts: String = homes.values().map(|node| format!("{node}\n")).collect();
        state_files::replace(&host_file, hosts.as_bytes())?;

        let mut plan = request.plan();
        let socket = request.common_socket()?.to_string_lossy().into_owned();
        plan.environment.insert(environment::SOCKET.to_owned(), socket);
        let job_name = format!("holdfast-run-{}-{}", request.job_id, request.generation);
        let options = self.options(&request, &host_file, &job_name);
        let (program, options) = match request.placement.used().count() {
            nodes if homes.len().is_multiple_of(nodes.max(1)) => (FLUX, options),
            nodes => ("sh", by_jobspec(options, nodes)),
        };
        let command = LauncherCommand {
            program: PathBuf::from(program),
            options,
            without: REMOVED.map(str::to_owned).to_vec(),
            ranks: homes,
        };
        plan.private_directory = files.into_plan();
        plan.with_details(ENTRY.facts.name, &FluxStep { job_name, command })
    }
}

impl FluxLauncher {
    fn options(&self, request: &LaunchRequest<'_>, host_file: &Path, job_name: &str) -> Vec<String> {
        let nodes: Vec<NodeName> = request.placement.used().map(|node| node.name.clone()).collect();
        let ranks = request.placement.used().map(|node| node.ranks.len()).sum::<usize>();
        let mut words: Vec<String> = [
            "run",
            // All processors of the nodes, whatever the number of ranks on each; nothing else is started there.
            "--exclusive",
            // All ranks share one stream.
            "--label-io",
            // The orchestrator decides what happens to the others when a rank is lost.
            "--setopt=exit-timeout=none",
        ]
        .map(str::to_owned)
        .to_vec();
        words.push(format!("--job-name={job_name}"));
        words.push(format!("--nodes={}", nodes.len()));
        // In both forms Flux takes the number of ranks of each node from the host file.
        words.push(match ranks.checked_rem(nodes.len()) {
            Some(0) => format!("--tasks-per-node={}", ranks / nodes.len()),
            _ => format!("--ntasks={ranks}"),
        });
        words.push(format!("--requires=hosts:{}", hostlist::compress(&nodes)));
        words.push(format!("--taskmap=hostfile:{}", host_file.display()));
        words.extend(request.run.launcher_options.iter().cloned());
        words.extend([self.holdfast.to_string_lossy().into_owned(), "rank".to_owned(), "--".to_owned()]);
        words
    }
}

/// The arguments of `sh` for a job whose nodes have different numbers of ranks. For each rank of the fullest node
/// `flux run` would request a processor on all nodes, which survivors that have the ranks of lost nodes may not have.
/// So the job is submitted with whole nodes, whatever their processors (jobspec: Flux RFC 14 and 25). If another
/// version of Flux writes the jobspec in another way, it is submitted as it is.
fn by_jobspec(run: Vec<String>, nodes: usize) -> Vec<String> {
    let slot = r#"{"type": "slot", "count": 1, "with": [{"type": "core", "count": 1}], "label": "task"}"#;
    let whole_nodes = format!(r#"[{{"type": "node", "count": {nodes}, "exclusive": true, "with": [{slot}]}}]"#);
    let edit = format!(r#"s/^{{"resources": \[.*\], "tasks": /{{"resources": {whole_nodes}, "tasks": /"#);
    let script = "edit=$1; shift; id=$(flux \"$@\" | sed \"$edit\" | flux job submit) && \
                  exec flux job attach --label-io \"$id\"";
    let mut words = ["-c", script, "sh", &edit].map(str::to_owned).to_vec();
    let mut run = run.into_iter();
    words.extend(run.next());
    words.push("--dry-run".to_owned());
    words.extend(run);
    words
}

struct FluxSupervision {
    step: FluxStep,
}

impl Supervision for FluxSupervision {
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError> {
        let mut messages = FluxMessages::default();
        let ended = command::supervise(step, &self.step.command, &mut messages);
        if !messages.job_has_ended() {
            cancel(&self.step.job_name);
        }
        ended
    }

    fn labels(&self) -> Option<&'static LineLabels> {
        Some(&LABELS)
    }
}

/// Cancels the job of this name, if there is one, and waits for its end.
fn cancel(job_name: &str) {
    let target = format!("name:^{job_name}$");
    match external_command::run(FLUX, &["pkill", "--wait", &target], &BTreeMap::new(), CANCEL_WITHIN) {
        Ok(answer) => tracing::info!(job_name, message = answer.errors.trim(), "flux_job_cancelled"),
        Err(error) => tracing::warn!(job_name, %error, "flux_job_not_cancelled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::fixtures::{details, launch, node};
    use crate::spec::JobSpec;

    fn planned(spec: &str, nodes: &[(&str, &[u32])], directory: &Path) -> (StepPlan, FluxStep) {
        let spec = JobSpec::of_test(spec);
        let launcher = FluxLauncher { holdfast: "/opt/holdfast".into() };
        let sockets: Vec<_> = nodes.iter().map(|(name, _)| (*name, "/t/agent.sock")).collect();
        let nodes = nodes.iter().map(|(name, ranks)| node(name, ranks)).collect();
        let plan = launch(&launcher, &spec.steps[0].run, nodes, &sockets, directory).unwrap();
        let step = details(&plan);
        (plan, step)
    }

    #[test]
    fn the_job_has_the_nodes_with_ranks_and_a_host_file_places_the_ranks() {
        let base = tempfile::tempdir().unwrap();
        let spec = "run: {command: [./app], launcher: flux, launcher_options: [-opmi=pmix]}\n\
                    allocation: {manager: flux}\n";
        let nodes: [(&str, &[u32]); 3] = [("n2", &[1, 3, 4]), ("n4", &[]), ("n5", &[0, 2])];
        let (plan, step) = planned(spec, &nodes, base.path());
        assert_eq!(plan.environment["HOLDFAST_SOCKET"], "/t/agent.sock");
        let even = planned(spec, &[("n2", &[1, 3, 4]), ("n5", &[0, 2, 5])], &base.path().join("even")).1;
        assert!(even.command.options.contains(&"--tasks-per-node=3".to_owned()), "{:?}", even.command.options);
        assert_eq!(even.command.program, Path::new("flux"));
        let options = &step.command.options;
        // The nodes have different numbers of ranks.
        assert_eq!((step.command.program.as_path(), &*options[0]), (Path::new("sh"), "-c"));
        assert!(options[3].contains(r#""count": 2, "exclusive": true"#), "{}", options[3]);
        let has = |expected: &str| options.iter().any(|option| option == expected);
        assert!(has("--nodes=2") && has("--ntasks=5") && has("--requires=hosts:n[2,5]"), "{options:?}");
        let host_file = options.iter().find_map(|option| option.strip_prefix("--taskmap=hostfile:")).unwrap();
        assert_eq!(std::fs::read_to_string(host_file).unwrap(), "n5\nn2\nn5\nn2\nn2\n");
        assert_eq!(options[options.len() - 4..], ["-opmi=pmix", "/opt/holdfast", "rank", "--"]);
        assert!(has(&format!("--job-name={}", step.job_name)) && step.job_name == "holdfast-run-17-3");
        assert!(step.command.without.contains(&"FLUX_KVS_NAMESPACE".to_owned()));
    }
}
