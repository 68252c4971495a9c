//! The tree itself, with the element order of the original list, so that what we write has the original's bytes.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;

use hashbrown::HashTable;

/// From this many elements on, a hash keeps an index of its keys: most hashes have a handful of keys, where a linear
/// search is faster, but a summary has one key per rank.
const INDEXED_FROM: usize = 16;

/// One element: a key and the hash that is its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, unique among its siblings.
    pub key: Box<str>,
    /// The value; empty for a leaf.
    pub value: Tree,
}

/// An ordered hash of hashes (`SCR manual §3`).
///
/// Order follows `docs/scr-files.md` §1: new elements go to the front, setting a sub-hash under an existing key moves
/// the key to the front, writing emits front to back. Readers never depend on it. Equality is order-sensitive; use
/// [`Tree::same_content`] to compare trees whatever their order.
///
/// Looking up, adding and the removal of what was added last take constant time; removing another element of a hash
/// takes time in proportion to its size.
#[derive(Clone, Default)]
pub struct Tree {
    /// None without elements: half of all hashes are the values of leaves, which should take little room.
    content: Option<Box<Content>>,
}

#[derive(Clone, Default)]
struct Content {
    /// Back to front: pushing is prepending, so that a file with many elements is built in linear time.
    reversed: Vec<Element>,
    /// Once there are many. Boxed, because nearly all hashes have none.
    index: Option<Box<Index>>,
}

/// The positions in `reversed` by key. The keys themselves are there only.
#[derive(Clone, Default)]
struct Index {
    positions: HashTable<usize>,
    hasher: RandomState,
}

impl Index {
    fn find(&self, key: &str, reversed: &[Element]) -> Option<usize> {
        self.positions.find(self.hasher.hash_one(key), |at| *reversed[*at].key == *key).copied()
    }

    /// Adds the element at this position, whose key has none yet.
    fn add(&mut self, at: usize, reversed: &[Element]) {
        let hash = |at: &usize| self.hasher.hash_one(&*reversed[*at].key);
        self.positions.insert_unique(hash(&at), at, hash);
    }

    /// Removes the element at this position, before it is removed from `reversed`.
    fn remove(&mut self, at: usize, reversed: &[Element]) {
        if let Ok(found) = self.positions.find_entry(self.hasher.hash_one(&*reversed[at].key), |other| *other == at) {
            found.remove();
        }
        if at + 1 < reversed.len() {
            self.positions.iter_mut().for_each(|position| *position -= usize::from(*position > at));
        }
    }
}

/// A key that two elements of one hash have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key {0:?} comes twice")]
pub(crate) struct DuplicateKey(pub(crate) Box<str>);

impl Tree {
    pub fn new() -> Self {
        Tree::default()
    }

    pub fn len(&self) -> usize {
        self.elements().len()
    }

    /// True for a hash without elements, that is, for a leaf's value.
    pub fn is_empty(&self) -> bool {
        self.elements().is_empty()
    }

    /// The elements, front first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Tree)> + ExactSizeIterator {
        self.elements().iter().rev().map(|element| (&*element.key, &element.value))
    }

    /// The keys, front first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.iter().map(|(key, _)| key)
    }

    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.position(key).map(|at| &self.elements()[at].value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        let at = self.position(key)?;
        self.content.as_mut().map(|content| &mut content.reversed[at].value)
    }

    pub fn path(&self, path: &[&str]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, key| tree.get(key))
    }

    /// The hash under `key`/`value` (`scr_hash_get_kv`).
    pub fn get_kv(&self, key: &str, value: impl fmt::Display) -> Option<&Tree> {
        self.get(key)?.get(&value.to_string())
    }

    /// The hash under `key`/`value`, to change.
    pub fn get_kv_mut(&mut self, key: &str, value: impl fmt::Display) -> Option<&mut Tree> {
        self.get_mut(key)?.get_mut(&value.to_string())
    }

    /// The first value of `key`, as text: how most readers of a single value behave.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.get(key)?.keys().next()
    }

    /// The value of `key` if there is exactly one: how sizes and CRCs are read.
    pub fn single(&self, key: &str) -> Option<&str> {
        let mut keys = self.get(key)?.keys();
        let value = keys.next()?;
        keys.next().is_none().then_some(value)
    }

    /// The first value of `key`, parsed.
    pub fn parsed<T: FromStr>(&self, key: &str) -> Option<T> {
        self.value(key)?.parse().ok()
    }

    /// Sets `key` to `value`, replacing what was there; the key moves to the front (`scr_hash_set`).
    pub fn set(&mut self, key: impl Into<String>, value: Tree) {
        let key = key.into().into_boxed_str();
        self.unset(&key);
        self.content.get_or_insert_default().push_front(Element { key, value });
    }

    /// The hash under `key`, made (at the front) if absent, left in place if present.
    pub fn entry(&mut self, key: impl Into<String>) -> &mut Tree {
        let key = key.into().into_boxed_str();
        let known = self.position(&key);
        let content = self.content.get_or_insert_default();
        let at = known.unwrap_or_else(|| content.push_front(Element { key, value: Tree::new() }));
        &mut content.reversed[at].value
    }

    /// The hash under `key`/`value`, made if absent (`scr_hash_set_kv`). Other values of `key` stay.
    pub fn set_kv(&mut self, key: impl Into<String>, value: impl fmt::Display) -> &mut Tree {
        self.entry(key).entry(value.to_string())
    }

    /// Makes `value` the only value of `key` (unset, then set): the key moves to the front.
    pub fn put(&mut self, key: impl Into<String>, value: impl fmt::Display) {
        let key = key.into().into_boxed_str();
        self.unset(&key);
        self.set_kv(key, value);
    }

    /// Removes `key` and returns whether it existed.
    pub fn unset(&mut self, key: &str) -> bool {
        self.take(key).is_some()
    }

    /// Removes `key` and returns its value.
    pub fn take(&mut self, key: &str) -> Option<Tree> {
        let at = self.position(key)?;
        let content = self.content.as_mut()?;
        if let Some(index) = &mut content.index {
            index.remove(at, &content.reversed);
        }
        Some(content.reversed.remove(at).value)
    }

    /// Removes `value` of `key`, and `key` with its last value (`scr_hash_unset_kv`).
    pub fn unset_kv(&mut self, key: &str, value: impl fmt::Display) -> bool {
        let Some(values) = self.get_mut(key) else { return false };
        let removed = values.unset(&value.to_string());
        if values.is_empty() {
            self.unset(key);
        }
        removed
    }

    /// Copies `other` into this hash, level by level; new keys go to the front, so that merging into an empty hash
    /// reverses the order on every level, as in the original (`scr_hash_merge`).
    pub fn merge(&mut self, other: &Tree) {
        for (key, value) in other.iter() {
            self.entry(key).merge(value);
        }
    }

    /// The same tree with the order reversed on every level: what the other side of an MPI message of the original
    /// has.
    #[must_use]
    pub fn reversed(&self) -> Tree {
        let mut copy = Tree::new();
        copy.merge(self);
        copy
    }

    /// A hash with these elements, the first in front, as a reader makes it that keeps the file's order.
    ///
    /// # Errors
    /// When two of them have one key.
    pub(crate) fn from_front_to_back(mut elements: Vec<Element>) -> Result<Self, DuplicateKey> {
        if elements.is_empty() {
            return Ok(Tree::new());
        }
        elements.reverse();
        let mut content = Content { reversed: elements, index: None };
        let reversed = &content.reversed;
        if reversed.len() >= INDEXED_FROM {
            let mut index = Index::default();
            for (at, element) in reversed.iter().enumerate() {
                if index.find(&element.key, reversed).is_some() {
                    return Err(DuplicateKey(element.key.clone()));
                }
                index.add(at, reversed);
            }
            content.index = Some(Box::new(index));
        } else {
            let earlier = |at: usize, key: &str| reversed[..at].iter().any(|other| *other.key == *key);
            if let Some((_, twice)) = reversed.iter().enumerate().find(|(at, element)| earlier(*at, &element.key)) {
                return Err(DuplicateKey(twice.key.clone()));
            }
        }
        Ok(Tree { content: Some(Box::new(content)) })
    }

    /// True if both have the same content, whatever the order of their elements on any level.
    pub fn same_content(&self, other: &Tree) -> bool {
        self.len() == other.len()
            && self.iter().all(|(key, value)| other.get(key).is_some_and(|theirs| value.same_content(theirs)))
    }

    /// Back to front.
    fn elements(&self) -> &[Element] {
        self.content.as_ref().map_or(&[], |content| &content.reversed)
    }

    fn position(&self, key: &str) -> Option<usize> {
        let Content { reversed, index } = &**self.content.as_ref()?;
        match index {
            Some(index) => index.find(key, reversed),
            // From the front: the element that was set last is usually read next.
            None => reversed.iter().rposition(|element| *element.key == *key),
        }
    }
}

impl Content {
    /// Adds an element whose key is new; returns its position.
    fn push_front(&mut self, element: Element) -> usize {
        let at = self.reversed.len();
        self.reversed.push(element);
        if let Some(index) = &mut self.index {
            index.add(at, &self.reversed);
        } else if self.reversed.len() >= INDEXED_FROM {
            let index = self.index.insert(Box::default());
            (0..=at).for_each(|at| index.add(at, &self.reversed));
        }
        at
    }
}

impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        // The index is derived from the elements.
        self.elements() == other.elements()
    }
}

impl Eq for Tree {}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(tree: &Tree) -> Vec<&str> {
        tree.keys().collect()
    }

    #[test]
    fn a_new_key_goes_to_the_front_and_setting_an_existing_pair_changes_nothing() {
        let mut tree = Tree::new();
        tree.set_kv("A", 1);
        tree.set_kv("B", 2);
        tree.set_kv("A", 1);
        assert_eq!(keys(&tree), ["B", "A"]);
        tree.set_kv("A", 3);
        assert_eq!(keys(tree.get("A").unwrap()), ["3", "1"]);
        assert_eq!(tree.single("A"), None);
        assert_eq!(tree.value("A"), Some("3"));
    }

    #[test]
    fn putting_and_setting_a_sub_hash_move_the_key_to_the_front() {
        let mut tree = Tree::new();
        tree.set_kv("A", 1);
        tree.set_kv("B", 2);
        tree.put("A", 1);
        assert_eq!(keys(&tree), ["A", "B"]);
        tree.set("B", Tree::new());
        assert_eq!(keys(&tree), ["B", "A"]);
    }

    #[test]
    fn merging_into_an_empty_hash_reverses_every_level() {
        let mut tree = Tree::new();
        tree.set_kv("A", 1);
        tree.set_kv("B", 2);
        tree.set_kv("B", 3);
        let reversed = tree.reversed();
        assert_eq!(keys(&reversed), ["A", "B"]);
        assert_eq!(keys(reversed.get("B").unwrap()), ["2", "3"]);
        assert!(reversed.same_content(&tree));
        assert_ne!(reversed, tree);
        assert_eq!(reversed.reversed(), tree);
    }

    #[test]
    fn a_large_hash_keeps_order_and_content_through_every_operation() {
        // The same operations on a plain list, which is the model.
        let mut tree = Tree::new();
        let mut model: Vec<String> = Vec::new();
        let mut dice = holdfast_testkit::Dice(7);
        for step in 0..5000_u64 {
            let key = dice.below(60).to_string();
            match step % 5 {
                0 | 1 => {
                    tree.entry(key.clone());
                    if !model.contains(&key) {
                        model.insert(0, key);
                    }
                }
                2 | 3 => {
                    tree.put(key.clone(), step);
                    model.retain(|other| *other != key);
                    model.insert(0, key);
                }
                _ => {
                    assert_eq!(tree.unset(&key), model.contains(&key));
                    model.retain(|other| *other != key);
                }
            }
            assert_eq!(keys(&tree), model);
            assert!(model.iter().all(|key| tree.get(key).is_some()));
        }
    }

    #[test]
    fn removing_the_last_value_of_a_key_removes_the_key() {
        let mut tree = Tree::new();
        tree.set_kv("FILE", "a");
        tree.set_kv("FILE", "b");
        assert!(tree.unset_kv("FILE", "a"));
        assert!(!tree.unset_kv("FILE", "a"));
        assert!(tree.get("FILE").is_some());
        assert!(tree.unset_kv("FILE", "b"));
        assert!(tree.is_empty());
    }

    #[test]
    fn a_hundred_thousand_keys_are_set_and_found_through_the_index() {
        // Quadratic look-ups would need ten thousand million comparisons, which no test run would finish.
        let mut tree = Tree::new();
        for rank in 0..100_000 {
            tree.set_kv("RANK", rank).put("SIZE", rank);
        }
        assert!(
            (0..100_000).all(|rank| tree.get_kv("RANK", rank).and_then(|values| values.parsed("SIZE")) == Some(rank))
        );
    }
}
