//! Encoded sets for the tests of the schemes.

use std::fs;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use holdfast_model::{CheckpointId, Rank};

use super::ParityScheme;
use super::encode::encode_member;
use super::file::ParityFile;
use super::header::{ParityHeader, chunk_size};
use super::member::Member;
use crate::control::meta::Meta;
use crate::redundancy::files::MemberFiles;
use crate::redundancy::logical::LogicalFile;
use crate::store::{DatasetFiles, PosixDataset};

pub const ID: CheckpointId = CheckpointId(5);

pub fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The files of a directory.
pub fn dataset(directory: &Path) -> Arc<dyn DatasetFiles> {
    Arc::new(PosixDataset::at(directory).unwrap())
}

/// The bytes of a file of the application.
pub fn content(rank: u32, file: u32, size: usize) -> Vec<u8> {
    holdfast_testkit::application_bytes(ID.0, rank, file, size)
}

/// Writes the files of a set with these sizes into one directory, encodes it around a ring, and writes all meta files.
/// The checksums in them are those that the encoding computed.
pub fn encoded_set(scheme: &'static ParityScheme, directory: &Path, sizes: &[Vec<usize>], failures: u32, piece: usize) {
    let n = sizes.len() as u32;
    let files: Vec<MemberFiles> = sizes
        .iter()
        .zip(0u32..)
        .map(|(sizes, rank)| {
            let written = sizes.iter().zip(0u32..).map(|(size, number)| {
                let (file, bytes) = (format!("r{rank}.f{number}"), content(rank, number, *size));
                fs::write(directory.join(&file), bytes).unwrap();
                Meta::of_application(file, *size as u64, ID, Rank(rank), n)
            });
            MemberFiles { rank: Rank(rank), files: written.collect() }
        })
        .collect();
    let chunk = chunk_size(files.iter().map(|of| of.total_bytes().unwrap()).max().unwrap(), n, failures);
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..n).map(|_| sync_channel(1)).unzip();
    receivers.rotate_right(1);
    thread::scope(|scope| {
        for (index, (mut right, mut left)) in (0..n).zip(senders.into_iter().zip(receivers)) {
            let files = &files;
            scope.spawn(move || {
                let of = |distance: u32| files[((index + n - distance) % n) as usize].clone();
                let mut header = ParityHeader {
                    scheme,
                    chunk,
                    checkpoint: ID,
                    ranks: n,
                    members: (0..n).map(Rank).collect(),
                    current: of(0),
                    left: (1..=failures).map(of).collect(),
                };
                let mut data = LogicalFile::open(directory, index, &header.current).unwrap();
                let member = Member { failures, piece, checksums: true, ..Member::new(index, n, chunk) };
                let path = directory.join(scheme.file_name(0, n, index));
                let mut out = File::create(&path).unwrap();
                let (into, mut go_on) = ((path.as_path(), &mut out), |_| ControlFlow::Continue(()));
                let written =
                    encode_member(&member, &mut header, &mut data, &mut left, &mut right, into, &mut go_on).unwrap();
                let bytes = fs::read(&path).unwrap();
                assert_eq!((written.bytes, written.crc), (bytes.len() as u64, crc32fast::hash(&bytes)));
                written.meta(&header, true).write(&path).unwrap();
                assert_eq!(
                    ParityFile::open(scheme, directory, path.file_name().unwrap().to_str().unwrap()).unwrap().header,
                    header
                );
                for meta in header.known().flat_map(|(_, of)| &of.files) {
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
