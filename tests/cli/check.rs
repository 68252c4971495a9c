//! `holdfast check`: its messages about specs, with line and column.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::program::{command, holdfast, holdfast_in, run};

fn config(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name).display().to_string()
}

#[test]
fn a_correct_spec_is_summarised_in_one_line() {
    let path = config("quickstart.yaml");
    let ran = holdfast(["check", &path]);
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap().join("heat-run");
    assert_eq!(
        ran.out,
        format!("{path}: job `heat` on 6 nodes: 4 ranks on 4 nodes, 2 spares; prefix {}\n", prefix.display())
    );
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(holdfast(["check", "--quiet", &path]).out, "");
}

#[test]
fn all_mistakes_of_a_spec_are_reported_at_once_with_78() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("job.yaml"), "jbo: heat\nrun:\n  nodes: 0\n  command: [a]\n").unwrap();
    let ran = holdfast_in(directory.path(), ["check", "job.yaml"]).with_code(78).out_is("");
    assert_eq!(
        ran.err,
        "error: 2 mistakes in the job spec; nothing was started\n\
         \n\
         job.yaml:1:1: jbo: unknown key\n\
         \x20 |\n\
         1 | jbo: heat\n\
         \x20 | ^^^\n\
         \x20 |\n\
         \x20 = help: did you mean `job`?\n\
         \n\
         job.yaml:3:10: run.nodes: expected a whole number from 1 to 65536, found the number `0`\n\
         \x20 |\n\
         3 |   nodes: 0\n\
         \x20 |          ^\n"
    );
    let ran = holdfast_in(directory.path(), ["check", "--json", "job.yaml"]).with_code(78);
    let document = ran.json();
    assert_eq!((&document["version"], &document["error"]["exit_code"]), (&json!(2), &json!(78)));
    let mistake = json!({
        "file": "job.yaml", "line": 1, "column": 1, "key": "jbo",
        "message": "unknown key", "help": "did you mean `job`?",
    });
    assert_eq!(document["error"]["mistakes"][0], mistake);
}

#[test]
fn a_file_that_cannot_be_a_spec_is_reported_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    for (name, expected) in [("nowhere.yaml", "there is no such file"), (".", "this is a directory, not a file")] {
        let ran = holdfast_in(directory.path(), ["check", name]);
        assert_eq!(ran.code, 78, "{name}");
        assert!(ran.err.contains(&format!("{name}: {expected}\n  = help: ")), "{}", ran.err);
    }
}

#[test]
fn explain_shows_the_origin_of_every_setting() {
    let ran = holdfast(["check", "--explain", &config("quickstart.yaml")]).with_code(0);
    let line = |key: &str| -> Vec<&str> {
        let start = format!("{key} ");
        let line =
            ran.out.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{key}:\n{}", ran.out));
        line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect()
    };
    assert_eq!(line("run.nodes")[1], "4");
    assert!(line("run.nodes")[2].starts_with("line "));
    assert_eq!(line("checkpoint.flush.every"), ["checkpoint.flush.every", "10", "default"]);
    assert_eq!(line("allocation.faults[1].after_checkpoint")[1], "5");

    let document = holdfast(["check", "--explain", "--json", &config("quickstart.yaml")]).json();
    let settings = document["settings"].as_array().unwrap();
    let health = settings.iter().find(|setting| setting["key"] == "health.poll").unwrap();
    assert_eq!(health, &json!({"key": "health.poll", "value": "250ms", "origin": "default"}));
    let job = settings.iter().find(|setting| setting["key"] == "job").unwrap();
    assert_eq!(job["value"], "heat");
    assert!(job["origin"]["spec"]["line"].is_u64());
}

#[test]
fn the_reference_is_printed_and_is_a_correct_spec() {
    let directory = tempfile::tempdir().unwrap();
    let ran = holdfast(["check", "--reference"]);
    fs::write(directory.path().join("reference.yaml"), ran.out).unwrap();
    // The program that the reference names.
    fs::copy("/bin/true", directory.path().join("app")).unwrap();
    assert_eq!(holdfast_in(directory.path(), ["check", "reference.yaml"]).code, 0);
}

#[test]
fn parameters_of_the_environment_override_the_spec() {
    let ran =
        run(command(["check", "--explain", &config("quickstart.yaml")]).env("SCR_FLUSH", "5").env("SCR_SET_SIZE", "2"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let has_line = |key: &str, value: &str, origin: &str| {
        ran.out.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == [key, value, origin])
    };
    assert!(has_line("checkpoint.flush.every", "5", "SCR_FLUSH"), "{}", ran.out);
    assert!(has_line("checkpoint.redundancy[0].set_size", "2", "SCR_SET_SIZE"), "{}", ran.out);

    let ran = run(command(["check", &config("quickstart.yaml")]).env("SCR_SET_SIZE", "many")).with_code(78);
    assert!(ran.err.starts_with("error: SCR_SET_SIZE is \"many\" (environment), expected is"), "{}", ran.err);
    // A valid parameter must also fit the spec.
    run(command(["check", &config("quickstart.yaml")]).env("SCR_MIN_NODES", "9"))
        .with_code(78)
        .complains(&["relaunch.min_nodes: 9 nodes are more than the allocation has (6)"]);
}

#[test]
fn a_user_configuration_file_has_precedence_between_environment_and_spec() {
    let directory = tempfile::tempdir().unwrap();
    let conf = directory.path().join("user.conf");
    fs::write(
        &conf,
        "SCR_FLUSH=7\nSCR_FETCH=0\nSCR_COPY_TYPE=FILE\n\
         CACHEDESC=0 BASE=/dev/shm SIZE=3\n\
         CKPTDESC=0 INTERVAL=1 BASE=/dev/shm TYPE=PARTNER\n\
         CKPTDESC=1 INTERVAL=4 BASE=/dev/shm TYPE=XOR SET_SIZE=4\n",
    )
    .unwrap();
    let ran = run(command(["check", "--explain", &config("quickstart.yaml")])
        .env("SCR_CONF_FILE", &conf)
        .env("SCR_FLUSH", "5"))
    .with_code(0);
    let has_line = |start: &str| {
        ran.out.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(start))
    };
    let conf = conf.display();
    for start in [
        "checkpoint.flush.every 5 SCR_FLUSH".to_owned(),
        format!("checkpoint.restart.fetch false SCR_FETCH ({conf}:2)"),
        format!("checkpoint.cache[0].keep 3 CACHEDESC ({conf}:4)"),
        format!("checkpoint.redundancy[0].scheme partner CKPTDESC ({conf}:5)"),
        format!("checkpoint.redundancy[1].every 4 CKPTDESC ({conf}:6)"),
    ] {
        assert!(has_line(&start), "{start}\n{}", ran.out);
    }
}

#[test]
fn examples_of_site_parameters_in_the_playbooks_have_an_effect() {
    let variables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../playbooks/group_vars/all.yaml");
    let variables = fs::read_to_string(variables).unwrap();
    let example = |name: &str, open: char, close: char| {
        let line = variables.lines().find(|line| line.starts_with(&format!("#   {name}: {open}"))).unwrap();
        line.split_once(open).unwrap().1.trim_end_matches(close).to_owned()
    };
    let pairs = example("holdfast_parameters", '{', '}').replace(": ", "=").replace(", ", "\n");
    let lines = example("holdfast_parameter_lines", '[', ']').replace(", ", "\n").replace('"', "");
    let origins = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let conf = directory.path().join("scr.conf");
        fs::write(&conf, text).unwrap();
        let spec = directory.path().join("job.yaml");
        fs::write(&spec, "run: {command: [\"true\"]}\n").unwrap();
        let spec = spec.to_str().unwrap();
        let ran = run(command(["check", "--explain", spec]).env("SCR_CONF_FILE", &conf));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{text}");
        let set = ran.out.lines().filter(|line| line.contains("scr.conf"));
        set.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(origins(&pairs), ["checkpoint.cache[0].base /dev/shm", "checkpoint.cache[0].keep 2"]);
    let set = origins(&lines);
    for setting in ["checkpoint.cache[0].base /tmp", "checkpoint.cache[0].keep 2"] {
        assert!(set.iter().any(|line| line == setting), "{setting} is not in {set:?}");
    }
    assert!(set.contains(&"checkpoint.redundancy[0].scheme xor".to_owned()), "{set:?}");
}

#[test]
fn parameters_without_a_key_are_explained_if_they_are_set() {
    let explained = |variables: &[(&str, &str)]| {
        let ran = run(command(["check", "--explain", &config("quickstart.yaml")]).envs(variables.iter().copied()))
            .with_code(0);
        let lines = ran.out.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|words| words[0].starts_with("SCR_")).map(|words| words[..2].join(" ")).collect::<Vec<_>>()
    };
    let set = explained(&[("SCR_ENABLE", "0"), ("SCR_USER_NAME", "anna"), ("SCR_JOB_ID", "77")]);
    assert_eq!(set, ["SCR_ENABLE 0", "SCR_USER_NAME anna", "SCR_JOB_ID 77"]);
    assert_eq!(explained(&[("SCR_ENABLE", "1")]), [""; 0]);
}

#[test]
fn warns_about_a_variable_that_is_no_parameter() {
    run(command(["check", &config("quickstart.yaml")]).env("SCR_FLUHS", "5").env("SCR_CACHE_BYPASS", "1"))
        .with_code(0)
        .err_is("warning: SCR_FLUHS (environment) is ignored: there is no such parameter\n");
}

#[test]
fn ignores_site_only_parameter_with_warning() {
    let ran = run(command(["check", "--explain", &config("quickstart.yaml")]).env("SCR_CNTL_BASE", "/elsewhere"));
    assert_eq!(ran.code, 0);
    assert!(ran.err.starts_with("warning: ") && ran.err.contains("SCR_CNTL_BASE"), "{}", ran.err);
    assert!(!ran.out.contains("/elsewhere"));
}

#[test]
fn a_key_is_read_under_its_former_name_with_a_note_unless_both_names_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let spec = |keys: &str| {
        let allocation = format!("allocation: {{manager: local, nodes: 2, {keys}}}");
        let text = format!("prefix: ./prefix\n{allocation}\nrun: {{nodes: 1, command: ['true']}}\n");
        fs::write(directory.path().join("job.yaml"), text).unwrap();
        run(command(["check", "--resolved", "job.yaml"]).current_dir(directory.path()))
    };
    let former = spec("chaos: [{node: 1, after: 1h}]");
    let note = "warning: `allocation.chaos` (line 2) has another name now: write `allocation.faults`\n";
    assert!(former.code == 0 && former.err.contains(note), "{}", former.err);
    let present = spec("faults: [{node: 1, after: 1h}]");
    assert_eq!((present.out, present.err.as_str()), (former.out, ""));
    spec("chaos: [], faults: []").with_code(78).complains(&["allocation.chaos: unknown key"]);
}

#[test]
fn a_key_with_a_single_value_is_read_with_a_note_and_is_in_no_list() {
    let directory = tempfile::tempdir().unwrap();
    let spec = "\
prefix: ./prefix
allocation: {manager: local, nodes: 1}
run: {command: ['true']}
checkpoint:
  source: none
  redundancy: [{failure_domain: node}]
";
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    let note = "`checkpoint.redundancy[0].failure_domain` (line 6) has no effect: no set has two members on one node; \
                `allocation.racks` sets larger failure domains; leave it out";
    for subcommand in [&["check", "job.yaml"][..], &["check", "--resolved", "job.yaml"], &["run", "job.yaml"]] {
        let ran = run(command(subcommand).current_dir(directory.path())).with_code(0);
        assert!(ran.err.contains(&format!("warning: {note}\n")), "{subcommand:?}: {}", ran.err);
        assert!(!ran.out.contains("failure_domain"), "{}", ran.out);
    }
    let reference = run(command(["check", "--reference"]).current_dir(directory.path())).out;
    // That of the allocation.
    assert_eq!(reference.matches("failure_domain:").count(), 1, "{reference}");
}

#[test]
fn processes_that_wait_on_spares_are_refused_with_the_reason_for_each_launcher() {
    let directory = tempfile::tempdir().unwrap();
    let job = |relaunch: &str| {
        let spec = format!(
            "prefix: ./prefix\nallocation: {{manager: local, nodes: 2}}\nrun: {{nodes: 1, command: ['true']}}\n\
             checkpoint: {{source: none}}\n{relaunch}\n"
        );
        fs::write(directory.path().join("job.yaml"), spec).unwrap();
    };
    let reason = "no process waits on a spare, because `launcher: srun`, `flux` and `mpirun` start all ranks with one \
                  command, which a waiting process cannot join, and `local`, `ssh` and `torchrun` start those of all \
                  nodes at the same time: a spare is not waited for longer than the others";
    let mistake = format!("job.yaml:5:25: relaunch.warm_spares: `true` is not available in this version: {reason}\n");
    let help = "leave `warm_spares` out; if the program starts more slowly where it did not run before, run a command \
                that loads its files on all nodes: `before: [{command: [python3, -c, import torch], on: all}]`\n";
    job("relaunch: {warm_spares: true}");
    for subcommand in ["check", "run"] {
        let ran = run(command([subcommand, "job.yaml"]).current_dir(directory.path())).with_code(78);
        ran.complains(&[&mistake, help]);
    }
    assert!(!directory.path().join("prefix").exists(), "something was started");
    job("relaunch: {warm_spares: false}");
    for subcommand in ["check", "run"] {
        let ran = run(command([subcommand, "job.yaml"]).current_dir(directory.path())).with_code(0);
        let note = format!("warning: `relaunch.warm_spares` (line 5) has no effect: {reason}; leave it out\n");
        assert!(ran.err.contains(&note), "{}", ran.err);
    }
}

#[test]
fn keys_without_effect_are_refused_with_their_position_before_anything_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let spec = "\
prefix: ./prefix
allocation:
  nodes: 2
  time_limit: 1h
  faults: [{node: 0, after: 1s}]
  ssh: {at_once: 4}
run: {command: ['true'], launcher_program: mpirun}
checkpoint:
  redundancy: [{failure_domain: rack}]
  flush: {bandwidth: 1MB/s, percent: 20}
  data_plane: plain
";
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    let everywhere = [
        "6:3: allocation.ssh: `ssh` has no effect with",
        "7:44: run.launcher_program: `launcher_program` has no effect with",
        "9:33: checkpoint.redundancy[0].failure_domain: `rack` is not available in this version: no set has",
        "10:22: checkpoint.flush.bandwidth: `bandwidth` has no effect with `mode: sync`",
        "10:38: checkpoint.flush.percent: `percent` has no effect with `mode: sync`",
        "11:15: checkpoint.data_plane: `plain` is not allowed here: the site's file has no `HOLDFAST_PLAIN_DATA=1`",
    ];
    // The environment determines what `manager: auto` selects.
    let in_slurm = [
        "3:10: allocation.nodes: `nodes` has no effect with `manager: slurm`",
        "4:15: allocation.time_limit: `time_limit` has no effect with `manager: slurm`",
    ];
    for (variables, expected) in [
        (&[][..], everywhere.to_vec()),
        (&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "6")][..], [&in_slurm[..], &everywhere[..]].concat()),
    ] {
        for subcommand in ["check", "run"] {
            let mut command = command([subcommand, "job.yaml"]);
            let ran = run(command.envs(variables.iter().copied()).current_dir(directory.path()));
            let found: Vec<&str> = ran.err.lines().filter_map(|line| line.strip_prefix("job.yaml:")).collect();
            assert_eq!((ran.code, found.len()), (78, expected.len()), "{}", ran.err);
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found.starts_with(expected), "{expected}\n{}", ran.err);
            }
            assert_eq!(ran.err.matches(" = help: ").count(), expected.len(), "{}", ran.err);
        }
    }
    assert!(!directory.path().join("prefix").exists());
}

#[test]
fn keys_of_checkpoints_of_variables_are_refused_with_other_sources_and_the_reverse() {
    let directory = tempfile::tempdir().unwrap();
    for (checkpoint, expected) in [
        (
            "{variables: {layout: chunked, snapshots: {prefix: 1h}}}",
            &[
                "variables.layout: `variables.layout` has no effect with `source: scr`",
                "variables.snapshots.prefix: `variables.snapshots.prefix` has no effect with `source: scr`",
            ][..],
        ),
        (
            "{source: variables, need: {seconds: 60}, redundancy: [{scheme: xor}, {scheme: partner, every: 2}]}",
            &[
                "need.seconds: `need.seconds` has no effect with `source: variables`",
                "redundancy[1].every: `every` has no effect with `source: variables`",
            ][..],
        ),
    ] {
        let spec = format!("run: {{command: ['true']}}\ncheckpoint: {checkpoint}\n");
        fs::write(directory.path().join("job.yaml"), spec).unwrap();
        let ran = run(command(["check", "job.yaml"]).current_dir(directory.path())).with_code(78);
        for expected in expected {
            assert!(ran.err.contains(&format!("checkpoint.{expected}")), "{expected}\n{}", ran.err);
        }
        assert_eq!(ran.err.matches(" = help: ").count(), expected.len(), "{}", ran.err);
    }
}

#[test]
fn a_launcher_that_does_not_suit_the_manager_is_refused_with_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let spec = "allocation: {manager: local}\nrun: {launcher: srun, command: ['true']}\n";
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    for subcommand in ["check", "run"] {
        let ran = run(command([subcommand, "job.yaml"]).current_dir(directory.path())).with_code(78);
        let mistake = "job.yaml:2:17: run.launcher: `launcher: srun` cannot start ranks on nodes of `manager: local`";
        assert!(ran.err.contains(mistake) && ran.err.contains("write `launcher: local`"), "{}", ran.err);
    }
}

#[test]
fn check_and_dry_run_refuse_a_missing_program_alike() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("job.yaml"), "allocation: {manager: local}\nrun: {command: [./pi]}\n").unwrap();
    let checked = holdfast_in(directory.path(), ["check", "job.yaml"]);
    let dry = holdfast_in(directory.path(), ["run", "--dry-run", "job.yaml"]);
    assert_eq!((checked.code, dry.code), (78, 78), "{}", checked.err);
    assert_eq!(checked.err, dry.err);
    assert!(checked.err.contains("the program \"./pi\" does not exist; check `run.command`"), "{}", checked.err);
    // The settings are shown nevertheless.
    let explained = holdfast_in(directory.path(), ["check", "--explain", "job.yaml"]);
    assert!(explained.code == 0 && explained.err.starts_with("warning: the program"), "{}", explained.err);
}

#[test]
fn a_missing_program_is_a_warning_where_the_nodes_are_other_machines() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("job.yaml"), "allocation: {hosts: [n1, n2]}\nrun: {command: [./pi]}\n").unwrap();
    let checked = holdfast_in(directory.path(), ["check", "job.yaml"]).with_code(0);
    let expected = ["the program \"./pi\" does not exist", "this machine may be none of the nodes"];
    assert!(expected.iter().all(|part| checked.err.contains(part)), "{}", checked.err);
}
