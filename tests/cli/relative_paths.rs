//! Relative paths that Holdfast itself reads are relative to the directory of the spec, wherever a command is called.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Ran, command, holdfast_in, run};

const LOCAL: &str = "allocation: {manager: local, nodes: 1}\nrun: {nodes: 1, command: ['true']}\n\
                     checkpoint: {source: none}\n";

/// A directory with `specs/job.yaml` and an empty directory `elsewhere`.
fn with_spec(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("specs")).unwrap();
    fs::create_dir(directory.path().join("elsewhere")).unwrap();
    fs::write(directory.path().join("specs/job.yaml"), text).unwrap();
    directory
}

/// A command about `specs/job.yaml`, called in this directory.
fn about(directory: &TempDir, called_in: &str, words: &[&str]) -> Ran {
    let spec = directory.path().join("specs/job.yaml").to_string_lossy().into_owned();
    holdfast_in(&directory.path().join(called_in), [words, &[&spec]].concat())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn a_spec_is_one_job_wherever_it_is_run_and_shown() {
    let directory = with_spec(&format!("prefix: out\n{LOCAL}"));
    let prefix = text(&directory.path().join("specs/out"));
    holdfast_in(directory.path(), ["run", "specs/job.yaml"]).with_code(0);
    let again = about(&directory, "elsewhere", &["run"]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    assert!(again.out.contains("finished in an earlier run") && again.out.contains(&prefix), "{}", again.out);
    for called_in in ["", "specs", "elsewhere"] {
        about(&directory, called_in, &["status", "--json"]).with_code(0).prints(&[&prefix]);
        about(&directory, called_in, &["check"]).with_code(0).prints(&[&format!("; prefix {prefix}\n")]);
        assert_eq!(about(&directory, called_in, &["check", "--json"]).json()["prefix"], prefix.as_str());
        let explained = about(&directory, called_in, &["check", "--explain"]);
        assert!(explained.out.contains(&prefix), "{}", explained.out);
    }
    assert!(!directory.path().join("out").exists() && !directory.path().join("elsewhere/out").exists());
}

#[test]
fn state_below_the_working_directory_is_not_left_for_a_new_job() {
    let directory = with_spec(&format!("prefix: out\n{LOCAL}"));
    let former = directory.path().join("elsewhere/out");
    let made =
        run(command(["run", "--", "true"]).current_dir(directory.path().join("elsewhere")).env("SCR_PREFIX", "out"));
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    assert!(former.join(".holdfast/job.json").exists());
    let new = directory.path().join("specs/out");
    for words in [&["check"][..], &["run", "--dry-run"], &["run"], &["status"]] {
        let ran = about(&directory, "elsewhere", words);
        assert_eq!(ran.code, 78, "{}{}", ran.out, ran.err);
        let remedy = format!("write `prefix: {}`", former.display());
        for part in [&text(&former), &text(&new), &remedy] {
            assert!(ran.err.contains(part.as_str()), "{part} is not in {}", ran.err);
        }
    }
    assert!(!new.exists());
    fs::write(directory.path().join("specs/job.yaml"), format!("prefix: {}\n{LOCAL}", former.display())).unwrap();
    assert_eq!(about(&directory, "elsewhere", &["check"]).code, 0);
}

#[test]
fn without_a_spec_and_for_scr_prefix_the_working_directory_is_the_base() {
    let directory = with_spec(&format!("prefix: out\n{LOCAL}"));
    let here = directory.path().join("elsewhere");
    let spec = directory.path().join("specs/job.yaml");
    let checked = run(command(["check".as_ref(), spec.as_os_str()]).current_dir(&here).env("SCR_PREFIX", "given"));
    assert!(checked.out.contains(&text(&here.join("given"))), "{}{}", checked.out, checked.err);
    run(command(["run", "--dry-run", "--", "true"]).current_dir(&here))
        .with_code(0)
        .prints(&[&format!("prefix {}", here.display())]);
}

#[test]
fn files_that_holdfast_reads_are_beside_the_spec_and_commands_in_the_working_directory() {
    let allocation = "{manager: ssh, hosts_file: hosts, ssh: {identity: key, known_hosts: known}}";
    let directory = with_spec(&format!("allocation: {allocation}\nrun: {{nodes: 1, command: [./app]}}\n"));
    let check = about(&directory, "elsewhere", &["check"]);
    let missing = format!("the hosts file {} cannot be read", directory.path().join("specs/hosts").display());
    assert!(check.code == 78 && check.err.contains(&missing), "{}", check.err);
    fs::write(directory.path().join("specs/hosts"), "n1\nn2\n").unwrap();
    assert_eq!(about(&directory, "elsewhere", &["check"]).code, 0);
    // The command is looked for where `holdfast run` is called.
    let local = with_spec(&LOCAL.replace("'true'", "./app"));
    assert_eq!(about(&local, "elsewhere", &["run", "--dry-run"]).code, 78);
    std::os::unix::fs::symlink("/bin/true", local.path().join("elsewhere/app")).unwrap();
    let plan = about(&local, "elsewhere", &["run", "--dry-run"]);
    assert_eq!(plan.code, 0, "{}{}", plan.out, plan.err);
}
