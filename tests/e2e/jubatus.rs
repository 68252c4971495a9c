//! Jobs whose ranks are Jubatus servers: their models survive the loss of nodes and a halt, and a server that
//! misbehaves loses a checkpoint, not the job.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_testkit::harness::ignore;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::jubatus_server::{Item, call, install};
use crate::pfs;
use crate::world::{Ran, Running, World, is_secured, signal};

const CONFIG: &str = "{\n  \"window_size\": 128\n}\n";

/// A job of three servers.
pub(crate) struct Servers<'a> {
    world: &'a World,
    /// A loopback address of its own, so that ports are free.
    address: String,
    program: PathBuf,
    nodes: u32,
    /// Keys of `checkpoint.jubatus`.
    jubatus: String,
    ports: [u16; 3],
    /// Checkpoints between two flushes.
    flush: u32,
}

impl<'a> Servers<'a> {
    pub(crate) fn new(world: &'a World, nodes: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.{}.{high}.{low}", 16 + NEXT.fetch_add(1, Ordering::Relaxed));
        world.write("stat.json", CONFIG);
        let jubatus = format!("{{type: stat, host: {address}, every: 200ms}}");
        Servers { world, address, program: install(world), nodes, jubatus, ports: [9199, 9200, 9201], flush: 0 }
    }

    /// Other keys of `checkpoint.jubatus` than type, host and a short interval.
    pub(crate) fn with(mut self, keys: &str) -> Self {
        self.jubatus = format!("{{type: stat, host: {}, {keys}}}", self.address);
        self
    }

    fn yaml(&self) -> String {
        format!(
            "job: statistics\nprefix: {prefix:?}\nallocation: {{manager: local, nodes: {nodes}}}\n\
             run:\n  nodes: 3\n  command: [{program:?}, --listen_addr, {address}, --rpc-port, $HOLDFAST_JUBATUS_PORT, \
             --datadir, $HOLDFAST_JUBATUS_DATA_DIR, --configpath, {config:?}, --fault-file, \
             {faults:?}]\n\
             checkpoint:\n  source: jubatus\n  redundancy: [{{scheme: xor, set_size: 3}}]\n  \
             flush: {{every: {flush}}}\n  jubatus: {jubatus}\nhealth: {{down_after: 10s}}\nhalt: {{grace: 30s}}\n",
            prefix = self.world.prefix(),
            nodes = self.nodes,
            program = self.program,
            address = self.address,
            config = self.world.path("stat.json"),
            faults = self.world.path("fault.$HOLDFAST_RANK"),
            jubatus = self.jubatus,
            flush = self.flush,
        )
    }

    pub(crate) fn start(&self) -> Running<'a> {
        self.world.start_spec(&self.yaml())
    }

    fn port(&self, rank: u16) -> u16 {
        self.ports[usize::from(rank)]
    }

    /// Adds a value to the model of a rank's server.
    fn push(&self, rank: u16, value: f64) {
        let parameters = vec![Item::raw(""), Item::raw("x"), Item::Real(value)];
        let pushed = self.world.wait("the server", || call(&self.address, self.port(rank), "push", parameters.clone()));
        assert_eq!(pushed, Item::Yes(true));
    }

    /// The sum of the values in the model of a rank's server, when it answers.
    fn sum(&self, rank: u16) -> Option<f64> {
        match call(&self.address, self.port(rank), "sum", vec![Item::raw(""), Item::raw("x")])? {
            Item::Real(sum) => Some(sum),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the servers have these sums.
    #[track_caller]
    fn have(&self, sums: [f64; 3]) {
        for (rank, expected) in (0..).zip(sums) {
            let sum = || self.sum(rank).filter(|sum| *sum == expected);
            self.world.wait(&format!("{expected} in the server of rank {rank}"), sum);
        }
    }

    fn order(&self, rank: u16, fault: &str) {
        fs::write(self.world.path(&format!("fault.{rank}")), fault).unwrap();
    }

    fn halt(&self) {
        let spec = self.world.path("job.yaml");
        let halt = self.world.holdfast(["halt".as_ref(), "set".as_ref(), "--now".as_ref(), spec.as_os_str()]);
        self.world.run(halt).with_code(0);
    }
}

/// The newest complete checkpoint.
fn newest(world: &World) -> u64 {
    world.all("checkpoint_complete").iter().map(|event| event["checkpoint"].as_u64().unwrap()).max().unwrap_or(0)
}

/// Waits for a checkpoint that began after this call. The first one that the log shows may have begun before.
fn sees_new_checkpoint(world: &World, running: &mut Running<'_>) -> u64 {
    let known = world.events().len();
    world.wait("a new checkpoint", || {
        assert!(running.is_running(), "ended before a new checkpoint");
        let events = world.events();
        let mut later = events[known..].iter().filter(|event| event["event"] == "checkpoint_started").skip(1);
        let begun = later.next()?["checkpoint"].clone();
        let is_its_end = |event: &&Value| event["checkpoint"] == begun && is_secured(event);
        events[known..].iter().find(is_its_end)?["checkpoint"].as_u64()
    })
}

/// The node of a rank is lost with everything on it. Returns when the servers of the next generation are being started:
/// until then, those of the last one may still answer.
fn lose_node_of(world: &World, rank: usize, running: &mut Running<'_>) {
    let node = world.all("generation_placed").last().unwrap()["nodes"][rank].as_str().unwrap().to_owned();
    let (agent, generations) = (world.agent_pid(&node), launches(world));
    // The directory first: an agent that was started again before would make another one.
    fs::rename(world.node_root(&node), world.path(&format!("lost.{node}"))).unwrap();
    signal(agent, Signal::KILL);
    running.sees_where("node_down", "node", node.as_str());
    running.sees_where("restarted", "generation", generations + 1);
}

fn launches(world: &World) -> usize {
    world.all("generation_launched").len()
}

#[test]
fn models_survive_two_node_losses_a_halt_and_a_new_allocation(world: &World) {
    let servers = Servers::new(world, 5);
    let mut running = servers.start();
    for rank in 0..3 {
        servers.push(rank, f64::from(rank) + 0.5);
    }
    sees_new_checkpoint(world, &mut running);
    lose_node_of(world, 1, &mut running);
    servers.have([0.5, 1.5, 2.5]);
    (0..3).for_each(|rank| servers.push(rank, 10.0));
    sees_new_checkpoint(world, &mut running);
    lose_node_of(world, 0, &mut running);
    servers.have([10.5, 11.5, 12.5]);
    (0..3).for_each(|rank| servers.push(rank, 100.0));
    sees_new_checkpoint(world, &mut running);
    servers.halt();
    running.ends_with(75).prints(&["halted"]);
    assert_eq!(launches(world), 3);
    let rebuilt: Vec<_> = world.all("restarted").into_iter().map(|event| event["rebuilt"].clone()).collect();
    assert_eq!(rebuilt, [json!([]), json!([1]), json!([0])]);
    world.assert_nothing_is_left();
    let last = newest(world);
    pfs::assert_current(&world.prefix(), last);
    // They are model files that servers load.
    let current = fs::read_link(world.prefix().join("scr.current")).unwrap();
    for rank in 0..3_u16 {
        let (address, port) = (&servers.address, servers.port(rank));
        let name = format!("rank_{rank}.{address}_{port}_stat_holdfast-{last}-rank{rank}.jubatus");
        let file = world.prefix().join(&current).join(name);
        let ran = world.run(world.holdfast(["verify".as_ref(), "--json".as_ref(), file.as_os_str()])).with_code(0);
        ran.prints(&["\"jubatus\""]);
    }
    let running = servers.start();
    servers.have([110.5, 111.5, 112.5]);
    assert_eq!(world.all("restarted").last().unwrap()["checkpoint"], last);
    running.terminated();
}

#[test]
fn a_save_that_fails_drops_one_checkpoint_and_the_servers_go_on(world: &World) {
    let servers = Servers::new(world, 3).with("every: 100ms, timeout: 1s");
    let mut running = servers.start();
    (0..3).for_each(|rank| servers.push(rank, 1.0));
    sees_new_checkpoint(world, &mut running);
    for (fault, reason) in [
        ("save silent", "has not answered within 1s"),
        ("save refuse", "returned an error: cannot get the lock of file; any RPC is saving to same file?"),
        ("save half", "the file ends inside the"),
        ("save other-type", "server type mismatched: recommender, expected stat"),
        ("save other-shape", "answered with true instead of a map of this server's id to the path of a file"),
        ("save other-path", "has written /etc/passwd, expected "),
        ("save other-id", "answered with message id"),
    ] {
        servers.order(1, fault);
        let failed = running.sees(fault, |event| {
            event["event"] == "checkpoint_failed" && event["reason"].as_str().unwrap().contains(reason)
        });
        assert!(failed["reason"].as_str().unwrap().contains("rank 1"), "{failed}");
        let complete = sees_new_checkpoint(world, &mut running);
        assert!(complete > failed["checkpoint"].as_u64().unwrap());
    }
    assert_eq!(world.all("checkpoint_failed").len(), 7);
    world.assert_nothing_lost();
    servers.have([1.0; 3]);
    servers.halt();
    running.ends_with(75);
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_save_restarts_from_the_checkpoint_before(world: &World) {
    // Each server has a port of its own.
    let listed = "port: 9301, name: alpha, every: 200ms, servers: [{port: 9400}, {}, {port: 9250, name: beta}]";
    let mut servers = Servers::new(world, 3).with(listed);
    servers.ports = [9400, 9302, 9250];
    let mut running = servers.start();
    (0..3).for_each(|rank| servers.push(rank, 1.0));
    let before = sees_new_checkpoint(world, &mut running);
    servers.order(2, "save die");
    let again = running.sees_where("restarted", "generation", 2);
    assert!(again["checkpoint"].as_u64().unwrap() >= before, "{again}");
    servers.have([1.0; 3]);
    sees_new_checkpoint(world, &mut running);
    servers.halt();
    running.ends_with(75);
    assert_eq!(launches(world), 2);
    for (rank, cluster) in [(0, "alpha"), (2, "beta")] {
        let output = fs::read_to_string(world.prefix().join(format!(".holdfast/generations/2/rank_{rank}.out")));
        assert_eq!(output.unwrap(), format!("load for the cluster {cluster:?}\n"));
    }
}

#[test]
fn a_file_that_a_server_changes_after_its_answer_is_no_part_of_a_checkpoint(world: &World) {
    let servers = Servers::new(world, 3);
    let mut running = servers.start();
    sees_new_checkpoint(world, &mut running);
    servers.order(1, "save late");
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    // On a slow machine the server may not have closed it in time.
    let expected = ["invalid crc32 checksum", "is still open for writing"];
    assert!(reason.contains("rank 1") && expected.iter().any(|text| reason.contains(text)), "{reason}");
    sees_new_checkpoint(world, &mut running);
    servers.halt();
    running.ends_with(75);
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_load_is_started_again_from_the_same_checkpoint(world: &World) {
    let servers = Servers::new(world, 3).with("every: 10h");
    let spec = world.write("job.yaml", &format!("{}relaunch: {{no_progress_limit: 2}}\n", servers.yaml()));
    let mut running = world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]));
    (0..3).for_each(|rank| servers.push(rank, 1.0));
    let request = || {
        let request = world.holdfast(["checkpoint".as_ref(), spec.as_os_str()]);
        world.run(request).with_code(0);
    };
    request();
    servers.order(2, "load die");
    kill_servers(world, 1, &mut running);
    let restarted = |running: &mut Running<'_>, generation: u64| {
        let again = running.sees_where("restarted", "generation", generation);
        assert_eq!(again["checkpoint"], 1, "{again}");
    };
    restarted(&mut running, 3);
    servers.have([1.0; 3]);
    let output = fs::read_to_string(world.prefix().join(".holdfast/generations/2/rank_2.err")).unwrap();
    assert!(output.contains("(SIGABRT) while it loaded its checkpoint"), "{output}");
    // It is progress, and a model that no server survives ends the job after a number of launches.
    request();
    servers.order(2, "load always die");
    kill_servers(world, 3, &mut running);
    running.ends_with(91);
    assert_eq!(launches(world), 5);
    assert_eq!(world.all("restart_attempt"), [] as [Value; 0]);
    pfs::assert_current(&world.prefix(), 2);
}

#[test]
fn servers_whose_last_save_fails_and_that_end_by_sigterm_are_not_finished(world: &World) {
    let mut servers = Servers::new(world, 3).with("every: 10h");
    let script =
        format!("#!/bin/sh\ntrap 'exit 0' TERM\n{:?} \"$@\" &\nwhile :; do sleep 0.05; done\n", servers.program);
    servers.program = world.write("ends-with-0", &script);
    fs::set_permissions(&servers.program, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = world.write("job.yaml", &servers.yaml().replace("grace: 30s", "grace: 2s"));
    let mut running = world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]));
    (0..3).for_each(|rank| servers.push(rank, 1.0));
    world.run(world.holdfast(["checkpoint".as_ref(), spec.as_os_str()])).with_code(0);
    // The server of rank 1 gives no answer for longer than the job waits for it.
    servers.order(1, "save silent");
    servers.halt();
    running.sees_event("ranks_terminated");
    running.ends_with(75);
    pfs::assert_current(&world.prefix(), 1);
}

/// Kills all servers of a generation.
fn kill_servers(world: &World, generation: u64, running: &mut Running<'_>) {
    running.sees_where("restarted", "generation", generation);
    let is_server = |line: &str| line.contains("--rpc-port") && !line.contains("holdfast rank");
    let count = || world.processes().iter().filter(|(_, line)| is_server(line)).count();
    world.wait("the servers", || (count() == 3).then_some(()));
    assert_eq!(world.kill(is_server), 3);
}

#[test]
fn saved_models_are_progress_and_launches_without_one_end_the_job() {
    let world = World::unchecked();
    let servers = Servers::new(&world, 3);
    let mut running = world.start_spec(&format!("{}relaunch: {{no_progress_limit: 1}}\n", servers.yaml()));
    for generation in 1..=3 {
        let is_saved = |event: &Value| is_secured(event) && event["generation"] == generation;
        running.sees("a checkpoint", is_saved);
        kill_servers(&world, generation, &mut running);
    }
    running.sees_where("restarted", "generation", 4);
    servers.halt();
    running.ends_with(75);

    let world = World::new();
    let servers = Servers::new(&world, 3).with("every: 10h");
    let mut running = world.start_spec(&format!("{}relaunch: {{no_progress_limit: 2}}\n", servers.yaml()));
    (1..=2).for_each(|generation| kill_servers(&world, generation, &mut running));
    running.ends_with(91).prints(&["no progress: 2 generations in a row (relaunch.no_progress_limit)"]);
}

#[test]
fn a_model_that_a_server_refuses_is_replaced_by_that_of_the_checkpoint_before(world: &World) {
    let mut servers = Servers::new(world, 4);
    // The caches keep only the checkpoint that a run restarts from.
    servers.flush = 1;
    let mut running = servers.start();
    (0..3).for_each(|rank| servers.push(rank, 1.0));
    sees_new_checkpoint(world, &mut running);
    sees_new_checkpoint(world, &mut running);
    servers.order(1, "load refuse");
    lose_node_of(world, 2, &mut running);
    let refused = running.sees_event("restart_attempt");
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains("rank 1") && reason.contains("returned an error: user data is broken"), "{reason}");
    servers.have([1.0; 3]);
    let older = sees_new_checkpoint(world, &mut running);
    assert!(older > 0);
    servers.halt();
    running.ends_with(75);
    assert_eq!(launches(world), 2, "the servers were started again by their ranks");
}

/// The output of a job that fails before its first checkpoint.
fn fails(servers: &Servers<'_>) -> String {
    let spec = servers.world.write("job.yaml", &format!("{}relaunch: {{attempts: 0}}\n", servers.yaml()));
    let ran: Ran = servers.world.run(servers.world.holdfast(["run".as_ref(), spec.as_os_str()]));
    assert!(ran.status.code().is_some_and(|code| code != 0 && code != 75), "{:?}", ran.status);
    let own = servers.world.prefix().join(".holdfast/generations/1");
    let read = |rank: u32| fs::read_to_string(own.join(format!("rank_{rank}.err"))).unwrap_or_default();
    (0..3).map(read).collect()
}

#[test]
fn a_server_that_cannot_be_used_fails_its_rank_with_the_reason(world: &World) {
    let servers = Servers::new(world, 3);
    servers.order(1, "get_status recommender");
    let output = fails(&servers);
    assert!(output.contains("is of type recommender, and the job spec has type stat"), "{output}");
    world.assert_nothing_is_left();
    // It answers nothing at all.
    let servers = Servers::new(world, 3).with("start_timeout: 1s");
    servers.order(2, "get_status silent");
    let output = fails(&servers);
    let limit = "the server was not ready within 1 s (`checkpoint.jubatus.start_timeout`)";
    assert!(output.contains(limit) && output.contains("`get_status`"), "{output}");
    world.assert_nothing_is_left();
    // It answers the first call only: the time limit is that of all calls together.
    let servers = Servers::new(world, 3).with("start_timeout: 1s");
    servers.order(2, "get_config silent");
    let output = fails(&servers);
    assert!(output.contains(limit) && output.contains("`get_config`"), "{output}");
}

#[test]
fn servers_are_found_by_the_names_of_their_nodes() {
    if !rustix::process::geteuid().is_root() {
        ignore("the names of virtual nodes are made known by a mount, which needs root");
    }
    let world = World::unchecked();
    let mut servers = Servers::new(&world, 4);
    servers.jubatus = "{type: stat, host: node, every: 200ms}".to_owned();
    let names: String = (0..4).map(|node| format!("{} node{node}\n", servers.address)).collect();
    let hosts = world.write("hosts", &names);
    let spec = world.write("job.yaml", &servers.yaml());
    let mut command = world.command("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"", "sh"]);
    command.arg(hosts).arg(env!("CARGO_BIN_EXE_holdfast")).arg("run").arg(spec);
    let mut running = world.start(command);
    (0..3).for_each(|rank| servers.push(rank, 3.0));
    sees_new_checkpoint(&world, &mut running);
    lose_node_of(&world, 1, &mut running);
    servers.have([3.0; 3]);
    servers.halt();
    running.ends_with(75);
    world.assert_nothing_is_left();
    // Without the mount, these names have no addresses.
    let world = World::unchecked();
    let mut servers = Servers::new(&world, 3);
    servers.jubatus = "{type: stat, host: node, every: 200ms}".to_owned();
    let output = fails(&servers);
    assert!((0..3).any(|rank| output.contains(&format!("node{rank}:{}", servers.port(rank)))), "{output}");
}

#[test]
fn a_server_of_others_at_the_address_is_not_touched(world: &World) {
    let servers = Servers::new(world, 3).with("start_timeout: 1s");
    let mut other = world.command(&servers.program);
    let config = world.path("stat.json");
    let port = servers.port(1).to_string();
    other.args(["-b", &servers.address, "-p", &port, "-d"]).arg(world.temporary()).arg("-f").arg(config);
    let other = world.start(other);
    servers.push(1, 7.0);
    let output = fails(&servers);
    assert!(output.contains("a process listens on") && output.contains("checkpoint.jubatus.port"), "{output}");
    assert_eq!(servers.sum(1), Some(7.0));
    other.killed();
}

#[test(unchecked)]
fn servers_without_clients_that_are_saved_do_not_hang(world: &World) {
    let servers = Servers::new(world, 3).with("every: 1s, timeout: 5s, start_timeout: 5s");
    let yaml = servers.yaml().replace("down_after: 10s", "down_after: 10s, hang_after: 6s");
    let mut running = world.start_spec(&yaml);
    // Each begins a second after the end of the one before: more than twice the limit.
    running.sees_checkpoint(13);
    assert_eq!((world.all("hang_suspected").len(), world.all("generation_launched").len()), (0, 1));
    servers.halt();
    running.ends_with(75);
}

#[test]
fn the_job_of_the_documentation_runs(world: &World) {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/jubatus.md")).unwrap();
    let spec = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let servers = Servers::new(world, 4);
    // Only what other tests on this machine would share: the prefix, the address, and the time.
    let spec = spec.replace("prefix: models", &format!("prefix: {:?}", world.prefix()));
    let spec =
        spec.replace("    - --rpc-port", &format!("    - --listen_addr\n    - {}\n    - --rpc-port", servers.address));
    let spec = spec.replace("every: 10min", &format!("every: 1s, host: {}", servers.address));
    let spec = world.write("job.yaml", &spec);
    let mut command = world.holdfast(["run".as_ref(), spec.as_os_str()]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", world.path("bin").display()));
    let mut running = world.start(command);
    (0..3).for_each(|rank| servers.push(rank, 4.0));
    sees_new_checkpoint(world, &mut running);
    lose_node_of(world, 0, &mut running);
    servers.have([4.0; 3]);
    servers.halt();
    running.ends_with(75);
}
