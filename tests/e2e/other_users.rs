//! Another user who may write to the prefix directory or to the temporary directory puts files of theirs in the place
//! of ours: nothing of them is obeyed, nothing outside is removed, and the commands name the file, its owner and a
//! remedy.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::harness::ignore;
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};

use crate::job::Job;
use crate::pair_faults::registry_path;
use crate::pairs;
use crate::pfs;
use crate::top::Top;
use crate::world::{OTHER_USER, Ran, World};

/// The exit code for a directory that cannot be trusted: the configuration is wrong.
const REFUSED: u8 = 78;

fn needs_root() {
    if !geteuid().is_root() {
        ignore("files of another user need root");
    }
}

/// Gives everything below a path to the other user, links themselves included.
fn give_away(path: &Path) {
    lchown(path, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give_away(&entry.path()));
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn own(world: &World) -> PathBuf {
    world.prefix().join(".holdfast")
}

/// A directory of the victim with files, in the form of a workspace.
fn victim(world: &World) -> PathBuf {
    let victim = world.path("victim");
    fs::create_dir_all(victim.join("nodes/node0")).unwrap();
    fs::write(victim.join("thesis.txt"), "years of work").unwrap();
    fs::write(victim.join("nodes/node0/data"), "more").unwrap();
    victim
}

#[track_caller]
fn assert_intact(victim: &Path) {
    assert_eq!(fs::read_to_string(victim.join("thesis.txt")).unwrap(), "years of work");
    assert_eq!(fs::read_to_string(victim.join("nodes/node0/data")).unwrap(), "more");
    let mut names: Vec<_> = fs::read_dir(victim).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["nodes", "thesis.txt"], "something was written to the victim's directory");
}

/// A state that names this directory as the workspace of a running job.
fn name_workspace(world: &World, workspace: &Path) {
    let path = own(world).join("job.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(state["stage"], json!({"stage": "running"}));
    state["allocation"]["details"]["workspace"] = json!(workspace);
    state["allocation"]["details"]["roots"] = json!(workspace.join("nodes"));
    fs::write(&path, state.to_string()).unwrap();
    // Its entries are those of the state.
    fs::remove_file(own(world).join("job.journal")).unwrap();
}

/// Every command about the job is refused.
#[track_caller]
fn assert_all_refuse(job: &Job<'_>, parts: &[&str]) {
    let commands: [&[&str]; 6] =
        [&["run"], &["status"], &["halt", "list"], &["halt", "set", "--now"], &["drain"], &["drain", "--dry-run"]];
    for words in commands {
        job.command(words, REFUSED).prints(parts);
    }
    job.command(&["run", "--dry-run"], REFUSED).prints(parts);
}

/// A job whose orchestrator was killed, all its processes ended: what another user would plant.
fn abandoned_job<'a>(world: &'a World) -> Job<'a> {
    let job = Job::new(world, 0).holding_after(4);
    job.abandon_after(4);
    while world.kill(|_| true) > 0 {}
    job
}

#[test]
fn a_planted_state_is_not_obeyed_and_the_directory_that_it_names_stays_intact() {
    needs_root();
    let world = World::unchecked();
    let job = abandoned_job(&world);
    let victim = victim(&world);
    name_workspace(&world, &victim);
    // Planted while others could write to the prefix: root refuses to run a job as long as they can.
    give_away(&own(&world));
    // So that reading it is not what fails.
    for (directory, file) in [(0o700, 0o600), (0o755, 0o644), (0o777, 0o666)] {
        set_mode(&own(&world), directory);
        set_mode(&own(&world).join("job.json"), file);
        assert_all_refuse(&job, &[".holdfast belongs to user id 65534"]);
        job.command(&["run"], REFUSED).prints(&["this process is user id 0", "choose another directory"]);
    }
    assert_intact(&victim);
    assert_eq!(world.processes(), []);
}

#[test]
fn a_planted_state_file_in_a_directory_of_ours_is_not_obeyed() {
    needs_root();
    let world = World::unchecked();
    let job = abandoned_job(&world);
    let victim = victim(&world);
    name_workspace(&world, &victim);
    for name in ["job.json", "job.secret"] {
        give_away(&own(&world).join(name));
        assert_all_refuse(&job, &[&format!("{name} belongs to user id 65534"), "choose another"]);
        chown(own(&world).join(name), Some(0), Some(0)).unwrap();
    }
    assert_intact(&victim);
}

#[test(unchecked)]
fn a_state_directory_that_others_may_write_to_or_that_is_a_link_is_refused(world: &World) {
    let job = abandoned_job(world);
    set_mode(&own(world), 0o777);
    assert_all_refuse(&job, &[".holdfast may be written by other users (mode 0777)", "chmod"]);
    set_mode(&own(world), 0o700);
    set_mode(&own(world).join("job.json"), 0o622);
    assert_all_refuse(&job, &["job.json may be written by other users (mode 0622)"]);
    fs::rename(own(world), world.path("elsewhere")).unwrap();
    symlink(world.path("elsewhere"), own(world)).unwrap();
    assert_all_refuse(&job, &[".holdfast is a symbolic link", "choose another"]);
}

#[test(unchecked)]
fn a_state_of_ours_that_names_a_directory_without_marker_is_refused_and_nothing_is_removed(world: &World) {
    let job = abandoned_job(world);
    let victim = victim(world);
    set_mode(&victim, 0o700);
    let workspace = PathBuf::from(world.state()["allocation"]["details"]["workspace"].as_str().unwrap());
    name_workspace(world, &victim);
    for words in [&["run"][..], &["drain"]] {
        job.command(words, REFUSED).prints(&["victim has no marker of Holdfast", "nothing was removed"]);
    }
    assert_intact(&victim);
    // The marker of another job does not help.
    fs::copy(workspace.join(".holdfast-marker"), victim.join(".holdfast-marker")).unwrap();
    let marker = fs::read_to_string(victim.join(".holdfast-marker")).unwrap();
    fs::write(victim.join(".holdfast-marker"), marker.replace("\"job\":\"", "\"job\":\"9")).unwrap();
    job.command(&["run"], REFUSED).prints(&["victim has the marker"]);
    fs::remove_file(victim.join(".holdfast-marker")).unwrap();
    assert_intact(&victim);
    // Its own workspace with roots elsewhere neither.
    let path = own(world).join("job.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    state["allocation"]["details"]["workspace"] = json!(workspace);
    fs::write(&path, state.to_string()).unwrap();
    job.command(&["run"], REFUSED);
    assert_intact(&victim);
    state["allocation"]["details"]["roots"] = json!(workspace.join("nodes"));
    fs::write(&path, state.to_string()).unwrap();
    job.go_on();
    job.run(0);
    assert!(!workspace.exists());
}

/// A user who is not root, and a member of the project's group, which is not the first one of the process.
const OWNER: u32 = 65533;
const PROJECT: u32 = 4242;

/// A world of that user, with a prefix directory of this owner, group and mode.
fn world_of_owner(owner: u32, group: u32, mode: u32) -> World {
    let world = World::unchecked();
    world.open_to_others();
    fs::create_dir(world.prefix()).unwrap();
    chown(world.prefix(), Some(owner), Some(group)).unwrap();
    set_mode(&world.prefix(), mode);
    for path in [world.path("."), world.temporary()] {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
    }
    world
}

fn as_owner(world: &World, words: &[&str]) -> Command {
    let mut command = world.command("setpriv");
    command.arg(format!("--reuid={OWNER}")).arg(format!("--regid={OWNER}")).arg(format!("--groups={PROJECT}"));
    // What the group may not do with files that are made is removed from the mode, and nothing else.
    command.args(["sh", "-c", "umask 007; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_holdfast")]).args(words);
    command
}

const WARNING: &str = "may rename, replace and remove the checkpoints in";

#[test]
fn a_prefix_directory_that_others_may_write_to_can_be_used_with_a_warning() {
    needs_root();
    let world = world_of_owner(OTHER_USER, OTHER_USER, 0o777);
    let job = Job::new(&world, 0);
    let spec = job.spec().to_string_lossy().into_owned();
    world.run(as_owner(&world, &["run", &spec])).with_code(0).prints(&[WARNING, "all users", "chmod +t"]);
    job.assert_result();
    assert_eq!(mode(&own(&world)), 0o700);
    pfs::assert_current(&world.prefix(), 8);
    world.assert_nothing_is_left();
    for (mode, said) in [(0o2775, "members of the group"), (0o1777, ""), (0o755, "its owner")] {
        set_mode(&world.prefix(), mode);
        let ran = world.run(as_owner(&world, &["check", &spec])).with_code(0);
        let is_said = ran.err.contains(WARNING) && ran.err.contains(said);
        assert_eq!(is_said, mode & 0o1000 == 0, "{mode:o}: {}", ran.err);
    }
    chown(world.prefix(), Some(OWNER), None).unwrap();
    let ran = world.run(as_owner(&world, &["check", &spec])).with_code(0);
    assert!(!ran.err.contains(WARNING), "{}", ran.err);
}

#[test]
fn root_changes_datasets_that_others_may_write_to_only_as_their_owner() {
    needs_root();
    let world = world_of_owner(OWNER, PROJECT, 0o2775);
    let job = Job::new(&world, 0).flush("{every: 1}");
    let spec = job.spec().to_string_lossy().into_owned();
    world.run(as_owner(&world, &["run", &spec])).with_code(0);
    let ids: Vec<u64> = pfs::indexed(&world.prefix()).into_keys().collect();
    let named = |id| pfs::directory_of(&world.prefix(), id).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let (first, last) = (named(ids[0]), named(*ids.last().unwrap()));
    let prefix = prefix_of(&world);
    let root = |words: &[&str]| world.run(world.holdfast(words.iter().copied().chain(["--prefix", &prefix])));
    let changes: [&[&str]; 7] = [
        &["index", "add", "--rescan", &first],
        &["index", "place", &first],
        &["index", "current", &first],
        &["index", "drop", &first],
        &["index", "delete", "--yes", &first],
        &["index", "prune", "--yes", "--keep", "1"],
        &["drain"],
    ];
    let before = holdfast_testkit::files_below(&world.prefix());
    for words in changes {
        let ran = root(words).with_code(REFUSED);
        assert!(ran.err.contains("root changes nothing in it") || words == ["drain"], "{words:?}: {}", ran.err);
        assert!(ran.err.contains("--as-owner") || words == ["drain"], "{words:?}: {}", ran.err);
    }
    world.run(world.holdfast(["run", &spec])).with_code(REFUSED).prints(&["root changes nothing in it"]);
    root(&["index", "delete", "--dry-run", &first]).with_code(0);
    root(&["index", "current"]).with_code(0);
    assert_eq!(holdfast_testkit::files_below(&world.prefix()), before);
    root(&["index", "delete", "--yes", "--as-owner", &first]).with_code(0);
    root(&["index", "current", "--as-owner", &last]).with_code(0);
    root(&["drain", "--as-owner"]).with_code(0).prints(&["nothing to drain"]);
    assert!(!world.prefix().join(&first).exists());
    for name in ["index.scr", "scr.current"] {
        assert_eq!(fs::symlink_metadata(world.prefix().join(name)).unwrap().uid(), OWNER, "{name}");
    }
    let ran = world.run(as_owner(&world, &["index", "drop", "--as-owner", "--prefix", &prefix, &last])).with_code(64);
    ran.prints(&["only root can act as another user"]);
}

#[test]
fn a_state_directory_that_is_exchanged_while_the_job_runs_is_not_used() {
    needs_root();
    let world = World::new();
    let job = Job::new(&world, 0).holding_after(4).top("relaunch: {attempts: 1}");
    let running = job.reaches(4);
    let aside = world.path("aside");
    fs::rename(own(&world), &aside).unwrap();
    // The other user's own directory, with a plan for the next generation.
    let plan = fs::read_to_string(aside.join("generations/1/plan.json")).unwrap();
    let mut plan: Value = serde_json::from_str(&plan).unwrap();
    let executed = world.path("executed");
    plan["program"] = json!("/usr/bin/touch");
    plan["arguments"] = json!([executed]);
    for generation in ["2", "3"] {
        let planted = own(&world).join("generations").join(generation);
        fs::create_dir_all(&planted).unwrap();
        plan["generation"] = json!(generation.parse::<u64>().unwrap());
        fs::write(planted.join("plan.json"), plan.to_string()).unwrap();
    }
    give_away(&own(&world));
    let before: Vec<PathBuf> = files_below(&own(&world));
    // The next launch finds it.
    world.kill(|line| line.contains("example heat"));
    let ran = running.end();
    assert_ne!(ran.status.code(), Some(0));
    ran.prints(&["belongs to user id 65534"]);
    assert!(!executed.exists());
    assert_eq!(files_below(&own(&world)), before, "something was written to the other user's directory");
    // With the directory of ours in its place again, the checkpoint is saved, and the next run goes on from it.
    fs::rename(own(&world), world.path("planted")).unwrap();
    fs::rename(&aside, own(&world)).unwrap();
    job.command(&["drain"], 0);
    pfs::assert_current(&world.prefix(), 4);
    job.go_on();
    job.run_to_result();
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_planted_plan_is_not_executed() {
    needs_root();
    let world = World::unchecked();
    Job::new(&world, 0).run(0);
    let plan = own(&world).join("generations/1/plan.json");
    give_away(&plan);
    let step = || world.run(world.holdfast(["step".as_ref(), plan.as_os_str()]));
    step().with_code(69).prints(&["plan.json belongs to user id 65534"]);
    chown(&plan, Some(0), Some(0)).unwrap();
    give_away(&own(&world).join("generations"));
    step().with_code(69).prints(&["generations belongs to user id 65534"]);
}

#[test]
fn a_temporary_directory_in_which_another_user_can_exchange_directories_is_refused() {
    needs_root();
    let world = World::new();
    world.open_to_others();
    let job = Job::new(&world, 0);
    let refuse = |parts: &[&str]| {
        let ran: Ran = job.start().ends_with(REFUSED);
        ran.prints(parts);
        ran.prints(&["TMPDIR"]);
    };
    set_mode(&world.temporary(), 0o777);
    refuse(&["tmp may be written by other users (mode 0777)"]);
    set_mode(&world.temporary(), 0o700);
    chown(world.temporary(), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    refuse(&["tmp belongs to user id 65534"]);
    fs::rename(world.temporary(), world.path("real")).unwrap();
    chown(world.path("real"), Some(0), Some(0)).unwrap();
    symlink(world.path("real"), world.temporary()).unwrap();
    lchown(world.temporary(), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    refuse(&["tmp belongs to user id 65534"]);
    assert_eq!(fs::read_dir(world.path("real")).unwrap().count(), 0);
    // A link of ours, and the sticky bit, are no danger.
    lchown(world.temporary(), Some(0), Some(0)).unwrap();
    set_mode(&world.path("real"), 0o1777);
    job.run(0);
}

#[test]
fn the_name_of_a_workspace_cannot_be_predicted() {
    let names: Vec<String> = (0..2)
        .map(|_| {
            let world = World::unchecked();
            let job = Job::new(&world, 0).holding_after(4);
            let running = job.reaches(4);
            let state = world.state();
            let workspace = PathBuf::from(state["allocation"]["details"]["workspace"].as_str().unwrap());
            assert_eq!(mode(&workspace), 0o700);
            let name = workspace.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(!name.contains(state["agents"]["job_id"].as_str().unwrap()), "{name}");
            job.goes_on_to_its_end(running);
            name
        })
        .collect();
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.strip_prefix("holdfast-u-").is_some_and(|random| random.len() == 16)));
}

#[test]
fn key_and_token_are_removed_however_the_job_ends() {
    let secret = |world: &World| own(world).join("job.secret");
    let no_token = |world: &World, token: &str| {
        assert!(!secret(world).exists());
        for file in files_below(&own(world)).iter().filter(|path| path.is_file()) {
            let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
            assert!(!text.contains(token), "{}", file.display());
        }
    };
    type End = fn(&Job<'_>, crate::world::Running<'_>);
    let ends: [(&str, End); 4] = [
        ("halted", |job, running| {
            job.command(&["halt", "set", "--now"], 0);
            job.go_on();
            running.ends_with(75);
        }),
        ("interrupted", |_, running| {
            running.signal(Signal::INT);
            running.ends_with(75);
        }),
        ("killed, and drained", |job, running| {
            running.killed();
            job.command(&["drain"], 0);
        }),
        ("killed, and finished by the next run", |job, running| {
            running.killed();
            job.go_on();
            job.run(0);
        }),
    ];
    for (how, end) in ends {
        let world = World::unchecked();
        let job = Job::new(&world, 0).holding_after(4);
        let running = job.reaches(4);
        assert_eq!(mode(&secret(&world)), 0o600, "{how}");
        let token = world.secret()["trust"]["token"].as_str().unwrap().to_owned();
        end(&job, running);
        no_token(&world, &token);
    }
    let world = World::new();
    let job = Job::new(&world, 0).top("before: [{command: [/bin/false]}]");
    assert_ne!(job.start().end().status.code(), Some(0));
    assert!(!secret(&world).exists(), "a command of `before:` failed");
    assert_eq!(world.state()["stage"]["stage"], "finished");
}

#[test]
fn members_of_the_group_run_status_where_setting_and_umask_permit_it_and_no_other_user_does() {
    needs_root();
    let group_of_files = 0;
    for (setting, umask, permitted) in
        [("group_access: status", 0o027, true), ("group_access: status", 0o077, false), ("", 0o022, false)]
    {
        let world = World::unchecked();
        world.open_to_others();
        let mut job = Job::new(&world, 0).holding_after(4);
        if !setting.is_empty() {
            job = job.top(setting);
        }
        let mut command = world.command("sh");
        let script = format!("umask {umask:03o}; exec \"$@\"");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_holdfast"), "run"]).arg(job.spec());
        let mut running = world.start(command);
        running.sees_checkpoint(4);
        set_mode(&world.prefix(), 0o755);
        let about = |command: &'static str| [command.to_owned(), "--prefix".to_owned(), prefix_of(&world)];
        let status = |group| world.run(world.holdfast_as(group, about("status")));

        assert_eq!(mode(&own(&world).join("job.secret")), 0o600);
        status(OTHER_USER).with_code(REFUSED).prints(&["belongs to user id 0"]);
        if permitted {
            assert_eq!(mode(&own(&world)), 0o750);
            for name in ["job.json", "job.journal", "events.jsonl", "lock"] {
                assert_eq!(mode(&own(&world).join(name)), 0o640, "{name}");
            }
            status(group_of_files).with_code(0).prints(&["running, generation 1", "recorded by user id 0", "node0"]);
            let mut top = Top::start(&world, world.as_other_user(group_of_files, "sh"));
            top.shows("running, generation 1");
            top.press("h");
            top.shows("the job belongs to another user: nothing can be requested");
            top.quits();
            let mut json = world.holdfast_as(group_of_files, about("status"));
            let shown = world.run({
                json.arg("--json");
                json
            });
            assert_eq!(shown.with_code(0).json()["generation"], 1);
        } else {
            assert_eq!(mode(&own(&world)), 0o700);
            status(group_of_files).with_code(REFUSED).prints(&["belongs to user id 0"]);
        }
        // Reading is all that is permitted.
        for command in [&["halt", "list"][..], &["halt", "set", "--now"], &["drain"]] {
            let words = command.iter().map(|word| (*word).to_owned()).chain(["--prefix".to_owned(), prefix_of(&world)]);
            world.run(world.holdfast_as(group_of_files, words)).with_code(REFUSED).prints(&["belongs to user id 0"]);
        }
        job.command(&["status"], 0).prints(&["running, generation 1"]);
        job.goes_on_to_its_end(running);
        if umask == 0o022 {
            // What is in the prefix directory itself is as readable as the umask permits.
            let list = ["index", "list", "--prefix", &prefix_of(&world)].map(str::to_owned);
            world.run(world.holdfast_as(OTHER_USER, list)).with_code(0).prints(&["scr."]);
        }
    }
}

#[test]
fn members_of_a_project_run_status_in_its_directory_with_the_set_group_id_bit() {
    needs_root();
    let world = world_of_owner(0, PROJECT, 0o2775);
    let job = Job::new(&world, 0).holding_after(4).top("group_access: status");
    let spec = job.spec().to_string_lossy().into_owned();
    let running = world.start(as_owner(&world, &["run", &spec]));
    world.wait("checkpoint 4", || {
        // The log belongs to another user than this process.
        let log = fs::read_to_string(own(&world).join("events.jsonl")).unwrap_or_default();
        log.contains(r#""checkpoint_complete","generation":1,"checkpoint":4"#).then_some(())
    });
    for name in ["", "job.json", "job.journal", "events.jsonl", "lock"] {
        let found = fs::metadata(own(&world).join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (OWNER, PROJECT), "{name}");
    }
    let status = |group| world.run(world.holdfast_as(group, ["status", "--prefix", &prefix_of(&world)]));
    status(PROJECT).with_code(0).prints(&["running, generation 1", "recorded by user id 65533", "node0"]);
    status(OTHER_USER).with_code(REFUSED).prints(&["belongs to user id 65533"]);
    assert_eq!(mode(&own(&world).join("job.secret")), 0o600);
    job.goes_on_to_its_end(running);
    // The log and the lock of a run without that setting become those of the project again.
    for name in ["events.jsonl", "lock"] {
        chown(own(&world).join(name), None, Some(OWNER)).unwrap();
    }
    world.run(as_owner(&world, &["run", &spec])).with_code(0);
    status(PROJECT).with_code(0).prints(&["finished"]);
}

fn prefix_of(world: &World) -> String {
    world.prefix().to_string_lossy().into_owned()
}

#[test]
fn no_other_user_maps_the_registry_of_pairs_or_commands_them() {
    needs_root();
    let world = World::new();
    world.open_to_others();
    let main = r#"main: [holdfast, example, pair, "{side}", "{index}", "20", "100000000"]"#;
    let job = pairs::run(&world, &pairs::spec(&world, &format!("name: dnn0, {main}"), ""));
    let main = pairs::ready(&world, "dnn0");
    let replica = pairs::waits_for_state(&world, 0, "replica", "asleep");
    // They see the files of the world, and the environment of a copy only if it is their own.
    let registry = registry_path(main);
    for group in [OTHER_USER, 0] {
        let mut read = world.command("setpriv");
        read.arg(format!("--reuid={OTHER_USER}")).arg(format!("--regid={group}")).arg("--clear-groups");
        read.arg("cat").arg(&registry);
        let read = world.run(read);
        assert!(!read.status.success() && read.err.contains("Permission denied"), "{}", read.err);
        for words in [&["list"][..], &["fail-over", "dnn0"], &["restart", "--side", "main", "dnn0"]] {
            let words = ["pairs"].iter().chain(words).map(|word| (*word).to_owned());
            let words = words.chain(["--prefix".to_owned(), prefix_of(&world)]);
            world.run(world.holdfast_as(group, words)).with_code(REFUSED).prints(&["belongs to user id 0"]);
        }
    }
    assert_eq!(pairs::waits_for_state(&world, 0, "main", "awake"), main);
    assert_eq!(pairs::waits_for_state(&world, 0, "replica", "asleep"), replica);
    job.terminated();
}
