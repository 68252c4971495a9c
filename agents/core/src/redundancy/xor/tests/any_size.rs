//! Sets of any size: the files of one lost member are rebuilt, and a damaged survivor is always detected.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use holdfast_testkit::files_below;
use proptest::prelude::*;

use super::encoded;
use crate::control::meta::{FileKind, Meta};
use crate::redundancy::RedundancyError;
use crate::redundancy::directory::rebuild_in_pieces;
use crate::redundancy::files::{MemberFiles, SetId};
use crate::redundancy::logical::LogicalFile;
use crate::redundancy::parity::file::ParityFile;
use crate::redundancy::parity::header::{ParityHeader, chunk_size};
use crate::redundancy::parity::member::Member;
use crate::redundancy::xor::PARITY;
use crate::redundancy::xor::name::{NAME, XorName};
use crate::store::{DatasetFiles, PosixDataset};
use holdfast_model::{CheckpointId, Rank};

/// Writes the files of a set with these sizes into one directory, encodes it around a ring, and writes all meta files.
/// The checksums in them are those that the encoding computed.
fn encoded_set(directory: &Path, sizes: &[Vec<usize>], piece: usize) {
    let n = sizes.len();
    let mut files = Vec::new();
    for (sizes, rank) in sizes.iter().zip(0u32..) {
        let mut metas = Vec::new();
        for (&size, file) in sizes.iter().zip(0u32..) {
            let bytes = holdfast_testkit::application_bytes(5, rank, file, size);
            let name = format!("r{rank}.f{file}");
            fs::write(directory.join(&name), &bytes).unwrap();
            let meta = Meta {
                file: name,
                kind: FileKind::Full,
                size: size as u64,
                checkpoint: CheckpointId(5),
                rank: Rank(rank),
                ranks: n as u32,
                complete: true,
                crc: None,
                output_path: None,
            };
            metas.push(meta);
        }
        files.push(MemberFiles { rank: Rank(rank), files: metas });
    }
    let chunk = chunk_size(files.iter().map(|f| f.total_bytes().unwrap()).max().unwrap(), n as u32, 1);
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..n).map(|_| sync_channel(1)).unzip();
    receivers.rotate_right(1);
    thread::scope(|scope| {
        let files = &files;
        for (index, (mut right, mut left)) in senders.drain(..).zip(receivers.drain(..)).enumerate() {
            scope.spawn(move || {
                let mut header = ParityHeader {
                    scheme: &PARITY,
                    chunk,
                    checkpoint: CheckpointId(5),
                    ranks: n as u32,
                    members: (0..n as u32).map(Rank).collect(),
                    current: files[index].clone(),
                    left: vec![files[(index + n - 1) % n].clone()],
                };
                let mut data = LogicalFile::open(directory, index as u32, &files[index]).unwrap();
                let member = Member { piece, checksums: true, ..Member::new(index as u32, n as u32, chunk) };
                let (out, written) = encoded(&member, &mut header, &mut data, &mut left, &mut right);
                let meta = written.meta(&header, true);
                fs::write(directory.join(&meta.file), out).unwrap();
                meta.write(&directory.join(&meta.file)).unwrap();
                assert_eq!(ParityFile::open(&PARITY, directory, &meta.file).unwrap().header, header);
                for meta in header.current.files.iter().chain(&header.left[0].files) {
                    let bytes = fs::read(directory.join(&meta.file)).unwrap();
                    assert_eq!(meta.crc, Some(crc32fast::hash(&bytes)), "{}", meta.file);
                }
                for meta in &header.current.files {
                    meta.write(&directory.join(&meta.file)).unwrap();
                }
            });
        }
    });
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let all = files_below(directory).into_iter().map(|path| (name(&path), fs::read(&path).unwrap()));
    all.filter(|(name, _)| !name.ends_with(".scrfilemap")).collect()
}

/// The bytes of the XOR file depend on its writer (order of elements), and so does its checksum.
fn without_redundancy(contents: &[(String, Vec<u8>)]) -> Vec<&(String, Vec<u8>)> {
    contents.iter().filter(|(name, _)| !name.contains(".xor")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_one_member_is_rebuilt_and_further_damage_is_detected(
        sizes in prop::collection::vec(prop::collection::vec(0usize..3000, 0..4), 2..7),
        piece in prop_oneof![1 => 0usize..3, 9 => 40usize..700],
        missing in any::<prop::sample::Index>(),
        damaged in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let work = tempfile::tempdir().unwrap();
        let n = sizes.len() as u32;
        encoded_set(work.path(), &sizes, piece);
        let before = contents(work.path());
        let missing = missing.index(sizes.len()) as u32;
        let set = SetId { scheme: NAME, group_id: 0, members: n };
        let mut go_on = |_, _| ControlFlow::Continue(());
        let remove = || {
            for (name, _) in &before {
                let xor = XorName { group_id: 0, members: n, index: missing }.to_string();
                if name.starts_with(&format!("r{missing}.")) || name.starts_with(&xor) {
                    fs::remove_file(work.path().join(name)).unwrap();
                }
            }
        };
        remove();
        rebuild_in_pieces(&plain(work.path()), set, &[missing], piece, &mut go_on).unwrap();
        let after = contents(work.path());
        prop_assert!(without_redundancy(&before) == without_redundancy(&after));

        // One byte of one survivor, application file or XOR file, changes.
        remove();
        let survivors: Vec<&(String, Vec<u8>)> =
            after.iter().filter(|(name, bytes)| {
                !name.ends_with(".scr") && !bytes.is_empty() && work.path().join(name).exists()
            }).collect();
        let (name, bytes) = survivors[damaged.index(survivors.len())];
        let mut bytes = bytes.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 0x10;
        fs::write(work.path().join(name), bytes).unwrap();
        let with_damage = contents(work.path());
        let result = rebuild_in_pieces(&plain(work.path()), set, &[missing], piece, &mut go_on);
        // The damaged file is named: every file has a checksum here.
        let named = match &result {
            Err(RedundancyError::MemberDamaged { path, .. }) => path.ends_with(name),
            Err(RedundancyError::Header { origin, .. }) => origin.ends_with(name.as_str()),
            _ => false,
        };
        prop_assert!(named, "{}: {:?}", name, result);
        prop_assert!(contents(work.path()) == with_damage, "nothing was changed");
    }
}

fn plain(directory: &std::path::Path) -> std::sync::Arc<dyn DatasetFiles> {
    std::sync::Arc::new(PosixDataset::at(directory).unwrap())
}
