//! What users see of pairs: `holdfast pairs list`, the live view, the output of `holdfast run` and its report.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::pairs::{list, ready, run, sees, spec, waits_for_line, waits_for_state};
use crate::world::{World, signal};

const EXAMPLE: &str = r#"[holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;

#[test(unchecked)]
fn list_shows_processes_heartbeats_and_the_age_of_the_newest_checkpoint(world: &World) {
    let job = run(world, &spec(world, &format!("name: dnn0, main: {EXAMPLE}"), ""));
    let main = ready(world, "dnn0");
    let replica = waits_for_state(world, 0, "replica", "asleep");
    let shown = |field: &str| list(world)["pairs"][0][field].clone();
    world.wait("heartbeats", || (shown("main")["beats"].as_u64() > Some(10)).then_some(()));
    assert_eq!((shown("main")["pid"].clone(), shown("replica")["pid"].clone()), (main.into(), replica.into()));
    assert_eq!((shown("checkpoint"), shown("fail_overs")), (3.into(), 0.into()));
    assert!(shown("missed").is_u64() && shown("replica")["beats"] == 0, "{}", list(world));
    // No checkpoint follows: it gets older.
    let age = || shown("checkpoint_age_ms").as_u64().unwrap();
    let first = age();
    world.wait("an older checkpoint", || (age() >= first + 500).then_some(()));
    let prefix = world.prefix();
    world.run(world.holdfast(["pairs", "list", "--prefix", prefix.to_str().unwrap()])).with_code(0).prints(&[
        &format!("main awake (node0 {main})"),
        &format!("replica asleep (node0 {replica})"),
        "checkpoint 3 (",
        "s ago), heartbeats ",
        ", missed ",
        "fail-overs 0, fail-backs 0",
    ]);
    job.terminated();
}

#[test(unchecked)]
fn report_shows_fail_overs_with_their_times_and_missed_heartbeats(world: &World) {
    let spec = spec(world, &format!("name: dnn0, main: {EXAMPLE}, restart: {{first: 1s}}"), "");
    let mut job = world.start(world.holdfast(["run", "--json", spec.to_str().unwrap()]));
    signal(ready(world, "dnn0"), Signal::STOP);
    let fail_over = sees(&mut job, "dnn0", "fail_over", None);
    let fail_back = sees(&mut job, "dnn0", "fail_back", None);
    let ran = job.ends_with(0);
    let directory = world.prefix().join(".holdfast/pairs");
    ran.prints(&[&format!("output of copies and jobs: {}/*.log", directory.display())]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let pair = &report["pairs"][0];
    assert_eq!((&pair["fail_overs"], &pair["fail_backs"]), (&1.into(), &1.into()), "{pair}");
    assert!(pair["missed"].as_u64() >= Some(200), "{pair}");
    let switches = pair["switches"].as_array().unwrap();
    for (switch, event, to) in [(&switches[0], &fail_over, "replica"), (&switches[1], &fail_back, "main")] {
        assert_eq!(
            (&switch["to"], &switch["at_ms"], &switch["micros"]),
            (&to.into(), &event["at"], &event["micros"]),
            "{pair}"
        );
    }
    assert!(switches[0]["cause"].as_str().unwrap().ends_with("heartbeats missed"), "{pair}");
}

#[test(unchecked)]
fn report_names_the_time_of_a_fail_over_and_the_copy_that_was_awake(world: &World) {
    let spec = spec(world, &format!("name: dnn0, main: {EXAMPLE}, restart: {{first: 10min, most: 10min}}"), "");
    let mut job = run(world, &spec);
    signal(ready(world, "dnn0"), Signal::KILL);
    let at = sees(&mut job, "dnn0", "fail_over", None)["at"].as_i64().unwrap();
    waits_for_line(world, "dnn0.replica", "12");
    job.signal(Signal::TERM);
    // TZ is UTC here.
    let (seconds, millis) = (at / 1000 % 86_400, at % 1000);
    let time = format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    job.ends_with(75).prints(&[
        "pair dnn0: its replica was awake; fail-overs 1, fail-backs 0, heartbeats missed ",
        &format!(" {time} replica woken in "),
        "µs: signal 9",
    ]);
}

#[test(unchecked)]
fn report_of_a_pair_that_was_given_up_quotes_its_last_output(world: &World) {
    let pair = "name: dnn0, main: [sh, -c, 'for i in 1 2 3 4 5 6 7; do echo \"{side} line $i\"; done; exit 3'], \
                restart: {first: 1ms, most: 10min, attempts: 1}";
    let ran = run(world, &spec(world, pair, "")).ends_with(90);
    let file = world.prefix().join(".holdfast/pairs/dnn0.replica.log");
    ran.prints(&[
        &format!("last lines of its replica, {}:\n      replica line 3\n", file.display()),
        "      replica line 7\n",
        "last lines of its main, ",
        "      main line 7\n",
    ]);
    assert!(!ran.out.contains("line 2"), "{}", ran.out);
}

#[test]
fn live_view_shows_which_copies_are_awake(world: &World) {
    if std::process::Command::new("script").arg("--version").output().is_err() {
        holdfast_testkit::harness::ignore("script (util-linux), which provides a terminal");
    }
    let spec = spec(world, &format!("name: dnn0, main: {EXAMPLE}, restart: {{first: 10min, most: 10min}}"), "");
    let mut command = world.command("script");
    let run = format!("'{}' run '{}'", env!("CARGO_BIN_EXE_holdfast"), spec.display());
    command.args(["-qefc", &run]).arg(world.path("screen")).env("TERM", "xterm");
    let mut job = world.start(command);
    let shows = |text: &str| {
        let screen = || String::from_utf8_lossy(&fs::read(world.path("screen")).unwrap_or_default()).into_owned();
        world.wait(text, || screen().contains(text).then_some(()));
    };
    shows("running | mains 1, replicas 0, asleep 0, finished 0 | fail-overs 0");
    signal(ready(world, "dnn0"), Signal::KILL);
    sees(&mut job, "dnn0", "fail_over", None);
    shows("running | mains 0, replicas 1, asleep 0, finished 0 | fail-overs 1, missed");
    let orchestrator = world.state()["orchestrator"].as_u64().unwrap();
    signal(u32::try_from(orchestrator).unwrap(), Signal::TERM);
    job.ends_with(75);
}
