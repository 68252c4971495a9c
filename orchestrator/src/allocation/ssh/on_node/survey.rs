//! Surveys this machine.

use std::fs::{self, File};
use std::io::{self, BufRead, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use holdfast_model::Timestamp;

use super::{HostFacts, NodeError, SurveyRequest, message};
use crate::host::{boot_id, host_name};

/// Maximum length of a mark.
const LONGEST_MARK: u64 = 4096;

/// Answers a survey request.
pub fn run(input: &mut impl BufRead, mut output: impl Write) -> Result<(), NodeError> {
    let request: SurveyRequest = message(input)?;
    let mut line = serde_json::to_vec(&look(&request)).map_err(|error| NodeError::Message(error.into()))?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).map_err(NodeError::io("write to", "standard output"))
}

pub fn look(request: &SurveyRequest) -> HostFacts {
    let mut problems = Vec::new();
    for directory in &request.directories {
        let problem = match fs::metadata(directory) {
            Ok(metadata) if metadata.is_dir() => continue,
            Ok(_) => "not a directory on the host".to_owned(),
            Err(error) => describe(&error),
        };
        problems.push((directory.clone(), problem));
    }
    if let Some((mark, text)) = &request.mark
        && problems.is_empty()
    {
        let directory = request.directories.first().cloned().unwrap_or_default();
        match read(mark) {
            Ok(found) if found == *text => {}
            Ok(_) => problems.push((directory, "a different directory on the host".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                problems.push((directory, "a different directory of the same name on the host".to_owned()));
            }
            Err(error) => problems.push((directory, describe(&error))),
        }
    }
    for program in &request.programs {
        let problem = match fs::metadata(program) {
            Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => continue,
            Ok(_) => "not an executable file on the host".to_owned(),
            Err(error) => describe(&error),
        };
        problems.push((program.clone(), problem));
    }
    HostFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wire: holdfast_wire::VERSION,
        clock: Timestamp::from(SystemTime::now()),
        host_name: host_name(),
        boot_id: boot_id(),
        problems,
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist on the host".to_owned(),
        _ => error.to_string(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST_MARK).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_directory_of_the_same_name_is_detected() {
        let base = tempfile::tempdir().unwrap();
        let mark = (base.path().join("mark"), "17".to_owned());
        let request =
            SurveyRequest { directories: vec![base.path().to_owned()], mark: Some(mark), programs: Vec::new() };
        assert!(look(&request).problems[0].1.contains("different directory"));
        fs::write(base.path().join("mark"), "17").unwrap();
        assert!(look(&request).problems.is_empty());
        fs::write(base.path().join("mark"), "18").unwrap();
        assert_eq!(look(&request).problems.len(), 1);
    }

    #[test]
    fn missing_files_are_reported() {
        let base = tempfile::tempdir().unwrap();
        let program = base.path().join("app");
        fs::write(&program, b"").unwrap();
        let directories = vec![base.path().join("run"), program.clone()];
        let request = SurveyRequest { directories, programs: vec![program], mark: None };
        let problems = look(&request).problems;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].1.contains("does not exist"), "{problems:?}");
    }
}
