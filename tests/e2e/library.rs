//! Jobs of unchanged applications of LLNL's library (`checkpoint: {source: scr-files}`), with the program of
//! [`library_program`], which leaves what that library leaves.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use holdfast_core::control::halt::HaltFile;
use holdfast_model::HaltCondition;
use holdfast_testkit::harness::ignore;
use serde_json::Value;

use crate::library_program::{CHECKPOINTS, CONTROL, HOLD, MEETING, content};
use crate::pfs;
use crate::world::{Running, USER, World};

/// A job of four ranks on as many virtual nodes.
struct LibraryJob<'a> {
    world: &'a World,
    spares: u32,
    checkpoints: u32,
    hold: &'static str,
    faults: Vec<&'static str>,
    /// Keys of `run:`, each before a comma.
    launcher: String,
    /// `flush:` of the spec.
    flush: &'static str,
    /// Further lines at the top of the spec.
    top: &'static str,
    /// Further variables of the ranks.
    environment: Vec<(&'static str, String)>,
}

impl<'a> LibraryJob<'a> {
    fn new(world: &'a World) -> Self {
        LibraryJob {
            world,
            spares: 0,
            checkpoints: 4,
            hold: "",
            faults: Vec::new(),
            launcher: String::new(),
            flush: "{every: 0}",
            top: "",
            environment: Vec::new(),
        }
    }

    fn command(&self) -> Command {
        let LibraryJob { world, spares, checkpoints, hold, faults, launcher, flush, top, environment } = self;
        fs::create_dir_all(world.path("meeting")).unwrap();
        let mut env = vec![
            (MEETING, world.path("meeting").to_string_lossy().into_owned()),
            (CHECKPOINTS, checkpoints.to_string()),
            (HOLD, (*hold).to_owned()),
        ];
        env.extend(environment.clone());
        let env: Vec<String> = env.into_iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        let spec = format!(
            "prefix: {:?}\nallocation: {{manager: local, nodes: {}, faults: [{}]}}\n\
             run: {{nodes: 4, {launcher} command: [{:?}], env: {{{}}}}}\n\
             checkpoint: {{source: scr-files, redundancy: [{{scheme: partner}}], flush: {flush}}}\n\
             health: {{down_after: 10s}}\n{top}\n",
            world.prefix(),
            4 + spares,
            faults.join(", "),
            std::env::current_exe().unwrap(),
            env.join(", "),
        );
        let spec = world.write("library.yaml", &spec);
        world.holdfast(["run".as_ref(), spec.as_os_str()])
    }

    fn start(&self) -> Running<'a> {
        self.world.start(self.command())
    }
}

/// The path of a virtual node.
fn node(world: &World, node: u32) -> std::path::PathBuf {
    let workspace = fs::read_dir(world.temporary()).unwrap().flatten();
    let roots = workspace.map(|entry| entry.path().join("nodes")).find(|path| path.is_dir());
    roots.unwrap().join(format!("node{node}"))
}

fn job_id(world: &World) -> String {
    world.the("job_started")["job_id"].as_str().unwrap().to_owned()
}

fn values(events: &[Value], key: &str) -> Vec<Value> {
    events.iter().map(|event| event[key].clone()).collect()
}

/// The files of the checkpoint that `scr.current` names.
fn assert_drained(world: &World, checkpoint: u64) {
    pfs::assert_current(&world.prefix(), checkpoint);
    for rank in 0..4 {
        let file = pfs::current(&world.prefix()).unwrap().join(format!("rank_{rank}.ckpt"));
        assert!(fs::read(&file).unwrap() == content(checkpoint, rank), "{}", file.display());
    }
}

#[test]
fn application_of_the_library_is_finished_when_it_calls_finalize_and_its_checkpoint_is_drained(world: &World) {
    LibraryJob::new(world).start().ends_with(0);
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(values(&world.all("checkpoint_complete"), "scheme").last().unwrap(), "PARTNER");
    assert_eq!(world.all("library_started").len(), 1);
    assert_eq!(world.all("finalized").len(), 1);
    assert_drained(world, 4);
}

#[test]
fn checkpoints_of_the_library_are_progress_and_the_job_survives_two_node_losses(world: &World) {
    let job = LibraryJob {
        spares: 2,
        checkpoints: 6,
        hold: "2,4",
        faults: vec!["{node: 1, after_checkpoint: 2}", "{node: 0, after_checkpoint: 4}"],
        top: "relaunch: {no_progress_limit: 1}",
        ..LibraryJob::new(world)
    };
    job.start().ends_with(0);
    let restarted = values(&world.all("restarted"), "checkpoint");
    assert_eq!(restarted[restarted.len() - 2..], [Value::from(2), Value::from(4)]);
    let ended = world.all("generation_ended");
    assert_eq!(values(&ended, "without_progress"), [0, 0, 0]);
    for (generation, checkpoint) in [(2, "2"), (3, "4")] {
        let restarted = fs::read_to_string(world.path(&format!("meeting/{generation}/restarted.3"))).unwrap();
        assert_eq!(restarted, checkpoint, "generation {generation}");
    }
    assert!(world.all("restart_attempt").is_empty() && world.all("rebuild_started").is_empty());
    assert_drained(world, 6);
}

#[test]
fn a_start_of_the_library_from_the_beginning_is_reported_as_one_and_compared_with_no_earlier_checkpoint(world: &World) {
    let go = |id: u32| world.path(&format!("meeting/go.{id}"));
    let job = LibraryJob {
        spares: 2,
        hold: "1,3",
        // A rank and its partner.
        faults: vec!["{node: 1, after_checkpoint: 3}", "{node: 2, after_checkpoint: 3}"],
        top: "relaunch: {no_progress_limit: 1}",
        ..LibraryJob::new(world)
    };
    fs::create_dir_all(world.path("meeting")).unwrap();
    fs::write(go(1), "").unwrap();
    let mut running = job.start();
    running.sees_checkpoint(3);
    fs::remove_file(go(1)).unwrap();
    running.sees("a checkpoint of the second generation", |event| {
        event["event"] == "checkpoint_protected" && event["generation"] == 2 && event["checkpoint"] == 1
    });
    world.kill(|line| line.contains("deps/e2e"));
    running.sees_where("generation_launched", "generation", 3);
    fs::write(go(3), "").unwrap();
    running.ends_with(0);
    let of_second = world.all("restarted").into_iter().filter(|event| event["generation"] == 2);
    let reported: Vec<_> = of_second.map(|event| (event["checkpoint"].clone(), event["source"].clone())).collect();
    assert_eq!(reported, [(Value::Null, Value::from("fresh"))]);
    let ended = world.all("generation_ended");
    assert_eq!(values(&ended, "newest"), [3, 1, 4]);
    assert_eq!(values(&ended, "without_progress"), [0, 0, 0]);
    assert_drained(world, 4);
}

/// MPICH's mpirun.
pub fn hydra() -> &'static str {
    let recognised = |program: &&str| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("HYDRA"))
    };
    let found = ["mpirun.mpich", "mpiexec.hydra", "mpirun"].into_iter().find(recognised);
    found.unwrap_or_else(|| ignore("MPICH's mpirun is not installed"))
}

#[test]
fn mpirun_starts_the_ranks_on_virtual_nodes_and_a_node_loss_is_survived() {
    let program = hydra();
    let world = World::new();
    let job = LibraryJob {
        spares: 1,
        hold: "2",
        faults: vec!["{node: 1, after_checkpoint: 2}"],
        launcher: format!("launcher: mpirun, launcher_program: {program},"),
        ..LibraryJob::new(&world)
    };
    job.start().ends_with(0);
    assert_eq!(fs::read_to_string(world.path("meeting/2/restarted.1")).unwrap(), "2");
    assert_drained(&world, 4);
}

#[test]
fn a_halt_reason_of_the_library_ends_the_job_unfinished(world: &World) {
    let job = LibraryJob { top: "halt: {checkpoints_left: 2}", ..LibraryJob::new(world) };
    job.start().ends_with(75);
    assert_eq!(world.all("generation_launched").len(), 1);
    assert_eq!(world.the("halting")["reason"], "NO_CHECKPOINTS_LEFT");
    assert_drained(world, 2);
}

#[test]
fn a_program_that_waits_for_the_lock_of_the_halt_file_finds_the_condition_that_is_set_meanwhile(world: &World) {
    let job = LibraryJob { hold: "2", ..LibraryJob::new(world) };
    let running = job.start();
    world.wait("checkpoint 2", || {
        values(&world.all("checkpoint_complete"), "checkpoint").contains(&Value::from(2)).then_some(())
    });
    let control = node(world, 0).join(format!("tmp/{USER}/scr.{}", job_id(world)));
    let path = control.join("halt.scrinfo");
    // As the library: opened before the condition is set.
    let held = fs::File::open(&path).unwrap();
    world.start(world.holdfast(["halt", "set", "--checkpoints", "1"]).arg("--prefix").arg(world.prefix())).ends_with(0);
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    let found = HaltFile::read(std::path::Path::new(&through)).unwrap().unwrap();
    assert_eq!(found.number(HaltCondition::CheckpointsLeft), Some(1));
    fs::write(world.path("meeting/go.2"), "").unwrap();
    running.ends_with(75);
    assert_drained(world, 3);
}

#[test]
fn agents_serve_the_transfer_file_of_an_asynchronous_flush(world: &World) {
    let job = LibraryJob { flush: "{every: 2, mode: async}", ..LibraryJob::new(world) };
    job.start().ends_with(0);
    for rank in 0..4 {
        let flushed = world.prefix().join("flushed.4");
        let file = flushed.join(format!("rank_{rank}.ckpt"));
        assert!(fs::read(&file).unwrap() == content(4, rank), "{}", file.display());
        assert!(flushed.join(format!("rank_{rank}.ckpt.scr")).is_file());
    }
    assert!(values(&world.all("flushed"), "checkpoint").contains(&Value::from(4)));
    // The flush file lists it on the prefix directory: there is nothing left to drain.
    assert_eq!(world.all("drain_started").len(), 0);
}

#[test]
fn an_asynchronous_flush_keeps_to_its_bandwidth(world: &World) {
    // 40 kB for each rank at 20 kB/s. The agent of rank 0 sees the flush up to a tenth of a second late.
    let job =
        LibraryJob { checkpoints: 1, flush: "{every: 1, mode: async, bandwidth: 80kB/s}", ..LibraryJob::new(world) };
    job.start().ends_with(0);
    let millis = world.the("flushed")["millis"].as_u64().unwrap();
    assert!(millis >= 1_800, "{millis} ms");
    assert!(fs::read(world.prefix().join("flushed.1/rank_3.ckpt")).unwrap() == content(1, 3));
}

#[test]
fn a_second_step_does_not_restart_from_checkpoints_of_the_first(world: &World) {
    fs::create_dir_all(world.path("meeting")).unwrap();
    let step = |name: &str| {
        format!(
            "{{name: {name}, \
             run: {{nodes: 2, command: [{:?}], env: {{{MEETING}: {:?}, {CHECKPOINTS}: '2', {HOLD}: ''}}}}, \
             checkpoint: {{source: scr-files, redundancy: [{{scheme: partner}}], flush: {{every: 0}}}}}}",
            std::env::current_exe().unwrap(),
            world.path("meeting"),
        )
    };
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 2}}\nsteps:\n- {}\n- {}\n",
        world.prefix(),
        step("first"),
        step("second")
    );
    world.run_spec(&spec).with_code(0);
    let restarted = |generation: u32| fs::read_to_string(world.path(&format!("meeting/{generation}/restarted.0")));
    assert_eq!((restarted(1).unwrap(), restarted(2).unwrap()), ("0".to_owned(), "0".to_owned()));
}

#[test]
fn ranks_that_use_another_control_base_are_reported(world: &World) {
    let job = LibraryJob { environment: vec![(CONTROL, "/elsewhere".to_owned())], ..LibraryJob::new(world) };
    job.start().ends_with(0).prints(&["no files of SCR v1.1-8 below /tmp"]);
    assert_eq!(world.the("library_left_nothing")["base"], "/tmp");
    assert_eq!(world.all("checkpoint_complete").len(), 0);
}

#[test]
fn a_program_of_our_library_is_refused(world: &World) {
    let spec = format!(
        "prefix: {:?}\nallocation: {{manager: local, nodes: 1}}\n\
         run: {{nodes: 1, command: [holdfast, example, heat, --steps, '4']}}\n\
         checkpoint: {{source: scr-files}}\nrelaunch: {{attempts: 0}}\n",
        world.prefix(),
    );
    let ran = world.run_spec(&spec);
    ran.with_code(90).prints(&["write `source: scr`"]);
}

/// A script that runs a program with SCR's library, without Holdfast: this machine is the only node.
#[test]
fn drain_saves_what_the_library_left_where_holdfast_launched_nothing(world: &World) {
    fs::create_dir_all(world.prefix()).unwrap();
    let base = world.path("local");
    fs::create_dir_all(&base).unwrap();
    fs::create_dir_all(world.path("meeting")).unwrap();
    let spec = format!(
        "prefix: {:?}\nrun: {{command: ['true']}}\n\
         checkpoint: {{control: {{base: {base:?}}}, cache: [{{base: {base:?}}}]}}\n",
        world.prefix()
    );
    let spec = world.write("scr.yaml", &spec);
    let drain = || {
        let mut command = world.holdfast(["drain".as_ref(), spec.as_os_str()]);
        command.env("SCR_JOB_ID", "4711").env("SCR_USER_NAME", "anna");
        command
    };
    // Nothing was run yet.
    world.run(drain()).with_code(0).prints(&["nothing to drain"]);
    let mut program = world.command(std::env::current_exe().unwrap());
    program
        .env(MEETING, world.path("meeting"))
        .env(CHECKPOINTS, "3")
        .env(HOLD, "")
        .env(CONTROL, &base)
        .envs([("SCR_JOB_ID", "4711"), ("SCR_USER_NAME", "anna"), ("SCR_COPY_TYPE", "PARTNER")])
        .envs([("SCR_CACHE_SIZE", "2"), ("SCR_FLUSH", "0"), ("SCR_FLUSH_ASYNC", "0")])
        .env("SCR_CACHE_BASE", &base)
        .envs([("HOLDFAST_RANK", "0"), ("HOLDFAST_RANKS", "1"), ("HOLDFAST_GENERATION", "1")])
        .envs([("HOLDFAST_NODE", "here"), ("HOLDFAST_NODE_ROOT", "/")]);
    world.run(program).with_code(0);
    let cached = base.join("anna/scr.4711/index.0/checkpoint.3/rank_0.ckpt");
    assert!(cached.is_file());
    world.run(drain()).with_code(0).prints(&["checkpoint 3 is complete"]);
    pfs::assert_current(&world.prefix(), 3);
    let drained = pfs::current(&world.prefix()).unwrap();
    assert!(drained.to_string_lossy().ends_with(".4711.3"), "{}", drained.display());
    assert!(fs::read(drained.join("rank_0.ckpt")).unwrap() == content(3, 0));
    assert!(cached.is_file(), "nothing on the node is deleted");
    world.run(drain()).with_code(0).prints(&["nothing to drain"]);
}

/// A program that calls SCR_Init of a library with the name of LLNL's, which has this source: `app` and its library.
fn program_of(world: &World, library: &str) -> (PathBuf, PathBuf) {
    if which::which("cc").is_err() {
        ignore("a C compiler is missing");
    }
    let name = "libscr.so.0";
    compiled(world, name, library, &["-shared", "-fPIC", "-Wl,-soname,libscr.so.0"]);
    let (app, library) = (world.path("app"), world.path(name));
    let main = "int SCR_Init(void);\nint main(void) { return SCR_Init(); }\n";
    let rpath = format!("-Wl,-rpath,{}", world.path("").display());
    compiled(world, "app", main, &[library.to_str().unwrap(), &rpath]);
    (app, library)
}

/// Compiles a C program or library.
fn compiled(world: &World, name: &str, source: &str, options: &[&str]) {
    world.write(&format!("{name}.c"), source);
    world.run(world.command("cc").args(["-o", name, &format!("{name}.c")]).args(options)).with_code(0);
}

#[test(unchecked)]
fn a_program_of_a_later_library_is_refused_because_nothing_could_save_its_checkpoints(world: &World) {
    let later = "const char *path = \"%s/scr.dataset.%d\";\nint SCR_Init(void) { return path == 0; }\n";
    let (app, library) = program_of(world, later);
    let refused = format!("{} makes its checkpoints with {}, a later SCR", app.display(), library.display());
    let srun = world.holdfast(["compat", "scr_srun", "-n4", app.to_str().unwrap()]);
    // As other failures of SCR's commands.
    world.run(srun).with_code(1).prints(&[&refused, "Holdfast's libscr"]);
    for source in ["scr-files", "scr"] {
        let spec = format!(
            "job: later\nprefix: {:?}\nallocation: {{manager: local, nodes: 1}}\nrun: {{nodes: 1, command: [{:?}]}}\n\
             checkpoint: {{source: {source}}}\n",
            world.prefix(),
            app
        );
        let spec = world.write("later.yaml", &spec);
        world.run(world.holdfast(["run", "--dry-run"]).arg(spec)).with_code(78).prints(&[&refused]);
    }
}

#[test(unchecked)]
fn scr_srun_runs_a_program_of_the_library_without_a_spec(world: &World) {
    fs::create_dir_all(world.prefix()).unwrap();
    fs::create_dir_all(world.path("meeting")).unwrap();
    // A library with the name and a function of LLNL's; in it the program becomes that of these tests.
    let becomes = format!(
        "#include <unistd.h>\nint SCR_Init(void) {{ return execl({:?}, \"app\", (char *)0); }}\n",
        std::env::current_exe().unwrap()
    );
    let (app, library) = program_of(world, &becomes);
    let mut command = world.holdfast(["compat", "scr_srun", "-n4", app.to_str().unwrap()]);
    command
        .env("SCR_PREFIX", world.prefix())
        .env("SCR_COPY_TYPE", "PARTNER")
        .env("SCR_FLUSH", "0")
        .env(MEETING, world.path("meeting"))
        .env(CHECKPOINTS, "4")
        .env(HOLD, "");
    world.run(command).with_code(0).prints(&[
        &format!("scr_srun: The program uses LLNL's SCR library, {}", library.display()),
        "scr_srun: run: exit code 0",
    ]);
    assert_drained(world, 4);
    world.assert_nothing_is_left();
}
