//! What a package installs beside the program: completions and manual pages.

use std::fs;
use std::process::Command;

use crate::program::holdfast;

#[test]
fn completions_of_bash_know_commands_and_options() {
    let ran = holdfast(["completions", "bash"]).with_code(0).err_is("");
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("holdfast.bash");
    fs::write(&file, &ran.out).unwrap();
    // The function that bash calls when the user presses Tab.
    let asked = |words: &[&str]| {
        let [.., previous, current] = words else { panic!("{words:?}") };
        let script = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _holdfast holdfast {current} {previous}; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display(),
            words.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(asked(&["holdfast", "dra"]), "drain\n");
    assert!(asked(&["holdfast", "status", "--wa"]).lines().any(|word| word == "--wait"));
    assert_eq!(holdfast(["completions", "csh"]).code, 64);
}

#[test]
fn each_command_has_a_manual_page() {
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join("man1");
    let written = || holdfast(["man".as_ref(), directory.as_os_str()]);
    assert_eq!(written().code, 0);
    // Pages of an earlier release are replaced.
    assert_eq!(written().code, 0);
    let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in ["holdfast.1", "holdfast-run.1", "holdfast-index-add.1"] {
        assert!(names.iter().any(|other| other == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name == "holdfast-step.1"), "step is for launchers");
    let page = fs::read_to_string(directory.join("holdfast-run.1")).unwrap();
    assert!(page.starts_with(".ie") && page.contains(".SH SYNOPSIS") && page.contains("job.yaml"), "{page}");
}
