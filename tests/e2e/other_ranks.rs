//! A run continues a job with another number of ranks (`checkpoint.restart.ranks: any`): each row of the table of
//! sources in `docs/restarts.md`, and what becomes of the checkpoints.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use crate::job::Job;
use crate::kept_cache::{halted, last_restart};
use crate::pfs;
use crate::world::{Running, World};

const ANY: &str = "restart: {ranks: any}";

fn with_ranks<'a>(job: &Job<'a>, (on, per_node): (u32, u32)) -> Job<'a> {
    let mut job = job.clone();
    (job.on, job.per_node) = (on, per_node);
    job
}

#[test]
fn fewer_and_more_ranks_continue_from_the_drained_cache() {
    for shape in [(3, 1), (4, 2), (1, 1)] {
        let world = World::new();
        let job = halted(&world, Job::new(&world, 0).checkpoint(ANY));
        let other = with_ranks(&job, shape);
        let workspace = world.kept_workspace().unwrap();
        other.command(&["run", "--dry-run"], 0).prints(&["would first drain job", "another number of ranks"]);
        other.run(0);
        assert_eq!(last_restart(&world), (json!(4), json!("fetched")), "{shape:?}");
        assert_eq!(world.all("restarted").pop().unwrap()["written_by"], 4);
        other.assert_result();
        assert!(!workspace.exists());
        // Of the first run, the drained one; of the second one, the last one.
        let found: BTreeSet<u64> = pfs::indexed(&world.prefix()).into_keys().collect();
        assert_eq!(found, BTreeSet::from([4, 8]), "{shape:?}");
        assert_eq!(pfs::current_id(&world.prefix()), Some(8));
    }
}

#[test]
fn another_number_of_ranks_continues_from_the_prefix_in_another_allocation(world: &World) {
    let job = halted(world, Job::new(world, 0).flush("{every: 1}").top("keep_cache: none").checkpoint(ANY));
    let other = with_ranks(&job, (3, 2));
    other.run(0).prints(&["started from checkpoint 4, written by 4 ranks, from the prefix directory"]);
    world.assert_restarted(4, "fetched");
    other.assert_result();
    // Another one of the first run is selected by its name.
    let directory = pfs::directory_of(&world.prefix(), 2).unwrap();
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    other.command(&["run", "--again", "--checkpoint", &name], 0);
    world.assert_restarted(2, "fetched");
    other.assert_result();
}

#[test]
fn caches_that_cannot_be_drained_stay_until_they_can(world: &World) {
    let job = halted(world, Job::new(world, 0).checkpoint(ANY));
    let other = with_ranks(&job, (3, 1));
    let index = world.prefix().join("index.scr");
    fs::write(&index, "no index").unwrap();
    other.run(65).prints(&["index.scr"]);
    assert_eq!(world.all("generation_launched").len(), 1);
    fs::remove_file(&index).unwrap();
    other.run(0);
    world.assert_restarted(4, "fetched");
    other.assert_result();
}

#[test]
fn files_of_a_container_are_unpacked_beside_it() {
    for (drain, flush) in
        [("{container: {kind: sion, files: 2}}", "{every: 0}"), ("{}", "{every: 1, container: {kind: sion}}")]
    {
        let world = World::new();
        let job = Job::new(&world, 0)
            .heat("--files-per-rank 2")
            .flush(flush)
            .checkpoint(&format!("drain: {drain}"))
            .checkpoint(ANY);
        let job = halted(&world, job);
        let other = with_ranks(&job, (3, 2));
        other.run(0);
        assert_eq!(last_restart(&world), (json!(4), json!("fetched")), "{drain}");
        other.assert_result();
        let names = pfs::names(&pfs::directory_of(&world.prefix(), 4).unwrap());
        let has = |name: &str| names.iter().any(|found| found == name);
        assert!(has("holdfast-1.sion") && has("rank_3.1.ckpt"), "{names:?}");
        let prefix = ["verify", "--prefix", "pfs"];
        world.run(world.holdfast(prefix)).with_code(0);
    }
}

#[test(unchecked)]
fn as_many_ranks_restart_from_cache_with_any_number_allowed(world: &World) {
    let job = halted(world, Job::new(world, 0).checkpoint(ANY));
    job.run_to_result();
    world.assert_restarted(4, "cache");
}

#[test]
fn lost_node_before_and_after_the_first_checkpoint_of_the_new_ranks() {
    for (checkpoint, expected) in [(5, (4, "fetched")), (6, (5, "rebuilt"))] {
        let world = World::new();
        let job = halted(&world, Job::new(&world, 1).checkpoint(ANY));
        let fault = format!("{{node: 1, during: write, checkpoint: {checkpoint}}}");
        let other = with_ranks(&job, (3, 1)).redundancy("[{scheme: xor, set_size: 3}]").faults(&fault);
        other.run(0);
        assert_eq!(last_restart(&world), (json!(expected.0), json!(expected.1)));
        other.assert_result();
        assert_eq!(pfs::current_id(&world.prefix()), Some(8));
    }
}

#[test(unchecked)]
fn the_number_of_ranks_changes_twice(world: &World) {
    let job = halted(world, Job::new(world, 0).checkpoint(ANY));
    fs::remove_file(world.path("go-on")).unwrap();
    let mut second = with_ranks(&job, (3, 1));
    second.heat.clear();
    let second = second.holding_after(6);
    let mut running = second.start();
    running.sees_where("checkpoint_complete", "checkpoint", 6);
    second.command(&["halt", "set", "--now"], 0);
    running.ends_with(75);
    second.go_on();
    let last = with_ranks(&second, (2, 1));
    last.run(0);
    world.assert_restarted(6, "fetched");
    last.assert_result();
}

/// Three ranks that have read a checkpoint of four, and hold before the first one of their own.
fn before_its_first_checkpoint<'a>(world: &World, job: &Job<'a>) -> (Job<'a>, Running<'a>) {
    fs::remove_file(world.path("go-on")).unwrap();
    let mut other = with_ranks(job, (3, 1)).checkpoint(ANY);
    other.heat.clear();
    let other = other.holding_at(22);
    let mut running = other.start();
    running.sees_where("restarted", "written_by", 4);
    (other, running)
}

#[test]
fn run_that_ends_before_its_first_checkpoint_leaves_the_older_one_to_any_number_of_ranks() {
    for (on, ranks, code) in [(4, "same", 0), (3, "any", 0), (2, "any", 0), (3, "same", 78)] {
        let world = World::unchecked();
        let job = halted(&world, Job::new(&world, 0));
        let (second, running) = before_its_first_checkpoint(&world, &job);
        second.command(&["halt", "set", "--immediate"], 0);
        running.ends_with(75);
        second.go_on();
        let mut third = with_ranks(&job, (on, 1)).checkpoint(&format!("restart: {{ranks: {ranks}}}"));
        third.heat.clear();
        third.run(code);
        if code == 0 {
            assert_eq!(last_restart(&world), (json!(4), json!("fetched")), "{on} {ranks}");
            third.assert_result();
        } else {
            third.command(&["check"], code).prints(&["was written by 4 ranks, and this run has 3"]);
        }
    }
}

#[test]
fn a_run_that_another_number_of_ranks_would_take_over_is_refused(world: &World) {
    let job = Job::new(world, 0).checkpoint(ANY).holding_after(4);
    job.abandon_after(4);
    with_ranks(&job, (3, 1)).run(78).prints(&["is under way", "`holdfast drain`", "as many ranks"]);
    job.go_on();
    job.run_to_result();
}

#[test]
fn ranks_that_read_a_checkpoint_of_another_number_are_taken_over_and_read_it_again_after_a_node_loss(world: &World) {
    let job = halted(world, Job::new(world, 1));
    let (second, running) = before_its_first_checkpoint(world, &job);
    running.killed();
    let mut third = second.start();
    third.sees_event("took_over");
    world.lose_node("node1");
    third.sees_where("node_down", "node", "node1");
    second.go_on();
    third.ends_with(0);
    assert_eq!(world.all("generation_launched").len(), 3);
    world.assert_restarted(4, "fetched");
    assert_eq!(world.all("restarted").pop().unwrap()["written_by"], 4);
    second.assert_result();
    assert_eq!(pfs::current_id(&world.prefix()), Some(8));
}

/// The heat example that saves variables.
fn saving_variables<'a>(world: &'a World, setting: &str) -> Job<'a> {
    Job::new(world, 0).checkpoint("source: variables").checkpoint(ANY).checkpoint(setting).heat("--variables")
}

#[test]
fn variables_are_recovered_by_fewer_and_more_ranks_from_files_and_containers() {
    for (shape, settings) in [
        ((3, 1), "variables: {layout: chunked}"),
        ((4, 2), "variables: {layout: document}"),
        ((1, 1), "drain: {container: {kind: sion, files: 2}}"),
    ] {
        let world = World::new();
        let job = halted(&world, saving_variables(&world, settings));
        let other = with_ranks(&job, shape);
        other.run(0);
        assert_eq!(last_restart(&world), (json!(4), json!("fetched")), "{shape:?}");
        assert_eq!(world.all("restarted").pop().unwrap()["written_by"], 4);
        let output = other.output_of_rank_0();
        assert!(output.contains("restarted from checkpoint 4 of level 3 at step 20"), "{output}");
        other.assert_result();
        assert_eq!(pfs::current_id(&world.prefix()), Some(8));
    }
}

#[test(unchecked)]
fn variables_of_a_node_loss_after_another_number_of_ranks_are_rebuilt(world: &World) {
    let job = halted(world, saving_variables(world, "variables: {layout: chunked}"));
    let other = with_ranks(&job, (3, 1)).redundancy("[{scheme: xor, set_size: 3}]");
    let other = other.faults("{node: 1, during: write, checkpoint: 6}");
    other.run(0);
    world.assert_restarted(5, "rebuilt");
    other.assert_result();
}

#[test(unchecked)]
fn damaged_variables_of_another_number_of_ranks_are_refused_for_an_older_checkpoint(world: &World) {
    // Without the checksums of the summary: the hashes in the file are left.
    let job = saving_variables(world, "crc: {on_flush: false}").flush("{every: 1}").top("keep_cache: none");
    let job = halted(world, job);
    let directory = pfs::directory_of(&world.prefix(), 4).unwrap();
    let path = directory.join("Ckpt4-Rank3.fti");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let before: Vec<_> = pfs::names(&directory);
    let other = with_ranks(&job, (3, 1));
    other.run(0);
    world.assert_restarted(3, "fetched");
    let attempt = world.all("restart_attempt").pop().unwrap();
    let reason = attempt["reason"].as_str().unwrap();
    assert!(attempt["checkpoint"] == 4 && reason.contains("Ckpt4-Rank3.fti is damaged"), "{attempt}");
    other.assert_result();
    assert_eq!(pfs::names(&directory), before);
}

#[test(unchecked)]
fn check_refuses_other_numbers_of_ranks_where_the_files_cannot_be_read(world: &World) {
    let refused = [
        ("source: scr-files", "`source: scr-files`"),
        ("source: none", "`source: none`"),
        ("source: command, watch: {files: [state]}", "`source: command`"),
        ("source: jubatus, jubatus: {kind: classifier, name: a}", "`source: jubatus`"),
        ("interpose: {files: '0-:state_*'}", "`interpose: {files: …}`"),
    ];
    for (checkpoint, reason) in refused {
        let text = format!(
            "job: a\nallocation: {{manager: local, nodes: 1}}\nrun: {{command: [\"true\"]}}\n\
             checkpoint: {{{checkpoint}, restart: {{ranks: any}}}}\n"
        );
        let spec = world.write("job.yaml", &text);
        let ran = world.run(world.holdfast(["check".as_ref(), spec.as_os_str()])).with_code(78);
        let lines = ran.err.lines().chain(ran.out.lines()).find(|line| line.contains("restart.ranks"));
        assert!(lines.is_some_and(|line| line.contains(reason)), "{checkpoint}: {}{}", ran.out, ran.err);
    }
    let text = "job: a\nallocation: {manager: local, nodes: 1}\nrun: {command: [\"true\"]}\n\
                checkpoint: {restart: {ranks: any, fetch: false}}\n";
    let spec = world.write("job.yaml", text);
    let ran = world.run(world.holdfast(["check".as_ref(), spec.as_os_str()])).with_code(78);
    ran.prints(&["`ranks: any` is impossible with `restart: {fetch: false}`"]);
    let text = "job: a\nkind: replicated\nallocation: {manager: local, nodes: 1}\n\
                pairs: [{name: a, command: [./app]}]\ncheckpoint: {restart: {ranks: any}}\n";
    let spec = world.write("job.yaml", text);
    let ran = world.run(world.holdfast(["check".as_ref(), spec.as_os_str()])).with_code(78);
    ran.prints(&["`checkpoint.restart` has no effect with `kind: replicated`"]);
}
