//! The files of a server's models: taking one that the server saved, and putting one where the server loads it.
//!
//! A server writes in place, without a temporary file: a file is complete when the server has answered, and is verified
//! then by the checks that `load` of the server's release makes. Each checkpoint has an id of its own, so that no file
//! is overwritten; files of earlier checkpoints that were not taken are removed before the next one is saved.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::regular_file;
use holdfast_formats::FormatsError;
use holdfast_formats::jubatus::{IdError, ModelFileName, ModelId, Rules, Server, verify_for};

use crate::server::ServerStatus;

/// Ids of checkpoints begin with this; other ids are those of users.
pub const ID_PREFIX: &str = "holdfast-";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileError {
    #[error("`save`: the Jubatus server has written {}, expected {}", found.display(), expected.display())]
    OtherPath { found: PathBuf, expected: PathBuf },
    #[error("the model file {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the model file {} cannot be moved to {}: {source}", from.display(), to.display())]
    Move { from: PathBuf, to: PathBuf, source: io::Error },
    #[error("the model file {} cannot be copied to {}: {source}", from.display(), to.display())]
    Copy { from: PathBuf, to: PathBuf, source: io::Error },
    #[error("the file {} of an earlier checkpoint cannot be removed: {source}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error(
        "the data directory {} of the Jubatus server cannot be read: {source}; the server must run on the node of its \
         rank",
        path.display()
    )]
    DataDirectory { path: PathBuf, source: io::Error },
    #[error("the model file {} would not be loaded: {what}", path.display())]
    Refused { path: PathBuf, what: String },
    #[error(transparent)]
    Verify(#[from] FormatsError),
    #[error("{} is not the name of a checkpoint's model file", name.display())]
    Name { name: PathBuf },
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The model files of one server.
#[derive(Clone, Debug)]
pub struct ModelFiles<'a> {
    pub status: &'a ServerStatus,
    /// The text of the server's configuration: a server loads no model of another one.
    pub config: &'a [u8],
}

/// The id of a rank's model in a checkpoint. The rank is part of it, because servers on different nodes can have the
/// same address, and all files of a checkpoint come to lie in one directory.
///
/// # Errors
/// Never in practice: the result is a valid id.
pub fn checkpoint_id(checkpoint: u64, rank: u32) -> Result<ModelId, IdError> {
    ModelId::documented(&format!("{ID_PREFIX}{checkpoint}-rank{rank}"))
}

/// The id in the name of a checkpoint's model file.
///
/// # Errors
/// When the file has another name.
pub fn id_of(path: &Path) -> Result<ModelId, ModelFileError> {
    let name = ModelFileName::of(path).filter(|name| name.id.starts_with(ID_PREFIX));
    let name = name.ok_or_else(|| ModelFileError::Name { name: path.file_name().unwrap_or_default().into() })?;
    Ok(ModelId::documented(&name.id)?)
}

impl ModelFiles<'_> {
    /// The file's name in the data directory, and in a checkpoint.
    pub fn name(&self, id: &ModelId) -> String {
        let status = self.status;
        ModelFileName::new(&status.address, status.port, status.engine, id, status.release).to_string()
    }

    /// Where the server saves the model of this id, and loads it from.
    pub fn path(&self, id: &ModelId) -> PathBuf {
        self.status.data_directory.join(self.name(id))
    }

    /// Removes the files of earlier checkpoints of this server from its data directory: those of checkpoints that
    /// failed, of saves that took too long, and those that were loaded.
    ///
    /// # Errors
    /// When the directory cannot be read, or a file not be removed.
    pub fn remove_old(&self) -> Result<(), ModelFileError> {
        let directory = &self.status.data_directory;
        let unreadable = |source| ModelFileError::DataDirectory { path: directory.clone(), source };
        for entry in fs::read_dir(directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if self.is_of_checkpoint(&path) {
                remove_if_present(&path)?;
            }
        }
        Ok(())
    }

    /// True for the name of a file that this server saved for a checkpoint.
    fn is_of_checkpoint(&self, path: &Path) -> bool {
        let Some(name) = ModelFileName::of(path) else { return false };
        // Server and engine determine the name but for the id.
        name.server_id() == self.status.server_id()
            && id_of(path).is_ok_and(|id| path.file_name().is_some_and(|name| name == self.name(&id).as_str()))
    }

    /// Moves the file that the server has saved to `to`, where it is to be verified as soon as no process has it open:
    /// [`ModelFiles::verify`]. `reported` is the path in the server's answer.
    ///
    /// # Errors
    /// When the server reported another path, or the file is missing; nothing is left at `to` then.
    pub fn take(&self, id: &ModelId, reported: Option<&Path>, to: &Path) -> Result<(), ModelFileError> {
        let from = self.path(id);
        if let Some(found) = reported.filter(|found| *found != from) {
            return Err(ModelFileError::OtherPath { found: found.to_owned(), expected: from });
        }
        // A link in the data directory would be followed by the server, and by a copy.
        let file = regular_file::open_no_link(&from)
            .map_err(|source| ModelFileError::Unreadable { path: from.clone(), source })?;
        match fs::rename(&from, to) {
            Ok(()) => {}
            // The data directory is on another file system.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let copied = copy(file, to).map_err(|source| ModelFileError::Copy {
                    from: from.clone(),
                    to: to.to_owned(),
                    source,
                });
                remove_if_present(&from)?;
                copied.inspect_err(|_| drop(fs::remove_file(to)))?;
            }
            Err(source) => return Err(ModelFileError::Move { from, to: to.to_owned(), source }),
        }
        Ok(())
    }

    /// Whether this server would load the file.
    ///
    /// # Errors
    /// When it would not, or the file cannot be read.
    pub fn verify(&self, path: &Path, id: &ModelId) -> Result<(), ModelFileError> {
        let server = Server {
            release: self.status.release,
            engine: Some(self.status.engine),
            config: Some(self.config.to_vec()),
            id: Some(id.as_str().to_owned()),
            rules: Rules::Released,
        };
        let check = verify_for(path, &server, &mut |_, _| ())?;
        match check.damages.first() {
            None => Ok(()),
            Some(damage) => Err(ModelFileError::Refused { path: path.to_owned(), what: damage.to_string() }),
        }
    }

    /// Verifies a checkpoint's file, and copies it to where the server loads this id from. The server may have another
    /// address than the one that saved it. Returns the path.
    ///
    /// # Errors
    /// When the server would not load the file, or it cannot be copied.
    pub fn put(&self, file: &Path, id: &ModelId) -> Result<PathBuf, ModelFileError> {
        self.verify(file, id)?;
        let to = self.path(id);
        // Not through a file or link that is there: a copy of its own, because servers write in place.
        remove_if_present(&to)?;
        let copied = regular_file::open(file).and_then(|from| copy(from, &to));
        match copied {
            Ok(()) => Ok(to),
            Err(source) => {
                drop(fs::remove_file(&to));
                Err(ModelFileError::Copy { from: file.to_owned(), to, source })
            }
        }
    }
}

/// Removes a file; one that is missing is no error.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_if_present(path: &Path) -> Result<(), ModelFileError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ModelFileError::Remove { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// In the kernel, and without copying where the file system can share the data.
fn copy(mut from: File, to: &Path) -> io::Result<()> {
    let mut to = File::options().write(true).create_new(true).open(to)?;
    io::copy(&mut from, &mut to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;

    use holdfast_formats::jubatus::{Engine, Release};
    use holdfast_testkit::fixtures;
    use tempfile::TempDir;

    const CONFIG: &[u8] = b"{\n  \"window_size\": 128\n}\n";

    fn status(directory: &TempDir) -> ServerStatus {
        let data_directory = directory.path().join("data");
        fs::create_dir(&data_directory).unwrap();
        let address = "127.0.0.1".to_owned();
        ServerStatus { address, port: 9199, release: Release::NEWEST, engine: Engine::Stat, data_directory }
    }

    /// A model that a server saved, with this content changed.
    fn model(name: &str) -> Vec<u8> {
        fs::read(fixtures("jubatus").join(name)).unwrap()
    }

    fn saved() -> Vec<u8> {
        model("models/1.1.1/127.0.0.1_9199_stat_a.jubatus")
    }

    #[test]
    fn ids_contain_checkpoint_and_rank_and_are_found_in_names() {
        let id = checkpoint_id(12, 3).unwrap();
        assert_eq!(id.as_str(), "holdfast-12-rank3");
        assert_eq!(id_of(Path::new("/c/127.0.0.1_9199_stat_holdfast-12-rank3.jubatus")).unwrap(), id);
        for other in
            ["127.0.0.1_9199_stat_a.jubatus", "holdfast-12-rank3", "127.0.0.1_9199_stat_holdfast-\u{e9}.jubatus"]
        {
            assert!(id_of(Path::new(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn takes_a_complete_file_of_the_expected_path_only() {
        let directory = tempfile::tempdir().unwrap();
        let status = status(&directory);
        let files = ModelFiles { status: &status, config: CONFIG };
        let (id, to) = (checkpoint_id(1, 0).unwrap(), directory.path().join("cache"));
        let take = |reported: Option<&Path>| {
            let taken = files.take(&id, reported, &to).and_then(|()| files.verify(&to, &id));
            taken.map_err(|error| error.to_string())
        };
        let from = files.path(&id);
        assert!(take(None).unwrap_err().contains("cannot be read: "), "no file");
        fs::write(&from, saved()).unwrap();
        assert!(take(Some(Path::new("/etc/passwd"))).unwrap_err().contains("has written /etc/passwd, expected "));
        assert!(!to.exists());
        take(Some(&from)).unwrap();
        assert_eq!(fs::read(&to).unwrap(), saved());
        assert!(!from.exists());
        fs::remove_file(&to).unwrap();
        // A server that died in the middle of a save, or that has a fault.
        for (content, message) in [
            (saved()[..saved().len() - 20].to_vec(), "the file ends inside the user data"),
            (model("damaged/bitflip_user_data.jubatus"), "invalid crc32 checksum"),
            (model("damaged/wrong_type.jubatus"), "server type mismatched: recommender, expected stat"),
            (model("damaged/other_config.jubatus"), "server config mismatched"),
            (Vec::new(), "the file has 0 bytes"),
        ] {
            fs::write(&from, content).unwrap();
            let error = take(Some(&from)).unwrap_err();
            assert!(error.contains(message), "{error}");
            assert!(!from.exists(), "{message}");
            fs::remove_file(&to).unwrap();
        }
        symlink("/etc/passwd", &from).unwrap();
        assert!(take(Some(&from)).unwrap_err().contains("cannot be read: "), "a link");
        assert!(!to.exists());
    }

    #[test]
    fn takes_and_puts_between_file_systems() {
        let (one, other) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap());
        let status = status(&one);
        let files = ModelFiles { status: &status, config: CONFIG };
        let (id, to) = (checkpoint_id(1, 0).unwrap(), other.path().join("127.0.0.2_9_stat_holdfast-1-rank0.jubatus"));
        fs::write(files.path(&id), saved()).unwrap();
        files.take(&id, None, &to).unwrap();
        assert!(fs::read(&to).unwrap() == saved() && !files.path(&id).exists());
        assert_eq!(files.put(&to, &id).unwrap(), files.path(&id));
        assert_eq!(fs::read(files.path(&id)).unwrap(), saved());
        assert!(to.exists(), "the checkpoint keeps its file");
    }

    #[test]
    fn puts_only_files_that_the_server_loads_and_never_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let status = status(&directory);
        let files = ModelFiles { status: &status, config: CONFIG };
        let (id, file) = (checkpoint_id(1, 0).unwrap(), directory.path().join("file"));
        fs::write(&file, model("damaged/other_config.jubatus")).unwrap();
        assert!(files.put(&file, &id).unwrap_err().to_string().contains("server config mismatched"));
        assert!(!files.path(&id).exists());
        let target = directory.path().join("target");
        fs::write(&target, "other").unwrap();
        symlink(&target, files.path(&id)).unwrap();
        fs::write(&file, saved()).unwrap();
        files.put(&file, &id).unwrap();
        assert!(fs::symlink_metadata(files.path(&id)).unwrap().is_file());
        assert_eq!(fs::read_to_string(&target).unwrap(), "other");
    }

    #[test]
    fn removes_old_files_of_this_server_only() {
        let directory = tempfile::tempdir().unwrap();
        let status = status(&directory);
        let files = ModelFiles { status: &status, config: CONFIG };
        let own = "127.0.0.1_9199_stat_holdfast-7-rank2.jubatus";
        let others = [
            "127.0.0.1_9199_stat_nightly.jubatus",
            "127.0.0.1_9200_stat_holdfast-7-rank2.jubatus",
            "127.0.0.1_9199_graph_holdfast-7-rank2.jubatus",
            "127.0.0.1_9199_stat_holdfast-7-rank2.jubatus.old",
        ];
        for name in others.into_iter().chain([own]) {
            fs::write(status.data_directory.join(name), "").unwrap();
        }
        files.remove_old().unwrap();
        let mut left: Vec<String> = fs::read_dir(&status.data_directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = others.to_vec();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
