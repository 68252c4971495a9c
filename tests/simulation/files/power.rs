//! Loss of power of a node that works on the prefix directory: what it has not synchronised may be lost there, in any
//! order and by half. What it has reported must not be.

use std::fs;
use std::path::Path;

use holdfast_agent::simulation::SimulatedAgent;
use holdfast_core::calls::recording::{self, Recorded};
use holdfast_core::crash;
use holdfast_core::store::DirectoryName;
use holdfast_model::CheckpointId;
use holdfast_wire::peer::OrderResult;

use super::bytes::content_of;
use crate::content::Content;
use crate::names::NodeIndex;
use crate::world::{World, trace};

/// Of so many changes that are not safe any are lost.
const LAST: usize = 3;

impl World {
    /// Whether a node loses power in its next step on the prefix directory.
    pub fn plan_power_loss(&mut self) -> bool {
        let Some(rates) = self.scenario.files else { return false };
        self.injected_faults < self.scenario.faults.most && self.dice.below(1000) < rates.power
    }

    /// A node begins a step on the prefix directory, and loses power before or right after its end.
    pub fn lose_power<T>(&mut self, at: NodeIndex, work: impl FnOnce(&SimulatedAgent) -> T) {
        let Some(files) = &mut self.files else { return };
        let Some(agent) = &files.node(at).agent else { return };
        let prefix = files.prefix();
        let (_, recorded) = recording::record(&prefix, || work(agent));
        files.tally.steps += 1;
        files.tally.losses += 1;
        self.injected_faults += 1;
        let losses = recorded.losses(self.dice.below(recorded.changes() + 1), LAST);
        let loss = &losses[self.dice.below(losses.len())];
        trace!(self, "n{at}: loses power {}", recorded.describe(loss));
        fs::remove_dir_all(&prefix).unwrap();
        recorded.make(loss, &prefix);
        crash::leave_temporary_files(&prefix);
        self.node_dies(at);
    }

    /// Does a step of an agent; one that is `examined` returns now and then what it changed below the prefix, too.
    pub fn on_prefix<T>(
        &mut self,
        at: NodeIndex,
        examined: bool,
        work: impl FnOnce(&SimulatedAgent) -> T,
    ) -> Option<(T, Option<Recorded>)> {
        let is_recorded = examined && self.dice.percent(20);
        let files = self.files.as_mut()?;
        files.tally.steps += 1;
        let agent = files.node(at).agent.as_ref()?;
        Some(match is_recorded {
            true => {
                let (done, recorded) = recording::record(&files.prefix(), || work(agent));
                (done, Some(recorded))
            }
            false => (work(agent), None),
        })
    }

    /// What each loss of power right after a step leaves below the prefix directory.
    fn after_losses(&mut self, recorded: &Recorded, mut check: impl FnMut(&World, &Path, &str)) {
        let Some(files) = &mut self.files else { return };
        let left = files.root.path().join("left");
        let losses = recorded.losses(recorded.changes(), LAST);
        files.tally.examined += losses.len() as u64;
        for loss in losses {
            recorded.make(&loss, &left);
            check(self, &left, &recorded.describe(&loss));
            fs::remove_dir_all(&left).unwrap();
        }
    }

    /// Files that were reported as flushed survive a loss of power.
    pub fn check_flushed(
        &mut self,
        checkpoint: CheckpointId,
        directory: &Path,
        result: &OrderResult,
        recorded: &Recorded,
    ) {
        let OrderResult::Flushed(flushed) = result else { return };
        let name = directory.file_name().unwrap();
        self.after_losses(recorded, |world, left, loss| {
            for (rank, file) in flushed.iter().flat_map(|(rank, files)| files.iter().map(move |file| (rank, file))) {
                let found = fs::read(left.join(name).join(&file.name)).unwrap_or_default();
                let right = matches!(content_of(&found, true), Content::Written(origin)
                    if (origin.rank, origin.checkpoint) == (*rank, checkpoint));
                let why = format!("{} of checkpoint {checkpoint} was reported as flushed", file.name);
                assert!(right || world.oracle.undetected, "{why}, and is lost with the power {loss}");
            }
        });
    }

    /// A dataset that was reported as published is in the index after a loss of power, and complete.
    pub fn check_published_survives(&mut self, directory: &DirectoryName, recorded: &Recorded) {
        self.after_losses(recorded, |world, left, loss| {
            let prefix = world.prefix_at(left);
            let complete = prefix.index.entry(directory).is_some_and(|entry| entry.complete == Some(true));
            assert!(complete, "{directory} was published, and is not in the index after a loss of power {loss}");
            let problem = prefix.directories[directory].problem(world.scenario.world(), world.scenario.parts);
            let problem = problem.filter(|_| !world.oracle.undetected);
            assert_eq!(problem, None, "{directory} was published, and is not complete after a loss of power {loss}");
        });
    }
}
