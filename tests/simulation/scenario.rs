//! The scenario of a seed: the allocation, the job, the rates of faults.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast::relaunch::{AllocatedNode, Config};
use holdfast_core::redundancy::numbers::SET_SIZE;
use holdfast_core::redundancy::{local, partner, rs, xor};
use holdfast_model::{
    AsyncRedundancy, ContainerKind, ContainerPolicy, CrcOnCopy, CrcPolicy, Descriptor, FlushMode, FlushPolicy,
    Generation, LevelPolicy, NumberName, RestartPolicy, RestartRanks,
};
use holdfast_testkit::Dice;
use holdfast_wire::fixtures;
use holdfast_wire::run::Settings;

use crate::files::FileRates;
use crate::names::{NodeIndex, name};
use crate::prefix;
use crate::queue::{MS, Time};

/// Seeds repeat this pattern: 9,900 small allocations, 99 of a thousand nodes and more, one of ten thousand.
pub const PATTERN: u64 = 10_000;

/// Rates and limits of faults.
#[derive(Clone, Debug)]
pub struct FaultRates {
    /// Mean time between two faults.
    pub every: Time,
    /// The most faults in a job.
    pub most: u32,
    /// Steps of an agent during which it dies, of a million.
    pub dies_midway: u64,
    /// Launches after the first one that are followed by a fault at once, of a hundred.
    pub in_restarts: u64,
    /// Orchestrators may die.
    pub takeovers: bool,
    /// The prefix directory may fail or hang.
    pub prefix_fails: bool,
    /// Polls that are lost, of a hundred.
    pub lost_polls: u64,
    /// Users and the resource manager interfere, and ranks fail.
    pub interference: bool,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub nodes: NodeIndex,
    /// Nodes of a rack, which is a failure domain and may be lost as a whole.
    pub in_rack: u32,
    pub config: Config,
    pub settings: Settings,
    /// Iterations until the application is done.
    pub iterations: u32,
    /// Files that a rank writes.
    pub parts: u8,
    /// Determines the calls that the application makes in each iteration.
    pub program: u64,
    pub poll_every: Time,
    pub faults: FaultRates,
    /// Drains pack the files into containers.
    pub container: Option<ContainerPolicy>,
    /// Further runs in the same allocation, if the job is not finished.
    pub runs: u32,
    /// With real files: how often their calls are disturbed.
    pub files: Option<FileRates>,
}

impl Scenario {
    pub fn of(seed: u64) -> Scenario {
        let mut dice = Dice(seed ^ 0x5eed);
        let nodes: NodeIndex = match seed % PATTERN {
            9_999 => 10_000,
            9_900.. => 1_000 + dice.below(120_u32),
            _ => match dice.below(100) {
                0..65 => 1 + dice.below(8_u32),
                65..93 => 8 + dice.below(12_u32),
                _ => 20 + dice.below(45_u32),
            },
        };
        let large = nodes >= 1000;
        let spares = if large { nodes / 100 } else { dice.below(1 + nodes / 2) };
        let needed = nodes - spares;
        let per_node = if large || dice.percent(60) { 1 } else { 1 + dice.below(3_u32) };
        let mut racks = Dice(seed ^ 0x7ac5);
        let in_rack = if racks.percent(25) { 1 + racks.below(4_u32) } else { 1 };
        let allocated = |at| AllocatedNode { name: name(at), failure_domain: format!("rack{}", at / in_rack) };
        let mut config = Config::new((0..nodes).map(allocated).collect(), needed, per_node);
        config.min_nodes = if large { needed - 20 } else { 1 + dice.below(needed) };
        config.attempts = if large { 8 } else { dice.below(10) };
        config.no_progress_limit = if large { 6 } else { 1 + dice.below(5_u32) };
        config.checks_progress = Dice(seed ^ 0x9e37).percent(20);
        config.settle = if dice.percent(20) { ms(dice.below(2000)) } else { Duration::ZERO };
        config.start_within = ms(5000);
        config.agent_restarts = 4;
        config.replace_after = ms(5000 + dice.below(5000));
        config.replaces_stopped = Dice(seed ^ 0x5709).percent(50);
        config.hang_after = Some(ms(2000));
        let poll_every = if large { 2000 * MS } else { 250 * MS };
        config.down_after = if large { ms(8000) } else { ms(750) };
        config.poll = Duration::from_micros(poll_every);
        if dice.percent(20) {
            config.own_node = Some(name(dice.below(nodes)));
        }
        if !large && dice.percent(10) {
            config.allocation_end = Some(5 + dice.below(30) as i64);
            config.before_end = ms(dice.below(5000));
            config.drain_reserve = dice.percent(80).then(|| ms(dice.below(5000)));
        }
        config.halt_grace = ms(dice.below(3000));
        let every = if large { 1000 * MS } else { (30 + dice.below(1500)) * MS };
        // A step of the job has ended before.
        config.finished = Generation(if dice.percent(10) { 1 + dice.below(3_u64) } else { 0 });
        let runs = if !large && dice.percent(40) { 1 + dice.below(2_u32) } else { 0 };
        let faults = FaultRates {
            every,
            most: if large { 6 } else { dice.below(14) },
            dies_midway: if large { 5 } else { [0, 0, 500, 3000][dice.below(4_usize)] },
            in_restarts: [0, 0, 20, 60][dice.below(4_usize)],
            takeovers: dice.percent(30),
            prefix_fails: dice.percent(20),
            lost_polls: dice.below(4),
            interference: !large,
        };
        let container = ContainerPolicy { kind: ContainerKind::Sion, files: 2 };
        Scenario {
            nodes,
            in_rack,
            container: Dice(seed ^ 0x5107).percent(40).then_some(container),
            settings: with_async(seed, settings(&mut dice, large)),
            iterations: if large { 5 } else { 2 + dice.below(10_u32) },
            parts: 1 + dice.below(2_u8),
            program: dice.roll(),
            config,
            poll_every,
            faults,
            runs,
            files: None,
        }
    }

    /// Takes away nodes, first spares, then those of the run with their ranks. At least one stays.
    pub fn limit_nodes(&mut self, most: NodeIndex) {
        let config = &mut self.config;
        self.nodes = self.nodes.min(most.max(1));
        config.nodes.truncate(self.nodes as usize);
        config.own_node = config.own_node.take().filter(|own| config.nodes.iter().any(|node| node.name == *own));
        config.nodes_needed = config.nodes_needed.min(self.nodes);
        config.min_nodes = config.min_nodes.min(config.nodes_needed);
        config.ranks = config.nodes_needed * config.ranks_per_node;
    }

    /// The checksums of all files are recorded.
    pub fn has_checksums(&self) -> bool {
        self.settings.crc.on_copy != CrcOnCopy::Never
    }

    /// Ranks of the run.
    pub fn world(&self) -> u32 {
        self.config.ranks
    }
}

fn settings(dice: &mut Dice, large: bool) -> Settings {
    let scheme = match dice.below(100) {
        0..35 => xor::NAME,
        35..55 => rs::NAME,
        55..88 => partner::NAME,
        _ if large => xor::NAME,
        _ => local::NAME,
    };
    let descriptor = |index, interval, scheme, numbers: &[(NumberName, u32)]| Descriptor {
        index,
        enabled: true,
        interval,
        base: "/cache".to_owned(),
        scheme,
        numbers: numbers.iter().copied().collect(),
    };
    let set_size = 2 + dice.below(7_u32);
    let mut numbers = vec![(SET_SIZE.name, set_size)];
    if scheme == rs::NAME {
        numbers.push((rs::FAILURES.name, 1 + dice.below((set_size - 1).min(3))));
    }
    let mut descriptors = vec![descriptor(0, 1, scheme, &numbers)];
    if dice.percent(15) {
        let other = if scheme == xor::NAME { partner::NAME } else { xor::NAME };
        descriptors.push(descriptor(1, 2, other, &[(SET_SIZE.name, 4)]));
    }
    let keep = 1 + dice.below(3_u32);
    let mut settings = Settings {
        descriptors,
        restart: RestartPolicy {
            distribute: !dice.percent(3),
            fetch: !dice.percent(10),
            fetch_width: [256, 1, 3][keep as usize % 3],
            from_prefix: false,
            ranks: RestartRanks::Same,
        },
        flush: FlushPolicy {
            every: [0, 1, 2, 3, 100][dice.below(5_usize)],
            mode: if dice.percent(50) { FlushMode::Sync } else { FlushMode::Async },
            width: [1, 3, 256][keep as usize % 3],
            percent: 0.0,
            // Copies take as long with a limit.
            bandwidth: if dice.percent(50) { 0 } else { 1 << 20 },
            on_restart: dice.percent(20),
            // Without another throw.
            keep: keep % 3,
            container: None,
        },
        crc: CrcPolicy {
            on_copy: if dice.percent(50) { CrcOnCopy::Always } else { CrcOnCopy::Never },
            on_flush: dice.percent(50),
            on_restart: dice.percent(50),
            on_delete: false,
        },
        ..fixtures::settings(prefix::PATH, "/cache", keep, scheme)
    };
    // In one scenario of fifteen, without another throw.
    settings.restart.from_prefix = keep == 3 && settings.flush.every == 100;
    settings
}

/// In some scenarios redundancy is made while the ranks go on.
fn with_async(seed: u64, settings: Settings) -> Settings {
    let mut dice = Dice(seed ^ 0xa57c);
    let limits = AsyncRedundancy { bandwidth: 1 << 20, percent: 0.0 };
    let behind = settings.descriptors.iter().filter(|_| dice.percent(40));
    let behind: BTreeSet<u32> = behind.map(|descriptor| descriptor.index).collect();
    let mut policy = |index: u32| LevelPolicy {
        behind: behind.contains(&index).then_some(limits),
        keep: (index > 0 && dice.percent(50)).then_some(1),
    };
    let levels = (0..).zip(&settings.descriptors).map(|(index, _)| (index, policy(index)));
    Settings { levels: levels.collect(), ..settings }
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
