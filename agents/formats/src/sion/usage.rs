//! The usage of a task: the bytes that it wrote to each of its chunks.

/// The bytes that a task wrote to each of its chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Run-length encoded: number of chunks, and bytes in each of them.
    runs: Vec<(u64, u64)>,
}

/// The usage of a task with these bytes in its chunks.
impl FromIterator<u64> for Usage {
    fn from_iter<I: IntoIterator<Item = u64>>(chunks: I) -> Usage {
        let mut usage = Usage::default();
        for bytes in chunks {
            usage.push_run(1, bytes);
        }
        usage
    }
}

impl Usage {
    /// The usage of a stream of this many bytes that fills all its chunks, which have this size.
    pub fn filled(bytes: u64, chunk_size: u64) -> Usage {
        let mut usage = Usage::default();
        if let (Some(full), Some(rest)) = (bytes.checked_div(chunk_size), bytes.checked_rem(chunk_size)) {
            usage.push_run(full, chunk_size);
            usage.push_run(u64::from(rest > 0), rest);
        }
        usage
    }

    /// The same usage behind this many chunks without bytes.
    pub(super) fn after_empty(self, chunks: u64) -> Usage {
        if self.runs.is_empty() {
            return self;
        }
        let mut usage = Usage::default();
        usage.push_run(chunks, 0);
        for (count, bytes) in self.runs {
            usage.push_run(count, bytes);
        }
        usage
    }

    /// Number of chunks; at least one, also for an empty stream.
    pub fn chunks(&self) -> u64 {
        self.used().max(1)
    }

    /// Bytes of the stream.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(count, bytes)| count.saturating_mul(*bytes)).fold(0, u64::saturating_add)
    }

    pub(super) fn used(&self) -> u64 {
        self.runs.iter().map(|(count, _)| *count).fold(0, u64::saturating_add)
    }

    pub(super) fn push_run(&mut self, count: u64, bytes: u64) {
        match self.runs.last_mut() {
            _ if count == 0 => {}
            Some((last, same)) if *same == bytes => *last = last.saturating_add(count),
            _ => self.runs.push((count, bytes)),
        }
    }

    /// Number of chunks, and bytes in each of them.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().copied()
    }

    /// Removes the empty chunks at the end, except for the first chunk.
    pub(super) fn trim(&mut self) {
        while self.runs.last().is_some_and(|(_, bytes)| *bytes == 0) {
            self.runs.pop();
        }
        if self.runs.is_empty() {
            self.push_run(1, 0);
        }
    }

    /// The bytes of each chunk; one empty chunk for an empty stream.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let nothing = (self.used() == 0).then_some(0);
        let runs = self.runs.iter().flat_map(|(count, bytes)| (0..*count).map(|_| *bytes));
        runs.chain(nothing)
    }
}
