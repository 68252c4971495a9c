//! Compiles the function that Rust cannot define: `SCR_Configf` has a variable number of arguments. The C compiler is
//! the one that Rust links with.

fn main() {
    println!("cargo::rerun-if-changed=src/configf.c");
    cc::Build::new().file("src/configf.c").std("c99").warnings(true).compile("holdfast_configf");
    // The name under which the loader of programs that are linked with the library searches for it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libscr.so");
}
