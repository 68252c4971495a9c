//! SION as a [`Format`]: recognised by its magic number, or by the file's name if that is damaged.

use std::path::Path;

use serde_json::{Value, json};

use super::container::Container;
use super::dump::{self, DumpOptions};
use super::error::SionError;
use super::header::KeyValue;
use super::physical_file::PhysicalFile;
use super::recover::recover;
use super::split::{SplitOptions, split};
use super::tables::Mapping;
use super::verify::{VerifyOptions, add_error, damage, place, verify};
use crate::{
    Confidence, Damage, Description, Destination, Extracted, FileCheck, Format, FormatsError, Options, Probe, Progress,
};

/// The format of SION containers.
#[derive(Debug, Clone, Copy)]
pub struct Sion;

impl From<SionError> for FormatsError {
    fn from(error: SionError) -> FormatsError {
        let what = error.to_string();
        match error {
            SionError::Io { action, path, source } => FormatsError::Read { action, path, source },
            SionError::Durable(error) => FormatsError::Write(error),
            SionError::NotSion { path } => {
                FormatsError::Damaged { action: "read", path, what: "it does not begin with \"sion\"".to_owned() }
            }
            SionError::NeverClosed { path } => {
                let what = "it was never closed; use recovery (--recover) to read its chunks".to_owned();
                FormatsError::Damaged { action: "read", path, what }
            }
            SionError::Damaged { path, fault } => {
                FormatsError::Damaged { action: "read", path, what: fault.to_string() }
            }
            SionError::NoSuchTask { path, .. } | SionError::NotKeyValue { path } => {
                FormatsError::NotPossible { action: "read", path, why: what }
            }
            SionError::Plan { path, .. } | SionError::Input { path, .. } => {
                FormatsError::Unwritable { path, why: what }
            }
            SionError::Exists { path } => FormatsError::Exists { path },
        }
    }
}

impl Format for Sion {
    fn name(&self) -> &'static str {
        "sion"
    }

    fn title(&self) -> &'static str {
        "SION container"
    }

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        let name = probe
            .name
            .rsplit_once('.')
            .filter(|(_, end)| end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_digit()));
        let name = name.map_or(probe.name, |(name, _)| name);
        let named = name.ends_with(".sion");
        match probe.head.strip_prefix(&super::MAGIC) {
            Some(rest) if named || is_head(rest) => Confidence::Certain,
            None if named => Confidence::ByName,
            _ => Confidence::No,
        }
    }

    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        // A damaged container is described as recovered, with its warnings.
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
        let mut text = Vec::new();
        let small = chunks(&container) <= MOST_CHUNKS_SHOWN;
        let options = DumpOptions { tasks: small, keys: small, ..DumpOptions::default() };
        if let Err(error) = dump::describe(&container, &options, &mut text) {
            text.extend_from_slice(format!("{error}\n").as_bytes());
            add_error(&mut check, error)?;
        }
        for warning in container.warnings() {
            text.extend_from_slice(format!("warning: {warning}\n").as_bytes());
        }
        let (text, json) = (String::from_utf8_lossy(&text).into_owned(), json(&container, small));
        Ok(Description { text, json, damages: check.damages })
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck, FormatsError> {
        Ok(verify(path, &VerifyOptions::default(), progress)?)
    }

    fn extract(
        &self,
        path: &Path,
        to: &Destination,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Extracted, FormatsError> {
        let options = SplitOptions { recover: options.recover, ..SplitOptions::default() };
        let split = split(path, to, &options, progress)?;
        let mut damages: Vec<Damage> = split.damaged.iter().map(|(_, fault)| damage(path, fault)).collect();
        let losses = split.warnings.iter().filter(|warning| warning.anomaly.is_loss());
        damages
            .extend(losses.map(|loss| Damage::new(loss.anomaly.kind(), place(&loss.path), loss.anomaly.to_string())));
        let bytes = split.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        Ok(Extracted { files: split.files.into_iter().map(|file| file.name).collect(), bytes, damages })
    }
}

/// True if the bytes after the magic number can be a head. Texts can begin with "sion" too, such as siondump's output.
fn is_head(rest: &[u8]) -> bool {
    let orders = rest.first_chunk::<4>().is_some_and(|[m, u, v, n]| m == n && u == v && (m | u) & !1 == 0);
    let version = rest.get(12..16).and_then(|bytes| bytes.first_chunk::<4>()).copied();
    orders
        || version.is_some_and(|bytes| {
            [i32::from_le_bytes(bytes), i32::from_be_bytes(bytes)].iter().any(|it| (1..=99).contains(it))
        })
}

/// Byte counts are part of a description up to this number of chunks; a damaged file may declare many more.
const MOST_CHUNKS_SHOWN: u64 = 1 << 18;

/// The byte counts of a container.
fn chunks(container: &Container) -> u64 {
    let tables =
        container.parts().iter().map(|part| part.table().blocks().saturating_mul(part.header().tasks() as u64));
    tables.fold(0, u64::saturating_add)
}

/// The description as JSON: head, tables and offsets of every file, with SIONlib's field names.
fn json(container: &Container, with_chunks: bool) -> Value {
    let tasks: Vec<Value> = (0..container.tasks())
        .map(|task| {
            let (rank, bytes) = (container.global_rank(task).unwrap_or(-1), container.stream_bytes(task).unwrap_or(0));
            json!({ "index": task, "globalrank": rank, "bytes": bytes })
        })
        .collect();
    let warnings: Vec<String> = container.warnings().iter().map(ToString::to_string).collect();
    json!({
        "files": container.parts().iter().map(|file| part(file, with_chunks)).collect::<Vec<_>>(),
        "logical_tasks": tasks,
        "keyval": if container.key_value() == KeyValue::Inline { "inline" } else { "none" },
        "warnings": warnings,
    })
}

fn part(part: &PhysicalFile, with_chunks: bool) -> Value {
    let (header, layout, table) = (part.header(), part.layout(), part.table());
    let tasks = 0..header.tasks();
    let each = || (0..header.tasks()).map(|task| table.chunk_bytes(task).collect::<Vec<_>>()).collect::<Vec<_>>();
    let chunk_bytes = with_chunks.then(each);
    let mapping = match part.mapping() {
        Mapping::None => Value::Null,
        Mapping::Entries(entries) => json!(entries),
    };
    json!({
        "path": place(part.path()),
        "size": part.length(),
        "version": header.version,
        "patchlevel": header.patch_level,
        "fileformat_version": header.format,
        "metadata_endianness": header.byte_order.as_str(),
        "data_endianness": header.user_order.as_str(),
        "fsblksize": header.block_size,
        "ntasks": header.tasks(),
        "nfiles": header.files,
        "filenumber": header.file_number,
        "flag1": header.flag1,
        "flag2": header.flag2,
        "keyval": header.key_value.code(),
        "prefix": String::from_utf8_lossy(&header.prefix),
        "globalranks": header.global_ranks,
        "chunksizes": header.stored_chunk_sizes,
        "maxchunks": table.blocks(),
        "start_of_varheader": layout.tail(table.blocks()),
        "start_of_data": layout.start_of_data(),
        "globalskip": layout.block_skip(),
        "start_positions": tasks.clone().map(|task| layout.chunk_position(task, 0)).collect::<Vec<_>>(),
        "chunk_counts": tasks.clone().map(|task| table.chunks(task)).collect::<Vec<_>>(),
        "chunk_bytes_by_task": chunk_bytes,
        "mapping": mapping,
    })
}
