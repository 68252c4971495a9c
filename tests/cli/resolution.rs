//! SCR_* parameters: files are read as by SCR's library, and resolved in its order.

use std::fs;
use std::path::Path;

use holdfast::launch::registry::registered;
use holdfast::params::conf::{ConfError, ConfLine, FileOwner, parse, read};
use holdfast::params::source::Sources;
use holdfast::params::{FileLine, Origin, ParamError, ParamWarning, ParamWarningKind, Parameters, Setting, value};
use holdfast::spec::{Environment, JobSpec, declared_parameters};
use holdfast_core::kvtree::{Tree, print};
use holdfast_model::{Descriptor, NumberName, Scheme};
use holdfast_testkit::fixtures;
use proptest::prelude::*;

fn number(descriptor: &Descriptor, name: &'static str) -> u32 {
    descriptor.numbers.get(NumberName::new(name)).unwrap()
}

/// The tree that SCR's C parser makes of the lines.
fn tree(entries: &[ConfLine]) -> Tree {
    let mut tree = Tree::new();
    for entry in entries {
        let below = tree.set_kv(&entry.key, &entry.value);
        for (key, value) in &entry.pairs {
            below.set_kv(key, value);
        }
    }
    tree
}

fn environment(text: &str) -> Sources {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    Sources::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

fn user(text: &str) -> Vec<ConfLine> {
    parse(text.as_bytes(), "user.conf", FileOwner::User).unwrap()
}

fn system(text: &str) -> Vec<ConfLine> {
    parse(text.as_bytes(), "scr.conf", FileOwner::System).unwrap()
}

fn resolve(sources: &Sources) -> Result<Parameters, ParamError> {
    Parameters::resolve(&declared_parameters(), sources)
}

fn resolved(sources: &Sources) -> Parameters {
    resolve(sources).unwrap()
}

/// A parameter with a value.
#[track_caller]
fn setting<'a>(parameters: &'a Parameters, name: &str) -> &'a Setting {
    parameters.get(name).unwrap()
}

fn line(file: &str, line: usize) -> FileLine {
    FileLine { file: file.to_owned(), line }
}

// The text format.

#[test]
fn configuration_files_give_the_trees_of_scr_s_library() {
    let directory = fixtures("scr").join("t-config-files");
    let mut compared = 0;
    for name in ["basic", "descriptors", "duplicates", "empty", "several-on-a-line", "crlf"] {
        let entries = read(&directory.join(format!("{name}.conf")), FileOwner::User).unwrap();
        let expected = fs::read_to_string(directory.join(format!("{name}.library.txt"))).unwrap();
        // As in SCR's scripts, and unlike in its library, a carriage return is not part of the value.
        let expected = if name == "crlf" { expected.replace('\r', "") } else { expected };
        assert_eq!(format!("{}return=success\nrc=0\n", print::text(&tree(&entries))), expected, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn lines_that_scr_s_parsers_guess_are_refused_by_number() {
    // The library reports line 1 of each and continues with a part of it; the scripts end, or take a blank for
    // `=`.
    let directory = fixtures("scr").join("t-config-files");
    for (name, what) in [
        ("missing-equals", "found \"5\" where the `=` of SCR_FLUSH belongs"),
        ("missing-value", "SCR_FLUSH has no value"),
        ("value-with-equals", "a `=` without a key"),
        ("value-with-space", "b has no `=` and no value"),
    ] {
        let path = directory.join(format!("{name}.conf"));
        let error = read(&path, FileOwner::User).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{name}.conf:1: {what}")), "{text}");
        let library = fs::read_to_string(directory.join(format!("{name}.library.txt"))).unwrap();
        assert!(library.contains(&format!("{name}.conf:1\n")));
    }
}

#[test]
fn missing_files_and_files_that_are_not_text_are_named() {
    let line = |bytes: &[u8]| parse(bytes, "x.conf", FileOwner::User).unwrap_err().to_string();
    assert!(line(b"A=1\nB=\xff\n").starts_with("x.conf:2: not UTF-8"));
    assert!(line(b"A=\0\n").starts_with("x.conf:1: contains a NUL"));
    assert!(line(b"=1").contains("without a key"));
    let directory = tempfile::tempdir().unwrap();
    let missing = read(&directory.path().join("missing.conf"), FileOwner::System).unwrap_err();
    assert!(matches!(missing, ConfError::Read { .. }) && missing.to_string().contains("missing.conf"));
    let large = directory.path().join("large.conf");
    fs::write(&large, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(read(&large, FileOwner::System), Err(ConfError::TooLarge { .. })));
}

// The order.

#[test]
fn environment_precedes_user_file_precedes_system_file_precedes_default() {
    let all = environment("SCR_FLUSH=1")
        .with_user_file(user("SCR_DEBUG=0\nSCR_FLUSH=2"))
        .with_system_file(system("SCR_FLUSH=4"));
    let flush = |sources: &Sources| setting(&resolved(sources), "SCR_FLUSH").clone();
    assert_eq!((flush(&all).value.as_str(), flush(&all).origin), ("1", Origin::Environment));
    let without = environment("").with_user_file(user("\nSCR_FLUSH=2")).with_system_file(system("SCR_FLUSH=4"));
    assert_eq!((flush(&without).value.as_str(), flush(&without).origin), ("2", Origin::UserFile(line("user.conf", 2))));
    let without = environment("").with_system_file(system("SCR_FLUSH=4"));
    assert_eq!(
        (flush(&without).value.as_str(), flush(&without).origin),
        ("4", Origin::SystemFile(line("scr.conf", 1)))
    );
    assert_eq!((flush(&environment("")).value.as_str(), flush(&environment("")).origin), ("10", Origin::Default));
}

#[test]
fn defaults_are_those_of_scr() {
    let parameters = resolved(&environment(""));
    for (name, value) in [
        ("SCR_ENABLE", "1"),
        ("SCR_DISTRIBUTE", "1"),
        ("SCR_FETCH", "1"),
        ("SCR_CRC_ON_FLUSH", "1"),
        ("SCR_FLUSH_ASYNC", "0"),
        ("SCR_CRC_ON_COPY", "0"),
        ("SCR_GLOBAL_RESTART", "0"),
        ("SCR_CNTL_BASE", "/tmp"),
        ("SCR_CACHE_BASE", "/tmp"),
        ("SCR_FETCH_WIDTH", "256"),
        ("SCR_FLUSH_WIDTH", "256"),
        ("SCR_MPI_BUF_SIZE", "128KB"),
        ("SCR_FILE_BUF_SIZE", "1MB"),
        ("SCR_TRANSFER_SECS", "60"),
        ("SCR_HALT_SECONDS", "0"),
    ] {
        assert_eq!(setting(&parameters, name).value, value, "{name}");
    }
    assert_eq!(parameters.read("SCR_FLUSH_ASYNC_BW", value::bytes), Some(4 * 52_428_800));
    for name in ["SCR_RUNS", "SCR_PREFIX", "SCR_NODELIST"] {
        assert_eq!(parameters.get(name), None, "{name}");
    }
    let descriptors = parameters.descriptors;
    assert_eq!(
        descriptors.cache.iter().map(|cache| (cache.base.as_str(), cache.size)).collect::<Vec<_>>(),
        [("/tmp", 2)]
    );
    let [only] = descriptors.checkpoint.as_slice() else { panic!("one descriptor") };
    assert_eq!(
        (
            only.descriptor.scheme,
            only.descriptor.interval,
            number(&only.descriptor, "HOP_DISTANCE"),
            number(&only.descriptor, "SET_SIZE"),
            only.descriptor.enabled
        ),
        (Scheme::new("XOR"), 1, 1, 8, true)
    );
    assert!(parameters.warnings.is_empty());
    // Every parameter is explained once.
    let mut names: Vec<&str> = parameters.settings.iter().map(|setting| setting.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all && all >= 38, "{all}");
}

#[test]
fn only_the_system_file_sets_the_control_base() {
    let sources = environment("SCR_CNTL_BASE=/x")
        .with_user_file(user("SCR_CNTL_BASE=/z"))
        .with_system_file(system("SCR_CNTL_BASE=/ram"));
    let parameters = resolved(&sources);
    assert_eq!(setting(&parameters, "SCR_CNTL_BASE").value, "/ram");
    let kinds: Vec<_> = parameters.warnings.iter().map(|warning| warning.kind.clone()).collect();
    assert_eq!(kinds, [ParamWarningKind::SystemFileOnly, ParamWarningKind::SystemFileOnly]);
    let text = parameters.warnings[1].to_string();
    assert_eq!(text, "SCR_CNTL_BASE (user file user.conf:1) is ignored: only the system file may set it");
}

#[test]
fn a_line_of_the_system_file_with_fixed_cannot_be_overridden() {
    let site = "SCR_FLUSH_ASYNC_BW=1MB FIXED=1\nSCR_CACHE_BASE=/ssd FIXED=1\nSCR_FLUSH=3 FIXED=0";
    let sources = environment("SCR_FLUSH_ASYNC_BW=2g SCR_FLUSH=5")
        .with_user_file(user("CACHEDESC=0 BASE=/mine SIZE=1\nSCR_CACHE_BASE=/mine"))
        .with_system_file(system(site));
    let parameters = resolved(&sources);
    let bandwidth = setting(&parameters, "SCR_FLUSH_ASYNC_BW");
    assert_eq!((bandwidth.value.as_str(), &bandwidth.origin), ("1MB", &Origin::Fixed(line("scr.conf", 1))));
    assert_eq!(setting(&parameters, "SCR_CACHE_BASE").value, "/ssd");
    assert_eq!(setting(&parameters, "SCR_FLUSH").value, "5");
    assert_eq!(parameters.descriptors.cache[0].base, "/ssd");
    let warnings: Vec<String> = parameters.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "SCR_FLUSH_ASYNC_BW (environment) is ignored: scr.conf:1 fixes it",
            "CACHEDESC (user file user.conf:1) is ignored: scr.conf:2 fixes it",
            "SCR_CACHE_BASE (user file user.conf:2) is ignored: scr.conf:2 fixes it",
        ]
    );
    let error = parse(b"SCR_FLUSH=1 FIXED=yes", "scr.conf", FileOwner::System).unwrap_err().to_string();
    assert!(error.starts_with("scr.conf:1: FIXED is \"yes\", expected is 0 or 1"), "{error}");
    // In a user's file it has no meaning.
    let user = resolved(&environment("").with_user_file(user("SCR_FLUSH=1 FIXED=1")));
    assert_eq!((user.text("SCR_FLUSH"), &user.warnings[0].kind), (Some("1"), &ParamWarningKind::Unknown));
}

/// The directory of the job below a base, by these parameters.
fn below(parameters: &Parameters, base: &str) -> String {
    let (user, job) = (parameters.user.as_deref().unwrap(), parameters.text("SCR_JOB_ID").unwrap());
    format!("{base}/{user}/scr.{job}")
}

fn caches(parameters: &Parameters) -> Vec<String> {
    parameters.descriptors.cache.iter().map(|cache| below(parameters, &cache.base)).collect()
}

#[test]
fn directories_are_those_of_scr_cntl_dir() {
    // t-command-output/scr_cntl_dir.txt, in its order.
    let cases = fs::read_to_string(fixtures("scr").join("t-command-output/scr_cntl_dir.txt")).unwrap();
    let job = "USER=user1 SCR_JOB_ID=1145655";
    let plain = resolved(&environment(job));
    let site = system("SCR_CNTL_BASE=/ram\nSCR_CACHE_BASE=/ssd");
    let with_site = resolved(&environment(job).with_system_file(site.clone()));
    let refused = format!("{job} SCR_CNTL_BASE=/x SCR_CACHE_BASE=/y");
    let with_environment = resolved(&environment(&refused).with_system_file(site.clone()));
    let own = user("SCR_CNTL_BASE=/z\nCACHEDESC=0 BASE=/u0 SIZE=3");
    let with_user = resolved(&environment(&refused).with_user_file(own).with_system_file(site));
    for (parameters, control, cache) in [
        (plain, "/tmp/user1/scr.1145655", "/tmp/user1/scr.1145655"),
        (with_site, "/ram/user1/scr.1145655", "/ssd/user1/scr.1145655"),
        (with_environment, "/ram/user1/scr.1145655", "/y/user1/scr.1145655"),
        (with_user, "/ram/user1/scr.1145655", "/u0/user1/scr.1145655"),
    ] {
        assert_eq!(below(&parameters, &setting(&parameters, "SCR_CNTL_BASE").value), control);
        assert_eq!(caches(&parameters), [cache]);
        assert!(cases.contains(&format!("{control}\n")) && cases.contains(&format!("{cache}\n")));
    }
    // As in SCR's library, and unlike in its scripts, a CACHEDESC of the system file has an effect.
    let two = system("CACHEDESC=0 BASE=/sys0 SIZE=1\nCACHEDESC=1 BASE=/sys1 SIZE=1");
    let parameters = resolved(&environment(job).with_system_file(two));
    assert_eq!(caches(&parameters), ["/sys0/user1/scr.1145655", "/sys1/user1/scr.1145655"]);
}

#[test]
fn own_variables_precede_those_of_the_system() {
    let parameters =
        resolved(&environment("USER=login SCR_USER_NAME=user1 SCR_JOB_ID=2 SCR_NODELIST=b[08-09] SCR_EXCLUDE_NODES="));
    assert_eq!(below(&parameters, &setting(&parameters, "SCR_CNTL_BASE").value), "/tmp/user1/scr.2");
    assert_eq!(parameters.text("SCR_NODELIST"), Some("b[08-09]"));
    assert_eq!(parameters.text("SCR_EXCLUDE_NODES"), None, "an empty variable is not set");
    // They are environment variables; a file cannot set them.
    assert_eq!(resolved(&environment("").with_user_file(user("USER=x"))).user, None);
}

#[test]
fn runs_come_from_the_environment_only() {
    let attempts = |text: &str| {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::new(registered(), variables, Path::new("/missing")).unwrap();
        JobSpec::from_command(&["true".to_owned()], &environment).unwrap().relaunch.attempts
    };
    assert_eq!((attempts("SCR_RUNS=3 SCR_RETRIES=9"), attempts("SCR_RETRIES=9")), (2, 9));
    assert_eq!([attempts("SCR_RUNS=-1"), attempts("SCR_RETRIES=-1")], [u32::MAX; 2]);
    assert_eq!(attempts("SCR_RUNS=0"), 0);
    assert_eq!(attempts(""), 5);
    let parameters = resolved(&environment("").with_user_file(user("SCR_RUNS=5")));
    assert_eq!(parameters.get("SCR_RUNS"), None);
    assert_eq!(parameters.warnings[0].kind, ParamWarningKind::EnvironmentOnly);
}

// Mistakes.

#[test]
fn an_invalid_value_is_named_with_its_place_and_the_expected_form() {
    let error = |text: &str| resolve(&environment("").with_user_file(user(text))).unwrap_err().to_string();
    assert_eq!(
        error("SCR_DEBUG=1\nSCR_FLUSH=often"),
        "SCR_FLUSH is \"often\" (user file user.conf:2), expected is a whole number, 0 or more"
    );
    for text in [
        "SCR_ENABLE=yes",
        "SCR_CACHE_BASE=tmp",
        "SCR_CACHE_BASE=/tmp/../etc",
        "SCR_USER_NAME=../root",
        "SCR_JOB_ID=a/b",
        "SCR_MPI_BUF_SIZE=0",
        "SCR_FILE_BUF_SIZE=1MiB?",
        "SCR_CHECKPOINT_OVERHEAD=-1",
        "SCR_HOP_DISTANCE=0",
        "SCR_EXCLUDE_NODES=node[1-",
        "SCR_EXCLUDE_NODES=node[1-4000000000]",
        "SCR_FLUSH=99999999999",
        "SCR_SET_SIZE=1",
        "CNTLDIR=tmp BYTES=1",
        "CACHEDIR=/tmp BYTES=many",
        "CACHEDESC=1 BASE=/tmp SIZE=1",
        "CACHEDESC=0 BASE=/tmp SIZE=few",
        "SCR_COPY_TYPE=FILE",
        "SCR_COPY_TYPE=FILE\nCKPTDESC=0 INTERVAL=0",
        "SCR_COPY_TYPE=FILE\nCKPTDESC=0 TYPE=RAID",
        "SCR_COPY_TYPE=FILE\nCKPTDESC=0 SET_SIZE=1",
        "SCR_COPY_TYPE=FILE\nCKPTDESC=0\nCKPTDESC=2",
        "SCR_COPY_TYPE=FILE\nCKPTDESC=x",
    ] {
        assert!(resolve(&environment("").with_user_file(user(text))).is_err(), "{text}");
    }
    let error = error("SCR_COPY_TYPE=FILE\n\nCKPTDESC=0 INTERVAL=0");
    assert_eq!(error, "INTERVAL of CKPTDESC=0 is \"0\" (user file user.conf:3), expected is a whole number, 1 or more");
    let environment = resolve(&environment("SCR_FLUSH=ten")).unwrap_err();
    assert!(matches!(environment, ParamError::Value { origin: Origin::Environment, .. }));
}

#[test]
fn lines_without_effect_are_warnings() {
    let text = "SCR_FLUSH=1\nSCR_FLUSH=2\nSCR_FLUHS=3 X=1\nSCR_DB_HOST=db\nCACHEDESC=0 BASE=/ssd SIZE=1 \
            COLOUR=red\nSCR_FETCH=1 Y=2";
    let parameters = resolved(&environment("").with_user_file(user(text)));
    assert_eq!(setting(&parameters, "SCR_FLUSH").value, "2", "the last line counts");
    let found: Vec<(&str, ParamWarningKind)> =
        parameters.warnings.iter().map(|ParamWarning { name, kind, .. }| (name.as_str(), kind.clone())).collect();
    assert_eq!(
        found,
        [
            ("SCR_FLUSH", ParamWarningKind::SetAgain),
            ("SCR_FLUHS", ParamWarningKind::Unknown),
            ("SCR_DB_HOST", ParamWarningKind::NoEffect("events are written to the event log only, not to a database")),
            ("Y", ParamWarningKind::Unknown),
            ("COLOUR", ParamWarningKind::Unknown),
        ]
    );
}

// Descriptors.

#[test]
fn the_descriptors_of_the_fixture_are_those_of_its_configuration() {
    let path = fixtures("scr").join("t-config-files/descriptors.conf");
    let parameters = resolved(&environment("").with_user_file(read(&path, FileOwner::User).unwrap()));
    assert_eq!(parameters.descriptors.copy_type.scheme, None);
    let descriptors = parameters.descriptors;
    let caches: Vec<(&str, u32)> = descriptors.cache.iter().map(|cache| (cache.base.as_str(), cache.size)).collect();
    assert_eq!(caches, [("/ssd", 3), ("/tmp", 1)]);
    let asked: Vec<_> = descriptors
        .checkpoint
        .iter()
        .map(|asked| {
            (
                asked.descriptor.index,
                asked.descriptor.interval,
                asked.descriptor.base.as_str(),
                asked.descriptor.scheme,
                number(&asked.descriptor, "HOP_DISTANCE"),
                number(&asked.descriptor, "SET_SIZE"),
            )
        })
        .collect();
    assert_eq!(asked, [(0, 1, "/tmp", Scheme::new("XOR"), 1, 8), (1, 2, "/ssd", Scheme::new("PARTNER"), 1, 8)]);
    assert_eq!((descriptors.cache_size("/ssd"), descriptors.cache_size("/other")), (3, 0));
    assert!(parameters.warnings.is_empty());
}

#[test]
fn a_descriptor_whose_base_keeps_no_checkpoint_is_a_warning() {
    let kinds = |copy_type: &str| {
        let text = format!("{copy_type}CACHEDESC=0 BASE=/ssd SIZE=1\nCKPTDESC=0 BASE=/tmp");
        let parameters = resolved(&environment("").with_user_file(user(&text)));
        parameters.warnings.iter().map(|warning| warning.kind.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("SCR_COPY_TYPE=FILE\n"), [ParamWarningKind::NoCache]);
    assert_eq!(kinds(""), []);
}

#[test]
fn a_table_is_taken_from_one_source_only() {
    let sources =
        environment("SCR_COPY_TYPE=partner").with_user_file(user("CACHEDESC=0 BASE=/user SIZE=1")).with_system_file(
            system("CACHEDESC=0 BASE=/a SIZE=2\nCACHEDESC=1 BASE=/b SIZE=2\nCNTLDIR=/ram BYTES=100mb\nCNTLDIR=/tmp"),
        );
    let parameters = resolved(&sources);
    assert_eq!(parameters.descriptors.cache.len(), 1);
    assert_eq!(parameters.descriptors.checkpoint[0].descriptor.scheme, Scheme::new("PARTNER"));
    let checks: Vec<_> =
        parameters.control_checks.iter().map(|check| (check.directory.as_str(), check.bytes)).collect();
    assert_eq!(checks, [("/ram", Some(100 << 20)), ("/tmp", None)]);
}

#[test]
fn descriptors_inherit_missing_values() {
    let text = "SCR_COPY_TYPE=FILE\nSCR_SET_SIZE=4\nSCR_HOP_DISTANCE=2\nSCR_CACHE_BASE=/ssd\nCKPTDESC=1 ENABLED=0 \
            SET_SIZE=2\nCKPTDESC=0";
    let parameters = resolved(&environment("").with_user_file(user(text)));
    let asked: Vec<_> = parameters
        .descriptors
        .checkpoint
        .iter()
        .map(|asked| {
            (
                asked.descriptor.index,
                asked.descriptor.enabled,
                asked.descriptor.base.as_str(),
                number(&asked.descriptor, "SET_SIZE"),
                number(&asked.descriptor, "HOP_DISTANCE"),
            )
        })
        .collect();
    assert_eq!(asked, [(0, true, "/ssd", 4, 2), (1, false, "/ssd", 2, 2)]);
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_or_the_resolver_panic(
        bytes in "([A-Z_]{0,6}|SCR_FLUSH|SCR_COPY_TYPE|FILE|CKPTDESC|CACHEDESC|BASE|SIZE|[0-9]{1,20}|[= #\n\r\t/é-])*",
    ) {
        if let Ok(entries) = parse(bytes.as_bytes(), "x", FileOwner::User) {
            let _ = resolve(&Sources::default().with_user_file(entries));
        }
    }
}
