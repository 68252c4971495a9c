//! A resource manager that exists in this file only: with its entry in the registry it has everything that Slurm has.
//! It finds its jobs by variables of its own, starts agents with a command of its own, which find their nodes by
//! another command, has its own remote shell, requeues its jobs, and its rules for logs, signals and variables.
//!
//! Its program is this test binary, with the entry added. All of its nodes are on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use holdfast::allocation::agents::logs::AgentLogs;
use holdfast::allocation::agents::shared_step::{AgentSteps, StartLimit, StepCommand, StepMessages};
use holdfast::allocation::{
    AgentStartError, AgentTemplate, Allocation, AllocationError, AllocationIdentity, AllocationPreview,
    AllocationRecord, ManagerEntry, RemoteShell, registry,
};
use holdfast::keys;
use holdfast::spec::value_kinds::whole;
use holdfast::spec::{
    Chosen, KeyFacts, ManagerFacts, ManagerKeys, ManagerSettings, ManagerVariables, NodeCount, RequeueFacts,
};
use holdfast_core::hostlist;
use holdfast_model::NodeName;
use holdfast_wire::environment;
use holdfast_wire::run::{AgentReady, Lookup, SharedStart};
use rustix::process::Signal;

use crate::job::Job;
use crate::library::hydra;
use crate::world::{World, signal};

const JOB_VARIABLE: &str = "LATTICE_JOB";
const CELLS_VARIABLE: &str = "LATTICE_CELLS";
const JOB: &str = "L7";

static LATTICE: ManagerEntry = ManagerEntry {
    facts: ManagerFacts {
        name: "lattice",
        doc: "uses the cells of the current lattice",
        title: "Lattice",
        chosen: Chosen::InItsJobs { command: "lattice-run", help: "`lattice-get holdfast run job.yaml`" },
        nodes: NodeCount::Variables,
        variables: ManagerVariables {
            job_ids: &[JOB_VARIABLE],
            node_counts: &["LATTICE_COUNT"],
            node_lists: &[CELLS_VARIABLE],
            node_files: &[],
            ask_nodes: None,
            removed: &["LATTICE_TASK"],
        },
        requeue: Some(RequeueFacts {
            doc: "`true`: the lattice runs the job again.",
            command: |job_id| vec!["lattice-again".to_owned(), job_id],
            suggested: "{lattice: true}",
            check: |_| Ok(()),
            is_unknown_job: |_| false,
            after_failures: None,
        }),
        has_topology: false,
        has_remote_shells: true,
        more_nodes: |needed| format!("ask the lattice for {needed} cells"),
        keys: KeyFacts {
            takes: &[("depth", "only cells have a depth")],
            without: &[("nodes", "the lattice counts them: leave the key out")],
        },
    },
    keys: ManagerKeys::of::<LatticeSettings>(),
    check: || Ok(()),
    preview: |_| Ok(AllocationPreview::default()),
    open: |request| {
        let depth = request.spec.settings_of::<LatticeSettings>().map(|settings| settings.depth);
        assert_eq!(depth, Some(2), "the key of the spec");
        let (logs, user) = (request.logs, request.user);
        Box::pin(async move {
            let variable = |name| std::env::var(name).unwrap_or_default();
            let nodes = hostlist::expand(&variable(CELLS_VARIABLE))?;
            let identity = AllocationIdentity { job_id: variable(JOB_VARIABLE), token: None, user, nodes };
            Ok(Arc::new(Lattice::new(identity, &logs)?) as Arc<dyn Allocation>)
        })
    },
    reopen: |record, _, logs| {
        let opened = Lattice::new(record.identity.clone(), &logs);
        Box::pin(async move { Ok(Arc::new(opened?) as Arc<dyn Allocation>) })
    },
    is_available: |record| std::env::var(JOB_VARIABLE).is_ok_and(|job| job == record.identity.job_id),
    continues: |_, _| true,
    place: |record| format!("the cells of lattice {}", record.identity.job_id),
};

/// Its key.
#[derive(Debug)]
struct LatticeSettings {
    depth: u32,
}

keys! {
    LatticeSettings => LatticeSettings;
    /// {takers}: the depth of the cells.
    depth = whole::<u32>(1..=9).or(1),
    |section| {
        if !depth.is_multiple_of(2) && section.has("depth") {
            section.mistake("depth", format!("{depth} is odd"), "cells have two halves");
        }
        LatticeSettings { depth }
    }
}

impl ManagerSettings for LatticeSettings {
    fn mistakes(&self, nodes: u32) -> Vec<(String, String, String)> {
        let message = || format!("{nodes} cells are too few for it");
        let mistake = || ("depth".to_owned(), message(), "write at most 6".to_owned());
        (self.depth > 6).then(mistake).into_iter().collect()
    }
}

/// The cells of a lattice.
#[derive(Debug)]
struct Lattice {
    identity: AllocationIdentity,
    steps: AgentSteps,
    /// Nodes that had an agent.
    known: Mutex<BTreeSet<NodeName>>,
}

impl Lattice {
    fn new(identity: AllocationIdentity, logs: &Path) -> Result<Self, AllocationError> {
        let logs = AgentLogs::create(logs)?;
        let steps = AgentSteps::start(LatticeRun, holdfast::host::program::ourselves()?, logs);
        Ok(Lattice { identity, steps, known: Mutex::default() })
    }
}

/// `lattice-run CELL,CELL PROGRAM …`: see [`programs`].
#[derive(Debug)]
struct LatticeRun;

impl StepCommand for LatticeRun {
    fn name(&self) -> &'static str {
        "lattice-run"
    }

    fn shared_start(&self, logs: &Path) -> SharedStart {
        SharedStart {
            node: Lookup::Command(vec!["lattice-cell".to_owned()]),
            toward: Lookup::Variable("LATTICE_HEAD".to_owned()),
            logs: logs.to_owned(),
            is_signalled_with_job: true,
        }
    }

    fn command(&self, nodes: &[NodeName]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("lattice-run");
        let nodes: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
        command.arg(nodes.join(",")).env_remove("LATTICE_TASK");
        command
    }

    fn messages(&self, text: &str) -> StepMessages {
        let ended = text.lines().filter_map(|line| line.strip_prefix("lattice: ended: ")).map(NodeName::from);
        StepMessages { ended: ended.collect(), ..StepMessages::default() }
    }
}

impl Allocation for Lattice {
    fn manager(&self) -> &'static str {
        LATTICE.facts.name
    }

    fn identity(&self) -> &AllocationIdentity {
        &self.identity
    }

    fn down_nodes(&self) -> Vec<(NodeName, String)> {
        Vec::new()
    }

    fn end(&self) -> Option<SystemTime> {
        None
    }

    fn own_node(&self) -> Option<NodeName> {
        None
    }

    fn record(&self) -> AllocationRecord {
        AllocationRecord::new(LATTICE.facts.name, &self.identity, &())
    }

    fn starts_at_once(&self) -> usize {
        self.identity.nodes.len()
    }

    fn start_agent<'a>(
        &'a self,
        node: &'a NodeName,
        template: &'a AgentTemplate,
    ) -> Pin<Box<dyn Future<Output = Result<AgentReady, AgentStartError>> + Send + 'a>> {
        Box::pin(async move {
            let first = self.known.lock().unwrap().insert(node.clone());
            let limit = StartLimit { within: Duration::from_secs(60), first };
            let ready = self.steps.agent(node, template, limit).await?;
            Ok(ready)
        })
    }

    fn adopt_agent(&self, node: &NodeName, _pid: u32) {
        self.known.lock().unwrap().insert(node.clone());
    }

    fn kill_agent(&self, _node: &NodeName) {}

    fn terminate_agents(&self, _agents: &[(NodeName, u32)], patience: Duration) {
        let begun = Instant::now();
        while self.steps.are_running() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.steps.abandon();
    }

    fn command_prefix(&self, node: &NodeName) -> Vec<String> {
        vec!["env".to_owned(), format!("LATTICE_CELL={node}")]
    }

    fn remote_shell(&self, node: &NodeName) -> Option<RemoteShell> {
        Some(RemoteShell { words: vec!["lattice-shell".to_owned(), node.to_string()], inherits: true })
    }

    fn rank_variables(&self, node: &NodeName) -> Option<BTreeMap<String, String>> {
        Some([(environment::NODE.to_owned(), node.to_string())].into())
    }
}

/// Runs this binary as `holdfast` with one manager more, if it was started in a lattice.
pub fn program_in_a_lattice() -> Option<ExitCode> {
    std::env::var_os(JOB_VARIABLE)?;
    registry::add(vec![&LATTICE]);
    Some(holdfast::cli::main())
}

/// The commands of the lattice, in a directory for `PATH`.
fn programs(world: &World) -> PathBuf {
    let directory = world.path("bin");
    fs::create_dir(&directory).unwrap();
    let note = world.path("note");
    let run = "read -r start; cells=$1; shift\n\
               for cell in $(echo \"$cells\" | tr , ' '); do\n\
               { printf '%s\\n' \"$start\" | LATTICE_CELL=$cell LATTICE_HEAD=127.0.0.1 \"$@\"\n\
               echo \"lattice: ended: $cell\" >&2; } &\n\
               done\nwait\n";
    let shell = format!("echo \"shell on $1\" >>{}; shift; exec sh -c \"$*\"\n", note.display());
    let again = format!("echo \"again: $1\" >>{}; echo the lattice runs $1 again\n", note.display());
    for (name, text) in [
        ("lattice-run", run),
        ("lattice-cell", "echo $LATTICE_CELL\n"),
        ("lattice-shell", &shell),
        ("lattice-again", &again),
    ] {
        let path = directory.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// This binary as `holdfast` in a lattice with five cells.
fn in_lattice(world: &World, arguments: &[&str]) -> std::process::Command {
    let mut command = world.command(std::env::current_exe().unwrap());
    let path = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    command.args(arguments).env("PATH", path).env(JOB_VARIABLE, JOB).env(CELLS_VARIABLE, "cell[1-5]");
    command.env("LATTICE_COUNT", "5").env("LATTICE_TASK", "0");
    command
}

fn notes(world: &World) -> Vec<String> {
    fs::read_to_string(world.path("note")).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_manager_that_only_the_registry_knows_runs_a_job_over_two_runs_and_requeues_it() {
    let launcher_program = hydra();
    let world = World::new();
    programs(&world);
    for cell in 1..=5 {
        fs::create_dir_all(world.path(&format!("cells/cell{cell}"))).unwrap();
    }
    let base = world.path("cells").join("{node}");
    // All ranks on one cell: checkpoints expect the same path on all nodes of a run, and the cells share this machine.
    let mut job = Job::new(&world, 1)
        .redundancy("[{scheme: local}]")
        .holding_after(4)
        .top("requeue: {lattice: true}")
        .checkpoint(&format!("control: {{base: {base:?}}}"))
        .checkpoint(&format!("cache: [{{base: {base:?}, keep: 2}}]"));
    (job.on, job.per_node) = (1, 4);
    let yaml = job.yaml().replace("  manager: local\n  nodes: 5\n", "  exclude: cell9\n  depth: 2\n");
    let yaml = yaml.replace("run:\n", &format!("run:\n  launcher_program: {launcher_program}\n"));
    let spec = world.write("lattice.yaml", &yaml);
    let run = || world.start(in_lattice(&world, &["run", &spec.to_string_lossy()]));

    let mut running = run();
    running.sees_checkpoint(4);
    // Ranks were started through its remote shell, without the variables that it does not want there.
    assert!(notes(&world).contains(&"shell on cell1".to_owned()), "{:?}", notes(&world));
    let ranks = world.processes().into_iter().filter(|(_, line)| line.contains("example heat"));
    let environments: Vec<Vec<u8>> = ranks.map(|(pid, _)| fs::read(format!("/proc/{pid}/environ")).unwrap()).collect();
    assert!(environments.len() >= 4);
    let lines = |environment: &[u8]| String::from_utf8_lossy(environment).replace('\0', "\n");
    for environment in environments.iter().map(|environment| lines(environment)).filter(|it| it.contains("RANK=")) {
        assert!(!environment.contains("LATTICE_TASK="), "{environment}");
    }
    // Agents share a step (requests that come within some milliseconds), and each found its name by the command, and
    // its own log.
    let logs = world.prefix().join(".holdfast/agents");
    let names = || -> BTreeSet<String> {
        fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let steps = || names().into_iter().filter(|name| name.starts_with("lattice-run-")).count();
    let shared = steps();
    assert!((1..5).contains(&shared), "{:?}", names());
    assert!((1..=5).all(|cell| names().contains(&format!("cell{cell}.log"))), "{:?}", names());
    // It sends SIGTERM to all processes of a job: an agent leaves that to its orchestrator.
    signal(world.agent_pid("cell1"), Signal::TERM);
    let log = || fs::read_to_string(logs.join("cell1.log")).unwrap();
    world.wait("the deferred signal", || log().contains("sigterm_deferred_to_orchestrator").then_some(()));
    // An agent that dies alone is replaced with a step of its own.
    signal(world.agent_pid("cell2"), Signal::KILL);
    running.sees_where("agent_ready", "again", true);
    assert_eq!(steps(), shared + 1);
    running.terminated().prints(&["next allocation submitted by", "the lattice runs L7 again"]);
    assert_eq!(notes(&world).iter().filter(|note| *note == "again: L7").count(), 1);

    // Another run in the same lattice continues there.
    job.go_on();
    let running = run();
    running.ends_with(0).prints(&["the cells of lattice L7"]);
    assert_eq!(world.all("node_down"), [] as [serde_json::Value; 0]);
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 4);
}

#[test(unchecked)]
fn the_spec_of_a_job_is_checked_by_what_its_manager_declares(world: &World) {
    programs(world);
    let check = |spec: &str, code: u8| {
        let file = world.write("job.yaml", &format!("{spec}\nrun: {{command: [sh], nodes: 4}}\n"));
        let mut command = in_lattice(world, &["check", &file.to_string_lossy()]);
        command.env("SCR_JOB_ID", "9");
        world.run(command).with_code(code)
    };
    check("requeue: {lattice: true}", 0)
        .prints(&["SCR_JOB_ID=9 has no effect: directories have the id of the Lattice job, L7"]);
    check("requeue: {lattice: true}\nallocation: {manager: local}", 78)
        .prints(&["requeue.lattice: `lattice` has no effect with `manager: local`"]);
    check("requeue: {lattice: true, command: [x]}", 78).prints(&["`command` and `lattice` exclude each other"]);
    check("allocation: {manager: lattice, nodes: 3}", 78).prints(&["the lattice counts them: leave the key out"]);
    check("allocation: {manager: latice}", 78).prints(&["did you mean `lattice`?"]);
    check("allocation: {depth: 4}", 0);
    check("allocation: {depth: 10}", 78).prints(&["allocation.depth: expected a whole number from 1 to 9"]);
    check("allocation: {depth: 3}", 78).prints(&["allocation.depth: 3 is odd", "cells have two halves"]);
    check("allocation: {depth: 8}", 78).prints(&["allocation.depth: 5 cells are too few for it"]);
    check("allocation: {dept: 4}", 78).prints(&["did you mean `depth`?"]);
    check("allocation: {manager: local, depth: 4}", 78)
        .prints(&["allocation.depth: `depth` has no effect with `manager: local`", "only cells have a depth"]);
    check("relaunch: {min_nodes: 2}", 0);
    let file = world.write("large.yaml", "run: {command: [sh], nodes: 6}\n");
    let ran = world.run(in_lattice(world, &["check", &file.to_string_lossy()])).with_code(78);
    ran.prints(&["the run needs 6 nodes, the allocation has 5", "ask the lattice for 6 cells"]);
    let reference = world.run(in_lattice(world, &["check", "--reference"])).with_code(0);
    reference.prints(&["# `true`: the lattice runs the job again.\n  lattice: false\n"]);
    reference.prints(&["  depth: 1                # Lattice: the depth of the cells.\n"]);
}
