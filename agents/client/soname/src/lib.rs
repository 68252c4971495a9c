//! The versions of the shared libraries for programs in C, for the build scripts that link them.
//!
//! A program that is linked with `libscr.so` looks for `libscr.so.100` when it starts (the SONAME), and each function
//! has that name as its symbol version: `SCR_Init@@libscr.so.100`. The number changes when a program would have to be
//! compiled again. `libscr.so` stays loadable beside it, for programs that were linked when it had no number, and for
//! `dlopen`. `packaging/abi` lists the functions of each library.

use std::env;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The library `lib<name>.so` gets this version.
///
/// Passes the arguments to the linker through Cargo, and links the name with the number to the library that will stand
/// in Cargo's directories, so that programs linked with it can be run there.
///
/// # Errors
/// The name cannot be made.
pub fn set(name: &str, version: u32) -> io::Result<()> {
    let library = format!("lib{name}.so");
    let versioned = format!("{library}.{version}");
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo's linker for this target may be LLD, which knows no default versions of symbols.
    for argument in ["-fuse-ld=bfd", "-Wl,--default-symver", &format!("-Wl,-soname,{versioned}")] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    for directory in directories_of_libraries() {
        match symlink(&library, directory.join(&versioned)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// `target/<profile>` and its `deps`, where Cargo places the libraries; none if they are not where they used to be.
fn directories_of_libraries() -> Vec<PathBuf> {
    // target/<profile>/build/<package>/out
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let profile = out.ancestors().nth(3).filter(|_| out.ancestors().nth(2).is_some_and(|at| at.ends_with("build")));
    let of_profile = |profile: &Path| vec![profile.to_owned(), profile.join("deps")];
    let directories = profile.map(of_profile).unwrap_or_default();
    directories.into_iter().filter(|directory| directory.is_dir()).collect()
}
