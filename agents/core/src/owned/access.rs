//! What other users may do with a file or directory of ours.

/// What the mode of a file or directory of ours may permit to other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: files 0600, directories 0700.
    Private,
    /// The group may read it, and other users may not: files 0640, directories 0750.
    GroupRead,
    /// Others may read it and may not write to it.
    Readable,
}

impl Access {
    /// The bits of a mode that must not be set.
    pub(super) fn forbidden(self) -> u32 {
        match self {
            Access::Private => 0o077,
            Access::GroupRead => 0o027,
            Access::Readable => 0o022,
        }
    }

    /// The mode of new directories, less the umask.
    pub fn directory_mode(self) -> u32 {
        0o777 & !self.forbidden()
    }

    /// The mode of new files, less the umask.
    pub fn file_mode(self) -> u32 {
        0o666 & !self.forbidden()
    }
}
