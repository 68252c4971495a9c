//! The output of commands about a running job, and its event log, compared with the files in `tests/cli/snapshots`.

use serde_json::Value;

use crate::job::Job;
use crate::redaction::assert_matches;
use crate::world::World;

/// Checks the standard output of a command about the job.
fn assert_output(world: &World, job: &Job<'_>, name: &str, words: &[&str]) {
    assert_matches(&world.path(""), name, &job.command(words, 0).out);
}

#[test]
fn commands_show_a_running_job_and_its_halt_conditions(world: &World) {
    let job = Job::new(world, 1).grace("10min").holding_after(2);
    let running = job.reaches(2);
    world.wait("checkpoint 2 in the journal", || (world.state()["explanation"]["newest"] == 2).then_some(()));

    assert_output(world, &job, "running-status", &["status"]);
    assert_output(world, &job, "running-halt-list-empty", &["halt", "list"]);
    assert_output(
        world,
        &job,
        "running-halt-set",
        &["halt", "set", "--checkpoints", "2", "--after", "2100-01-01T00:00:00", "--seconds", "90"],
    );
    assert_output(world, &job, "running-halt-list", &["halt", "list"]);
    assert_output(world, &job, "running-halt-list-json", &["halt", "list", "--json"]);
    assert_output(world, &job, "running-halt-unset", &["halt", "unset", "--all"]);
    assert_output(world, &job, "running-halt-immediate", &["halt", "set", "--immediate", "--dry-run"]);
    assert_output(world, &job, "running-halt-now", &["halt", "set", "--now"]);
    assert_output(world, &job, "running-status-halted", &["status"]);
    assert_output(world, &job, "running-status-json", &["status", "--json"]);

    job.go_on();
    let ended = running.ends_with(75);
    assert_matches(&world.path(""), "halted-report", &ended.out);
}

#[test(unchecked)]
fn event_log_of_a_job_with_a_node_loss(world: &World) {
    let mut job = Job::new(world, 1).holding_after(2).faults("{node: 2, after_checkpoint: 2}");
    job.steps = 15;
    job.goes_on_to_its_end(job.start_to_event("node_down"));
    // Agents, the launcher and the resource manager report concurrently: the order of events differs from run to run,
    // and so do the first sign of the loss, and the reports of ranks and connections that end with it.
    let concurrent = [
        "agent_lost",
        "failure_explained",
        "rank_connected",
        "rank_gone",
        "rank_failed",
        "rank_ended",
        "unauthenticated_connection",
    ];
    let mut events = world.events();
    events.retain(|event| !concurrent.iter().any(|name| event["event"] == *name));
    let line = |event: &mut Value| {
        let fields = event.as_object_mut().unwrap();
        let name = fields["event"].as_str().unwrap().to_owned();
        fields["time"] = "[time]".into();
        if name == "node_down" {
            fields.retain(|field, _| !["why", "reason", "restart", "state"].contains(&field.as_str()));
        }
        if name == "settings_in_force" {
            fields["version"] = "[version]".into();
            fields["settings"].as_array_mut().unwrap().retain(|setting| setting["origin"] != "default");
        }
        if name == "generation_ending" && fields["generation"] == 1 {
            fields["seen"] = "[first sign]".into();
        }
        format!("{name}: {event}\n")
    };
    let mut lines: Vec<String> = events.iter_mut().map(line).collect();
    lines.sort_unstable();
    assert_matches(&world.path(""), "events-of-node-loss", &lines.concat());
}
