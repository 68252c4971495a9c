//! After the copies: scan, verify, rebuild, summary, index, link.
//!
//! Checksums and rebuilds are spread over the agents, which sit in front of their own memory and network; whatever no
//! agent can do is done here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::Local;
use holdfast_core::prefix::inspect::{Inspection, SetRebuild, Verdict, inspect};
use holdfast_core::prefix::publish::Publication;
use holdfast_core::prefix::scan::{Damage, Scan, ScanOptions, scan};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::prefix::{DirectoryName, Prefix, rebuild};
use holdfast_core::redundancy::RedundancyError;
use holdfast_core::redundancy::files::SetId;
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::agent::{RebuildRequest, VerifyRequest};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::DrainError;
use crate::events::LogEvent;
use crate::fleet::{AgentClient, Roster};

/// A request to check or rebuild files may take this long; an agent that is lost is noticed long before.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Files that one request asks an agent to check: few enough to spread well.
const FILES_A_REQUEST: usize = 16;

/// What is to be completed.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Requests to agents.
    pub client: AgentClient,
    /// The agents.
    pub roster: Roster,
    /// The prefix directory.
    pub prefix: Prefix,
    /// The checkpoint directory.
    pub directory: DirectoryName,
    /// The dataset.
    pub checkpoint: CheckpointId,
    /// The current link is to lead there.
    pub make_current: bool,
    /// Ranks whose files an agent has just read, compared with their checksums, and written: not read again.
    pub fresh: BTreeSet<Rank>,
    /// Who is told what happens.
    pub events: mpsc::UnboundedSender<LogEvent>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Every file of every rank is there, and the directory is current.
    pub complete: bool,
    /// Ranks that were computed.
    pub rebuilt: Vec<Rank>,
    /// Why it is not complete.
    pub reasons: Vec<String>,
}

impl Completion {
    /// Makes of the files that are there what can be made of them, and writes it down.
    ///
    /// # Errors
    /// The directory cannot be read, or the summary, index or link not written.
    pub async fn run(&self) -> Result<Completed, DrainError> {
        let mut scanned = self.scan().await?;
        let failures = self.verify(&scanned).await?;
        apply(&mut scanned, &failures, &BTreeSet::new());
        let mut inspection = inspect(&scanned);
        for file in &inspection.damaged {
            self.tell(LogEvent::DamagedInPrefix { checkpoint: self.checkpoint, file: file.to_string() });
        }
        let (mut rebuilt, mut reasons) = (BTreeSet::new(), Vec::new());
        if !inspection.rebuildable.is_empty() {
            for (set, outcome) in self.rebuild(&inspection).await? {
                match outcome {
                    Ok(()) => {
                        for rank in set.ranks {
                            rebuilt.insert(rank);
                            self.tell(LogEvent::RebuiltInPrefix { checkpoint: self.checkpoint, rank });
                        }
                    }
                    Err(reason) => reasons.push(format!("{set} was not rebuilt: {reason}")),
                }
            }
            scanned = self.scan().await?;
            apply(&mut scanned, &failures, &rebuilt);
            inspection = inspect(&scanned);
        }
        reasons.extend(inspection.reasons.iter().map(ToString::to_string));
        if inspection.verdict == Verdict::NothingUsable {
            reasons.push("no usable file could be copied".to_owned());
        }
        let now = Local::now().naive_local();
        let (prefix, directory) = (self.prefix.clone(), self.directory.clone());
        let publication = Publication::of_scan(directory, &scanned, &inspection, self.make_current, now);
        let complete = spawn_blocking(move || publication.publish(&prefix)).await??;
        let directory = self.directory.to_string();
        self.tell(LogEvent::Indexed { checkpoint: self.checkpoint, directory, complete });
        Ok(Completed { complete, rebuilt: rebuilt.into_iter().collect(), reasons })
    }

    fn path(&self) -> PathBuf {
        self.prefix.checkpoint_path(&self.directory)
    }

    fn tell(&self, event: LogEvent) {
        // Nobody listens when the orchestrator is ending; the drain's result says the same.
        let _ = self.events.send(event);
    }

    async fn scan(&self) -> Result<Scan, DrainError> {
        let path = self.path();
        Ok(spawn_blocking(move || scan(&path, ScanOptions::default())).await??)
    }

    /// The agents in turn, without end; `None` if there is none.
    fn turns(&self) -> impl Iterator<Item = Option<(NodeName, SocketAddr)>> + use<> {
        let agents: Vec<_> = self.roster.agents().into_iter().map(Some).collect();
        let none = agents.is_empty().then_some(None);
        agents.into_iter().chain(none).collect::<Vec<_>>().into_iter().cycle()
    }

    /// Reads what was not read just now, and says what is damaged.
    async fn verify(&self, scanned: &Scan) -> Result<Vec<(VerifyUnit, Damage)>, DrainError> {
        let mut units = scanned.verify_units();
        units.retain(|unit| !self.fresh.contains(&unit.rank));
        // The largest first: what comes last should not keep everybody waiting.
        units.sort_by_key(|unit| std::cmp::Reverse(unit.size));
        let count = units.len().div_ceil(FILES_A_REQUEST);
        let mut batches: Vec<Vec<VerifyUnit>> = vec![Vec::new(); count];
        for (at, unit) in units.into_iter().enumerate() {
            batches[at % count].push(unit);
        }
        let work: Vec<_> = batches.into_iter().zip(self.turns()).collect();
        let this = Arc::new(self.clone());
        let results = self.client.each(work, |(batch, agent)| {
            let this = Arc::clone(&this);
            async move { this.verify_batch(batch, agent).await }
        });
        let batches: Vec<Vec<_>> = results.await.into_iter().collect::<Result<_, _>>()?;
        Ok(batches.into_iter().flatten().collect())
    }

    async fn verify_batch(
        &self,
        batch: Vec<VerifyUnit>,
        agent: Option<(NodeName, SocketAddr)>,
    ) -> Result<Vec<(VerifyUnit, Damage)>, DrainError> {
        if let Some((node, address)) = agent {
            let files = batch.iter().map(|unit| unit.name.clone()).collect();
            let request = VerifyRequest { directory: self.path(), files };
            let answer = tokio::select! {
                answer = self.client.verify(address, &request, LONGEST) => answer.map_err(|error| error.to_string()),
                () = self.roster.gone(&node, address) => Err("its agent is lost".to_owned()),
            };
            match answer {
                Ok(reply) => {
                    let damage = |unit: &VerifyUnit| reply.damaged.get(&unit.name).cloned();
                    let damaged = |unit: VerifyUnit| damage(&unit).map(|text| (unit, Damage::Unreadable(text)));
                    return Ok(batch.into_iter().filter_map(damaged).collect());
                }
                Err(reason) => tracing::info!(%node, %reason, "checksums are verified here instead"),
            }
        }
        let path = self.path();
        let here = spawn_blocking(move || {
            let check = |unit: VerifyUnit| unit.check(&path, &|_| {}).err().map(|damage| (unit, damage));
            batch.into_iter().filter_map(check).collect()
        });
        Ok(here.await?)
    }

    async fn rebuild(&self, inspection: &Inspection) -> Result<Vec<(SetRebuild, Rebuilt)>, DrainError> {
        let work: Vec<_> = rebuild::plan(inspection).into_iter().zip(self.turns()).collect();
        let this = Arc::new(self.clone());
        let results = self.client.each(work, |(set, agent)| {
            let this = Arc::clone(&this);
            async move {
                let outcome = this.rebuild_set(&set, agent).await?;
                Ok((set, outcome))
            }
        });
        results.await.into_iter().collect()
    }

    async fn rebuild_set(
        &self,
        set: &SetRebuild,
        agent: Option<(NodeName, SocketAddr)>,
    ) -> Result<Rebuilt, DrainError> {
        if let Some((node, address)) = agent {
            let SetRebuild { set: SetId { scheme, group_id, members }, missing, ranks } = set.clone();
            let (directory, checkpoint) = (self.path(), self.checkpoint);
            let request = RebuildRequest { directory, checkpoint, scheme, group_id, members, missing, ranks };
            let answer = tokio::select! {
                answer = self.client.rebuild(address, &request, LONGEST) => answer.map_err(|error| error.to_string()),
                () = self.roster.gone(&node, address) => Err("its agent is lost".to_owned()),
            };
            match answer {
                Ok(_) => return Ok(Ok(())),
                Err(reason) => tracing::info!(%node, %set, %reason, "rebuilt here instead"),
            }
        }
        let (path, set) = (self.path(), set.clone());
        let here = move || rebuild::run(&path, &set, &mut |_, _| ControlFlow::Continue(())).map(drop);
        Ok(spawn_blocking(here).await?)
    }
}

/// What came of one rebuild.
type Rebuilt = Result<(), RedundancyError>;

/// Takes out what failed its checksum, but for ranks whose files were computed anew since.
fn apply(scanned: &mut Scan, failures: &[(VerifyUnit, Damage)], rebuilt: &BTreeSet<Rank>) {
    for (unit, damage) in failures.iter().filter(|(unit, _)| !rebuilt.contains(&unit.rank)) {
        scanned.apply_failure(unit, damage.clone());
    }
}

/// The ranks of a map.
pub(super) fn ranks_of<V>(map: &BTreeMap<Rank, V>) -> Vec<Rank> {
    map.keys().copied().collect()
}
