//! The descriptors that the parameters request: how often a checkpoint is protected and how, and where it is cached.
//!
//! These are requests; the resulting groups, one per rank, are in [`holdfast_model::RankDescriptor`].

use holdfast_model::{Descriptor, Scheme};

use super::conf::ConfLine;
use super::origin::Origin;
use super::setting::{ParamError, ParamWarning, ParamWarningKind, Setting};
use super::source::Resolver;
use super::value;
use crate::redundancy::groups::GroupRules;
use crate::redundancy::registry;

/// `SCR_COPY_TYPE`: one scheme for every checkpoint, or descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyType {
    /// One descriptor, of this scheme.
    Scheme(Scheme),
    /// The `CKPTDESC` lines define the descriptors. Any value that is not a scheme means this; `FILE` is the usual one.
    File,
}

/// The values for keys that a table does not set.
pub(super) struct Defaults<'a> {
    /// `SCR_COPY_TYPE`.
    pub copy_type: &'a Setting<CopyType>,
    /// `SCR_CACHE_BASE`.
    pub cache_base: &'a Setting<String>,
    /// `SCR_CACHE_SIZE`.
    pub cache_size: u32,
    /// `SCR_HOP_DISTANCE`.
    pub hop_distance: u32,
    /// `SCR_SET_SIZE`.
    pub set_size: u32,
}

/// A requested redundancy descriptor (`CKPTDESC`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointDescriptor {
    pub descriptor: Descriptor,
    pub origin: Origin,
}

/// A cache directory (`CACHEDESC`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDescriptor {
    pub base: String,
    /// Checkpoints that it keeps.
    pub size: u32,
    pub origin: Origin,
}

/// A directory to be checked before a node is used (`CNTLDIR`, `CACHEDIR`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryCheck {
    pub directory: String,
    /// Bytes that it must have room for.
    pub bytes: Option<u64>,
    pub origin: Origin,
}

/// All descriptors that the parameters ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// In the order of their numbers, which count from 0.
    pub checkpoint: Vec<CheckpointDescriptor>,
    /// In the order of their numbers.
    pub cache: Vec<CacheDescriptor>,
}

impl Descriptors {
    /// Checkpoints that a cache directory keeps: 0 for one without descriptor.
    pub fn cache_size(&self, base: &str) -> u32 {
        self.cache.iter().find(|cache| cache.base == base).map_or(0, |cache| cache.size)
    }
}

/// The lines of one table, each with its number and its values, repeated ones put together.
struct DescriptorTable {
    name: &'static str,
    rows: Vec<DescriptorRow>,
}

struct DescriptorRow {
    key: String,
    pairs: Vec<(String, String, Origin)>,
    origin: Origin,
}

impl DescriptorTable {
    fn of(resolver: &Resolver<'_>, name: &'static str) -> DescriptorTable {
        let mut rows: Vec<DescriptorRow> = Vec::new();
        for ConfLine { value: key, pairs, origin, .. } in resolver.table(name) {
            let at = rows.iter().position(|row| row.key == *key).unwrap_or_else(|| {
                rows.push(DescriptorRow { key: key.clone(), pairs: Vec::new(), origin: origin.clone() });
                rows.len() - 1
            });
            rows[at].pairs.extend(pairs.iter().map(|(key, value)| (key.clone(), value.clone(), origin.clone())));
        }
        DescriptorTable { name, rows }
    }

    /// The rows by their numbers, which must be those from 0 without a gap.
    fn numbered(mut self) -> Result<Vec<DescriptorRow>, ParamError> {
        let name = self.name;
        let wrong = |row: &DescriptorRow| ParamError::Value {
            name: name.to_owned(),
            value: row.key.clone(),
            origin: row.origin.clone(),
            expected: "numbers that count from 0 without a gap",
        };
        self.rows.sort_by_key(|row| value::whole::<u32>(&row.key).unwrap_or(u32::MAX));
        match self.rows.iter().enumerate().find(|(at, row)| value::whole(&row.key) != Some(*at)) {
            Some((_, row)) => Err(wrong(row)),
            None => Ok(self.rows),
        }
    }
}

impl DescriptorRow {
    /// A value of the row, the last one if there are several, or the default.
    fn get<T>(
        &self,
        table: &str,
        key: &str,
        default: T,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ParamError> {
        match self.pairs.iter().rfind(|(name, ..)| name == key) {
            None => Ok(default),
            Some((_, value, origin)) => parse(value).ok_or_else(|| ParamError::Value {
                name: format!("{key} of {table}={}", self.key),
                value: value.clone(),
                origin: origin.clone(),
                expected,
            }),
        }
    }

    fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = ParamWarning> + 'a {
        let unknown = self.pairs.iter().filter(|(name, ..)| !known.contains(&name.as_str()));
        unknown.map(|(name, _, origin)| ParamWarning {
            name: name.clone(),
            origin: origin.clone(),
            kind: ParamWarningKind::Unknown,
        })
    }
}

/// The directories of a table of node checks.
pub(super) fn directory_checks(
    resolver: &Resolver<'_>,
    name: &'static str,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Vec<DirectoryCheck>, ParamError> {
    let mut checks = Vec::new();
    for row in DescriptorTable::of(resolver, name).rows {
        warnings.extend(row.unknown(&["BYTES"]));
        let directory = value::directory(&row.key).ok_or_else(|| ParamError::Value {
            name: name.to_owned(),
            value: row.key.clone(),
            origin: row.origin.clone(),
            expected: value::DIRECTORY,
        })?;
        let bytes = row.get(name, "BYTES", None, value::BYTES, |text| value::bytes(text).map(Some))?;
        checks.push(DirectoryCheck { directory, bytes, origin: row.origin });
    }
    Ok(checks)
}

/// The descriptors that these parameters and tables request.
pub(super) fn requested(
    resolver: &Resolver<'_>,
    defaults: &Defaults<'_>,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Descriptors, ParamError> {
    let cache = cache_descriptors(resolver, defaults, warnings)?;
    let checkpoint = match defaults.copy_type.value {
        CopyType::Scheme(scheme) => vec![CheckpointDescriptor {
            descriptor: Descriptor {
                index: 0,
                enabled: true,
                interval: 1,
                base: defaults.cache_base.value.clone(),
                scheme,
                hop_distance: defaults.hop_distance,
                set_size: defaults.set_size,
            },
            origin: defaults.copy_type.origin.clone(),
        }],
        CopyType::File => checkpoint_descriptors(resolver, defaults, warnings)?,
    };
    for CheckpointDescriptor { descriptor, origin } in &checkpoint {
        // A set of one protects nothing, and the original would run on without.
        if let Some(scheme) = registry::get(descriptor.scheme)
            && scheme.check(GroupRules::of(descriptor)).is_err()
        {
            return Err(ParamError::Value {
                name: format!("set size of checkpoint descriptor {}", descriptor.index),
                value: descriptor.set_size.to_string(),
                origin: origin.clone(),
                expected: "as many members as the scheme needs: 2 or more",
            });
        }
    }
    let descriptors = Descriptors { checkpoint, cache };
    // One descriptor for all checkpoints uses the first cache.
    let of_lines = defaults.copy_type.value == CopyType::File;
    warnings.extend(
        descriptors
            .checkpoint
            .iter()
            .filter(|_| of_lines)
            .filter(|asked| asked.descriptor.enabled && descriptors.cache_size(&asked.descriptor.base) == 0)
            .map(|asked| ParamWarning {
                name: format!("checkpoint descriptor {}", asked.descriptor.index),
                origin: asked.origin.clone(),
                kind: ParamWarningKind::NoCache,
            }),
    );
    Ok(descriptors)
}

fn cache_descriptors(
    resolver: &Resolver<'_>,
    defaults: &Defaults<'_>,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Vec<CacheDescriptor>, ParamError> {
    const NAME: &str = "CACHEDESC";
    let Setting { value: base, origin } = defaults.cache_base;
    let size = defaults.cache_size;
    let mut caches = Vec::new();
    for row in DescriptorTable::of(resolver, NAME).numbered()? {
        warnings.extend(row.unknown(&["BASE", "SIZE"]));
        caches.push(CacheDescriptor {
            base: row.get(NAME, "BASE", base.clone(), value::DIRECTORY, value::directory)?,
            size: row.get(NAME, "SIZE", size, value::WHOLE, value::whole)?,
            origin: row.origin,
        });
    }
    if caches.is_empty() {
        caches.push(CacheDescriptor { base: base.clone(), size, origin: origin.clone() });
    }
    Ok(caches)
}

fn checkpoint_descriptors(
    resolver: &Resolver<'_>,
    defaults: &Defaults<'_>,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Vec<CheckpointDescriptor>, ParamError> {
    const NAME: &str = "CKPTDESC";
    const KEYS: &[&str] = &["ENABLED", "INTERVAL", "BASE", "TYPE", "HOP_DISTANCE", "SET_SIZE"];
    let rows = DescriptorTable::of(resolver, NAME).numbered()?;
    if rows.is_empty() {
        let why = "SCR_COPY_TYPE names no redundancy scheme, and then descriptors are needed; add CKPTDESC=0 …";
        return Err(ParamError::Missing { name: NAME.to_owned(), why });
    }
    let mut descriptors = Vec::new();
    for (index, row) in (0_u32..).zip(rows) {
        warnings.extend(row.unknown(KEYS));
        let scheme = |text: &str| registry::named(text.trim());
        let descriptor = Descriptor {
            index,
            enabled: row.get(NAME, "ENABLED", true, value::SWITCH, value::switch)?,
            interval: row.get(NAME, "INTERVAL", 1, value::COUNTING, value::counting)?.into(),
            base: row.get(NAME, "BASE", defaults.cache_base.value.clone(), value::DIRECTORY, value::directory)?,
            scheme: row.get(NAME, "TYPE", registry::DEFAULT, "the name of a redundancy scheme", scheme)?,
            hop_distance: row.get(NAME, "HOP_DISTANCE", defaults.hop_distance, value::COUNTING, value::counting)?,
            set_size: row.get(NAME, "SET_SIZE", defaults.set_size, value::COUNTING, value::counting)?,
        };
        descriptors.push(CheckpointDescriptor { descriptor, origin: row.origin.clone() });
    }
    Ok(descriptors)
}
