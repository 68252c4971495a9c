//! The torchrun launcher: the manager's own launcher starts the ranks, with the variables by which the workers of
//! torchrun find each other (`init_process_group()` of PyTorch with `env://`).
//!
//! `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` are those of the generation: rank 0 listens at the address of its
//! node's agent, at a port that another generation and another job do not use. `RANK`, `LOCAL_RANK` and
//! `LOCAL_WORLD_SIZE` differ from rank to rank, but `srun` gives all ranks one environment. So each rank begins as
//! [`rank`], which sets them from one variable ([`local_ranks`]) and becomes the program. The plan is that of the
//! manager's launcher, which supervises it.

mod local_ranks;
pub mod rank;

use std::path::PathBuf;

use holdfast_model::{Generation, Placement, Rank};
use holdfast_wire::environment;
use serde::{Deserialize, Serialize};

use super::error::LaunchError;
use super::launcher::{LaunchRequest, Launcher, LauncherContext, LauncherEntry};
use super::plan::StepPlan;
use super::{flux, local, srun, ssh};
use crate::host::program;
use crate::spec::{KeyFacts, LauncherFacts, Suits};

/// The launchers that start the ranks, each with its manager and the variable in which a rank finds its number.
static STARTED_BY: [(&str, &LauncherEntry, &str); 4] = [
    ("local", &local::ENTRY, environment::RANK),
    ("slurm", &srun::ENTRY, "SLURM_PROCID"),
    ("flux", &flux::ENTRY, "FLUX_TASK_RANK"),
    ("ssh", &ssh::ENTRY, environment::RANK),
];

/// Ports of rank 0: below those that Linux gives to connections.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 12_000;
/// Linux refuses longer variables (128 KiB).
const LONGEST_CODE: usize = 120 << 10;

const OPTIONS: &str = "launcher_options";

pub static ENTRY: LauncherEntry = LauncherEntry {
    facts: LauncherFacts {
        name: "torchrun",
        doc: "the manager's own, with torchrun's variables; docs/torchrun.md",
        suits: Suits::Managers(&["local", "slurm", "flux", "ssh"]),
        keys: KeyFacts { takes: &[(OPTIONS, "")], without: &[] },
    },
    open: |context| Ok(Box::new(TorchrunLauncher::new(context)?)),
    supervision: |plan| Err(LaunchError::UnknownLauncher { launcher: plan.launcher.clone() }),
};

/// What a rank needs to know: `HOLDFAST_TORCHRUN`, JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RankSettings {
    /// The variable with its rank.
    rank_variable: String,
    /// The code of [`local_ranks`].
    local_ranks: String,
}

/// Another launcher, whose ranks get the variables of torchrun.
struct TorchrunLauncher {
    starting: Box<dyn Launcher>,
    rank_variable: &'static str,
    holdfast: PathBuf,
}

impl TorchrunLauncher {
    fn new(context: &LauncherContext<'_>) -> Result<Self, LaunchError> {
        let manager = context.manager.name;
        let found = STARTED_BY.iter().find(|(of, ..)| *of == manager);
        let (_, entry, rank_variable) = found.ok_or(LaunchError::Unsuitable { launcher: "torchrun", manager })?;
        if !context.run.launcher_options.is_empty() && !entry.facts.keys.takes(OPTIONS) {
            return Err(LaunchError::NoOptions { launcher: "torchrun", manager });
        }
        Ok(TorchrunLauncher { starting: (entry.open)(context)?, rank_variable, holdfast: program::ourselves()? })
    }
}

impl Launcher for TorchrunLauncher {
    fn starts_mpi(&self) -> bool {
        self.starting.starts_mpi()
    }

    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError> {
        let code = local_ranks::encode(&request.homes());
        if code.len() > LONGEST_CODE {
            return Err(LaunchError::ScatteredRanks);
        }
        let settings = RankSettings { rank_variable: self.rank_variable.to_owned(), local_ranks: code };
        let mut variables = request.variables.clone();
        let of_group = group_variables(request.job_id, request.generation, request.placement);
        // Values in the spec are obeyed.
        variables.extend(of_group.into_iter().filter(|(name, _)| !request.run.env.contains_key(name)));
        variables.insert(environment::TORCHRUN.to_owned(), serde_json::to_string(&settings).unwrap_or_default());
        let mut leading_arguments = ["rank", "--role", "torchrun", "--"].map(str::to_owned).to_vec();
        leading_arguments.push(request.program.to_string_lossy().into_owned());
        leading_arguments.extend_from_slice(request.leading_arguments);
        self.starting.plan(LaunchRequest {
            variables: &variables,
            program: &self.holdfast,
            leading_arguments: &leading_arguments,
            ..request
        })
    }
}

/// The variables that all ranks of a generation share.
fn group_variables(job_id: &str, generation: Generation, placement: &Placement) -> Vec<(String, String)> {
    let home = placement.used().find(|node| node.ranks.contains(&Rank(0)));
    let address = home.map(|node| node.address.ip().to_string()).unwrap_or_default();
    let set = [
        ("WORLD_SIZE", placement.ranks().to_string()),
        ("MASTER_ADDR", address),
        ("MASTER_PORT", port(job_id, generation).to_string()),
        ("TORCHELASTIC_RUN_ID", job_id.to_owned()),
        ("TORCHELASTIC_RESTART_COUNT", generation.0.saturating_sub(1).to_string()),
    ];
    set.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// The port of rank 0. Generations of a job have different ports, so that a rank of an older one finds no other group.
fn port(job_id: &str, generation: Generation) -> u32 {
    let generation = u32::try_from(generation.0 % u64::from(PORTS)).unwrap_or_default();
    FIRST_PORT + crc32fast::hash(job_id.as_bytes()).wrapping_add(generation) % PORTS
}
