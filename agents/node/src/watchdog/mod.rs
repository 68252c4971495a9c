//! How long nothing has moved in the ranks of this node, for the orchestrator to judge whether the run hangs; and where
//! they are in their code, before it ends them.
//!
//! * [`quiet`]: a rank's calls and its work, and since when there was neither (pure);
//! * [`usage`]: what a rank's processes use, from `/proc`;
//! * `stack`: where they are.
//!
//! Costs nothing unless the plan asks for it; then a look at `/proc` every quarter of `hang_after`, left out when every
//! rank has called or waits.

pub mod quiet;
mod stack;
pub mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_wire::agent::QuietRank;
use holdfast_wire::run::{self, RunPlan};
use holdfast_wire::{Generation, Rank};

pub use stack::stacks;

use self::quiet::Quiet;
use crate::agent::Agent;
use crate::events::lock;
use crate::ranks;

/// Looks at `/proc` for every `hang_after`.
const LOOKS: u32 = 4;
/// But never more often than that.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The ranks of the run in force, as far as they are watched.
#[derive(Debug, Default)]
pub struct Watchdog {
    watched: Mutex<Option<(Generation, Quiet)>>,
}

/// A call that a rank is in; over when this is dropped.
#[derive(Debug)]
pub struct InCall<'a> {
    watchdog: &'a Watchdog,
    generation: Generation,
    rank: Rank,
}

impl Watchdog {
    /// A run begins, with these ranks here. Returns the settings if they are to be watched.
    pub fn begin(&self, plan: &RunPlan, local: &[Rank]) -> Option<run::Watchdog> {
        let settings = plan.settings.watchdog.filter(|_| !local.is_empty());
        *lock(&self.watched) =
            settings.map(|settings| (plan.generation, Quiet::new(settings, local, Instant::now())));
        settings
    }

    /// A rank makes a call.
    pub fn call(&self, generation: Generation, rank: Rank, name: &'static str) -> InCall<'_> {
        self.with(generation, |quiet| quiet.call_begins(rank, name, Instant::now()));
        InCall { watchdog: self, generation, rank }
    }

    /// The ranks in which nothing has moved for long.
    pub fn quiet(&self, generation: Generation, now: Instant) -> Vec<QuietRank> {
        self.with(generation, |quiet| quiet.report(now)).unwrap_or_default()
    }

    fn with<R>(&self, generation: Generation, work: impl FnOnce(&mut Quiet) -> R) -> Option<R> {
        let mut watched = lock(&self.watched);
        watched.as_mut().filter(|(of, _)| *of == generation).map(|(_, quiet)| work(quiet))
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.watchdog.with(self.generation, |quiet| quiet.call_ends(self.rank, Instant::now()));
    }
}

/// Looks from time to time whether the ranks work, as long as the run lasts.
pub async fn keep_watch(agent: Arc<Agent>, generation: Generation, settings: run::Watchdog) {
    let pause = (settings.hang_after / LOOKS).max(SHORTEST_PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        let now = Instant::now();
        if agent.watchdog.with(generation, |quiet| quiet.is_worth_a_look(now, pause)) != Some(true) {
            continue;
        }
        let looking = {
            let agent = agent.clone();
            tokio::task::spawn_blocking(move || {
                let processes = processes(&agent, generation);
                processes.into_iter().map(|(rank, pids)| (rank, usage::of(pids))).collect()
            })
        };
        // What was used before the look began is seen by it; what comes later, by the next one.
        if let Ok(used) = looking.await {
            agent.watchdog.with(generation, |quiet| quiet.looked(now, used));
        }
    }
}

/// The processes of the run's ranks on this node: their own, and what they have started.
fn processes(agent: &Agent, generation: Generation) -> BTreeMap<Rank, BTreeSet<u32>> {
    let marked = ranks::marked(agent, |of| of == generation);
    let marked = marked.into_iter().filter_map(|process| Some((process.rank?, process.pid)));
    let mut processes: BTreeMap<Rank, BTreeSet<u32>> = BTreeMap::new();
    for (rank, pid) in agent.ranks.connected(generation).into_iter().chain(marked) {
        processes.entry(rank).or_default().insert(pid);
    }
    processes
}
