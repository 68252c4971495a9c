//! Pairs of main and replica on two nodes of Slurm, the orchestrator on a third one: nodes are killed, disconnected,
//! and return.
//!
//! The copies are this test binary. One that is awake records each of its steps with the time of CLOCK_BOOTTIME, which
//! is the same in all containers, in a file of its own: so it is known which copies were awake at the same time.

use std::time::Duration;

use holdfast_testkit::Dice;
use holdfast_testkit::awake::{self, Awake, longest_together, now};
use holdfast_testkit::cluster::{Cluster, Configured, Job, until};
use serde_json::Value;

use crate::OWN_PROGRAM;
use crate::pair_copy::RECORDS;

const LEASE: Duration = Duration::from_secs(2);
/// The nodes of the main and of the replica; the orchestrator is on n1.
const MAIN: &str = "n2";
const REPLICA: &str = "n3";

/// What the batch script does.
const WORK: &str = "mkdir records && holdfast run job.yaml";

/// The spec of one pair on two nodes, and a job beside the replica.
fn spec(name: &str, allocation: &str) -> String {
    format!(
        "kind: replicated\njob: pair\nprefix: ./heat-run\nallocation: {{{allocation}}}\n\
         pairs:\n  - {{name: dnn, main: [{OWN_PROGRAM}], nodes: [{MAIN}, {REPLICA}], \
         heartbeat: {{period: 5ms, misses: 400}}, checkpoint: {{size: 4KiB, period: 10ms}}, \
         restart: {{first: 1s, most: 2s}}}}\n\
         jobs:\n  - {{name: audio, command: [sleep, '7654'], node: {REPLICA}}}\n\
         replication: {{lease: {}s, env: {{{RECORDS}: /pfs/{name}/records}}}}\n",
        LEASE.as_secs()
    )
}

/// Such a job that runs.
struct Pair<'a> {
    cluster: &'a Cluster,
    job: Job<'a>,
    /// Slurm takes nodes that it sets down out of the allocation for ever.
    _patient_slurm: Configured<'a>,
}

impl<'a> Pair<'a> {
    /// In an allocation of Slurm.
    fn start(cluster: &'a Cluster, name: &str) -> Self {
        let spec = spec(name, "manager: slurm");
        Pair::of(cluster, || cluster.submit(name, &spec, "--nodelist=n[1-3] --time=20", WORK))
    }

    /// On hosts without Slurm, the orchestrator on the controller.
    fn start_on_hosts(cluster: &'a Cluster, name: &str) -> Self {
        let allocation = format!("manager: ssh, hosts: [{MAIN}, {REPLICA}], ssh: {{known_hosts: known_hosts}}");
        let (spec, known) = (spec(name, &allocation), cluster.known_hosts("ed25519"));
        Pair::of(cluster, || cluster.without_slurm(name, &[("job.yaml", &spec), ("known_hosts", &known)], WORK))
    }

    fn of(cluster: &'a Cluster, start: impl FnOnce() -> Job<'a>) -> Self {
        let patient = cluster.configure("SlurmdTimeout=300");
        let pair = Pair { cluster, job: start(), _patient_slurm: patient };
        pair.waits_for_both();
        pair
    }

    /// Waits until a copy has this state, according to the orchestrator.
    fn waits_for_state(&self, side: &str, state: &str) {
        let listed = || self.job.run("holdfast pairs list --json --prefix heat-run 2>/dev/null");
        let state_of = |list: &str| {
            let list: Value = serde_json::from_str(list).ok()?;
            Some(list["pairs"][0][side]["state"].as_str()?.to_owned())
        };
        until(&format!("{side} {state}"), || state_of(&listed()).as_deref() == Some(state));
    }

    /// The copies that were awake so far, in the order in which they were woken.
    fn awake(&self) -> Vec<Awake> {
        let text = self.job.run("cd records && grep -H '' main.* replica.* 2>/dev/null");
        awake::copies(text.lines().filter_map(|line| line.split_once(':')))
    }

    /// Waits until a copy of this side does steps after this time; returns what it recorded so far.
    fn waits_for_steps(&self, side: &str, after: Duration) -> Awake {
        let mut last = None;
        until(&format!("steps of the {side}\n{}", self.job.output()), || {
            last = self.awake().pop().filter(|last| last.side == side && last.end.0 > after);
            last.is_some()
        });
        last.unwrap()
    }

    /// Waits until the pair has done so many steps.
    fn waits_for_step(&self, step: i64) {
        until(&format!("step {step}"), || self.awake().pop().is_some_and(|last| last.end.1 >= step));
    }

    fn changes(&self, change: &str) -> Vec<Value> {
        self.job.events().into_iter().filter(|event| event["event"] == "pair" && event["change"] == change).collect()
    }

    /// Waits until there are so many events of a change; returns the last of them.
    fn sees(&self, change: &str, number: usize) -> Value {
        let mut found = Vec::new();
        until(&format!("{number} times {change}"), || {
            found = self.changes(change);
            found.len() >= number
        });
        found.pop().unwrap()
    }

    /// Waits until the job beside the replica is suspended, or not.
    fn waits_for_job(&self, is_suspended: bool) {
        until(&format!("the job suspended: {is_suspended}"), || {
            let states = self.cluster.on(REPLICA, "ps -eo stat,args");
            let job = states.lines().find(|line| line.ends_with("sleep 7654"));
            job.is_some_and(|line| line.starts_with('T') == is_suspended)
        });
    }

    /// Waits until the main is awake and the replica asleep.
    fn waits_for_both(&self) {
        self.waits_for_state("main", "awake");
        self.waits_for_state("replica", "asleep");
    }

    /// Two copies were never awake beyond the lease.
    #[track_caller]
    fn assert_never_two_awake(&self) {
        let all = self.awake();
        let together = longest_together(&all);
        assert!(together <= LEASE, "awake together for {together:?}: {all:?}\n{}", self.job.output());
    }

    /// Each copy went on from a checkpoint of the pair.
    #[track_caller]
    fn assert_all_went_on(&self) {
        let all = self.awake();
        assert!(all.iter().skip(1).all(|copy| copy.begin.1 > 1), "from the beginning again: {all:?}");
    }

    /// Ends the pair's work, and with it the job.
    fn finishes(self) {
        self.job.run("touch records/finish");
        let (output, code) = self.job.finish();
        assert_eq!(code, 0, "{output}");
        assert!(output.contains("all pairs are finished"), "{output}");
        self.assert_never_two_awake();
        for node in [MAIN, REPLICA] {
            self.cluster.wait_for_nothing_on(node);
            until("the end of copies and jobs", || {
                let processes = self.cluster.on(node, "ps -eo args");
                !processes.contains(OWN_PROGRAM) && !processes.contains("sleep 7654")
            });
        }
    }

    /// The main lost its node after so many steps; the replica has gone on, and the job beside it is suspended.
    fn replica_went_on(&self, after: Duration, mirrored: i64) -> Awake {
        let replica = self.waits_for_steps("replica", after);
        assert!(replica.begin.1 > mirrored, "{mirrored} steps were mirrored: {replica:?}");
        assert_eq!(self.sees("fail_over", 1)["node"], REPLICA);
        self.sees("job_suspended", 1);
        self.waits_for_job(true);
        replica
    }

    /// The node of the main is back: the main goes on from the replica's newest checkpoint.
    fn main_took_over_again(&self, step: i64, after: Duration) {
        let main = self.waits_for_steps("main", after);
        assert!(main.begin.1 > step, "the replica had done {step} steps: {main:?}");
        assert_eq!(self.sees("fail_back", 1)["node"], MAIN);
        self.sees("job_resumed", 1);
        self.waits_for_job(false);
        self.assert_all_went_on();
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{:?}", self.job.output(), self.awake());
            for node in [MAIN, REPLICA] {
                // Without an agent, a copy would be asleep for ever.
                self.cluster.on(node, &format!("pkill -KILL -f '^{OWN_PROGRAM}'; pkill -KILL -f '^sleep 7654'"));
            }
        }
    }
}

/// Steps of the main that certainly were mirrored when it has done twice as many.
const MIRRORED: i64 = 200;

#[test]
fn replica_goes_on_when_the_node_of_the_main_is_killed_and_main_takes_over_when_it_is_back() {
    let cluster = super::cluster_with_own_program();
    let pair = Pair::start(&cluster, "pair-killed");
    pair.waits_for_job(false);
    pair.waits_for_step(2 * MIRRORED);
    cluster.docker("kill", MAIN);
    let replica = pair.replica_went_on(now(), MIRRORED);
    cluster.docker("start", MAIN);
    pair.main_took_over_again(replica.end.1, now());
    pair.finishes();
}

#[test]
fn replica_goes_on_when_the_host_of_the_main_is_killed_and_main_takes_over_when_it_is_back() {
    let cluster = super::cluster_with_own_program();
    let pair = Pair::start_on_hosts(&cluster, "pair-ssh");
    pair.waits_for_step(2 * MIRRORED);
    cluster.docker("kill", MAIN);
    let replica = pair.replica_went_on(now(), MIRRORED);
    cluster.docker("start", MAIN);
    pair.main_took_over_again(replica.end.1, now());
    pair.finishes();
}

#[test]
fn pair_survives_agents_that_are_killed() {
    let cluster = super::cluster_with_own_program();
    let pair = Pair::start(&cluster, "pair-agents");
    for node in [REPLICA, MAIN] {
        pair.waits_for_step(pair.awake().pop().map_or(0, |last| last.end.1) + MIRRORED);
        cluster.on(node, "pkill -KILL -f '[h]oldfast agent'");
        pair.job.wait_for(&format!("{node}: agent restarted"));
        pair.waits_for_both();
        pair.waits_for_steps("main", now());
    }
    pair.assert_all_went_on();
    pair.finishes();
}

#[test]
fn main_that_is_cut_off_ends_with_its_lease_before_the_replica_is_woken() {
    let cluster = super::cluster_with_own_program();
    let pair = Pair::start(&cluster, "pair-cut-off");
    pair.waits_for_step(2 * MIRRORED);
    let cut_off = now();
    cluster.cut_off(MAIN);
    pair.replica_went_on(cut_off, MIRRORED);
    // The main would go on for long without the lease: its node works.
    let replica = pair.waits_for_steps("replica", cut_off + 4 * LEASE);
    // Not the first one on a machine so busy that a lease ran out before the cut.
    let main = pair.awake().into_iter().rfind(|copy| copy.side == "main").expect("a main");
    assert!(main.end.0 > cut_off, "it goes on until then: {main:?}");
    assert!(main.end.0 < cut_off + 3 * LEASE, "it ends with its lease: {main:?}, {cut_off:?}");
    assert!(replica.begin.0 > main.end.0, "{replica:?}, {main:?}");
    let processes = cluster.on(MAIN, "ps -eo args");
    assert!(processes.contains("holdfast agent"), "{processes}");
    cluster.reconnect(MAIN);
    pair.main_took_over_again(replica.end.1, now());
    pair.finishes();
}

#[test]
fn never_two_copies_are_awake_whatever_happens_to_their_nodes() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Up,
        Killed,
        CutOff,
    }
    let seed = std::env::var("HOLDFAST_PAIRS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(30);
    let cluster = super::cluster_with_own_program();
    let pair = Pair::start(&cluster, "pair-faults");
    let (mut dice, mut states) = (Dice(seed), [State::Up; 2]);
    let mut lost_both = false;
    for round in 0..8 {
        let at = dice.below(2);
        let node = [MAIN, REPLICA][at];
        states[at] = match states[at] {
            State::Up if dice.percent(50) => {
                cluster.docker("kill", node);
                State::Killed
            }
            State::Up => {
                cluster.cut_off(node);
                State::CutOff
            }
            State::Killed => {
                cluster.docker("start", node);
                State::Up
            }
            State::CutOff => {
                cluster.reconnect(node);
                State::Up
            }
        };
        let changed = now();
        eprintln!("seed {seed}, round {round}: main's node {:?}, replica's node {:?}", states[0], states[1]);
        let is_awake = |copy: &Awake| copy.end.0 > changed + 2 * LEASE;
        match states {
            [State::Up, State::Up] => pair.waits_for_both(),
            states if states.contains(&State::Up) => {
                until(&format!("a copy that is awake, seed {seed}, round {round}: {states:?}"), || {
                    pair.awake().iter().any(is_awake)
                });
            }
            _ => {
                // Checkpoints are in memory: those of both nodes may be lost.
                lost_both = true;
                until("the ends of leases", || {
                    now() > changed + 2 * LEASE && pair.awake().iter().all(|copy| copy.end.0 + LEASE < now())
                });
            }
        }
        pair.assert_never_two_awake();
    }
    for (state, node) in states.into_iter().zip([MAIN, REPLICA]) {
        match state {
            State::Up => {}
            State::Killed => cluster.docker("start", node),
            State::CutOff => cluster.reconnect(node),
        }
    }
    pair.waits_for_steps("main", now());
    if !lost_both {
        pair.assert_all_went_on();
    }
    pair.finishes();
}
