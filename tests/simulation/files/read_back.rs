//! What is in the directories of a node, in the terms of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_agent::directories::paths::base_name;
use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::{descriptor, registry};
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::peer::GroupWork;

use super::Files;
use super::bytes::content_of;
use crate::content::{Content, FileName, Parity};
use crate::names::{NodeIndex, position};
use crate::store::{File, Held, MemberMemory};
use crate::world::World;

type Key = (CheckpointId, Rank);

/// A redundancy file is known by its name and its bytes.
fn hash_of(name: FileName, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, bytes).hash(&mut hasher);
    hasher.finish()
}

/// A file in cache as it was read last, and its meta file: most are the same after the next step.
pub(super) struct KnownFile {
    of: Key,
    bytes: Vec<u8>,
    meta: Vec<u8>,
    sealed: bool,
    bytes_are: BytesAre,
}

/// What the bytes of a file are.
#[derive(Clone)]
enum BytesAre {
    Application(Content),
    /// Of this hash: which files they were computed from may become known later.
    Redundancy(u64),
}

impl BytesAre {
    fn of(name: FileName, bytes: &[u8], sealed: bool) -> BytesAre {
        match name {
            FileName::Application { .. } => BytesAre::Application(content_of(bytes, sealed)),
            FileName::Parity { .. } => BytesAre::Redundancy(hash_of(name, bytes)),
        }
    }
}

impl Files {
    pub(super) fn content(&self, name: FileName, bytes: &[u8]) -> Content {
        self.recognise(BytesAre::of(name, bytes, true), true)
    }

    fn recognise(&self, bytes: BytesAre, sealed: bool) -> Content {
        match bytes {
            BytesAre::Application(content) => content,
            BytesAre::Redundancy(hash) if sealed => {
                self.encoded.get(&hash).map_or(Content::Garbage, |parity| Content::Parity(parity.clone()))
            }
            BytesAre::Redundancy(_) => Content::Torn,
        }
    }

    fn file(&self, of: Key, name: &str, path: &Path) -> File {
        let name = FileName::parse(name);
        let Ok(bytes) = fs::read(path) else {
            return File { name, content: Content::Torn, sealed: false, there: false };
        };
        let meta = fs::read(Meta::path_for(path)).unwrap_or_default();
        let mut known = self.known.lock().unwrap();
        let unchanged = known.get(path).filter(|known| (known.of, &known.bytes, &known.meta) == (of, &bytes, &meta));
        let (sealed, bytes_are) = match unchanged {
            Some(known) => (known.sealed, known.bytes_are.clone()),
            None => {
                let sealed = Meta::of_usable(path, of.0, of.1, None).is_ok();
                let bytes_are = BytesAre::of(name, &bytes, sealed);
                known.insert(path.to_owned(), KnownFile { of, bytes, meta, sealed, bytes_are: bytes_are.clone() });
                (sealed, bytes_are)
            }
        };
        File { name, content: self.recognise(bytes_are, sealed), sealed, there: true }
    }

    fn held(&self, at: NodeIndex) -> Option<BTreeMap<Key, (Held, Vec<PathBuf>)>> {
        let store = self.node(at).agent.as_ref()?.store();
        let (on_disk, bases) = store.on_disk().unwrap();
        let mut all: BTreeMap<Key, (Held, Vec<PathBuf>)> = BTreeMap::new();
        for (_, map) in &on_disk.slots {
            let keys =
                map.checkpoints().into_iter().flat_map(|id| map.ranks(id).into_iter().map(move |rank| (id, rank)));
            for key @ (checkpoint, rank) in keys {
                let (mut files, mut paths) = (Vec::new(), Vec::new());
                for node_path in map.files(checkpoint, rank) {
                    let path = store.paths.real_of_job(node_path, &bases).unwrap();
                    files.push(self.file(key, base_name(node_path).unwrap(), &path));
                    paths.push(path);
                }
                let held = Held {
                    descriptor: map
                        .descriptor(checkpoint, rank)
                        .and_then(|tree| descriptor::from_tree(tree).ok())
                        .map(Arc::new),
                    expected: map.expected(checkpoint, rank),
                    partner_of: map.partner(checkpoint, rank).and_then(|owner| position(&owner)),
                    files,
                };
                // A rank can be in two file maps, while its entries move.
                let rating = |held: &Held| (held.is_complete(), held.files.len(), held.descriptor.is_some());
                match all.get(&key) {
                    Some((other, _)) if rating(other) >= rating(&held) => {}
                    _ => drop(all.insert(key, (held, paths))),
                }
            }
        }
        Some(all)
    }
}

fn base_name_of(directory: &Path) -> String {
    directory.file_name().unwrap().to_str().unwrap().to_owned()
}

impl World {
    /// Reads what a node holds, if an agent has its directories open.
    pub fn read_back(&mut self, at: NodeIndex) {
        let Some(files) = &mut self.files else { return };
        let Some(all) = files.held(at) else { return };
        let node = &mut files.nodes[at as usize];
        let Some(agent) = &node.agent else { return };
        let disk = &mut self.nodes[at as usize].disk;
        disk.flush = agent.store().flush.locations().unwrap_or_default();
        disk.datasets = agent.store().descriptions.read().unwrap();
        disk.member = agent.memory().map(|memory| MemberMemory {
            generation: memory.generation,
            open: memory.open,
            restart: memory.restart,
            direct: memory.direct.as_ref().map(|direct| (base_name_of(&direct.directory), BTreeMap::new())),
        });
        node.paths.clear();
        disk.held.clear();
        for ((checkpoint, rank), (held, paths)) in all {
            let named = held.files.iter().map(|file| (checkpoint, rank, file.name)).zip(paths);
            node.paths.extend(named);
            disk.held.insert((checkpoint, rank), held);
        }
    }

    /// The members of a group have made, or rebuilt, redundancy files: those that are complete are of these files.
    pub fn note_encoded(&mut self, checkpoint: CheckpointId, group: &GroupWork, members: &[NodeIndex]) {
        let of_member = |(at, (rank, _)): (&NodeIndex, &(Rank, _))| {
            let held = self.nodes[*at as usize].disk.get(checkpoint, *rank);
            let mut written = held.map(Held::written).unwrap_or_default();
            // A rebuild enters them in another order.
            written.sort_by_key(|(name, _)| *name);
            written
        };
        let scheme = registry::get(group.scheme).unwrap();
        let mut described = members.iter().zip(&group.members);
        let tolerance = described.find_map(|(at, (rank, _))| {
            let held = self.nodes[*at as usize].disk.get(checkpoint, *rank)?;
            Some(scheme.tolerance(held.descriptor.as_ref()?))
        });
        let parity = Arc::new(Parity {
            tolerance: tolerance.unwrap_or(1),
            members: members.iter().zip(&group.members).map(of_member).collect(),
        });
        for (at, (rank, _)) in members.iter().zip(&group.members) {
            let held = self.nodes[*at as usize].disk.get(checkpoint, *rank);
            let Some(name) = held.and_then(Held::parity).filter(|file| file.sealed).map(|file| file.name) else {
                continue;
            };
            let Some(files) = &mut self.files else { return };
            let path = files.node(*at).paths.get(&(checkpoint, *rank, name));
            let hash = path.and_then(|path| Some(hash_of(name, &fs::read(path).ok()?)));
            if let Some(hash) = hash {
                files.encoded.entry(hash).or_insert_with(|| parity.clone());
            }
        }
        // A node may have several members.
        members.iter().collect::<BTreeSet<_>>().into_iter().for_each(|at| self.read_back(*at));
    }
}
