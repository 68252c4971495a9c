//! Steps that run side by side in one allocation of Slurm, on nodes of their own.

use holdfast_testkit::cluster::{Cluster, assert_contains};

#[test(crate::cluster)]
fn steps_side_by_side_go_on_when_one_of_them_loses_a_node(cluster: &Cluster) {
    let heat = "holdfast, example, heat, --steps, '400', --size, 64x64, --checkpoint-every, '50', --output";
    let spec = format!(
        "job: ensemble\nprefix: ./heat-run\nallocation: {{manager: slurm, faults: [{{step: member-2, node: 2, \
         after_checkpoint: 2}}]}}\nsteps:\n- name: member\n  each: [1, 2]\n  run: {{nodes: 2, command: [{heat}, \
         'member.{{each}}']}}\n- name: sum\n  run: {{nodes: 1, command: [sh, -c, 'cmp member.1 member.2 && echo same \
         on $SLURMD_NODENAME']}}\n  checkpoint: {{source: none}}\n"
    );
    let job =
        cluster.submit("beside", &spec, "--nodes=5 --time=10", "holdfast -v run --allow-faults=ensemble job.yaml");
    let output = job.finish_with(0);
    assert_contains(&output, &["member-1: ", "member-2: the job lends this step n", "all 3 steps are finished"]);
    assert!(output.contains("[sum 0] same on n") || output.contains("[0] same on n"), "{output}");
    // Both ran at the same time, and the loss of a node of one has not disturbed the other.
    let events = |member: u32, name: &str| {
        let log = job.run(&format!("cat heat-run/member-{member}/.holdfast/events.jsonl"));
        log.lines()
            .filter(|line| line.contains(&format!("\"event\":\"{name}\"")))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!((events(1, "generation_launched").len(), events(2, "generation_launched").len()), (1, 2), "{output}");
    let restarted = events(2, "restarted").pop().unwrap();
    assert!(restarted.contains("\"source\":\"rebuilt\""), "{restarted}");
    job.assert_nothing_left_on(&["n1", "n2", "n3", "n4", "n5"]);
}
