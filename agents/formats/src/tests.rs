//! Recognition of SCR's files and of unknown files; extraction stays inside its directory.

use std::fs;
use std::path::Path;

use holdfast_testkit::{files_below, fixtures};

use super::*;

#[test]
fn recognises_and_verifies_scr_files_by_content() {
    let mut seen = [0, 0];
    for path in files_below(&fixtures("scr").join("a-xor4/killed-after-flush/tree")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let recognised = recognise(&path).unwrap();
        let expected = match path.extension().and_then(|extension| extension.to_str()) {
            Some("scrinfo" | "scr") => Some("scr-hash"),
            Some("xor") => Some("scr-xor"),
            _ => continue,
        };
        if path.is_symlink() || path.is_dir() {
            continue;
        }
        assert_eq!(recognised.format.map(|format| format.name()), expected, "{name}");
        seen[usize::from(expected == Some("scr-xor"))] += 1;
        let format = recognised.format.unwrap();
        let check = format.verify(&path, &Options::default(), &mut |_, _| {}).unwrap();
        assert!(check.is_intact(), "{name}: {check:?}");
        assert!(serde_json::to_value(format.describe(&path).unwrap()).unwrap().is_object());
    }
    assert!(seen[0] > 5 && seen[1] > 1, "{seen:?}");
}

#[test]
fn reports_unknown_file_as_unknown() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [("notes.txt", b"step 400, all well\n".as_slice()), ("nothing", b""), ("short", b"\x95")] {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert!(recognise(&path).unwrap().format.is_none(), "{name}");
    }
    assert!(recognise(directory.path()).is_err());
    assert!(recognise(Path::new("/nonexistent/file")).is_err());
}

#[test]
fn extraction_stays_in_its_directory_and_overwrites_only_when_requested() {
    let directory = tempfile::tempdir().unwrap();
    let to = Destination::new(&directory.path().join("out"), false).unwrap();
    for name in ["", ".", "..", "../outside", "/etc/passwd", "a/b", "nul\0", &"x".repeat(256)] {
        assert!(matches!(to.write(name, |_| Ok(())), Err(FormatsError::UnsafeName { .. })), "{name:?}");
    }
    use std::io::Write;
    to.write("var_1.bin", |out| out.write_all(b"first")).unwrap();
    assert!(matches!(to.write("var_1.bin", |out| out.write_all(b"x")), Err(FormatsError::Exists { .. })));
    let over = Destination::new(&to.directory, true).unwrap();
    over.write("var_1.bin", |out| out.write_all(b"second")).unwrap();
    assert_eq!(fs::read(to.directory.join("var_1.bin")).unwrap(), b"second");
    // A symbolic link of that name is neither replaced nor followed.
    let outside = directory.path().join("outside");
    fs::write(&outside, "kept").unwrap();
    std::os::unix::fs::symlink(&outside, to.directory.join("var_2.bin")).unwrap();
    assert!(to.write("var_2.bin", |out| out.write_all(b"x")).is_err());
    let refused = over.write("var_2.bin", |out| out.write_all(b"x")).unwrap_err();
    assert!(refused.to_string().contains("it is a symbolic link"), "{refused}");
    assert_eq!(fs::read(&outside).unwrap(), b"kept");
}
