//! What an application links with the client: messages and shared types, no file formats and no SHA-2.

use std::process::Command;

#[test]
fn the_client_builds_neither_file_formats_nor_hash_functions() {
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
