//! Pairs of main and replica on one node (`kind: replicated`): the demonstration of the Fault-tolerant Scheme, copies
//! that are killed and that hang, agents and orchestrators that are killed, and the commands for pairs.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Ran, Running, World, signal};

/// Copies that hang are found in a second, so that a busy machine is no failure.
const HEARTBEAT: &str = "{period: 5ms, misses: 200}";

/// A spec with this element of `pairs`, without its heartbeat, and more keys.
pub fn spec(world: &World, pair: &str, more: &str) -> std::path::PathBuf {
    let text = format!(
        "kind: replicated\njob: vision\nprefix: {}\nallocation: {{manager: local}}\npairs:\n  - {{{pair}, \
         heartbeat: {HEARTBEAT}, checkpoint: {{size: 4KiB}}}}\n{more}",
        world.prefix().display()
    );
    world.write("job.yaml", &text)
}

/// The same with two nodes.
pub fn spec_of_two_nodes(world: &World, pair: &str, more: &str) -> std::path::PathBuf {
    let text = fs::read_to_string(spec(world, pair, more)).unwrap();
    world.write("job.yaml", &text.replace("{manager: local}", "{manager: local, nodes: 2}"))
}

/// One pair, which pauses for ever after each of the three rounds, and whose copies are started again after a second.
fn demonstration(world: &World) -> std::path::PathBuf {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    spec(world, &format!("name: dnn0, {main}, restart: {{first: 1s}}"), "")
}

pub fn run<'a>(world: &'a World, spec: &std::path::Path) -> Running<'a> {
    world.start(world.holdfast(["run".as_ref(), spec.as_os_str()]))
}

/// Waits for the event of a change of a pair.
#[track_caller]
pub fn sees(job: &mut Running<'_>, name: &str, change: &str, side: Option<&str>) -> Value {
    job.sees(&format!("{change} of {name}"), |event| {
        event["event"] == "pair"
            && event["name"] == name
            && event["change"] == change
            && side.is_none_or(|side| event["side"] == side)
    })
}

fn changes(world: &World, change: &str) -> Vec<Value> {
    world.all("pair").into_iter().filter(|event| event["change"] == change).collect()
}

/// What a copy printed.
pub fn printed(world: &World, copy: &str) -> String {
    let path = world.prefix().join(".holdfast/pairs").join(format!("{copy}.log"));
    fs::read_to_string(path).unwrap_or_default()
}

/// Waits until a copy has printed this last line.
#[track_caller]
pub fn waits_for_line(world: &World, copy: &str, line: &str) {
    world.wait(&format!("{line} of {copy}"), || (printed(world, copy).lines().last() == Some(line)).then_some(()));
}

/// `holdfast pairs list --json`.
#[track_caller]
pub fn list(world: &World) -> Value {
    let prefix = world.prefix();
    let command = world.holdfast(["pairs", "list", "--json", "--prefix", prefix.to_str().unwrap()]);
    world.run(command).with_code(0).json()
}

/// Waits for the state of a copy, and returns its process.
#[track_caller]
pub fn waits_for_state(world: &World, pair: usize, side: &str, state: &str) -> u32 {
    world.wait(&format!("{side} {state}"), || {
        let list = list(world);
        let copy = &list["pairs"][pair][side];
        (copy["state"] == state).then(|| u32::try_from(copy["pid"].as_u64().unwrap()).unwrap())
    })
}

/// Waits until the main of the first pair has ended its first round and the replica is asleep; the main's process.
#[track_caller]
pub fn ready(world: &World, name: &str) -> u32 {
    waits_for_line(world, &format!("{name}.main"), "6");
    waits_for_state(world, 0, "replica", "asleep");
    waits_for_state(world, 0, "main", "awake")
}

fn pairs<const N: usize>(world: &World, arguments: [&str; N]) -> Ran {
    let prefix = world.prefix();
    world.run(world.holdfast(["pairs"]).args(arguments).args(["--prefix", prefix.to_str().unwrap()]))
}

/// The last lines of the demonstration, by a pair whose main was killed after its first round.
fn finishes_as_the_document_says(world: &World, job: Running<'_>) {
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "dnn0.replica"), "7\n9\n12\n");
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn main_that_is_killed_is_replaced_by_its_replica_and_takes_over_again(world: &World) {
    let mut job = run(world, &demonstration(world));
    let main = ready(world, "dnn0");
    signal(main, Signal::KILL);
    let fail_over = sees(&mut job, "dnn0", "fail_over", None);
    assert_eq!((&fail_over["cause"], &fail_over["end"]["signal"]), (&"exit".into(), &9.into()), "{fail_over}");
    assert!(fail_over["checkpoint"].as_u64() >= Some(3), "{fail_over}");
    sees(&mut job, "dnn0", "fail_back", None);
    finishes_as_the_document_says(world, job);
}

#[test(unchecked)]
fn main_that_is_stopped_counts_as_hung(world: &World) {
    let mut job = run(world, &demonstration(world));
    signal(ready(world, "dnn0"), Signal::STOP);
    let fail_over = sees(&mut job, "dnn0", "fail_over", None);
    assert_eq!(fail_over["cause"], "hang", "{fail_over}");
    assert!(fail_over["misses"].as_u64() >= Some(200), "{fail_over}");
    finishes_as_the_document_says(world, job);
}

#[test(unchecked)]
fn main_that_spins_without_heartbeats_counts_as_hung(world: &World) {
    let hang = world.path("hang");
    let main = format!(
        r#"main: [holdfast, example, pair, main, "0", "20", "100000000", --hang-while, "{}"],
           replica: [holdfast, example, pair, replica, "0", "20", "100000000"]"#,
        hang.display()
    );
    let spec = spec(world, &format!("name: dnn0, {main}, restart: {{first: 1s}}"), "");
    let mut job = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    fs::write(&hang, "").unwrap();
    assert_eq!(sees(&mut job, "dnn0", "fail_over", None)["cause"], "hang");
    fs::remove_file(&hang).unwrap();
    finishes_as_the_document_says(world, job);
}

#[test(unchecked)]
fn replica_that_is_killed_while_asleep_is_started_again(world: &World) {
    let mut job = run(world, &demonstration(world));
    waits_for_line(world, "dnn0.main", "6");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    signal(replica, Signal::KILL);
    let failed = sees(&mut job, "dnn0", "failed", Some("replica"));
    assert_eq!((&failed["state"], &failed["cause"]), (&"asleep".into(), &"exit".into()), "{failed}");
    world.wait("another replica", || (waits_for_state(world, 0, "replica", "asleep") != replica).then_some(()));
    signal(waits_for_state(world, 0, "main", "awake"), Signal::KILL);
    finishes_as_the_document_says(world, job);
}

#[test(unchecked)]
fn copies_go_on_without_their_agent_and_its_successor_adopts_them(world: &World) {
    let mut job = run(world, &demonstration(world));
    let main = ready(world, "dnn0");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    signal(world.agent_pid("node0"), Signal::KILL);
    let adopted = sees(&mut job, "dnn0", "adopted", Some("main"));
    assert_eq!((&adopted["pid"], &adopted["state"]), (&main.into(), &"awake".into()), "{adopted}");
    assert_eq!(waits_for_state(world, 0, "replica", "asleep"), replica);
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    assert_eq!(changes(world, "fail_over"), [] as [Value; 0]);
    signal(main, Signal::KILL);
    finishes_as_the_document_says(world, job);
}

#[test]
fn pairs_fail_over_without_an_orchestrator_and_the_next_one_takes_over(world: &World) {
    let spec = demonstration(world);
    let job = run(world, &spec);
    let main = ready(world, "dnn0");
    job.killed();
    signal(main, Signal::KILL);
    waits_for_line(world, "dnn0.replica", "12");
    let mut second = run(world, &spec);
    assert_eq!(second.sees_event("pairs_taken_over")["epoch"], 2);
    // What happened meanwhile is in the log.
    sees(&mut second, "dnn0", "fail_over", None);
    sees(&mut second, "dnn0", "fail_back", None);
    second.killed();
    // So has the report of the last orchestrator, once.
    let third = run(world, &spec).ends_with(0);
    third.prints(&["all pairs are finished", "fail-overs 1, fail-backs 1"]);
    assert_eq!((third.out.matches("replica woken in").count(), third.out.matches("main woken in").count()), (1, 1));
    assert_eq!(printed(world, "dnn0.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "dnn0.replica"), "7\n9\n12\n");
}

#[test(unchecked)]
fn signal_ends_all_copies(world: &World) {
    let job = run(world, &demonstration(world));
    waits_for_line(world, "dnn0.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    job.terminated().prints(&["ended by SIGTERM; the next `holdfast run` goes on from the saved checkpoints"]);
    world.assert_nothing_is_left();
    let prefix = world.prefix();
    let status = world.run(world.holdfast(["status", "--prefix", prefix.to_str().unwrap()])).with_code(0);
    status.prints(&["not finished; `holdfast run` goes on from the saved checkpoints"]);
    // There is nothing to drain.
    let listed = pairs(world, ["list"]);
    assert_eq!(listed.status.code(), Some(69));
    listed.prints(&["to start it: `holdfast run`"]);
    assert!(!format!("{}{}", listed.out, listed.err).contains("drain"), "{}", listed.err);
}

#[test]
fn halt_ends_all_copies(world: &World) {
    let spec = demonstration(world);
    let job = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    world.run(world.holdfast(["halt", "set", "--now", spec.to_str().unwrap()])).with_code(0);
    job.ends_with(75).prints(&["halted:"]);
}

#[test]
fn halt_without_an_orchestrator_is_recorded_for_the_next_one(world: &World) {
    let spec = demonstration(world);
    let job = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    let main = waits_for_state(world, 0, "main", "awake");
    job.killed();
    let halt = world.run(world.holdfast(["halt", "set", "--now", spec.to_str().unwrap()])).with_code(0);
    halt.prints(&["halt now", "recorded, but no orchestrator has taken it up yet"]);
    assert!(!halt.out.contains("ends its copies and jobs now"), "{}", halt.out);
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    run(world, &spec).ends_with(75).prints(&["halted:"]);
}

#[test]
fn copies_that_fail_too_often_end_the_job(world: &World) {
    let pair = "name: dnn0, main: [sh, -c, exit 3], restart: {first: 1ms, most: 10ms, attempts: 2}";
    run(world, &spec(world, pair, "")).ends_with(90).prints(&["both copies failed too often: dnn0"]);
    assert_eq!(changes(world, "given_up").len(), 2);
}

#[test(unchecked)]
fn user_selects_the_copy_that_is_awake(world: &World) {
    let spec = demonstration(world);
    let mut job = run(world, &spec);
    let main = ready(world, "dnn0");
    pairs(world, ["fail-over", "--dry-run", "all"]).with_code(0).prints(&["would fail over to the replica of dnn0"]);
    pairs(world, ["fail-over", "dnn7"]).with_code(64).prints(&["there is no pair `dnn7`", "dnn0"]);
    assert_eq!(waits_for_state(world, 0, "main", "awake"), main);
    pairs(world, ["fail-over", "dnn0"]).with_code(0);
    assert_eq!(sees(&mut job, "dnn0", "fail_over", None)["cause"], "command");
    waits_for_line(world, "dnn0.replica", "12");
    // The main waits for the request, or for a failure.
    let second = waits_for_state(world, 0, "main", "asleep");
    let replica = waits_for_state(world, 0, "replica", "awake");
    pairs(world, ["restart", "--side", "main", "dnn0"]).with_code(0);
    world.wait("another main", || (waits_for_state(world, 0, "main", "asleep") != second).then_some(()));
    assert_eq!(waits_for_state(world, 0, "replica", "awake"), replica);
    let ran = world.run(world.holdfast(["status", spec.to_str().unwrap()])).with_code(0);
    ran.prints(&["main asleep", "replica awake", "fail-overs 1, fail-backs 0"]);
    pairs(world, ["fail-back", "--json", "dnn0"]).with_code(0);
    finishes_as_the_document_says(world, job);
}

#[test]
fn hundred_mains_that_are_killed_are_replaced_by_their_replicas(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "1", "100000000"]"#;
    let pair = format!(r#"name: "dnn{{index}}", count: 100, {main}, restart: {{first: 10min, most: 10min}}"#);
    let mut job = run(world, &spec(world, &pair, ""));
    waits_for_line(world, "dnn99.main", "6");
    let mains = world.wait("all copies", || {
        let list = list(world);
        let of = |pair: &Value| {
            let is_ready = pair["main"]["state"] == "awake" && pair["replica"]["state"] == "asleep";
            (is_ready && pair["checkpoint"].as_u64() >= Some(3)).then(|| pair["main"]["pid"].as_u64().unwrap())
        };
        list["pairs"].as_array().unwrap().iter().map(of).collect::<Option<Vec<u64>>>()
    });
    assert_eq!(mains.len(), 100);
    mains.iter().for_each(|main| signal(u32::try_from(*main).unwrap(), Signal::KILL));
    job.sees("all fail-overs", |_| changes(world, "fail_over").len() == 100);
    for index in 0..100 {
        waits_for_line(world, &format!("dnn{index}.replica"), "12");
        assert_eq!(printed(world, &format!("dnn{index}.main")), "1\n3\n6\n");
        assert_eq!(printed(world, &format!("dnn{index}.replica")), "7\n9\n12\n");
    }
    job.terminated();
}

/// The demonstration with main and replica on two nodes, and a job beside the replica.
fn on_two_nodes(world: &World) -> std::path::PathBuf {
    on_two_nodes_with(world, "")
}

/// The same with more keys.
pub fn on_two_nodes_with(world: &World, more: &str) -> std::path::PathBuf {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    let jobs = "jobs:\n  - {name: app1, command: [sleep, \"3600\"], node: 1}\n";
    let more = format!("{jobs}{more}");
    spec_of_two_nodes(world, &format!("name: dnn0, {main}, nodes: [0, 1], restart: {{first: 5s}}"), &more)
}

#[test(unchecked)]
fn replica_on_another_node_goes_on_from_the_mirrored_checkpoint_and_jobs_there_are_suspended(world: &World) {
    let mut job = run(world, &on_two_nodes(world));
    signal(ready(world, "dnn0"), Signal::KILL);
    assert_eq!(sees(&mut job, "app1", "job_suspended", None)["pair"], "dnn0");
    let fail_over = sees(&mut job, "dnn0", "fail_over", None);
    assert_eq!((&fail_over["node"], &fail_over["end"]["signal"]), (&"node1".into(), &9.into()), "{fail_over}");
    assert!(fail_over["checkpoint"].as_u64() >= Some(3), "{fail_over}");
    waits_for_line(world, "dnn0.replica", "12");
    assert_eq!(sees(&mut job, "dnn0", "fail_back", None)["node"], "node0");
    sees(&mut job, "app1", "job_resumed", None);
    finishes_as_the_document_says(world, job);
}

#[test(unchecked)]
fn replica_on_another_node_goes_on_when_agent_and_main_are_killed_at_once(world: &World) {
    let mut job = run(world, &on_two_nodes(world));
    let main = ready(world, "dnn0");
    signal(world.agent_pid("node0"), Signal::KILL);
    signal(main, Signal::KILL);
    assert_eq!(sees(&mut job, "dnn0", "fail_over", None)["node"], "node1");
    finishes_as_the_document_says(world, job);
}

#[test]
fn jobs_of_another_kind_do_not_take_pairs_over(world: &World) {
    let spec = demonstration(world);
    let job = run(world, &spec);
    waits_for_line(world, "dnn0.main", "6");
    job.killed();
    let prefix = world.prefix();
    let other = format!("prefix: {}\nallocation: {{manager: local}}\nrun: {{command: [true]}}\n", prefix.display());
    let other = world.write("other.yaml", &other);
    run(world, &other).ends_with(78).prints(&["a job of `kind: replicated` was begun in the prefix directory"]);
    let drain = world.holdfast(["drain", "--prefix", prefix.to_str().unwrap()]);
    world.run(drain).with_code(69).prints(&["nothing can be drained"]);
    let text = fs::read_to_string(&spec).unwrap().replace("name: dnn0", "name: other");
    let renamed = world.write("renamed.yaml", &text);
    let ran = run(world, &renamed).ends_with(78);
    ran.prints(&["its pair `dnn0` is not in the spec", "then `holdfast run` with the old spec"]);
    // As the remedy says.
    world.run(world.holdfast(["halt", "set", "--now", spec.to_str().unwrap()])).with_code(0);
    run(world, &spec).ends_with(75).prints(&["halted:"]);
}

#[test]
fn replica_on_another_node_takes_over_while_its_jobs_are_suspended(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    let pair = format!("name: safe, {main}, nodes: [0, 1], restart: {{first: 4s, most: 4s}}");
    let jobs = "jobs: [{name: audio, command: [sleep, \"3600\"], node: 1}]\nreplication: {lease: 1s}\n";
    let spec = spec_of_two_nodes(world, &pair, jobs);
    let mut job = run(world, &spec);
    let main = ready(world, "safe");
    sees(&mut job, "audio", "job_started", None);
    signal(main, Signal::KILL);
    sees(&mut job, "safe", "fail_over", None);
    sees(&mut job, "audio", "job_suspended", None);
    waits_for_state(world, 0, "replica", "awake");
    assert_eq!(list(world)["jobs"][0]["state"], "suspended");
    // From the checkpoint that was copied to the other node.
    waits_for_line(world, "safe.replica", "12");
    assert_eq!(printed(world, "safe.replica"), "7\n9\n12\n");
    // The main goes on from the replica's newest checkpoint.
    assert_eq!(sees(&mut job, "safe", "fail_back", None)["node"], "node0");
    sees(&mut job, "audio", "job_resumed", None);
    job.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "safe.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "safe.replica"), "7\n9\n12\n");
}

#[test]
fn user_selects_the_node_on_which_a_copy_is_awake(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    let pair = format!("name: safe, {main}, nodes: [1, 0], restart: {{first: 100ms}}");
    let spec = spec_of_two_nodes(world, &pair, "");
    let mut job = run(world, &spec);
    waits_for_line(world, "safe.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    pairs(world, ["fail-over", "safe"]).with_code(0).prints(&["requested: fail over"]);
    assert_eq!(sees(&mut job, "safe", "fail_over", None)["cause"], "command");
    waits_for_line(world, "safe.replica", "12");
    // It does not take over again by itself.
    waits_for_state(world, 0, "main", "asleep");
    pairs(world, ["fail-back", "safe"]).with_code(0);
    job.ends_with(0);
    assert_eq!(printed(world, "safe.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "safe.replica"), "7\n9\n12\n");
}

#[test]
fn replica_that_a_user_selected_stays_awake_under_the_next_orchestrator(world: &World) {
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "400000000"]"#;
    let spec = spec_of_two_nodes(world, &format!("name: safe, {main}, nodes: [0, 1], restart: {{first: 100ms}}"), "");
    let mut job = run(world, &spec);
    waits_for_line(world, "safe.main", "6");
    waits_for_state(world, 0, "replica", "asleep");
    pairs(world, ["fail-over", "safe"]).with_code(0);
    sees(&mut job, "safe", "fail_over", None);
    waits_for_state(world, 0, "main", "asleep");
    world.wait("the request in the state", || (world.state()["pairs"]["replica_preferred"][0] == 0).then_some(()));
    let replica = waits_for_state(world, 0, "replica", "awake");
    job.killed();
    let mut second = run(world, &spec);
    second.sees_event("pairs_taken_over");
    // Two leases later, it is awake, although the main sleeps beside it.
    let begun = Instant::now();
    world.wait("two leases", || (begun.elapsed() > Duration::from_secs(4)).then_some(()));
    waits_for_state(world, 0, "main", "asleep");
    assert_eq!(waits_for_state(world, 0, "replica", "awake"), replica);
    assert_eq!(changes(world, "fail_back").len(), 0);
    pairs(world, ["fail-back", "safe"]).with_code(0);
    second.ends_with(0).prints(&["all pairs are finished"]);
    assert_eq!(printed(world, "safe.main"), "1\n3\n6\n13\n15\n18\n");
    assert_eq!(printed(world, "safe.replica"), "7\n9\n12\n");
}

#[test]
fn example_of_pairs_finishes(world: &World) {
    let text = include_str!("../../configs/pairs.yaml").replace(r#""1000""#, r#""20""#);
    let text = text.replace("misses: 20", "misses: 1000");
    assert!(text.contains(r#""20""#) && text.contains("misses: 1000"), "{text}");
    let spec = world.write("pairs.yaml", &text);
    run(world, &spec).ends_with(0).prints(&["all pairs are finished"]);
    let directory = world.path("pairs-run/.holdfast/pairs");
    for name in ["dnn0", "dnn1", "dnn2", "dnn3", "safe"] {
        let text = fs::read_to_string(directory.join(format!("{name}.main.log"))).unwrap();
        assert_eq!(text, "1\n3\n6\n7\n9\n12\n13\n15\n18\n");
    }
}
