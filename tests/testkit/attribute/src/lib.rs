//! The attribute `#[test]` of the suites that run under the harness of `holdfast-testkit`.
//!
//! It has the name of the compiler's attribute so that a test is written the same way in every suite. Without a harness
//! the compiler drops its own `#[test]` functions without a message: a suite therefore brings this attribute into scope
//! for all its files, with `#[macro_use] extern crate holdfast_test_attribute`.
//!
//! A test may take its surroundings as a parameter: `#[test] fn name(world: &World)` gets `World::new()`,
//! `#[test(unchecked)] fn name(world: &World)` gets `World::unchecked()`, and `#[test(crate::cluster)]` that which this
//! function returns.

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Registers the function that follows as a test. The argument names what makes its parameter, if that is not `new`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, mut function: TokenStream) -> TokenStream {
    let mut tokens = function.clone().into_iter();
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident.to_string() == "fn");
    let name = tokens.find(is_fn).and_then(|_| tokens.next());
    let registration = match (name, tokens.next()) {
        (Some(name), Some(TokenTree::Group(parameters))) if parameters.delimiter() == Delimiter::Parenthesis => {
            let is_reference = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '&');
            let parameter = parameters.stream().into_iter().skip_while(|token| !is_reference(token)).skip(1);
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            let kind: TokenStream = parameter.take_while(|token| !is_comma(token)).collect();
            let run = match arguments.to_string() {
                _ if kind.is_empty() => name.to_string(),
                constructor if constructor.is_empty() => format!("|| {name}(&<{kind}>::new())"),
                function if function.contains("::") => format!("|| {name}(&{function}())"),
                constructor => format!("|| {name}(&<{kind}>::{constructor}())"),
            };
            format!(
                "::holdfast_testkit::harness::inventory::submit! {{ \
                     ::holdfast_testkit::harness::Test::new(::core::module_path!(), \"{name}\", {run}) \
                 }}"
            )
        }
        _ => "::core::compile_error!(\"#[test] is for functions\");".to_owned(),
    };
    function.extend(registration.parse::<TokenStream>());
    function
}
