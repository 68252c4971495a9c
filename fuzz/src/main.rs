//! All targets in one program, which `fuzz/run` builds and runs.
//!
//! | variable | effect |
//! |---|---|
//! | `HOLDFAST_FUZZ_TARGET` | the name of the target to run |
//! | `HOLDFAST_FUZZ_LIST` | prints the names of all targets |
//! | `HOLDFAST_FUZZ_CORPUS` | a directory: writes the target's corpus to it, and its words to `<directory>.dict` |

#![no_main]

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::exit;
use std::sync::OnceLock;

use holdfast_testkit::fuzz::FuzzTarget;
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<&FuzzTarget> = OnceLock::new();

fn targets() -> impl Iterator<Item = &'static FuzzTarget> {
    let crates = [
        holdfast_core::fuzzing::TARGETS,
        holdfast_formats::fuzzing::TARGETS,
        holdfast_jubatus::fuzzing::TARGETS,
        holdfast_shm::fuzzing::TARGETS,
        holdfast_wire::fuzzing::TARGETS,
        holdfast::fuzzing::TARGETS,
    ];
    crates.into_iter().flatten()
}

fn choose_target() {
    if env::var_os("HOLDFAST_FUZZ_LIST").is_some() {
        targets().for_each(|target| println!("{}", target.name));
        exit(0);
    }
    let name = env::var("HOLDFAST_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = targets().find(|target| target.name == name) else {
        eprintln!("HOLDFAST_FUZZ_TARGET={name} is not a target; `fuzz/run --list` lists them");
        exit(64);
    };
    if let Some(directory) = env::var_os("HOLDFAST_FUZZ_CORPUS") {
        if let Err(error) = write_corpus(target, Path::new(&directory)) {
            eprintln!("cannot write the corpus to {}: {error}", directory.display());
            exit(74);
        }
        exit(0);
    }
    TARGET.get_or_init(|| target);
}

fn write_corpus(target: &FuzzTarget, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (number, input) in (target.corpus)().iter().enumerate() {
        fs::write(directory.join(format!("seed-{number}")), input)?;
    }
    let escaped = |word: &&str| word.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let lines: String = target.words.iter().map(|word| format!("\"{}\"\n", escaped(word))).collect();
    fs::write(directory.with_extension("dict"), lines)
}

fuzz_target!(init: choose_target(), |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.check)(input);
    }
});
