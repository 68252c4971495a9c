//! Node paths and real paths.
//!
//! Control files contain absolute paths as the node sees them. On a virtual node these are relative to a root
//! directory, which no file names. Every path that comes from a file is converted by [`Paths::real`].

use std::path::{Component, Path, PathBuf};

use holdfast_wire::run::{AgentStart, job_directory};

#[derive(Clone, Debug)]
pub struct Paths {
    root: Option<PathBuf>,
    control: String,
    user: String,
    pub job_id: String,
    /// The first prefix directory of the job, unless the node is virtual: the root of a virtual node has directories of
    /// one job only.
    owner: Option<PathBuf>,
    /// The token of the allocation.
    allocation: Option<String>,
}

/// A path that must not be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {path:?} {fault}: it was not written by Holdfast or SCR, or the file that names it is damaged")]
pub struct PathError {
    pub path: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

impl Paths {
    pub fn new(start: &AgentStart) -> Self {
        Paths {
            root: start.root.clone(),
            control: start.control_directory(),
            user: start.user.clone(),
            job_id: start.job_id.clone(),
            owner: start.prefixes.first().filter(|_| start.root.is_none()).cloned(),
            allocation: start.allocation.clone(),
        }
    }

    /// The paths of the job with this control directory, which ends with `<user>/scr.<job id>`; `None` if it does not.
    pub fn of_control(control: &Path) -> Option<Paths> {
        let control = control.to_str()?.trim_end_matches('/');
        let (above, name) = control.rsplit_once('/')?;
        let user = above.rsplit_once('/')?.1;
        let job_id = name.strip_prefix("scr.").filter(|id| !id.is_empty())?;
        let (user, job_id) = (user.to_owned(), job_id.to_owned());
        Some(Paths { root: None, control: control.to_owned(), user, job_id, owner: None, allocation: None })
    }

    /// The prefix directory of the job that the directories belong to; `None` if they can only belong to one job.
    pub fn owner(&self) -> Option<&Path> {
        self.owner.as_deref()
    }

    /// The token of the allocation in which the directories are used.
    pub fn allocation(&self) -> Option<&str> {
        self.allocation.as_deref()
    }

    /// The node shares its machine with others.
    pub fn is_virtual(&self) -> bool {
        self.root.is_some()
    }

    /// The same directories, as those of the job in another prefix directory.
    pub fn of_owner(&self, prefix: &Path) -> Paths {
        // Those are not used in this allocation.
        Paths { owner: Some(prefix.to_owned()), allocation: None, ..self.clone() }
    }

    /// The control directory as the node sees it.
    pub fn control_node_path(&self) -> &str {
        &self.control
    }

    /// The control directory as this process opens it.
    pub fn control(&self) -> PathBuf {
        self.real_unchecked(&self.control)
    }

    /// The job's cache directory below `base`, as the node sees it.
    pub fn cache_node_path(&self, base: &str) -> String {
        job_directory(base, &self.user, &self.job_id)
    }

    /// The directory of descriptor `index` below `base`, as the node sees it: DIRECTORY in descriptors.
    pub fn index_node_path(&self, base: &str, index: u32) -> String {
        format!("{}/index.{index}", self.cache_node_path(base))
    }

    pub fn socket(&self) -> PathBuf {
        self.control().join("agent.sock")
    }

    /// The real path of a node path. Refuses relative paths and paths with `.` or `..` components.
    pub fn real(&self, node_path: &str) -> Result<PathBuf, PathError> {
        let fault = |fault| PathError { path: node_path.to_owned(), fault };
        if !node_path.starts_with('/') {
            return Err(fault("is not absolute"));
        }
        if node_path.contains('\0') {
            return Err(fault("contains a NUL byte"));
        }
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !Path::new(node_path).components().all(plain) {
            return Err(fault("contains `..`"));
        }
        Ok(self.real_unchecked(node_path))
    }

    /// The real path of a cache or control file: as [`Paths::real`], and only below the job's own directories (those of
    /// `bases`, and the control directory).
    pub fn real_of_job(&self, node_path: &str, bases: &[String]) -> Result<PathBuf, PathError> {
        let below = |directory: &str| {
            node_path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
        };
        let real = self.real(node_path)?;
        if below(&self.control) || bases.iter().any(|base| below(&self.cache_node_path(base))) {
            Ok(real)
        } else {
            Err(PathError { path: node_path.to_owned(), fault: "is outside the job's cache and control directories" })
        }
    }

    /// That one of the job's directories which a node path is below, and the rest of the path.
    pub fn job_directory_of<'a>(&self, node_path: &'a str, bases: &[String]) -> Option<(String, &'a Path)> {
        let caches = bases.iter().map(|base| self.cache_node_path(base));
        let mut directories = caches.chain([self.control.clone()]);
        directories.find_map(|directory| {
            let rest = node_path.strip_prefix(&directory)?.strip_prefix('/')?;
            Some((directory, Path::new(rest)))
        })
    }

    /// The node path of a real path; `None` if it is not below the node's root.
    pub fn node_path(&self, real: &Path) -> Option<String> {
        let below = match &self.root {
            Some(root) => Path::new("/").join(real.strip_prefix(root).ok()?),
            None => real.to_owned(),
        };
        below.into_os_string().into_string().ok()
    }

    fn real_unchecked(&self, node_path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(node_path.trim_start_matches('/')),
            None => PathBuf::from(node_path),
        }
    }
}

/// The last component of `name`, if it can be the name of a file: not empty, `.` or `..`, and without NUL.
pub fn base_name(name: &str) -> Result<&str, PathError> {
    let last = name.rsplit('/').next().unwrap_or_default();
    match last {
        "" | "." | ".." => Err(PathError { path: name.to_owned(), fault: "has no file name" }),
        last if last.contains('\0') => Err(PathError { path: name.to_owned(), fault: "contains a NUL byte" }),
        last => Ok(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: Option<&str>) -> Paths {
        Paths {
            root: root.map(PathBuf::from),
            control: "/tmp/user1/scr.7".to_owned(),
            user: "user1".to_owned(),
            job_id: "7".to_owned(),
            allocation: None,
            owner: None,
        }
    }

    #[test]
    fn real_paths_of_a_virtual_node_are_below_its_root() {
        assert_eq!(paths(Some("/v/n0")).control(), Path::new("/v/n0/tmp/user1/scr.7"));
        assert_eq!(paths(None).control(), Path::new("/tmp/user1/scr.7"));
        let real = paths(Some("/v/n0")).real("/ssd/user1/scr.7/index.0").unwrap();
        assert_eq!(paths(Some("/v/n0")).node_path(&real).unwrap(), "/ssd/user1/scr.7/index.0");
    }

    #[test]
    fn paths_that_leave_their_directory_are_refused() {
        let paths = paths(Some("/v/n0"));
        for bad in ["../../etc/passwd", "etc/passwd", "/tmp/../etc/passwd", "/tmp/a\0b"] {
            assert!(paths.real(bad).is_err(), "{bad:?}");
        }
        let bases = ["/ssd".to_owned()];
        assert!(paths.real_of_job("/etc/passwd", &bases).is_err());
        assert!(paths.real_of_job("/ssd/user2/scr.7/index.0/f", &bases).is_err());
        assert!(paths.real_of_job("/ssd/user1/scr.77/f", &bases).is_err());
        assert!(paths.real_of_job("/ssd/user1/scr.7/index.0/checkpoint.1/f", &bases).is_ok());
        assert!(paths.real_of_job("/tmp/user1/scr.7/filemap_0.scrinfo", &bases).is_ok());
    }

    #[test]
    fn only_the_base_name_of_a_routed_file_counts() {
        assert_eq!(base_name("ckpt/step9/rank_0.ckpt").unwrap(), "rank_0.ckpt");
        for bad in ["", "dir/", ".", "a/..", "x\0y"] {
            assert!(base_name(bad).is_err(), "{bad:?}");
        }
    }
}
