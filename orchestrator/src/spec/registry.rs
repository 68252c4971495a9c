//! Everything that a spec may name, from the registries of the layers above.

use std::ops::{Deref, DerefMut};

use super::checkpoint_source::CheckpointSource;
use super::manager_keys::ManagerKeys;
use super::registered::{ManagerFacts, Registered};

/// Everything that a spec may name.
#[derive(Clone, Debug)]
pub struct Registry {
    registered: Registered,
    /// The keys of `allocation:` that each manager declares.
    pub(super) manager_keys: Vec<&'static ManagerKeys>,
    sources: Vec<&'static CheckpointSource>,
}

impl Registry {
    /// The launchers of `registered`, these managers with the keys that they declare, and these sources.
    pub fn new(
        registered: Registered,
        managers: impl IntoIterator<Item = (&'static ManagerFacts, &'static ManagerKeys)>,
        sources: &[&'static CheckpointSource],
    ) -> Registry {
        let mut registry = Registry { registered, manager_keys: Vec::new(), sources: Vec::new() };
        managers.into_iter().for_each(|(facts, keys)| registry.add_manager(facts, keys));
        sources.iter().for_each(|source| registry.add_source(source));
        registry
    }

    pub fn add_manager(&mut self, facts: &'static ManagerFacts, keys: &'static ManagerKeys) {
        self.registered.managers.push(facts);
        self.manager_keys.push(keys);
    }

    pub fn add_source(&mut self, source: &'static CheckpointSource) {
        self.registered.sources.push(&source.facts);
        self.sources.push(source);
    }

    /// The source of this name.
    pub fn source(&self, name: &str) -> Option<&'static CheckpointSource> {
        self.sources.iter().copied().find(|source| source.facts.agent.name == name)
    }
}

impl Deref for Registry {
    type Target = Registered;

    fn deref(&self) -> &Registered {
        &self.registered
    }
}

impl DerefMut for Registry {
    fn deref_mut(&mut self) -> &mut Registered {
        &mut self.registered
    }
}
