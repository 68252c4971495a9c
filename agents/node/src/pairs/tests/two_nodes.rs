//! Pairs whose copies are on two nodes: leases, mirrored checkpoints, suspended jobs.

use std::time::Duration;

use holdfast_model::Side;
use holdfast_model::pair::{CopyState, Grant, JobRunState, MirroredCheckpoint, PairChange, Revocation, Term};
use holdfast_testkit::cluster::until;
use holdfast_wire::pairs::{PLAN, PairsAccepted, PairsReport, PairsSync, SYNC, SidesOnNode};
use rustix::process::Signal;

use super::world::{LIMIT, World, job, signal};

#[test]
fn a_copy_of_a_split_pair_is_awake_only_under_a_lease_and_killed_at_its_end() {
    let world = World::split(SidesOnNode::Replica, Vec::new());
    let asleep = world.wait_replica("a replica asleep", |replica| replica.state == CopyState::Asleep);
    // Grants to another agent have no effect.
    let grant = Grant { pair: 0, term: Term { epoch: 1, number: 1 }, until: LIMIT * 1000, after: None, cause: None };
    let sync = PairsSync { epoch: 1, instance: 7, leases: vec![grant], ..PairsSync::default() };
    let report: PairsReport = world.post(SYNC, &sync);
    assert_eq!(report.pairs[0].lease.as_ref().unwrap().held, None);
    world.grant(1, LIMIT);
    let awake =
        world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake && replica.beats > 3);
    assert_eq!(awake.pid, asleep.pid);
    world.revoke(1);
    world
        .wait_replica("a new replica asleep", |replica| replica.incarnation == 2 && replica.state == CopyState::Asleep);
    // Renewed, it goes on; not renewed, it is killed.
    world.grant(2, Duration::from_millis(600));
    world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake);
    world.grant(2, Duration::from_millis(1500));
    let expired =
        |change: &PairChange| matches!(change, PairChange::LeaseExpired { side: Side::Replica }).then_some(());
    world.wait_change("the end of the lease", expired);
    world
        .wait_replica("a new replica asleep", |replica| replica.incarnation == 3 && replica.state == CopyState::Asleep);
    assert!(!world.processes().contains(&awake.pid.unwrap()));
}

#[test]
fn a_copy_whose_agent_died_is_gone_when_its_lease_ends() {
    let mut world = World::split(SidesOnNode::Replica, Vec::new());
    world.grant(1, Duration::from_secs(3));
    let awake =
        world.wait_replica("the replica awake", |replica| replica.state == CopyState::Awake && replica.beats > 3);
    world.kill_agent();
    until("the end of the copy", || world.processes().is_empty());
    world.start_agent();
    let replica = world.wait_replica("a replica asleep", |replica| replica.state == CopyState::Asleep);
    assert!(replica.incarnation > awake.incarnation);
    assert!(world.report().pairs[0].lease.clone().unwrap().released >= Term { epoch: 1, number: 1 });
}

#[test]
fn a_new_agent_goes_on_with_the_lease_of_the_one_before() {
    let mut world = World::split(SidesOnNode::Main, Vec::new());
    world.grant(1, LIMIT);
    let is_awake =
        |report: &PairsReport| report.pairs[0].main.filter(|main| main.state == CopyState::Awake && main.beats > 5);
    let before = world.wait_for("the main awake", is_awake);
    world.kill_agent();
    world.start_agent();
    let after = world.wait_for("the main awake", is_awake);
    assert_eq!(after.pid, before.pid);
    assert_eq!(world.report().pairs[0].lease.clone().unwrap().held, Some(Term { epoch: 1, number: 1 }));
}

#[test]
fn jobs_are_suspended_while_a_replica_of_another_node_works() {
    let counting = "while :; do echo x; sleep 0.01; done";
    let world = World::split(SidesOnNode::Replica, vec![job("app1", counting), job("app2", counting)]);
    let states = |report: &PairsReport, state| report.jobs.iter().all(|job| job.state == state).then_some(());
    world.wait_for("jobs run", |report| states(report, JobRunState::Running));
    world.grant(1, LIMIT);
    world.wait_for("jobs are suspended", |report| states(report, JobRunState::Suspended));
    let lines = || [world.output("app1.log"), world.output("app2.log")].map(|text| text.len());
    // What was written before is in the files after a moment.
    until("the end of suspended jobs", || {
        let before = lines();
        std::thread::sleep(Duration::from_millis(300));
        before == lines()
    });
    let before = lines();
    let revoke = vec![Revocation { pair: 0, term: Term { epoch: 1, number: 1 } }];
    world.post::<PairsReport>(SYNC, &PairsSync { epoch: 1, revoke, ..PairsSync::default() });
    world.wait_for("jobs run again", |report| states(report, JobRunState::Running));
    until("resumed jobs", || lines().iter().zip(before).all(|(now, before)| *now != before));
    world.wait_change("the suspension", |change| match change {
        PairChange::JobSuspended { pair, .. } => (pair == "count").then_some(()),
        _ => None,
    });
}

#[test]
fn a_replica_goes_on_from_the_mirrored_checkpoint_of_a_lost_node_and_hands_over_when_it_is_back() {
    let [mut main, replica] = World::two_nodes(true);
    main.grant(1, LIMIT);
    let written = main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 10);
    replica.wait_checkpoint("mirrored checkpoints", |checkpoint| checkpoint >= written);
    // The node of the main is lost.
    main.kill_agent();
    main.processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let last = replica.report().pairs[0].checkpoint;
    replica.grant_after(2, LIMIT, Some(MirroredCheckpoint { term: Term { epoch: 1, number: 1 }, sequence: last }));
    replica.wait_output("count.replica.log", &format!("replica begins after {last}\n"));
    replica.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > last + 10);
    // It is back, at another address.
    main.start_agent();
    replica.connect(&main);
    main.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > last + 10);
    let last = replica.revoke(2);
    main.grant_after(3, LIMIT, Some(MirroredCheckpoint { term: Term { epoch: 1, number: 2 }, sequence: last }));
    main.wait_output("count.main.log", &format!("main begins after {last}\n"));
}

#[test]
fn a_node_that_has_lost_its_checkpoints_receives_them_back_from_a_replica_that_stores_none() {
    let [mut main, replica] = World::two_nodes_of("rest", true);
    main.grant(1, LIMIT);
    let written = main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 10);
    replica.wait_checkpoint("mirrored checkpoints", |checkpoint| checkpoint >= written);
    // The node of the main is started again: nothing is left of its registry.
    main.kill_agent();
    main.processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    std::fs::remove_dir_all(main.directory()).unwrap();
    let last = replica.report().pairs[0].checkpoint;
    let term = |number| Term { epoch: 1, number };
    replica.grant_after(2, LIMIT, Some(MirroredCheckpoint { term: term(1), sequence: last }));
    replica.wait_output("rest.replica.log", &format!("replica begins after {last}\n"));
    main.start_agent();
    main.post::<PairsAccepted>(PLAN, &main.plan);
    assert_eq!(main.report().pairs[0].checkpoint, 0);
    replica.connect(&main);
    main.wait_checkpoint("the checkpoint that was lost", |checkpoint| checkpoint == last);
    assert_eq!(
        main.report().pairs[0].lease.as_ref().unwrap().mirrored,
        MirroredCheckpoint { term: term(2), sequence: last }
    );
    replica.revoke(2);
    main.grant_after(3, LIMIT, None);
    main.wait_output("rest.main.log", &format!("main begins after {last}\n"));
}

#[test]
fn checkpoints_of_an_earlier_lease_do_not_replace_those_of_a_later_one() {
    let [main, replica] = World::two_nodes(false);
    main.grant(1, LIMIT);
    main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 400);
    main.revoke(1);
    // A partition: the replica has none of them.
    replica.grant(2, LIMIT);
    replica.wait_output("count.replica.log", "replica begins after 0\n");
    replica.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > 5);
    let last = replica.revoke(2);
    assert!(last < 400);
    // It ends: the main's node has more checkpoints, and older ones.
    main.connect(&replica);
    replica.connect(&main);
    main.wait_checkpoint("the replica's checkpoints", |checkpoint| checkpoint == last);
    assert_eq!(replica.report().pairs[0].checkpoint, last);
    main.grant(3, LIMIT);
    main.wait_output("count.main.log", &format!("main begins after {last}\n"));
}

#[test]
fn a_checkpoint_that_is_refused_is_sent_again() {
    let [mut main, replica] = World::two_idle_nodes();
    main.plan.pairs[0].peer = Some(replica.address);
    main.post::<PairsAccepted>(PLAN, &main.plan);
    main.grant(1, LIMIT);
    main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 10);
    // There is no newer one from here on, and the agent of the replica has no plan yet.
    let last = main.revoke(1);
    std::thread::sleep(Duration::from_millis(300));
    replica.post::<PairsAccepted>(PLAN, &replica.plan);
    replica.wait_checkpoint("the main's last checkpoint", |checkpoint| checkpoint == last);
}

#[test]
fn a_node_that_has_not_worked_under_its_lease_does_not_replace_the_work_of_the_other_one() {
    let [main, replica] = World::two_nodes(false);
    main.grant(1, LIMIT);
    main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 100);
    main.revoke(1);
    // A partition: the replica has none of them.
    replica.grant(2, LIMIT);
    replica.wait_checkpoint("checkpoints of the replica", |checkpoint| checkpoint > 5);
    let last = replica.revoke(2);
    assert!(last < 100);
    // The main gets the lease, and waits for the replica's checkpoint until the lease is over.
    main.connect(&replica);
    let after = MirroredCheckpoint { term: Term { epoch: 1, number: 2 }, sequence: last };
    main.grant_after(3, Duration::from_millis(700), Some(after));
    let released = Term { epoch: 1, number: 3 };
    main.wait_for("the end of the lease", |report| {
        (report.pairs[0].lease.as_ref().unwrap().released == released).then_some(())
    });
    assert!(!main.output("count.main.log").contains("begins after 1"), "the main has worked");
    assert_eq!(replica.report().pairs[0].checkpoint, last);
    replica.connect(&main);
    main.wait_checkpoint("the replica's last checkpoint", |checkpoint| checkpoint == last);
    assert_eq!(replica.report().pairs[0].checkpoint, last);
}

#[test]
fn a_new_agent_sends_what_was_written_under_the_one_before() {
    let [mut main, replica] = World::two_nodes(false);
    main.grant(1, LIMIT);
    main.wait_checkpoint("checkpoints", |checkpoint| checkpoint > 10);
    let last = main.revoke(1);
    main.kill_agent();
    main.start_agent();
    main.wait_checkpoint("the last checkpoint", |checkpoint| checkpoint == last);
    main.connect(&replica);
    replica.wait_checkpoint("the main's last checkpoint", |checkpoint| checkpoint == last);
}

#[test]
fn the_cpu_of_the_watcher_is_not_that_of_the_mirror() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let [mut main, replica] = World::two_idle_nodes();
    main.plan.settings.pin_watcher = (0..1000).find(|cpu| allowed.is_set(*cpu as usize));
    let pinned = main.plan.settings.pin_watcher.unwrap().to_string();
    for world in [&main, &replica] {
        world.post::<PairsAccepted>(PLAN, &world.plan);
    }
    until("the watcher's CPU", || main.cpus_of("pairs") == [pinned.clone()]);
    main.connect(&replica);
    main.grant(1, LIMIT);
    replica.wait_checkpoint("mirrored checkpoints", |checkpoint| checkpoint > 0);
    assert_eq!(main.cpus_of("pairs-mirror"), main.cpus_of("pairs-start"));
    assert!(allowed.count() == 1 || main.cpus_of("pairs-mirror") != [pinned]);
}
