//! Real agents, real copies: both are this test's program, started again for one of the ignored tests below.

mod two_nodes;
mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_model::pair::{CopyState, CopyStatus, FailureCause, JobRunState, PairChange, PairCommand};
use holdfast_model::{RankEnd, Side};
use holdfast_process::identity::start_time;
use holdfast_shm::{Registry, Seat, ShmError, SlotState};
use holdfast_testkit::cluster::until;
use holdfast_wire::agent::{Empty, OF_USER, POLL, PollRequest, REQUEST_OF};
use holdfast_wire::pairs::{
    COMMAND, CommandRequest, PLAN, PairsAccepted, PairsPlan, PairsReport, PairsStop, PairsSync, STOP, SYNC,
};
use holdfast_wire::run::{Lookup, SharedStart};
use holdfast_wire::trust;
use rustix::process::{Signal, geteuid};

use crate::fixtures::fixture_start;
use crate::server::client;

use world::{LIMIT, NODE, World, config, fail_over, failed, job, kill, signal, start_agent_with};

#[test]
fn a_replica_goes_on_from_the_checkpoint_of_a_killed_main_and_the_main_takes_over_again() {
    let world = World::of("count");
    let (main, _) = world.settled();
    world.wait_for("a checkpoint", |report| (report.pairs[0].checkpoint > 3).then_some(()));
    kill(&main);
    let (cause, checkpoint) = world.wait_change("a fail-over", fail_over);
    assert_eq!(cause, FailureCause::Exit { end: RankEnd::Signal(9) });
    assert!(checkpoint > 3);
    // The main is started again, and the pair is where it was before.
    let back = |change: &PairChange| match change {
        PairChange::FailBack { checkpoint, .. } => Some(*checkpoint),
        _ => None,
    };
    assert!(world.wait_change("a fail-back", back) >= checkpoint);
    let (again, replica) = world.settled();
    assert_eq!((again.incarnation, replica.incarnation), (2, 2));
    let status = &world.report().pairs[0];
    assert_eq!((status.fail_overs, status.fail_backs), (1, 1));
    assert!(world.output("count.replica.log").contains(&format!("replica begins after {checkpoint}")));
    let begins = world.output("count.main.log");
    assert!(begins.contains("main begins after 0") && begins.matches("main begins").count() == 2, "{begins}");
}

#[test]
fn a_stopped_main_is_killed_and_replaced() {
    let world = World::of("count");
    let (main, _) = world.settled();
    let started = start_time(main.pid.unwrap());
    signal(main.pid.unwrap(), Signal::STOP);
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { .. }), "{cause:?}");
    world.settled();
    assert_ne!(start_time(main.pid.unwrap()), started, "the stopped main is gone");
}

#[test]
fn a_main_that_spins_without_heartbeats_is_killed_and_replaced() {
    let world = World::of("spin");
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { misses } if misses >= 100), "{cause:?}");
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
}

#[test]
fn a_replica_killed_asleep_is_started_again_asleep() {
    let world = World::of("count");
    let (main, replica) = world.settled();
    kill(&replica);
    let (state, _) = world.wait_change("the failure", failed(Side::Replica));
    assert_eq!(state, CopyState::Asleep);
    let (same, _) =
        world.wait("a new replica asleep", |_, replica| replica.incarnation == 2 && replica.state == CopyState::Asleep);
    assert_eq!((same.pid, same.state), (main.pid, CopyState::Awake), "the main was not disturbed");
}

#[test]
fn a_replica_killed_while_waking_is_followed_by_the_main() {
    let mut slow = config("count");
    slow.restart.first = Duration::from_secs(1);
    let world = World::with(vec![slow], Vec::new());
    let (main, replica) = world.settled();
    // It is woken, and cannot notice that.
    signal(replica.pid.unwrap(), Signal::STOP);
    kill(&main);
    world.wait_change("a fail-over", fail_over);
    kill(&replica);
    let (state, _) = world.wait_change("the failure", failed(Side::Replica));
    assert_eq!(state, CopyState::Awake);
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
}

#[test]
fn a_replica_killed_awake_is_followed_by_the_main() {
    let mut slow = config("count");
    slow.restart.first = Duration::from_secs(1);
    let world = World::with(vec![slow], Vec::new());
    let (main, _) = world.settled();
    kill(&main);
    let (_, replica) =
        world.wait("the replica works", |_, replica| replica.state == CopyState::Awake && replica.beats > 5);
    kill(&replica);
    let (main, _) = world.settled();
    assert!(main.incarnation == 2 && world.report().pairs[0].checkpoint > 0);
}

/// A pair whose main is a script, with the program in a process group of its own. A main that failed is not started
/// again: nothing else ends the program.
fn world_with_a_script() -> World {
    world_of_script("timeout 600 \"$0\" \"$@\"; exit $?")
}

fn world_of_script(script: &str) -> World {
    let mut config = config("count");
    let script = ["sh", "-c", script].map(str::to_owned);
    config.main = script.into_iter().chain(config.main).collect();
    (config.restart.first, config.restart.most) = (10 * LIMIT, 10 * LIMIT);
    World::with(vec![config], Vec::new())
}

/// The program that registered as the main, which is not the process that was started.
fn program_of(world: &World, main: &CopyStatus) -> u32 {
    let slot = Registry::open(&world.registry_file()).unwrap().copy(0, Side::Main);
    assert_ne!(Some(slot.pid), main.pid);
    slot.pid
}

/// Waits until nothing of the copy is left.
fn wait_gone(world: &World, program: u32) {
    until("the end of the program", || !world.processes().contains(&program));
}

#[test]
fn a_program_in_another_process_group_ends_with_the_script_that_started_it() {
    let mut world = world_with_a_script();
    let (main, _) = world.settled();
    let program = program_of(&world, &main);
    kill(&main);
    world.wait_change("a fail-over", fail_over);
    wait_gone(&world, program);
    // The same, where the agent is not the one that has started it.
    let restart = CommandRequest { epoch: 1, pair: 0, command: PairCommand::Restart(Side::Main) };
    world.post::<holdfast_model::PairStatus>(COMMAND, &restart);
    let (main, _) = world.settled();
    let program = program_of(&world, &main);
    world.kill_agent();
    world.start_agent();
    assert_eq!(world.settled().0.pid, main.pid);
    kill(&main);
    world.wait("a fail-over", |_, replica| replica.state == CopyState::Awake);
    wait_gone(&world, program);
}

#[test]
fn a_script_that_ends_with_success_has_not_finished_the_work_of_its_killed_program() {
    let world = world_of_script("\"$0\" \"$@\" | cat");
    let (main, _) = world.settled();
    signal(program_of(&world, &main), Signal::KILL);
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert_eq!(cause, FailureCause::Exit { end: RankEnd::SUCCESS });
    world.wait("the replica goes on", |main, replica| main.pid.is_none() && replica.state == CopyState::Awake);
}

#[test]
fn a_stopped_program_in_another_process_group_is_killed_and_replaced() {
    let world = world_with_a_script();
    let (main, _) = world.settled();
    let program = program_of(&world, &main);
    signal(program, Signal::STOP);
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { .. }), "{cause:?}");
    wait_gone(&world, program);
}

#[test]
fn a_program_in_another_process_group_ends_with_the_job() {
    let world = world_with_a_script();
    let (main, _) = world.settled();
    let program = program_of(&world, &main);
    world.post::<Empty>(STOP, &PairsStop { epoch: 1, at_once: false });
    wait_gone(&world, program);
}

#[test]
fn a_program_in_another_process_group_is_killed_with_a_damaged_registry() {
    let mut world = world_with_a_script();
    let (main, _) = world.settled();
    let program = program_of(&world, &main);
    world.kill_agent();
    world.damage_registry(0..64);
    world.start_agent();
    world.wait_change("the failure", failed(Side::Main));
    wait_gone(&world, program);
}

#[test]
fn copies_outlive_their_agent_and_a_new_one_handles_later_failures() {
    let mut world = World::of("count");
    let before = world.settled();
    world.kill_agent();
    let beats = || Registry::open(&world.registry_file()).unwrap().beats(0, Side::Main);
    let seen = beats();
    until("heartbeats without an agent", || beats() != seen);
    world.start_agent();
    let after = world.settled();
    assert_eq!((after.0.pid, after.1.pid), (before.0.pid, before.1.pid));
    let adopted = |change: &PairChange| matches!(change, PairChange::Adopted { .. }).then_some(());
    world.wait_change("the adoption", adopted);
    let accepted: PairsAccepted = world.post(PLAN, &world.plan);
    assert_eq!(accepted.adopted.iter().map(|copy| Some(copy.pid)).collect::<Vec<_>>(), [before.0.pid, before.1.pid]);
    kill(&after.0);
    world.wait_change("a fail-over", fail_over);
    let (main, _) = world.settled();
    assert_eq!(main.incarnation, 2);
}

#[test]
fn a_main_that_died_while_there_was_no_agent_is_replaced_by_the_next_one() {
    let mut world = World::of("count");
    let (main, _) = world.settled();
    world.kill_agent();
    kill(&main);
    world.start_agent();
    let (cause, checkpoint) = world.wait_change("a fail-over", fail_over);
    assert_eq!(cause, FailureCause::Exit { end: RankEnd::Unknown });
    assert!(checkpoint > 0);
    world.settled();
}

#[test]
fn copies_of_a_damaged_registry_are_killed_and_started_afresh() {
    let mut world = World::of("count");
    let (main, replica) = world.settled();
    world.kill_agent();
    let registry = world.registry_file();
    world.damage_registry(0..64);
    let is_alive = |copy: &CopyStatus| {
        let environment = fs::read(format!("/proc/{}/environ", copy.pid.unwrap())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&*registry.display().to_string())
    };
    assert!(is_alive(&main) && is_alive(&replica));
    world.start_agent();
    let (new_main, new_replica) = world.settled();
    assert!(new_main.incarnation > main.incarnation && new_replica.incarnation > replica.incarnation);
    assert!(!is_alive(&main) && !is_alive(&replica), "a copy of the damaged registry is left");
}

#[test]
fn copies_of_a_registry_that_is_gone_are_killed_and_started_afresh_and_an_event_says_so() {
    let mut world = World::of("count");
    let replaced = |change: &PairChange| match change {
        PairChange::RegistryReplaced { reason } => Some(reason.clone()),
        _ => None,
    };
    let (main, replica) = world.settled();
    assert_eq!(world.changes().iter().find_map(replaced), None);
    world.kill_agent();
    fs::remove_file(world.registry_file()).unwrap();
    world.start_agent();
    assert_eq!(world.wait_change("the event", replaced), "the file is gone");
    let (new_main, new_replica) = world.settled();
    assert!(new_main.incarnation > main.incarnation && new_replica.incarnation > replica.incarnation);
    for old in [main, replica] {
        wait_gone(&world, old.pid.unwrap());
    }
}

#[test]
fn a_header_that_was_overwritten_keeps_no_copy_from_being_started_again() {
    let world = World::of("count");
    let (main, _) = world.settled();
    world.damage_registry(0..64);
    kill(&main);
    world.wait_change("a fail-over", fail_over);
    let (main, replica) = world.settled();
    assert_eq!((main.incarnation, replica.incarnation), (2, 2));
}

#[test]
fn jobs_that_do_not_obey_are_shown_while_they_end() {
    let mut config = config("count");
    config.stop_grace = 10 * LIMIT;
    let world = World::with(vec![config], vec![job("deaf", "trap '' TERM; echo ready; sleep 600 & wait; wait")]);
    world.wait_output("deaf.log", "ready");
    world.settled();
    let stop = |at_once| world.send(STOP, &PairsStop { epoch: 1, at_once }).0;
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| stop(false));
        // The copies have obeyed.
        world.wait_for("the end of the copies", |report| {
            [report.pairs[0].main?, report.pairs[0].replica?].iter().all(|copy| copy.pid.is_none()).then_some(())
        });
        let deaf = &world.report().jobs[0];
        assert!(deaf.state == JobRunState::Running && deaf.pid.is_some(), "{deaf:?}");
        assert_eq!((stop(true), stopped.join().unwrap()), (200, 200));
    });
    assert!(world.processes().is_empty());
}

#[test]
fn garbage_in_the_slots_of_a_registry_does_not_disturb_the_agent() {
    let world = World::with(vec![config("count0"), config("count1")], Vec::new());
    world.settled();
    // The area of pair 0, behind the header's page: slots, numbers and heads of checkpoints, but no heartbeats.
    world.damage_registry(4096 + 512..4096 + 512 + 2048);
    let other = |report: &PairsReport| report.pairs[1].main.unwrap();
    let main =
        world.wait_for("the other pair", |report| (other(report).state == CopyState::Awake).then(|| other(report)));
    kill(&main);
    world.wait_for("the other pair's fail-over", |report| (report.pairs[1].fail_backs == 1).then_some(()));
    let (main, _) = world.wait("pair 0", |main, _| main.state == CopyState::Awake);
    kill(&main);
    world.wait_for("the damaged pair's fail-over", |report| (report.pairs[0].fail_overs == 1).then_some(()));
}

#[test]
fn another_user_cannot_map_a_registry() {
    if !geteuid().is_root() {
        return;
    }
    let world = World::of("count");
    world.settled();
    let registry = world.registry_file();
    let directory = fs::metadata(world.directory()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    let read = Command::new("cat").arg(&registry).uid(12345).gid(12345).output().unwrap();
    assert!(!read.status.success() && String::from_utf8_lossy(&read.stderr).contains("Permission denied"));
    // Neither does a copy map what is not its user's.
    std::os::unix::fs::chown(&registry, Some(12345), None).unwrap();
    let refused = Seat::take(&registry, 0, Side::Main, 1).unwrap_err();
    assert!(matches!(refused, ShmError::Refused { .. }), "{refused}");
    std::os::unix::fs::chown(&registry, Some(0), None).unwrap();
}

#[test]
fn all_of_a_hundred_mains_killed_at_once_are_replaced() {
    let pairs = (0..100).map(|index| config(&format!("count{index}"))).collect();
    let world = World::with(pairs, Vec::new());
    let all = |report: &PairsReport, is: fn(&CopyStatus, &CopyStatus) -> bool| {
        let copies = report.pairs.iter().filter(|pair| is(&pair.main.unwrap(), &pair.replica.unwrap())).count();
        (copies == 100).then(|| report.pairs.clone())
    };
    let settled: fn(&CopyStatus, &CopyStatus) -> bool =
        |main, replica| main.state == CopyState::Awake && replica.state == CopyState::Asleep;
    let pairs = world.wait_for("100 mains awake", |report| all(report, settled));
    pairs.iter().for_each(|pair| kill(&pair.main.unwrap()));
    world.wait_for("100 fail-overs", |report| {
        (report.pairs.iter().filter(|pair| pair.fail_overs == 1).count() == 100).then_some(())
    });
    let pairs = world.wait_for("100 fail-backs", |report| all(report, settled));
    assert!(pairs.iter().all(|pair| pair.main.unwrap().incarnation == 2 && pair.fail_backs == 1));
}

#[test]
fn a_pair_that_has_done_its_work_ends() {
    let world = World::of("work");
    world.wait_change("the end", |change| matches!(change, PairChange::Finished { side: Side::Main }).then_some(()));
    world.wait("the replica ends", |main, replica| main.state == CopyState::Finished && replica.pid.is_none());
    assert!(world.processes().is_empty());
}

#[test]
fn a_copy_that_does_not_register_is_killed_and_given_up() {
    let mut dumb = config("dumb");
    dumb.start_within = Duration::from_millis(300);
    dumb.restart.attempts = Some(2);
    let world = World::with(vec![dumb], Vec::new());
    let (_, cause) = world.wait_change("a failure", failed(Side::Main));
    assert_eq!(cause, FailureCause::NotRegistered);
    world.wait("both given up", |main, replica| {
        main.state == CopyState::GivenUp && replica.state == CopyState::GivenUp && replica.pid.is_none()
    });
    // A user may have it started again.
    let restart = CommandRequest { epoch: 1, pair: 0, command: PairCommand::Restart(Side::Main) };
    world.post::<holdfast_model::PairStatus>(COMMAND, &restart);
    world.wait("a new main", |main, _| main.incarnation == 3);
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let mut missing = config("missing");
    missing.main = vec!["/nowhere/dnn".to_owned()];
    let world = World::with(vec![missing], Vec::new());
    let (_, cause) = world.wait_change("a failure", failed(Side::Main));
    assert!(matches!(&cause, FailureCause::NotStarted { reason } if reason.contains("/nowhere/dnn")), "{cause:?}");
    world.wait("the replica works in its place", |_, replica| replica.state == CopyState::Awake);
}

#[test]
fn users_have_a_replica_take_over_and_the_main_return() {
    let world = World::of("count");
    world.settled();
    let command = |command| {
        let request = CommandRequest { epoch: 1, pair: 0, command };
        world.send(COMMAND, &request)
    };
    assert_eq!(command(PairCommand::FailOver).0, 200);
    world.wait("the replica awake, a new main asleep", |main, replica| {
        replica.state == CopyState::Awake && main.state == CopyState::Asleep && main.incarnation == 2
    });
    assert_eq!(command(PairCommand::FailBack).0, 200);
    world.settled();
    let unknown = CommandRequest { epoch: 1, pair: 9, command: PairCommand::FailOver };
    let (status, body) = world.send(COMMAND, &unknown);
    assert!(status == 409 && body.contains("no pair number 9"), "{status} {body}");
}

#[test]
fn a_pair_that_finished_is_not_run_again_by_an_agent_that_has_forgotten_it() {
    let mut world = World::idle(vec![config("count"), config("other")], Vec::new(), LIMIT);
    world.plan.finished = [0].into();
    world.post::<PairsAccepted>(PLAN, &world.plan);
    world.wait_for("the other pair's main awake", |report| {
        (report.pairs[1].main?.state == CopyState::Awake && report.pairs[1].replica?.pid.is_some()).then_some(())
    });
    let pair = &world.report().pairs[0];
    let incarnations = [&pair.main, &pair.replica].map(|copy| copy.as_ref().unwrap().incarnation);
    assert_eq!(incarnations, [0, 0], "{pair:?}");
}

#[test]
fn a_copy_that_has_more_work_after_all_is_not_killed() {
    let mut config = config("resume");
    config.start_within = Duration::from_secs(8);
    let world = World::with(vec![config], Vec::new());
    let (main, _) = world.settled();
    let registry = Registry::open(&world.registry_file()).unwrap();
    world.wait_output("resume.main.log", "done");
    // Its heartbeats have ceased; the agent has seen why.
    let seen = registry.beats(0, Side::Main);
    world.wait_output("resume.main.log", "more work");
    world.wait("heartbeats", |_, _| registry.beats(0, Side::Main) > seen);
    // Longer than it may take to end, by what it does itself.
    world.wait_output("resume.main.log", "long after");
    let (same, _) = world.settled();
    assert_eq!((same.pid, same.incarnation), (main.pid, 1));
    // It is watched again.
    signal(main.pid.unwrap(), Signal::STOP);
    let (cause, _) = world.wait_change("a fail-over", fail_over);
    assert!(matches!(cause, FailureCause::Hang { .. }), "{cause:?}");
}

#[test]
fn requests_of_a_replaced_orchestrator_and_impossible_plans_are_refused() {
    let world = World::idle(vec![config("count")], Vec::new(), LIMIT);
    let (status, body) = world.send(SYNC, &PairsSync { epoch: 3, ..PairsSync::default() });
    assert!(status == 409 && body.contains("no plan"), "{status} {body}");
    let mut plan = PairsPlan { epoch: 3, ..world.plan.clone() };
    plan.settings.pin_watcher = Some(1000);
    let (status, body) = world.send(PLAN, &plan);
    assert!(status == 400 && body.contains("CPU 1000") && body.contains("pin_watcher"), "{status} {body}");
    let (status, body) = world.send(PLAN, &world.plan);
    assert!(status == 409 && body.contains("epoch 1"), "{status} {body}");
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    plan.settings.pin_watcher = (0..1000).find(|cpu| allowed.is_set(*cpu as usize));
    world.post::<PairsAccepted>(PLAN, &plan);
    let pinned = plan.settings.pin_watcher.unwrap();
    let is_pinned = |task: &fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let has = |name: &str, value: &str| {
            status.lines().filter_map(|line| line.split_once(":\t")).any(|field| field == (name, value))
        };
        has("Name", "pairs") && has("Cpus_allowed_list", &pinned.to_string())
    };
    let tasks = format!("/proc/{}/task", world.agent.id());
    until("the watcher's CPU", || fs::read_dir(&tasks).unwrap().flatten().any(|task| is_pinned(&task)));
    let (status, _) = world.send(SYNC, &PairsSync { epoch: 2, ..PairsSync::default() });
    assert_eq!(status, 409);
    let mut other = plan.clone();
    other.pairs[0].config.checkpoint_bytes += 1;
    let (status, body) = world.send(PLAN, &other);
    assert!(status == 409 && body.contains("another plan"), "{status} {body}");
    world.post::<Empty>(STOP, &PairsStop { epoch: 3, at_once: false });
    assert!(world.processes().is_empty());
}

#[test]
fn jobs_are_started_again_and_end_with_the_pairs() {
    let jobs = vec![job("app1", "echo begins; sleep 600 & wait"), job("app2", "exit 3"), job("app3", "true")];
    let world = World::with(vec![config("count")], jobs);
    world.wait_change("the end of app3", |change| matches!(change, PairChange::JobFinished).then_some(()));
    let given_up = |change: &PairChange| matches!(change, PairChange::JobGivenUp { failures: 3 }).then_some(());
    world.wait_change("app2 given up", given_up);
    let app1 = world.wait_for("app1", |report| report.jobs[0].pid.filter(|_| !world.output("app1.log").is_empty()));
    signal(app1, Signal::KILL);
    world.wait_for("app1 again", |report| report.jobs[0].pid.filter(|pid| *pid != app1));
}

#[test]
fn an_agent_without_orchestrator_stays_while_its_pairs_work() {
    let mut world = World::idle(vec![config("count"), config("work")], Vec::new(), Duration::from_millis(100));
    world.post::<PairsAccepted>(PLAN, &world.plan);
    let registry = || Registry::open(&world.registry_file()).unwrap();
    let main = |count: u64| {
        let begun = Instant::now();
        loop {
            let slot = registry().copy(0, Side::Main);
            // More, if this machine was so busy that a copy had no processor.
            let is_awake = slot.state == SlotState::Awake && registry().beats(0, Side::Main) > 5;
            if slot.incarnation >= count && is_awake {
                return slot.pid;
            }
            assert!(begun.elapsed() < LIMIT, "no main {count}: {slot:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Nobody asks: pairs go on, also over failures.
    let first = main(1);
    std::thread::sleep(Duration::from_millis(1500));
    signal(first, Signal::KILL);
    main(2);
    assert!(world.agent.try_wait().unwrap().is_none(), "the agent has ended");
    world.post::<Empty>(STOP, &PairsStop { epoch: 1, at_once: false });
    until("the end of the agent", || world.agent.try_wait().unwrap().is_some());
}

/// Some managers send SIGTERM to all processes of a job that ends: the agent leaves it to the orchestrator while that
/// lives.
#[test]
fn requests_of_users_do_not_have_an_agent_leave_sigterm_to_the_orchestrator() {
    let (root, trust) = (holdfast_testkit::fast_directory(), trust::generate().unwrap());
    let mut start = fixture_start(root.path(), NODE);
    start.trust = trust.clone();
    start.shared = Some(SharedStart {
        node: Lookup::Variable("OWN_NODE".to_owned()),
        toward: Lookup::Variable("HEAD".to_owned()),
        logs: root.path().to_owned(),
        is_signalled_with_job: true,
    });
    let (mut agent, address) = start_agent_with(&start, &[("OWN_NODE", NODE), ("HEAD", "127.0.0.1")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = |headers: String| {
        let (trust, body) = (trust.clone(), serde_json::to_string(&PollRequest::HEALTH_ONLY).unwrap());
        let sent = async move {
            let (token, request) = (client::bearer(&trust), ("POST", POLL, &*body));
            client::send_with(address, &trust, Some(&token), &headers, request).await.0
        };
        // Without an answer if the agent ends meanwhile.
        runtime.block_on(async { tokio::spawn(sent).await.ok() })
    };
    let begun = Instant::now();
    // So long that the orchestrator would be lost without its requests.
    while begun.elapsed() < Duration::from_secs(7) {
        assert_eq!(request(String::new()), Some(200));
        signal(agent.id(), Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(agent.try_wait().unwrap().is_none(), "the agent has ended beside its orchestrator");
    while agent.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT, "a user's requests keep the agent");
        request(format!("{REQUEST_OF}: {OF_USER}\r\n"));
        signal(agent.id(), Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
    }
}
