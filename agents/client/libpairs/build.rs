//! The name under which the loader of programs that are linked with the library searches for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libholdfast_pairs.so");
}
