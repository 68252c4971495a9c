//! `SCR_Configf`: a function with a variable number of arguments, which only C can define (`configf.c`). A C function
//! that is linked into a Rust library is not exported by it, so that the exported one is a jump to it that leaves every
//! register as it is.

use std::arch::naked_asm;
use std::ffi::c_char;

unsafe extern "C" {
    fn holdfast_scr_configf(format: *const c_char, ...) -> *const c_char;
}

/// As printf, then as [`crate::SCR_Config`].
///
/// # Safety
/// `format` is null or a C string, and the arguments after it are those that it names.
// SAFETY (of the attribute): no other symbol of this name is linked. (Of the body): a tail jump leaves arguments, stack
// and return address as the caller made them, so that the C function finds what its own caller would have given it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn SCR_Configf(format: *const c_char) -> *const c_char {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("jmp {}", sym holdfast_scr_configf);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("b {}", sym holdfast_scr_configf);
    #[cfg(target_arch = "riscv64")]
    naked_asm!("tail {}", sym holdfast_scr_configf);
}
