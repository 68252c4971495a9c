//! What every agent of a job is told when it starts.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::run::{AgentStart, Identity, NODE_PLACEHOLDER, TrustMaterial};
use serde::{Deserialize, Serialize};

use crate::allocation::AllocatedNodes;
use crate::spec::{Cache, ControlDirectory};

/// An agent that neither an orchestrator nor ranks need ends after this long; until then an orchestrator can take over.
const ABANDON_AFTER: Duration = Duration::from_secs(300);

/// The same for all agents of a job, but for the node. Kept in the job's state, because whoever takes over, or drains,
/// starts agents that find what the old ones left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentTemplate {
    pub job: String,
    pub job_id: String,
    pub user: String,
    /// Base of the control directory.
    pub control_base: String,
    /// Its expected capacity.
    pub control_bytes: Option<u64>,
    /// Bases of the caches with their expected capacities.
    pub cache_bases: BTreeMap<String, Option<u64>>,
    pub trust: TrustMaterial,
}

impl AgentTemplate {
    /// The template of a job whose steps have these caches. Of one that several have, the largest expectation counts.
    pub fn new<'a>(
        job: &str,
        control: &ControlDirectory,
        caches: impl Iterator<Item = &'a Cache>,
        allocation: &dyn AllocatedNodes,
        trust: TrustMaterial,
    ) -> Self {
        let mut cache_bases = BTreeMap::new();
        for cache in caches {
            let expected: &mut Option<u64> = cache_bases.entry(text(&cache.base)).or_default();
            *expected = cache.bytes.max(*expected);
        }
        AgentTemplate {
            job: job.to_owned(),
            job_id: allocation.job_id().to_owned(),
            user: allocation.user().to_owned(),
            control_base: text(&control.base),
            control_bytes: control.bytes,
            cache_bases,
            trust,
        }
    }

    /// True if the agents of both are the same ones: no other job has this certificate.
    pub fn is_same_job(&self, other: &Self) -> bool {
        self.job_id == other.job_id && self.trust.certificate.0 == other.trust.certificate.0
    }

    /// What the agent of `node` is told. The allocation adds what belongs to it: root directory, fault_injections.
    pub fn for_node(&self, node: &NodeName) -> AgentStart {
        let named = |base: &str| base.replace(NODE_PLACEHOLDER, node.as_str());
        self.message(node.clone(), Identity::Given, named)
    }

    /// What the agents of all nodes are told that find out by themselves where they are.
    pub fn for_any_node(&self, identity: Identity) -> AgentStart {
        self.message(NodeName::new(""), identity, str::to_owned)
    }

    fn message(&self, node: NodeName, identity: Identity, named: impl Fn(&str) -> String) -> AgentStart {
        AgentStart {
            version: holdfast_wire::VERSION,
            job: self.job.clone(),
            job_id: self.job_id.clone(),
            user: self.user.clone(),
            node,
            identity,
            root: None,
            control_base: named(&self.control_base),
            cache_bases: self.cache_bases.iter().map(|(base, bytes)| (named(base), *bytes)).collect(),
            control_bytes: self.control_bytes,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            trust: self.trust.clone(),
            abandon_after: ABANDON_AFTER,
            fault_injections: Vec::new(),
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
