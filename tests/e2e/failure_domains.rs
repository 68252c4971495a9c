//! Failure domains: nodes that are lost together hold no two members of a set, and spares keep it so.

use std::fs;

use serde_json::{Value, json};

use crate::job::Job;
use crate::losses::{self, run_with_losses};
use crate::pages::{run_example, status_of_example};
use crate::world::World;

const RACKS: &str = "racks: {a: \"node[0-1]\", b: \"node[2-3]\", c: \"node[4-5]\"}";

/// Runs a job on four of six nodes, which loses these nodes at once; returns how it restarted.
fn losing(world: &World, job: Job<'_>, nodes: &[u32]) -> Value {
    run_with_losses(&losses::losing(job.holding_after(5), nodes, 5), world, nodes)
}

/// The nodes with ranks of the generations.
fn placed(world: &World) -> Vec<Value> {
    world.all("generation_placed").into_iter().map(|event| event["nodes"].clone()).collect()
}

#[test(unchecked)]
fn the_loss_of_a_rack_is_survived_where_racks_are_failure_domains(world: &World) {
    let restarted = losing(world, Job::new(world, 2).allocation(RACKS), &[0, 1]);
    assert_eq!((&restarted["source"], &restarted["rebuilt"]), (&json!("rebuilt"), &json!([0, 1])), "{restarted}");
    assert_eq!(placed(world)[0], json!(["node0", "node1", "node2", "node4"]));
    let domains = world.the("failure_domains");
    assert_eq!((&domains["kind"], &domains["number"], &domains["without"]), (&json!("rack"), &json!(3), &json!([])));
}

/// What is survived above is due to the key.
#[test(unchecked)]
fn the_loss_of_two_nodes_is_not_survived_where_nodes_are_failure_domains(world: &World) {
    let restarted = losing(world, Job::new(world, 2).allocation("failure_domain: node"), &[0, 1]);
    assert_eq!(restarted["source"], "fresh", "{restarted}");
    assert!(world.all("failure_domains").is_empty());
}

#[test(unchecked)]
fn a_spare_of_the_same_rack_takes_the_ranks_of_a_lost_node(world: &World) {
    fs::write(world.path("racks"), "# rack hosts\na node[0,4]\nb node[1-3]\na node5 # the other row\n").unwrap();
    let mut job = Job::new(world, 2).allocation("racks_file: racks");
    job.on = 2;
    let restarted = losing(world, job, &[0]);
    assert_eq!(restarted["source"], "rebuilt", "{restarted}");
    assert_eq!(placed(world), [json!(["node0", "node1"]), json!(["node1", "node4"])]);
}

#[test(unchecked)]
fn nodes_in_no_rack_are_named(world: &World) {
    let job = Job::new(world, 0).allocation("racks: {a: \"node[0-1]\", b: node2}");
    job.run(0).prints(&["warning: failure domains: 2 racks; in none, and each one of its own: node3"]);
}

#[test(unchecked)]
fn a_manager_without_switches_refuses_a_topology(world: &World) {
    let job = Job::new(world, 0).allocation("failure_domain: topology");
    job.run(78).prints(&["allocation.failure_domain: this manager knows no switches"]);
}

#[test(unchecked)]
fn with_too_few_racks_sets_avoid_common_nodes_and_a_notice_has_the_reason(world: &World) {
    let job = Job::new(world, 2).allocation("racks: {a: \"node[0-4]\", b: node5}");
    let restarted = losing(world, job, &[1]);
    assert_eq!((&restarted["source"], &restarted["rebuilt"]), (&json!("rebuilt"), &json!([1])), "{restarted}");
    let notices: Vec<String> = world.all("notice").iter().map(|event| event["message"].to_string()).collect();
    assert!(notices.iter().any(|message| message.contains("in too few failure domains for XOR")), "{notices:?}");
}

#[test(unchecked)]
fn what_sets_survive_is_shown_before_a_run(world: &World) {
    let explained = |allocation: &str, redundancy: &str| {
        let job = Job::new(world, 4).allocation(allocation).redundancy(redundancy);
        let shown = job.command(&["check", "--explain"], 0);
        job.command(&["run", "--dry-run"], 0).prints(&["survives the loss of any"]);
        shown.out.lines().find(|line| line.starts_with("checkpoint.redundancy: ")).unwrap().to_owned()
    };
    let racks = "racks: {a: \"node[0-3]\", b: \"node[4-7]\"}";
    let of_xor = explained(racks, "[{scheme: xor, set_size: 4}]");
    assert_eq!(of_xor, "checkpoint.redundancy: xor survives the loss of any 1 node, any 1 rack");
    let of_rs = explained(racks, "[{scheme: rs, set_size: 4, failures: 2}]");
    assert_eq!(of_rs, "checkpoint.redundancy: rs survives the loss of any 2 nodes, any 1 rack");
    let alone = explained("failure_domain: node", "[{scheme: rs, set_size: 4, failures: 2}]");
    assert_eq!(alone, "checkpoint.redundancy: rs survives the loss of any 2 nodes");
}

#[test(unchecked)]
fn keys_that_contradict_each_other_are_refused(world: &World) {
    fs::write(world.path("racks"), "a node[0-1] b\n").unwrap();
    for (keys, mistake) in [
        (&["failure_domain: rack"][..], "`failure_domain: rack` needs `racks` or `racks_file`"),
        (&["failure_domain: node", "racks: {a: node0}"], "`racks` has no effect with this `failure_domain`"),
        (&["racks: {a: \"node[0-1]\", b: node1}"], "node1 is in the racks `a` and `b`"),
        (&["racks: {a: \"node[\"}"], "rack `a`: `node[` is no host list"),
        (&["racks_file: racks"], "line 1 of "),
        (&["racks_file: other"], "cannot be read"),
    ] {
        let job = keys.iter().fold(Job::new(world, 0), |job, line| job.allocation(line));
        job.command(&["check"], 78).prints(&[mistake]);
    }
}

#[test]
fn example_of_the_page_loses_a_rack_and_continues(world: &World) {
    let events = run_example(world, "failure-domains.md");
    let last = events.iter().rfind(|event| event["event"] == "restarted").unwrap();
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(2), &json!([0, 1])), "{last}");
    let (text, status) = status_of_example(world);
    assert_eq!(status["failure_domains"]["kind"], "rack", "{status}");
    let number = &status["failure_domains"]["number"];
    assert!(text.contains(&format!("failure domains: {number} racks")), "{text}");
}

#[test(unchecked)]
fn what_sets_survive_is_in_the_json_of_the_explanation(world: &World) {
    let job = Job::new(world, 4).allocation("racks: {a: \"node[0-3]\", b: \"node[4-7]\"}");
    let shown = job.command(&["check", "--explain", "--json"], 0).json();
    let level = &shown["levels"].as_object().unwrap().values().next().unwrap()[0];
    let survived = (&level["scheme"], &level["survived_nodes"], &level["survived_domains"], &level["domain"]);
    assert_eq!(survived, (&json!("xor"), &json!(1), &json!(1), &json!("rack")));
}
