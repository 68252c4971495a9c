//! The role of many ranks in one process: each is a thread with its own client, and executes the commands of the
//! process.
//! The answer to an order is the duration of the slowest.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use holdfast_client::{AgentAddress, Client, Environment, Rank};

use crate::Result;
use crate::agents::{ThreadRank, ThreadRanks};

/// Usual bytes of each file: the cost of a file is measured, not of its bytes.
const FILE_BYTES: usize = 4096;
/// The stack of a rank.
const STACK: usize = 256 << 10;

/// The orders that all ranks carry out.
#[derive(Clone, Copy, Debug)]
enum Step {
    Init,
    Start,
    /// Route this many more files.
    Route(usize),
    /// Write this many bytes to each routed file.
    Write(usize),
    Complete,
}

impl Step {
    fn parse(order: &str) -> Result<Step> {
        Ok(match order.split_once(' ') {
            None if order == "init" => Step::Init,
            None if order == "start" => Step::Start,
            None if order == "write" => Step::Write(FILE_BYTES),
            None if order == "complete" => Step::Complete,
            Some(("route", files)) => Step::Route(files.parse()?),
            Some(("write", bytes)) => Step::Write(bytes.parse()?),
            _ => return Err(format!("the ranks do not know what to do: {order:?}").into()),
        })
    }
}

/// A rank between two orders.
struct ThreadedRank {
    environment: Environment,
    client: Option<Client>,
    routed: Vec<std::path::PathBuf>,
}

pub fn play() -> Result<()> {
    let mut orders = std::io::stdin().lock().lines();
    let part: ThreadRanks = serde_json::from_str(&orders.next().ok_or("no ranks")??)?;
    let mut ranks: Vec<ThreadedRank> = part.ranks.iter().map(|rank| ThreadedRank::new(&part, rank)).collect();
    answer(0.0)?;
    for order in orders {
        let step = Step::parse(&order?)?;
        answer(all(&mut ranks, step)?)?;
    }
    Ok(())
}

fn answer(seconds: f64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{seconds}")?;
    Ok(out.flush()?)
}

/// All ranks take the step at once.
fn all(ranks: &mut [ThreadedRank], step: Step) -> Result<f64> {
    // The threads are started before the time is taken.
    let ready = Arc::new(Barrier::new(ranks.len()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter_mut()
            .map(|rank| {
                let ready = ready.clone();
                let work = move || {
                    ready.wait();
                    let begun = Instant::now();
                    rank.take(step).map(|()| begun.elapsed().as_secs_f64())
                };
                std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work)
            })
            .collect();
        let mut slowest = 0_f64;
        for thread in threads {
            let seconds = thread?.join().map_err(|_| "a rank panicked")??;
            slowest = slowest.max(seconds);
        }
        Ok(slowest)
    })
}

impl ThreadedRank {
    fn new(part: &ThreadRanks, rank: &ThreadRank) -> Self {
        let agent = AgentAddress { job: part.job.clone(), generation: part.generation, socket: rank.socket.clone() };
        let environment = Environment {
            rank: Rank(rank.rank),
            ranks: part.total,
            node: Some(rank.node.clone()),
            agent: Some(agent),
            reconnect: holdfast_client::environment::DEFAULT_RECONNECT,
        };
        ThreadedRank { environment, client: None, routed: Vec::new() }
    }

    fn take(&mut self, step: Step) -> Result<()> {
        if matches!(step, Step::Init) {
            self.client = Some(Client::builder().environment(self.environment.clone()).init()?);
            return Ok(());
        }
        let client = self.client.as_mut().ok_or("the ranks have not joined")?;
        match step {
            Step::Init => {}
            Step::Start => {
                self.routed.clear();
                client.start_checkpoint()?;
            }
            Step::Route(files) => {
                for _ in 0..files {
                    let name = format!("rank_{}.{}.ckpt", self.environment.rank, self.routed.len());
                    self.routed.push(client.route_file(name)?);
                }
            }
            Step::Write(bytes) => {
                let content = vec![0x5a; bytes];
                for path in &self.routed {
                    fs::write(path, &content)?;
                }
            }
            Step::Complete => {
                let completed = client.complete_checkpoint(true)?;
                if !completed.kept {
                    return Err(format!("checkpoint {} was not kept", completed.checkpoint).into());
                }
            }
        }
        Ok(())
    }
}
