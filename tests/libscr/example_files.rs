//! Each example in the repository, and each program in a page, is compiled and run by a test: the list of both.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::world::in_repository;

/// The directories of examples.
const DIRECTORIES: [&str; 4] =
    ["agents/client/libpairs/examples", "agents/client/pairs/examples", "agents/client/python/examples", "configs"];

/// Each file of these directories, and the test that runs it, or that compares it where it is no program.
const EXAMPLES: [(&str, &str); 20] = [
    ("agents/client/libpairs/examples/main_c.c", "tests/e2e/pair_programs.rs"),
    ("agents/client/pairs/examples/steps.rs", "agents/client/pairs/tests/page.rs"),
    ("agents/client/python/examples/main_py.py", "tests/e2e/pair_programs.rs"),
    ("agents/client/python/examples/mpi4py_style.py", "tests/libscr/python.rs"),
    ("agents/client/python/examples/torchrun_style.py", "tests/libscr/python.rs"),
    ("configs/command/count.sh", "tests/cluster/sources.rs"),
    ("configs/command/count.yaml", "tests/e2e/command.rs"),
    ("configs/command/walk.py", "tests/e2e/command.rs"),
    ("configs/command/walk.yaml", "tests/e2e/command.rs"),
    ("configs/monitoring/alerts.yaml", "tests/e2e/monitoring.rs"),
    ("configs/monitoring/dashboard.json", "tests/e2e/monitoring.rs"),
    ("configs/pairs.yaml", "tests/e2e/pairs.rs"),
    ("configs/pbs/job.pbs", "tests/cli/usage.rs"),
    ("configs/pbs/job.yaml", "tests/e2e/pbs.rs"),
    ("configs/quickstart.yaml", "tests/e2e/quickstart.rs"),
    ("configs/reference.yaml", "tests/cli/check.rs"),
    ("configs/slurm/job.sbatch", "tests/cluster/basics.rs"),
    ("configs/slurm/job.yaml", "tests/cluster/basics.rs"),
    ("configs/slurm/manual.sbatch", "tests/cluster/chains.rs"),
    ("configs/spec.schema.json", "tests/e2e/editors.rs"),
];

/// The pages outside of docs/tutorials with complete programs, the languages of these, and the tests that run them.
const PAGES: [(&str, &str, &str); 12] = [
    ("docs/interpose.md", "c", "tests/libscr/interpose.rs"),
    ("docs/libfti.md", "c", "tests/libscr/fti.rs"),
    ("docs/libfti.md", "fortran", "tests/libscr/fti.rs"),
    ("docs/libscr.md", "c", "tests/libscr/c.rs"),
    ("docs/libsion.md", "c", "tests/libscr/sion.rs"),
    ("docs/libsion_mpi.md", "c", "tests/libscr/sion_mpi.rs"),
    ("docs/pairs.md", "c", "agents/client/libpairs/tests/programs.rs"),
    ("docs/pairs.md", "python", "agents/client/libpairs/tests/programs.rs"),
    ("docs/pairs.md", "rust", "agents/client/pairs/tests/page.rs"),
    ("docs/variables.md", "c", "tests/libscr/variables.rs"),
    ("docs/variables.md", "fortran", "tests/libscr/variables.rs"),
    ("docs/variables.md", "python", "tests/libscr/variables.rs"),
];

/// What a complete program of a language contains; other blocks are parts.
const COMPLETE: [(&str, &str); 4] =
    [("c", "int main("), ("fortran", "end program"), ("python", "import "), ("rust", "fn main(")];

fn text(path: &str) -> String {
    fs::read_to_string(in_repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files_below(directory: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(in_repository(directory)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn each_example_is_run_by_the_test_that_is_named_for_it() {
    let found: BTreeSet<String> = DIRECTORIES.into_iter().flat_map(files_below).collect();
    let listed: BTreeSet<String> = EXAMPLES.into_iter().map(|(file, _)| file.to_owned()).collect();
    assert_eq!(found, listed, "an example without a test, or a test without an example");
    for (file, test) in EXAMPLES {
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        assert!(text(test).contains(name), "{test} does not run {file}");
    }
}

#[test]
fn each_tutorial_is_carried_out() {
    let tests = text("tests/libscr/tutorials.rs");
    // The page for sites needs machines.
    let of_machines = text("tests/playbooks/collection.rs");
    for page in files_below("docs/tutorials") {
        let name = Path::new(&page).file_name().unwrap().to_str().unwrap();
        let is_carried_out =
            tests.contains(&format!("run({name:?})")) || of_machines.contains(&format!("join({page:?})"));
        assert!(is_carried_out, "no test carries out {page}");
    }
}

#[test]
fn each_program_of_a_page_is_run_by_the_test_that_is_named_for_it() {
    let mut found = Vec::new();
    for page in files_below("docs").into_iter().filter(|page| !page.starts_with("docs/tutorials/")) {
        let content = text(&page);
        for (language, sign) in COMPLETE {
            let start = format!("\n```{language}\n");
            let blocks = content.split(&start).skip(1).filter_map(|rest| rest.split("\n```").next());
            let complete = blocks.filter(|block| block.contains(sign)).count();
            found.extend((0..complete).map(|_| (page.clone(), language)));
        }
    }
    found.sort();
    let listed: Vec<_> = PAGES.into_iter().map(|(page, language, _)| (page.to_owned(), language)).collect();
    assert_eq!(found, listed, "a program without a test, or a test without a program");
    for (page, language, test) in PAGES {
        let name = Path::new(page).file_name().unwrap().to_str().unwrap();
        assert!(text(test).contains(name), "{test} does not run the program of {page} in {language}");
    }
}
