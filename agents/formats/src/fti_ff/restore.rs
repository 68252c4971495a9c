//! Restores a lost rank's file from the files of other nodes: a copy of it, the right neighbour's partner copy, or the
//! Reed-Solomon rows of its group.
//!
//! Every input is verified before it is used, and every output before it gets its name. The name of a copy is not
//! sufficient: its size and its hash are compared with the other files of the group first.
//!
//! FTI itself gives up level 3 when the own files of all ranks are damaged, although the parity alone is sufficient.
//! FTI v1.1 rebuilds the longest file of the group with a wrong last byte if its length is odd. Both cases are restored
//! correctly here.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_core::durable::Filling;
use holdfast_core::galois::rows::{self, Row};
use md5::{Digest, Md5};

use super::blocks::ContainerEntry;
use super::checkpoint::{Checkpoint, FtiFile, Parity, inspect};
use super::identity::Identity;
use super::layout::{FileMeta, Layout, checksum_field};
use super::name::{FileName, FileRole};
use super::parity::{Combination, RowFile, SIZE_BYTES};
use super::refusal::{self, Refusal};
use super::survivors::Survivors;
use super::verify;
use crate::destination::{Destination, FillError};
use crate::error::{FormatsError, Result};
use crate::format::Progress;
use crate::input::Input;

/// The source of a restored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreSource {
    /// The file itself was found on another node, or on the parallel file system.
    Copy,
    /// The partner copy (level 2).
    Partner,
    /// The Reed-Solomon rows of the group (level 3).
    ReedSolomon,
}

/// Restores `Ckpt<checkpoint>-Rank<rank>.fti` into a directory. `group` is the rank's group in its order (see
/// [`super::topology::Topology::group_of`]).
///
/// # Errors
/// When too few intact files are left (the message lists them), or files cannot be read or written.
pub fn restore(
    survivors: &Survivors,
    group: &[u32],
    checkpoint: u32,
    rank: u32,
    to: &Destination,
    progress: Progress<'_>,
) -> Result<RestoreSource> {
    let name = FileName { checkpoint: Some(checkpoint), role: FileRole::Rank, rank };
    let mut lost = LostFile { name, to, progress, refused: Vec::new() };
    let place = group.iter().position(|member| *member == rank);
    let right = place.and_then(|place| group.iter().cycle().nth(place + 1)).filter(|right| **right != rank);
    let identity = Identity::of(survivors, group, checkpoint, rank);
    let copies = survivors.of(checkpoint, FileRole::Rank, rank).map(|file| (file, RestoreSource::Copy));
    let partners = right.into_iter().flat_map(|right| survivors.of(checkpoint, FileRole::Partner, *right));
    for (file, source) in copies.chain(partners.map(|file| (file, RestoreSource::Partner))) {
        match identity.check(&file.path) {
            Ok(()) if lost.copy(&file.path)? => return Ok(source),
            Ok(()) => {}
            Err(refusal) => lost.refused.push(refusal.of(&file.path)),
        }
    }
    match place {
        Some(place) => lost.decode(survivors, group, place, checkpoint)?,
        None => lost.refused.push(Refusal::NotInGroup { rank, group: group.to_vec() }),
    }
    if lost.refused.is_empty() {
        return Ok(RestoreSource::ReedSolomon);
    }
    Err(FormatsError::NotRestorable { what: name.to_string(), why: refusal::listed(&lost.refused) })
}

struct LostFile<'a> {
    name: FileName,
    to: &'a Destination,
    progress: Progress<'a>,
    refused: Vec<Refusal>,
}

impl LostFile<'_> {
    /// Writes the file with `fill`, verifies it under its temporary name, then renames it. Returns true on success.
    fn write(
        &mut self,
        fill: impl FnOnce(&mut BufWriter<Filling>, Progress<'_>) -> Result<(), FillError<Refusal>>,
    ) -> Result<bool> {
        let (name, progress) = (self.name.to_string(), &mut *self.progress);
        let path = self.to.path(&name)?;
        let written = self.to.write_unless_refused(&name, |out| {
            fill(out, progress)?;
            out.flush()?;
            let size = out.get_ref().0.metadata().map_err(FormatsError::reading("read back", &path))?.len();
            let file = out.get_ref().0.try_clone().map_err(FormatsError::reading("read back", &path))?;
            let check = verify::verify_input(Input::over(&path, file, size), &path, &mut |_, _| {})?;
            match check.damages.first() {
                None => Ok(()),
                Some(damage) => Err(FillError::Refused(Refusal::Damaged(damage.clone()))),
            }
        })?;
        let refusal = written.err();
        let is_written = refusal.is_none();
        self.refused.extend(refusal);
        Ok(is_written)
    }

    /// Copies a file that should be equal to the lost one.
    fn copy(&mut self, path: &Path) -> Result<bool> {
        let opened = Input::open(path).and_then(|input| Ok((input, own_bytes(path)?)));
        let (input, bytes) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.refused.push(error.into());
                return Ok(false);
            }
        };
        let before = self.refused.len();
        let written = self.write(|out, progress| {
            let mut done = 0_u64;
            let copied = input.copy(0, bytes, out, |piece| {
                done = done.saturating_add(piece.len() as u64);
                progress(done, bytes);
            });
            match copied {
                // The next copy is tried also when the disk of this one fails.
                Err(FillError::Content(error)) => Err(FillError::Refused(error.into())),
                copied => copied,
            }
        })?;
        let refused = self.refused.drain(before..).map(|refusal| refusal.of(path)).collect::<Vec<_>>();
        self.refused.extend(refused);
        Ok(written)
    }

    /// Computes the lost data from code rows. Leaves `refused` empty on success.
    fn decode(&mut self, survivors: &Survivors, group: &[u32], place: usize, checkpoint: u32) -> Result<()> {
        let mut rows = Rows { members: group.len(), code: None, rows: Vec::new(), refused: Vec::new() };
        for (index, member) in group.iter().enumerate() {
            for file in survivors.of(checkpoint, FileRole::Parity, *member) {
                rows.add(Row::Parity(index), &file.path);
            }
        }
        // Parity first: it determines the code, and thus identifies files of another checkpoint with the same name.
        for (index, member) in group.iter().enumerate().filter(|(index, _)| *index != place) {
            for file in survivors.of(checkpoint, FileRole::Rank, *member) {
                rows.add(Row::Data(index), &file.path);
            }
        }
        let Some((layout, length)) = rows.code else {
            self.refused.push(Refusal::NoParityLeft);
            self.refused.append(&mut rows.refused);
            return Ok(());
        };
        // Data rows need no arithmetic; parity rows complete the set.
        rows.rows.sort_by_key(|(row, _)| *row);
        rows.rows.truncate(group.len());
        if rows.rows.len() < group.len() {
            self.refused.push(Refusal::TooFewRows { have: rows.rows.len(), needed: group.len() });
            self.refused.append(&mut rows.refused);
            return Ok(());
        }
        let (which, files): (Vec<Row>, Vec<RowFile>) = rows.rows.into_iter().unzip();
        let Some(factors) = rows::solve(place, &which, group.len()) else {
            self.refused.push(Refusal::Undetermined);
            return Ok(());
        };
        let mut data = Combination::new(files.into_iter().zip(factors).collect());
        let size = match own_size(&mut data, layout, length)? {
            Ok(size) => size,
            Err(refusal) => {
                self.refused.push(refusal);
                return Ok(());
            }
        };
        let odd = length % 2 == 1 && size == length;
        let before = std::mem::take(&mut self.refused);
        let written = self.write(|out, progress| {
            let mut done = 0_u64;
            data.each_piece(size, length, |piece| {
                out.write_all(piece)?;
                done = done.saturating_add(piece.len() as u64);
                progress(done, size);
                Ok::<_, FillError<Refusal>>(())
            })?;
            out.flush()?;
            if odd { last_byte(&out.get_ref().0, size) } else { Ok(()) }
        })?;
        if !written {
            self.refused.splice(0..0, before);
        }
        Ok(())
    }
}

/// The bytes of a file without those that were appended to it; of a file that is no checkpoint, all.
pub(super) fn own_bytes(path: &Path) -> Result<u64> {
    let input = Input::open(path)?;
    let size = input.size;
    Ok(match inspect(input)? {
        FtiFile::Checkpoint(checkpoint) => checkpoint.own_bytes(),
        _ => size,
    })
}

/// Intact rows of one code.
struct Rows {
    members: usize,
    /// Layout and length of the first intact parity.
    code: Option<(Layout, u64)>,
    rows: Vec<(Row, RowFile)>,
    refused: Vec<Refusal>,
}

impl Rows {
    fn add(&mut self, row: Row, path: &Path) {
        if self.rows.iter().any(|(there, _)| *there == row) || self.rows.len() >= 2 * self.members {
            return;
        }
        if let Err(refusal) = self.try_add(row, path) {
            self.refused.push(refusal.of(path));
        }
    }

    /// An unreadable file is treated as a damaged one.
    fn try_add(&mut self, row: Row, path: &Path) -> Result<(), Refusal> {
        let check = verify::verify(path, &mut |_, _| {})?;
        if let Some(damage) = check.damages.first() {
            return Err(Refusal::Damaged(damage.clone()));
        }
        let found = Input::open(path).and_then(inspect)?;
        let (meta, file) = match (row, found) {
            (Row::Parity(_), FtiFile::Parity(Parity { input, meta, .. })) => {
                let length = u64::try_from(meta.file_size).map_err(|_| Refusal::NegativeSize)?;
                (meta, RowFile::parity(input, length))
            }
            (Row::Data(_), FtiFile::Checkpoint(Checkpoint { input, meta, .. })) => {
                let length = u64::try_from(meta.largest_size).map_err(|_| Refusal::NotLevel3)?;
                let room = length.saturating_sub(if meta.layout.is_data_first() { SIZE_BYTES } else { 0 });
                let used = u64::try_from(meta.file_size).map_err(|_| Refusal::NegativeSize)?;
                if used > room {
                    return Err(Refusal::TooLarge { used, length });
                }
                let layout = meta.layout;
                (meta, RowFile::data(input, layout, used, length))
            }
            _ => return Err(Refusal::OtherKind),
        };
        let code = (meta.layout, u64::try_from(meta.largest_size).unwrap_or(0));
        // C and D have the same trailer: a parity file does not distinguish them.
        let alike = |a: Layout, b: Layout| a == b || (a.is_data_first() && a.meta_bytes() == b.meta_bytes());
        match self.code {
            None if matches!(row, Row::Data(_)) => return Err(Refusal::NoParity),
            None => self.code = Some(code),
            Some((layout, length)) if alike(layout, code.0) && length == code.1 => {}
            Some((_, length)) => return Err(Refusal::OtherGroup { found: code.1, expected: length }),
        }
        self.rows.push((row, file));
        Ok(())
    }
}

/// The size of the lost file: from the metadata at its start, or from the last eight bytes of the padded data.
fn own_size(data: &mut Combination, layout: Layout, length: u64) -> Result<Result<u64, Refusal>> {
    if !layout.is_data_first() {
        if length < layout.meta_bytes() as u64 {
            return Ok(Err(Refusal::ShortParity { length, what: "the metadata of a file" }));
        }
        let mut front = vec![0; layout.meta_bytes()];
        data.read(0, &mut front)?;
        let meta = FileMeta::parse(layout, &front).filter(FileMeta::has_valid_hash);
        let size = meta.and_then(|meta| u64::try_from(meta.file_size).ok()).filter(|size| *size <= length);
        return Ok(size.ok_or(Refusal::RebuiltMetadata));
    }
    let Some(start) = length.checked_sub(SIZE_BYTES) else {
        return Ok(Err(Refusal::ShortParity { length, what: "the size at its end" }));
    };
    // Elements start at even offsets.
    let skip = usize::from(start % 2 == 1);
    let mut end = vec![0; 8 + skip];
    data.read(start - skip as u64, &mut end)?;
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(end.get(skip..).unwrap_or_default()).for_each(|(to, from)| *to = *from);
    if skip == 1 {
        // The upper half of the last element is not in the parity; this byte of a file size is always zero.
        bytes[7] = 0;
    }
    let size = u64::from_le_bytes(bytes);
    match size <= start {
        true => Ok(Ok(size)),
        false => Ok(Err(Refusal::RebuiltSize { size })),
    }
}

/// Finds the last byte of a file of odd length by trying all 256 values against the file's hash: the parity holds only
/// half of its element.
fn last_byte(file: &File, size: u64) -> Result<(), FillError<Refusal>> {
    let path = Path::new("rebuilt file");
    let copy = file.try_clone().map_err(FormatsError::reading("read back", path))?;
    let FtiFile::Checkpoint(checkpoint) = inspect(Input::over(path, copy, size))? else {
        return Err(FillError::Refused(Refusal::NoCheckpoint));
    };
    let meta = &checkpoint.meta;
    let at_end = |entry: &&ContainerEntry| {
        let range = entry.range(size).filter(|(_, bytes)| entry.is_filled() && *bytes > 0);
        range.is_some_and(|(offset, bytes)| offset.checked_add(bytes) == Some(size))
    };
    let entry = checkpoint.blocks().iter().flat_map(|block| &block.entries).find(at_end);
    let found = match entry {
        _ if meta.layout == Layout::A => {
            let front = meta.layout.meta_bytes() as u64;
            let fits = |hash: &[u8; 16]| checksum_field(hash) == meta.checksum;
            search(&checkpoint.input, (front, size.saturating_sub(front)), fits)?
        }
        Some(entry) => search(&checkpoint.input, entry.range(size).unwrap_or_default(), |hash| *hash == entry.hash)?,
        // The byte is not part of a chunk: it is unused space, which is zero.
        None => Some(0),
    };
    let byte = found.ok_or(FillError::Refused(Refusal::NoLastByte))?;
    Ok(file.write_all_at(&[byte], size.saturating_sub(1))?)
}

/// The last byte of a range with which the hash of the range is accepted by `fits`.
fn search(input: &Input, range: (u64, u64), fits: impl Fn(&[u8; 16]) -> bool) -> Result<Option<u8>> {
    let mut hasher = Md5::new();
    input.each_piece(range.0, range.1.saturating_sub(1), |piece| {
        hasher.update(piece);
        Ok::<_, FormatsError>(())
    })?;
    let fits = |byte: &u8| {
        let mut hasher = hasher.clone();
        hasher.update([*byte]);
        fits(&hasher.finalize().into())
    };
    Ok((0..=u8::MAX).find(fits))
}
