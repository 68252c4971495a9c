//! Compiles the function that Rust cannot define: `SCR_Configf` has a variable number of arguments. The C compiler is
//! the one that Rust links with.

/// Above the numbers of others: LLNL's library has had none and 0, and YaST has a `libscr.so.3`.
const VERSION: u32 = 100;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=src/configf.c");
    cc::Build::new().file("src/configf.c").std("c99").warnings(true).compile("holdfast_configf");
    holdfast_soname::set("scr", VERSION)
}
