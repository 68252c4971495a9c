//! The tree itself, with the element order of the original list, so that what we write has the original's bytes.

use std::fmt;
use std::str::FromStr;

/// One element: a key and the hash that is its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, unique among its siblings.
    pub key: String,
    /// The value; empty for a leaf.
    pub value: Tree,
}

/// An ordered hash of hashes (`SCR manual §3`).
///
/// Order follows `FORMATS.md` §1: new elements go to the front, setting a sub-hash under an existing key moves the
/// key to the front, writing emits front to back. Readers never depend on it. Equality is order-sensitive; use
/// [`Tree::same_content`] to compare what two trees say.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Back to front: pushing is prepending, so that a file with many elements is built in linear time.
    reversed: Vec<Element>,
}

impl Tree {
    /// An empty hash.
    pub fn new() -> Self {
        Tree::default()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.reversed.len()
    }

    /// True for a hash without elements, that is, for a leaf's value.
    pub fn is_empty(&self) -> bool {
        self.reversed.is_empty()
    }

    /// The elements, front first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Tree)> + ExactSizeIterator {
        self.reversed.iter().rev().map(|element| (element.key.as_str(), &element.value))
    }

    /// The keys, front first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.iter().map(|(key, _)| key)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.position(key).map(|at| &self.reversed[at].value)
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        self.position(key).map(|at| &mut self.reversed[at].value)
    }

    /// Follows a path of keys.
    pub fn path(&self, path: &[&str]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, key| tree.get(key))
    }

    /// The hash under `key`/`value` (`scr_hash_get_kv`).
    pub fn get_kv(&self, key: &str, value: impl fmt::Display) -> Option<&Tree> {
        self.get(key)?.get(&value.to_string())
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
        let key = key.into();
        self.unset(&key);
        self.reversed.push(Element { key, value });
    }

    /// The hash under `key`, made (at the front) if absent, left in place if present.
    pub fn entry(&mut self, key: impl Into<String>) -> &mut Tree {
        let key = key.into();
        let at = match self.position(&key) {
            Some(at) => at,
            None => {
                self.reversed.push(Element { key, value: Tree::new() });
                self.reversed.len() - 1
            }
        };
        &mut self.reversed[at].value
    }

    /// The hash under `key`/`value`, made if absent (`scr_hash_set_kv`). Other values of `key` stay.
    pub fn set_kv(&mut self, key: impl Into<String>, value: impl fmt::Display) -> &mut Tree {
        self.entry(key).entry(value.to_string())
    }

    /// Makes `value` the only value of `key` (unset, then set): the key moves to the front.
    pub fn put(&mut self, key: impl Into<String>, value: impl fmt::Display) {
        let key = key.into();
        self.unset(&key);
        self.set_kv(key, value);
    }

    /// Removes `key`; says whether it was there.
    pub fn unset(&mut self, key: &str) -> bool {
        match self.position(key) {
            Some(at) => {
                self.reversed.remove(at);
                true
            }
            None => false,
        }
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

    /// Adds an element at the back, as a reader does that keeps the file's order. The caller knows that the key is new.
    pub(crate) fn from_front_to_back(mut elements: Vec<Element>) -> Self {
        elements.reverse();
        Tree { reversed: elements }
    }

    /// True if both say the same, whatever the order of their elements on any level.
    pub fn same_content(&self, other: &Tree) -> bool {
        self.len() == other.len()
            && self.iter().all(|(key, value)| other.get(key).is_some_and(|theirs| value.same_content(theirs)))
    }

    fn position(&self, key: &str) -> Option<usize> {
        // From the front: what was set last is what is asked for next.
        self.reversed.iter().rposition(|element| element.key == key)
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
