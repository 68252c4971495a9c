//! The cluster and the jobs on it.

mod disk;
mod shells;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::ignore;

pub use disk::SharedDisk;
use shells::Shells;

/// Time limit of every wait, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// Why tests are ignored that need containers.
pub const NO_ENGINE: &str = "no Docker engine can be reached; `docker/engine` as root installs and starts one";
const LOOK_EVERY: Duration = Duration::from_millis(50);
const STEPS: u32 = 120;
/// Microseconds, Linux's default.
const CPU_PERIOD: f64 = 100_000.0;
const SLURM_CONF: &str = "/etc/slurm/slurm.conf";
const TOPOLOGY_CONF: &str = "/etc/slurm/topology.conf";
/// All machines of the cluster.
const MACHINES: [&str; 7] = ["ctl", "n1", "n2", "n3", "n4", "n5", "n6"];
/// The nodes among them.
pub const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

/// How many clusters there are, each used by one test at a time; one if this variable is not set.
const CLUSTERS: &str = "HOLDFAST_CLUSTERS";

/// A cluster, for one test at a time: a test may break any of its machines.
#[derive(Debug)]
pub struct Cluster {
    program: &'static str,
    containers: &'static Containers,
}

/// The containers of a cluster.
#[derive(Debug)]
struct Containers {
    /// The name and the subnet of the cluster, as read by `docker/cluster`: several can exist.
    name: String,
    subnet: String,
    /// What was made once in this cluster, for all tests.
    made: Mutex<BTreeSet<&'static str>>,
    /// The shared file system as this machine sees it; `None` if it cannot be read here.
    shared: OnceLock<Option<PathBuf>>,
    shells: Shells,
}

/// The clusters that no test uses, and the signal that there is one.
#[derive(Debug)]
struct Pool {
    free: Mutex<Vec<&'static Containers>>,
    returned: Condvar,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// True if there is a Docker engine that this process may use.
pub fn is_engine_reachable() -> bool {
    Command::new("docker").arg("info").output().is_ok_and(|output| output.status.success())
}

impl Pool {
    fn get() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| {
            let clusters = std::env::var(CLUSTERS).ok().and_then(|number| number.parse().ok()).unwrap_or(1);
            let free = (1..=clusters).rev().map(|number| &*Box::leak(Box::new(Containers::number(number)))).collect();
            Pool { free: Mutex::new(free), returned: Condvar::new() }
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<&'static Containers>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a cluster that no test uses.
    fn take(&self) -> &'static Containers {
        let mut free = self.free();
        loop {
            if let Some(containers) = free.pop() {
                return containers;
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, containers: &'static Containers) {
        self.free().push(containers);
        self.returned.notify_one();
    }
}

impl Containers {
    /// The first has the name and the subnet of the environment, the next ones those after them.
    fn number(number: u8) -> Containers {
        let name = std::env::var("HOLDFAST_CLUSTER").unwrap_or_else(|_| "holdfast".to_owned());
        let subnet = std::env::var("HOLDFAST_CLUSTER_SUBNET").unwrap_or_else(|_| "10.213.47".to_owned());
        let (network, part) = subnet.rsplit_once('.').unwrap();
        let part = part.parse::<u8>().unwrap() + (number - 1);
        let name = if number == 1 { name } else { format!("{name}-{number}") };
        let subnet = format!("{network}.{part}");
        Containers { name, subnet, made: Mutex::default(), shared: OnceLock::new(), shells: Shells::default() }
    }

    /// The fixed address of a machine: see `docker/cluster`.
    fn address(&self, machine: &str) -> String {
        let number: u32 = machine.trim_start_matches('n').parse().unwrap_or(0);
        format!("{}.{}", self.subnet, 10 + number)
    }

    fn container(&self, machine: &str) -> String {
        format!("{}-{machine}", self.name)
    }

    /// Makes something that stays in the cluster, unless that was done before.
    fn make_once(&self, what: &'static str, make: impl FnOnce()) {
        if !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(what) {
            make();
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
        }
    }

    fn script(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(root().join("docker/cluster"));
        command.args(arguments).env("HOLDFAST_CLUSTER", &self.name).env("HOLDFAST_CLUSTER_SUBNET", &self.subnet);
        checked(command.stdin(Stdio::null()).output().unwrap())
    }

    fn run_on(&self, machine: &str, user: &str, directory: &str, command: &str, input: &str) -> (String, i32) {
        self.shells.run(&self.container(machine), user, directory, command, input)
    }

    /// Sets the microseconds of processor time that each node gets in a period; `-1`: no limit.
    fn limit_processors(&self, quota: &str) {
        let containers = NODES.map(|node| self.container(node));
        checked(Command::new("docker").args(["update", "--cpu-quota", quota]).args(containers).output().unwrap());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        Pool::get().give_back(self.containers);
    }
}

impl Cluster {
    /// The cluster, healthy, with this build of Holdfast on it. Without a Docker engine the test is ignored.
    ///
    /// # Panics
    /// When there is an engine, and the cluster does not come up.
    pub fn get(program: &'static str) -> Cluster {
        static ENGINE: OnceLock<bool> = OnceLock::new();
        if !ENGINE.get_or_init(is_engine_reachable) {
            ignore(NO_ENGINE);
        }
        let cluster = Cluster { program, containers: Pool::get().take() };
        cluster.make_once("up", || {
            cluster.containers.script(&["up"]);
            cluster.containers.script(&["install", program]);
        });
        cluster.heal();
        cluster
    }

    /// Makes something that stays in the cluster, for all its tests, unless that was done before.
    pub fn make_once(&self, what: &'static str, make: impl FnOnce()) {
        self.containers.make_once(what, make);
    }

    /// Restores the cluster after injected faults.
    pub fn heal(&self) {
        self.containers.script(&["heal"]);
    }

    /// A command of the Docker engine on one of the machines: `kill`, `pause`, `unpause`.
    pub fn docker(&self, verb: &str, machine: &str) {
        self.containers.shells.end(&self.containers.container(machine));
        checked(Command::new("docker").args([verb, &self.containers.container(machine)]).output().unwrap());
    }

    /// Disconnects a machine from the network.
    pub fn cut_off(&self, machine: &str) {
        checked(
            Command::new("docker")
                .args(["network", "disconnect", &self.containers.name, &self.containers.container(machine)])
                .output()
                .unwrap(),
        );
    }

    /// Reconnects a disconnected machine, with its previous address.
    pub fn reconnect(&self, machine: &str) {
        let (address, container) = (self.containers.address(machine), self.containers.container(machine));
        let arguments = ["network", "connect", "--ip", &address, &self.containers.name, &container];
        checked(Command::new("docker").args(arguments).output().unwrap());
    }

    /// Kills Slurm's controller; it is started again when allowed.
    pub fn kill_controller(&self, may_start_again: bool) {
        if !may_start_again {
            self.on("ctl", "chmod -x /usr/sbin/slurmctld");
        }
        self.on("ctl", "pkill -KILL slurmctld");
    }

    /// Allows the controller to start again.
    pub fn let_controller_start(&self) {
        self.on("ctl", "chmod +x /usr/sbin/slurmctld");
    }

    /// Waits until no agent and no application runs on a machine.
    pub fn wait_for_nothing_on(&self, machine: &str) {
        until(&format!("the end of what ran on {machine}"), || {
            let processes = self.on(machine, "ps -eo args");
            !processes.contains("holdfast example") && !processes.contains("holdfast agent")
        });
    }

    /// Copies a file of this machine to a path that all machines of the cluster share: below `/opt/holdfast` or `/pfs`.
    pub fn share(&self, from: &Path, to: &str) {
        let directory = Path::new(to).parent().unwrap().display();
        self.on("ctl", &format!("mkdir -p {directory}"));
        let destination = format!("{}:{to}", self.containers.container("ctl"));
        checked(Command::new("docker").arg("cp").arg(from).arg(destination).output().unwrap());
        self.on("ctl", &format!("chown root: {to} && chmod a+rX {to}"));
    }

    /// Runs a shell command as root on a machine; returns its output.
    pub fn on(&self, machine: &str, command: &str) -> String {
        self.containers.run_on(machine, "root", "/", command, "").0
    }

    /// Runs a user's command in a new directory with these files; returns its output and exit code.
    pub fn as_user(&self, name: &str, files: &[(&str, &str)], command: &str) -> (String, i32) {
        let directory = self.directory(name, files);
        self.containers.run_on("ctl", "user1", &directory, command, "")
    }

    fn directory(&self, name: &str, files: &[(&str, &str)]) -> String {
        let directory = format!("/pfs/{name}");
        self.containers.run_on("ctl", "user1", "/pfs", &format!("rm -rf {directory} && mkdir {directory}"), "");
        for (file, text) in files {
            self.containers.run_on("ctl", "user1", &directory, &format!("cat >{file}"), text);
        }
        directory
    }

    /// Submits a job: a batch script with these options whose work is `run`.
    pub fn submit(&self, name: &str, spec: &str, options: &str, work: &str) -> Job<'_> {
        let batch = format!("#!/bin/bash\n{work}\necho \"exit code $?\"\n");
        let files = [("job.yaml", spec), ("job.sbatch", batch.as_str())];
        self.batch(name, &files, &format!("--output=output --no-kill --ntasks-per-node=1 {options} job.sbatch"))
    }

    /// Submits a batch script of the test with these arguments of `sbatch`, in a directory with these files.
    pub fn batch(&self, name: &str, files: &[(&str, &str)], arguments: &str) -> Job<'_> {
        let directory = self.directory(name, files);
        let (id, code) =
            self.containers.run_on("ctl", "user1", &directory, &format!("sbatch --parsable {arguments}"), "");
        assert_eq!(code, 0, "{id}");
        Job { cluster: self, directory, id: id.trim().to_owned(), steps: STEPS }
    }

    /// Adds a line to the controller's slurm.conf, until the result is dropped.
    pub fn configure(&self, line: &str) -> Configured<'_> {
        self.on("ctl", &format!("cp {SLURM_CONF} {SLURM_CONF}.before && echo {line} >>{SLURM_CONF}"));
        let message = self.on("ctl", "scontrol reconfigure");
        assert_eq!(message, "");
        Configured(self)
    }

    /// Gives Slurm this topology (lines of topology.conf), until the result is dropped. Its controller is restarted.
    /// The nodes get it too: since 23.11, scontrol reads the controller's answer by its own slurm.conf.
    pub fn with_topology(&self, lines: &str) -> Topology<'_> {
        let add_plugin =
            format!("cp {SLURM_CONF} {SLURM_CONF}.before && echo TopologyPlugin=topology/tree >>{SLURM_CONF}");
        for machine in MACHINES {
            self.on(machine, &format!("printf '{lines}' >{TOPOLOGY_CONF}; {add_plugin}"));
        }
        self.restart_controller();
        until("Slurm's topology", || self.on("ctl", "scontrol show topology 2>&1").contains("SwitchName="));
        Topology(self)
    }

    fn restart_controller(&self) {
        let pid = || self.on("ctl", "pidof slurmctld || true");
        let before = pid();
        self.on("ctl", "pkill -TERM slurmctld");
        until("another controller", || !pid().is_empty() && pid() != before);
        until("the controller", || self.on("ctl", "scontrol ping").contains(" UP"));
        until("the nodes", || !self.on("ctl", "sinfo -h -o %T").contains("unk"));
    }

    /// Gives all nodes together this share of the machine's processors, until the result is dropped.
    pub fn slow_down(&self, share: f64) -> Slow<'_> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = share * f64::from(u32::try_from(processors).unwrap_or(u32::MAX));
        self.containers.limit_processors(&format!("{:.0}", all * CPU_PERIOD / NODES.len() as f64));
        Slow(self)
    }

    /// Submits the usual job on six nodes: four ranks and two spares.
    pub fn heat(&self, name: &str, more: &str) -> Job<'_> {
        self.submit(name, &heat(more), "--nodes=6 --time=10", "holdfast run job.yaml")
    }

    /// Starts a job in the background on the controller, without Slurm: `work` in a directory with these files.
    pub fn without_slurm(&self, name: &str, files: &[(&str, &str)], work: &str) -> Job<'_> {
        let directory = self.directory(name, files);
        let command = format!("({work}; echo \"exit code $?\") >output 2>&1 </dev/null &");
        self.containers.run_on("ctl", "user1", &directory, &command, "");
        Job { cluster: self, directory, id: String::new(), steps: STEPS }
    }

    /// A `known_hosts` line for all machines of the cluster. `kind`: `ed25519`, `rsa`, ….
    pub fn known_hosts(&self, kind: &str) -> String {
        let names: Vec<&str> = MACHINES.to_vec();
        format!("{} {}", names.join(","), self.on("ctl", &format!("cat /etc/ssh/ssh_host_{kind}_key.pub")))
    }

    /// The same with more steps, for faults that take longer.
    pub fn long_heat(&self, name: &str, steps: u32, more: &str) -> Job<'_> {
        let spec = heat_of(&["--steps", &steps.to_string()], more);
        let mut job = self.submit(name, &spec, "--nodes=6 --time=10", "holdfast run job.yaml");
        job.steps = steps;
        job
    }

    /// Starts a command in the background on the controller, in an interactive allocation.
    pub fn interactive(&self, name: &str, spec: &str, options: &str) -> Job<'_> {
        let directory = self.directory(name, &[("job.yaml", spec)]);
        let command = format!(
            "(salloc --no-kill --ntasks-per-node=1 {options} sh -c 'echo $SLURM_JOB_ID >id; holdfast run job.yaml'; \
             echo \"exit code $?\") >output 2>&1 </dev/null &"
        );
        self.containers.run_on("ctl", "user1", &directory, &command, "");
        let mut job = Job { cluster: self, directory, id: String::new(), steps: STEPS };
        until("the allocation", || {
            job.id = job.run("cat id 2>/dev/null").trim().to_owned();
            !job.id.is_empty()
        });
        job
    }
}

/// Nodes with a limit of their processors; dropping it removes the limit.
#[derive(Debug)]
pub struct Slow<'a>(&'a Cluster);

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.0.containers.limit_processors("-1");
        self.0.heal();
    }
}

/// A change of Slurm's configuration; dropping it undoes it.
#[derive(Debug)]
pub struct Configured<'a>(&'a Cluster);

impl Drop for Configured<'_> {
    fn drop(&mut self) {
        self.0.on("ctl", &format!("mv {SLURM_CONF}.before {SLURM_CONF} && scontrol reconfigure"));
    }
}

/// A topology of Slurm; dropping it undoes it.
#[derive(Debug)]
pub struct Topology<'a>(&'a Cluster);

impl Drop for Topology<'_> {
    fn drop(&mut self) {
        // Restores the configurations of all machines, also of those that the test has killed.
        self.0.heal();
        self.0.on("ctl", &format!("rm {TOPOLOGY_CONF}"));
        self.0.restart_controller();
    }
}

/// An allocation as Slurm reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub id: u32,
    /// Slurm's name of it: `PENDING`, `RUNNING`, `COMPLETED`, ….
    pub state: String,
    /// Of the batch script.
    pub exit_code: i32,
    /// How often it was requeued.
    pub restarts: u32,
}

impl Allocation {
    /// True if Slurm runs nothing of it any more.
    pub fn has_ended(&self) -> bool {
        !["PENDING", "RUNNING", "COMPLETING"].contains(&&*self.state)
    }

    fn parse(line: &str) -> Option<Allocation> {
        let field = |name: &str| line.split_whitespace().find_map(|item| item.strip_prefix(name));
        Some(Allocation {
            id: field("JobId=")?.parse().ok()?,
            state: field("JobState=")?.to_owned(),
            exit_code: field("ExitCode=")?.split(':').next()?.parse().ok()?,
            restarts: field("Restarts=")?.parse().ok()?,
        })
    }
}

/// A running job; dropping it ends it.
#[derive(Debug)]
pub struct Job<'a> {
    cluster: &'a Cluster,
    directory: String,
    steps: u32,
    /// The job id of Slurm.
    pub id: String,
}

impl Job<'_> {
    /// A command of the user in the job's directory.
    pub fn run(&self, command: &str) -> String {
        self.cluster.containers.run_on("ctl", "user1", &self.directory, command, "").0
    }

    /// Its output so far, in all allocations.
    pub fn output(&self) -> String {
        let Some(directory) = self.on_this_machine() else {
            return self.run("cat output slurm-*.out 2>/dev/null");
        };
        let is_output = |name: &str| name == "output" || name.starts_with("slurm-") && name.ends_with(".out");
        let names = std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok()).filter(|name| is_output(name));
        let names: BTreeSet<String> = names.collect();
        names.iter().map(|name| text(&directory.join(name))).collect()
    }

    /// The job's directory as this machine sees it: reading a file there needs no process in a container, which matters
    /// while tests wait. `None` if the Docker engine is on another machine, or its directories cannot be read.
    fn on_this_machine(&self) -> Option<PathBuf> {
        let find = || {
            let volume = format!("{}-pfs", self.cluster.containers.name);
            let arguments = ["volume", "inspect", "--format", "{{.Mountpoint}}", &volume];
            let output = Command::new("docker").args(arguments).output().ok()?;
            let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
            path.read_dir().is_ok().then_some(path)
        };
        let shared = self.cluster.containers.shared.get_or_init(find).as_ref()?;
        Some(shared.join(Path::new(&self.directory).strip_prefix("/pfs").ok()?)).filter(|directory| directory.is_dir())
    }

    /// Sets the number of steps that its application computes.
    pub fn expecting(mut self, steps: u32) -> Self {
        self.steps = steps;
        self
    }

    /// The last line of the application in a failure-free run.
    pub fn expected(&self) -> String {
        expected_result(self.cluster.program, self.steps)
    }

    /// The allocations that were submitted in the job's directory, from this one on, in their order.
    pub fn allocations(&self) -> Vec<Allocation> {
        let report = self.run("scontrol show jobs -o");
        let own = format!(" WorkDir={} ", self.directory);
        let first = self.id.parse().unwrap_or(0);
        let jobs = report.lines().filter(|line| line.contains(&own)).filter_map(Allocation::parse);
        let mut allocations: Vec<Allocation> = jobs.filter(|job| job.id >= first).collect();
        allocations.sort_by_key(|job| job.id);
        allocations
    }

    /// Waits until Slurm has requeued the job and runs it again. Slurm's own pause of two minutes before that is
    /// shortened, but not to zero: nodes refuse a job that begins in the second in which its earlier run ended.
    pub fn begins_again(&self) {
        let is = |state: &str| self.allocations().first().is_some_and(|job| job.restarts == 1 && job.state == state);
        until("the requeued job", || is("PENDING"));
        self.run(&format!("scontrol update JobId={} StartTime=now+3", self.id));
        until("the second run of the job", || !is("PENDING"));
    }

    /// Waits until its output contains this text.
    pub fn wait_for(&self, text: &str) -> &Self {
        let mut output = String::new();
        until_or(
            || {
                output = self.output();
                output.contains(text)
            },
            || panic!("{text:?} is not in the output of job {}:\n{}", self.id, self.output()),
        );
        self
    }

    /// Waits for its end; returns its output and the exit code of `holdfast run`.
    pub fn finish(&self) -> (String, i32) {
        self.wait_for("exit code ");
        until("the exit code", || self.output().lines().any(|line| line.starts_with("exit code ")));
        let output = self.output();
        let code = output.lines().rev().find_map(|line| line.strip_prefix("exit code ")?.parse().ok());
        (output, code.unwrap())
    }

    /// Waits for its end with this exit code; returns its output.
    #[track_caller]
    pub fn finish_with(&self, expected: i32) -> String {
        let (output, code) = self.finish();
        assert_eq!(code, expected, "{output}");
        output
    }

    /// Waits for the end of the batch script; returns its exit code as reported by Slurm.
    pub fn batch_exit_code(&self) -> i32 {
        let mut code = None;
        until("the end of the batch script", || {
            let job = Allocation::parse(&self.run(&format!("scontrol show job -o {}", self.id)));
            code = job.filter(Allocation::has_ended).map(|job| job.exit_code);
            code.is_some()
        });
        code.unwrap()
    }

    /// Waits for a successful end with the result of a failure-free run.
    #[track_caller]
    pub fn finish_well(&self) -> String {
        let output = self.finish_with(0);
        let expected = self.expected();
        assert!(output.contains(&expected), "{expected} is missing:\n{output}");
        output
    }

    /// Waits until no agent and no application runs on these machines, and checks that no cache and no control
    /// directory of the job is left there.
    pub fn assert_nothing_left_on(&self, machines: &[&str]) {
        // Without Slurm, Holdfast makes the id.
        let own = || self.events()[0]["job_id"].as_str().unwrap().to_owned();
        let id = if self.id.is_empty() { own() } else { self.id.clone() };
        for machine in machines {
            self.cluster.wait_for_nothing_on(machine);
            let left = self.cluster.on(machine, &format!("find /dev/shm /tmp -name scr.{id}"));
            assert_eq!(left, "", "on {machine}");
        }
    }

    /// The events of the event log; none before there is one.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let log = "heat-run/.holdfast/events.jsonl";
        let text = match self.on_this_machine() {
            Some(directory) => text(&directory.join(log)),
            None => self.run(&format!("cat {log} 2>/dev/null")),
        };
        // The last line may be incomplete while the job runs.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if self.id.is_empty() {
            // Slurm does not end processes that were started without it.
            for machine in MACHINES {
                self.cluster.containers.run_on(machine, "root", "/", "pkill -KILL -x holdfast", "");
            }
            return;
        }
        self.cluster.containers.run_on("ctl", "user1", "/pfs", &format!("scancel {} 2>/dev/null", self.id), "");
    }
}

/// A shell command that submits with these arguments of `sbatch` and ends with the job. (`sbatch --wait` polls seldom.)
pub fn submit_and_wait(words: &str) -> String {
    format!(
        "id=$(sbatch --parsable {words}) || exit
until scontrol show job -o $id | grep -qE 'JobState=(COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL)'; do sleep 0.2; done
scontrol show job -o $id | grep -oE ' ExitCode=[0-9]+'"
    )
}

/// The spec of the usual job: four ranks, a checkpoint every ten steps; the other nodes are spares.
pub fn heat(more: &str) -> String {
    heat_of(&["--steps", &STEPS.to_string()], more)
}

/// The same with other arguments of the application.
pub fn heat_of(arguments: &[&str], more: &str) -> String {
    let arguments: String = arguments.iter().map(|argument| format!(", \"{argument}\"")).collect();
    heat_command(&format!("[holdfast, example, heat, --checkpoint-every, \"10\"{arguments}]"), more)
}

/// The same with another command.
pub fn heat_command(command: &str, more: &str) -> String {
    format!(
        "job: heat\nprefix: ./heat-run\nallocation: {{manager: slurm}}\n\
         run:\n  nodes: 4\n  ranks_per_node: 1\n  command: {command}\n\
         {more}\n"
    )
}

/// The last line of the application in a failure-free run.
fn expected_result(program: &str, steps: u32) -> String {
    static RESULTS: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
    let compute = || {
        let steps = steps.to_string();
        let arguments = ["example", "heat", "--steps", &steps, "--step-delay", "0", "--never-checkpoint"];
        let output = Command::new(program).args(arguments).env("SCR_ENABLE", "0").output();
        let output = checked(output.unwrap());
        output.lines().find(|line| line.contains("checksum")).unwrap().to_owned()
    };
    RESULTS.lock().unwrap_or_else(PoisonError::into_inner).entry(steps).or_insert_with(compute).clone()
}

/// The text of a file; empty if there is none.
fn text(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Checks that a text contains all of these.
///
/// # Panics
/// When one is missing.
#[track_caller]
pub fn assert_contains(text: &str, parts: &[&str]) {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} is not in:\n{text}");
}

/// Waits until the condition is true.
pub fn until(what: &str, is_true: impl FnMut() -> bool) {
    until_or(is_true, || panic!("{what}: not within {PATIENCE:?}"));
}

fn until_or(mut is_true: impl FnMut() -> bool, otherwise: impl FnOnce()) {
    let begun = Instant::now();
    while !is_true() {
        if begun.elapsed() > PATIENCE {
            return otherwise();
        }
        sleep(LOOK_EVERY);
    }
}

fn checked(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
