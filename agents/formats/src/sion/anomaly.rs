//! Anomalies of a container that do not prevent reading its data.

use std::path::PathBuf;

use crate::hex::hex;

/// An anomaly that does not prevent reading the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Anomaly {
    /// A format version newer than the known ones.
    #[error("its format version {0} is newer than 5; it was read as 5")]
    NewerFormat(i32),
    /// The byte order field has a value that no writer stores.
    #[error("its byte order field {} has a value that no writer stores; only bit 0 of each byte was used", hex(field))]
    ByteOrderField { field: [u8; 4] },
    /// The prefix fills its field, without a terminating zero.
    #[error("its prefix is not terminated")]
    PrefixUnterminated,
    /// The flags contain no key-value mode, although format 5 has a value for plain streams.
    #[error("it has no key-value mode; it was read as plain streams")]
    NoKeyValueMode,
    #[error("{bytes} bytes follow its end")]
    TrailingBytes { bytes: u64 },
    /// A chunk count of zero: writers store at least one.
    #[error("the chunk count of task {task}{} is zero; writers store at least one", and_more(*more, "tasks"))]
    NoChunk { task: usize, more: usize },
    #[error(
        "global rank {rank}{} is stored for more than one task; only their index distinguishes them",
        and_more(*more, "ranks")
    )]
    RankTwice { rank: i64, more: usize },
    #[error("it is file {number} of a set of {files} and was opened alone: only its own tasks are included")]
    PartAlone { number: i32, files: u32 },
    /// The head is not closed or the tail is lost, and the byte counts were estimated from the content.
    #[error("its byte counts are lost; each chunk was assumed to end at its last byte that is not zero")]
    CountsEstimated,
    /// The head is not closed or the tail is lost, and the lengths of the streams were determined from their records.
    #[error("its byte counts are lost; the length of each stream was determined from its records")]
    CountsFromRecords,
    /// The head was never closed, but the byte counts are at the end of the file.
    #[error("its head was never closed, but its byte counts were found at the end")]
    TailFound,
    /// A file of the set could not be used for recovery.
    #[error("file {number} of its {files} could not be recovered: {reason}")]
    PartLost { number: u32, files: u32, reason: String },
    /// The mapping is unusable; tasks are in the order of their stored ranks, or of the files.
    #[error("its mapping is lost; tasks are in the order of their stored ranks")]
    MappingLost,
}

impl Anomaly {
    /// A stable identifier for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Anomaly::NewerFormat(_) => "newer-format",
            Anomaly::ByteOrderField { .. } | Anomaly::PrefixUnterminated | Anomaly::NoKeyValueMode => "head",
            Anomaly::TrailingBytes { .. } => "trailing",
            Anomaly::NoChunk { .. } => "byte-counts",
            Anomaly::RankTwice { .. } => "rank-twice",
            Anomaly::PartAlone { .. } => "part-alone",
            Anomaly::CountsEstimated | Anomaly::CountsFromRecords | Anomaly::TailFound => "recovered",
            Anomaly::PartLost { .. } => "set",
            Anomaly::MappingLost => "mapping",
        }
    }

    /// True if the recovered data may be incomplete.
    pub fn is_loss(&self) -> bool {
        matches!(self, Anomaly::CountsEstimated | Anomaly::CountsFromRecords | Anomaly::PartLost { .. })
    }
}

/// ` (and 3 more tasks)`.
fn and_more(more: usize, what: &str) -> String {
    if more == 0 { String::new() } else { format!(" (and {more} more {what})") }
}

/// An [`Anomaly`] and its physical file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {anomaly}", path.display())]
pub struct Warning {
    pub path: PathBuf,
    pub anomaly: Anomaly,
}
