//! The harness of suites whose tests have requirements that not every machine meets: a Docker engine, a compiler, root.
//!
//! A test whose requirement is not met calls [`ignore`], and is reported as ignored with the reason. The compiler's
//! own harness decides that before any test runs. Names, filters, `--exact`, `--test-threads` and the output are as
//! there, but two tests run at a time for each processor.
//!
//! A suite is a test target with `harness = false` whose `main.rs` has `#[macro_use] extern crate
//! holdfast_test_attribute` and `fn main() -> ExitCode { holdfast_testkit::harness::run() }`.

use std::num::NonZero;
use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;

pub use inventory;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// With this variable, an unmet requirement is a failure: for machines that are set up for all tests.
const REQUIRE: &str = "HOLDFAST_REQUIRE_CLUSTER";
/// The names of suites that another process runs at the same time, separated by blanks.
const ELSEWHERE: &str = "HOLDFAST_SUITES_ELSEWHERE";
/// Options of a harness that take their value from the next argument.
const WITH_VALUE: [&str; 5] = ["--test-threads", "--skip", "--format", "--color", "--logfile"];

/// A test that `#[test]` registered.
#[derive(Debug)]
pub struct Test {
    module: &'static str,
    name: &'static str,
    run: fn(),
}

inventory::collect!(Test);

/// The panic payload that ends an ignored test.
struct Ignored(String);

impl Test {
    pub const fn new(module: &'static str, name: &'static str, run: fn()) -> Self {
        Test { module, name, run }
    }

    /// Without the name of the suite, as the compiler's harness shows it.
    fn path(&self) -> String {
        match self.module.split_once("::") {
            Some((_, module)) => format!("{module}::{}", self.name),
            None => self.name.to_owned(),
        }
    }

    fn suite(&self) -> &'static str {
        self.module.split_once("::").map_or(self.module, |(suite, _)| suite)
    }
}

/// Ends the running test as ignored.
///
/// # Panics
/// With `HOLDFAST_REQUIRE_CLUSTER` in the environment.
pub fn ignore(reason: &str) -> ! {
    assert!(std::env::var_os(REQUIRE).is_none(), "{reason}, and {REQUIRE} is set");
    // Does not call the panic hook: this is no failure.
    resume_unwind(Box::new(Ignored(reason.to_owned())))
}

/// Ends the running test as ignored, unless `HOLDFAST_LONG_TESTS` is in the environment.
pub fn takes_minutes() {
    if std::env::var_os("HOLDFAST_LONG_TESTS").is_none() {
        resume_unwind(Box::new(Ignored("takes minutes: set HOLDFAST_LONG_TESTS=1".to_owned())));
    }
}

/// Runs the tests that the command line selects.
pub fn run() -> ExitCode {
    let suite = inventory::iter::<Test>.into_iter().next().map_or("", Test::suite);
    let elsewhere = std::env::var(ELSEWHERE).unwrap_or_default();
    if elsewhere.split_whitespace().any(|name| name == suite) {
        println!("\n{suite} is left out: {ELSEWHERE} names it as one that another process runs");
        return ExitCode::SUCCESS;
    }
    let (filters, options) = split(std::env::args());
    let mut arguments = Arguments::from_iter(options);
    // These tests mostly wait for the processes that they start.
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(2 * processors);
    let is_selected = |name: &str| {
        let is_match = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter.as_str()) };
        filters.is_empty() || filters.iter().any(is_match)
    };
    let tests = inventory::iter::<Test>.into_iter().map(|test| (test.path(), test.run));
    let mut tests: Vec<(String, fn())> = tests.filter(|(name, _)| is_selected(name)).collect();
    tests.sort();
    let trials = tests.into_iter().map(|(name, run)| Trial::ignorable_test(name, move || completion(run)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The filters of a command line, of which there may be several, and everything else.
fn split(arguments: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let (mut filters, mut others, mut is_value) = (Vec::new(), Vec::new(), true);
    for argument in arguments {
        if is_value || argument.starts_with('-') {
            is_value = WITH_VALUE.contains(&&*argument);
            others.push(argument);
        } else {
            filters.push(argument);
        }
    }
    (filters, others)
}

fn completion(run: fn()) -> Result<Completion, Failed> {
    match catch_unwind(run) {
        Ok(()) => Ok(Completion::Completed),
        Err(payload) => match payload.downcast::<Ignored>() {
            Ok(ignored) => Ok(Completion::ignored_with(ignored.0)),
            Err(panic) => resume_unwind(panic),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_filters_are_separated_from_options_and_their_values() {
        let line = "suite --exact a::b --test-threads 1 --skip x c::d -q --color=never";
        let (filters, options) = split(line.split(' ').map(str::to_owned));
        assert_eq!(filters, ["a::b", "c::d"]);
        assert_eq!(options, ["suite", "--exact", "--test-threads", "1", "--skip", "x", "-q", "--color=never"]);
    }

    #[test]
    fn a_test_that_ends_itself_as_ignored_gives_its_reason_and_another_panic_is_a_failure() {
        // With this variable set, nothing is ignored.
        if std::env::var_os(REQUIRE).is_none() {
            let ignored = completion(|| ignore("no compiler")).unwrap();
            assert!(matches!(ignored, Completion::Ignored { reason: Some(reason) } if reason == "no compiler"));
        }
        assert!(matches!(completion(|| ()).unwrap(), Completion::Completed));
        assert!(catch_unwind(|| completion(|| panic!("a failure"))).is_err());
    }

    #[test]
    fn a_test_is_named_without_its_suite() {
        assert_eq!(Test::new("cluster::hosts", "dies", || ()).path(), "hosts::dies");
        assert_eq!(Test::new("playbooks", "life", || ()).path(), "life");
        assert_eq!(
            ["cluster::hosts", "playbooks"].map(|it| Test::new(it, "", || ()).suite()),
            ["cluster", "playbooks"]
        );
    }
}
