//! The description of a container. It is written piece by piece: for many tasks it is much larger than the tables in
//! memory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::ser::{Error as _, SerializeMap, Serializer};
use serde_json::json;

use super::container::Container;
use super::damages::add_error;
use super::dump::{self, DumpOptions};
use super::error::SionError;
use super::header::KeyValue;
use super::physical_file::PhysicalFile;
use super::recover::recover;
use super::slot::place;
use crate::error::FormatsError;
use crate::file_check::{Damage, FileCheck};
use crate::format::Content;

/// Byte counts and keys are part of a description up to this number of chunks.
const MOST_CHUNKS_SHOWN: u64 = 1 << 18;

/// The description of a container, which is opened again when it is written.
#[derive(Debug)]
pub(super) struct ContainerDescription {
    path: PathBuf,
}

impl ContainerDescription {
    /// Opens a container, and returns its damages too. A damaged container is described as recovered.
    pub(super) fn of(path: &Path) -> Result<(ContainerDescription, Vec<Damage>), FormatsError> {
        let mut check = FileCheck::default();
        let container = match Container::open(path) {
            Ok(container) => container,
            Err(error) if error.is_damage() => {
                let container = recover(path)?;
                add_error(&mut check, error)?;
                container
            }
            Err(error) => return Err(error.into()),
        };
        // Finds the damages that the text will contain.
        if let Err(error) = dump::describe(&container, &options(&container), &mut io::sink()) {
            add_error(&mut check, error)?;
        }
        Ok((ContainerDescription { path: path.to_owned() }, check.damages))
    }

    fn open(&self) -> Result<Container, SionError> {
        match Container::open(&self.path) {
            Err(error) if error.is_damage() => recover(&self.path),
            opened => opened,
        }
    }
}

impl Content for ContainerDescription {
    /// Writes the description in the format of siondump, and the warnings.
    fn write_text(&self, mut out: &mut dyn Write) -> io::Result<()> {
        let container = self.open().map_err(io::Error::other)?;
        match dump::describe(&container, &options(&container), &mut out) {
            Ok(()) => {}
            // A damage of the records ends their list.
            Err(error) if error.is_damage() => writeln!(out, "{error}")?,
            Err(error) => return Err(io::Error::other(error)),
        }
        container.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))
    }
}

fn options(container: &Container) -> DumpOptions {
    let small = is_small(container);
    DumpOptions { tasks: small, keys: small, ..DumpOptions::default() }
}

fn is_small(container: &Container) -> bool {
    let tables = container.parts.iter().map(|part| part.table.blocks.saturating_mul(part.header.tasks() as u64));
    tables.fold(0, u64::saturating_add) <= MOST_CHUNKS_SHOWN
}

/// The description as JSON: head, tables and offsets of every file, with SIONlib's field names.
impl serde::Serialize for ContainerDescription {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let container = self.open().map_err(S::Error::custom)?;
        let with_chunks = is_small(&container);
        let mut fields = serializer.serialize_map(None)?;
        let files = || container.parts.iter().map(|part| Part { part, with_chunks });
        fields.serialize_entry("files", &Sequence(files))?;
        let task = |task| {
            let (rank, bytes) = (container.global_rank(task).unwrap_or(-1), container.stream_bytes(task).unwrap_or(0));
            json!({ "index": task, "globalrank": rank, "bytes": bytes })
        };
        fields.serialize_entry("logical_tasks", &Sequence(|| (0..container.tasks()).map(task)))?;
        let is_inline = container.key_value() == KeyValue::Inline;
        fields.serialize_entry("keyval", if is_inline { "inline" } else { "none" })?;
        fields.serialize_entry("warnings", &Sequence(|| container.warnings.iter().map(ToString::to_string)))?;
        fields.end()
    }
}

/// Serialises an iterator, member by member.
struct Sequence<F>(F);

impl<I: Iterator<Item: serde::Serialize>, F: Fn() -> I> serde::Serialize for Sequence<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

struct Part<'a> {
    part: &'a PhysicalFile,
    with_chunks: bool,
}

impl serde::Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PhysicalFile { header, layout, table, .. } = self.part;
        let tasks = || 0..header.tasks();
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("path", &place(&self.part.path))?;
        fields.serialize_entry("size", &self.part.length)?;
        fields.serialize_entry("version", &header.version)?;
        fields.serialize_entry("patchlevel", &header.patch_level)?;
        fields.serialize_entry("fileformat_version", &header.format)?;
        fields.serialize_entry("metadata_endianness", header.byte_order.as_str())?;
        fields.serialize_entry("data_endianness", header.user_order.as_str())?;
        fields.serialize_entry("fsblksize", &header.block_size)?;
        fields.serialize_entry("ntasks", &header.tasks())?;
        fields.serialize_entry("nfiles", &header.files)?;
        fields.serialize_entry("filenumber", &header.file_number)?;
        fields.serialize_entry("flag1", &header.flag1)?;
        fields.serialize_entry("flag2", &header.flag2)?;
        fields.serialize_entry("keyval", &header.key_value.code())?;
        fields.serialize_entry("prefix", &String::from_utf8_lossy(&header.prefix))?;
        fields.serialize_entry("globalranks", &header.global_ranks)?;
        fields.serialize_entry("chunksizes", &header.stored_chunk_sizes)?;
        fields.serialize_entry("maxchunks", &table.blocks)?;
        fields.serialize_entry("start_of_varheader", &layout.tail(table.blocks))?;
        fields.serialize_entry("start_of_data", &layout.start_of_data)?;
        fields.serialize_entry("globalskip", &layout.block_skip)?;
        let positions = || tasks().map(|task| layout.chunk_position(task, 0));
        fields.serialize_entry("start_positions", &Sequence(positions))?;
        fields.serialize_entry("chunk_counts", &Sequence(|| tasks().map(|task| table.chunks(task))))?;
        let chunks = || tasks().map(|task| Sequence(move || table.chunk_bytes(task)));
        fields.serialize_entry("chunk_bytes_by_task", &self.with_chunks.then_some(Sequence(chunks)))?;
        fields.serialize_entry("mapping", &self.part.mapping())?;
        fields.end()
    }
}
