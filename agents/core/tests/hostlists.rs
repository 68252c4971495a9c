//! Host lists give the results of `scr_hostlist`, except where it loses names or padding. `--test cli` compares
//! `holdfast hosts` with `scr_glob_hosts`.

// Helpers of tests report as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use holdfast_core::hostlist::{HostlistError, compress, expand, intersect, nth, subtract};
use holdfast_model::NodeName;
use holdfast_testkit::fixtures;
use proptest::prelude::*;

fn names(text: &str) -> Vec<NodeName> {
    text.split_whitespace().map(NodeName::from).collect()
}

fn spaced(names: &[NodeName]) -> String {
    names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_case_of_scr_hostlist_has_the_same_or_a_better_result() {
    let cases = fs::read_to_string(fixtures("scr").join("t-command-output/scr_hostlist.txt")).unwrap();
    for case in cases.lines() {
        let (call, answer) = case.split_once(" = ").unwrap();
        let (function, arguments) = call.trim_end_matches(')').split_once('(').unwrap();
        let lists = || {
            let (left, right) = arguments.split_once(';').unwrap();
            (names(left), names(right))
        };
        match (function, arguments) {
            // Better: names with different texts are two lists, not an undefined value.
            ("compress", "atlas1 zeus2") => assert_eq!(compress(&names(arguments)), "atlas[1],zeus[2]"),
            ("compress", _) => assert_eq!(compress(&names(arguments)), answer.trim_matches('"'), "{case}"),
            // Unlike in SCR, the padding of the entire range is kept.
            ("expand", "\"node[08-11]\"") => {
                assert_eq!(spaced(&expand("node[08-11]").unwrap()), "node08 node09 node10 node11")
            }
            ("expand", list) => assert_eq!(spaced(&expand(list.trim_matches('"')).unwrap()), answer, "{case}"),
            ("diff", _) => assert_eq!(spaced(&subtract(&lists().0, &lists().1)), answer, "{case}"),
            ("intersect", _) => assert_eq!(spaced(&intersect(&lists().0, &lists().1)), answer, "{case}"),
            _ => panic!("{case}"),
        }
    }
}

#[test]
fn a_list_of_billions_is_an_error() {
    for list in [
        "node[1-4000000000]",
        "a[1-999999],b[1-999999]",
        "r[1-99999]n[1-99999]",
        "a[1-600000,1-600000]",
        "n[0-999999999999999999]",
    ] {
        assert!(matches!(expand(list), Err(HostlistError::TooMany { .. })), "{list}");
    }
}

#[test]
fn invalid_lists_are_errors_with_the_position() {
    for list in ["node[1-4", "node1-4]", "node[[1]]", "node[1]]"] {
        assert!(matches!(expand(list), Err(HostlistError::Brackets { .. })), "{list}");
    }
    for list in [
        "node[]",
        "node[a]",
        "node[1-]",
        "node[-1]",
        "node[1-2-3]",
        "node[1,,2]",
        "node[1-9999999999999999999999]",
        "n[+1]",
    ] {
        assert!(matches!(expand(list), Err(HostlistError::Range { .. })), "{list}");
    }
    assert!(matches!(expand("node1 node2"), Err(HostlistError::Character { found: ' ', .. })));
    assert!(matches!(expand("../node1"), Err(HostlistError::Character { found: '/', .. })));
}

#[test]
fn several_ranges_combine_and_padding_may_overflow() {
    assert_eq!(spaced(&expand("r[1-2]n[08-09].x").unwrap()), "r1n08.x r1n09.x r2n08.x r2n09.x");
    assert_eq!(spaced(&expand("n[098-101]").unwrap()), "n098 n099 n100 n101");
    assert_eq!(compress(&names("n098 n099 n100 n101 n9 n10")), "n[9-10,098-101]");
    assert_eq!(compress(&names("10.0.0.1 login node1.a node2.a node2.b")), "10.0.0.1,login,node[1-2].a,node[2].b");
    assert_eq!(spaced(&expand(" a1 , ,b2, ").unwrap()), "a1 b2");
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        ("[a-c]{1,2}", "0{0,2}", 0_u32..25).prop_map(|(text, zeros, number)| format!("{text}{zeros}{number}")),
        ("[a-c]{1,2}", 0_u32..5).prop_map(|(text, number)| format!("{text}{number}.site")),
        "[a-z]{1,3}-[0-9]{1,2}-[a-z]",
        "[0-9]{1,25}",
        "[a-z]{1,3}[0-9]{15,25}",
    ]
}

proptest! {
    #[test]
    fn a_compressed_list_expands_to_the_same_names(hosts in proptest::collection::vec(host(), 0..40)) {
        let hosts: Vec<NodeName> = hosts.into_iter().map(NodeName::new).collect();
        let mut again = expand(&compress(&hosts)).unwrap();
        let mut expected = hosts.clone();
        again.sort();
        expected.sort();
        prop_assert_eq!(again, expected);
    }

    #[test]
    fn difference_and_intersection_divide_a_list(
        left in proptest::collection::vec(host(), 0..20),
        right in proptest::collection::vec(host(), 0..20),
    ) {
        let [left, right] = [left, right].map(|list| list.into_iter().map(NodeName::new).collect::<Vec<_>>());
        let mut parts = subtract(&left, &right);
        prop_assert!(parts.iter().all(|name| !right.contains(name)));
        parts.extend(intersect(&left, &right));
        parts.sort();
        let mut whole = left;
        whole.sort();
        whole.dedup();
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn no_text_makes_expand_panic(list in "[a-c0-9,\\-\\[\\] ]{0,30}") {
        if let Ok(hosts) = expand(&list) {
            for index in [i64::MIN, -1, 0, 1, i64::MAX] {
                let _ = nth(&hosts, index);
            }
        }
    }
}

#[test]
fn a_list_that_would_expand_to_gigabytes_is_refused() {
    let long = "n".repeat(256);
    for list in [format!("{long}[0-999999]"), format!("n[0-999999]{}", "[1]".repeat(300)), format!("n[1-2]{long}")] {
        assert!(matches!(expand(&list), Err(HostlistError::TooLong { .. })), "{}", list.len());
    }
    assert_eq!(expand(&format!("{}[1-2]", "n".repeat(254))).unwrap().len(), 2);
}
