//! `SCR_Configf`: a function with a variable number of arguments, which only C can define (`configf.c`). A Rust library
//! does not export C functions that are linked into it, so the exported function jumps to the C function and leaves
//! every register unchanged.

use std::arch::naked_asm;
use std::ffi::c_char;

unsafe extern "C" {
    fn holdfast_scr_configf(format: *const c_char, ...) -> *const c_char;
}

/// [`crate::SCR_Config`] with the arguments of printf.
///
/// # Safety
/// `format` is null or a C string, and the other arguments match it.
// SAFETY (of the attribute): no other symbol of this name is linked. (Of the body): a tail jump leaves arguments, stack
// and return address unchanged, so that the C function is called as if by the caller.
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
