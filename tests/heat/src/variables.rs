//! The slab as variables in memory: `--variables`.
//!
//! | id | variable |
//! |---|---|
//! | 1 | the step |
//! | 2 | the cells of the slab |
//! | 3 | the CRC32 of the initial field, which identifies the computation |
//! | 4 | the steps at which checkpoints were taken: it grows with each, and begins anew after [`MOST_STEPS`] |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_client::variables::{Level, RecoverOutcome, Variables, VariablesError};
use holdfast_client::{Builder, Client, Completed};

use crate::error::HeatError;
use crate::slab::Slab;

/// Steps that are listed.
const MOST_STEPS: usize = 5;

pub(crate) struct SavedField {
    variables: Variables,
    step: Shared<u64>,
    cells: Shared<f64>,
    origin: Shared<u32>,
    steps: Shared<u64>,
    levels: Vec<Level>,
    /// The number of checkpoints, which is the id of the last one.
    count: u32,
}

type Shared<T> = Arc<Mutex<Vec<T>>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, Vec<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SavedField {
    pub(crate) fn init(builder: Builder) -> Result<SavedField, HeatError> {
        let mut variables = Variables::with(builder)?;
        let step = variables.share(1, "step", Vec::new());
        let cells = variables.share(2, "cells", Vec::new());
        let origin = variables.share(3, "origin", Vec::new());
        let steps = variables.share(4, "steps", Vec::new());
        Ok(SavedField { variables, step, cells, origin, steps, levels: Vec::new(), count: 0 })
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        self.variables.client()
    }

    /// Loads the newest usable checkpoint into the slab; `None` if there is none.
    pub(crate) fn restart(
        &mut self,
        slab: &mut Slab,
        origin: u32,
        levels: Vec<u32>,
    ) -> Result<Option<RecoverOutcome>, HeatError> {
        self.levels = levels.into_iter().filter_map(Level::from_number).collect();
        // For another number of ranks: each has some of the rows, and this many cells are loaded.
        self.variables.distribute(2, &[slab.rows().len(), slab.size().width], 0)?;
        for id in [1, 3, 4] {
            self.variables.uniform(id)?;
        }
        *lock(&self.cells) = slab.cells().to_vec();
        let outcome = match self.variables.status().is_restart() {
            true => Some(self.variables.recover()?),
            false => None,
        };
        if outcome.as_ref().is_some_and(|outcome| outcome.checkpoint.is_some()) {
            let (step, cells) = (lock(&self.step).first().copied(), lock(&self.cells));
            let step = step.filter(|_| cells.len() == slab.cells().len() && *lock(&self.origin) == [origin]);
            let rank = self.variables.rank();
            slab.set_step(step.ok_or(HeatError::OtherField { rank })?);
            slab.cells_mut().copy_from_slice(&cells);
        }
        *lock(&self.origin) = vec![origin];
        self.count = outcome.as_ref().and_then(|outcome| outcome.id).unwrap_or(0);
        Ok(outcome)
    }

    /// Saves the slab, or with `if_due` only when the intervals of the levels ask for it. Also returns why this rank
    /// could not write its file.
    pub(crate) fn checkpoint(
        &mut self,
        slab: &Slab,
        if_due: bool,
    ) -> Result<Option<(Completed, Option<String>)>, VariablesError> {
        *lock(&self.step) = vec![slab.step()];
        {
            let mut cells = lock(&self.cells);
            cells.clear();
            cells.extend_from_slice(slab.cells());
            let mut steps = lock(&self.steps);
            if steps.len() == MOST_STEPS {
                steps.clear();
            }
            steps.push(slab.step());
        }
        let completed = if if_due { self.variables.snapshot()? } else { Some(self.save()?) };
        let problem = self.variables.write_error().map(ToString::to_string);
        Ok(completed.map(|completed| (completed, problem)))
    }

    fn save(&mut self) -> Result<Completed, VariablesError> {
        let level = self.levels.get(self.count as usize % self.levels.len().max(1)).copied().unwrap_or(Level::Parity);
        self.count += 1;
        self.variables.checkpoint(self.count, level)
    }

    pub(crate) fn finalize(self) -> Result<(), VariablesError> {
        self.variables.finalize()
    }
}
