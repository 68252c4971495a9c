//! `holdfast hosts`, compared with the output of scr_glob_hosts.

use std::fs;

use holdfast_testkit::fixtures;

use crate::program::holdfast;

/// Lists of which scr_glob_hosts loses a part or prints a wrong result, with the expected output.
pub const BETTER: [(&str, &str); 14] = [
    // It loses the padding except at the ends of a range.
    ("-n 2 -h node[08-11]", "node09"),
    ("-h node[001-003,010]", "node[001-003,010]"),
    ("-n 2 -h node[001-003,010]", "node002"),
    ("-m node[001-003,010]:node002", "node[001,003,010]"),
    ("-m node[1-3]:node[001-002]", "node[1-3]"),
    ("-i node[001-003]:node2", ""),
    // It uses the first list only.
    ("-h atlas[1,2],zeus[3]", "atlas[1-2],zeus[3]"),
    ("-h atlas1,atlas2", "atlas[1-2]"),
    ("-c -h atlas1,atlas2", "2"),
    // It removes the text around the number.
    ("-h rack1-node[1-4]", "rack1-node[1-4]"),
    ("-h node[1-2].cluster", "node[1-2].cluster"),
    // An empty list is empty, and a name without a number is a name.
    ("-i :atlas1", ""),
    ("-h ", ""),
    ("-h localhost", "localhost"),
];

#[test]
fn prints_every_case_of_scr_or_a_better_result() {
    let text = fs::read_to_string(fixtures("scr").join("t-command-output/scr_glob_hosts.txt")).unwrap();
    let (mut seen, mut used) = (0, 0);
    for case in text.split("$ scr_glob_hosts ").skip(1) {
        let (line, rest) = case.split_once('\n').unwrap();
        let (printed, code) = rest.rsplit_once("rc=").unwrap();
        // Lines that perl printed to standard error are not part of the output.
        let answer = printed.lines().rfind(|line| !line.contains(" at <install>")).unwrap_or_default();
        let words = line.split(' ').filter(|_| !line.is_empty());
        let arguments: Vec<&str> = words.map(|word| if word == "-h" { "--hosts" } else { word }).collect();
        let ran = holdfast(["hosts"].into_iter().chain(arguments));
        let better = BETTER.iter().find(|(case, _)| *case == line).map(|(_, better)| *better);
        if code.trim() == "1" {
            assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{line}");
            let error = ran.err.strip_prefix("error: ").unwrap().split(" for ").next().unwrap().to_owned();
            assert!(printed.contains("Usage:") || printed.to_lowercase().contains(&error), "{line}: {error}");
        } else if line == "-h node1-ib" {
            // It printed node[1]; the name is the same, with or without brackets.
            assert_eq!(holdfast(["hosts", "--expand", "node1-ib"]).out, "node1-ib\n");
        } else {
            assert_eq!((ran.code, ran.out.as_str()), (0, format!("{}\n", better.unwrap_or(answer)).as_str()), "{line}");
        }
        seen += 1;
        used += usize::from(better.is_some());
    }
    assert_eq!(used, BETTER.len());
    assert!(seen > 40, "{seen} cases");
}

#[test]
fn reports_host_out_of_range() {
    let ran = holdfast(["hosts", "-n", "8", "atlas[3,5-7,9-11]"]).with_code(64).out_is("");
    assert!(ran.err.starts_with("error: host index (8) is out of range"), "{}", ran.err);
}

#[test]
fn lists_hosts_one_per_line_or_as_json() {
    assert_eq!(holdfast(["hosts", "--expand", "node[08-10]"]).out, "node08\nnode09\nnode10\n");
    let document = holdfast(["hosts", "--json", "node[1-2]", "node4"]).json();
    assert_eq!(
        document,
        serde_json::json!({"version": 2, "count": 3, "list": "node[1-2,4]", "hosts": ["node1", "node2", "node4"]})
    );
}

#[test]
fn rejects_invalid_or_unbounded_list() {
    for list in ["node[1-", "node[1-4]]", "node[x]", "node[1-999999999999]", "a b"] {
        let ran = holdfast(["hosts", "--count", list]);
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{list}");
        assert!(ran.err.contains(list), "{}", ran.err);
    }
    assert_eq!(holdfast(["hosts", "--minus", "node[1-4]"]).code, 64);
}
