//! The version of the library.

fn main() -> std::io::Result<()> {
    holdfast_soname::set("sion", 100)
}
