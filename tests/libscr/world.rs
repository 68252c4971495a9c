//! The directory of a job: compiled programs, the spec, the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use holdfast_testkit::fast_directory;
use holdfast_testkit::harness::ignore;
use tempfile::TempDir;

pub struct World {
    directory: TempDir,
    /// The files of the virtual nodes are in this directory.
    nodes: PathBuf,
    /// Variables of `holdfast run`.
    variables: Vec<(&'static str, &'static str)>,
}

/// A library of this build.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// As in `-lNAME`.
    name: &'static str,
    /// The directory of its headers and modules.
    include: &'static str,
}

pub const SCR: Library = Library { name: "scr", include: "agents/client/libscr/include" };
pub const FTI: Library = Library { name: "fti", include: "agents/client/libfti/include" };
pub const SION: Library = Library { name: "sion", include: "agents/client/libsion/include" };
pub const VARIABLES: Library = Library { name: "holdfast_variables", include: "agents/client/libvariables/include" };

impl Library {
    pub fn shared(self) -> PathBuf {
        library_directory().join(format!("lib{}.so", self.name))
    }

    /// A header or module of the library.
    pub fn include(self, file: &str) -> PathBuf {
        in_repository(self.include).join(file)
    }
}

/// The directory of the libraries: that of the test's executable.
pub fn library_directory() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for library in [SCR, FTI, SION, VARIABLES] {
        for file in [format!("lib{}.so", library.name), format!("lib{}.a", library.name)] {
            assert!(directory.join(&file).exists(), "{file} is not in {}", directory.display());
        }
    }
    directory
}

/// A path in the repository.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Shared,
    Static,
    /// `-lscrf` and nothing else, with all files in one directory, as they are installed.
    Fortran,
    /// As [`Link::Fortran`], with the archive.
    StaticFortran,
}

impl World {
    pub fn new() -> World {
        let directory = fast_directory();
        for name in ["results", "tmp"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let nodes = directory.path().join("tmp");
        World { directory, nodes, variables: Vec::new() }
    }

    /// The files of the virtual nodes are in this directory.
    pub fn with_nodes_in(directory: &Path) -> World {
        World { nodes: directory.to_owned(), ..World::new() }
    }

    /// Jobs get this variable.
    pub fn with_variable(mut self, name: &'static str, value: &'static str) -> World {
        self.variables.push((name, value));
        self
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program of `programs/`, as a user would: the header's directory, `-lscr`.
    pub fn compile(&self, compiler: &str, source: &str, link: Link) -> PathBuf {
        self.compile_for(SCR, &[compiler], &[&program_source(source)], link)
    }

    /// Compiles the sources of a program for a library; the last source names the program.
    pub fn compile_for(&self, library: Library, compiler: &[&str], sources: &[&Path], link: Link) -> PathBuf {
        let program = self.path().join(sources.last().unwrap().file_stem().unwrap());
        if program.exists() {
            return program;
        }
        let compiled = self.compiling(library, compiler, sources, link, &program);
        let output = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success() && !output.contains("warning:"), "{compiler:?} {sources:?}:\n{output}");
        program
    }

    pub fn compiling(
        &self,
        library: Library,
        compiler: &[&str],
        sources: &[&Path],
        link: Link,
        program: &Path,
    ) -> Output {
        let libraries = library_directory();
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(sources).arg("-o").arg(program);
        // Fortran modules are written here.
        command.arg("-Wall").arg("-I").arg(in_repository(library.include)).current_dir(self.path());
        match link {
            Link::Shared => {
                command.arg("-L").arg(&libraries).arg(format!("-l{}", library.name));
                command.arg(format!("-Wl,-rpath,{}", libraries.display()));
            }
            Link::Static => {
                command.arg(libraries.join(format!("lib{}.a", library.name))).args(["-lpthread", "-ldl", "-lm"]);
            }
            Link::Fortran | Link::StaticFortran => {
                let installed = self.installed(&libraries);
                let name = if link == Link::Fortran { "-lscrf" } else { "-l:libscrf.a" };
                command.arg("-L").arg(&installed).arg(name);
                command.arg(format!("-Wl,-rpath,{}", installed.display()));
            }
        }
        command.output().unwrap_or_else(|error| panic!("{compiler:?}: {error}"))
    }

    /// The first block of this language in a page of documentation, as a file.
    pub fn program_of_page(&self, page: &str, language: &str, name: &str) -> PathBuf {
        let text = fs::read_to_string(in_repository(page)).unwrap();
        let block = text.split(&format!("\n```{language}\n")).nth(1).and_then(|rest| rest.split("\n```\n").next());
        let source = self.path().join(name);
        fs::write(&source, format!("{}\n", block.unwrap_or_else(|| panic!("{page}: no {language}")))).unwrap();
        source
    }

    /// A directory with the libraries and the scripts of the linker.
    fn installed(&self, libraries: &Path) -> PathBuf {
        let directory = self.path().join("lib");
        fs::create_dir_all(&directory).unwrap();
        for library in ["libscr.so", "libscr.so.100", "libscr.a"] {
            fs::copy(libraries.join(library), directory.join(library)).unwrap();
        }
        for script in ["libscrf.so", "libscrf.a"] {
            let source = in_repository("agents/client/libscr/link").join(script);
            fs::copy(source, directory.join(script)).unwrap();
        }
        directory
    }

    /// Runs a command as a job: three nodes with two ranks each, one spare, XOR over the three, and these failures.
    pub fn run(&self, command: &[&str], checkpoint: &str, faults: &str) -> Output {
        self.run_with(command, checkpoint, faults, "")
    }

    /// As [`World::run`], with these further lines in the spec.
    pub fn run_with(&self, command: &[&str], checkpoint: &str, faults: &str, more: &str) -> Output {
        let checkpoint = format!("redundancy: [{{scheme: xor, set_size: 3}}]{checkpoint}");
        self.run_on(4, "", command, &checkpoint, faults, more)
    }

    /// Runs a command as a job on three of `nodes` nodes, with two ranks each.
    pub fn run_on(
        &self,
        nodes: u32,
        launcher: &str,
        command: &[&str],
        checkpoint: &str,
        faults: &str,
        more: &str,
    ) -> Output {
        let words: Vec<String> = command.iter().map(|item| format!("{item:?}")).collect();
        let spec = format!(
            "job: libscr\nprefix: ./prefix\nallocation: {{manager: local, nodes: {nodes}, faults: [{faults}]}}\n\
             run: {{nodes: 3, ranks_per_node: 2, {launcher} command: [{}]}}\n\
             checkpoint: {{{checkpoint}}}\n{more}\n",
            words.join(", ")
        );
        fs::write(self.path().join("job.yaml"), spec).unwrap();
        let mut holdfast = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        holdfast.args(["run", "job.yaml"]).current_dir(self.path()).env("TMPDIR", &self.nodes);
        holdfast.envs(self.variables.iter().copied());
        quiet(&mut holdfast).output().unwrap()
    }

    /// As [`World::run`]; requires that the job finishes.
    #[track_caller]
    pub fn finishes(&self, command: &[&str], checkpoint: &str, faults: &str) {
        exits_with(&self.run(command, checkpoint, faults), 0);
    }

    /// Checks the result files of the six ranks.
    #[track_caller]
    pub fn assert_results(&self, expected: impl Fn(u32) -> String) {
        for rank in 0..6 {
            assert_eq!(self.result(rank), expected(rank), "rank {rank}");
        }
    }

    /// The result file of a rank.
    pub fn result(&self, rank: u32) -> String {
        let path = self.result_path(rank);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
    }

    /// The path of the result file of a rank.
    pub fn result_path(&self, rank: u32) -> PathBuf {
        self.path().join(format!("results/result.{rank}"))
    }

    pub fn results(&self) -> String {
        self.path().join("results").to_str().unwrap().to_owned()
    }

    /// The directories below the prefix, by the name that the application gave to the dataset; sorted.
    pub fn named_on_prefix(&self) -> Vec<(String, PathBuf)> {
        let mut named = Vec::new();
        for entry in fs::read_dir(self.path().join("prefix")).unwrap() {
            let path = entry.unwrap().path();
            let record = path.join("dataset.holdfast");
            if !path.is_symlink() && record.exists() {
                let inspected = holdfast(&["inspect", "--json", record.to_str().unwrap()], self.path());
                let document: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
                let text = document.to_string();
                let name = text.split("\"NAME\":{\"").nth(1).and_then(|rest| rest.split('"').next());
                named.push((name.unwrap_or_else(|| panic!("no name in {text}")).to_owned(), path));
            }
        }
        named.sort();
        named
    }

    /// The entries of the index of the prefix, newest first.
    pub fn indexed(&self) -> Vec<serde_json::Value> {
        let listed = holdfast(&["index", "list", "--json", "--prefix", "prefix"], self.path());
        let document: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        document["checkpoints"].as_array().unwrap().clone()
    }

    /// `holdfast index` of the prefix.
    pub fn index(&self) -> String {
        String::from_utf8(holdfast(&["index", "list", "--prefix", "prefix"], self.path()).stdout).unwrap()
    }

    /// The name of the dataset that the link leads to.
    pub fn current(&self) -> String {
        let link = fs::canonicalize(self.path().join("prefix/scr.current")).unwrap();
        let named = self.named_on_prefix();
        let found = named.into_iter().find(|(_, path)| fs::canonicalize(path).unwrap() == link);
        found.unwrap_or_else(|| panic!("{} has no name", link.display())).0
    }
}

/// The path of a program of `programs/`.
pub fn program_source(name: &str) -> PathBuf {
    in_repository("tests/libscr/programs").join(name)
}

/// The program, in a directory.
pub fn holdfast(arguments: &[&str], directory: &Path) -> Output {
    quiet(Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).current_dir(directory)).output().unwrap()
}

/// Removes SCR parameters and launcher variables of the test environment.
pub fn quiet(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["SCR_", "SLURM", "HOLDFAST_", "PMI", "OMPI_"].iter().any(|start| text.starts_with(start)) {
            command.env_remove(name);
        }
    }
    // Tests may run as root, which Open MPI refuses otherwise.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // With it, Python writes a line and its end by two calls: those of ranks that share an output are mixed.
    command.env_remove("PYTHONUNBUFFERED");
    // Set by cargo; it may lead to a libscr of an earlier build.
    command.env_remove("LD_LIBRARY_PATH")
}

/// The output of a program on standard output and standard error.
pub fn output(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The output of a program that ended with this exit code.
#[track_caller]
pub fn exits_with(ran: &Output, code: i32) -> String {
    let printed = output(ran);
    assert_eq!(ran.status.code(), Some(code), "{printed}");
    printed
}

/// The sum of a rank after this many steps.
pub fn sum(rank: u32, steps: u32) -> u32 {
    (rank + 1) * steps * (steps + 1) / 2
}

/// Ignores the test where this compiler or interpreter is not installed.
pub fn needs(program: &str) {
    if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        ignore(&format!("{program} is not installed"));
    }
}

/// Ignores the test where Debian's Python lacks this module.
pub fn needs_module(name: &str) {
    let tried = Command::new("/usr/bin/python3").args(["-c", &format!("import {name}")]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        ignore(&format!("{name} of /usr/bin/python3 is not installed"));
    }
}
