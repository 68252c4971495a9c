//! Removes what finished steps of the job left on this node before the next step begins. Its checkpoints count from 1
//! again, and it must neither restart from theirs nor stop because of their halt conditions.
//!
//! A state file records up to which step this was done. It is written last, so that the request is repeated if the
//! agent dies before; an agent that is restarted later keeps what the present step has in cache.

use holdfast_model::Generation;

use crate::agent::Agent;
use crate::halt::HaltError;
use crate::memory;
use crate::store::StoreError;

/// Why the remains of a finished step could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Halt(#[from] HaltError),
    #[error("cannot record in {directory} that a step is finished: {source}; is the file system full or read-only?")]
    Record { directory: String, source: std::io::Error },
}

/// Deletes datasets and halt conditions of the steps up to generation `finished`, unless that was done before. Blocks.
///
/// # Errors
/// When something cannot be deleted; it can be done again.
pub fn finished_steps(agent: &Agent, finished: Generation) -> Result<(), ForgetError> {
    let control = agent.paths.control();
    if memory::read_forgotten(&control) >= finished {
        return Ok(());
    }
    agent.halt.clear()?;
    agent.store.clear()?;
    memory::write_forgotten(&control, finished)
        .map_err(|source| ForgetError::Record { directory: control.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::set_up;
    use crate::halt::Moment;
    use crate::store::fixture_node::fixture_agent;

    #[test]
    fn a_finished_step_is_forgotten_once_even_if_the_agent_is_restarted() {
        let (_root, agent) = fixture_agent("node0", "1145655");
        let moment = Moment::default();
        let files = |agent: &Agent| agent.store.checkpoints().len();
        assert!(files(&agent) > 0 && agent.store.flush.newest().is_some());
        agent.halt.set_reason("FINALIZE_CALLED", &moment).unwrap();
        finished_steps(&agent, Generation(2)).unwrap();
        assert_eq!((files(&agent), agent.store.flush.newest()), (0, None));
        assert_eq!(agent.halt.state(&moment).met, None);

        agent.halt.set_reason("of the next step", &moment).unwrap();
        let restarted = set_up(agent.start.clone(), agent.paths.clone()).unwrap();
        assert_eq!(files(&restarted), 0);
        finished_steps(&restarted, Generation(2)).unwrap();
        assert!(restarted.halt.state(&moment).met.is_some());
        finished_steps(&restarted, Generation(5)).unwrap();
        assert_eq!(restarted.halt.state(&moment).met, None);
    }
}
