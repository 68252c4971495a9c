//! One rank's checkpoint files: the rows of its slab in one or more files.
//!
//! Each file is a header, some rows, and the CRC32 of both; numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `HEATCKPT` |
//! | 8..12 | version, 1 |
//! | 12..16, 16..20 | rank, ranks |
//! | 20..24 | CRC32 of the initial field: identifies the problem |
//! | 24..32 | step |
//! | 32..40, 40..48 | columns and rows of the field |
//! | 48..56, 56..64 | first row and number of rows in this file |
//! | 64.. | the rows |
//! | last 4 | CRC32 of everything before |

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use holdfast_client::Rank;

use crate::field::{from_bytes, to_bytes};
use crate::geometry::Size;
use crate::slab::Slab;

const MAGIC: &[u8; 8] = b"HEATCKPT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const CRC_BYTES: usize = 4;

/// The rank and the problem that a checkpoint file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub rank: Rank,
    /// Ranks of the run.
    pub ranks: u32,
    /// CRC32 of the initial field.
    pub origin: u32,
}

/// Why checkpoint files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A file could not be read.
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// The content of a file is wrong.
    #[error("{path}: {problem}")]
    Wrong { path: PathBuf, problem: String },
    /// The files do not make up one slab of one step.
    #[error("{0}")]
    Incomplete(String),
}

/// The names of a rank's checkpoint files.
pub fn names(rank: Rank, files: u32) -> Vec<String> {
    if files == 1 {
        return vec![format!("rank_{rank}.ckpt")];
    }
    (0..files).map(|part| format!("rank_{rank}.{part}.ckpt")).collect()
}

/// The rows of each file, relative to the slab; empty ranges if there are more files than rows.
pub fn shares(rows: usize, files: u32) -> Vec<Range<usize>> {
    let files = files as usize;
    (0..files).map(|part| part * rows / files..(part + 1) * rows / files).collect()
}

/// Writes rows (relative to the slab) to a file.
pub fn write(path: &Path, owner: Owner, slab: &Slab, share: Range<usize>) -> io::Result<()> {
    let Size { width, height } = slab.size();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + share.len() * slab.size().row_bytes() + CRC_BYTES);
    bytes.extend_from_slice(MAGIC);
    for u32_at in [VERSION, owner.rank.0, owner.ranks, owner.origin] {
        bytes.extend_from_slice(&u32_at.to_le_bytes());
    }
    let first = (slab.rows().start + share.start) as u64;
    for u64_at in [slab.step(), width as u64, height as u64, first, share.len() as u64] {
        bytes.extend_from_slice(&u64_at.to_le_bytes());
    }
    bytes.extend_from_slice(&to_bytes(&slab.cells()[share.start * width..share.end * width]));
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    // Not synchronised: files in the cache must survive the process, not the node. Redundancy protects against that.
    File::create(path)?.write_all(&bytes)
}

struct FileRows {
    path: PathBuf,
    step: u64,
    first: usize,
    count: usize,
    bytes: Vec<u8>,
}

/// Reads a rank's files into its slab. The slab is changed only if the files are all its rows at one step.
pub fn read(paths: &[PathBuf], owner: Owner, slab: &mut Slab) -> Result<(), Damage> {
    let mut parts = paths.iter().map(|path| read_file(path, owner, slab)).collect::<Result<Vec<_>, _>>()?;
    parts.sort_by_key(|part| (part.first, part.count));
    let Some(step) = parts.first().map(|part| part.step) else {
        return Err(Damage::Incomplete("there are no files".to_owned()));
    };
    let mut next = slab.rows().start;
    for part in &parts {
        if part.step != step {
            let problem = format!("its step is {}, that of another file is {step}", part.step);
            return Err(Damage::Wrong { path: part.path.clone(), problem });
        }
        if part.first != next {
            let problem = format!("row {next} was expected, this file begins with row {}", part.first);
            return Err(Damage::Wrong { path: part.path.clone(), problem });
        }
        next += part.count;
    }
    if next != slab.rows().end {
        return Err(Damage::Incomplete(format!("no file has row {next}")));
    }
    let (start, width) = (slab.rows().start, slab.size().width);
    for part in &parts {
        let from = (part.first - start) * width;
        let data = &part.bytes[HEADER_BYTES..part.bytes.len() - CRC_BYTES];
        from_bytes(data, &mut slab.cells_mut()[from..from + part.count * width]);
    }
    slab.set_step(step);
    Ok(())
}

fn read_file(path: &Path, owner: Owner, slab: &Slab) -> Result<FileRows, Damage> {
    let unreadable = |source| Damage::Unreadable { path: path.to_owned(), source };
    let wrong = |problem: String| Damage::Wrong { path: path.to_owned(), problem };
    let size = slab.size();
    let most = HEADER_BYTES + slab.rows().len() * size.row_bytes() + CRC_BYTES;
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() < HEADER_BYTES + CRC_BYTES || bytes.len() > most {
        return Err(wrong(format!("it has {} bytes or more, too many for this slab", bytes.len())));
    }
    if &bytes[..8] != MAGIC {
        return Err(wrong("it is not a checkpoint of this program".to_owned()));
    }
    let u32_at = |at: usize| bytes[at..].first_chunk().map_or(0, |u32_at| u32::from_le_bytes(*u32_at));
    let u64_at = |at: usize| bytes[at..].first_chunk().map_or(0, |u64_at| u64::from_le_bytes(*u64_at));
    if u32_at(8) != VERSION {
        return Err(wrong(format!("its version is {}, this program reads version {VERSION}", u32_at(8))));
    }
    if crc32fast::hash(&bytes[..bytes.len() - CRC_BYTES]) != u32_at(bytes.len() - CRC_BYTES) {
        return Err(wrong("it is damaged (wrong CRC)".to_owned()));
    }
    let found = Owner { rank: Rank(u32_at(12)), ranks: u32_at(16), origin: u32_at(20) };
    if found != owner {
        return Err(wrong(format!("it belongs to {found:?}, expected {owner:?}")));
    }
    if Size::new(u64_at(32), u64_at(40)) != Some(size) {
        return Err(wrong(format!("its field is {}x{}, expected {size}", u64_at(32), u64_at(40))));
    }
    let (first, count) = (u64_at(48), u64_at(56));
    // The multiplication cannot overflow: `count` is limited by the length that was read.
    if count.checked_mul(size.row_bytes() as u64) != Some((bytes.len() - HEADER_BYTES - CRC_BYTES) as u64) {
        return Err(wrong(format!("its header has {count} rows, which its length contradicts")));
    }
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    if !(slab.rows().start..=slab.rows().end).contains(&first) {
        return Err(wrong(format!("it begins with row {first}, which belongs to another rank")));
    }
    let step = u64_at(24);
    Ok(FileRows { path: path.to_owned(), step, first, count: count as usize, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::fill_initial;

    const OWNER: Owner = Owner { rank: Rank(2), ranks: 4, origin: 77 };
    const SIZE: Size = Size { width: 5, height: 20 };

    fn slab() -> Slab {
        let mut slab = Slab::new(SIZE, 10..15);
        fill_initial(SIZE, 10, slab.cells_mut());
        slab.set_step(33);
        slab
    }

    fn write_all(directory: &Path, files: u32) -> Vec<PathBuf> {
        let slab = slab();
        let shares = shares(slab.rows().len(), files);
        let paths: Vec<_> = names(OWNER.rank, files).iter().map(|name| directory.join(name)).collect();
        for (path, share) in paths.iter().zip(shares) {
            write(path, OWNER, &slab, share).unwrap();
        }
        paths
    }

    #[test]
    fn reads_slab_from_any_number_of_files_in_any_order() {
        let directory = tempfile::tempdir().unwrap();
        for files in [1, 2, 5, 9] {
            let mut paths = write_all(directory.path(), files);
            assert_eq!(paths.len(), files as usize);
            paths.reverse();
            let mut back = Slab::new(SIZE, 10..15);
            read(&paths, OWNER, &mut back).unwrap();
            assert_eq!((back.cells(), back.step()), (slab().cells(), 33));
        }
    }

    #[test]
    fn rejects_changed_bytes_and_lengths_without_changing_slab() {
        let directory = tempfile::tempdir().unwrap();
        let paths = write_all(directory.path(), 1);
        let intact = std::fs::read(&paths[0]).unwrap();
        let refuse = |bytes: &[u8], what: String| {
            std::fs::write(&paths[0], bytes).unwrap();
            let mut slab = Slab::new(SIZE, 10..15);
            let error = read(&paths, OWNER, &mut slab).expect_err(&what);
            assert!(error.to_string().contains("rank_2.ckpt"), "{what}: {error}");
            assert!(slab.step() == 0 && slab.cells().iter().all(|cell| *cell == 0.0), "{what}");
        };
        for at in 0..intact.len() {
            let mut bytes = intact.clone();
            bytes[at] ^= 1 << (at % 8);
            refuse(&bytes, format!("byte {at} changed"));
        }
        for length in 0..intact.len() {
            refuse(&intact[..length], format!("{length} bytes"));
        }
        refuse(&[intact.clone(), vec![0]].concat(), "a byte too many".to_owned());
        std::fs::remove_file(&paths[0]).unwrap();
        assert!(matches!(read(&paths, OWNER, &mut slab()), Err(Damage::Unreadable { .. })));
    }

    #[test]
    fn rejects_files_of_other_rank_size_problem_or_step() {
        let directory = tempfile::tempdir().unwrap();
        let paths = write_all(directory.path(), 2);
        let refused = |owner, size, rows| read(&paths, owner, &mut Slab::new(size, rows)).unwrap_err();
        refused(Owner { rank: Rank(1), ..OWNER }, SIZE, 10..15);
        refused(Owner { ranks: 5, ..OWNER }, SIZE, 10..15);
        refused(Owner { origin: 78, ..OWNER }, SIZE, 10..15);
        refused(OWNER, Size { width: 5, height: 21 }, 10..15);
        refused(OWNER, SIZE, 10..16);
        refused(OWNER, SIZE, 9..15);
        assert!(read(&paths[..1], OWNER, &mut slab()).is_err());
        assert!(read(&paths[1..], OWNER, &mut slab()).is_err());
        assert!(read(&[], OWNER, &mut slab()).is_err());
        let twice = [paths[0].clone(), paths[0].clone(), paths[1].clone()];
        assert!(read(&twice, OWNER, &mut slab()).is_err());
        let mut later = slab();
        later.set_step(34);
        write(&paths[1], OWNER, &later, shares(5, 2)[1].clone()).unwrap();
        assert!(read(&paths, OWNER, &mut slab()).unwrap_err().to_string().contains("is 34"));
    }
}
