//! What the cache of a node holds, and copying it: `scr_inspect_cache`, `scr_inspect`, `scr_copy`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use holdfast_agent::agent::inventory;
use holdfast_agent::copy::drain::copy_alone;
use holdfast_agent::directories::paths::Paths;
use holdfast_agent::store::Store;
use holdfast_core::redundancy::drainable::{Drainability, drainable};
use holdfast_core::redundancy::numbers::SchemeNumber;
use holdfast_core::redundancy::registry;
use holdfast_model::{
    CheckpointId, Descriptor, Holding, Inventory, Locations, NodeName, Protection, Rank, RankDescriptor,
};
use holdfast_wire::agent::CopyRequest;

use super::arguments::{parse, usage};
use super::job_nodes::{JobNodes, UsableNodes};
use super::result::{CompatError, ExitResult, NO, YES, failed, print, printed, refused};
use super::{directories, node_commands};
use crate::host::host_name;
use crate::params::value;

/// The files of a job that its control directory lists.
fn store(control: &Path) -> Result<Store, CompatError> {
    let paths = Paths::of_control(control).ok_or_else(|| {
        refused(format!("{} is not a control directory: it ends with <user>/scr.<job id>", control.display()))
    })?;
    let parameters = directories::parameters()?;
    let mut bases = directories::cache_bases(&parameters);
    let given = ["SCR_CACHE_BASE", "SCR_CNTL_BASE"].into_iter();
    bases.extend(given.filter_map(|name| parameters.read(name, value::directory)));
    // The caches are often where the control directory is.
    bases.extend(control.ancestors().nth(2).map(|base| base.to_string_lossy().into_owned()));
    Store::open(paths, bases).map_err(|error| failed(&error))
}

/// Print the ranks whose files are complete in the cache of this node
#[derive(Parser)]
#[command(name = "scr_inspect_cache", no_binary_name = true)]
struct InspectCacheArgs {
    /// The filemap of the control directory
    filemap: PathBuf,
}

pub(super) fn inspect_cache(words: &[String]) -> ExitResult {
    let args: InspectCacheArgs = parse(words)?;
    let control = args.filemap.parent().unwrap_or(Path::new("."));
    let inventory = inventory::of_store(&node_commands::own_name(), &store(control)?);
    let inventory = inventory.map_err(|error| failed(&error))?;
    for holding in inventory.holdings.iter().filter(|holding| holding.complete) {
        let Some(known) = &holding.descriptor else { continue };
        let (id, rank, scheme) = (holding.checkpoint, holding.rank, known.descriptor.scheme);
        let own = registry::numbers_of(scheme).into_iter().filter(|number| !number.is_of_every_descriptor());
        let own: String =
            own.map(|number| format!(" {}={}", number.name, number.of(&known.descriptor.numbers))).collect();
        let RankDescriptor { groups, group_id, group_size, group_rank, .. } = known;
        print(format!(
            "CKPT={id} RANK={rank} TYPE={scheme} GROUPS={groups} GROUP_ID={group_id} GROUP_SIZE={group_size} \
             GROUP_RANK={group_rank} FILES=1{own}"
        ))?;
    }
    Ok(YES)
}

/// A line of `scr_inspect_cache`: a rank whose files are complete.
fn holding(line: &str) -> Option<Holding> {
    let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| value(key)?.parse::<u32>().ok();
    let scheme = registry::named(value("TYPE")?)?;
    let of_scheme = |declared: &&SchemeNumber| {
        let text = value(declared.name.as_str());
        Some((declared.name, text.map_or(Ok(declared.default), str::parse).ok()?))
    };
    let descriptor = Descriptor {
        index: 0,
        enabled: true,
        interval: 1,
        base: String::new(),
        scheme,
        numbers: registry::numbers_of(scheme).iter().map(of_scheme).collect::<Option<_>>()?,
    };
    Some(Holding {
        checkpoint: CheckpointId(value("CKPT")?.parse().ok()?),
        rank: Rank(number("RANK")?),
        ranks: None,
        expected: None,
        complete: true,
        fault: None,
        // Such a line is of all files that the library made, those of the scheme included.
        protection: Protection::Scheme(scheme),
        partner_of: None,
        descriptor: Some(RankDescriptor {
            descriptor,
            directory: String::new(),
            groups: number("GROUPS")?,
            group_id: number("GROUP_ID")?,
            group_size: number("GROUP_SIZE")?,
            group_rank: number("GROUP_RANK")?,
        }),
        files: Vec::new(),
    })
}

/// Print the checkpoints in the caches that can be completed, newest first
#[derive(Parser)]
#[command(name = "scr_inspect", no_binary_name = true, infer_long_args = true)]
struct InspectArgs {
    #[command(flatten)]
    nodes: JobNodes,
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn inspect(words: &[String]) -> ExitResult {
    let args: InspectArgs = parse(words)?;
    let Some(UsableNodes { up, .. }) = args.nodes.usable("scr_inspect")? else { return Ok(NO) };
    let filemap = args.nodes.from.join("filemap.scrinfo").to_string_lossy().into_owned();
    let answers = node_commands::run_on(&up, None, "scr_inspect_cache", &[filemap])?;
    let inventory = |(node, lines): (NodeName, Vec<String>)| Inventory {
        node: Some(node),
        holdings: lines.iter().filter_map(|line| holding(line)).collect(),
        ..Inventory::default()
    };
    let inventories: Vec<Inventory> = answers.into_iter().map(inventory).collect();
    let held = inventories.iter().flat_map(|inventory| &inventory.holdings);
    let ids: BTreeSet<CheckpointId> = held.map(|holding| holding.checkpoint).collect();
    // Whether a checkpoint must be flushed is a question for `scr_flush_file`.
    let cached = Some(Locations { cache: true, ..Locations::default() });
    let usable = |id: &CheckpointId| matches!(drainable(*id, &inventories, cached), Drainability::Drainable { .. });
    let ids: Vec<String> = ids.iter().rev().filter(|id| usable(id)).map(ToString::to_string).collect();
    if ids.is_empty() {
        return Ok(NO);
    }
    printed(ids.join(" "))
}

/// Copy the files of a checkpoint from the cache of this node
#[derive(Parser)]
#[command(name = "scr_copy", no_binary_name = true)]
struct CopyArgs {
    /// The control directory
    control: PathBuf,
    /// The checkpoint
    id: u64,
    /// The directory to copy to
    to: PathBuf,
    /// Bytes that are copied at a time
    #[arg(value_parser = |text: &str| value::buffer(text).ok_or("a number of bytes is required"))]
    buffer: u64,
    /// 1: record checksums
    crc: u8,
    /// 1: copy only the files of ranks on other nodes
    partner: u8,
    /// Nodes that are down: copies of their files are copied
    down: Vec<String>,
}

pub(super) fn copy(words: &[String]) -> ExitResult {
    let host = host_name();
    let line = |text: &str| print(format!("scr_copy: {host}: {text}"));
    let copied = match parse(words) {
        Err(usage) if usage.is_help() => return Err(usage.into()),
        args => args.map_err(CompatError::from).and_then(|args| copy_files(&args, &line)),
    };
    // Scripts look for this line, also after an error.
    line(&format!("Return code: {}", copied.as_ref().copied().unwrap_or(NO)))?;
    copied
}

fn copy_files(args: &CopyArgs, line: &dyn Fn(&str) -> Result<(), CompatError>) -> ExitResult {
    let id = CheckpointId(args.id);
    let store = store(&args.control)?;
    let known = store.flush.locations().map_err(|error| failed(&error))?;
    match known.get(&id) {
        None => {
            line(&format!("Do not have any files for checkpoint id {id}"))?;
            return Ok(NO);
        }
        Some(locations) if locations.pfs => return Ok(YES),
        Some(_) => {}
    }
    let to = std::path::absolute(&args.to)?;
    let prefix = to.parent().ok_or_else(|| usage::<CopyArgs>("the directory to copy to is required"))?;
    let request = CopyRequest {
        checkpoint: id,
        directory: to.clone(),
        crc: args.crc != 0,
        on_behalf_of: args.down.iter().map(NodeName::new).collect(),
        partners_only: args.partner != 0,
        buffer_bytes: usize::try_from(args.buffer).unwrap_or(usize::MAX),
        threads: None,
        container: None,
    };
    let reply = copy_alone(&store, prefix, &request).map_err(|error| failed(&error))?;
    for owner in reply.partners.values() {
        line(&format!("Partners: {owner}"))?;
    }
    for (rank, reason) in &reply.failed {
        eprintln!("scr_copy: rank {rank}: {}", super::super::output::printable(reason));
    }
    Ok(if reply.failed.is_empty() { YES } else { NO })
}
