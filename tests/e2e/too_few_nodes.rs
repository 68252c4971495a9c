//! More nodes are lost than there are spares: the job stops and drains, so that another allocation can restart.

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn drain_rebuilds_missing_member_for_next_allocation(world: &World) {
    let job = Job::new(world, 0).holding_after(4);
    let ran = job.clone().faults("{node: 1, after_checkpoint: 4}").run(75);
    ran.prints(&["too few healthy nodes: 3 left, 4 needed", "rank 1 of checkpoint 4 rebuilt"]);
    assert_eq!(world.the("rebuilt_in_prefix")["rank"], 1);
    pfs::assert_current(&world.prefix(), 4);
    world.assert_nothing_is_left();
    job.go_on();
    job.run_to_result();
    world.assert_restarted(4, "fetched");
    pfs::assert_current(&world.prefix(), 8);
}

#[test]
fn records_checkpoint_with_two_missing_members_as_incomplete(world: &World) {
    let job = Job::new(world, 0).holding_after(5).flush("{every: 3}");
    let both = ["{node: 1, after_checkpoint: 5}", "{node: 2, after_checkpoint: 5}"];
    let ran = both.into_iter().fold(job.clone(), Job::faults).run(75);
    ran.prints(&["too few healthy nodes: 2 left, 4 needed", "could not be completed", "two members of the XOR set"]);
    // Another allocation continues from it.
    ran.prints(&["checkpoint 3 is complete there"]);
    assert_eq!(pfs::indexed(&world.prefix())[&5], Some(false));
    pfs::assert_current(&world.prefix(), 3);
    world.assert_nothing_is_left();
    job.go_on();
    job.run_to_result();
    world.assert_restarted(3, "fetched");
}

#[test]
fn rebuilds_two_lost_members_of_different_sets(world: &World) {
    let mut job = Job::new(world, 0).redundancy("[{scheme: xor, set_size: 2}]").holding_after(4);
    for failure in ["{node: 1, after_checkpoint: 4}", "{node: 2, after_checkpoint: 4}"] {
        job = job.faults(failure);
    }
    job.run(75);
    let mut rebuilt: Vec<_> = world.all("rebuilt_in_prefix").iter().map(|event| event["rank"].as_u64()).collect();
    rebuilt.sort_unstable();
    assert_eq!(rebuilt, [Some(1), Some(2)]);
    pfs::assert_current(&world.prefix(), 4);
}

#[test]
fn reports_that_no_node_is_left(world: &World) {
    let mut job = Job::new(world, 0).holding_after(4).flush("{every: 3}");
    for node in 0..4 {
        job = job.faults(&format!("{{node: {node}, after_checkpoint: 4}}"));
    }
    job.run(75).prints(&["too few healthy nodes: 0 left"]);
    pfs::assert_current(&world.prefix(), 3);
}
