//! CRC verification of a scanned checkpoint, in units that can be spread over threads here or over agents elsewhere.
//!
//! The original never looks at contents before a rebuild: from one corrupt survivor it computes a corrupt rank and
//! calls it complete. Here a file whose CRC is wrong does not count, as if it were missing.

use serde::{Deserialize, Serialize};

use super::checksum;
use super::scan::{FileDamage, Scan};
use crate::control::content::RecordedContent;
use crate::store::DatasetFiles;
use crate::store::base_name::check_base_name;
use crate::workers;
use holdfast_model::{OutputPath, Rank};

/// Below this mean size, files are verified in batches.
const SMALL_BYTES: u64 = 1 << 20;
/// How many small files a thread takes at a time.
const SMALL_BATCH: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyUnit {
    pub rank: Rank,
    pub name: String,
    /// Bytes, to share the work out fairly.
    pub size: u64,
    /// What its contents must have.
    pub crc: u32,
    /// Where a file of an output belongs below the prefix directory.
    pub output_path: Option<OutputPath>,
}

impl VerifyUnit {
    /// Reads the file and compares. `progress` gets the bytes of each piece.
    pub fn check(&self, files: &dyn DatasetFiles, progress: &(dyn Fn(u64) + Sync)) -> Result<(), FileDamage> {
        // A unit may have come over the network.
        if let Err(problem) = check_base_name(&self.name) {
            return Err(FileDamage::Unreadable(problem.to_string()));
        }
        let opened = files.open(&self.name, self.output_path.as_ref());
        match opened.and_then(|file| checksum::of_file(&*file, progress)) {
            Err(error) => Err(FileDamage::Unreadable(error.to_string())),
            Ok(found) => {
                let recorded = RecordedContent { bytes: self.size, crc: Some(self.crc) };
                Ok(recorded.check(found).map(drop)?)
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    pub bytes: u64,
    /// Files of which no CRC is known, so that only their size was checked.
    pub without_crc: u64,
    /// The files that are not what was written.
    pub failures: Vec<(VerifyUnit, FileDamage)>,
}

impl Scan {
    /// The files that carry a CRC, by rank and name.
    pub fn verify_units(&self) -> Vec<VerifyUnit> {
        let mut units = Vec::new();
        for (rank, known) in &self.ranks {
            for (name, file) in &known.present {
                if let Some(crc) = file.crc {
                    let output_path = file.output_path.clone();
                    units.push(VerifyUnit { rank: *rank, name: name.clone(), size: file.size, crc, output_path });
                }
            }
        }
        units
    }

    /// Bytes of the files that carry a CRC.
    pub fn bytes_with_checksum(&self) -> u64 {
        let files = self.ranks.values().flat_map(|known| known.present.values());
        files.filter(|file| file.crc.is_some()).map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// Takes in what was found elsewhere: the file of `unit` counts no longer.
    pub fn apply_failure(&mut self, unit: &VerifyUnit, damage: FileDamage) {
        self.mark_damaged(unit.rank, &unit.name, damage);
    }

    /// Verifies all files that carry a CRC here, with `threads` threads; those that fail count no longer.
    pub fn verify(&mut self, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Verified {
        let units = self.verify_units();
        let present: usize = self.ranks.values().map(|known| known.present.len()).sum();
        let without_crc = present.saturating_sub(units.len()) as u64;
        let bytes: u64 = units.iter().map(|unit| unit.size).fold(0, u64::saturating_add);
        // Large files one at a time, so that the last of them does not keep one thread busy alone; small ones in
        // batches, because the counter would cost more than the reading.
        let batch = if bytes / (units.len() as u64).max(1) < SMALL_BYTES { SMALL_BATCH } else { 1 };
        let outcomes = workers::map(&units, threads, batch, |unit| unit.check(&*self.files, progress));
        let files = units.len() as u64;
        let failed = units.into_iter().zip(outcomes);
        let failures: Vec<_> =
            failed.filter_map(|(unit, outcome)| outcome.err().map(|damage| (unit, damage))).collect();
        for (unit, damage) in &failures {
            self.apply_failure(unit, damage.clone());
        }
        Verified { files, bytes, without_crc, failures }
    }
}
