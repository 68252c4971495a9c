//! From a path as a control file has it to the real one.
//!
//! Paths in control files are as the node sees them. A virtual node's root directory is put in front of them; it
//! appears in no file. Control files are untrusted: a path in them may not lead out of that root.

use std::path::{Component, Path, PathBuf};

/// A path or name in a control file that may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {path:?} {why}; the file that names it is damaged or hostile, remove it")]
pub struct UnsafePath {
    pub path: String,
    pub why: &'static str,
}

/// The real path of an absolute path as the node sees it: `<root><path>`.
///
/// # Errors
/// When the path is relative, has a `..`, or a NUL.
pub fn real_path(root: &Path, node_path: &str) -> Result<PathBuf, UnsafePath> {
    let refused = |why| Err(UnsafePath { path: node_path.to_owned(), why });
    if node_path.contains('\0') {
        return refused("contains a NUL");
    }
    let mut real = root.to_owned();
    let mut components = Path::new(node_path).components();
    if components.next() != Some(Component::RootDir) {
        return refused("is not absolute");
    }
    for component in components {
        match component {
            Component::Normal(name) => real.push(name),
            Component::CurDir => {}
            _ => return refused("leads upwards (`..`)"),
        }
    }
    Ok(real)
}

/// The node's view of a real path below its root; `None` for a path outside the root, or one that is not UTF-8.
pub fn node_path(root: &Path, real: &Path) -> Option<String> {
    Some(format!("/{}", real.strip_prefix(root).ok()?.to_str()?))
}

/// Checks that a name from a control file is the bare name of a file: something that stays in the directory to which
/// it is appended.
///
/// # Errors
/// When it is empty, `.`, `..`, or has a slash or a NUL.
pub fn base_name(name: &str) -> Result<&str, UnsafePath> {
    let why = match name {
        "" => "is empty where a file name belongs",
        "." | ".." => "is a directory where a file name belongs",
        _ if name.contains('/') => "has a slash where a bare file name belongs",
        _ if name.contains('\0') => "contains a NUL",
        _ => return Ok(name),
    };
    Err(UnsafePath { path: name.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_path_is_the_root_and_the_path_that_the_node_sees() {
        let root = Path::new("/srv/job/node3");
        let real = real_path(root, "/tmp/user1/scr.7/index.0/checkpoint.3/rank_0.ckpt").unwrap();
        assert_eq!(real, Path::new("/srv/job/node3/tmp/user1/scr.7/index.0/checkpoint.3/rank_0.ckpt"));
        assert_eq!(node_path(root, &real).unwrap(), "/tmp/user1/scr.7/index.0/checkpoint.3/rank_0.ckpt");
        assert_eq!(real_path(Path::new("/"), "/tmp/a").unwrap(), Path::new("/tmp/a"));
        assert_eq!(node_path(Path::new("/"), Path::new("/tmp/a")).unwrap(), "/tmp/a");
        assert_eq!(node_path(root, Path::new("/tmp/a")), None);
    }

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        for path in ["../../etc/passwd", "rank_0.ckpt", "/tmp/../../etc/passwd", "/..", "", "/a\0b"] {
            assert!(real_path(Path::new("/srv/node3"), path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn names_with_directories_are_refused() {
        assert_eq!(base_name("rank_0.ckpt"), Ok("rank_0.ckpt"));
        for name in ["", ".", "..", "/etc/passwd", "a/b", "a\0b"] {
            assert!(base_name(name).is_err(), "{name:?}");
        }
    }
}
