//! How the values of a variable on the ranks belong together, for a recovery by another number of ranks than wrote the
//! checkpoint: pure computation.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How the values of a variable on the ranks belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Each rank has a value of its own, which another number of ranks cannot share out.
    #[default]
    Own,
    /// All ranks have the same value.
    Uniform,
    /// The ranks have blocks of one array, in the order of their numbers.
    Block(Block),
}

/// The blocks of an array that is distributed along one dimension. A block is `slices` equally long runs of `unit`
/// bytes, in row-major order: as many runs as the dimensions before the distributed one have elements in all, and in a
/// unit all elements of the dimensions after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Block {
    slices: u64,
    /// Bytes for each index of the distributed dimension.
    unit: u64,
}

/// What one rank wrote and another one reads: a run of bytes of each slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The rank that wrote them.
    pub(super) writer: usize,
    slices: u64,
    /// Bytes of a run.
    bytes: u64,
    /// Where the first run is, and how far the next one is behind it: in the variable of the rank that wrote it.
    from: (u64, u64),
    /// The same in the variable of the rank that reads it.
    to: (u64, u64),
}

/// Bytes that one rank wrote and another one reads. Offsets are in the variable of each, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
}

impl Part {
    /// All bytes, in the order of their offsets.
    pub(super) fn runs(self) -> impl Iterator<Item = Run> {
        let at = |(first, step): (u64, u64), slice: u64| first + slice * step;
        (0..self.slices).map(move |slice| Run { from: at(self.from, slice), to: at(self.to, slice), bytes: self.bytes })
    }
}

impl Block {
    /// The block of an array with a block of this shape, in row-major order, on this rank; elements have `element`
    /// bytes. The size of the distributed dimension is not used: it differs between ranks, and can change.
    ///
    /// # Errors
    /// Why the shape is impossible.
    pub(super) fn of(shape: &[usize], dimension: usize, element: usize) -> Result<Block, String> {
        let dimensions = shape.len();
        let Some((before, [_, after @ ..])) = shape.split_at_checked(dimension) else {
            return Err(format!(
                "an array of {dimensions} dimensions has no dimension {dimension}: they are counted from 0, in \
                 row-major order"
            ));
        };
        let product = |sizes: &[usize]| sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
        let unit = product(after).and_then(|elements| elements.checked_mul(element as u64));
        match (product(before), unit) {
            (Some(0), _) | (_, Some(0)) => {
                Err("only the distributed dimension can have the size 0 on a rank; pass the sizes of the others".into())
            }
            (Some(slices), Some(unit)) if slices.checked_mul(unit).is_some() => Ok(Block { slices, unit }),
            _ => Err("an array of this shape exceeds the address space; check the sizes".into()),
        }
    }

    /// Bytes for each index of the distributed dimension, in all slices.
    pub(super) fn step(self) -> u64 {
        self.slices.saturating_mul(self.unit)
    }

    /// The size of the distributed dimension in a block of this size; `None` if no block has it.
    pub(super) fn length(self, bytes: u64) -> Option<u64> {
        (bytes.checked_rem(self.step())? == 0).then(|| bytes / self.step())
    }

    /// The bytes of a rank's block, where the ranks have equally long ones; the first ones are longer by one where
    /// these are impossible.
    pub(super) fn even_bytes(self, length: u64, rank: u32, ranks: u32) -> u64 {
        let (rank, ranks) = (u64::from(rank), u64::from(ranks.max(1)));
        (length / ranks + u64::from(rank < length % ranks)).saturating_mul(self.step())
    }

    /// From where the block `own` of the array is read: `lengths` are those of the blocks in the checkpoint, by the
    /// rank that wrote them. By writer.
    pub(super) fn parts(self, lengths: &[u64], own: Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut start = 0_u64;
        for (writer, length) in lengths.iter().enumerate() {
            let end = start.saturating_add(*length);
            let common = start.max(own.start)..end.min(own.end);
            if !common.is_empty() {
                parts.push(Part {
                    writer,
                    slices: self.slices,
                    bytes: (common.end - common.start) * self.unit,
                    from: ((common.start - start) * self.unit, length * self.unit),
                    to: ((common.start - own.start) * self.unit, (own.end - own.start) * self.unit),
                });
            }
            start = end;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the block `range` of an array of bytes with this many slices.
    fn block_of(array: &[Vec<u8>], range: &Range<u64>) -> Vec<u8> {
        array.iter().flat_map(|slice| &slice[range.start as usize..range.end as usize]).copied().collect()
    }

    fn ranges(lengths: &[u64]) -> Vec<Range<u64>> {
        let mut start = 0;
        let ranges = lengths.iter().map(|length| {
            start += length;
            start - length..start
        });
        ranges.collect()
    }

    #[test]
    fn any_blocks_are_read_from_any_other_ones() {
        for slices in [1, 3] {
            let array: Vec<Vec<u8>> = (0..slices).map(|slice| (0..10).map(|at| slice * 10 + at).collect()).collect();
            let shape = [usize::from(slices), 0];
            let block = Block::of(&shape, 1, 1).unwrap();
            for written in [&[10][..], &[4, 3, 3], &[0, 9, 0, 1], &[1; 10]] {
                let files: Vec<Vec<u8>> = ranges(written).iter().map(|range| block_of(&array, range)).collect();
                for running in [&[10][..], &[5, 5], &[0, 1, 2, 7], &[1; 10]] {
                    for own in ranges(running) {
                        let mut room = vec![255; block_of(&array, &own).len()];
                        let parts = block.parts(written, own.clone());
                        for (part, run) in parts.iter().flat_map(|part| part.runs().map(move |run| (part, run))) {
                            let [from, to, bytes] = [run.from, run.to, run.bytes].map(|number| number as usize);
                            room[to..to + bytes].copy_from_slice(&files[part.writer][from..from + bytes]);
                        }
                        assert_eq!(room, block_of(&array, &own), "{slices} {written:?} {running:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_shape_gives_slices_and_units() {
        assert_eq!(Block::of(&[5, 7, 3], 0, 8), Ok(Block { slices: 1, unit: 168 }));
        assert_eq!(Block::of(&[5, 0, 3], 1, 8), Ok(Block { slices: 5, unit: 24 }));
        assert_eq!(Block::of(&[5, 7, 3], 2, 8), Ok(Block { slices: 35, unit: 8 }));
        assert!(Block::of(&[5, 7], 2, 8).unwrap_err().contains("2 dimensions has no dimension 2"));
        assert!(Block::of(&[5, 0], 0, 8).unwrap_err().contains("size 0"));
        assert!(Block::of(&[usize::MAX, 1, usize::MAX], 1, 8).unwrap_err().contains("address space"));
    }

    #[test]
    fn even_blocks_have_all_elements_and_only_whole_ones_have_a_length() {
        let block = Block::of(&[2, 0, 3], 1, 1).unwrap();
        let bytes: Vec<u64> = (0..4).map(|rank| block.even_bytes(10, rank, 4)).collect();
        assert_eq!(bytes, [18, 18, 12, 12]);
        assert_eq!((block.length(18), block.length(0), block.length(17)), (Some(3), Some(0), None));
    }
}
