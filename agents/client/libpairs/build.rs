//! The version of the library.

fn main() -> std::io::Result<()> {
    holdfast_soname::set("holdfast_pairs", 1)
}
