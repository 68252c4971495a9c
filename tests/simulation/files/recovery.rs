//! What was reported as protected must be restorable without as many members of each group as can be lost: the files of
//! the others are put into one directory, and those of the lost ones are computed there. The oracle compares bytes.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::directory;
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::{self, DatasetAccess, DatasetFiles, DirectoryName};
use holdfast_model::{CheckpointId, Rank};

use super::bytes::bytes_of;
use crate::content::{Content, FileName};
use crate::names::NodeIndex;
use crate::store::{File, Held};
use crate::world::World;

fn copy_with_meta(from: &Path, to: &Path) {
    for (from, to) in [(from.to_owned(), to.to_owned()), (Meta::path_for(from), Meta::path_for(to))] {
        fs::copy(from, to).unwrap();
    }
}

impl World {
    /// Restores a group of a protected checkpoint, with parity, without the members that the seed chooses.
    pub fn recover_on_files(&mut self, homes: &[NodeIndex], checkpoint: CheckpointId, group: &[Rank], losses: usize) {
        if self.files.is_none() || losses == 0 {
            return;
        }
        let first = self.dice.below(group.len());
        let lost: Vec<usize> = (0..losses.min(group.len())).map(|more| (first + more) % group.len()).collect();
        let Some(files) = &mut self.files else { return };
        let place = files.root.path().join("recovery");
        fs::create_dir(&place).unwrap();
        let (recovered, name) = (store::open(&place).unwrap(), DirectoryName::new("set").unwrap());
        assert!(recovered.create(&name).unwrap());
        let (mut set, mut expected) = (None, Vec::new());
        for (member, rank) in group.iter().enumerate() {
            let at = homes[rank.index()];
            let held: &Held = &self.nodes[at as usize].disk.held[&(checkpoint, *rank)];
            let is_lost = lost.contains(&member);
            for File { name, content, .. } in &held.files {
                if let FileName::Parity { scheme, group_id, members, .. } = *name {
                    set = Some(SetId { scheme, group_id, members });
                }
                let path = &files.node(at).paths[&(checkpoint, *rank, *name)];
                match content {
                    Content::Written(origin) if is_lost => expected.push((name.to_string(), bytes_of(origin))),
                    _ if is_lost => {}
                    _ => copy_with_meta(path, &place.join("set").join(name.to_string())),
                }
            }
        }
        let mut missing: Vec<u32> = lost.iter().map(|member| *member as u32).collect();
        missing.sort_unstable();
        let files_of_set: Arc<dyn DatasetFiles> = recovered.open(&name, DatasetAccess::Write).unwrap();
        let rebuilt = directory::rebuild(&files_of_set, set.unwrap(), &missing, &mut |_, _| ControlFlow::Continue(()));
        let context =
            format!("checkpoint {checkpoint} was reported as protected: without members {missing:?} of {group:?}");
        rebuilt.unwrap_or_else(|error| panic!("{context}, it cannot be restored: {error}"));
        for (name, bytes) in expected {
            let found = fs::read(place.join("set").join(&name)).unwrap();
            assert!(found == bytes, "{context}, {name} is restored with other bytes");
        }
        fs::remove_dir_all(&place).unwrap();
        files.tally.recoveries += 1;
    }
}
