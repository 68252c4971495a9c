//! Recovery of containers that were never closed or lost their tail.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::*;
use super::world::*;
use crate::Destination;

fn damaged(name: &str) -> PathBuf {
    root().join(format!("damaged/{name}/{name}.sion"))
}

fn anomalies(container: &Container) -> Vec<&'static str> {
    container.warnings.iter().map(|warning| warning.anomaly.kind()).collect()
}

/// A copy in the state before its writer closed it.
fn unclosed(source: &Path, directory: &Path) -> PathBuf {
    let part = PhysicalFile::open(source).unwrap();
    let copy = directory.join(source.file_name().unwrap());
    fs::copy(source, &copy).unwrap();
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    let tail = part.layout.tail(part.table.blocks).unwrap();
    file.set_len(tail).unwrap();
    file.write_all_at(&[0; 12], 1076 + 16 * part.header.tasks() as u64).unwrap();
    copy
}

/// True if both are equal except for zeros at the end.
fn equal_but_for_zeros(recovered: &[u8], written: &[u8]) -> bool {
    written.starts_with(recovered) && written[recovered.len()..].iter().all(|byte| *byte == 0)
}

#[test]
fn recovery_of_intact_container_changes_nothing() {
    for fixture in intact() {
        let container = recover(&first_file(&fixture)).unwrap();
        assert!(container.warnings.is_empty());
    }
}

#[test]
fn recovers_data_of_real_unclosed_containers() {
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
fn recovers_unclosed_containers_except_for_zeros_at_chunk_ends() {
    for fixture in intact() {
        let directory = tempfile::tempdir().unwrap();
        let mut copies = Vec::new();
        for file in fixture["files"].as_array().unwrap() {
            let name = file["path"].as_str().unwrap();
            if !name.contains("_BUDDY_") {
                copies.push(unclosed(&root().join(name), directory.path()));
            }
        }
        let intact = Container::open(&first_file(&fixture)).unwrap();
        let container = recover(&copies[0]).unwrap();
        assert_eq!(container.tasks(), intact.tasks(), "{}", fixture["name"]);
        for task in 0..intact.tasks() {
            let (ours, slot) = (stream(&container, task), intact.slot(task).unwrap());
            // A shortened chunk moves the following ones: compare chunk by chunk.
            let table = &intact.parts[slot.part].table;
            let recovered = &container.parts[slot.part].table;
            let (mut at, mut of) = (0, 0);
            let written = stream(&intact, task);
            let mut counts = recovered.chunk_bytes(slot.local);
            for bytes in table.chunk_bytes(slot.local) {
                let found = counts.next().unwrap_or(0) as usize;
                let chunk = &written[of..of + bytes as usize];
                assert!(equal_but_for_zeros(&ours[at..at + found], chunk), "{} task {task}", fixture["name"]);
                at += found;
                of += bytes as usize;
            }
            if container.key_value() == KeyValue::Inline {
                assert_eq!(ours, written, "{} task {task}: records contain their length", fixture["name"]);
            }
        }
    }
}

#[test]
fn finds_tail_of_container_with_unclosed_head() {
    let container = recover(&damaged("unclosed_header")).unwrap();
    let intact = Container::open(&first_file(&named("ser4_fs512"))).unwrap();
    assert!(container.warnings.iter().any(|warning| warning.anomaly == Anomaly::TailFound));
    for task in 0..intact.tasks() {
        assert_eq!(stream(&container, task), stream(&intact, task));
    }
}

#[test]
fn recovers_all_streams_without_mapping_and_warns() {
    let intact = Container::open(&first_file(&named("par8_n2"))).unwrap();
    for name in
        ["multi_mapping_missing", "multi_mapping_truncated", "multi_mapping_duplicate", "multi_mapping_size_huge"]
    {
        let container = recover(&damaged(name)).unwrap();
        assert_eq!(container.tasks(), intact.tasks(), "{name}");
        assert!(anomalies(&container).contains(&"mapping"), "{name}");
        for task in 0..intact.tasks() {
            assert!(stream(&container, task) == stream(&intact, task), "{name} task {task}");
        }
    }
}

#[test]
fn recovers_other_tasks_when_a_file_is_lost() {
    let container = recover(&damaged("multi_missing_part")).unwrap();
    assert_eq!(container.tasks(), 4);
    assert!(container.warnings.iter().any(|warning| warning.anomaly.is_loss()));
    assert_eq!(stream(&container, 3), content(3, 0, 0..5000));
}

#[test]
fn fails_to_recover_without_usable_head() {
    for name in ["zero_length", "bad_magic", "trunc_meta1", "ntasks_huge", "fsblksize_zero"] {
        assert!(recover(&damaged(name)).is_err(), "{name}");
    }
}

#[test]
fn streams_keep_rank_numbers_when_a_file_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("three.sion");
    let tasks: Vec<_> = (0..6).map(|global_rank| TaskPlan { global_rank, chunk_bytes: 100 }).collect();
    let plan =
        Plan::new(&tasks, &PlanOptions::new(FileDistribution::Parallel { files: 3 }, 512, "three.sion")).unwrap();
    let creation = Creation::new(&path, plan).unwrap();
    let write = |rank: usize| {
        let mut writer = creation.task(rank).unwrap();
        writer.write_all(&content(rank as i64, 0, 0..100)).unwrap();
        writer.finish()
    };
    let usages: Vec<_> = (0..6).map(write).collect();
    creation.commit(&usages).unwrap();
    fs::remove_file(part_path(&path, 1)).unwrap();
    // A copy of another file in its place is not used.
    for other_file in [false, true] {
        if other_file {
            fs::copy(&path, part_path(&path, 1)).unwrap();
        }
        let pieces = directory.path().join(format!("pieces-{other_file}"));
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
fn recovery_of_long_empty_file_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ser4_fs512", "ser4_fs1", "kv4"] {
        let copy = unclosed(&first_file(&named(name)), directory.path());
        let intact = Container::open(&first_file(&named(name))).unwrap();
        let bytes = Statistics::of(&intact).unwrap().data_bytes;
        OpenOptions::new().write(true).open(&copy).unwrap().set_len(1 << 24).unwrap();
        let container = recover(&copy).unwrap();
        assert!(Statistics::of(&container).unwrap().data_bytes <= bytes, "{name}");
        // Beyond the limit of chunks, recovery fails before a table is allocated.
        OpenOptions::new().write(true).open(&copy).unwrap().set_len(1 << 42).unwrap();
        let error = recover(&copy).unwrap_err();
        assert!(error.to_string().contains("more than the"), "{error}");
    }
}
