//! The dependencies of the client: messages and shared types, but no file formats and no hash functions.

use std::process::Command;

#[test]
fn client_depends_neither_on_file_formats_nor_on_hash_functions() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--package", "holdfast-client", "--edges", "normal", "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains(&"holdfast-wire") && crates.contains(&"holdfast-model"), "{crates:?}");
    for unwanted in ["holdfast-core", "holdfast-formats", "sha2", "md-5", "ring", "tokio"] {
        assert!(!crates.contains(&unwanted), "the client links {unwanted}: {crates:?}");
    }
}
