//! `holdfast explain`: what an exit code, an event, a key of the spec or a parameter means, from their declarations.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::output::{Style, report};
use crate::events::{declared_events, event_fields};
use crate::exit;
use crate::launch::registry::registered;
use crate::params::declaration::Effect;
use crate::spec::{declared_parameters, nearest, reference};

/// Codes from here on are those of a shell for a program that a signal has killed.
const SIGNALS: u8 = 128;
/// Columns of the text.
const WIDTH: usize = 98;

/// Print what an exit code, an event, a key of the job spec or a parameter means
///
/// A key may be written without the sections that it is in: every key of that name is printed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast explain 75                        an exit code, and what to do after it
  holdfast explain node_down                 an event of the log, with its fields
  holdfast explain checkpoint.flush.every    a key of the job spec, with its default
  holdfast explain SCR_FLUSH                 a parameter of SCR

Exit codes:
   0  printed
  64  there is nothing of this name")]
pub struct ExplainArgs {
    /// An exit code, the name of an event, a key or a parameter
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Serialize)]
struct Explanation {
    kind: Kind,
    name: String,
    default: Option<String>,
    cases: Vec<Case>,
    fields: Vec<Field>,
    /// The page with more, or the command that prints it.
    documentation: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    ExitCode,
    Event,
    Key,
    Parameter,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Kind::ExitCode => "exit code",
            Kind::Event => "event",
            Kind::Key => "key of the job spec",
            Kind::Parameter => "parameter",
        }
    }
}

#[derive(Debug, Serialize)]
struct Case {
    meaning: String,
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Field {
    name: &'static str,
    meaning: String,
}

impl Explanation {
    fn new(kind: Kind, name: impl Into<String>, documentation: impl Into<String>) -> Self {
        let (name, documentation) = (name.into(), documentation.into());
        Explanation { kind, name, default: None, cases: Vec::new(), fields: Vec::new(), documentation }
    }

    fn case(mut self, meaning: &str, remedy: &str) -> Self {
        let remedy = Some(plain(remedy)).filter(|remedy| !remedy.is_empty());
        self.cases.push(Case { meaning: plain(meaning), remedy });
        self
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{} ({})", self.name, self.kind.title())?;
        for case in &self.cases {
            paragraph(to, &case.meaning, "  ", "  ")?;
            case.remedy.iter().try_for_each(|remedy| paragraph(to, remedy, "    what to do: ", "      "))?;
        }
        if let Some(default) = &self.default {
            writeln!(to, "  default: {default}")?;
        }
        let widest = self.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
        for Field { name, meaning } in &self.fields {
            paragraph(to, meaning, &format!("    {name:widest$}  "), &" ".repeat(widest + 6))?;
        }
        writeln!(to, "  more: {}", self.documentation)
    }
}

/// Lines of a text, the first one behind `first` and the others behind `other`.
fn paragraph(to: &mut dyn Write, text: &str, first: &str, other: &str) -> io::Result<()> {
    let lines = reference::wrapped(text, WIDTH - first.len().max(other.len()));
    lines.iter().enumerate().try_for_each(|(at, line)| writeln!(to, "{}{line}", if at == 0 { first } else { other }))
}

/// Markdown without its links; what is quoted stays.
fn plain(markdown: &str) -> String {
    let parts = markdown.trim().split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { without_links(part) } else { format!("`{part}`") }).collect()
}

fn without_links(text: &str) -> String {
    let (mut text, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once('[') {
        let Some((label, behind)) = link.split_once(']') else { break };
        text.push_str(before);
        text.push_str(label);
        rest = match behind.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, behind)) => behind,
            None => behind,
        };
    }
    text + rest
}

pub(super) fn run(args: &ExplainArgs, style: Style) -> Result<u8, Failure> {
    let explained = explain(&args.name)?;
    style.result(&report(json!({"explained": &explained}), |to| {
        explained.iter().enumerate().try_for_each(|(at, explanation)| {
            if at > 0 {
                writeln!(to)?;
            }
            explanation.write(to)
        })
    }))?;
    Ok(exit::FINISHED)
}

fn explain(name: &str) -> Result<Vec<Explanation>, Failure> {
    let found = match name.parse() {
        Ok(code) => exit_code(code).into_iter().collect(),
        Err(_) => {
            let named = [event(name), parameter(name)].into_iter().flatten();
            named.chain(keys(name)).collect::<Vec<_>>()
        }
    };
    match found.is_empty() {
        false => Ok(found),
        true => Err(unknown(name)),
    }
}

fn exit_code(code: u8) -> Option<Explanation> {
    let explanation = Explanation::new(Kind::ExitCode, code.to_string(), "docs/exit-codes.md");
    let of_code = exit::meanings().filter(|meaning| meaning.code == code);
    let explanation = of_code.fold(explanation, |known, meaning| known.case(meaning.text, meaning.remedy));
    match explanation.cases.is_empty() {
        false => Some(explanation),
        true => code.checked_sub(SIGNALS).filter(|signal| *signal > 0).map(|signal| {
            let meaning = format!("Holdfast itself was killed by signal {signal}");
            explanation.case(&meaning, "`holdfast run` or `holdfast drain` again: they continue")
        }),
    }
}

fn event(name: &str) -> Option<Explanation> {
    let event = declared_events().find(|event| event.is_named(name))?;
    let mut explanation = Explanation::new(Kind::Event, name, "docs/events.md").case(event.meaning, "");
    let fields = event_fields(event).into_iter();
    explanation.fields = fields.map(|(name, meaning)| Field { name, meaning: plain(meaning) }).collect();
    Some(explanation)
}

fn parameter(name: &str) -> Option<Explanation> {
    let declared = declared_parameters().into_iter().find(|declared| declared.name.eq_ignore_ascii_case(name))?;
    let meaning = match &declared.effect {
        Effect::Acts(effect) => effect.clone(),
        Effect::Warned(reason) => format!("no effect, with a warning: {reason}"),
        Effect::Refused(reason) => format!("another value than the default is refused: {reason}"),
    };
    let explanation = Explanation::new(Kind::Parameter, declared.name, "docs/scr-parameters.md").case(&meaning, "");
    Some(Explanation { default: Some(declared.default).filter(|default| !default.is_empty()), ..explanation })
}

/// The key of this path, or every key whose path ends with it.
fn keys(name: &str) -> Vec<Explanation> {
    let wanted = without_positions(name);
    let all = reference::keys(&registered());
    let exact = |key: &&reference::DescribedKey| without_positions(&key.path) == wanted;
    let ends = |key: &&reference::DescribedKey| without_positions(&key.path).ends_with(&format!(".{wanted}"));
    let mut found: Vec<_> = all.iter().filter(exact).collect();
    if found.is_empty() {
        found = all.iter().filter(ends).collect();
        // Those of a step are the same again.
        let is_of_step = |key: &reference::DescribedKey| key.path.starts_with("steps[");
        if found.iter().any(|key| !is_of_step(key)) {
            found.retain(|key| !is_of_step(key));
        }
    }
    let explained = found.into_iter().map(|key| {
        let explanation = Explanation::new(Kind::Key, &key.path, "holdfast check --reference");
        Explanation { default: key.default.clone(), ..explanation.case(&key.documentation, "") }
    });
    explained.collect()
}

/// `checkpoint.caches[0].base` as `checkpoint.caches.base`.
fn without_positions(path: &str) -> String {
    let mut text = String::new();
    for part in path.split(']') {
        text.push_str(part.split('[').next().unwrap_or_default());
    }
    text
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(exit::USAGE, format!("nothing is called `{}`", super::printable(name)));
    let events: Vec<String> = declared_events().map(|event| event.name()).collect();
    let parameters = declared_parameters();
    let keys = reference::keys(&registered());
    let known = events.iter().map(String::as_str).chain(parameters.iter().map(|declared| declared.name));
    let last = |key: &reference::DescribedKey| key.path.rsplit('.').next().unwrap_or_default().to_owned();
    let last: Vec<String> = keys.iter().map(last).collect();
    let known = known.chain(keys.iter().map(|key| key.path.as_str())).chain(last.iter().map(String::as_str));
    match nearest(name, known) {
        Some(near) => failure.remedy(format!("did you mean `{near}`?")),
        None => failure.remedy(
            "exit codes are in docs/exit-codes.md, events in docs/events.md; `holdfast check --reference` prints every \
             key",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_markdown_are_not_shown() {
        assert_eq!(
            plain("as for 78 ([restarts.md](restarts.md)), a [drain] `a[0]`"),
            "as for 78 (restarts.md), a drain `a[0]`"
        );
    }

    #[test]
    fn everything_that_is_declared_is_explained() {
        let explained = |name: &str| !explain(name).unwrap_or_default().is_empty();
        assert!(declared_events().all(|event| explained(&event.name())));
        assert!(declared_parameters().iter().all(|declared| explained(declared.name)));
        assert!(reference::keys(&registered()).iter().all(|key| explained(&key.path)));
        assert!(exit::meanings().all(|meaning| explained(&meaning.code.to_string())));
    }
}
