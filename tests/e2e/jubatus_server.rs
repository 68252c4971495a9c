//! A server with the protocol and the files of released Jubatus servers, for jobs of `source: jubatus`: the engine
//! `stat` of release 1.1.1, standalone. It is this test binary itself, started under the name `jubastat`. Nothing of it
//! is shared with the client or with the reader of model files; the recorded exchanges of released servers are its
//! specification.
//!
//! Arguments are those of `jubastat`. `--fault-file PATH` makes it misbehave: the next call that a fault in this file
//! concerns removes the file, and misbehaves as the fault defines.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_testkit::fixtures;

use crate::world::World;

/// Set: this process is a server.
const SERVE: &str = "JUBATUS_TEST_SERVER";

/// Makes `jubastat` in the world's directory `bin`, and returns its path.
pub fn install(world: &World) -> PathBuf {
    let directory = world.path("bin");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("jubastat");
    let program = std::env::current_exe().unwrap();
    fs::write(&path, format!("#!/bin/sh\n{SERVE}=1 exec '{}' \"$@\"\n", program.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Is the server, if this process was started as one.
pub fn serve_if_server() {
    if std::env::var_os(SERVE).is_some() {
        serve(Options::read(std::env::args().skip(1)));
    }
}

struct Options {
    address: String,
    port: u16,
    data: PathBuf,
    config: PathBuf,
    idle: Duration,
    fault: Option<PathBuf>,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Options {
        let mut options = Options {
            address: "127.0.0.1".to_owned(),
            port: 9199,
            data: "/tmp".into(),
            config: PathBuf::new(),
            idle: Duration::from_secs(10),
            fault: None,
        };
        while let Some(argument) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| fail(&format!("{argument}: no value")));
            match argument.as_str() {
                "--listen_addr" | "-b" => options.address = value,
                "--rpc-port" | "-p" => options.port = value.parse().unwrap(),
                "--datadir" | "-d" => options.data = value.into(),
                "--configpath" | "-f" => options.config = value.into(),
                "--timeout" | "-t" => options.idle = Duration::from_secs(value.parse().unwrap()),
                "--fault-file" => options.fault = Some(value.into()),
                _ => fail(&format!("unknown option {argument}")),
            }
        }
        options
    }
}

fn fail(message: &str) -> ! {
    eprintln!("jubastat: {message}");
    exit(1)
}

/// A value of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Nil,
    Yes(bool),
    Whole(i128),
    Real(f64),
    Raw(Vec<u8>),
    List(Vec<Item>),
    Table(Vec<(Item, Item)>),
}

impl Item {
    pub fn raw(text: &str) -> Item {
        Item::Raw(text.as_bytes().to_vec())
    }

    fn text(&self) -> Option<String> {
        match self {
            Item::Raw(bytes) => String::from_utf8(bytes.clone()).ok(),
            _ => None,
        }
    }
}

/// Appends a value in the forms of the old specification.
pub fn encode(item: &Item, out: &mut Vec<u8>) {
    let mut counted = |count: usize, small: u8, most: usize, sixteen: u8| match count {
        count if count <= most => out.push(small | count as u8),
        count if count < 1 << 16 => out.extend([sixteen, (count >> 8) as u8, count as u8]),
        count => {
            out.push(sixteen + 1);
            out.extend((count as u32).to_be_bytes());
        }
    };
    match item {
        Item::Nil => out.push(0xc0),
        Item::Yes(yes) => out.push(0xc2 + u8::from(*yes)),
        Item::Whole(value) => match *value {
            0..=0x7f => out.push(*value as u8),
            -32..=-1 => out.push(*value as i8 as u8),
            0x80..=0xff => out.extend([0xcc, *value as u8]),
            0x100..=0xffff => out.extend([0xcd, (*value >> 8) as u8, *value as u8]),
            0x1_0000..=0xffff_ffff => {
                out.push(0xce);
                out.extend((*value as u32).to_be_bytes());
            }
            0x1_0000_0000.. => {
                out.push(0xcf);
                out.extend((*value as u64).to_be_bytes());
            }
            _ => {
                out.push(0xd3);
                out.extend((*value as i64).to_be_bytes());
            }
        },
        Item::Real(value) => {
            out.push(0xcb);
            out.extend(value.to_be_bytes());
        }
        Item::Raw(bytes) => {
            counted(bytes.len(), 0xa0, 31, 0xda);
            out.extend(bytes);
        }
        Item::List(members) => {
            counted(members.len(), 0x90, 15, 0xdc);
            members.iter().for_each(|member| encode(member, out));
        }
        Item::Table(pairs) => {
            counted(pairs.len(), 0x80, 15, 0xde);
            for (key, value) in pairs {
                encode(key, out);
                encode(value, out);
            }
        }
    }
}

/// Why bytes are no value.
pub enum NoItem {
    /// More bytes may complete it.
    Short,
    Garbage,
}

/// Takes one value from the front.
pub fn decode(bytes: &mut &[u8]) -> Result<Item, NoItem> {
    let head = take(bytes, 1)?[0];
    let number = |bytes: &mut &[u8], width: usize| -> Result<u64, NoItem> {
        Ok(take(bytes, width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    Ok(match head {
        0x00..=0x7f => Item::Whole(head.into()),
        0xe0.. => Item::Whole((head as i8).into()),
        0xc0 => Item::Nil,
        0xc2 | 0xc3 => Item::Yes(head == 0xc3),
        0xca => Item::Real(f32::from_bits(number(bytes, 4)? as u32).into()),
        0xcb => Item::Real(f64::from_bits(number(bytes, 8)?)),
        0xcc..=0xcf => Item::Whole(number(bytes, 1 << (head - 0xcc))?.into()),
        0xd0 => Item::Whole((number(bytes, 1)? as i8).into()),
        0xd1 => Item::Whole((number(bytes, 2)? as i16).into()),
        0xd2 => Item::Whole((number(bytes, 4)? as i32).into()),
        0xd3 => Item::Whole((number(bytes, 8)? as i64).into()),
        0xa0..=0xbf => Item::Raw(take(bytes, usize::from(head & 0x1f))?.to_vec()),
        0xc4 | 0xd9 => raw_of(number(bytes, 1)?, bytes)?,
        0xc5 | 0xda => raw_of(number(bytes, 2)?, bytes)?,
        0xc6 | 0xdb => raw_of(number(bytes, 4)?, bytes)?,
        0x90..=0x9f => list_of(u64::from(head & 0x0f), bytes)?,
        0xdc => list_of(number(bytes, 2)?, bytes)?,
        0xdd => list_of(number(bytes, 4)?, bytes)?,
        0x80..=0x8f => table_of(u64::from(head & 0x0f), bytes)?,
        0xde => table_of(number(bytes, 2)?, bytes)?,
        0xdf => table_of(number(bytes, 4)?, bytes)?,
        _ => return Err(NoItem::Garbage),
    })
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], NoItem> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(NoItem::Short)?;
    *bytes = rest;
    Ok(taken)
}

fn raw_of(length: u64, bytes: &mut &[u8]) -> Result<Item, NoItem> {
    Ok(Item::Raw(take(bytes, length as usize)?.to_vec()))
}

fn list_of(count: u64, bytes: &mut &[u8]) -> Result<Item, NoItem> {
    Ok(Item::List((0..count).map(|_| decode(bytes)).collect::<Result<_, _>>()?))
}

fn table_of(count: u64, bytes: &mut &[u8]) -> Result<Item, NoItem> {
    let pairs = (0..count).map(|_| Ok((decode(bytes)?, decode(bytes)?)));
    Ok(Item::Table(pairs.collect::<Result<_, _>>()?))
}

/// The checksum of zlib.
fn crc(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// The last values of each key, in the order of their arrival.
#[derive(Clone, Default)]
struct Model {
    samples: VecDeque<(i128, Vec<u8>, f64)>,
    updates: u64,
    saved: (u64, String),
    loaded: (u64, String),
}

const WINDOW: usize = 128;

impl Model {
    fn push(&mut self, key: Vec<u8>, value: f64) {
        self.samples.push_back((now().into(), key, value));
        while self.samples.len() > WINDOW {
            self.samples.pop_front();
        }
        self.updates += 1;
    }

    fn user_data(&self) -> Item {
        let sample = |(time, key, value): &(i128, Vec<u8>, f64)| {
            let pair = Item::List(vec![Item::Raw(key.clone()), Item::Real(*value)]);
            Item::List(vec![Item::Whole(*time), pair])
        };
        let mut keys: BTreeMap<&[u8], Vec<f64>> = BTreeMap::new();
        for (_, key, value) in &self.samples {
            keys.entry(key).or_default().push(*value);
        }
        let statistic = |(key, values): (&[u8], Vec<f64>)| {
            let sum = values.iter().sum();
            let squares = values.iter().map(|value| value * value).sum();
            let most = values.iter().copied().fold(f64::MIN, f64::max);
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            let mut members = vec![Item::Whole(values.len() as i128)];
            members.extend([sum, squares, most, least].map(Item::Real));
            (Item::Raw(key.to_vec()), Item::List(members))
        };
        let model = vec![
            Item::Whole(WINDOW as i128),
            Item::List(self.samples.iter().map(sample).collect()),
            Item::Table(keys.into_iter().map(statistic).collect()),
            Item::Real(0.0),
            Item::Real(0.0),
        ];
        Item::List(vec![Item::Whole(1), Item::List(model)])
    }

    /// Takes the samples of saved user data. Keys that it lacks stay, as in released servers.
    fn take(&mut self, user: &Item) -> Option<()> {
        let Item::List(model) = user else { return None };
        let Item::List(samples) = model.get(1)? else { return None };
        let mut taken = VecDeque::new();
        for sample in samples {
            let Item::List(sample) = sample else { return None };
            let [Item::Whole(time), Item::List(pair)] = sample.as_slice() else { return None };
            let [Item::Raw(key), Item::Real(value)] = pair.as_slice() else { return None };
            taken.push_back((*time, key.clone(), *value));
        }
        let Item::Table(_) = model.get(2)? else { return None };
        let stays = |key: &[u8]| taken.iter().all(|(_, other, _)| other.as_slice() != key);
        let mut samples: VecDeque<_> = self.samples.iter().filter(|(_, key, _)| stays(key)).cloned().collect();
        samples.append(&mut taken);
        self.samples = samples;
        Some(())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The bytes of a model file of release 1.1.1.
fn model_file(kind: &str, id: &str, config: &[u8], user: &Item) -> Vec<u8> {
    let system =
        [Item::Whole(1), Item::Whole(now().into()), Item::raw(kind), Item::raw(id), Item::Raw(config.to_vec())];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    encode(&Item::List(system.into()), &mut first);
    encode(user, &mut second);
    let mut file = b"jubatus\0".to_vec();
    file.extend(1_u64.to_be_bytes());
    [1_u32, 1, 1, 0].iter().for_each(|number| file.extend(number.to_be_bytes()));
    file.extend((first.len() as u64).to_be_bytes());
    file.extend((second.len() as u64).to_be_bytes());
    file.extend(first);
    file.extend(second);
    let sum = file_crc(&file);
    file[28..32].copy_from_slice(&sum.to_be_bytes());
    file
}

/// Without the field of the checksum itself.
fn file_crc(file: &[u8]) -> u32 {
    crc(file[..28].iter().chain(&file[32..]).copied())
}

fn number_at(file: &[u8], at: usize, width: usize) -> u64 {
    file[at..at + width].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The samples of a model file, or the server's message.
fn read_model_file(path: &Path, config: &[u8]) -> Result<Item, String> {
    let fault = |text: &str| text.to_owned();
    let file = fs::read(path).map_err(|_| fault("cannot open input file"))?;
    if file.len() < 48 {
        return Err(fault("cannot read input file"));
    }
    if &file[..8] != b"jubatus\0" {
        return Err(fault("invalid file format"));
    }
    let version = number_at(&file, 8, 8);
    if version != 1 {
        return Err(format!("invalid format version: {version}, expected 1"));
    }
    let release = [16, 20, 24].map(|at| number_at(&file, at, 4));
    if release[0] != 1 {
        let [major, minor, maintenance] = release;
        return Err(format!("cannot load model file created before v1.0.0: {major}.{minor}.{maintenance}"));
    }
    let (first, second) = (number_at(&file, 32, 8) as usize, number_at(&file, 40, 8) as usize);
    if file.len() < 48 + first + second {
        return Err(fault("cannot read input file"));
    }
    let (found, stored) = (file_crc(&file[..48 + first + second]), number_at(&file, 28, 4));
    if u64::from(found) != stored {
        return Err(format!("invalid crc32 checksum: {found:x}, expected {stored:x}"));
    }
    let mut system = &file[48..48 + first];
    let Ok(Item::List(system)) = decode(&mut system) else { return Err(fault("system data is broken")) };
    let kind = system.get(2).and_then(Item::text).unwrap_or_default();
    if kind != "stat" {
        return Err(format!("server type mismatched: {kind}, expected stat"));
    }
    let saved = system.get(4).and_then(Item::text).unwrap_or_default();
    // Released servers compare the JSON values; the tests use one text.
    if saved.as_bytes() != config {
        return Err(format!("server config mismatched: {saved}, expected {}", String::from_utf8_lossy(config)));
    }
    let mut user = &file[48 + first..48 + first + second];
    let Ok(Item::List(user)) = decode(&mut user) else { return Err(fault("user data is broken")) };
    match user.as_slice() {
        [Item::Whole(1), model] => Ok(model.clone()),
        [Item::Whole(version), _] => Err(format!("user data version mismatched: {version}, expected 1")),
        _ => Err(fault("invalid user container")),
    }
}

struct Server {
    options: Options,
    config: Vec<u8>,
    started: u64,
    /// Locked by each call that changes or saves the model.
    model: Mutex<Model>,
}

/// What becomes of a call.
enum Outcome {
    Result(Item),
    /// The two members of an answer that is an error.
    Error(Item, Item),
    /// With another message id.
    OtherId(Item),
    /// None: the client waits.
    Silence,
}

fn failed(text: &str) -> Outcome {
    Outcome::Error(Item::raw(text), Item::Nil)
}

impl Server {
    fn id(&self) -> String {
        format!("{}_{}", self.options.address, self.options.port)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.options.data.join(format!("{}_stat_{id}.jubatus", self.id()))
    }

    /// The fault that is ordered for this method.
    fn fault(&self, method: &str) -> String {
        let Some(path) = &self.options.fault else { return String::new() };
        let ordered = fs::read_to_string(path).unwrap_or_default();
        match ordered.trim().strip_prefix(method).and_then(|rest| rest.strip_prefix(' ')) {
            Some("always die") => "die".to_owned(),
            // Of two servers with the same file one takes it.
            Some(fault) if fs::remove_file(path).is_ok() => fault.to_owned(),
            _ => String::new(),
        }
    }

    fn call(&self, method: &str, parameters: &[Item]) -> Outcome {
        let texts: Vec<Option<String>> = parameters.iter().map(Item::text).collect();
        let wanted = match method {
            "save" | "load" | "sum" => 2,
            "push" => 3,
            _ => 1,
        };
        let bad = || Outcome::Error(Item::Whole(2), Item::raw("std::bad_cast"));
        if texts.len() < wanted || texts[..wanted.min(2)].contains(&None) {
            return bad();
        }
        let fault = self.fault(method);
        if fault == "silent" {
            return Outcome::Silence;
        }
        let second = texts.get(1).cloned().flatten().unwrap_or_default();
        if method == "load" {
            println!("load for the cluster {:?}", texts[0].clone().unwrap_or_default());
        }
        match method {
            "get_status" => Outcome::Result(self.status(if fault.is_empty() { "stat" } else { &fault })),
            "get_config" => Outcome::Result(Item::Raw(self.config.clone())),
            "clear" => {
                let mut model = self.model.lock().unwrap();
                *model = Model { updates: model.updates + 1, ..Model::default() };
                Outcome::Result(Item::Yes(true))
            }
            "push" => match parameters[2] {
                Item::Real(value) => {
                    self.model.lock().unwrap().push(second.into_bytes(), value);
                    Outcome::Result(Item::Yes(true))
                }
                _ => bad(),
            },
            "sum" => {
                let model = self.model.lock().unwrap();
                let of_key = model.samples.iter().filter(|(_, key, _)| *key == second.as_bytes());
                Outcome::Result(Item::Real(of_key.map(|(_, _, value)| value).sum()))
            }
            "save" | "load" if second.is_empty() => failed("empty id is not allowed"),
            "save" | "load" if !second.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/') => {
                failed("model ID contains invalid character")
            }
            "save" => self.save(&second, &fault),
            "load" => self.load(&second, &fault),
            _ => Outcome::Error(Item::Whole(1), Item::raw(method)),
        }
    }

    fn save(&self, id: &str, fault: &str) -> Outcome {
        let mut model = self.model.lock().unwrap();
        if fault == "refuse" {
            return failed("cannot get the lock of file; any RPC is saving to same file?");
        }
        let path = self.path(id);
        let kind = if fault == "other-type" { "recommender" } else { "stat" };
        let bytes = model_file(kind, id, &self.config, &model.user_data());
        let mut file = File::create(&path).unwrap();
        let written = if ["die", "half"].contains(&fault) { bytes.len() / 2 } else { bytes.len() };
        file.write_all(&bytes[..written]).unwrap();
        if fault == "late" {
            thread::spawn(move || damage_when_taken(&path, &file));
        } else {
            drop(file);
        }
        if fault == "die" {
            std::process::abort();
        }
        let path = self.path(id);
        let reported = path.to_string_lossy().into_owned();
        model.saved = (now(), reported.clone());
        let answer = Item::Table(vec![(Item::raw(&self.id()), Item::raw(&reported))]);
        match fault {
            "other-shape" => Outcome::Result(Item::Yes(true)),
            "other-path" => Outcome::Result(Item::Table(vec![(Item::raw(&self.id()), Item::raw("/etc/passwd"))])),
            "other-id" => Outcome::OtherId(answer),
            _ => Outcome::Result(answer),
        }
    }

    fn load(&self, id: &str, fault: &str) -> Outcome {
        let mut model = self.model.lock().unwrap();
        let path = self.path(id);
        let user = match read_model_file(&path, &self.config) {
            Ok(user) => user,
            Err(message) => return failed(&message),
        };
        if fault == "die" {
            std::process::abort();
        }
        let taken = model.take(&user);
        if taken.is_none() || fault == "refuse" {
            return failed("user data is broken");
        }
        model.updates += 1;
        model.loaded = (now(), path.to_string_lossy().into_owned());
        Outcome::Result(Item::Yes(true))
    }

    fn status(&self, kind: &str) -> Item {
        let model = self.model.lock().unwrap();
        let data = self.options.data.to_string_lossy().into_owned();
        let pairs = [
            ("PROGNAME", "jubastat".to_owned()),
            ("RSS", "10652".to_owned()),
            ("SHR", "8452".to_owned()),
            ("VERSION", "1.1.1".to_owned()),
            ("VIRT", "169812".to_owned()),
            ("clock_time", now().to_string()),
            ("configpath", self.options.config.to_string_lossy().into_owned()),
            ("datadir", data),
            ("is_standalone", "1".to_owned()),
            ("last_loaded", model.loaded.0.to_string()),
            ("last_loaded_path", model.loaded.1.clone()),
            ("last_saved", model.saved.0.to_string()),
            ("last_saved_path", model.saved.1.clone()),
            ("log_config", String::new()),
            ("logdir", String::new()),
            ("pid", std::process::id().to_string()),
            ("start_time", self.started.to_string()),
            ("storage", "stat".to_owned()),
            ("threadnum", "2".to_owned()),
            ("timeout", self.options.idle.as_secs().to_string()),
            ("type", kind.to_owned()),
            ("update_count", model.updates.to_string()),
            ("uptime", (now() - self.started).to_string()),
            ("user", "u".to_owned()),
        ];
        let pairs = pairs.into_iter().map(|(key, value)| (Item::raw(key), Item::raw(&value))).collect();
        Item::Table(vec![(Item::raw(&self.id()), Item::Table(pairs))])
    }

    /// The bytes that answer a message; none for a notification, and for what is no request.
    fn answer(&self, message: &Item) -> Vec<u8> {
        let Item::List(members) = message else { return Vec::new() };
        let (id, method, parameters) = match members.as_slice() {
            [Item::Whole(0), Item::Whole(id @ 0..=0xffff_ffff), Item::Raw(method), Item::List(parameters)] => {
                (Some(*id), method, parameters)
            }
            [Item::Whole(2), Item::Raw(method), Item::List(parameters)] => (None, method, parameters),
            _ => return Vec::new(),
        };
        let outcome = self.call(&String::from_utf8_lossy(method), parameters);
        let Some(id) = id else { return Vec::new() };
        let (id, error, result) = match outcome {
            Outcome::Result(result) => (id, Item::Nil, result),
            Outcome::OtherId(result) => (id + 1, Item::Nil, result),
            Outcome::Error(error, result) => (id, error, result),
            Outcome::Silence => return Vec::new(),
        };
        let mut out = Vec::new();
        encode(&Item::List(vec![Item::Whole(1), Item::Whole(id), error, result]), &mut out);
        out
    }

    /// Serves one connection until its client closes it, or is idle for too long.
    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(self.options.idle).filter(|idle| !idle.is_zero())).unwrap();
        let (mut received, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let mut rest = received.as_slice();
            match decode(&mut rest) {
                Ok(message) => {
                    let left = rest.to_vec();
                    received = left;
                    if stream.write_all(&self.answer(&message)).is_err() {
                        return;
                    }
                }
                Err(NoItem::Garbage) => received.clear(),
                Err(NoItem::Short) => match stream.read(&mut part) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => received.extend(&part[..read]),
                },
            }
        }
    }
}

/// Changes a file that was reported as complete, when it has been moved away, and only then closes it.
fn damage_when_taken(path: &Path, file: &File) {
    while path.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    // A reader that does not wait for the end of this has read it by now.
    thread::sleep(Duration::from_millis(300));
    let end = file.metadata().unwrap().len();
    file.write_all_at(b"XXXX", end - 4).unwrap();
}

fn open(options: Options) -> (Arc<Server>, TcpListener) {
    let config =
        fs::read(&options.config).unwrap_or_else(|error| fail(&format!("{}: {error}", options.config.display())));
    let listener = TcpListener::bind((options.address.as_str(), options.port))
        .unwrap_or_else(|error| fail(&format!("{}:{}: {error}", options.address, options.port)));
    (Arc::new(Server { options, config, started: now(), model: Mutex::default() }), listener)
}

fn serve(options: Options) -> ! {
    let (server, listener) = open(options);
    loop {
        let Ok((stream, _)) = listener.accept() else { continue };
        let server = Arc::clone(&server);
        thread::spawn(move || server.serve(stream));
    }
}

/// The result of a call, for tests; `None` if the server cannot be reached.
pub fn call(address: &str, port: u16, method: &str, parameters: Vec<Item>) -> Option<Item> {
    let mut stream = TcpStream::connect((address, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut request = Vec::new();
    let list = vec![Item::Whole(0), Item::Whole(7), Item::raw(method), Item::List(parameters)];
    encode(&Item::List(list), &mut request);
    stream.write_all(&request).ok()?;
    let (mut received, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(read) => received.extend(&part[..read]),
        }
        let mut rest = received.as_slice();
        if let Ok(Item::List(mut members)) = decode(&mut rest) {
            assert_eq!((&members[1], &members[2]), (&Item::Whole(7), &Item::Nil), "{method}");
            return members.pop();
        }
    }
}

/// A decoded value as in the index of the recorded exchanges.
fn to_json(item: &Item) -> serde_json::Value {
    match item {
        Item::Nil => serde_json::Value::Null,
        Item::Yes(yes) => (*yes).into(),
        Item::Whole(value) => u64::try_from(*value).unwrap().into(),
        Item::Real(value) => (*value).into(),
        Item::Raw(_) => item.text().unwrap().into(),
        Item::List(members) => members.iter().map(to_json).collect(),
        Item::Table(pairs) => pairs.iter().map(|(key, value)| (key.text().unwrap(), to_json(value))).collect(),
    }
}

#[test(unchecked)]
fn the_test_server_answers_as_the_recorded_servers(world: &World) {
    let recorded = fixtures("jubatus");
    let data = world.path("data");
    fs::create_dir(&data).unwrap();
    for file in fs::read_dir(recorded.join("damaged")).unwrap().flatten().map(|entry| entry.path()) {
        let name = format!("127.0.0.1_9199_stat_{}", file.file_name().unwrap().to_str().unwrap());
        fs::copy(&file, data.join(name)).unwrap();
    }
    let options = Options {
        data: data.clone(),
        config: world.write("stat.json", "{\n  \"window_size\": 128\n}\n"),
        ..Options::read(std::iter::empty())
    };
    let config = fs::read(&options.config).unwrap();
    let server = Server { options, config, started: now(), model: Mutex::default() };
    let index = fs::read(recorded.join("rpc/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let (mut same_bytes, mut same_values) = (0, 0);
    for exchange in index["exchanges"].as_array().unwrap() {
        if exchange["server"] != "jubastat 1.1.1, standalone" {
            continue;
        }
        let name = exchange["exchange"].as_str().unwrap();
        let read = |key: &str| fs::read(recorded.join("rpc").join(exchange[key].as_str().unwrap())).unwrap();
        let (request, expected) = (read("request_file"), read("response_file"));
        let (mut rest, mut answer) = (request.as_slice(), Vec::new());
        while let Ok(message) = decode(&mut rest) {
            answer.extend(server.answer(&message));
        }
        if name.contains("get_status") {
            let keys = |bytes: &[u8]| match decode(&mut &bytes[4..]) {
                Ok(Item::Table(servers)) => match &servers[0].1 {
                    Item::Table(pairs) => pairs.iter().map(|(key, _)| key.text().unwrap()).collect::<Vec<_>>(),
                    other => panic!("{other:?}"),
                },
                _ => panic!("{name}"),
            };
            let (mut own, mut recorded) = (keys(&answer), keys(&expected));
            own.sort();
            recorded.sort();
            assert_eq!(own, recorded, "{name}");
            same_values += 1;
        } else if String::from_utf8_lossy(&expected).contains("/srv/models") {
            let mut rest = answer.as_slice();
            let decoded = std::iter::from_fn(|| decode(&mut rest).ok()).map(|item| to_json(&item));
            let decoded = serde_json::Value::from_iter(decoded).to_string();
            let expected = exchange["response_decoded"].to_string();
            assert_eq!(decoded.replace(data.to_str().unwrap(), "/srv/models"), expected, "{name}");
            same_values += 1;
        } else if name == "18-error-load-crc" {
            // It was recorded with another file, whose checksum is another one.
            let other = answer.iter().map(|byte| if byte.is_ascii_hexdigit() { b'0' } else { *byte });
            let recorded = expected.iter().map(|byte| if byte.is_ascii_hexdigit() { b'0' } else { *byte });
            assert!(other.eq(recorded), "{}", String::from_utf8_lossy(&answer));
            same_values += 1;
        } else {
            assert_eq!(answer, expected, "{name}");
            same_bytes += 1;
        }
    }
    assert!(same_bytes > 20 && same_values > 8, "{same_bytes} and {same_values}");
    // What it saves, it loads, and what a released server saved.
    server.model.lock().unwrap().push(b"x".to_vec(), 7.5);
    let saved = server.answer(&message("save", &["", "own"]));
    assert!(String::from_utf8_lossy(&saved).contains("_stat_own.jubatus"));
    let real = recorded.join("models/1.1.1/127.0.0.1_9199_stat_a.jubatus");
    fs::copy(real, data.join("127.0.0.1_9199_stat_a.jubatus")).unwrap();
    for (id, sum) in [("own", 7.5), ("a", 7.0)] {
        server.answer(&message("clear", &[""]));
        assert_eq!(server.answer(&message("load", &["", id])), b"\x94\x01\x05\xc0\xc3");
        let mut expected = b"\x94\x01\x05\xc0".to_vec();
        encode(&Item::Real(sum), &mut expected);
        assert_eq!(server.answer(&message("sum", &["", "x"])), expected);
    }
    // Byte for byte as a released server writes it, but for the time.
    let model = server.model.lock().unwrap().user_data();
    let (own, real) = (fs::read(data.join("127.0.0.1_9199_stat_a.jubatus")).unwrap(), {
        let mut rewritten = model_file("stat", "a", b"{\n  \"window_size\": 128\n}\n", &model);
        rewritten[50..55].copy_from_slice(&[0xce, 0x6b, 0x00, 0x1f, 0x90]);
        let sum = file_crc(&rewritten);
        rewritten[28..32].copy_from_slice(&sum.to_be_bytes());
        rewritten
    });
    assert_eq!(own, real);
}

fn message(method: &str, parameters: &[&str]) -> Item {
    let parameters = parameters.iter().map(|text| Item::raw(text)).collect();
    Item::List(vec![Item::Whole(0), Item::Whole(5), Item::raw(method), Item::List(parameters)])
}
