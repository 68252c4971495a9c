//! Without failures: batch jobs, interactive allocations, input and output, and rejected runs.

use holdfast_testkit::cluster::{heat, submit_and_wait};

/// The files shown in README.md.
const SPEC: &str = include_str!("../../configs/slurm/job.yaml");
const SCRIPT: &str = include_str!("../../configs/slurm/job.sbatch");

#[test]
fn the_batch_script_of_the_manual_runs_to_its_end() {
    let cluster = super::cluster();
    let files = [("job.yaml", SPEC), ("job.sbatch", SCRIPT)];
    let work = format!("{}; cat slurm-*.out", submit_and_wait("job.sbatch"));
    let (output, _) = cluster.as_user("manual", &files, &work);
    assert!(output.contains("ExitCode=0\n"), "{output}");
    assert!(output.contains("the application is finished"), "{output}");
    assert!(output.contains("1 spare"), "{output}");
    let listing = cluster
        .on("ctl", "cat /pfs/manual/heat-run/scr.current | head -c 0; ls /pfs/manual/heat-run /pfs/manual/heat.field");
    assert!(listing.contains("index.scr") && listing.contains("heat.field"), "{listing}");
}

#[test]
fn interactive_allocation_works_from_machine_outside_of_it() {
    let cluster = super::cluster();
    let job = cluster.interactive("interactive", &heat(""), "--nodes=5 --time=10");
    job.finish_well();
}

#[test]
fn leaves_no_agent_and_no_files_on_nodes() {
    let cluster = super::cluster();
    let job = cluster.heat("clean", "");
    job.finish_well();
    job.assert_nothing_left_on(&["n1", "n2", "n5", "n6"]);
}

#[test]
fn rejects_run_outside_of_allocation() {
    let cluster = super::cluster();
    let (output, code) = cluster.as_user("outside", &[("job.yaml", &heat(""))], "holdfast run job.yaml");
    assert_eq!(code, 78, "{output}");
    assert!(output.contains("sbatch") && output.contains("SLURM_JOB_ID"), "{output}");
    let (listing, _) = cluster.as_user("outside", &[], "ls -a");
    assert!(!listing.contains("heat-run"), "{listing}");
}

#[test]
fn rejects_too_small_allocation_before_start() {
    let cluster = super::cluster();
    let job = cluster.submit("small", &heat(""), "--nodes=2 --time=10", "holdfast run job.yaml");
    let (output, code) = job.finish();
    assert_eq!(code, 78, "{output}");
    assert!(output.contains("needs 4 nodes, the allocation has 2") && output.contains("sbatch --nodes"), "{output}");
}

#[test]
fn ranks_receive_standard_input_and_output_lines_are_labelled() {
    let cluster = super::cluster();
    let spec = "job: echo\nprefix: ./heat-run\nallocation: {manager: slurm}\n\
                run:\n  nodes: 3\n  ranks_per_node: 2\n  command: [sh, -c, 'read word; \
                echo $SLURM_PROCID received $word on $SLURMD_NODENAME']\n";
    let work = "echo hello | holdfast --verbose run job.yaml";
    let job = cluster.submit("input", spec, "--nodes=3 --ntasks-per-node=2 --time=10", work);
    let (output, code) = job.finish();
    assert_eq!(code, 0, "{output}");
    for rank in 0..6 {
        assert!(output.contains(&format!("[{rank}] {rank} received hello on n")), "rank {rank}:\n{output}");
    }
}

#[test]
fn site_commands_run_on_nodes() {
    let cluster = super::cluster();
    let before = "before:\n  - {command: [sh, -c, 'hostname >>$HOLDFAST_PREFIX/been'], on: all}\n";
    let job = cluster.submit("site", &heat(before), "--nodes=4 --time=10", "holdfast run job.yaml");
    job.finish_well();
    let mut been: Vec<String> = job.run("cat heat-run/been").lines().map(str::to_owned).collect();
    been.sort();
    let mut nodes: Vec<String> = job
        .run(&format!("scontrol show hostnames $(squeue -h -t all -j {} -o %N)", job.id))
        .lines()
        .map(str::to_owned)
        .collect();
    nodes.sort();
    assert_eq!(been, nodes);
}
