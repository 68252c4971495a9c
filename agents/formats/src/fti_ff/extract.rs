//! Writes each variable as `var_<id>.bin`, its chunks joined over containers.

use std::io::{self, Write};
use std::path::Path;

use md5::{Digest, Md5};

use super::checkpoint::{Checkpoint, FtiFile, Variable, inspect, parity_has_none};
use crate::{Damage, Destination, Extracted, FormatsError, Input, Options, Progress};

/// Extracts all variables whose chunks are present and match their hashes; with `options.recover` also the others, as
/// far as their bytes are in the file.
///
/// # Errors
/// When the file cannot be read, has no variables, or writing fails.
pub fn extract(
    path: &Path,
    to: &Destination,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Extracted, FormatsError> {
    let checkpoint = match inspect(Input::open(path)?)? {
        FtiFile::Checkpoint(checkpoint) => checkpoint,
        FtiFile::Parity(_) => return Err(parity_has_none("extract from", path)),
        FtiFile::Unreadable(damage) => return Err(FormatsError::damaged("extract from", path, damage)),
    };
    let variables = checkpoint.variables();
    let total = variables.iter().fold(0_u64, |sum, variable| sum.saturating_add(variable.size()));
    if total > checkpoint.input.size() {
        let what = format!("its chunks overlap: {total} bytes of variables");
        return Err(FormatsError::damaged("extract from", path, what));
    }
    // Damage of the block metadata is reported for the file: it may concern every variable.
    let mut extracted = Extracted { damages: checkpoint.walk.damages.clone(), ..Extracted::default() };
    let mut done = 0_u64;
    for variable in &variables {
        let mut one = OneVariable { checkpoint: &checkpoint, variable, recover: options.recover, error: None };
        let name = format!("var_{}.bin", variable.id);
        let written = to.write(&name, |out| {
            one.write(out, &mut |bytes| {
                done = done.saturating_add(bytes);
                progress(done, total);
            })
        });
        match (written, one.error) {
            (Ok(bytes), error) => {
                extracted.files.push(name);
                extracted.bytes = extracted.bytes.saturating_add(bytes);
                extracted.damages.extend(error.and_then(VariableError::damage));
            }
            (Err(_), Some(VariableError::Damage(damage))) => extracted.damages.push(damage),
            (Err(_), Some(VariableError::Read(error))) => return Err(error),
            (Err(error), None) => return Err(error),
        }
    }
    Ok(extracted)
}

/// Why a variable was not written; errors of the output file are separate.
enum VariableError {
    Damage(Damage),
    Read(FormatsError),
}

impl VariableError {
    fn damage(self) -> Option<Damage> {
        match self {
            VariableError::Damage(damage) => Some(damage),
            VariableError::Read(_) => None,
        }
    }
}

struct OneVariable<'a> {
    checkpoint: &'a Checkpoint,
    variable: &'a Variable,
    recover: bool,
    error: Option<VariableError>,
}

impl OneVariable<'_> {
    fn write(&mut self, out: &mut impl Write, step: &mut dyn FnMut(u64)) -> io::Result<u64> {
        let mut bytes = 0_u64;
        for chunk in &self.variable.chunks {
            let Some(range) = chunk.range else {
                self.damaged(Damage::new(
                    "missing-chunk",
                    self.checkpoint.place(chunk),
                    "not in the file; variable left out",
                ))?;
                continue;
            };
            let hash = self.copy(range, out, step)?;
            bytes = bytes.saturating_add(range.1);
            if hash != chunk.hash {
                let what = "the chunk does not match its hash";
                self.damaged(Damage::new("chunk-hash", self.checkpoint.place(chunk), what).at(range.0))?;
            }
        }
        Ok(bytes)
    }

    fn copy(&mut self, range: (u64, u64), out: &mut impl Write, step: &mut dyn FnMut(u64)) -> io::Result<[u8; 16]> {
        /// Distinguishes errors of the input from errors of the output.
        enum CopyError {
            Read(FormatsError),
            Write(io::Error),
        }
        impl From<FormatsError> for CopyError {
            fn from(error: FormatsError) -> CopyError {
                CopyError::Read(error)
            }
        }
        let mut hasher = Md5::new();
        let copied = self.checkpoint.input.each_piece(range.0, range.1, |piece| {
            hasher.update(piece);
            step(piece.len() as u64);
            out.write_all(piece).map_err(CopyError::Write)
        });
        match copied {
            Ok(()) => Ok(hasher.finalize().into()),
            Err(CopyError::Write(error)) => Err(error),
            Err(CopyError::Read(error)) => {
                self.error = Some(VariableError::Read(error));
                Err(io::Error::other("reading failed"))
            }
        }
    }

    /// Records a damage. Returns an error that stops the writing of the file, unless damaged variables are recovered.
    fn damaged(&mut self, damage: Damage) -> io::Result<()> {
        self.error.get_or_insert(VariableError::Damage(damage));
        if self.recover { Ok(()) } else { Err(io::Error::other("damaged")) }
    }
}
