//! Writes each variable as `var_<id>.bin`, its chunks joined over containers.

use std::path::Path;

use md5::{Digest, Md5};

use super::checkpoint::{FtiFile, inspect, parity_has_none};
use crate::destination::{Destination, FillError};
use crate::error::{FormatsError, Result};
use crate::file_check::Damage;
use crate::format::{Extracted, Options, Progress};
use crate::input::Input;

/// Extracts all variables whose chunks are present and match their hashes; with `options.recover` also the others, as
/// far as their bytes are in the file.
///
/// # Errors
/// When the file cannot be read, has no variables, or writing fails.
pub fn extract(path: &Path, to: &Destination, options: &Options, progress: Progress<'_>) -> Result<Extracted> {
    let checkpoint = match inspect(Input::open(path)?)? {
        FtiFile::Checkpoint(checkpoint) => checkpoint,
        FtiFile::Parity(_) => return Err(parity_has_none("extract from", path)),
        FtiFile::Unreadable(damage) => return Err(FormatsError::damaged("extract from", path, damage)),
    };
    let variables = checkpoint.variables();
    let total = variables.iter().fold(0_u64, |sum, variable| sum.saturating_add(variable.size()));
    if total > checkpoint.input.size {
        let what = format!("its chunks overlap: {total} bytes of variables");
        return Err(FormatsError::damaged("extract from", path, what));
    }
    // Damage of the block metadata is reported for the file: it may concern every variable.
    let mut extracted = Extracted { damages: checkpoint.walk.damages.clone(), ..Extracted::default() };
    let mut done = 0_u64;
    for variable in &variables {
        let name = format!("var_{}.bin", variable.id);
        // The first one of a variable that is written all the same.
        let mut recovered = None;
        let mut damaged = |damage: Damage| {
            if !options.recover {
                return Err(FillError::Refused(damage));
            }
            recovered.get_or_insert(damage);
            Ok(())
        };
        let written = to.write_unless_refused(&name, |out| {
            let mut bytes = 0_u64;
            for chunk in &variable.chunks {
                let place = || checkpoint.place(chunk);
                let Some(range) = chunk.range else {
                    damaged(Damage::new("missing-chunk", place(), "not in the file; variable left out"))?;
                    continue;
                };
                let mut hasher = Md5::new();
                checkpoint.input.copy(range.0, range.1, out, |piece| {
                    hasher.update(piece);
                    done = done.saturating_add(piece.len() as u64);
                    progress(done, total);
                })?;
                bytes = bytes.saturating_add(range.1);
                let hash: [u8; 16] = hasher.finalize().into();
                if hash != chunk.hash {
                    let what = "the chunk does not match its hash";
                    damaged(Damage::new("chunk-hash", place(), what).at(range.0))?;
                }
            }
            Ok(bytes)
        })?;
        match written {
            Ok(bytes) => {
                extracted.files.push(name);
                extracted.bytes = extracted.bytes.saturating_add(bytes);
                extracted.damages.extend(recovered);
            }
            Err(damage) => extracted.damages.push(damage),
        }
    }
    Ok(extracted)
}
