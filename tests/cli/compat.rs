//! The commands of SCR, under their own names, compared with what SCR's commands printed and returned.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use holdfast_testkit::{files_below, fixtures, scratch_copy};
use serde_json::json;
use tempfile::TempDir;

use crate::hosts::BETTER;
use crate::program::{Ran, command, holdfast, run, without_parameters};

/// A directory with a link for each command.
struct Links(PathBuf);

/// Those of the tests that do not change them.
static LINKS: LazyLock<Links> = LazyLock::new(|| Links::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands")));

impl Links {
    fn new(directory: &Path) -> Self {
        run(command(["compat", "install"]).arg(directory)).with_code(0).err_is("");
        Links(directory.to_owned())
    }

    /// A command with these arguments, without variables of SCR and Slurm.
    fn command<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = without_parameters(Command::new(self.0.join(name)));
        command.args(arguments).env_remove("USER").env("TZ", "UTC").env("LC_ALL", "C");
        command
    }

    fn run<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        run(&mut self.command(name, arguments))
    }
}

fn recorded(file: &str) -> String {
    fs::read_to_string(fixtures("scr").join(file)).unwrap()
}

/// The cases of a record: command line, output, exit code. Lines that perl printed to standard error are left out.
fn cases<'a>(record: &'a str, name: &str) -> Vec<(&'a str, String, i32)> {
    let prompt = format!("{name} ");
    let mut cases = Vec::new();
    for case in record.split("$ ").skip(1) {
        let (line, rest) = case.split_once('\n').unwrap();
        let arguments = line.split_once(&prompt).unwrap_or_else(|| panic!("{line}")).1;
        let (printed, code) = rest.split_once("rc=").unwrap();
        let printed = printed.lines().filter(|line| !line.contains(" at <install>"));
        let code = code.lines().next().unwrap().parse().unwrap();
        cases.push((arguments, printed.map(|line| format!("{line}\n")).collect(), code));
    }
    cases
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ').filter(move |_| !line.is_empty())
}

#[test]
fn install_links_every_command_and_replaces_nothing_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let links = Links::new(directory.path());
    let names: Vec<String> = holdfast(["compat", "list", "--json"]).json()["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in &names {
        assert!(fs::read_link(links.0.join(name)).unwrap().is_absolute(), "{name}");
    }
    let install = |options: &[&str]| run(command(["compat", "install"]).args(options).arg(&links.0));
    assert_eq!(install(&[]).code, 0, "links are made again");
    let foreign = links.0.join("scr_index");
    fs::remove_file(&foreign).unwrap();
    fs::write(&foreign, "of another SCR").unwrap();
    install(&[]).with_code(69).complains(&["scr_index", "--force"]);
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "of another SCR");

    let removed = run(command(["compat", "install", "--remove", "--json"]).arg(&links.0)).json();
    assert_eq!(removed["removed"].as_array().unwrap().len(), names.len() - 1 + 2, "and two modules");
    assert_eq!(fs::read_dir(&links.0).unwrap().count(), 1, "the file of others is kept");
    assert_eq!(install(&["--force"]).code, 0);
    assert_eq!(links.run("scr_glob_hosts", ["-c", "-h", "a[1-3]"]).out, "3\n");
}

#[test]
fn installed_modules_are_replaced_and_those_of_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let links = Links::new(directory.path());
    let module = links.0.join("scr_param.pm");
    let text = fs::read_to_string(&module).unwrap();
    fs::write(&module, text.lines().next().unwrap()).unwrap();
    let install = |options: &[&str]| run(command(["compat", "install"]).args(options).arg(&links.0));
    let count = || fs::read_dir(&links.0).unwrap().count();
    let (mut reader, installed) = (fs::File::open(&module).unwrap(), count());
    assert_eq!(install(&[]).code, 0);
    assert_eq!(fs::read_to_string(&module).unwrap(), text, "one of another version is replaced");
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, text.lines().next().unwrap(), "a script that reads it is not disturbed");
    assert_eq!(count(), installed, "nothing else is left");
    fs::write(&module, "package scr_param;\n").unwrap();
    install(&[]).with_code(69).complains(&["scr_param.pm: was not installed by"]);
    assert_eq!(install(&["--force"]).code, 0);
    assert_eq!(fs::read_to_string(&module).unwrap(), text);
}

/// A perl script that uses the installed modules.
fn perl(script: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("perl");
    let path = std::env::var_os("PATH").unwrap();
    command.env_clear().env("PATH", path).envs(variables.iter().copied());
    let ran = run(command.arg("-w").arg("-I").arg(&LINKS.0).args(["-e", script]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{script}");
    ran.out
}

#[test]
fn perl_module_works_with_host_lists_as_that_of_scr() {
    let script = r#"use strict; use scr_hostlist;
        my @hosts = scr_hostlist::expand("atlas[3,5-7,9-11]");
        print "@hosts\n", scr_hostlist::compress(reverse @hosts), "\n";
        my @others = ("atlas5", "atlas7", "atlas20");
        print join(" ", scr_hostlist::diff(\@hosts, \@others)), "\n";
        print join(" ", scr_hostlist::intersect(\@hosts, \@others)), "\n";
        print scalar(my @none = scr_hostlist::diff(\@others, \@others)), scr_hostlist::compress(), "\n";
        print join(" ", scr_hostlist::diff(\@others, [])), "\n";"#;
    let expected = "atlas3 atlas5 atlas6 atlas7 atlas9 atlas10 atlas11\natlas[3,5-7,9-11]\n\
                    atlas3 atlas6 atlas9 atlas10 atlas11\natlas5 atlas7\n0\natlas5 atlas7 atlas20\n";
    assert_eq!(perl(script, &[]), expected);
}

#[test]
fn perl_module_reads_parameters_as_that_of_scr() {
    // Prints what the module of SCR read from these files.
    let script = r#"use strict; use scr_param;
        sub show { my ($hash, $blanks) = @_;
            foreach my $key (sort keys %$hash) { print $blanks, $key, "\n"; show($$hash{$key}, "$blanks  "); } }
        my $param = new scr_param($ENV{FILE});
        foreach my $name (split(/ /, $ENV{NAMES})) { print "  $name\n"; show($param->get_hash($name), "    "); }
        print "rc=0\n";"#;
    for name in ["basic", "descriptors", "duplicates", "several-on-a-line", "empty"] {
        let expected = recorded(&format!("t-config-files/{name}.perl.txt"));
        let top = expected.lines().filter_map(|line| line.strip_prefix("  ")).filter(|key| !key.starts_with(' '));
        let names = top.collect::<Vec<_>>().join(" ");
        let file = fixtures("scr").join(format!("t-config-files/{name}.conf"));
        assert_eq!(perl(script, &[("FILE", file.to_str().unwrap()), ("NAMES", &names)]), expected, "{name}");
    }
    // In the order of precedence: environment, user's file, default. What no source has is undefined.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("user.conf");
    fs::write(&file, "SCR_FLUSH=5\nSCR_CACHE_SIZE=3\nSITE_KEY=x\nSCR_CNTL_BASE=/elsewhere\n").unwrap();
    let script = r#"use strict; use scr_param;
        my $param = new scr_param();
        foreach my $name (qw(SCR_FLUSH SCR_CACHE_SIZE SCR_SET_SIZE SITE_KEY SCR_CNTL_BASE SCR_PREFIX)) {
            print $param->get($name) // "undefined", "\n"; }
        print defined $param->get_hash("SITE_OTHER") ? "defined" : "undefined", "\n";
        print join(" ", keys %{$param->get_hash("CACHEDIR")}), "\n";
        print join(" ", keys %{$param->get_hash("CACHEDESC")->{0}{SIZE}}), "\n";"#;
    let printed = perl(script, &[("SCR_CONF_FILE", file.to_str().unwrap()), ("SCR_FLUSH", "7")]);
    assert_eq!(printed, "7\n3\n8\nx\n/tmp\nundefined\nundefined\n/tmp\n3\n");
}

#[test]
fn commands_run_without_a_link_and_unknown_ones_are_refused() {
    holdfast(["compat", "scr_glob_hosts", "--count", "--hosts", "a[1-3]"]).with_code(0).out_is("3\n");
    assert_eq!(holdfast(["compat", "scr_nothing"]).code, 64);
    let help = holdfast(["compat", "scr_index", "--help"]);
    assert_eq!(help.code, 1, "as SCR's usage");
    assert!(help.out.contains("--prefix"), "{}", help.out);
}

#[test]
fn glob_hosts_prints_what_scr_prints_or_a_better_result() {
    let record = recorded("t-command-output/scr_glob_hosts.txt");
    let cases = cases(&record, "scr_glob_hosts");
    assert!(cases.len() > 40);
    for (line, printed, code) in cases {
        let ran = LINKS.run("scr_glob_hosts", words(line));
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        let better = BETTER.iter().find(|(case, _)| *case == line).map(|(_, better)| format!("{better}\n"));
        match better {
            Some(better) => assert_eq!(ran.out, better, "{line}"),
            // The usage has words of its own, and goes to standard error.
            None if printed.contains("Usage:") => assert!(ran.err.contains("Usage:"), "{line}"),
            // A name whose number is not at its end is kept as it is.
            None if line == "-h node1-ib" => assert_eq!(ran.out, "node1-ib\n"),
            None => assert_eq!(ran.out, printed, "{line}"),
        }
    }
    let shortened = LINKS.run("scr_glob_hosts", ["--MIN", "a[1-4]:a2", "--co"]);
    assert_eq!((shortened.code, shortened.out.as_str()), (0, "3\n"), "options may be shortened, in any case");
}

#[test]
fn every_command_has_a_help() {
    let document = holdfast(["compat", "list", "--json"]).json();
    for command in document["commands"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        let ran = LINKS.run(name, ["--help"]);
        assert!(ran.out.contains(&format!("Usage: {name}")), "{name}: {}{}", ran.out, ran.err);
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "as SCR's usage: {name}");
    }
}

#[test]
fn halt_says_that_no_file_was_changed_if_slurm_does_not_answer() {
    let slurm = tempfile::tempdir().unwrap();
    let squeue = slurm.path().join("squeue");
    let answers = |message: &str| {
        fs::write(&squeue, format!("#!/bin/sh\necho '{message}' >&2\nexit 1\n")).unwrap();
        fs::set_permissions(&squeue, fs::Permissions::from_mode(0o755)).unwrap();
        run(LINKS.command("scr_halt", ["17"]).env("PATH", slurm.path()))
    };
    answers("slurm_load_jobs error: Unable to contact slurm controller")
        .with_code(1)
        .out_is("")
        .complains(&["no halt file was changed", "Unable to contact"]);
    answers("slurm_load_jobs error: Invalid job id specified")
        .with_code(0)
        .out_is("scr_halt: ERROR: Could not find job 17\n");
}

#[test]
fn glob_hosts_takes_lists_as_the_manual_prints_them() {
    let list = "atlas[3,5-7,9-11]";
    for (words, printed) in [
        (vec!["--count", list], "7\n"),
        (vec!["--nth", "3", list], "atlas6\n"),
        (vec!["--minus", "atlas[3,5-7,9-11]:", "atlas[5,7,20]"], "atlas[3,6,9-11]\n"),
        (vec!["--intersection", "atlas[3,5-7,9-11]:", "atlas[5,7,20]"], "atlas[5,7]\n"),
    ] {
        LINKS.run("scr_glob_hosts", words.iter().copied()).with_code(0).out_is(printed);
    }
    for refused in [["--hosts", "a1", "a2"], ["--minus", "a1:a2", "a3"]] {
        let ran = LINKS.run("scr_glob_hosts", refused);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "a list that would have no effect: {refused:?}");
    }
}

#[test]
fn flush_file_says_whether_a_checkpoint_is_in_the_prefix_directory() {
    let mut found = Vec::new();
    for control in ["a-xor4/finalized", "a-xor4/killed-before-flush"] {
        let directory = fixtures("scr").join(control).join("tree/node0/user1/scr.1145655");
        let directory = directory.to_str().unwrap();
        let latest = LINKS.run("scr_flush_file", ["--dir", directory, "--latest"]).out;
        let code = |option| LINKS.run("scr_flush_file", ["--dir", directory, option, latest.trim()]).code;
        found.push((code("--id"), code("--needflush")));
        assert_eq!(LINKS.run("scr_flush_file", ["--dir", directory, "--id", "999"]).code, 1);
    }
    assert_eq!(found, [(0, 1), (1, 0)]);
}

#[test]
fn test_runtime_names_what_is_missing() {
    LINKS.run("scr_test_runtime", []).with_code(1).out_is("").complains(&["SLURM_JOB_ID"]);
    let (none, slurm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["srun", "squeue", "sinfo"] {
        let path = slurm.path().join(name);
        fs::write(&path, "#!/bin/sh\necho slurm 22.05.8\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (path, code, message) in [(none.path(), 1, "srun"), (slurm.path(), 0, "")] {
        let mut command = LINKS.command("scr_test_runtime", []);
        let ran = run(command.env("SLURM_JOB_ID", "7").env("PATH", path));
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.err.contains(message), "{}", ran.err);
    }
}

#[test]
fn hostlist_has_the_functions_of_the_module() {
    let mut seen = 0;
    for line in recorded("t-command-output/scr_hostlist.txt").lines() {
        let (call, result) = line.split_once(" = ").unwrap();
        let (function, arguments) = call.trim_end_matches(')').split_once('(').unwrap();
        let (first, second) = arguments.split_once("; ").unwrap_or((arguments, ""));
        let list = |names: &str| names.replace(' ', ",");
        let ran = match function {
            "compress" => LINKS.run("scr_hostlist", ["compress"].into_iter().chain(words(first))),
            "expand" => LINKS.run("scr_hostlist", ["expand", first.trim_matches('"')]),
            _ => LINKS.run("scr_hostlist", [function, &list(first), &list(second)]),
        };
        let expected = match call {
            // SCR loses the padding, and has no list of two prefixes.
            "expand(\"node[08-11]\")" => "node08 node09 node10 node11",
            "compress(atlas1 zeus2)" => "atlas[1],zeus[2]",
            _ => result.trim_matches('"'),
        };
        assert_eq!((ran.code, ran.out), (0, format!("{expected}\n")), "{line}: {}", ran.err);
        seen += 1;
    }
    assert!(seen >= 14, "{seen} cases");
}

#[test]
fn cntl_dir_prints_the_directories_of_the_job() {
    let record = recorded("t-command-output/scr_cntl_dir.txt");
    // The other sections have a file of the system, which a test cannot have.
    let sections: Vec<&str> = record.split("# ").collect();
    for (section, job) in [(sections[1], Some("1145655")), (sections[2], None)] {
        for (line, printed, code) in cases(section, "scr_cntl_dir") {
            let mut command = LINKS.command("scr_cntl_dir", words(line));
            command.env("USER", "user1").envs(job.map(|id| ("SLURM_JOBID", id)));
            let ran = run(&mut command);
            assert_eq!((ran.code, ran.out), (code, printed), "{line}: {}", ran.err);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let conf = directory.path().join("scr.conf");
    fs::write(&conf, "SCR_CNTL_BASE=/z\nCACHEDESC=0 BASE=/u0 SIZE=3\nCACHEDESC=1 BASE=/u1 SIZE=1\n").unwrap();
    for (arguments, printed) in [
        // Only the system file may set the control base.
        (&[][..], "/tmp/user1/scr.77\n"),
        (&["--cache"], "/u0/user1/scr.77 /u1/user1/scr.77\n"),
        (&["--cache", "--base"], "/u0 /u1\n"),
    ] {
        let mut command = LINKS.command("scr_cntl_dir", arguments.iter().copied());
        command.env("USER", "user1").env("SLURM_JOB_ID", "77").env("SCR_CONF_FILE", &conf).env("SCR_CNTL_BASE", "/x");
        run(&mut command).with_code(0).out_is(printed);
    }
}

#[test]
fn env_prints_what_is_known_of_the_job() {
    let record = recorded("t-command-output/scr_env.txt");
    let mut seen = 0;
    for case in record.split("$ ").skip(1) {
        let (line, rest) = case.split_once('\n').unwrap();
        let (variables, arguments) = line.split_once("scr_env ").unwrap();
        let (printed, code) = rest.split_once("rc=").unwrap();
        let control = fixtures("scr");
        let arguments: Vec<String> = words(arguments)
            .map(|word| if word.starts_with("a-xor4") { control.join(word).display().to_string() } else { word.into() })
            .collect();
        let mut command = LINKS.command("scr_env", arguments.iter().map(String::as_str));
        if let Some((name, value)) = variables.trim().split_once('=') {
            command.env(name, value);
        }
        let ran = run(&mut command);
        assert_eq!(ran.code, code.trim().parse::<i32>().unwrap(), "{line}: {}", ran.err);
        if !printed.contains("Usage:") {
            assert_eq!(ran.out, printed, "{line}");
        }
        seen += 1;
    }
    assert!(seen >= 11, "{seen} cases");
}

#[test]
fn check_node_checks_directories_as_scr_does() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("cache")).unwrap();
    let place = directory.path().display().to_string();
    let record = recorded("t-command-output/scr_check_node.txt").replace("/tmp/scr-fixture", &place);
    for (line, printed, code) in cases(&record, "scr_check_node") {
        let ran = LINKS.run("scr_check_node", words(line));
        assert_eq!(ran.code, code, "{line}: {}{}", ran.out, ran.err);
        match printed.split_once("<n>") {
            None => assert_eq!(ran.out, printed, "{line}"),
            Some((before, after)) => {
                let size = ran.out.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                assert!(size.unwrap_or_else(|| panic!("{line}: {}", ran.out)).parse::<u64>().is_ok());
            }
        }
    }
    assert_eq!(fs::read_dir(directory.path().join("cache")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn check_node_does_not_follow_or_remove_a_file_of_the_name_of_its_test_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    symlink(&target, directory.path().join("testfile.txt")).unwrap();
    LINKS.run("scr_check_node", ["--cntl", directory.path().to_str().unwrap()]).with_code(0).out_is("PASS\n");
    assert!(!target.exists() && directory.path().join("testfile.txt").is_symlink());
}

#[test]
fn flush_and_nodes_files_are_read_as_scr_reads_them() {
    for (record, control) in [
        ("a-finalized.node0", "a-xor4/finalized"),
        ("a-killed-after-flush.node0", "a-xor4/killed-after-flush"),
        ("a-killed-before-flush.node0", "a-xor4/killed-before-flush"),
        ("no-control-directory", "nowhere"),
    ] {
        let text = recorded(&format!("h-control-files/flush_file/{record}.out"));
        let control = fixtures("scr").join(control).join("tree/node0/user1/scr.1145655");
        let mut seen = 0;
        for case in text.split("$ ").skip(1) {
            let (line, rest) = case.split_once('\n').unwrap();
            let (printed, code) = rest.split_once("rc=").unwrap();
            let line = line.replace("<cntl>", control.to_str().unwrap());
            let (name, arguments) = line.split_once(' ').unwrap();
            let ran = LINKS.run(name, words(arguments));
            assert_eq!((ran.code, ran.out.as_str()), (code.trim().parse().unwrap(), printed), "{line}: {}", ran.err);
            seen += 1;
        }
        assert!(seen >= 7, "{record}: {seen} cases");
    }
    // Without the number of nodes.
    let directory = tempfile::tempdir().unwrap();
    fs::copy(
        fixtures("scr").join("h-control-files/halt/checkpoints-5/halt.scrinfo"),
        directory.path().join("nodes.scrinfo"),
    )
    .unwrap();
    LINKS.run("scr_nodes_file", ["--dir", directory.path().to_str().unwrap()]).with_code(1).out_is("0\n");
}

#[test]
fn retries_halt_decides_as_scr_does_and_halts_if_the_file_cannot_be_read() {
    let halts = fixtures("scr").join("h-control-files/halt");
    let mut seen = 0;
    for case in fs::read_dir(&halts).unwrap().map(|entry| entry.unwrap().path()) {
        let record = fs::read_to_string(case.join("scr_retries_halt.out")).unwrap();
        let (printed, code) = record.split_once("rc=").unwrap();
        let name = case.file_name().unwrap().to_str().unwrap();
        let directory = case.to_str().unwrap();
        let arguments: &[&str] = if name == "no-dir-argument" { &[] } else { &["--dir", directory] };
        let ran = LINKS.run("scr_retries_halt", arguments.iter().copied());
        match name {
            // Such a file counts as absent; SCR prints nothing.
            "zero-byte" => {
                let printed = "scr_retries_halt: CONTINUE RUN: No halt file found.\n";
                assert_eq!((ran.code, ran.out.as_str()), (1, printed), "{name}");
            }
            // SCR continues here, although the file may have contained a reason to halt.
            "corrupt" => assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{name}"),
            "no-dir-argument" => assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{name}: {}", ran.err),
            _ => {
                assert_eq!(ran.code, code.trim().parse::<i32>().unwrap(), "{name}: {}", ran.err);
                assert_eq!(without_now(&ran.out), without_now(printed), "{name}");
            }
        }
        seen += 1;
    }
    assert!(seen >= 18, "{seen} cases");
}

#[test]
fn retries_halt_uses_the_seconds_of_the_parameters_if_the_file_has_none() {
    let case = fixtures("scr").join("h-control-files/halt/before-future");
    let mut command = LINKS.command("scr_retries_halt", ["--dir", case.to_str().unwrap()]);
    assert_eq!(run(&mut command).code, 1);
    run(command.env("SCR_HALT_SECONDS", "2000000000")).with_code(0).prints(&["is past ExitBefore-HaltSeconds time"]);
}

/// A text without the time of the call.
fn without_now(text: &str) -> String {
    text.split_once("Current time (")
        .map_or(text.to_owned(), |(before, rest)| format!("{before}{}", rest.split_once(')').unwrap().1))
}

#[test]
fn print_hash_file_prints_every_file_of_the_fixtures_as_scr_does() {
    let state = fixtures("scr").join("a-xor4/killed-before-flush");
    let mut seen = 0;
    for dump in files_below(&state.join("dumps")) {
        let relative = dump.strip_prefix(state.join("dumps")).unwrap().to_str().unwrap().to_owned();
        let file = state.join("tree").join(relative.strip_suffix(".txt").unwrap());
        let ran = LINKS.run("scr_print_hash_file", [file.to_str().unwrap()]);
        assert_eq!((ran.code, ran.out), (0, fs::read_to_string(&dump).unwrap()), "{relative}");
        seen += 1;
    }
    assert!(seen > 30, "{seen} files");
    assert_eq!(LINKS.run("scr_print_hash_file", ["/nowhere"]).code, 1);
    assert_eq!(LINKS.run("scr_print_hash_file", []).code, 1);
}

#[test]
fn index_lists_and_removes_as_scr_does() {
    for state in ["1-three-flushed", "4-incomplete-drain-indexed", "5-removed"] {
        let state = fixtures("scr").join("h-index").join(state);
        let expected = fs::read_to_string(state.join("scr_index_list.out")).unwrap();
        let prefix = state.join("tree/pfs");
        for options in [&["--list"][..], &[]] {
            LINKS
                .run("scr_index", ["-p", prefix.to_str().unwrap()].iter().chain(options).copied())
                .with_code(0)
                .out_is(expected.as_str());
        }
    }
    let prefix = scratch_copy(&fixtures("scr").join("h-index/1-three-flushed/tree/pfs"));
    let name = "scr.2026-11-20_10:26:07.1145655.1";
    let remove = || LINKS.run("scr_index", ["--prefix", prefix.path().to_str().unwrap(), "--remove", name]);
    assert_eq!((remove().code, remove().code), (0, 1), "the second time there is no such entry");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(run(LINKS.command("scr_index", []).current_dir(empty.path())).code, 1, "there is no index");
}

#[test]
fn index_add_returns_what_scr_returned_for_every_drain_of_the_fixtures() {
    let mut seen = 0;
    for group in ["f-drain-xor", "f2-drain-xor-8nodes", "f3-drain-xor-remainder", "g-drain-partner"] {
        for drain in fs::read_dir(fixtures("scr").join(group)).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(record) = fs::read_to_string(drain.join("logs/scr_index.out")) else { continue };
            let input = drain.join("input/tree/pfs");
            if !input.exists() {
                continue;
            }
            let prefix = scratch_copy(&input);
            let Some(name) = drained(prefix.path()) else { continue };
            let ran = LINKS.run("scr_index", ["--prefix", prefix.path().to_str().unwrap(), "--add", &name]);
            let case = drain.file_name().unwrap().to_str().unwrap();
            let (printed, code) = record.rsplit_once("rc=").unwrap();
            match case {
                // SCR rebuilds a wrong file from the damaged one, or keeps damage that it does not see.
                "pfs-file-corrupt-same-size" | "pfs-scrfilemap-missing" => {}
                _ => assert_eq!(ran.code, code.trim().parse::<i32>().unwrap(), "{case}: {}{}", ran.out, ran.err),
            }
            if code.trim() == "0" && case != "pfs-file-corrupt-same-size" {
                assert_eq!(commands(&ran.out), commands(printed), "{case}");
            }
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen} drains");
}

/// The rebuild commands without host and path, sorted: SCR's order is that of a hash.
fn commands(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once("scr_rebuild_xor "));
    let mut commands: Vec<String> = lines.map(|(_, arguments)| arguments.to_owned()).collect();
    commands.sort();
    commands
}

/// The directory of the drain below a prefix.
fn drained(prefix: &Path) -> Option<String> {
    let names = fs::read_dir(prefix).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("scr.2011")).max()
}

#[test]
fn rebuild_xor_makes_the_files_that_scr_made() {
    let drain = fixtures("scr").join("f-drain-xor/one-node-lost");
    let prefix = scratch_copy(&drain.join("input/tree/pfs"));
    let name = drained(prefix.path()).unwrap();
    let directory = prefix.path().join(&name);
    let arguments = "4 2 3_of_4_in_0.xor 1_of_4_in_0.xor 2_of_4_in_0.xor 4_of_4_in_0.xor";
    let rebuild = |arguments: &str, directory: &Path| {
        run(LINKS.command("scr_rebuild_xor", words(arguments)).current_dir(directory))
    };
    rebuild(arguments, &directory).with_code(0).out_is("");
    let expected = drain.join("expected/tree/pfs").join(&name);
    for file in ["rank_2.ckpt", "3_of_4_in_0.xor", "rank_2.ckpt.scr"] {
        assert_eq!(fs::read(directory.join(file)).unwrap(), fs::read(expected.join(file)).unwrap(), "{file}");
    }
    assert!(directory.join("2.scrfilemap").exists());

    // A survivor that differs from its checksum: nothing is rebuilt from it.
    let damaged = scratch_copy(&fixtures("scr").join("f-drain-xor/pfs-file-corrupt-same-size/input/tree/pfs"));
    let directory: PathBuf = damaged.path().join(drained(damaged.path()).unwrap());
    let ran = rebuild(arguments, &directory).with_code(1);
    assert!(ran.err.contains("CRC32") && !directory.join("rank_2.ckpt").exists(), "{}", ran.err);
    for wrong in ["4 1 3_of_4_in_0.xor 1_of_4_in_0.xor 2_of_4_in_0.xor 4_of_4_in_0.xor", "4 2", ""] {
        assert_eq!(rebuild(wrong, &directory).code, 1, "{wrong}");
    }
}

#[test]
fn prerun_prints_the_lines_of_the_script_and_nothing_if_scr_is_disabled() {
    let ran = LINKS.run("scr_prerun", ["-p", "/tmp"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len()), (0, 4), "{}{}", ran.out, ran.err);
    assert!(lines[0].starts_with("scr_prerun: Started: ") && lines[0].contains(" UTC "), "{}", ran.out);
    assert!(lines[1].starts_with("scr_prerun: Ended: "), "{}", ran.out);
    assert_eq!(&lines[2..], ["scr_prerun: secs: 0", "scr_prerun: exit code: 0"]);
    run(LINKS.command("scr_prerun", []).env("SCR_ENABLE", "0")).with_code(0).out_is("");
    assert_eq!(LINKS.run("scr_prerun", ["-x"]).code, 1);
}

#[test]
fn transfer_ends_at_once_and_events_without_a_job_are_accepted() {
    assert_eq!(LINKS.run("scr_transfer", ["/tmp/user1/scr.1/transfer.scrinfo"]).code, 0);
    assert_eq!(LINKS.run("scr_transfer", []).code, 1);
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["-T", "RUN STARTED", "-N", "Job=1, Run=1", "-S", "1290000000", "-D5"];
    let ran = run(LINKS.command("scr_log_event", arguments).current_dir(directory.path()));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(LINKS.run("scr_log_event", ["-Q", "x"]).code, 1);
}

/// A directory with programs in front of those of the system: shell scripts.
fn stand_ins(programs: &[(&str, &str)]) -> (TempDir, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    // Steps are refused. As pdsh: runs the command for each node, with the node's name in front of each line. Here it
    // is a command of this machine, which gets the node in NODE.
    let pdsh = format!(
        "while [ $# -gt 2 ]; do case $1 in -w) list=$2; shift;; esac; shift; done\n\
         while [ $# -gt 1 ]; do case $1 in -w) list=$2; shift;; esac; shift; done\n\
         echo \"pdsh $list $1\" >>\"$RECORD\"\n\
         for NODE in $({}/scr_hostlist expand \"$list\"); do export NODE\n\
         sh -c \"$1\" | sed \"s/^/$NODE: /\"; done",
        LINKS.0.display()
    );
    let usual = [("pdsh", pdsh.as_str()), ("srun", "exit 1")];
    for (name, script) in usual.into_iter().chain(programs.iter().copied()) {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", directory.path().display());
    (directory, path)
}

#[test]
fn list_down_nodes_tests_nodes_as_scr_does() {
    let programs = [("ping", "case $* in *$NO_PING) exit 1;; esac"), ("sinfo", "echo 'node4|down|no answer'")];
    let (directory, path) = stand_ins(&programs);
    let conf = directory.path().join("scr.conf");
    let text = recorded("t-command-output/scr_list_down_nodes.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("   ran:")).collect();
    let text = lines.join("\n").replace("/tmp/scr-fixture/local", "/tmp") + "\n";
    let mut seen = 0;
    for (number, section) in text.split("# ").skip(1).enumerate() {
        // 0: all healthy; 1: node2 does not answer; 2: and nodes are excluded; 3: too little space.
        let bytes = if number == 3 { "99999999999999999" } else { "1000" };
        fs::write(&conf, format!("CNTLDIR=/tmp BYTES={bytes}\n")).unwrap();
        for (line, printed, code) in cases(section, "scr_list_down_nodes") {
            let mut command = LINKS.command("scr_list_down_nodes", words(line));
            command.env("PATH", &path).env("RECORD", directory.path().join("record")).env("SCR_CONF_FILE", &conf);
            command.env("SLURM_NODELIST", "node[0-4]");
            command.env("NO_PING", if [1, 2].contains(&number) { "node2" } else { "none" });
            if number == 2 {
                command.env("SCR_EXCLUDE_NODES", "node[1,2,9]");
            }
            let ran = run(&mut command);
            assert_eq!(
                (ran.code, without_size(&ran.out)),
                (code, without_size(&printed)),
                "{number} {line}: {}",
                ran.err
            );
            seen += 1;
        }
    }
    assert!(seen >= 13, "{seen} cases");
    let record = fs::read_to_string(directory.path().join("record")).unwrap();
    assert!(record.contains("pdsh node[0-2,4] ") && record.contains("scr_check_node --cntl /tmp:1000"), "{record}");

    // What Slurm reports, and a node that does not run the check.
    let mut command = LINKS.command("scr_list_down_nodes", ["--reason"]);
    command.env("PATH", &path).env("RECORD", directory.path().join("record")).env("SLURM_NODELIST", "node[0-4]");
    run(command.env("SLURM_JOBID", "7").env("NO_PING", "none"))
        .with_code(1)
        .out_is("node4: Reported down by resource manager\n");
    fs::write(directory.path().join("pdsh"), "#!/bin/sh\necho 'node0: PASS'\n").unwrap();
    let mut command = LINKS.command("scr_list_down_nodes", ["node[0-1]"]);
    run(command.env("PATH", &path).env("NO_PING", "none")).with_code(1).out_is("node[1]\n");
    assert_eq!(LINKS.run("scr_list_down_nodes", []).code, 1, "no nodes are known");
}

fn without_size(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once(", found ").map_or(line, |(before, _)| before));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn halt_writes_the_halt_files_that_scr_writes() {
    let user = format!("holdfast-test-{}", std::process::id());
    // The control base is the site's: /tmp.
    let control = Path::new("/tmp").join(&user).join("scr.1145655");
    struct Cleared(PathBuf);
    impl Drop for Cleared {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
    let _cleared = Cleared(Path::new("/tmp").join(&user));
    let squeue = format!("case $* in *--steps*) ;; *) echo '1145655|{user}|node0';; esac");
    let (directory, path) = stand_ins(&[("squeue", &squeue), ("scancel", "exit 1")]);
    let halt = |arguments: &[&str]| {
        let mut command = LINKS.command("scr_halt", arguments.iter().copied());
        command.env("PATH", &path).env("RECORD", directory.path().join("record")).env("SLURM_JOBID", "1145655");
        run(&mut command)
    };
    let mut seen = 0;
    for case in fs::read_dir(fixtures("scr").join("h-control-files/halt")).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(commands) = fs::read_to_string(case.join("command.txt")) else { continue };
        let _ = fs::remove_dir_all(&control);
        let mut printed = String::new();
        for line in commands.lines() {
            let ran = halt(&words(line.strip_prefix("scr_halt").unwrap().trim()).collect::<Vec<_>>());
            printed += &format!("{}rc={}\n", ran.out, ran.code);
            assert_eq!(ran.err, "", "{line}");
        }
        let expected = fs::read_to_string(case.join("scr_halt.out")).unwrap();
        let expected = expected.replace("/tmp/scr-fixture/local/user1/scr.1145655", control.to_str().unwrap());
        assert_eq!(printed, expected, "{}", case.display());
        let (file, written) = (control.join("halt.scrinfo"), case.join("halt.scrinfo"));
        assert_eq!(fs::read(file).ok(), fs::read(written).ok(), "{}", case.display());
        seen += 1;
    }
    assert!(seen >= 14, "{seen} cases");
    halt(&["--before", "no time"])
        .with_code(1)
        .out_is("scr_halt: ERROR: Invalid time specified in --before: no time\n");
    let missing = halt(&["77"]);
    assert!(missing.out.starts_with("scr_halt: ERROR: Could not find job 77\n"), "{}", missing.out);
}

#[test]
fn halt_ends_the_steps_but_not_the_agents() {
    let squeue = "case $* in *--steps*) echo '7.batch|batch'; echo '7.0|holdfast-agents'; echo '7.1|holdfast-run';; \
                  *) echo '7|nobody-of-a-test|node0';; esac";
    let (directory, path) = stand_ins(&[("squeue", squeue), ("scancel", "echo scancel $* >>\"$RECORD\"")]);
    fs::write(directory.path().join("pdsh"), "#!/bin/sh\necho 'node0: Halt file'\n").unwrap();
    let record = directory.path().join("record");
    let ran = run(LINKS.command("scr_halt", ["-i", "7"]).env("PATH", &path).env("RECORD", &record)).with_code(0);
    assert!(ran.out.ends_with("Cancelling job steps ...\n  scancel 7.1\n"), "{}", ran.out);
    assert_eq!(fs::read_to_string(record).unwrap(), "scancel 7.1\n");
}

/// A node of a fixture in a directory of its own: the paths in its control files are changed.
fn node_of(tree: &str, node: &str) -> TempDir {
    use holdfast_core::kvtree::{Tree, file};
    fn moved(tree: &Tree, from: &str, to: &str) -> Tree {
        let mut copy = Tree::new();
        // A new key goes to the front.
        for (key, value) in tree.iter().rev() {
            copy.set(key.replace(from, to), moved(value, from, to));
        }
        copy
    }
    let directory = scratch_copy(&fixtures("scr").join(tree).join("tree").join(node));
    let (from, to) = (format!("/tmp/scr-fixture/{node}"), directory.path().to_str().unwrap().to_owned());
    for path in files_below(directory.path()).iter().filter(|path| path.extension().is_some_and(|it| it == "scrinfo")) {
        file::write(path, &moved(&file::read(path).unwrap(), &from, &to)).unwrap();
    }
    directory
}

#[test]
fn cache_is_inspected_and_copied_as_scr_does() {
    let host = holdfast::host::host_name();
    let prefix = tempfile::tempdir().unwrap();
    let target = prefix.path().join("scr.2011-04-15_12:00:00.1145655.3");
    let logs = fixtures("scr").join("f-drain-xor/one-node-lost/logs");
    for node in ["node0", "node1", "node3"] {
        let directory = node_of("a-xor4/killed-before-flush", node);
        let control = directory.path().join("user1/scr.1145655");
        let filemap = control.join("filemap.scrinfo");
        let ran = LINKS.run("scr_inspect_cache", [filemap.to_str().unwrap()]);
        let expected = fs::read_to_string(logs.join(format!("scr_inspect_cache.{node}.out"))).unwrap();
        assert_eq!(ran.out, expected.split("rc=").next().unwrap(), "{node}: {}", ran.err);

        let copy = |id: &str| {
            let arguments = [control.to_str().unwrap(), id, target.to_str().unwrap(), "1048576", "1", "0", "node2"];
            LINKS.run("scr_copy", arguments)
        };
        let ran = copy("3");
        let expected = fs::read_to_string(logs.join(format!("scr_copy.{node}.out"))).unwrap().replace(node, &host);
        assert_eq!(format!("{}rc={}\n", ran.out, ran.code), expected, "{node}: {}", ran.err);
        let unknown = copy("9");
        let lines = "scr_copy: h: Do not have any files for checkpoint id 9\nscr_copy: h: Return code: 1\n";
        assert_eq!((unknown.code, unknown.out), (1, lines.replace(": h:", &format!(": {host}:"))));
    }
    let expected = fixtures("scr").join("f-drain-xor/one-node-lost/input/tree/pfs");
    let expected = expected.join(drained(&expected).unwrap());
    for file in files_below(&expected) {
        let name = file.file_name().unwrap();
        assert_eq!(fs::read(target.join(name)).unwrap(), fs::read(&file).unwrap(), "{}", file.display());
    }
    let wrong = LINKS.run("scr_copy", ["/tmp"]);
    assert_eq!((wrong.code, wrong.out), (1, format!("scr_copy: {host}: Return code: 1\n")));
}

#[test]
fn copies_of_partners_are_reported_and_copied_for_nodes_that_are_down() {
    let host = holdfast::host::host_name();
    let directory = node_of("c-partner/killed-before-flush", "node0");
    let control = directory.path().join("user1/scr.1145655");
    let prefix = tempfile::tempdir().unwrap();
    for (flag, down, copied) in [("0", &[][..], &[0][..]), ("0", &["node3"], &[0, 3]), ("1", &["node3"], &[3])] {
        let target = prefix.path().join(format!("{flag}.{}", down.len()));
        let arguments = [control.to_str().unwrap(), "2", target.to_str().unwrap(), "1048576", "1", flag];
        let ran = LINKS.run("scr_copy", arguments.into_iter().chain(down.iter().copied()));
        assert_eq!(
            ran.out,
            format!("scr_copy: {host}: Partners: node3\nscr_copy: {host}: Return code: 0\n"),
            "{}",
            ran.err
        );
        let ranks: Vec<u32> = (0..4).filter(|rank| target.join(format!("{rank}.scrfilemap")).exists()).collect();
        assert_eq!(ranks, copied);
    }
}

/// A stand-in for pdsh: each node has its own control directory, `/CONTROL` in the command.
fn pdsh_to(nodes: &[TempDir]) -> (TempDir, String) {
    let (directory, path) = stand_ins(&[]);
    let script = fs::read_to_string(directory.path().join("pdsh")).unwrap();
    let cases: String =
        (0..).zip(nodes).map(|(at, node)| format!("node{at}) base={};; ", node.path().display())).collect();
    let script = script.replace(
        "sh -c \"$1\"",
        &format!("case $NODE in {cases} esac; sh -c \"$(echo \"$1\" | sed s,/CONTROL,$base,)\""),
    );
    fs::write(directory.path().join("pdsh"), script).unwrap();
    (directory, path)
}

#[test]
fn flush_copies_from_all_nodes_and_from_the_partners_of_those_that_failed() {
    for (tree, id, lost, printed, ranks) in [
        ("a-xor4/killed-before-flush", "3", None, "", &[0, 1, 2, 3][..]),
        // Its directories are empty, for example after a reboot.
        (
            "c-partner/killed-before-flush",
            "2",
            Some(3),
            "scr_flush: pdsh failed on: node[3], trying partners: node[0]\n\n",
            &[0, 1, 2, 3],
        ),
        (
            "a-xor4/killed-before-flush",
            "3",
            Some(2),
            "scr_flush: pdsh failed on: node[2], trying partners: \n\n",
            &[0, 1, 3],
        ),
    ] {
        let nodes: Vec<TempDir> = (0..4).map(|node| node_of(tree, &format!("node{node}"))).collect();
        if let Some(lost) = lost {
            let node: &TempDir = &nodes[lost];
            fs::remove_dir_all(node.path().join("user1")).unwrap();
        }
        let (directory, path) = pdsh_to(&nodes);
        let prefix = tempfile::tempdir().unwrap();
        let target = prefix.path().join("scr.2011-04-15_12:00:00.1145655.9");
        let words = ["-i", id, "-f", "/CONTROL/user1/scr.1145655", "--to", target.to_str().unwrap()];
        let mut command = LINKS.command("scr_flush", words);
        command.env("PATH", &path).env("RECORD", directory.path().join("record")).env("SLURM_NODELIST", "node[0-3]");
        let ran = run(command.env("SCR_PREFIX", prefix.path()));
        let (first, rest) = ran.out.split_once('\n').unwrap();
        assert!(ran.code == 0 && first.starts_with("scr_flush: "), "{first}\n{}", ran.err);
        assert_eq!(rest, printed, "{}", ran.err);
        let copied: Vec<u32> = (0..4).filter(|rank| target.join(format!("{rank}.scrfilemap")).exists()).collect();
        assert_eq!(copied, ranks, "{tree}");
    }
    LINKS
        .run("scr_flush", ["-i", "1", "-f", "/c", "-t", "/p"])
        .with_code(1)
        .out_is("scr_flush: ERROR: Could not determine nodeset.\n");
    LINKS.run("scr_flush", ["-i", "1"]).with_code(1).complains(&["--from", "--to"]);
}

#[test]
fn inspect_prints_the_checkpoints_that_can_be_completed_newest_first() {
    let nodes: Vec<TempDir> =
        (0..4).map(|node| node_of("a-xor4/killed-before-flush", &format!("node{node}"))).collect();
    let (directory, path) = pdsh_to(&nodes);
    let inspect = |up: &str| {
        let mut command = LINKS.command("scr_inspect", ["--up", up, "--from", "/CONTROL/user1/scr.1145655"]);
        command.env("PATH", &path).env("RECORD", directory.path().join("record")).env("SLURM_NODELIST", "node[0-3]");
        run(&mut command)
    };
    inspect("node[0-3]").with_code(0).out_is("3 2\n");
    assert_eq!(inspect("node[0-1,3]").out, "3 2\n", "one lost member can be rebuilt");
    inspect("node[0-1]").with_code(1).out_is("");
}

#[test]
fn srun_without_job_program_or_placement_of_its_own_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for (line, reason) in [("-n2 -w n1 ./app", "contradicts"), ("-n2", "program"), ("-n2 /nowhere/app", "/nowhere/app")]
    {
        run(LINKS.command("scr_srun", words(line)).current_dir(directory.path())).with_code(1).complains(&[reason]);
    }
    let (_stand_ins, path) = stand_ins(&[("srun", "echo srun $*; exit 7")]);
    let ran = run(LINKS.command("scr_srun", ["-n2", "./app"]).env("SCR_ENABLE", "0").env("PATH", &path));
    assert_eq!((ran.code, ran.out.as_str()), (7, "srun -n2 ./app\n"), "the program runs without SCR");
    run(LINKS.command("scr_postrun", []).env("SCR_ENABLE", "0")).with_code(0).out_is("");
    let ran = run(LINKS.command("scr_postrun", ["-p", "."]).current_dir(directory.path())).with_code(1);
    assert!(ran.out.contains("no job was run in") && ran.out.ends_with("exit code: 1\n"), "{}", ran.out);
}

#[test]
fn every_command_is_documented_with_its_difference() {
    let page = include_str!("../../docs/scr-commands.md");
    for command in holdfast(["compat", "list", "--json"]).json()["commands"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        assert!(page.contains(&format!("\n| `{name}` | ")), "{name} is not in docs/scr-commands.md");
        if command["difference"] != json!(null) {
            assert!(page.contains(&format!("\n**`{name}`**")), "no differences of {name} in docs/scr-commands.md");
        }
    }
    let list = holdfast(["compat", "list"]).out;
    assert!(list.contains("scr_transfer          does nothing: the agents copy files"), "{list}");
}
