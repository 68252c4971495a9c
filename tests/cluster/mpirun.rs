//! Runs that mpirun launches, with Open MPI and with MPICH: surviving ranks stay on their nodes, lost nodes are not
//! listed, and nothing is left behind.

use holdfast_testkit::cluster::{Cluster, Job, assert_contains, heat, heat_of, until};

use crate::mpi::world::{self, NODES, expected, homes, nothing_is_left};
use crate::mpi::{BY_HYDRA as MPICH, BY_MPIRUN as OPEN_MPI, Mpi};
use crate::nodes::goes_on_with_fewer_nodes;

fn a_killed_node_is_replaced(mpi: Mpi) {
    let cluster = super::cluster();
    let spec = mpi.launches(&heat(""));
    let job =
        cluster.submit(&format!("mpi-killed-{}", mpi.name), &spec, "--nodes=6 --time=10", "holdfast run job.yaml");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n3");
    let output = job.finish_well();
    assert_contains(&output, &["n3 is down", "node failure: n3", "rebuilt: rank", "moved: rank 2\n"]);
    let files = job.run("cd heat-run/.holdfast/generations/2; cat hosts reach.json; head -c 100000 plan.json");
    assert!(files.contains("n5") && !files.contains("n3"), "the lost node is listed:\n{files}");
    nothing_is_left(&cluster, &["n1", "n2", "n4", "n5", "n6"]);
}

#[test]
fn replaces_killed_node_under_open_mpi() {
    a_killed_node_is_replaced(OPEN_MPI);
}

#[test]
fn replaces_killed_node_under_mpich() {
    a_killed_node_is_replaced(MPICH);
}

fn a_run_goes_on_with_fewer_nodes(mpi: Mpi) {
    let cluster = super::cluster();
    let spec = mpi.launches(&heat("relaunch: {min_nodes: 3}"));
    let name = format!("mpi-fewer-{}", mpi.name);
    let job = cluster.submit(&name, &spec, "--nodelist=n[1-4] --time=10", "holdfast run job.yaml");
    goes_on_with_fewer_nodes(&cluster, &job);
    nothing_is_left(&cluster, &["n1", "n2", "n3"]);
}

#[test]
fn goes_on_with_fewer_nodes_under_open_mpi() {
    a_run_goes_on_with_fewer_nodes(OPEN_MPI);
}

#[test]
fn goes_on_with_fewer_nodes_under_mpich() {
    a_run_goes_on_with_fewer_nodes(MPICH);
}

/// Other users may write to the job's directory, and could exchange there what a launcher opens by name.
fn files_of_the_launcher_are_private(name: &str, spec: &str, files: &[&str]) {
    let cluster = super::cluster();
    let job = cluster.submit(name, spec, "--nodes=6 --time=10", "chmod 777 . && holdfast run job.yaml");
    job.wait_for("checkpoint 1 protected");
    let private = cluster.on("n1", "ls -ld /tmp/holdfast-launch-*; ls /tmp/holdfast-launch-*");
    assert!(private.starts_with("drwx------") && private.contains(" user1 "), "{private}");
    assert!(files.iter().all(|file| private.contains(file)), "{private}");
    let output = job.finish_well();
    assert!(!output.contains("generation 2"), "{output}");
    let public = job.run("ls heat-run/.holdfast/generations/1");
    assert!(public.contains("plan.json") && !files.iter().any(|file| public.contains(file)), "{public}");
    assert!(!cluster.on("n1", "ls /tmp").contains("holdfast-launch-"), "it is removed");
}

#[test]
fn files_for_mpirun_are_private_if_others_may_write_to_the_prefix() {
    files_of_the_launcher_are_private("shared-open-mpi", &OPEN_MPI.launches(&heat("")), &["hosts"]);
    let of_mpich = ["hosts", "holdfast-remote-shell"];
    files_of_the_launcher_are_private("shared-mpich", &MPICH.launches(&heat("")), &of_mpich);
}

#[test]
fn host_file_for_srun_is_private_if_others_may_write_to_the_prefix() {
    files_of_the_launcher_are_private("shared-srun", &heat(""), &["hosts"]);
}

fn the_first_node_of_the_run_is_replaced(mpi: Mpi) {
    let cluster = super::cluster();
    let name = format!("mpi-first-{}", mpi.name);
    let job = cluster.interactive(&name, &mpi.launches(&heat("")), "--nodes=6 --time=10");
    job.wait_for("checkpoint 3 protected");
    cluster.docker("kill", "n1");
    let output = job.finish_well();
    assert!(output.contains("node failure: n1") && output.contains("moved: rank 0\n"), "{output}");
    nothing_is_left(&cluster, &["ctl", "n2", "n3", "n4", "n5", "n6"]);
}

#[test]
fn replaces_first_node_of_run_under_open_mpi() {
    the_first_node_of_the_run_is_replaced(OPEN_MPI);
}

#[test]
fn replaces_first_node_of_run_under_mpich() {
    the_first_node_of_the_run_is_replaced(MPICH);
}

/// Before and after the loss, the ranks form one world of the right size; survivors stay on their nodes.
fn ranks_are_one_world_and_survivors_stay(cluster: &Cluster, job: &Job<'_>) {
    until("the first world", || homes(&job.output(), 1).len() == 6);
    assert_eq!(homes(&job.output(), 1), expected(["n1", "n1", "n2", "n2", "n3", "n3"]));
    cluster.docker("kill", "n2");
    let output = job.finish_with(0);
    assert!(output.contains("node failure: n2"), "{output}");
    assert_eq!(homes(&output, 2), expected(["n1", "n1", "n4", "n4", "n3", "n3"]), "{output}");
    nothing_is_left(cluster, &["ctl", "n1", "n3", "n4", "n5"]);
}

#[test(crate::cluster)]
fn ranks_form_one_world_and_survivors_stay_under_open_mpi(cluster: &Cluster) {
    ranks_are_one_world_and_survivors_stay(cluster, &world::submit(OPEN_MPI, cluster, "mpi-world", ", forever", 5));
}

#[test(crate::cluster)]
fn ranks_form_one_world_and_survivors_stay_under_mpich(cluster: &Cluster) {
    ranks_are_one_world_and_survivors_stay(cluster, &world::submit(MPICH, cluster, "mpi-world", ", forever", 5));
}

#[test(crate::cluster)]
fn ranks_form_one_world_and_survivors_stay_under_open_mpi_over_ssh(cluster: &Cluster) {
    ranks_are_one_world_and_survivors_stay(cluster, &world::over_ssh(OPEN_MPI, cluster, "mpi-ssh", ", forever"));
}

#[test(crate::cluster)]
fn ranks_form_one_world_and_survivors_stay_under_mpich_over_ssh(cluster: &Cluster) {
    ranks_are_one_world_and_survivors_stay(cluster, &world::over_ssh(MPICH, cluster, "mpi-ssh", ", forever"));
}

/// Rank 0 receives standard input, the others read its end, and each line of the output is labelled with its rank's
/// number.
fn lines_and_input(mpi: Mpi) {
    let cluster = super::cluster();
    let spec = "job: echo\nprefix: ./heat-run\nallocation: {manager: slurm}\n\
                run:\n  nodes: 2\n  ranks_per_node: 2\n  command: [sh, -c, 'read word; echo \"$HOLDFAST_RANK received \
                $word.\"; echo oops >&2']\n";
    let work = "echo hello | holdfast --verbose run job.yaml";
    let options = "--nodes=2 --ntasks-per-node=2 --time=10";
    let job = cluster.submit(&format!("mpi-input-{}", mpi.name), &mpi.launches(spec), options, work);
    let output = job.finish_with(0);
    for rank in 0..4 {
        let word = if rank == 0 { "hello" } else { "" };
        assert!(output.contains(&format!("[{rank}] {rank} received {word}.")), "rank {rank}:\n{output}");
        assert!(output.contains(&format!("[{rank}] oops")), "rank {rank}:\n{output}");
    }
    assert!(!output.contains("@holdfast-rank"), "{output}");
}

#[test]
fn labels_lines_and_passes_input_to_rank_0_under_open_mpi() {
    lines_and_input(OPEN_MPI);
}

#[test]
fn labels_lines_and_passes_input_to_rank_0_under_mpich() {
    lines_and_input(MPICH);
}

#[test(crate::cluster)]
fn shows_error_of_mpirun_about_its_options(cluster: &Cluster) {
    for mpi in [OPEN_MPI, MPICH] {
        let options = "run:\n  launcher_options: [--no-such-option]\n";
        let spec = mpi.launches(&heat("relaunch: {attempts: 0}").replace("run:\n", options));
        let name = format!("mpi-options-{}", mpi.name);
        let job = cluster.submit(&name, &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
        let (output, code) = job.finish();
        assert_ne!(code, 0, "{output}");
        assert!(output.contains("no-such-option"), "{output}");
        nothing_is_left(cluster, &NODES);
    }
}

#[test(crate::cluster)]
fn reports_missing_or_unknown_mpirun_before_agents_start(cluster: &Cluster) {
    let table = [("/no/such/mpirun", "/no/such/mpirun"), ("/bin/echo", "Open MPI 3, 4 and 5")];
    for (program, expected) in table {
        let keys = format!("run:\n  launcher: mpirun\n  launcher_program: {program}\n");
        let spec = heat("").replace("run:\n", &keys);
        let job = cluster.submit("mpi-missing", &spec, "--nodes=4 --time=10", "holdfast run job.yaml");
        let output = job.finish_with(69);
        assert!(output.contains(expected) && output.contains("launcher_program"), "{output}");
        assert!(!output.contains("generation 1"), "{output}");
    }
}

#[test(crate::cluster)]
fn signal_ends_run_and_its_daemons(cluster: &Cluster) {
    for mpi in [OPEN_MPI, MPICH] {
        let spec = mpi.launches(&heat_of(&["--steps", "5000"], ""));
        let work =
            "holdfast run job.yaml & wait_for=$!\ntrap 'kill -TERM $wait_for' TERM\nwait $wait_for; wait $wait_for";
        let job = cluster.submit(&format!("mpi-signal-{}", mpi.name), &spec, "--nodes=5 --time=10", work);
        job.wait_for("checkpoint 2 protected");
        cluster.on("ctl", &format!("scancel --batch --signal=TERM {}", job.id));
        job.finish_with(75);
        nothing_is_left(cluster, &NODES);
    }
}

#[test(crate::cluster)]
fn unreachable_node_of_remote_shell_fails_launch_at_once(cluster: &Cluster) {
    for mpi in [OPEN_MPI, MPICH] {
        // The step of n2's daemon cannot be created: the first `srun` in PATH rejects that node.
        let refusing = "mkdir -p bin; cat >bin/srun <<'EOF'\n#!/bin/sh\ncase \"$*\" in *holdfast-mpi*nodelist=n2*) \
                        echo 'srun: error: no way to n2' >&2; exit 1;; esac\nexec /usr/bin/srun \"$@\"\nEOF\n\
                        chmod +x bin/srun; export PATH=$PWD/bin:$PATH\n";
        let spec = mpi.launches(&heat("relaunch: {attempts: 1}"));
        let work = format!("{refusing}holdfast run job.yaml");
        let job =
            cluster.submit(&format!("mpi-unreachable-{}", mpi.name), &spec, "--nodelist=n1,n2,n3,n4 --time=10", &work);
        let (output, code) = job.finish();
        assert_ne!(code, 0, "{output}");
        assert!(output.contains("node n2 did not start"), "{output}");
        nothing_is_left(cluster, &NODES);
    }
}
