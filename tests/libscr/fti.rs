//! Programs for FTI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::world::{
    FTI, Link, VARIABLES, World, exits_with, holdfast, in_repository, needs, output, program_source, quiet, sum,
};

const SOURCE: &str = "source: variables, redundancy: [{scheme: xor, set_size: 3}]";

/// The directory of an `mpi.h` for ranks that do not communicate.
fn without_mpi() -> String {
    format!("-I{}", in_repository("tests/libscr/programs/mpi_stub").display())
}

/// The directory of `holdfast.h`.
fn with_variables() -> String {
    format!("-I{}", VARIABLES.include("").display())
}

fn compile(world: &World, link: Link) -> PathBuf {
    world.compile_for(FTI, &["cc", &without_mpi(), &with_variables()], &[&program_source("fti.c")], link)
}

/// Writes a configuration file.
fn configuration(world: &World, text: &str) -> String {
    let path = world.path().join("config.fti");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What a rank wrote: the sum, the step that it restarted from, and the number of checkpoints.
fn result(world: &World, rank: u32) -> [u32; 3] {
    let text = world.result(rank);
    let numbers: Vec<u32> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn fti_program_restarts_after_two_node_losses_from_the_level_that_protected_it(world: &World) {
    let program = compile(world, Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 0\nCkpt_dir = ./Local\nckpt_io = 3\nSpeed = 9\n");
    let command = [program.to_str().unwrap(), "8", &world.results(), &file];
    let faults = "{node: 1, during: encode, checkpoint: 3}, {node: 0, during: encode, checkpoint: 6}";
    let printed = exits_with(&world.run_on(5, "", &command, SOURCE, faults, ""), 0);
    for rank in 0..6 {
        let [value, restarted, _] = result(world, rank);
        assert_eq!(value, sum(rank, 8), "rank {rank}");
        assert!(restarted >= 3, "the second loss is after the first: {restarted}");
    }
    for note in ["basic:ckpt_dir of the configuration file have no effect", "basic:speed of the configuration file are"]
    {
        // Once a generation, by rank 0.
        assert_eq!(printed.matches(note).count(), 3, "{note}: {printed}");
    }
    for rank in 0..6 {
        let file = world.path().join(format!("prefix/scr.current/Ckpt8-Rank{rank}.fti"));
        exits_with(&holdfast(&["verify", file.to_str().unwrap()], world.path()), 0);
    }
}

/// FTI has no call that declares how a variable is distributed.
#[test]
fn variables_of_fti_are_recovered_by_as_many_ranks_only(world: &World) {
    let source = program_source("fti_other_ranks.c");
    let program = world.compile_for(FTI, &["cc", &without_mpi()], &[&source], Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 0\n");
    let any = format!("{SOURCE}, restart: {{ranks: any}}");
    for (ranks, result) in [(6, "0"), (6, "1"), (5, "refused")] {
        // The same command would be that of a finished job.
        let command = [program.to_str().unwrap(), &world.results(), &file, result];
        let printed = exits_with(&world.run_on(4, &format!("ranks: {ranks},"), &command, &any, "", ""), 0);
        (0..ranks).for_each(|rank| assert_eq!(world.result(rank), result, "{printed}"));
        let reason =
            "variable 0 has a value of its own on each of the 6 ranks that wrote checkpoint 2, and this run has 5";
        assert_eq!(printed.contains(reason), ranks == 5, "{printed}");
    }
}

#[test]
fn forked_children_can_neither_save_nor_end_the_job(world: &World) {
    let compiler = ["cc", &without_mpi(), &with_variables()];
    let program = world.compile_for(FTI, &compiler, &[&program_source("fti_forked.c")], Link::Shared);
    let command = [program.to_str().unwrap(), "6", &world.results()];
    let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
    for rank in 0..6 {
        assert_eq!(world.result(rank), sum(rank, 6).to_string());
        assert!(world.path().join(format!("prefix/scr.current/Ckpt6-Rank{rank}.fti")).exists(), "{printed}");
    }
    // One call of each rank; the end of a child prints nothing.
    assert_eq!(printed.matches("was forked from process").count(), 6, "{printed}");
    assert_eq!(printed.matches("FTI_Finalize").count(), 0, "{printed}");
}

#[test]
fn fortran_program_calls_every_function_and_restarts_with_the_values_of_every_type() {
    needs("gfortran");
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let (stub, source) = (program_source("mpi_stub/mpi.f90"), program_source("fti.f90"));
        let program = world.compile_for(FTI, &["gfortran"], &[&FTI.include("fti.f90"), &stub, &source], link);
        for (steps, restarted) in [(3, 0), (5, 3)] {
            let command = [program.to_str().unwrap(), &steps.to_string(), &world.results()];
            exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
            world.assert_results(|rank| format!("{} {restarted}", sum(rank, steps)));
        }
    }
}

#[test]
fn snapshots_recover_and_have_the_intervals_of_the_configuration_file_or_else_of_the_job(world: &World) {
    let program = compile(world, Link::Static);
    let source = format!("{SOURCE}, variables: {{snapshots: {{parity: 1ms}}}}");
    let run = |steps: &str, file: &str| {
        let command = [program.to_str().unwrap(), steps, &world.results(), file, "s"];
        exits_with(&world.run_on(3, "", &command, &source, "", ""), 0);
        result(world, 5)
    };
    // Each snapshot is a call to all ranks: 60 of them take longer than the interval.
    let [value, restarted, taken] = run("60", "");
    assert_eq!((value, restarted), (sum(5, 60), 0));
    assert!(taken > 0, "the job's interval is over");
    let file = configuration(world, "[Basic]\nCkpt_L1 = 0\nCkpt_L3 = 7\n");
    let [value, restarted, taken] = run("90", &file);
    assert_eq!((value, taken), (sum(5, 90), 0), "the interval of the file is 7 minutes");
    assert!(restarted > 0 && restarted <= 60, "{restarted}");
}

#[test]
fn other_communicators_are_refused_on_all_ranks(world: &World) {
    let program = compile(world, Link::Shared);
    let command = [program.to_str().unwrap(), "0", &world.results(), ""];
    let ran = world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}");
    let printed = output(&ran);
    for refusal in
        ["rank 0 of 1 in the communicator, and rank 3 of 6", "rank 1 of 6 in the communicator, and rank 0 of 6"]
    {
        assert!(printed.contains(refusal), "{refusal}: {printed}");
    }
    // The four ranks whose numbers are right.
    assert_eq!(printed.matches("rank 0 of the run has another number in the communicator").count(), 4, "{printed}");
    // The program has called FTI_Init again.
    assert_eq!(ran.status.code(), Some(0), "{printed}");
    for rank in 0..6 {
        assert_eq!(result(world, rank), [0, 0, 0]);
    }
}

/// Odd and even ranks make different numbers of calls, which a collective call does not allow.
#[test]
fn single_variables_are_recovered_from_the_newest_checkpoint_that_is_intact_on_all_ranks() {
    for damaged in ["Ckpt2-Rank1.fti", "Ckpt2-Rank1.names.json"] {
        let world = World::new();
        let source = program_source("fti_recover_var.c");
        let program = world.compile_for(FTI, &["cc", &without_mpi(), &with_variables()], &[&source], Link::Shared);
        let nodes = world.path().join("tmp");
        let command = [program.to_str().unwrap(), nodes.to_str().unwrap(), &world.results(), damaged];
        let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 1}"), 0);
        world.assert_results(|_| "recovered 1".to_owned());
        for refusal in [
            "FTI_RecoverVar: recover_variable: no variable 9 is protected",
            "FTI_RecoverVar: recover_variable: variable 9 is not in checkpoint 1",
            "FTI_RecoverVar: recover: variable 1 has 39992 bytes in memory and 40000 bytes in checkpoint 1",
        ] {
            assert_eq!(printed.matches(refusal).count(), 6, "{refusal}: {printed}");
        }
    }
}

/// The node is lost between the calls of a checkpoint, when a part of its variables is in the file.
#[test]
fn incremental_checkpoints_have_the_content_that_was_added_and_survive_a_node_loss_between_their_calls() {
    for (link, waits, faults) in [
        (Link::Shared, "1", "{node: 1, after_output: \"added to checkpoint 5\"}"),
        // One before it is dropped: that of step 5.
        (Link::Static, "0", "{node: 0, during: encode, checkpoint: 6}"),
    ] {
        let world = World::new();
        let compiler = ["cc", &without_mpi(), &with_variables()];
        let program = world.compile_for(FTI, &compiler, &[&program_source("fti_incremental.c")], link);
        let command = [program.to_str().unwrap(), "9", &world.results(), waits];
        let printed = exits_with(&world.run_on(5, "", &command, SOURCE, faults, ""), 0);
        world.assert_results(|rank| format!("{} 4", sum(rank, 9)));
        for refusal in [
            "FTI_InitICP: level 9 is invalid",
            "FTI_AddVarICP: FTI_InitICP has failed",
            "FTI_InitICP: checkpoint 90 was started and is not complete",
            "FTI_Checkpoint: checkpoint 90 was started and is not complete",
            "FTI_AddVarICP: add_variable: no variable 9 is protected",
            "FTI_AddVarICP: variable 9 was protected after checkpoint 90 was started",
            "FTI_AddVarICP: variable 2 has 319992 bytes, and had 320000 when checkpoint 90 was started",
            "FTI_AddVarICP: variable 2 was already added to checkpoint 90",
        ] {
            assert!(printed.matches(refusal).count() >= 6, "{refusal}: {printed}");
        }
        assert!(printed.contains("checkpoint 90 was completed without the variables 1: add all"), "{printed}");
        for rank in 0..6 {
            let file = world.path().join(format!("prefix/scr.current/Ckpt9-Rank{rank}.fti"));
            exits_with(&holdfast(&["verify", file.to_str().unwrap()], world.path()), 0);
        }
    }
}

#[test]
fn variables_are_found_by_their_identifiers_in_a_restart_and_their_attributes_are_beside_the_checkpoint() {
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let compiler = ["cc", "-Wextra", &without_mpi()];
        let program = world.compile_for(FTI, &compiler, &[&program_source("fti_named.c")], link);
        for launch in ["0", "1", "2"] {
            let command = [program.to_str().unwrap(), &world.results(), launch];
            let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
            world.assert_results(|_| launch.to_owned());
            for (refusal, calls) in [
                ("FTI_SetAttribute: describe_variable: no variable 77 is protected", 1),
                ("FTI_SetAttribute: the flag is 4: pass FTI_ATTRIBUTE_NAME", 1),
                ("FTI_SetAttribute: 33 dimensions", 1),
                ("FTI_SetAttribute: 0 dimensions", 1),
                ("FTI_SetAttribute: dimension 0 has -1 elements", 1),
                ("FTI_SetAttribute: the name has no NUL", 1),
                ("FTI_setIDFromString: the identifier of a variable has 256 bytes", 1),
                ("FTI_setIDFromString: the identifier of a variable has 0 bytes", 1),
                ("FTI_setIDFromString: the name is NULL", 1),
                ("FTI_getIDFromString: names must be UTF-8", 1),
            ] {
                assert_eq!(printed.matches(refusal).count(), 6 * calls, "{refusal}: {printed}");
            }
        }
        for rank in 0..6 {
            let path = world.path().join(format!("prefix/scr.current/Ckpt3-Rank{rank}.names.json"));
            let names: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let of = |identifier: &str| {
                let mut all = names["variables"].as_array().unwrap().iter();
                all.find(|variable| variable["identifier"] == identifier).unwrap().clone()
            };
            let pressure = of("pressure");
            assert_eq!(pressure["name"], format!("p of rank {rank}"));
            assert_eq!(pressure["dimensions"], serde_json::json!([5, 2]));
            assert_eq!(of("velocity")["dimensions"].as_array().unwrap().len(), 32);
            assert!(of("mesh").get("name").is_none());
        }
    }
}

/// The ranks 0, 2 and 4 are the heads of three nodes.
#[test]
fn head_processes_end_with_the_run_and_the_application_restarts_after_a_node_loss() {
    for (link, mode, faults) in
        [(Link::Shared, &[][..], "{node: 1, during: encode, checkpoint: 6}"), (Link::Static, &["s"][..], "")]
    {
        let world = World::new();
        let compiler = ["cc", &without_mpi(), &with_variables()];
        let program = world.compile_for(FTI, &compiler, &[&program_source("fti_heads.c")], link);
        let file = configuration(&world, "[Basic]\nHead = 1\n");
        let results = world.results();
        let command = [&[program.to_str().unwrap(), "8", &results, &file], mode].concat();
        let source = format!("{SOURCE}, variables: {{snapshots: {{local: 1ms, parity: 3ms}}}}");
        let printed = exits_with(&world.run_on(5, "", &command, &source, faults, ""), 0);
        for (rank, of_run) in [1, 3, 5].into_iter().enumerate() {
            let rank = rank as u32;
            let restarted = if faults.is_empty() { 0 } else { 5 };
            assert_eq!(world.result(of_run), format!("{rank} {} {restarted}", sum(rank, 8)), "{printed}");
        }
        for head in [0, 2, 4] {
            assert!(!world.result_path(head).exists(), "FTI_Init has returned in head process {head}: {printed}");
        }
        assert!(printed.contains("compiled with an older fti.h"), "{printed}");
        if mode.is_empty() {
            let files = fs::read_dir(world.path().join("prefix/scr.current")).unwrap().flatten();
            let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
            let of_ranks = (0..6).map(|rank| names.contains(&format!("Ckpt8-Rank{rank}.fti")));
            assert_eq!(of_ranks.collect::<Vec<_>>(), [false, true, false, true, false, true], "{names:?}");
        }
    }
}

#[test]
fn a_halt_ends_head_processes_and_the_next_run_continues(world: &World) {
    let compiler = ["cc", &without_mpi(), &with_variables()];
    let program = world.compile_for(FTI, &compiler, &[&program_source("fti_heads.c")], Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 1\n");
    let command = [program.to_str().unwrap(), "8", &world.results(), &file];
    exits_with(&world.run_on(3, "", &command, SOURCE, "", "halt: {checkpoints_left: 3}"), 75);
    assert!((0..6).all(|rank| !world.result_path(rank).exists()), "the application ends at its third checkpoint");
    exits_with(&world.run_on(3, "", &command, SOURCE, "", ""), 0);
    for rank in [1, 3, 5] {
        assert_eq!(world.result(rank), format!("{} {} 3", rank / 2, sum(rank / 2, 8)));
    }
}

#[test]
fn head_processes_return_to_the_program_if_they_are_kept_alive(world: &World) {
    let compiler = ["cc", &without_mpi(), &with_variables()];
    let program = world.compile_for(FTI, &compiler, &[&program_source("fti_heads.c")], Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 1\nKeep_heads_alive = 1\n");
    let command = [program.to_str().unwrap(), "3", &world.results(), &file];
    exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
    for rank in 0..6 {
        let expected = if rank % 2 == 0 { "head".to_owned() } else { format!("{} {} 0", rank / 2, sum(rank / 2, 3)) };
        assert_eq!(world.result(rank), expected);
    }
}

#[test]
fn a_head_process_needs_another_rank_on_its_node(world: &World) {
    let compiler = ["cc", &without_mpi(), &with_variables()];
    let program = world.compile_for(FTI, &compiler, &[&program_source("fti_heads.c")], Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 1\n");
    let command = [program.to_str().unwrap(), "3", &world.results(), &file];
    let ran = world.run_on(3, "ranks: 5,", &command, SOURCE, "", "relaunch: {attempts: 0}");
    let printed = output(&ran);
    assert!(!ran.status.success() && printed.contains("has one rank, which would be its head process"), "{printed}");
}

#[test]
fn head_processes_need_as_many_ranks_as_wrote_the_checkpoint(world: &World) {
    let compiler = ["cc", &without_mpi(), &with_variables()];
    let program = world.compile_for(FTI, &compiler, &[&program_source("fti_heads.c")], Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 1\n");
    let any = format!("{SOURCE}, restart: {{ranks: any}}");
    let run = |ranks: &str, steps: &str| {
        let command = [program.to_str().unwrap(), steps, &world.results(), &file];
        world.run_on(3, ranks, &command, &any, "", "relaunch: {attempts: 0}")
    };
    exits_with(&run("", "3"), 0);
    let ran = run("ranks: 5,", "5");
    let refusal = "another number of ranks wrote the checkpoint to restart from, which head processes do not allow";
    assert!(!ran.status.success() && output(&ran).contains(refusal), "{}", output(&ran));
}

#[test]
fn staged_files_are_copied_from_the_cache_while_the_program_computes_and_at_its_end() {
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let source = program_source("fti_staging.c");
        let program = world.compile_for(FTI, &["cc", "-D_GNU_SOURCE", &without_mpi()], &[&source], link);
        let remote = world.path().join("remote");
        fs::create_dir(&remote).unwrap();
        let remote = remote.to_str().unwrap();
        let file = configuration(&world, "[Basic]\nHead = 0\nEnable_staging = 1\n");
        let command = [program.to_str().unwrap(), remote, &world.results(), &file];
        let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
        for rank in 0..6 {
            let on_node = world.result(rank);
            assert!(Path::new(&on_node).starts_with(world.path().join("tmp")), "in the node's cache: {on_node}");
            for (name, bytes) in [("small", 30), ("large", 48 << 20), ("last", 48 << 20)] {
                let path = Path::new(remote).join(format!("{name}.{rank}"));
                let content = fs::read(&path).unwrap();
                assert!(content.starts_with(format!("file of rank {rank}\n").as_bytes()), "{}", path.display());
                assert_eq!(content.len(), bytes, "{}", path.display());
            }
        }
        // No file that is not complete, and none of the failed requests.
        assert_eq!(fs::read_dir(remote).unwrap().count(), 18);
        for refusal in [
            "FTI_GetStageDir: the buffer for the path is NULL",
            "and the buffer 3: pass a larger one",
            "FTI_SendFile: the local path is NULL",
            "FTI_SendFile: the remote path is NULL",
            "FTI_SendFile: /nonexistent/file is not a regular file that can be read",
            "is not a regular file that can be read: it is of another type",
            "remote exists, and is not a regular file",
            "FTI_SendFile: /nonexistent/directory is not a directory: create it",
            "FTI_SendFile: /proc/self/mem was not copied to",
        ] {
            assert_eq!(printed.matches(refusal).count(), 6, "{refusal}: {printed}");
        }

        // The program ends in FTI_Checkpoint, when the last file of each rank is not copied yet.
        fs::remove_dir_all(remote).unwrap();
        fs::create_dir(remote).unwrap();
        let command = [program.to_str().unwrap(), remote, &world.results(), &file, "halted"];
        exits_with(&world.run_on(3, "", &command, SOURCE, "", "halt: {checkpoints_left: 1}"), 75);
        for rank in 0..6 {
            let last = Path::new(remote).join(format!("last.{rank}"));
            assert_eq!(fs::metadata(&last).unwrap().len(), 48 << 20, "{}", last.display());
        }

        let command = [program.to_str().unwrap(), remote, &world.results(), ""];
        let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
        for function in ["FTI_GetStageDir", "FTI_SendFile", "FTI_GetStageStatus"] {
            let refusal = format!("{function}: staging is disabled: set Enable_staging = 1");
            assert_eq!(printed.matches(&refusal).count(), 6, "{refusal}: {printed}");
        }
    }
}

#[test]
fn structures_are_saved_and_functions_for_hdf5_fail_with_their_reason() {
    for link in [Link::Shared, Link::Static] {
        let world = World::new();
        let compiler = ["cc", "-Wextra", &without_mpi()];
        let program = world.compile_for(FTI, &compiler, &[&program_source("fti_types.c")], link);
        for restarted in ["0", "1"] {
            // The same command would be that of a finished job.
            let command = [program.to_str().unwrap(), &world.results(), restarted];
            let printed = exits_with(&world.run_on(3, "", &command, SOURCE, "", "relaunch: {attempts: 0}"), 0);
            world.assert_results(|_| restarted.to_owned());
            for (refusal, calls) in [
                ("FTI_InitGroup: groups are parts of HDF5 files", 1),
                ("FTI_RenameGroup: groups are parts of HDF5 files", 1),
                ("FTI_InitComplexType: groups are parts of HDF5 files", 1),
                ("FTI_DefineDataset: names and shapes of datasets are parts of HDF5 files", 1),
                ("FTI_BitFlip: no bits of variables are flipped", 1),
                ("FTI_InitComplexType: field 1 has 0 dimensions", 4),
                ("FTI_AddComplexField: field 1 has 33 dimensions", 1),
                ("FTI_AddComplexField: field 1: the length of dimension 1 is -3", 1),
                ("FTI_AddSimpleField: field 1: the offset 1099511627776 does not fit", 1),
                ("FTI_AddSimpleField: the number of the field is 256", 1),
                ("FTI_AddSimpleField: the number of the field is -1", 1),
            ] {
                assert_eq!(printed.matches(refusal).count(), 6 * calls, "{refusal}: {printed}");
            }
        }
    }
}

#[test]
fn hdf5_in_the_configuration_file_is_refused(world: &World) {
    let program = compile(world, Link::Shared);
    let file = configuration(world, "[Basic]\nHead = 0\nckpt_io = 5\n");
    let mut alone = Command::new(&program);
    let alone = quiet(&mut alone).args(["1", &world.results(), &file]);
    let refused = output(&alone.env("HOLDFAST_RANK", "0").env("HOLDFAST_RANKS", "1").output().unwrap());
    assert!(refused.contains("FTI_Init: Basic:ckpt_io of the configuration file is 5 (HDF5)"), "{refused}");
}

#[test]
fn header_of_fti_is_accepted_by_strict_compilers() {
    needs("c++");
    for (compiler, language, standard) in [("cc", "c", "c99"), ("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic-errors", "-Werror", &without_mpi()]);
        command.args(["-x", language, &format!("-std={standard}")]);
        let checked = command.arg(FTI.include("fti.h")).output().unwrap();
        assert!(checked.status.success(), "{standard}: {}", output(&checked));
    }
}

/// A program of the page in MPI, on virtual nodes of which one is lost. Without `launcher`, it gets its own mpirun.
fn runs_in_mpi(mpi: &str, compiler: &str, module: &[&Path], language: &str, name: &str) -> Output {
    needs(compiler);
    let world = World::new();
    let source = world.program_of_page("docs/libfti.md", language, name);
    let sources: Vec<&Path> = module.iter().copied().chain([source.as_path()]).collect();
    let program = world.compile_for(FTI, &[compiler], &sources, Link::Shared);
    let faults = "{node: 1, during: encode, checkpoint: 3}";
    let text = exits_with(&world.run_on(4, "launcher: local,", &[program.to_str().unwrap()], SOURCE, faults, ""), 78);
    let refusal = format!("({mpi}), and the launcher would start each rank as a program of its own");
    assert!(text.contains(&refusal), "{text}");
    assert!(text.contains("write `run: {launcher: mpirun"), "{text}");
    world.run_on(4, "", &[program.to_str().unwrap()], SOURCE, faults, "")
}

#[test]
fn c_program_of_the_page_runs_in_mpi_and_restarts_after_node_loss() {
    let ran = runs_in_mpi("MPICH", "mpicc.mpich", &[], "c", "heat.c");
    assert!(ran.status.success() && output(&ran).contains("6 ranks: 106050000"), "{}", output(&ran));
}

/// Every second rank belongs to the application.
#[test]
fn programs_of_the_page_run_in_mpi_with_head_processes() {
    let module = FTI.include("fti.f90");
    for (compiler, module, language, name) in
        [("mpicc.mpich", &[][..], "c", "heat.c"), ("mpif90.mpich", &[module.as_path()][..], "fortran", "heat.f90")]
    {
        needs(compiler);
        let world = World::new();
        let file = configuration(&world, "[Basic]\nHead = 1\n");
        let source = world.program_of_page("docs/libfti.md", language, name);
        let text = fs::read_to_string(&source).unwrap();
        // The C program has the file as an argument.
        fs::write(&source, text.replace("FTI_Init('', world", &format!("FTI_Init('{file}', world"))).unwrap();
        let sources: Vec<&Path> = module.iter().copied().chain([source.as_path()]).collect();
        let program = world.compile_for(FTI, &[compiler], &sources, Link::Shared);
        let faults = "{node: 1, during: encode, checkpoint: 3}";
        let ran = world.run_on(4, "", &[program.to_str().unwrap(), &file], SOURCE, faults, "");
        assert!(ran.status.success() && output(&ran).contains("3 ranks: 30300000"), "{}", output(&ran));
    }
}

/// Its daemons share a host name, and two ranks of each node the names of what they share.
#[test]
fn c_program_of_the_page_runs_in_open_mpi_with_two_ranks_a_virtual_node() {
    let ran = runs_in_mpi("Open MPI", "mpicc.openmpi", &[], "c", "heat.c");
    assert!(ran.status.success() && output(&ran).contains("6 ranks: 106050000"), "{}", output(&ran));
}

#[test]
fn fortran_program_of_the_page_runs_in_mpi_and_restarts_after_node_loss() {
    let ran = runs_in_mpi("MPICH", "mpif90.mpich", &[&FTI.include("fti.f90")], "fortran", "heat.f90");
    assert!(ran.status.success() && output(&ran).contains("6 ranks: 106050000"), "{}", output(&ran));
}
