//! What is odd about a container and does not keep its data from being read.

use std::path::PathBuf;

/// Something odd that does not keep the data from being read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Anomaly {
    /// A format newer than those known.
    #[error("its format version {0} is newer than 5; it was read as 5")]
    NewerFormat(i32),
    /// The word that holds the byte orders is none that a writer leaves.
    #[error("its byte order word {} is none that a writer leaves; only its first bits were used", hex(word))]
    ByteOrderWord {
        /// The four bytes.
        word: [u8; 4],
    },
    /// The prefix fills its field.
    #[error("its prefix field has no end")]
    PrefixUnterminated,
    /// The flags say no key-value mode at all, which format 5 has a value for.
    #[error("it names no key-value mode; it was read as plain streams")]
    NoKeyValueMode,
    /// Bytes behind the end.
    #[error("{bytes} bytes follow its end")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// Zero chunks, where writers count at least one.
    #[error("task {task} has no chunk at all, where writers count at least one")]
    NoChunk {
        /// Local rank.
        task: usize,
    },
    /// Two tasks with one global rank.
    #[error("global rank {rank} is stored for more than one task; they can be told apart by their index only")]
    RankTwice {
        /// The rank.
        rank: i64,
    },
    /// One file of a set, opened alone.
    #[error("it is file {number} of a set of {files} and was opened alone: only its own tasks are seen")]
    PartAlone {
        /// Its number.
        number: i32,
        /// Files of the set.
        files: u32,
    },
    /// The head is not closed or the tail is gone, and the byte counts are what the content suggests.
    #[error("its byte counts are lost; each chunk was taken to end at its last byte that is not zero")]
    CountsEstimated,
    /// The head is not closed or the tail is gone, and the records themselves say how long the streams are.
    #[error("its byte counts are lost; each stream was followed record by record")]
    CountsFromRecords,
    /// The head was never closed, yet the byte counts are at the end of the file.
    #[error("its head was never closed, but its byte counts were found at the end")]
    TailFound,
    /// A file of the set could not be used for recovery.
    #[error("file {number} of its {files} could not be recovered: {reason}")]
    PartLost {
        /// Its number.
        number: u32,
        /// Files of the set.
        files: u32,
        /// Why.
        reason: String,
    },
    /// The mapping could not be used; tasks stand in the order of their stored ranks, or of the files.
    #[error("its mapping is lost; tasks stand in the order of their stored ranks")]
    MappingLost,
}

impl Anomaly {
    /// A stable name of its kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Anomaly::NewerFormat(_) => "newer-format",
            Anomaly::ByteOrderWord { .. } | Anomaly::PrefixUnterminated | Anomaly::NoKeyValueMode => "head",
            Anomaly::TrailingBytes { .. } => "trailing",
            Anomaly::NoChunk { .. } => "byte-counts",
            Anomaly::RankTwice { .. } => "rank-twice",
            Anomaly::PartAlone { .. } => "part-alone",
            Anomaly::CountsEstimated | Anomaly::CountsFromRecords | Anomaly::TailFound => "recovered",
            Anomaly::PartLost { .. } => "set",
            Anomaly::MappingLost => "mapping",
        }
    }

    /// True when data may be missing or cut: the container was recovered with less than certainty.
    pub fn is_loss(&self) -> bool {
        matches!(self, Anomaly::CountsEstimated | Anomaly::CountsFromRecords | Anomaly::PartLost { .. })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An [`Anomaly`] and the physical file it was found in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {anomaly}", path.display())]
pub struct Warning {
    /// The physical file.
    pub path: PathBuf,
    /// What is odd.
    pub anomaly: Anomaly,
}
