//! Any content of a model file is handled in bounded memory, without a panic.
//!
//! The fixtures are the corpus. Each round changes one of them in a few places, from a seed, and in half of the rounds
//! corrects the checksum, so that the code after its check is reached. `mutation_rounds` of the test kit documents how
//! to run more rounds and how to set the seed.

use std::fs;

use holdfast_formats::jubatus::config::same_config;
use holdfast_formats::jubatus::describe::{MAX_MODEL_SHOWN, to_json, to_text};
use holdfast_formats::jubatus::{
    Engine, Header, ModelFileName, ModelId, NewModel, Release, Rules, ScanOptions, Server, judge, scan, write_block,
};
use holdfast_testkit::{Dice, files_below, fixtures, mutation_rounds, mutation_seed};

const ROUNDS: u64 = 10_000;

/// Larger files of the corpus are left out: they would take most of the time.
const LARGEST: usize = 4096;

fn corpus() -> Vec<Vec<u8>> {
    let home = fixtures("jubatus");
    let mut files = files_below(&home.join("models"));
    files.extend(files_below(&home.join("damaged")));
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "jubatus"));
    files.map(|path| fs::read(path).unwrap()).filter(|bytes| bytes.len() <= LARGEST).collect()
}

/// Heads of values, and numbers at the limits of their types.
const EDGE_VALUES: [&[u8]; 16] = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91\x91\x91\x91\x91\x91\x91\x91",
    b"\xc1",
    b"\xc0",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\xca\xff\x80\0\0",
    b"\xa3\xff\xfe\xfd",
    b"\x80",
    b"\x90",
    b"\xde\x00\x02",
    b"\xd9\x05",
];

fn mutate(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[dice.below(corpus.len())].clone();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(8) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 if at < bytes.len() => bytes[at] = dice.roll() as u8,
            3 => {
                let value = EDGE_VALUES[dice.below(EDGE_VALUES.len())];
                let end = (at + value.len()).min(bytes.len());
                bytes.splice(at..end, value.iter().copied());
            }
            4 => {
                let value = EDGE_VALUES[dice.below(EDGE_VALUES.len())];
                bytes.splice(at..at, value.iter().copied());
            }
            5 => {
                let other = &corpus[dice.below(corpus.len())];
                let from = dice.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            6 if bytes.len() >= 48 => {
                let sizes =
                    [0, 1, 2, bytes.len() as u64, bytes.len() as u64 - 48, u64::MAX, u64::MAX - 47, 1 << 40, 1 << 63];
                let field = 32 + 8 * dice.below(2);
                bytes[field..field + 8].copy_from_slice(&sizes[dice.below(sizes.len())].to_be_bytes());
            }
            _ => {
                let end = at + dice.below(bytes.len() + 1 - at);
                bytes.drain(at..end);
            }
        }
    }
    if bytes.len() >= 48 && dice.below(2) == 0 {
        correct_header(dice, &mut bytes);
    }
    bytes
}

/// Corrects the sizes and the checksum in the header.
fn correct_header(dice: &mut Dice, bytes: &mut [u8]) {
    let blocks = bytes.len() as u64 - 48;
    let mut header = Header::decode(bytes[..48].try_into().unwrap());
    if dice.below(2) == 0 {
        header.system_data_size = header.system_data_size.min(blocks);
        header.user_data_size = blocks - header.system_data_size;
    }
    let end = header.user_data_offset().and_then(|at| at.checked_add(header.user_data_size));
    let end = end.and_then(|end| usize::try_from(end).ok()).unwrap_or(bytes.len()).min(bytes.len()).max(48);
    let mut crc = Header::start_checksum(&header.encode());
    crc.update(&bytes[48..end]);
    header.crc32 = crc.finalize();
    bytes[..48].copy_from_slice(&header.encode());
}

fn servers() -> Vec<Server> {
    let releases = [Release::NEWEST, Release::new(0, 9, 4), Release::new(0, 5, 0)];
    let mut servers = vec![Server::newest(Rules::Released), Server::newest(Rules::Documented)];
    for release in releases {
        for rules in [Rules::Released, Rules::Documented] {
            let config = Some(b"{\"window_size\": 128}".to_vec());
            servers.push(Server { release, engine: Some(Engine::Stat), config, id: Some("a".to_owned()), rules });
        }
    }
    servers
}

fn scan_and_judge(bytes: &[u8], name: &str, servers: &[Server]) {
    let path = std::path::Path::new(name);
    let want = ScanOptions { digests: true, user_data_up_to: MAX_MODEL_SHOWN };
    let mut read = 0;
    let scan = scan(bytes, bytes.len() as u64, want, &mut |bytes| read += bytes).unwrap();
    assert_eq!(read, bytes.len() as u64, "a byte was read twice, or never");
    for server in servers {
        let _ = judge(&scan, server);
    }
    let described = to_json(path, &scan);
    assert!(described["file_size"] == bytes.len());
    // The scan skips values where possible, the description reads each value: both must agree.
    if let Ok(blocks) = &scan.blocks
        && let Some(user_bytes) = &blocks.user_bytes
        && user_bytes.first() == Some(&0x92)
    {
        assert_eq!(blocks.user.is_ok(), described["user_data"].get("model").is_some(), "{:?}", blocks.user);
    }
    let _ = (to_text(&scan), ModelFileName::of(path));
    if let Some(Ok((system, _))) = scan.system.map(|block| block.data) {
        for release in [Release::NEWEST, Release::new(0, 9, 4)] {
            let _ = same_config(release, &system.config, &system.config);
        }
    }
}

/// The peak memory of this process, in kilobytes.
fn peak_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn mutated_models_cause_no_panic_and_bounded_memory() {
    let (corpus, servers) = (corpus(), servers());
    let seed = mutation_seed();
    let before = peak_kilobytes();
    for round in mutation_rounds(ROUNDS) {
        let mut dice = Dice(seed.wrapping_add(round));
        let bytes = mutate(&mut dice, &corpus);
        let looked = std::panic::catch_unwind(|| scan_and_judge(&bytes, "127.0.0.1_9199_stat_a.jubatus", &servers));
        assert!(looked.is_ok(), "seed {}: {:02x?}", seed.wrapping_add(round), bytes);
    }
    let grown = peak_kilobytes() - before;
    assert!(grown < 128 << 10, "{grown} kB more than before, for files of a few kilobytes");
}

#[test]
fn detects_every_changed_bit_of_a_model() {
    let path = fixtures("jubatus").join("models/1.1.1/127.0.0.1_9199_stat_a.jubatus");
    let good = fs::read(path).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let scan = scan(&bytes[..], bytes.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
        assert!(judge(&scan, &Server::newest(Rules::Documented)).refusal.is_some(), "bit {bit}");
    }
    for length in 0..good.len() {
        let scan = scan(&good[..length], length as u64, ScanOptions::default(), &mut |_| ()).unwrap();
        let refusal = judge(&scan, &Server::newest(Rules::Released)).refusal.unwrap();
        assert_eq!(refusal.stage.name(), "truncated");
    }
}

#[test]
fn reports_file_that_shrinks_during_reading_as_truncated() {
    let path = fixtures("jubatus").join("models/1.1.1/127.0.0.1_9199_stat_a.jubatus");
    let good = fs::read(path).unwrap();
    for length in 0..good.len() {
        let scan = scan(&good[..length], good.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
        let refusal = judge(&scan, &Server::newest(Rules::Released)).refusal.unwrap();
        assert_eq!(refusal.stage.name(), "truncated", "{length}");
    }
}

#[test]
fn models_that_the_writer_accepts_are_accepted_by_servers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.jubatus");
    let corpus = corpus();
    let model = NewModel {
        release: Release::NEWEST,
        timestamp: 1_795_170_192,
        engine: Engine::Stat,
        id: ModelId::documented("a").unwrap(),
        config: b"{}".to_vec(),
    };
    let (mut written, mut refused) = (0, 0);
    for round in 0..400 {
        let mut dice = Dice(round);
        let bytes = mutate(&mut dice, &corpus);
        let Some(header) = bytes.first_chunk().map(Header::decode) else { continue };
        let start = header.user_data_offset().and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
        let block = bytes.get(start..).unwrap_or(&bytes[48..]);
        match write_block(&path, &model, block) {
            Ok(_) => {
                let bytes = fs::read(&path).unwrap();
                let scan = scan(&bytes[..], bytes.len() as u64, ScanOptions::default(), &mut |_| ()).unwrap();
                let judgement = judge(&scan, &Server { id: Some("a".to_owned()), ..Server::newest(Rules::Released) });
                assert!(judgement.refusal.is_none() && judgement.notes.is_empty(), "{judgement:?}");
                written += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(written > 20 && refused > 20, "{written} written, {refused} refused");
}
