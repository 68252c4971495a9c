//! What all commands share: help, usage errors, closed pipes.

use std::io::Read;
use std::process::Stdio;

use crate::program::{command, holdfast};

const COMMANDS: [&[&str]; 48] = [
    &["run"],
    &["init"],
    &["rehearse"],
    &["check"],
    &["drain"],
    &["index", "list"],
    &["index", "add"],
    &["index", "current"],
    &["index", "drop"],
    &["index", "delete"],
    &["index", "prune"],
    &["halt", "list"],
    &["halt", "set"],
    &["halt", "unset"],
    &["checkpoint"],
    &["nodes", "list"],
    &["nodes", "exclude"],
    &["nodes", "include"],
    &["pairs", "list"],
    &["pairs", "fail-over"],
    &["pairs", "fail-back"],
    &["pairs", "restart"],
    &["status"],
    &["top"],
    &["report"],
    &["inspect"],
    &["verify"],
    &["extract"],
    &["sion", "dump"],
    &["sion", "split"],
    &["sion", "join"],
    &["sion", "defrag"],
    &["sion", "verify"],
    &["fti", "verify"],
    &["fti", "restore"],
    &["fti", "import"],
    &["fti", "write"],
    &["hosts"],
    &["explain"],
    &["completions"],
    &["man"],
    &["compat"],
    &["compat", "install"],
    &["compat", "list"],
    &["agent"],
    &["step"],
    &["example", "heat"],
    &["example", "pair"],
];

#[test]
fn the_examples_in_the_page_of_unchanged_programs_are_those_that_the_tests_run() {
    // tests/e2e runs them.
    let page = include_str!("../../docs/command.md");
    let (_, count) = include_str!("../../configs/command/count.yaml").split_once('\n').unwrap();
    assert!(page.contains(&format!("```yaml\n{count}```\n")), "docs/command.md differs from count.yaml");
    let walk = include_str!("../../configs/command/walk.yaml");
    let (_, checkpoint) = walk.split_once("checkpoint:\n").unwrap();
    assert!(
        page.contains(&format!("```yaml\ncheckpoint:\n{checkpoint}```\n")),
        "docs/command.md differs from walk.yaml"
    );
}

#[test]
fn the_batch_script_in_the_manuals_is_the_one_that_the_cluster_runs() {
    // tests/cluster submits it.
    let script = include_str!("../../configs/slurm/job.sbatch");
    let shown = format!("```bash\n{script}```\n");
    let manual = include_str!("../../configs/slurm/manual.sbatch");
    let page = include_str!("../../docs/slurm.md");
    assert!(
        page.contains(&format!("```bash\n{manual}```\n")),
        "docs/slurm.md differs from configs/slurm/manual.sbatch"
    );
    let pbs = include_str!("../../configs/pbs/job.pbs");
    assert!(
        include_str!("../../docs/pbs.md").contains(&format!("```bash\n{pbs}```\n")),
        "docs/pbs.md differs from configs/pbs/job.pbs"
    );
    for (manual, text) in
        [("README.md", include_str!("../../README.md")), ("docs/slurm.md", include_str!("../../docs/slurm.md"))]
    {
        assert!(text.contains(&shown), "the batch script in {manual} differs from configs/slurm/job.sbatch");
    }
}

#[test]
fn help_of_every_command_has_examples() {
    for words in COMMANDS {
        let ran = holdfast(words.iter().copied().chain(["--help"])).with_code(0).prints(&["Examples:"]);
        let name = words.join(" ");
        let examples = ran.out.split("Examples:").nth(1).unwrap();
        assert!(examples.contains(&name), "{words:?}:\n{examples}");
    }
    let ran = holdfast(["--help"]);
    assert!(ran.out.contains("75  not finished: another allocation can continue"), "{}", ran.out);
    assert!(!ran.out.contains("\n  step "), "step is for launchers");
}

#[test]
fn usage_error_ends_with_64_and_nearest_spelling() {
    for arguments in
        [&["chekc"][..], &["check"], &["check", "--explian", "x"], &["index"], &["run"], &["halt", "set"], &[]]
    {
        holdfast(arguments).with_code(64).out_is("").complains(&["Usage:"]);
    }
    assert!(holdfast(["chekc"]).err.contains("'check'"));
    assert!(holdfast(["check", "--explian", "x"]).err.contains("'--explain'"));
}

#[test]
fn prints_version() {
    let ran = holdfast(["--version"]);
    assert_eq!((ran.code, ran.out.trim_end()), (0, concat!("holdfast ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let mut child = command(["check", "--reference"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Closed before the first byte is read, so that every write fails.
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn every_exit_code_is_documented() {
    use holdfast::exit;
    let help = holdfast(["--help"]).out;
    let page = include_str!("../../docs/exit-codes.md");
    for code in [
        exit::FINISHED,
        exit::USAGE,
        exit::DAMAGED_DATA,
        exit::UNAVAILABLE,
        exit::INTERNAL,
        exit::CANNOT_WRITE,
        exit::NOT_FINISHED,
        exit::CONFIGURATION,
        exit::APPLICATION_ERROR,
        exit::NO_PROGRESS,
    ] {
        assert!(help.contains(&format!("\n  {code:2}  ")), "{code}:\n{help}");
        assert!(page.contains(&format!("\n| {code} | ")), "{code} is not in docs/exit-codes.md");
    }
}

/// Below the first limit a thread cannot be started, below the second a library panics that starts threads.
#[test]
fn too_few_descriptors_end_with_69_and_the_limits_to_raise() {
    let directory = tempfile::tempdir().unwrap();
    for limit in [5, 7] {
        let script = format!("ulimit -n {limit}; exec \"$0\" drain --prefix .");
        let mut limited = std::process::Command::new("bash");
        limited.args(["-c", &script, env!("CARGO_BIN_EXE_holdfast")]).current_dir(directory.path());
        let ran = limited.output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(69), "{limit}: {err}");
        assert!(err.contains("`ulimit -n`") && !err.contains("panicked"), "{limit}: {err}");
        assert!(err.contains("Too many open files"), "{limit}: {err}");
    }
}
