//! An agent with its pairs, and what they report.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::Side;
use holdfast_model::pair::{
    CopyState, CopyStatus, FailureCause, Grant, JobConfig, MirroredCheckpoint, PairChange, PairConfig, RestartBackOff,
    Revocation, Term,
};
use holdfast_shm::schedule::BEAT_THREAD;
use holdfast_shm::{Seat, Woken};
use holdfast_testkit::cluster::until;
use holdfast_wire::agent::{AgentEvent, Empty, POLL, PollReply, PollRequest};
use holdfast_wire::pairs::{
    PLAN, PairOnNode, PairsAccepted, PairsPlan, PairsReport, PairsSettings, PairsStop, PairsSync, PeerOfPair, STOP,
    SYNC, SidesOnNode,
};
use holdfast_wire::run::{AgentReady, AgentStart, TrustMaterial};
use holdfast_wire::{environment, trust};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fixtures::fixture_start;
use crate::server::client;

pub(super) const NODE: &str = "node0";
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// A copy: counts in checkpoints, and prints `<side> <count>` when it begins.
///
/// Programs named `spin…` stop beating after the first count on their main side, and use their processor; `work…`
/// finish at the count of 50; replicas of `rest…` count without checkpoints; others go on until a stop is requested.
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
    let resting = Arc::new(AtomicBool::new(false));
    let rests = resting.clone();
    let beat = move || {
        for count in 0.. {
            while rests.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
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
        if !name.starts_with("rest") || side == Side::Main {
            seat.update_checkpoint(count, &count.to_ne_bytes()).unwrap();
        }
        if name.starts_with("resume") && side == Side::Main && incarnation == 1 && count == 10 {
            seat.finish();
            resting.store(true, Ordering::Relaxed);
            println!("done");
            std::thread::sleep(Duration::from_secs(4));
            seat.resume();
            resting.store(false, Ordering::Relaxed);
            println!("more work");
        }
        if name.starts_with("resume") && count == 1_500 {
            println!("long after");
        }
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

pub(super) fn this_program(test: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let words = ["--exact", "--ignored", "--nocapture", "--test-threads=1"];
    [program, format!("pairs::tests::world::{test}")].into_iter().chain(words.map(str::to_owned)).collect()
}

pub(super) fn config(name: &str) -> PairConfig {
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

pub(super) struct World {
    pub(super) root: tempfile::TempDir,
    pub(super) trust: TrustMaterial,
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) abandon_after: Duration,
    pub(super) agent: Child,
    pub(super) address: SocketAddr,
    pub(super) plan: PairsPlan,
    /// The end of the pairs was requested.
    is_stopped: AtomicBool,
}

impl World {
    /// An agent with this plan in force.
    pub(super) fn with(configs: Vec<PairConfig>, jobs: Vec<JobConfig>) -> World {
        let world = World::idle(configs, jobs, LIMIT);
        world.post::<PairsAccepted>(PLAN, &world.plan);
        world
    }

    pub(super) fn of(name: &str) -> World {
        World::with(vec![config(name)], Vec::new())
    }

    pub(super) fn idle(configs: Vec<PairConfig>, jobs: Vec<JobConfig>, abandon_after: Duration) -> World {
        World::trusting(trust::generate().unwrap(), configs, jobs, abandon_after)
    }

    /// Two nodes, one for each copy of a pair. Without `connected`, they do not know each other's addresses.
    pub(super) fn two_nodes(connected: bool) -> [World; 2] {
        World::two_nodes_of("count", connected)
    }

    pub(super) fn two_nodes_of(name: &str, connected: bool) -> [World; 2] {
        let mut worlds = World::two_idle_nodes();
        let addresses = [worlds[1].address, worlds[0].address];
        for (world, peer) in worlds.iter_mut().zip(addresses) {
            world.plan.pairs[0].config = config(name);
            world.plan.pairs[0].peer = connected.then_some(peer);
            world.post::<PairsAccepted>(PLAN, &world.plan);
        }
        worlds
    }

    /// The same, without plans in force.
    pub(super) fn two_idle_nodes() -> [World; 2] {
        let trust = trust::generate().unwrap();
        [SidesOnNode::Main, SidesOnNode::Replica].map(|sides| {
            let mut world = World::trusting(trust.clone(), vec![config("count")], Vec::new(), LIMIT);
            world.plan.pairs[0].sides = sides;
            world
        })
    }

    /// Tells the agent where that of the other node is.
    pub(super) fn connect(&self, other: &World) {
        let peers = vec![PeerOfPair { pair: 0, address: other.address }];
        self.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, peers, ..PairsSync::default() });
    }

    /// The CPUs of the agent's threads with this name.
    pub(super) fn cpus_of(&self, thread: &str) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.agent.id())).unwrap().flatten();
        let cpus = |task: fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            (field("Name:\t")? == thread).then_some(field("Cpus_allowed_list:\t")?)
        };
        tasks.filter_map(cpus).collect()
    }

    pub(super) fn trusting(
        trust: TrustMaterial,
        configs: Vec<PairConfig>,
        jobs: Vec<JobConfig>,
        abandon_after: Duration,
    ) -> World {
        let root = holdfast_testkit::fast_directory();
        let on_node =
            |(index, config)| PairOnNode { index, config, sides: SidesOnNode::Both, restore: false, peer: None };
        let (lease, directory) = (Duration::from_secs(2), root.path().to_owned());
        let settings = PairsSettings { lease, directory, ..PairsSettings::default() };
        let plan = PairsPlan {
            epoch: 1,
            pairs: (0..).zip(configs).map(on_node).collect(),
            jobs,
            settings,
            finished: BTreeSet::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (agent, address) = start_agent(&root, &trust, abandon_after);
        World { root, trust, runtime, abandon_after, agent, address, plan, is_stopped: AtomicBool::new(false) }
    }

    /// The same, where this copy of all pairs is on the node; the other one is on a node that is not there.
    pub(super) fn split(side: SidesOnNode, jobs: Vec<JobConfig>) -> World {
        let mut world = World::idle(vec![config("count")], jobs, LIMIT);
        world.plan.pairs.iter_mut().for_each(|pair| pair.sides = side);
        world.post::<PairsAccepted>(PLAN, &world.plan);
        world
    }

    /// Grants, or renews, the lease of pair 0, as an orchestrator does: when a copy waits for it.
    #[track_caller]
    pub(super) fn grant(&self, number: u64, valid: Duration) {
        self.grant_after(number, valid, None);
    }

    #[track_caller]
    pub(super) fn grant_after(&self, number: u64, valid: Duration, after: Option<MirroredCheckpoint>) {
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
    pub(super) fn revoke(&self, number: u64) -> u64 {
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
    pub(super) fn wait_checkpoint(&self, what: &str, is: impl Fn(u64) -> bool) -> u64 {
        self.wait_for(what, |report| Some(report.pairs[0].checkpoint).filter(|checkpoint| is(*checkpoint)))
    }

    #[track_caller]
    pub(super) fn wait_output(&self, name: &str, text: &str) {
        until(&format!("{text:?} in {name}"), || self.output(name).contains(text));
    }

    #[track_caller]
    pub(super) fn wait_replica(&self, what: &str, is: impl Fn(&CopyStatus) -> bool) -> CopyStatus {
        self.wait_for(what, |report| report.pairs[0].replica.filter(&is))
    }

    pub(super) fn kill_agent(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }

    pub(super) fn start_agent(&mut self) {
        (self.agent, self.address) = start_agent(&self.root, &self.trust, self.abandon_after);
    }

    pub(super) fn send(&self, path: &str, message: &impl Serialize) -> (u16, String) {
        let body = serde_json::to_string(message).unwrap();
        let token = client::bearer(&self.trust);
        self.is_stopped.fetch_or(path == STOP, Ordering::Relaxed);
        self.runtime.block_on(client::send(self.address, &self.trust, Some(&token), ("POST", path, &body)))
    }

    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, message: &impl Serialize) -> T {
        let (status, body) = self.send(path, message);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(super) fn report(&self) -> PairsReport {
        self.post(SYNC, &PairsSync { epoch: 1, ..PairsSync::default() })
    }

    /// Waits until the copies of pair 0 are in such a state; returns them.
    #[track_caller]
    pub(super) fn wait(&self, what: &str, is: impl Fn(&CopyStatus, &CopyStatus) -> bool) -> (CopyStatus, CopyStatus) {
        self.wait_for(what, |report| {
            let (main, replica) = (report.pairs[0].main.unwrap(), report.pairs[0].replica.unwrap());
            is(&main, &replica).then_some((main, replica))
        })
    }

    #[track_caller]
    pub(super) fn wait_for<T>(&self, what: &str, mut is: impl FnMut(&PairsReport) -> Option<T>) -> T {
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
    pub(super) fn settled(&self) -> (CopyStatus, CopyStatus) {
        self.wait("main awake, replica asleep", |main, replica| {
            main.state == CopyState::Awake && main.beats > 0 && replica.state == CopyState::Asleep
        })
    }

    pub(super) fn changes(&self) -> Vec<PairChange> {
        let request = PollRequest { after: 0, wait_ms: 0, allocation_end: None, known: None };
        let reply: PollReply = self.post(POLL, &request);
        let change = |event| match event {
            AgentEvent::Pair { change, .. } => Some(change),
            _ => None,
        };
        reply.events.into_iter().filter_map(|numbered| change(numbered.event)).collect()
    }

    #[track_caller]
    pub(super) fn wait_change<T>(&self, what: &str, is: impl Fn(&PairChange) -> Option<T>) -> T {
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

    pub(super) fn directory(&self) -> PathBuf {
        let start = fixture_start(self.root.path(), NODE);
        crate::directories::paths::Paths::new(&start).control().join(crate::pairs::DIRECTORY)
    }

    pub(super) fn registry_file(&self) -> PathBuf {
        self.directory().join(crate::pairs::registry_file::NAME)
    }

    /// Overwrites these bytes of the registry.
    pub(super) fn damage_registry(&self, bytes: Range<usize>) {
        let file = fs::OpenOptions::new().write(true).open(self.registry_file()).unwrap();
        file.write_all_at(&vec![0xa5; bytes.len()], bytes.start as u64).unwrap();
    }

    pub(super) fn output(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).unwrap_or_default()
    }

    /// Ends the pairs, and checks that nothing is left of them.
    fn stop(&self) {
        let left = self.processes();
        assert!(!left.is_empty() || !self.report().pairs.is_empty());
        self.post::<Empty>(STOP, &PairsStop { epoch: 1, at_once: false });
        let left = self.processes();
        assert!(left.is_empty(), "{left:?}");
        for name in [crate::pairs::registry_file::NAME, "state"] {
            assert!(!self.directory().join(name).exists(), "{name}");
        }
    }

    /// The processes of copies of this world, and those that the agent has not waited for.
    pub(super) fn processes(&self) -> Vec<u32> {
        let registry = format!("{}={}", environment::PAIRS, self.registry_file().display());
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

/// A test that has succeeded ends its pairs, unless it has done so itself.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.is_stopped.load(Ordering::Relaxed) {
            self.stop();
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

pub(super) fn start_agent(
    root: &tempfile::TempDir,
    trust: &TrustMaterial,
    abandon_after: Duration,
) -> (Child, SocketAddr) {
    let mut start = fixture_start(root.path(), NODE);
    start.trust = trust.clone();
    start.abandon_after = abandon_after;
    start_agent_with(&start, &[])
}

pub(super) fn start_agent_with(start: &AgentStart, environment: &[(&str, &str)]) -> (Child, SocketAddr) {
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

pub(super) fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

pub(super) fn kill(copy: &CopyStatus) {
    signal(copy.pid.unwrap(), Signal::KILL);
}

pub(super) fn fail_over(change: &PairChange) -> Option<(FailureCause, u64)> {
    match change {
        PairChange::FailOver { cause, checkpoint, .. } => Some((cause.clone(), *checkpoint)),
        _ => None,
    }
}

pub(super) fn failed(of: Side) -> impl Fn(&PairChange) -> Option<(CopyState, FailureCause)> {
    move |change| match change {
        PairChange::Failed { side, state, cause } if *side == of => Some((*state, cause.clone())),
        _ => None,
    }
}

pub(super) fn job(name: &str, script: &str) -> JobConfig {
    JobConfig {
        name: name.to_owned(),
        command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        order: 1,
        restart: RestartBackOff { first: Duration::from_millis(20), most: LIMIT, attempts: Some(3) },
    }
}
