//! `checkpoint: {source: variables}`: the example saves its variables; two nodes are lost, files are damaged, levels
//! have their effect.

use std::fs;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// The heat example that saves variables, with two spares.
fn job(world: &World) -> Job<'_> {
    Job::new(world, 2).checkpoint("source: variables").heat("--variables")
}

/// The FTI-FF files below a directory.
fn files(below: PathBuf) -> Vec<PathBuf> {
    let mut found = holdfast_testkit::files_below(&below);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "fti"));
    found
}

/// The drained files are intact.
fn assert_drained(world: &World, newest: u64) {
    pfs::assert_current(&world.prefix(), newest);
    let files: Vec<PathBuf> = files(world.prefix()).into_iter().filter(|file| is_of(file, newest)).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    world.run(world.holdfast(["verify"]).args(&files)).with_code(0).prints(&["intact"]);
}

fn is_of(file: &std::path::Path, id: u64) -> bool {
    file.file_name().unwrap().to_str().unwrap().starts_with(&format!("Ckpt{id}-"))
}

/// `holdfast status` shows the level of the newest checkpoint.
#[track_caller]
fn assert_newest_is_of_level(job: &Job<'_>, level: u32) {
    job.command(&["status"], 0).prints(&[&format!("newest checkpoint 4 of level {level}, protected")]);
    assert_eq!(job.command(&["status", "--json"], 0).json()["level"], level);
}

fn restarted(world: &World) -> Value {
    world.all("restarted").pop().unwrap()
}

#[test]
fn two_lost_nodes_are_rebuilt_and_the_drained_files_are_intact(world: &World) {
    // The second loss is in the middle of a checkpoint, when its files are being written over older ones.
    let job = job(world)
        .checkpoint("variables: {layout: chunked}")
        .faults("{node: 1, after_checkpoint: 2}")
        .faults("{node: 3, during: write, checkpoint: 6}");
    job.run_to_result();
    let all = world.all("restarted");
    let from: Vec<_> = all.iter().map(|event| (&event["checkpoint"], &event["source"])).collect();
    let (fresh, rebuilt) = (json!("fresh"), json!("rebuilt"));
    assert_eq!((from.len(), from[0].1, from[1].1, from[2].1), (3, &fresh, &rebuilt, &rebuilt));
    assert_eq!(from[2].0, &json!(5), "the checkpoint that was being written is not used");
    assert_drained(world, 8);
}

#[test(unchecked)]
fn a_file_with_wrong_hashes_is_used_on_no_rank_and_the_next_older_is(world: &World) {
    let job = job(world).checkpoint("crc: {on_copy: false, on_restart: false}").holding_after(5).heat("--level 2");
    let running = job.reaches(5);
    let node = world.node_root("node1");
    // Not the copy of its partner's file, which it holds too.
    let damaged = files(node).into_iter().find(|file| file.ends_with("Ckpt5-Rank1.fti")).unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&damaged, bytes).unwrap();
    assert!(world.kill(|line| line.contains("example heat")) > 0);
    job.goes_on_to_its_end(running).prints(&["Ckpt5-Rank1.fti is damaged: "]);
    job.assert_result();
    assert_older_is_used(world, "hash of the chunk is");
    assert_drained(world, 8);
}

/// Checkpoint 5 was refused for this reason, and the one before it is used.
#[track_caller]
fn assert_older_is_used(world: &World, reason: &str) {
    let last = restarted(world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("cache")));
    let attempts = world.all("restart_attempt");
    let is_reported = |attempt: &Value| {
        let text = attempt["reason"].as_str().unwrap();
        let is_named =
            text.contains("rank 1: ") && text.contains("Ckpt5-Rank1.fti is damaged: ") && text.contains(reason);
        attempt["checkpoint"] == 5 && attempt["from"] == "cache" && is_named
    };
    assert!(attempts.iter().any(is_reported), "{attempts:#?}");
}

/// The place of the first entry of a chunked file: behind the data, whose bytes are in the file's metadata at its end,
/// and the head of the block.
fn first_entry(bytes: &[u8]) -> usize {
    let data = bytes.len() - 106 + 33 + 16 + 4 + 2 * 8;
    usize::try_from(u64::from_le_bytes(bytes[data..data + 8].try_into().unwrap())).unwrap() + 12
}

#[test]
fn a_file_of_level_2_has_the_size_of_the_file_that_its_node_keeps_a_copy_of() {
    for layout in ["document", "chunked"] {
        let world = World::unchecked();
        let job = job(&world).checkpoint(&format!("variables: {{layout: {layout}}}")).heat("--level 1,2");
        job.start().ends_with(0);
        let mut sizes = Vec::new();
        for rank in 0..4 {
            let file = world.prefix().join(format!("scr.current/Ckpt8-Rank{rank}.fti"));
            let inspected = world.run(world.holdfast(["inspect", "--json"]).arg(&file)).with_code(0).json();
            assert_eq!((&inspected["fb"]["fs"], &inspected["fb"]["maxFs"]), (&json!(length(&file)), &json!(-1)));
            sizes.push((length(&file), inspected["fb"]["ptFs"].clone()));
        }
        // Two nodes of two ranks: the ranks 0 and 2 have a copy of each other, as 1 and 3.
        for (rank, of) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
            assert_eq!(sizes[rank].1, json!(sizes[of].0), "{layout} {rank}: {sizes:?}");
        }
        assert_drained(&world, 8);
    }
}

fn length(file: &std::path::Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

#[test(unchecked)]
fn a_chunked_file_with_a_wrong_id_of_a_variable_is_used_on_no_rank(world: &World) {
    let job = job(world)
        .checkpoint("crc: {on_copy: false, on_restart: false}")
        .checkpoint("variables: {layout: chunked}")
        .holding_after(5)
        .heat("--level 2");
    let running = job.reaches(5);
    let node = world.node_root("node1");
    let damaged = files(node).into_iter().find(|file| file.ends_with("Ckpt5-Rank1.fti")).unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    let entry = first_entry(&bytes);
    assert_eq!(bytes[entry..entry + 4], 1i32.to_le_bytes());
    bytes[entry] ^= 0x40;
    fs::write(&damaged, bytes).unwrap();
    assert!(world.kill(|line| line.contains("example heat")) > 0);
    job.finishes(running);
    assert_older_is_used(world, "the CRC of the variables' metadata is");
    assert_drained(world, 8);
}

#[test(unchecked)]
fn the_newest_checkpoint_of_a_higher_level_outlives_newer_ones_of_lower_levels(world: &World) {
    // Levels 3, 1, 1, 3, 1, 1: checkpoints 5 and 6 are lost with the node.
    let job = job(world).heat("--level 3,1,1").holding_after(6).faults("{node: 1, after_checkpoint: 6}");
    let mut running = job.start();
    running.sees("the loss", |event| event["event"] == "node_down");
    job.finishes(running);
    let last = restarted(world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("rebuilt")));
    let of = |event: &Value| (event["level"].as_u64().unwrap(), event["scheme"].as_str().unwrap().to_owned());
    let levels: Vec<(u64, String)> = world.all("checkpoint_complete").iter().map(of).collect();
    assert_eq!(levels[..4], [(3, "XOR"), (1, "LOCAL"), (1, "LOCAL"), (3, "XOR")].map(|(at, by)| (at, by.to_owned())));
}

#[test(unchecked)]
fn level_3_with_reed_solomon_survives_the_loss_of_two_nodes_of_a_set(world: &World) {
    let job = job(world).redundancy("[{scheme: rs, set_size: 4, failures: 2}]").heat("--level 3,1");
    let job = job.holding_after(4).faults("{node: 1, after_checkpoint: 4}").faults("{node: 2, after_checkpoint: 4}");
    let mut running = job.start();
    for node in ["node1", "node2"] {
        running.sees_where("node_down", "node", node);
    }
    job.finishes(running);
    let last = restarted(world);
    assert_eq!((&last["checkpoint"], &last["rebuilt"]), (&json!(3), &json!([1, 2])), "4 is of level 1: {last}");
    assert_drained(world, 8);
}

#[test(unchecked)]
fn a_restart_from_a_lower_level_keeps_the_newest_checkpoint_of_a_higher_one(world: &World) {
    // Levels 3, 1, 1, 1, 1, 3: after a restart from checkpoint 3, a node is lost with it and with all of level 1.
    let job = job(world).heat("--level 3,1,1,1,1").holding_after(3).faults("{node: 1, after_checkpoint: 4}");
    let mut running = job.reaches(3);
    assert!(world.kill(|line| line.contains("example heat")) > 0);
    running.sees_where("restarted", "checkpoint", 3);
    job.finishes(running);
    let all = world.all("restarted");
    let from: Vec<_> = all.iter().map(|event| (&event["checkpoint"], event["source"].as_str().unwrap())).collect();
    assert_eq!(from[1..], [(&json!(3), "cache"), (&json!(1), "rebuilt")]);
    assert_drained(world, 8);
}

#[test(unchecked)]
fn level_4_is_flushed_at_once_whatever_the_flush_settings_are(world: &World) {
    let job = job(world).heat("--level 1,4").holding_after(3);
    let running = job.reaches(3);
    let flushed: Vec<Value> = world.all("flushed").iter().map(|event| event["checkpoint"].clone()).collect();
    assert_eq!(flushed, [json!(2)]);
    pfs::assert_current(&world.prefix(), 2);
    job.finishes(running);
}

#[test(unchecked)]
fn a_node_is_lost_after_a_checkpoint_of_level_4_when_that_has_been_flushed(world: &World) {
    // It holds before checkpoint 4, which is of level 4 too and could be flushed before the node is lost.
    let job = job(world).heat("--level 1,4").holding_after(3);
    let job = job.faults("{action: stall-prefix, after_checkpoint: 1, for: 3s}");
    let job = job.faults("{node: 1, after_checkpoint: 2}");
    let mut running = job.start_to_event("prefix_stalled");
    running.sees("the loss", |event| event["event"] == "node_down");
    job.finishes(running);
    let last = restarted(world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(2), &json!("fetched")), "{last}");
    assert_drained(world, 8);
}

#[test(unchecked)]
fn level_4_that_cannot_be_flushed_is_not_kept_and_evicts_no_checkpoint_of_level_2(world: &World) {
    let job = job(world).heat("--level 2,4,4,4,4,4,4,4").holding_after(1);
    let mut running = job.reaches(1);
    // A directory in the place of the index: no flush can enter its dataset there.
    let index = world.prefix().join("index.scr");
    let _ = fs::remove_file(&index);
    fs::create_dir_all(index.join("obstacle")).unwrap();
    job.go_on();
    running.sees_checkpoint(8);
    let ran = running.end();
    assert!(!ran.status.success(), "nothing can be drained");
    fs::remove_dir_all(&index).unwrap();
    let failed: Vec<Value> = world.all("flush_failed").iter().map(|event| event["checkpoint"].clone()).collect();
    assert_eq!(failed, (2..=8).map(Value::from).collect::<Vec<_>>());
    assert!(job.output_of_rank_0().contains(" was dropped"), "the program is told");
    // The cache keeps two, and that of level 2.
    let held: Vec<PathBuf> = files(world.node_root("node1"));
    for kept in [1, 7, 8] {
        assert!(held.iter().any(|file| is_of(file, kept)), "{kept}: {held:?}");
    }
    assert!(!held.iter().any(|file| is_of(file, 3)), "{held:?}");
    assert_eq!(job.command(&["status", "--json"], 0).json()["level"], 1);
    job.run(0);
    assert_eq!(restarted(world)["checkpoint"], 8);
    job.assert_result();
}

#[test(unchecked)]
fn a_checkpoint_that_is_fetched_has_the_level_at_which_it_was_taken(world: &World) {
    let job = job(world).heat("--level 1,2").top("keep_cache: none").holding_after(4);
    let running = job.reaches(4);
    assert_newest_is_of_level(&job, 2);
    job.command(&["halt", "set", "--now"], 0);
    running.ends_with(75);
    assert_newest_is_of_level(&job, 2);
    let listed =
        world.run(world.holdfast(["index", "list", "--json", "--prefix"]).arg(world.prefix())).with_code(0).json();
    assert_eq!((&listed["checkpoints"][0]["id"], &listed["checkpoints"][0]["level"]), (&json!(4), &json!(2)));
    let mut list = world.holdfast(["index", "list", "--prefix"]);
    list.arg(world.prefix());
    world.run(list).with_code(0).prints(&[".4  level 2\n"]);
    job.go_on();
    let mut inspect = world.holdfast(["inspect"]);
    inspect.arg(world.prefix().join("scr.current/dataset.holdfast"));
    world.run(inspect).with_code(0).prints(&["LEVEL"]);
    job.run(0);
    let last = restarted(world);
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("fetched")));
    let output = job.output_of_rank_0();
    assert!(output.contains("restarted from checkpoint 4 of level 2 at step 20"), "{output}");
    job.assert_result();
}

#[test(unchecked)]
fn snapshots_follow_the_intervals_of_the_levels(world: &World) {
    let snapshots = "variables: {snapshots: {local: 0s, partner: 20ms, parity: 0s, prefix: 0s}}";
    let mut job = job(world).checkpoint(snapshots);
    // `--need` replaces the fixed interval of the example.
    job.heat.extend(["--need".to_owned()]);
    let yaml =
        job.yaml().replace(", \"--checkpoint-every\", \"5\"", "").replace("\"0\", \"--steps\"", "\"5ms\", \"--steps\"");
    world.run_spec(&yaml).with_code(0);
    job.assert_result();
    let complete = world.all("checkpoint_complete");
    assert!(!complete.is_empty() && complete.len() < 40, "{complete:#?}");
    assert!(complete.iter().all(|event| event["scheme"] == "PARTNER"), "{complete:#?}");
}

#[test(unchecked)]
fn snapshots_of_level_4_pause_while_flushes_fail(world: &World) {
    let snapshots = "variables: {snapshots: {local: 0s, partner: 0s, parity: 0s, prefix: 2s}}";
    let mut job = job(world).checkpoint(snapshots);
    job.heat.extend(["--need".to_owned()]);
    let yaml = job.yaml().replace(", \"--checkpoint-every\", \"5\"", "");
    let yaml = yaml.replace("\"0\", \"--steps\", \"40\"", "\"20ms\", \"--steps\", \"400\"");
    let mut running = world.start_spec(&yaml);
    running.sees_event("restarted");
    // A directory in the place of the index: no flush can enter its dataset there.
    let index = world.prefix().join("index.scr");
    fs::create_dir_all(index.join("obstacle")).unwrap();
    let failed = || world.all("flush_failed");
    running.sees("three failed flushes", |event| event["event"] == "flush_failed" && failed().len() >= 3);
    fs::remove_dir_all(&index).unwrap();
    running.sees_event("flushed");
    running.ends_with(0);
    let time = |event: &Value| event["time"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let times: Vec<_> = failed().iter().map(time).collect();
    let pauses: Vec<i64> = times.windows(2).map(|pair| (pair[1] - pair[0]).num_milliseconds()).collect();
    // An eighth of the interval, a quarter, …: there are 50 snapshots a second.
    assert!(pauses[0] >= 240 && pauses[1] >= 490, "{pauses:?}");
}

#[test]
fn a_program_with_other_calls_than_the_source_serves_is_refused_and_not_relaunched() {
    for (source, program, found) in [
        ("scr", "--variables", "uses the calls for variables"),
        ("variables", "--files-per-rank 1", "uses the calls for checkpoint files"),
    ] {
        let world = World::unchecked();
        let job = Job::new(&world, 0).checkpoint(&format!("source: {source}")).heat(program);
        job.run(69).prints(&["not relaunched, because another launch would end in the same way: rank ", found]);
        // The report of the agent may come after the end of the ranks.
        assert!(world.all("generation_launched").len() <= 2);
        let outputs = holdfast_testkit::files_below(&world.prefix().join(".holdfast/generations/1"));
        let text: String = outputs.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
        assert!(text.contains(found) && text.contains("write `checkpoint: {source: "), "{text}");
    }
}
