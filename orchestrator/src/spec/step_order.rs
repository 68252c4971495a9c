//! The order of the steps of a job, from `needs`.

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostics::nearest;
use super::job::{JobSpec, Step};
use super::reading::Reader;

/// Checks the names in `needs`, and that the steps have an order.
pub(super) fn check(spec: &JobSpec, reader: &Reader) {
    let names = || spec.steps.iter().map(|step| step.name.as_str());
    let mut unknown = false;
    for (at, step) in spec.steps.iter().enumerate() {
        for (number, need) in step.needs.iter().enumerate() {
            if !names().any(|name| name == need) {
                unknown = true;
                let help = match nearest(need, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("steps: {}", names().collect::<Vec<_>>().join(", ")),
                };
                let message = format!("there is no step named `{}`", need.escape_debug());
                reader.mistake(&format!("steps[{at}].needs[{number}]"), message, help);
            }
        }
    }
    if !unknown && let Err(cycle) = order(&spec.steps) {
        report_cycle(spec, &cycle, reader);
    }
}

fn report_cycle(spec: &JobSpec, cycle: &[usize], reader: &Reader) {
    let key = |at: usize| format!("steps[{at}].needs");
    // At least one step of a cycle has the key: without it, a step needs an earlier one.
    let first = cycle.iter().position(|at| reader.is_written(&key(*at))).unwrap_or(0);
    let names: Vec<&str> =
        cycle.iter().cycle().skip(first).take(cycle.len() + 1).map(|at| spec.steps[*at].name.as_str()).collect();
    let chain: Vec<String> = names.iter().skip(1).map(|name| format!("needs `{name}`")).collect();
    let message = format!("`{}` {}: none of them could begin", names[0], chain.join(", which "));
    let help = "remove a name from `needs`; a step without `needs` needs the one before it, one with `needs: []` none";
    reader.mistake(&key(cycle[first]), message, help);
}

/// The names of all steps that have to finish before this one.
pub(super) fn needs<'a>(steps: &'a [Step], of: &'a Step) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![of]);
    while let Some(step) = open.pop() {
        let new = step.needs.iter().map(String::as_str).filter(|need| found.insert(*need));
        open.extend(new.filter_map(|need| steps.iter().find(|step| step.name == need)).collect::<Vec<_>>());
    }
    found
}

/// The steps in an order in which each follows all that it needs; otherwise that of the list. Names without a step are
/// ignored.
///
/// # Errors
/// Steps that need each other, each the next one and the last one the first.
pub(super) fn order(steps: &[Step]) -> Result<Vec<usize>, Vec<usize>> {
    let at: BTreeMap<&str, usize> = steps.iter().enumerate().rev().map(|(at, step)| (step.name.as_str(), at)).collect();
    let needs = |step: usize| steps[step].needs.iter().filter_map(|name| at.get(name.as_str()).copied());
    let mut ordered: Vec<usize> = Vec::with_capacity(steps.len());
    let mut left: Vec<usize> = (0..steps.len()).collect();
    while !left.is_empty() {
        let ready = left.iter().position(|step| needs(*step).all(|need| ordered.contains(&need)));
        match ready {
            Some(position) => ordered.push(left.remove(position)),
            None => {
                // Every step that is left needs another one that is left: following them leads into the cycle.
                let mut path = vec![left[0]];
                loop {
                    let last = path[path.len() - 1];
                    let Some(next) = needs(last).find(|need| left.contains(need)) else { return Err(path) };
                    if let Some(begin) = path.iter().position(|step| *step == next) {
                        return Err(path.split_off(begin));
                    }
                    path.push(next);
                }
            }
        }
    }
    Ok(ordered)
}
