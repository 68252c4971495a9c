//! The keys of `allocation:` that a resource manager declares in its own folder, with [`keys!`](crate::keys).

use std::sync::Arc;

use super::keys::{Declared, Keys};
use super::manager_settings::ManagerSettings;
use super::reading::Section;

/// The keys of `allocation:` that one manager declares. [`KeyFacts::takes`](super::KeyFacts) lists them too, with the
/// help where they have no effect.
#[derive(Debug)]
pub struct ManagerKeys {
    pub(super) declared: fn() -> Vec<Declared>,
    pub(super) read: fn(&mut Section<'_>) -> Arc<dyn ManagerSettings>,
}

impl ManagerKeys {
    /// None of its own.
    pub const NONE: Self = ManagerKeys { declared: Vec::new, read: |_| Arc::new(()) };

    /// Those that `K` declares.
    pub const fn of<K: Keys<Built: ManagerSettings>>() -> Self {
        let read = |section: &mut Section<'_>| Arc::new(K::read_keys(section)) as Arc<dyn ManagerSettings>;
        ManagerKeys { declared: K::declared, read }
    }
}
