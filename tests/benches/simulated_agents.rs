//! The process of the simulated agents: the benchmark itself, in another role.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::host::descriptors;
use holdfast_model::Generation;
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::run::TrustMaterial;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::simulated::allocation::Agency;
use crate::simulated::{Agents, Failure};
use crate::{PART, Result};

/// Connections for requests, in addition to the one on which each agent is polled.
const OTHER_CONNECTIONS: usize = 9_000;

/// The agents of one process; clones share them.
#[derive(Clone)]
pub struct SimulatedAgents {
    count: usize,
    process: Arc<Mutex<Option<Process>>>,
}

/// The commands of the process, one per line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Adds an event to one agent after the other, each with its time.
    News {
        every: Duration,
    },
    RanksStarted {
        generation: u64,
    },
    Finalize,
    Lose {
        index: usize,
    },
    /// Answers with the bytes of all requests.
    Received,
}

#[derive(Serialize, Deserialize)]
struct Task {
    trust: TrustMaterial,
    agents: usize,
}

struct Process {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Process {
    fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(PART, "simulated agents")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Process { process, orders, answers: BufReader::new(answers) }),
            _ => Err("the process of the agents has no pipes".into()),
        }
    }

    fn send(&mut self, order: &impl Serialize) -> Result<()> {
        Ok(writeln!(self.orders, "{}", serde_json::to_string(order)?)?)
    }

    fn answer<T: std::str::FromStr>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(|_| format!("the process of the agents answered {line:?}").into())
    }
}

impl SimulatedAgents {
    pub fn new(count: usize) -> Self {
        SimulatedAgents { count, process: Arc::default() }
    }

    pub fn order(&self, order: &Order) -> Result<()> {
        self.process.lock().as_mut().ok_or("the agents are not served yet")?.send(order)
    }

    /// Bytes of the bodies of all requests so far.
    pub fn received(&self) -> Result<u64> {
        let mut process = self.process.lock();
        let process = process.as_mut().ok_or("the agents are not served yet")?;
        process.send(&Order::Received)?;
        process.answer()
    }
}

impl Agency for SimulatedAgents {
    fn serve(&self, trust: &TrustMaterial) -> Result<u16, Failure> {
        let mut process = Process::start()?;
        process.send(&Task { trust: trust.clone(), agents: self.count })?;
        let port = process.answer()?;
        *self.process.lock() = Some(process);
        Ok(port)
    }

    fn ranks_started(&self, generation: u64) -> Result<(), Failure> {
        self.order(&Order::RanksStarted { generation })
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.order(&Order::Finalize)
    }

    fn lose(&self, index: usize) -> Result<(), Failure> {
        self.order(&Order::Lose { index })
    }
}

/// The role of the process: serves until its standard input ends.
pub fn play() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let task: Task = serde_json::from_str(&lines.next().ok_or("no task")??)?;
    descriptors::allow_connections(task.agents + OTHER_CONNECTIONS.min(task.agents))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let agents = {
        let _inside = runtime.enter();
        Agents::serve(task.trust, task.agents)?
    };
    println!("{}", agents.port());
    for line in lines {
        match serde_json::from_str(&line?)? {
            Order::News { every } => drop(runtime.spawn(news(Arc::clone(&agents), task.agents, every))),
            Order::RanksStarted { generation } => agents.start_ranks(Generation(generation)),
            Order::Finalize => agents.finalize(),
            Order::Lose { index } => agents.lose(index),
            Order::Received => println!("{}", agents.received().values().map(|path| path.bytes).sum::<u64>()),
        }
    }
    Ok(())
}

async fn news(agents: Arc<Agents>, count: usize, every: Duration) {
    for index in (0..count).cycle() {
        tokio::time::sleep(every).await;
        agents.emit(index, AgentEvent::Notice { message: unix_nanos().to_string() });
    }
}

/// Nanoseconds since the epoch.
pub fn unix_nanos() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as f64
}
