//! The page of `holdfast report --html` in Chromium, compared with the events of the job.

use std::process::Command;

use holdfast_testkit::harness::ignore;
use serde_json::{Value, json};

use crate::job::Job;
use crate::steps::TwoSteps;
use crate::world::World;

/// What the page shows.
fn opened(world: &World, page: &str) -> Value {
    let has_selenium = Command::new("/usr/bin/python3").args(["-c", "import selenium"]).output();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has_selenium.is_ok_and(|ran| ran.status.success()) || !has("chromium") || !has("chromedriver") {
        ignore("Debian's chromium, chromium-driver and python3-selenium are not installed");
    }
    let script = world.write("browser.py", include_str!("browser.py"));
    let profile = world.path("profile");
    let mut command = world.command("/usr/bin/python3");
    command.arg(script).arg(page).arg(profile).env("HOME", world.path(""));
    serde_json::from_str(&world.run(command).with_code(0).out).unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// A column of a table.
fn column<'a>(shown: &'a Value, table: &str, at: usize) -> Vec<&'a str> {
    let rows = shown["tables"][table].as_array().unwrap_or_else(|| panic!("no table {table} in {shown:#}"));
    rows.iter().map(|row| row[at].as_str().unwrap()).collect()
}

#[test]
fn page_of_a_report_shows_what_the_events_have() {
    let world = World::unchecked();
    let job = Job::new(&world, 1).flush("{every: 2}").holding_after(5).faults("{node: 1, after_checkpoint: 5}");
    let mut running = job.start();
    running.sees("the relaunch", |event| event["event"] == "generation_launched" && event["generation"] == 2);
    job.go_on();
    running.ends_with(0);
    let page = world.path("report.html");
    let page = page.to_str().unwrap();
    job.command(&["report", "--html", page], 0);
    let report = job.command(&["report", "--json"], 0).json()["report"].take();
    let shown = opened(&world, page);

    // Tables, newest first, against the events.
    let of = |event: &str, field: &str| -> Vec<String> {
        world.all(event).iter().rev().map(|event| event[field].to_string()).collect()
    };
    assert_eq!(column(&shown, "Checkpoints", 0), of("checkpoint_started", "checkpoint"), "{shown:#}");
    assert_eq!(column(&shown, "Generations", 0), of("generation_placed", "generation"));
    assert_eq!(column(&shown, "Generations", 3), [of("restarted", "checkpoint").first().unwrap(), ""]);
    let flushed = column(&shown, "Checkpoints", 8).into_iter().filter(|state| *state == "flushed").count();
    assert_eq!(flushed, of("flushed", "checkpoint").len(), "{shown:#}");
    assert_eq!(shown["lanes"]["flushes"].as_array().unwrap().len(), world.all("flushed").len());
    assert_eq!(column(&shown, "Nodes", 0).last(), Some(&"node1"));
    assert!(texts(&shown["lanes"]["checkpoints"]).contains(&"checkpoint 5, protected"), "{shown:#}");
    // The failure, as the event explains it.
    let failure = world.the("failure_explained");
    let [article] = texts(&shown["failures"])[..] else { panic!("{shown:#}") };
    assert!(article.contains(failure["cause"].as_str().unwrap()), "{article} has not {failure}");
    assert!(article.contains("relaunched as generation 2 from checkpoint 5"), "{article}");
    assert!(texts(&shown["titles"]).contains(&"Failures: 1"));
    // Times, and what they amount to.
    let time = |part: &str| report["time"][part].as_f64().unwrap();
    let goodput = format!("{:.1} %", time("computing_ms") / time("elapsed_ms") * 100.0);
    let written = shown["facts"]["goodput"].as_str().unwrap();
    assert_eq!(written.split_inclusive('%').next(), Some(goodput.as_str()), "{written}");
    let parts = ["computing", "start", "detection", "relaunch", "restart", "drain"];
    for part in parts.iter().filter(|part| time(&format!("{part}_ms")) > 0.0) {
        assert!(texts(&shown["legend"]).iter().any(|line| line.starts_with(part)), "{part} in {shown:#}");
    }
    let protected =
        format!("checkpoint {} survives the loss of any node", report["cost"]["newest_protected"]["checkpoint"]);
    assert_eq!(shown["facts"]["protection"], protected);
    assert_eq!(shown["facts"]["outcome"], "the job is finished");
    // Settings and version.
    let logged = world.the("settings_in_force");
    assert_eq!(shown["facts"]["version"], format!("Holdfast {}", logged["version"].as_str().unwrap()));
    let settings = |of_default: bool| -> Vec<[&str; 3]> {
        let all = logged["settings"].as_array().unwrap().iter();
        let texts = all.map(|setting| ["key", "origin", "value"].map(|field| setting[field].as_str().unwrap()));
        texts.filter(|[_, origin, _]| (*origin == "default") == of_default).collect()
    };
    for (table, of_default) in [("Settings that are not defaults", false), ("Defaults", true)] {
        let rows: Vec<[&str; 3]> =
            (0..column(&shown, table, 0).len()).map(|row| [0, 1, 2].map(|at| column(&shown, table, at)[row])).collect();
        assert_eq!(rows, settings(of_default), "{table}");
    }

    // How it looks and is used.
    assert_eq!((&shown["covered"], &shown["console"]), (&json!(0), &json!([])));
    assert_eq!(shown["requests"], json!([format!("file://{page}")]));
    assert_ne!(shown["themes"][0], shown["themes"][1]);
    let narrow = shown["narrow"].as_array().unwrap();
    assert!(narrow[0].as_u64() <= narrow[1].as_u64(), "{narrow:?}: no sideways scrolling");
    let ends = shown["ends"].as_array().unwrap();
    assert!(ends[1] != ends[0] && ends[2] != ends[1] && ends[4] != ends[0], "{ends:?}");
    assert_eq!(ends[3], ends[0], "0 shows all of it");
    let aloud = texts(&shown["read_aloud"]).join("\n");
    for text in [goodput.as_str(), failure["cause"].as_str().unwrap(), "Failures: 1", "flushed", protected.as_str()] {
        assert!(aloud.contains(text), "{text} in {aloud}");
    }
    assert!(!aloud.contains("+ and - zoom"), "keys that need the script are not offered without it");
}

#[test(unchecked)]
fn page_of_a_job_of_several_steps_has_all_of_them(world: &World) {
    let job = TwoSteps::new(world);
    let running = job.start();
    job.go_on("first");
    job.holds("second");
    let spec = world.path("job.yaml");
    let text = world.run(world.holdfast(["report"]).arg(&spec)).with_code(0).out;
    assert!(text.starts_with("steps:\n  first: finished, ") && text.contains("\n  second: running, "), "{text}");
    let of_first = format!("holdfast report --prefix {}\n", job.prefix("first").display());
    assert!(text.contains(&of_first) && text.contains("\nthe step that runs, or ran last:\njob heat "), "{text}");
    job.go_on("second");
    running.ends_with(0);
    let page = world.path("report.html");
    let page = page.to_str().unwrap();
    world.run(world.holdfast(["report", "--html", page]).arg(&spec)).with_code(0);
    let document = world.run(world.holdfast(["report", "--json"]).arg(&spec)).with_code(0).json();
    let shown = opened(world, page);
    assert_eq!(texts(&shown["titles"])[..2], ["Steps: 2", "Time line of the steps"], "{shown:#}");
    assert_eq!(column(&shown, "Steps", 0), ["first", "second"]);
    assert_eq!(column(&shown, "Steps", 6), ["finished", "finished"]);
    assert_eq!(texts(&shown["lanes"]["steps"]), ["first: finished", "second: finished"]);
    for (at, step) in ["first", "second"].into_iter().enumerate() {
        let (section, report) = (&shown["sections"][format!("step {step}")], &document["steps"][at]["report"]);
        let checkpoints: Vec<String> =
            job.all(step, "checkpoint_started").iter().rev().map(|event| event["checkpoint"].to_string()).collect();
        assert_eq!(column(section, "Checkpoints", 0), checkpoints);
        assert_eq!(column(&shown, "Steps", 5)[at], checkpoints.len().to_string());
        let time = |part: &str| report["time"][part].as_f64().unwrap();
        let goodput = format!("{:.1} %", time("computing_ms") / time("elapsed_ms") * 100.0);
        assert_eq!(column(&shown, "Steps", 3)[at], goodput);
        assert!(section["facts"]["goodput"].as_str().unwrap().starts_with(&goodput), "{section:#}");
        assert_eq!(section["facts"]["prefix"], job.prefix(step).to_str().unwrap());
        assert!(!section["lanes"]["phases"].as_array().unwrap().is_empty());
    }
    assert_eq!((&shown["covered"], &shown["console"]), (&json!(0), &json!([])));
}
