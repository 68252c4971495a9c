//! The start message of the agents of a job.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_model::time::millis;
use holdfast_wire::run::{AgentStart, NODE_PLACEHOLDER, SharedStart, TrustMaterial};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::allocation::record::AllocationIdentity;
use crate::spec::{Cache, ControlDirectory};

/// An agent without orchestrator and ranks ends after this time; until then an orchestrator can take over.
const ABANDON_AFTER: Duration = Duration::from_secs(300);

/// The common part of the start messages of a job without key and token. It is saved in the job's state, so that agents
/// which are started by a successor or for a drain use the directories of the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    pub job: String,
    pub job_id: String,
    /// The step, where several run side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// See [`AllocationIdentity::token`].
    #[serde(default)]
    pub allocation: Option<String>,
    pub user: String,
    /// The prefix directories of the job's steps.
    #[serde(default)]
    pub prefixes: Vec<PathBuf>,
    /// Base of the control directory.
    pub control_base: String,
    /// Required capacity of the control directory.
    pub control_bytes: Option<u64>,
    /// Bases of the caches with their required capacities.
    pub cache_bases: BTreeMap<String, Option<u64>>,
    /// A node whose file systems do not respond for this long is faulty.
    #[serde(with = "millis")]
    pub disk_timeout: Duration,
}

#[cfg(test)]
impl AgentSettings {
    /// Those of the job of unit tests.
    pub(crate) fn of_test_job() -> Self {
        AgentSettings {
            job: "heat".to_owned(),
            job_id: "17".to_owned(),
            step: None,
            allocation: None,
            user: "user1".to_owned(),
            prefixes: Vec::new(),
            control_base: "/tmp".to_owned(),
            control_bytes: None,
            cache_bases: BTreeMap::new(),
            disk_timeout: Duration::from_secs(30),
        }
    }
}

/// The common part of the start messages of a job.
#[derive(Clone, Debug)]
pub struct AgentTemplate {
    pub settings: AgentSettings,
    pub trust: TrustMaterial,
    /// The agents leave the directories of another job, also if its datasets are on its prefix directory.
    pub drains_only: bool,
}

impl AgentTemplate {
    /// The template of a job whose steps have these caches. If several steps share a cache, the largest capacity is
    /// required.
    pub fn new<'a>(
        job: &str,
        prefixes: Vec<PathBuf>,
        control: &ControlDirectory,
        caches: impl Iterator<Item = &'a Cache>,
        disk_timeout: Duration,
        identity: &AllocationIdentity,
        trust: TrustMaterial,
    ) -> Self {
        let mut cache_bases = BTreeMap::new();
        for cache in caches {
            let expected: &mut Option<u64> = cache_bases.entry(text(&cache.base)).or_default();
            *expected = cache.bytes.max(*expected);
        }
        let settings = AgentSettings {
            job: job.to_owned(),
            job_id: identity.job_id.clone(),
            step: None,
            allocation: identity.token.clone(),
            user: identity.user.clone(),
            prefixes,
            control_base: text(&control.base),
            control_bytes: control.bytes,
            cache_bases,
            disk_timeout,
        };
        AgentTemplate { settings, trust, drains_only: false }
    }

    /// The start message for `node`. The allocation adds its own part: root directory, fault injections.
    pub fn for_node(&self, node: &NodeName) -> AgentStart {
        let named = |base: &str| base.replace(NODE_PLACEHOLDER, node.as_str());
        self.message(node.clone(), None, named)
    }

    /// The common start message for agents that determine their node themselves.
    pub fn for_any_node(&self, shared: SharedStart) -> AgentStart {
        self.message(NodeName::new(""), Some(shared), str::to_owned)
    }

    fn message(&self, node: NodeName, shared: Option<SharedStart>, named: impl Fn(&str) -> String) -> AgentStart {
        let settings = &self.settings;
        AgentStart {
            version: holdfast_wire::VERSION,
            job: settings.job.clone(),
            job_id: settings.job_id.clone(),
            step: settings.step.clone(),
            allocation: settings.allocation.clone(),
            user: settings.user.clone(),
            node,
            shared,
            root: None,
            prefixes: settings.prefixes.clone(),
            drains_only: self.drains_only,
            control_base: named(&settings.control_base),
            cache_bases: settings.cache_bases.iter().map(|(base, bytes)| (named(base), *bytes)).collect(),
            control_bytes: settings.control_bytes,
            disk_timeout: settings.disk_timeout,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            trust: self.trust.clone(),
            abandon_after: ABANDON_AFTER,
            umask: Process::myself().and_then(|own| own.status()).ok().and_then(|status| status.umask),
            fault_injections: Vec::new(),
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
