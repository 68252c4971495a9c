//! The settings in force as parameters of LLNL's library (`SCR manual §10`): what `scr_srun` exports, and the others.
//!
//! The library takes SCR_CNTL_BASE from its system configuration file only. Lists of caches and descriptors can only
//! be in a file, which SCR_CONF_FILE names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use holdfast_core::hostlist;
use holdfast_core::redundancy::registry;
use holdfast_model::{NeedPolicy, NodeName};

use super::checkpoint::Checkpoint;
use super::job::{JobSpec, Step};
use super::keys::{self, Keys as _, ParameterKey};
use super::settings::Settings;
use super::value_kinds::ScrSpelling;
use crate::params::declaration::AllowedSource;

/// The parameters that describe the job.
const OF_JOB: [&str; 5] = ["SCR_PREFIX", "SCR_NODELIST", "SCR_JOB_ID", "SCR_JOB_NAME", "SCR_USER_NAME"];
/// Names the scheme of the only descriptor, or says that there are several.
const COPY_TYPE: &str = "SCR_COPY_TYPE";

/// The keys whose parameters are exported: those about checkpoints and halts that the library takes from the
/// environment.
fn exported() -> impl Iterator<Item = (&'static str, String, ScrSpelling)> {
    keys::parameters(&JobSpec::declared()).into_iter().filter_map(|ParameterKey { parameter, path, .. }| {
        let is_of_library = path.starts_with("checkpoint.") || path.starts_with("halt.");
        let is_exported = is_of_library && parameter.source == AllowedSource::Any;
        Some((parameter.name, path, parameter.spelling.filter(|_| is_exported)?))
    })
}

/// The variable that keeps the library from reading the prefix directory: it reads it itself, and cannot ignore a part.
pub fn without_fetch() -> Option<(String, String)> {
    let (name, _, spelling) = exported().find(|(_, path, _)| path == "checkpoint.restart.fetch")?;
    Some((name.to_owned(), (spelling.of_key)("false")))
}

/// The parameters that are exported to the ranks.
pub fn names() -> Vec<&'static str> {
    OF_JOB.into_iter().chain([COPY_TYPE]).chain(exported().map(|(name, ..)| name)).collect()
}

/// The variable that names the user's configuration file.
pub const USER_FILE: &str = "SCR_CONF_FILE";

/// The job whose parameters these are.
#[derive(Clone, Copy, Debug)]
pub struct LibraryJob<'a> {
    pub name: &'a str,
    pub id: &'a str,
    pub user: &'a str,
    /// Of the allocation.
    pub nodes: &'a [NodeName],
    pub prefix: &'a Path,
}

/// The variables of the ranks of a step, and the text of the configuration file if one is needed. `settings` are those
/// of the spec.
pub fn of_job(job: LibraryJob<'_>, settings: &Settings, step: &Step) -> (BTreeMap<String, String>, Option<String>) {
    let file = needs_file(&step.checkpoint).then(|| lists(&step.checkpoint));
    let of_job = [
        job.prefix.to_string_lossy().into_owned(),
        hostlist::compress(job.nodes),
        job.id.to_owned(),
        job.name.to_owned(),
        job.user.to_owned(),
    ];
    let mut variables: BTreeMap<String, String> = OF_JOB.into_iter().map(str::to_owned).zip(of_job).collect();
    let scheme = step.checkpoint.redundancy.first().map(|first| first.scheme.to_string());
    variables.extend(scheme.map(|scheme| (COPY_TYPE.to_owned(), file.as_ref().map_or(scheme, |_| "FILE".to_owned()))));
    let need = step.checkpoint.need_in_force();
    for (parameter, path, spelling) in exported() {
        // Of a list, the first element.
        let path = path.replace("[*]", "[0]");
        let of_step = if path.starts_with("checkpoint.") { step.key_path.as_str() } else { "" };
        if let Some(setting) = settings.get(&format!("{of_step}{path}")) {
            let value = need_in_force(&need, &path).unwrap_or_else(|| (spelling.of_key)(&setting.value));
            variables.insert(parameter.to_owned(), value);
        }
    }
    (variables, file)
}

/// The value of a key of `need`, which `checkpoint.every` may set.
fn need_in_force(need: &NeedPolicy, path: &str) -> Option<String> {
    match path {
        "checkpoint.need.interval" => Some(need.interval.to_string()),
        "checkpoint.need.seconds" => Some(need.time.as_secs().to_string()),
        "checkpoint.need.overhead" => Some(need.overhead.to_string()),
        _ => None,
    }
}

/// True if the settings cannot be expressed in variables alone.
pub fn needs_file(checkpoint: &Checkpoint) -> bool {
    checkpoint.cache.len() > 1 || checkpoint.redundancy.len() > 1
}

fn lists(checkpoint: &Checkpoint) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (at, cache) in checkpoint.cache.iter().enumerate() {
        let _ = writeln!(text, "CACHEDESC={at} BASE={} SIZE={}", cache.base.display(), cache.keep);
    }
    for (at, descriptor) in checkpoint.redundancy.iter().enumerate() {
        let _ = write!(
            text,
            "CKPTDESC={at} ENABLED={} INTERVAL={} BASE={} TYPE={}",
            u8::from(descriptor.enabled),
            descriptor.every,
            descriptor.cache.display(),
            descriptor.scheme,
        );
        for number in registry::numbers_of(descriptor.scheme).into_iter().rev() {
            let _ = write!(text, " {}={}", number.name, number.of(&descriptor.numbers));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;

    fn of(checkpoint: &str) -> (BTreeMap<String, String>, Option<String>) {
        let text = format!("run: {{command: [./app]}}\ncheckpoint: {checkpoint}\nhalt: {{before_end: 5min}}\n");
        let spec = JobSpec::of_test(&text);
        let nodes = ["n1".into(), "n2".into()];
        let job = LibraryJob { name: "heat", id: "7", user: "anna", nodes: &nodes, prefix: Path::new("/p") };
        of_job(job, &spec.settings, &spec.steps[0])
    }

    #[test]
    fn every_exported_parameter_is_listed_and_has_the_value_in_force() {
        let (variables, file) = of("{source: scr-files, cache: [{base: /ssd, keep: 3}], \
             redundancy: [{scheme: partner, hop_distance: 2}], flush: {every: 4, mode: async, bandwidth: 5MB/s}, \
             restart: {fetch: false}, crc: {on_copy: false}, need: {seconds: 60}, piece_size: 256KiB}");
        assert_eq!(variables.keys().map(String::as_str).collect::<Vec<_>>(), {
            let mut names = names();
            names.sort_unstable();
            names
        });
        for (name, value) in [
            ("SCR_PREFIX", "/p"),
            ("SCR_NODELIST", "n[1-2]"),
            ("SCR_JOB_ID", "7"),
            ("SCR_USER_NAME", "anna"),
            ("SCR_CACHE_BASE", "/ssd"),
            ("SCR_CACHE_SIZE", "3"),
            ("SCR_COPY_TYPE", "PARTNER"),
            ("SCR_HOP_DISTANCE", "2"),
            ("SCR_SET_SIZE", "8"),
            ("SCR_FLUSH", "4"),
            ("SCR_FLUSH_ASYNC", "1"),
            ("SCR_FETCH", "0"),
            ("SCR_DISTRIBUTE", "1"),
            ("SCR_CRC_ON_COPY", "0"),
            ("SCR_MPI_BUF_SIZE", "262144"),
            ("SCR_CHECKPOINT_SECONDS", "60"),
            ("SCR_HALT_SECONDS", "300"),
        ] {
            assert_eq!(variables[name], value, "{name}");
        }
        assert_eq!(file, None);
    }

    #[test]
    fn the_one_key_for_the_frequency_sets_the_parameter_of_the_library() {
        for (every, name, value) in [
            ("10min", "SCR_CHECKPOINT_SECONDS", "600"),
            ("50 calls", "SCR_CHECKPOINT_INTERVAL", "50"),
            ("auto", "SCR_CHECKPOINT_OVERHEAD", "5"),
        ] {
            let (variables, _) = of(&format!("{{source: scr-files, every: {every}}}"));
            assert_eq!(variables[name], value, "{every}");
        }
    }

    #[test]
    fn several_descriptors_are_in_a_file() {
        let (variables, file) = of("{source: scr-files, cache: [{base: /ram, keep: 1}, {base: /ssd}], redundancy: \
             [{scheme: local, cache: /ram}, {scheme: xor, set_size: 4, every: 2, cache: /ssd}]}");
        assert_eq!(variables["SCR_COPY_TYPE"], "FILE");
        assert_eq!(
            file.unwrap(),
            "CACHEDESC=0 BASE=/ram SIZE=1\nCACHEDESC=1 BASE=/ssd SIZE=2\n\
             CKPTDESC=0 ENABLED=1 INTERVAL=1 BASE=/ram TYPE=LOCAL HOP_DISTANCE=1 SET_SIZE=8\n\
             CKPTDESC=1 ENABLED=1 INTERVAL=2 BASE=/ssd TYPE=XOR HOP_DISTANCE=1 SET_SIZE=4\n"
        );
    }

    #[test]
    fn one_variable_keeps_the_library_from_the_prefix_directory() {
        assert_eq!(without_fetch(), Some(("SCR_FETCH".to_owned(), "0".to_owned())));
    }
}
