//! Ranks that wait in a call for others: who waits for whom is in the log and in `status`.

use serde_json::json;

use crate::job::Job;
use crate::world::World;

/// After the last step, before all ranks add up the checksum together, rank 2 stops.
fn hanging(world: &World) -> String {
    format!("--hang-at 40 --hang-rank 2 --hang-once {}", world.path("hung").display())
}

#[test]
fn ranks_that_wait_for_another_are_named_in_log_and_status(world: &World) {
    let job = Job::new(world, 0).health("waiting_after: 2s").heat(&hanging(world));
    let mut running = job.start();
    let event = running.sees_event("ranks_wait");
    assert_eq!((&event["generation"], &event["call"]), (&json!(1), &json!("allgather")), "{event}");
    assert!(event["missing"].as_array().unwrap().contains(&json!(2)), "{event}");
    assert!(event["millis"].as_u64().unwrap() >= 2000, "{event}");
    let status = || job.command(&["status", "--json"], 0).json()["waiting"].clone();
    world.wait("the three others wait", || {
        let waiting = status();
        let found = (&waiting["rank"], &waiting["waiting"], &waiting["missing"]);
        (found == (&json!(0), &json!(3), &json!([2]))).then_some(())
    });
    job.command(&["status"], 0).prints(&["waiting: rank 0 and 2 other ranks wait in allgather for rank 2, for "]);
    job.command(&["halt", "set", "--immediate"], 0);
    running.ends_with(75).prints(&["wait in allgather for rank"]);
    assert_eq!(world.all("ranks_wait").len(), 1, "once in a wait");
}

#[test(unchecked)]
fn wait_is_shown_and_not_logged_without_the_key(world: &World) {
    let job = Job::new(world, 0).health("waiting_after: none").heat(&hanging(world));
    let running = job.start_to_event("generation_launched");
    world.wait("a long wait", || {
        let waiting = job.command(&["status", "--json"], 0).json()["waiting"].clone();
        (waiting["millis"].as_u64() >= Some(3000)).then_some(())
    });
    job.command(&["halt", "set", "--immediate"], 0);
    running.ends_with(75);
    assert_eq!(world.all("ranks_wait").len(), 0);
}
