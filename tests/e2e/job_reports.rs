//! `holdfast report`: what it shows of jobs with failures, compared with their events.

use std::fs;

use serde_json::{Value, json};

use crate::job::Job;
use crate::world::World;

fn report_of(job: &Job<'_>) -> Value {
    job.command(&["report", "--json"], 0).json()["report"].take()
}

/// Runs a job to its end, which goes on when it was relaunched.
fn relaunched_once(job: &Job<'_>) {
    job.goes_on_to_its_end(job.start_to("generation_launched", "generation", 2));
}

fn list<'a>(report: &'a Value, name: &str) -> &'a Vec<Value> {
    report[name].as_array().unwrap()
}

#[test(unchecked)]
fn lost_node_is_one_failure_with_its_cost_and_what_was_done(world: &World) {
    let job = Job::new(world, 1).holding_after(3).faults("{node: 1, after_checkpoint: 3}");
    relaunched_once(&job);
    let report = report_of(&job);
    let [failure] = &list(&report, "failures")[..] else { panic!("{report}") };
    assert_eq!((&failure["node"], &failure["generation"]), (&json!("node1"), &json!(1)));
    let cause = failure["cause"].as_str().unwrap();
    assert!(cause.starts_with("node node1 was lost with rank"), "{cause}");
    let restarted = world.all("restarted").pop().unwrap();
    let then = format!("relaunched as generation 2 from checkpoint {} (rebuilt in cache)", restarted["checkpoint"]);
    assert_eq!(failure["then"], then);
    assert_eq!(failure["lost_work_ms"], report["cost"]["lost_work_ms"]);
    // What is counted is in the events.
    let counted = |name| list(&report, "checkpoints").iter().filter(|past| !past[name].is_null()).count();
    assert_eq!(counted("complete_at_ms"), world.all("checkpoint_complete").len());
    assert_eq!(list(&report, "generations").len(), world.all("generation_placed").len());
    // The parts are all of the time.
    let time = report["time"].as_object().unwrap();
    let parts: u64 =
        time.iter().filter(|(name, _)| *name != "elapsed_ms").map(|(_, part)| part.as_u64().unwrap()).sum();
    assert!(parts.abs_diff(report["time"]["elapsed_ms"].as_u64().unwrap()) <= 8, "{time:?}");
    assert!(time["computing_ms"].as_u64() > Some(0) && time["restart_ms"].as_u64() > Some(0), "{time:?}");
    let text = job.command(&["report"], 0).out;
    assert!(text.contains("\nfailures: 1\n") && text.contains(&then), "{text}");
}

#[test(unchecked)]
fn killed_rank_is_the_cause_and_the_page_needs_nothing_else(world: &World) {
    let job = Job::new(world, 0).holding_after(3).faults("{rank: 2, after_checkpoint: 3, action: kill-rank}");
    relaunched_once(&job);
    let report = report_of(&job);
    let [failure] = &list(&report, "failures")[..] else { panic!("{report}") };
    assert_eq!((&failure["rank"], &failure["cause"]), (&json!(2), &json!("rank 2 on node2 ended with SIGKILL")));
    assert!(failure["hint"].as_str().unwrap().contains("lack of memory"), "{failure}");
    let file = world.path("report.html");
    let written = job.command(&["report", "--html", file.to_str().unwrap()], 0).out;
    assert_eq!(written, format!("written: {}\n", file.display()));
    let page = fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!doctype html>\n") && page.ends_with("</html>\n"));
    assert!(page.contains("rank 2 on node2 ended with SIGKILL"));
    for request in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(request), "{request}");
    }
}

#[test(unchecked)]
fn running_job_is_reported_until_now(world: &World) {
    let job = Job::new(world, 0).holding_after(2);
    let running = job.reaches(2);
    let report = report_of(&job);
    assert_eq!((&report["is_running"], &report["outcome"]), (&json!(true), &Value::Null));
    assert_eq!(list(&report, "phases").last().unwrap()["phase"], "computing");
    job.goes_on_to_its_end(running);
    assert_eq!(report_of(&job)["outcome"], "the job is finished");
}

#[test(unchecked)]
fn status_waits_for_a_protected_checkpoint_and_for_the_end(world: &World) {
    let job = Job::new(world, 0).holding_after(2);
    let running = job.start_to_event("generation_launched");
    let ran = job.command(&["status", "--wait", "protected", "--json"], 0).json();
    assert_eq!(ran["protected"], true);
    job.command(&["status", "--wait", "finished", "--timeout", "100ms"], 69)
        .prints(&["the job runs, and the timeout has passed"]);
    job.go_on();
    let ended = job.command(&["status", "--wait", "finished", "--json"], 0).json();
    assert_eq!((&ended["stage"], &ended["exit_code"]), (&json!("finished"), &json!(0)));
    running.ends_with(0);
    // The drain has saved the newest one.
    job.command(&["status", "--wait", "flushed"], 0);
}

#[test(unchecked)]
fn status_watch_ends_with_the_job(world: &World) {
    let job = Job::new(world, 0).holding_after(2);
    let running = job.reaches(2);
    let watching = world.start(world.holdfast(["status", "--watch"]).arg(job.spec()));
    job.goes_on_to_its_end(running);
    watching.ends_with(0).prints(&[": finished"]);
}

#[test(unchecked)]
fn report_has_the_settings_in_force_and_no_secrets(world: &World) {
    let job = Job::new(world, 0).flush("{every: 3}");
    let notify = "notify: [{events: [node_down], webhook: 'https://hooks.example/swordfish-in-the-path'}]\n";
    let spec = job.yaml().replace("run:\n", "run:\n  env: {SITE_TOKEN: swordfish}\n") + notify;
    let spec = world.write("job.yaml", &spec);
    world.run(world.holdfast(["run"]).arg(&spec).env("SCR_COPY_TYPE", "PARTNER")).with_code(0);
    let shown = |words: &[&str]| world.run(world.holdfast(words).arg(&spec)).with_code(0);
    let report = shown(&["report", "--json"]).json()["report"].take();
    let version = world.run(world.holdfast(["--version"])).out;
    assert_eq!(format!("holdfast {}\n", report["versions"][0].as_str().unwrap()), version);
    // What is in force is what `check` explains, with the same origins.
    let explained = world.run(world.holdfast(["check", "--explain"]).arg(&spec).env("SCR_COPY_TYPE", "PARTNER"));
    let explained = explained.with_code(0).out;
    let secret = ["run.env.SITE_TOKEN", "notify[0].webhook", "prefix"];
    for setting in list(&report, "settings") {
        let [key, value, origin] = ["key", "value", "origin"].map(|field| setting[field].as_str().unwrap());
        let line =
            explained.lines().find(|line| line.split(' ').next() == Some(key)).unwrap_or_else(|| panic!("{key}"));
        assert!(line.ends_with(origin) && (secret.contains(&key) || line.contains(value)), "{setting} in {line}");
    }
    let setting = |key: &str| list(&report, "settings").iter().find(|setting| setting["key"] == key).unwrap().clone();
    assert_eq!(setting("checkpoint.flush.every")["value"], "3");
    assert_eq!(setting("run.env.SITE_TOKEN")["value"], "(not logged)");
    assert_eq!(setting("notify[0].webhook")["value"], "(not logged)");
    assert_eq!(setting("checkpoint.redundancy[0].scheme")["origin"], "SCR_COPY_TYPE");
    let log = fs::read_to_string(world.prefix().join(".holdfast/events.jsonl")).unwrap();
    assert!(!log.contains("swordfish"), "{log}");
    let text = shown(&["report"]).out;
    assert!(text.contains("\nsettings:\n") && text.contains("(SCR_COPY_TYPE)\n"), "{text}");
}

#[test(unchecked)]
fn what_others_wrote_into_the_log_does_not_control_the_terminal(world: &World) {
    let job = Job::new(world, 0);
    job.start().ends_with(0);
    let log = world.prefix().join(".holdfast/events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replace("\"job\":\"heat\"", r#""job":"he\u001b[2Jat""#)).unwrap();
    let shown = job.command(&["report"], 0).out;
    assert!(shown.starts_with(r"job he\u{1b}[2Jat (id "), "{shown}");
}
