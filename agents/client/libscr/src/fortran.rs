//! The Fortran functions: names in lower case with an underscore, arguments as [`holdfast_boundary::fortran`] describes
//! them, results in `ierror`.
//!
//! Safety of every `#[unsafe(no_mangle)]` here: the symbol is SCR's own, and a program links one SCR.

use std::ffi::{c_char, c_int};

use holdfast_boundary::fortran::{number, put, put_number, text};

use crate::boundary::{FAILURE, SUCCESS, code, code_if, code_or_exit};
use crate::session::SessionError;

macro_rules! forwarding {
    ($(fn $name:ident = $function:ident($($argument:ident: $type:ty => $value:expr),*);)*) => {$(
        #[doc = concat!("See [`crate::", stringify!($function), "`].")]
        ///
        /// # Safety
        /// The arguments are INTEGERs.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* ierror: *mut c_int) {
            // SAFETY: the caller's promise.
            unsafe { put_number(ierror, crate::$function($($value),*)) }
        }
    )*};
}

forwarding! {
    fn scr_init_ = SCR_Init();
    fn scr_finalize_ = SCR_Finalize();
    fn scr_should_exit_ = SCR_Should_exit(flag: *mut c_int => flag);
    fn scr_need_checkpoint_ = SCR_Need_checkpoint(flag: *mut c_int => flag);
    fn scr_start_checkpoint_ = SCR_Start_checkpoint();
    fn scr_complete_checkpoint_ = SCR_Complete_checkpoint(valid: *const c_int => number(valid));
    fn scr_complete_restart_ = SCR_Complete_restart(valid: *const c_int => number(valid));
    fn holdfast_rank_ = HOLDFAST_Rank(rank: *mut c_int => rank, ranks: *mut c_int => ranks);
    fn holdfast_restart_files_ = HOLDFAST_Restart_files(ranks: *mut c_int => ranks, files: *mut c_int => files);
}

macro_rules! naming {
    ($(fn $name:ident = $function:ident, $label:literal, $call:ident;)*) => {$(
        #[doc = concat!("See [`crate::", stringify!($function), "`].")]
        ///
        /// # Safety
        /// `name` is a CHARACTER of that length, `ierror` an INTEGER.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(name: *const c_char, ierror: *mut c_int, length: usize) {
            // SAFETY: the caller's promise, here and below.
            let result = code($label, |session| session.$call(&unsafe { text(name, length) }?));
            unsafe { put_number(ierror, result) }
        }
    )*};
}

naming! {
    fn scr_current_ = SCR_Current, "SCR_CURRENT", current;
    fn scr_drop_ = SCR_Drop, "SCR_DROP", drop_dataset;
    fn scr_delete_ = SCR_Delete, "SCR_DELETE", delete_dataset;
}

/// See [`crate::HOLDFAST_Restart_file`]; files are counted from 1.
///
/// # Safety
/// `index`, `rank` and `ierror` are INTEGERs, `name` is a CHARACTER of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_restart_file_(
    index: *const c_int,
    name: *mut c_char,
    rank: *mut c_int,
    ierror: *mut c_int,
    length: usize,
) {
    // SAFETY: the caller's promise, here and below.
    let result = code("HOLDFAST_RESTART_FILE", |session| {
        let file = session.restart_file(usize::try_from(unsafe { number(index) }).unwrap_or(0).wrapping_sub(1))?;
        unsafe { put(name, length, &file.name) }?;
        unsafe { put_number(rank, c_int::try_from(file.rank.0).unwrap_or(c_int::MAX)) };
        Ok(())
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Get_version`].
///
/// # Safety
/// `version` is a CHARACTER of that length, `ierror` an INTEGER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_get_version_(version: *mut c_char, ierror: *mut c_int, length: usize) {
    // SAFETY: the caller's promise; the version is a static C string.
    unsafe {
        let known = std::ffi::CStr::from_ptr(crate::SCR_Get_version()).to_string_lossy();
        let filled = put(version, length, &known);
        put_number(ierror, if filled.is_ok() { SUCCESS } else { FAILURE });
    }
}

/// See [`crate::SCR_Config`]; without a value, `value` is filled with blanks.
///
/// # Safety
/// `config` and `value` are CHARACTERs of those lengths, `ierror` an INTEGER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_config_(
    config: *const c_char,
    value: *mut c_char,
    ierror: *mut c_int,
    config_length: usize,
    value_length: usize,
) {
    // SAFETY: the caller's promise, here and below.
    let result = code("SCR_CONFIG", |session| {
        let found = session.config(&unsafe { text(config, config_length) }?)?;
        Ok(unsafe { put(value, value_length, found.as_deref().unwrap_or_default()) }?)
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Route_file`].
///
/// # Safety
/// `name` and `file` are CHARACTERs of those lengths, `ierror` an INTEGER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_route_file_(
    name: *const c_char,
    file: *mut c_char,
    ierror: *mut c_int,
    name_length: usize,
    file_length: usize,
) {
    // SAFETY: the caller's promise, here and below.
    let result = code_if("SCR_ROUTE_FILE", |session| {
        let Some(path) = session.route(&unsafe { text(name, name_length) }?)? else { return Ok(false) };
        let path = path.to_str().ok_or(SessionError::Argument("the path is not UTF-8"))?;
        unsafe { put(file, file_length, path) }?;
        Ok(true)
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Have_restart`].
///
/// # Safety
/// `flag` and `ierror` are INTEGERs, `name` is a CHARACTER of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_have_restart_(flag: *mut c_int, name: *mut c_char, ierror: *mut c_int, length: usize) {
    // SAFETY: the caller's promise, here and below.
    let result = code("SCR_HAVE_RESTART", |session| {
        unsafe { put_number(flag, 0) };
        if let Some(found) = session.have_restart()? {
            unsafe { put(name, length, &found) }?;
            unsafe { put_number(flag, 1) };
        }
        Ok(())
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Start_restart`].
///
/// # Safety
/// `name` is a CHARACTER of that length, `ierror` an INTEGER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_start_restart_(name: *mut c_char, ierror: *mut c_int, length: usize) {
    // SAFETY: the caller's promise, here and below.
    let result = code("SCR_START_RESTART", |session| {
        let restarted = session.start_restart()?;
        Ok(unsafe { put(name, length, &restarted) }?)
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Start_output`]; a blank name counts as no name.
///
/// # Safety
/// `name` is a CHARACTER of that length, `flags` and `ierror` are INTEGERs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_start_output_(
    name: *const c_char,
    flags: *const c_int,
    ierror: *mut c_int,
    length: usize,
) {
    // SAFETY: the caller's promise, here and below.
    let result = code("SCR_START_OUTPUT", |session| {
        let name = unsafe { text(name, length) }?;
        session.start_output(Some(name), unsafe { number(flags) })
    });
    unsafe { put_number(ierror, result) }
}

/// See [`crate::SCR_Complete_output`].
///
/// # Safety
/// `valid` and `ierror` are INTEGERs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scr_complete_output_(valid: *const c_int, ierror: *mut c_int) {
    // SAFETY: the caller's promise, here and below.
    let valid = unsafe { number(valid) };
    let result = code_or_exit("SCR_COMPLETE_OUTPUT", |session| session.complete(valid != 0, false));
    unsafe { put_number(ierror, result) }
}
