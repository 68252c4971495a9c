//! The bytes of a planned file that are not of its tasks: the head, and what is written when it is closed.

use super::input_mismatch::InputMismatch;
use super::layout::head_end;
use super::planned_file::PlannedFile;
use super::tables::table_bytes;
use super::usage::Usage;

impl PlannedFile {
    /// The head, as it is at the start of the file until it is closed.
    pub fn head(&self) -> Vec<u8> {
        self.header.encode()
    }

    /// What is to be written when all tasks have written, with the offsets in the file, in this order: the byte counts
    /// with the mapping, and the last fields of the head. `usages` has one entry per task of the file.
    ///
    /// # Errors
    /// When a usage does not fit the plan, or no reader would accept the table of byte counts.
    pub fn closing(&self, usages: &[Usage]) -> Result<[(u64, Vec<u8>); 2], InputMismatch> {
        let tasks = self.layout.tasks();
        if usages.len() != tasks {
            return Err(InputMismatch::Reports { reported: usages.len(), tasks });
        }
        let blocks = usages.iter().map(Usage::chunks).max().unwrap_or(1);
        let count = u32::try_from(blocks).ok().filter(|count| i32::try_from(*count).is_ok());
        let count = count.ok_or(InputMismatch::TooManyChunks { chunks: blocks })?;
        let bytes = table_bytes(tasks as u64, blocks).map_err(InputMismatch::Table)?;
        let tail = self.layout.tail(blocks).ok_or(InputMismatch::TooLarge)?;
        for (task, usage) in usages.iter().enumerate() {
            let size = self.layout.chunk_size(task);
            if let Some(bytes) = usage.iter().find(|bytes| *bytes > size) {
                return Err(InputMismatch::Report { task, bytes, size });
            }
        }
        let table = self.table(usages, blocks, usize::try_from(bytes).unwrap_or(0));
        let closing = self.header.encode_closing(count, tail);
        let head_end = head_end(tasks as u64).unwrap_or(0);
        Ok([(tail, table), (head_end.saturating_sub(closing.len() as u64), closing)])
    }

    /// The byte counts of this many blocks, and the mapping.
    fn table(&self, usages: &[Usage], blocks: u64, capacity: usize) -> Vec<u8> {
        let order = self.header.byte_order;
        let mut out = Vec::with_capacity(capacity);
        for usage in usages {
            order.put_i64(&mut out, usage.chunks().cast_signed());
        }
        let mut rows: Vec<_> = usages.iter().map(|usage| usage.iter()).collect();
        for _ in 0..blocks {
            for row in &mut rows {
                order.put_i64(&mut out, row.next().map_or(self.unused_mark, u64::cast_signed));
            }
        }
        if let Some(mapping) = &self.mapping {
            order.put_i32(&mut out, i32::try_from(mapping.len()).unwrap_or(i32::MAX));
            for number in mapping.iter().flat_map(|slot| [slot.part, slot.local]) {
                order.put_i32(&mut out, i32::try_from(number).unwrap_or(i32::MAX));
            }
        }
        out
    }
}
