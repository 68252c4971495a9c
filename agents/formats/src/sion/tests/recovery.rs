//! What is recovered from containers that were never closed or lost their tail.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::*;
use super::world::*;
use crate::Destination;

fn damaged(name: &str) -> PathBuf {
    root().join(format!("damaged/{name}/{name}.sion"))
}

fn anomalies(container: &Container) -> Vec<&'static str> {
    container.warnings().iter().map(|warning| warning.anomaly.kind()).collect()
}

/// A copy as it would stand if its writer had ended before closing it.
fn unclosed(source: &Path, directory: &Path) -> PathBuf {
    let part = PhysicalFile::open(source).unwrap();
    let copy = directory.join(source.file_name().unwrap());
    fs::copy(source, &copy).unwrap();
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    let tail = part.layout().tail(part.table().blocks()).unwrap();
    file.set_len(tail).unwrap();
    file.write_all_at(&[0; 12], 1076 + 16 * part.header().tasks() as u64).unwrap();
    copy
}

/// True if the two are the same but for zeros at the end.
fn equal_but_for_zeros(recovered: &[u8], written: &[u8]) -> bool {
    written.starts_with(recovered) && written[recovered.len()..].iter().all(|byte| *byte == 0)
}

#[test]
fn a_container_that_is_whole_is_recovered_as_it_is() {
    for fixture in intact() {
        let container = recover(&first_file(&fixture)).unwrap();
        assert!(container.warnings().is_empty());
    }
}

#[test]
fn real_containers_that_were_never_closed_give_what_their_chunks_hold() {
    for name in ["real_unclosed_serial", "real_unclosed_mpi"] {
        assert!(matches!(Container::open(&damaged(name)), Err(SionError::NeverClosed { .. })));
        let container = recover(&damaged(name)).unwrap();
        assert!(anomalies(&container).contains(&"recovered"));
        let mut found = 0;
        for task in 0..container.tasks() {
            let bytes = stream(&container, task);
            let rank = container.global_rank(task).unwrap();
            let expected = content(rank, 0, 0..bytes.len() as u64);
            assert!(bytes == expected, "{name} task {task}: {} bytes", bytes.len());
            found += bytes.len();
        }
        assert!(found > 1000, "{name}: {found}");
    }
}

#[test]
fn every_unclosed_container_gives_its_streams_but_for_zeros_at_the_ends_of_chunks() {
    for fixture in intact() {
        let directory = tempfile::tempdir().unwrap();
        let mut copies = Vec::new();
        for file in fixture["files"].as_array().unwrap() {
            let name = file["path"].as_str().unwrap();
            if !name.contains("_BUDDY_") {
                copies.push(unclosed(&root().join(name), directory.path()));
            }
        }
        let whole = Container::open(&first_file(&fixture)).unwrap();
        let container = recover(&copies[0]).unwrap();
        assert_eq!(container.tasks(), whole.tasks(), "{}", fixture["name"]);
        for task in 0..whole.tasks() {
            let (ours, slot) = (stream(&container, task), whole.slot(task).unwrap());
            // Cut at the end of a chunk, what follows in the next moves up; compare chunk by chunk.
            let table = whole.parts()[slot.part].table();
            let recovered = container.parts()[slot.part].table();
            let (mut at, mut of) = (0, 0);
            let written = stream(&whole, task);
            let mut counts = recovered.chunk_bytes(slot.local);
            for bytes in table.chunk_bytes(slot.local) {
                let found = counts.next().unwrap_or(0) as usize;
                let chunk = &written[of..of + bytes as usize];
                assert!(equal_but_for_zeros(&ours[at..at + found], chunk), "{} task {task}", fixture["name"]);
                at += found;
                of += bytes as usize;
            }
            if container.key_value() == KeyValue::Inline {
                assert_eq!(ours, written, "{} task {task}: records say where they end", fixture["name"]);
            }
        }
    }
}

#[test]
fn a_tail_that_is_there_is_found_though_the_head_was_never_closed() {
    let container = recover(&damaged("unclosed_header")).unwrap();
    let whole = Container::open(&first_file(&named("ser4_fs512"))).unwrap();
    assert!(container.warnings().iter().any(|warning| warning.anomaly == Anomaly::TailFound));
    for task in 0..whole.tasks() {
        assert_eq!(stream(&container, task), stream(&whole, task));
    }
}

#[test]
fn a_lost_mapping_costs_nothing_but_a_warning() {
    let whole = Container::open(&first_file(&named("par8_n2"))).unwrap();
    for name in
        ["multi_mapping_missing", "multi_mapping_truncated", "multi_mapping_duplicate", "multi_mapping_size_huge"]
    {
        let container = recover(&damaged(name)).unwrap();
        assert_eq!(container.tasks(), whole.tasks(), "{name}");
        assert!(anomalies(&container).contains(&"mapping"), "{name}");
        for task in 0..whole.tasks() {
            assert!(stream(&container, task) == stream(&whole, task), "{name} task {task}");
        }
    }
}

#[test]
fn a_lost_part_leaves_the_tasks_of_the_others() {
    let container = recover(&damaged("multi_missing_part")).unwrap();
    assert_eq!(container.tasks(), 4);
    assert!(container.warnings().iter().any(|warning| warning.anomaly.is_loss()));
    assert_eq!(stream(&container, 3), content(3, 0, 0..5000));
}

#[test]
fn what_has_no_usable_head_is_not_recovered() {
    for name in ["zero_length", "bad_magic", "trunc_meta1", "ntasks_huge", "fsblksize_zero"] {
        assert!(recover(&damaged(name)).is_err(), "{name}");
    }
}

#[test]
fn streams_of_a_set_with_a_lost_part_keep_the_numbers_of_their_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("three.sion");
    let tasks: Vec<_> = (0..6).map(|global_rank| TaskPlan { global_rank, chunk_bytes: 100 }).collect();
    let plan = Plan::new(&tasks, &PlanOptions::new(Shape::Parallel { files: 3 }, 512, "three.sion")).unwrap();
    let creation = Creation::new(&path, plan).unwrap();
    let write = |rank: usize| {
        let mut writer = creation.task(rank).unwrap();
        writer.write_whole(&content(rank as i64, 0, 0..100)).unwrap();
        writer.finish()
    };
    let usages: Vec<_> = (0..6).map(write).collect();
    creation.commit(&usages).unwrap();
    fs::remove_file(part_path(&path, 1)).unwrap();
    // A copy of another file in its place is not taken for it.
    for stranger in [false, true] {
        if stranger {
            fs::copy(&path, part_path(&path, 1)).unwrap();
        }
        let pieces = directory.path().join(format!("pieces-{stranger}"));
        let to = Destination::new(&pieces, false).unwrap();
        assert!(split(&path, &to, &SplitOptions::default(), &mut nothing()).is_err());
        let options = SplitOptions { recover: true, ..SplitOptions::default() };
        let files = split(&path, &to, &options, &mut nothing()).unwrap().files;
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["t_00000", "t_00001", "t_00004", "t_00005"]);
        assert_eq!(fs::read(pieces.join("t_00005")).unwrap(), content(5, 0, 0..100));
    }
}

#[test]
fn an_empty_file_of_any_length_does_not_keep_recovery_busy() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ser4_fs512", "ser4_fs1", "kv4"] {
        let copy = unclosed(&first_file(&named(name)), directory.path());
        let whole = Container::open(&first_file(&named(name))).unwrap();
        let bytes = Statistics::of(&whole).unwrap().data_bytes;
        OpenOptions::new().write(true).open(&copy).unwrap().set_len(1 << 24).unwrap();
        let container = recover(&copy).unwrap();
        assert!(Statistics::of(&container).unwrap().data_bytes <= bytes, "{name}");
        // Past what any container has, it is refused before a table is made.
        OpenOptions::new().write(true).open(&copy).unwrap().set_len(1 << 42).unwrap();
        let error = recover(&copy).unwrap_err();
        assert!(error.to_string().contains("more than the"), "{error}");
    }
}
