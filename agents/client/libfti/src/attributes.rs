//! Identifiers, names and shapes of variables. They are in a file beside the checkpoint file, as FTI-FF has no place
//! for them.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own or starts with `holdfast_fti_`, and a program
//! links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::{some_text, text};
use holdfast_client::variables::MOST_DIMENSIONS;
use holdfast_variables_c::boundary::BOUNDARY;

use crate::c::{FAILURE, FtiError, code};

/// The bytes of a name, with its NUL (`FTI_BUFS`).
const BUFFER: usize = 256;
/// The name of the attributes is set.
const NAME: c_int = 1;
/// The shape of the attributes is set.
const SHAPE: c_int = 2;

/// A shape. Passed by value, as a part of [`FTIT_attribute`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FTIT_dimension {
    /// The number of dimensions.
    pub ndims: c_int,
    /// Elements along each dimension, the one that is contiguous in memory first.
    pub count: [i64; MOST_DIMENSIONS],
}

/// The attributes of a variable. Passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FTIT_attribute {
    pub dim: FTIT_dimension,
    /// A C string.
    pub name: [c_char; BUFFER],
}

/// Why attributes cannot be set.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum AttributeError {
    #[error("the flag is {0}: pass FTI_ATTRIBUTE_NAME, FTI_ATTRIBUTE_DIM, or both with `|`")]
    Flag(c_int),
    #[error("{0} dimensions: a shape has 1 to {MOST_DIMENSIONS}")]
    Dimensions(c_int),
    #[error("dimension {dimension} has {count} elements: the number is negative")]
    Count { dimension: usize, count: i64 },
    #[error("the name has no NUL among its {BUFFER} bytes: it has 1 to 255 bytes, and a NUL behind them")]
    Unterminated,
}

/// The id of the variable with this identifier, or a new one. In a restart, that of the checkpoint.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_setIDFromString(name: *const c_char) -> c_int {
    let id = BOUNDARY.call("FTI_setIDFromString", |session| {
        // SAFETY: the caller's promise.
        let name = unsafe { some_text(name, "the name") }?;
        Ok::<_, FtiError>(session.identify(&name)?)
    });
    id.unwrap_or(FAILURE)
}

/// The id of the variable with this identifier; -1 if there is none.
///
/// # Safety
/// As [`FTI_setIDFromString`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_getIDFromString(name: *const c_char) -> c_int {
    let id = BOUNDARY.call("FTI_getIDFromString", |session| {
        // SAFETY: the caller's promise.
        let name = unsafe { some_text(name, "the name") }?;
        Ok::<_, FtiError>(session.find_identifier(&name)?)
    });
    id.flatten().unwrap_or(FAILURE)
}

/// Sets the name or the shape of a variable, or both.
#[unsafe(no_mangle)]
pub extern "C" fn FTI_SetAttribute(id: c_int, attribute: FTIT_attribute, flag: c_int) -> c_int {
    code("FTI_SetAttribute", |session| {
        if flag & !(NAME | SHAPE) != 0 {
            return Err(AttributeError::Flag(flag).into());
        }
        let name = if flag & NAME == 0 { None } else { Some(name_in(&attribute.name)?) };
        let shape = if flag & SHAPE == 0 { None } else { Some(counts(attribute.dim.ndims, &attribute.dim.count)?) };
        Ok(session.describe(id, name.as_deref(), shape.as_deref())?)
    })
}

/// As [`FTI_SetAttribute`], for the Fortran module: null stands for what is not set.
///
/// # Safety
/// `name` is null or a C string, `counts` null or points to `dimensions` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fti_describe(
    id: c_int,
    name: *const c_char,
    dimensions: c_int,
    shape: *const i64,
) -> c_int {
    code("FTI_SetAttribute", |session| {
        // SAFETY: the caller's promise, here and below.
        let name = unsafe { text(name) }?;
        let most = usize::try_from(dimensions).ok().filter(|most| *most <= MOST_DIMENSIONS);
        let shape = match (shape.is_null(), most) {
            (true, _) => None,
            (false, None) => return Err(AttributeError::Dimensions(dimensions).into()),
            (false, Some(most)) => Some(counts(dimensions, unsafe { std::slice::from_raw_parts(shape, most) })?),
        };
        Ok(session.describe(id, name.as_deref(), shape.as_deref())?)
    })
}

/// The first `dimensions` of the counts.
fn counts(dimensions: c_int, counts: &[i64]) -> Result<Vec<u64>, AttributeError> {
    let used = usize::try_from(dimensions).ok().and_then(|used| counts.get(..used));
    let used = used.filter(|used| !used.is_empty()).ok_or(AttributeError::Dimensions(dimensions))?;
    let count = |(dimension, count): (usize, &i64)| {
        u64::try_from(*count).map_err(|_| AttributeError::Count { dimension, count: *count })
    };
    used.iter().enumerate().map(count).collect()
}

/// The text in a buffer.
fn name_in(buffer: &[c_char; BUFFER]) -> Result<String, FtiError> {
    let bytes: Vec<u8> = buffer.iter().take_while(|byte| **byte != 0).flat_map(|byte| byte.to_ne_bytes()).collect();
    if bytes.len() == BUFFER {
        return Err(AttributeError::Unterminated.into());
    }
    Ok(String::from_utf8(bytes).map_err(|_| ArgumentError::NotUtf8)?)
}
