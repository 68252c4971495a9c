//! What a seed determines of a job with real files: a small one of all jobs, with kills and errors at calls.

use std::path::Path;

use holdfast_testkit::Dice;

use crate::scenario::Scenario;

/// Of a thousand steps with real files: how many are cut short by a kill, have a call that fails, have writes that take
/// a few bytes at once, and, on the prefix directory, are cut short by a loss of power.
#[derive(Clone, Copy, Debug)]
pub struct FileRates {
    pub kills: u32,
    pub errors: u32,
    pub short_writes: u32,
    pub power: u32,
    /// Outputs are written, also past the cache.
    pub outputs: bool,
}

/// More nodes take longer, and show no more of the files.
const MOST_NODES: u32 = 8;

impl Scenario {
    /// The job with real files of a seed.
    pub fn with_files(seed: u64) -> Scenario {
        let mut dice = Dice(seed ^ 0xf11e5);
        let small = std::iter::repeat_with(|| Scenario::of(dice.roll() / 10_000 * 10_000 + 1));
        let mut scenario = small.filter(|scenario| scenario.nodes <= MOST_NODES).find(|it| it.nodes > 1).unwrap();
        scenario.iterations = scenario.iterations.min(6);
        let (kills, errors) = ([0, 5, 20, 60][dice.below(4_usize)], [0, 0, 0, 20][dice.below(4_usize)]);
        let power = [0, 0, 30, 100][dice.below(4_usize)];
        let short_writes = [0, 0, 30][dice.below(3_usize)];
        let outputs = dice.percent(60);
        scenario.files = Some(FileRates { kills, errors, short_writes, power, outputs });
        scenario.settings.flush.container = scenario.container;
        // `holdfast check` refuses both together: ranks cannot read in containers.
        scenario.settings.restart.from_prefix &= scenario.container.is_none();
        scenario.faults.most += if kills + errors + power > 0 { dice.below(12) } else { 0 };
        let settings = &mut scenario.settings;
        (settings.piece_bytes, settings.copy_bytes, settings.copy_threads) = (128, 4096, Some(1));
        scenario
    }

    /// With the prefix directory of a job.
    pub fn below(mut self, prefix: &Path) -> Scenario {
        self.settings.prefix = prefix.to_owned();
        self
    }
}
