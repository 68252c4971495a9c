//! Hash files that another user wrote: what they cost a reader is bounded by what their kind of file can need.

use std::fs;
use std::path::Path;

use holdfast_core::kvtree::{Tree, file};
use holdfast_testkit::fast_directory;

use crate::run_bounded;

/// An index with as many elements as are read takes 240; the program itself, with its threads, needs 100.
const MIB: u64 = 400;
/// Bytes of a hash file in front of its hash.
const HEADER: usize = 20;

/// A valid hash file of this packed hash, without a CRC, as its flags permit.
fn hash_file(packed: &[u8]) -> Vec<u8> {
    let mut bytes = file::encode(&Tree::new())[..HEADER].to_vec();
    bytes[8..16].copy_from_slice(&((HEADER + packed.len()) as u64).to_be_bytes());
    bytes[16..20].fill(0);
    bytes.extend(packed);
    bytes
}

/// A hash of so many elements, each with the value that `value` packs.
fn wide(elements: u32, value: &[u8]) -> Vec<u8> {
    let mut packed = elements.to_be_bytes().to_vec();
    for number in 0..elements {
        packed.extend(format!("{number:x}\0").bytes());
        packed.extend(value);
    }
    packed
}

/// Holdfast reads the file at the path below `directory` in bounded memory, and refuses it with its name, the limit and
/// a remedy.
#[track_caller]
fn is_refused(words: &str, argument: &Path, path: &Path, limit: &str) {
    let (code, text) = run_bounded(words, &[argument], MIB);
    let text = String::from_utf8_lossy(&text);
    let size = fs::metadata(path).unwrap().len();
    let place = format!("{words}, {} of {size} bytes: {code:?} {}", path.display(), &text[..text.len().min(600)]);
    assert!(matches!(code, Some(65 | 69)), "{place}");
    let parts = [path.file_name().unwrap().to_str().unwrap(), limit, "move it away"];
    assert!(parts.iter().all(|part| text.contains(part)), "{place}");
}

#[test]
fn more_elements_than_a_kind_of_file_can_need_are_refused_in_bounded_memory() {
    let directory = fast_directory();
    let leaf = [0; 4];
    // One hash with all elements, whose count is refused before they are read, and many hashes with a few.
    let few = wide(3, &leaf);
    for packed in [wide(5_000_000, &leaf), wide(1_500_000, &few)] {
        let index = directory.path().join("index.scr");
        fs::write(&index, hash_file(&packed)).unwrap();
        assert!(fs::metadata(&index).unwrap().len() > 40 << 20);
        is_refused("index list --prefix", directory.path(), &index, "more than 2000000 elements");
        is_refused("inspect", &index, &index, "more than 2000000 elements");
        for (name, limit) in [
            ("filemap_0.scrinfo", "2000000"),
            ("1.scrfilemap", "2000000"),
            ("a.scr", "4194304"),
            ("halt.scrinfo", "4194304"),
        ] {
            let other = directory.path().join(name);
            fs::rename(&index, &other).unwrap();
            is_refused("inspect", &other, &other, limit);
            fs::rename(&other, &index).unwrap();
        }
    }
    let meta = directory.path().join("a.scr");
    fs::write(&meta, hash_file(&wide(10_001, &leaf))).unwrap();
    is_refused("inspect", &meta, &meta, "more than 10000 elements");
    // Even of a summary, no more than the largest job needs.
    let summary = directory.path().join("summary.scr");
    let count = 20_000_000_u32;
    let mut bytes = hash_file(&count.to_be_bytes());
    let size = bytes.len() as u64 + 5 * u64::from(count);
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    fs::write(&summary, bytes).unwrap();
    fs::File::options().write(true).open(&summary).unwrap().set_len(size).unwrap();
    is_refused("inspect", &summary, &summary, "more than 16000000 elements");
}

#[test]
fn the_summary_of_a_hundred_thousand_ranks_and_an_index_of_ten_thousand_checkpoints_are_read() {
    let directory = fast_directory();
    let mut summary = Tree::new();
    summary.put("VERSION", 5);
    let checkpoint = summary.set_kv("CKPT", 7);
    checkpoint.put("RANKS", 100_000);
    checkpoint.put("COMPLETE", 1);
    for rank in 0..100_000 {
        let of_rank = checkpoint.set_kv("RANK", rank);
        for (name, bytes) in [(format!("rank_{rank}.ckpt"), 1 << 30), (format!("{rank}_of_8_in_0.xor"), 1 << 28)] {
            let entry = of_rank.set_kv("FILE", name);
            entry.put("SIZE", bytes);
            entry.put("CRC", "0x1c291ca3");
        }
    }
    let path = directory.path().join("summary.scr");
    file::write(&path, &summary).unwrap();
    let (code, text) = run_bounded("inspect", &[&path], MIB);
    let text = String::from_utf8(text).unwrap();
    assert_eq!(code, Some(0), "{}", &text[..text.len().min(500)]);
    assert!(text.contains("rank_99999.ckpt"));

    let mut index = Tree::new();
    for id in 1..=10_000 {
        let name = format!("scr.2026-01-01_00:00:00.1145655.{id}");
        let entry = index.set_kv("CKPT", id).set_kv("DIR", &name);
        entry.put("FLUSHED", "2026-01-01T00:00:00");
        entry.put("COMPLETE", 1);
        index.set_kv("DIR", &name).set_kv("CKPT", id);
    }
    index.put("VERSION", 1);
    file::write(&directory.path().join("index.scr"), &index).unwrap();
    let (code, text) = run_bounded("index list --prefix", &[directory.path()], MIB);
    let text = String::from_utf8(text).unwrap();
    assert_eq!((code, text.lines().count()), (Some(0), 10_001), "{}", &text[..text.len().min(500)]);
}
