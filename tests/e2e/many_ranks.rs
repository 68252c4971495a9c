//! More than 256 ranks: SCR sorts them by the bytes of a number and calls every such checkpoint invalid.

use crate::job::Job;
use crate::pfs;
use crate::world::World;

#[test]
fn rebuilds_and_indexes_more_than_256_ranks_after_node_loss(world: &World) {
    let mut job = Job::new(world, 0).holding_at(1).faults("{node: 2, after_checkpoint: 1}");
    (job.per_node, job.steps, job.every, job.size) = (65, 2, 1, "8x260");
    job.run(75).prints(&["too few healthy nodes"]);
    assert_eq!(world.all("rebuilt_in_prefix").len(), 65);
    pfs::assert_current(&world.prefix(), 1);
    let summary = pfs::parsed(&pfs::current(&world.prefix()).unwrap().join("summary.scr"));
    assert_eq!(summary["CKPT"]["1"]["RANK"].as_object().unwrap().len(), 260);
}
