//! Directories in which another user may have a hand: what they planted below a control base, a cache base or the
//! prefix directory is refused by a real agent, and neither changed nor removed. The other user has uid 65534.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use holdfast_model::{Generation, Placement, Rank, RunNode, Scheme};
use holdfast_testkit::harness::ignore;
use holdfast_wire::agent::{COPY, POLL, PollReply, REBUILD, RUN, STOP, VERIFY};
use holdfast_wire::plan::PlanParts;
use holdfast_wire::run::{AgentReady, TrustMaterial};
use holdfast_wire::{VERSION, fixtures, trust};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::unauthenticated::ask;
use crate::world::World;

const OTHER: u32 = 65534;
const USER: &str = "user1";

/// An agent process on no virtual node, whose bases and prefix are below this world's directory.
struct Agent {
    child: Child,
    trust: TrustMaterial,
    address: SocketAddr,
}

pub(crate) fn give_away(path: &Path) {
    if !geteuid().is_root() {
        ignore("giving a file to another user needs root");
    }
    lchown(path, Some(OTHER), Some(OTHER)).unwrap();
}

/// A directory that other users may enter: modes below a closed directory do not count.
fn world() -> World {
    let world = World::unchecked();
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["control", "cache", "pfs", "home", "pfs/.holdfast"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    world
}

/// Starts an agent; the error is what it printed before it ended.
fn start(world: &World) -> Result<Agent, String> {
    let trust = trust::generate().unwrap();
    let start = json!({
        "version": VERSION, "job": "heat", "job_id": "7", "user": USER, "node": "node0", "root": null,
        "control_base": world.path("control"), "cache_bases": {world.path("cache").to_str().unwrap(): null},
        "control_bytes": null, "listen": "127.0.0.1:0", "trust": trust,
        "disk_timeout": 30_000, "abandon_after": 600_000,
        "prefixes": [world.prefix()],
    });
    let mut command = world.holdfast(["agent"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{start}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    match serde_json::from_str::<AgentReady>(&line) {
        Ok(ready) => Ok(Agent { child, trust, address: ready.address }),
        Err(_) => {
            assert!(!child.wait().unwrap().success());
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            Err(errors)
        }
    }
}

impl Agent {
    /// A request with the job's token; the status and the answer.
    fn ask(&self, path: &str, body: &Value) -> (String, String) {
        let token = serde_json::to_value(&self.trust.token).unwrap();
        ask(self.address, &self.trust, token.as_str(), path, &body.to_string())
    }

    #[track_caller]
    fn refuses(&self, path: &str, body: &Value, reason: &str) {
        let (status, answer) = self.ask(path, body);
        assert!(!status.contains("200") && answer.contains(reason), "{status} {answer}");
    }

    /// Ends it as the orchestrator does when the job has ended.
    fn stop(mut self) -> String {
        let (status, answer) = self.ask(STOP, &json!({"remove": true}));
        assert!(status.contains("200"), "{status} {answer}");
        self.child.wait().unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// What another user can plant below a base, each with its path below the base.
const PLANTED: [(&str, &str); 5] = [
    ("base", ""),
    ("user directory", "user1"),
    ("user link", "user1"),
    ("job directory", "user1/scr.7"),
    ("job link", "user1/scr.7"),
];

/// Plants it. Links lead to a directory of the victim.
fn plant(world: &World, base: &str, (what, below): (&str, &str)) -> PathBuf {
    let (path, victim) = (world.path(base).join(below), world.path("home/victim"));
    fs::create_dir_all(victim.join("scr.7")).unwrap();
    fs::write(victim.join("scr.7/kept"), "kept").unwrap();
    if below.contains('/') {
        fs::create_dir(path.parent().unwrap()).unwrap();
    }
    match what {
        "base" => {}
        "user link" => symlink(&victim, &path).unwrap(),
        "job link" => symlink(victim.join("scr.7"), &path).unwrap(),
        _ => fs::create_dir(&path).unwrap(),
    }
    give_away(&path);
    // `join` with an empty path adds a slash.
    path.components().collect()
}

/// Neither what was planted nor what a link leads to has changed.
#[track_caller]
fn assert_untouched(world: &World, path: &Path) {
    assert_eq!(fs::symlink_metadata(path).unwrap().uid(), OTHER);
    assert!(path.is_symlink() || names(path).is_empty(), "{:?}", names(path));
    assert_eq!(names(&world.path("home/victim/scr.7")), ["kept"]);
    assert_eq!(names(&world.path("home/victim")), ["scr.7"]);
}

#[track_caller]
fn assert_names_the_owner(text: &str, path: &Path) {
    let known = ["belongs to user id 65534", "symbolic link (of user id 65534)"];
    assert!(text.contains(path.to_str().unwrap()) && known.iter().any(|known| text.contains(known)), "{text}");
}

#[test]
fn an_agent_refuses_a_control_directory_in_which_another_user_has_a_hand() {
    for planted in PLANTED {
        let world = world();
        let path = plant(&world, "control", planted);
        let Err(errors) = start(&world) else { panic!("{planted:?} was accepted") };
        assert_names_the_owner(&errors, &path);
        assert_untouched(&world, &path);
    }
}

fn run_request(world: &World, cache: &Path, prefix: &Path) -> Value {
    let settings = fixtures::settings(prefix, cache.to_str().unwrap(), 1, Scheme::new("LOCAL"));
    let nodes = vec![RunNode {
        name: "node0".into(),
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        failure_domain: "node0".to_owned(),
        ranks: vec![Rank(0)],
    }];
    let placement = Placement { nodes, leader: "node0".into() };
    let plan = PlanParts::new(Generation(1), 1, Arc::new(placement), &settings).unwrap();
    assert!(world.prefix().join(".holdfast").is_dir());
    serde_json::from_slice(&plan.request_to(&"node0".into()).unwrap()).unwrap()
}

#[test]
fn an_agent_does_not_use_a_cache_directory_in_which_another_user_has_a_hand() {
    for planted in PLANTED {
        let world = world();
        let path = plant(&world, "cache", planted);
        let agent = start(&world).unwrap();
        let (_, answer) = agent.ask(POLL, &json!({"after": 0, "wait_ms": 0}));
        let health = serde_json::from_str::<PollReply>(&answer).unwrap().health;
        let cache = health.directories.iter().find(|it| it.path.contains("/cache/")).unwrap();
        assert_names_the_owner(cache.fault.as_ref().unwrap(), &path);
        let (status, answer) = agent.ask(RUN, &run_request(&world, &world.path("cache"), &world.prefix()));
        assert!(!status.contains("200"), "{planted:?}: {status}");
        assert_names_the_owner(&answer, &path);
        assert_untouched(&world, &path);
        // The removal of the job's directories does not follow it, and leaves it.
        assert_names_the_owner(&agent.stop(), &path);
        assert_untouched(&world, &path);
        assert!(!world.path("control/user1").exists(), "{planted:?}: the others are removed");
    }
}

#[test(self::world)]
fn a_cache_directory_that_another_user_has_exchanged_is_not_used_any_more(world: &World) {
    let agent = start(world).unwrap();
    let request = run_request(world, &world.path("cache"), &world.prefix());
    let (status, answer) = agent.ask(RUN, &request);
    assert!(status.contains("200"), "{status} {answer}");
    // As if a cleanup of /tmp had removed the directory of the user.
    fs::remove_dir_all(world.path("cache/user1")).unwrap();
    let path = plant(world, "cache", ("user link", "user1"));
    let mut next = request;
    next["shared"]["generation"] = json!(2);
    let (status, answer) = agent.ask(RUN, &next);
    assert!(!status.contains("200"), "{status}");
    assert_names_the_owner(&answer, &path);
    assert_names_the_owner(&agent.stop(), &path);
    assert_untouched(world, &path);
}

#[test(self::world)]
fn an_agent_writes_below_the_prefix_of_its_job_only(world: &World) {
    let agent = start(world).unwrap();
    let (prefix, home) = (world.prefix(), world.path("home"));
    agent.refuses(RUN, &run_request(world, &world.path("cache"), &home), "is not a prefix directory of this job");
    let (status, answer) = agent.ask(RUN, &run_request(world, &world.path("cache"), &prefix));
    assert!(status.contains("200"), "{status} {answer}");
    fs::create_dir(prefix.join("scr.1")).unwrap();
    let elsewhere = [
        home.clone(),
        home.join("new"),
        prefix.clone(),
        prefix.join("../home"),
        prefix.join(".holdfast"),
        prefix.join("scr.1/../../home"),
        PathBuf::from("home"),
    ];
    for directory in elsewhere {
        for (path, body) in requests(&directory) {
            agent.refuses(path, &body, "invalid_request");
        }
    }
    assert!(names(&home).is_empty(), "{:?}", names(&home));
    assert!(names(&prefix.join(".holdfast")).is_empty());
    agent.stop();
}

#[test(self::world)]
fn an_agent_does_not_follow_a_link_that_another_user_put_on_the_prefix(world: &World) {
    let agent = start(world).unwrap();
    let link = world.prefix().join("scr.link");
    symlink(world.path("home"), &link).unwrap();
    give_away(&link);
    for (path, body) in requests(&link) {
        agent.refuses(path, &body, "symbolic link (of user id 65534)");
    }
    assert!(names(&world.path("home")).is_empty());
    agent.stop();
}

/// The requests of a drain that name a directory.
fn requests(directory: &Path) -> [(&'static str, Value); 3] {
    let rebuild = json!({
        "directory": directory, "group_id": 0, "members": 4, "missing": [2], "ranks": [2], "scheme": "XOR",
        "checkpoint": 3,
    });
    let copy = json!({
        "checkpoint": 3, "directory": directory, "crc": true, "on_behalf_of": [], "partners_only": false,
        "buffer_bytes": 4096,
    });
    [(COPY, copy), (REBUILD, rebuild), (VERIFY, json!({"directory": directory, "files": ["kept"]}))]
}

#[test(self::world)]
fn a_lock_that_is_a_link_ends_the_agent_with_an_error_that_names_it(world: &World) {
    let control = world.path("control/user1/scr.7");
    fs::create_dir_all(&control).unwrap();
    let target = world.write("home/target", "kept");
    symlink(&target, control.join("agent.lock")).unwrap();
    let Err(errors) = start(world) else { panic!("it was accepted") };
    assert!(errors.contains("agent.lock is a symbolic link"), "{errors}");
    assert_eq!(fs::read(&target).unwrap(), b"kept");
}
