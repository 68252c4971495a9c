//! SCR's redundancy files: a hash file as header, followed by redundancy data. Each redundancy scheme that writes files
//! is a format of its own; the scheme provides its name and the rules of its header.

use std::path::Path;
use std::sync::LazyLock;

use holdfast_core::kvtree::{Tree, json, print};
use holdfast_core::redundancy::RedundancyScheme;
use holdfast_core::redundancy::files::FileFormat;
use holdfast_core::redundancy::registry;
use serde_json::json;

use crate::destination::Destination;
use crate::error::FormatsError;
use crate::file_check::{Damage, FileCheck};
use crate::format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};
use crate::scr_hash;
use crate::scr_hash::starts_with_hash;

/// The format of the files of one redundancy scheme.
#[derive(Debug)]
pub struct ScrRedundancy {
    scheme: &'static dyn RedundancyScheme,
    format: FileFormat,
}

static FORMATS: LazyLock<Vec<ScrRedundancy>> = LazyLock::new(|| {
    registry::all().filter_map(|scheme| scheme.file_format().map(|format| ScrRedundancy { scheme, format })).collect()
});

/// The formats of all schemes that write files.
pub(crate) fn all() -> &'static [ScrRedundancy] {
    &FORMATS
}

impl Format for ScrRedundancy {
    fn name(&self) -> &'static str {
        self.format.name
    }

    fn title(&self) -> &'static str {
        self.format.title
    }

    fn recognise(&self, probe: &Probe<'_>) -> Confidence {
        let owner = registry::redundancy_file(probe.name).map(|file| file.set.scheme);
        let named = owner == Some(self.scheme.name());
        match starts_with_hash(probe) {
            Some(bytes) if named || (owner.is_none() && bytes < probe.size) => Confidence::Certain,
            None if named || probe.name.ends_with(self.format.extension) => Confidence::ByName,
            _ => Confidence::No,
        }
    }

    fn describe(&self, path: &Path) -> Result<Description, FormatsError> {
        let (found, size) = scr_hash::read(path)?;
        let (tree, header_bytes) = found.map_err(|why| FormatsError::damaged("describe", path, why))?;
        let data_bytes = size - header_bytes.min(size);
        let mut text = print::text(&tree);
        text.push_str(&format!("header: {header_bytes} bytes, {}: {data_bytes} bytes\n", self.format.data));
        let json = json!({ "header": json::value(&tree), "header_bytes": header_bytes, "data_bytes": data_bytes });
        Ok(Description::new(text, json, Vec::new()))
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck, FormatsError> {
        let (found, size) = scr_hash::read(path)?;
        let mut check = FileCheck::default();
        match found {
            Err(why) => check.damage(Damage::new("hash-file", "header", why.to_string())),
            Ok((tree, header_bytes)) => {
                check.checked_bytes = header_bytes;
                self.check_header(path, &tree, header_bytes, size, &mut check);
            }
        }
        progress(size, size);
        Ok(check)
    }

    fn extract(&self, path: &Path, _: &Destination, _: &Options, _: Progress<'_>) -> Result<Extracted, FormatsError> {
        let why = "it holds redundancy of other files; `holdfast drain` rebuilds a lost file from its complete set"
            .to_owned();
        Err(FormatsError::NotPossible { action: "extract from", path: path.to_owned(), why })
    }
}

impl ScrRedundancy {
    /// Checks the rules of the header, the length of the data and the file's name. No hash in the file covers the
    /// redundancy data.
    fn check_header(&self, path: &Path, header: &Tree, header_bytes: u64, size: u64, check: &mut FileCheck) {
        let described = match self.scheme.describe_header(header, &path.display().to_string()) {
            Ok(described) => described,
            Err(error) => return check.damage(Damage::new("header", "header", error.to_string())),
        };
        if header_bytes.checked_add(described.data_bytes) != Some(size) {
            let found = size - header_bytes.min(size);
            let what = format!("the file has {found} bytes, the header requires {}", described.data_bytes);
            check.damage(Damage::new("length", self.format.data, what).at(header_bytes));
        }
        let name = path.file_name().and_then(|name| name.to_str()).and_then(registry::redundancy_file);
        if let Some(name) = name
            && (name.set.members != described.members || name.member != described.member)
        {
            check.damage(Damage::new("name", "header", "it belongs to another set or member than the file's name"));
        }
        let uncovered = Damage::new("uncovered", self.format.data, "no hash in the file covers it");
        check.note(uncovered.at(header_bytes));
    }
}
