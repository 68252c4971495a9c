//! Running Jubatus servers, which rank processes have save and load their models.

use holdfast_agent::sources::jubatus::ENTRY;
use holdfast_rank::SaverSettings;
use holdfast_wire::run::CheckpointSchedule;

use super::silence::{self, Silence};
use crate::spec::{Checkpoint, CheckpointSource, FrequencyFacts, Jubatus, KeyFacts, SourceFacts, StepCheck};

pub static SOURCE: CheckpointSource = CheckpointSource {
    facts: SourceFacts {
        agent: &ENTRY,
        doc: "Jubatus servers",
        keys: KeyFacts {
            takes: &[("jubatus", "write `source: jubatus`, or leave it out")],
            without: &[("need", "servers do not ask: write `every: 10min`")],
        },
        frequency: FrequencyFacts::Keys { counts_calls: false, whole_seconds: false, finer: &["jubatus.every"] },
        can_be_interposed: false,
        has_levels: false,
    },
    check,
    saver,
    schedule,
};

fn saver(checkpoint: &Checkpoint) -> Option<SaverSettings> {
    let Jubatus { timeout, start_timeout, .. } = checkpoint.jubatus;
    Some(SaverSettings::Jubatus { servers: checkpoint.jubatus.endpoints()?, timeout, start_timeout })
}

fn schedule(checkpoint: &Checkpoint) -> Option<CheckpointSchedule> {
    Some(checkpoint.schedule_in_force(checkpoint.jubatus.every))
}

fn check(step: &StepCheck<'_>) {
    let (jubatus, ranks) = (&step.checkpoint.jubatus, step.run.ranks);
    if !jubatus.servers.is_empty() && jubatus.servers.len() as u64 != u64::from(ranks) {
        let message = format!("{} servers for {ranks} ranks", jubatus.servers.len());
        step.mistake("jubatus.servers", message, "write one element for each rank");
    }
    if jubatus.endpoints().is_none() {
        let message = "the type of the servers is missing";
        match jubatus.servers.iter().position(|server| server.r#type.is_none()) {
            Some(at) => {
                step.mistake(&format!("jubatus.servers[{at}]"), message, "write for example `type: classifier`");
            }
            None => step.mistake("source", message, "write `jubatus: {type: classifier}`"),
        }
    }
    let first = jubatus.first_port();
    let counts = jubatus.servers.is_empty() || jubatus.servers.iter().any(|server| server.port.is_none());
    if counts && u64::from(first) + u64::from(ranks) > u64::from(u16::MAX) + 1 {
        let message = format!("the port of the last rank would be {}", u64::from(first) + u64::from(ranks) - 1);
        let help = format!("write at most {}", (1_u64 << 16).saturating_sub(ranks.into()));
        step.mistake("jubatus.port", message, help);
    }
    // Servers are also idle while they have no clients, and ranks while they wait for a server.
    let silences = [
        Silence::between_checkpoints(step, "jubatus.every", jubatus.every),
        Silence { key: "jubatus.timeout", time: Some(jubatus.timeout) },
        Silence { key: "jubatus.start_timeout", time: Some(jubatus.start_timeout) },
    ];
    silence::check(step, "hang_after", step.health.hang_after, &silences);
}
