//! Writes a lost member's files so that they appear complete and verified, or not at all.
//!
//! Data goes to temporary names in the same directory. When all is written, lengths, padding and (where the header
//! knows them) checksums are compared; [`Unconfirmed::install`] then renames everything. Dropping at any stage removes
//! the temporary files. A crash between renames leaves a member with files missing, which the next try rebuilds again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::header::XorHeader;
use super::name::{NAME, XorName};
use crate::control::meta::{FileKind, Meta};
use crate::durable::{self, CreationMode, Durability};
use crate::kvtree::{Tree, file};
use crate::redundancy::files::RebuiltMember;
use crate::redundancy::{RedundancyError, inside};
use crate::{regular_file, temporary};

/// A lost member while its files are written.
#[derive(Debug)]
pub struct LostMember {
    durability: Durability,
    temporaries: TemporaryFiles,
    header: XorHeader,
    xor_name: String,
    xor: MemberOutput,
    xor_left: u64,
    /// Index of the file that is written now.
    at: usize,
    current: Option<MemberOutput>,
    crcs: Vec<u32>,
    padding_left: u64,
    wrong: Option<RedundancyError>,
}

/// A rebuilt member whose files are complete, but not yet under their names: [`install`](Self::install) when all
/// survivors were found sound, or drop to discard.
#[derive(Debug)]
pub struct Unconfirmed {
    durability: Durability,
    temporaries: TemporaryFiles,
    rebuilt: RebuiltMember,
    header: XorHeader,
}

#[derive(Debug)]
struct MemberOutput {
    file: File,
    path: PathBuf,
    left: u64,
    crc: crc32fast::Hasher,
}

impl LostMember {
    /// Prepares to write the member that `header` (see [`rebuilt`](super::header::rebuilt)) describes into `directory`.
    /// The XOR file is named for `group_id`. `reserved` are names that must not be touched: the files of others in the
    /// same directory. In cache the files have to survive the process only, on the prefix directory the machine.
    pub fn create(
        directory: &Path,
        header: &Tree,
        group_id: u32,
        reserved: &BTreeSet<String>,
        durability: Durability,
    ) -> Result<LostMember, RedundancyError> {
        let parsed = XorHeader::from_tree(header, "the set's remaining members")?;
        let index = parsed.index().and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
        let members = u32::try_from(parsed.members.len()).unwrap_or(u32::MAX);
        let xor_name = XorName { group_id, members, index }.to_string();
        for meta in &parsed.current.files {
            inside::check_name(directory, &meta.file)?;
            let refused =
                |why| RedundancyError::UnsafeName { directory: directory.to_owned(), name: meta.file.clone(), why };
            if reserved.contains(&meta.file) {
                return Err(refused("it belongs to another member"));
            }
            if XorName::parse(&meta.file).is_some()
                || meta.file.ends_with(".scrfilemap")
                || ["summary.scr", "index.scr"].contains(&meta.file.as_str())
            {
                return Err(refused("it is reserved for a file of our own"));
            }
        }
        if reserved.contains(&xor_name) {
            return Err(RedundancyError::UnsafeName {
                directory: directory.to_owned(),
                name: xor_name,
                why: "it belongs to another member",
            });
        }
        let mode = CreationMode::of_dataset(durability);
        let mut temporaries = TemporaryFiles { directory: directory.to_owned(), mode, pairs: Vec::new() };
        // Checked by the header: both numbers fit.
        let room = parsed.chunk * (parsed.members.len() as u64 - 1);
        let padding_left = room - parsed.current.total_bytes().unwrap_or(room);
        let bytes = file::encode(header);
        let mut xor = temporaries.create(&xor_name, bytes.len() as u64 + parsed.chunk)?;
        xor.write(&bytes)?;
        let mut lost = LostMember {
            durability,
            temporaries,
            xor_left: parsed.chunk,
            header: parsed,
            xor_name,
            xor,
            at: 0,
            current: None,
            crcs: Vec::new(),
            padding_left,
            wrong: None,
        };
        lost.advance()?;
        Ok(lost)
    }

    pub fn header(&self) -> &XorHeader {
        &self.header
    }

    pub fn index(&self) -> u32 {
        self.header.index().and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
    }

    /// The next piece, of the XOR data or of the logical file.
    ///
    /// Data that turns out to be wrong is remembered until [`finish`](Self::finish), and the rest is taken without
    /// writing it: so the survivors' own checks run to their end, and can name the damaged file.
    pub fn take(&mut self, is_xor: bool, piece: &[u8]) -> Result<(), RedundancyError> {
        if self.wrong.is_some() {
            return Ok(());
        }
        match if is_xor { self.write_xor(piece) } else { self.write_data(piece) } {
            Err(wrong @ RedundancyError::RebuiltWrong { .. }) => {
                self.wrong = Some(wrong);
                Ok(())
            }
            result => result,
        }
    }

    /// The next bytes of the logical file: cut at the real sizes; what lies behind must be padding.
    fn write_data(&mut self, mut bytes: &[u8]) -> Result<(), RedundancyError> {
        while let Some(output) = &mut self.current {
            let take = usize::try_from(output.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            output.write(&bytes[..take])?;
            bytes = &bytes[take..];
            if output.left > 0 {
                return Ok(());
            }
            self.advance()?;
        }
        // Padding that is not zero means that a survivor's bytes are not those that the XOR data was made from.
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(self.wrong(&self.xor_name, "the padding behind the last file is not zero"));
        }
        self.padding_left = self
            .padding_left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| self.wrong(&self.xor_name, "there is more data than the set's chunks hold"))?;
        Ok(())
    }

    /// The next bytes of the XOR data.
    fn write_xor(&mut self, bytes: &[u8]) -> Result<(), RedundancyError> {
        self.xor_left = self
            .xor_left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| self.wrong(&self.xor_name, "there is more XOR data than one chunk"))?;
        self.xor.write(bytes)
    }

    /// After the last byte: closes everything and checks it.
    pub fn finish(mut self) -> Result<Unconfirmed, RedundancyError> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.current.is_some() || self.padding_left > 0 || self.xor_left > 0 {
            return Err(self.wrong(&self.xor_name, "the data ended early"));
        }
        let size = self.xor.file.metadata().map_err(RedundancyError::io("look at", &self.xor.path))?.len();
        let xor_crc = self.xor.close(self.durability)?;
        let mut files = self.header.current.files.clone();
        for (meta, crc) in files.iter_mut().zip(&self.crcs) {
            if let Some(expected) = meta.crc
                && expected != *crc
            {
                return Err(RedundancyError::RebuiltWrong {
                    path: self.temporaries.directory.join(&meta.file),
                    why: format!("its CRC32 is {crc:#010x}, but the lost file had {expected:#010x}"),
                });
            }
            meta.crc = Some(*crc);
            meta.complete = true;
        }
        let rank = self.header.current.rank;
        let xor = Meta {
            file: self.xor_name,
            kind: FileKind::Redundancy(NAME),
            size,
            checkpoint: self.header.checkpoint,
            rank,
            ranks: self.header.ranks,
            complete: true,
            crc: Some(xor_crc),
            output_path: None,
        };
        let rebuilt = RebuiltMember { rank, checkpoint: self.header.checkpoint, files, redundancy: vec![xor] };
        Ok(Unconfirmed { durability: self.durability, temporaries: self.temporaries, rebuilt, header: self.header })
    }

    /// Continues with the next file that has bytes; files of size 0 are made on the way.
    fn advance(&mut self) -> Result<(), RedundancyError> {
        loop {
            if let Some(mut done) = self.current.take() {
                self.crcs.push(done.close(self.durability)?);
                self.at += 1;
            }
            let Some(meta) = self.header.current.files.get(self.at) else { return Ok(()) };
            let output = self.temporaries.create(&meta.file, meta.size)?;
            let more = output.left > 0;
            self.current = Some(output);
            if more {
                return Ok(());
            }
        }
    }

    fn wrong(&self, name: &str, why: &str) -> RedundancyError {
        RedundancyError::RebuiltWrong { path: self.temporaries.directory.join(name), why: why.to_owned() }
    }
}

impl Unconfirmed {
    pub fn member(&self) -> &RebuiltMember {
        &self.rebuilt
    }

    /// The lost member's header.
    pub fn header(&self) -> &XorHeader {
        &self.header
    }

    /// Renames everything to its name and writes the meta files; these carry the checksums if `crc_in_meta` (always at
    /// the drain; in cache only with `SCR_CRC_ON_COPY`), or if the original's did.
    pub fn install(mut self, crc_in_meta: bool) -> Result<RebuiltMember, RedundancyError> {
        let directory = self.temporaries.directory.clone();
        self.temporaries.rename_all()?;
        if self.durability == Durability::Machine {
            durable::sync_directory(&directory)?;
        }
        let known: Vec<bool> = self.header.current.files.iter().map(|meta| meta.crc.is_some()).collect();
        for (meta, known) in self.rebuilt.files.iter().zip(known) {
            write_meta(self.durability, &directory, meta, crc_in_meta || known)?;
        }
        for meta in &self.rebuilt.redundancy {
            write_meta(self.durability, &directory, meta, crc_in_meta)?;
        }
        Ok(self.rebuilt.clone())
    }
}

fn write_meta(durability: Durability, directory: &Path, meta: &Meta, with_crc: bool) -> Result<(), RedundancyError> {
    let mut meta = meta.clone();
    if !with_crc {
        meta.crc = None;
    }
    let path = directory.join(&meta.file);
    match durability {
        Durability::Process => meta.write_unsynced(&path)?,
        Durability::Machine => meta.write(&path)?,
    }
    Ok(())
}

impl MemberOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<(), RedundancyError> {
        self.file.write_all(bytes).map_err(RedundancyError::io("write", &self.path))?;
        self.crc.update(bytes);
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(())
    }

    fn close(&mut self, durability: Durability) -> Result<u32, RedundancyError> {
        if durability == Durability::Machine {
            self.file.sync_all().map_err(RedundancyError::io("sync", &self.path))?;
        }
        Ok(std::mem::take(&mut self.crc).finalize())
    }
}

/// Temporary files and the names they will get; removed on drop as far as they were not renamed.
#[derive(Debug)]
struct TemporaryFiles {
    directory: PathBuf,
    mode: CreationMode,
    pairs: Vec<(PathBuf, PathBuf)>,
}

impl TemporaryFiles {
    fn create(&mut self, name: &str, bytes: u64) -> Result<MemberOutput, RedundancyError> {
        // A short name of its own: a long name with more around it may be too long.
        let path = self.directory.join(temporary::name());
        let file = self.mode.new_file().open(&path).map_err(RedundancyError::io("create", &path))?;
        self.pairs.push((path.clone(), self.directory.join(name)));
        Ok(MemberOutput { file, path, left: bytes, crc: crc32fast::Hasher::new() })
    }

    fn rename_all(&mut self) -> Result<(), RedundancyError> {
        // The XOR file was created first and is renamed last: without it the member counts as missing.
        while let Some((from, to)) = self.pairs.last() {
            regular_file::check_replaceable(to)?;
            fs::rename(from, to).map_err(RedundancyError::io("rename to", to))?;
            self.pairs.pop();
        }
        Ok(())
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        for (path, _) in &self.pairs {
            // What cannot be removed now is removed by `temporary::remove_abandoned`.
            let _ = fs::remove_file(path);
        }
    }
}
