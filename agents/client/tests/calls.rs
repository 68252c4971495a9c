//! The client with a scripted agent, over a real socket with real messages.

// Test helpers may panic, as tests do; clippy recognises only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted_agent;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use holdfast_client::{
    CheckpointId, Client, ClientError, DatasetOptions, LARGEST_CONTRIBUTION, Rank, RestartOutcome, RestartSource,
};
use holdfast_model::{FailureKind, NodeName};
use holdfast_wire::payload::Payload;
use holdfast_wire::rank::{Awaited, Call, ProgramState, Reply, ToRank};
use scripted_agent::{Act, ScriptedAgent, fresh, loaded};

fn client(agent: &ScriptedAgent) -> Result<Client, ClientError> {
    let builder = Client::builder().environment(agent.environment(1, 3)).exit_on_halt(false);
    builder.reconnect(Duration::from_secs(20)).init()
}

/// A client that began without a checkpoint, and the calls that it makes then.
fn joined(calls: Vec<Act>) -> (ScriptedAgent, Client) {
    let init = Act::Answer(1, Call::Init, fresh());
    let agent = ScriptedAgent::start([init].into_iter().chain(calls).collect());
    let client = client(&agent).unwrap();
    (agent, client)
}

#[test]
fn program_makes_calls_of_scr_manual_with_numbered_collectives() {
    let started =
        Reply::Started { checkpoint: CheckpointId(5), directory: PathBuf::from("/cache/checkpoint.5"), mirrored: None };
    let gathered = Reply::Gathered(vec![Payload::from(b"a".to_vec()), Payload::default(), Payload::from(vec![0, 255])]);
    let completed = Reply::Completed { checkpoint: CheckpointId(5), kept: true, halt: None };
    let (_agent, mut client) = joined(vec![
        Act::Answer(2, Call::Need, Reply::Flag(true)),
        Act::Answer(3, Call::Start, started),
        Act::Answer(3, Call::Route { name: "out/a.ckpt".into() }, Reply::Path("/cache/checkpoint.5/a.ckpt".into())),
        Act::Answer(4, Call::Complete { valid: true }, completed),
        Act::Answer(5, Call::ShouldExit, Reply::Flag(false)),
        Act::Answer(6, Call::Allgather { data: Payload::from(b"x".to_vec()) }, gathered),
        Act::Answer(7, Call::Finalize, Reply::Done),
    ]);
    assert_eq!((client.rank(), client.ranks(), client.enabled()), (Rank(1), 3, true));
    assert_eq!(client.node().unwrap().as_str(), "node7");
    assert_eq!(client.have_restart(), None);
    assert!(client.need_checkpoint().unwrap());
    assert_eq!(client.start_checkpoint().unwrap(), CheckpointId(5));
    assert_eq!(client.route_file("out/a.ckpt").unwrap(), PathBuf::from("/cache/checkpoint.5/a.ckpt"));
    let completed = client.complete_checkpoint(true).unwrap();
    assert_eq!((completed.checkpoint, completed.kept, completed.halt), (CheckpointId(5), true, None));
    assert!(!client.should_exit().unwrap());
    assert_eq!(client.allgather(b"x").unwrap(), [b"a".to_vec(), Vec::new(), vec![0, 255]]);
    client.finalize().unwrap();
}

#[test]
fn calls_of_a_forked_process_are_refused_without_a_message_to_the_agent() {
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, fresh()),
        Act::Answer(2, Call::Need, Reply::Flag(true)),
        Act::Answer(3, Call::Finalize, Reply::Done),
    ]);
    let rank = std::process::id();
    let client = std::sync::Arc::new(std::sync::Mutex::new(Some(client(&agent).unwrap())));
    let inherited = std::sync::Arc::clone(&client);
    let mut command = Command::new("true");
    // SAFETY: the closure runs in the forked process, whose copy of the client no other thread uses.
    unsafe {
        command.pre_exec(move || {
            let mut inherited = inherited.lock().unwrap();
            let own = inherited.as_mut().unwrap();
            let needed = own.need_checkpoint();
            let started = own.start_checkpoint();
            let finalized = inherited.take().unwrap().finalize();
            let refused = |error: Option<ClientError>| {
                matches!(error, Some(ClientError::OtherProcess { rank: joined, .. }) if joined == rank)
            };
            let all = [needed.err(), started.err(), finalized.err()].into_iter().all(refused);
            if all { Ok(()) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) }
        });
    }
    assert!(command.status().unwrap().success());
    let mut client = client.lock().unwrap().take().unwrap();
    assert!(client.need_checkpoint().unwrap());
    client.finalize().unwrap();
}

#[test]
fn offers_older_checkpoints_until_one_is_accepted() {
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, loaded(9)),
        Act::Answer(1, Call::Route { name: "r1.ckpt".into() }, Reply::Path("/c/r1.ckpt".into())),
        Act::Answer(2, Call::CompleteRestart { valid: true }, loaded(6)),
        Act::Answer(3, Call::CompleteRestart { valid: true }, Reply::Done),
        Act::Answer(4, Call::Need, Reply::Flag(false)),
    ]);
    let mut client = client(&agent).unwrap();
    assert_eq!(client.have_restart(), Some(CheckpointId(9)));
    assert_eq!(client.restart().source, RestartSource::Rebuilt);
    assert_eq!(client.restart().files, ["r1.ckpt"]);
    assert_eq!(client.start_restart().unwrap(), CheckpointId(9));
    assert_eq!(client.route_file("r1.ckpt").unwrap(), PathBuf::from("/c/r1.ckpt"));
    // Valid here, but not on another rank.
    assert_eq!(client.complete_restart(true).unwrap(), RestartOutcome::Older(CheckpointId(6)));
    assert_eq!(client.have_restart(), Some(CheckpointId(6)));
    assert_eq!(client.start_restart().unwrap(), CheckpointId(6));
    assert!(client.complete_restart(true).unwrap().accepted());
    assert_eq!(client.have_restart(), None);
    assert!(matches!(client.start_restart(), Err(ClientError::NoRestart)));
    assert!(!client.need_checkpoint().unwrap());
}

#[test]
fn starts_from_beginning_without_older_checkpoint() {
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, loaded(2)),
        Act::Answer(2, Call::CompleteRestart { valid: false }, fresh()),
    ]);
    let mut client = client(&agent).unwrap();
    client.start_restart().unwrap();
    assert_eq!(client.complete_restart(false).unwrap(), RestartOutcome::Nothing);
    assert_eq!(client.have_restart(), None);
}

#[test]
fn rejects_calls_in_wrong_order_without_agent() {
    let started = |id| Reply::Started { checkpoint: CheckpointId(id), directory: PathBuf::from("/c"), mirrored: None };
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, loaded(1)),
        // Another process, after the first one.
        Act::Answer(1, Call::Init, loaded(1)),
        Act::Answer(2, Call::Start, started(2)),
        Act::Fail(3, Call::Complete { valid: false }, "no space"),
        Act::Answer(4, Call::Start, started(3)),
    ]);
    let mut client = client(&agent).unwrap();
    assert!(matches!(client.complete_checkpoint(true), Err(ClientError::Outside { .. })));
    assert!(matches!(client.complete_restart(true), Err(ClientError::Outside { .. })));
    client.start_restart().unwrap();
    assert!(matches!(client.start_checkpoint(), Err(ClientError::Inside { checkpoint: CheckpointId(1), .. })));
    assert!(matches!(client.start_restart(), Err(ClientError::Inside { .. })));
    drop(client);

    let mut client = self::client(&agent).unwrap();
    client.start_checkpoint().unwrap();
    assert_eq!(client.have_restart(), None, "restart files may be deleted once a checkpoint has started");
    assert!(matches!(client.start_checkpoint(), Err(ClientError::Inside { checkpoint: CheckpointId(2), .. })));
    assert!(matches!(client.start_restart(), Err(ClientError::Inside { .. })));
    for name in ["", "..", "a/..", "/", "a/", "nul\0"] {
        assert!(matches!(client.route_file(name), Err(ClientError::BadName { .. })), "{name:?}");
    }
    let failed = client.complete_checkpoint(false).unwrap_err();
    assert!(
        matches!(&failed, ClientError::Failed { call: "complete_checkpoint", source } if source.message == "no space")
    );
    assert_eq!(client.start_checkpoint().unwrap(), CheckpointId(3), "the checkpoint that failed is over");
}

#[test]
fn repeats_call_with_same_number_when_agent_ends() {
    let (agent, mut client) = joined(vec![
        Act::Answer(2, Call::Need, Reply::Flag(false)),
        Act::Die(3, Call::Need),
        // The next agent ends while it sends its reply.
        Act::DieInFrame(3, Call::Need),
        Act::Answer(3, Call::Need, Reply::Flag(true)),
        Act::Die(3, Call::Route { name: "f".into() }),
        Act::Answer(3, Call::Route { name: "f".into() }, Reply::Path("/c/f".into())),
        Act::Answer(4, Call::Finalize, Reply::Done),
    ]);
    assert!(!client.need_checkpoint().unwrap());
    assert!(client.need_checkpoint().unwrap());
    assert_eq!(client.route_file("f").unwrap(), PathBuf::from("/c/f"));
    client.finalize().unwrap();
    assert_eq!(agent.finished(), 4, "hellos: one for each agent");
}

#[test]
fn error_names_socket_of_lost_agent_and_call_can_be_repeated() {
    let agent = ScriptedAgent::start(vec![Act::Answer(1, Call::Init, fresh())]);
    let builder = Client::builder().environment(agent.environment(0, 1));
    let mut client = builder.reconnect(Duration::from_millis(30)).init().unwrap();
    let directory = agent.end();
    let error = client.need_checkpoint().unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { call: "need_checkpoint", .. }), "{error}");
    assert!(error.to_string().contains("agent.sock"), "{error}");
    let _agent = ScriptedAgent::start_in(directory, vec![Act::Answer(2, Call::Need, Reply::Flag(true))]);
    assert!(client.need_checkpoint().unwrap());
}

#[test]
fn refusal_contains_reason_of_agent() {
    let reason = "this rank has version 1, the agent version 2: install the same Holdfast on all nodes";
    let agent = ScriptedAgent::start(vec![Act::Refuse(reason)]);
    match client(&agent) {
        Err(error @ ClientError::Refused { .. }) => {
            assert!(error.to_string().contains(reason), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rank_of_older_generation_is_refused_when_it_reconnects() {
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, fresh()),
        Act::Die(2, Call::Need),
        Act::Refuse("generation 1 is over, generation 2 runs: end this process"),
    ]);
    let error = client(&agent).unwrap().need_checkpoint().unwrap_err();
    assert!(matches!(&error, ClientError::Refused { source, .. } if source.message.contains("generation 1 is over")));
}

#[test]
fn rejects_unexpected_replies() {
    let (_agent, mut client) = joined(vec![
        Act::Answer(2, Call::Need, Reply::Done),
        Act::Answer(3, Call::Allgather { data: Payload::default() }, Reply::Gathered(vec![Payload::default()])),
        Act::Send(4, Call::Need, ToRank::Reply { seq: 3, result: Ok(Reply::Flag(true)) }),
    ]);
    assert!(matches!(client.need_checkpoint(), Err(ClientError::Unexpected { .. })));
    assert!(matches!(client.allgather(b""), Err(ClientError::Unexpected { .. })), "1 part for 3 ranks");
    assert!(matches!(client.need_checkpoint(), Err(ClientError::Unexpected { .. })), "a reply to another call");

    let agent = ScriptedAgent::start(vec![Act::Garbage(1, Call::Init)]);
    assert!(matches!(self::client(&agent), Err(ClientError::Garbled { .. })));
}

#[test]
fn does_not_send_contribution_over_the_limit() {
    let most = vec![7; LARGEST_CONTRIBUTION];
    let answer =
        Reply::Gathered(vec![Payload::from(most.clone()), Payload::from(most.clone()), Payload::from(most.clone())]);
    let (_agent, mut client) =
        joined(vec![Act::Answer(2, Call::Allgather { data: Payload::from(most.clone()) }, answer)]);
    let error = client.allgather(&vec![7; LARGEST_CONTRIBUTION + 1]).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { size } if size == LARGEST_CONTRIBUTION + 1));
    assert_eq!(client.allgather(&most).unwrap()[2], most);
}

#[test]
fn failed_call_is_counted_and_next_one_succeeds() {
    let (_agent, mut client) =
        joined(vec![Act::Fail(2, Call::Start, "the cache is full"), Act::Answer(3, Call::Need, Reply::Flag(false))]);
    let error = client.start_checkpoint().unwrap_err();
    assert_eq!(error.to_string(), "start_checkpoint: node7: the cache is full; free some space");
    let ClientError::Failed { source, .. } = error else { panic!("{error}") };
    assert_eq!((source.kind, source.subject.node), (FailureKind::Io, Some(NodeName::new("node7"))));
    assert!(!client.need_checkpoint().unwrap());
}

#[test]
fn a_call_that_waits_for_a_checkpoint_is_interrupted_and_repeated_with_another_state() {
    let awaits = |state| Call::Await { state };
    let (held, is_held) = mpsc::channel();
    let (agent, mut client) = joined(vec![
        Act::Hold(2, awaits(ProgramState::Running), held),
        Act::Answer(2, awaits(ProgramState::Ended), Reply::Awaited(Awaited::Ended)),
        Act::Answer(3, Call::Finalize, Reply::Done),
    ]);
    let interrupter = client.interrupter();
    let interrupting = std::thread::spawn(move || {
        is_held.recv().unwrap();
        interrupter.interrupt();
        interrupter
    });
    assert_eq!(client.await_checkpoint(ProgramState::Running).unwrap(), None);
    let interrupter = interrupting.join().unwrap();
    assert_eq!(client.await_checkpoint(ProgramState::Ended).unwrap(), Some(Awaited::Ended));
    // No connection of another call is broken.
    interrupter.interrupt();
    client.finalize().unwrap();
    assert_eq!(agent.finished(), 2);
}

fn halting_script() -> Vec<Act> {
    let started = Reply::Started { checkpoint: CheckpointId(1), directory: PathBuf::from("/c"), mirrored: None };
    let completed = Reply::Completed { checkpoint: CheckpointId(1), kept: true, halt: Some("JOB_HALTED".into()) };
    vec![
        Act::Answer(1, Call::Init, fresh()),
        Act::Answer(2, Call::Start, started),
        Act::Answer(3, Call::Complete { valid: true }, completed),
    ]
}

#[test]
fn returns_halt_without_exit_on_halt() {
    let agent = ScriptedAgent::start(halting_script());
    let mut client = client(&agent).unwrap();
    client.start_checkpoint().unwrap();
    assert_eq!(client.complete_checkpoint(true).unwrap().halt.as_deref(), Some("JOB_HALTED"));
}

#[cfg(feature = "variables")]
#[test]
fn ids_of_variables_checkpoints_that_no_file_can_have_are_refused() {
    use holdfast_client::variables::{Level, Variables, VariablesError};

    let (largest, too_large) = (i32::MAX as u32, 1 << 31);
    let directory = tempfile::tempdir().unwrap();
    let started =
        Reply::Started { checkpoint: CheckpointId(1), directory: directory.path().to_owned(), mirrored: None };
    let name = format!("Ckpt{largest}-Rank1.fti");
    let path = directory.path().join(&name);
    let completed = Reply::Completed { checkpoint: CheckpointId(1), kept: true, halt: None };
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, fresh()),
        Act::Answer(2, Call::StartLevel { level: Level::Local, id: largest }, started),
        Act::Answer(2, Call::Route { name }, Reply::Path(path)),
        Act::Answer(3, Call::Complete { valid: true }, completed),
        Act::Answer(4, Call::Snapshot { intervals: None }, Reply::Level(Some(Level::Local))),
    ]);
    let builder = Client::builder().environment(agent.environment(1, 3)).exit_on_halt(false);
    let mut variables = Variables::with(builder).unwrap();
    variables.share(1, "step", vec![0_u8]);
    let is_refused = |error: VariablesError| {
        assert!(matches!(error, VariablesError::CheckpointId { id } if id == too_large), "{error}");
        assert!(error.to_string().contains("2147483648 is larger than 2147483647"), "{error}");
    };
    is_refused(variables.checkpoint(too_large, Level::Local).unwrap_err());
    assert!(variables.checkpoint(largest, Level::Local).unwrap().kept);
    is_refused(variables.snapshot().unwrap_err());
}

/// Run as a separate process by the next two tests; does nothing otherwise.
#[test]
fn program_that_expects_to_be_halted() {
    if std::env::var_os("HOLDFAST_SOCKET").is_none() {
        return;
    }
    let mut client = Client::init().unwrap();
    client.start_checkpoint().unwrap();
    client.complete_checkpoint(true).unwrap();
    panic!("complete_checkpoint returned");
}

fn exit_code_of_the_program(agent: &ScriptedAgent) -> Option<i32> {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "program_that_expects_to_be_halted"]).env_remove("SCR_ENABLE");
    program.envs(agent.variables(1, 3)).output().unwrap().status.code()
}

#[test]
fn halt_after_checkpoint_ends_process_with_0() {
    let agent = ScriptedAgent::start(halting_script());
    assert_eq!(exit_code_of_the_program(&agent), Some(0));
}

#[test]
fn halt_at_init_ends_process_with_0() {
    let Reply::Restart(mut restart) = fresh() else { unreachable!() };
    restart.halt = Some("TIME_LIMIT".into());
    let agent = ScriptedAgent::start(vec![Act::Answer(1, Call::Init, Reply::Restart(restart))]);
    assert_eq!(exit_code_of_the_program(&agent), Some(0));
}

#[test]
fn disabled_client_has_no_effect_and_routes_names_unchanged() {
    let off = |rank, ranks| {
        let environment = holdfast_client::Environment {
            rank: Rank(rank),
            ranks,
            node: None,
            agent: None,
            reconnect: Duration::ZERO,
        };
        Client::builder().environment(environment).init().unwrap()
    };
    let mut alone = off(0, 1);
    assert!(!alone.enabled());
    assert_eq!(alone.have_restart(), None);
    assert!(!alone.need_checkpoint().unwrap() && !alone.should_exit().unwrap());
    assert_eq!(alone.start_checkpoint().unwrap(), CheckpointId(1));
    assert_eq!(alone.route_file("out/state.7").unwrap(), PathBuf::from("out/state.7"));
    assert!(alone.complete_checkpoint(true).unwrap().kept);
    assert_eq!(alone.start_checkpoint().unwrap(), CheckpointId(2));
    assert!(!alone.complete_checkpoint(false).unwrap().kept);
    assert_eq!(alone.allgather(b"me").unwrap(), [b"me".to_vec()]);
    alone.finalize().unwrap();
    assert!(matches!(off(1, 2).allgather(b"me"), Err(ClientError::Disabled { .. })));
}

#[test]
fn client_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Client>();
}

#[test]
fn manages_named_datasets() {
    let options = DatasetOptions { name: Some("step.6".into()), output: true, ..DatasetOptions::default() };
    let begin = Call::StartOutput { name: Some("step.6".into()), checkpoint: true, output: true, bypass: false };
    let started = Reply::Started { checkpoint: CheckpointId(6), directory: PathBuf::from("/c"), mirrored: None };
    let completed = Reply::Completed { checkpoint: CheckpointId(6), kept: true, halt: None };
    let agent = ScriptedAgent::start(vec![
        Act::Answer(1, Call::Init, loaded(5)),
        Act::Answer(2, Call::RestartName, Reply::Name(Some("step.5".into()))),
        Act::Answer(3, begin, started),
        Act::Answer(4, Call::Complete { valid: true }, completed),
        Act::Answer(5, Call::Drop { name: "step.1".into() }, Reply::Done),
        Act::Fail(6, Call::Delete { name: "step.2".into() }, "no dataset \"step.2\" in the index"),
        Act::Answer(7, Call::Current { name: "step.4".into() }, Reply::Done),
        Act::Answer(8, Call::Load, loaded(4)),
    ]);
    let mut client = client(&agent).unwrap();
    assert_eq!(client.restart_name().unwrap().as_deref(), Some("step.5"));
    assert_eq!(client.start_output(&options).unwrap(), CheckpointId(6));
    assert_eq!(client.have_restart(), None);
    assert!(matches!(client.drop_dataset("step.1"), Err(ClientError::Inside { .. })), "not while it is written");
    client.complete_checkpoint(true).unwrap();
    client.drop_dataset("step.1").unwrap();
    assert!(matches!(client.delete_dataset("step.2"), Err(ClientError::Failed { .. })));
    client.current("step.4").unwrap();
    assert_eq!(client.have_restart(), None);
    client.load_current().unwrap();
    assert_eq!(client.have_restart(), Some(CheckpointId(4)));
}
