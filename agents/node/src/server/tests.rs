use super::client::{ask, bearer, connect, send};
use super::*;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use holdfast_model::{CheckpointId, Failure, Generation, HaltChange, HaltState, Inventory};
use holdfast_wire::agent::{
    AgentEvent, COPY, CopyReply, Empty, FLUSHED, FlushedNote, HALT, INVENTORY, KILL, KillReply, KillRequest,
    KnownHealth, POLL, PollReply, PollRequest, STOP, StopRequest,
};
use holdfast_wire::bytes::Base64;
use holdfast_wire::channel::{self, Answer, ChannelHello, Pipe};
use holdfast_wire::frame::{HELLO, send_async};
use holdfast_wire::run::TrustMaterial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::agent::fixtures::{copy_request, set_up};
use crate::directories::paths::Paths;
use crate::fixtures::{fixture_start, lay_out};

/// A poll for all events that is answered at once.
const AT_ONCE: PollRequest = PollRequest { after: 0, wait_ms: 0, allocation_end: None, known: None };

struct Served {
    _root: tempfile::TempDir,
    agent: Arc<Agent>,
    address: SocketAddr,
    trust: TrustMaterial,
    task: tokio::task::JoinHandle<Result<(), ServerError>>,
}

/// The agent of a node on which LLNL's library left checkpoints 2 and 3.
async fn served() -> Served {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), "a-xor4/killed-before-flush", "node1");
    let mut start = fixture_start(root.path(), "node1");
    let trust = trust::generate().unwrap();
    start.trust = trust.clone();
    let paths = Paths::new(&start);
    let agent = Arc::new(set_up(start, paths).unwrap());
    let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(serve(Arc::new(Collectives::new(agent.clone())), listener));
    Served { _root: root, agent, address, trust, task }
}

impl Served {
    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        ask(self.address, &self.trust, path, None::<&Empty>).await
    }

    async fn post<T: serde::de::DeserializeOwned>(&self, path: &str, message: &impl serde::Serialize) -> T {
        ask(self.address, &self.trust, path, Some(message)).await
    }

    fn unauthenticated(&self) -> u64 {
        self.agent.unauthenticated.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn the_orchestrator_gets_inventory_health_and_halt_conditions() {
    let served = served().await;
    let inventory: Inventory = served.get(INVENTORY).await;
    assert_eq!(inventory.holdings.iter().filter(|holding| holding.complete).count(), 2);
    let poll: PollReply = served.post(POLL, &AT_ONCE).await;
    assert_eq!(poll.health.newest, Some(CheckpointId(3)));
    assert_eq!(poll.health.directories.len(), 1, "control and cache are one directory in the fixtures");
    assert_eq!(poll.health.directories[0].fault, None);
    assert!(poll.health.agent_memory > 0 && poll.health.memory_total > 0);
    let kill = KillRequest { generation: Generation(9), reason: "over".to_owned() };
    assert!(!served.post::<KillReply>(KILL, &kill).await.may_halt);
    let change = HaltChange { reason: Some("JOB_HALTED".to_owned()), ..HaltChange::default() };
    let changed: HaltState = served.post(HALT, &change).await;
    assert_eq!(changed.met.as_deref(), Some("JOB_HALTED"));
    assert_eq!(served.post::<HaltState>(HALT, &HaltChange::default()).await, changed);
    assert!(served.post::<KillReply>(KILL, &kill).await.may_halt);
    assert_eq!(served.unauthenticated(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_is_answered_while_the_control_files_wait_for_a_disk() {
    let served = served().await;
    let (store, released) = (served.agent.clone(), std::sync::mpsc::channel::<()>());
    let (stalled, has_stalled) = tokio::sync::oneshot::channel();
    let disk = std::thread::spawn(move || {
        let _held = (store.store.stall(), store.store.flush.stall());
        stalled.send(()).unwrap();
        let _ = released.1.recv_timeout(Duration::from_secs(30));
    });
    has_stalled.await.unwrap();
    // The first poll has no cached report.
    let poll: PollReply = served.post(POLL, &AT_ONCE).await;
    assert!(!disk.is_finished(), "the answer waited for the disk");
    assert_eq!(poll.health.newest, Some(CheckpointId(3)));
    drop(released.0);
    disk.join().unwrap();
    served.post::<Empty>(FLUSHED, &FlushedNote { checkpoint: CheckpointId(4), prefix: PathBuf::new() }).await;
    served.agent.store.flush.forget(CheckpointId(3)).unwrap();
    let poll: PollReply = served.post(POLL, &AT_ONCE).await;
    assert_eq!(poll.health.newest, Some(CheckpointId(2)), "checkpoint 4 is on the prefix directory only");
}

#[tokio::test]
async fn a_poll_is_held_until_there_is_an_event() {
    let served = served().await;
    let (address, trust) = (served.address, served.trust.clone());
    let polling = tokio::spawn(async move {
        ask::<PollReply>(address, &trust, POLL, Some(&PollRequest { wait_ms: 600_000, ..AT_ONCE })).await
    });
    served.agent.events.add(AgentEvent::Notice { message: "event".to_owned() });
    let reply = polling.await.unwrap();
    assert_eq!((reply.instance, reply.events.len()), (served.agent.instance, 1));
}

#[tokio::test]
async fn a_poll_is_answered_without_content_when_nothing_changed_and_once_ranks_were_killed() {
    let served = served().await;
    let first: PollReply = served.post(POLL, &AT_ONCE).await;
    let known = KnownHealth { instance: first.instance, version: first.health_version };
    let poll = |request: PollRequest| {
        let (address, trust, token) = (served.address, served.trust.clone(), bearer(&served.trust));
        async move {
            let body = serde_json::to_string(&request).unwrap();
            send(address, &trust, Some(&token), ("POST", POLL, &body)).await
        }
    };
    assert_eq!(poll(PollRequest { known: Some(known), ..AT_ONCE }).await, (204, String::new()));
    let other = KnownHealth { instance: known.instance.wrapping_add(1), ..known };
    assert_eq!(poll(PollRequest { known: Some(other), ..AT_ONCE }).await.0, 200, "another agent's report");
    let held = tokio::spawn(poll(PollRequest { wait_ms: 600_000, known: Some(known), ..AT_ONCE }));
    let kill = KillRequest { generation: Generation(9), reason: "over".to_owned() };
    // The first release may precede the poll.
    while !held.is_finished() {
        let _: KillReply = served.post(KILL, &kill).await;
    }
    assert_eq!(held.await.unwrap(), (204, String::new()));
    served.agent.events.add(AgentEvent::Notice { message: "event".to_owned() });
    assert_eq!(poll(PollRequest { known: Some(known), ..AT_ONCE }).await.0, 200, "there is an event");
}

#[tokio::test]
async fn unauthenticated_connections_are_refused_and_counted_and_disturb_no_others() {
    let served = served().await;
    let other = trust::generate().unwrap();
    let wrong = bearer(&other);
    for authorization in [None, Some(wrong.as_str()), Some("Basic x"), Some("Bearer !")] {
        let (status, body) =
            send(served.address, &served.trust, authorization, ("POST", STOP, "{\"remove\":true}")).await;
        assert_eq!(status, 401);
        assert!(serde_json::from_str::<Failure>(&body).unwrap().message.contains("token"));
    }
    assert_eq!(served.unauthenticated(), 4);
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    let mut peer = connect(served.address, &served.trust, ALPN_PEER).await;
    peer.write_all(&[0xff; 64]).await.unwrap();
    let _ = peer.read_to_end(&mut answer).await;
    let inventory: Inventory = served.get(INVENTORY).await;
    assert!(inventory.holdings.len() > 1);
    assert_eq!(served.unauthenticated(), 6);
    let reported = served.agent.events.since(0);
    assert_eq!(reported.len(), 5, "the sixth within a moment is counted, not reported");
    assert!(reported.iter().all(|event| matches!(event.event, AgentEvent::UnauthenticatedConnection { .. })));
    assert!(served.agent.stop.borrow().is_none());
}

#[tokio::test]
async fn a_connection_that_its_other_end_closes_is_counted_and_not_reported() {
    let served = served().await;
    drop(TcpStream::connect(served.address).await.unwrap());
    drop(connect(served.address, &served.trust, ALPN_PEER).await);
    while served.unauthenticated() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(served.agent.events.since(0).is_empty());
}

#[tokio::test]
async fn a_peer_without_the_token_may_send_a_few_kilobytes_and_no_more_in_one_frame_or_in_many() {
    let served = served().await;
    let mut one = connect(served.address, &served.trust, ALPN_PEER).await;
    // Announced and never sent: the connection is closed.
    one.write_all(&(1u32 << 20).to_be_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = one.read_to_end(&mut answer).await;
    let mut many = connect(served.address, &served.trust, ALPN_PEER).await;
    let frame = [&(1024u32 | 1 << 31).to_be_bytes()[..], &[b' '; 1024]].concat();
    for _ in 0..16 {
        if many.write_all(&frame).await.is_err() {
            break;
        }
    }
    let _ = many.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "nothing is answered");
    assert_eq!(served.unauthenticated(), 2);
    for event in served.agent.events.since(0) {
        let AgentEvent::UnauthenticatedConnection { reason, .. } = event.event else { panic!("{event:?}") };
        assert!(reason.contains("more than 8192 bytes"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed() {
    let served = served().await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let mut greeted = connect(served.address, &served.trust, ALPN_HTTP).await;
    let mut nothing = Vec::new();
    assert_eq!(silent.read_to_end(&mut nothing).await.unwrap_or(0), 0);
    let _ = greeted.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty());
    assert_eq!(served.unauthenticated(), 2);
}

#[tokio::test]
async fn requests_over_the_channel_are_answered_while_a_poll_is_held_and_those_without_the_token_are_not() {
    let served = served().await;
    let channel = async |token: &[u8]| {
        let mut stream = connect(served.address, &served.trust, ALPN_CHANNEL).await;
        send_async(&mut stream, &ChannelHello { token: Base64(token.to_vec()) }, HELLO).await.unwrap();
        Pipe::<_, Answer>::new(stream)
    };
    let request =
        |number, path: &str, body: String| channel::Request { number, path: path.to_owned(), body: body.into() };
    let known: PollReply = served.post(POLL, &AT_ONCE).await;
    let known = Some(KnownHealth { instance: known.instance, version: known.health_version });
    let poll = serde_json::to_string(&PollRequest { wait_ms: 600_000, known, ..AT_ONCE }).unwrap();
    let mut pipe = channel(&served.trust.token.0).await;
    pipe.queue(&request(7, POLL, poll));
    pipe.queue(&request(8, INVENTORY, String::new()));
    pipe.queue(&request(9, "/v1/nothing", "{}".to_owned()));
    let answers = [pipe.next().await.unwrap().unwrap(), pipe.next().await.unwrap().unwrap()];
    assert!(answers.iter().all(|answer| !answer.body.is_empty()));
    assert_eq!(BTreeMap::from(answers.map(|answer| (answer.number, answer.status))), [(8, 200), (9, 404)].into());
    served.agent.events.add(AgentEvent::Notice { message: "event".to_owned() });
    let held = pipe.next().await.unwrap().unwrap();
    assert_eq!((held.number, held.status), (7, 200));
    assert_eq!(serde_json::from_slice::<PollReply>(&held.body).unwrap().events.len(), 1);
    assert_eq!(served.unauthenticated(), 0);

    let mut other = channel(&[0; 32]).await;
    other.queue(&request(1, STOP, "{\"remove\":true}".to_owned()));
    assert!(!matches!(other.next().await, Ok(Some(_))), "nothing is answered");
    assert_eq!(served.unauthenticated(), 1);
    // More than any request has: the connection is closed, and the agent goes on.
    let mut large = channel(&served.trust.token.0).await;
    large.queue(&request(1, POLL, "x".repeat(1 << 20)));
    assert!(!matches!(large.next().await, Ok(Some(_))));
    assert!(served.get::<Inventory>(INVENTORY).await.holdings.len() > 1);
    assert!(served.agent.stop.borrow().is_none());
}

#[tokio::test]
async fn invalid_requests_are_answered_with_a_failure() {
    let served = served().await;
    let token = bearer(&served.trust);
    // A dataset's directory without any file.
    let empty = tempfile::tempdir().unwrap();
    let rebuild = serde_json::json!({
        "directory": empty.path(), "checkpoint": 3, "scheme": "XOR", "group_id": 0, "members": 4, "missing": [1],
        "ranks": [1],
    });
    let rebuild = rebuild.to_string();
    let cases = [
        ("POST", "/v1/nothing", "{}", 404),
        ("GET", POLL, "", 405),
        ("POST", POLL, "{", 400),
        ("POST", HALT, r#"{"unset":["Nonsense"]}"#, 400),
        (
            "POST",
            "/v1/copy",
            r#"{"checkpoint":3,"directory":"../x","crc":true,"on_behalf_of":[],"partners_only":false,
                "buffer_bytes":1}"#,
            400,
        ),
        ("POST", "/v1/rebuild", &rebuild, 422),
    ];
    for (method, path, body, expected) in cases {
        let (status, answer) = send(served.address, &served.trust, Some(&token), (method, path, body)).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
        assert!(!serde_json::from_str::<Failure>(&answer).unwrap().message.is_empty());
    }
}

#[tokio::test]
async fn a_drain_copies_the_node_s_files_and_notes_the_flush() {
    let served = served().await;
    // Directly below a prefix directory of the job, which the system's temporary directory is.
    let dataset = tempfile::tempdir().unwrap();
    let request = copy_request(dataset.path().to_owned(), CheckpointId(3));
    let reply: CopyReply = served.post(COPY, &request).await;
    assert_eq!(reply.copied.values().sum::<u64>(), 10038 + 3902);
    assert!(dataset.path().join("1.scrfilemap").exists());
    let _: Empty = served.post(FLUSHED, &FlushedNote { checkpoint: CheckpointId(3), prefix: PathBuf::new() }).await;
    let inventory: Inventory = served.get(INVENTORY).await;
    assert!(inventory.flush[&CheckpointId(3)].pfs && inventory.flush[&CheckpointId(3)].cache);
}

#[tokio::test]
async fn a_request_to_stop_is_answered_and_the_port_closed() {
    let served = served().await;
    let _: Empty = served.post(STOP, &StopRequest { remove: false }).await;
    served.task.await.unwrap().unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}
