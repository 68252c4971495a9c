//! Encode and rebuild compared with the XOR files that SCR wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use holdfast_testkit::{files_below, fixtures, scratch_copy};

use super::encoded;
use crate::control::filemap::Filemap;
use crate::control::meta::Meta;
use crate::kvtree::Tree;
use crate::redundancy::directory::{rebuild, rebuild_in_pieces};
use crate::redundancy::files::{MemberFiles, SetId};
use crate::redundancy::link::LinkReceiver;
use crate::redundancy::logical::LogicalFile;
use crate::redundancy::lost_member::LostMember;
use crate::redundancy::parity::encode::encode_member;
use crate::redundancy::parity::file::ParityFile;
use crate::redundancy::parity::fixtures::{dataset, go_on as go_on_of};
use crate::redundancy::parity::header::{ParityHeader, chunk_size};
use crate::redundancy::parity::member::Member;
use crate::redundancy::parity::rebuild::{rebuild_root, rebuild_survivor};
use crate::redundancy::parity::survivor::Survivor;
use crate::redundancy::xor::PARITY;
use crate::redundancy::xor::header::{HeaderOrder, rebuilt};
use crate::redundancy::xor::name::{NAME, XorName};
use crate::redundancy::{RedundancyError, Result};
use crate::store::{OpenDataset, PosixDataset};

/// Tree, checkpoint directory, group id.
type SetKey = (PathBuf, String, u32);

/// The directory of each member's files, by index, of every XOR set in the caches of some fixtures.
fn sets() -> Vec<(XorName, Vec<PathBuf>)> {
    let root = fixtures("scr");
    let scenarios = [
        "a-xor4",
        "a3-same-path-and-restart",
        "b-xor4-2groups",
        "b2-xor4-8nodes",
        "b3-xor-remainder-group",
        "b4-xor-uneven-ppn",
        "e-multi-descriptor",
    ];
    let mut sets: BTreeMap<SetKey, BTreeMap<u32, (XorName, PathBuf)>> = BTreeMap::new();
    for scenario in scenarios {
        for path in files_below(&root.join(scenario)) {
            let Some(name) = XorName::parse(&path.file_name().unwrap().to_string_lossy()) else { continue };
            let directory = path.parent().unwrap();
            let checkpoint = directory.file_name().unwrap().to_string_lossy().into_owned();
            let state = path.ancestors().find(|up| up.ends_with("tree")).unwrap().to_owned();
            let set = sets.entry((state, checkpoint, name.group_id)).or_default();
            set.insert(name.index, (name, directory.to_owned()));
        }
    }
    let sets: Vec<_> = sets.into_values().filter(|set| set.len() == set[&0].0.members as usize).collect();
    assert!(sets.len() > 20, "only {} sets found", sets.len());
    sets.into_iter().map(|set| (set[&0].0, set.into_values().map(|(_, directory)| directory).collect())).collect()
}

fn set(name: XorName) -> SetId {
    SetId { scheme: NAME, group_id: name.group_id, members: name.members }
}

fn named(name: XorName, index: usize) -> String {
    XorName { index: index as u32, ..name }.to_string()
}

/// The node's filemap with the files of a directory.
fn filemap_of(directory: &Path) -> Filemap {
    let control = directory.ancestors().nth(2).unwrap();
    let node = directory.ancestors().find(|up| up.parent().is_some_and(|up| up.ends_with("tree"))).unwrap();
    let mut all = Filemap::new();
    for path in files_below(node) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("filemap_") {
            all.merge(&Filemap::read(&path).unwrap());
        }
    }
    assert!(!all.is_empty(), "no filemap near {}", control.display());
    all
}

/// The files of an agent before encoding: filemap and meta files.
fn member_files(directory: &Path, xor: &ParityFile, with_crc: bool) -> MemberFiles {
    let rank = xor.header.current.rank;
    // Merging reversed the order; the file names in SCR's filemap are in the order of concatenation.
    let filemap = filemap_of(directory);
    let mut names: Vec<String> = filemap
        .files(xor.header.checkpoint, rank)
        .map(|path| path.rsplit('/').next().unwrap().to_owned())
        .filter(|name| XorName::parse(name).is_none())
        .collect();
    names.reverse();
    let files = names.iter().map(|name| {
        let meta = Meta::read(&directory.join(name)).unwrap();
        Meta { crc: meta.crc.filter(|_| with_crc), ..meta }
    });
    MemberFiles { rank, files: files.collect() }
}

type Links = (Vec<Option<SyncSender<Vec<u8>>>>, Vec<Option<Receiver<Vec<u8>>>>);

/// The sender of member m is connected to the receiver of member m + 1.
fn ring(members: usize, capacity: usize) -> Links {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..members {
        let (sender, receiver) = sync_channel(capacity);
        senders.push(Some(sender));
        receivers.push(Some(receiver));
    }
    receivers.rotate_right(1);
    (senders, receivers)
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn encoding_around_a_ring_writes_the_bytes_of_every_xor_file_of_scr() {
    for (name, directories) in sets() {
        let xors: Vec<ParityFile> = directories
            .iter()
            .enumerate()
            .map(|(i, d)| ParityFile::open(&PARITY, d, &named(name, i)).unwrap())
            .collect();
        // A member that SCR rebuilt has its header in another order.
        let rebuilt = xors.iter().position(|xor| xor.tree.keys().next() == Some("PARTNER"));
        let with_crc = directories[0].to_string_lossy().contains("crc-on-copy");
        let files: Vec<MemberFiles> =
            directories.iter().zip(&xors).map(|(d, xor)| member_files(d, xor, with_crc)).collect();
        let n = files.len();
        let chunk = chunk_size(files.iter().map(|f| f.total_bytes().unwrap()).max().unwrap(), n as u32, 1);
        for (piece, capacity) in [(131_072, 1), (1000, 1), (777, 3)] {
            let (mut senders, mut receivers) = ring(n, capacity);
            let written: Vec<(Vec<u8>, Meta)> = thread::scope(|scope| {
                let mut members = Vec::new();
                for index in 0..n {
                    let (mut right, mut left) = (senders[index].take().unwrap(), receivers[index].take().unwrap());
                    let mut header = ParityHeader {
                        scheme: &PARITY,
                        chunk,
                        checkpoint: xors[0].header.checkpoint,
                        ranks: xors[0].header.ranks,
                        members: files.iter().map(|f| f.rank).collect(),
                        current: files[index].clone(),
                        left: vec![files[(index + n - 1) % n].clone()],
                    };
                    let mut data = LogicalFile::open(&directories[index], index as u32, &files[index]).unwrap();
                    members.push(scope.spawn(move || {
                        let member = Member { piece, ..Member::new(index as u32, n as u32, chunk) };
                        let (out, written) = encoded(&member, &mut header, &mut data, &mut left, &mut right);
                        (out, written.meta(&header, with_crc))
                    }));
                }
                members.into_iter().map(|member| member.join().unwrap()).collect()
            });
            for (index, (bytes, meta)) in written.iter().enumerate() {
                let path = directories[index].join(named(name, index));
                let original = fs::read(&path).unwrap();
                let mut on_disk = Meta::read(&path).unwrap();
                on_disk.crc = on_disk.crc.filter(|_| with_crc);
                assert_eq!(*meta, on_disk);
                if rebuilt == Some(index) {
                    let data = original.len() - chunk as usize;
                    assert!(original[data..] == bytes[bytes.len() - chunk as usize..], "{}", path.display());
                } else {
                    assert!(original == *bytes, "{} with pieces of {piece}", path.display());
                }
            }
        }
    }
}

#[test]
fn any_lost_member_of_any_set_is_rebuilt_along_the_chain() {
    for (name, directories) in sets() {
        let n = directories.len();
        let home = tempfile::tempdir().unwrap();
        for missing in 0..n {
            let original = ParityFile::open(&PARITY, &directories[missing], &named(name, missing)).unwrap();
            let (right, left) = ((missing + 1) % n, (missing + n - 1) % n);
            let neighbour = |at: usize| ParityFile::open(&PARITY, &directories[at], &named(name, at)).unwrap();
            let tree = rebuilt(&neighbour(right).tree, &neighbour(left).tree, HeaderOrder::Restart).unwrap();
            let lost = create(home.path(), &tree, name.group_id, &BTreeSet::new()).unwrap();
            let chunk = original.header.chunk;
            let (mut senders, mut receivers) = ring(n, 1);
            let member = |index: usize| Member { piece: 1000, ..Member::new(index as u32, n as u32, chunk) };
            let unconfirmed = thread::scope(|scope| {
                for step in 1..n {
                    let index = (missing + step) % n;
                    let mut right = senders[index].take().unwrap();
                    let mut left = receivers[index].take().filter(|_| step > 1);
                    let directory = &directories[index];
                    scope.spawn(move || {
                        let mut survivor = Survivor::open(&PARITY, directory, &named(name, index)).unwrap();
                        let from_left = left.as_mut().map(|left| left as &mut dyn LinkReceiver);
                        let place = member(index);
                        let missing = [missing as u32];
                        rebuild_survivor(&place, &missing, &mut survivor, from_left, &mut right, &mut go_on).unwrap();
                    });
                }
                let mut left = receivers[missing].take().unwrap();
                rebuild_root(&member(missing), &[missing as u32], lost, &mut left, None, &mut go_on).unwrap()
            });
            assert!(
                !home.path().join(named(name, missing)).exists(),
                "no file has its name before all members confirm"
            );
            let rebuilt = unconfirmed.install(false).unwrap();
            assert_eq!(rebuilt.rank, original.header.current.rank);
            for meta in &rebuilt.files {
                let same = |name: &str| {
                    fs::read(home.path().join(name)).unwrap() == fs::read(directories[missing].join(name)).unwrap()
                };
                assert!(same(&meta.file), "{} of member {missing} in {}", meta.file, directories[missing].display());
            }
            let made = ParityFile::open(&PARITY, home.path(), &named(name, missing)).unwrap();
            assert!(made.tree.same_content(&original.tree));
            let data = |xor: &ParityFile| {
                let mut bytes = vec![0; chunk as usize];
                xor.read_data(0, &mut bytes).unwrap();
                bytes
            };
            assert!(data(&made) == data(&original));
        }
        let leftover = files_below(home.path()).into_iter().find(|path| path.extension().is_some_and(|e| e == "tmp"));
        assert_eq!(leftover, None);
    }
}

#[test]
fn a_restart_rebuilds_the_same_files_as_scr() {
    let root = fixtures("scr").join("a3-same-path-and-restart/2-restarted-on-node0-1-3-4/tree");
    let directory = |node: &str| root.join(node).join("user1/scr.1145655/index.0/checkpoint.3");
    let right = ParityFile::open(&PARITY, &directory("node4"), "4_of_4_in_0.xor").unwrap();
    let left = ParityFile::open(&PARITY, &directory("node1"), "2_of_4_in_0.xor").unwrap();
    let original = ParityFile::open(&PARITY, &directory("node3"), "3_of_4_in_0.xor").unwrap();
    let tree = rebuilt(&right.tree, &left.tree, HeaderOrder::Restart).unwrap();
    assert!(crate::kvtree::file::encode(&tree) == original.read_header().unwrap());
}

/// Input and expected checkpoint directory, and each rebuilt set with its missing member.
type Drain = (PathBuf, PathBuf, Vec<(XorName, u32)>);

/// The drains in which SCR rebuilt files.
fn drains() -> Vec<Drain> {
    let root = fixtures("scr");
    let mut drains = Vec::new();
    for scenario in ["f-drain-xor", "f2-drain-xor-8nodes", "f3-drain-xor-remainder"] {
        for entry in fs::read_dir(root.join(scenario)).unwrap() {
            let drain = entry.unwrap().path();
            let Ok(log) = fs::read_to_string(drain.join("logs/scr_index.out")) else { continue };
            let mut rebuilds = Vec::new();
            for line in log.lines() {
                let Some((_, arguments)) = line.split_once("scr_rebuild_xor ") else { continue };
                let words: Vec<&str> = arguments.split_whitespace().collect();
                rebuilds.push((XorName::parse(words[2]).unwrap(), words[1].parse().unwrap()));
            }
            if rebuilds.is_empty() {
                continue;
            }
            let checkpoint = |side: &str| {
                let entries = fs::read_dir(drain.join(side).join("tree/pfs")).unwrap();
                let mut paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
                paths.find(|path| path.to_string_lossy().contains("2011-04-15")).unwrap()
            };
            drains.push((checkpoint("input"), checkpoint("expected"), rebuilds));
        }
    }
    assert!(drains.len() > 10, "only {} drains found", drains.len());
    drains
}

#[test]
fn a_rebuild_at_the_drain_writes_the_same_bytes_as_scr() {
    for (input, expected, rebuilds) in drains() {
        if input.to_string_lossy().contains("corrupt-s") {
            continue;
        }
        let work = scratch_copy(&input);
        for (name, missing) in rebuilds {
            let mut last = 0;
            let mut progress = |done, _| {
                last = done;
                ControlFlow::Continue(())
            };
            let files = dataset(work.path());
            let rebuilt = rebuild_in_pieces(&files, set(name), &[missing], 1 << 12, &mut progress).unwrap();
            assert!(last > 0 && rebuilt[0].redundancy[0].crc.is_some());
        }
        let list = |directory: &Path| -> Vec<String> {
            let names = files_below(directory);
            let names = names.iter().map(|path| path.strip_prefix(directory).unwrap().to_string_lossy().into_owned());
            names.filter(|name| name != "summary.scr").collect()
        };
        assert_eq!(list(work.path()), list(&expected), "{}", input.display());
        for name in list(&expected) {
            let same = fs::read(work.path().join(&name)).unwrap() == fs::read(expected.join(&name)).unwrap();
            assert!(same, "{name} in {}", input.display());
        }
    }
}

#[test]
fn a_survivor_with_a_wrong_checksum_is_named_and_nothing_is_changed() {
    let mut seen = 0;
    for (input, _, rebuilds) in drains() {
        if !input.to_string_lossy().contains("corrupt-s") {
            continue;
        }
        let work = scratch_copy(&input);
        let before = files_below(work.path());
        let (name, missing) = rebuilds[0];
        let result = rebuild(&dataset(work.path()), set(name), &[missing], &mut go_on_of);
        let Err(RedundancyError::MemberDamaged { rank, path, .. }) = result else { panic!("{result:?}") };
        assert!(path.ends_with(format!("rank_{rank}.ckpt")), "{}", path.display());
        assert_eq!(files_below(work.path()), before);
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn a_cancelled_rebuild_leaves_no_files() {
    let (input, _, rebuilds) = drains().remove(0);
    let work = scratch_copy(&input);
    let before = files_below(work.path());
    let (name, missing) = rebuilds[0];
    let mut stop = |_, _| ControlFlow::Break(());
    let result = rebuild_in_pieces(&dataset(work.path()), set(name), &[missing], 500, &mut stop);
    assert!(matches!(result, Err(RedundancyError::Stopped)));
    assert_eq!(files_below(work.path()), before);
}

#[test]
fn impossible_sets_are_refused_without_looking_at_files() {
    let work = tempfile::tempdir().unwrap();
    for (members, missing) in [(0, 0), (1, 0), (4, 4), (u32::MAX, 0)] {
        let set = SetId { scheme: NAME, group_id: 0, members };
        let result = rebuild(&dataset(work.path()), set, &[missing], &mut go_on_of);
        assert!(matches!(result, Err(RedundancyError::NoSuchMember { .. })), "{members} {missing}");
    }
}

/// The member that this header describes, in cache.
fn create(home: &Path, header: &Tree, group_id: u32, reserved: &BTreeSet<String>) -> Result<LostMember> {
    let lost = ParityHeader::from_tree(&PARITY, header, "the set's remaining members")?.lost_files(header, group_id);
    LostMember::create(&in_cache(home), lost, reserved)
}

#[test]
fn a_header_that_names_files_of_others_or_elsewhere_is_refused() {
    let (name, directories) = sets().remove(0);
    let right = ParityFile::open(&PARITY, &directories[1], &named(name, 1)).unwrap();
    let left = ParityFile::open(&PARITY, &directories[3], &named(name, 3)).unwrap();
    for forged in ["../escape", "2_of_4_in_0.xor", "7.scrfilemap", "rank_1.ckpt"] {
        let mut tree = right.tree.clone();
        let file = tree.get_mut("PARTNER").and_then(|t| t.get_mut("FILE")).and_then(|t| t.get_mut("0")).unwrap();
        file.put("FILE", forged);
        let home = tempfile::tempdir().unwrap();
        let reserved = BTreeSet::from(["rank_1.ckpt".to_owned()]);
        let result = rebuilt(&tree, &left.tree, HeaderOrder::Restart)
            .and_then(|t| create(home.path(), &t, name.group_id, &reserved));
        assert!(result.is_err(), "{forged}");
        assert_eq!(files_below(home.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_damaged_xor_file_cannot_be_opened() {
    let (name, directories) = sets().remove(0);
    let original = fs::read(directories[0].join(named(name, 0))).unwrap();
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join(named(name, 0));
    for cut in [0, 1, 19, 20, 400, original.len() - 1] {
        fs::write(&path, &original[..cut]).unwrap();
        assert!(ParityFile::open(&PARITY, work.path(), &named(name, 0)).is_err(), "cut at {cut}");
    }
    fs::write(&path, [original.as_slice(), b"x"].concat()).unwrap();
    assert!(ParityFile::open(&PARITY, work.path(), &named(name, 0)).is_err(), "one byte too many");
}

#[test]
fn a_lost_neighbour_ends_the_rebuild_and_no_files_are_left() {
    let (name, directories) = sets().remove(0);
    let open = |index: usize| ParityFile::open(&PARITY, &directories[index], &named(name, index)).unwrap();
    let tree = rebuilt(&open(2).tree, &open(0).tree, HeaderOrder::Restart).unwrap();
    let home = tempfile::tempdir().unwrap();
    let lost = create(home.path(), &tree, name.group_id, &BTreeSet::new()).unwrap();
    let member = Member { piece: 100, ..Member::new(1, name.members, open(0).header.chunk) };
    let (sender, mut left) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || sender.send(vec![0; 100]).unwrap());
        let result = rebuild_root(&member, &[1], lost, &mut left, None, &mut go_on);
        assert!(matches!(result, Err(RedundancyError::Link { neighbour: "left neighbour", .. })));
    });
    assert_eq!(files_below(home.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_piece_of_another_length_is_refused() {
    let (name, directories) = sets().remove(0);
    let xor = ParityFile::open(&PARITY, &directories[0], &named(name, 0)).unwrap();
    let mut data = LogicalFile::open(&directories[0], 0, &xor.header.current).unwrap();
    let (to_self, mut left) = sync_channel(1);
    let (mut right, _kept) = sync_channel(9);
    to_self.send(vec![0; 99]).unwrap();
    let member = Member { piece: 100, ..Member::new(0, name.members, xor.header.chunk) };
    let (mut header, mut out) = (xor.header.clone(), Cursor::new(Vec::new()));
    let result =
        encode_member(&member, &mut header, &mut data, &mut left, &mut right, (Path::new("xor"), &mut out), &mut go_on);
    assert!(matches!(result, Err(RedundancyError::PieceLength { expected: 100, found: 99 })));
}

#[test]
fn an_xor_file_that_does_not_fit_is_named() {
    /// A file on a full file system.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Seek for Full {
        fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
            Ok(0)
        }
    }
    let (name, directories) = sets().remove(0);
    let xor = ParityFile::open(&PARITY, &directories[0], &named(name, 0)).unwrap();
    let mut data = LogicalFile::open(&directories[0], 0, &xor.header.current).unwrap();
    let (_kept, mut left) = sync_channel(1);
    let (mut right, _other) = sync_channel(9);
    let member = Member::new(0, name.members, xor.header.chunk);
    let (mut header, out) = (xor.header.clone(), (Path::new("/cache/1.xor"), &mut Full));
    let result = encode_member(&member, &mut header, &mut data, &mut left, &mut right, out, &mut go_on);
    assert!(result.unwrap_err().to_string().starts_with("cannot write /cache/1.xor: "));
}

fn in_cache(directory: &std::path::Path) -> std::sync::Arc<dyn OpenDataset> {
    std::sync::Arc::new(PosixDataset::in_cache(directory).unwrap())
}
