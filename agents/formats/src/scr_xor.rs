//! SCR's XOR files: a hash file as header, and one chunk of XOR data behind it.

use std::path::Path;

use serde_json::json;

use super::{Confidence, Damage, Description, Destination, Extracted, Format, FormatsError, Options, Probe, Progress};
use super::{Verdict, scr_hash};
use holdfast_core::kvtree::{json, print};
use holdfast_core::redundancy::xor::header::Header;
use holdfast_core::redundancy::xor::name::XorName;

/// The format of SCR's XOR files.
#[derive(Debug, Clone, Copy)]
pub struct ScrXor;

impl Format for ScrXor {
    fn name(&self) -> &'static str {
        "scr-xor"
    }

    fn title(&self) -> &'static str {
        "SCR XOR file"
    }

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        let named = XorName::parse(probe.name).is_some();
        match scr_hash::starts_with_hash(probe) {
            Some(bytes) if bytes < probe.size || named => Confidence::Certain,
            None if named || probe.name.ends_with(".xor") => Confidence::ByName,
            _ => Confidence::No,
        }
    }

    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        let (found, size) = scr_hash::read(path)?;
        let (tree, header_bytes) = found.map_err(|why| FormatsError::damaged("describe", path, why))?;
        let data_bytes = size - header_bytes.min(size);
        let mut text = print::text(&tree);
        text.push_str(&format!("header: {header_bytes} bytes, XOR data: {data_bytes} bytes\n"));
        let json = json!({ "header": json::value(&tree), "header_bytes": header_bytes, "data_bytes": data_bytes });
        Ok(Description { text, json, damages: Vec::new() })
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<Verdict, FormatsError> {
        let (found, size) = scr_hash::read(path)?;
        let mut verdict = Verdict::default();
        match found {
            Err(fault) => verdict.damage(Damage::new("hash-file", "header", fault.to_string())),
            Ok((tree, header_bytes)) => {
                verdict.checked_bytes = header_bytes;
                check(path, &Header::from_tree(&tree, &path.display().to_string()), header_bytes, size, &mut verdict);
            }
        }
        progress(size, size);
        Ok(verdict)
    }

    fn extract(&self, path: &Path, _: &Destination, _: &Options, _: Progress<'_>) -> Result<Extracted, FormatsError> {
        let why =
            "it holds the XOR of other files; `holdfast drain` rebuilds a lost file from its whole set".to_owned();
        Err(FormatsError::NotPossible { action: "extract from", path: path.to_owned(), why })
    }
}

/// The header's own rules, the length they ask for, and the name. No hash in the file covers the XOR data.
fn check<E: std::fmt::Display>(
    path: &Path,
    header: &Result<Header, E>,
    header_bytes: u64,
    size: u64,
    verdict: &mut Verdict,
) {
    let header = match header {
        Ok(header) => header,
        Err(error) => return verdict.damage(Damage::new("header", "header", error.to_string())),
    };
    if header_bytes.checked_add(header.chunk) != Some(size) {
        let what = format!("{} bytes are there, the header says {}", size - header_bytes.min(size), header.chunk);
        verdict.damage(Damage::new("length", "XOR data", what).at(header_bytes));
    }
    let name = path.file_name().and_then(|name| name.to_str()).and_then(XorName::parse);
    if let Some(name) = name
        && (name.members as usize != header.members.len() || Some(name.index as usize) != header.index())
    {
        verdict.damage(Damage::new("name", "header", "it is of another set or member than the file's name says"));
    }
    verdict.remark(Damage::new("uncovered", "XOR data", "no hash in the file covers it").at(header_bytes));
}
