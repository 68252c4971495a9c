//! The schema of specs, for editors, compared with what `holdfast check` accepts by a validator that others wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::files_below;
use holdfast_testkit::harness::ignore;

use crate::job::Job;
use crate::world::World;

/// Prints the paths of what the schema refuses in each file, one line a file.
const VALIDATE: &str = "
import json, sys, jsonschema, yaml
validator = jsonschema.Draft7Validator(json.load(open(sys.argv[1])))
jsonschema.Draft7Validator.check_schema(validator.schema)
for path in sys.argv[2:]:
    refused = validator.iter_errors(yaml.safe_load(open(path)))
    print(sorted('.'.join(str(part) for part in error.path) for error in refused))
";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// For each spec, the paths of what the schema refuses.
fn refused(files: &[PathBuf]) -> Vec<String> {
    refused_by(&project().join("configs/spec.schema.json"), files)
}

fn refused_by(schema: &Path, files: &[PathBuf]) -> Vec<String> {
    let known = Command::new("/usr/bin/python3").args(["-c", "import jsonschema, yaml"]).output();
    if !known.is_ok_and(|ran| ran.status.success()) {
        ignore("Debian's python3-jsonschema and python3-yaml are not installed");
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", VALIDATE]).arg(schema).args(files);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test(unchecked)]
fn schema_that_is_shipped_is_that_of_the_program(world: &World) {
    let printed = world.run(world.holdfast(["schema"])).with_code(0);
    let shipped = std::fs::read_to_string(project().join("configs/spec.schema.json")).unwrap();
    assert_eq!(printed.out, shipped, "run: holdfast schema >configs/spec.schema.json");
    assert_eq!(world.run(world.holdfast(["schema", "--json"])).with_code(0).json()["schema"]["type"][0], "object");
}

#[test]
fn schema_accepts_every_example_and_the_reference() {
    let is_spec = |file: &PathBuf| {
        file.extension().is_some_and(|extension| extension == "yaml")
            && !file.starts_with(project().join("configs/monitoring"))
    };
    let files: Vec<PathBuf> = files_below(&project().join("configs")).into_iter().filter(is_spec).collect();
    assert!(files.len() >= 4, "{files:?}");
    for (file, refused) in files.iter().zip(refused(&files)) {
        assert_eq!(refused, "[]", "{}", file.display());
    }
}

#[test(unchecked)]
fn schema_refuses_what_check_refuses_in_one_key(world: &World) {
    let cases = [
        ("checkpoint: {flush: {every: 2}}", 0, "[]"),
        ("metrics: {listen: \"127.0.0.1:1\"}", 0, "[]"),
        ("notify: [{command: [mail], events: [finished]}]", 0, "[]"),
        ("health: {hang_after: 5min, down_after: }", 0, "[]"),
        ("helth: {hang_after: 5min}", 78, "['']"),
        ("checkpoint: {source: src}", 78, "['checkpoint.source']"),
        ("checkpoint: {flush: {every: -2}}", 78, "['checkpoint.flush.every']"),
        ("notify: [{command: [mail], events: [ended]}]", 78, "['notify.0.events.0']"),
        ("checkpoint: {restart: {fetch: maybe}}", 78, "['checkpoint.restart.fetch']"),
        ("steps: [{name: one, run: {nods: 1}}]", 78, "['steps.0.run']"),
    ];
    let mut files = Vec::new();
    for (at, (line, code, _)) in cases.iter().enumerate() {
        let file = world.path(&format!("{at}.yaml"));
        std::fs::write(
            &file,
            format!("run: {{nodes: 1, command: [\"true\"]}}\nallocation: {{manager: local, nodes: 1}}\n{line}\n"),
        )
        .unwrap();
        world.run(world.holdfast(["check"]).arg(&file)).with_code(*code);
        files.push(file);
    }
    for ((line, _, expected), refused) in cases.iter().zip(refused(&files)) {
        assert_eq!(&refused, expected, "{line}");
    }
    // The spec that most of these tests run.
    let job = Job::new(world, 1).faults("{node: 1, after_checkpoint: 3}");
    std::fs::write(world.path("job.yaml"), job.yaml()).unwrap();
    assert_eq!(refused(&[world.path("job.yaml")]), ["[]"]);
}

#[test(unchecked)]
fn schema_of_events_accepts_every_line_of_a_log_and_refuses_others(world: &World) {
    let job = Job::new(world, 2).faults("{node: 1, after_checkpoint: 2}").flush("{every: 2}");
    job.run(0);
    let log = world.prefix().join(".holdfast/events.jsonl");
    let events = world.events();
    for name in ["node_down", "failure_explained", "restarted", "checkpoint_protected", "flushed", "drained"] {
        assert!(events.iter().any(|event| event["event"] == name), "{name}");
    }
    let schema = world.write("event.schema.json", &world.run(world.holdfast(["schema", "events"])).with_code(0).out);
    // A line as a file: what reads YAML reads JSON.
    let lines = |lines: &[String]| {
        let files = lines.iter().enumerate().map(|(at, line)| world.write(&format!("{at}.json"), line));
        refused_by(&schema, &files.collect::<Vec<_>>())
    };
    let logged: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    assert!(logged.len() > 20);
    for (line, refused) in logged.iter().zip(lines(&logged)) {
        assert_eq!(refused, "[]", "{line}");
    }
    let change = |name: &str, field: &str, value: serde_json::Value| {
        let mut event = events.iter().find(|event| event["event"] == name).unwrap().clone();
        event[field] = value;
        event.to_string()
    };
    let wrong = [
        change("flushed", "checkpoint", "four".into()),
        change("node_down", "ranks", serde_json::json!([-1])),
        change("restarted", "millis", serde_json::Value::Null),
        change("job_started", "event", "job_begun".into()),
        change("job_started", "time", serde_json::Value::Null),
    ];
    assert_eq!(
        lines(&wrong),
        ["['checkpoint']", "['ranks.0']", "['millis']", "['event']", "['time']"].map(str::to_owned)
    );
}

#[test(unchecked)]
fn schemas_of_documents_accept_what_commands_print_and_refuse_other_documents(world: &World) {
    let schema = |of: &str| {
        let printed = world.run(world.holdfast(["schema", of])).with_code(0).out;
        world.write(&format!("{of}.schema.json"), &printed)
    };
    let (of_status, of_error, of_all) = (schema("status"), schema("error"), schema("documents"));
    let document = |name: &str, text: &str| [world.write(&format!("{name}.json"), text)];

    let job = Job::new(world, 1).holding_after(4).faults("{node: 1, after_checkpoint: 2}");
    let job = job.allocation("time_limit: 1h");
    let running = job.reaches(4);
    let while_running = job.command(&["status", "--json"], 0).out;
    assert!(while_running.contains("\"allocation_end\": 1"), "{while_running}");
    job.command(&["status"], 0).prints(&["allocation ends ", ", in "]);
    assert_eq!(refused_by(&of_status, &document("running", &while_running)), ["[]"], "{while_running}");
    job.goes_on_to_its_end(running);
    let at_the_end = job.command(&["status", "--json"], 0).out;
    assert!(!job.command(&["status"], 0).out.contains("allocation ends"));
    assert_eq!(refused_by(&of_status, &document("ended", &at_the_end)), ["[]"], "{at_the_end}");
    let mut changed: serde_json::Value = serde_json::from_str(&at_the_end).unwrap();
    assert!(changed["failures"][0].as_str().unwrap().contains("node1"), "{changed}");
    (changed["nodes"][0]["state"], changed["checkpoint"]) = ("lost".into(), "4".into());
    let refused = refused_by(&of_status, &document("changed", &changed.to_string()));
    assert_eq!(refused, ["['checkpoint', 'nodes.0.state']"]);

    let missing = world.run(world.holdfast(["status", "--json", "--prefix", "missing"])).with_code(69).out;
    assert_eq!(refused_by(&of_error, &document("missing", &missing)), ["[]"], "{missing}");
    world.write("bad.yaml", "run: {comand: [x]}\n");
    let mistaken = world.run(world.holdfast(["check", "--json", "bad.yaml"])).with_code(78).out;
    assert_eq!(refused_by(&of_error, &document("mistaken", &mistaken)), ["[]"], "{mistaken}");
    assert_eq!(refused_by(&of_error, &document("status", &at_the_end)), ["['', '']"]);
    for text in [&at_the_end, &missing, &job.command(&["index", "list", "--json"], 0).out] {
        assert_eq!(refused_by(&of_all, &document("any", text)), ["[]"], "{text}");
    }
    world.run(world.holdfast(["schema", "index", "lists"])).with_code(64).prints(&["index list, index add"]);
}
