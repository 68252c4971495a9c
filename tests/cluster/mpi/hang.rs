//! A rank that hangs, while the others spin in an MPI call that waits for it.

use super::{OPEN_MPI, result};
use holdfast_testkit::cluster::Cluster;

#[test(crate::cluster)]
fn hang_of_rank_leaves_stack_and_loses_no_node(cluster: &Cluster) {
    let program = OPEN_MPI.compile_c(cluster);
    let hangs = ["--delay", "20", "--hang-at", "35", "--hang-once", "hung"];
    let command = [&[program.as_str(), "own", "80", "result"], &hangs[..]].concat();
    // Ranks that wait in MPI may seem to compute. Six debuggers at once may overload a small machine: a long limit for
    // agents.
    let job =
        OPEN_MPI.submit(cluster, "hang", &command, "health: {hang_after: 3s, busy_hang_after: 5s, down_after: 15s}");
    let output = job.finish_with(0);
    let hang = job.events().into_iter().find(|event| event["event"] == "hang").unwrap();
    assert!(hang["ranks"].as_array().unwrap().contains(&serde_json::json!(1)), "{hang}");
    // The first one, unless Open MPI crashed in it.
    let hung = hang["generation"].as_u64().unwrap();
    assert!(output.contains(&format!("generation {hung} ended: the application hangs:")), "{output}");
    assert!(
        output.contains(&format!("generation {} on n1 n2 n3,", hung + 1)) && !output.contains("is down"),
        "no node is excluded:\n{output}"
    );
    let stack = job.run(&format!("cat heat-run/.holdfast/generations/{hung}/rank_1.stack"));
    assert!(stack.starts_with(&format!("rank 1 of generation {hung} on n1\n")), "{stack}");
    assert!(stack.contains("waits_for_ever") && stack.contains("in main"), "{stack}");
    let (hash, step, loaded) = result(&job, "result");
    assert_eq!((step, loaded.as_str()), (30, "step.30"));
    let plain = [program.as_str(), "own", "80", "result"];
    assert_eq!(hash, OPEN_MPI.undisturbed(&job, &plain, "result"));
}
