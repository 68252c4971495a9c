//! The order of copies that only some ranks may make at a time (`SCR_FLUSH_WIDTH`, `SCR_FETCH_WIDTH`).

/// How many nodes copy at a time, and how many files each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waves {
    pub(super) nodes_at_a_time: usize,
    pub(super) files_on_a_node: u32,
}

impl Waves {
    /// Shares `width` copies among the nodes; if there are more nodes, they take turns, each with one copy.
    pub(super) fn of(width: u32, nodes: usize) -> Waves {
        let nodes_at_a_time = usize::try_from(width).unwrap_or(usize::MAX).clamp(1, nodes.max(1));
        let files_on_a_node = (width / u32::try_from(nodes_at_a_time).unwrap_or(u32::MAX)).max(1);
        Waves { nodes_at_a_time, files_on_a_node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_a_time_never_exceed_the_width() {
        let of = |width, nodes| {
            let Waves { nodes_at_a_time, files_on_a_node } = Waves::of(width, nodes);
            (nodes_at_a_time, files_on_a_node)
        };
        assert_eq!([of(256, 4), of(256, 100), of(256, 1000)], [(4, 64), (100, 2), (256, 1)]);
        assert_eq!([of(1, 4), of(6, 4), of(0, 4), of(3, 0)], [(1, 1), (4, 1), (1, 1), (1, 3)]);
    }
}
