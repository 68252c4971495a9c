//! `holdfast init`: the spec that it writes passes `check`, and a run.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::Value;

use crate::world::World;

/// The document of `holdfast init --json` with these arguments; the spec that it wrote passes `check`.
fn init(world: &World, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let with = |words: Vec<&str>| world.run(world.holdfast(words).envs(variables.iter().copied()));
    let written = with([&["init", "--json", "--force"], arguments].concat()).with_code(0).json();
    assert_eq!(written["path"], "job.yaml");
    assert_eq!(written["spec"], fs::read_to_string(world.path("job.yaml")).unwrap());
    with(vec!["check", "job.yaml"]).with_code(0);
    written
}

#[test]
fn the_spec_of_the_example_survives_the_loss_of_a_node(world: &World) {
    let command = ["holdfast", "example", "heat", "--size", "64x64", "--steps", "40", "--checkpoint-every", "5"];
    let command = [&command[..], &["--step-delay", "5ms", "--output", "end.heat"]].concat();
    let ran = world.run(world.holdfast(["init"]).args(&command)).with_code(0);
    ran.prints(&["job.yaml: the spec of job heat", "source    scr", "it is an example of Holdfast"]);
    // The fault that the comment proposes.
    let spec = fs::read_to_string(world.path("job.yaml")).unwrap();
    let with_fault = spec.replace("  # faults:", "  faults:");
    assert_ne!(spec, with_fault);
    world.write("job.yaml", &with_fault.replace("./heat-run", "./pfs"));
    world.run(world.holdfast(["check", "job.yaml"])).with_code(0);
    world.run(world.holdfast(["run", "job.yaml"])).with_code(0).prints(&["the job is finished"]);
    assert_eq!(world.the("node_down")["node"], "node1");
    assert_eq!(world.all("restarted").last().unwrap()["source"], "rebuilt");
    let mut arguments = command[1..].to_vec();
    *arguments.last_mut().unwrap() = "alone.heat";
    world.run(world.holdfast(arguments).env("SCR_ENABLE", "0")).with_code(0);
    assert_eq!(fs::read(world.path("end.heat")).unwrap(), fs::read(world.path("alone.heat")).unwrap());
}

#[test]
fn an_unknown_program_is_run_without_protection_and_the_spec_says_so(world: &World) {
    let script = world.write("work.sh", "#!/bin/sh\necho \"rank $HOLDFAST_RANK did $1\"\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let written = init(world, &["./work.sh", "5"], &[]);
    assert_eq!(
        (&written["source"], &written["manager"], &written["launcher"]),
        (&"none".into(), &"local".into(), &"local".into())
    );
    let spec = written["spec"].as_str().unwrap();
    assert!(spec.contains("nothing is protected") && spec.contains("watch: {files:"), "{spec}");
    world.run(world.holdfast(["run", "job.yaml"])).with_code(0).prints(&["rank 3 did 5", "the job is finished"]);
}

#[test(unchecked)]
fn the_nodes_are_those_of_the_surroundings(world: &World) {
    let slurm = [("SLURM_JOB_ID", "17"), ("SLURM_JOB_NUM_NODES", "6"), ("SLURM_NNODES", "6")];
    let written = init(world, &["true"], &slurm);
    assert_eq!(
        (&written["manager"], &written["nodes"], &written["launcher"]),
        (&"slurm".into(), &5.into(), &"srun".into())
    );
    assert!(written["reasons"]["manager"].as_str().unwrap().contains("of 6 nodes"), "{written}");

    let listed = world.write("nodes", "n1\nn1\nn2\nn3\n");
    let pbs = [("PBS_JOBID", "17.head"), ("PBS_NODEFILE", listed.to_str().unwrap())];
    let written = init(world, &["true"], &pbs);
    assert_eq!(
        (&written["manager"], &written["nodes"], &written["launcher"]),
        (&"pbs".into(), &2.into(), &"mpirun".into())
    );
    assert!(written["spec"].as_str().unwrap().contains("# requeue: {command: [qsub, job.pbs]}"), "{written}");

    let written = init(world, &["true"], &[("LSB_DJOB_HOSTFILE", listed.to_str().unwrap())]);
    assert_eq!((&written["manager"], &written["nodes"]), (&"ssh".into(), &2.into()));
    assert!(written["spec"].as_str().unwrap().contains("hosts: [n1, n2, n3]"), "{written}");

    world.write("hosts", "# two machines\nn1\nn2\n");
    let written = init(world, &["true"], &[]);
    assert_eq!(
        (&written["manager"], &written["launcher"], &written["nodes"]),
        (&"ssh".into(), &"ssh".into(), &1.into())
    );
    assert!(written["spec"].as_str().unwrap().contains("hosts_file: hosts\n"), "{written}");
    // One node is the spare, so that no other one can have redundancy data.
    let written = init(world, &["holdfast", "example", "heat"], &[]);
    assert!(written["spec"].as_str().unwrap().contains("flush: {every: 1}"), "{written}");
}

#[test(unchecked)]
fn a_login_node_of_slurm_is_no_allocation(world: &World) {
    let srun = world.write("srun", "#!/bin/sh\n");
    fs::set_permissions(&srun, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.path("").display());
    let written = init(world, &["true"], &[("PATH", &path)]);
    assert_eq!((&written["manager"], &written["nodes"]), (&"slurm".into(), &Value::Null));
    assert!(written["spec"].as_str().unwrap().contains("salloc"), "{written}");
    // To try it there.
    let written = init(world, &["--local", "true"], &[("PATH", &path)]);
    assert_eq!((&written["manager"], &written["nodes"]), (&"local".into(), &4.into()));
    let refused = world.run(world.holdfast(["init", "--local", "--hosts-file", "hosts", "true"])).with_code(64);
    refused.prints(&["--local", "--hosts-file"]);
}

#[test(unchecked)]
fn a_spec_that_exists_is_not_replaced_without_force(world: &World) {
    world.write("job.yaml", "mine");
    world.run(world.holdfast(["init", "true"])).with_code(69).prints(&["error: job.yaml: the file exists", "--force"]);
    assert_eq!(fs::read_to_string(world.path("job.yaml")).unwrap(), "mine");
    let printed = world.run(world.holdfast(["init", "-o", "-", "--", "true", "-x"])).with_code(0);
    assert!(printed.out.contains("command: ['true', -x]"), "{}", printed.out);
    assert_eq!(fs::read_to_string(world.path("job.yaml")).unwrap(), "mine");
    world.run(world.holdfast(["init", "--force", "true"])).with_code(0);
    assert!(fs::read_to_string(world.path("job.yaml")).unwrap().contains("job: 'true'"));
    let ran = world.run(world.holdfast(["init", "./none"])).with_code(69);
    ran.prints(&["\"./none\" does not exist", "build it first"]);
}

#[test(unchecked)]
fn a_link_in_place_of_the_spec_is_not_followed(world: &World) {
    let other = world.write("other", "theirs");
    symlink(&other, world.path("job.yaml")).unwrap();
    world.run(world.holdfast(["init", "true"])).with_code(69);
    world.run(world.holdfast(["init", "--force", "true"]));
    assert_eq!(fs::read_to_string(other).unwrap(), "theirs");
}
