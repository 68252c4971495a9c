//! Simulated agents in this process.

use std::sync::{Arc, OnceLock};

use holdfast_model::Generation;
use holdfast_wire::run::TrustMaterial;

use crate::simulated::allocation::Agency;
use crate::simulated::{Agents, Failure};

/// The agents, when they are served; clones share them.
#[derive(Clone)]
pub struct Here {
    count: usize,
    agents: Arc<OnceLock<Arc<Agents>>>,
}

impl Here {
    pub fn new(count: usize) -> Self {
        Here { count, agents: Arc::default() }
    }

    pub fn agents(&self) -> &Arc<Agents> {
        self.agents.get().unwrap()
    }
}

impl Agency for Here {
    fn serve(&self, trust: &TrustMaterial) -> Result<u16, Failure> {
        let agents = Agents::serve(trust.clone(), self.count)?;
        Ok(self.agents.get_or_init(|| agents).port())
    }

    fn ranks_started(&self, generation: u64) -> Result<(), Failure> {
        self.agents().start_ranks(Generation(generation));
        Ok(())
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.agents().finalize();
        Ok(())
    }

    fn lose(&self, index: usize) -> Result<(), Failure> {
        self.agents().lose(index);
        Ok(())
    }
}
