//! The rank's part of the run: its calls, and its checkpoint files that are open for writing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_client::{Client, ClientError};
use libc::{EEXIST, EINTR, EIO, ENOENT, O_ACCMODE, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC};

use crate::files::{Files, Location, RestartFiles};
use crate::mapped::{MAPPED, Mapping};
use crate::next::{self, errno, set_errno};
use crate::report::report;
use crate::tracked::{TRACKED, UNCHANGED};
use crate::writers;

/// Flags of `open` that only say how a file is made.
const MAKING: c_int = O_CREAT | O_EXCL | O_TRUNC;
const COPY_BYTES: usize = 1 << 20;

/// The rank's part of the run.
#[derive(Debug)]
pub struct Session {
    client: Client,
    files: Files,
    /// Files that are open for writing or for update, by a number of their own.
    open: BTreeMap<u64, OpenFile>,
    descriptors: BTreeMap<RawFd, u64>,
    opened: u64,
    /// It has called `MPI_Init`, or written a file.
    takes_part: bool,
    /// A halt condition holds: the process must end. Empty if another rank prints it.
    halt: Option<String>,
}

/// A file that the program opened; its descriptors are those made by `dup`.
#[derive(Debug, Default)]
struct OpenFile {
    name: PathBuf,
    expression: usize,
    descriptors: BTreeSet<RawFd>,
    /// The flags with which it was opened for update, until it is written to. Until then it is the old file.
    unchanged: Option<c_int>,
    failed: bool,
    /// A write was incomplete, and has not been continued.
    incomplete: bool,
    /// Of its writable memory.
    mappings: Vec<Mapping>,
    /// It got its name while it was open.
    renamed: Option<RenamedFile>,
}

/// A file that is written where the program made it, and is copied to the dataset when it is closed.
#[derive(Debug)]
struct RenamedFile {
    content: File,
    path: PathBuf,
}

impl OpenFile {
    fn new(name: &Path, expression: usize, descriptors: BTreeSet<RawFd>) -> Self {
        OpenFile { name: name.to_owned(), expression, descriptors, ..OpenFile::default() }
    }

    /// True if the program cannot write to it any more.
    fn is_closed(&self) -> bool {
        self.descriptors.is_empty() && self.mappings.is_empty()
    }
}

/// What the program asked `open` or `fopen` for.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// Absolute.
    pub name: &'a Path,
    pub expression: usize,
    pub flags: c_int,
    /// The file is a stream, whose writes cannot be seen.
    pub is_stream: bool,
}

/// Another path and other flags than those of the program.
pub type OpenArguments<'a> = (&'a CString, c_int);

/// Where a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Path(CString),
    OwnName,
    Absent,
}

impl Session {
    /// The session of a rank that has joined.
    pub fn new(client: Client, restart: Option<RestartFiles>, expressions: usize) -> Self {
        let halt = client.restart().halt.clone();
        let mut session = Session {
            client,
            files: Files::new(restart, expressions),
            open: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            opened: 0,
            takes_part: false,
            halt: None,
        };
        session.halt = halt.map(|reason| session.reported(reason));
        session
    }

    /// The process is the program of the rank, also if it only reads files.
    pub fn take_part(&mut self) {
        self.takes_part = true;
    }

    /// Ends the run, or leaves it to another process of the rank if this one has only read files.
    pub fn end(mut self) -> Result<(), ClientError> {
        if !self.takes_part {
            return self.client.leave();
        }
        // Memory need not be unmapped before the end.
        self.cut(&(0..usize::MAX)).into_iter().for_each(|number| self.release(number));
        if self.files.has_dataset() {
            for file in self.open.values() {
                self.warn(&file.name, "was not closed before the end of the program: the checkpoint is dropped");
            }
            let _ = self.client.complete_checkpoint(false);
        }
        self.client.finalize()
    }

    /// The halt condition for which the process must end now.
    pub fn take_halt(&mut self) -> Option<String> {
        self.halt.take()
    }

    /// Where the content of a file is. A directory is under its own name.
    pub fn target(&self, name: &Path) -> Target {
        match self.files.locate(name) {
            Location::Dataset(path) => c_path(&path).map_or(Target::OwnName, Target::Path),
            Location::OwnName => Target::OwnName,
            Location::Absent if name.is_dir() => Target::OwnName,
            Location::Absent => Target::Absent,
        }
    }

    /// Opens a file with `call`, which gets the path to open, or none for the program's own arguments, and returns the
    /// descriptor or -1.
    pub fn open(
        &mut self,
        request: OpenRequest<'_>,
        call: &mut dyn FnMut(Option<OpenArguments<'_>>) -> RawFd,
    ) -> RawFd {
        let OpenRequest { name, expression, flags, is_stream } = request;
        if name.is_dir() {
            return call(None);
        }
        let location = self.files.locate(name);
        let source = match &location {
            Location::Dataset(path) => Some(path.clone()),
            Location::OwnName => Some(name.to_owned()),
            Location::Absent => None,
        };
        let source = source.filter(|path| path.exists());
        if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL && source.is_some() {
            return failed(EEXIST);
        }
        if source.is_none() && flags & O_CREAT == 0 {
            return failed(ENOENT);
        }
        let reads_only = flags & O_ACCMODE == O_RDONLY && flags & O_TRUNC == 0 && source.is_some();
        if reads_only {
            return match (&location, source.as_deref().and_then(c_path)) {
                (Location::Dataset(_), Some(path)) => call(Some((&path, flags))),
                _ => call(None),
            };
        }
        if let Some(path) = self.files.in_dataset(name).and_then(c_path) {
            let descriptor = call(Some((&path, flags)));
            if descriptor >= 0 {
                self.files.opened();
                self.track(request, descriptor, None);
            }
            return descriptor;
        }
        let is_update = flags & O_TRUNC == 0;
        if let (Some(source), true, false) = (&source, is_update && flags & O_ACCMODE == O_RDWR, is_stream) {
            // Many programs, and Fortran's OPEN, open files for update that they only read.
            let Some(path) = c_path(source) else { return failed(EIO) };
            let descriptor = call(Some((&path, (flags & !(MAKING | O_ACCMODE)) | O_RDONLY)));
            if descriptor >= 0 {
                self.track(request, descriptor, Some(flags & !MAKING));
            }
            return descriptor;
        }
        // Opened before the dataset is started, which may evict the checkpoint that contains it.
        let content = source.filter(|_| is_update).map(File::open).transpose();
        let makes = |content: &Option<File>| content.is_none() && flags & O_CREAT != 0;
        let path = match content.and_then(|content| self.route(name, expression, content.as_ref(), makes(&content))) {
            Ok(path) => path,
            Err(error) => return failed(error.raw_os_error().unwrap_or(EIO)),
        };
        let descriptor = c_path(&path).map_or_else(|| failed(EIO), |path| call(Some((&path, flags & !O_EXCL))));
        if descriptor < 0 {
            let code = errno();
            self.warn(name, &format!("cannot be written: {}", io::Error::from_raw_os_error(code)));
            self.finish(expression, false);
            set_errno(code);
            return -1;
        }
        self.files.opened();
        self.track(request, descriptor, None);
        descriptor
    }

    /// Makes the file part of a dataset, which is started if there is none. Returns its path, where it exists with this
    /// content, unless the program makes it. After an error the program must not write it.
    fn route(
        &mut self,
        name: &Path,
        expression: usize,
        content: Option<&File>,
        program_makes_it: bool,
    ) -> io::Result<PathBuf> {
        self.takes_part = true;
        if !self.files.has_dataset() {
            self.client.start_checkpoint().map_err(|error| self.refused(name, &error))?;
            self.files.started();
        }
        let routed = self.client.route_file(name).map_err(|error| self.refused(name, &error));
        let written = routed.and_then(|path| {
            match content {
                Some(content) => copy_to(content, &path)?,
                None if program_makes_it => {}
                None => drop(emptied(&path)?),
            }
            Ok(path)
        });
        match written {
            Ok(path) => {
                self.files.routed(name, &path);
                Ok(path)
            }
            Err(error) => {
                self.warn(name, &format!("cannot be written: {error}"));
                self.finish(expression, false);
                Err(error)
            }
        }
    }

    fn refused(&self, name: &Path, error: &ClientError) -> io::Error {
        self.warn(name, &error.to_string());
        io::Error::from_raw_os_error(EIO)
    }

    fn track(&mut self, request: OpenRequest<'_>, descriptor: RawFd, unchanged: Option<c_int>) {
        if unchanged.is_some() {
            UNCHANGED.insert(descriptor);
        }
        let file = OpenFile::new(request.name, request.expression, BTreeSet::from([descriptor]));
        self.add(OpenFile { unchanged, ..file });
    }

    fn add(&mut self, file: OpenFile) {
        self.opened += 1;
        for descriptor in &file.descriptors {
            TRACKED.insert(*descriptor);
            self.descriptors.insert(*descriptor, self.opened);
        }
        self.open.insert(self.opened, file);
    }

    /// `new` is a duplicate of `descriptor`.
    pub fn duplicated(&mut self, descriptor: RawFd, new: RawFd) {
        let Some(number) = self.descriptors.get(&descriptor).copied() else { return };
        let Some(file) = self.open.get_mut(&number) else { return };
        if file.descriptors.insert(new) {
            TRACKED.insert(new);
            if file.unchanged.is_some() {
                UNCHANGED.insert(new);
            }
            self.descriptors.insert(new, number);
        }
    }

    /// Closes a descriptor with `call`, which returns whether its data were written. The dataset is completed if
    /// this was the last one of its files.
    pub fn close(&mut self, descriptor: RawFd, call: impl FnOnce() -> bool) {
        let number = self.descriptors.remove(&descriptor);
        if number.is_some() {
            TRACKED.remove(descriptor);
            UNCHANGED.may_contain(descriptor).then(|| UNCHANGED.remove(descriptor));
        }
        // Not before: another thread may get the same number as soon as it is closed.
        let is_written = call();
        let code = errno();
        let file = number.and_then(|number| self.open.get_mut(&number));
        if let (Some(number), Some(file)) = (number, file) {
            file.descriptors.remove(&descriptor);
            if !is_written {
                file.failed = true;
                let problem = io::Error::from_raw_os_error(code);
                report(format_args!(
                    "rank {}: {} was not written: {problem}: the checkpoint is dropped",
                    self.client.rank(),
                    file.name.display()
                ));
            }
            self.release(number);
        }
        set_errno(code);
    }

    /// Completes a file that has been closed, and the dataset with its last file.
    fn release(&mut self, number: u64) {
        if !self.open.get(&number).is_some_and(OpenFile::is_closed) {
            return;
        }
        let Some(mut file) = self.open.remove(&number) else { return };
        if file.unchanged.is_some() {
            return;
        }
        if let Some(RenamedFile { content, path }) = &file.renamed
            && let Err(error) = copy_to(content, path)
        {
            self.warn(&file.name, &format!("was not written: {error}: the checkpoint is dropped"));
            file.failed = true;
        }
        if self.files.closed(file.expression, !(file.failed || file.incomplete)) {
            self.complete();
        }
    }

    /// The program has mapped a file for writing.
    pub fn mapped(&mut self, descriptor: RawFd, memory: Range<usize>) {
        if let Some(number) = self.descriptors.get(&descriptor).copied() {
            self.add_mapping(number, memory);
        }
    }

    /// `call` removes mappings in this range: closes files that have nothing else.
    pub fn unmapped(&mut self, memory: &Range<usize>, call: impl FnOnce()) {
        // Not after the call: another thread may get the same memory as soon as it is free.
        let numbers = self.cut(memory);
        call();
        let code = errno();
        numbers.into_iter().for_each(|number| self.release(number));
        set_errno(code);
    }

    /// `call` moves a mapping, or changes its size, and returns where it is. The old part may remain.
    pub fn remapped(&mut self, before: &Range<usize>, keeps_old: bool, call: impl FnOnce() -> Option<Range<usize>>) {
        let is_it = |file: &OpenFile| file.mappings.iter().any(|mapping| mapping.overlaps(before));
        let number = self.open.iter().find(|(_, file)| is_it(file)).map(|(number, _)| *number);
        if let (Some(memory), Some(number)) = (call(), number) {
            if !keeps_old {
                self.cut(before);
            }
            self.add_mapping(number, memory);
        }
    }

    fn add_mapping(&mut self, number: u64, memory: Range<usize>) {
        let Some(file) = self.open.get_mut(&number) else { return };
        match Mapping::new(memory, &MAPPED) {
            Some(mapping) => file.mappings.push(mapping),
            None => self.mapped_too_often(number),
        }
    }

    fn mapped_too_often(&mut self, number: u64) {
        let Some(file) = self.open.get_mut(&number) else { return };
        if !std::mem::replace(&mut file.failed, true) {
            let name = file.name.clone();
            self.warn(&name, "is mapped in too many parts: the checkpoint is dropped");
        }
    }

    /// Removes parts of mappings; returns the files that lost one entirely.
    fn cut(&mut self, memory: &Range<usize>) -> Vec<u64> {
        let (mut ended, mut unknown) = (Vec::new(), Vec::new());
        for (number, file) in &mut self.open {
            let before = file.mappings.len();
            for mapping in &mut file.mappings {
                if !mapping.remove(memory, &MAPPED) {
                    unknown.push(*number);
                }
            }
            file.mappings.retain(|mapping| !mapping.is_empty());
            if file.mappings.len() < before {
                ended.push(*number);
            }
        }
        unknown.into_iter().for_each(|number| self.mapped_too_often(number));
        ended
    }

    /// The program is going to write to a descriptor: a file that was opened for update becomes part of a dataset, with
    /// its content.
    ///
    /// # Errors
    /// It cannot; the program's write must fail.
    pub fn change(&mut self, descriptor: RawFd) -> io::Result<()> {
        let number = self.descriptors.get(&descriptor).copied();
        let Some(file) = number.and_then(|number| self.open.get(&number)) else { return Ok(()) };
        let Some(flags) = file.unchanged else { return Ok(()) };
        let (name, expression, descriptors) = (file.name.clone(), file.expression, file.descriptors.clone());
        let path = match self.files.in_dataset(&name) {
            Some(path) => path.to_owned(),
            None => {
                // SAFETY: a descriptor of the program, that is not closed here.
                let content = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
                self.route(&name, expression, Some(&content), false)?
            }
        };
        let replaced = replace_descriptors(&path, flags, descriptor, &descriptors);
        if let Err(error) = replaced {
            self.warn(&name, &format!("cannot be written: {error}"));
            self.finish(expression, false);
            return Err(error);
        }
        self.files.opened();
        if let Some(file) = number.and_then(|number| self.open.get_mut(&number)) {
            file.unchanged = None;
        }
        descriptors.into_iter().for_each(|descriptor| UNCHANGED.remove(descriptor));
        Ok(())
    }

    /// The result of a write: the number of bytes, or an error (`None`).
    pub fn wrote(&mut self, descriptor: RawFd, is_complete: Option<bool>) {
        let number = self.descriptors.get(&descriptor).copied();
        let Some(file) = number.and_then(|number| self.open.get_mut(&number)) else { return };
        match is_complete {
            Some(is_complete) => file.incomplete = !is_complete,
            None if file.failed => {}
            None => {
                file.failed = true;
                let (name, problem) = (file.name.clone(), io::Error::last_os_error());
                let code = errno();
                self.warn(&name, &format!("was not written: {problem}: the checkpoint is dropped"));
                set_errno(code);
            }
        }
    }

    /// True if the last write to this descriptor was incomplete.
    pub fn is_incomplete(&self, descriptor: RawFd) -> bool {
        let number = self.descriptors.get(&descriptor);
        number.and_then(|number| self.open.get(number)).is_some_and(|file| file.incomplete)
    }

    /// Removes a file: from the program's view, or from the open dataset.
    ///
    /// # Errors
    /// It does not exist. `Ok(false)`: it is under its own name.
    pub fn remove(&mut self, name: &Path) -> io::Result<bool> {
        if let Some(path) = self.files.in_dataset(name) {
            return fs::remove_file(path).map(|()| true);
        }
        match self.files.locate(name) {
            Location::OwnName => Ok(false),
            Location::Absent if name.is_dir() => Ok(false),
            Location::Absent => Err(io::Error::from_raw_os_error(ENOENT)),
            Location::Dataset(_) => {
                self.files.removed(name);
                Ok(true)
            }
        }
    }

    /// A file has no longer this name.
    pub fn forget(&mut self, name: &Path) {
        self.files.removed(name);
    }

    /// A file with another name gets the name of a checkpoint file: its content becomes part of a dataset. If this
    /// process has the file open for writing, it is complete when it is closed.
    ///
    /// # Errors
    /// It cannot be read, or not be written to the cache.
    pub fn enter(&mut self, old: &Path, new: &Path, expression: usize) -> io::Result<()> {
        let content = File::open(old)?;
        // Where they cannot be listed, those of this process count as others.
        let descriptors = writers::own(&content).unwrap_or_default();
        let is_known = descriptors.iter().any(|descriptor| self.descriptors.contains_key(descriptor));
        let has_others = descriptors.is_empty() && writers::has_others(&content);
        // A checkpoint file of this process, of a dataset that may be evicted.
        let path = self.route(new, expression, Some(&content), false)?;
        if is_known || has_others {
            let writer = if is_known { "" } else { "by another process " };
            self.warn(new, &format!("was renamed while it was open {writer}for writing: the checkpoint is dropped"));
            self.finish(expression, false);
        } else if descriptors.is_empty() {
            self.finish(expression, true);
        } else {
            self.files.opened();
            let renamed = Some(RenamedFile { content, path });
            self.add(OpenFile { renamed, ..OpenFile::new(new, expression, descriptors) });
        }
        Ok(())
    }

    /// A checkpoint file gets another name that does not match: its content is copied there.
    pub fn leave(&mut self, old: &Path, new: &Path) -> io::Result<()> {
        let mut part = new.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let copied = fs::copy(old, &part).and_then(|_| fs::rename(&part, new));
        if copied.is_err() {
            let _ = fs::remove_file(&part);
        }
        copied
    }

    /// The path of a checkpoint file's content; `None` if it is under its own name or unknown.
    pub fn content(&self, name: &Path) -> Option<PathBuf> {
        match self.files.locate(name) {
            Location::Dataset(path) => Some(path),
            Location::OwnName | Location::Absent => None,
        }
    }

    /// A file of the dataset is complete, without having been open.
    fn finish(&mut self, expression: usize, is_written: bool) {
        if self.files.finished(expression, is_written) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        let is_valid = self.files.is_valid();
        let completed = match self.client.complete_checkpoint(is_valid) {
            Ok(completed) => completed,
            Err(error) => {
                report(format_args!("rank {}: {error}", self.client.rank()));
                return self.files.completed(false);
            }
        };
        self.files.completed(completed.kept);
        if !completed.kept && is_valid && self.client.rank().0 == 0 {
            let id = completed.checkpoint;
            report(format_args!("checkpoint {id} was dropped: a rank could not write it, or it was not protected"));
        }
        self.halt = completed.halt.map(|reason| self.reported(reason));
    }

    /// A halt condition as it is printed: by rank 0 only.
    fn reported(&self, reason: String) -> String {
        if self.client.rank().0 == 0 { reason } else { String::new() }
    }

    fn warn(&self, name: &Path, problem: &str) {
        report(format_args!("rank {}: {} {problem}", self.client.rank(), name.display()));
    }
}

/// Opens a file, and makes these descriptors lead to it, at the position of the one in use.
fn replace_descriptors(path: &Path, flags: c_int, used: RawFd, descriptors: &BTreeSet<RawFd>) -> io::Result<()> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags & !O_ACCMODE).open(path)?;
    // SAFETY: a descriptor of the program, that is not closed here.
    let mut old = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(used) });
    let position = old.stream_position()?;
    (&opened).seek(SeekFrom::Start(position))?;
    for descriptor in descriptors {
        // SAFETY: both are open descriptors.
        let replaced = unsafe {
            let close_on_exec = libc::fcntl(*descriptor, libc::F_GETFD) & libc::FD_CLOEXEC;
            let flags = if close_on_exec == 0 { 0 } else { libc::O_CLOEXEC };
            next::dup3(opened.as_raw_fd(), *descriptor, flags)
        };
        if replaced < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes a file of the dataset with this content and its permissions.
fn copy_to(content: &File, path: &Path) -> io::Result<()> {
    let mut file = emptied(path)?;
    file.set_permissions(content.metadata()?.permissions())?;
    copy(content, &mut file)
}

fn emptied(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

/// Copies a file from its beginning, and leaves its position as it is.
fn copy(content: &File, to: &mut File) -> io::Result<()> {
    let (mut buffer, mut at) = (vec![0; COPY_BYTES], 0);
    loop {
        match content.read_at(&mut buffer, at) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                at += count as u64;
            }
            Err(error) if error.raw_os_error() == Some(EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn failed(code: c_int) -> RawFd {
    set_errno(code);
    -1
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
