//! Compiles the one function that Rust cannot define: `SCR_Configf` takes a variable number of arguments. The C compiler
//! is the one that Rust links with.

fn main() {
    println!("cargo::rerun-if-changed=src/configf.c");
    cc::Build::new().file("src/configf.c").std("c99").warnings(true).compile("holdfast_configf");
    // So that programs that were linked with it find it by name, wherever it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libscr.so");
}
