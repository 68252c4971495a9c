//! `holdfast fti write`: makes a checkpoint of files that contain the bytes of variables.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast_core::regular_file;
use holdfast_formats::fti_ff::checkpoint::Checkpoint;
use holdfast_formats::fti_ff::layout::Layout;
use holdfast_formats::fti_ff::variable_type::VariableType;
use holdfast_formats::fti_ff::writer::{self, Stamp, Writer};
use holdfast_formats::fti_ff::{containers, name, verify};
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::output::{Style, printable, report};
use crate::exit;

/// Size of the pieces in which files are copied.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub struct WriteArgs {
    /// The checkpoint to write. FTI reads it under the name Ckpt<id>-Rank<rank>.fti
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// The variables in protect order: id, name, type of the elements, and the file with their bytes. Types: char,
    /// short, int, long, unsigned-char, unsigned-short, unsigned-int, unsigned-long, float, double, long-double, or the
    /// number of bytes of an element
    #[arg(value_name = "ID:NAME:TYPE:FILE", required = true)]
    variables: Vec<String>,
    /// The checkpoint before this one: its containers are continued, as FTI does when variables grow or shrink
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Show what would be written; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// A variable of the command line.
struct RawVariable {
    id: i32,
    name: String,
    kind: VariableType,
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl RawVariable {
    fn open(argument: &str) -> Result<RawVariable, Failure> {
        let usage =
            |problem: &str, remedy: &str| Failure::new(exit::USAGE, problem).at(printable(argument)).remedy(remedy);
        let mut parts = argument.splitn(4, ':');
        let (Some(id), Some(name), Some(kind), Some(path)) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(usage("a variable needs an id, a name, a type and a file", "write 1:field:double:field.bin"));
        };
        let id =
            id.parse().map_err(|_| usage("the id is not a number of 32 bits", "write 1:field:double:field.bin"))?;
        let of_size =
            |kind: &str| kind.parse().ok().filter(|bytes| *bytes > 0).map(|bytes| VariableType::user(kind, bytes));
        let kind = VariableType::of_name(kind).or_else(|| of_size(kind)).ok_or_else(|| {
            usage("the type is unknown", "write double, int or another type of --help, or the bytes of an element")
        })?;
        let path = PathBuf::from(path);
        let unreadable = |error: io::Error| {
            let failure = Failure::new(exit::UNAVAILABLE, "cannot read the bytes of a variable").at(shown(&path));
            failure.because(error).remedy("give the path of a readable regular file")
        };
        let file = regular_file::open(&path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        if bytes.checked_rem(kind.bytes() as u64) != Some(0) {
            let problem = format!("{bytes} bytes are no whole number of elements of {} bytes", kind.bytes());
            let remedy = "check the type, and whether the file is complete";
            return Err(Failure::new(exit::DAMAGED_DATA, problem).at(shown(&path)).remedy(remedy));
        }
        Ok(RawVariable { id, name: name.to_owned(), kind, path, file, bytes })
    }

    fn elements(&self) -> u64 {
        self.bytes / self.kind.bytes() as u64
    }

    /// Copies the bytes into the checkpoint.
    fn copy(&self, out: &Writer<'_>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES];
        let (mut file, mut at) = (&self.file, 0_u64);
        while at < self.bytes {
            let want = usize::try_from(self.bytes - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let piece = buffer.get_mut(..want).unwrap_or_default();
            file.read_exact(piece)?;
            out.write(self.id, at, piece)?;
            at += want as u64;
        }
        Ok(())
    }
}

pub(super) fn run(args: &WriteArgs, output: Style) -> Result<u8, Failure> {
    let variables = args.variables.iter().map(|argument| RawVariable::open(argument)).collect::<Result<Vec<_>, _>>()?;
    if args.to.symlink_metadata().is_ok() && !args.force {
        let exists = Failure::new(exit::UNAVAILABLE, "the file exists already").at(shown(&args.to));
        return Err(exists.remedy("write to another name, or replace it with --force"));
    }
    let before = match &args.previous {
        None => Vec::new(),
        Some(previous) => {
            let checkpoint = Checkpoint::open(previous)?;
            if checkpoint.meta.layout != Layout::A {
                let problem = "the previous checkpoint has another layout than that of FTI 1.1, which is written";
                let remedy = "leave --previous out";
                return Err(Failure::new(exit::USAGE, problem).at(shown(previous)).remedy(remedy));
            }
            checkpoint.blocks().to_vec()
        }
    };
    let sizes: Vec<(i32, u64)> = variables.iter().map(|variable| (variable.id, variable.bytes)).collect();
    let blocks = containers::next(&before, &sizes).map_err(|error| Failure::of(exit::USAGE, &error))?;
    let entries = || blocks.iter().flat_map(|block| &block.entries);
    let listed = variables.iter().map(|variable| {
        let RawVariable { id, name, kind, bytes, .. } = variable;
        let containers = entries().filter(|entry| entry.id == *id).count();
        json!({
            "id": id, "name": name, "type": kind.name(), "elements": variable.elements(), "bytes": bytes,
            "containers": containers,
        })
    });
    let listed: Vec<Value> = listed.collect();
    let bytes = containers::end(&blocks).unwrap_or(0);
    if !args.dry_run {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp::at(i64::try_from(since.as_nanos()).unwrap_or(-1));
        writer::write(&args.to, blocks, stamp, |out| {
            variables.iter().try_for_each(|variable| {
                let of_file =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", variable.path.display()));
                variable.copy(out).map_err(of_file)
            })
        })?;
        let check = verify::verify(&args.to, &mut |_, _| {})?;
        if let Some(damage) = check.damages.first() {
            let changed = Failure::new(exit::DAMAGED_DATA, format!("the written file is damaged: {damage}"));
            return Err(changed.at(shown(&args.to)).remedy("check the disk, then write it again"));
        }
    }
    let is_named = args.to.file_name().and_then(|name| name::FileName::parse(name.to_str()?)).is_some();
    let (path, dry_run) = (args.to.display().to_string(), args.dry_run);
    let fields = json!({"path": path, "bytes": bytes, "dry_run": dry_run, "variables": listed});
    output.result(&report(fields, |to| {
        for variable in &variables {
            let RawVariable { id, name, kind, bytes, .. } = variable;
            let (name, elements, kind) = (printable(name), variable.elements(), printable(kind.name()));
            writeln!(to, "{id} {name}: {elements} of {kind}, {bytes} bytes")?;
        }
        let verb = if dry_run { "would be written" } else { "written" };
        writeln!(to, "{}: {verb}, {bytes} bytes", shown(&args.to))?;
        if is_named {
            return Ok(());
        }
        writeln!(to, "note: FTI finds a checkpoint only under a name such as Ckpt1-Rank0.fti")
    }))?;
    Ok(exit::FINISHED)
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string()).to_string()
}
