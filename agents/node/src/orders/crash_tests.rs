//! Encoding, rebuilding, transfers, fetches and flushes, interrupted at every call on one node of a group; the agents
//! of the other nodes go on. What has an entry and counts as complete is then what was written, the older dataset is
//! untouched, and the repeated orders complete the work.

use std::cell::{Cell, OnceCell};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use holdfast_core::control::meta::Meta;
use holdfast_core::crash::{ALL_ERRORS, EXHAUSTED, Subject, Tried, write_file};
use holdfast_core::redundancy::groups::{GroupRules, Groups, Site};
use holdfast_core::redundancy::numbers::{self, SchemeNumber};
use holdfast_core::redundancy::registry::{self, is_redundancy_file};
use holdfast_core::redundancy::{partner, rs, xor};
use holdfast_core::store::{OpenDataset as _, PosixDataset, Staged};
use holdfast_model::{
    CheckpointId, CrcOnCopy, Descriptor, Generation, Inventory, Level, Protection, Rank, RankDescriptor, Scheme,
    SchemeNumbers,
};
use holdfast_wire::fixtures::settings;
use holdfast_wire::peer::{
    CopyLimits, DatasetFile, Endpoint, FetchRank, GroupRebuild, GroupWork, Member, Order, OrderResult, RankTransfer,
    SealCrc,
};
use holdfast_wire::run::{AgentStart, TrustMaterial};
use holdfast_wire::trust;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::execute;
use crate::agent::Agent;
use crate::agent::fixtures::set_up;
use crate::agent::inventory;
use crate::collective::{Collectives, begin_run};
use crate::copy::pace::OrderControl;
use crate::directories::paths::Paths;
use crate::fixtures::{base, fixture_request, fixture_start};
use crate::server;
use crate::store::Store;

const GENERATION: Generation = Generation(2);
/// A protected checkpoint, which no step may change.
const OLDER: CheckpointId = CheckpointId(1);
/// The one that the steps are about.
const NEW: CheckpointId = CheckpointId(2);
/// The node that is interrupted, and its rank.
const TESTED: u32 = 0;
/// The leader tries a step as often if a link between the members breaks.
const TRIES: u32 = 8;
/// The files of each rank: one larger than the buffer of a redundancy file, one empty.
const SIZES: [usize; 3] = [9000, 0, 700];

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn name(rank: u32, file: usize) -> String {
    format!("rank_{rank}.{file}.ckpt")
}

fn content(checkpoint: CheckpointId, rank: u32, file: usize) -> Vec<u8> {
    holdfast_testkit::application_bytes(checkpoint.0, rank, file as u32, SIZES[file])
}

/// The base of control and cache directories, the same on all nodes.
fn shared_base() -> String {
    base("any")
}

fn node_name(at: u32) -> String {
    format!("node{at}")
}

/// An agent that serves its peers, with one rank.
struct Node {
    at: u32,
    agent: Arc<Agent>,
    collectives: Arc<Collectives>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Node {
    fn execute(&self, number: u64, order: Order) -> Result<OrderResult, String> {
        let run = self.collectives.run().unwrap();
        execute(&self.agent, &run, number, order, &OrderControl::default()).map_err(text)
    }

    fn knows(&self, other: &Node, issued: u64) {
        let endpoint = Endpoint { address: other.address, issued };
        self.agent.streams.update_addresses([(node_name(other.at).as_str().into(), endpoint)]);
    }
}

/// The nodes of one group: rank r runs on node r.
struct World {
    scheme: Scheme,
    groups: Groups,
    descriptors: Vec<RankDescriptor>,
    trust: TrustMaterial,
    /// All nodes but the one that is tested, which starts again each time.
    others: Vec<Node>,
    numbers: Cell<u64>,
    /// Another prefix directory of the job.
    prefix: OnceCell<PathBuf>,
    scratch: TempDir,
}

impl World {
    fn of(scheme: Scheme, nodes: u32, numbers: SchemeNumbers) -> World {
        let sites: Vec<Site> = (0..nodes).map(Site::on_node).collect();
        let groups = registry::form(&sites, GroupRules { scheme, numbers: &numbers }).unwrap();
        let mut descriptors: Vec<RankDescriptor> = (0..nodes)
            .map(|_| {
                let base = shared_base();
                let directory = format!("{base}/user1/scr.1145655/index.0");
                let numbers = numbers.clone();
                let descriptor = Descriptor { index: 0, enabled: true, interval: 1, base, scheme, numbers };
                RankDescriptor { descriptor, directory, groups: 1, group_id: 0, group_size: 1, group_rank: 0 }
            })
            .collect();
        groups.describe(&mut descriptors);
        let (trust, scratch) = (trust::generate().unwrap(), holdfast_testkit::fast_directory());
        let numbers = Cell::new(1);
        let (others, prefix) = (Vec::new(), OnceCell::new());
        let mut world = World { scheme, groups, descriptors, trust, others, numbers, prefix, scratch };
        for at in 1..nodes {
            let root = world.scratch.path().join(node_name(at));
            let node = world.start(&root, at).unwrap();
            world.write(&node).unwrap();
            world.others.push(node);
        }
        for one in &world.others {
            world.others.iter().for_each(|other| one.knows(other, 1));
        }
        world
    }

    fn next(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    fn nodes(&self) -> u32 {
        self.descriptors.len() as u32
    }

    fn start_message(&self, root: &Path, at: u32) -> AgentStart {
        let (trust, cache_bases) = (self.trust.clone(), [(shared_base(), None)].into());
        let prefixes = [std::env::temp_dir()].into_iter().chain(self.prefix.get().cloned()).collect();
        let start = fixture_start(root, &node_name(at));
        AgentStart { trust, prefixes, control_base: shared_base(), cache_bases, ..start }
    }

    /// An agent that starts: after a kill, the next one.
    fn start(&self, root: &Path, at: u32) -> Result<Node, String> {
        let start = self.start_message(root, at);
        let paths = Paths::new(&start);
        fs::create_dir_all(paths.control()).unwrap();
        let agent = Arc::new(set_up(start, paths).map_err(text)?);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let collectives = Arc::new(Collectives::new(agent.clone()));
        let mut request = fixture_request(GENERATION, &node_name(at), &[at]);
        request.shared.ranks = self.nodes();
        request.shared.settings = settings(std::env::temp_dir(), &shared_base(), 2, self.scheme);
        request.shared.settings.crc.on_copy = CrcOnCopy::WithRedundancy;
        // Errors are injected in the thread of the test.
        request.shared.settings.copy_threads = Some(1);
        let address = runtime.block_on(async {
            begin_run(&collectives, request).await.map_err(text)?;
            let listener = server::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(server::serve(collectives.clone(), listener));
            Ok::<_, String>(address)
        })?;
        let node = Node { at, agent, collectives, address, runtime: Some(runtime) };
        let issued = self.next();
        for other in &self.others {
            node.knows(other, issued);
            other.knows(&node, issued);
        }
        Ok(node)
    }

    fn member(&self, at: u32) -> Member {
        Member { rank: Rank(at), descriptor: self.descriptors[at as usize].clone() }
    }

    fn work(&self, at: u32) -> GroupWork {
        let place = self.groups.of(Rank(at)).unwrap();
        let members = (0..self.nodes()).map(|rank| (Rank(rank), node_name(rank).as_str().into())).collect();
        let (left, right) = (place.left.0, place.right.0);
        let largest = SIZES.iter().sum::<usize>() as u64;
        GroupWork { scheme: self.scheme, group_id: 0, members, member: at, left, right, largest }
    }

    /// The rank of a node writes the files of both checkpoints.
    fn write(&self, node: &Node) -> Result<(), String> {
        for checkpoint in [OLDER, NEW] {
            let members = vec![self.member(node.at)];
            node.execute(self.next(), Order::Prepare { checkpoint, delete: Vec::new(), members })?;
            for file in 0..SIZES.len() {
                let rank = Rank(node.at);
                let path = node.agent.store.add_file(checkpoint, rank, rank, &name(node.at, file)).map_err(text)?;
                write_file(&path, &content(checkpoint, node.at, file)).map_err(text)?;
            }
            node.execute(self.next(), Order::Seal { checkpoint, ranks: self.nodes(), crc: SealCrc::None })?;
        }
        Ok(())
    }

    /// An order of all nodes together, as the leader gives it: if the tested one fails, it is cancelled on the others,
    /// and if a link between them broke, it is repeated.
    fn together(&self, tested: &Node, order: impl Fn(u32) -> Order) -> Result<(), String> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            result = self.together_once(tested, &order);
            // As the leader does.
            if !result.as_ref().is_err_and(|error| error.contains("the step is repeated")) {
                break;
            }
        }
        result
    }

    fn together_once(&self, tested: &Node, order: &impl Fn(u32) -> Order) -> Result<(), String> {
        let number = self.next();
        thread::scope(|scope| {
            let others: Vec<_> = self
                .others
                .iter()
                .map(|node| (order(node.at), node))
                .map(|(order, node)| scope.spawn(move || node.execute(number, order).map(drop)))
                .collect();
            let result = tested.execute(number, order(TESTED));
            if result.is_err() {
                self.others.iter().for_each(|node| node.agent.streams.cancel(number));
            }
            let others = others.into_iter().map(|other| other.join().unwrap());
            // The first cause may be at any of them.
            let errors: Vec<String> = [result.map(drop)].into_iter().chain(others).filter_map(Result::err).collect();
            if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
        })
    }

    fn encode(&self, tested: &Node, checkpoint: CheckpointId) -> Result<(), String> {
        if self.others.is_empty() {
            return Ok(());
        }
        self.together(tested, |at| {
            let groups = vec![self.work(at)];
            Order::Encode { checkpoint, groups, crc: true, only: None, limits: CopyLimits::NONE }
        })
    }

    fn commit(&self, tested: &Node, checkpoint: CheckpointId) -> Result<(), String> {
        tested.execute(self.next(), Order::Commit { checkpoint }).map(drop)
    }

    /// On the tested node, the older checkpoint is protected, and the files of the new one are sealed.
    fn prepare(&self, root: &Path) {
        fs::create_dir(root).unwrap();
        let tested = self.start(root, TESTED).unwrap();
        self.write(&tested).unwrap();
        self.encode(&tested, OLDER).unwrap();
        self.commit(&tested, OLDER).unwrap();
    }

    /// The new checkpoint is protected, and then lost on the tested node.
    fn lose(&self, root: &Path) {
        self.prepare(root);
        let tested = self.start(root, TESTED).unwrap();
        self.encode(&tested, NEW).unwrap();
        let lost = Order::Delete { checkpoints: vec![NEW], all_but: None };
        tested.execute(self.next(), lost).unwrap();
    }

    fn open(&self, root: &Path) -> Result<Store, String> {
        let paths = Paths::new(&self.start_message(root, TESTED));
        let store = Store::open(paths, vec![shared_base()]).map_err(text)?;
        match store.faults().as_slice() {
            [] => Ok(store),
            faults => Err(faults.join("; ")),
        }
    }

    /// What counts as complete or protected is what was written, and each file has an entry.
    fn check(&self, root: &Path) -> Result<(), String> {
        let store = self.open(root)?;
        let held = inventory::of_store(&node_name(TESTED).as_str().into(), &store).map_err(text)?;
        if !held.faults.is_empty() {
            return Err(held.faults.join("; "));
        }
        let mut known = Vec::new();
        for holding in &held.holdings {
            let directory = match store.rank_directory(holding.checkpoint, holding.rank) {
                Ok(directory) => directory,
                Err(_) if holding.files.is_empty() => continue,
                Err(error) => return Err(error.to_string()),
            };
            known.extend(holding.files.iter().map(|file| directory.join(&file.name)));
            let protected = matches!(holding.protection, Protection::Scheme(_));
            for file in holding.files.iter().filter(|file| holding.complete || is_redundancy_file(&file.name)) {
                if is_redundancy_file(&file.name) && !protected {
                    continue;
                }
                let path = directory.join(&file.name);
                let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let crc = Meta::read(&path).map_err(text)?.crc;
                if crc.is_some_and(|crc| crc != crc32fast::hash(&found)) {
                    return Err(format!("{} has another checksum", path.display()));
                }
                let written = |at: usize| content(holding.checkpoint, holding.rank.0, at);
                let written = (0..SIZES.len()).find(|at| name(holding.rank.0, *at) == file.name).map(written);
                if !is_redundancy_file(&file.name) && written != Some(found) {
                    return Err(format!("{} was not written so", path.display()));
                }
            }
            if holding.complete && holding.files.len() < SIZES.len() {
                return Err(format!("{holding:?}"));
            }
        }
        let older = held.holdings.iter().find(|held| (held.checkpoint, held.rank) == (OLDER, Rank(TESTED)));
        if !older.is_some_and(|older| older.complete && older.protection == self.protection()) {
            return Err(format!("the older checkpoint is {older:?}"));
        }
        let unknown = files_in_cache(root).into_iter().find(|path| {
            let is_meta = path.extension().is_some_and(|extension| extension == "scr");
            let of = if is_meta { path.with_extension("") } else { path.clone() };
            !known.contains(&of)
                && !holdfast_core::temporary::is_temporary(&path.file_name().unwrap().to_string_lossy())
        });
        unknown.map_or(Ok(()), |path| Err(format!("{} has no entry", path.display())))
    }

    /// That of the files of a checkpoint that is complete.
    fn protection(&self) -> Protection {
        if registry::is_unprotected(self.scheme) { Protection::Nothing } else { Protection::Scheme(self.scheme) }
    }

    /// Every entry, the content of each file in cache, and the names in the control directory.
    fn result(&self, root: &Path) -> String {
        let store = self.open(root).unwrap();
        let Inventory { holdings, .. } = inventory::of_store(&node_name(TESTED).as_str().into(), &store).unwrap();
        let content = |path: &PathBuf| format!("{} {:#x}", path.display(), crc32fast::hash(&fs::read(path).unwrap()));
        let files: Vec<String> = files_in_cache(root).iter().map(content).collect();
        let control = holdfast_testkit::files_below(&store.paths.control());
        let names = control.iter().map(|path| path.file_name().unwrap().to_string_lossy());
        let names: Vec<_> = names.filter(|name| !name.ends_with(".damaged")).collect();
        format!("{holdings:#?} {files:#?} {names:#?}")
    }

    fn interrupt(&self, name: &str, prepare: &dyn Fn(&Path), work: &dyn Fn(&Node) -> Result<(), String>) -> Tried {
        let subject = Subject {
            name: &format!("{name}, {}", self.scheme),
            prepare,
            work: &|root| work(&self.start(root, TESTED)?),
            check: &|root| self.check(root),
            result: &|root| self.result(root),
            // The files of a node that has lost its power, or whose disk fails, count as lost.
            power: false,
            errors: EXHAUSTED,
        };
        subject.interrupt()
    }
}

fn files_in_cache(root: &Path) -> Vec<PathBuf> {
    let mut files = holdfast_testkit::files_below(root);
    files.retain(|path| path.components().any(|part| part.as_os_str() == "index.0"));
    files
}

fn numbers_of<const N: usize>(numbers: [(&'static SchemeNumber, u32); N]) -> SchemeNumbers {
    numbers.into_iter().map(|(number, value)| (number.name, value)).collect()
}

fn xor_of_three() -> World {
    World::of(xor::NAME, 3, numbers_of([(&numbers::SET_SIZE, 3)]))
}

fn rs_of_four() -> World {
    World::of(rs::NAME, 4, numbers_of([(&numbers::SET_SIZE, 4), (&rs::FAILURES, 2)]))
}

fn partners() -> World {
    World::of(partner::NAME, 2, SchemeNumbers::default())
}

/// Each rank's files are complete; their redundancy is made.
fn encode(world: &World) {
    let tried = world.interrupt("encode", &|root| world.prepare(root), &|tested| {
        world.encode(tested, NEW)?;
        world.commit(tested, NEW)
    });
    assert!(tried.kills > 20 && tried.errors > 50, "{tried:?}");
}

/// The tested node is the new home of a lost member, beside those that are `also_lost`.
fn rebuild(world: &World, also_lost: &[u32]) {
    let missing: Vec<u32> = [TESTED].into_iter().chain(also_lost.iter().copied()).collect();
    let tried = world.interrupt("rebuild", &|root| world.lose(root), &|tested| {
        let members = vec![world.member(TESTED)];
        tested.execute(world.next(), Order::Adopt { checkpoint: NEW, members, restart: true })?;
        world.together(tested, |at| {
            let descriptor = world.member(at).descriptor;
            let rebuild = GroupRebuild { group: world.work(at), missing: missing.clone(), descriptor };
            Order::Rebuild { checkpoint: NEW, groups: vec![rebuild] }
        })
    });
    assert!(tried.kills > 30 && tried.errors > 50, "{tried:?}");
}

#[test]
fn crash_encoding_xor() {
    encode(&xor_of_three());
}

#[test]
fn crash_encoding_reed_solomon() {
    encode(&rs_of_four());
}

#[test]
fn crash_copies_for_a_partner() {
    encode(&partners());
}

#[test]
fn crash_a_rebuild_of_xor() {
    rebuild(&xor_of_three(), &[]);
}

#[test]
fn crash_a_rebuild_of_two_members_of_reed_solomon() {
    rebuild(&rs_of_four(), &[2]);
}

/// The lost files come back from the partner that has the copies, and the node keeps its partner's copies again.
#[test]
fn crash_a_transfer_of_the_copies_of_a_partner() {
    let world = partners();
    let tried = world.interrupt("transfer", &|root| world.lose(root), &|tested| {
        world.together(tested, |at| match at {
            TESTED => Order::Transfer { checkpoint: NEW, outgoing: Vec::new(), incoming: vec![world.member(TESTED)] },
            _ => {
                let outgoing = vec![RankTransfer { rank: Rank(TESTED), to: node_name(TESTED).as_str().into() }];
                Order::Transfer { checkpoint: NEW, outgoing, incoming: Vec::new() }
            }
        })?;
        let members = vec![world.member(TESTED)];
        tested.execute(world.next(), Order::Adopt { checkpoint: NEW, members, restart: true })?;
        world.encode(tested, NEW)
    });
    assert!(tried.kills > 30 && tried.errors > 50, "{tried:?}");
}

/// The files of a checkpoint in a directory below the prefix directory are whole, or missing.
#[test]
fn crash_a_flush() {
    let world = World::of(registry::of_level(Level::Local), 1, SchemeNumbers::default());
    let root = world.scratch.path().join("tested");
    world.prepare(&root);
    let tested = OnceCell::new();
    let prepare = |prefix: &Path| {
        fs::create_dir_all(prefix.join("scr.new")).unwrap();
        world.prefix.set(prefix.to_owned()).unwrap();
        let node = tested.get_or_init(|| world.start(&root, TESTED).unwrap());
        world.commit(node, NEW).unwrap();
    };
    let flush = |prefix: &Path| {
        let (tested, directory, limits) = (tested.get().unwrap(), prefix.join("scr.new"), CopyLimits::NONE);
        let flush = Order::Flush { checkpoint: NEW, directory, limits, background: false, crc: true, container: None };
        tested.execute(world.next(), flush)?;
        // As the publication of the dataset does.
        let dataset = PosixDataset::at(&prefix.join("scr.new")).map_err(text)?;
        dataset.remove_staged(Staged::Abandoned).map_err(text)
    };
    let check = |prefix: &Path| {
        for file in 0..SIZES.len() {
            let path = prefix.join("scr.new").join(name(TESTED, file));
            match fs::read(&path) {
                Ok(found) if found != content(NEW, TESTED, file) => return Err(format!("{} differs", path.display())),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.to_string()),
            }
            if Meta::path_for(&path).exists() {
                Meta::of_usable(&path, NEW, Rank(TESTED), Some(1)).map_err(text)?;
            }
        }
        Ok(())
    };
    let tried = Subject {
        name: "flush",
        prepare: &prepare,
        work: &flush,
        check: &check,
        result: &|prefix| {
            let shown = |path: &PathBuf| format!("{} {:#x}", path.display(), crc32fast::hash(&fs::read(path).unwrap()));
            holdfast_testkit::files_below(prefix).iter().map(shown).collect::<Vec<_>>().join("\n")
        },
        power: true,
        errors: ALL_ERRORS,
    }
    .interrupt();
    assert!(tried.losses > 30 && tried.errors > 100, "{tried:?}");
}

/// A checkpoint is copied from the prefix directory into cache, sealed and committed.
#[test]
fn crash_a_fetch() {
    let world = World::of(registry::of_level(Level::Local), 1, SchemeNumbers::default());
    let prefix = tempfile::tempdir().unwrap();
    let listed = |file: usize| {
        let (name, bytes) = (name(TESTED, file), content(NEW, TESTED, file));
        fs::write(prefix.path().join(&name), &bytes).unwrap();
        DatasetFile { name, size: bytes.len() as u64, crc: Some(crc32fast::hash(&bytes)), output_path: None }
    };
    let files: Vec<DatasetFile> = (0..SIZES.len()).map(listed).collect();
    let tried = world.interrupt("fetch", &|root| world.lose(root), &|tested| {
        let ranks = vec![FetchRank { member: world.member(TESTED), files: files.clone() }];
        let directory = prefix.path().to_owned();
        let fetch = Order::Fetch { checkpoint: NEW, directory, ranks, total_ranks: 1, width: 1 };
        tested.execute(world.next(), fetch)?;
        tested.execute(world.next(), Order::Seal { checkpoint: NEW, ranks: 1, crc: SealCrc::Keep })?;
        world.commit(tested, NEW)
    });
    assert!(tried.kills > 30 && tried.errors > 50, "{tried:?}");
}
