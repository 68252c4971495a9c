//! `source: command`: programs that do not use the API, their checkpoints, and what goes wrong with them.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World, is_secured};

/// Copies a directory of `configs` into the world, and starts one of its specs with these changes.
fn start_example<'a>(world: &'a World, spec: &str, changes: &[(&str, &str)]) -> Running<'a> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/command");
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), world.path(entry.file_name().to_str().unwrap())).unwrap();
    }
    let path = world.path(spec);
    let mut text = fs::read_to_string(&path).unwrap();
    for (before, after) in changes {
        assert!(text.contains(before), "{before} is not in {text}");
        text = text.replace(before, after);
    }
    text = text.replace("prefix: count-run", "prefix: pfs").replace("prefix: walk-run", "prefix: pfs");
    fs::write(&path, text + "health: {down_after: 10s}\n").unwrap();
    world.start(world.holdfast(["run", spec]))
}

/// No fault is injected.
const WITHOUT_FAULTS: [(&str, &str); 2] =
    [("    - {node: 1, after_checkpoint: 1}\n", ""), ("  faults:\n    - {node: 3, after_checkpoint: 2}\n", "")];

/// What the ranks of a generation have printed.
fn output(world: &World, generation: u64) -> Vec<String> {
    let directory = world.prefix().join(format!(".holdfast/generations/{generation}"));
    let read = |rank: u32| fs::read_to_string(directory.join(format!("rank_{rank}.out")));
    (0..4).map_while(|rank| read(rank).ok()).collect()
}

fn loses_two_nodes_and_has_the_same_result(spec: &str, down: [&str; 2], result: &str) {
    let world = World::new();
    start_example(&world, spec, &[]).ends_with(0);
    let nodes: Vec<Value> = world.all("node_down").iter().map(|event| event["node"].clone()).collect();
    assert_eq!(nodes, down);
    let restarted = world.all("restarted");
    let sources: Vec<&Value> = restarted.iter().map(|event| &event["source"]).collect();
    assert_eq!(sources, ["fresh", "rebuilt", "rebuilt"]);
    for text in output(&world, 2) {
        assert!(!text.starts_with("starting after step 0\n"), "{text}");
    }
    for text in output(&world, 3) {
        assert!(text.ends_with(result), "{text}");
    }
}

#[test]
fn a_shell_program_loses_two_nodes_and_has_the_result_of_a_failure_free_run() {
    loses_two_nodes_and_has_the_same_result("count.yaml", ["node1", "node3"], "\nsum 11325\n");
}

#[test(unchecked)]
fn a_python_program_loses_two_nodes_and_has_the_result_of_a_failure_free_run(world: &World) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/command/walk.py");
    let mut alone = world.command(program);
    alone.args(["-", "150"]);
    let alone = world.run(alone).with_code(0).out;
    let result = alone.lines().last().unwrap();
    loses_two_nodes_and_has_the_same_result("walk.yaml", ["node0", "node2"], &format!("\n{result}\n"));
}

/// Each of two ranks makes `generation` and waits for `go`, or ends with the code in `ends.RANK`.
const PROGRAM: &str = r#"
cd "$1" || exit 9
: > "runs.$HOLDFAST_GENERATION.$HOLDFAST_RANK"
echo "$$" > "pid.$HOLDFAST_RANK"
[ -z "$HOLDFAST_RESTART_DIR" ] || cp "$HOLDFAST_RESTART_DIR"/* .
trap 'echo "rank $HOLDFAST_RANK terminated" >> terminated; exit 3' TERM
until [ -e "ends.$HOLDFAST_RANK" ]; do sleep 0.02; done
exit $(cat "ends.$HOLDFAST_RANK")
"#;

/// Starts the program on two of three nodes; `keys` are below `checkpoint:`, `top` at the top.
pub(crate) fn start<'a>(world: &'a World, save: &str, keys: &str, top: &str) -> Running<'a> {
    start_program(world, PROGRAM, save, keys, top)
}

/// As [`start`], with another program.
fn start_program<'a>(world: &'a World, program: &str, save: &str, keys: &str, top: &str) -> Running<'a> {
    let program = world.write("program", program);
    let save = world.write("save", save);
    let (home, prefix) = (world.path(""), world.prefix());
    let spec = format!(
        "job: plain\nprefix: {prefix:?}\nallocation: {{manager: local, nodes: 3}}\n\
         run: {{nodes: 2, command: [sh, {program:?}, {home:?}]}}\n\
         checkpoint:\n  source: command\n  redundancy: [{{scheme: partner}}]\n  {}\n\
         health: {{down_after: 10s}}\n{top}\n",
        keys.replace("SAVE", &format!("sh, {save:?}, {home:?}"))
    );
    world.start_spec(&spec)
}

const SAVE: &str = r#"echo "$HOLDFAST_RANK" > "$HOLDFAST_CHECKPOINT_DIR/state""#;
const EVERY: &str = "command: {save: [SAVE], every: 100ms, timeout: 30s}";

pub(crate) fn end(world: &World, rank: u32, code: u32) {
    world.write("ends.new", &code.to_string());
    fs::rename(world.path("ends.new"), world.path(&format!("ends.{rank}"))).unwrap();
}

/// Both ranks end with this code.
pub(crate) fn end_all(world: &World, code: u32) {
    (0..2).for_each(|rank| end(world, rank, code));
}

fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

#[test]
fn a_program_that_has_ended_is_not_started_again_while_others_run(world: &World) {
    let mut running = start(world, SAVE, EVERY, "");
    running.sees_checkpoint(1);
    end(world, 0, 0);
    // The next one but one begins after the end of the program.
    let newest = world.all("checkpoint_complete").len() as u64;
    running.sees_checkpoint(newest + 3);
    end(world, 1, 7);
    running.sees("the second generation", |event| is(event, "restarted") && event["generation"] == 2);
    fs::remove_file(world.path("ends.1")).unwrap();
    world.wait("rank 1", || world.path("runs.2.1").exists().then_some(()));
    running.sees("another checkpoint", |event| is_secured(event) && event["generation"] == 2);
    end(world, 1, 0);
    running.ends_with(0);
    assert!(!world.path("runs.2.0").exists(), "rank 0 had ended");
    let reasons = world.all("generation_ended").into_iter().map(|event| event.to_string());
    assert!(reasons.clone().next().unwrap().contains(r#""code":7"#), "{reasons:?}");
}

#[test]
fn a_signal_makes_a_last_checkpoint_and_then_ends_the_program(world: &World) {
    let keys = "command: {save: [SAVE], every: 1h, timeout: 30s}";
    let mut running = start(world, SAVE, keys, "halt: {grace: 60s}");
    world.wait("both ranks", || (0..2).all(|rank| world.path(&format!("pid.{rank}")).exists()).then_some(()));
    running.sees_event("restarted");
    running.signal(Signal::INT);
    running.ends_with(75);
    assert_eq!(world.the("checkpoint_complete")["checkpoint"], 1);
    let terminated = fs::read_to_string(world.path("terminated")).unwrap();
    assert_eq!(terminated.lines().count(), 2, "each program gets the signal once: {terminated}");
    assert_eq!(world.all("ranks_terminated"), [] as [Value; 0], "the rank processes end their programs");
}

#[test]
fn programs_that_end_with_0_after_sigterm_are_not_finished_and_another_run_continues(world: &World) {
    let program = PROGRAM.replace("exit 3' TERM", "exit 0' TERM");
    let keys = "watch: {files: ['never.$HOLDFAST_RANK']}";
    // Long enough for a shell on a busy machine.
    let run = || start_program(world, &program, SAVE, keys, "halt: {grace: 5s}");
    let mut running = run();
    world.wait("both ranks", || (0..2).all(|rank| world.path(&format!("pid.{rank}")).exists()).then_some(()));
    running.sees_event("restarted");
    running.signal(Signal::INT);
    running.ends_with(75).prints(&["halted by SIGINT"]);
    assert_eq!(world.all("ranks_terminated").len(), 1);
    let ends = fs::read_to_string(world.path("terminated")).unwrap();
    assert_eq!(ends.lines().count(), 2, "both have ended by the signal: {ends}");
    assert_eq!(world.all("finalized"), [] as [Value; 0]);
    world.assert_nothing_is_left();
    // Programs that end by themselves are finished.
    (0..2).for_each(|rank| end(world, rank, 0));
    run().ends_with(0);
    assert_eq!(world.all("finalized").len(), 1);
}

/// The reason of a checkpoint that was dropped, while the job continues to its end.
#[track_caller]
fn drops(save: &str, keys: &str) -> String {
    let world = World::unchecked();
    let mut running = start(&world, save, keys, "");
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    world.wait("the program", || world.path("runs.1.0").exists().then_some(()));
    end_all(&world, 0);
    // The job is finished; without a dataset, unless one was made when the programs had ended.
    let code = running.end().status.code();
    assert!(matches!(code, Some(0 | 65)), "{code:?}");
    world.assert_nothing_lost();
    world.assert_nothing_is_left();
    reason
}

/// The files of the newest dataset in the prefix directory, with their contents.
fn drained(world: &World) -> Vec<(String, String)> {
    let current = fs::canonicalize(world.prefix().join("scr.current")).unwrap();
    let entries = fs::read_dir(current).unwrap().map(|entry| entry.unwrap());
    let is_of_program = |name: &str| name.starts_with("rank_") && !name.contains(".scr");
    let files = entries.filter(|entry| is_of_program(&entry.file_name().to_string_lossy()));
    let content = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), entry.path());
    let mut files: Vec<_> = files.map(content).map(|(name, path)| (name, fs::read_to_string(path).unwrap())).collect();
    files.sort();
    files
}

#[test(unchecked)]
fn the_save_command_gets_its_variables_and_an_empty_directory(world: &World) {
    // The first one fails, and leaves a file in the directory.
    let save = "cd \"$1\"\n[ -z \"$(ls -A \"$HOLDFAST_CHECKPOINT_DIR\")\" ] || exit 4\n\
                if mkdir \"failed.$HOLDFAST_RANK\" 2>/dev/null; then\n\
                    echo rest > \"$HOLDFAST_CHECKPOINT_DIR/rest\"; exit 3\nfi\n\
                echo \"$HOLDFAST_RANK of $HOLDFAST_RANKS: $HOLDFAST_PROGRAM_PID\" > \"$HOLDFAST_CHECKPOINT_DIR/state\"";
    let mut running = start(world, save, EVERY, "");
    let failed = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    assert!(failed.ends_with("sh ended with exit code 3"), "{failed}");
    let complete = running.sees_first_checkpoint()["checkpoint"].as_u64().unwrap();
    running.sees_checkpoint(complete + 1);
    running.terminated();
    let pid = |rank: u32| fs::read_to_string(world.path(&format!("pid.{rank}"))).unwrap();
    let expected = [0, 1].map(|rank| (format!("rank_{rank}.state"), format!("{rank} of 2: {}", pid(rank))));
    assert_eq!(drained(world), expected);
    assert_eq!(world.all("checkpoint_failed").len(), 1, "the directory was empty again");
}

#[test(unchecked)]
fn variables_in_words_are_those_of_the_rank_and_stay_as_they_are_without_holdfast(world: &World) {
    let spec = format!(
        "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\n\
         run: {{ranks: 1, command: [echo, \"rank ${{HOLDFAST_RANK}} of $HOLDFAST_RANKS in $HOME\"]}}\n\
         checkpoint: {{source: command, command: {{save: [\"true\"]}}}}\n",
        world.prefix()
    );
    let spec = world.write("job.yaml", &spec);
    let run = || world.holdfast(["run".as_ref(), spec.as_os_str()]);
    let mut alone = run();
    alone.env("SCR_ENABLE", "0");
    world.run(alone).with_code(0).prints(&["rank ${HOLDFAST_RANK} of $HOLDFAST_RANKS in $HOME"]);
    world.run(run()).prints(&["rank 0 of 1 in $HOME"]);
}

/// At SIGUSR1 each of two ranks makes `handling`, and writes its state in two parts.
const IN_TWO_PARTS: &str = r#"
cd "$1" || exit 9
save() {
    : > "handling.$HOLDFAST_RANK"
    [ ! -e silent ] || return
    echo one > "$HOLDFAST_CHECKPOINT_DIR/state"
    sleep 0.3
    [ ! -e partial ] || return
    echo two >> "$HOLDFAST_CHECKPOINT_DIR/state"
    [ -e unmarked ] || : > "$HOLDFAST_CHECKPOINT_DIR/DONE"
}
trap save USR1
trap 'exit 0' TERM
until [ -e "ends.$HOLDFAST_RANK" ]; do sleep 0.02; done
"#;

#[test]
fn files_after_a_signal_are_complete_when_the_file_is_there_or_when_they_are_quiet() {
    for (until, unmarked) in [("file DONE", false), ("quiet 3s", true)] {
        let world = World::new();
        if unmarked {
            world.write("unmarked", "");
        }
        let keys = format!("command: {{signal: USR1, until: {until}, every: 100ms, timeout: 60s}}");
        let mut running = start_program(&world, IN_TWO_PARTS, "", &keys, "halt: {grace: 60s}");
        running.sees_checkpoint(1);
        running.terminated();
        let expected = [0, 1].map(|rank| (format!("rank_{rank}.state"), "one\ntwo\n".to_owned()));
        assert_eq!(drained(&world), expected, "{until}");
    }
}

#[test]
fn files_that_are_not_complete_in_time_after_a_signal_are_no_checkpoint() {
    for (mark, until, reason) in [
        ("partial", "file DONE", "the program has not written DONE: the checkpoint took longer than 1 s"),
        ("silent", "quiet 100ms", "the program wrote no file: the checkpoint took longer than 1 s"),
    ] {
        let world = World::new();
        world.write(mark, "");
        let keys = format!("command: {{signal: USR1, until: {until}, every: 100ms, timeout: 1s}}");
        let mut running = start_program(&world, IN_TWO_PARTS, "", &keys, "");
        let failed = running.sees("the dropped checkpoint", |event| {
            is(event, "checkpoint_failed") && event["reason"].as_str().unwrap().contains(reason)
        });
        assert!(failed["reason"].as_str().unwrap().starts_with("rank "), "{failed}");
        assert!(world.path("handling.0").exists() || world.path("handling.1").exists(), "the program has the signal");
        assert_eq!(world.all("checkpoint_complete"), [] as [Value; 0]);
        end_all(&world, 0);
        running.end();
    }
}

/// After its first signal, writes the second of its files when `go` is there; it writes both for each signal.
const SLOW: &str = r#"
cd "$1" || exit 9
save() {
    echo one > "$HOLDFAST_CHECKPOINT_DIR/first"
    until [ -e go ]; do sleep 0.02; done
    echo two > "$HOLDFAST_CHECKPOINT_DIR/second"
    : > "$HOLDFAST_CHECKPOINT_DIR/DONE"
}
trap save USR1
until [ -e "ends.$HOLDFAST_RANK" ]; do sleep 0.02; done
"#;

#[test]
fn files_for_the_signal_of_a_dropped_checkpoint_do_not_complete_the_next_one(world: &World) {
    let keys = "command: {signal: USR1, until: file DONE, every: 100ms, timeout: 1s}";
    let mut running = start_program(world, SLOW, "", keys, "halt: {grace: 60s}");
    running.sees("a checkpoint that waits for the signal before", |event| {
        is(event, "checkpoint_failed")
            && event["reason"].as_str().unwrap().contains("still writes for the signal before")
    });
    world.write("go", "");
    let complete = running.sees_first_checkpoint();
    running.terminated();
    assert!(complete["checkpoint"].as_u64() > Some(2), "{complete}");
    let both = |rank| {
        [("first", "one\n"), ("second", "two\n")].map(|(name, text)| (format!("rank_{rank}.{name}"), text.to_owned()))
    };
    assert_eq!(drained(world), [both(0), both(1)].concat());
}

#[test]
fn a_program_that_has_missed_a_signal_gets_another_one(world: &World) {
    world.write("silent", "");
    let keys = "command: {signal: USR1, until: file DONE, every: 100ms, timeout: 2s}";
    let mut running = start_program(world, IN_TWO_PARTS, "", keys, "halt: {grace: 60s}");
    running.sees_event("checkpoint_failed");
    fs::remove_file(world.path("silent")).unwrap();
    running.sees_first_checkpoint();
    running.terminated();
    let expected = [0, 1].map(|rank| (format!("rank_{rank}.state"), "one\ntwo\n".to_owned()));
    assert_eq!(drained(world), expected);
    let still = |event: &&Value| event["reason"].as_str().unwrap().contains("still writes");
    assert_eq!(world.all("checkpoint_failed").iter().find(still), None);
}

/// Renames a file for each of two patterns, with files before that do not count.
const RENAMES: &str = r#"
cd "$1" || exit 9
put() {
    echo "$2" > "new.$HOLDFAST_RANK"
    mv "new.$HOLDFAST_RANK" "$1.$HOLDFAST_RANK"
}
echo written > "index.$HOLDFAST_RANK"
put field renamed
until [ -e "go" ]; do sleep 0.02; done
put field newest
put index renamed
until [ -e "ends.$HOLDFAST_RANK" ]; do sleep 0.02; done
"#;

#[test]
fn a_set_of_renamed_files_has_the_newest_one_of_each_pattern_and_no_other_file(world: &World) {
    for rank in 0..2 {
        world.write(&format!("field.{rank}"), "before the start");
        world.write(&format!("index.{rank}"), "before the start");
    }
    // One directory under two names.
    std::os::unix::fs::symlink(".", world.path("link")).unwrap();
    let keys = format!("watch: {{files: [\"{0}/fi*d.$HOLDFAST_RANK\", \"{0}/link/index.$HOLDFAST_RANK\"]}}", {
        world.path("").display().to_string().trim_end_matches('/').to_owned()
    });
    let mut running = start_program(world, RENAMES, "", &keys, "halt: {grace: 0s}");
    let renamed = |rank| fs::read_to_string(world.path(&format!("field.{rank}"))).is_ok_and(|text| text == "renamed\n");
    world.wait("the first file", || (0..2).all(renamed).then_some(()));
    assert_eq!(world.all("checkpoint_started"), [] as [Value; 0], "one pattern has no renamed file");
    world.write("go", "");
    running.sees_checkpoint(1);
    running.terminated();
    let files = |rank| {
        [("field", "newest\n"), ("index", "renamed\n")]
            .map(|(name, text)| (format!("rank_{rank}.{name}.{rank}"), text.to_owned()))
    };
    assert_eq!(drained(world), [files(0), files(1)].concat());
    assert_eq!(world.all("checkpoint_started").len(), 1);
}

/// A job of one rank, whose program is started as `PROGRAM HOME`.
fn start_watched<'a>(world: &'a World, program: &str, files: &[&str]) -> Running<'a> {
    let files: Vec<String> = files.iter().map(|file| format!("\"{}\"", world.path(file).display())).collect();
    let keys = format!("watch: {{files: [{}]}}", files.join(", "));
    let program = program.replace("RANK", "$HOLDFAST_RANK");
    start_program(world, &program, "", &keys, "halt: {grace: 0s}")
}

#[test]
fn a_file_that_was_renamed_while_it_is_written_is_taken_when_it_is_closed(world: &World) {
    const PROGRAM: &str = r#"
        cd "$1" || exit 9
        exec 9>new.RANK
        echo begin >&9
        mv new.RANK state.RANK
        until [ -e close ]; do : > "open.RANK"; sleep 0.02 9>&-; done
        echo end >&9
        exec 9>&-
        until [ -e "ends.RANK" ]; do sleep 0.02; done
    "#;
    let mut running = start_watched(world, PROGRAM, &["state.$HOLDFAST_RANK"]);
    // It stays open for longer than what is reported.
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("/state.") && reason.contains(" is still open for writing by sh ("), "{reason}");
    assert_eq!(world.all("checkpoint_complete"), [] as [Value; 0]);
    world.write("close", "");
    running.sees_first_checkpoint();
    running.terminated();
    let expected = [0, 1].map(|rank| (format!("rank_{rank}.state.{rank}"), "begin\nend\n".to_owned()));
    assert_eq!(drained(world), expected);
}

#[test]
fn a_set_of_renamed_files_is_never_of_two_steps() {
    // While the first set is copied, the second one is completed and its first file renamed again.
    const PROGRAM: &str = r#"
        cd "$1" || exit 9
        put() { printf '%s\n' "$2" > "new.$1.RANK"; mv "new.$1.RANK" "$1.RANK"; }
        put_large() {
            { printf '%s\n' "$2"; head -c 100000000 /dev/zero; } > "new.$1.RANK"
            mv "new.$1.RANK" "$1.RANK"
        }
        [ -z "$HOLDFAST_RESTART_DIR" ] || {
            for file in a b; do head -n 1 "$HOLDFAST_RESTART_DIR/$file.RANK" > "restart.$file.RANK"; done
            : > "restarted.RANK"
            until [ -e "ends.RANK" ]; do sleep 0.02; done
            exit 0
        }
        put_large a 1; put b 1
        put a 2; put b 2; put a 3
        until [ -e go ]; do sleep 0.02; done
        put b 3
        until [ -e "dies.RANK" ]; do sleep 0.02; done
        exit 7
    "#;
    let world = World::new();
    let mut running = start_watched(&world, PROGRAM, &["a.$HOLDFAST_RANK", "b.$HOLDFAST_RANK"]);
    let third = |rank| fs::read_to_string(world.path(&format!("a.{rank}"))).is_ok_and(|text| text == "3\n");
    world.wait("the third step", || (0..2).all(third).then_some(()));
    world.write("go", "");
    running.sees_checkpoint(1);
    world.write("dies.0", "");
    running.sees("the second generation", |event| is(event, "restarted") && event["generation"] == 2);
    world.wait("the restart", || (0..2).all(|rank| world.path(&format!("restarted.{rank}")).exists()).then_some(()));
    for rank in 0..2 {
        let step = |file: &str| fs::read_to_string(world.path(&format!("restart.{file}.{rank}"))).unwrap();
        assert_eq!(step("a"), step("b"), "rank {rank}");
    }
    end_all(&world, 0);
    running.ends_with(0);
}

#[test]
fn renamed_files_that_cannot_be_taken_are_reported_once() {
    let rename = |of: &str| {
        format!(
            "cd \"$1\" || exit 9\nfor step in 1 2 3 4 5; do\n  echo $step > new.RANK\n  {of}\n  sleep 0.02\ndone\n\
             : > done.RANK\nuntil [ -e ends.RANK ]; do sleep 0.02; done\n"
        )
    };
    for (program, expected) in [
        (rename("ln -s new.RANK link.RANK; mv link.RANK state.RANK"), "is a symbolic link: a checkpoint can contain"),
        (rename("rm -rf sub.RANK; mkdir sub.RANK; mv -T sub.RANK state.RANK 2>/dev/null || :"), "not a regular file"),
    ] {
        let world = World::new();
        let mut running = start_watched(&world, &program, &["state.$HOLDFAST_RANK"]);
        let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with("rank ") && reason.contains(expected), "{reason}");
        let done = || (0..2).all(|rank| world.path(&format!("done.{rank}")).exists()).then_some(());
        world.wait("the last rename", done);
        end_all(&world, 0);
        running.ends_with(65);
        assert_eq!(world.all("checkpoint_failed").len(), 1);
    }
}

#[test]
fn checkpoints_are_progress_and_launches_without_one_end_the_job() {
    let world = World::unchecked();
    let mut running = start(&world, SAVE, EVERY, "relaunch: {no_progress_limit: 1}");
    for generation in 1..=3 {
        running.sees("a checkpoint", |event| is_secured(event) && event["generation"] == generation);
        assert_eq!(world.kill(|line| line.contains("rank --role checkpoints")), 2);
        running.sees("the next launch", |event| is(event, "restarted") && event["generation"] == generation + 1);
    }
    end_all(&world, 0);
    running.ends_with(0);
    let ended = world.all("generation_ended");
    assert!(ended[..3].iter().all(|event| event["progress"]["source"] == "checkpoint"), "{ended:#?}");

    let world = World::unchecked();
    end_all(&world, 7);
    let keys = "command: {save: [SAVE], every: 1h}";
    let ran = start(&world, SAVE, keys, "relaunch: {no_progress_limit: 2}").ends_with(91);
    ran.prints(&["no progress: 2 generations in a row (relaunch.no_progress_limit)"]);
}

#[test]
fn a_signal_to_a_rank_process_reaches_the_program_and_its_group_and_its_end_is_that_of_the_rank() {
    const PROGRAM: &str = r#"
        cd "$1" || exit 9
        trap ': > "signalled.$HOLDFAST_RANK"' USR2
        sh -c 'trap ": > child.$HOLDFAST_RANK" USR2; : > "ready.$HOLDFAST_RANK"; while :; do sleep 0.02; done' &
        until [ -e "dies.$HOLDFAST_RANK" ]; do sleep 0.02; done
        kill -SEGV $$
    "#;
    let world = World::new();
    let running = start_program(&world, PROGRAM, "", "command: {save: [SAVE], every: 1h}", "relaunch: {attempts: 0}");
    let all = |name: &str| (0..2).all(|rank| world.path(&format!("{name}.{rank}")).exists()).then_some(());
    world.wait("the programs", || all("ready"));
    for (pid, _) in world.processes().into_iter().filter(|(_, line)| line.contains("rank --role checkpoints")) {
        crate::world::signal(pid, Signal::USR2);
    }
    world.wait("the signal", || all("signalled").and_then(|()| all("child")));
    world.write("dies.1", "");
    running.ends_with(90);
    let ended = world.the("generation_ended");
    assert_eq!((&ended["rank"], &ended["end"]["signal"]), (&1.into(), &11.into()), "{ended}");
}

/// Both programs end while the command of their checkpoint waits.
fn programs_end_while_their_checkpoint_is_held(world: &World) {
    let all = |name: &str| (0..2).all(|rank| world.path(&format!("{name}.{rank}")).exists());
    world.wait("the checkpoint", || all("held").then_some(()));
    for rank in 0..2 {
        end(world, rank, 0);
        let pid = fs::read_to_string(world.path(&format!("pid.{rank}"))).unwrap();
        let status = format!("/proc/{}/cmdline", pid.trim());
        // A process that has ended has no command line, also if nobody has waited for it.
        let has_ended = || fs::read(&status).unwrap_or_default().is_empty().then_some(());
        world.wait("the end of a program", has_ended);
    }
    fs::remove_file(world.path("hold")).unwrap();
}

#[test]
fn programs_that_all_end_during_a_checkpoint_leave_the_one_before_as_the_newest(world: &World) {
    let save = format!("{SAVE}\ncd \"$1\"\nwhile [ -e hold ]; do : > \"held.$HOLDFAST_RANK\"; sleep 0.02; done");
    let mut running = start(world, &save, EVERY, "");
    running.sees_checkpoint(1);
    fs::write(world.path("hold"), "").unwrap();
    programs_end_while_their_checkpoint_is_held(world);
    running.ends_with(0);
    let files = drained(world);
    assert_eq!(files.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["rank_0.state", "rank_1.state"]);
}

#[test]
fn a_job_whose_programs_end_during_their_only_checkpoint_is_finished() {
    for first_fails in [false, true] {
        let world = World::new();
        let save = format!(
            "cd \"$1\"\n[ ! -e fails ] || exit 3\n{SAVE}\n: > \"held.$HOLDFAST_RANK\"\n\
             while [ -e hold ]; do sleep 0.02; done"
        );
        fs::write(world.path("hold"), "").unwrap();
        if first_fails {
            fs::write(world.path("fails"), "").unwrap();
        }
        let mut running = start(&world, &save, EVERY, "");
        if first_fails {
            running.sees_event("checkpoint_failed");
            fs::remove_file(world.path("fails")).unwrap();
        }
        programs_end_while_their_checkpoint_is_held(&world);
        let failed = |world: &World| world.all("checkpoint_failed").pop().unwrap()["reason"].clone();
        if first_fails {
            // What was lost is what failed, not what the end made superfluous.
            running.ends_with(65);
            assert!(failed(&world).as_str().unwrap().ends_with("of all ranks have ended"), "{}", failed(&world));
            let all = world.the("all_datasets_dropped");
            assert!(all["reason"].as_str().unwrap().ends_with("sh ended with exit code 3"), "{all}");
        } else {
            running.ends_with(0);
            assert_eq!(failed(&world), "the programs of all ranks have ended");
        }
    }
}

#[test]
fn a_checkpoint_whose_command_fails_is_dropped_and_the_job_continues() {
    let reason = drops("[ \"$HOLDFAST_RANK\" = 0 ] || exit 3; echo 0 > \"$HOLDFAST_CHECKPOINT_DIR/a\"", EVERY);
    assert_eq!(reason, "rank 1: sh ended with exit code 3");
    let reason = drops("", EVERY);
    assert!(reason.contains("the save command wrote no file into /"), "{reason}");
    let reason = drops("mkdir \"$HOLDFAST_CHECKPOINT_DIR/sub\"", EVERY);
    assert!(reason.contains("/sub is a directory: a checkpoint can contain regular files only"), "{reason}");
}

#[test]
fn a_command_that_hangs_or_leaves_processes_is_ended_with_all_of_them() {
    let hangs = "command: {save: [SAVE], every: 100ms, timeout: 300ms}";
    // A session of its own does not save a process.
    let reason = drops("echo 0 > \"$HOLDFAST_CHECKPOINT_DIR/a\"; setsid sleep 1000 & sleep 1000", hangs);
    assert!(reason.contains("sh took longer than 0.3 s and was ended (`checkpoint.command.timeout`)"), "{reason}");
    let reason = drops("echo 0 > \"$HOLDFAST_CHECKPOINT_DIR/a\"; setsid sleep 1000 & exit 0", EVERY);
    assert!(reason.contains("sh left processes behind ("), "{reason}");
}

/// At SIGUSR1 each rank writes a file and keeps it open, if there is `keep`, and writes into it until it ends.
const KEEPS_OPEN: &str = r#"
cd "$1" || exit 9
save() {
    exec 9>&-
    exec 9>"$HOLDFAST_CHECKPOINT_DIR/log"
    echo begin >&9
    [ -e keep ] || exec 9>/dev/null
    : > "$HOLDFAST_CHECKPOINT_DIR/DONE"
}
exec 9>/dev/null
trap save USR1
trap 'exit 0' TERM
until [ -e "ends.$HOLDFAST_RANK" ]; do echo later >&9; sleep 0.02; done
"#;

#[test]
fn a_file_that_is_still_open_for_writing_is_no_part_of_a_checkpoint(world: &World) {
    world.write("keep", "");
    let keys = "command: {signal: USR1, until: file DONE, every: 100ms, timeout: 30s}";
    let mut running = start_program(world, KEEPS_OPEN, "", keys, "halt: {grace: 60s}");
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("/checkpoint/log is still open for writing by sh ("), "{reason}");
    assert_eq!(world.all("checkpoint_complete"), [] as [Value; 0]);
    fs::remove_file(world.path("keep")).unwrap();
    running.sees_first_checkpoint();
    running.terminated();
    let expected = [0, 1].map(|rank| (format!("rank_{rank}.log"), "begin\n".to_owned()));
    assert_eq!(drained(world), expected);
}

#[test]
fn a_file_that_the_program_has_open_when_the_save_command_ends_is_no_part_of_a_checkpoint(world: &World) {
    let program = PROGRAM.replace("until [ -e", "exec 9>journal.$HOLDFAST_RANK\nuntil [ -e");
    // The same file, not a copy.
    let save = r#"cd "$1"; until mv "journal.$HOLDFAST_RANK" "$HOLDFAST_CHECKPOINT_DIR/journal"; do sleep 0.02; done"#;
    let mut running = start_program(world, &program, save, EVERY, "");
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("/checkpoint/journal is still open for writing by sh ("), "{reason}");
    end_all(world, 0);
    running.ends_with(65);
}

#[test]
fn a_link_in_the_place_of_the_directory_leads_to_files_that_are_not_touched(world: &World) {
    fs::create_dir(world.path("own")).unwrap();
    world.write("own/precious", "mine");
    let save = r#"
        [ ! -e "$1/good" ] || { echo 1 > "$HOLDFAST_CHECKPOINT_DIR/state"; exit; }
        rm -rf "$HOLDFAST_CHECKPOINT_DIR"; ln -sn "$1/own" "$HOLDFAST_CHECKPOINT_DIR"
    "#;
    let mut running = start(world, save, EVERY, "");
    let refused = |event: &Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        is(event, "checkpoint_failed") && reason.contains("/checkpoint is a symbolic link, not the directory")
    };
    let first = running.sees("a refused directory", refused)["checkpoint"].as_u64().unwrap();
    running.sees("another one", |event| refused(event) && event["checkpoint"].as_u64() > Some(first));
    // The directory is there again for the next one.
    world.write("good", "");
    running.sees_first_checkpoint();
    end_all(world, 0);
    running.ends_with(0);
    assert_eq!(fs::read_to_string(world.path("own/precious")).unwrap(), "mine");
}

#[test]
fn what_is_left_of_a_command_writes_no_file_of_the_next_checkpoint(world: &World) {
    // The first command of rank 0 goes on with all its processes when the one that supervises it is killed.
    let save = r#"
        cd "$1"
        [ "$HOLDFAST_RANK" = 0 ] && mkdir first 2>/dev/null || {
            # What is left of the first command has time to write.
            [ "$HOLDFAST_RANK" = 1 ] || sleep 0.5
            echo new > "$HOLDFAST_CHECKPOINT_DIR/state"
            exit 0
        }
        setsid sh -c 'echo $$ > old.new; mv old.new old.pid
            while :; do echo old > "$HOLDFAST_CHECKPOINT_DIR/old"; sleep 0.02; done' &
        wait
    "#;
    let mut running = start(world, save, EVERY, "");
    let left = world.wait("the command", || fs::read_to_string(world.path("old.pid")).ok());
    let is_supervisor = |line: &str| line.contains("rank --role command") && line.contains("/save");
    assert!(world.kill(is_supervisor) > 0);
    let reason = running.sees_event("checkpoint_failed")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("its supervising process was killed"), "{reason}");
    running.sees_first_checkpoint();
    let command_line = fs::read_to_string(format!("/proc/{}/cmdline", left.trim())).unwrap_or_default();
    assert_eq!(command_line, "", "the old command is killed");
    running.terminated();
    let expected = [0, 1].map(|rank| (format!("rank_{rank}.state"), "new\n".to_owned()));
    assert_eq!(drained(world), expected);
}

#[test(unchecked)]
fn a_save_command_that_is_missing_is_found_before_the_start_and_while_the_job_runs(world: &World) {
    let ran = start(world, SAVE, "command: {save: [./no-such-command]}", "").ends_with(78);
    ran.prints(&["`checkpoint.command.save`", "no-such-command"]);
    let reason = drops("exit 0", "command: {save: [sh, -c, 'exec ./gone'], every: 100ms}");
    assert!(reason.contains("sh ended with exit code 127"), "{reason}");
}

#[test]
fn a_program_that_ignores_its_signal_gets_no_checkpoint() {
    let reason = drops(SAVE, "command: {signal: WINCH, until: quiet 100ms, every: 100ms, timeout: 300ms}");
    assert!(reason.contains("the program does not handle signal 28"), "{reason}");
}

#[test]
fn files_that_a_program_renames_into_place_are_its_checkpoint(world: &World) {
    let mut changes = WITHOUT_FAULTS.to_vec();
    let save = "  command:\n    save: [cp, \"state.$HOLDFAST_RANK\", \"$HOLDFAST_CHECKPOINT_DIR/state\"]\n    \
                every: 500ms\n    timeout: 20s\n";
    changes.push((save, "  watch: {files: [\"state.$HOLDFAST_RANK\"]}\n"));
    changes.push(("$HOLDFAST_RESTART_DIR/state", "$HOLDFAST_RESTART_DIR/state.$HOLDFAST_RANK"));
    changes.push(("  nodes: 6\n", "  nodes: 6\n  faults: [{node: 1, after_checkpoint: 3}]\n"));
    start_example(world, "count.yaml", &changes).ends_with(0);
    assert_eq!(world.all("restarted").len(), 2);
    for (before, after) in output(world, 1).iter().zip(output(world, 2)) {
        assert!(before.starts_with("starting after step 0\n"), "{before}");
        assert!(!after.starts_with("starting after step 0\n") && after.ends_with("\nsum 11325\n"), "{after}");
    }
    // Only one that began when all programs had ended, or when the node whose files the fault deletes was not yet dead.
    let is_expected = |event: &Value| {
        let reason = event["reason"].as_str().unwrap();
        reason.ends_with("of all ranks have ended") || reason.starts_with("node1: ") && event["generation"] == 1
    };
    let others = world.all("checkpoint_failed").into_iter().filter(|event| !is_expected(event));
    assert_eq!(others.collect::<Vec<_>>(), [] as [Value; 0]);
}

#[test]
fn a_rank_process_that_is_killed_leaves_no_program_behind(world: &World) {
    let mut running = start(world, SAVE, EVERY, "relaunch: {attempts: 1}");
    running.sees_checkpoint(1);
    let program: u32 = fs::read_to_string(world.path("pid.1")).unwrap().trim().parse().unwrap();
    let is_rank = |line: &str| line.contains("rank --role checkpoints");
    assert_eq!(world.kill(is_rank), 2);
    world.wait("the end of the program", || (!Path::new(&format!("/proc/{program}")).exists()).then_some(()));
    running.sees("the second generation", |event| is(event, "restarted") && event["generation"] == 2);
    end_all(world, 0);
    running.ends_with(0);
}

#[test]
fn an_agent_that_is_restarted_changes_nothing_for_the_program(world: &World) {
    let mut running = start(world, SAVE, EVERY, "");
    running.sees_checkpoint(1);
    for node in ["node1", "node0"] {
        crate::world::signal(world.agent_pid(node), Signal::KILL);
        let begun = world.all("agent_started").len();
        running.sees("a new agent", |event| is(event, "agent_lost") && event["node"] == node);
        let newest = world.all("checkpoint_complete").len() as u64;
        running.sees_checkpoint(newest + 2);
        assert!(world.all("agent_started").len() >= begun);
    }
    end_all(world, 0);
    running.ends_with(0);
    assert_eq!(world.all("generation_launched").len(), 1);
}

#[test]
fn without_checkpoints_there_is_no_lack_of_progress(world: &World) {
    let spec = format!(
        "job: plain\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nrun: {{command: [sh, -c, 'exit 4']}}\n\
         checkpoint: {{source: none}}\nrelaunch: {{attempts: 4}}\n",
        world.prefix()
    );
    world.run_spec(&spec).with_code(90).prints(&["gave up after 4 relaunches"]);
    let ended = world.all("generation_ended");
    assert_eq!(ended.len(), 5);
    assert!(ended.iter().all(|event| event["without_progress"] == 0), "{ended:#?}");
}
