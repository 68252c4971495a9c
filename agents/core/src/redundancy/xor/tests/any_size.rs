//! Sets of any size: the files of one lost member are rebuilt, and a damaged survivor is always detected.

use std::fs;
use std::path::Path;

use holdfast_testkit::files_below;
use proptest::prelude::*;

use crate::redundancy::RedundancyError;
use crate::redundancy::directory::rebuild_in_pieces;
use crate::redundancy::files::SetId;
use crate::redundancy::parity::fixtures::{dataset, encoded_set, go_on};
use crate::redundancy::xor::PARITY;
use crate::redundancy::xor::name::{NAME, XorName};

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
        encoded_set(&PARITY, work.path(), &sizes, 1, piece);
        let before = contents(work.path());
        let missing = missing.index(sizes.len()) as u32;
        let set = SetId { scheme: NAME, group_id: 0, members: n };
        let remove = || {
            for (name, _) in &before {
                let xor = XorName { group_id: 0, members: n, index: missing }.to_string();
                if name.starts_with(&format!("r{missing}.")) || name.starts_with(&xor) {
                    fs::remove_file(work.path().join(name)).unwrap();
                }
            }
        };
        remove();
        rebuild_in_pieces(&dataset(work.path()), set, &[missing], piece, &mut go_on).unwrap();
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
        let result = rebuild_in_pieces(&dataset(work.path()), set, &[missing], piece, &mut go_on);
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
