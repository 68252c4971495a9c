//! A pair of main and replica on two devices that are network namespaces: the devices and the orchestrator are killed
//! and return, links between them are cut and heal, at any time and in any order.
//!
//! Copies record when they are awake. Two are never awake together for longer than a lease; and while there is an
//! orchestrator that reaches a device with a copy that can be woken, there is a copy that is awake, but for a lease and
//! the time of a fail-over.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use holdfast_shm::Registry;
use holdfast_testkit::Dice;
use holdfast_testkit::awake::{Awake, copies_in, longest_together, longest_without, now};
use serde_json::Value;

use crate::devices::{ADDRESSES, Link, Machines};
use crate::pair_copy::RECORDS;
use crate::world::{Running, World};

const LEASE: Duration = Duration::from_secs(2);
/// More than the longest time of a fail-over on a busy machine: no assertion about speed. Without the replica it would
/// not end at all.
const FAIL_OVER: Duration = Duration::from_secs(20);
/// An orchestrator notices the loss of an agent within this time, and connects to it again only then.
const NOTICED: Duration = Duration::from_secs(6);
const SIDES: [&str; 2] = ["main", "replica"];
/// Between two looks at something that needs a process or many files.
const LOOK: Duration = Duration::from_millis(50);
/// The number of faults, and that of a long test.
const ROUNDS: [u32; 2] = [8, 50];
/// Repeats a sequence of faults; a failure prints it.
const SEED: &str = "HOLDFAST_SEED";

/// What the test knows of checkpoints.
#[derive(Clone, Copy, Debug)]
enum Fact {
    /// Both devices have the work up to this step.
    Mirrored(i64),
    /// The checkpoints of this device are lost.
    Lost(usize),
}

struct Pair<'a> {
    world: &'a World,
    machines: Machines<'a>,
    spec: PathBuf,
    orchestrator: Option<Running<'a>>,
    /// Since when a device has a copy that the orchestrator can wake, if it can.
    ready: [Option<Duration>; 2],
    /// When it last became possible that the orchestrator reaches the device.
    healed: [Duration; 2],
    /// Periods in which a copy had to be awake.
    guarded: Vec<Range<Duration>>,
    facts: Vec<(Duration, Fact)>,
    /// For messages about failures.
    story: Vec<String>,
}

impl<'a> Pair<'a> {
    /// The pair with its main awake, and its checkpoints mirrored.
    fn start(world: &'a World) -> Self {
        let machines = Machines::new(world);
        fs::create_dir(world.path("records")).unwrap();
        let text = format!(
            "kind: replicated\njob: pair\nprefix: {}\nallocation: {{{}}}\n\
             pairs:\n  - {{name: dnn, main: [{}], nodes: [0, 1], heartbeat: {{period: 20ms, misses: 100}}, \
             checkpoint: {{size: 4KiB, period: 10ms}}, restart: {{first: 200ms, most: 2s}}}}\n\
             jobs:\n  - {{name: audio, command: [sleep, '7654'], node: 1}}\n\
             replication: {{lease: {}s, env: {{{RECORDS}: {}}}}}\n",
            world.prefix().display(),
            machines.allocation(),
            std::env::current_exe().unwrap().display(),
            LEASE.as_secs(),
            world.path("records").display(),
        );
        let spec = world.write("job.yaml", &text);
        let mut pair = Pair {
            world,
            machines,
            spec,
            orchestrator: None,
            ready: [None; 2],
            healed: [Duration::ZERO; 2],
            guarded: Vec::new(),
            facts: Vec::new(),
            story: Vec::new(),
        };
        pair.start_orchestrator();
        pair.waits_for_both();
        pair
    }

    fn holdfast(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.machines.command(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments);
        command
    }

    fn note(&mut self, what: String) {
        eprintln!("{:?}: {what}", now());
        self.story.push(format!("{:?}: {what}", now()));
    }

    fn taken_over(&self) -> usize {
        self.world.all("pairs_taken_over").len()
    }

    fn start_orchestrator(&mut self) {
        let before = self.taken_over();
        let first = !self.world.prefix().exists();
        self.note("the orchestrator starts".to_owned());
        let command = self.holdfast(&["run", self.spec.to_str().unwrap()]);
        let mut started = self.world.start(command);
        let is_new = |event: &Value| event["event"] == "pairs_taken_over" && event["epoch"] == before + 2;
        if !first {
            started.sees("an orchestrator that took over", is_new);
            self.healed = [now(); 2];
        }
        self.orchestrator = Some(started);
    }

    fn kill_orchestrator(&mut self) {
        self.unready([0, 1]);
        self.note("the orchestrator is killed".to_owned());
        let orchestrator = self.orchestrator.take().unwrap();
        orchestrator.killed();
    }

    fn kill(&mut self, device: usize) {
        self.unready([device]);
        self.note(format!("device {device} is killed"));
        // Before and after: a copy that begins meanwhile may be of either time.
        self.facts.push((now(), Fact::Lost(device)));
        self.machines.kill(device);
        self.facts.push((now(), Fact::Lost(device)));
    }

    fn start_device(&mut self, device: usize) {
        self.note(format!("device {device} starts"));
        self.machines.start(device);
        self.healed[device] = now();
    }

    fn cut(&mut self, link: Link) {
        if let Link::Orchestrator(device) = link {
            self.unready([device]);
        }
        self.note(format!("{link:?} is cut"));
        self.machines.cut(link);
    }

    fn heal(&mut self, link: Link) {
        self.note(format!("{link:?} heals"));
        self.machines.heal(link);
        if let Link::Orchestrator(device) = link {
            self.healed[device] = now();
        }
    }

    /// From now on, these devices need not have a copy that can be woken.
    fn unready<const N: usize>(&mut self, devices: [usize; N]) {
        for device in devices {
            self.guarded.extend(self.ready[device].take().map(|since| since..now()));
        }
    }

    /// The orchestrator can reach the device.
    fn is_reached(&self, device: usize) -> bool {
        let is_cut = self.machines.is_cut(Link::Orchestrator(device));
        self.orchestrator.is_some() && self.machines.is_up(device) && !is_cut
    }

    fn is_well(&self) -> bool {
        (0..2).all(|device| self.is_reached(device)) && !self.machines.is_cut(Link::Devices)
    }

    fn records(&self) -> Vec<Awake> {
        copies_in(&self.world.path("records"))
    }

    /// The state of a copy, as its agent reports it.
    fn state(&self, side: usize) -> Option<String> {
        let prefix = self.world.prefix();
        let arguments = ["pairs", "list", "--json", "--prefix", prefix.to_str().unwrap()];
        let output = self.holdfast(&arguments).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(list["pairs"][0][SIDES[side]]["state"].as_str()?.to_owned())
    }

    /// The last thing that the orchestrator reported of a device's agent is that it is ready.
    fn has_agent(&self, device: usize) -> bool {
        let is_of_agent = |event: &Value| {
            let name = event["event"].as_str().unwrap_or_default();
            event["node"] == ADDRESSES[device] && ["agent_ready", "agent_lost", "agent_not_started"].contains(&name)
        };
        self.world.events().into_iter().rfind(is_of_agent).is_some_and(|event| event["event"] == "agent_ready")
    }

    /// Waits until a device has a copy in one of these states, and the orchestrator reaches it.
    fn waits_for_copy(&mut self, device: usize, states: &[&str]) {
        let side = SIDES[device];
        self.world.wait(&format!("{side} {states:?}\n{:#?}", self.story), || {
            sleep(LOOK);
            let is_in = |state: String| states.contains(&&*state);
            (self.has_agent(device) && self.state(device).is_some_and(is_in)).then_some(())
        });
        self.ready[device].get_or_insert(now().max(self.healed[device] + NOTICED));
    }

    /// Waits until a copy on one of these devices does steps after this time; returns what it recorded so far.
    fn waits_for_steps(&self, devices: &[usize], after: Duration) -> Awake {
        let is_wanted = |copy: &Awake| copy.end.0 > after && devices.iter().any(|device| SIDES[*device] == copy.side);
        self.world.wait(&format!("steps on {devices:?}\n{:#?}", self.story), || {
            sleep(LOOK);
            self.records().into_iter().rfind(is_wanted)
        })
    }

    /// Waits until no copy has done a step for the time of a lease.
    fn waits_for_sleep(&self, after: Duration) {
        self.world.wait(&format!("the ends of leases\n{:#?}", self.story), || {
            sleep(LOOK);
            let is_over = |copy: &Awake| copy.end.0 + LEASE < now();
            (now() > after + 2 * LEASE && self.records().iter().all(is_over)).then_some(())
        });
    }

    /// The step of the newest checkpoint on a device.
    fn newest(&self, device: usize) -> Option<i64> {
        let environment = |(pid, _): (u32, String)| fs::read(format!("/proc/{pid}/environ")).ok();
        let registry = self.machines.processes(device).into_iter().filter_map(environment).find_map(|variables| {
            let text = String::from_utf8_lossy(&variables).into_owned();
            text.split('\0').find_map(|variable| variable.strip_prefix("HOLDFAST_PAIRS=").map(str::to_owned))
        })?;
        let registry = Registry::open(&self.machines.path(device, Path::new(&registry))).ok()?;
        Some(registry.read_newest(0, &mut Vec::new()).ok()??.tag)
    }

    /// Waits until the main is awake and the replica asleep, and has what the main has done until then.
    fn waits_for_both(&mut self) {
        self.waits_for_copy(0, &["awake"]);
        self.waits_for_copy(1, &["asleep"]);
        let step = self.waits_for_steps(&[0], now()).end.1;
        self.world.wait(&format!("step {step} on the other device\n{:#?}", self.story), || {
            sleep(LOOK);
            (self.newest(1) >= Some(step)).then_some(())
        });
        self.facts.push((now(), Fact::Mirrored(step)));
        self.waits_for_job(false);
        self.is_guarded();
    }

    /// Waits until the periods have begun in which a copy must be awake.
    fn is_guarded(&self) {
        self.world.wait("certain connections", || {
            sleep(LOOK);
            self.ready.iter().flatten().all(|since| *since < now()).then_some(())
        });
        self.assert_well();
    }

    /// Waits until the job beside the replica is suspended, or not.
    fn waits_for_job(&self, is_suspended: bool) {
        self.world.wait(&format!("the job suspended: {is_suspended}"), || {
            sleep(LOOK);
            let job = self.machines.processes(1).into_iter().find(|(_, line)| line.contains("sleep 7654"))?;
            let status = fs::read_to_string(format!("/proc/{}/stat", job.0)).ok()?;
            (status.contains(") T ") == is_suspended).then_some(())
        });
    }

    /// What every failure shows.
    fn all(&self) -> String {
        format!("{:#?}\n{:#?}\n{:#?}", self.story, self.facts, self.records())
    }

    #[track_caller]
    fn assert_well(&self) {
        let records = self.records();
        let together = longest_together(&records);
        assert!(together <= LEASE, "two copies were awake for {together:?}\n{}", self.all());
        let open = self.ready.iter().flatten().map(|since| *since..now().max(*since));
        let without: Vec<_> =
            self.guarded.iter().cloned().chain(open).map(|period| longest_without(&records, &period)).collect();
        let longest = without.into_iter().max_by_key(|gap| gap.end.saturating_sub(gap.start)).unwrap_or_default();
        let length = longest.end.saturating_sub(longest.start);
        eprintln!("together {together:?}, without a copy {length:?}");
        assert!(length <= LEASE + LEASE / 10 + FAIL_OVER, "no copy was awake in {longest:?}\n{}", self.all());
        self.assert_went_on(&records);
    }

    /// No work is lost that was on a device on which the pair went on.
    #[track_caller]
    fn assert_went_on(&self, records: &[Awake]) {
        for (number, (at, fact)) in self.facts.iter().enumerate() {
            let Fact::Mirrored(step) = fact else { continue };
            let rest = &self.facts[number + 1..];
            let until = rest.iter().find(|(_, fact)| matches!(fact, Fact::Mirrored(_)));
            let until = until.map_or(Duration::MAX, |(at, _)| *at);
            for copy in records.iter().filter(|copy| copy.begin.0 > *at && copy.begin.0 < until) {
                let is_lost = rest.iter().any(|(lost, fact)| {
                    matches!(fact, Fact::Lost(device) if SIDES[*device] == copy.side) && *lost < copy.begin.0
                });
                if is_lost {
                    // This copy had nothing, or what the other device sent; those after it may go on from its work.
                    break;
                }
                assert!(copy.begin.1 > *step, "{step} steps were on both devices: {copy:?}\n{}", self.all());
            }
        }
    }

    /// Ends the pair's work, and with it the job.
    fn finishes(mut self) {
        fs::write(self.world.path("records/finish"), "").unwrap();
        self.unready([0, 1]);
        self.orchestrator.take().unwrap().ends_with(0).prints(&["all pairs are finished"]);
        self.assert_well();
        for device in 0..2 {
            self.world.wait("the end of agent, copies and job", || {
                let processes = self.machines.processes(device);
                processes.iter().all(|(_, line)| line.contains("sshd")).then_some(())
            });
            let shared = self.machines.shared();
            for directory in ["/tmp", "/dev/shm"].map(Path::new) {
                let left = fs::read_dir(self.machines.path(device, directory)).unwrap().flatten();
                let left = left.map(|entry| directory.join(entry.file_name()));
                let left: Vec<_> = left.filter(|path| !shared.iter().any(|shared| shared.starts_with(path))).collect();
                assert!(left.is_empty(), "left on device {device}: {left:?}");
            }
        }
        let world = self.world;
        drop(self);
        world.assert_nothing_is_left();
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{}\n{}", self.all(), self.machines.log(0), self.machines.log(1));
        }
    }
}

#[test(unchecked)]
fn replica_goes_on_when_the_device_of_the_main_is_killed_and_main_takes_over_when_it_is_back(world: &World) {
    let mut pair = Pair::start(world);
    pair.kill(0);
    let killed = now();
    let replica = pair.waits_for_steps(&[1], killed + 2 * LEASE);
    pair.waits_for_job(true);
    pair.start_device(0);
    pair.waits_for_both();
    let main = pair.waits_for_steps(&[0], now());
    assert!(main.begin.1 > replica.end.1, "the replica had done more: {replica:?}, {main:?}");
    pair.finishes();
}

#[test(unchecked)]
fn replica_goes_on_when_the_main_is_cut_off_from_the_orchestrator_only(world: &World) {
    let mut pair = Pair::start(world);
    pair.cut(Link::Orchestrator(0));
    let cut = now();
    let replica = pair.waits_for_steps(&[1], cut + 2 * LEASE);
    let main = pair.records().swap_remove(0);
    // Its device works, and sends checkpoints to the other one until the lease ends.
    assert!(main.side == "main" && main.end.0 > cut && main.end.0 < replica.begin.0, "{main:?}, {replica:?}");
    assert!(pair.machines.processes(0).iter().any(|(_, line)| line.contains("holdfast agent")));
    pair.heal(Link::Orchestrator(0));
    pair.waits_for_both();
    let main = pair.waits_for_steps(&[0], now());
    assert!(main.begin.1 > replica.end.1, "the replica had done more: {replica:?}, {main:?}");
    pair.finishes();
}

#[test(unchecked)]
fn copies_whose_devices_do_not_reach_each_other_keep_their_turns(world: &World) {
    let mut pair = Pair::start(world);
    pair.cut(Link::Devices);
    let main = pair.waits_for_steps(&[0], now() + 3 * LEASE);
    pair.assert_well();
    assert_eq!(pair.records().len(), 1, "{}", pair.all());
    // The replica has older checkpoints, and what the main did since is lost with its device.
    pair.kill(0);
    let replica = pair.waits_for_steps(&[1], now() + 2 * LEASE);
    assert!(replica.begin.1 < main.end.1, "{replica:?}, {main:?}");
    pair.start_device(0);
    pair.heal(Link::Devices);
    pair.waits_for_both();
    pair.finishes();
}

#[test(unchecked)]
fn next_orchestrator_wakes_the_replica_when_the_device_of_the_main_was_killed_meanwhile(world: &World) {
    let mut pair = Pair::start(world);
    pair.kill_orchestrator();
    pair.kill(0);
    pair.waits_for_sleep(now());
    assert_eq!(pair.records().len(), 1, "{}", pair.all());
    pair.start_orchestrator();
    pair.waits_for_steps(&[1], now());
    pair.start_device(0);
    pair.waits_for_both();
    pair.finishes();
}

/// Changes one thing at random: one that is broken is repaired rather than another one broken.
/// The device of the main is killed and back at once, without its memory, under the same orchestrator or the next one.
fn main_goes_on_from_what_the_other_device_has(under_the_next: bool) {
    let world = World::unchecked();
    let mut pair = Pair::start(&world);
    let mirrored = |(_, fact): &(Duration, Fact)| match fact {
        Fact::Mirrored(step) => Some(*step),
        Fact::Lost(_) => None,
    };
    let step = pair.facts.iter().filter_map(mirrored).max().unwrap();
    if under_the_next {
        pair.kill_orchestrator();
    }
    pair.kill(0);
    let killed = now();
    pair.start_device(0);
    if under_the_next {
        pair.start_orchestrator();
    }
    pair.waits_for_both();
    let began = pair.records().into_iter().filter(|copy| copy.begin.0 > killed);
    let lost: Vec<_> = began.filter(|copy| copy.begin.1 <= step).collect();
    assert!(lost.is_empty(), "{step} steps were on the device that stayed: {lost:?}\n{}", pair.all());
    pair.finishes();
}

#[test]
fn main_whose_device_is_back_at_once_goes_on_from_what_the_other_device_has() {
    main_goes_on_from_what_the_other_device_has(false);
}

#[test]
fn main_whose_device_is_back_under_the_next_orchestrator_goes_on_from_what_the_other_device_has() {
    main_goes_on_from_what_the_other_device_has(true);
}

fn next_fault(pair: &mut Pair<'_>, dice: &mut Dice) {
    let broken = |pair: &Pair<'_>, thing: usize| match thing {
        0 | 1 => !pair.machines.is_up(thing),
        2 => pair.orchestrator.is_none(),
        _ => pair.machines.is_cut(Link::ALL[thing - 3]),
    };
    let things: Vec<usize> = (0..6).collect();
    let (broken, well): (Vec<usize>, Vec<usize>) = things.into_iter().partition(|thing| broken(pair, *thing));
    let repairs = !broken.is_empty() && dice.percent(60);
    let chosen = if repairs || well.is_empty() { &broken } else { &well };
    let thing = chosen[dice.below(chosen.len())];
    match (thing, repairs || well.is_empty()) {
        (0 | 1, false) => pair.kill(thing),
        (0 | 1, true) => pair.start_device(thing),
        (2, false) => pair.kill_orchestrator(),
        (2, true) => pair.start_orchestrator(),
        (_, false) => pair.cut(Link::ALL[thing - 3]),
        (_, true) => pair.heal(Link::ALL[thing - 3]),
    }
}

/// Waits until the pair is as it must be with what is broken now.
fn settles(pair: &mut Pair<'_>) {
    let changed = now();
    let reached: Vec<usize> = (0..2).filter(|device| pair.is_reached(*device)).collect();
    if pair.is_well() {
        pair.waits_for_both();
    } else if reached.is_empty() {
        pair.waits_for_sleep(changed);
    } else {
        pair.waits_for_steps(&reached, changed + 2 * LEASE);
        for device in reached {
            pair.waits_for_copy(device, &["awake", "asleep"]);
        }
    }
    pair.is_guarded();
}

#[test(unchecked)]
fn copies_take_turns_whatever_happens_to_devices_links_and_orchestrator(world: &World) {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(16);
    let mut pair = Pair::start(world);
    let mut dice = Dice(seed);
    pair.note(format!("{SEED}={seed}"));
    let rounds = ROUNDS[usize::from(std::env::var_os("HOLDFAST_LONG_TESTS").is_some())];
    for _ in 0..rounds {
        next_fault(&mut pair, &mut dice);
        if dice.percent(40) {
            // The next fault comes while the pair still reacts.
            sleep(Duration::from_millis(dice.below(3000_u64)));
        } else {
            settles(&mut pair);
        }
    }
    pair.note("everything is repaired".to_owned());
    for device in 0..2 {
        if !pair.machines.is_up(device) {
            pair.start_device(device);
        }
    }
    Link::ALL.into_iter().filter(|link| pair.machines.is_cut(*link)).collect::<Vec<_>>().into_iter().for_each(|link| {
        pair.heal(link);
    });
    if pair.orchestrator.is_none() {
        pair.start_orchestrator();
    }
    pair.waits_for_both();
    pair.finishes();
}
