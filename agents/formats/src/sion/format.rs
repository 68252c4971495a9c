//! SION as a [`Format`]: recognised by its magic number, or by the file's name if that is damaged.

use std::path::Path;

use super::damages::damage;
use super::dataset::is_rank_file;
use super::description::ContainerDescription;
use super::error::SionError;
use super::header::MAGIC;
use super::slot::{dataset_of, place};
use super::split::{SplitOptions, split};
use super::verify::{VerifyOptions, verify};
use crate::destination::Destination;
use crate::error::{FormatsError, Result};
use crate::file_check::{Damage, FileCheck};
use crate::format::{Confidence, Description, Extracted, Format, Options, Probe, Progress};

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
            SionError::Exists { path } | SionError::Taken { path } => FormatsError::Exists { path },
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
        let is_file_of_rank = || dataset_of(&probe.input.path).is_ok_and(|dataset| is_rank_file(&*dataset, probe.name));
        match probe.head.strip_prefix(&MAGIC) {
            Some(rest) if named || is_head(rest) => Confidence::Certain,
            None if named && !is_file_of_rank() => Confidence::ByName,
            _ => Confidence::No,
        }
    }

    fn describe(&self, path: &Path) -> Result<Description> {
        let (description, damages) = ContainerDescription::of(path)?;
        Ok(Description { content: Box::new(description), damages })
    }

    fn verify(&self, path: &Path, _: &Options, progress: Progress<'_>) -> Result<FileCheck> {
        Ok(verify(path, &VerifyOptions::default(), progress)?)
    }

    fn extract(&self, path: &Path, to: &Destination, options: &Options, progress: Progress<'_>) -> Result<Extracted> {
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
