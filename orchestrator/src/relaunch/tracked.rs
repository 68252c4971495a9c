//! Collections that record which of their elements changed, so that the journal entries are as large as the change and
//! not as large as the collection. Elements can only be changed through methods that record it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// A vector that records its changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct TrackedVec<T> {
    items: Vec<T>,
    #[serde(skip)]
    changed: BTreeSet<u32>,
    #[serde(skip)]
    replaced: bool,
}

/// The changes of a [`TrackedVec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VecChanges<T> {
    /// Some elements, by their index.
    Some(Vec<(u32, T)>),
    All(Vec<T>),
}

impl<T> Default for VecChanges<T> {
    fn default() -> Self {
        VecChanges::Some(Vec::new())
    }
}

impl<T> VecChanges<T> {
    pub fn is_empty(&self) -> bool {
        matches!(self, VecChanges::Some(changed) if changed.is_empty())
    }
}

impl<T> Default for TrackedVec<T> {
    fn default() -> Self {
        TrackedVec::from(Vec::new())
    }
}

impl<T> From<Vec<T>> for TrackedVec<T> {
    fn from(items: Vec<T>) -> Self {
        TrackedVec { items, changed: BTreeSet::new(), replaced: false }
    }
}

impl<T> Deref for TrackedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<'a, T> IntoIterator for &'a TrackedVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T: PartialEq> PartialEq for TrackedVec<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq> Eq for TrackedVec<T> {}

impl<T: Clone + PartialEq> TrackedVec<T> {
    /// An element, to be changed.
    pub fn change(&mut self, index: u32) -> &mut T {
        self.changed.insert(index);
        &mut self.items[index as usize]
    }

    /// The last element, to be changed.
    pub fn change_last(&mut self) -> Option<&mut T> {
        let last = u32::try_from(self.items.len()).ok()?.checked_sub(1)?;
        Some(self.change(last))
    }

    pub fn push(&mut self, item: T) {
        self.changed.insert(self.items.len() as u32);
        self.items.push(item);
    }

    /// Replaces all elements; equal ones count as not changed.
    pub fn replace(&mut self, items: Vec<T>) {
        if items.len() == self.items.len() {
            let differ = (0u32..).zip(self.items.iter().zip(&items)).filter(|(_, (old, new))| old != new);
            self.changed.extend(differ.map(|(index, _)| index));
        } else {
            self.replaced = true;
        }
        self.items = items;
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> VecChanges<T> {
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.replaced) || changed.len() > self.items.len() / 2 && changed.len() > 8 {
            return VecChanges::All(self.items.clone());
        }
        let record = |index: u32| Some((index, self.items.get(index as usize)?.clone()));
        VecChanges::Some(changed.into_iter().filter_map(record).collect())
    }

    /// Applies changes; false if they belong to another collection.
    pub fn apply(&mut self, changes: &VecChanges<T>) -> bool {
        match changes {
            VecChanges::All(items) => self.items.clone_from(items),
            VecChanges::Some(changed) => {
                for (index, item) in changed {
                    let next = self.items.len();
                    match self.items.get_mut(*index as usize) {
                        Some(old) => old.clone_from(item),
                        None if *index as usize == next => self.items.push(item.clone()),
                        None => return false,
                    }
                }
            }
        }
        true
    }
}

/// A set of positions that records its changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct TrackedSet {
    all: BTreeSet<u32>,
    #[serde(skip)]
    changed: BTreeSet<u32>,
    #[serde(skip)]
    replaced: bool,
}

/// The changes of a [`TrackedSet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetChanges {
    /// All members, before the other changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<BTreeSet<u32>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    added: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<u32>,
}

impl SetChanges {
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.added.is_empty() && self.removed.is_empty()
    }
}

impl Deref for TrackedSet {
    type Target = BTreeSet<u32>;

    fn deref(&self) -> &BTreeSet<u32> {
        &self.all
    }
}

impl PartialEq for TrackedSet {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for TrackedSet {}

impl TrackedSet {
    pub fn insert(&mut self, member: u32) {
        if self.all.insert(member) {
            self.changed.insert(member);
        }
    }

    /// True if it was a member.
    pub fn remove(&mut self, member: u32) -> bool {
        let was = self.all.remove(&member);
        if was {
            self.changed.insert(member);
        }
        was
    }

    pub fn replace(&mut self, members: impl IntoIterator<Item = u32>) {
        let members: BTreeSet<u32> = members.into_iter().collect();
        if members != self.all {
            self.all = members;
            self.replaced = true;
        }
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> SetChanges {
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.replaced) {
            return SetChanges { all: Some(self.all.clone()), ..SetChanges::default() };
        }
        let (added, removed) = changed.into_iter().partition(|member| self.all.contains(member));
        SetChanges { all: None, added, removed }
    }

    pub fn apply(&mut self, changes: &SetChanges) {
        if let Some(all) = &changes.all {
            self.all.clone_from(all);
        }
        self.all.extend(&changes.added);
        for member in &changes.removed {
            self.all.remove(member);
        }
    }
}

/// A map to which entries are only added, and that records them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct AppendOnlyMap<K: Ord, V> {
    all: BTreeMap<K, V>,
    #[serde(skip, default = "Vec::new")]
    added: Vec<K>,
}

impl<K: Ord, V> Default for AppendOnlyMap<K, V> {
    fn default() -> Self {
        AppendOnlyMap { all: BTreeMap::new(), added: Vec::new() }
    }
}

impl<K: Ord, V> Deref for AppendOnlyMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.all
    }
}

impl<K: Ord, V: PartialEq> PartialEq for AppendOnlyMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl<K: Ord, V: Eq> Eq for AppendOnlyMap<K, V> {}

impl<K: Ord + Clone, V: Clone> AppendOnlyMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        self.added.push(key.clone());
        self.all.insert(key, value);
    }

    /// The entries that were added since the last call.
    pub fn take_changes(&mut self) -> Vec<(K, V)> {
        let added = std::mem::take(&mut self.added);
        added.into_iter().filter_map(|key| self.all.get(&key).cloned().map(|value| (key, value))).collect()
    }

    pub fn apply(&mut self, added: &[(K, V)]) {
        self.all.extend(added.iter().cloned());
    }
}
