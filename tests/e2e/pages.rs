//! The examples of the pages below `docs`, as users copy them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::World;

/// What `holdfast status` shows of that job, as text and as JSON.
pub fn status_of_example(world: &World) -> (String, Value) {
    let prefix = world.path("heat-run");
    let status = |arguments: &[&str]| {
        world.run(world.holdfast(["status", "--prefix"]).arg(&prefix).args(arguments)).with_code(0)
    };
    (status(&[]).out, status(&["--json"]).json())
}

/// The first spec of a page.
pub fn example_of(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned()
}

/// Runs the first spec of a page, whose prefix is `heat-run`, to its end; returns the events.
#[track_caller]
pub fn run_example(world: &World, page: &str) -> Vec<Value> {
    world.run_spec(&example_of(page)).with_code(0).prints(&["the job is finished"]);
    world.events_of(&world.path("heat-run"))
}
