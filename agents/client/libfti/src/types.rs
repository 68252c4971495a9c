//! The types of elements, and the definitions of structures, as declared in `include/fti.h`.
//!
//! A checkpoint file contains the bytes of an element, whatever its fields are. A definition is checked as FTI 1.1
//! checks it, and the type is one of that size.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is FTI's own, and a program links one FTI.

// The names are those of the C interface.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_long, c_void};

use holdfast_boundary::ArgumentError;
use holdfast_boundary::c::{put, text};
use holdfast_variables_c::boundary::BOUNDARY;
use holdfast_variables_c::session::SessionError;

use crate::c::{FtiError, code};
use crate::refused::Refused;

/// The bytes of a name, with its NUL; also the fields that a definition has room for (`FTI_BUFS`).
const BUFFER: usize = 256;
/// The fields that a type may have.
const MOST_FIELDS: c_int = 255;
const MOST_DIMENSIONS: usize = 32;

/// A type of elements. Passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FTIT_type {
    /// The number of the type.
    pub id: c_int,
    /// The bytes of an element.
    pub size: c_int,
}

macro_rules! basic_types {
    ($($name:ident, $id:literal, $bytes:expr;)*) => {
        $(
            #[doc = concat!("The basic type of number ", stringify!($id), ".")]
            #[unsafe(no_mangle)]
            pub static $name: FTIT_type = FTIT_type { id: $id, size: $bytes as c_int };
        )*
    };
}

basic_types! {
    FTI_CHAR, 0, 1;
    FTI_SHRT, 1, size_of::<std::ffi::c_short>();
    FTI_INTG, 2, size_of::<c_int>();
    FTI_LONG, 3, size_of::<c_long>();
    FTI_UCHR, 4, 1;
    FTI_USHT, 5, size_of::<std::ffi::c_ushort>();
    FTI_UINT, 6, size_of::<std::ffi::c_uint>();
    FTI_ULNG, 7, size_of::<std::ffi::c_ulong>();
    FTI_SFLT, 8, size_of::<f32>();
    FTI_DBLE, 9, size_of::<f64>();
    FTI_LDBE, 10, 16;
}

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FTIT_typeField {
    /// The number of its type.
    pub typeID: c_int,
    /// Its offset in the structure, bytes.
    pub offset: c_int,
    /// The number of its dimensions; 0 after a call that has failed.
    pub rank: c_int,
    /// The elements of each dimension.
    pub dimLength: [c_int; MOST_DIMENSIONS],
    /// A C string.
    pub name: [c_char; BUFFER],
}

/// The definition of a structure.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FTIT_complexType {
    /// A C string.
    pub name: [c_char; BUFFER],
    /// The number of its fields.
    pub length: c_int,
    pub field: [FTIT_typeField; BUFFER],
}

/// Why a structure cannot be defined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionError {
    #[error("{0} fields: a type has 1 to {MOST_FIELDS}")]
    Fields(c_int),
    #[error("the number of the field is {0}: the first is 0, and there is room for {BUFFER}")]
    Number(c_int),
    #[error("field {field} has {rank} dimensions: pass 1 to {MOST_DIMENSIONS}, with their lengths")]
    Rank { field: c_int, rank: c_int },
    #[error("field {field}: the length of dimension {dimension} is {length}: it is at least 1")]
    Length { field: c_int, dimension: usize, length: c_int },
    #[error("field {field}: the offset {offset} does not fit into an int")]
    Offset { field: c_int, offset: usize },
}

/// Initialises a type by the size of its elements.
///
/// # Safety
/// `kind` is null or points to a type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_InitType(kind: *mut FTIT_type, size: c_int) -> c_int {
    code("FTI_InitType", |session| {
        let bytes = usize::try_from(size).map_err(|_| SessionError::TypeSize)?;
        let id = session.define_type(bytes)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { put(kind, FTIT_type { id, size }, "the pointer to the type") }?)
    })
}

/// Initialises a type by the definition of a structure, whose name and number of fields it sets.
///
/// # Safety
/// `kind` is null or points to a type, `definition` to a definition whose first `length` fields were added. `name` is
/// null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_InitComplexType(
    kind: *mut FTIT_type,
    definition: *mut FTIT_complexType,
    length: c_int,
    size: usize,
    name: *const c_char,
    group: *const c_void,
) -> c_int {
    code("FTI_InitComplexType", |session| {
        // SAFETY: the caller's promise, here and below.
        let name = unsafe { text(name) }?.filter(|name| !name.is_empty());
        let definition = unsafe { definition.as_mut() }.ok_or(ArgumentError::Null("the definition of the type"))?;
        if !group.is_null() {
            return Err(Refused::GroupOfType.into());
        }
        if !(1..=MOST_FIELDS).contains(&length) {
            return Err(DefinitionError::Fields(length).into());
        }
        for (number, field) in (0..length).zip(&definition.field) {
            check(number, field)?;
        }
        let bytes = c_int::try_from(size).map_err(|_| SessionError::TypeSize)?;
        let id = session.define_type(size)?;
        definition.length = length;
        set_name(&mut definition.name, &name.unwrap_or_else(|| format!("Type{id}")));
        Ok(unsafe { put(kind, FTIT_type { id, size: bytes }, "the pointer to the type") }?)
    })
}

/// Adds a field of one element to a definition.
///
/// # Safety
/// `definition` is null or points to a definition, `kind` to a type. `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_AddSimpleField(
    definition: *mut FTIT_complexType,
    kind: *const FTIT_type,
    offset: usize,
    id: c_int,
    name: *const c_char,
) {
    // SAFETY: the caller's promise.
    unsafe { add_field("FTI_AddSimpleField", definition, kind, offset, (1, &raw const ONE), id, name) }
}

/// Adds a field that is an array to a definition.
///
/// # Safety
/// As [`FTI_AddSimpleField`]; `lengths` is null or points to `rank` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTI_AddComplexField(
    definition: *mut FTIT_complexType,
    kind: *const FTIT_type,
    offset: usize,
    rank: c_int,
    lengths: *const c_int,
    id: c_int,
    name: *const c_char,
) {
    // SAFETY: the caller's promise.
    unsafe { add_field("FTI_AddComplexField", definition, kind, offset, (rank, lengths), id, name) }
}

static ONE: c_int = 1;

/// The functions return nothing: a field that was refused has no dimensions, so that the type is refused.
///
/// # Safety
/// As [`FTI_AddComplexField`].
unsafe fn add_field(
    function: &str,
    definition: *mut FTIT_complexType,
    kind: *const FTIT_type,
    offset: usize,
    (rank, lengths): (c_int, *const c_int),
    id: c_int,
    name: *const c_char,
) {
    let _ = BOUNDARY.call(function, |_| {
        // SAFETY: the caller's promise, here and below.
        let definition = unsafe { definition.as_mut() }.ok_or(ArgumentError::Null("the definition of the type"))?;
        let number = usize::try_from(id).ok();
        let field = number.and_then(|number| definition.field.get_mut(number)).ok_or(DefinitionError::Number(id))?;
        field.rank = 0;
        let kind = unsafe { kind.as_ref() }.ok_or(ArgumentError::Null("the type of the field"))?;
        let name = unsafe { text(name) }?.filter(|name| !name.is_empty());
        let refusal = DefinitionError::Rank { field: id, rank };
        let count = usize::try_from(rank).ok().filter(|count| (1..=MOST_DIMENSIONS).contains(count));
        let Some(count) = count.filter(|_| !lengths.is_null()) else { return Err(refusal.into()) };
        let lengths = unsafe { std::slice::from_raw_parts(lengths, count) };
        let checked = c_int::try_from(offset).map_err(|_| DefinitionError::Offset { field: id, offset })?;
        field.dimLength.iter_mut().zip(lengths).for_each(|(to, length)| *to = *length);
        set_name(&mut field.name, &name.unwrap_or_else(|| format!("T{id}")));
        (field.typeID, field.offset, field.rank) = (kind.id, checked, rank);
        check(id, field).inspect_err(|_| field.rank = 0)?;
        Ok::<_, FtiError>(())
    });
}

fn check(number: c_int, field: &FTIT_typeField) -> Result<(), DefinitionError> {
    let refusal = DefinitionError::Rank { field: number, rank: field.rank };
    let count = usize::try_from(field.rank).ok().filter(|count| (1..=MOST_DIMENSIONS).contains(count));
    let lengths = field.dimLength.iter().take(count.ok_or(refusal)?);
    match lengths.enumerate().find(|(_, length)| **length < 1) {
        Some((dimension, length)) => Err(DefinitionError::Length { field: number, dimension, length: *length }),
        None => Ok(()),
    }
}

/// Stores a name, shortened to the size of the buffer, with its NUL.
fn set_name(buffer: &mut [c_char; BUFFER], name: &str) {
    buffer.fill(0);
    let room = buffer.len() - 1;
    // Not `as`: the sign of `c_char` is that of the machine.
    let bytes = name.bytes().map(|byte| c_char::from_ne_bytes([byte]));
    buffer.iter_mut().take(room).zip(bytes).for_each(|(to, byte)| *to = byte);
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn long_names_are_shortened_and_end_with_nul() {
        let mut buffer = [1; BUFFER];
        set_name(&mut buffer, &"n".repeat(BUFFER + 1));
        // SAFETY: the buffer ends with NUL.
        let name = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        assert_eq!(name.count_bytes(), BUFFER - 1);
    }
}
