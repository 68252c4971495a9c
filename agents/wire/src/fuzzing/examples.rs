//! A valid example of every message: the corpus of fuzzing and of the tests that change messages at random, also
//! outside of this crate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::pair::{
    CopyState, CopyStatus, FailureCause, Grant, JobConfig, JobRunState, JobStatus, LeaseStatus, MirroredCheckpoint,
    PairChange, PairCommand, PairConfig, PairStatus, RestartBackOff, Revocation, Side, Term,
};
use holdfast_model::{
    AsyncRedundancy, CheckpointId, ContainerPlaces, CrcOnCopy, CrcPolicy, DataPlane, Dataset, Descriptor, Failure,
    FailureKind, FlushMode, FlushPolicy, Generation, HaltChange, HaltCondition, HaltState, HeldFile, Holding,
    Inventory, Level, LevelPolicy, Location, Locations, NeedPolicy, NodeName, NumberName, OutputPath, Placement,
    Progress, Protection, Rank, RankDescriptor, RankEnd, RankPlace, RestartPolicy, RestartRanks, RestartSource,
    RunNode, Scheme, Task, Timestamp, VariablesLayout, VariablesPolicy,
};
use holdfast_wire::VERSION;
use holdfast_wire::agent::{
    AgentEvent, CheckpointReply, CheckpointRequest, CopyRequest, DirectoryHealth, EndRunRequest, FaultRequest,
    FlushedNote, ForgetRequest, HaltReport, HaltRequest, Health, KeptDirectory, KillRequest, KnownHealth, NodeFault,
    NumberedEvent, PeersUpdate, PollReply, PollRequest, PulseRequest, QuietRank, RebuildRequest, RequestState,
    RequestedCheckpoint, StackRequest, TerminateRequest, VerifyRequest, WaitingRanks,
};
use holdfast_wire::bytes::Base64;
use holdfast_wire::pairs::{
    AdoptedCopy, CommandRequest, PairOnNode, PairsAccepted, PairsPlan, PairsReport, PairsSettings, PairsStop,
    PairsSync, PeerOfPair, SidesOnNode,
};
use holdfast_wire::payload::Payload;
use holdfast_wire::peer::{
    CopyLimits, DatasetFile, Delivery, Endpoint, FetchRank, FilesKey, GroupKey, GroupRebuild, GroupWork, Member,
    MirrorAnswer, Order, OrderResult, PeerHello, Purpose, RankTransfer, SealCrc, SealedFiles, ToLeader, ToMember,
    ToMirror,
};
use holdfast_wire::plan::{PlanParts, RunRequest};
use holdfast_wire::rank::{
    Awaited, Call, GroupPlace, Hello, Interface, ProgramState, Reply, Restart, RestartFile, RestartFiles, ToAgent,
    ToRank,
};
use holdfast_wire::run::{
    AgentReady, AgentStart, Cache, CheckpointSchedule, FaultInjection, FaultPoint, Lookup, RunPlan, Settings,
    SharedStart, SourceName, TrustMaterial, Watchdog,
};

pub const JOB: &str = "17";
pub const NODE: &str = "node0";
/// The base of control and cache directory, as the node sees it.
pub const BASE: &str = "/tmp";
const CHECKPOINT: CheckpointId = CheckpointId(3);

pub fn hello(generation: Generation, rank: u32, ranks: u32) -> ToAgent {
    ToAgent::Hello(Hello {
        version: VERSION,
        job: JOB.to_owned(),
        generation,
        rank: Rank(rank),
        ranks,
        interface: Interface::Files,
    })
}

/// Every call of the checkpoint API.
pub fn calls() -> Vec<Call> {
    let name = || "step 7".to_owned();
    vec![
        Call::Init,
        Call::Need,
        Call::Start,
        Call::StartOutput { name: Some(name()), checkpoint: true, output: true, bypass: true },
        Call::StartOutput { name: None, checkpoint: true, output: false, bypass: false },
        Call::RestartName,
        Call::Current { name: name() },
        Call::Load,
        Call::Drop { name: name() },
        Call::Delete { name: name() },
        Call::Route { name: "ckpt/rank_0.dat".to_owned() },
        Call::RestartFiles,
        Call::Complete { valid: true },
        Call::CompleteRestart { valid: false },
        Call::StartLevel { level: Level::Partner, id: 7 },
        Call::Snapshot { intervals: None },
        Call::Snapshot { intervals: Some(holdfast_model::VariablesPolicy::default().snapshots) },
        Call::ShouldExit,
        Call::Allgather { data: Payload::from(vec![7; 100]) },
        Call::Finalize,
        Call::Await { state: ProgramState::Ready },
        Call::NotWritten { reason: "./save.sh ended with code 3".to_owned() },
        Call::ProgramsEnded,
        Call::CompleteEnded,
        Call::NotRead { reason: "user data is broken".to_owned() },
        Call::Workspace,
        Call::Leave,
    ]
}

pub fn to_agent() -> Vec<ToAgent> {
    let calls = calls().into_iter().zip(1..).map(|(call, seq)| ToAgent::Call { seq, call });
    [hello(Generation(2), 0, 4)].into_iter().chain(calls).collect()
}

fn replies() -> Vec<Reply> {
    let restart = Restart {
        checkpoint: Some(CHECKPOINT),
        source: RestartSource::Cache,
        written_by: Some(5),
        directory: Some("/tmp/u/scr.17/index.0/checkpoint.3".into()),
        files: vec!["a".to_owned(), "b".to_owned()],
        level: None,
        halt: Some("The job was halted.".to_owned()),
    };
    vec![
        Reply::Restart(restart),
        Reply::Flag(true),
        Reply::Level(Some(Level::Prefix)),
        Reply::Started {
            checkpoint: CHECKPOINT,
            directory: "/tmp".into(),
            mirrored: Some(GroupPlace { group: 4, size: 2, index: 1 }),
        },
        Reply::Name(Some("step 7".to_owned())),
        Reply::Path("/tmp/file".into()),
        Reply::RestartFiles(RestartFiles {
            ranks: 2,
            files: vec![RestartFile { name: "rank_1.dat".to_owned(), rank: Rank(1) }],
        }),
        Reply::Completed { checkpoint: CHECKPOINT, kept: true, halt: None },
        Reply::Gathered(vec![Payload::from(vec![1; 10]), Payload::default(), Payload::from(vec![2; 50])]),
        Reply::Awaited(Awaited::Checkpoint),
        Reply::Done,
    ]
}

pub fn failure() -> Failure {
    let failure = Failure::new(FailureKind::LostPeer, "the connection broke").remedy("start it again");
    failure.on_node(&NODE.into()).of_rank(Rank(1)).of_checkpoint(CHECKPOINT).at("/tmp/file")
}

pub fn to_rank() -> Vec<ToRank> {
    let replies = replies().into_iter().zip(1..).map(|(reply, seq)| ToRank::Reply { seq, result: Ok(reply) });
    let others = [
        ToRank::Welcome { node: NODE.into(), layout: VariablesLayout::Chunked },
        ToRank::Refused { failure: failure() },
        ToRank::Reply { seq: 4, result: Err(failure()) },
    ];
    replies.chain(others).collect()
}

pub fn purposes() -> Vec<Purpose> {
    vec![
        Purpose::Link,
        Purpose::Group(GroupKey { order: 5, group_id: 1, from_member: 0, to_member: 1 }),
        Purpose::Files(FilesKey { order: 5, rank: Rank(1) }),
        Purpose::Mirror,
    ]
}

pub fn to_mirror() -> Vec<ToMirror> {
    let checkpoint = MirroredCheckpoint { term: Term { epoch: 2, number: 5 }, sequence: 7 };
    let sent = |returned| ToMirror::Checkpoint { pair: 1, checkpoint, tag: -3, bytes: vec![1; 50].into(), returned };
    vec![sent(false), sent(true), ToMirror::Idle]
}

pub fn mirror_answers() -> Vec<MirrorAnswer> {
    vec![MirrorAnswer::Done, MirrorAnswer::Refused { reason: "the replica is awake".to_owned() }]
}

pub fn peer_hello(token: &[u8], generation: Generation, purpose: Purpose) -> PeerHello {
    let (job, node) = (JOB.to_owned(), "node1".into());
    PeerHello { version: VERSION, token: Base64(token.to_vec()), job, generation, node, purpose, records: None }
}

fn descriptor() -> RankDescriptor {
    let numbers = [(NumberName::new("SET_SIZE"), 2)].into_iter().collect();
    let descriptor = Descriptor { numbers, ..Descriptor::new(0, Scheme::new("XOR"), BASE) };
    let directory = format!("{BASE}/u/scr.{JOB}/index.0");
    RankDescriptor { descriptor, directory, groups: 1, group_id: 0, group_size: 2, group_rank: 0 }
}

fn member(rank: u32) -> Member {
    Member { rank: Rank(rank), descriptor: descriptor() }
}

fn group() -> GroupWork {
    GroupWork {
        scheme: Scheme::new("XOR"),
        group_id: 0,
        members: vec![(Rank(0), NODE.into()), (Rank(2), "node1".into())],
        member: 0,
        left: 1,
        right: 1,
        largest: 4096,
    }
}

pub fn inventory() -> Inventory {
    let holding = Holding {
        checkpoint: CHECKPOINT,
        rank: Rank(1),
        ranks: Some(4),
        expected: Some(2),
        complete: true,
        fault: None,
        protection: Protection::Scheme(Scheme::new("XOR")),
        partner_of: Some("node1".into()),
        descriptor: Some(descriptor()),
        files: vec![HeldFile { name: "rank_1.dat".to_owned(), size: 4096 }],
    };
    Inventory {
        node: Some(NODE.into()),
        holdings: vec![holding],
        flush: BTreeMap::from([(CHECKPOINT, Locations { cache: true, pfs: false, flushing: false })]),
        datasets: BTreeMap::from([(CHECKPOINT, Dataset::default())]),
        nodes: Some(2),
        faults: vec!["a damaged file".to_owned()],
    }
}

pub fn halt_state() -> HaltState {
    HaltState {
        reason: Some("JOB_HALTED".to_owned()),
        checkpoints_left: Some(3),
        after: Some(1_700_000_000),
        before: Some(1_800_000_000),
        seconds: Some(60),
        met: Some("Reason: JOB_HALTED.".to_owned()),
    }
}

/// Every order of a leader; `directory` is below the prefix directory.
pub fn orders(directory: &Path) -> Vec<Order> {
    let (checkpoint, directory) = (CHECKPOINT, directory.to_owned());
    let outgoing = vec![RankTransfer { rank: Rank(0), to: "node1".into() }];
    let fetch = FetchRank { member: member(0), files: vec![dataset_file()] };
    let rebuild = GroupRebuild { group: group(), missing: vec![1], descriptor: descriptor() };
    vec![
        Order::Inventory,
        Order::Delete { checkpoints: vec![CheckpointId(1)], all_but: Some([CHECKPOINT].into()) },
        Order::Prepare { checkpoint, delete: vec![CheckpointId(2)], members: vec![member(0), member(1)] },
        Order::Seal { checkpoint, ranks: 4, crc: SealCrc::Compute },
        Order::Encode {
            checkpoint,
            groups: vec![group()],
            crc: true,
            only: Some(vec![Rank(0)]),
            limits: CopyLimits::NONE,
        },
        Order::Commit { checkpoint },
        Order::Discard { checkpoint, ranks: vec![Rank(1)] },
        Order::Transfer { checkpoint, outgoing, incoming: vec![member(1)] },
        Order::Adopt { checkpoint, members: vec![member(0)], restart: true },
        Order::Verify { checkpoint, ranks: vec![Rank(0), Rank(1)] },
        Order::Rebuild { checkpoint, groups: vec![rebuild] },
        Order::Fetch { checkpoint, directory: directory.clone(), ranks: vec![fetch], total_ranks: 4, width: 2 },
        Order::Flush {
            checkpoint,
            directory: directory.clone(),
            limits: CopyLimits { width: 4, bandwidth: 1 << 20, percent: 2.5 },
            background: true,
            crc: true,
            container: Some(container_places()),
        },
        Order::VerifyStored {
            checkpoint,
            directory: directory.clone(),
            files: [(Rank(1), vec![dataset_file()])].into(),
            limits: CopyLimits::NONE,
        },
        Order::Describe { checkpoint, dataset: Dataset { name: Some("step 7".to_owned()), ..Dataset::default() } },
        Order::OpenDirect { checkpoint, directory: directory.clone() },
        Order::SealDirect { checkpoint },
        Order::CloseDirect { checkpoint },
        Order::ReadDirect {
            checkpoint,
            directory,
            files: BTreeMap::from([(Rank(0), vec![dataset_file()])]),
            written_by: Some(3),
        },
        Order::Note { checkpoint, locations: Locations { cache: true, pfs: true, flushing: false } },
        Order::Halt { state: halt_state() },
    ]
}

pub fn deliveries(directory: &Path) -> Vec<Delivery> {
    let endpoint = Endpoint { address: SocketAddr::from(([127, 0, 0, 1], 1)), issued: 7 };
    let delivery = |message| Delivery { addresses: vec![("node1".into(), endpoint)], message };
    let orders = orders(directory).into_iter().zip(1..).map(|(what, order)| ToMember::Order { order, what });
    let results = replies().into_iter().zip(1..).map(|(reply, seq)| ToMember::Results { seq, outcome: Ok(reply) });
    let others = [
        ToMember::Cancel { order: 3 },
        ToMember::LiftLimits { order: 3 },
        ToMember::Results { seq: 9, outcome: Err(failure()) },
    ];
    orders.chain(results).chain(others).map(delivery).collect()
}

pub fn to_leader() -> Vec<ToLeader> {
    let sealed = SealedFiles { bytes: 4096, names: vec!["rank_0.dat".to_owned()] };
    let results = [
        OrderResult::Done,
        OrderResult::Inventory(inventory()),
        OrderResult::Sealed(BTreeMap::from([(Rank(0), sealed)])),
        OrderResult::Verified(BTreeMap::from([(Rank(0), "a damaged file".to_owned())])),
        OrderResult::Flushed(BTreeMap::from([(Rank(0), vec![dataset_file()])])),
        OrderResult::Files(BTreeMap::from([(Rank(0), vec!["rank_0.dat".to_owned()])])),
    ];
    let done = results.into_iter().zip(1..).map(|(result, order)| ToLeader::Done { order, result: Ok(result) });
    let calls = calls().into_iter().zip(1..).map(|(call, seq)| {
        let other = call.clone();
        ToLeader::Calls { seq, calls: vec![(Rank(0), call), (Rank(1), other)] }
    });
    let others = [ToLeader::Done { order: 9, result: Err(failure()) }, ToLeader::Terminated];
    done.chain(calls).chain(others).collect()
}

pub fn settings(prefix: &Path) -> Settings {
    Settings {
        prefix: prefix.to_owned(),
        caches: vec![Cache { base: BASE.to_owned(), keep: 2 }],
        descriptors: vec![descriptor().descriptor],
        levels: [(
            0,
            LevelPolicy { behind: Some(AsyncRedundancy { bandwidth: 1 << 30, percent: 50.0 }), keep: Some(2) },
        )]
        .into(),
        restart: RestartPolicy {
            distribute: true,
            fetch: true,
            fetch_width: 256,
            from_prefix: true,
            ranks: RestartRanks::Any,
        },
        flush: FlushPolicy {
            every: 1,
            mode: FlushMode::Sync,
            width: 256,
            bandwidth: 0,
            percent: 0.0,
            on_restart: true,
            keep: 3,
            container: None,
        },
        crc: CrcPolicy { on_copy: CrcOnCopy::Always, on_flush: true, on_restart: true, on_delete: true },
        source: SourceName("scr".to_owned()),
        need: NeedPolicy { interval: 1, time: Duration::from_secs(60), overhead: 0.5 },
        schedule: Some(CheckpointSchedule::Every(Duration::from_secs(600))),
        mtbf: Some(Duration::from_secs(43_200)),
        variables: VariablesPolicy::default(),
        halt_seconds: 60,
        allocation_end: Some(4_000_000_000),
        piece_bytes: 1 << 16,
        copy_bytes: 1 << 16,
        copy_threads: Some(2),
        redundancy_width: 32,
        stream_timeout: Duration::from_secs(120),
        data_plane: DataPlane::Encrypted,
        watchdog: Some(Watchdog { hang_after: Duration::from_secs(600), busy_hang_after: None }),
        newest: Some(CHECKPOINT),
        ignored: ["ckpt.3".to_owned()].into(),
    }
}

/// The plan of a run with two ranks on the node of the examples, which leads it, and two on another.
pub fn placement(here: SocketAddr, there: SocketAddr, leader: &str) -> Arc<Placement> {
    let node = |name: &str, address, first: u32| RunNode {
        name: name.into(),
        address,
        failure_domain: name.to_owned(),
        ranks: vec![Rank(first), Rank(first + 1)],
    };
    Arc::new(Placement { nodes: vec![node(NODE, here, 0), node("node1", there, 2)], leader: leader.into() })
}

pub fn run_request(generation: Generation, placement: Arc<Placement>, settings: &Settings) -> RunRequest {
    let parts = PlanParts::new(generation, generation.0, placement, settings).unwrap();
    serde_json::from_slice(&parts.request_to(&NODE.into()).unwrap()).unwrap()
}

pub fn start(root: &Path, prefix: &Path, trust: TrustMaterial) -> AgentStart {
    AgentStart {
        version: VERSION,
        job: "heat".to_owned(),
        job_id: JOB.to_owned(),
        step: None,
        allocation: Some("1795177430".to_owned()),
        user: "u".to_owned(),
        node: NODE.into(),
        shared: None,
        root: Some(root.to_owned()),
        prefixes: vec![prefix.to_owned()],
        control_base: BASE.to_owned(),
        cache_bases: BTreeMap::from([(BASE.to_owned(), None)]),
        control_bytes: None,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        trust,
        disk_timeout: Duration::from_secs(30),
        abandon_after: Duration::from_secs(600),
        drains_only: false,
        fault_injections: Vec::new(),
        umask: None,
    }
}

/// How the agents of one step find their nodes.
pub fn shared_start() -> SharedStart {
    SharedStart {
        node: Lookup::Command(vec!["hostname".to_owned()]),
        toward: Lookup::Variable("HEAD".to_owned()),
        logs: "/p/.holdfast/agents".into(),
        is_signalled_with_job: true,
    }
}

pub fn ready() -> AgentReady {
    AgentReady {
        version: VERSION,
        node: NODE.into(),
        address: SocketAddr::from(([127, 0, 0, 1], 7)),
        pid: 7,
        adopted: Some(Generation(2)),
        clock_ms: Some(1_700_000_000_000),
        pulse: Some(8),
    }
}

pub fn fault_injection() -> FaultInjection {
    FaultInjection { point: FaultPoint::Encode, checkpoint: Some(CHECKPOINT), agent_only: true }
}

pub fn run_plan(prefix: &Path) -> RunPlan {
    let address = SocketAddr::from(([127, 0, 0, 1], 7));
    let Placement { nodes, leader } = (*placement(address, address, NODE)).clone();
    RunPlan { generation: Generation(2), nodes, leader, settings: settings(prefix) }
}

pub fn poll() -> PollRequest {
    let known = Some(KnownHealth { instance: 5, version: 6 });
    PollRequest { after: 3, wait_ms: 0, allocation_end: Some(4_000_000_000), known }
}

pub fn poll_reply() -> PollReply {
    let (generation, checkpoint) = (Generation(2), CHECKPOINT);
    let events = [
        AgentEvent::RankConnected { generation, rank: Rank(1), pid: 7 },
        AgentEvent::MemoryExhausted { generation, rank: Rank(1), pid: 7, killed: 2, of_group: true },
        AgentEvent::KernelReported { generation, rank: Rank(1), pid: 7, message: "I/O error, dev sda".to_owned() },
        AgentEvent::RankGone { generation, rank: Rank(1), pid: 7 },
        AgentEvent::RankLeft { generation, rank: Rank(1), pid: 7 },
        AgentEvent::RestartAttempt { generation, checkpoint, from: Location::Cache, reason: "damaged".to_owned() },
        AgentEvent::RestartPrevented { generation, faulty: Some("n1".into()), reason: "no space left".to_owned() },
        AgentEvent::Restarted {
            generation,
            checkpoint: Some(checkpoint),
            protected: Some(true),
            source: RestartSource::Cache,
            written_by: None,
            rebuilt: vec![Rank(1)],
            moved: vec![Rank(2)],
            millis: 8,
        },
        AgentEvent::CheckpointStarted { generation, checkpoint },
        AgentEvent::EncodeStarted { generation, checkpoint },
        AgentEvent::FlushRequested { generation, checkpoint },
        AgentEvent::RebuildStarted { generation, checkpoint, ranks: vec![Rank(1)] },
        AgentEvent::CheckpointComplete {
            generation,
            checkpoint,
            scheme: Scheme::new("XOR"),
            descriptor: None,
            protected: true,
            level: Some(Level::Parity.number()),
            bytes: 9,
            millis: 8,
        },
        AgentEvent::CheckpointProtected {
            generation,
            checkpoint,
            scheme: Scheme::new("XOR"),
            descriptor: Some(1),
            survives: Some(1),
            millis: 9,
        },
        AgentEvent::ProtectionFailed { generation, checkpoint, reason: "no space".to_owned() },
        AgentEvent::CheckpointFailed { generation, checkpoint, reason: "no space".to_owned(), ended: false },
        AgentEvent::RankRefused { generation, rank: Rank(1), reason: "another source".to_owned() },
        AgentEvent::RanksBlocked {
            generation,
            checkpoint,
            millis: 7,
            redundancy_millis: 3,
            earlier_redundancy_millis: 1,
            flush_millis: 2,
        },
        AgentEvent::Flushed { generation, checkpoint, directory: "scr.3".to_owned(), millis: 8 },
        AgentEvent::PlainFilesKept { checkpoint, directory: "scr.3".to_owned(), reason: "no space".to_owned() },
        AgentEvent::OutputNotPlaced {
            checkpoint,
            directory: "plot".to_owned(),
            path: OutputPath::parse("out/plot").unwrap(),
            files: 2,
        },
        AgentEvent::PrefixDeleted { checkpoint, directory: "scr.3".to_owned(), keep: 2 },
        AgentEvent::PrefixNotDeleted { checkpoint, directory: "scr.3".to_owned(), reason: "no space".to_owned() },
        AgentEvent::FlushDamaged { checkpoint, directory: "scr.3".to_owned(), reason: "cut".to_owned() },
        AgentEvent::FlushFailed { generation, checkpoint, reason: "no space".to_owned() },
        AgentEvent::Halting { generation, reason: "halted".to_owned() },
        AgentEvent::Finalized { generation },
        AgentEvent::LibraryStarted { generation },
        AgentEvent::UnauthenticatedConnection { peer: "127.0.0.1:1".to_owned(), reason: "sent nothing".to_owned() },
        pair_event(),
        AgentEvent::Notice { message: "a message".to_owned() },
    ];
    let quiet = QuietRank {
        rank: Rank(1),
        waiting_in: Some("start".to_owned()),
        quiet_for: Duration::from_secs(7),
        idle_for: Duration::from_secs(5),
    };
    let waiting =
        WaitingRanks { call: "start_checkpoint".to_owned(), ranks: vec![Rank(0)], waits_for: Duration::from_secs(70) };
    let directory = DirectoryHealth {
        path: BASE.to_owned(),
        fault: Some("too small".to_owned()),
        full: Some("full".to_owned()),
        total: 1 << 40,
        available: 0,
    };
    let health = Health {
        node: NODE.into(),
        generation,
        ranks: vec![Rank(0), Rank(1)],
        memory_total: 1 << 36,
        memory_available: 1 << 35,
        load: 0.5,
        directories: vec![directory],
        kept: vec![KeptDirectory { path: BASE.to_owned(), prefix: "/p".into() }],
        unauthenticated: 3,
        newest: Some(checkpoint),
        agent_memory: 1 << 24,
        quiet: vec![quiet],
        waiting: Some(waiting),
        halt: Some(HaltReport { reason: "JOB_HALTED".to_owned(), immediate: true, ends: Some(4_000_000_000) }),
    };
    PollReply {
        instance: 5,
        health_version: 6,
        health,
        events: events.into_iter().zip(1..).map(|(event, number)| NumberedEvent { number, event }).collect(),
        progress: vec![Progress { task: Task::Encode, checkpoint, done: 5, total: 9 }],
    }
}

pub fn halt_request() -> HaltRequest {
    HaltRequest { generation: Generation(2), reason: Some("SIGTERM".to_owned()) }
}

pub fn checkpoint_request() -> CheckpointRequest {
    CheckpointRequest { after: Some(CheckpointId(4)) }
}

pub fn checkpoint_reply() -> CheckpointReply {
    let state = RequestState::Begun { checkpoint: CheckpointId(5) };
    CheckpointReply { requested: Some(RequestedCheckpoint { after: CheckpointId(4), state }) }
}

pub fn terminate() -> TerminateRequest {
    TerminateRequest { generation: Generation(1), reason: "SIGTERM".to_owned() }
}

pub fn kill() -> KillRequest {
    KillRequest { generation: Generation(1), reason: "over".to_owned() }
}

pub fn faults() -> Vec<FaultRequest> {
    let kill = NodeFault::KillRank { rank: Rank(7) };
    let others =
        [NodeFault::Pause { millis: 1 }, NodeFault::FillCache { bytes: 1 }, NodeFault::StallPrefix { millis: 1 }];
    [kill].into_iter().chain(others).map(|fault| FaultRequest { fault }).collect()
}

pub fn pulse() -> PulseRequest {
    PulseRequest { address: SocketAddr::from(([127, 0, 0, 1], 8)) }
}

pub fn stack() -> StackRequest {
    StackRequest { generation: Generation(2), ranks: vec![Rank(0), Rank(1)] }
}

pub fn peers() -> PeersUpdate {
    let addresses = BTreeMap::from([(NodeName::new("node1"), SocketAddr::from(([127, 0, 0, 1], 1)))]);
    PeersUpdate { generation: Generation(2), issued: 9, addresses, down: vec!["node2".into()] }
}

pub fn halt_change() -> HaltChange {
    let HaltState { reason, checkpoints_left, after, before, seconds, .. } = halt_state();
    HaltChange {
        reason,
        checkpoints_left,
        after,
        before,
        seconds,
        immediate: true,
        unset: vec![HaltCondition::Seconds],
    }
}

pub fn end_run() -> EndRunRequest {
    EndRunRequest { generation: Generation(2) }
}

pub fn forget() -> ForgetRequest {
    ForgetRequest { finished: Generation(1), earlier_runs: 2 }
}

fn container_places() -> ContainerPlaces {
    let place = RankPlace { file: 0, offset: 4096, chunk_bytes: 4096, stride: 8192, first_chunk: 1 };
    ContainerPlaces { files: vec![".hf-1.tmp".to_owned()], ranks: BTreeMap::from([(Rank(0), place)]) }
}

pub fn copy(directory: &Path) -> CopyRequest {
    CopyRequest {
        checkpoint: CHECKPOINT,
        directory: directory.to_owned(),
        crc: true,
        on_behalf_of: vec!["node1".into()],
        partners_only: false,
        buffer_bytes: 1 << 16,
        threads: Some(2),
        container: Some(container_places()),
    }
}

pub fn rebuild(directory: &Path) -> RebuildRequest {
    RebuildRequest {
        directory: directory.to_owned(),
        checkpoint: CHECKPOINT,
        scheme: Scheme::new("XOR"),
        group_id: 0,
        members: 4,
        missing: vec![1],
        ranks: vec![Rank(1)],
    }
}

pub fn verify(directory: &Path) -> VerifyRequest {
    VerifyRequest { directory: directory.to_owned(), files: vec!["rank_0.dat".to_owned()], threads: None }
}

fn dataset_file() -> DatasetFile {
    let output_path = OutputPath::parse("out/rank_0.dat").ok();
    DatasetFile { name: "rank_0.dat".to_owned(), size: 4096, crc: Some(7), output_path }
}

pub fn flushed() -> FlushedNote {
    FlushedNote { checkpoint: CHECKPOINT, prefix: PathBuf::from("/p") }
}

fn pair_event() -> AgentEvent {
    let cause = FailureCause::Exit { end: RankEnd::Signal(9) };
    let change = PairChange::FailOver { cause, checkpoint: 7, micros: 120 };
    AgentEvent::Pair { name: "dnn0".to_owned(), at: Timestamp::from_millis(5), change }
}

fn back_off() -> RestartBackOff {
    RestartBackOff { first: Duration::from_millis(100), most: Duration::from_secs(30), attempts: Some(5) }
}

pub fn pair_config(name: &str, command: Vec<String>) -> PairConfig {
    PairConfig {
        spec_index: 0,
        name: name.to_owned(),
        main: command.clone(),
        replica: command,
        period: Duration::from_millis(1),
        misses: 3,
        checkpoint_bytes: 4096,
        checkpoint_period: Duration::from_millis(10),
        restart: back_off(),
        stop_grace: Duration::from_millis(50),
        start_within: Duration::from_secs(30),
        suspends: Some(vec!["app0".to_owned()]),
    }
}

pub fn pairs_plan() -> PairsPlan {
    let pair = |index: u32, sides, peer| PairOnNode {
        restore: index == 0,
        index,
        config: pair_config(&format!("dnn{index}"), vec!["./dnn".to_owned(), index.to_string()]),
        sides,
        peer,
    };
    let peer = Some(SocketAddr::from(([127, 0, 0, 1], 7)));
    let command = vec!["./app".to_owned()];
    PairsPlan {
        epoch: 2,
        pairs: vec![pair(0, SidesOnNode::Both, None), pair(1, SidesOnNode::Replica, peer)],
        jobs: vec![JobConfig { name: "app0".to_owned(), command, order: 1, restart: back_off() }],
        settings: PairsSettings {
            save_to: Some("/p/.holdfast/pairs.saved/18-1".into()),
            restore_from: vec!["/p/.holdfast/pairs.saved/17-1".into()],
            lease: Duration::from_secs(2),
            pin_watcher: Some(1),
            directory: "/p".into(),
            output: Some("/p/.holdfast/pairs".into()),
            environment: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        },
        finished: [0].into(),
    }
}

pub fn pairs_accepted() -> PairsAccepted {
    PairsAccepted {
        registry: "/tmp/pairs/registry".into(),
        adopted: vec![AdoptedCopy { pair: 1, side: Side::Replica, pid: 7 }],
    }
}

pub fn pairs_sync() -> PairsSync {
    let (term, cause) = (Term { epoch: 2, number: 5 }, Some(FailureCause::NodeLost));
    PairsSync {
        epoch: 2,
        instance: 5,
        leases: vec![Grant {
            pair: 1,
            term,
            until: Duration::from_secs(9),
            after: Some(MirroredCheckpoint { term, sequence: 7 }),
            cause,
        }],
        revoke: vec![Revocation { pair: 3, term }],
        finished: vec![4],
        peers: vec![PeerOfPair { pair: 1, address: SocketAddr::from(([127, 0, 0, 1], 7)) }],
        seen: 3,
        wait_ms: 0,
    }
}

pub fn pairs_report() -> PairsReport {
    let copy = CopyStatus { state: CopyState::Awake, pid: Some(7), incarnation: 2, failures: 1, beats: 9, missed: 1 };
    let status = PairStatus {
        pair: 1,
        name: "dnn1".to_owned(),
        main: None,
        replica: Some(copy),
        checkpoint: 7,
        checkpoint_age_ms: Some(12),
        missed: 5,
        fail_overs: 1,
        fail_backs: 0,
        lease: Some(LeaseStatus {
            held: None,
            released: Term { epoch: 2, number: 5 },
            cause: Some(FailureCause::Lease),
            mirrored: MirroredCheckpoint { term: Term { epoch: 2, number: 4 }, sequence: 7 },
            own_newest: 8,
            own_term: Term { epoch: 2, number: 5 },
        }),
    };
    let job = JobStatus { name: "app0".to_owned(), state: JobRunState::Suspended, pid: Some(8), failures: 0 };
    PairsReport {
        instance: 5,
        clock: 7000,
        version: 4,
        clients: "/c/clients".into(),
        pairs: vec![status],
        jobs: vec![job],
    }
}

pub fn pair_command() -> CommandRequest {
    CommandRequest { epoch: 2, pair: 1, command: PairCommand::Restart(Side::Main) }
}

pub fn pairs_stop() -> PairsStop {
    PairsStop { epoch: 2, at_once: true }
}
