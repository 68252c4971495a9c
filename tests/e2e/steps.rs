//! A job of several steps: one allocation and one agent a node for all steps, separate checkpoints for each.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::pfs;
use crate::world::{Running, World};

/// Time steps of the heat equation in the job's two steps.
const LENGTHS: [(&str, u32); 2] = [("first", 40), ("second", 60)];

/// Two steps of four ranks on four of five nodes; each waits after checkpoint 4 until the test lets it continue.
pub(crate) struct TwoSteps<'a> {
    world: &'a World,
    faults: &'static str,
}

impl<'a> TwoSteps<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        TwoSteps { world, faults: "[]" }
    }

    pub(crate) fn start(&self) -> Running<'a> {
        self.start_with(&[])
    }

    fn start_with(&self, options: &[&str]) -> Running<'a> {
        let steps: String = LENGTHS
            .iter()
            .map(|(name, length)| {
                let output = self.output(name);
                let until = self.gate(name);
                format!(
                    "- name: {name}\n  run:\n    nodes: 4\n    ranks_per_node: 1\n    command: [holdfast, example, \
                    heat, \
                     --step-delay, '0', --steps, '{length}', --size, 24x24, --checkpoint-every, '5', --output, \
                     {output:?}, --hold-at, '20', --until, {until:?}]\n  checkpoint: \
                     {{redundancy: [{{scheme: xor, set_size: 4}}], flush: {{every: 0}}}}\n"
                )
            })
            .collect();
        let text = format!(
            "job: heat\nprefix: {:?}\nallocation: {{manager: local, nodes: 5, faults: {}}}\nsteps:\n{steps}\
             health: {{down_after: 10s}}\nhalt: {{grace: 1s}}\n",
            self.world.prefix(),
            self.faults
        );
        let spec = self.world.write("job.yaml", &text);
        self.world.start(self.world.holdfast(["run"]).args(options).arg(spec))
    }

    pub(crate) fn prefix(&self, step: &str) -> PathBuf {
        self.world.prefix().join(step)
    }

    fn output(&self, step: &str) -> PathBuf {
        self.world.path(&format!("{step}.heat"))
    }

    fn gate(&self, step: &str) -> PathBuf {
        self.world.path(&format!("go-on.{step}"))
    }

    pub(crate) fn go_on(&self, step: &str) {
        fs::write(self.gate(step), "").unwrap();
    }

    pub(crate) fn all(&self, step: &str, event: &str) -> Vec<Value> {
        let events = self.world.events_of(&self.prefix(step)).into_iter();
        events.filter(|known| known["event"] == event).collect()
    }

    /// Waits until the step has written its fourth checkpoint: it waits there.
    #[track_caller]
    pub(crate) fn holds(&self, step: &str) {
        let protected = || self.all(step, "checkpoint_protected").iter().any(|event| event["checkpoint"] == 4);
        self.world.wait(&format!("checkpoint 4 of {step}"), || protected().then_some(()));
    }

    fn state(&self, step: &str) -> Value {
        crate::world::state_of(&self.prefix(step))
    }

    /// The processes of the step's agents, by node.
    fn agents(&self, step: &str) -> Vec<(String, Value)> {
        let state = self.state(step);
        let running = state["running"].as_object().unwrap();
        running.iter().map(|(node, agent)| (node.clone(), agent["pid"].clone())).collect()
    }

    #[track_caller]
    fn assert_results(&self) {
        for (step, length) in LENGTHS {
            let reference = self.world.path(&format!("{step}.reference"));
            let length = length.to_string();
            let words = ["example", "heat", "--step-delay", "0", "--steps", &length, "--size", "24x24", "--output"];
            self.world.run(self.world.holdfast(words).arg(&reference).env("SCR_ENABLE", "0")).with_code(0);
            assert_eq!(
                fs::read(self.output(step)).unwrap(),
                fs::read(&reference).unwrap(),
                "the result of {step} differs"
            );
        }
        pfs::assert_current(&self.prefix("first"), 8);
        pfs::assert_current(&self.prefix("second"), 12);
        self.world.assert_nothing_is_left();
    }

    /// Checks that the second step started from the beginning.
    #[track_caller]
    fn assert_second_started_from_beginning(&self) {
        let restarted = self.all("second", "restarted");
        assert!(restarted[0]["checkpoint"].is_null(), "{restarted:#?}");
        let complete = self.all("second", "checkpoint_complete");
        assert_eq!(complete[0]["checkpoint"], 1, "{complete:#?}");
    }
}

#[test]
fn a_step_that_has_not_begun_is_named(world: &World) {
    let text = format!(
        "job: two\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nsteps:\n\
         - {{name: first, run: {{command: ['false']}}, checkpoint: {{source: none}}, relaunch: {{attempts: 0}}}}\n\
         - {{name: second, run: {{command: ['true']}}, checkpoint: {{source: none}}}}\n",
        world.prefix(),
    );
    world.start_spec(&text).end();
    let mut status = world.holdfast(["status", "--step", "second", "--prefix"]);
    status.arg(world.prefix());
    let shown = world.run(status).with_code(69);
    shown.prints(&["step `second` has not begun", "`holdfast status` lists the steps that have"]);
}

#[test]
fn recipients_and_figures_have_the_events_of_all_steps(world: &World) {
    let text = format!(
        "job: two\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nmetrics: {{file: two.prom}}\n\
         notify: [{{command: [sh, -c, 'cat >>all; echo \"$HOLDFAST_STEP\" >>names'], \
         events: [relaunched, finished]}}]\n\
         steps:\n\
         - {{name: first, run: {{command: ['true']}}, checkpoint: {{source: none}}}}\n\
         - {{name: second, run: {{command: ['false']}}, checkpoint: {{source: none}}, relaunch: {{attempts: 0}}}}\n",
        world.prefix(),
    );
    world.start_spec(&text).end();
    assert_eq!(fs::read_to_string(world.path("names")).unwrap(), "first\nsecond\n");
    let all = fs::read_to_string(world.path("all")).unwrap();
    let documents: Vec<Value> = serde_json::Deserializer::from_str(&all).into_iter().map(Result::unwrap).collect();
    let step = |document: &Value| (document["step"].clone(), document["event"]["exit_code"].clone());
    let steps: Vec<_> = documents.iter().map(step).collect();
    let second = world.events_of(&world.prefix().join("second")).pop().unwrap();
    assert_eq!(steps, [(json!("first"), json!(0)), (json!("second"), second["exit_code"].clone())]);
    let status = world.run(world.holdfast(["status", "--prefix", world.prefix().to_str().unwrap()])).with_code(0);
    status.prints(&[", step second: ended with exit code 90, generation 2", "step first: finished"]);
    let figures = fs::read_to_string(world.path("two.prom")).unwrap();
    for (step, code) in steps {
        let line = format!("holdfast_job_exit_code{{step={step}}} {code}\n");
        assert!(figures.contains(&line), "{line}{figures}");
    }
}

#[test(unchecked)]
fn steps_share_agents_and_start_from_beginning(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.holds("first");
    let agents = job.agents("first");
    assert_eq!(agents.len(), 5);
    job.go_on("first");
    job.holds("second");
    assert_eq!(job.agents("second"), agents);
    let first = job.state("first");
    assert_eq!((&first["stage"]["stage"], first["running"].as_object().unwrap().len()), (&"finished".into(), 0));
    job.go_on("second");
    running.ends_with(0);
    job.assert_second_started_from_beginning();
    let began = |step| job.all(step, "job_started").pop().unwrap()["job_id"].clone();
    assert_eq!(began("first"), began("second"));
    let launched = |step| job.all(step, "generation_launched").pop().unwrap()["generation"].clone();
    assert_eq!((launched("first"), launched("second")), (1.into(), 2.into()));
    job.assert_results();
}

#[test(unchecked)]
fn node_lost_in_one_step_is_not_used_in_the_next(world: &World) {
    let job = TwoSteps { faults: "[{node: node1, after_checkpoint: 2}]", ..TwoSteps::new(world) };
    let running = job.start();
    job.go_on("first");
    job.holds("second");
    let down = job.all("first", "node_down");
    assert_eq!((down.len(), &down[0]["node"]), (1, &"node1".into()));
    let placed = job.all("second", "generation_placed").pop().unwrap();
    assert_eq!(placed["nodes"], serde_json::json!(["node0", "node2", "node3", "node4"]));
    assert!(job.all("second", "agent_ready").iter().all(|event| event["node"] != "node1"));
    let nodes = &job.state("second")["explanation"]["nodes"];
    assert_eq!((&nodes[1]["node"], &nodes[1]["condition"]), (&"node1".into(), &"down".into()));
    let why = |reason: &Value| (reason["why"].clone(), reason["reason"].clone());
    assert_eq!(why(&nodes[1]["reason"]), why(&down[0]));
    job.go_on("second");
    running.ends_with(0);
    job.assert_second_started_from_beginning();
    job.assert_results();
}

#[test(unchecked)]
fn next_run_takes_over_second_step(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    job.holds("second");
    let agents = job.agents("second");
    running.killed();
    // As an orchestrator leaves it that is killed between the end of the first step and the removal of its key.
    let key = |step| job.prefix(step).join(".holdfast/job.secret");
    fs::copy(key("second"), key("first")).unwrap();
    let again = job.start();
    world.wait("the take-over", || job.all("second", "took_over").pop());
    assert!(!key("first").exists());
    job.go_on("second");
    again.ends_with(0);
    assert_eq!(job.all("first", "took_over").len(), 0);
    // Each orchestrator of a step logs the settings of that step.
    let settings = |step| -> Vec<Value> { job.all(step, "settings_in_force") };
    assert_eq!((settings("first").len(), settings("second").len()), (1, 2));
    let of_first = settings("first")[0]["settings"].to_string();
    assert!(of_first.contains("steps[0].run.nodes") && !of_first.contains("steps[1]"), "{of_first}");
    assert_eq!((job.all("second", "generation_launched").len(), agents.len()), (1, 5));
    job.assert_second_started_from_beginning();
    job.assert_results();
}

#[test(unchecked)]
fn next_run_restarts_second_step_from_its_checkpoints(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    job.holds("second");
    while world.kill(|_| true) > 0 {}
    running.end();
    job.go_on("second");
    job.start().ends_with(0);
    let last = job.all("second", "restarted").pop().unwrap();
    assert_eq!((last["checkpoint"].as_u64(), last["source"].as_str()), (Some(4), Some("cache")));
    job.assert_second_started_from_beginning();
    job.assert_results();
}

#[test]
fn choice_of_a_checkpoint_concerns_the_steps_that_are_not_finished(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.holds("first");
    job.go_on("first");
    job.holds("second");
    running.terminated();
    let newest = pfs::directory_of(&job.prefix("second"), 4).unwrap();
    let name = newest.file_name().unwrap().to_str().unwrap().to_owned();

    // It is of the second step; the first one is finished.
    let running = job.start_with(&["--checkpoint", &name]);
    let restarted = || job.all("second", "restarted").len() == 2;
    world.wait("the restart from it", || restarted().then_some(()));
    running.terminated();
    let last = job.all("second", "restarted").pop().unwrap();
    assert_eq!((&last["checkpoint"], &last["source"]), (&4.into(), &"fetched".into()));

    job.go_on("second");
    job.start_with(&["--from-beginning"]).ends_with(0);
    let last = job.all("second", "restarted").pop().unwrap();
    assert_eq!((job.all("second", "restarted").len(), &last["source"]), (3, &"fresh".into()));
    assert_eq!(job.all("first", "restarted").len(), 1, "it was finished");
    assert_eq!(pfs::directory_of(&job.prefix("second"), 4).unwrap(), newest, "nothing is deleted");

    // It is not run again, so that the choice has no effect.
    let refused = job.start_with(&["--checkpoint", &name]).ends_with(78);
    refused.prints(&["it is a checkpoint of `second`, which was finished in an earlier run", "`--again` repeats it"]);
}

#[test(unchecked)]
fn an_orchestrator_that_takes_over_has_the_choices_of_the_first_one(world: &World) {
    let job = TwoSteps::new(world);
    job.go_on("first");
    job.go_on("second");
    job.start().ends_with(0);
    fs::remove_file(job.gate("first")).unwrap();
    let running = job.start_with(&["--again", "--from-beginning"]);
    world.wait("the second run of the first step", || (job.all("first", "restarted").len() == 2).then_some(()));
    running.killed();
    job.go_on("first");
    job.start().ends_with(0);
    let restarted = job.all("second", "restarted");
    assert_eq!(restarted.iter().map(|event| &event["source"]).collect::<Vec<_>>(), ["fresh", "fresh"]);
}

#[test(unchecked)]
fn takes_over_after_orchestrator_is_killed_between_steps(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    job.go_on("second");
    world.wait("the state of the second step", || {
        job.prefix("second").join(".holdfast/job.json").exists().then_some(())
    });
    running.killed();
    job.start().ends_with(0);
    assert_eq!(job.all("first", "generation_launched").len(), 1);
    job.assert_second_started_from_beginning();
    job.assert_results();
}

#[test]
fn does_not_drain_files_of_first_step_into_second(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    world.wait("the state of the second step", || {
        job.prefix("second").join(".holdfast/job.json").exists().then_some(())
    });
    running.killed();
    world.run(world.holdfast(["drain", "--prefix"]).arg(job.prefix("second"))).with_code(0);
    assert_eq!(pfs::current_id(&job.prefix("second")), None);
    pfs::assert_current(&job.prefix("first"), 8);
}

#[test(unchecked)]
fn drain_alone_saves_the_newest_checkpoint_of_the_second_step(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    job.holds("second");
    running.killed();
    let mut drain = world.holdfast(["drain", "--prefix"]);
    drain.arg(job.prefix("second"));
    world.run(drain).with_code(0).prints(&["checkpoint 4 is complete"]);
    world.assert_nothing_is_left();
    job.go_on("second");
    job.start().ends_with(0);
    assert_eq!(job.all("first", "generation_launched").len(), 1);
    job.assert_results();
}
