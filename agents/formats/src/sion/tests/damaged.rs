//! The verification of each damaged container is at least as strict as its listed verdict.

use super::super::*;
use super::world::*;
use crate::{Destination, Format};

#[test]
fn verifies_damaged_containers_at_least_as_strictly_as_listed() {
    let listed = manifest()["damaged"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 61);
    for set in listed {
        let name = set["name"].as_str().unwrap();
        let path = root().join(set["files"][0]["path"].as_str().unwrap());
        let check = verify(&path, &VerifyOptions { read_data: true }, &mut nothing()).unwrap();
        match set["suggested_verdict"].as_str().unwrap() {
            "reject" => assert!(!check.is_intact(), "{name} was accepted"),
            "warn" | "accept+warn" | "warn or reject" => {
                assert!(!check.is_intact() || !check.notes.is_empty(), "{name} was accepted without a note");
            }
            "accept" => assert!(check.is_intact(), "{name}: {check:?}"),
            other => panic!("{name}: unknown verdict {other}"),
        }
    }
}

#[test]
fn accepted_anomalies_keep_the_data() {
    let intact = Container::open(&first_file(&named("ser4_fs512"))).unwrap();
    for name in
        ["trunc_mapping", "endian_garbage", "garbage_appended", "prefix_unterminated", "duplicate_globalranks", "ffv_6"]
    {
        let damaged = Container::open(&root().join(format!("damaged/{name}/{name}.sion"))).unwrap();
        assert_eq!(damaged.tasks(), intact.tasks(), "{name}");
        for task in 0..intact.tasks() {
            assert!(stream(&damaged, task) == stream(&intact, task), "{name} task {task}");
        }
    }
}

#[test]
fn errors_name_file_place_and_remedy() {
    let error =
        |name: &str| Container::open(&root().join(format!("damaged/{name}/{name}.sion"))).unwrap_err().to_string();
    let message = error("multi_missing_part");
    assert!(
        message.contains("file 1 of its 2 is missing") && message.contains("multi_missing_part.sion.000001"),
        "{message}"
    );
    let message = error("real_unclosed_mpi");
    assert!(message.contains("was never closed") && message.contains("recovery"), "{message}");
    let message = error("bytes_gt_chunk");
    assert!(message.contains("chunk 0 of task 0") && message.contains("1025 bytes of 1024"), "{message}");
    let message = error("zero_length");
    assert!(message.contains("does not begin with \"sion\""), "{message}");
    let message = error("multi_mapping_duplicate");
    assert!(message.contains("rank 1") && message.contains("file 0, task 0"), "{message}");
}

#[test]
fn commands_handle_every_damaged_container() {
    for set in manifest()["damaged"].as_array().unwrap() {
        let path = root().join(set["files"][0]["path"].as_str().unwrap());
        let directory = tempfile::tempdir().unwrap();
        for recover in [false, true] {
            let to = Destination::new(&directory.path().join(format!("{recover}")), false).unwrap();
            let options = SplitOptions { recover, ..SplitOptions::default() };
            drop(split(&path, &to, &options, &mut nothing()));
            let options = DefragOptions { recover, ..DefragOptions::default() };
            drop(defrag(&path, &directory.path().join("out.sion"), &options, &mut nothing()));
        }
        drop(Sion.describe(&path));
    }
}

#[test]
fn split_leaves_out_tasks_with_damaged_records_unless_recovering() {
    let path = root().join("damaged/kv_len_huge/kv_len_huge.sion");
    let directory = tempfile::tempdir().unwrap();
    let to = Destination::new(directory.path(), true).unwrap();
    let plain = split(&path, &to, &SplitOptions::default(), &mut nothing()).unwrap();
    assert_eq!(plain.damaged.len(), 1);
    let damaged = plain.damaged[0].0;
    assert!(plain.files.iter().all(|file| file.task != damaged) && !plain.files.is_empty());
}
