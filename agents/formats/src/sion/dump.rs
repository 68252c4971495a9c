//! The description of a container in the format of siondump, so that both outputs can be compared with `diff`.
//!
//! Errors of siondump are not reproduced: it omits a last record of length zero, and cannot combine `-K` with `-k`. As
//! in siondump, unused chunks of sets of several files are shown as -1, independent of the value in the file.

use std::fmt;
use std::io::Write;
use std::path::Path;

use super::byte_order::ByteOrder;
use super::container::Container;
use super::error::SionError;
use super::header::{Header, KeyValue};
use super::statistics::{Statistics, percent};

/// The version of SIONlib whose output is reproduced.
const OUTPUT_OF: &str = "1.7p2";
const WIDE_RULE: usize = 155;
const NARROW_RULE: usize = 60;
/// Columns of byte counts in one table.
const COLUMNS: u64 = 10;
/// Records in one line of a task (`-K`).
const RECORDS_PER_LINE: usize = 5;
/// Ranks in one line of the mapping.
const MAPPED_PER_LINE: usize = 16;
const MIB: f64 = 1024.0 * 1024.0;

/// What is printed after the head; the options of siondump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpOptions {
    /// The byte counts of all tasks (`-a -l`).
    pub tasks: bool,
    /// The sums for each key (`-k`).
    pub keys: bool,
    /// Every record (`-K`).
    pub records: bool,
    /// The files of the set and the place of each rank (`-m`).
    pub mapping: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions { tasks: true, keys: false, records: false, mapping: true }
    }
}

/// Writes lines; an error names the container.
struct Lines<'a, W: ?Sized> {
    out: &'a mut W,
    path: &'a Path,
}

impl<W: Write + ?Sized> Lines<'_, W> {
    /// For `write!`.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), SionError> {
        self.out.write_fmt(text).map_err(SionError::io("write the description of", self.path))
    }

    fn rule(&mut self, width: usize) -> Result<(), SionError> {
        writeln!(self, "{}", "-".repeat(width))
    }
}

/// Writes the description of an open container.
///
/// # Errors
/// When a record is damaged (the lines before it are written), or `out` fails.
pub fn describe(container: &Container, options: &DumpOptions, out: &mut impl Write) -> Result<(), SionError> {
    let statistics = Statistics::of(container)?;
    let out = &mut Lines { out, path: &container.path };
    if let Some(header) = container.header() {
        head(container, header, out)?;
    }
    sums(&statistics, out)?;
    if options.tasks {
        writeln!(out)?;
        out.rule(WIDE_RULE)?;
        tables(container, statistics.blocks, out)?;
        out.rule(WIDE_RULE)?;
    }
    if options.keys && container.key_value() == KeyValue::Inline {
        out.rule(WIDE_RULE)?;
        keys(container, out)?;
        out.rule(WIDE_RULE)?;
    }
    if options.records && container.key_value() == KeyValue::Inline {
        out.rule(WIDE_RULE)?;
        records(container, out)?;
        out.rule(WIDE_RULE)?;
    }
    let several = container.header().is_some_and(|header| header.files > 1);
    if several && container.parts.len() > 1 {
        files(container, options.mapping, out)?;
    }
    Ok(())
}

fn head(container: &Container, header: &Header, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    let several = header.files > 1 && container.parts.len() > 1;
    let name = container.path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = String::from_utf8_lossy(&header.prefix).replace(char::is_control, "\u{fffd}");
    let (major, minor) = (header.version / 1000, header.version % 1000);
    let keyval = match header.key_value {
        KeyValue::None => "SION_KEYVAL_NONE",
        KeyValue::Inline => "SION_KEYVAL_INLINE",
    };
    let mib = f64::from(header.block_size) / MIB;
    writeln!(out, "siondump: sid:                       {}", u8::from(several))?;
    writeln!(out, "siondump: filename:                  {:<30}", name.replace(char::is_control, "\u{fffd}"))?;
    writeln!(out, "siondump: prefix:                    {prefix:<30}")?;
    writeln!(out, "siondump: number of tasks:           {}", container.tasks())?;
    writeln!(out, "siondump: current endianness:        {}", ByteOrder::native().as_str())?;
    writeln!(out, "siondump: file endianness:           {}", header.user_order.as_str())?;
    writeln!(out, "siondump: filesystem blocksize:      {} bytes ({mib:6.2} MB)", header.block_size)?;
    writeln!(out, "siondump: file set:                  {}", if several { "Yes" } else { "No" })?;
    // Format 2 has no such field; siondump then prints the number of a single file.
    writeln!(out, "siondump: file number:               {}", header.file_number.unwrap_or(1))?;
    writeln!(out, "siondump: number of files:           {}", header.files)?;
    let (upper, lower) = (header.flag1 >> 32, header.flag1 & 0xffff_ffff);
    writeln!(out, "siondump: flag1:                     {} ({upper}+{lower})", header.flag1)?;
    writeln!(out, "siondump: flag2:                     {}", header.flag2)?;
    writeln!(out, "siondump: keyval:                    {} ({keyval})", header.key_value.code())?;
    writeln!(out, "siondump: file format version:       {}", header.format)?;
    let patch = header.patch_level;
    writeln!(out, "siondump: file SIONlib version:      {major}.{minor}p{patch} (current {OUTPUT_OF})")
}

fn sums(sums: &Statistics, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    let mib = |bytes: u64| bytes as f64 / MIB;
    let line = |label: &str, bytes: u64| {
        let label = format!("siondump: {label}:");
        format!("{label:<47}{bytes:>14} bytes  ({:8.2} MB", mib(bytes))
    };
    writeln!(out, "siondump: number of blocks:           {}", sums.blocks)?;
    writeln!(out, "{})", line("size of chunks", sums.chunk_bytes))?;
    writeln!(out, "{})", line("datasize in file (aggr.)", sums.data_bytes))?;
    writeln!(out, "{}) #{:>7}", line("size of full chunks", sums.full.bytes), sums.full.chunks)?;
    writeln!(out, "{}) #{:>7}", line("size of partly filled chunks", sums.partly.bytes), sums.partly.chunks)?;
    writeln!(out, "{}) #{:>7}", line("size of empty chunks", sums.empty.bytes), sums.empty.chunks)?;
    let overhead = u64::try_from(sums.overhead_bytes()).unwrap_or(0);
    writeln!(out, "{})", line("overhead compared to task-local file", overhead))?;
    let share = |label: &str, width: usize, part: u64, total: u64| {
        let label = format!("siondump: {label}:");
        format!("{label:<49}{:>width$.6}%", percent(part, total))
    };
    writeln!(out, "{}", share("file usage (user data/chunk size)", 12, sums.data_bytes, sums.chunk_bytes))?;
    let block = sums.block_size;
    let (used, full) = (sums.used_blocks, sums.full_blocks);
    let partly = used.saturating_sub(full);
    let (used_bytes, full_bytes) = (used.saturating_mul(block), full.saturating_mul(block));
    writeln!(out, "{}, {used} blocks)", line("fsblocks, size of used blocks", used_bytes))?;
    writeln!(out, "{}, {full} blocks)", line("fsblocks, size of fully used blocks", full_bytes))?;
    let (partly_bytes, partly_room) = (sums.data_bytes.saturating_sub(full_bytes), partly.saturating_mul(block));
    writeln!(
        out,
        "siondump: fsblocks, size of partly used blocks:{partly_bytes:>14} bytes of {partly_room:>12} bytes \
         ({:6.2} MB of {:6.2} MB, {partly} blocks)",
        mib(partly_bytes),
        mib(partly_room)
    )?;
    writeln!(out, "{}", share("fsblocks, used fsblocks/chunk size", 13, used_bytes, sums.chunk_bytes))?;
    // Without blocks there is no share, and siondump omits the line.
    if used > 0 {
        writeln!(out, "{}", share("fsblocks, user data/used blocks", 13, sums.data_bytes, used_bytes))?;
    }
    Ok(())
}

fn tables(container: &Container, blocks: u64, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    let several = container.parts.len() > 1;
    let mut first = 0;
    while first < blocks {
        let end = first.saturating_add(COLUMNS).min(blocks);
        let mut line = " ".repeat(70);
        for block in first..end {
            line.push_str(&format!("BLK{block:03}    "));
        }
        writeln!(out, "{line}")?;
        for task in 0..container.tasks() {
            let (part, local) = container.located(task)?;
            let table = &part.table;
            let unused = if several { -1 } else { table.unused_mark };
            let rank = part.header.global_ranks.get(local).copied().unwrap_or(0);
            let size = part.header.stored_chunk_sizes.get(local).copied().unwrap_or(0);
            let (bytes, count) = (table.stream_bytes(local), table.chunks(local));
            let mut line =
                format!("Task {task:02}: size={bytes:>10} B glblrnk={rank:>4} #blks={count:>2} lsz={size:>10} B: ");
            for block in first..end {
                let bytes = table.bytes_of(local, block).map_or(unused, u64::cast_signed);
                line.push_str(&format!("{bytes:>9} "));
            }
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        first = end;
    }
    Ok(())
}

fn keys(container: &Container, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    for task in 0..container.tasks() {
        for (number, value) in container.keys(task)?.iter().enumerate() {
            let (key, records, bytes) = (value.key.cast_signed(), value.records, value.bytes);
            let line = format!("Task {task:02}: key[{number:02}]={key:>8}: #blocks={records:>6} totalsize={bytes:>10}");
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn records(container: &Container, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    for task in 0..container.tasks() {
        write!(out, "Task {task:02}:")?;
        for (number, record) in container.records(task)?.enumerate() {
            let record = record?;
            if number > 0 && number.is_multiple_of(RECORDS_PER_LINE) {
                write!(out, "\n       :")?;
            }
            let key = record.key.cast_signed();
            write!(out, " [{number:02}:k=<{key}>,size={}]", record.length)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn files(container: &Container, mapping: bool, out: &mut Lines<'_, impl Write + ?Sized>) -> Result<(), SionError> {
    let header = container.header();
    let prefix = header.map(|header| String::from_utf8_lossy(&header.prefix).replace(char::is_control, "\u{fffd}"));
    let prefix = prefix.unwrap_or_default();
    out.rule(NARROW_RULE)?;
    writeln!(out, "siondump: number of files:           {}", container.parts.len())?;
    for number in 0..container.parts.len() {
        let end = if number == 0 { String::new() } else { format!(".{number:06}") };
        let shown = number + 1;
        writeln!(out, "siondump: file {shown:>3}:                    {prefix}{end} ")?;
    }
    out.rule(NARROW_RULE)?;
    if mapping {
        write!(out, "  mapping: ")?;
        for task in 0..container.tasks() {
            let slot = container.slot(task)?;
            write!(out, "[{task:05} -> (f{:03},t{:03})] ", slot.part, slot.local)?;
            if (task + 1).is_multiple_of(MAPPED_PER_LINE) {
                write!(out, "\n        ")?;
            }
        }
        writeln!(out)?;
        out.rule(NARROW_RULE)?;
    }
    Ok(())
}
