//! The sizes of chunks in a file, from the sizes that the tasks requested (`docs/formats.md`, SION 4).

use super::layout::align;

/// How chunks are padded to blocks of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Padding {
    /// Each chunk is.
    #[default]
    Each,
    /// The last chunk of each group of consecutive tasks is, as in SIONlib's collective mode: a group is what one
    /// process would write. `None`: SIONlib's default for the number of groups.
    Groups { tasks: Option<u32> },
}

/// SIONlib's largest numbers of groups by default: from so many tasks on, so many groups.
const MOST_GROUPS: [(usize, u64); 6] = [(512, 32), (256, 16), (128, 8), (64, 8), (32, 8), (16, 4)];

impl Padding {
    /// The sizes with padding; `None` beyond the largest file size. `unit` is the size of a block.
    pub(super) fn padded(self, requested: impl Iterator<Item = u64>, unit: u64) -> Option<Vec<u64>> {
        match self {
            Padding::Each => requested.map(|size| align(size, unit)).collect(),
            Padding::Groups { tasks } => grouped(requested.collect(), unit, tasks),
        }
    }
}

/// Pads the last task of each group, so that the next group begins with a block.
fn grouped(mut sizes: Vec<u64>, unit: u64, tasks: Option<u32>) -> Option<Vec<u64>> {
    let sum = sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size))?;
    let most = sum.div_ceil(unit).max(1);
    let number = sizes.len() as u64;
    let groups = match tasks {
        Some(tasks) => number.div_ceil(u64::from(tasks.max(1))).min(most),
        None => {
            let limit = MOST_GROUPS.iter().find(|(tasks, _)| sizes.len() >= *tasks).map_or(u64::MAX, |(_, most)| *most);
            most.min(number).min(limit)
        }
    };
    let largest = align(sum / groups.max(1), unit)?;
    let mut group = 0_u64;
    let mut last: Option<&mut u64> = None;
    for size in &mut sizes {
        let requested = *size;
        match &mut last {
            Some(_) if group.checked_add(requested)? <= largest => group += requested,
            Some(last) => {
                **last += align(group, unit)? - group;
                group = requested;
            }
            None => group = requested,
        }
        last = Some(size);
    }
    if let Some(last) = last {
        *last += align(group, unit)? - group;
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(padding: Padding, sizes: &[u64]) -> Vec<u64> {
        padding.padded(sizes.iter().copied(), 512).unwrap()
    }

    #[test]
    fn the_last_chunk_of_each_group_is_padded() {
        let sizes = [200, 300, 100, 200, 300, 100, 200, 300];
        let groups = Padding::Groups { tasks: Some(3) };
        // As in SIONlib's file coll8.
        assert_eq!(of(groups, &sizes), [200, 300, 100, 424, 300, 100, 200, 424]);
        assert_eq!(of(Padding::Each, &[0, 1, 512]), [0, 512, 512]);
        assert_eq!(of(groups, &[0, 0]), [0, 0]);
        // A chunk that is larger than a group on the average is a group of its own.
        assert_eq!(of(Padding::Groups { tasks: Some(1) }, &[5000, 10, 10]), [5120, 10, 502]);
    }

    #[test]
    fn number_of_groups_is_limited_by_default() {
        let alone = of(Padding::Groups { tasks: None }, &[600; 15]);
        assert_eq!(alone, [1024; 15]);
        // Four groups of 16 tasks, at most.
        let grouped = of(Padding::Groups { tasks: None }, &[600; 16]);
        assert_eq!(grouped.iter().filter(|size| **size != 600).count(), 4, "{grouped:?}");
        assert_eq!(Padding::Groups { tasks: None }.padded([u64::MAX, 1].into_iter(), 512), None);
    }
}
