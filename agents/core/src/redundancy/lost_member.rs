//! Writes a lost member's files so that they appear complete and verified, or not at all: for schemes with one
//! redundancy file a member, which is a header and the redundancy data behind it.
//!
//! Data goes to staged files. When all is written, lengths, padding and (where the header knows them) checksums are
//! compared; [`Unconfirmed::install`] then gives everything its name. Dropping at any stage removes the staged files. A
//! crash between two names leaves a member with files missing, which the next try rebuilds again.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_model::{CheckpointId, Scheme};

use super::error::{RedundancyError, Result};
use super::files::{MemberFiles, RebuiltMember};
use super::inside;
use crate::control::filemap::Filemap;
use crate::control::meta::{FileKind, Meta};
use crate::store::dataset_files::{write_meta, write_tree};
use crate::store::{OpenDataset, StagedFile};

/// What is known of the files of a lost member.
#[derive(Clone, Debug)]
pub struct LostFiles {
    pub scheme: Scheme,
    pub checkpoint: CheckpointId,
    /// Ranks of the run.
    pub ranks: u32,
    /// The application's files.
    pub files: MemberFiles,
    /// Bytes of these files put one behind the other, with the padding.
    pub padded_bytes: u64,
    /// The name of the redundancy file.
    pub redundancy_file: String,
    /// The header in front of the redundancy data.
    pub head: Vec<u8>,
    /// Bytes of redundancy data.
    pub redundancy_bytes: u64,
    /// Recognises the names of redundancy files, which no file of the application may have.
    pub is_redundancy_file: fn(&str) -> bool,
}

/// A lost member while its files are written.
#[derive(Debug)]
pub struct LostMember {
    dataset: Arc<dyn OpenDataset>,
    /// The application's files that are complete, in the order of the header.
    written: Vec<Box<dyn StagedFile>>,
    lost: LostFiles,
    redundancy: MemberOutput,
    redundancy_left: u64,
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
    dataset: Arc<dyn OpenDataset>,
    /// Those of the application in the order of the header, and behind them the redundancy file.
    written: Vec<Box<dyn StagedFile>>,
    pub rebuilt: RebuiltMember,
    /// For each file: its checksum was known.
    known_checksums: Vec<bool>,
}

#[derive(Debug)]
struct MemberOutput {
    file: Box<dyn StagedFile>,
    name: String,
    written: u64,
    left: u64,
    crc: crc32fast::Hasher,
}

impl LostMember {
    /// Prepares to write a member into a dataset. `reserved` are names that must not be touched: the files of others in
    /// the same dataset.
    ///
    /// # Errors
    /// Names that must not be used, or a file operation.
    pub fn create(dataset: &Arc<dyn OpenDataset>, lost: LostFiles, reserved: &BTreeSet<String>) -> Result<LostMember> {
        let directory = dataset.location();
        let refused = |name: &str, why| RedundancyError::UnsafeName {
            directory: directory.to_owned(),
            name: name.to_owned(),
            why,
        };
        for Meta { file, .. } in &lost.files.files {
            inside::check_name(directory, file)?;
            if reserved.contains(file) {
                return Err(refused(file, "it belongs to another member"));
            }
            if (lost.is_redundancy_file)(file)
                || file.ends_with(".scrfilemap")
                || ["summary.scr", "index.scr"].contains(&file.as_str())
            {
                return Err(refused(file, "it is reserved for a file of our own"));
            }
        }
        if reserved.contains(&lost.redundancy_file) {
            return Err(refused(&lost.redundancy_file, "it belongs to another member"));
        }
        let bytes = lost.files.total_bytes().unwrap_or(lost.padded_bytes);
        let padding_left = lost.padded_bytes.saturating_sub(bytes);
        let whole = (lost.head.len() as u64).saturating_add(lost.redundancy_bytes);
        let mut redundancy = MemberOutput::create(&**dataset, &lost.redundancy_file, whole)?;
        redundancy.write(&**dataset, &lost.head)?;
        let mut member = LostMember {
            dataset: Arc::clone(dataset),
            written: Vec::new(),
            redundancy_left: lost.redundancy_bytes,
            lost,
            redundancy,
            at: 0,
            current: None,
            crcs: Vec::new(),
            padding_left,
            wrong: None,
        };
        member.advance()?;
        Ok(member)
    }

    /// The next piece, of the redundancy data or of the files put one behind the other.
    ///
    /// Data that turns out to be wrong is remembered until [`finish`](Self::finish), and the rest is taken without
    /// writing it: so the survivors' own checks run to their end, and can name the damaged file.
    pub fn take(&mut self, is_redundancy: bool, piece: &[u8]) -> Result<()> {
        if self.wrong.is_some() {
            return Ok(());
        }
        match if is_redundancy { self.write_redundancy(piece) } else { self.write_data(piece) } {
            Err(wrong @ RedundancyError::RebuiltWrong { .. }) => {
                self.wrong = Some(wrong);
                Ok(())
            }
            result => result,
        }
    }

    /// The next bytes of the logical file: cut at the real sizes; what lies behind must be padding.
    fn write_data(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(output) = &mut self.current {
            let take = usize::try_from(output.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            output.write(&*self.dataset, &bytes[..take])?;
            bytes = &bytes[take..];
            if output.left > 0 {
                return Ok(());
            }
            self.advance()?;
        }
        // Padding that is not zero means that a survivor's bytes are not those that the redundancy was made from.
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(self.wrong("the padding behind the last file is not zero"));
        }
        self.padding_left = self
            .padding_left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| self.wrong("there is more data than the set's chunks hold"))?;
        Ok(())
    }

    /// The next bytes of the redundancy data.
    fn write_redundancy(&mut self, bytes: &[u8]) -> Result<()> {
        self.redundancy_left = self
            .redundancy_left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| self.wrong("there is more redundancy data than its header says"))?;
        self.redundancy.write(&*self.dataset, bytes)
    }

    /// After the last byte: closes everything and checks it.
    pub fn finish(mut self) -> Result<Unconfirmed> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.current.is_some() || self.padding_left > 0 || self.redundancy_left > 0 {
            return Err(self.wrong("the data ended early"));
        }
        let (redundancy, redundancy_crc, size) = self.redundancy.close(&*self.dataset)?;
        let mut written = self.written;
        written.push(redundancy);
        let LostFiles { scheme, checkpoint, ranks, files: MemberFiles { rank, mut files }, redundancy_file, .. } =
            self.lost;
        let known_checksums = files.iter().map(|meta| meta.crc.is_some()).collect();
        for (meta, crc) in files.iter_mut().zip(&self.crcs) {
            if let Some(expected) = meta.crc
                && expected != *crc
            {
                return Err(RedundancyError::RebuiltWrong {
                    path: self.dataset.path_of(&meta.file),
                    why: format!("its CRC32 is {crc:#010x}, but the lost file had {expected:#010x}"),
                });
            }
            meta.crc = Some(*crc);
            meta.complete = true;
        }
        let (kind, crc) = (FileKind::Redundancy(scheme), Some(redundancy_crc));
        let redundancy = Meta { kind, crc, ..Meta::of_application(redundancy_file, size, checkpoint, rank, ranks) };
        let rebuilt = RebuiltMember { rank, checkpoint, files, redundancy: vec![redundancy] };
        Ok(Unconfirmed { dataset: self.dataset, written, rebuilt, known_checksums })
    }

    /// Continues with the next file that has bytes; files of size 0 are made on the way.
    fn advance(&mut self) -> Result<()> {
        loop {
            if let Some(done) = self.current.take() {
                let (file, crc, _) = done.close(&*self.dataset)?;
                self.written.push(file);
                self.crcs.push(crc);
                self.at += 1;
            }
            let Some(meta) = self.lost.files.files.get(self.at) else { return Ok(()) };
            let output = MemberOutput::create(&*self.dataset, &meta.file, meta.size)?;
            let more = output.left > 0;
            self.current = Some(output);
            if more {
                return Ok(());
            }
        }
    }

    fn wrong(&self, why: &str) -> RedundancyError {
        RedundancyError::RebuiltWrong { path: self.dataset.path_of(&self.lost.redundancy_file), why: why.to_owned() }
    }
}

impl Unconfirmed {
    /// Gives everything its name and writes the meta files; these carry the checksums if `crc_in_meta` (always at
    /// the drain; in cache only with `SCR_CRC_ON_COPY`), or if the original's did.
    pub fn install(self, crc_in_meta: bool) -> Result<RebuiltMember> {
        // The redundancy file is the last one: without it the member counts as missing.
        for file in self.written {
            file.commit()?;
        }
        let dataset = &*self.dataset;
        for (meta, known) in self.rebuilt.files.iter().zip(&self.known_checksums) {
            write_meta_with(dataset, meta, crc_in_meta || *known)?;
        }
        for meta in &self.rebuilt.redundancy {
            write_meta_with(dataset, meta, crc_in_meta)?;
        }
        Ok(self.rebuilt)
    }

    /// As [`install`](Self::install), where all members are in one dataset: the meta files carry checksums, and the
    /// member gets a file map, as after a drain.
    pub fn install_with_filemap(self) -> Result<RebuiltMember> {
        let dataset = Arc::clone(&self.dataset);
        let rebuilt = self.install(true)?;
        let mut filemap = Filemap::new();
        for name in rebuilt.files.iter().chain(&rebuilt.redundancy).map(|meta| &meta.file) {
            filemap.add_file(rebuilt.checkpoint, rebuilt.rank, name);
        }
        let expected = u32::try_from(rebuilt.files.len() + rebuilt.redundancy.len()).unwrap_or(u32::MAX);
        filemap.set_expected(rebuilt.checkpoint, rebuilt.rank, expected);
        write_tree(&*dataset, &format!("{}.scrfilemap", rebuilt.rank), filemap.tree())?;
        Ok(rebuilt)
    }
}

fn write_meta_with(dataset: &dyn OpenDataset, meta: &Meta, with_crc: bool) -> Result<()> {
    let crc = meta.crc.filter(|_| with_crc);
    Ok(write_meta(dataset, &Meta { crc, ..meta.clone() })?)
}

impl MemberOutput {
    fn create(dataset: &dyn OpenDataset, name: &str, bytes: u64) -> Result<MemberOutput> {
        let (file, crc) = (dataset.create(name)?, crc32fast::Hasher::new());
        Ok(MemberOutput { file, name: name.to_owned(), written: 0, left: bytes, crc })
    }

    fn write(&mut self, dataset: &dyn OpenDataset, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_at(bytes, self.written);
        written.map_err(RedundancyError::io("write", &dataset.path_of(&self.name)))?;
        self.crc.update(bytes);
        self.written += bytes.len() as u64;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(())
    }

    /// The file, its checksum and its length.
    fn close(self, dataset: &dyn OpenDataset) -> Result<(Box<dyn StagedFile>, u32, u64)> {
        self.file.sync().map_err(RedundancyError::io("sync", &dataset.path_of(&self.name)))?;
        Ok((self.file, self.crc.finalize(), self.written))
    }
}
