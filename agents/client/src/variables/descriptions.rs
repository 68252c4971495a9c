//! What a program declares of its variables besides their content: identifiers, names and shapes, as the calls of FTI
//! 1.6 set them. FTI-FF files have no place for them: a rank that has described variables writes a file of its own into
//! each checkpoint, `Ckpt<id>-Rank<r>.names.json`. Identifiers are found again in a restart.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{Result, VariablesError};
use super::{VariableId, Variables};

/// The largest file that is read: 10,000 variables have one of 10 MiB at most.
const MOST_BYTES: u64 = 64 << 20;
/// The version of the file.
const VERSION: u32 = 1;
/// The most dimensions of a shape, as in FTI.
pub const MOST_DIMENSIONS: usize = 32;
/// The most bytes of an identifier or a name, as in FTI.
pub const LONGEST_NAME: usize = 255;

/// What a program declares of a variable. The content of the variable is not compared with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The text by which the program finds the variable's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Elements along each dimension, the one that is contiguous in memory first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dimensions: Vec<u64>,
}

/// The descriptions of this process, and those of the checkpoint to restart from.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    own: BTreeMap<i32, Description>,
    /// Of the checkpoint in this directory.
    stored: Option<(PathBuf, BTreeMap<i32, Description>)>,
}

#[derive(Serialize, Deserialize)]
struct DescriptionsFile {
    version: u32,
    /// CRC-32 of the variables as JSON without spaces.
    crc32: u32,
    variables: Vec<Described>,
}

#[derive(Serialize, Deserialize)]
struct Described {
    id: i32,
    #[serde(flatten)]
    description: Description,
}

impl Variables {
    /// The id of the variable with this identifier: the known one, that of the checkpoint to restart from, or else a
    /// new one, which no variable has. Not collective.
    ///
    /// # Errors
    /// When the identifier is empty or too long, or there is no free id.
    pub fn identify(&mut self, identifier: &str) -> Result<VariableId> {
        if let Some(known) = self.find_identifier(identifier)? {
            return Ok(known);
        }
        let own = self.descriptions.own.keys().filter(|id| !self.protected.iter().any(|known| known.id.0 == **id));
        let first = i32::try_from(self.protected.len() + own.count()).map_err(|_| VariablesError::NoFreeId)?;
        let stored = self.descriptions.stored.as_ref().map(|(_, stored)| stored);
        let is_free = |id: &i32| {
            let is_described = self.descriptions.own.contains_key(id) || stored.is_some_and(|all| all.contains_key(id));
            !is_described && !self.protected.iter().any(|known| known.id.0 == *id)
        };
        let id = (first..=i32::MAX).find(is_free).ok_or(VariablesError::NoFreeId)?;
        let description = Description { identifier: Some(identifier.to_owned()), ..Description::default() };
        self.descriptions.own.insert(id, description);
        Ok(VariableId(id))
    }

    /// The id of the variable with this identifier, if this process has set it, or the checkpoint to restart from has
    /// it. Not collective.
    ///
    /// # Errors
    /// When the identifier is empty or too long.
    pub fn find_identifier(&mut self, identifier: &str) -> Result<Option<VariableId>> {
        check_name("identifier", identifier)?;
        self.load_descriptions();
        let has_it = |description: &Description| description.identifier.as_deref() == Some(identifier);
        if let Some((id, _)) = self.descriptions.own.iter().find(|(_, description)| has_it(description)) {
            return Ok(Some(VariableId(*id)));
        }
        let stored = self.descriptions.stored.iter().flat_map(|(_, stored)| stored);
        let found = stored.into_iter().find(|(_, description)| has_it(description));
        let Some((id, description)) = found.map(|(id, description)| (*id, description.clone())) else {
            return Ok(None);
        };
        // Later checkpoints have it, too.
        self.descriptions.own.entry(id).or_insert(description);
        Ok(Some(VariableId(id)))
    }

    /// Describes a variable: what is `None` stays as it is.
    ///
    /// # Errors
    /// When no variable has this id, the name is empty or too long, or there are no dimensions or too many.
    pub fn describe_variable(
        &mut self,
        id: impl Into<VariableId>,
        name: Option<&str>,
        dimensions: Option<&[u64]>,
    ) -> Result<()> {
        let id = id.into();
        if !self.protected.iter().any(|known| known.id == id) && !self.descriptions.own.contains_key(&id.0) {
            return Err(VariablesError::Unprotected { call: "describe_variable", id });
        }
        name.map_or(Ok(()), |name| check_name("name", name))?;
        if let Some(given) = dimensions.map(<[u64]>::len).filter(|given| !(1..=MOST_DIMENSIONS).contains(given)) {
            return Err(VariablesError::Dimensions { id, given });
        }
        let description = self.descriptions.own.entry(id.0).or_default();
        description.name = name.map(str::to_owned).or_else(|| description.name.take());
        description.dimensions =
            dimensions.map_or_else(|| std::mem::take(&mut description.dimensions), <[u64]>::to_vec);
        Ok(())
    }

    /// Writes the descriptions of the protected variables into the checkpoint that was started, if there are any.
    pub(super) fn write_descriptions(&mut self, checkpoint: u32) -> Result<()> {
        let own = &self.descriptions.own;
        let described = self
            .protected
            .iter()
            .filter_map(|known| Some(Described { id: known.id.0, description: own.get(&known.id.0)?.clone() }));
        let variables: Vec<Described> = described.collect();
        if variables.is_empty() {
            return Ok(());
        }
        let path = self.client.route_file(file_name(checkpoint, self.client.rank().0))?;
        let failed = |reason: String| VariablesError::Describing { path: path.clone(), reason };
        let crc32 = checksum(&variables).map_err(|error| failed(error.to_string()))?;
        let file = DescriptionsFile { version: VERSION, crc32, variables };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.to_string()))?;
        fs::write(&path, text).map_err(|error| failed(error.to_string()))
    }

    /// The file with the descriptions of the checkpoint to restart from, if it has one.
    pub(super) fn descriptions_file(&self) -> Option<PathBuf> {
        let restart = self.client.restart();
        self.client.have_restart().filter(|_| restart.written_by.is_none())?;
        let end = format!("-Rank{}.names.json", self.client.rank());
        let name = restart.files.iter().find(|name| name.starts_with("Ckpt") && name.ends_with(&end))?;
        Some(restart.directory.as_ref()?.join(name))
    }

    /// Reads the descriptions of the checkpoint to restart from, unless they are known.
    fn load_descriptions(&mut self) {
        let path = self.descriptions_file();
        let is_known = self.descriptions.stored.as_ref().map(|(known, _)| known) == path.as_ref();
        if !is_known {
            // A file that cannot be read is that of a damaged checkpoint, which the recovery drops.
            self.descriptions.stored = path.map(|path| {
                let stored = read(&path).unwrap_or_default();
                (path, stored)
            });
        }
    }
}

fn file_name(checkpoint: u32, rank: u32) -> String {
    format!("Ckpt{checkpoint}-Rank{rank}.names.json")
}

fn check_name(what: &'static str, name: &str) -> Result<()> {
    match name.len() {
        1..=LONGEST_NAME => Ok(()),
        bytes => Err(VariablesError::NameLength { what, bytes }),
    }
}

fn checksum(variables: &[Described]) -> serde_json::Result<u32> {
    Ok(crc32fast::hash(&serde_json::to_vec(variables)?))
}

/// The descriptions in a file, or why it cannot be used.
pub(super) fn read(path: &Path) -> Result<BTreeMap<i32, Description>, String> {
    let damaged = |reason: String| format!("{} is damaged: {reason}", path.display());
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(|error| format!("{}: {error}", path.display()))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(damaged(format!("it has more than {MOST_BYTES} bytes")));
    }
    let file: DescriptionsFile = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if file.version != VERSION {
        return Err(format!(
            "{} has version {}, and this library reads {VERSION}: use one Holdfast version for all launches",
            path.display(),
            file.version
        ));
    }
    match checksum(&file.variables) {
        Ok(crc32) if crc32 == file.crc32 => {
            Ok(file.variables.into_iter().map(|described| (described.id, described.description)).collect())
        }
        Ok(_) => Err(damaged("its checksum is wrong".to_owned())),
        Err(error) => Err(damaged(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_in_a_file_of_descriptions_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file_name(3, 1));
        let description = Description { identifier: Some("grid".to_owned()), name: None, dimensions: vec![20, 50] };
        let variables = vec![Described { id: 7, description: description.clone() }];
        let crc32 = checksum(&variables).unwrap();
        let text = serde_json::to_string_pretty(&DescriptionsFile { version: VERSION, crc32, variables }).unwrap();
        fs::write(&path, &text).unwrap();
        assert_eq!(read(&path), Ok(BTreeMap::from([(7, description)])));
        for (from, to) in [("grid", "grit"), ("50", "51"), ("\"id\": 7", "\"id\": 8"), ("}", "")] {
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            assert!(read(&path).unwrap_err().contains("Ckpt3-Rank1.names.json is damaged"), "{from}");
        }
        fs::write(&path, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert!(read(&path).unwrap_err().contains("has version 2"));
    }
}
