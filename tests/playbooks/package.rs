//! From the package for Debian to a survived loss of one's own program, with nothing but what the package contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_testkit::cluster::{self, NO_ENGINE};
use holdfast_testkit::harness::ignore;
use holdfast_testkit::pages;
use tempfile::TempDir;

use crate::machines::{IMAGE, checked, gather_artifacts, root, text};

/// Where the user of the container works.
const HOME: &str = "/home/user1/work";

/// A container with compilers and MPI, without Holdfast; removed when dropped.
struct Container {
    name: String,
}

impl Container {
    fn start() -> Container {
        checked(Command::new(root().join("docker/cluster")).arg("image"));
        let container = Container { name: format!("holdfast-package-{}", std::process::id()) };
        let mut run = Command::new("docker");
        run.args(["run", "--detach", "--init", "--name", &container.name, "--hostname", "desk"]);
        checked(run.args(["--entrypoint", "sleep", IMAGE, "infinity"]));
        // The image has a link of the cluster's own tests there.
        container.root("rm /usr/local/bin/holdfast");
        container.user(&format!("mkdir {HOME}"), "/home/user1");
        container
    }

    fn root(&self, command: &str) -> String {
        checked(Command::new("docker").args(["exec", &self.name, "sh", "-ec", command]))
    }

    /// What a command prints, as a user who works in this directory; it must succeed.
    fn user(&self, command: &str, directory: &str) -> String {
        let mut docker = Command::new("docker");
        docker.args([
            "exec",
            "--user",
            "user1",
            "--workdir",
            directory,
            "--env",
            "HOLDFAST=/usr",
            "--env",
            "USER=user1",
        ]);
        // By default, Open MPI does not start more ranks than there are processors.
        docker.args(["--env", "OMPI_MCA_rmaps_base_oversubscribe=1"]);
        docker.args(["--env", "HOME=/home/user1", &self.name, "bash", "-euo", "pipefail", "-c", command]);
        let ran = docker.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{command}\n{}", text(&ran));
        text(&ran)
    }

    fn copy(&self, from: &Path, to: &str) {
        checked(Command::new("docker").arg("cp").arg(from).arg(format!("{}:{to}", self.name)));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rm", "--force", &self.name]).output();
    }
}

/// The files of the system below these directories.
const FILES: &str = "find /usr /etc /opt /var/lib -not -path '/var/lib/dpkg/*' -not -name 'ld.so.cache' \
                     -not -name aux-cache -printf '%p %y\\n' | sort";

/// The package of this build.
fn package(scratch: &TempDir) -> PathBuf {
    let artifacts = scratch.path().join("artifacts");
    gather_artifacts(&artifacts);
    let mut package = Command::new(root().join("packaging/deb"));
    checked(package.arg(&artifacts).arg(scratch.path()).env("HOLDFAST_QUICK_PACKAGE", "1"));
    fs::remove_dir_all(artifacts).unwrap();
    let mut files = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|name| name == "deb")).unwrap()
}

/// The only line that begins so; it is in the output more than once.
#[track_caller]
fn same<'a>(outputs: &'a [String], start: &str) -> &'a str {
    let mut lines: Vec<&str> = outputs.iter().flat_map(|output| output.lines()).collect();
    lines.retain(|line| line.starts_with(start));
    assert!(lines.len() > 1 && lines.iter().all(|line| *line == lines[0]), "{start}: {outputs:?}");
    lines[0]
}

#[test]
fn from_the_package_for_debian_to_survived_losses_of_ones_own_programs() {
    if !cluster::is_engine_reachable() {
        ignore(NO_ENGINE);
    }
    let scratch = TempDir::new().unwrap();
    let package = package(&scratch);
    let container = Container::start();
    let before = container.root(FILES);
    container.copy(&package, "/tmp/holdfast.deb");
    container.root("dpkg --install /tmp/holdfast.deb");
    // Every library of the package is found by the loader under the name that programs look for.
    for library in fs::read_dir(root().join("packaging/abi")).unwrap() {
        let library = library.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        container.root(&format!("ldconfig -p | grep -F {library}"));
    }

    // What a new user does, with the pages of the package: the first job, a program with MPI, README's programs.
    let page = |name: &str| container.user(&format!("cat /usr/share/doc/holdfast/{name}"), "/");
    let carry_out = |text: &str| {
        let write = |file: &str, content: &str| {
            let local = scratch.path().join("file");
            fs::write(&local, format!("{content}\n")).unwrap();
            container.copy(&local, &format!("{HOME}/{file}"));
        };
        pages::carry_out(text, write, |commands| container.user(commands, HOME))
    };
    same(&carry_out(&page("docs/tutorials/first-job.md")), "heat: finished step 400, checksum ");
    same(&carry_out(&page("docs/tutorials/c.md")), "4 ranks, 1000 steps: ");
    let readme = page("README.md");
    let (_, programs) = readme.split_once("\n## In a program\n").unwrap();
    let (programs, _) = programs.split_once("\n## ").unwrap();
    let printed = carry_out(programs);
    for (language, sum) in [("C", "44850"), ("Fortran", "44850."), ("Python", "44850")] {
        assert_eq!(same(&printed, &format!("{language}: ")), format!("{language}: {sum}"));
    }
    // The second checkpoint of variables may be of a level that does not survive the loss of a node, and on a busy
    // machine the next one may be complete before the node is gone.
    let relaunched = |line: &&str| line.starts_with("  generation 2: from checkpoint ");
    let generations = |line: &&str| line.starts_with("  generation ") || line.starts_with("  fault");
    let lines: Vec<&str> = printed.iter().flat_map(|output| output.lines()).filter(generations).collect();
    assert_eq!(lines.iter().copied().filter(|line| relaunched(line)).count(), 3, "{lines:#?}");

    container.root("dpkg --remove holdfast");
    assert_eq!(container.root(FILES), before);
}

/// An image that is removed when dropped.
struct Image(String);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "--force", &self.0]).output();
    }
}

#[test]
fn the_image_for_users_runs_jobs_as_a_user_without_rights() {
    if !cluster::is_engine_reachable() {
        ignore(NO_ENGINE);
    }
    let scratch = TempDir::new().unwrap();
    let image = Image(format!("holdfast-user:test-{}", std::process::id()));
    let archive = scratch.path().join("image.tar");
    checked(
        Command::new(root().join("docker/image")).arg("--archive").arg(&archive).arg(package(&scratch)).arg(&image.0),
    );
    // What others get is the archive.
    checked(Command::new("docker").args(["rmi", &image.0]));
    checked(Command::new("docker").arg("load").arg("--input").arg(&archive));
    let run = |arguments: &[&str]| checked(Command::new("docker").args(["run", "--rm"]).args(arguments));
    assert_eq!(run(&[&image.0, "--version"]), format!("holdfast {}\n", env!("CARGO_PKG_VERSION")));
    let quickstart = "id -u; cp -r /usr/share/holdfast/configs . && holdfast run configs/quickstart.yaml 2>&1";
    let printed = run(&["--entrypoint", "sh", &image.0, "-c", quickstart]);
    assert!(printed.starts_with("1000\n") && printed.contains("the job is finished"), "{printed}");
}
