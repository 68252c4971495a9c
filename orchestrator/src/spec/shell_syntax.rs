//! Words of a command that only a shell would interpret. Commands of a spec are started without one, so that such a
//! word reaches the program as it is.

use std::path::Path;

use super::job::{JobSpec, Step};
use super::settings::Origin;

/// Programs that interpret the words themselves.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh"];
/// Words that redirect or connect commands.
const OPERATORS: [&str; 9] = [">", ">>", "<", "|", "||", "&&", "&", "2>&1", "&>"];
/// The beginnings of words that redirect into a file.
const REDIRECTIONS: [&str; 4] = [">", "2>", "&>", "1>"];
/// Our own variables are replaced in the commands of some sources.
const OWN: &str = "HOLDFAST_";

/// A note about each command of the spec that has such a word.
pub(super) fn notes(spec: &JobSpec) -> Vec<String> {
    let site = [("before", &spec.before), ("after", &spec.after)];
    let of_site = site.into_iter().flat_map(|(key, commands)| {
        let named = (0..).zip(commands);
        named.filter_map(move |(at, site)| note(spec, &format!("{key}[{at}].command"), &site.command, false))
    });
    spec.steps.iter().flat_map(|step| of_step(spec, step)).chain(of_site).collect()
}

fn of_step(spec: &JobSpec, step: &Step) -> Vec<String> {
    let checkpoint = &step.checkpoint;
    // A process of ours in front of the program replaces them.
    let replaced = (step.source.saver)(checkpoint).is_some();
    let commands = [
        ("run.command", Some(&step.run.command)),
        ("checkpoint.command.save", checkpoint.command.save.as_ref()),
        ("checkpoint.resume", checkpoint.resume.as_ref()),
    ];
    let named = commands.into_iter().filter_map(|(key, words)| Some((format!("{}{key}", step.key_path), words?)));
    named.filter_map(|(key, words)| note(spec, &key, words, replaced)).collect()
}

fn note(spec: &JobSpec, key: &str, words: &[String], replaced: bool) -> Option<String> {
    let word = uninterpreted(words, replaced)?;
    let origin = spec.settings.get(key).map(|setting| &setting.origin);
    let script = words.iter().map(|word| as_typed(word)).collect::<Vec<_>>().join(" ");
    let (place, remedy) = match origin {
        Some(Origin::CommandLine) => (String::new(), format!("`-- sh -c '{}'`", script.replace('\'', r"'\''"))),
        Some(Origin::Spec(place)) => (format!(" (line {})", place.line), in_spec(&script)),
        _ => (String::new(), in_spec(&script)),
    };
    Some(format!(
        "`{key}`{place}: no shell interprets `{}`, the program gets it as it is; if a shell shall run the command, \
         write {remedy}",
        word.escape_debug()
    ))
}

fn in_spec(script: &str) -> String {
    format!("`[sh, -c, '{}']`", script.replace('\'', "''"))
}

/// A word as it stands in the line of a shell.
fn as_typed(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word.to_owned() }
}

/// The first word that only a shell would interpret. A word with blanks is taken for a script of the program.
fn uninterpreted(words: &[String], replaced: bool) -> Option<&str> {
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    if SHELLS.contains(&program) {
        return None;
    }
    let is_one = |word: &&str| {
        !word.contains(char::is_whitespace)
            && (OPERATORS.contains(word)
                || REDIRECTIONS.iter().any(|start| word.starts_with(start))
                || has_variable(word, replaced))
    };
    words.iter().map(String::as_str).find(is_one)
}

/// True for a word with `$NAME` or `${NAME}`, of another variable than those that are replaced.
fn has_variable(word: &str, replaced: bool) -> bool {
    word.split('$').skip(1).any(|rest| {
        let name = rest.strip_prefix('{').unwrap_or(rest);
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && !(replaced && name.starts_with(OWN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[&str], replaced: bool) -> Option<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        uninterpreted(&words, replaced).map(str::to_owned)
    }

    #[test]
    fn finds_operators_redirections_and_variables() {
        for (words, word) in [
            (&["./pi", "5", ">", "out"][..], ">"),
            (&["./pi", "2>err"], "2>err"),
            (&["./a", "&&", "./b"], "&&"),
            (&["./a", "|", "tee", "log"], "|"),
            (&["./pi", "$N"], "$N"),
            (&["./pi", "--dir=${HOME}/x"], "--dir=${HOME}/x"),
        ] {
            assert_eq!(found(words, false).as_deref(), Some(word), "{words:?}");
        }
    }

    #[test]
    fn leaves_shells_scripts_and_own_variables_alone() {
        for words in [
            &["sh", "-c", "./pi $N > out"][..],
            &["/bin/bash", "-c", "a && b"],
            &["awk", "{print $NF}", "file"],
            &["awk", "{s+=$1}"],
            &["./pi", "5$", "a|b", "x>y", "-->"],
        ] {
            assert_eq!(found(words, false), None, "{words:?}");
        }
        assert_eq!(found(&["cp", "$HOLDFAST_CHECKPOINT_DIR/x"], true), None);
        assert_eq!(found(&["cp", "$HOLDFAST_CHECKPOINT_DIR/$X"], true).as_deref(), Some("$HOLDFAST_CHECKPOINT_DIR/$X"));
        assert!(found(&["./pi", "$HOLDFAST_RANK"], false).is_some());
    }
}
