//! A scheme with a number of its own: spec, parameters of SCR, descriptors of agents, messages, file maps.

use std::fs;
use std::path::Path;
use std::sync::Once;

use holdfast::job::settings;
use holdfast::launch::registry::registered;
use holdfast::spec::library_parameters::{self, LibraryJob};
use holdfast::spec::reference;
use holdfast_core::kvtree::file;
use holdfast_core::redundancy::groups::{ForcedLocal, GroupRules, Groups, Site};
use holdfast_core::redundancy::numbers::{NumberError, SchemeNumber};
use holdfast_core::redundancy::{RedundancyScheme, descriptor, registry};
use holdfast_model::{NumberName, RankDescriptor, Scheme};
use holdfast_wire::run::Settings;

use super::{Spec, spec_in};

const NAME: Scheme = Scheme::new("COPIES");

static COPIES: SchemeNumber = SchemeNumber {
    name: NumberName::new("NUMBER_OF_COPIES"),
    key: "copies",
    parameter: "SCR_NUMBER_OF_COPIES",
    title: "number of copies",
    documentation: "`copies`: how many nodes have a copy.",
    default: 2,
    range: 1..=16,
};

static NUMBERS: [&SchemeNumber; 1] = [&COPIES];

/// Copies on several nodes.
#[derive(Debug)]
struct Copies;

impl RedundancyScheme for Copies {
    fn name(&self) -> Scheme {
        NAME
    }

    fn limit(&self) -> &'static str {
        "no copy is left"
    }

    fn numbers(&self) -> &'static [&'static SchemeNumber] {
        &NUMBERS
    }

    fn check(&self, rules: GroupRules<'_>) -> Result<(), NumberError> {
        let value = COPIES.of(rules.numbers);
        if value < rules.set_size() {
            return Ok(());
        }
        let why = format!("{value} copies need sets of more members");
        let (expected, help) = ("fewer than members of a set", "write fewer, or a larger `set_size`");
        Err(NumberError { scheme: NAME, number: &COPIES, value, why, expected, help })
    }

    fn form(&self, sites: &[Site], _: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        Ok(Groups::alone(NAME, sites.len()))
    }

    fn tolerance(&self, descriptor: &RankDescriptor) -> u32 {
        COPIES.of(&descriptor.descriptor.numbers)
    }
}

/// Before anything asks the registry: tests run in any order.
fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| assert!(registry::add(&[&Copies])));
}

fn spec(checkpoint: &str, variables: &[(&str, &str)]) -> Spec {
    register();
    spec_in(checkpoint, variables, &[])
}

/// What the agents receive of a spec.
fn settings_of(spec: &Spec) -> Settings {
    let spec = spec.as_ref().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let settings = settings::settings(spec, &spec.steps[0], Path::new("/p"), None);
    serde_json::from_slice(&serde_json::to_vec(&settings).unwrap()).unwrap()
}

fn copies(spec: &Spec) -> Option<u32> {
    settings_of(spec).descriptors[0].numbers.get(COPIES.name)
}

const WRITTEN: &str = "{redundancy: [{scheme: copies, copies: 3}]}";

#[test]
fn its_number_goes_from_the_spec_through_messages_into_file_maps() {
    let spec = spec(WRITTEN, &[]);
    let settings = settings_of(&spec);
    let asked = &settings.descriptors[0];
    assert_eq!((asked.scheme, asked.numbers.get(COPIES.name)), (NAME, Some(3)));
    let unplaced = RankDescriptor::unplaced(asked.clone(), "/tmp/u/scr.1/index.0");
    let stored = RankDescriptor { groups: 1, group_size: 4, ..unplaced };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("descriptor");
    file::write(&path, &descriptor::to_tree(&stored)).unwrap();
    let read = descriptor::from_tree(&file::read(&path).unwrap()).unwrap();
    assert_eq!(read, stored);
    assert_eq!(registry::get(NAME).unwrap().tolerance(&read), 3);
}

#[test]
fn its_number_is_set_by_its_parameter_in_scr_s_order() {
    assert_eq!(copies(&spec("{redundancy: [{scheme: copies}]}", &[])), Some(2));
    assert_eq!(copies(&spec(WRITTEN, &[(COPIES.parameter, "4")])), Some(4));
    let directory = tempfile::tempdir().unwrap();
    let conf = directory.path().join("user.conf");
    fs::write(&conf, "SCR_COPY_TYPE=FILE\nCKPTDESC=0 TYPE=COPIES NUMBER_OF_COPIES=5\n").unwrap();
    let from_file = spec("{}", &[("SCR_CONF_FILE", conf.to_str().unwrap())]);
    assert_eq!(copies(&from_file), Some(5));
    let setting = from_file.unwrap().settings.get("checkpoint.redundancy[0].copies").cloned().unwrap();
    assert!(setting.origin.to_string().starts_with("CKPTDESC"), "{setting:?}");
    let error = spec(WRITTEN, &[(COPIES.parameter, "few")]).unwrap_err();
    assert!(error.contains("SCR_NUMBER_OF_COPIES is \"few\""), "{error}");
}

#[test]
fn its_number_reaches_llnl_s_library() {
    let spec = spec("{source: scr-files, redundancy: [{scheme: copies, copies: 3}, {scheme: xor, every: 2}]}", &[]);
    let nodes = ["n1".into()];
    let job = LibraryJob { name: "heat", id: "7", user: "anna", nodes: &nodes, prefix: Path::new("/p") };
    let spec = spec.unwrap();
    let (variables, file) = library_parameters::of_job(job, &spec.settings, &spec.steps[0]);
    assert_eq!(variables[COPIES.parameter], "3");
    let lines: Vec<String> = file.unwrap().lines().map(str::to_owned).collect();
    assert!(lines[1].contains("NUMBER_OF_COPIES=3") && !lines[2].contains("NUMBER_OF_COPIES"), "{lines:?}");
}

#[test]
fn its_number_is_documented_checked_and_refused_with_other_schemes() {
    register();
    let mistakes = |checkpoint| spec(checkpoint, &[]).unwrap_err();
    let reference = reference::text(&registered());
    let line = "      copies: 2           # `copies`: how many nodes have a copy. (SCR_NUMBER_OF_COPIES)\n";
    assert!(reference.contains(line), "{reference}");
    let refused = mistakes("{redundancy: [{scheme: copies, copies: 4, set_size: 4}]}");
    assert!(refused.contains("redundancy[0].copies: with COPIES, 4 copies need sets of more members"), "{refused}");
    let out_of_range = mistakes("{redundancy: [{scheme: copies, copies: 17}]}");
    assert!(out_of_range.contains("expected a whole number from 1 to 16"), "{out_of_range}");
    let of_other = mistakes("{redundancy: [{scheme: xor, copies: 3}]}");
    assert!(of_other.contains("`copies` has no effect with `scheme: xor`"), "{of_other}");
}
