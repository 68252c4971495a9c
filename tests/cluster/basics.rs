//! Without failures: batch jobs, interactive allocations, input and output, and rejected runs.

use holdfast_testkit::cluster::{Cluster, assert_contains, heat, submit_and_wait};

/// The files shown in README.md.
const SPEC: &str = include_str!("../../configs/slurm/job.yaml");
const SCRIPT: &str = include_str!("../../configs/slurm/job.sbatch");

#[test(crate::cluster)]
fn the_batch_script_of_the_manual_runs_to_its_end(cluster: &Cluster) {
    let files = [("job.yaml", SPEC), ("job.sbatch", SCRIPT)];
    let work = format!("{}; cat slurm-*.out", submit_and_wait("job.sbatch"));
    let (output, _) = cluster.as_user("manual", &files, &work);
    assert_contains(&output, &["ExitCode=0\n", "the application is finished", "1 spare"]);
    let listing = cluster
        .on("ctl", "cat /pfs/manual/heat-run/scr.current | head -c 0; ls /pfs/manual/heat-run /pfs/manual/heat.field");
    assert!(listing.contains("index.scr") && listing.contains("heat.field"), "{listing}");
}

#[test(crate::cluster)]
fn interactive_allocation_works_from_machine_outside_of_it(cluster: &Cluster) {
    let job = cluster.interactive("interactive", &heat(""), "--nodes=5 --time=10");
    job.finish_well();
}

#[test(crate::cluster)]
fn leaves_no_agent_and_no_files_on_nodes(cluster: &Cluster) {
    let job = cluster.heat("clean", "");
    job.finish_well();
    job.assert_nothing_left_on(&["n1", "n2", "n5", "n6"]);
}

#[test(crate::cluster)]
fn rejects_run_outside_of_allocation(cluster: &Cluster) {
    let (output, code) = cluster.as_user("outside", &[("job.yaml", &heat(""))], "holdfast run job.yaml");
    assert_eq!(code, 78, "{output}");
    assert!(output.contains("sbatch") && output.contains("SLURM_JOB_ID"), "{output}");
    let (listing, _) = cluster.as_user("outside", &[], "ls -a");
    assert!(!listing.contains("heat-run"), "{listing}");
}

#[test(crate::cluster)]
fn rejects_too_small_allocation_before_start(cluster: &Cluster) {
    let job = cluster.submit("small", &heat(""), "--nodes=2 --time=10", "holdfast run job.yaml");
    let output = job.finish_with(78);
    assert!(output.contains("needs 4 nodes, the allocation has 2") && output.contains("sbatch --nodes"), "{output}");
}

#[test(crate::cluster)]
fn ranks_receive_standard_input_and_output_lines_are_labelled(cluster: &Cluster) {
    let spec = "job: echo\nprefix: ./heat-run\nallocation: {manager: slurm}\n\
                run:\n  nodes: 3\n  ranks_per_node: 2\n  command: [sh, -c, 'read word; \
                echo $SLURM_PROCID received $word on $SLURMD_NODENAME']\n";
    let work = "echo hello | holdfast --verbose run job.yaml";
    let job = cluster.submit("input", spec, "--nodes=3 --ntasks-per-node=2 --time=10", work);
    let output = job.finish_with(0);
    for rank in 0..6 {
        assert!(output.contains(&format!("[{rank}] {rank} received hello on n")), "rank {rank}:\n{output}");
    }
}

/// Two ranks on each of three nodes; the last node has one.
#[test(crate::cluster)]
fn ranks_have_the_variables_of_torchrun(cluster: &Cluster) {
    let spec = "job: group\nprefix: ./heat-run\nallocation: {manager: slurm}\ncheckpoint: {source: none}\n\
                run:\n  launcher: torchrun\n  ranks: 5\n  ranks_per_node: 2\n  launcher_options: [--nice=0]\n  \
                command: [sh, -c, 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE; \
                echo $MASTER_ADDR:$MASTER_PORT on $SLURMD_NODENAME']\n";
    let job = cluster.submit("group", spec, "--nodes=3 --ntasks-per-node=2 --time=10", "holdfast -v run job.yaml");
    let output = job.finish_with(0);
    for (rank, local) in [(0, "0 of 2"), (1, "1 of 2"), (2, "0 of 2"), (3, "1 of 2"), (4, "0 of 1")] {
        assert!(output.contains(&format!("[{rank}] {rank} of 5, {local}\n")), "rank {rank}:\n{output}");
    }
    let of_rank = |rank: u32| {
        let start = format!("[{rank}] ");
        let line = output.lines().find(|line| line.starts_with(&start) && line.contains(" on n")).unwrap();
        line[start.len()..].split_once(" on ").unwrap()
    };
    let (master, node) = of_rank(0);
    assert!((1..5).all(|rank| of_rank(rank).0 == master), "{output}");
    let address = job.run(&format!("getent ahostsv4 {node}"));
    assert!(address.starts_with(master.split(':').next().unwrap()), "{master} is not {node}: {address}");
}

#[test(crate::cluster)]
fn site_commands_run_on_nodes(cluster: &Cluster) {
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
