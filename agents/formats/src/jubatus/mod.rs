//! The model files of Jubatus servers (`<address>_<port>_<type>_<id>.jubatus`) in format version 1, as written by the
//! releases 0.5.0 to 1.1.1: a header, the system data and the user data, both in the old dialect of MessagePack.
//!
//! * [`header`]: the 48-byte header, and the checksum;
//! * [`msgpack`]: a tokenizer for blocks of bounded length, and an encoder of the dialect, for files and for RPC;
//! * [`system_data`]: the first block;
//! * [`schema`], `structures`, `layout`: the required structure of the second one, by engine and configuration;
//! * [`mod@scan`]: one pass over a file that collects facts; [`verify`]: whether a server accepts a file with them;
//! * [`config`]: the equality of two configurations;
//! * [`describe`]: the file's description; [`write`](mod@write): atomic replacement of a model file;
//! * [`engine`], [`name`]: the engines, the ids, and the names of files and servers.
//!
//! A [`Judgement`] is a function of a scan and of the [`Server`] that is to load the file: one pass over a large model
//! is sufficient to verify it for every server of a cluster.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::path::Path;

pub mod config;
pub mod describe;
pub mod engine;
#[cfg(any(test, fuzzing))]
pub(crate) mod examples;
pub mod header;
mod layout;
pub mod msgpack;
pub mod name;
pub mod scan;
pub mod schema;
mod structures;
pub mod system_data;
pub mod verify;
pub mod write;

pub use engine::Engine;
pub use header::{Header, Release};
pub use name::{IdError, ModelFileName, ModelId};
pub use scan::{Scan, ScanOptions, scan};
pub use system_data::SystemData;
pub use verify::{Judgement, Refusal, Rules, Server, Stage, judge};
pub use write::{NewModel, write_block, write_model};

use crate::destination::Destination;
use crate::error::{FormatsError, Result};
use crate::file_check::{Damage, FileCheck};
use crate::format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};
use crate::input::Input;

/// The format of Jubatus model files.
#[derive(Debug, Clone, Copy)]
pub struct Jubatus;

impl Format for Jubatus {
    fn name(&self) -> &'static str {
        "jubatus"
    }

    fn title(&self) -> &'static str {
        "Jubatus model"
    }

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        if probe.head.starts_with(&header::MAGIC) {
            Confidence::Certain
        } else if probe.head.starts_with(b"jubatus") && probe.size >= header::HEADER_LENGTH {
            Confidence::Likely
        } else if probe.name.ends_with(".jubatus") {
            Confidence::ByName
        } else {
            Confidence::No
        }
    }

    /// Reads the complete file, because its digests are part of the description.
    fn describe(&self, path: &Path) -> Result<Description> {
        let want = ScanOptions { digests: true, user_data_up_to: describe::MAX_MODEL_SHOWN };
        let scan = scan_file(path, want, &mut |_, _| ())?;
        match scan.header {
            Some(header) if header.magic == header::MAGIC => {
                let (text, json) = (describe::to_text(&scan), describe::to_json(path, &scan));
                Ok(Description::new(text, json, by_itself(&scan).into_iter().collect()))
            }
            _ => Err(FormatsError::damaged(
                "describe",
                path,
                "it does not start with the header of a Jubatus model file",
            )),
        }
    }

    fn verify(&self, path: &Path, options: &Options, progress: Progress<'_>) -> Result<FileCheck> {
        let rules = if options.as_documented { Rules::Documented } else { Rules::Released };
        let server =
            ModelFileName::of(path).map_or_else(|| Server::newest(rules), |name| Server::for_name(&name, rules));
        verify_for(path, &server, progress)
    }

    /// Writes `config.json`, the text of the configuration, and `model.msgpack`, the engine's own part of the user
    /// data.
    fn extract(&self, path: &Path, to: &Destination, options: &Options, progress: Progress<'_>) -> Result<Extracted> {
        let input = Input::open(path)?;
        let scan = scan_input(&input, ScanOptions::default(), progress)?;
        let mut extracted = Extracted::default();
        if let Some(damage) = by_itself(&scan) {
            extracted.damages.push(damage);
            if !options.recover {
                return Ok(extracted);
            }
        }
        if let Some(Ok((system, _))) = scan.system.as_ref().map(|block| &block.data) {
            to.write("config.json", |out| out.write_all(&system.config))?;
            extracted.files.push("config.json".to_owned());
            extracted.bytes += system.config.len() as u64;
        }
        if let Some(header) = &scan.header
            && let Some(offset) = header.user_data_offset()
            && let Ok(blocks) = &scan.blocks
            && let Ok(user) = &blocks.user
            && user.members.is_some_and(|members| members >= 2)
        {
            let from = offset.saturating_add(user.model_offset);
            let bytes = user.model_length;
            let Ok(()) =
                to.write_unless_refused::<_, Infallible>("model.msgpack", |out| input.copy(from, bytes, out, |_| {}))?;
            extracted.files.push("model.msgpack".to_owned());
            extracted.bytes += bytes;
        }
        Ok(extracted)
    }
}

/// Scans a file in one pass.
pub fn scan_file(path: &Path, want: ScanOptions, progress: Progress<'_>) -> Result<Scan> {
    scan_input(&Input::open(path)?, want, progress)
}

fn scan_input(input: &Input, want: ScanOptions, progress: Progress<'_>) -> Result<Scan> {
    let (size, mut done) = (input.size, 0_u64);
    let mut report = |bytes| {
        done = done.saturating_add(bytes);
        progress(done, size);
    };
    scan(input.stream().take(size), size, want, &mut report).map_err(FormatsError::reading("read", &input.path))
}

/// Checks whether this server would load this file.
pub fn verify_for(path: &Path, server: &Server, progress: Progress<'_>) -> Result<FileCheck> {
    let scan = scan_file(path, ScanOptions::default(), progress)?;
    let judgement = judge(&scan, server);
    let mut check = FileCheck { checked_bytes: checked_bytes(&scan), ..FileCheck::default() };
    if let Some(refusal) = judgement.refusal {
        check.damage(refused(refusal));
    }
    judgement.notes.into_iter().for_each(|note| check.note(note));
    let user = scan.blocks.as_ref().ok().and_then(|blocks| blocks.user.as_ref().ok());
    if user.is_some_and(|user| !user.is_engine_data_checked) {
        check.unchecked.push("engine data");
    }
    Ok(check)
}

/// The damage of a file, independent of its server and its name.
fn by_itself(scan: &Scan) -> Option<Damage> {
    let release = scan.header.map_or(Release::NEWEST, |header| header.release);
    judge(scan, &Server { release, ..Server::newest(Rules::Documented) }).refusal.map(refused)
}

fn refused(refusal: Refusal) -> Damage {
    let damage = Damage::new(refusal.stage.name(), place(refusal.stage), refusal.what);
    Damage { offset: refusal.offset, ..damage }
}

fn checked_bytes(scan: &Scan) -> u64 {
    scan.blocks.as_ref().map_or(0, |blocks| scan.length.saturating_sub(blocks.trailing))
}

fn place(stage: Stage) -> &'static str {
    match stage {
        Stage::Magic | Stage::FormatVersion | Stage::JubatusVersion | Stage::Size => "header",
        Stage::Truncated | Stage::Crc32 => "model file",
        Stage::SystemData | Stage::SystemDataVersion | Stage::Type | Stage::Id | Stage::Config => "system data",
        Stage::UserData | Stage::UserDataVersion => "user data",
    }
}
