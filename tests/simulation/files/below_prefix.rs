//! The work of leaders, agents and drains on the prefix directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use chrono::{DateTime, NaiveDateTime, TimeDelta};
use holdfast::drain::prefix_steps::{self, PrefixSteps};
use holdfast::drain::{Answer, DrainAction, DrainRequest};
use holdfast_agent::collective::leader::{LeaderWork, WorkResult};
use holdfast_agent::simulation::SimulatedAgent;
use holdfast_core::control::meta;
use holdfast_core::prefix::scan::FileDamage;
use holdfast_core::prefix::{dataset, index, rank_filemap, summary};
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::dataset_files::read_meta;
use holdfast_core::store::{self, DatasetAccess, DirectoryName, NameParts};
use holdfast_formats::sion::dataset as container;
use holdfast_model::{CheckpointId, OutputPath, Rank};
use holdfast_wire::agent::{CopyRequest, RebuildRequest, VerifyRequest};

use super::faults::with_fault;
use crate::content::FileName;
use crate::names::NodeIndex;
use crate::prefix::{Directory, JOB, Prefix, PrefixFile};
use crate::world::World;

/// Work of a leader after which the prefix directory may be different.
fn changes_prefix(work: &LeaderWork) -> bool {
    let reads = matches!(
        work,
        LeaderWork::Candidates
            | LeaderWork::FindDataset { .. }
            | LeaderWork::IsPacked { .. }
            | LeaderWork::LookUp { .. }
            | LeaderWork::ReadDataset { .. }
            | LeaderWork::ReadSummary { .. }
            | LeaderWork::Unverified { .. }
    );
    !reads && !work.is_local()
}

impl World {
    /// The local time of the job.
    fn local_time(&self) -> NaiveDateTime {
        let begun = DateTime::from_timestamp(1_700_000_000, 0).unwrap().naive_local();
        begun + TimeDelta::microseconds(self.now as i64)
    }

    /// The leader's file work. `None` if its agent was killed.
    pub fn leader_work_on_files(&mut self, at: NodeIndex, work: LeaderWork) -> Option<WorkResult> {
        let plan = self.nodes[at as usize].agent.as_ref()?.part.as_ref()?.plan.clone();
        let now = self.local_time();
        if !work.is_local() && self.plan_power_loss() {
            self.lose_power(at, |agent| agent.leader_work(&plan, work, now));
            self.check_index();
            return None;
        }
        let (fault, changes) = (self.plan_call_fault(), changes_prefix(&work));
        let perform = |agent: &SimulatedAgent| with_fault(fault, || agent.leader_work(&plan, work.clone(), now));
        let ((result, fault), recorded) = self.on_prefix(at, matches!(work, LeaderWork::Publish { .. }), perform)?;
        if matches!(work, LeaderWork::Halt(_)) {
            self.read_back_halt(at);
        }
        let killed = self.agent_fault_happened(at, fault);
        if changes {
            self.check_index();
        }
        if killed {
            return None;
        }
        if let (LeaderWork::Publish { directory, summary: Some(summary), .. }, Ok(_)) = (&work, &result)
            && summary.complete
        {
            self.count_published(directory);
            if let Some(recorded) = recorded {
                self.check_published_survives(directory, &recorded);
            }
        }
        if let (LeaderWork::CommitContainer { .. }, Ok(_), Some(files)) = (&work, &result, &mut self.files) {
            files.tally.containers += 1;
        }
        if let (LeaderWork::SaveMemory(memory), Ok(_)) = (work, &result) {
            self.nodes[at as usize].disk.leader = Some(*memory);
        }
        Some(result)
    }

    fn count_published(&mut self, directory: &DirectoryName) {
        let published = self.prefix.directories.get(directory).and_then(|directory| directory.dataset.as_ref());
        if let (Some(dataset), Some(files)) = (published, &mut self.files) {
            files.tally.outputs += u64::from(dataset.output);
            files.tally.bypasses += u64::from(dataset.direct.is_some());
        }
    }

    /// Whatever happened: what the index lists as complete is complete.
    fn check_index(&mut self) {
        self.read_back_prefix();
        let complete = self.prefix.index.entries().into_iter().filter(|entry| entry.complete == Some(true));
        let there: Vec<DirectoryName> = complete.map(|entry| entry.directory).collect();
        for directory in there.iter().filter(|directory| self.prefix.directories.contains_key(*directory)) {
            let problem = self.prefix.directories[directory].problem(self.scenario.world(), self.scenario.parts);
            let problem = problem.filter(|_| !self.oracle.undetected);
            assert_eq!(problem, None, "{directory} is indexed as complete");
        }
    }

    /// A request of a drain, to an agent or for the orchestrator itself. `None` if the agent was killed.
    pub fn drain_on_files(
        &mut self,
        number: u32,
        at: Option<NodeIndex>,
        action: DrainAction,
    ) -> Option<Result<Answer, String>> {
        let DrainAction::Request(_, request) = action else { return None };
        if let (DrainRequest::TakeInventory { end_run: true, .. }, Some(at)) = (&request, at) {
            self.end_run(at);
            self.files.as_mut()?.nodes[at as usize].agent.as_mut()?.end_run();
        }
        let now = self.local_time();
        let fault = match at {
            Some(_) => self.plan_call_fault(),
            None => self.plan_orchestrator_fault(),
        };
        let prefix = self.files.as_ref()?.prefix();
        let keeps = self.scenario.settings.flush.keep > 0;
        let reads = matches!(request, DrainRequest::TakeInventory { .. } | DrainRequest::Verify { .. });
        let writes = matches!(request, DrainRequest::Copy { .. } | DrainRequest::Rebuild { .. });
        let files = self.files.as_mut()?;
        files.tally.steps += 1;
        let Some(at) = at else {
            if files.draining.as_ref().is_none_or(|(of, _)| *of != number) {
                files.draining = Some((number, PrefixSteps::at(prefix, JOB.to_owned(), true, keeps)));
            }
            let (_, steps) = files.draining.as_ref()?;
            let reads = matches!(
                request,
                DrainRequest::ExamineFlushed { .. } | DrainRequest::Scan { .. } | DrainRequest::FindOlder
            );
            let (answer, fault) = with_fault(fault, || steps.carry_out(request, now));
            files.tally.containers += u64::from(matches!(answer, Ok(Answer::ContainerCommitted)));
            if self.orchestrator_fault_happened(fault) {
                self.orchestrator_dies();
            }
            if !reads {
                self.check_index();
            }
            return Some(answer.map_err(|failure| failure.reason));
        };
        let work = |agent: &SimulatedAgent| match request {
            DrainRequest::TakeInventory { .. } => Ok(Answer::Inventory(Box::new(agent.inventory()?))),
            DrainRequest::Copy { checkpoint, directory, order, container, .. } => {
                let request = CopyRequest {
                    checkpoint,
                    directory: prefix.join(directory.as_str()),
                    crc: true,
                    on_behalf_of: order.on_behalf_of.to_vec(),
                    partners_only: order.partners_only,
                    buffer_bytes: 4096,
                    threads: Some(1),
                    container: container.map(|places| *places),
                };
                agent.copy(&request).map(Answer::Copied)
            }
            DrainRequest::Verify { directory, files, .. } => {
                let names = files.iter().map(|unit| unit.name.clone()).collect();
                let directory = prefix.join(directory.as_str());
                let damaged = agent.verify(&VerifyRequest { directory, files: names, threads: Some(1) })?;
                let damaged = damaged.into_iter().map(|(name, text)| (name, FileDamage::Unreadable(text)));
                Ok(Answer::Verified { damaged: damaged.collect() })
            }
            DrainRequest::Rebuild { checkpoint, directory, set, .. } => {
                let directory = prefix.join(directory.as_str());
                let SetId { scheme, group_id, members } = set.set;
                let (missing, ranks) = (set.missing, set.ranks);
                let request = RebuildRequest { directory, checkpoint, scheme, group_id, members, missing, ranks };
                agent.rebuild(&request).map(|()| Answer::Rebuilt)
            }
            DrainRequest::NoteFlushed { checkpoint, .. } => {
                let noted = agent.store().flush.note_flushed(checkpoint);
                noted.map(|()| Answer::FlushNoted).map_err(|error| error.to_string())
            }
            request => panic!("{request:?} is not for an agent"),
        };
        if writes && self.plan_power_loss() {
            self.lose_power(at, work);
            self.check_index();
            return None;
        }
        let agent = self.files.as_ref()?.node(at).agent.as_ref()?;
        let (answer, fault) = with_fault(fault, || work(agent));
        if self.agent_fault_happened(at, fault) {
            return None;
        }
        if !reads {
            self.read_back(at);
        }
        Some(answer)
    }

    /// Records what a restart supersedes.
    pub fn supersede_on_files(&mut self, from: Option<CheckpointId>) -> Option<String> {
        let prefix = self.files.as_ref()?.prefix();
        // A kill in the middle of other actions is that of the drain's steps and of the journal.
        let fault = self.plan_orchestrator_fault().filter(|planned| !planned.kills());
        let (superseded, fault) = with_fault(fault, || prefix_steps::supersede(prefix, JOB, from));
        self.orchestrator_fault_happened(fault);
        superseded.err().map(|error| error.to_string())
    }

    /// Reads what is below the prefix directory.
    pub fn read_back_prefix(&mut self) {
        if let Some(files) = &self.files {
            self.prefix = self.prefix_at(&files.prefix());
        }
    }

    /// What is below a prefix directory, in the terms of the model.
    pub fn prefix_at(&self, path: &Path) -> Prefix {
        let files = self.files.as_ref().unwrap();
        let store = store::open(path).unwrap();
        let mut found = Prefix::default();
        found.index = index::read(&*store).unwrap().unwrap_or_default();
        let current = fs::read_link(path.join("scr.current")).ok();
        found.current = current.and_then(|link| DirectoryName::new(link.to_str()?).ok());
        let ids: BTreeMap<DirectoryName, CheckpointId> =
            found.index.entries().into_iter().map(|entry| (entry.directory, entry.id)).collect();
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('.') || !entry.file_type().unwrap().is_dir() {
                continue;
            }
            let name = DirectoryName::new(name).unwrap();
            let Some(id) = ids.get(&name).copied().or_else(|| Some(NameParts::parse(name.as_str())?.id)) else {
                // The files of outputs, or a directory that was just made.
                continue;
            };
            let mut directory = Directory {
                checkpoint: id,
                files: BTreeMap::new(),
                filemaps: BTreeMap::new(),
                summary: summary::of(&*store, &name).ok(),
                dataset: dataset::read(&*store, &name).ok().flatten(),
            };
            let stored = container::open(store.open(&name, DatasetAccess::Read).unwrap()).unwrap();
            let read = |named: &str, rank, output_path: Option<&OutputPath>| {
                let mut bytes = Vec::new();
                if let Ok(file) = stored.open(named, output_path) {
                    file.reader().read_to_end(&mut bytes).unwrap();
                }
                let parsed = FileName::parse(named);
                (parsed, PrefixFile { rank, content: files.content(parsed, &bytes) })
            };
            for listed in stored.list().unwrap() {
                if let Some(rank) = listed.name.strip_suffix(rank_filemap::SUFFIX).and_then(|rank| rank.parse().ok()) {
                    directory.filemaps.insert(Rank(rank), (Vec::new(), 0));
                }
                let Some(named) = listed.name.strip_suffix(meta::EXTENSION) else { continue };
                let Ok(meta) = read_meta(&*stored, named) else { continue };
                directory.files.extend([read(named, meta.rank, meta.output_path.as_ref())]);
            }
            // Files that bypassed the cache have no meta files.
            let bypasses = directory.dataset.as_ref().is_some_and(|dataset| dataset.direct.is_some());
            for (rank, listed) in directory.summary.iter().filter(|_| bypasses).flat_map(|it| &it.by_rank) {
                let of_rank = listed.files.iter().map(|file| read(&file.name, *rank, file.output_path.as_ref()));
                directory.files.extend(of_rank);
            }
            found.directories.insert(name, directory);
        }
        found
    }
}
