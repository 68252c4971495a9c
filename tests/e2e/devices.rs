//! Two devices and the machine of an orchestrator as network namespaces, joined by a switch. Devices are killed and
//! started, and each of the three links is cut and healed on its own. This requires root, and no containers.
//!
//! Each device has its own process ids, host name and node-local directories; all other directories are shared. Its
//! first process is an ssh server. Nothing is added to the network of this machine: what is left of a test ends with
//! its processes, and these end with the test, however that ends.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use holdfast_testkit::harness::ignore;
use rustix::process::Signal;

use crate::world::{World, signal};

/// The addresses of the devices.
pub const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const ORCHESTRATOR: &str = "192.0.2.3";
/// The port of the orchestrator; those of the devices have their numbers.
const ORCHESTRATOR_PORT: usize = 2;
const PORTS: usize = 3;
const TOOLS: [&str; 9] = ["hostname", "ip", "mount", "nsenter", "setpriv", "sleep", "ssh-keygen", "sshd", "unshare"];
/// A socket that listens on port 22, as a line of `/proc/net/tcp` has it.
const SSH_LISTENS: &str = "00000000:0016 00000000:0000 0A";

/// A connection between two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Between the devices.
    Devices,
    /// Between the orchestrator and a device.
    Orchestrator(usize),
}

impl Link {
    pub const ALL: [Link; 3] = [Link::Devices, Link::Orchestrator(0), Link::Orchestrator(1)];

    fn ports(self) -> [usize; 2] {
        match self {
            Link::Devices => [0, 1],
            Link::Orchestrator(device) => [device, ORCHESTRATOR_PORT],
        }
    }
}

/// A process in a namespace of its own; `pid` is one that is in it.
struct Namespace {
    child: Child,
    pid: u32,
}

impl Namespace {
    /// One that has only a network.
    fn of_network(world: &World) -> Namespace {
        let mut command = unshare(world);
        command.args(["--net", "sleep", "infinity"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let namespace = Namespace { pid: child.id(), child };
        let name = || fs::read_to_string(format!("/proc/{}/comm", namespace.pid)).unwrap_or_default();
        world.wait("a network namespace", || (name() == "sleep\n").then_some(()));
        namespace
    }

    /// Runs a program in its network.
    fn command(&self, world: &World, program: &str) -> Command {
        let mut command = with_paths(world.command("nsenter"));
        command.arg(format!("--net=/proc/{}/ns/net", self.pid)).arg(program);
        command
    }

    /// Runs lines of `ip` in its network.
    #[track_caller]
    fn ip(&self, world: &World, lines: &[String]) {
        let mut command = self.command(world, "ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{lines:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn listens(&self, socket: &str) -> bool {
        fs::read_to_string(format!("/proc/{}/net/tcp", self.pid)).is_ok_and(|text| text.contains(socket))
    }
}

impl Drop for Namespace {
    /// When the first process of a namespace of process ids is killed, `unshare` ends after all others have ended.
    fn drop(&mut self) {
        signal(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The machines. All processes end when this is dropped.
pub struct Machines<'a> {
    world: &'a World,
    devices: [Option<Namespace>; 2],
    orchestrator: Namespace,
    switch: Namespace,
    cut: BTreeSet<Link>,
}

/// Programs of system administrators are not in the path of every root.
fn with_paths(mut command: Command) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// `unshare`, which ends with the thread that starts it.
fn unshare(world: &World) -> Command {
    let mut command = with_paths(world.command("setpriv"));
    command.args(["--pdeathsig", "KILL", "unshare"]);
    command
}

/// Why there can be no such machines here.
fn obstacle() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root".to_owned());
        }
        let mut missing = with_paths(Command::new("sh"));
        missing.args(["-c", r#"for tool; do command -v "$tool" >/dev/null || echo "$tool"; done"#, "sh"]).args(TOOLS);
        let missing = String::from_utf8(missing.output().unwrap().stdout).unwrap();
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.lines().collect();
            return Some(format!("not installed: {} (iproute2, openssh-server, util-linux)", missing.join(", ")));
        }
        let mut attempt = with_paths(Command::new("unshare"));
        attempt.args(["--net", "--mount", "--pid", "--uts", "--fork", "sh", "-c"]);
        attempt.arg("mount -t tmpfs tmpfs /tmp && ip link add name switch type bridge && ip link add type veth");
        let output = attempt.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        (!output.status.success()).then(|| format!("network namespaces are not permitted here: {}", errors.trim()))
    };
    FOUND.get_or_init(find).as_deref()
}

fn address_of(port: usize) -> &'static str {
    ADDRESSES.get(port).copied().unwrap_or(ORCHESTRATOR)
}

/// The ports of the switch, so that exactly these links are cut: isolated ports do not reach each other.
fn wiring(cut: &BTreeSet<Link>) -> Vec<String> {
    let state = |port: usize| {
        let cuts = cut.iter().filter(|link| link.ports().contains(&port)).count();
        let is_isolated = cuts == 1 && cut.len() == 1;
        (port, cuts == 2, is_isolated)
    };
    let ports: Vec<_> = (0..PORTS).map(state).collect();
    let set = |what: &dyn Fn(bool, bool) -> Option<&'static str>| -> Vec<String> {
        let lines = ports.iter().filter_map(|(port, down, isolated)| Some((port, what(*down, *isolated)?)));
        lines.map(|(port, words)| format!("link set dev port{port} {words}")).collect()
    };
    // In this order, no link is healed for a moment.
    let mut lines = set(&|down, _| down.then_some("down"));
    lines.extend(set(&|_, isolated| isolated.then_some("type bridge_slave isolated on")));
    lines.extend(set(&|_, isolated| (!isolated).then_some("type bridge_slave isolated off")));
    lines.extend(set(&|down, _| (!down).then_some("up")));
    lines
}

impl<'a> Machines<'a> {
    /// All machines, connected. Without root or tools the test is ignored.
    pub fn new(world: &'a World) -> Self {
        if let Some(obstacle) = obstacle() {
            ignore(obstacle);
        }
        for key in ["host_key", "key"] {
            let mut command = with_paths(world.command("ssh-keygen"));
            command.args(["-q", "-t", "ed25519", "-N", "", "-f", key]);
            assert!(command.status().unwrap().success());
        }
        let host_key = fs::read_to_string(world.path("host_key.pub")).unwrap();
        world.write("known_hosts", &format!("{} {host_key}", ADDRESSES.join(",")));
        world.write("shadow", "root:*:19000:0:99999:7:::\n");
        world.write(
            "sshd_config",
            &format!(
                "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n\
                 PidFile none\nMaxStartups 100\nUseDNS no\n",
                world.path("host_key").display(),
                world.path("key.pub").display()
            ),
        );
        let (switch, orchestrator) = (Namespace::of_network(world), Namespace::of_network(world));
        switch.ip(world, &["link add name switch type bridge".to_owned(), "link set dev switch up".to_owned()]);
        let mut machines = Machines { world, devices: [None, None], orchestrator, switch, cut: BTreeSet::new() };
        machines.connect(ORCHESTRATOR_PORT, &machines.orchestrator);
        (0..2).for_each(|device| machines.start(device));
        machines
    }

    /// The keys of `allocation` for these devices.
    pub fn allocation(&self) -> String {
        let path = |name| self.world.path(name).display().to_string();
        format!(
            "manager: ssh, hosts: [{}], ssh: {{user: root, identity: {}, known_hosts: {}, connect_timeout: 5s}}",
            ADDRESSES.join(", "),
            path("key"),
            path("known_hosts")
        )
    }

    /// A program on the machine of the orchestrator.
    pub fn command(&self, program: &str) -> Command {
        self.orchestrator.command(self.world, program)
    }

    /// Plugs a machine into its port of the switch.
    fn connect(&self, port: usize, machine: &Namespace) {
        let words = format!("netns {} address 02:00:00:00:00:0{}", machine.pid, port + 1);
        let switch = |lines: &[String]| self.switch.ip(self.world, lines);
        switch(&[format!("link add name port{port} type veth peer name eth0 {words}")]);
        switch(&[format!("link set dev port{port} master switch")]);
        let address = address_of(port);
        let lines = ["link set dev lo up", &format!("addr add {address}/24 dev eth0"), "link set dev eth0 up"];
        machine.ip(self.world, &lines.map(str::to_owned));
    }

    /// Starts a device that does not run.
    pub fn start(&mut self, device: usize) {
        let (world, name) = (self.world, format!("device{device}"));
        let id = world.path(&format!("{name}.pid"));
        let _ = fs::remove_file(&id);
        // The kernel removes the network of a killed device some time later.
        let port = format!("port{device}");
        let remove = self.switch.command(world, "ip").args(["link", "del", "dev", &port]).output();
        drop(remove.unwrap());
        let mut command = unshare(world);
        command.args(["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "sh"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/e2e/device.sh"));
        command.arg(&name).args(self.shared());
        let log = fs::OpenOptions::new().create(true).append(true).open(world.path(&format!("{name}.log"))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut namespace = Namespace { pid: child.id(), child };
        namespace.pid = world.wait("a device", || {
            let ended = namespace.child.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended: {}", self.log(device));
            fs::read_to_string(&id).ok()?.trim().parse().ok()
        });
        self.connect(device, &namespace);
        world.wait("an ssh server", || namespace.listens(SSH_LISTENS).then_some(()));
        self.devices[device] = Some(namespace);
        self.wire();
    }

    /// Kills all processes of a device.
    pub fn kill(&mut self, device: usize) {
        drop(self.devices[device].take().unwrap());
    }

    pub fn is_up(&self, device: usize) -> bool {
        self.devices[device].is_some()
    }

    pub fn cut(&mut self, link: Link) {
        assert!(self.cut.insert(link));
        self.wire();
    }

    pub fn heal(&mut self, link: Link) {
        assert!(self.cut.remove(&link));
        self.wire();
    }

    pub fn is_cut(&self, link: Link) -> bool {
        self.cut.contains(&link)
    }

    /// Makes the ports of the switch those of the links that are cut.
    fn wire(&self) {
        let is_there = |line: &String| {
            let is_port = |device: usize| line.contains(&format!("port{device} "));
            (0..2).all(|device| self.is_up(device) || !is_port(device))
        };
        let lines: Vec<String> = wiring(&self.cut).into_iter().filter(is_there).collect();
        self.switch.ip(self.world, &lines);
    }

    /// The processes of a device, by their numbers on this machine, with their command lines.
    pub fn processes(&self, device: usize) -> Vec<(u32, String)> {
        let Some(device) = &self.devices[device] else { return Vec::new() };
        let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = space(device.pid);
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let own = all.filter(|pid| own.is_some() && space(*pid) == own);
        let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        own.map(|pid| (pid, String::from_utf8_lossy(&line(pid)).replace('\0', " "))).collect()
    }

    /// A path of a device, as this machine sees it.
    pub fn path(&self, device: usize, path: &Path) -> PathBuf {
        let pid = self.devices[device].as_ref().unwrap().pid;
        Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap())
    }

    /// The directories that are also there if a node-local one hides them.
    pub fn shared(&self) -> [PathBuf; 2] {
        let program = Path::new(env!("CARGO_BIN_EXE_holdfast"));
        [self.world.path(""), program.parent().unwrap().to_owned()]
    }

    /// What the ssh server of a device reported.
    pub fn log(&self, device: usize) -> String {
        fs::read_to_string(self.world.path(&format!("device{device}.log"))).unwrap_or_default()
    }
}

#[test]
fn each_link_is_cut_on_its_own_and_a_killed_device_takes_its_processes_with_it(world: &World) {
    let mut machines = Machines::new(world);
    // A connection to the ssh server of a device, from the orchestrator or from the other device.
    let reaches = |machines: &Machines<'_>, link: Link| {
        let (from, to) = match link {
            Link::Devices => (machines.devices[0].as_ref().unwrap(), 1),
            Link::Orchestrator(device) => (&machines.orchestrator, device),
        };
        let script = format!("exec 3<>/dev/tcp/{}/22 && read -r line <&3 && echo \"$line\"", ADDRESSES[to]);
        let mut command = from.command(world, "timeout");
        let output = command.args(["2", "bash", "-c", &script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).starts_with("SSH-")
    };
    let assert_cut = |machines: &Machines<'_>, cut: &[Link]| {
        for link in Link::ALL {
            if cut.contains(&link) {
                assert!(!reaches(machines, link), "{link:?} of {cut:?} is not cut");
            } else {
                let what = format!("{link:?} while {cut:?} are cut");
                world.wait(&what, || reaches(machines, link).then_some(()));
            }
        }
    };
    assert_cut(&machines, &[]);
    for first in Link::ALL {
        machines.cut(first);
        assert_cut(&machines, &[first]);
        let second = Link::ALL.into_iter().find(|link| *link != first).unwrap();
        machines.cut(second);
        assert_cut(&machines, &[first, second]);
        machines.heal(first);
        assert_cut(&machines, &[second]);
        machines.heal(second);
    }
    Link::ALL.into_iter().for_each(|link| machines.cut(link));
    assert_cut(&machines, &Link::ALL);
    Link::ALL.into_iter().for_each(|link| machines.heal(link));
    let file = Path::new("/dev/shm/only-of-device0");
    fs::write(machines.path(0, file), "").unwrap();
    assert!(!machines.path(1, file).exists() && !file.exists());
    let first = machines.processes(0);
    assert!(first.iter().all(|(_, line)| line.contains("sshd")) && !first.is_empty(), "{first:?}");
    machines.kill(0);
    assert!(first.iter().all(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists()), "{first:?}");
    machines.start(0);
    assert!(!machines.path(0, file).exists(), "memory is lost");
    assert_cut(&machines, &[]);
}
