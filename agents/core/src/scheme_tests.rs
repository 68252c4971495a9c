//! Tests of every registered scheme through its trait: groups are formed, a checkpoint is encoded with real files and
//! links, as many members are lost as the scheme tolerates, and a restart plan is carried out; then the same loss is
//! judged for a drain and rebuilt in the checkpoint directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use holdfast_model::{
    CheckpointId, Descriptor, HeldFile, Holding, Inventory, Locations, NodeName, Rank, RankDescriptor,
};
use tempfile::TempDir;

use crate::control::filemap::Filemap;
use crate::control::meta::Meta;
use crate::prefix::inspect::{Completeness, inspect};
use crate::prefix::rebuild;
use crate::prefix::scan::{ScanOptions, scan};
use crate::redundancy::directory;
use crate::redundancy::drainable::{Drainability, drainable};
use crate::redundancy::files::MemberFiles;
use crate::redundancy::groups::{GroupRules, Groups, Site};
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::member::{GroupMember, MemberTask};
use crate::redundancy::numbers::SET_SIZE;
use crate::redundancy::piece::BufferPool;
use crate::redundancy::plan::{RestartPlan, UnusableCheckpoint, plan};
use crate::redundancy::protection::protection;
use crate::redundancy::registry::{self, form, is_redundancy_file};
use crate::redundancy::{RedundancyError, RedundancyScheme};
use crate::store::{DatasetFiles as _, PosixDataset};

const ID: CheckpointId = CheckpointId(4);
const RANKS: u32 = 7;
const MEMBERS: u32 = 4;

type Link = (SyncSender<Vec<u8>>, Receiver<Vec<u8>>);

/// The files of one rank on one node.
#[derive(Debug)]
struct Home {
    directory: TempDir,
    /// In the order of the filemap: the last one added first.
    files: Mutex<Vec<String>>,
    kept: Mutex<BTreeMap<Rank, RankDescriptor>>,
    copies: Mutex<BTreeMap<Rank, TempDir>>,
    descriptor: RankDescriptor,
}

impl Home {
    fn new(descriptor: RankDescriptor) -> Home {
        Home {
            directory: tempfile::tempdir().unwrap(),
            files: Mutex::default(),
            kept: Mutex::default(),
            copies: Mutex::default(),
            descriptor,
        }
    }

    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let names = self.files.lock().unwrap().clone();
        names.into_iter().map(|name| (name.clone(), fs::read(self.directory.path().join(name)).unwrap())).collect()
    }
}

/// All ranks' homes, and the links between the members of their groups for one step.
struct World<'a> {
    homes: &'a BTreeMap<Rank, Home>,
    links: BTreeMap<(Rank, Rank), Link>,
}

struct Node<'a> {
    home: &'a Home,
    rank: Rank,
    members: &'a [Rank],
    homes: &'a BTreeMap<Rank, Home>,
    to: Mutex<BTreeMap<Rank, SyncSender<Vec<u8>>>>,
    from: Mutex<BTreeMap<Rank, Receiver<Vec<u8>>>>,
}

impl World<'_> {
    fn new(homes: &BTreeMap<Rank, Home>) -> World<'_> {
        let ranks: Vec<Rank> = homes.keys().copied().collect();
        let pairs = ranks.iter().flat_map(|from| ranks.iter().map(move |to| (*from, *to)));
        World { homes, links: pairs.map(|pair| (pair, sync_channel(1))).collect() }
    }

    /// Carries out a step of every member of these groups at the same time.
    fn step(
        mut self,
        groups: &Groups,
        wanted: impl Fn(u32) -> bool,
        work: impl Fn(&MemberTask, &dyn GroupMember) -> Result<(), RedundancyError> + Sync,
    ) {
        let mut jobs = Vec::new();
        for group in groups.groups.iter().filter(|group| group.members.len() > 1 && wanted(group.id)) {
            for (index, rank) in (0..).zip(&group.members) {
                let place = groups.of(*rank).unwrap();
                let bytes = |rank: &Rank| -> u64 {
                    let contents = self.homes[rank].contents();
                    contents
                        .iter()
                        .filter(|(name, _)| !is_redundancy_file(name))
                        .map(|(_, data)| data.len() as u64)
                        .sum()
                };
                let index_of = |rank| group.members.iter().position(|member| *member == rank).unwrap() as u32;
                let task = MemberTask {
                    checkpoint: ID,
                    ranks: RANKS,
                    group_id: group.id,
                    members: group.members.clone(),
                    index,
                    left: index_of(place.left),
                    right: index_of(place.right),
                    largest: group.members.iter().map(bytes).max().unwrap(),
                    only: None,
                };
                jobs.push((*rank, task));
            }
        }
        let mut nodes: BTreeMap<Rank, Node<'_>> = BTreeMap::new();
        for (rank, home) in self.homes {
            let members = groups.of(*rank).unwrap().group.members.as_slice();
            let (to, from) = (Mutex::default(), Mutex::default());
            nodes.insert(*rank, Node { home, rank: *rank, members, homes: self.homes, to, from });
        }
        for ((from, to), (sender, receiver)) in std::mem::take(&mut self.links) {
            nodes[&from].to.lock().unwrap().insert(to, sender);
            nodes[&to].from.lock().unwrap().insert(from, receiver);
        }
        let work = &work;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                jobs.iter().map(|(rank, task)| (rank, scope.spawn(|| work(task, &nodes[rank])))).collect();
            for (rank, thread) in threads {
                thread.join().unwrap().unwrap_or_else(|error| panic!("rank {rank}: {error}"));
            }
        });
    }
}

impl GroupMember for Node<'_> {
    fn directory(&self) -> &Path {
        self.home.directory.path()
    }

    fn files(&self) -> Result<MemberFiles, RedundancyError> {
        let names = self.home.files.lock().unwrap().clone();
        let names = names.iter().filter(|name| !is_redundancy_file(name));
        let files = names.map(|name| Meta::read(&self.directory().join(name))).collect::<Result<_, _>>()?;
        Ok(MemberFiles { rank: self.rank, files })
    }

    fn descriptor(&self, of: Rank) -> Result<RankDescriptor, RedundancyError> {
        let kept = self.home.kept.lock().unwrap().get(&of).cloned();
        Ok(if of == self.rank { self.home.descriptor.clone() } else { kept.unwrap() })
    }

    fn keep_descriptor(&self, owner: Rank, descriptor: &RankDescriptor) -> Result<(), RedundancyError> {
        self.home.kept.lock().unwrap().insert(owner, descriptor.clone());
        Ok(())
    }

    fn add_file(&self, name: &str) -> Result<PathBuf, RedundancyError> {
        let mut files = self.home.files.lock().unwrap();
        files.retain(|known| known != name);
        files.insert(0, name.to_owned());
        Ok(self.directory().join(name))
    }

    fn names_of_others(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn link_to(&self, member: u32, _: &BufferPool) -> Result<Box<dyn LinkSender>, RedundancyError> {
        Ok(Box::new(self.to.lock().unwrap().remove(&self.members[member as usize]).unwrap()))
    }

    fn link_from(&self, member: u32, _: &BufferPool) -> Result<Box<dyn LinkReceiver>, RedundancyError> {
        Ok(Box::new(self.from.lock().unwrap().remove(&self.members[member as usize]).unwrap()))
    }

    fn send_copy(&self, to: u32) -> Result<(), RedundancyError> {
        let copy = tempfile::tempdir().unwrap();
        for (name, data) in self.home.contents() {
            fs::write(copy.path().join(name), data).unwrap();
        }
        let holder = &self.homes[&self.members[to as usize]];
        holder.copies.lock().unwrap().insert(self.rank, copy);
        holder.kept.lock().unwrap().insert(self.rank, self.home.descriptor.clone());
        Ok(())
    }

    fn keep_copy(&self, _: u32) -> Result<(), RedundancyError> {
        Ok(())
    }

    fn piece_bytes(&self) -> usize {
        100
    }

    fn with_crc(&self) -> bool {
        true
    }

    fn progress(&self, done: u64, total: u64) -> ControlFlow<()> {
        assert!(done <= total);
        ControlFlow::Continue(())
    }
}

/// One rank a node, each with two files of its own, encoded.
fn encoded(scheme: &dyn RedundancyScheme) -> (Vec<Site>, Groups, BTreeMap<Rank, Home>) {
    let sites: Vec<Site> = (0..RANKS).map(Site::on_node).collect();
    let numbers = [(SET_SIZE.name, MEMBERS)].into_iter().collect();
    let asked = Descriptor { numbers, ..Descriptor::new(0, scheme.name(), "/tmp") };
    let groups = form(&sites, GroupRules::of(&asked)).unwrap();
    assert_eq!((groups.scheme, &groups.forced_local), (scheme.name(), &None));
    let unplaced = RankDescriptor::unplaced(asked, "/tmp/u/scr.1/index.0");
    let mut descriptors = vec![unplaced; RANKS as usize];
    groups.describe(&mut descriptors);
    let homes: BTreeMap<Rank, Home> =
        (0..RANKS).map(Rank).zip(descriptors).map(|(rank, descriptor)| (rank, Home::new(descriptor))).collect();
    for (rank, home) in &homes {
        for (file, size) in [(0, 300 + 17 * rank.0), (1, 40)] {
            let bytes = holdfast_testkit::application_bytes(ID.0, rank.0, file, size as usize);
            let name = format!("r{rank}.f{file}");
            let path = home.directory.path().join(&name);
            fs::write(&path, &bytes).unwrap();
            let crc = Some(crc32fast::hash(&bytes));
            let meta = Meta { crc, ..Meta::of_application(&name, bytes.len() as u64, ID, *rank, RANKS) };
            meta.write(&path).unwrap();
            home.files.lock().unwrap().insert(0, name);
        }
    }
    World::new(&homes).step(&groups, |_| true, |task, node| scheme.encode(task, node));
    (sites, groups, homes)
}

/// The inventories of the nodes that are not `lost`.
fn inventories(homes: &BTreeMap<Rank, Home>, lost: &[Rank]) -> Vec<(u32, Inventory)> {
    let holding = |rank: Rank, descriptor: &RankDescriptor, names: Vec<String>, of: Option<NodeName>| Holding {
        checkpoint: ID,
        rank,
        ranks: (!names.is_empty()).then_some(RANKS),
        expected: (!names.is_empty()).then_some(names.len() as u32),
        complete: !names.is_empty(),
        fault: None,
        protection: protection(descriptor, !names.is_empty(), names.iter().map(String::as_str)),
        partner_of: of,
        descriptor: Some(descriptor.clone()),
        files: names.into_iter().map(|name| HeldFile { name, size: 1 }).collect(),
    };
    let names_in = |directory: &TempDir| {
        let entries = fs::read_dir(directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let healthy = homes.iter().filter(|(rank, _)| !lost.contains(rank));
    healthy
        .map(|(rank, home)| {
            let files = home.files.lock().unwrap().clone();
            let mut holdings = vec![holding(*rank, &home.descriptor, files, None)];
            let copies = home.copies.lock().unwrap();
            for (owner, kept) in home.kept.lock().unwrap().iter() {
                let of = copies.get(owner).map(|_| NodeName::new(format!("n{owner}")));
                holdings.push(holding(*owner, kept, copies.get(owner).map(names_in).unwrap_or_default(), of));
            }
            (rank.0, Inventory { holdings, ..Inventory::default() })
        })
        .collect()
}

/// The lost ranks' new nodes: spares behind the others.
fn replaced(sites: &[Site], lost: &[Rank]) -> Vec<Site> {
    let moved = |rank: u32| if lost.contains(&Rank(rank)) { RANKS + rank } else { rank };
    (0..sites.len() as u32).map(|rank| Site::on_node(moved(rank))).collect()
}

/// Carries a plan out, rebuilds by the scheme, and returns the ranks' homes of the new run.
fn restarted(
    scheme: &dyn RedundancyScheme,
    plan: &RestartPlan,
    mut homes: BTreeMap<Rank, Home>,
    lost: &[Rank],
) -> BTreeMap<Rank, Home> {
    for rank in lost {
        let home = Home::new(plan.descriptors[rank.index()].clone());
        for step in plan.moves.iter().filter(|step| step.rank == *rank) {
            let copies = homes[&Rank(step.from_node)].copies.lock().unwrap();
            let source = &copies[rank];
            for entry in fs::read_dir(source.path()).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                fs::copy(source.path().join(&name), home.directory.path().join(&name)).unwrap();
                home.files.lock().unwrap().insert(0, name);
            }
        }
        homes.insert(*rank, home);
    }
    let missing: BTreeMap<u32, &Vec<u32>> =
        plan.rebuilds.iter().map(|group| (group.group_id, &group.missing)).collect();
    World::new(&homes).step(
        &plan.groups,
        |group| missing.contains_key(&group),
        |task, node| scheme.rebuild(task, missing[&task.group_id], node),
    );
    homes
}

/// As many members of the first group as the scheme can rebuild, or one if it keeps a copy.
fn lose(scheme: &dyn RedundancyScheme, groups: &Groups, homes: &BTreeMap<Rank, Home>, more: u32) -> Vec<Rank> {
    let first = groups.of(Rank(0)).unwrap().group;
    let tolerance = scheme.tolerance(&homes[&Rank(0)].descriptor);
    let count = if tolerance == 0 { u32::from(scheme.protects()) } else { tolerance } + more;
    first.members.iter().copied().take(count as usize).collect()
}

#[test]
fn losses_that_a_scheme_tolerates_are_restored_in_cache() {
    for scheme in registry::all().filter(|scheme| scheme.protects()) {
        let (sites, groups, homes) = encoded(scheme);
        let before: BTreeMap<Rank, _> = homes.iter().map(|(rank, home)| (*rank, home.contents())).collect();
        let lost = lose(scheme, &groups, &homes, 0);
        let plan = plan(ID, &replaced(&sites, &lost), &inventories(&homes, &lost))
            .unwrap_or_else(|reason| panic!("{}: {reason}", scheme.name()));
        let restored: BTreeSet<Rank> = plan
            .moves
            .iter()
            .map(|step| step.rank)
            .chain(plan.rebuilds.iter().flat_map(|group| group.ranks.clone()))
            .collect();
        assert_eq!(restored, lost.iter().copied().collect(), "{}", scheme.name());
        let after = restarted(scheme, &plan, homes, &lost);
        for rank in &lost {
            let (before, after) = (&before[rank], after[rank].contents());
            assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{}", scheme.name());
            for (name, data) in before.iter().filter(|(name, _)| !is_redundancy_file(name)) {
                assert!(after[name] == *data, "{name} of {}", scheme.name());
            }
        }
    }
}

#[test]
fn every_loss_pattern_that_is_tolerated_is_restored_in_cache_and_so_is_the_next_one() {
    // The test double keeps no descriptors in a rebuild.
    for scheme in registry::all().filter(|scheme| scheme.file_format().is_some()) {
        let (sites, groups, homes) = encoded(scheme);
        let tolerance = scheme.tolerance(&homes[&Rank(0)].descriptor) as usize;
        let members = groups.of(Rank(0)).unwrap().group.members.clone();
        let patterns = (1_u32..1 << members.len()).map(|mask| {
            let lost = members.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
            lost.map(|(_, rank)| *rank).collect::<Vec<Rank>>()
        });
        let patterns: Vec<Vec<Rank>> = patterns.filter(|lost| lost.len() <= tolerance).collect();
        let before: BTreeMap<Rank, _> = homes.iter().map(|(rank, home)| (*rank, home.contents())).collect();
        let mut homes = homes;
        // One after the other, each from what the one before has restored: files, redundancy and descriptors.
        for lost in patterns {
            let plan = plan(ID, &replaced(&sites, &lost), &inventories(&homes, &lost))
                .unwrap_or_else(|reason| panic!("{} {lost:?}: {reason}", scheme.name()));
            assert_eq!(plan.rebuilds.iter().flat_map(|group| group.ranks.clone()).collect::<Vec<_>>(), lost);
            homes.retain(|rank, _| !lost.contains(rank));
            homes = restarted(scheme, &plan, homes, &lost);
            for (rank, home) in &homes {
                for (name, data) in &before[rank] {
                    // The headers of rebuilt XOR files have another order of elements.
                    let from = if is_redundancy_file(name) { data.len() - 80 } else { 0 };
                    let restored = &home.contents()[name];
                    assert!(restored.len() == data.len() && restored[from..] == data[from..], "{name} after {lost:?}");
                }
            }
        }
    }
}

#[test]
fn more_losses_than_a_scheme_tolerates_are_refused_with_the_reason() {
    for scheme in registry::all() {
        let (sites, groups, homes) = encoded(scheme);
        // For schemes that keep copies, a rank and the holder of its copy.
        let mut lost = lose(scheme, &groups, &homes, 1);
        if lost.len() as u32 >= RANKS {
            lost.pop();
        }
        let held = inventories(&homes, &lost);
        let reason = plan(ID, &replaced(&sites, &lost), &held).unwrap_err();
        let named = match &reason {
            UnusableCheckpoint::Lost(lost) => {
                let end = if lost.tolerance == 0 { scheme.limit() } else { scheme.remedy() };
                lost.scheme == scheme.name() && reason.to_string().ends_with(end)
            }
            // The members and the nodes with their descriptors are lost.
            reason => matches!(reason, UnusableCheckpoint::NoDescriptor(_)),
        };
        assert!(named, "{}: {reason}", scheme.name());
        let judged =
            drainable(ID, held.iter().map(|(_, held)| held), Some(Locations { cache: true, ..Locations::default() }));
        assert!(matches!(judged, Drainability::Incomplete(_)), "{}: {judged:?}", scheme.name());
    }
}

#[test]
fn losses_that_a_scheme_tolerates_are_restored_in_the_drained_directory() {
    for scheme in registry::all().filter(|scheme| scheme.protects()) {
        let (_, groups, homes) = encoded(scheme);
        let before: BTreeMap<Rank, _> = homes.iter().map(|(rank, home)| (*rank, home.contents())).collect();
        let lost = lose(scheme, &groups, &homes, 0);
        let held = inventories(&homes, &lost);
        let judged =
            drainable(ID, held.iter().map(|(_, held)| held), Some(Locations { cache: true, ..Locations::default() }));
        let Drainability::Drainable { rebuild: groups_to_rebuild } = judged else {
            panic!("{}: {judged:?}", scheme.name())
        };

        // The healthy nodes copy their files, and those of lost neighbours where they have them.
        let directory = tempfile::tempdir().unwrap();
        let copy = |from: &Path, rank: Rank| {
            let mut filemap = Filemap::new();
            let mut count = 0;
            for name in before[&rank].keys() {
                fs::copy(from.join(name), directory.path().join(name)).unwrap();
                let meta = homes[&rank].directory.path().join(format!("{name}.scr"));
                fs::copy(meta, directory.path().join(format!("{name}.scr"))).unwrap();
                filemap.add_file(ID, rank, name);
                count += 1;
            }
            filemap.set_expected(ID, rank, count);
            filemap.write(&directory.path().join(format!("{rank}.scrfilemap"))).unwrap();
        };
        for (rank, home) in homes.iter().filter(|(rank, _)| !lost.contains(rank)) {
            copy(home.directory.path(), *rank);
            for (owner, copied) in home.copies.lock().unwrap().iter().filter(|(owner, _)| lost.contains(owner)) {
                copy(copied.path(), *owner);
            }
        }
        let options = ScanOptions { threads: 1, ..ScanOptions::default() };
        let mut scanned = scan(&PosixDataset::at(directory.path()).unwrap().stored(), options).unwrap();
        assert_eq!(scanned.verify(1, &|_| {}).failures, []);
        let inspection = inspect(&scanned);
        assert_eq!(
            inspection.rebuildable.len(),
            groups_to_rebuild.len(),
            "{}: {:?}",
            scheme.name(),
            inspection.reasons
        );
        for set in &inspection.rebuildable {
            assert_eq!(set.ranks, lost, "{}", scheme.name());
            let rebuilt =
                directory::rebuild(&scanned.files, set.set, &set.missing, &mut |_, _| ControlFlow::Continue(()))
                    .unwrap();
            assert_eq!(rebuilt.iter().map(|member| member.rank).collect::<Vec<_>>(), lost);
        }
        let mut scanned = rebuild::rescan(&scanned, options, &[], &inspection.rebuildable).unwrap();
        assert_eq!(scanned.verify(1, &|_| {}).failures, []);
        assert_eq!(inspect(&scanned).completeness, Completeness::Complete, "{}", scheme.name());
        for rank in &lost {
            for (name, data) in before[rank].iter().filter(|(name, _)| !is_redundancy_file(name)) {
                assert!(fs::read(directory.path().join(name)).unwrap() == *data, "{name} of {}", scheme.name());
            }
        }
    }
}
