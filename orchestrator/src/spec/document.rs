//! The spec as a tree of YAML nodes with their positions.
//!
//! Built from the parser's events instead of through serde, because serde stops at the first mistake and drops the
//! positions of values. A mistake such as "more nodes than the allocation" needs the position of a value that is valid
//! by itself. The input is untrusted: size, depth and the number of nodes are bounded, so that neither nesting nor
//! aliases of aliases ("a billion laughs") take long.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use super::diagnostics::{Diagnostic, Position};

/// Larger files are refused: the longest hand-written spec is a hundredth of it.
pub const MAX_BYTES: u64 = 1 << 20;
/// The deepest key of a spec is at level 6.
const MAX_DEPTH: usize = 32;
/// Including the nodes that aliases stand for.
const MAX_NODES: usize = 100_000;

#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) value: Value,
    pub(super) place: Position,
}

/// The content of a node, before it is read as a particular type.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Empty, `null` or `~`: as if the key were not written.
    Nothing,
    /// Text; `plain` if it has no quotes, so that it may also be a number or a boolean.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// One key of a map.
#[derive(Clone, Debug)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) key_place: Position,
    pub(super) node: YamlNode,
}

impl Value {
    /// The second half of "expected …, found …".
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Nothing => "nothing".to_owned(),
            Value::Scalar { text, plain } => {
                let what = if !plain {
                    "the text"
                } else if text.parse::<f64>().is_ok() {
                    "the number"
                } else {
                    "the text"
                };
                let short: String = text.chars().take(40).collect();
                let dots = if short.len() < text.len() { "…" } else { "" };
                format!("{what} `{}{dots}`", short.escape_debug())
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(entries) => format!("a section with {} keys", entries.len()),
        }
    }
}

/// Reads the only document of a file. An empty file is an empty section.
pub(super) fn read(text: &str) -> Result<YamlNode, Diagnostic> {
    let mut builder = Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut root = None;
    while let Some((event, span)) = builder.next()? {
        match event {
            Event::DocumentStart(_) if root.is_some() => {
                return Err(mistake(
                    place_of(&span),
                    "a second document begins here",
                    "a file holds one spec: remove the `---`",
                ));
            }
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
            event => root = Some(builder.node(event, span, 0)?),
        }
    }
    Ok(root.unwrap_or(YamlNode { value: Value::Nothing, place: Position::START }))
}

/// The document of `run: {command: […]}`.
pub(super) fn of_command(command: &[String]) -> YamlNode {
    let place = Position::START;
    let items =
        command.iter().map(|text| YamlNode { value: Value::Scalar { text: text.clone(), plain: false }, place });
    let section = |key: &str, value: Value| {
        Value::Map(vec![YamlEntry { key: key.to_owned(), key_place: place, node: YamlNode { value, place } }])
    };
    YamlNode { value: section("run", section("command", Value::List(items.collect()))), place }
}

struct Builder<'input> {
    parser: Parser<'input, StrInput<'input>>,
    anchors: HashMap<usize, (YamlNode, usize)>,
    nodes: usize,
}

impl<'input> Builder<'input> {
    fn next(&mut self) -> Result<Option<(Event<'input>, Span)>, Diagnostic> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => Err(mistake(
                place_at(error.marker(), 1),
                &format!("invalid YAML: {}", error.info()),
                "check indentation (spaces, no tabs), quotes and brackets on this line and the line above",
            )),
        }
    }

    fn count(&mut self, nodes: usize, place: Position) -> Result<(), Diagnostic> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(mistake(
                place,
                &format!("more than {MAX_NODES} values after aliases are expanded"),
                "a job spec is much smaller: remove the aliases",
            ));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'input>, span: Span, depth: usize) -> Result<YamlNode, Diagnostic> {
        let place = place_of(&span);
        if depth > MAX_DEPTH {
            return Err(mistake(
                place,
                &format!("nested deeper than {MAX_DEPTH} levels"),
                "remove the nesting: no key of a spec is this deep",
            ));
        }
        let before = self.nodes;
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let Some((node, nodes)) = self.anchors.get(&anchor).cloned() else {
                    return Err(mistake(place, "an alias of an anchor that contains it", "write the value out"));
                };
                self.count(nodes, place)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, _) => {
                self.count(1, place)?;
                let plain = style == ScalarStyle::Plain;
                let value = match text.as_ref() {
                    "" | "~" | "null" | "Null" | "NULL" if plain => Value::Nothing,
                    _ => Value::Scalar { text: text.into_owned(), plain },
                };
                (value, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                self.count(1, place)?;
                (self.list(depth)?, anchor)
            }
            Event::MappingStart(anchor, _) => {
                self.count(1, place)?;
                (self.map(depth)?, anchor)
            }
            _ => {
                return Err(mistake(place, "a value was expected here", "check the lines above"));
            }
        };
        let node = YamlNode { value, place };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Diagnostic> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, span, depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<Value, Diagnostic> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, span, depth + 1)?;
            let Value::Scalar { text, .. } = key.value else {
                return Err(mistake(key.place, "a key must be plain text", "write `key: value`"));
            };
            let Some((event, span)) = self.next()? else {
                break;
            };
            let node = self.node(event, span, depth + 1)?;
            entries.push(YamlEntry { key: text, key_place: key.place, node });
        }
        Ok(Value::Map(entries))
    }
}

fn mistake(place: Position, message: &str, help: &str) -> Diagnostic {
    Diagnostic { place: Some(place), key: String::new(), message: message.to_owned(), help: Some(help.to_owned()) }
}

fn place_of(span: &Span) -> Position {
    // For a section or list over several lines, the first character is marked.
    let width = if span.start.line() == span.end.line() { span.end.col().saturating_sub(span.start.col()) } else { 1 };
    place_at(&span.start, width)
}

fn place_at(marker: &Marker, width: usize) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1, width: width.max(1) }
}
