//! The attribute `#[test]` of the suites that run under the harness of `holdfast-testkit`.
//!
//! It has the name of the compiler's attribute so that a test is written the same way in every suite. Without a harness
//! the compiler drops its own `#[test]` functions without a message: a suite therefore brings this attribute into scope
//! for all its files, with `#[macro_use] extern crate holdfast_test_attribute`.

use proc_macro::{TokenStream, TokenTree};

/// Registers the function that follows as a test.
#[proc_macro_attribute]
pub fn test(_arguments: TokenStream, mut function: TokenStream) -> TokenStream {
    let mut tokens = function.clone().into_iter();
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident.to_string() == "fn");
    let name = tokens.find(is_fn).and_then(|_| tokens.next());
    let registration = match name {
        Some(name) => format!(
            "::holdfast_testkit::harness::inventory::submit! {{ \
                 ::holdfast_testkit::harness::Test::new(::core::module_path!(), \"{name}\", {name}) \
             }}"
        ),
        None => "::core::compile_error!(\"#[test] is for functions\");".to_owned(),
    };
    function.extend(registration.parse::<TokenStream>());
    function
}
