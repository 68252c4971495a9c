//! The cost of polling for the orchestrator: processor time per poll, memory per agent, and the latency of events.
//!
//! The agents are simulated in a separate process: thousands of real agents do not fit on one machine. What is
//! measured is this process, which polls them as `holdfast run` does ([`AgentSupervisor`]): TLS, one kept connection
//! each.
//!
//!     cargo bench -p holdfast --bench speed -- polls

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::allocation::Allocation;
use holdfast::fleet::{AgentClient, AgentRecord, AgentSupervisor, Clock, FleetEvent, FleetSettings};
use holdfast_model::NodeName;
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::trust;

use crate::figures::{Samples, below, once, title};
use crate::simulated::allocation::{Agency as _, Simulated, template};
use crate::simulated::{address, node};
use crate::simulated_agents::{Order, SimulatedAgents, unix_nanos};
use crate::{Extent, Result};

/// The number of agents, and how long each may delay an answer.
const SIZES: [(usize, Duration); 3] =
    [(64, Duration::from_millis(250)), (1_000, Duration::from_millis(250)), (10_000, Duration::from_secs(1))];
const SMOKE: [(usize, Duration); 1] = [(32, Duration::from_millis(50))];
/// How much longer than the interval an answer may take: the agents run on the same machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of events whose latency is measured.
const NEWS_EVERY: Duration = Duration::from_millis(20);
/// The unit of memory in `/proc`.
const KIB: f64 = 1024.0;

pub fn run(extent: Extent) -> Result<()> {
    let sizes: &[_] = if extent.tries > 1 { &SIZES } else { &SMOKE };
    for (agents, interval) in sizes {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        title(&format!("{agents} agents polled, answers held back for {} ms", interval.as_millis()));
        runtime.block_on(measure(*agents, *interval, Duration::from_secs(extent.idle_seconds)))?;
    }
    Ok(())
}

async fn measure(count: usize, interval: Duration, long: Duration) -> Result<()> {
    let trust = trust::generate()?;
    let memory_before = resident()?;
    let simulated = SimulatedAgents::new(count);
    let port = simulated.serve(&trust).map_err(|error| error.to_string())?;
    let allocation = Simulated::new(count, Box::new(simulated.clone()));
    let settings = FleetSettings {
        template: template(trust.clone()),
        poll_interval: interval,
        poll_patience: PATIENCE,
        allocation_end: None,
        clock: Clock::since(0),
    };
    let client = AgentClient::new(&trust, 64)?.for_agents(count);
    let mut fleet = AgentSupervisor::new(allocation as Arc<dyn Allocation>, client, settings);
    let (begun, processor) = (Instant::now(), processor_seconds()?);
    let record = |index| AgentRecord { address: address(index, port), pid: 0, pulse: None, seen: (0, 0) };
    let known: BTreeMap<NodeName, AgentRecord> = (0..count).map(|index| (node(index), record(index))).collect();
    fleet.adopt(&known).await;
    let mut up = 0;
    let mut first = 0;
    while up < count || first < count {
        match fleet.next().await {
            FleetEvent::Up { .. } => up += 1,
            FleetEvent::Answered { .. } => first += 1,
            FleetEvent::Unchanged { .. } | FleetEvent::PollsRan { .. } => {}
            other => return Err(format!("while the agents were connected: {other:?}").into()),
        }
    }
    let connecting = (processor_seconds()? - processor) / count as f64 * 1e3;
    once("all connected and answered", begun.elapsed().as_secs_f64(), "s", "");
    once("processor an agent to connect", connecting, "ms", "   (adopted, connected, first report)");

    let (begun, processor) = (Instant::now(), processor_seconds()?);
    let answers = answers_within(&mut fleet, long, &mut Samples::default()).await?;
    let (seconds, used) = (begun.elapsed().as_secs_f64(), processor_seconds()? - processor);
    once("polls answered", answers as f64 / seconds, "a second", "");
    once("processor, of one core", used / seconds * 100.0, "%", "");
    below("processor a poll", used / answers as f64 * 1e3, 0.05, "ms");
    once("memory an agent", (resident()? - memory_before) / count as f64 / KIB, "KiB", "");

    simulated.order(&Order::News { every: NEWS_EVERY })?;
    let mut latency = Samples::default();
    answers_within(&mut fleet, long / 2, &mut latency).await?;
    latency.show("from an event to its report", "ms");
    Ok(())
}

/// The number of answers in this time. Events contain the time at which they were made.
async fn answers_within(fleet: &mut AgentSupervisor, long: Duration, latency: &mut Samples) -> Result<u64> {
    let until = tokio::time::Instant::now() + long;
    let mut answers = 0;
    while let Ok(event) = tokio::time::timeout_at(until, fleet.next()).await {
        match event {
            FleetEvent::Unchanged { answers: heard } => answers += heard.len() as u64,
            FleetEvent::Answered { reply, .. } => {
                answers += 1;
                for event in &reply.events {
                    if let AgentEvent::Notice { message } = &event.event {
                        latency.add((unix_nanos() - message.parse::<f64>()?) / 1e6);
                    }
                }
            }
            FleetEvent::PollsRan { .. } => {}
            other => return Err(format!("while polling: {other:?}").into()),
        }
    }
    Ok(answers)
}

/// Processor seconds of the running threads of this process.
pub fn processor_seconds() -> Result<f64> {
    Ok(crate::agents::thread_times(std::process::id())?.seconds)
}

/// Bytes of memory of this process.
fn resident() -> Result<f64> {
    Ok(crate::agents::resident(std::process::id())? as f64)
}
