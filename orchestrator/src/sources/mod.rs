//! Checkpoint sources, as far as the orchestrator has to know them: which keys of the spec have an effect with each,
//! and what becomes of these keys. What agents do for a source is in `holdfast_agent::sources`.
//!
//! A new source is a file here, with a [`CheckpointSource`], and a line in [`SOURCES`].

mod command;
mod jubatus;
mod none;
mod scr;
mod scr_files;
mod silence;
mod variables;
mod without_processes;

use crate::spec::CheckpointSource;

/// All sources, in the order in which messages list them.
pub static SOURCES: [&CheckpointSource; 6] =
    [&scr::SOURCE, &scr_files::SOURCE, &command::SOURCE, &jubatus::SOURCE, &variables::SOURCE, &none::SOURCE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_those_of_the_agents() {
        let names: Vec<&str> = SOURCES.iter().map(|source| source.facts.agent.name).collect();
        let of_agents: Vec<&str> = holdfast_agent::sources::REGISTRY.iter().map(|entry| entry.name).collect();
        assert_eq!(names, of_agents);
    }
}
