//! The structure that an engine requires of its model. Servers check it last, when they already replace the model in
//! memory.
//!
//! A schema contains only the requirements of every server of a release line. The members of a method whose structure
//! is not described here are not checked, which is part of the result ([`ModelSchema::is_complete`]).
//!
//! Structures are those of jubatus_core 1.1: [`Schema::Struct`] is a class with `MSGPACK_DEFINE`.

use std::io::Read;

use super::msgpack::{MAX_DEPTH, MsgpackError, Token, TokenReader};

/// The required structure of a value.
#[derive(Debug)]
pub enum Schema {
    Any,
    /// An integer that is not negative.
    Unsigned,
    /// An integer that is not negative and at most this.
    UnsignedUpTo(u64),
    /// A signed integer of four bytes.
    Int,
    Float,
    /// A string or raw bytes.
    Text,
    /// An array whose members all match this schema.
    List(&'static Schema),
    /// An array of exactly these members.
    Exactly(&'static [Schema]),
    /// An array that starts with these members: servers ignore further ones.
    Members(&'static [Schema]),
    /// An array that starts with these members, or with the first of them: servers keep the defaults of missing ones.
    Struct(&'static [Schema]),
    Map(&'static Schema, &'static Schema),
}

static ANY: Schema = Schema::Any;
static TEXT: Schema = Schema::Text;

static SAMPLE: Schema = Schema::Exactly(&[Schema::Unsigned, Schema::Exactly(&[Schema::Text, Schema::Float])]);
static STATISTIC: Schema =
    Schema::Members(&[Schema::Unsigned, Schema::Float, Schema::Float, Schema::Float, Schema::Float]);
static STAT_MEMBERS: [Schema; 5] =
    [Schema::Unsigned, Schema::List(&SAMPLE), Schema::Map(&TEXT, &STATISTIC), Schema::Float, Schema::Float];

/// `[window_size, [[time, [key, value]], …], {key: [count, sum, sum of squares, max, min]}, e, n]`.
pub(super) static STAT: Schema = Schema::Members(&STAT_MEMBERS);

/// The required structure of an engine's model.
#[derive(Debug, Clone, Copy)]
pub struct ModelSchema {
    pub schema: &'static Schema,
    /// True if it contains everything that a server checks; false if the data of a method are not checked.
    pub is_complete: bool,
}

static UNSIGNED: Schema = Schema::Unsigned;
static FLOAT: Schema = Schema::Float;

/// `storage::version`.
const VERSION: Schema = Schema::Struct(&[Schema::Unsigned]);
/// `fv_converter::counter<std::string>`.
const COUNTER: Schema = Schema::Struct(&[Schema::Map(&TEXT, &FLOAT)]);
/// `fv_converter::keyword_weights`.
const KEYWORD_WEIGHTS: Schema =
    Schema::Struct(&[Schema::Unsigned, COUNTER, COUNTER, COUNTER, Schema::Map(&TEXT, &FLOAT)]);
/// `fv_converter::weight_manager`.
const WEIGHT_MANAGER: Schema = Schema::Struct(&[VERSION, KEYWORD_WEIGHTS, KEYWORD_WEIGHTS]);

/// `storage::local_storage` and `local_storage_mixture`: the weights of linear classifiers and regressions.
const LINEAR_STORAGE: Schema = Schema::Struct(&[
    Schema::Map(&TEXT, &FEATURE_WEIGHTS),
    Schema::Struct(&[Schema::Map(&TEXT, &UNSIGNED), Schema::Map(&UNSIGNED, &TEXT), Schema::Unsigned]),
    Schema::Map(&TEXT, &FEATURE_WEIGHTS),
    VERSION,
]);
static FEATURE_WEIGHTS: Schema = Schema::Map(&UNSIGNED, &THREE_FLOATS);
static THREE_FLOATS: Schema = Schema::Struct(&[Schema::Float, Schema::Float, Schema::Float]);
/// `storage::labels`.
const LABELS: Schema = Schema::Struct(&[Schema::Map(&TEXT, &UNSIGNED), Schema::Map(&TEXT, &UNSIGNED), VERSION]);

/// A linear classifier without unlearner, and the weights of the converter.
pub(super) static LINEAR_CLASSIFIER: Schema =
    Schema::Exactly(&[Schema::Exactly(&[LINEAR_STORAGE, LABELS]), WEIGHT_MANAGER]);
/// A linear regression, and the weights of the converter.
pub(super) static LINEAR_REGRESSION: Schema = Schema::Exactly(&[Schema::Exactly(&[LINEAR_STORAGE]), WEIGHT_MANAGER]);
/// The weights of the converter.
pub(super) static WEIGHT: Schema = Schema::Exactly(&[WEIGHT_MANAGER]);
/// The data of a method that is not described here, and the weights of the converter.
pub(super) static OTHER_METHOD: Schema = Schema::Exactly(&[Schema::Any, WEIGHT_MANAGER]);

/// `bandit::summation_storage`, of all methods.
pub(super) static BANDIT: Schema =
    Schema::Struct(&[Schema::List(&TEXT), Schema::Map(&TEXT, &COUNTED_ARMS), Schema::Map(&TEXT, &COUNTED_ARMS)]);
static COUNTED_ARMS: Schema = Schema::Exactly(&[Schema::Int, Schema::Map(&TEXT, &ARM)]);
static ARM: Schema = Schema::Struct(&[Schema::Int, Schema::Float]);

/// `graph::graph_wo_index`: nodes, edges, other nodes, centralities and shortest paths by query.
pub(super) static GRAPH: Schema = Schema::Struct(&[
    Schema::Map(&UNSIGNED, &NODE),
    Schema::Map(&UNSIGNED, &EDGE),
    Schema::Map(&UNSIGNED, &BYTE),
    Schema::Map(&QUERY, &SCORES),
    Schema::Map(&QUERY, &TREES),
]);
static BYTE: Schema = Schema::UnsignedUpTo(255);
static NODE: Schema = Schema::Struct(&[Schema::Map(&TEXT, &TEXT), Schema::List(&UNSIGNED), Schema::List(&UNSIGNED)]);
static EDGE: Schema = Schema::Struct(&[Schema::Map(&TEXT, &TEXT), Schema::Unsigned, Schema::Unsigned]);
static QUERY: Schema = Schema::Struct(&[Schema::List(&CONDITION), Schema::List(&CONDITION)]);
static CONDITION: Schema = Schema::Exactly(&[Schema::Text, Schema::Text]);
static SCORES: Schema = Schema::Map(&UNSIGNED, &SCORE);
static SCORE: Schema = Schema::Struct(&[Schema::Float, Schema::Unsigned]);
static TREES: Schema = Schema::List(&TREE);
static TREE: Schema = Schema::Struct(&[Schema::Unsigned, Schema::Map(&UNSIGNED, &PATH), Schema::Map(&UNSIGNED, &PATH)]);
static PATH: Schema = Schema::Exactly(&[Schema::Unsigned, Schema::Unsigned]);

/// The data of a method and the weights of the converter.
pub(super) static METHOD_AND_WEIGHTS: Schema = Schema::Exactly(&[Schema::Any, Schema::List(&ANY)]);

/// Only the weights of the converter.
pub(super) static WEIGHTS: Schema = Schema::Exactly(&[Schema::List(&ANY)]);

/// A structure specific to an engine.
pub(super) static STRUCTURE: Schema = Schema::List(&ANY);

/// The form of servers up to 0.5.4: one member for each component that is mixed.
pub(super) static WRAPPED: Schema = Schema::List(&ANY);

/// [`STAT`] in the form of servers up to 0.5.4.
pub(super) static WRAPPED_STAT: Schema = Schema::Exactly(&[Schema::Members(&STAT_MEMBERS)]);

/// Findings of a walk over values.
#[derive(Debug, Default)]
pub struct ValueFindings {
    /// The offset in the block of the first value that does not have the required structure.
    pub mismatch: Option<u64>,
    /// A text in a form that the oldest servers do not know.
    pub new_forms: bool,
}

struct OpenContainer {
    /// Values not read yet: a map has two for each pair.
    left: u64,
    index: usize,
    schema: &'static Schema,
}

impl OpenContainer {
    fn next(&mut self) -> &'static Schema {
        let index = self.index;
        self.index = self.index.saturating_add(1);
        match self.schema {
            Schema::List(member) => member,
            Schema::Exactly(members) | Schema::Members(members) | Schema::Struct(members) => {
                members.get(index).unwrap_or(&ANY)
            }
            Schema::Map(key, value) => match index.is_multiple_of(2) {
                true => key,
                false => value,
            },
            _ => &ANY,
        }
    }
}

/// Reads one value inside `depth` open containers. A value of another structure is recorded, and reading goes on,
/// because malformed MessagePack anywhere has precedence, as in servers.
///
/// # Errors
/// When the value is not well-formed, or its containers are nested too deep.
pub fn walk<R: Read>(
    source: &mut TokenReader<R>,
    depth: usize,
    schema: &'static Schema,
    seen: &mut ValueFindings,
) -> Result<(), MsgpackError> {
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut expected = schema;
    loop {
        let offset = source.offset();
        let token = source.token()?;
        if !fits(expected, token) {
            seen.mismatch.get_or_insert(offset);
            expected = &ANY;
        }
        let inside = match token {
            Token::Array(count) => Some(u64::from(count)),
            Token::Map(count) => Some(2 * u64::from(count)),
            Token::Text { length, new_form } => {
                seen.new_forms |= new_form;
                source.skip(length)?;
                None
            }
            _ => None,
        };
        if let Some(left) = inside {
            // As in the servers' library, an empty container counts too.
            if depth + open.len() >= MAX_DEPTH {
                return Err(MsgpackError::TooDeep { offset });
            }
            open.push(OpenContainer { left, index: 0, schema: expected });
        }
        loop {
            let Some(container) = open.last_mut() else { return Ok(()) };
            // Members can have any value.
            if matches!(container.schema, Schema::Any | Schema::List(Schema::Any)) {
                container.left -= source.skip_plain(container.left);
                let offset = source.offset();
                if container.left > 0
                    && let Some(left) = source.small_container()
                {
                    container.left -= 1;
                    if depth + open.len() >= MAX_DEPTH {
                        return Err(MsgpackError::TooDeep { offset });
                    }
                    open.push(OpenContainer { left, index: 0, schema: &ANY });
                    continue;
                }
            }
            if container.left > 0 {
                container.left -= 1;
                expected = container.next();
                break;
            }
            open.pop();
        }
    }
}

fn fits(expected: &Schema, token: Token) -> bool {
    match (expected, token) {
        (Schema::Any, _)
        | (Schema::Unsigned, Token::Unsigned(_))
        | (Schema::Float, Token::Float32(_) | Token::Float64(_))
        | (Schema::Text, Token::Text { .. })
        | (Schema::List(_) | Schema::Struct(_), Token::Array(_))
        | (Schema::Map(..), Token::Map(_)) => true,
        (Schema::UnsignedUpTo(most), Token::Unsigned(value)) => value <= *most,
        (Schema::Int, Token::Unsigned(value)) => i32::try_from(value).is_ok(),
        (Schema::Int, Token::Negative(value)) => i32::try_from(value).is_ok(),
        (Schema::Exactly(members), Token::Array(count)) => count as usize == members.len(),
        (Schema::Members(members), Token::Array(count)) => count as usize >= members.len(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: &[u8], schema: &'static Schema) -> Result<ValueFindings, MsgpackError> {
        let mut seen = ValueFindings::default();
        walk(&mut TokenReader::block(bytes, bytes.len() as u64), 0, schema, &mut seen)?;
        Ok(seen)
    }

    #[test]
    fn rejects_nesting_deeper_than_the_limit_of_servers() {
        let deep = |arrays: usize| [vec![0x91; arrays], vec![0xc0]].concat();
        assert!(seen(&deep(32), &ANY).is_ok());
        assert!(matches!(seen(&deep(33), &ANY), Err(MsgpackError::TooDeep { offset: 32 })));
        let empty_in_32 = [vec![0x91; 32], vec![0x90]].concat();
        assert!(matches!(seen(&empty_in_32, &ANY), Err(MsgpackError::TooDeep { .. })));
    }

    #[test]
    fn declared_four_billion_members_allocate_no_memory() {
        for bytes in [&b"\xdd\xff\xff\xff\xff"[..], b"\xdf\xff\xff\xff\xff\x01", b"\xdb\xff\xff\xff\xffx"] {
            assert!(matches!(seen(bytes, &ANY), Err(MsgpackError::Insufficient { .. })));
        }
    }

    #[test]
    fn reports_offset_of_first_value_of_another_structure() {
        let good = b"\x95\x20\x91\x92\x01\x92\xa1x\xcb\0\0\0\0\0\0\0\0\x80\xca\0\0\0\0\xca\0\0\0\0";
        assert_eq!(seen(good, &STAT).unwrap().mismatch, None);
        let mut text_for_a_number = good.to_vec();
        text_for_a_number[1] = 0xa0;
        assert_eq!(seen(&text_for_a_number, &STAT).unwrap().mismatch, Some(1));
        assert_eq!(seen(b"\x81\x01\x02", &STAT).unwrap().mismatch, Some(0));
        assert_eq!(seen(b"\x94\x01\x90\x80\x01", &STAT).unwrap().mismatch, Some(0));
        assert_eq!(seen(b"\x92\x01\x02", &METHOD_AND_WEIGHTS).unwrap().mismatch, Some(2));
        assert!(seen(b"\x91\xc4\x00", &ANY).unwrap().new_forms);
    }
}
