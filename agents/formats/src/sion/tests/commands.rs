//! Defrag, join and split, compared with SIONlib's results and with each other.

use std::fs;

use super::super::*;
use super::world::*;
use crate::Destination;

#[test]
fn defrag_writes_bytes_of_siondefrag() {
    for (result, input, block_size) in [
        ("defrag_ser4", "ser4_fs512", None),
        ("defrag_ser4_q1", "ser4_fs512", Some(1)),
        ("defrag_par8_q1", "par8_n2", Some(1)),
        ("defrag_kv4_q1", "kv4", Some(1)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join(format!("{result}.sion"));
        let options = DefragOptions { block_size, ..DefragOptions::default() };
        let dry = DefragOptions { dry_run: true, ..options };
        defrag(&first_file(&named(input)), &output, &dry, &mut nothing()).unwrap();
        assert!(!output.exists());
        defrag(&first_file(&named(input)), &output, &options, &mut nothing()).unwrap();
        same_files(&output, &first_file(&named(result)));
    }
}

#[test]
fn defrag_in_place_works_in_both_byte_orders() {
    for name in ["ser4_be", "kv3_be", "ser4_endflag_big", "map3_n1"] {
        let fixture = named(name);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("same.sion");
        fs::copy(first_file(&fixture), &path).unwrap();
        defrag(&path, &path, &DefragOptions::default(), &mut nothing()).unwrap();
        let container = Container::open(&path).unwrap();
        assert_eq!(container.parts[0].table.blocks, 1);
        for task in 0..container.tasks() {
            assert_eq!(Some(stream(&container, task)), expected_stream(&fixture, task), "{name}");
        }
    }
}

#[test]
fn join_restores_split_streams() {
    for fixture in intact() {
        let name = fixture["name"].as_str().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (pieces, output) = (directory.path().join("pieces"), directory.path().join("again.sion"));
        let to = Destination::new(&pieces, false).unwrap();
        let before = split(&first_file(&fixture), &to, &SplitOptions::default(), &mut nothing()).unwrap();
        let input = JoinInput::from_directory(&pieces).unwrap();
        let files = if before.files.last().unwrap().task > 3 { 3 } else { 1 };
        let options = JoinOptions { files, block_size: Some(512), chunk_bytes: Some(700), ..JoinOptions::default() };
        let dry = JoinOptions { dry_run: true, ..options.clone() };
        let planned = join(&input, &output, &dry, &mut nothing()).unwrap();
        assert!(!output.exists());
        assert_eq!(join(&input, &output, &options, &mut nothing()).unwrap(), planned);
        let check = verify(&output, &VerifyOptions { read_data: true }, &mut nothing()).unwrap();
        assert!(check.is_intact() && check.notes.is_empty(), "{name}: {check:?}");
        let again = directory.path().join("again");
        let to = Destination::new(&again, false).unwrap();
        let mut after = split(&output, &to, &SplitOptions::default(), &mut nothing()).unwrap();
        let mut before = before.files;
        before.sort_by(|one, other| one.name.cmp(&other.name));
        after.files.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(before, after.files, "{name}");
        for file in &before {
            same_files(&pieces.join(&file.name), &again.join(&file.name));
        }
    }
}

#[test]
fn joins_only_directories_of_split() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str| fs::write(directory.path().join(name), name).unwrap();
    assert!(JoinInput::from_directory(directory.path()).unwrap_err().to_string().contains("no files named"));
    write("t_00000");
    write("t_00001");
    let expected = ["t_00000", "t_00001"].map(|name| directory.path().join(name));
    assert_eq!(JoinInput::from_directory(directory.path()).unwrap(), JoinInput::Plain(expected.to_vec()));
    for name in ["notes", "t_1", "t_00001x", "u_00002", "t_00001_-1", "t_00001_--0000000001", "t_00001_+00000000001"] {
        write(name);
        let error = JoinInput::from_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} is not named")), "{error}");
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    write("t_00003");
    assert!(JoinInput::from_directory(directory.path()).unwrap_err().to_string().contains("gaps"));
    write("t_00000_000000000007");
    assert!(JoinInput::from_directory(directory.path()).unwrap_err().to_string().contains("join them separately"));
}

#[test]
fn split_by_global_rank_names_files_by_rank_and_never_overwrites() {
    let directory = tempfile::tempdir().unwrap();
    let to = Destination::new(directory.path(), false).unwrap();
    let options = SplitOptions { by_global_rank: true, ..SplitOptions::default() };
    let path = first_file(&named("ser3_granks"));
    let split_files = split(&path, &to, &options, &mut nothing()).unwrap().files;
    let names: Vec<_> = split_files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["t_00100", "t_00007", "t_00042"]);
    assert!(split(&path, &to, &options, &mut nothing()).is_err());
    let twice = root().join("damaged/duplicate_globalranks/duplicate_globalranks.sion");
    let error = split(&twice, &to, &options, &mut nothing()).unwrap_err();
    assert!(error.to_string().contains("not unique"), "{error}");
}
