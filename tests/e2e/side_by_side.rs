//! Steps that run side by side, each on nodes of its own: an ensemble, and what needs it.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::pages::example_of;
use crate::pfs;
use crate::world::{Running, World, state_of};

/// Time steps of the heat equation in a member.
const LENGTH: &str = "40";

/// An ensemble of members on two nodes each; each waits after checkpoint 4 until the test lets it continue. The step
/// `sum` needs all of them.
struct Ensemble<'a> {
    world: &'a World,
    nodes: u32,
    members: &'static str,
    /// Further keys of the job.
    of_job: &'static str,
    faults: &'static str,
    /// Further keys of the allocation.
    of_allocation: &'static str,
    /// `relaunch` of the members.
    relaunch: &'static str,
}

impl<'a> Ensemble<'a> {
    fn new(world: &'a World) -> Self {
        Ensemble { world, nodes: 5, members: "[a, b]", of_job: "", faults: "[]", of_allocation: "", relaunch: "{}" }
    }

    fn spec(&self) -> PathBuf {
        let Ensemble { world, nodes, members, of_job, faults, of_allocation, relaunch } = self;
        let file = |name: &str| world.path(name).display().to_string();
        let (output, gate, sum) = (file("{each}.heat"), file("go-on.{each}"), file("sum"));
        let text = format!(
            "job: ensemble\nprefix: {:?}\nallocation: {{manager: local, nodes: {nodes}, faults: \
             {faults}{of_allocation}}}\n{of_job}health: {{down_after: 10s}}\nhalt: {{grace: 1s}}\nsteps:\n\
             - name: member\n  each: {members}\n  relaunch: {relaunch}\n  run:\n    nodes: 2\n    \
             ranks_per_node: 1\n    command: [holdfast, example, heat, --step-delay, '0', --steps, '{LENGTH}', \
             --size, 24x24, --checkpoint-every, '5', --output, {output:?}, --hold-at, '20', --until, {gate:?}]\n  \
             checkpoint: {{redundancy: [{{scheme: partner}}], flush: {{every: 0}}}}\n- name: sum\n  run: {{nodes: 1, \
             command: [sh, -c, 'cat {}/*.heat >{sum}']}}\n  checkpoint: {{source: none}}\n",
            world.prefix(),
            world.path("").display(),
        );
        world.write("job.yaml", &text)
    }

    fn start(&self) -> Running<'a> {
        self.world.start(self.world.holdfast(["run".as_ref(), self.spec().as_os_str()]))
    }

    fn prefix(&self, step: &str) -> PathBuf {
        self.world.prefix().join(step)
    }

    fn go_on(&self, member: &str) {
        fs::write(self.world.path(&format!("go-on.{member}")), "").unwrap();
    }

    fn all(&self, step: &str, event: &str) -> Vec<Value> {
        let events = self.world.events_of(&self.prefix(step)).into_iter();
        events.filter(|known| known["event"] == event).collect()
    }

    /// Waits until both members have written their fourth checkpoint: they wait there.
    #[track_caller]
    fn both_hold(&self) {
        for member in ["member-a", "member-b"] {
            self.holds(member, 4);
        }
    }

    #[track_caller]
    fn holds(&self, step: &str, checkpoint: u64) {
        // A loss right after it leaves only the restart from it.
        let is_known = |event: &Value| {
            ["checkpoint_protected", "restarted"].map(Value::from).contains(&event["event"])
                && event["checkpoint"] == checkpoint
        };
        let protected = || self.world.events_of(&self.prefix(step)).iter().any(is_known);
        self.world.wait(&format!("checkpoint {checkpoint} of {step}"), || protected().then_some(()));
    }

    /// The nodes of the last placement of a step.
    fn placed(&self, step: &str) -> Vec<String> {
        let placed = self.all(step, "generation_placed").pop().unwrap();
        serde_json::from_value(placed["nodes"].clone()).unwrap()
    }

    fn launches(&self, step: &str) -> usize {
        self.all(step, "generation_launched").len()
    }

    /// The next orchestrator takes over both members, which go on to their end.
    #[track_caller]
    fn is_taken_over(&self, running: Running<'_>) {
        running.killed();
        let again = self.start();
        for member in ["member-a", "member-b"] {
            self.world.wait("the take-over", || self.all(member, "took_over").pop());
        }
        ["a", "b"].iter().for_each(|member| self.go_on(member));
        again.ends_with(0);
    }

    #[track_caller]
    fn assert_restarted_from_caches(&self) {
        for member in ["member-a", "member-b"] {
            let last = self.all(member, "restarted").pop().unwrap();
            assert_eq!((last["checkpoint"].as_u64(), last["source"].as_str()), (Some(4), Some("cache")), "{member}");
        }
    }

    /// All members have the result of a run without a failure, `sum` had them all, and both are in the prefix.
    #[track_caller]
    fn assert_results(&self) {
        let reference = self.world.path("reference");
        let words = ["example", "heat", "--step-delay", "0", "--steps", LENGTH, "--size", "24x24", "--output"];
        self.world.run(self.world.holdfast(words).arg(&reference).env("SCR_ENABLE", "0")).with_code(0);
        let reference = fs::read(reference).unwrap();
        for member in ["a", "b"] {
            assert_eq!(fs::read(self.world.path(&format!("{member}.heat"))).unwrap(), reference, "{member}");
            pfs::assert_current(&self.prefix(&format!("member-{member}")), 8);
        }
        assert_eq!(fs::read(self.world.path("sum")).unwrap(), [&reference[..], &reference].concat());
        self.world.assert_nothing_is_left();
    }
}

#[test]
fn independent_steps_run_at_the_same_time_on_nodes_of_their_own(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    assert_eq!((job.placed("member-a"), job.placed("member-b")), (nodes(&[0, 1]), nodes(&[2, 3])));
    // The spare is with the job: it has no agent.
    for member in ["member-a", "member-b"] {
        assert!(state_of(&job.prefix(member))["running"].get("node4").is_none());
    }
    let status = || world.run(world.holdfast(["status".as_ref(), "--json".as_ref(), job.spec().as_os_str()])).json();
    // The state on disk may be later than the event.
    let status = world.wait("the checkpoints in the status", || {
        let status = status();
        (0..2).all(|at| status["steps"][at]["checkpoint"] == 4).then_some(status)
    });
    let step = |at: usize| {
        let step = &status["steps"][at];
        (step["name"].clone(), step["stage"].clone(), step["checkpoint"].clone(), step["nodes"].clone())
    };
    assert_eq!(step(0), (json!("member-a"), json!("running"), json!(4), json!(["node0", "node1"])));
    assert_eq!(step(1), (json!("member-b"), json!("running"), json!(4), json!(["node2", "node3"])));
    assert_eq!(step(2), (json!("sum"), json!("not_started"), Value::Null, Value::Null));
    let of_b = ["status", "--json", "--step", "member-b"];
    let of_b = world.run(world.holdfast(of_b).arg(job.spec())).json();
    let listed: Vec<&Value> = of_b["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(listed, ["node2", "node3"]);
    let unnamed = world.run(world.holdfast(["checkpoint"]).arg(job.spec())).with_code(64);
    unnamed.prints(&["several steps of the job run side by side", "`--step`: member-a, member-b"]);
    let unknown = world.run(world.holdfast(["halt", "list", "--step", "member"]).arg(job.spec())).with_code(64);
    unknown.prints(&["there is no step member", "member-a, member-b, sum"]);
    let listed = world.run(world.holdfast(["nodes", "list", "--json"]).arg(job.spec())).json();
    let of = |at: usize| (listed["nodes"][at]["name"].clone(), listed["nodes"][at]["step"].clone());
    assert_eq!((of(0), of(2)), ((json!("node0"), json!("member-a")), (json!("node2"), json!("member-b"))));
    job.go_on("a");
    world.wait("the end of one member", || job.all("member-a", "finished").pop());
    assert!(job.all("sum", "job_started").is_empty(), "it needs the other one too");
    job.go_on("b");
    let ran = running.ends_with(0);
    ran.prints(&["all 3 steps are finished", "member-a: ", "member-b: "]);
    job.assert_results();
}

#[test]
fn the_ensemble_of_the_page_is_evaluated_when_all_members_are_finished(world: &World) {
    let spec = example_of("steps.md");
    let run = world.holdfast(["-v".as_ref(), "run".as_ref(), world.write("job.yaml", &spec).as_os_str()]);
    world.run(run).with_code(0).prints(&["all 4 steps are finished", "[member-1 0] heat: ", "[member-2 0] heat: "]);
    let member = |number: u32| fs::read(world.path(&format!("member.{number}"))).unwrap();
    assert_eq!(fs::read(world.path("both")).unwrap(), [member(1), member(2)].concat());
    let resolved = world.run(world.holdfast([
        "check".as_ref(),
        "--resolved".as_ref(),
        world.write("job.yaml", &spec).as_os_str(),
    ]));
    resolved.prints(&["name: member-1", "name: member-2", "member.2"]);
    assert!(!resolved.out.contains("{each}"), "{}", resolved.out);
}

fn nodes(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|number| format!("node{number}")).collect()
}

#[test]
fn a_step_that_loses_a_node_borrows_the_spare_of_the_job(world: &World) {
    let job = Ensemble { faults: "[{step: member-b, node: 2, after_checkpoint: 3}]", ..Ensemble::new(world) };
    let running = job.start();
    job.both_hold();
    assert_eq!(job.all("member-b", "nodes_lent")[0]["nodes"], json!(["node4"]));
    assert_eq!(job.placed("member-b"), nodes(&[3, 4]));
    let restarted = job.all("member-b", "restarted").pop().unwrap();
    assert!(restarted["checkpoint"].as_u64() >= Some(3) && restarted["source"] == "rebuilt", "{restarted}");
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    running.ends_with(0);
    assert_eq!((job.launches("member-a"), job.launches("member-b")), (1, 2), "the other one is not disturbed");
    job.assert_results();
}

#[test]
fn a_step_with_too_few_nodes_waits_for_those_of_another(world: &World) {
    let faults = "[{step: member-b, node: 2, after_checkpoint: 3}]";
    let job = Ensemble { nodes: 4, faults, ..Ensemble::new(world) };
    let running = job.start();
    world.wait("the step to wait", || job.all("member-b", "nodes_awaited").pop());
    job.holds("member-a", 4);
    let status = || world.run(world.holdfast(["status", "--json", "--step", "member-b"]).arg(job.spec())).json();
    world.wait("the status of the step", || (status()["phase"] == "waiting for nodes").then_some(()));
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    running.ends_with(0);
    let lent = job.all("member-b", "nodes_lent").pop().unwrap();
    assert!(["node0", "node1"].map(|node| json!([node])).contains(&lent["nodes"]), "{lent}");
    assert_eq!((job.launches("member-a"), job.launches("member-b")), (1, 2));
    job.assert_results();
}

#[test]
fn a_step_with_a_limit_of_its_own_goes_on_with_fewer_nodes(world: &World) {
    let faults = "[{step: member-b, node: 2, after_checkpoint: 3}]";
    let job = Ensemble { nodes: 4, faults, relaunch: "{min_nodes: 1}", ..Ensemble::new(world) };
    let running = job.start();
    world.wait("the second launch", || (job.launches("member-b") == 2).then_some(()));
    assert_eq!((job.placed("member-b").len(), job.all("member-b", "nodes_awaited").len()), (1, 0));
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    running.ends_with(0);
    job.assert_results();

    let limited = Ensemble { relaunch: "{min_nodes: 1, max_ranks_per_node: 1}", ..job };
    let checked = world.run(world.holdfast(["check".as_ref(), limited.spec().as_os_str()])).with_code(78);
    checked.prints(&["steps[0].relaunch.max_ranks_per_node: 2 ranks do not fit on 1 nodes with at most 1 ranks each"]);
}

#[test]
fn of_steps_that_all_wait_for_nodes_one_ends_and_the_next_run_continues_it(world: &World) {
    let faults = "[{step: member-a, node: 0, after_checkpoint: 3}, {step: member-b, node: 2, after_checkpoint: 3}]";
    let job = Ensemble { nodes: 4, faults, of_job: "keep_cache: none\n", ..Ensemble::new(world) };
    let running = job.start();
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    running.ends_with(75).prints(&["too few nodes are left"]);
    let ends: Vec<Value> =
        ["member-a", "member-b"].map(|member| job.all(member, "finished").pop().unwrap()["exit_code"].clone()).to_vec();
    assert!(ends.contains(&json!(0)) && ends.contains(&json!(75)), "{ends:?}");
    Ensemble { faults: "[]", ..job }.start().ends_with(0);
    let job = Ensemble::new(world);
    job.assert_results();
}

#[test]
fn the_next_orchestrator_takes_over_all_steps_that_run(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    job.is_taken_over(running);
    assert_eq!((job.launches("member-a"), job.launches("member-b")), (1, 1));
    job.assert_results();
}

#[test]
fn steps_restart_from_the_caches_of_their_own_nodes(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    while world.kill(|_| true) > 0 {}
    running.end();
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    job.start().ends_with(0);
    job.assert_restarted_from_caches();
    job.assert_results();
}

#[test]
fn a_drain_alone_saves_the_checkpoints_of_all_steps(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    while world.kill(|_| true) > 0 {}
    running.end();
    let drained = world.run(world.holdfast(["drain".as_ref(), "--json".as_ref(), job.spec().as_os_str()])).with_code(0);
    let steps = drained.json()["steps"].clone();
    let saved = |at: usize| (steps[at]["name"].clone(), steps[at]["result"]["checkpoint"].clone());
    assert_eq!((saved(0), saved(1)), ((json!("member-a"), json!(4)), (json!("member-b"), json!(4))));
    world.assert_nothing_is_left();
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    job.start().ends_with(0);
    assert_eq!(job.all("member-b", "restarted").pop().unwrap()["source"], "fetched");
    job.assert_results();
}

#[test]
fn a_halt_of_one_step_leaves_the_others_and_no_further_step_begins(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    world.run(world.holdfast(["halt", "set", "--immediate", "--step", "member-a"]).arg(job.spec())).with_code(0);
    world.wait("the end of the halted step", || job.all("member-a", "finished").pop());
    let status = |options: &[&str]| world.run(world.holdfast(["status"]).args(options).arg(job.spec()));
    // Its end is in the log before it is in the state.
    let shows_other = || status(&[]).with_code(0).out.contains(", step member-b: ");
    world.wait("the step that runs", || shows_other().then_some(()));
    status(&["--wait", "finished", "--timeout", "1s"]).with_code(69).prints(&["the job runs"]);
    job.go_on("b");
    let ran = running.ends_with(75);
    ran.prints(&["1 of 3 steps are finished", "member-a"]);
    assert_eq!(job.all("member-b", "finished").pop().unwrap()["exit_code"], 0);
    assert!(job.all("sum", "job_started").is_empty());
    job.go_on("a");
    job.start().ends_with(0);
    let last = job.all("member-a", "restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["source"]), (&json!(4), &json!("cache")), "its nodes kept the caches");
    assert_eq!(job.launches("member-b"), 1);
    job.assert_results();
}

#[test]
fn a_halt_of_the_job_halts_all_steps(world: &World) {
    let job = Ensemble { of_job: "keep_cache: none\n", ..Ensemble::new(world) };
    let running = job.start();
    job.both_hold();
    let halted =
        world.run(world.holdfast(["halt", "set", "--immediate", "--json"]).arg(job.spec())).with_code(0).json();
    let names: Vec<&Value> = halted["steps"].as_array().unwrap().iter().map(|step| &step["name"]).collect();
    assert_eq!(names, ["member-a", "member-b"]);
    running.ends_with(75);
    for member in ["member-a", "member-b"] {
        assert_eq!(job.all(member, "finished").pop().unwrap()["exit_code"], 75);
        pfs::assert_current(&job.prefix(member), 4);
    }
    world.assert_nothing_is_left();
}

#[test(unchecked)]
fn step_that_waits_for_nodes_does_not_keep_the_others_from_being_halted(world: &World) {
    let text = format!(
        "job: waits\nprefix: {:?}\nallocation: {{manager: local, nodes: 2, \
         faults: [{{step: m-1, node: 0, after: 100ms}}]}}\nsteps:\n- name: m\n  each: [1, 2]\n  \
         run: {{nodes: 1, command: [holdfast, example, heat, --size, 24x24, --steps, '1000000', \
         --checkpoint-every, '20', --step-delay, 5ms, --output, 'm.{{each}}']}}\n",
        world.prefix(),
    );
    let running = world.start_spec(&text);
    let events = |step: &str| world.events_of(&world.prefix().join(step)).into_iter();
    world.wait("a step that waits", || events("m-1").find(|event| event["event"] == "nodes_awaited"));
    world.wait("a checkpoint", || events("m-2").find(|event| event["event"] == "checkpoint_complete"));
    let halted = world.run(world.holdfast(["halt", "set", "--now", "--prefix"]).arg(world.prefix())).with_code(69);
    halted.prints(&["step m-1 was not asked", "step m-2"]);
    running.ends_with(75);
    assert_eq!(state_of(&world.prefix().join("m-2"))["stage"]["exit_code"], 75);
}

#[test]
fn kept_steps_go_on_in_their_nodes_before_finished_ones_are_repeated(world: &World) {
    let job = Ensemble { nodes: 4, members: "[a, b, c]", ..Ensemble::new(world) };
    let running = job.start();
    job.go_on("b");
    for member in ["member-a", "member-c"] {
        job.holds(member, 4);
    }
    running.terminated();
    ["a", "c"].iter().for_each(|member| job.go_on(member));
    let spec = job.spec();
    world.start(world.holdfast(["run".as_ref(), "--again".as_ref(), spec.as_os_str()])).ends_with(0);
    for (member, expected) in [("member-a", (4, "cache")), ("member-b", (8, "fetched")), ("member-c", (4, "cache"))] {
        let last = job.all(member, "restarted").pop().unwrap();
        assert_eq!((&last["checkpoint"], &last["source"]), (&json!(expected.0), &json!(expected.1)), "{member}");
    }
}

#[test]
fn fault_that_was_injected_is_not_injected_by_the_next_orchestrator(world: &World) {
    let faults = "[{step: member-b, rank: 1, action: kill-rank, after_checkpoint: 3}]";
    let job = Ensemble { faults, ..Ensemble::new(world) };
    let running = job.start();
    job.both_hold();
    job.is_taken_over(running);
    assert_eq!((job.all("member-b", "fault_injected").len(), job.launches("member-b")), (1, 2));
    job.assert_results();
}

#[test]
fn halted_steps_continue_in_the_caches_of_their_own_nodes(world: &World) {
    let job = Ensemble::new(world);
    let running = job.start();
    job.both_hold();
    world.run(world.holdfast(["halt", "set", "--immediate"]).arg(job.spec())).with_code(0);
    running.ends_with(75).prints(&["the caches are kept"]);
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    let placed = ["member-a", "member-b"].map(|member| job.placed(member));
    job.start().ends_with(0);
    job.assert_restarted_from_caches();
    assert_eq!(["member-a", "member-b"].map(|member| job.placed(member)), placed);
    job.assert_results();
}

#[test]
fn a_signal_ends_all_steps(world: &World) {
    let job = Ensemble { of_job: "keep_cache: none\n", ..Ensemble::new(world) };
    let running = job.start();
    job.both_hold();
    running.terminated();
    for member in ["member-a", "member-b"] {
        pfs::assert_current(&job.prefix(member), 4);
    }
    assert!(job.all("sum", "job_started").is_empty());
    world.assert_nothing_is_left();
}

#[test]
fn a_step_has_relaunch_limits_and_a_prefix_directory_of_its_own(world: &World) {
    let launched = world.path("launched");
    let step = |name: &str, keys: &str| {
        let script = format!("echo {name} $(date +%s%3N) >>{}; exit 3", launched.display());
        format!("- {{name: {name}, needs: [], {keys}run: {{nodes: 1, command: [sh, -c, {script:?}]}}}}\n")
    };
    let steps = [
        step("of-job", "checkpoint: {source: none}, "),
        step("attempts", "prefix: results/first, relaunch: {attempts: 0}, checkpoint: {source: none}, "),
        step("exit-code", "relaunch: {on_exit_code: [{codes: [3], action: stop}]}, checkpoint: {source: none}, "),
        // It would make progress by checkpoints, and writes none.
        step("progress", "relaunch: {no_progress_limit: 1}, "),
        step("settle", "relaunch: {attempts: 1, settle: 3s}, checkpoint: {source: none}, "),
    ];
    let text = format!(
        "job: limits\nprefix: {:?}\nallocation: {{manager: local, nodes: 2}}\nrelaunch: {{attempts: 2}}\nsteps:\n{}",
        world.prefix(),
        steps.concat(),
    );
    let spec = world.write("job.yaml", &text);
    world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).prints(&["0 of 5 steps are finished"]);
    let lines = fs::read_to_string(launched).unwrap();
    let times = |name: &str| -> Vec<u64> {
        let of_step = lines.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        of_step.map(|time| time.parse().unwrap()).collect()
    };
    let counts = ["of-job", "attempts", "exit-code", "progress", "settle"].map(|name| times(name).len());
    assert_eq!(counts, [3, 1, 1, 1, 2]);
    let waited = times("settle").windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(waited >= Some(3000), "{waited:?}");
    assert_eq!(state_of(&world.prefix().join("results/first"))["stage"]["stage"], "finished");
    // Commands find it by the prefix directory of the job.
    let report =
        world.run(world.holdfast(["report", "--json", "--step", "attempts", "--prefix"]).arg(world.prefix())).json();
    let step = report["steps"].as_array().unwrap().iter().find(|step| step["name"] == "attempts").unwrap();
    assert!(step["prefix"].as_str().unwrap().ends_with("results/first"), "{step}");
}

#[test]
fn commands_around_the_job_keep_its_steps_one_after_the_other(world: &World) {
    let step = |name: &str| {
        let file = world.path("ran").display().to_string();
        format!(
            "- {{name: {name}, needs: [], run: {{nodes: 1, command: [sh, -c, \"echo {name} begins >>{file}; sleep \
                 0.2; echo {name} ends >>{file}\"]}}, checkpoint: {{source: none}}}}\n"
        )
    };
    let text = |keys: &str| {
        format!(
            "job: row\nprefix: {:?}\nallocation: {{manager: local, nodes: 2}}\n{keys}steps:\n{}{}",
            world.prefix(),
            step("one"),
            step("two")
        )
    };
    let spec = world.write("job.yaml", &text("before: [{command: ['true']}]\n"));
    let checked = world.run(world.holdfast(["check".as_ref(), spec.as_os_str()])).with_code(0);
    checked.prints(&["one after the other", "`before`"]);
    world.run(world.holdfast(["run".as_ref(), spec.as_os_str()])).with_code(0);
    let lines = fs::read_to_string(world.path("ran")).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ["one begins", "one ends", "two begins", "two ends"]);
}

#[test]
fn a_node_that_the_user_excludes_is_lent_to_no_step(world: &World) {
    let faults = "[{step: member-b, node: 2, after_checkpoint: 3}]";
    let job = Ensemble { faults, nodes: 6, of_allocation: ", exclude: node4", ..Ensemble::new(world) };
    let running = job.start();
    job.both_hold();
    assert_eq!(job.all("member-b", "nodes_lent")[0]["nodes"], json!(["node5"]));
    // While the job runs: a node that no step has, and one that a step has.
    world.run(world.holdfast(["nodes", "include", "node4"]).arg(job.spec())).with_code(0);
    let excluded = ["nodes", "exclude", "node0", "--reason", "noise", "--now"];
    world.run(world.holdfast(excluded).arg(job.spec())).prints(&["node0"]);
    world.wait("a node in its place", || job.all("member-a", "nodes_lent").pop());
    ["a", "b"].iter().for_each(|member| job.go_on(member));
    running.ends_with(0);
    assert_eq!(job.all("member-a", "nodes_lent")[0]["nodes"], json!(["node4"]));
    job.assert_results();
}
