//! Steps with `needs`, and what is remembered of steps and jobs that ended.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::job::Job;
use crate::world::{Ran, Running, World, state_of};

/// A job of steps of one node each. Each step appends its name to a file; it waits while `hold.<name>` exists, and
/// fails while `fail.<name>` exists.
struct Steps<'a> {
    world: &'a World,
    /// The names of the steps, and their further keys.
    steps: Vec<(&'static str, &'static str)>,
}

impl<'a> Steps<'a> {
    fn new(world: &'a World, steps: &[(&'static str, &'static str)]) -> Self {
        Steps { world, steps: steps.to_vec() }
    }

    fn spec(&self) -> PathBuf {
        let home = self.world.path("");
        let home = home.display();
        let step = |(name, keys): &(&str, &str)| {
            let script = format!(
                "cd {home}; echo {name} >>ran; while test -e hold.{name}; do sleep 0.05; done; test ! -e fail.{name}"
            );
            format!("- {{name: {name}, run: {{nodes: 1, command: [sh, -c, {script:?}]}}{keys}}}\n")
        };
        let steps: String = self.steps.iter().map(step).collect();
        let after = format!("echo after >>{home}/ran");
        let text = format!(
            "job: chain\nprefix: {:?}\nallocation: {{manager: local, nodes: 2}}\nafter: [{{command: [sh, -c, \
             {after:?}]}}]\nrelaunch: {{attempts: 0}}\nhealth: {{down_after: 10s}}\nsteps:\n{steps}",
            self.world.prefix()
        );
        self.world.write("job.yaml", &text)
    }

    fn holdfast(&self, words: &[&str]) -> Ran {
        self.world.run(self.world.holdfast(words).arg(self.spec()))
    }

    fn start(&self) -> Running<'a> {
        self.world.start(self.world.holdfast(["run".as_ref(), self.spec().as_os_str()]))
    }

    fn mark(&self, name: &str) {
        fs::write(self.world.path(name), "").unwrap();
    }

    fn unmark(&self, name: &str) {
        fs::remove_file(self.world.path(name)).unwrap();
    }

    /// The steps that ran, in their order.
    fn ran(&self) -> String {
        let text = fs::read_to_string(self.world.path("ran")).unwrap_or_default();
        text.lines().collect::<Vec<_>>().join(" ")
    }

    fn prefix(&self, step: &str) -> PathBuf {
        self.world.prefix().join(step)
    }
}

fn launches(world: &World, prefix: &Path) -> usize {
    world.events_of(prefix).iter().filter(|event| event["event"] == "generation_launched").count()
}

fn results(report: &Value) -> Vec<(&str, &str)> {
    let steps = report["steps"].as_array().unwrap().iter();
    steps.map(|step| (step["name"].as_str().unwrap(), step["result"].as_str().unwrap())).collect()
}

#[test]
fn independent_steps_run_after_a_failure_and_share_the_agents(world: &World) {
    let job = Steps::new(
        world,
        &[("a", ""), ("b", ", needs: []"), ("c", ", needs: [a]"), ("d", ", needs: [b]"), ("e", ", needs: [c, d]")],
    );
    job.mark("fail.a");
    job.mark("fail.d");
    let ran = job.holdfast(&["run", "--json"]).with_code(90);
    assert_eq!(job.ran(), "a b d after");
    let report = ran.json();
    let expected = [("a", "failed"), ("b", "finished"), ("c", "skipped"), ("d", "failed"), ("e", "skipped")];
    assert_eq!(results(&report), expected);
    assert_eq!((&report["exit_code"], report["generations"].as_array().unwrap().len()), (&json!(90), 3));
    assert!(report["outcome"].as_str().unwrap().starts_with("1 of 5 steps are finished; a: "), "{report:#}");
    // One agent a node was started, for all steps.
    let started: usize = ["a", "b", "d"].map(|step| ready(world, &job.prefix(step))).iter().sum();
    assert_eq!(started, 3 * 2, "each step reports the two agents");
    let pids = fs::read_dir(world.prefix().join(".holdfast/agents")).unwrap().count();
    assert_eq!(pids, 2);
    world.assert_nothing_is_left();
    // Finished steps are not repeated; those that failed are.
    job.unmark("fail.a");
    job.unmark("fail.d");
    fs::remove_file(world.path("ran")).unwrap();
    job.holdfast(&["run"]).with_code(0).prints(&["all 5 steps are finished", "step b: finished in an earlier run"]);
    assert_eq!(job.ran(), "a c d e after");
}

fn ready(world: &World, prefix: &Path) -> usize {
    world.events_of(prefix).iter().filter(|event| event["event"] == "agent_ready").count()
}

#[test(unchecked)]
fn a_step_runs_after_those_that_it_needs_wherever_they_are_listed(world: &World) {
    let job = Steps::new(world, &[("last", ", needs: [first]"), ("first", ", needs: []")]);
    job.holdfast(&["run"]).with_code(0);
    assert_eq!(job.ran(), "first last after");
}

#[test(unchecked)]
fn without_needs_a_step_that_fails_ends_the_chain(world: &World) {
    let job = Steps::new(world, &[("a", ""), ("b", ""), ("c", "")]);
    job.mark("fail.b");
    let ran = job.holdfast(&["run"]).with_code(90);
    ran.prints(&["1 of 3 steps are finished; b: ", "step a: finished", "step c: skipped: it needs b"]);
    assert_eq!(job.ran(), "a b after");
}

#[test]
fn a_signal_ends_the_job_and_not_only_the_step(world: &World) {
    let job = Steps::new(world, &[("a", ""), ("b", ", needs: []")]);
    job.mark("hold.a");
    let running = job.start();
    world.wait("the first step", || (job.ran() == "a").then_some(()));
    running.terminated().prints(&["step b: not started"]);
    assert_eq!(job.ran(), "a after");
    job.unmark("hold.a");
    job.holdfast(&["run"]).with_code(0);
    assert_eq!(job.ran(), "a after a b after");
}

#[test]
fn successor_continues_the_step_under_way_and_does_not_repeat_one_that_failed(world: &World) {
    let job = Steps::new(world, &[("a", ""), ("b", ", needs: []"), ("c", ", needs: [a]"), ("d", ", needs: [b]")]);
    job.mark("fail.a");
    job.mark("hold.b");
    let running = job.start();
    world.wait("the second step", || (job.ran() == "a b").then_some(()));
    // Otherwise the successor relaunches the step, because it cannot know whether it was launched.
    let started = || state_of(&job.prefix("b"))["snapshot"]["run"]["facts"]["started"] == true;
    world.wait("the launch in the state", || started().then_some(()));
    running.killed();
    job.unmark("hold.b");
    let ran = job.holdfast(&["run", "--json"]).with_code(90);
    assert_eq!(job.ran(), "a b d after");
    assert_eq!(results(&ran.json()), [("a", "failed"), ("b", "finished"), ("c", "skipped"), ("d", "finished")]);
}

#[test(unchecked)]
fn status_and_index_show_all_steps_of_a_job(world: &World) {
    let heat = |name: &str| {
        format!(
            "- {{name: {name}, run: {{nodes: 1, command: [holdfast, example, heat, --step-delay, '0', --steps, '20', \
             --size, 24x24, --checkpoint-every, '10']}}, checkpoint: {{redundancy: [{{scheme: local}}]}}}}\n"
        )
    };
    let text = format!(
        "job: chain\nprefix: {:?}\nallocation: {{manager: local}}\nsteps:\n{}{}",
        world.prefix(),
        heat("one"),
        heat("two")
    );
    let spec = world.write("job.yaml", &text);
    let spec = spec.to_str().unwrap();
    let prefix = world.prefix();
    let prefix = prefix.to_str().unwrap();
    world.run(world.holdfast(["run", spec])).with_code(0);
    for selection in [vec![spec], vec!["--prefix", prefix]] {
        let status = world.run(world.holdfast([vec!["status"], selection.clone()].concat())).with_code(0);
        status.prints(&["step one: finished", "step two: finished", "newest checkpoint 2"]);
        let status = world.run(world.holdfast([vec!["status", "--json"], selection].concat())).with_code(0).json();
        assert_eq!((&status["stage"], &status["exit_code"]), (&json!("finished"), &json!(0)));
        assert_eq!(status["steps"][1]["name"], "two");
    }
    let list = world.run(world.holdfast(["index", "list", "--json", "--prefix", prefix])).with_code(0).json();
    let steps = list["steps"].as_array().unwrap();
    assert_eq!((steps.len(), steps[1]["checkpoints"].as_array().unwrap().len()), (2, 1), "{list:#}");
    world.run(world.holdfast(["index", "list", "--prefix", prefix])).with_code(0).prints(&["step one:", "step two:"]);
}

#[test(unchecked)]
fn status_shows_the_step_under_way_and_those_that_follow(world: &World) {
    let job = Steps::new(world, &[("a", ""), ("b", ""), ("c", "")]);
    job.mark("hold.b");
    let running = job.start();
    world.wait("the second step", || (job.ran() == "a b").then_some(()));
    let mut status = world.holdfast(["status", "--prefix"]);
    status.arg(world.prefix());
    world.run(status).with_code(0).prints(&["step a: finished", "step b: running", "step c: not started"]);
    job.unmark("hold.b");
    running.ends_with(0);
}

#[test]
fn finished_job_is_remembered_and_again_repeats_it(world: &World) {
    let mut job = Job::new(world, 0);
    job.run(0);
    let launched = || launches(world, &world.prefix());
    job.command(&["run"], 0)
        .prints(&["the job was finished in an earlier run; `holdfast run --again` repeats it", "checkpoint    8"]);
    assert_eq!(launched(), 1);
    job.command(&["run", "--dry-run"], 0).prints(&["was finished in an earlier run", "`--again` repeats it"]);
    let report = job.command(&["run", "--json"], 0).json();
    assert_eq!((&report["exit_code"], &report["checkpoint"]), (&json!(0), &json!(8)));
    let ran = job.command(&["status"], 0);
    ran.prints(&["finished, generation 1", "the job is finished", "newest checkpoint 8", "released"]);
    job.command(&["run", "--again"], 0).prints(&["the job is finished"]);
    assert_eq!(launched(), 2);
    assert_eq!(world.all("restarted").pop().unwrap()["checkpoint"], 8);
    // With another command it is another job.
    job.steps = 60;
    job.run(0);
    assert_eq!(launched(), 3);
    job.assert_result();
    assert_eq!(state_of(&world.prefix())["stage"]["exit_code"], 0);
}

#[test(unchecked)]
fn again_repeats_all_steps(world: &World) {
    let job = Steps::new(world, &[("a", ""), ("b", "")]);
    job.holdfast(&["run"]).with_code(0);
    job.holdfast(&["run"]).with_code(0).prints(&["all 2 steps were finished in earlier runs"]);
    assert_eq!(job.ran(), "a b after");
    job.holdfast(&["run", "--again"]).with_code(0);
    assert_eq!(job.ran(), "a b after a b after");
}
