//! Pairs of main and replica on one node: from the loss of a main to the first instruction of its replica, the cost of
//! watching, and checkpoints in shared memory. Beside it the design of the Fault-tolerant Scheme for Multiple Jobs.

use std::collections::BTreeSet;
use std::hint::spin_loop;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_model::pair::{CopyState, PairConfig, PairStatus, RestartBackOff};
use holdfast_shm::process::run_soon;
use holdfast_shm::schedule::next_beat;
use holdfast_shm::{Layout, Registry, Seat, Side, SlotState, Woken};
use holdfast_wire::environment;
use holdfast_wire::pairs::{PairOnNode, PairsPlan, PairsSettings, PairsStop, PairsSync, SidesOnNode};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::agents::{Cluster, thread_times};
use crate::figures::{Samples, below, once, ratio, title};
use crate::{Extent, PART, Result, pairs_mirror};

pub const PERIOD: Duration = Duration::from_millis(1);
const MISSES: u32 = 3;
/// A checkpoint of the Fault-tolerant Scheme for Multiple Jobs.
pub const CHECKPOINT: usize = 400_000;
/// Pairs of which the speed of checkpoints is measured together.
pub const TOGETHER: u32 = 10;
/// Limit of everything that is waited for.
pub const LIMIT: Duration = Duration::from_secs(120);

pub fn run(extent: Extent) -> Result<()> {
    let pairs = if extent.tries > 1 { 100 } else { 4 };
    let seconds = extent.observed_seconds()?;
    title(&format!("Pairs: {pairs} of them, a heartbeat each millisecond, {MISSES} may be missed"));
    fail_overs(pairs, extent, seconds)?;
    title("A thread that sleeps until the next millisecond, without pairs");
    wake_ups(extent.idle_seconds)?;
    title("The same pairs with a polling thread for each");
    polling(pairs, extent, seconds)?;
    title("Checkpoints of 400 kB in shared memory");
    checkpoints(extent)?;
    title("Checkpoints of 400 kB on the node of the other copy, ten pairs, one each 10 ms");
    pairs_mirror::lag(extent)
}

/// The agent, the copies and the registry of one node.
struct Node {
    cluster: Cluster,
    address: SocketAddr,
    registry: PathBuf,
    pairs: u32,
}

/// Copies do not end with their agent.
impl Drop for Node {
    fn drop(&mut self) {
        let stop = PairsStop { epoch: 1, at_once: false };
        let stop = self.cluster.client.pairs_stop(self.address, &stop, Duration::ZERO);
        let _ = self.cluster.runtime.block_on(stop);
    }
}

impl Node {
    fn start(pairs: u32) -> Result<Node> {
        let cluster = Cluster::start(1)?;
        let address = cluster.agents().next().ok_or("no agent")?.address;
        let command = vec![this_program()?];
        let config = |index: u32| PairConfig {
            spec_index: index,
            name: format!("pair{index}"),
            main: command.clone(),
            replica: command.clone(),
            period: PERIOD,
            misses: MISSES,
            checkpoint_bytes: 64,
            checkpoint_period: Duration::from_millis(10),
            // Long enough to read when the replica was woken, before it is ended.
            restart: RestartBackOff { first: Duration::from_secs(5), most: Duration::from_secs(5), attempts: None },
            stop_grace: Duration::from_millis(50),
            start_within: LIMIT,
            suspends: None,
        };
        let on_node =
            |index| PairOnNode { index, config: config(index), sides: SidesOnNode::Both, restore: false, peer: None };
        let plan = plan((0..pairs).map(on_node).collect(), &[(PART, "copy")]);
        let accepted = cluster.runtime.block_on(cluster.client.pairs_plan(address, &plan))?;
        Ok(Node { cluster, address, registry: accepted.registry, pairs })
    }

    fn statuses(&self) -> Result<Vec<PairStatus>> {
        let sync = PairsSync { epoch: 1, ..PairsSync::default() };
        let answer = self.cluster.client.pairs_sync(self.address, &sync, LIMIT);
        Ok(self.cluster.runtime.block_on(answer)?.pairs)
    }

    /// Waits until all mains are awake, and all replicas asleep.
    fn settled(&self) -> Result<Vec<PairStatus>> {
        let begun = Instant::now();
        loop {
            let statuses = self.statuses()?;
            let is = |status: &PairStatus, side, state| status.copy(side).is_some_and(|copy| copy.state == state);
            let ready =
                |status| is(status, Side::Main, CopyState::Awake) && is(status, Side::Replica, CopyState::Asleep);
            if statuses.len() == self.pairs as usize && statuses.iter().all(ready) {
                return Ok(statuses);
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("the copies are not ready: {statuses:?}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Signals every main; milliseconds until its replica runs.
    fn lose_mains(&self, signal: Signal) -> Result<Vec<f64>> {
        let statuses = self.settled()?;
        let mut delays = Vec::new();
        for status in statuses {
            let pid = status.main.and_then(|main| main.pid).ok_or("a main has no process")?;
            delays.extend(lose(&self.registry, status.pair, pid, signal)?);
        }
        Ok(delays)
    }

    /// All fail-overs, and the periods without a heartbeat of the copies that are awake.
    fn alarms(&self) -> Result<(u64, u64)> {
        let statuses = self.statuses()?;
        let missed = |status: &PairStatus| status.main.map_or(0, |main| main.missed);
        Ok((statuses.iter().map(|status| status.fail_overs).sum(), statuses.iter().map(missed).sum()))
    }
}

/// A plan without jobs, whose copies have these variables.
pub fn plan(pairs: Vec<PairOnNode>, variables: &[(&str, &str)]) -> PairsPlan {
    let variable = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    PairsPlan {
        epoch: 1,
        pairs,
        jobs: Vec::new(),
        settings: PairsSettings {
            save_to: None,
            restore_from: Vec::new(),
            lease: Duration::from_secs(2),
            pin_watcher: None,
            directory: PathBuf::from("/"),
            output: None,
            environment: variables.iter().map(variable).collect(),
        },
        finished: BTreeSet::new(),
    }
}

pub fn this_program() -> Result<String> {
    Ok(std::env::current_exe()?.to_str().ok_or("the path of the program is not UTF-8")?.to_owned())
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)).unwrap_or(0)
}

/// Signals a main; milliseconds until its replica has noticed that it is awake. `None`: there was a false alarm before.
fn lose(registry: &Path, pair: u32, pid: u32, signal: Signal) -> Result<Option<f64>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no process")?;
    // It shows the copies that are expected when it is opened.
    let registry = Registry::open(registry)?;
    if registry.copy(pair, Side::Replica).state != SlotState::Asleep {
        return Ok(None);
    }
    let begun = monotonic();
    if kill_process(pid, signal).is_err() {
        return Ok(None);
    }
    loop {
        let replica = registry.copy(pair, Side::Replica);
        if replica.state == SlotState::Awake {
            return Ok((replica.awoken_at_ns > begun).then(|| (replica.awoken_at_ns - begun) as f64 / 1e6));
        }
        if monotonic() - begun > u64::try_from(LIMIT.as_nanos())? {
            return Err(format!("the replica of pair {pair} was not woken: {replica:?}").into());
        }
        thread::sleep(Duration::from_micros(500));
    }
}

/// Prints the 50th and 99th percentile and the largest value; returns the 99th.
pub fn percentiles(what: &str, mut delays: Vec<f64>) -> f64 {
    delays.sort_by(f64::total_cmp);
    if delays.is_empty() {
        println!("  {what:<44} no figure: false alarms");
        return f64::NAN;
    }
    let at = |percent: usize| delays[(delays.len() * percent).div_ceil(100).saturating_sub(1)];
    let (p50, p99, most) = (at(50), at(99), at(100));
    once(&format!("{what}, p50"), p50, "ms", "");
    once(&format!("{what}, p99"), p99, "ms", &format!("   largest {most:.3} ms"));
    p99
}

/// Keeps all processors busy for so long, with twice as many threads.
fn load(seconds: u64) {
    let busy = AtomicBool::new(true);
    let threads = 2 * thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        thread::sleep(Duration::from_secs(seconds));
        busy.store(false, Ordering::Relaxed);
    });
}

/// How late a thread runs that sleeps until each millisecond: what a copy must expect of this machine, and what short
/// slices do for it.
fn wake_ups(seconds: u64) -> Result<()> {
    let measured = |short: bool, busy: bool| -> Result<Vec<f64>> {
        thread::scope(|scope| {
            let late = scope.spawn(move || late_wake_ups(seconds, short));
            if busy {
                load(seconds);
            }
            late.join().map_err(|_| "a thread panicked".into())
        })
    };
    percentiles("late by, nothing else running", measured(true, false)?);
    percentiles("late by, all processors busy, usual slices", measured(false, true)?);
    percentiles("late by, all processors busy, short slices", measured(true, true)?);
    Ok(())
}

/// Milliseconds.
fn late_wake_ups(seconds: u64, short_slices: bool) -> Vec<f64> {
    let _ = set_current_timer_slack(NonZero::new(1));
    if short_slices {
        run_soon();
    }
    let clock = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    let end = clock() + Duration::from_secs(seconds);
    let mut delays = Vec::new();
    loop {
        let next = next_beat(PERIOD, clock());
        if next > end {
            return delays;
        }
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &Timespec::try_from(next).unwrap_or_default());
        delays.push(clock().saturating_sub(next).as_secs_f64() * 1e3);
    }
}

fn fail_overs(pairs: u32, extent: Extent, seconds: u64) -> Result<()> {
    let node = Node::start(pairs)?;
    let exits = node.lose_mains(Signal::KILL)?;
    let p99 = percentiles("main killed to replica awake", exits);
    below("p99", p99, 3.0, "ms");
    let hangs = node.lose_mains(Signal::STOP)?;
    let p99 = percentiles("main stopped (no heartbeats) to replica awake", hangs);
    below("p99", p99, f64::from(MISSES) + 1.0, "ms");
    node.settled()?;
    let agent = node.cluster.agents().next().ok_or("no agent")?;
    let (before, begun) = (agent.thread_times()?.seconds, Instant::now());
    thread::sleep(Duration::from_secs(extent.idle_seconds));
    let used = (agent.thread_times()?.seconds - before) / begun.elapsed().as_secs_f64() * 100.0;
    below("processor of the agent, of one core", used, 5.0, "%");
    let before = node.alarms()?;
    load(seconds);
    let after = node.alarms()?;
    println!("  false alarms in {seconds} s, all processors busy: {}", after.0 - before.0);
    println!("  heartbeats missed in that time: {}", after.1.saturating_sub(before.1));
    Ok(())
}

/// Processes that end with this value.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
        }
        for process in &mut self.0 {
            let _ = process.wait();
        }
    }
}

fn create(directory: &Path, pairs: u32, checkpoint: u64) -> Result<(PathBuf, Registry)> {
    let path = directory.join("registry");
    let layout = Layout { pairs, checkpoint_bytes: vec![checkpoint; pairs as usize], ring: 10 };
    let registry = Registry::create(&path, &layout, "bench")?;
    Ok((path, registry))
}

fn polling(pairs: u32, extent: Extent, seconds: u64) -> Result<()> {
    let directory = holdfast_testkit::fast_directory();
    let (path, registry) = create(directory.path(), pairs, 64)?;
    let mut processes = Processes(Vec::new());
    for pair in 0..pairs {
        for side in Side::BOTH {
            registry.expect(pair, side, 1);
            let copy = Command::new(this_program()?)
                .env(PART, "copy")
                .env(environment::PAIRS, &path)
                .env(environment::PAIR_NUMBER, pair.to_string())
                .env(environment::PAIR_INDEX, pair.to_string())
                .env(environment::PAIR_SIDE, side.to_string())
                .env(environment::PAIR_INCARNATION, "1")
                .stdout(Stdio::null())
                .spawn()?;
            processes.0.push(copy);
        }
    }
    let waiting = |side, state| (0..pairs).any(|pair| registry.copy(pair, side).state != state);
    while waiting(Side::Replica, SlotState::Asleep) || waiting(Side::Main, SlotState::Asleep) {
        thread::sleep(Duration::from_millis(5));
    }
    let server = Command::new(this_program()?).env(PART, "polling pairs").arg(&path).spawn()?;
    let server_pid = server.id();
    processes.0.push(server);
    while waiting(Side::Main, SlotState::Awake) {
        thread::sleep(Duration::from_millis(5));
    }
    let (before, begun) = (thread_times(server_pid)?.seconds, Instant::now());
    thread::sleep(Duration::from_secs(extent.idle_seconds));
    let used = (thread_times(server_pid)?.seconds - before) / begun.elapsed().as_secs_f64() * 100.0;
    once("processor of the server, of one core", used, "%", "");
    let mut delays = Vec::new();
    let awake = |pair| registry.copy(pair, Side::Replica).state == SlotState::Awake;
    let alarms = (0..pairs).filter(|pair| awake(*pair)).count();
    println!("  false alarms in {} s without load: {alarms} of {pairs} pairs", extent.idle_seconds);
    // A third of the pairs is lost; the others show what load does.
    for pair in (0..pairs).filter(|pair| pair % 3 == 0) {
        delays.extend(lose(&path, pair, registry.copy(pair, Side::Main).pid, Signal::KILL)?);
    }
    percentiles("main killed to replica awake", delays);
    let left: Vec<u32> = (0..pairs).filter(|pair| !awake(*pair)).collect();
    load(seconds);
    let alarms = left.iter().filter(|pair| awake(**pair)).count();
    println!("  false alarms in {seconds} s, all processors busy: {alarms} of {} pairs", left.len());
    Ok(())
}

fn checkpoints(extent: Extent) -> Result<()> {
    let directory = holdfast_testkit::fast_directory();
    let (path, registry) = create(directory.path(), TOGETHER, CHECKPOINT as u64)?;
    let mut seats = Vec::new();
    for pair in 0..TOGETHER {
        registry.expect(pair, Side::Main, 1);
        let seat = Seat::take(&path, pair, Side::Main, 1)?;
        registry.wake(pair, Side::Main, 1);
        if seat.wait()? != Woken::Awake {
            return Err("a copy was not woken".into());
        }
        seats.push(seat);
    }
    let bytes: Vec<u8> = (0..CHECKPOINT).map(|at| (at % 251) as u8).collect();
    // As many places as a ring has, so that both write to memory that is not in a cache.
    let mut copies = vec![vec![0_u8; CHECKPOINT]; 10];
    let rounds = 200;
    let (mut stored, mut copied) = (Samples::default(), Samples::default());
    for _ in 0..extent.tries.max(3) {
        for round in 0..rounds {
            let begun = Instant::now();
            seats[0].update_checkpoint(1, &bytes)?;
            stored.add(begun.elapsed().as_secs_f64() * 1e6);
            let begun = Instant::now();
            copies[round % 10].copy_from_slice(&bytes);
            std::hint::black_box(&mut copies);
            copied.add(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    stored.show("a main is blocked", "µs");
    copied.show("memcpy of the same bytes", "µs");
    ratio("blocked / memcpy (aim: at most 1.2)", stored.median() / copied.median());
    let mut speed = Samples::default();
    for _ in 0..extent.tries {
        let begun = Instant::now();
        thread::scope(|scope| -> Result<()> {
            let store = |seat: &Seat| (0..rounds).try_for_each(|_| seat.update_checkpoint(1, &bytes).map(|_| ()));
            let all: Vec<_> = seats.iter().map(|seat| scope.spawn(move || store(seat))).collect();
            for one in all {
                one.join().map_err(|_| "a thread panicked")??;
            }
            Ok(())
        })?;
        let total = f64::from(TOGETHER) * rounds as f64 * CHECKPOINT as f64;
        speed.add(total / begun.elapsed().as_secs_f64() / 1e9);
    }
    speed.show("ten pairs together", "GB/s");
    Ok(())
}
