//! A node that is up has lost its control and cache directories, as after a reboot: the drain does without its files.

use serde_json::{Value, json};

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// The job has checkpoint 4 in the caches, no process is left, and node 1 is emptied.
fn emptied<'a>(world: &'a World, redundancy: &str, flush: &str) -> Job<'a> {
    let mut job = Job::new(world, 0).redundancy(redundancy).flush(flush).heat("--files-per-rank 2").holding_after(4);
    job.per_node = 2;
    job.abandon_after(4);
    world.kill(|_| true);
    world.empty_nodes(&["node1"]);
    job
}

const SCHEMES: [(&str, &[u32]); 3] = [
    ("[{scheme: partner}]", &[]),
    ("[{scheme: xor, set_size: 4}]", &[2, 3]),
    ("[{scheme: partner, hop_distance: 2}]", &[]),
];

#[test]
fn files_of_a_node_that_lost_its_directories_are_copied_from_partners_or_rebuilt_with_each_scheme() {
    for flush in ["{every: 0}", "{every: 0, container: {kind: sion, files: 2}}"] {
        for (redundancy, rebuilt) in SCHEMES {
            let world = World::new();
            let job = emptied(&world, redundancy, flush);
            let drained = job.command(&["drain", "--json"], 0).json();
            assert_eq!((&drained["checkpoint"], &drained["complete"]), (&json!(4), &json!(true)), "{drained:#}");
            assert_eq!(drained["rebuilt_ranks"], json!(rebuilt), "{drained:#}");
            let second: Vec<Value> = world.all("copied").into_iter().filter(|event| event["round"] == 2).collect();
            let ranks: Vec<&Value> = second.iter().map(|event| &event["ranks"]).collect();
            let expected = if rebuilt.is_empty() { vec![json!([2, 3])] } else { Vec::new() };
            assert_eq!(ranks, expected.iter().collect::<Vec<_>>(), "{redundancy} {flush}");
            pfs::assert_current(&world.prefix(), 4);
        }
    }
}

#[test(unchecked)]
fn without_redundancy_the_ranks_of_a_node_that_lost_its_directories_are_named(world: &World) {
    let job = emptied(world, "[{scheme: local}]", "{every: 0}");
    job.command(&["drain"], 65).prints(&["checkpoint 4 is not complete"]);
    assert_eq!(pfs::indexed(&world.prefix())[&4], Some(false));
}

#[test]
fn drain_by_prefix_and_scr_postrun_copy_from_the_partner_of_a_node_that_lost_its_directories() {
    for words in [&["drain", "--prefix"][..], &["compat", "scr_postrun", "-p"]] {
        let world = World::new();
        emptied(&world, "[{scheme: partner}]", "{every: 0}");
        world.run(world.holdfast(words).arg(world.prefix())).with_code(0);
        pfs::assert_current(&world.prefix(), 4);
    }
}
