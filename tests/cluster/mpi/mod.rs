//! MPI programs that link libscr, as a user writes them for SCR 3.1: compiled on the cluster with Open MPI's and
//! MPICH's own compilers, started by Slurm's srun or by mpirun through `holdfast run`, and compared to the bit with a
//! failure-free run without checkpoints.

mod alone;
mod c;
mod ends;
mod hang;
mod languages;
mod overload;
pub mod world;

use std::path::{Path, PathBuf};

use holdfast_testkit::cluster::{Cluster, Job};

/// An MPI library, and how its programs are started.
#[derive(Clone, Copy)]
pub struct Mpi {
    pub name: &'static str,
    /// The PMI that Slurm and the library support.
    plugin: &'static str,
    /// Keys of `run:`.
    launcher: &'static str,
}

pub const OPEN_MPI: Mpi = Mpi { name: "openmpi", plugin: "pmix", launcher: "launcher_options: [--mpi=pmix]" };
/// Debian's has no PMIx.
const MPICH: Mpi = Mpi { name: "mpich", plugin: "pmi2", launcher: "launcher_options: [--mpi=pmi2]" };
pub const BY_MPIRUN: Mpi = Mpi { launcher: "launcher: mpirun\n  launcher_program: mpirun.openmpi", ..OPEN_MPI };
pub const BY_HYDRA: Mpi = Mpi { launcher: "launcher: mpirun\n  launcher_program: mpiexec.hydra", ..MPICH };

/// Long enough for a node to be lost in the middle.
const STEPS: &str = "120";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// Header and libraries of this build, installed as on a site.
fn install_library(cluster: &Cluster) {
    // A library that is built for a test is in the directory of the test's executable.
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for library in ["libscr.so", "libscr.a"] {
        cluster.share(&built.join(library), &format!("/opt/holdfast/lib/{library}"));
    }
    cluster.on("ctl", "ln -sfn libscr.so /opt/holdfast/lib/libscr.so.100");
    for header in ["scr.h", "scrf.h"] {
        let header_file = in_repository("agents/client/libscr/include").join(header);
        cluster.share(&header_file, &format!("/opt/holdfast/include/{header}"));
    }
}

/// Compiles a program of `tests/libscr/programs` as `/opt/holdfast/test/<program>`.
fn compile(cluster: &Cluster, compiler: &str, source: &str, program: &str) -> String {
    install_library(cluster);
    cluster.share(&in_repository("tests/libscr/programs").join(source), &format!("/opt/holdfast/test/{source}"));
    let program = format!("/opt/holdfast/test/{program}");
    let command = format!(
        "cd /opt/holdfast/test && {compiler} -Wall -o {program} {source} -I/opt/holdfast/include -L/opt/holdfast/lib \
        -lscr \
         -Wl,-rpath,/opt/holdfast/lib && echo compiled"
    );
    let output = cluster.on("ctl", &command);
    assert!(output.trim() == "compiled", "{output}");
    program
}

impl Mpi {
    fn compile_c(self, cluster: &Cluster) -> String {
        compile(cluster, &format!("mpicc.{}", self.name), "mpi.c", &format!("mpi.{}", self.name))
    }

    /// A spec whose run it starts.
    pub fn launches(self, spec: &str) -> String {
        spec.replace("run:\n", &format!("run:\n  {}\n", self.launcher))
    }

    /// Three nodes with two ranks each.
    fn spec(self, command: &[&str], more: &str) -> String {
        let words: Vec<String> = command.iter().map(|item| format!("{item:?}")).collect();
        format!(
            "job: mpi\nprefix: ./heat-run\nallocation: {{manager: slurm}}\nrun:\n  nodes: 3\n  ranks_per_node: 2\n  \
             {}\n  command: [{}]\n\
             checkpoint: {{redundancy: [{{scheme: xor, set_size: 3}}]}}\n{more}\n",
            self.launcher,
            words.join(", ")
        )
    }

    /// Three nodes and three spares, so that the nodes with ranks are known.
    fn submit<'a>(self, cluster: &'a Cluster, name: &str, command: &[&str], more: &str) -> Job<'a> {
        let options = "--nodes=6 --ntasks-per-node=2 --time=10";
        cluster.submit(name, &self.spec(command, more), options, "holdfast run job.yaml")
    }

    /// Runs it in another allocation, in the same directory; returns the output.
    fn again(self, job: &Job<'_>, command: &[&str]) -> String {
        let spec = self.spec(command, "");
        let script = format!(
            "cat >job.yaml <<'END'\n{spec}END\n\
             salloc --no-kill --nodes=4 --ntasks-per-node=2 --time=10 holdfast run job.yaml 2>&1; echo \"exit code $?\""
        );
        let output = job.run(&script);
        assert!(output.contains("exit code 0"), "{output}");
        output
    }

    /// The start of a command that runs so many ranks without Holdfast. On one node, that none of these tests removes,
    /// and without TCP: Open MPI 4.1 over TCP crashes in MPI_Init at times (docs/mpirun.md), and nothing launches it
    /// again here.
    fn srun_alone(self, ranks: u32) -> String {
        let options = "--nodelist=n6 --nodes=1 --overcommit";
        format!("env OMPI_MCA_btl=self,vader srun {options} --ntasks={ranks} --mpi={}", self.plugin)
    }

    /// The first item of the output of the same program without checkpoints and failures.
    fn undisturbed(self, job: &Job<'_>, command: &[&str], result: &str) -> String {
        let words = command.join(" ");
        // In its own directory, because the program chooses the path of the output.
        let srun = format!("{} {words}", self.srun_alone(6));
        let script =
            format!("mkdir -p alone && cd alone; rm -f {result}; {}; cat {result}", switched_off(&srun, result));
        let output = job.run(&script);
        let line = output.lines().find(|line| line.contains(" ranks from ")).unwrap_or_else(|| panic!("{output}"));
        assert!(line.contains(" 6 ranks from 0 -"), "{output}");
        line.split(' ').next().unwrap().to_owned()
    }
}

/// A shell's line that runs a program without checkpoints until it has written its result, which it does when all ranks
/// have done everything else. MPICH of Debian 12 may then hang in its MPI_Finalize, under any launcher.
fn switched_off(srun: &str, result: &str) -> String {
    format!(
        "SCR_ENABLE=0 timeout 240 {srun} & program=$!; \
         until grep -qs ' ranks from ' {result} || ! kill -0 $program 2>/dev/null; do sleep 0.1; done; \
         timeout 2 tail --pid=$program -f /dev/null || kill $program; wait $program"
    )
}

/// The output of rank 0: the hash, the step that it restarted from, and that checkpoint's name.
fn result(job: &Job<'_>, file: &str) -> (String, u32, String) {
    let text = job.run(&format!("cat {file}"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let [hash, "6", "ranks", "from", step, name] = words[..] else { panic!("{text}") };
    (hash.to_owned(), step.parse().unwrap(), name.to_owned())
}

/// The names of the datasets whose files are on the prefix, and of those which the index has; sorted.
fn named(job: &Job<'_>) -> (Vec<String>, Vec<String>) {
    let listed = job.run("holdfast index list --json --prefix heat-run");
    let index: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let known: Vec<&str> =
        index["checkpoints"].as_array().unwrap().iter().map(|entry| entry["directory"].as_str().unwrap()).collect();
    let (mut files, mut indexed) = (Vec::new(), Vec::new());
    for record in job.run("ls -d heat-run/*/dataset.holdfast").lines() {
        let document: serde_json::Value =
            serde_json::from_str(&job.run(&format!("holdfast inspect --json {record}"))).unwrap();
        let text = document.to_string();
        let name = text.split("\"NAME\":{\"").nth(1).and_then(|rest| rest.split('"').next());
        let name = name.unwrap_or_else(|| panic!("no name in {text}"));
        files.push(name.to_owned());
        if known.iter().any(|directory| record.contains(&format!("/{directory}/"))) {
            indexed.push(name.to_owned());
        }
    }
    files.sort();
    files.dedup();
    indexed.sort();
    indexed.dedup();
    (files, indexed)
}
