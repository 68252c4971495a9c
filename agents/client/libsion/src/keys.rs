//! The records of a task, and the position of each key in its records.
//!
//! A key has a current record and a position in it. The functions of SIONlib read from there, seek there, or go through
//! all records in the order of writing, each of which then becomes the current record of its key.

use std::collections::HashMap;

use holdfast_formats::sion::Record;

/// Where to go in the records of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// This position in the current record.
    InCurrent(u64),
    /// This position in the record of this number, among those of the key.
    InRecord { number: usize, position: u64 },
    /// This position in the value of the key: all its records.
    InValue(u64),
}

/// The records of a task.
#[derive(Debug, Default)]
pub struct Keys {
    records: Vec<Record>,
    keys: HashMap<u64, Key>,
    /// In the order of their first records.
    order: Vec<u64>,
    /// The next record, and the next key, of the iterators.
    next_record: usize,
    next_key: usize,
}

#[derive(Debug, Default)]
struct Key {
    /// Indexes of its records.
    records: Vec<usize>,
    /// The current one, among its records; their number at the end.
    current: usize,
    /// The position in the current one.
    inside: u64,
    /// The bytes of all.
    bytes: u64,
}

/// A piece of a stream: of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub bytes: u64,
}

impl Keys {
    /// Adds the next record of the stream.
    pub fn push(&mut self, record: Record) {
        let key = self.keys.entry(record.key).or_default();
        if key.records.is_empty() {
            self.order.push(record.key);
        }
        key.records.push(self.records.len());
        key.bytes = key.bytes.saturating_add(record.length);
        self.records.push(record);
    }

    fn record(&self, key: &Key, number: usize) -> Option<Record> {
        key.records.get(number).and_then(|index| self.records.get(*index)).copied()
    }

    /// What is left of the key's current record, skipping empty ones; `None` at the end, and for a key that is not
    /// there.
    pub fn left(&mut self, key: u64) -> Option<Piece> {
        let state = self.keys.get(&key)?;
        let (mut number, mut inside) = (state.current, state.inside);
        let piece = loop {
            let record = self.record(state, number)?;
            if record.length > inside {
                break Piece { offset: record.offset + inside, bytes: record.length - inside };
            }
            (number, inside) = (number + 1, 0);
        };
        let state = self.keys.get_mut(&key)?;
        (state.current, state.inside) = (number, inside);
        Some(piece)
    }

    /// So many bytes of the current record were read. At its end, the next one becomes the current one.
    pub fn advance(&mut self, key: u64, bytes: u64) {
        let Some(state) = self.keys.get(&key) else { return };
        let inside = state.inside.saturating_add(bytes);
        let ends = self.record(state, state.current).is_none_or(|record| inside >= record.length);
        if let Some(state) = self.keys.get_mut(&key) {
            (state.current, state.inside) = if ends { (state.current + 1, 0) } else { (state.current, inside) };
        }
    }

    /// Goes to a place in a key. Returns its offset in the stream; `None` if there is no such place.
    pub fn seek(&mut self, key: u64, place: KeyPlace) -> Option<u64> {
        let state = self.keys.get(&key)?;
        let (number, inside) = match place {
            KeyPlace::InCurrent(position) => (state.current, position),
            KeyPlace::InRecord { number, position } => (number, position),
            KeyPlace::InValue(position) => {
                let mut left = position;
                let lengths = (0..state.records.len()).map_while(|number| Some(self.record(state, number)?.length));
                let number = lengths.take_while(|length| {
                    let after = left >= *length;
                    left = if after { left - length } else { left };
                    after
                });
                (number.count(), left)
            }
        };
        let record = self.record(state, number).filter(|record| inside < record.length)?;
        let state = self.keys.get_mut(&key)?;
        (state.current, state.inside) = (number, inside);
        Some(record.offset + inside)
    }

    /// The place at which the key is read next; `None` at its end, and for a key that is not there.
    pub fn position(&self, key: u64) -> Option<u64> {
        let state = self.keys.get(&key)?;
        self.record(state, state.current).map(|record| record.offset + state.inside)
    }

    /// The next record of the task, which becomes the current one of its key.
    pub fn next_record(&mut self) -> Option<Record> {
        let index = self.next_record;
        let record = *self.records.get(index)?;
        self.next_record += 1;
        let state = self.keys.get_mut(&record.key)?;
        let number = state.records.partition_point(|its| *its < index);
        (state.current, state.inside) = (number, 0);
        Some(record)
    }

    pub fn reset_records(&mut self) {
        self.next_record = 0;
    }

    pub fn next_key(&mut self) -> Option<u64> {
        let key = *self.order.get(self.next_key)?;
        self.next_key += 1;
        Some(key)
    }

    pub fn reset_keys(&mut self) {
        self.next_key = 0;
    }

    /// The number of records of a key, and their bytes; `None` for a key that is not there.
    pub fn statistics(&self, key: u64) -> Option<(usize, u64)> {
        self.keys.get(&key).map(|state| (state.records.len(), state.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key 7 has records of 3, 0 and 4 bytes, key 9 one of 2 bytes in between.
    fn keys() -> Keys {
        let mut keys = Keys::default();
        for (key, offset, length) in [(7, 16, 3), (9, 35, 2), (7, 53, 0), (7, 69, 4)] {
            keys.push(Record { key, offset, length });
        }
        keys
    }

    #[test]
    fn key_is_read_record_by_record() {
        let mut keys = keys();
        assert_eq!(keys.left(7), Some(Piece { offset: 16, bytes: 3 }));
        keys.advance(7, 2);
        assert_eq!(keys.left(7), Some(Piece { offset: 18, bytes: 1 }));
        keys.advance(7, 1);
        assert_eq!(keys.left(7), Some(Piece { offset: 69, bytes: 4 }), "the empty record is skipped");
        keys.advance(7, 4);
        assert_eq!((keys.left(7), keys.left(8)), (None, None));
        assert_eq!(keys.left(9), Some(Piece { offset: 35, bytes: 2 }), "each key has its own position");
        assert_eq!((keys.statistics(7), keys.statistics(8)), (Some((3, 7)), None));
    }

    #[test]
    fn seek_finds_positions_in_records_and_in_values() {
        let mut keys = keys();
        assert_eq!(keys.seek(7, KeyPlace::InRecord { number: 2, position: 1 }), Some(70));
        assert_eq!(keys.seek(7, KeyPlace::InCurrent(3)), Some(72));
        assert_eq!(keys.seek(7, KeyPlace::InValue(2)), Some(18));
        assert_eq!(keys.seek(7, KeyPlace::InValue(3)), Some(69));
        assert_eq!(keys.left(7), Some(Piece { offset: 69, bytes: 4 }));
        for nowhere in [
            KeyPlace::InValue(7),
            KeyPlace::InRecord { number: 1, position: 0 },
            KeyPlace::InRecord { number: 3, position: 0 },
            KeyPlace::InCurrent(4),
        ] {
            assert_eq!(keys.seek(7, nowhere), None, "{nowhere:?}");
        }
        assert_eq!(keys.position(7), Some(69), "a place that is not there changes nothing");
    }

    #[test]
    fn iterators_go_through_records_and_keys() {
        let mut keys = keys();
        let order: Vec<(u64, u64)> =
            std::iter::from_fn(|| keys.next_record()).map(|record| (record.key, record.length)).collect();
        assert_eq!(order, [(7, 3), (9, 2), (7, 0), (7, 4)]);
        assert_eq!(keys.position(7), Some(69), "the last record of the key is its current one");
        keys.reset_records();
        assert_eq!(keys.next_record().map(|record| record.offset), Some(16));
        assert_eq!([keys.next_key(), keys.next_key(), keys.next_key()], [Some(7), Some(9), None]);
        keys.reset_keys();
        assert_eq!(keys.next_key(), Some(7));
    }
}
