//! Three machines with sshd in them, and Ansible on this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_testkit::cluster::{self, NO_ENGINE};
use holdfast_testkit::harness::ignore;
use tempfile::TempDir;

pub const IMAGE: &str = "holdfast/cluster";
const COUNT: usize = 3;

/// How many machines there were before, in this process: each test has its own.
static BEFORE: AtomicU32 = AtomicU32::new(0);

/// The machines; removed when dropped.
pub struct Machines {
    directory: TempDir,
    ansible: PathBuf,
    /// Names of the containers.
    containers: Vec<String>,
    volume: String,
}

/// The result of a playbook.
pub struct Played {
    pub output: String,
    pub success: bool,
    /// Sum over all nodes.
    pub changed: u32,
}

impl Played {
    /// Requires that the playbook succeeded.
    pub fn well(self) -> Played {
        assert!(self.success, "{}", self.output);
        self
    }

    pub fn changes_nothing(self) {
        assert_eq!(self.well().changed, 0);
    }
}

impl Machines {
    /// Starts them. If that is not possible, the test is ignored.
    pub fn get() -> Machines {
        let Some(ansible) = ansible() else {
            ignore("there is no ansible-playbook (Debian's ansible-core has it)");
        };
        if !cluster::is_engine_reachable() {
            ignore(NO_ENGINE);
        }
        checked(Command::new(root().join("docker/cluster")).arg("image"));
        let directory = tempfile::tempdir().unwrap();
        // The names contain the process id, so that they belong to this process only.
        let unique = format!("holdfast-playbooks-{}-{}", std::process::id(), BEFORE.fetch_add(1, Ordering::Relaxed));
        let mut machines = Machines { directory, ansible, containers: Vec::new(), volume: unique.clone() };
        checked(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(machines.path("key")));
        let pfs = format!("{unique}:/pfs");
        for number in 0..COUNT {
            let name = format!("{unique}-{number}");
            let hostname = format!("node{number}");
            let mut run = Command::new("docker");
            run.args(["run", "--detach", "--init", "--name", &name, "--hostname", &hostname, "--volume", &pfs]);
            checked(run.args(["--entrypoint", "/usr/sbin/sshd", IMAGE, "-D", "-e"]));
            machines.containers.push(name);
            // The image has a link where the program is to be installed, for the cluster's own tests.
            machines.on(number, "rm -f /usr/local/bin/holdfast && install -d -m 700 /root/.ssh && chown user1: /pfs");
            machines.copy_to(number, &machines.path("key.pub"), "/root/.ssh/authorized_keys");
            machines.on(number, "chown root: /root/.ssh/authorized_keys");
        }
        machines.write_inventory();
        gather_artifacts(&machines.path("artifacts"));
        machines
    }

    /// A path in the test's own directory on this machine.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The machines, and one that is unreachable: `node3` of the group `lost`.
    fn write_inventory(&self) {
        let (mut hosts, mut known) = (String::new(), String::new());
        for (number, name) in self.containers.iter().enumerate() {
            let address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
            let address = checked(Command::new("docker").args(["inspect", "--format", address, name]));
            hosts.push_str(&format!("    node{number}: {{ansible_host: {}}}\n", address.trim()));
            let key = self.on(number, "cat /etc/ssh/ssh_host_ed25519_key.pub");
            known.push_str(&format!("{} {}\n", address.trim(), key.trim()));
        }
        fs::write(self.path("known_hosts"), known).unwrap();
        let inventory = format!(
            "nodes:\n  hosts:\n{hosts}lost:\n  hosts:\n    node3: {{ansible_host: 127.0.0.1, ansible_port: 1}}\n\
             all:\n  vars:\n    ansible_user: root\n    ansible_ssh_private_key_file: {}\n    \
             ansible_ssh_common_args: -o UserKnownHostsFile={}\n",
            self.path("key").display(),
            self.path("known_hosts").display()
        );
        fs::write(self.path("inventory.yaml"), inventory).unwrap();
    }

    /// Runs a playbook with these variables.
    pub fn play(&self, playbook: &str, variables: &serde_json::Value) -> Played {
        self.play_with(playbook, variables, &[])
    }

    pub fn play_with(&self, playbook: &str, variables: &serde_json::Value, arguments: &[&str]) -> Played {
        let mut all = variables.clone();
        all["holdfast_artifacts"] = self.path("artifacts").to_str().unwrap().into();
        // Playbooks of a collection are named by it, from any directory.
        let directory = if playbook.ends_with(".yaml") { root().join("playbooks") } else { self.path("") };
        let mut command = self.ansible("ansible-playbook");
        command.current_dir(directory).arg("-i").arg(self.path("inventory.yaml"));
        command.arg("-e").arg(all.to_string()).args(arguments).arg(playbook);
        let played = command.output().unwrap();
        let output = text(&played);
        Played { success: played.status.success(), changed: changes(&output), output }
    }

    /// One of Ansible's programs, or a shell that finds them, with files in the test's own directory.
    pub fn ansible(&self, program: &str) -> Command {
        let beside = self.ansible.with_file_name(program);
        let mut command =
            Command::new(if program.starts_with("ansible-") { beside.as_path() } else { program.as_ref() });
        command.env("ANSIBLE_NOCOLOR", "1").env("ANSIBLE_LOCAL_TEMP", self.path("ansible")).env("LC_ALL", "C.UTF-8");
        command.env("ANSIBLE_HOME", self.path("ansible-home"));
        command.env("ANSIBLE_COLLECTIONS_PATH", self.path("collections")).stdin(Stdio::null());
        command
    }

    /// The output of `ansible-galaxy` with these arguments.
    pub fn galaxy(&self, arguments: &[&str]) -> String {
        checked(self.ansible("ansible-galaxy").current_dir(self.path("")).args(arguments))
    }

    /// The files of this build as an unpacked release.
    pub fn release(&self) -> PathBuf {
        let mut stage = Command::new(root().join("packaging/stage"));
        checked(stage.arg(self.path("artifacts")).arg(self.path("unpacked")).arg("/holdfast"));
        self.path("unpacked/holdfast")
    }

    /// The output of a command that runs as root on one of the machines.
    pub fn on(&self, machine: usize, command: &str) -> String {
        checked(Command::new("docker").args(["exec", &self.containers[machine], "sh", "-c", command]))
    }

    /// Whether a command succeeds there.
    pub fn holds(&self, machine: usize, command: &str) -> bool {
        let mut docker = Command::new("docker");
        docker.args(["exec", &self.containers[machine], "sh", "-c", command]).output().unwrap().status.success()
    }

    pub fn copy_to(&self, machine: usize, from: &Path, to: &str) {
        let destination = format!("{}:{to}", self.containers[machine]);
        checked(Command::new("docker").arg("cp").arg(from).arg(destination));
    }

    /// All files, except those that the system and Ansible maintain.
    pub fn files(&self, machine: usize) -> String {
        let places = "/etc /usr /opt /var/lib /root /home";
        self.on(
            machine,
            &format!(
                "find {places} -not -name '*.pyc' -not -name __pycache__ -printf '%p %y %s\\n' | \
        grep -v -e ld.so.cache -e ldconfig/aux-cache -e /.ansible -e '^/root d' -e '^/etc d' | sort"
            ),
        )
    }
}

/// The files of this build in a new directory, as after `cargo build --release`.
pub fn gather_artifacts(artifacts: &Path) {
    fs::create_dir(artifacts).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_holdfast"));
    // A library that is built for a test is in the directory of the test's executable.
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let installed = ["libscr", "libholdfast_variables", "libfti", "libsion", "libholdfast_pairs"];
    let files = installed.iter().flat_map(|name| [format!("{name}.so"), format!("{name}.a")]);
    let files = files.chain(["libscr_interpose.so".to_owned()]).map(|name| libraries.join(name));
    for file in files.chain([program.to_owned()]) {
        let copy = artifacts.join(file.file_name().unwrap());
        fs::copy(&file, &copy).unwrap();
        // Debug information is most of a debug build, and would be copied to every machine.
        let _ = Command::new("strip").arg("--strip-debug").arg(copy).stderr(Stdio::null()).status();
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rm", "--force"]).args(&self.containers).output();
        let _ = Command::new("docker").args(["volume", "rm", &self.volume]).output();
    }
}

fn ansible() -> Option<PathBuf> {
    let named = std::env::var_os("HOLDFAST_ANSIBLE").map(PathBuf::from);
    let program = named.unwrap_or_else(|| PathBuf::from("ansible-playbook"));
    let answers = Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success());
    answers.then_some(program)
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The sum of `changed=N` of the recapitulation.
fn changes(output: &str) -> u32 {
    let recap = output.split("PLAY RECAP").nth(1).unwrap_or_default();
    recap.split_whitespace().filter_map(|item| item.strip_prefix("changed=")?.parse::<u32>().ok()).sum()
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn checked(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
