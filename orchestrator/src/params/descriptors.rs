//! The descriptors that the parameters request: how often a checkpoint is protected and how, and where it is cached.
//!
//! These are requests; the resulting groups, one per rank, are in [`holdfast_model::RankDescriptor`].

use holdfast_model::{Descriptor, Scheme, SchemeNumbers};

use super::conf::ConfLine;
use super::origin::Origin;
use super::setting::{ParamError, ParamWarning, ParamWarningKind};
use super::source::Resolver;
use super::value::{self, ValueKind};
use holdfast_core::redundancy::groups::GroupRules;
use holdfast_core::redundancy::numbers::SchemeNumber;
use holdfast_core::redundancy::registry;

/// `SCR_COPY_TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyType {
    /// The scheme of the one descriptor. `None`: the `CKPTDESC` lines define the descriptors. Any value that is not a
    /// scheme means this; `FILE` is the usual one.
    pub scheme: Option<Scheme>,
    pub origin: Origin,
}

/// The values for keys that a table does not set.
struct Defaults {
    copy_type: CopyType,
    /// `SCR_CACHE_BASE`.
    cache_base: String,
    cache_base_origin: Origin,
    /// `SCR_CACHE_SIZE`.
    cache_size: u32,
    /// Of all schemes, each by its parameter.
    numbers: SchemeNumbers,
}

impl Defaults {
    fn of(resolver: &Resolver<'_>) -> Result<Defaults, ParamError> {
        let (copy_type, cache_base) = (resolver.setting("SCR_COPY_TYPE")?, resolver.setting("SCR_CACHE_BASE")?);
        let number = |declared: &'static SchemeNumber| {
            let value = resolver.setting(declared.parameter)?.read(value::whole);
            Ok((declared.name, value.unwrap_or(declared.default)))
        };
        Ok(Defaults {
            copy_type: CopyType { scheme: value::scheme(&copy_type.value), origin: copy_type.origin.clone() },
            cache_base: cache_base.read(value::directory).unwrap_or_default(),
            cache_base_origin: cache_base.origin.clone(),
            cache_size: resolver.setting("SCR_CACHE_SIZE")?.read(value::whole).unwrap_or_default(),
            numbers: registry::numbers().into_iter().map(number).collect::<Result<_, _>>()?,
        })
    }
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
    pub copy_type: CopyType,
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
        kind: ValueKind,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ParamError> {
        match self.pairs.iter().rfind(|(name, ..)| name == key) {
            None => Ok(default),
            Some((_, value, origin)) => read(value).ok_or_else(|| ParamError::Value {
                name: format!("{key} of {table}={}", self.key),
                value: value.clone(),
                origin: origin.clone(),
                expected: kind.expected(),
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
            expected: ValueKind::Directory.expected(),
        })?;
        let bytes = row.get(name, "BYTES", None, ValueKind::Bytes, |text| value::bytes(text).map(Some))?;
        checks.push(DirectoryCheck { directory, bytes, origin: row.origin });
    }
    Ok(checks)
}

/// The descriptors that these parameters and tables request.
pub(super) fn requested(resolver: &Resolver<'_>, warnings: &mut Vec<ParamWarning>) -> Result<Descriptors, ParamError> {
    let defaults = Defaults::of(resolver)?;
    let cache = cache_descriptors(resolver, &defaults, warnings)?;
    let checkpoint = match defaults.copy_type.scheme {
        Some(scheme) => vec![CheckpointDescriptor {
            descriptor: Descriptor {
                index: 0,
                enabled: true,
                interval: 1,
                base: defaults.cache_base.clone(),
                scheme,
                numbers: registry::numbers_of(scheme)
                    .into_iter()
                    .map(|number| (number.name, number.of(&defaults.numbers)))
                    .collect(),
            },
            origin: defaults.copy_type.origin.clone(),
        }],
        None => checkpoint_descriptors(resolver, &defaults, warnings)?,
    };
    for CheckpointDescriptor { descriptor, origin } in &checkpoint {
        // The original would run on, without protection.
        registry::check(GroupRules::of(descriptor)).map_err(|refused| ParamError::Value {
            name: format!("{} of checkpoint descriptor {}", refused.number.title, descriptor.index),
            value: refused.value.to_string(),
            origin: origin.clone(),
            expected: refused.expected,
        })?;
    }
    // One descriptor for all checkpoints uses the first cache.
    let of_lines = defaults.copy_type.scheme.is_none();
    let descriptors = Descriptors { copy_type: defaults.copy_type, checkpoint, cache };
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
    defaults: &Defaults,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Vec<CacheDescriptor>, ParamError> {
    const NAME: &str = "CACHEDESC";
    let Defaults { cache_base: base, cache_base_origin: origin, cache_size: size, .. } = defaults;
    let mut caches = Vec::new();
    for row in DescriptorTable::of(resolver, NAME).numbered()? {
        warnings.extend(row.unknown(&["BASE", "SIZE"]));
        caches.push(CacheDescriptor {
            base: row.get(NAME, "BASE", base.clone(), ValueKind::Directory, value::directory)?,
            size: row.get(NAME, "SIZE", *size, ValueKind::Whole, value::whole)?,
            origin: row.origin,
        });
    }
    if caches.is_empty() {
        caches.push(CacheDescriptor { base: base.clone(), size: *size, origin: origin.clone() });
    }
    Ok(caches)
}

fn checkpoint_descriptors(
    resolver: &Resolver<'_>,
    defaults: &Defaults,
    warnings: &mut Vec<ParamWarning>,
) -> Result<Vec<CheckpointDescriptor>, ParamError> {
    const NAME: &str = "CKPTDESC";
    const KEYS: &[&str] = &["ENABLED", "INTERVAL", "BASE", "TYPE"];
    let rows = DescriptorTable::of(resolver, NAME).numbered()?;
    if rows.is_empty() {
        let why = "SCR_COPY_TYPE names no redundancy scheme, and then descriptors are needed; add CKPTDESC=0 …";
        return Err(ParamError::Missing { name: NAME.to_owned(), why });
    }
    let mut descriptors = Vec::new();
    for (index, row) in (0_u32..).zip(rows) {
        let scheme = row.get(NAME, "TYPE", registry::DEFAULT, ValueKind::Scheme, value::scheme)?;
        let numbers = registry::numbers_of(scheme);
        let known: Vec<&str> = KEYS.iter().copied().chain(numbers.iter().map(|number| number.name.as_str())).collect();
        warnings.extend(row.unknown(&known));
        let number = |number: &&'static SchemeNumber| {
            let default = number.of(&defaults.numbers);
            Ok((number.name, row.get(NAME, number.name.as_str(), default, ValueKind::Counting, value::counting)?))
        };
        let descriptor = Descriptor {
            index,
            enabled: row.get(NAME, "ENABLED", true, ValueKind::Switch, value::switch)?,
            interval: row.get(NAME, "INTERVAL", 1, ValueKind::Counting, value::counting)?.into(),
            base: row.get(NAME, "BASE", defaults.cache_base.clone(), ValueKind::Directory, value::directory)?,
            scheme,
            numbers: numbers.iter().map(number).collect::<Result<_, ParamError>>()?,
        };
        descriptors.push(CheckpointDescriptor { descriptor, origin: row.origin.clone() });
    }
    Ok(descriptors)
}
