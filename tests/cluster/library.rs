//! Unchanged applications of LLNL's library, with the program of [`crate::library_program`] on the nodes of Slurm:
//! under `holdfast run`, and started by a batch script without Holdfast.

use holdfast_testkit::cluster::{Cluster, Job, assert_contains, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::OWN_PROGRAM as PROGRAM;
use crate::library_program::content;

/// Submits four ranks on as many nodes under `holdfast run`. `flush` and `hold`: see the program and the spec.
fn submit<'a>(cluster: &'a Cluster, name: &str, nodes: u32, hold: &str, flush: &str) -> Job<'a> {
    let spec = format!(
        "job: library\nprefix: ./heat-run\nallocation: {{manager: slurm}}\n\
         run:\n  nodes: 4\n  command: [{PROGRAM}]\n  \
         env: {{SCR_TEST_MEETING: /pfs/{name}/meeting, SCR_TEST_CHECKPOINTS: '6', SCR_TEST_HOLD: '{hold}'}}\n\
         checkpoint: {{source: scr-files, redundancy: [{{scheme: partner}}], flush: {flush}}}\n\
         relaunch: {{no_progress_limit: 1}}\n"
    );
    cluster.submit(name, &spec, &format!("--nodes={nodes} --time=10"), "mkdir meeting && holdfast run job.yaml")
}

/// The values of a key in all events with this name.
fn values(job: &Job<'_>, event: &str, key: &str) -> Vec<Value> {
    job.events().iter().filter(|found| found["event"] == event).map(|found| found[key].clone()).collect()
}

/// The files of a checkpoint in this directory below the prefix have the bytes that the ranks wrote.
fn assert_content(job: &Job<'_>, directory: &str, checkpoint: u64) {
    for rank in 0..4 {
        let digest = Sha256::digest(content(checkpoint, rank));
        let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let found = job.run(&format!("sha256sum heat-run/{directory}/rank_{rank}.ckpt"));
        assert!(found.starts_with(&expected), "rank {rank}: {found}");
    }
}

/// The checkpoint was drained: it is complete in the index, and current.
fn assert_drained(job: &Job<'_>, checkpoint: u64) {
    let listed = job.run("holdfast index list --json --prefix heat-run");
    let index: Value = serde_json::from_str(&listed).unwrap();
    let of_id = |entry: &&Value| entry["id"] == checkpoint;
    let entry = index["checkpoints"].as_array().unwrap().iter().find(of_id).unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(entry["complete"], json!(true), "{listed}");
    let directory = job.run("readlink heat-run/scr.current");
    assert_eq!(entry["directory"], directory.trim(), "{listed}");
    assert!(directory.trim().ends_with(&format!(".{}.{checkpoint}", job.id)), "{directory}");
    assert_content(job, "scr.current", checkpoint);
}

/// Waits until all ranks hold after this checkpoint.
fn wait_for_hold(job: &Job<'_>, checkpoint: u64) {
    let listing = format!("ls meeting/1 | grep -c '^holds.{checkpoint}\\.'");
    until("the ranks that hold", || job.run(&listing).trim() == "4");
}

#[test(crate::cluster_with_own_program)]
fn job_of_the_library_survives_two_node_losses_and_its_last_checkpoint_is_drained(cluster: &Cluster) {
    let job = submit(cluster, "library-losses", 6, "2,4", "{every: 0}");
    job.wait_for("checkpoint 2 complete");
    cluster.docker("kill", "n3");
    job.wait_for("checkpoint 4 complete");
    cluster.docker("kill", "n2");
    let output = job.finish_with(0);
    assert!(output.contains("node failure: n3") && output.contains("node failure: n2"), "{output}");
    let restarted = values(&job, "restarted", "checkpoint");
    assert_eq!(restarted[restarted.len() - 2..], [json!(2), json!(4)], "{output}");
    assert_eq!(values(&job, "generation_ended", "without_progress"), [0, 0, 0], "{output}");
    // The ranks found those checkpoints in the caches of the survivors, among them copies of the lost nodes' files.
    let found = job.run("cat meeting/2/restarted.2; echo; cat meeting/3/restarted.1");
    assert_eq!(found.split_whitespace().collect::<Vec<_>>(), ["2", "4"]);
    assert_drained(&job, 6);
    job.assert_nothing_left_on(&["n1", "n4", "n5", "n6"]);
}

#[test(crate::cluster_with_own_program)]
fn agents_on_the_nodes_serve_the_transfer_file_of_the_library(cluster: &Cluster) {
    let job = submit(cluster, "library-flush", 4, "", "{every: 2, mode: async}");
    let output = job.finish_with(0);
    assert!(values(&job, "flushed", "checkpoint").contains(&json!(6)), "{output}");
    assert_content(&job, "flushed.6", 6);
    // The flush files list it in the prefix directory: nothing is left to drain.
    assert_eq!(values(&job, "drain_started", "nodes").len(), 0, "{output}");
}

/// A batch script that starts the program without Holdfast, which waits after checkpoint 3 until it is killed; drains
/// before and after that.
const SCRIPT: &str = "\
export USER=$(id -un) SCR_PREFIX=$PWD/heat-run SCR_COPY_TYPE=PARTNER SCR_FLUSH=0 SCR_CRC_ON_COPY=1
mkdir heat-run meeting
holdfast drain --prefix \"$SCR_PREFIX\"; echo \"before: $?\"
SCR_TEST_MEETING=$PWD/meeting SCR_TEST_CHECKPOINTS=9 SCR_TEST_HOLD=3 \
    srun --nodes=4 --ntasks=4 \"$PROGRAM\" & program=$!
until [ -e killed ]; do kill -0 $program || break; sleep 0.1; done
kill $program; wait $program; echo \"srun: $?\"
holdfast drain --prefix \"$SCR_PREFIX\"; echo \"drain: $?\"
holdfast drain --prefix \"$SCR_PREFIX\"; echo \"again: $?\"
true";

/// [`SCRIPT`] with the program that it starts.
fn script() -> String {
    format!("PROGRAM={PROGRAM}\n{SCRIPT}")
}

/// The end of a job of the script, whose checkpoint 3 was drained.
fn script_is_drained(job: &Job<'_>) -> String {
    let (output, _) = job.finish();
    assert!(output.contains("nothing to drain\nbefore: 0\n"), "{output}");
    assert!(!output.contains("srun: 0\n"), "the program was killed:\n{output}");
    assert_contains(&output, &["checkpoint 3 is complete in scr.", "drain: 0\n", "nothing to drain\nagain: 0\n"]);
    assert_drained(job, 3);
    output
}

/// The nodes that copied files of this rank in a round.
fn copied(job: &Job<'_>, round: u32, rank: u32) -> Vec<Value> {
    let of_round = |event: &&Value| event["event"] == "copied" && event["round"] == round;
    let has_rank = |event: &&Value| event["ranks"].as_array().is_some_and(|ranks| ranks.contains(&json!(rank)));
    job.events().iter().filter(of_round).filter(has_rank).map(|event| event["node"].clone()).collect()
}

#[test(crate::cluster_with_own_program)]
fn drain_in_a_script_without_holdfast_copies_from_all_nodes_and_a_damaged_file_from_the_partner(cluster: &Cluster) {
    let job = cluster.submit("library-script", "", "--nodes=5 --time=10", &script());
    wait_for_hold(&job, 3);
    let file = format!("/tmp/user1/scr.{}/index.0/checkpoint.3/rank_1.ckpt", job.id);
    cluster.on("n2", &format!("printf X | dd of={file} bs=1 seek=500 conv=notrunc 2>/dev/null"));
    job.run("touch killed");
    let output = script_is_drained(&job);
    let first: Vec<Vec<Value>> = (0..4).map(|rank| copied(&job, 1, rank)).collect();
    assert_eq!(first, [vec![json!("n1")], vec![], vec![json!("n3")], vec![json!("n4")]], "{output}");
    assert_eq!(copied(&job, 2, 1), ["n3"], "{output}");
    // Nothing on the nodes is deleted.
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.wait_for_nothing_on(node);
        assert!(cluster.on(node, &format!("ls /tmp/user1/scr.{}/index.0", job.id)).contains("checkpoint.3"), "{node}");
    }
}

#[test(crate::cluster_with_own_program)]
fn drain_in_a_script_without_holdfast_saves_the_files_of_a_lost_node(cluster: &Cluster) {
    let job = cluster.submit("library-lost", "", "--nodes=5 --time=10", &script());
    wait_for_hold(&job, 3);
    cluster.docker("kill", "n3");
    job.run("touch killed");
    let output = script_is_drained(&job);
    assert!(copied(&job, 1, 2).contains(&json!("n4")), "{output}");
}

#[test(crate::cluster)]
fn scr_enable_0_launches_with_srun_once_and_returns_the_exit_code_of_the_program(cluster: &Cluster) {
    let spec = "job: plain\nprefix: ./heat-run\nallocation: {manager: slurm}\n\
                run:\n  nodes: 3\n  ranks_per_node: 2\n  command: [sh, -c, 'echo \"rank $SLURM_PROCID of \
                $SLURM_NTASKS on $SLURMD_NODENAME, $SCR_ENABLE$HOLDFAST_SOCKET\"; exit 7']\n";
    let options = "--nodes=4 --ntasks-per-node=2 --time=10";
    let job = cluster.submit("plain", spec, options, "SCR_ENABLE=0 holdfast run job.yaml");
    let output = job.finish_with(7);
    let mut ranks: Vec<&str> = output.lines().filter(|line| line.contains("rank ")).collect();
    ranks.sort_unstable();
    let expected = (0..6).map(|rank| format!("rank {rank} of 6 on n{}, 0", rank / 2 + 1));
    assert_eq!(ranks, expected.collect::<Vec<_>>(), "{output}");
    assert!(output.contains("warning: SCR_ENABLE=0 (environment)"), "{output}");
    assert_eq!(job.run("ls"), "job.sbatch\njob.yaml\noutput\n", "no state is written");
}
