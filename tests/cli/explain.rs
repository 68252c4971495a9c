//! `holdfast explain`.

use serde_json::Value;

use crate::program::holdfast;

fn explained(name: &str) -> Value {
    let ran = holdfast(["explain", "--json", name]).with_code(0).err_is("");
    ran.json()["explained"].take()
}

#[test]
fn an_exit_code_has_its_cases_and_what_to_do() {
    let output = holdfast(["explain", "73"]).with_code(0);
    assert!(
        output.out.starts_with("73 (exit code)\n  a drain could not write to the prefix directory\n"),
        "{}",
        output.out
    );
    assert!(
        output.out.contains("    what to do: correct the cause, then run `holdfast drain` again\n"),
        "{}",
        output.out
    );
    let cases = explained("75")[0]["cases"].as_array().unwrap().len();
    assert!(cases >= 3, "{cases}");
    assert!(explained("137")[0]["cases"][0]["meaning"].as_str().unwrap().contains("signal 9"));
}

#[test]
fn an_event_has_its_fields() {
    let event = &explained("rank_gone")[0];
    assert_eq!(event["kind"], "event");
    let names: Vec<&str> =
        event["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node", "generation", "rank", "pid"]);
}

#[test]
fn a_key_is_found_by_its_path_and_by_its_end() {
    let key = &explained("health.down_after")[0];
    assert_eq!((&key["kind"], &key["default"]), (&"key".into(), &"750ms".into()));
    assert_eq!(explained("down_after")[0]["name"], "health.down_after");
    assert_eq!(explained("checkpoint.cache[1].base")[0]["name"], "checkpoint.cache[*].base");
}

#[test]
fn a_parameter_has_its_effect_and_default() {
    let parameter = &explained("scr_flush")[0];
    assert_eq!((&parameter["name"], &parameter["default"]), (&"SCR_FLUSH".into(), &"10".into()));
    assert!(parameter["cases"][0]["meaning"].as_str().unwrap().contains("`checkpoint.flush.every`"));
}

#[test]
fn an_unknown_name_has_the_nearest_one() {
    holdfast(["explain", "nod_down"]).with_code(64).complains(&["did you mean `node_down`?"]);
}
