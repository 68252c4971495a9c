//! Programs that do not protect anything: they never call the checkpoint API, or make checkpoints with another library.

use serde_json::json;

use crate::job::Job;
use crate::pair_programs::library_directory;
use crate::world::World;

const NOTHING: &str = "nothing was protected: no rank called the checkpoint API";

/// Runs a shell command as a job of one rank with these keys to its end.
fn run(world: &World, command: &str, keys: &str) -> String {
    let text = format!(
        "job: silent\nprefix: pfs\nallocation: {{manager: local, nodes: 1}}\nrun: {{nodes: 1, command: [sh, -c, \
         \"{command}\"]}}\n{keys}"
    );
    let spec = world.write("job.yaml", &text);
    let ran = world.run(world.holdfast(["run", spec.to_str().unwrap()])).with_code(0);
    format!("{}{}", ran.out, ran.err)
}

#[test(unchecked)]
fn program_that_never_calls_the_api_is_reported_while_it_runs_and_at_the_end(world: &World) {
    let gone = world.path("reported");
    // It ends when it was reported.
    let command = format!("until [ -e {} ]; do sleep 0.05; done", gone.display());
    let text = format!(
        "job: silent\nprefix: pfs\nallocation: {{manager: local, nodes: 1}}\nhealth: {{silent_api_after: 200ms}}\n\
         run: {{nodes: 1, command: [sh, -c, \"{command}\"]}}\n"
    );
    let spec = world.write("job.yaml", &text);
    let mut running = world.start(world.holdfast(["run", spec.to_str().unwrap()]));
    let event = running.sees_event("api_not_called");
    assert_eq!(event["generation"], 1);
    std::fs::write(gone, "").unwrap();
    running.ends_with(0).prints(&["no rank has called the checkpoint API", "`checkpoint.source`", NOTHING]);
    assert_eq!(world.all("api_not_called").len(), 1);
    world.run(world.holdfast(["status", spec.to_str().unwrap()])).with_code(0).prints(&[NOTHING]);
}

#[test]
fn nothing_is_said_of_programs_that_call_the_api_or_need_not() {
    let world = World::unchecked();
    let job = Job::new(&world, 0);
    let ran = job.run(0);
    assert!(!format!("{}{}", ran.out, ran.err).contains("no rank"), "{}", ran.err);
    let world = World::unchecked();
    for keys in ["checkpoint: {source: none}\n", "health: {silent_api_after: none}\n"] {
        let printed = run(&world, "exit 0", keys);
        assert!(!printed.contains("no rank"), "{printed}");
    }
    assert!(run(&World::unchecked(), "exit 0", "").contains(NOTHING));
}

#[test(unchecked)]
fn ranks_that_hang_before_their_first_call_after_a_relaunch_are_reported(world: &World) {
    let gone = world.path("reported");
    let script =
        format!("test $HOLDFAST_GENERATION = 1 || until test -e {}; do sleep 0.05; done; exec \"$@\"", gone.display());
    let command = format!("command: [sh, -c, '{script}', sh, {:?}, ", env!("CARGO_BIN_EXE_holdfast"));
    let job = Job::new(world, 1).health("silent_api_after: 3s").faults("{node: 1, after_checkpoint: 2}");
    let mut running = world.start_spec(&job.yaml().replace("command: [\"holdfast\", ", &command));
    let event = running.sees_event("api_not_called");
    assert_eq!((&event["generation"], &event["called_before"]), (&json!(2), &json!(true)));
    std::fs::write(gone, "").unwrap();
    let ran = running.ends_with(0);
    ran.prints(&["no rank of generation 2 has called the checkpoint API", "MPI_Init"]);
    assert!(!format!("{}{}", ran.out, ran.err).contains(NOTHING), "{}", ran.err);
    assert_eq!(world.all("api_not_called").len(), 1);
    job.assert_result();
}

#[test(unchecked)]
fn program_of_another_library_than_the_source_is_for_is_refused(world: &World) {
    std::fs::write(world.path("main.c"), "int FTI_Status(void); int main(void) { return FTI_Status(); }").unwrap();
    let program = world.path("program");
    let library = library_directory().join("libfti.so");
    let mut compile = std::process::Command::new("cc");
    compile.arg(world.path("main.c")).arg("-o").arg(&program).arg(&library);
    compile.arg(format!("-Wl,-rpath,{}", library_directory().display()));
    assert!(compile.status().unwrap().success());
    let text = |source: &str| {
        format!(
            "job: fti\nprefix: pfs\nallocation: {{manager: local, nodes: 1}}\nrun: {{nodes: 1, command: [{}]}}\n\
             checkpoint: {{source: {source}}}\n",
            json!(program)
        )
    };
    let spec = world.write("job.yaml", &text("scr"));
    for words in [&["run"][..], &["run", "--dry-run"]] {
        let mut command = world.holdfast(words);
        command.arg(&spec);
        world.run(command).with_code(78).prints(&["libfti.so", "does not serve", "write `source: variables`"]);
    }
    let spec = world.write("job.yaml", &text("variables"));
    world.run(world.holdfast(["run", "--dry-run"]).arg(&spec)).with_code(0);
}
