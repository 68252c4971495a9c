//! The description of a file as text and as JSON.

use std::path::Path;

use serde_json::{Map, Number, Value, json};

use super::header::Header;
use super::msgpack::{MAX_DEPTH, MsgpackError, Token, TokenReader};
use super::name::ModelFileName;
use super::scan::{Blocks, Scan, SystemBlock};
use super::system_data::SystemData;
use crate::hex::hex;

/// Models with up to this many bytes of user data are part of a description.
pub const MAX_MODEL_SHOWN: u64 = 20_000;

/// The description of a file that was scanned with digests and with the user data up to [`MAX_MODEL_SHOWN`].
/// What could not be read from a damaged file is `null`.
pub fn to_json(path: &Path, scan: &Scan) -> Value {
    let blocks = scan.blocks.as_ref().ok();
    json!({
        "file": path.file_name().map(|name| name.to_string_lossy()),
        "file_size": scan.length,
        "sha256": scan.sha256.map(|digest| hex(&digest)),
        "file_name": ModelFileName::of(path).map(|name| json!({
            "address": name.address,
            "port": name.port,
            "type_in_name": name.type_in_name(),
            "id": name.id,
        })),
        "header": scan.header.as_ref().map(header_json),
        "crc32_computed": blocks.map(|blocks| format!("{:08x}", blocks.crc32)),
        "system_data": scan.system.as_ref().and_then(system_data_json),
        "user_data": blocks.map(user_data_json),
    })
}

fn header_json(header: &Header) -> Value {
    json!({
        "magic_hex": hex(&header.magic),
        "format_version": header.format_version,
        "jubatus_version": {
            "major": header.release.major,
            "minor": header.release.minor,
            "maintenance": header.release.maintenance,
        },
        "crc32": format!("{:08x}", header.crc32),
        "system_data_size": header.system_data_size,
        "user_data_size": header.user_data_size,
        "header_hex": hex(&header.encode()),
    })
}

fn system_data_json(block: &SystemBlock) -> Option<Value> {
    let (system, _) = block.data.as_ref().ok()?;
    Some(json!({
        "version": system.version,
        "timestamp": system.timestamp,
        "type": text_json(&system.engine),
        "id": text_json(&system.id),
        "config": text_json(&system.config),
        "sha256_of_block": block.sha256.map(|digest| hex(&digest)),
    }))
}

fn user_data_json(blocks: &Blocks) -> Value {
    let user = blocks.user.as_ref().ok();
    let mut object = Map::new();
    object.insert("version".to_owned(), user.and_then(|user| user.version).into());
    object.insert("outer_array_length".to_owned(), user.and_then(|user| user.members).into());
    object.insert("sha256_of_block".to_owned(), blocks.user_sha256.map(|digest| hex(&digest)).into());
    if let Some(model) = blocks.user_bytes.as_deref().and_then(|bytes| model_json(bytes).ok().flatten()) {
        object.insert("model".to_owned(), model);
    }
    Value::Object(object)
}

/// The model: the second member of the user data.
fn model_json(block: &[u8]) -> Result<Option<Value>, MsgpackError> {
    let mut source = TokenReader::block(block, block.len() as u64);
    match source.token()? {
        Token::Array(members) if members >= 2 => {}
        _ => return Ok(None),
    }
    value_json(&mut source, 1)?;
    value_json(&mut source, 1).map(Some)
}

fn value_json(source: &mut TokenReader<&[u8]>, depth: usize) -> Result<Value, MsgpackError> {
    let offset = source.offset();
    let token = source.token()?;
    if matches!(token, Token::Array(_) | Token::Map(_)) && depth >= MAX_DEPTH {
        return Err(MsgpackError::TooDeep { offset });
    }
    Ok(match token {
        Token::Nil => Value::Null,
        Token::Bool(value) => value.into(),
        Token::Unsigned(value) => value.into(),
        Token::Negative(value) => value.into(),
        Token::Float32(value) => float_json(f64::from(value)),
        Token::Float64(value) => float_json(value),
        Token::Text { length, .. } => text_json(&source.text(length, u32::MAX)?),
        // No capacity is reserved: the count is untrusted.
        Token::Array(count) => {
            let mut members = Vec::new();
            for _ in 0..count {
                members.push(value_json(source, depth + 1)?);
            }
            members.into()
        }
        Token::Map(count) => {
            let mut pairs = Vec::new();
            for _ in 0..count {
                pairs.push(json!([value_json(source, depth + 1)?, value_json(source, depth + 1)?]));
            }
            json!({ "$map": pairs })
        }
    })
}

/// JSON has neither infinities nor NaN.
fn float_json(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| json!({ "$float": value.to_string() }), Value::Number)
}

fn text_json(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!({ "$hex": hex(bytes) }), Value::from)
}

pub fn to_text(scan: &Scan) -> String {
    let mut lines = Vec::new();
    if let Some(header) = &scan.header {
        lines.push(format!("format version  {}", header.format_version));
        lines.push(format!("Jubatus         {}", header.release));
        lines.push(format!("system data     {} bytes", header.system_data_size));
        lines.push(format!("user data       {} bytes", header.user_data_size));
        lines.push(format!("crc32           {:08x}", header.crc32));
    }
    match scan.system.as_ref().map(|block| &block.data) {
        Some(Ok((system, _))) => system_lines(system, &mut lines),
        Some(Err(error)) => lines.push(format!("system data     damaged: {error}")),
        None => {}
    }
    match &scan.blocks {
        Ok(blocks) => {
            if scan.header.is_some_and(|header| header.crc32 != blocks.crc32) {
                lines.push(format!("crc32 computed  {:08x}: the file is damaged", blocks.crc32));
            }
            match &blocks.user {
                Ok(user) => lines.extend(user.version.map(|version| format!("model version   {version}"))),
                Err(fault) => lines.push(format!("user data       damaged: {fault}")),
            }
        }
        Err(fault) => lines.push(format!("damaged         {fault}")),
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn system_lines(system: &SystemData, lines: &mut Vec<String>) {
    // Control characters are escaped, because a terminal would interpret them.
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    lines.push(format!("type            {}", shown(&system.engine)));
    lines.push(format!("id              {}", shown(&system.id)));
    lines.push(format!("saved at        {} s after 1970-01-01", system.timestamp));
    lines.push("config".to_owned());
    for line in String::from_utf8_lossy(&system.config).lines() {
        lines.push(format!(
            "  {}",
            line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect::<String>()
        ));
    }
}
