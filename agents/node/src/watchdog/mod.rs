//! How long the ranks of this node have been inactive, from which the orchestrator decides whether the run hangs; and
//! their stacks, before it ends them.
//!
//! * [`quiet`]: how long each rank has neither called nor worked (pure);
//! * [`usage`]: the resource usage of a rank's processes, from `/proc`;
//! * `stack`: the stacks of a rank's processes.
//!
//! Off unless the plan enables it. Then `/proc` is read every quarter of `hang_after`, unless every rank has called
//! since or is waiting in a call.

mod processes;
pub mod quiet;
mod stack;
pub mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::{Generation, Rank};
use holdfast_wire::agent::QuietRank;
use holdfast_wire::plan::MemberPlan;
use holdfast_wire::run;
use parking_lot::Mutex;

pub use stack::stacks;

use self::processes::processes;
use self::quiet::Quiet;
use crate::ranks::Ranks;

/// How often `/proc` is read in each `hang_after`.
const CHECKS: u32 = 4;
/// The shortest time between two such checks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Watchdog {
    watched: Mutex<Option<(Generation, Quiet)>>,
}

/// A call of a rank; it ends when this is dropped.
#[derive(Debug)]
pub struct InCall<'a> {
    watchdog: &'a Watchdog,
    generation: Generation,
    rank: Rank,
}

impl Watchdog {
    /// Begins a run. Returns the settings if its ranks on this node are to be watched.
    pub fn begin(&self, plan: &MemberPlan) -> Option<run::Watchdog> {
        let settings = plan.settings.watchdog.filter(|_| !plan.local.is_empty());
        let quiet = |settings| (plan.generation, Quiet::new(settings, &plan.local, Instant::now()));
        *self.watched.lock() = settings.map(quiet);
        settings
    }

    pub fn call(&self, generation: Generation, rank: Rank, name: &'static str) -> InCall<'_> {
        self.with(generation, |quiet| quiet.call_begins(rank, name, Instant::now()));
        InCall { watchdog: self, generation, rank }
    }

    /// The ranks that have been inactive for long.
    pub fn quiet(&self, generation: Generation, now: Instant) -> Vec<QuietRank> {
        self.with(generation, |quiet| quiet.report(now)).unwrap_or_default()
    }

    fn with<R>(&self, generation: Generation, work: impl FnOnce(&mut Quiet) -> R) -> Option<R> {
        let mut watched = self.watched.lock();
        watched.as_mut().filter(|(of, _)| *of == generation).map(|(_, quiet)| work(quiet))
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.watchdog.with(self.generation, |quiet| quiet.call_ends(self.rank, Instant::now()));
    }
}

/// Measures regularly whether the ranks work, until the run ends.
pub async fn keep_watch(watchdog: Arc<Watchdog>, ranks: Arc<Ranks>, generation: Generation, settings: run::Watchdog) {
    let pause = (settings.hang_after / CHECKS).max(SHORTEST_PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        let now = Instant::now();
        if watchdog.with(generation, |quiet| quiet.needs_check(now, pause)) != Some(true) {
            continue;
        }
        let measuring = {
            let ranks = ranks.clone();
            tokio::task::spawn_blocking(move || {
                let processes = processes(&ranks, generation);
                processes.into_iter().map(|(rank, pids)| (rank, usage::of(pids))).collect()
            })
        };
        // As of the start of the measurement: later usage is found by the next one.
        if let Ok(used) = measuring.await {
            watchdog.with(generation, |quiet| quiet.measured(now, used));
        }
    }
}

/// Returns when the process that a test has started has become `sleep` and is asleep.
#[cfg(test)]
pub(crate) fn until_asleep(pid: u32) {
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    holdfast_testkit::cluster::until(&format!("sleep of process {pid}"), || stat().contains("(sleep) S"));
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    use holdfast_wire::agent::StackRequest;
    use holdfast_wire::environment;

    use crate::agent::Agent;
    use tempfile::TempDir;

    use crate::agent::fixtures::fixture_agent;
    use crate::fixtures::fixture_plan;

    const GENERATION: Generation = Generation(4);

    fn agent() -> (TempDir, Arc<Agent>) {
        fixture_agent("node1", &format!("watched-{}", std::process::id()))
    }

    fn plan(hang_after: Duration, local: &[u32]) -> MemberPlan {
        let mut plan = fixture_plan(GENERATION, "node1", local);
        plan.settings.watchdog = Some(run::Watchdog { hang_after, busy_hang_after: None });
        plan
    }

    /// A program that makes no calls, as a launcher starts it for rank 7.
    fn program(agent: &Agent) -> std::process::Child {
        let mut command = std::process::Command::new("sleep");
        command.arg("600").env(environment::JOB, &agent.start.job_id).env(environment::NODE, "node1");
        command.env(environment::GENERATION, "4").env("SLURM_PROCID", "7").spawn().unwrap()
    }

    #[tokio::test]
    async fn a_program_that_makes_no_calls_is_found_and_reported_when_it_is_idle_with_its_stack() {
        let (_root, agent) = agent();
        let mut program = program(&agent);
        until_asleep(program.id());
        let found = processes(&agent.ranks, GENERATION);
        assert_eq!(found, BTreeMap::from([(Rank(7), [program.id()].into())]));
        assert!(processes(&agent.ranks, Generation(3)).is_empty());

        let plan = plan(Duration::from_secs(40), &[6, 7]);
        agent.watchdog.begin(&plan).unwrap();
        let begun = Instant::now();
        for seconds in [10, 60] {
            let used = found.iter().map(|(rank, pids)| (*rank, usage::of(pids.iter().copied()))).collect();
            let now = begun + Duration::from_secs(seconds);
            agent.watchdog.with(GENERATION, |quiet| quiet.measured(now, used)).unwrap();
        }
        let quiet = agent.watchdog.quiet(GENERATION, begun + Duration::from_secs(60));
        assert_eq!(quiet.iter().map(|quiet| quiet.rank).collect::<Vec<_>>(), [Rank(7)], "rank 6 has no process");
        assert!(agent.watchdog.quiet(Generation(5), begun).is_empty());

        let asked = |generation| StackRequest { generation, ranks: vec![Rank(6), Rank(7)] };
        let node = &agent.start.node;
        let stacks = stacks(&agent.ranks, node, &asked(GENERATION)).await.stacks;
        assert_eq!(stacks.keys().collect::<Vec<_>>(), [&Rank(7)]);
        assert!(stacks[&Rank(7)].contains("sleep 600"), "{}", stacks[&Rank(7)]);
        assert!(super::stacks(&agent.ranks, node, &asked(Generation(3))).await.stacks.is_empty(), "that one is over");
        program.kill().unwrap();
        program.wait().unwrap();
    }

    #[test]
    fn a_rank_that_waits_in_a_call_is_reported_until_it_has_its_answer() {
        let watchdog = Watchdog::default();
        watchdog.begin(&plan(Duration::ZERO, &[6])).unwrap();
        let call = watchdog.call(GENERATION, Rank(6), "need_checkpoint");
        let quiet = watchdog.quiet(GENERATION, Instant::now());
        assert_eq!(quiet[0].waiting_in.as_deref(), Some("need_checkpoint"));
        drop(call);
        assert!(watchdog.quiet(GENERATION, Instant::now()).is_empty());
    }

    #[test]
    fn a_run_without_watchdog_and_a_spare_are_not_watched() {
        let watchdog = Watchdog::default();
        assert_eq!(watchdog.begin(&plan(Duration::from_secs(1), &[])), None);
        let mut unasked = plan(Duration::from_secs(1), &[6]);
        unasked.settings.watchdog = None;
        assert_eq!(watchdog.begin(&unasked), None);
        drop(watchdog.call(GENERATION, Rank(6), "init"));
        assert!(watchdog.quiet(GENERATION, Instant::now()).is_empty());
    }
}
