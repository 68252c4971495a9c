//! The classes of the servers' library (jubatus_core 1.1) as schemas. [`Schema::Struct`] is a class with
//! `MSGPACK_DEFINE`, [`Schema::Exactly`] one that compares the number of its members.

use super::schema::Schema;

static ANY: Schema = Schema::Any;
static FLOAT: Schema = Schema::Float;
static TEXT: Schema = Schema::Text;
static UNSIGNED: Schema = Schema::Unsigned;

/// Any members.
pub(super) static STRUCTURE: Schema = Schema::List(&ANY);
/// The weights of the converter in a form that is not described here, and nothing else.
pub(super) static SOME_WEIGHTS: Schema = Schema::Exactly(&[Schema::List(&ANY)]);
/// The data of a method, and the weights of the converter in a form that is not described here.
pub(super) static METHOD_AND_SOME_WEIGHTS: Schema = Schema::Exactly(&[Schema::Any, Schema::List(&ANY)]);

static SAMPLE: Schema = Schema::Exactly(&[Schema::Unsigned, TEXT_AND_FLOAT]);
static STATISTIC: Schema =
    Schema::Members(&[Schema::Unsigned, Schema::Float, Schema::Float, Schema::Float, Schema::Float]);
static STAT_MEMBERS: [Schema; 5] =
    [Schema::Unsigned, Schema::List(&SAMPLE), Schema::Map(&TEXT, &STATISTIC), Schema::Float, Schema::Float];
const TEXT_AND_FLOAT: Schema = Schema::Exactly(&[Schema::Text, Schema::Float]);

/// `[window_size, [[time, [key, value]], …], {key: [count, sum, sum of squares, max, min]}, e, n]`.
pub(super) static STAT: Schema = Schema::Members(&STAT_MEMBERS);
/// [`STAT`] in the form of servers up to 0.5.4: one member for each component that is mixed.
pub(super) static WRAPPED_STAT: Schema = Schema::Exactly(&[Schema::Members(&STAT_MEMBERS)]);

/// `storage::version`.
const VERSION: Schema = Schema::Struct(&[Schema::Unsigned]);
/// `fv_converter::counter<std::string>`.
const COUNTER: Schema = Schema::Struct(&[Schema::Map(&TEXT, &FLOAT)]);
/// `fv_converter::keyword_weights`.
const KEYWORD_WEIGHTS: Schema =
    Schema::Struct(&[Schema::Unsigned, COUNTER, COUNTER, COUNTER, Schema::Map(&TEXT, &FLOAT)]);
/// `fv_converter::weight_manager`: the weights of the converter.
pub(super) static WEIGHT_MANAGER: Schema = Schema::Struct(&[VERSION, KEYWORD_WEIGHTS, KEYWORD_WEIGHTS]);

/// `common::key_manager`.
const KEYS: Schema = Schema::Struct(&[Schema::Map(&TEXT, &UNSIGNED), Schema::Map(&UNSIGNED, &TEXT), Schema::Unsigned]);

/// `storage::local_storage` and `local_storage_mixture`: the weights of linear classifiers and regressions.
pub(super) static LINEAR_STORAGE: Schema =
    Schema::Struct(&[Schema::Map(&TEXT, &FEATURE_WEIGHTS), KEYS, Schema::Map(&TEXT, &FEATURE_WEIGHTS), VERSION]);
static FEATURE_WEIGHTS: Schema = Schema::Map(&UNSIGNED, &THREE_FLOATS);
static THREE_FLOATS: Schema = Schema::Struct(&[Schema::Float, Schema::Float, Schema::Float]);
/// `storage::labels`.
pub(super) static LABELS: Schema =
    Schema::Struct(&[Schema::Map(&TEXT, &UNSIGNED), Schema::Map(&TEXT, &UNSIGNED), VERSION]);

/// `unlearner::lru_unlearner`: ids by their last use, and those that are never removed.
pub(super) static LRU_UNLEARNER: Schema = Schema::Struct(&[Schema::List(&TEXT), Schema::List(&TEXT)]);
/// `unlearner::random_unlearner`: the positions of ids, and the ids.
pub(super) static RANDOM_UNLEARNER: Schema = Schema::Struct(&[Schema::Map(&TEXT, &UNSIGNED), Schema::List(&TEXT)]);

/// `storage::sparse_matrix_storage`: rows, and the names of their columns.
pub(super) static SPARSE_MATRIX: Schema = Schema::Struct(&[Schema::Map(&TEXT, &ROW), KEYS]);
static ROW: Schema = Schema::Map(&UNSIGNED, &FLOAT);

/// `storage::inverted_index_storage`: an index and norms, each with what is not mixed yet, and the names of the rows.
pub(super) static INVERTED_INDEX: Schema = Schema::Struct(&[
    Schema::Map(&TEXT, &ROW),
    Schema::Map(&TEXT, &ROW),
    Schema::Map(&UNSIGNED, &FLOAT),
    Schema::Map(&UNSIGNED, &FLOAT),
    KEYS,
]);

/// `storage::bit_vector`.
static BIT_VECTOR: Schema = Schema::Exactly(&[Schema::Unsigned, Schema::Bits]);
/// `storage::bit_index_storage`: hashes, and those that are not mixed yet.
pub(super) static BIT_INDEX: Schema =
    Schema::Struct(&[Schema::Map(&TEXT, &BIT_VECTOR), Schema::Map(&TEXT, &BIT_VECTOR)]);

/// `storage::lsh_index_storage`: entries and buckets, each with what is not mixed yet, shifts, the number of tables,
/// and the names of the rows.
pub(super) static LSH_INDEX: Schema = Schema::Struct(&[
    Schema::Map(&TEXT, &LSH_ENTRY),
    Schema::Map(&TEXT, &LSH_ENTRY),
    Schema::Map(&UNSIGNED, &LIST_OF_UNSIGNED),
    Schema::Map(&UNSIGNED, &LIST_OF_UNSIGNED),
    Schema::List(&FLOAT),
    Schema::Unsigned,
    KEYS,
]);
static LSH_ENTRY: Schema =
    Schema::Struct(&[Schema::List(&UNSIGNED), Schema::Exactly(&[Schema::Unsigned, Schema::Bits]), Schema::Float]);
static LIST_OF_UNSIGNED: Schema = Schema::List(&UNSIGNED);

/// `storage::column_table` with these columns: keys, rows, versions by owner, columns, clock, rows by key.
macro_rules! column_table {
    ($($column:expr),+) => {
        Schema::Struct(&[
            Schema::List(&TEXT),
            Schema::Unsigned,
            Schema::List(&OWNED_VERSION),
            Schema::Struct(&[$($column),+]),
            Schema::Unsigned,
            Schema::Map(&TEXT, &UNSIGNED),
        ])
    };
}
static OWNED_VERSION: Schema = Schema::Exactly(&[Schema::Struct(&[Schema::Text]), Schema::Unsigned]);
/// A column: its type (9: numbers, 10: bit vectors, of the bits that follow), and its values.
const FLOAT_COLUMN: Schema =
    Schema::Exactly(&[Schema::Exactly(&[Schema::Value(9), Schema::Value(0)]), Schema::List(&FLOAT)]);
const HASH_COLUMN: Schema =
    Schema::Exactly(&[Schema::Exactly(&[Schema::Value(10), Schema::HashBits]), Schema::List(&UNSIGNED)]);

/// The table of `nearest_neighbor::lsh` and `minhash`.
pub(super) static HASH_TABLE: Schema = column_table!(HASH_COLUMN);
/// The table of `nearest_neighbor::euclid_lsh`: hashes and norms.
pub(super) static HASH_AND_NORM_TABLE: Schema = column_table!(HASH_COLUMN, FLOAT_COLUMN);
/// The table of `anomaly::light_lof`: distances and local densities.
pub(super) static LIGHT_LOF_TABLE: Schema = column_table!(FLOAT_COLUMN, FLOAT_COLUMN);
/// The table of `regression::nearest_neighbor_regression` and `inverted_index_regression`.
pub(super) static VALUE_TABLE: Schema = column_table!(FLOAT_COLUMN);

/// `anomaly::lof_storage`: distances and local densities, with what is not mixed yet, and parameters.
pub(super) static LOF_STORAGE: Schema = Schema::Struct(&[
    Schema::Map(&TEXT, &TWO_FLOATS),
    Schema::Map(&TEXT, &TWO_FLOATS),
    Schema::UnsignedUpTo(u32::MAX as u64),
    Schema::UnsignedUpTo(u32::MAX as u64),
    Schema::Bool,
]);
static TWO_FLOATS: Schema = Schema::Struct(&[Schema::Float, Schema::Float]);

/// `clustering::simple_storage`: the revision and the points of other servers, and the own points.
pub(super) static SIMPLE_STORAGE: Schema = Schema::Exactly(&[CLUSTERING_STORAGE, Schema::List(&POINT)]);
/// `clustering::compressive_storage`: as [`SIMPLE_STORAGE`] with own points by bucket, and the number of compressions.
pub(super) static COMPRESSIVE_STORAGE: Schema =
    Schema::Exactly(&[CLUSTERING_STORAGE, Schema::List(&POINTS), Schema::Unsigned]);
const CLUSTERING_STORAGE: Schema = Schema::Struct(&[Schema::Unsigned, Schema::List(&POINTS_OF_SERVER)]);
static POINTS_OF_SERVER: Schema = Schema::Exactly(&[Schema::Text, Schema::List(&POINT)]);
static POINTS: Schema = Schema::List(&POINT);
/// `clustering::weighted_point`: id, weight, features, and the datum (texts, numbers, binary values).
static POINT: Schema = Schema::Struct(&[
    Schema::Text,
    Schema::Float,
    Schema::List(&FEATURE),
    Schema::Struct(&[Schema::List(&TWO_TEXTS), Schema::List(&FEATURE), Schema::List(&TWO_TEXTS)]),
]);
static FEATURE: Schema = TEXT_AND_FLOAT;
static TWO_TEXTS: Schema = Schema::Exactly(&[Schema::Text, Schema::Text]);

/// `burst::burst`: options, results by keyword, and documents that are counted by keyword.
pub(super) static BURST: Schema = Schema::Exactly(&[
    Schema::Struct(&[Schema::Int, Schema::Float, Schema::Int, Schema::Int, Schema::Float]),
    Schema::Map(&TEXT, &BURST_RESULTS),
    Schema::Map(&TEXT, &BURST_COUNTS),
]);
static BURST_RESULTS: Schema = Schema::Exactly(&[
    Schema::Struct(&[Schema::Float, Schema::Float]),
    Schema::Struct(&[Schema::List(&RESULT_WINDOW), Schema::Unsigned, Schema::Float]),
]);
static BURST_COUNTS: Schema = Schema::Struct(&[Schema::List(&INPUT_WINDOW), Schema::Int, Schema::Float, Schema::Int]);
static RESULT_WINDOW: Schema = Schema::Struct(&[Schema::List(&RESULT_BATCH), Schema::Float, Schema::Float]);
static RESULT_BATCH: Schema = Schema::Struct(&[Schema::Int, Schema::Int, Schema::Float]);
static INPUT_WINDOW: Schema = Schema::Struct(&[Schema::List(&INPUT_BATCH), Schema::Float, Schema::Float]);
static INPUT_BATCH: Schema = Schema::Struct(&[Schema::Int, Schema::Int]);

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
static QUERY: Schema = Schema::Struct(&[Schema::List(&TWO_TEXTS), Schema::List(&TWO_TEXTS)]);
static SCORES: Schema = Schema::Map(&UNSIGNED, &SCORE);
static SCORE: Schema = Schema::Struct(&[Schema::Float, Schema::Unsigned]);
static TREES: Schema = Schema::List(&TREE);
static TREE: Schema = Schema::Struct(&[Schema::Unsigned, Schema::Map(&UNSIGNED, &PATH), Schema::Map(&UNSIGNED, &PATH)]);
static PATH: Schema = Schema::Exactly(&[Schema::Unsigned, Schema::Unsigned]);
