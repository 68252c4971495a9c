//! Halt conditions in the halt files of the nodes, which users and SCR's commands change without the agent.

use holdfast_core::control::halt::HaltFile;
use holdfast_model::{HaltCondition, HaltState};

use crate::names::NodeIndex;
use crate::world::World;

impl World {
    /// Users have changed the conditions of nodes: those that have a control directory get them in their files.
    pub fn write_halts(&mut self) {
        let Some(files) = &mut self.files else { return };
        let written = &mut files.tally.halts;
        for (files, node) in files.nodes.iter().zip(&self.nodes) {
            let (Some(path), conditions) = (&files.halt, &node.disk.halt) else { continue };
            if conditions_in(&HaltFile::read(path).unwrap().unwrap_or_default()) == *conditions {
                continue;
            }
            let change = |file: &mut HaltFile| {
                *file = HaltFile::new();
                conditions.reason.iter().for_each(|reason| file.set_reason(reason));
                conditions
                    .checkpoints_left
                    .iter()
                    .for_each(|left| file.set_number(HaltCondition::CheckpointsLeft, *left));
            };
            HaltFile::update(path, change).unwrap();
            *written += 1;
        }
    }

    /// Reads the conditions of a node. Those that a user has set are not lost.
    pub fn read_back_halt(&mut self, at: NodeIndex) {
        let Some(path) = self.files.as_ref().and_then(|files| files.node(at).halt.as_ref()) else { return };
        let found = conditions_in(&HaltFile::read(path).unwrap().unwrap_or_default());
        let disk = &mut self.nodes[at as usize].disk;
        assert!(!disk.halted_by_user || found.reason.is_some(), "n{at}: the halt of a user is lost");
        disk.halt = found;
    }
}

fn conditions_in(file: &HaltFile) -> HaltState {
    HaltState {
        reason: file.reason().map(str::to_owned),
        checkpoints_left: file.number(HaltCondition::CheckpointsLeft),
        after: file.number(HaltCondition::After),
        before: file.number(HaltCondition::Before),
        seconds: file.number(HaltCondition::Seconds),
        met: None,
    }
}
