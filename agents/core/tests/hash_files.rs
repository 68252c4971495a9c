//! Every hash file that SCR wrote is read, printed and written again unchanged; every damaged one is refused.

// Helpers of tests report as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use holdfast_core::kvtree::file::{HashFileError, HashFormatError, decode, decode_prefix, encode, read, write};
use holdfast_core::kvtree::limits::Limits;
use holdfast_core::kvtree::packed::{MAGIC, MAX_DEPTH};
use holdfast_core::kvtree::{Tree, print};
use holdfast_testkit::{files_below, fixtures};
use proptest::prelude::*;

/// Files that start as hash files do.
fn hash_files() -> Vec<PathBuf> {
    let starts_as_one = |path: &PathBuf| {
        let mut front = [0; 4];
        File::open(path).unwrap().read_exact(&mut front).is_ok() && front == MAGIC
    };
    files_below(&fixtures("scr")).into_iter().filter(starts_as_one).collect()
}

/// The output of `scr_print_hash_file` for a file, if it was kept.
fn dump_of(path: &Path) -> Option<String> {
    let text = path.to_str().unwrap();
    let mirrored = format!("{}.txt", text.replacen("/tree/", "/dumps/", 1));
    fs::read_to_string(mirrored).or_else(|_| fs::read_to_string(format!("{text}.txt"))).ok()
}

#[test]
fn every_hash_file_is_printed_as_by_scr() {
    let mut compared = 0;
    for path in hash_files() {
        let Some(dump) = dump_of(&path) else { continue };
        match read(&path) {
            Ok(tree) => assert_eq!(print::text(&tree), dump, "{}", path.display()),
            Err(error) => panic!("{error}"),
        }
        compared += 1;
    }
    assert!(compared > 1500, "only {compared} hash files with a dump");
}

#[test]
fn every_hash_file_is_written_again_byte_for_byte() {
    let mut written = 0;
    for path in hash_files() {
        let bytes = fs::read(&path).unwrap();
        // Files that are damaged on purpose are not trees: their tests are below.
        let Ok((tree, length)) = decode(&bytes) else {
            assert!(dump_of(&path).is_none(), "{}", path.display());
            continue;
        };
        assert_eq!(encode(&tree), bytes[..length], "{}", path.display());
        // Only XOR data may follow a hash.
        if path.extension().is_none_or(|extension| extension != "xor") {
            assert_eq!(length, bytes.len(), "{}", path.display());
        }
        written += 1;
    }
    assert!(written > 1500, "only {written} hash files");
}

#[test]
fn after_the_header_of_an_xor_file_the_reader_is_at_its_data() {
    let path = fixtures("scr")
        .join("a-xor4/killed-after-flush/tree/node0/user1/scr.1145655/index.0/checkpoint.3/1_of_4_in_0.xor");
    let bytes = fs::read(&path).unwrap();
    let mut file = File::open(&path).unwrap();
    let (tree, length) = decode_prefix(&mut file, Limits::LARGEST).unwrap();
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    assert_eq!(data, bytes[usize::try_from(length).unwrap()..]);
    assert_eq!(tree.parsed::<usize>("CHUNK"), Some(data.len()));
}

#[test]
fn damaged_halt_files_of_the_fixtures_are_refused_with_the_file_s_name() {
    let halt = fixtures("scr").join("h-control-files/halt");
    let error = read(&halt.join("corrupt/halt.scrinfo")).unwrap_err();
    assert!(matches!(error, HashFileError::Format { source: HashFormatError::Crc { .. }, .. }), "{error}");
    assert!(error.to_string().contains("corrupt/halt.scrinfo"), "{error}");
    let error = read(&halt.join("zero-byte/halt.scrinfo")).unwrap_err();
    assert!(matches!(error, HashFileError::Format { source: HashFormatError::NoHeader { have: 0 }, .. }), "{error}");
    assert!(read(&halt.join("missing/halt.scrinfo")).unwrap_err().is_not_found());
}

/// A hash file with this packed hash and valid size and CRC.
fn around(packed: &[u8]) -> Vec<u8> {
    let mut bytes = encode(&Tree::new())[..20].to_vec();
    bytes.extend(packed);
    let size = bytes.len() as u64 + 4;
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend(crc.to_be_bytes());
    bytes
}

#[test]
fn a_count_of_four_billion_is_refused_before_anything_is_allocated() {
    let error = decode(&around(&u32::MAX.to_be_bytes())).unwrap_err();
    assert_eq!(error, HashFormatError::Count { offset: 20, count: u32::MAX, left: 0 });
}

#[test]
fn nesting_of_a_hundred_thousand_levels_is_refused() {
    let mut packed = b"\0\0\0\x01k\0".repeat(100_000);
    packed.extend([0; 4]);
    assert!(matches!(decode(&around(&packed)), Err(HashFormatError::Depth { .. })));

    let nested = |levels: usize| {
        let mut tree = Tree::new();
        let mut at = &mut tree;
        for level in 0..levels {
            at = at.entry(level.to_string());
        }
        tree
    };
    assert!(decode(&encode(&nested(MAX_DEPTH))).is_ok());
    assert!(decode(&encode(&nested(MAX_DEPTH + 1))).is_err());
}

#[test]
fn each_kind_of_damage_has_its_own_error() {
    let mut tree = Tree::new();
    tree.set_kv("NODES", 4);
    let good = encode(&tree);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, 0), HashFormatError::Magic { .. }));
    assert!(matches!(with(5, 2), HashFormatError::Version { kind: 2, version: 1 }));
    assert!(matches!(with(7, 2), HashFormatError::Version { kind: 1, version: 2 }));
    assert!(matches!(with(8, 1), HashFormatError::Size { .. }));
    assert!(matches!(with(15, 3), HashFormatError::Size { size: 3, .. }));
    assert!(matches!(with(22, 9), HashFormatError::Crc { .. }));
    assert!(matches!(decode(&good[..good.len() - 1]), Err(HashFormatError::Truncated { .. })));
    assert!(matches!(decode(&good[..19]), Err(HashFormatError::NoHeader { have: 19 })));
    assert!(matches!(decode(&around(b"\0\0\0\x02a\0\0\0\0\0a\0\0\0\0\0")), Err(HashFormatError::Duplicate { .. })));
    assert!(matches!(decode(&around(b"\0\0\0\x01\xff\0\0\0\0\0")), Err(HashFormatError::Encoding { offset: 24 })));
    assert!(matches!(decode(&around(b"\0\0\0\x01aaaaaaa")), Err(HashFormatError::UnendedKey { offset: 24 })));
    assert!(matches!(decode(&around(b"\0\0\0\x01abcde\0\0\0")), Err(HashFormatError::NoCount { offset: 30 })));
    assert!(matches!(decode(&around(b"\0\0\0\0more")), Err(HashFormatError::Trailing { offset: 24, extra: 4 })));
}

#[test]
fn a_file_without_crc_flag_has_no_crc_and_is_read() {
    let mut tree = Tree::new();
    tree.set_kv("NODES", 4);
    let mut bytes = encode(&tree);
    bytes.truncate(bytes.len() - 4);
    let size = bytes.len() as u64;
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    bytes[16..20].copy_from_slice(&[0; 4]);
    assert_eq!(decode(&bytes).unwrap(), (tree, bytes.len()));
}

#[test]
fn duplicate_keys_are_detected_in_large_hashes() {
    let mut packed = 41_u32.to_be_bytes().to_vec();
    for key in (0..40).chain([17]) {
        packed.extend(format!("{key}\0\0\0\0\0").as_bytes());
    }
    let error = decode(&around(&packed)).unwrap_err();
    assert_eq!(error, HashFormatError::Duplicate { offset: 20, key: "17".to_owned() });
}

#[test]
fn a_key_with_nul_is_not_written_and_the_old_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("filemap.scrinfo");
    let mut tree = Tree::new();
    tree.set_kv("FILE", "good");
    write(&path, &tree).unwrap();
    let mut bad = Tree::new();
    bad.set_kv("FILE", "a\0b");
    assert!(matches!(write(&path, &bad), Err(HashFileError::NulInKey { .. })));
    assert_eq!(read(&path).unwrap(), tree);
}

#[test]
fn a_summary_of_a_hundred_thousand_ranks_is_read_in_linear_time() {
    // Quadratic work here would take minutes.
    let mut tree = Tree::new();
    for rank in 0..100_000 {
        tree.set_kv("RANK", rank).set_kv("FILE", format!("rank_{rank}.ckpt")).put("SIZE", 1 << 20);
    }
    let (again, _) = decode(&encode(&tree)).unwrap();
    assert_eq!(again, tree);
}

fn trees() -> impl Strategy<Value = Tree> {
    let keys = || prop_oneof![Just(String::new()), "[A-Z]{1,8}", "[0-9]{1,4}", "[^\0]{0,12}"];
    let leaf = Just(Tree::new());
    leaf.prop_recursive(6, 200, 24, move |inner| {
        proptest::collection::vec((keys(), inner), 0..24).prop_map(|elements| {
            let mut tree = Tree::new();
            for (key, value) in elements {
                tree.set(key, value);
            }
            tree
        })
    })
}

proptest! {
    #[test]
    fn any_tree_is_read_back_unchanged(tree in trees(), behind in proptest::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = encode(&tree);
        let length = bytes.len();
        bytes.extend(behind);
        let (again, read) = decode(&bytes).unwrap();
        prop_assert_eq!(read, length);
        prop_assert!(again.same_content(&tree));
        prop_assert_eq!(&again, &tree);
        let (streamed, read) = decode_prefix(&mut bytes.as_slice(), Limits::LARGEST).unwrap();
        prop_assert_eq!(read, length as u64);
        prop_assert_eq!(streamed, tree);
    }

    #[test]
    fn a_file_cut_anywhere_is_refused(tree in trees(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&tree);
        let cut = cut.index(bytes.len());
        prop_assert!(decode(&bytes[..cut]).is_err());
        prop_assert!(decode_prefix(&mut &bytes[..cut], Limits::LARGEST).is_err());
    }

    #[test]
    fn a_changed_byte_is_always_detected(tree in trees(), at in any::<prop::sample::Index>(), change in 1_u8..) {
        let mut bytes = encode(&tree);
        // Flags other than the CRC's are ignored, but the CRC covers them.
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        // Without its flag the CRC would be trailing bytes.
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_with_valid_crc_never_panic(
        packed in proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..300),
    ) {
        if let Ok((tree, _)) = decode(&around(&packed)) {
            prop_assert_eq!(encode(&tree), around(&packed));
        }
    }
}
