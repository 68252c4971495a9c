//! The cluster and the jobs on it, for tests that read as sentences.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing that a test waits for takes as long, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const STEPS: &str = "120";

/// The cluster, for one test at a time: a test may break any of its machines.
#[derive(Debug)]
pub struct Cluster {
    program: &'static str,
    _alone: MutexGuard<'static, ()>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn script(arguments: &[&str]) -> Output {
    Command::new(root().join("docker/cluster")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Says something that the test harness does not swallow.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Cluster {
    /// The cluster, healthy, with this build of Holdfast on it; `None` if there is no Docker engine.
    ///
    /// # Panics
    /// When there is an engine, and the cluster does not come up; or there must be one.
    pub fn get(program: &'static str) -> Option<Cluster> {
        static ALONE: Mutex<()> = Mutex::new(());
        static UP: OnceLock<bool> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_up = *UP.get_or_init(|| {
            let reachable = Command::new("docker").arg("info").output().is_ok_and(|output| output.status.success());
            if !reachable {
                assert!(std::env::var_os("HOLDFAST_REQUIRE_CLUSTER").is_none(), "no Docker engine can be reached");
                say("cluster tests SKIPPED: no Docker engine can be reached (`docker/engine` as root installs and starts one)");
                return false;
            }
            checked(script(&["up"]));
            checked(script(&["install", program]));
            true
        });
        if !is_up {
            return None;
        }
        let cluster = Cluster { program, _alone: alone };
        cluster.heal();
        Some(cluster)
    }

    /// Brings back what was broken.
    pub fn heal(&self) {
        checked(script(&["heal"]));
    }

    /// A command of the Docker engine on one of the machines: `kill`, `pause`, `unpause`.
    pub fn docker(&self, verb: &str, machine: &str) {
        checked(Command::new("docker").args([verb, &container(machine)]).output().unwrap());
    }

    /// Cuts a machine off from the network, or connects it again.
    pub fn cut_off(&self, machine: &str) {
        checked(Command::new("docker").args(["network", "disconnect", name(), &container(machine)]).output().unwrap());
    }

    /// Copies a file of this machine to where all machines of the cluster see it: below `/opt/holdfast` or `/pfs`.
    pub fn share(&self, from: &Path, to: &str) {
        let directory = Path::new(to).parent().unwrap().display();
        self.on("ctl", &format!("mkdir -p {directory}"));
        let destination = format!("{}:{to}", container("ctl"));
        checked(Command::new("docker").arg("cp").arg(from).arg(destination).output().unwrap());
        self.on("ctl", &format!("chown root: {to} && chmod a+rX {to}"));
    }

    /// Runs a shell command as root on a machine; what it prints.
    pub fn on(&self, machine: &str, command: &str) -> String {
        run_on(machine, "root", "/", command, "").0
    }

    /// What a user's command in an empty directory prints, and its exit code.
    pub fn as_user(&self, name: &str, files: &[(&str, &str)], command: &str) -> (String, i32) {
        let directory = self.directory(name, files);
        run_on("ctl", "user1", &directory, command, "")
    }

    fn directory(&self, name: &str, files: &[(&str, &str)]) -> String {
        let directory = format!("/pfs/{name}");
        run_on("ctl", "user1", "/pfs", &format!("rm -rf {directory} && mkdir {directory}"), "");
        for (file, text) in files {
            run_on("ctl", "user1", &directory, &format!("cat >{file}"), text);
        }
        directory
    }

    /// Submits a job: a batch script with these options whose work is `run`.
    pub fn submit(&self, name: &str, spec: &str, options: &str, work: &str) -> Job<'_> {
        let batch = format!("#!/bin/bash\n{work}\necho \"exit code $?\"\n");
        let directory = self.directory(name, &[("job.yaml", spec), ("job.sbatch", &batch)]);
        let command = format!("sbatch --parsable --output=output --no-kill --ntasks-per-node=1 {options} job.sbatch");
        let (id, code) = run_on("ctl", "user1", &directory, &command, "");
        assert_eq!(code, 0, "{id}");
        Job { cluster: self, directory, id: id.trim().to_owned() }
    }

    /// Submits the usual job on six nodes: four ranks and two spares.
    pub fn heat(&self, name: &str, more: &str) -> Job<'_> {
        self.submit(name, &heat(more), "--nodes=6 --time=10", "holdfast run job.yaml")
    }

    /// Starts a command in the background on the controller, in an interactive allocation.
    pub fn interactive(&self, name: &str, spec: &str, options: &str) -> Job<'_> {
        let directory = self.directory(name, &[("job.yaml", spec)]);
        let command = format!(
            "(salloc --no-kill --ntasks-per-node=1 {options} sh -c 'echo $SLURM_JOB_ID >id; holdfast run job.yaml'; \
             echo \"exit code $?\") >output 2>&1 </dev/null &"
        );
        run_on("ctl", "user1", &directory, &command, "");
        let mut job = Job { cluster: self, directory, id: String::new() };
        until("the allocation", || {
            job.id = job.run("cat id 2>/dev/null").trim().to_owned();
            !job.id.is_empty()
        });
        job
    }
}

/// A job under way; dropping it ends it.
#[derive(Debug)]
pub struct Job<'a> {
    cluster: &'a Cluster,
    directory: String,
    /// Slurm's number.
    pub id: String,
}

impl Job<'_> {
    /// A command of the user in the job's directory.
    pub fn run(&self, command: &str) -> String {
        run_on("ctl", "user1", &self.directory, command, "").0
    }

    /// All that it has printed so far.
    pub fn output(&self) -> String {
        self.run("cat output 2>/dev/null")
    }

    /// Waits until it has printed this.
    pub fn wait_for(&self, text: &str) -> &Self {
        let mut output = String::new();
        until_or(
            || {
                output = self.output();
                output.contains(text)
            },
            || panic!("{text:?} did not come; job {} said:\n{}", self.id, self.output()),
        );
        self
    }

    /// Waits for its end: what it printed, and the exit code of `holdfast run`.
    pub fn finish(&self) -> (String, i32) {
        self.wait_for("exit code ");
        until("the exit code", || self.output().lines().any(|line| line.starts_with("exit code ")));
        let output = self.output();
        let code = output.lines().rev().find_map(|line| line.strip_prefix("exit code ")?.parse().ok());
        (output, code.unwrap())
    }

    /// Waits for a good end with the result that an undisturbed run has.
    pub fn finish_well(&self) -> String {
        let (output, code) = self.finish();
        assert_eq!(code, 0, "{output}");
        let expected = expected_result(self.cluster.program);
        assert!(output.contains(&expected), "{expected} is missing:\n{output}");
        output
    }

    /// The event log, one JSON object a line.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let text = self.run("cat heat-run/.holdfast/events.jsonl");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        run_on("ctl", "user1", "/pfs", &format!("scancel {} 2>/dev/null", self.id), "");
    }
}

/// The spec of the usual job: four ranks, a checkpoint every ten steps, whatever nodes are more are spares.
pub fn heat(more: &str) -> String {
    heat_of(&["--steps", STEPS], more)
}

/// The same with other arguments of the application.
pub fn heat_of(arguments: &[&str], more: &str) -> String {
    let arguments: String = arguments.iter().map(|argument| format!(", \"{argument}\"")).collect();
    format!(
        "job: heat\nprefix: ./heat-run\nallocation: {{manager: slurm}}\n\
         run:\n  nodes: 4\n  ranks_per_node: 1\n  command: [holdfast, example, heat, --checkpoint-every, \"10\"{arguments}]\n\
         {more}\n"
    )
}

/// The last line of the application in an undisturbed run.
fn expected_result(program: &str) -> String {
    static RESULT: OnceLock<String> = OnceLock::new();
    let compute = || {
        let arguments = ["example", "heat", "--steps", STEPS, "--step-delay", "0", "--never-checkpoint"];
        let output = Command::new(program).args(arguments).env("SCR_ENABLE", "0").output();
        let output = checked(output.unwrap());
        output.lines().find(|line| line.contains("checksum")).unwrap().to_owned()
    };
    RESULT.get_or_init(compute).clone()
}

/// Waits until something is true.
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

/// The name of the cluster, as `docker/cluster` reads it: several can stand side by side.
fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| std::env::var("HOLDFAST_CLUSTER").unwrap_or_else(|_| "holdfast".to_owned()))
}

fn container(machine: &str) -> String {
    format!("{}-{machine}", name())
}

fn run_on(machine: &str, user: &str, directory: &str, command: &str, input: &str) -> (String, i32) {
    let arguments = ["exec", "-i", "--user", user, "--workdir", directory, &container(machine), "bash", "-c", command];
    let mut child = Command::new("docker")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap_or(-1))
}

fn checked(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
