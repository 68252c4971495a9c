//! The role of a rank: writes and reads one file through the client API, on command, and prints the time of each step.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast_client::Client;

use crate::Result;

const BLOCK: usize = 1 << 20;

pub fn play() -> Result<()> {
    let bytes: u64 = std::env::args().nth(1).ok_or("no size")?.parse()?;
    let mut client = None;
    answer(0.0)?;
    for line in std::io::stdin().lock().lines() {
        let seconds = match (line?.as_str(), client.take()) {
            ("init", None) => {
                let begun = Instant::now();
                let joined = Client::init()?;
                let seconds = begun.elapsed().as_secs_f64();
                client = Some(accept_restart(joined, bytes)?);
                seconds
            }
            ("write", Some(mut joined)) => {
                let begun = Instant::now();
                let checkpoint = joined.start_checkpoint()?;
                let path = joined.route_file(name(joined.rank().0))?;
                write(&path, bytes, joined.rank().0, checkpoint.0)?;
                client = Some(joined);
                begun.elapsed().as_secs_f64()
            }
            ("save", Some(mut joined)) => {
                let begun = Instant::now();
                let checkpoint = joined.start_checkpoint()?;
                let path = joined.route_file(name(joined.rank().0))?;
                write(&path, bytes, joined.rank().0, checkpoint.0)?;
                if !joined.complete_checkpoint(true)?.kept {
                    return Err(format!("checkpoint {checkpoint} was not kept").into());
                }
                client = Some(joined);
                begun.elapsed().as_secs_f64()
            }
            // The same bytes, into a file that the program names itself.
            ("plain", Some(joined)) => {
                let path = plain_file(joined.rank().0);
                let begun = Instant::now();
                write(&path, bytes, joined.rank().0, 0)?;
                let seconds = begun.elapsed().as_secs_f64();
                std::fs::remove_file(path)?;
                client = Some(joined);
                seconds
            }
            ("compute", Some(joined)) => {
                let begun = Instant::now();
                std::hint::black_box(compute(bytes));
                client = Some(joined);
                begun.elapsed().as_secs_f64()
            }
            ("complete", Some(mut joined)) => {
                let begun = Instant::now();
                let completed = joined.complete_checkpoint(true)?;
                if !completed.kept {
                    return Err(format!("checkpoint {} was not kept", completed.checkpoint).into());
                }
                client = Some(joined);
                begun.elapsed().as_secs_f64()
            }
            (other, _) => return Err(format!("a rank does not know what to do: {other:?}").into()),
        };
        answer(seconds)?;
    }
    Ok(())
}

pub fn answer(seconds: f64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{seconds}")?;
    Ok(out.flush()?)
}

/// Compares the restored bytes: a wrong rebuild must not count as a fast one.
fn accept_restart(mut client: Client, bytes: u64) -> Result<Client> {
    if client.have_restart().is_some() {
        let checkpoint = client.start_restart()?;
        let path = client.route_file(name(client.rank().0))?;
        let sound = is_sound(&path, bytes, client.rank().0, checkpoint.0)?;
        client.complete_restart(sound)?;
        if !sound {
            return Err(format!("{} is not what was written", path.display()).into());
        }
    }
    Ok(client)
}

/// In memory, as the caches.
fn plain_file(rank: u32) -> PathBuf {
    Path::new("/dev/shm").join(format!("holdfast-bench-plain.{}.{rank}", std::process::id()))
}

/// The same work at each call: about as long as the redundancy of so many bytes takes.
fn compute(bytes: u64) -> f64 {
    let mut cells = vec![0.5_f64; 4096];
    for round in 0..bytes / (6 * 4096) {
        let edge = round as f64 * 1e-9;
        for at in 1..cells.len() - 1 {
            cells[at] = (cells[at - 1] + cells[at] + cells[at + 1] + edge) / 3.0;
        }
    }
    cells.iter().sum()
}

fn name(rank: u32) -> String {
    format!("rank_{rank}.ckpt")
}

/// One block of non-repeating bytes; blocks differ in their first 8 bytes.
fn block(rank: u32, checkpoint: u64) -> Vec<u8> {
    let mut state = (u64::from(rank) << 32 | checkpoint) * 2 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..BLOCK / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn blocks(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let whole = bytes / BLOCK as u64;
    let rest = (bytes % BLOCK as u64) as usize;
    (0..whole).map(|number| (number, BLOCK)).chain((rest >= 8).then_some((whole, rest)))
}

fn write(path: &Path, bytes: u64, rank: u32, checkpoint: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut block = block(rank, checkpoint);
    for (number, length) in blocks(bytes) {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block[..length])?;
    }
    Ok(())
}

fn is_sound(path: &Path, bytes: u64, rank: u32, checkpoint: u64) -> Result<bool> {
    let mut file = File::open(path)?;
    let mut block = block(rank, checkpoint);
    let mut found = vec![0; BLOCK];
    for (number, length) in blocks(bytes) {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.read_exact(&mut found[..length])?;
        if found[..length] != block[..length] {
            return Ok(false);
        }
    }
    Ok(file.read(&mut found)? == 0)
}
