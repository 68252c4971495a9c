//! Real agents, real copies: both are this test's program, started again for one of the ignored tests below.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::pair::{
    CopyState, CopyStatus, FailureCause, Grant, JobConfig, JobRunState, MirroredCheckpoint, PairChange, PairCommand,
    PairConfig, RestartBackOff, Revocation, Term,
};
use holdfast_model::{RankEnd, Side};
use holdfast_shm::process::start_time;
use holdfast_shm::schedule::BEAT_THREAD;
use holdfast_shm::{Registry, Seat, ShmError, SlotState, Woken};
use holdfast_wire::agent::{AgentEvent, Empty, OF_USER, POLL, PollReply, PollRequest, REQUEST_OF};
use holdfast_wire::pairs::{
    COMMAND, CommandRequest, PLAN, PairOnNode, PairsAccepted, PairsPlan, PairsReport, PairsSettings, PairsStop,
    PairsSync, PeerOfPair, STOP, SYNC, SidesOnNode,
};
use holdfast_wire::run::{AgentReady, AgentStart, NodeIdentitySource, TrustMaterial};
use holdfast_wire::{environment, trust};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::server::client;
use crate::store::fixture_node::fixture_start;

const NODE: &str = "node0";
const LIMIT: Duration = Duration::from_secs(60);

/// A copy: counts in checkpoints, and prints `<side> <count>` when it begins.
///
/// Programs named `spin…` stop beating after the first count on their main side, and use their processor; `work…`
/// finish at the count of 50; others go on until they are told to stop.
#[test]
#[ignore = "a process of the other tests"]
fn copy_process() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let name = variable(environment::PAIR);
    let side = if variable(environment::PAIR_SIDE) == "main" { Side::Main } else { Side::Replica };
    let pair = variable(environment::PAIR_NUMBER).parse().unwrap();
    let incarnation = variable(environment::PAIR_INCARNATION).parse().unwrap();
    if name.starts_with("dumb") {
        std::thread::sleep(LIMIT);
    }
    let seat = Arc::new(Seat::take(&PathBuf::from(variable(environment::PAIRS)), pair, side, incarnation).unwrap());
    if seat.wait().unwrap() == Woken::Stop {
        std::process::exit(0);
    }
    let hangs = name.starts_with("spin") && side == Side::Main && incarnation == 1;
    let beating = seat.clone();
    let beat = move || {
        for count in 0.. {
            if hangs && count > 20 {
                return;
            }
            beating.beat();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::Builder::new().name(BEAT_THREAD.to_str().unwrap().to_owned()).spawn(beat).unwrap();
    let mut bytes = Vec::new();
    let newest = seat.newest_checkpoint(&mut bytes).unwrap();
    let mut count = newest.map_or(0, |newest| newest.tag);
    println!("{side} begins after {count}");
    loop {
        if seat.stop_requested() {
            std::process::exit(0);
        }
        count += 1;
        seat.update_checkpoint(count, &count.to_ne_bytes()).unwrap();
        if name.starts_with("work") && count >= 50 {
            seat.finish();
            std::process::exit(0);
        }
        if hangs && count > 3 {
            while !seat.stop_requested() {
                std::hint::spin_loop();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "a process of the other tests"]
fn agent_process() {
    crate::daemon::run(std::io::stdin().lock(), std::io::stdout()).unwrap();
}

fn this_program(test: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let words = ["--exact", "--ignored", "--nocapture", "--test-threads=1"];
    [program, format!("pairs::tests::{test}")].into_iter().chain(words.map(str::to_owned)).collect()
}

fn config(name: &str) -> PairConfig {
    PairConfig {
        spec_index: 0,
        name: name.to_owned(),
        main: this_program("copy_process"),
        replica: this_program("copy_process"),
        period: Duration::from_millis(10),
        // These tests run beside others, on few processors.
        misses: 100,
        checkpoint_bytes: 64,
        checkpoint_period: Duration::from_millis(10),
        restart: RestartBackOff { first: Duration::from_millis(50), most: LIMIT, attempts: None },
        stop_grace: Duration::from_secs(5),
        start_within: LIMIT,
        suspends: None,
    }
}

struct World {
    root: tempfile::TempDir,
    trust: TrustMaterial,
    runtime: tokio::runtime::Runtime,
    abandon_after: Duration,
    agent: Child,
    address: SocketAddr,
    plan: PairsPlan,
}

impl World {
    /// An agent with this plan in force.
    fn with(configs: Vec<PairConfig>, jobs: Vec<JobConfig>) -> World {
        let world = World::idle(configs, jobs, LIMIT);
        world.post::<PairsAccepted>(PLAN, &world.plan);
        world
    }

    fn of(name: &str) -> World {
        World::with(vec![config(name)], Vec::new())
    }

    fn idle(configs: Vec<PairConfig>, jobs: Vec<JobConfig>, abandon_after: Duration) -> World {
        World::trusting(trust::generate().unwrap(), configs, jobs, abandon_after)
    }

    /// Two nodes, one for each copy of a pair. Without `connected`, they do not know each other's addresses.
    fn two_nodes(connected: bool) -> [World; 2] {
        let trust = trust::generate().unwrap();
        let mut worlds = [SidesOnNode::Main, SidesOnNode::Replica].map(|sides| {
            let mut world = World::trusting(trust.clone(), vec![config("count")], Vec::new(), LIMIT);
            world.plan.pairs[0].sides = sides;
            world
        });
        let addresses = [worlds[1].address, worlds[0].address];
        for (world, peer) in worlds.iter_mut().zip(addresses) {
            world.plan.pairs[0].peer = connected.then_some(peer);
            world.post::<PairsAccepted>(PLAN, &world.plan);
        }
        worlds
    }

    fn trusting(
        trust: TrustMaterial,
        configs: Vec<PairConfig>,
        jobs: Vec<JobConfig>,
        abandon_after: Duration,
    ) -> World {
        let root = holdfast_testkit::fast_directory();
        let on_node = |(index, config)| PairOnNode { index, config, sides: SidesOnNode::Both, peer: None };
        let settings = PairsSettings {
            lease: Duration::from_secs(2),
            pin_watcher: None,
            directory: root.path().to_owned(),
            output: None,
            environment: BTreeMap::new(),
        };
        let plan = PairsPlan { epoch: 1, pairs: (0..).zip(configs).map(on_node).collect(), jobs, settings };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (agent, address) = start_agent(&root, &trust, abandon_after);
        World { root, trust, runtime, abandon_after, agent, address, plan }
    }

    /// The same, where this copy of all pairs is on the node; the other one is on a node that is not there.
    fn split(side: SidesOnNode, jobs: Vec<JobConfig>) -> World {
        let mut world = World::idle(vec![config("count")], jobs, LIMIT);
        world.plan.pairs.iter_mut().for_each(|pair| pair.sides = side);
        world.post::<PairsAccepted>(PLAN, &world.plan);
        world
    }

    /// Grants, or renews, the lease of pair 0, as an orchestrator does: when a copy waits for it.
    #[track_caller]
    fn grant(&self, number: u64, valid: Duration) {
        self.grant_after(number, valid, None);
    }

    #[track_caller]
    fn grant_after(&self, number: u64, valid: Duration, after: Option<MirroredCheckpoint>) {
        self.wait_for("a copy that can be awake", |report| {
            let copies = [report.pairs[0].main, report.pairs[0].replica];
            let ready = |copy: &CopyStatus| matches!(copy.state, CopyState::Asleep | CopyState::Awake);
            copies.iter().flatten().any(ready).then_some(())
        });
        let PairsReport { instance, clock, .. } = self.report();
        let until = Duration::from_millis(clock) + valid;
        let grant = Grant { pair: 0, term: Term { epoch: 1, number }, until, after, cause: None };
        let sync = PairsSync { epoch: 1, instance, leases: vec![grant], ..PairsSync::default() };
        self.post::<PairsReport>(SYNC, &sync);
    }

    /// Revokes the lease of pair 0, and waits until it is released; returns the newest checkpoint then.
    #[track_caller]
    fn revoke(&self, number: u64) -> u64 {
        let term = Term { epoch: 1, number };
        let revoke = vec![Revocation { pair: 0, term }];
        self.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, revoke, ..PairsSync::default() });
        self.wait_for("the release", |report| {
            let lease = report.pairs[0].lease.clone().unwrap();
            (lease.held.is_none() && lease.released == term).then_some(report.pairs[0].checkpoint)
        })
    }

    /// Waits for a checkpoint with such a number.
    #[track_caller]
    fn wait_checkpoint(&self, what: &str, is: impl Fn(u64) -> bool) -> u64 {
        self.wait_for(what, |report| Some(report.pairs[0].checkpoint).filter(|checkpoint| is(*checkpoint)))
    }

    #[track_caller]
    fn wait_output(&self, name: &str, text: &str) {
        let begun = Instant::now();
        while !self.output(name).contains(text) {
            assert!(begun.elapsed() < LIMIT, "no {text:?} in {:?}", self.output(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn wait_replica(&self, what: &str, is: impl Fn(&CopyStatus) -> bool) -> CopyStatus {
        self.wait_for(what, |report| report.pairs[0].replica.filter(&is))
    }

    /// Kills the agent.
    fn kill_agent(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }

    fn start_agent(&mut self) {
        (self.agent, self.address) = start_agent(&self.root, &self.trust, self.abandon_after);
    }

    fn send(&self, path: &str, message: &impl Serialize) -> (u16, String) {
        let body = serde_json::to_string(message).unwrap();
        let token = client::bearer(&self.trust);
        self.runtime.block_on(client::send(self.address, &self.trust, Some(&token), ("POST", path, &body)))
    }

    fn post<T: DeserializeOwned>(&self, path: &str, message: &impl Serialize) -> T {
        let (status, body) = self.send(path, message);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn report(&self) -> PairsReport {
        self.post(SYNC, &PairsSync { epoch: 1, ..PairsSync::default() })
    }

    /// Waits until the copies of pair 0 are in such a state; returns them.
    #[track_caller]
    fn wait(&self, what: &str, is: impl Fn(&CopyStatus, &CopyStatus) -> bool) -> (CopyStatus, CopyStatus) {
        self.wait_for(what, |report| {
            let (main, replica) = (report.pairs[0].main.unwrap(), report.pairs[0].replica.unwrap());
            is(&main, &replica).then_some((main, replica))
        })
    }

    #[track_caller]
    fn wait_for<T>(&self, what: &str, mut is: impl FnMut(&PairsReport) -> Option<T>) -> T {
        let (begun, mut seen) = (Instant::now(), 0);
        loop {
            let report: PairsReport =
                self.post(SYNC, &PairsSync { epoch: 1, seen, wait_ms: 200, ..PairsSync::default() });
            if let Some(found) = is(&report) {
                return found;
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {:#?}\n{:#?}", report.pairs, self.changes());
            seen = report.version;
        }
    }

    /// Main awake, replica asleep.
    #[track_caller]
    fn settled(&self) -> (CopyStatus, CopyStatus) {
        self.wait("main awake, replica asleep", |main, replica| {
            main.state == CopyState::Awake && main.beats > 0 && replica.state == CopyState::Asleep
        })
    }

    fn changes(&self) -> Vec<PairChange> {
        let request = PollRequest { after: 0, wait_ms: 0, allocation_end: None, known: None };
        let reply: PollReply = self.post(POLL, &request);
        let change = |event| match event {
            AgentEvent::Pair(event) => Some(event.change),
            _ => None,
        };
        reply.events.into_iter().filter_map(|numbered| change(numbered.event)).collect()
    }

    #[track_caller]
    fn wait_change<T>(&self, what: &str, is: impl Fn(&PairChange) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let changes = self.changes();
            if let Some(found) = changes.iter().find_map(&is) {
                return found;
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {changes:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn directory(&self) -> PathBuf {
        let start = fixture_start(self.root.path(), NODE);
        crate::paths::Paths::new(&start).control().join(super::DIRECTORY)
    }

    fn output(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).unwrap_or_default()
    }

    /// Ends the pairs, and checks that nothing is left of them.
    fn stop(self) {
        let left = self.processes();
        assert!(!left.is_empty() || !self.report().pairs.is_empty());
        self.post::<Empty>(STOP, &PairsStop { epoch: 1 });
        let left = self.processes();
        assert!(left.is_empty(), "{left:?}");
        for name in [super::REGISTRY, "state"] {
            assert!(!self.directory().join(name).exists(), "{name}");
        }
    }

    /// The processes of copies of this world, and those that the agent has not waited for.
    fn processes(&self) -> Vec<u32> {
        let registry = format!("{}={}", environment::PAIRS, self.directory().join(super::REGISTRY).display());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let own = self.agent.id();
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{own}"))
                || environment.split(|byte| *byte == 0).any(|variable| variable == registry.as_bytes())
        })
        .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

fn start_agent(root: &tempfile::TempDir, trust: &TrustMaterial, abandon_after: Duration) -> (Child, SocketAddr) {
    let mut start = fixture_start(root.path(), NODE);
    start.trust = trust.clone();
    start.abandon_after = abandon_after;
    start_agent_with(&start, &[])
}

fn start_agent_with(start: &AgentStart, environment: &[(&str, &str)]) -> (Child, SocketAddr) {
    let words = this_program("agent_process");
    let mut command = Command::new(&words[0]);
    command.envs(environment.iter().copied());
    let command = command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut agent = command.spawn().unwrap();
    let mut line = serde_json::to_vec(start).unwrap();
    line.push(b'\n');
    agent.stdin.as_mut().unwrap().write_all(&line).unwrap();
    // The harness writes lines of its own, and one of them without an end.
    let ready = BufReader::new(agent.stdout.as_mut().unwrap()).lines().find_map(|line| {
        let line = line.unwrap();
        let json = &line[line.find('{')?..];
        Some(serde_json::from_str::<AgentReady>(json).unwrap())
    });
    (agent, ready.expect("the agent did not start").address)
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

fn kill(copy: &CopyStatus) {
    signal(copy.pid.unwrap(), Signal::KILL);
}

fn fail_over(change: &PairChange) -> Option<(FailureCause, u64)> {
    match change {
        PairChange::FailOver { cause, checkpoint, .. } => Some((cause.clone(), *checkpoint)),
        _ => None,
    }
}

fn failed(of: Side) -> impl Fn(&PairChange) -> Option<(CopyState, FailureCause)> {
    move |change| match change {
        PairChange::Failed { side, state, cause } if *side == of => Some((*state, cause.clone())),
        _ => None,
    }
}

#[test]
fn a_replica_goes_on_from_the_checkpoint_of_a_killed_main_and_the_main_takes_over_again() {
    let world = World::of("count");
    let (main, _) = world.settled();
    world.wait_for("a checkpoint", |report| (report.pairs[0].checkpoint > 3).then_some(()));
    kill(&main);
    let (cause, checkpoint) = world.wait_change("a fail-over", fail_over);
    assert_eq!(cause, FailureCause::Exit { end: RankEnd::Signal(9) });
    assert!(checkpoint > 3);
    // The main is started again, and the pair is where it was before.
    let back = |change: &PairChange| match change {
        PairChange::FailBack { checkpoint, .. } => Some(*checkpoint),
        _ => None,
    };
    assert!(world.wait_change("a fail-back", back) >= checkpoint);
    let (again, replica) = world.settled();
    assert_eq!((again.incarnation, replica.incarnation), (2, 2));
    let status = &world.report().pairs[0];
    assert_eq!((status.fail_overs, status.fail_backs), (1, 1));
    assert!(world.output("count.replica.log").contains(&format!("replica begins after {checkpoint}")));
    let begins = world.output("count.main.log");
    assert!(begins.contains("main begins after 0") && begins.matches("main begins").count() == 2, "{begins}");
    world.stop();
}

#[test]
fn a_stopped_main_is_killed_and_replaced() {
    let world = World::of("count");
    let (main, _) = world.settled();
    let started = start_time(main.pid.unwrap());
    signal(main.pid.unwrap(), Signal::STOP);
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { .. }), "{cause:?}");
    world.settled();
    assert_ne!(start_time(main.pid.unwrap()), started, "the stopped main is gone");
    world.stop();
}

#[test]
fn a_main_that_spins_without_heartbeats_is_killed_and_replaced() {
    let world = World::of("spin");
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { misses } if misses >= 100), "{cause:?}");
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
    world.stop();
}

#[test]
fn a_replica_killed_asleep_is_started_again_asleep() {
    let world = World::of("count");
    let (main, replica) = world.settled();
    kill(&replica);
    let (state, _) = world.wait_change("the failure", failed(Side::Replica));
    assert_eq!(state, CopyState::Asleep);
    let (same, _) =
        world.wait("a new replica asleep", |_, replica| replica.incarnation == 2 && replica.state == CopyState::Asleep);
    assert_eq!((same.pid, same.state), (main.pid, CopyState::Awake), "the main was not disturbed");
    world.stop();
}

#[test]
fn a_replica_killed_while_waking_is_followed_by_the_main() {
    let mut slow = config("count");
    slow.restart.first = Duration::from_secs(1);
    let world = World::with(vec![slow], Vec::new());
    let (main, replica) = world.settled();
    // It is woken, and cannot notice that.
    signal(replica.pid.unwrap(), Signal::STOP);
    kill(&main);
    world.wait_change("a fail-over", fail_over);
    kill(&replica);
    let (state, _) = world.wait_change("the failure", failed(Side::Replica));
    assert_eq!(state, CopyState::Awake);
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
    world.stop();
}

#[test]
fn a_replica_killed_awake_is_followed_by_the_main() {
    let mut slow = config("count");
    slow.restart.first = Duration::from_secs(1);
    let world = World::with(vec![slow], Vec::new());
    let (main, _) = world.settled();
    kill(&main);
    let (_, replica) =
        world.wait("the replica works", |_, replica| replica.state == CopyState::Awake && replica.beats > 5);
    kill(&replica);
    let (main, _) = world.settled();
    assert!(main.incarnation == 2 && world.report().pairs[0].checkpoint > 0);
    world.stop();
}

#[test]
fn copies_outlive_their_agent_and_a_new_one_handles_later_failures() {
    let mut world = World::of("count");
    let before = world.settled();
    world.kill_agent();
    let beats = |world: &World| Registry::open(&world.directory().join(super::REGISTRY)).unwrap().beats(0, Side::Main);
    let seen = beats(&world);
    let begun = Instant::now();
    while beats(&world) == seen {
        assert!(begun.elapsed() < LIMIT, "the main does not go on without an agent");
    }
    world.start_agent();
    let after = world.settled();
    assert_eq!((after.0.pid, after.1.pid), (before.0.pid, before.1.pid));
    let adopted = |change: &PairChange| matches!(change, PairChange::Adopted { .. }).then_some(());
    world.wait_change("the adoption", adopted);
    let accepted: PairsAccepted = world.post(PLAN, &world.plan);
    assert_eq!(accepted.adopted.iter().map(|copy| Some(copy.pid)).collect::<Vec<_>>(), [before.0.pid, before.1.pid]);
    kill(&after.0);
    world.wait_change("a fail-over", fail_over);
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
    world.stop();
}

#[test]
fn a_main_that_died_while_there_was_no_agent_is_replaced_by_the_next_one() {
    let mut world = World::of("count");
    let (main, _) = world.settled();
    world.kill_agent();
    kill(&main);
    world.start_agent();
    let (cause, checkpoint) = world.wait_change("a fail-over", fail_over);
    assert_eq!(cause, FailureCause::Exit { end: RankEnd::Unknown });
    assert!(checkpoint > 0);
    world.settled();
    world.stop();
}

#[test]
fn copies_of_a_damaged_registry_are_killed_and_started_afresh() {
    let mut world = World::of("count");
    let (main, replica) = world.settled();
    world.kill_agent();
    let registry = world.directory().join(super::REGISTRY);
    let file = fs::OpenOptions::new().write(true).open(&registry).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 64], 0).unwrap();
    let is_alive = |copy: &CopyStatus| {
        let environment = fs::read(format!("/proc/{}/environ", copy.pid.unwrap())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&*registry.display().to_string())
    };
    assert!(is_alive(&main) && is_alive(&replica));
    world.start_agent();
    let (new_main, new_replica) = world.settled();
    assert!(new_main.incarnation > main.incarnation && new_replica.incarnation > replica.incarnation);
    assert!(!is_alive(&main) && !is_alive(&replica), "a copy of the damaged registry is left");
    world.stop();
}

#[test]
fn garbage_in_the_slots_of_a_registry_does_not_disturb_the_agent() {
    let world = World::with(vec![config("count0"), config("count1")], Vec::new());
    world.settled();
    let registry = world.directory().join(super::REGISTRY);
    let file = fs::OpenOptions::new().write(true).open(&registry).unwrap();
    // The area of pair 0, behind the header's page: slots, numbers and heads of checkpoints, but no heartbeats.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 2048], 4096 + 512).unwrap();
    let other = |report: &PairsReport| report.pairs[1].main.unwrap();
    let main =
        world.wait_for("the other pair", |report| (other(report).state == CopyState::Awake).then(|| other(report)));
    kill(&main);
    world.wait_for("the other pair's fail-over", |report| (report.pairs[1].fail_backs == 1).then_some(()));
    let (main, _) = world.wait("pair 0", |main, _| main.state == CopyState::Awake);
    kill(&main);
    world.wait_for("the damaged pair's fail-over", |report| (report.pairs[0].fail_overs == 1).then_some(()));
    world.stop();
}

#[test]
fn another_user_cannot_map_a_registry() {
    if !geteuid().is_root() {
        return;
    }
    let world = World::of("count");
    world.settled();
    let registry = world.directory().join(super::REGISTRY);
    let directory = fs::metadata(world.directory()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    let read = Command::new("cat").arg(&registry).uid(12345).gid(12345).output().unwrap();
    assert!(!read.status.success() && String::from_utf8_lossy(&read.stderr).contains("Permission denied"));
    // Neither does a copy map what is not its user's.
    std::os::unix::fs::chown(&registry, Some(12345), None).unwrap();
    let refused = Seat::take(&registry, 0, Side::Main, 1).unwrap_err();
    assert!(matches!(refused, ShmError::Refused { .. }), "{refused}");
    std::os::unix::fs::chown(&registry, Some(0), None).unwrap();
    world.stop();
}

#[test]
fn all_of_a_hundred_mains_killed_at_once_are_replaced() {
    let pairs = (0..100).map(|index| config(&format!("count{index}"))).collect();
    let world = World::with(pairs, Vec::new());
    let all = |report: &PairsReport, is: fn(&CopyStatus, &CopyStatus) -> bool| {
        let copies = report.pairs.iter().filter(|pair| is(&pair.main.unwrap(), &pair.replica.unwrap())).count();
        (copies == 100).then(|| report.pairs.clone())
    };
    let settled: fn(&CopyStatus, &CopyStatus) -> bool =
        |main, replica| main.state == CopyState::Awake && replica.state == CopyState::Asleep;
    let pairs = world.wait_for("100 mains awake", |report| all(report, settled));
    pairs.iter().for_each(|pair| kill(&pair.main.unwrap()));
    world.wait_for("100 fail-overs", |report| {
        (report.pairs.iter().filter(|pair| pair.fail_overs == 1).count() == 100).then_some(())
    });
    let pairs = world.wait_for("100 fail-backs", |report| all(report, settled));
    assert!(pairs.iter().all(|pair| pair.main.unwrap().incarnation == 2 && pair.fail_backs == 1));
    world.stop();
}

#[test]
fn a_pair_that_has_done_its_work_ends() {
    let world = World::of("work");
    world.wait_change("the end", |change| matches!(change, PairChange::Finished { side: Side::Main }).then_some(()));
    world.wait("the replica ends", |main, replica| main.state == CopyState::Finished && replica.pid.is_none());
    assert!(world.processes().is_empty());
    world.stop();
}

#[test]
fn a_copy_that_does_not_register_is_killed_and_given_up() {
    let mut dumb = config("dumb");
    dumb.start_within = Duration::from_millis(300);
    dumb.restart.attempts = Some(2);
    let world = World::with(vec![dumb], Vec::new());
    let (_, cause) = world.wait_change("a failure", failed(Side::Main));
    assert_eq!(cause, FailureCause::NotRegistered);
    world.wait("both given up", |main, replica| {
        main.state == CopyState::GivenUp && replica.state == CopyState::GivenUp && replica.pid.is_none()
    });
    // A user may have it started again.
    let restart = CommandRequest { epoch: 1, pair: 0, command: PairCommand::Restart(Side::Main) };
    world.post::<holdfast_model::PairStatus>(COMMAND, &restart);
    world.wait("a new main", |main, _| main.incarnation == 3);
    world.stop();
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let mut missing = config("missing");
    missing.main = vec!["/nowhere/dnn".to_owned()];
    let world = World::with(vec![missing], Vec::new());
    let (_, cause) = world.wait_change("a failure", failed(Side::Main));
    assert!(matches!(&cause, FailureCause::NotStarted { reason } if reason.contains("/nowhere/dnn")), "{cause:?}");
    world.wait("the replica works in its place", |_, replica| replica.state == CopyState::Awake);
    world.stop();
}

#[test]
fn users_have_a_replica_take_over_and_the_main_return() {
    let world = World::of("count");
    world.settled();
    let command = |command| {
        let request = CommandRequest { epoch: 1, pair: 0, command };
        world.send(COMMAND, &request)
    };
    assert_eq!(command(PairCommand::FailOver).0, 200);
    world.wait("the replica awake, a new main asleep", |main, replica| {
        replica.state == CopyState::Awake && main.state == CopyState::Asleep && main.incarnation == 2
    });
    assert_eq!(command(PairCommand::FailBack).0, 200);
    world.settled();
    let unknown = CommandRequest { epoch: 1, pair: 9, command: PairCommand::FailOver };
    let (status, body) = world.send(COMMAND, &unknown);
    assert!(status == 409 && body.contains("no pair number 9"), "{status} {body}");
    world.stop();
}

#[test]
fn requests_of_a_replaced_orchestrator_and_impossible_plans_are_refused() {
    let world = World::idle(vec![config("count")], Vec::new(), LIMIT);
    let (status, body) = world.send(SYNC, &PairsSync { epoch: 3, ..PairsSync::default() });
    assert!(status == 409 && body.contains("no plan"), "{status} {body}");
    let mut plan = PairsPlan { epoch: 3, ..world.plan.clone() };
    plan.settings.pin_watcher = Some(1000);
    let (status, body) = world.send(PLAN, &plan);
    assert!(status == 400 && body.contains("CPU 1000") && body.contains("pin_watcher"), "{status} {body}");
    let (status, body) = world.send(PLAN, &world.plan);
    assert!(status == 409 && body.contains("epoch 1"), "{status} {body}");
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    plan.settings.pin_watcher = (0..1000).find(|cpu| allowed.is_set(*cpu as usize));
    world.post::<PairsAccepted>(PLAN, &plan);
    let pinned = plan.settings.pin_watcher.unwrap();
    let is_pinned = |task: &fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let has = |name: &str, value: &str| {
            status.lines().filter_map(|line| line.split_once(":\t")).any(|field| field == (name, value))
        };
        has("Name", "pairs") && has("Cpus_allowed_list", &pinned.to_string())
    };
    let begun = Instant::now();
    while !fs::read_dir(format!("/proc/{}/task", world.agent.id())).unwrap().flatten().any(|task| is_pinned(&task)) {
        assert!(begun.elapsed() < LIMIT, "the watcher is not pinned");
    }
    let (status, _) = world.send(SYNC, &PairsSync { epoch: 2, ..PairsSync::default() });
    assert_eq!(status, 409);
    let mut other = plan.clone();
    other.pairs[0].config.checkpoint_bytes += 1;
    let (status, body) = world.send(PLAN, &other);
    assert!(status == 409 && body.contains("another plan"), "{status} {body}");
    world.post::<Empty>(STOP, &PairsStop { epoch: 3 });
    assert!(world.processes().is_empty());
}

fn job(name: &str, script: &str) -> JobConfig {
    JobConfig {
        name: name.to_owned(),
        command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        order: 1,
        restart: RestartBackOff { first: Duration::from_millis(20), most: LIMIT, attempts: Some(3) },
    }
}

#[test]
fn jobs_are_started_again_and_end_with_the_pairs() {
    let jobs = vec![job("app1", "echo begins; sleep 600 & wait"), job("app2", "exit 3"), job("app3", "true")];
    let world = World::with(vec![config("count")], jobs);
    world.wait_change("the end of app3", |change| matches!(change, PairChange::JobFinished).then_some(()));
    let given_up = |change: &PairChange| matches!(change, PairChange::JobGivenUp { failures: 3 }).then_some(());
    world.wait_change("app2 given up", given_up);
    let app1 = world.wait_for("app1", |report| report.jobs[0].pid.filter(|_| !world.output("app1.log").is_empty()));
    signal(app1, Signal::KILL);
    world.wait_for("app1 again", |report| report.jobs[0].pid.filter(|pid| *pid != app1));
    world.stop();
}

#[test]
fn an_agent_without_orchestrator_stays_while_its_pairs_work() {
    let mut world = World::idle(vec![config("count"), config("work")], Vec::new(), Duration::from_millis(100));
    world.post::<PairsAccepted>(PLAN, &world.plan);
    let registry = || Registry::open(&world.directory().join(super::REGISTRY)).unwrap();
    let main = |count: u64| {
        let begun = Instant::now();
        loop {
            let slot = registry().copy(0, Side::Main);
            // More, if this machine was so busy that a copy had no processor.
            let is_awake = slot.state == SlotState::Awake && registry().beats(0, Side::Main) > 5;
            if slot.incarnation >= count && is_awake {
                return slot.pid;
            }
            assert!(begun.elapsed() < LIMIT, "no main {count}: {slot:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Nobody asks: pairs go on, also over failures.
    let first = main(1);
    std::thread::sleep(Duration::from_millis(1500));
    signal(first, Signal::KILL);
    main(2);
    assert!(world.agent.try_wait().unwrap().is_none(), "the agent has ended");
    world.post::<Empty>(STOP, &PairsStop { epoch: 1 });
    let begun = Instant::now();
    while world.agent.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT, "the agent does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Slurm sends SIGTERM to all processes of a job that ends: the agent leaves it to the orchestrator while that lives.
#[test]
fn requests_of_users_do_not_have_an_agent_leave_sigterm_to_the_orchestrator() {
    let (root, trust) = (holdfast_testkit::fast_directory(), trust::generate().unwrap());
    let mut start = fixture_start(root.path(), NODE);
    (start.trust, start.identity) = (trust.clone(), NodeIdentitySource::Slurm);
    let slurm = [("SLURMD_NODENAME", NODE), ("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")];
    let (mut agent, address) = start_agent_with(&start, &slurm);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = |headers: String| {
        let (trust, body) = (trust.clone(), serde_json::to_string(&PollRequest::HEALTH_ONLY).unwrap());
        let sent = async move {
            let (token, request) = (client::bearer(&trust), ("POST", POLL, &*body));
            client::send_with(address, &trust, Some(&token), &headers, request).await.0
        };
        // Without an answer if the agent ends meanwhile.
        runtime.block_on(async { tokio::spawn(sent).await.ok() })
    };
    let begun = Instant::now();
    // So long that the orchestrator would be lost without its requests.
    while begun.elapsed() < Duration::from_secs(7) {
        assert_eq!(request(String::new()), Some(200));
        signal(agent.id(), Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(agent.try_wait().unwrap().is_none(), "the agent has ended beside its orchestrator");
    while agent.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT, "a user's requests keep the agent");
        request(format!("{REQUEST_OF}: {OF_USER}\r\n"));
        signal(agent.id(), Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_copy_of_a_split_pair_is_awake_only_under_a_lease_and_killed_at_its_end() {
    let world = World::split(SidesOnNode::Replica, Vec::new());
    let asleep = world.wait_replica("a replica asleep", |replica| replica.state == CopyState::Asleep);
    // Grants to another agent have no effect.
    let grant = Grant { pair: 0, term: Term { epoch: 1, number: 1 }, until: LIMIT * 1000, after: None, cause: None };
    let sync = PairsSync { epoch: 1, instance: 7, leases: vec![grant], ..PairsSync::default() };
    let report: PairsReport = world.post(SYNC, &sync);
    assert_eq!(report.pairs[0].lease.as_ref().unwrap().held, None);
    world.grant(1, LIMIT);
    let awake =
        world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake && replica.beats > 3);
    assert_eq!(awake.pid, asleep.pid);
    world.revoke(1);
    world
        .wait_replica("a new replica asleep", |replica| replica.incarnation == 2 && replica.state == CopyState::Asleep);
    // Renewed, it goes on; not renewed, it is killed.
    world.grant(2, Duration::from_millis(600));
    world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake);
    world.grant(2, Duration::from_millis(1500));
    let expired =
        |change: &PairChange| matches!(change, PairChange::LeaseExpired { side: Side::Replica }).then_some(());
    world.wait_change("the end of the lease", expired);
    world
        .wait_replica("a new replica asleep", |replica| replica.incarnation == 3 && replica.state == CopyState::Asleep);
    assert!(!world.processes().contains(&awake.pid.unwrap()));
    world.stop();
}

#[test]
fn a_copy_whose_agent_died_is_gone_when_its_lease_ends() {
    let mut world = World::split(SidesOnNode::Replica, Vec::new());
    world.grant(1, Duration::from_secs(3));
    let awake =
        world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake && replica.beats > 3);
    world.kill_agent();
    let begun = Instant::now();
    while !world.processes().is_empty() {
        assert!(begun.elapsed() < LIMIT, "the copy goes on without a lease");
        std::thread::sleep(Duration::from_millis(20));
    }
    world.start_agent();
    let replica = world.wait_replica("a replica asleep", |replica| replica.state == CopyState::Asleep);
    assert!(replica.incarnation > awake.incarnation);
    assert!(world.report().pairs[0].lease.clone().unwrap().released >= Term { epoch: 1, number: 1 });
    world.stop();
}

#[test]
fn a_new_agent_goes_on_with_the_lease_of_the_one_before() {
    let mut world = World::split(SidesOnNode::Main, Vec::new());
    world.grant(1, LIMIT);
    let is_awake = |report: &PairsReport| report.pairs[0].main.filter(|main| main.state == CopyState::Awake);
    let before = world.wait_for("the main awake", is_awake);
    world.kill_agent();
    world.start_agent();
    let after = world.wait_for("the main awake", is_awake);
    assert_eq!(after.pid, before.pid);
    assert_eq!(world.report().pairs[0].lease.clone().unwrap().held, Some(Term { epoch: 1, number: 1 }));
    world.stop();
}

#[test]
fn jobs_are_suspended_while_a_replica_of_another_node_works() {
    let counting = "while :; do echo x; sleep 0.01; done";
    let world = World::split(SidesOnNode::Replica, vec![job("app1", counting), job("app2", counting)]);
    let states = |report: &PairsReport, state| report.jobs.iter().all(|job| job.state == state).then_some(());
    world.wait_for("jobs run", |report| states(report, JobRunState::Running));
    world.grant(1, LIMIT);
    world.wait_for("jobs are suspended", |report| states(report, JobRunState::Suspended));
    let lines = || [world.output("app1.log"), world.output("app2.log")].map(|text| text.len());
    let begun = Instant::now();
    // What was written before is in the files after a moment.
    loop {
        let before = lines();
        std::thread::sleep(Duration::from_millis(300));
        if before == lines() {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "a suspended job goes on");
    }
    let before = lines();
    let revoke = vec![Revocation { pair: 0, term: Term { epoch: 1, number: 1 } }];
    world.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, revoke, ..PairsSync::default() });
    world.wait_for("jobs run again", |report| states(report, JobRunState::Running));
    while lines().iter().zip(before).any(|(now, before)| *now == before) {
        assert!(begun.elapsed() < LIMIT, "a resumed job does not go on");
    }
    world.wait_change("the suspension", |change| match change {
        PairChange::JobSuspended { pair, .. } => (pair == "count").then_some(()),
        _ => None,
    });
    world.stop();
}

#[test]
fn a_replica_goes_on_from_the_mirrored_checkpoint_of_a_lost_node_and_hands_over_when_it_is_back() {
    let [mut main, replica] = World::two_nodes(true);
    main.grant(1, LIMIT);
    let written = main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 10);
    replica.wait_checkpoint("mirrored checkpoints", |checkpoint| checkpoint >= written);
    // The node of the main is lost.
    main.kill_agent();
    main.processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let last = replica.report().pairs[0].checkpoint;
    replica.grant_after(2, LIMIT, Some(MirroredCheckpoint { term: Term { epoch: 1, number: 1 }, sequence: last }));
    replica.wait_output("count.replica.log", &format!("replica begins after {last}\n"));
    replica.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > last + 10);
    // It is back, at another address.
    main.start_agent();
    let peers = vec![PeerOfPair { pair: 0, address: main.address }];
    replica.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, peers, ..PairsSync::default() });
    main.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > last + 10);
    let last = replica.revoke(2);
    main.grant_after(3, LIMIT, Some(MirroredCheckpoint { term: Term { epoch: 1, number: 2 }, sequence: last }));
    main.wait_output("count.main.log", &format!("main begins after {last}\n"));
    main.stop();
    replica.stop();
}

#[test]
fn checkpoints_of_an_earlier_lease_do_not_replace_those_of_a_later_one() {
    let [main, replica] = World::two_nodes(false);
    main.grant(1, LIMIT);
    main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 400);
    main.revoke(1);
    // A partition: the replica has none of them.
    replica.grant(2, LIMIT);
    replica.wait_output("count.replica.log", "replica begins after 0\n");
    replica.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > 5);
    let last = replica.revoke(2);
    assert!(last < 400);
    // It ends: the main's node has more checkpoints, and older ones.
    for (world, other) in [(&main, &replica), (&replica, &main)] {
        let peers = vec![PeerOfPair { pair: 0, address: other.address }];
        world.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, peers, ..PairsSync::default() });
    }
    main.wait_checkpoint("the replica's checkpoints", |checkpoint| checkpoint == last);
    assert_eq!(replica.report().pairs[0].checkpoint, last);
    main.grant(3, LIMIT);
    main.wait_output("count.main.log", &format!("main begins after {last}\n"));
    main.stop();
    replica.stop();
}
