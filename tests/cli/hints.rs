//! What a newcomer writes in place of a spec, a key or a command, and the line that is right.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Ran, holdfast_in};

/// A directory with a program `pi`, a script `pi.sh`, and a spec.
fn directory(spec: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::copy("/bin/true", directory.path().join("pi")).unwrap();
    let script = directory.path().join("pi.sh");
    fs::write(&script, "#!/bin/sh\necho \"it: $1\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("job.yaml"), spec).unwrap();
    directory
}

#[track_caller]
fn says(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{}", ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "{part:?} is not in\n{}", ran.err);
    }
}

#[test]
fn a_program_in_place_of_a_spec_is_answered_with_the_command_to_write() {
    let directory = directory("");
    let run = |words: &[&str]| holdfast_in(directory.path(), [&["run"], words].concat());
    let help = "`holdfast run -- ./pi`; or have one written: `holdfast init ./pi`";
    says(&run(&["./pi"]), 78, &["./pi: this is a program, not a job spec", help]);
    says(&holdfast_in(directory.path(), ["check", "./pi"]), 78, &["this is a program, not a job spec"]);
    says(&run(&["./pi.sh"]), 78, &["this is a script, not a job spec", "`holdfast run -- ./pi.sh`"]);
    says(&run(&["./pi 5"]), 78, &["this is a command, not a job spec", "`holdfast run -- ./pi 5`"]);
    says(&run(&["true"]), 78, &["this is a command, not a job spec", "`holdfast run -- true`"]);
    says(&run(&["./pi", "5"]), 64, &["more words follow", "`holdfast run -- ./pi 5`"]);
    says(&run(&["--", "./pi 5"]), 78, &["write program and arguments as words of their own: ./pi, 5"]);
    says(&run(&["./other 5"]), 78, &["there is no such file"]);
}

/// The warnings of `check` about this command.
fn checked(command: &str) -> Ran {
    let directory = directory(&format!("allocation: {{manager: local}}\nrun:\n  command: {command}\n"));
    holdfast_in(directory.path(), ["check", "job.yaml"])
}

#[test]
fn what_only_a_shell_interprets_is_answered_with_a_shell() {
    let out = checked("[./pi, \"5\", \">\", out]");
    let expected = "`run.command` (line 3): no shell interprets `>`, the program gets it as it is";
    says(&out, 0, &[expected, "write `[sh, -c, './pi 5 > out']`"]);
    says(&checked("[./pi, $N]"), 0, &["no shell interprets `$N`", "`[sh, -c, './pi $N']`"]);
    says(&checked("[./pi, \"|\", tee, log]"), 0, &["no shell interprets `|`"]);
    says(&checked("[./pi, \"&&\", ./pi]"), 0, &["no shell interprets `&&`"]);
    assert_eq!(checked("[sh, -c, './pi $N > out']").err, "");
    let directory = directory("");
    let dry = |words: &[&str]| holdfast_in(directory.path(), [&["run", "--dry-run", "--"], words].concat());
    says(&dry(&["./pi", "$N"]), 0, &["no shell interprets `$N`", "write `-- sh -c './pi $N'`"]);
}

/// Without `resume`, ranks go on from what each of them wrote last.
#[test]
fn ranks_whose_files_are_watched_and_that_do_not_resume_are_warned_about() {
    let checked = |ranks: u32, resume: &str| {
        let checkpoint = format!("checkpoint: {{source: command, watch: {{files: [state]}}{resume}}}");
        let run = format!("run: {{ranks: {ranks}, command: [\"true\"]}}\n");
        let directory = directory(&format!("allocation: {{manager: local}}\n{run}{checkpoint}\n"));
        holdfast_in(directory.path(), ["check", "job.yaml"])
    };
    says(&checked(2, ""), 0, &["warning: `checkpoint.watch` without `resume`", "from different steps"]);
    assert_eq!(checked(2, ", resume: [\"true\", $HOLDFAST_RESTART_DIR/state]").err, "");
    assert_eq!(checked(1, "").err, "");
}

#[test]
fn the_interval_of_checkpoints_under_another_name_leads_to_its_key() {
    let spec = "run: {command: [\"true\"]}\ncheckpoint: {interval: 10min}\n";
    let directory = directory(spec);
    let ran = holdfast_in(directory.path(), ["check", "job.yaml"]);
    says(&ran, 78, &["job.yaml:2:14: checkpoint.interval: unknown key", "did you mean `every`?"]);
    let path = Path::new(directory.path()).join("job.yaml");
    fs::write(path, "run: {command: [\"true\"], ntasks: 4}\n").unwrap();
    says(&holdfast_in(directory.path(), ["check", "job.yaml"]), 78, &["did you mean `ranks`?"]);
}
