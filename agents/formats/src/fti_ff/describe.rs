//! The description of a file: the text as in the example of FTI's document, the JSON with FTI's field names.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::blocks::ContainerEntry;
use super::checkpoint::{Checkpoint, FtiFile, Parity, inspect};
use super::layout::{FileMeta, Layout};
use super::name::{FileName, FileRole};
use crate::error::FormatsError;
use crate::file_check::Damage;
use crate::format::Description;
use crate::hex::hex;
use crate::input::Input;

/// Describes a file of any role and layout.
///
/// # Errors
/// When the file cannot be read, or nothing in it can be parsed.
pub fn describe(path: &Path) -> Result<Description, FormatsError> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    match inspect(Input::open(path)?)? {
        FtiFile::Checkpoint(checkpoint) => Ok(describe_checkpoint(&checkpoint, name)),
        FtiFile::Parity(parity) => Ok(describe_parity(&parity, name)),
        FtiFile::Unreadable(damage) => Err(FormatsError::damaged("describe", path, damage)),
    }
}

fn head(meta: &FileMeta, hash_valid: bool, role: &str, name: Option<FileName>) -> (String, Map<String, Value>) {
    let mut text = format!("FTI-FF {role}, layout {} ({})\n", meta.layout.letter(), meta.layout.written_by());
    let mut fb = Map::new();
    fb.extend(meta.checkpoint.map(|id| ("ckptId".to_owned(), json!(id))));
    fb.insert("ckptSize".to_owned(), json!(meta.checkpoint_size));
    fb.extend(meta.meta_size.map(|size| ("metaSize".to_owned(), json!(size))));
    fb.extend(meta.data_size.map(|size| ("dataSize".to_owned(), json!(size))));
    fb.insert("fs".to_owned(), json!(meta.file_size));
    fb.insert("maxFs".to_owned(), json!(meta.largest_size));
    fb.insert("ptFs".to_owned(), json!(meta.partner_size));
    fb.insert("timestamp".to_owned(), json!(meta.timestamp));
    for (key, value) in &fb {
        line(&mut text, key, value);
    }
    line(&mut text, "checksum", meta.checksum_text());
    line(&mut text, "myHash", format!("{}{}", hex(&meta.own_hash), if hash_valid { "" } else { " (wrong)" }));
    let mut json = Map::new();
    json.insert("format".to_owned(), json!("fti-ff"));
    json.insert("layout".to_owned(), json!(meta.layout.letter()));
    json.insert("role".to_owned(), json!(role));
    json.insert("fb".to_owned(), Value::Object(fb));
    json.insert("checksum".to_owned(), json!(meta.checksum_text()));
    json.insert("fb_ok".to_owned(), json!(hash_valid));
    let id = meta.checkpoint.map(i64::from).or_else(|| name.and_then(|name| name.checkpoint).map(i64::from));
    json.extend(id.map(|id| ("ckpt_id".to_owned(), json!(id))));
    (text, json)
}

fn head_damage(meta: &FileMeta, hash_valid: bool) -> Vec<Damage> {
    let what = || format!("its hash is {}, stored is {}", hex(&meta.computed_hash()), hex(&meta.own_hash));
    let wrong = (!hash_valid).then(|| Damage::new("file-hash", "file metadata", what()));
    wrong.into_iter().collect()
}

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{key}: {value}");
}

fn describe_checkpoint(checkpoint: &Checkpoint, name: Option<FileName>) -> Description {
    let role = match name.map(|name| name.role) {
        Some(FileRole::Partner) => "partner copy",
        _ => "rank file",
    };
    let (mut text, mut json) = head(&checkpoint.meta, checkpoint.hash_valid, role, name);
    let layout = checkpoint.meta.layout;
    text.push_str(&table(checkpoint));
    let blocks: Vec<Value> = checkpoint
        .blocks()
        .iter()
        .map(|block| {
            let vars: Vec<Value> = block.entries.iter().map(|entry| entry_json(layout, entry)).collect();
            json!({ "offset": block.offset, "numvars": block.numvars, "dbsize": block.dbsize, "vars": vars })
        })
        .collect();
    json.insert("blocks".to_owned(), Value::Array(blocks));
    match name {
        Some(FileName { role: FileRole::Rank, rank, .. }) => {
            json.insert("owner_rank".to_owned(), json!(rank));
        }
        Some(FileName { rank, .. }) => {
            json.insert("stored_on_rank".to_owned(), json!(rank));
        }
        None => {}
    }
    text.push_str("Variables\n");
    let mut variables = Map::new();
    for variable in checkpoint.variables() {
        let (size, chunks) = (variable.size(), variable.chunks.len());
        let _ = writeln!(text, "  id {}: {size} bytes in {chunks} containers", variable.id);
        variables.insert(variable.id.to_string(), json!({ "size": size }));
    }
    json.insert("variables".to_owned(), Value::Object(variables));
    let damages: Vec<Value> = checkpoint.walk.damages.iter().map(|damage| damage.json()).collect();
    for damage in &checkpoint.walk.damages {
        let _ = writeln!(text, "DAMAGED {damage}");
    }
    json.insert("damages".to_owned(), Value::Array(damages));
    let mut damages = head_damage(&checkpoint.meta, checkpoint.hash_valid);
    damages.extend(checkpoint.walk.damages.iter().cloned());
    Description::new(text, Value::Object(json), damages)
}

fn entry_json(layout: Layout, entry: &ContainerEntry) -> Value {
    let mut json = Map::new();
    let mut put = |key: &str, value: Value| json.insert(key.to_owned(), value);
    put("id", json!(entry.id));
    if let Some(idx) = entry.idx {
        put("idx", json!(idx));
    }
    put("containerid", json!(entry.containerid));
    put("hascontent", json!(entry.hascontent));
    if let Some(flag) = entry.has_checkpoint {
        put("hasCkpt", json!(flag));
    }
    if layout == Layout::A {
        put("pad", json!(hex(&entry.padding)));
    }
    put("dptr", json!(entry.dptr));
    put("fptr", json!(entry.fptr));
    put("chunksize", json!(entry.chunksize));
    put("containersize", json!(entry.containersize));
    put("hash", json!(hex(&entry.hash)));
    Value::Object(json)
}

/// The block and variable tables in the document's form, without pointers, which are not in the file.
pub fn table(checkpoint: &Checkpoint) -> String {
    let layout = checkpoint.meta.layout;
    let mut text = String::from("------------------- DATASTRUCTURE BEGIN -------------------\n\n");
    let mut field = |indent: usize, key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{:indent$}{key}: {value}", "");
    };
    for (number, block) in checkpoint.blocks().iter().enumerate() {
        field(4, "DataBase-id", &number);
        field(4, "numvars", &block.numvars);
        field(4, "dbsize", &block.dbsize);
        let metadata = layout.head_bytes() + block.entries.len() * layout.entry_bytes();
        field(4, "[size metadata", &format_args!("{metadata}]\n"));
        for (index, entry) in block.entries.iter().enumerate() {
            field(8, "Var-id", &index);
            field(8, "id", &entry.id);
            if let Some(idx) = entry.idx {
                field(8, "idx", &idx);
            }
            field(8, "containerid", &entry.containerid);
            field(8, "hascontent", &entry.is_filled());
            field(8, "dptr", &entry.dptr);
            field(8, "fptr", &entry.fptr);
            field(8, "chunksize", &entry.chunksize);
            field(8, "containersize", &entry.containersize);
            field(8, "hash", &format_args!("{}\n", hex(&entry.hash)));
        }
    }
    text.push_str("\n------------------- DATASTRUCTURE END ---------------------\n");
    text
}

fn describe_parity(parity: &Parity, name: Option<FileName>) -> Description {
    let (mut text, mut json) = head(&parity.meta, parity.hash_valid, "Reed-Solomon parity", name);
    line(&mut text, "parity bytes", parity.data_bytes());
    json.insert("trailer_bytes".to_owned(), json!(parity.meta.layout.meta_bytes()));
    json.extend(name.map(|name| ("stored_on_rank".to_owned(), json!(name.rank))));
    Description::new(text, Value::Object(json), head_damage(&parity.meta, parity.hash_valid))
}
