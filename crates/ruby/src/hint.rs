//! Hints for exceptions that are likely in a worker.

use crate::RubySource;

/// The hint after the loss of a worker.
pub(crate) const LOST_STATE: &str = "the Ruby worker was replaced: variables, methods, constants and loaded files of earlier evaluations are lost";

const NO_SKETCHUP: &str = "this Ruby runs outside of SketchUp: of its API only Sketchup.version and Sketchup.active_model (nil) exist";
const OWN_SCOPE: &str = "local variables last for one eval_ruby call; globals ($name), instance variables (@name), constants and methods stay";
const EXIT: &str =
    "the worker goes on: `exit` and `abort` only end the evaluation, and at_exit handlers do not run";
const MISSING_LIBRARY: &str = "is the file there, or the gem installed for the Ruby that runs the worker? See `RUBY_VERSION` and `Gem.path`";
const RECURSION: &str = "does a method call itself without end?";
const MEMORY: &str = "the worker's memory is limited; what it holds in globals and constants stays in memory";

/// The modules of the SketchUp API at the top level.
const SKETCHUP_NAMES: [&str; 6] = ["Sketchup", "UI", "Geom", "Layout", "Length", "SketchupExtension"];

/// The libraries that scripts require in SketchUp, in lower case.
const SKETCHUP_LIBRARIES: [&str; 4] = ["sketchup", "extensions", "langhandler", "su_dynamiccomponents"];

/// A hint for an exception of this class and message, raised by `source`.
pub(crate) fn for_exception(class: &str, message: &str, source: &RubySource) -> Option<String> {
    let is_snippet = matches!(source, RubySource::Snippet { .. });
    let text = match class {
        "SystemExit" => EXIT,
        "LoadError" if is_sketchup_library(message) => NO_SKETCHUP,
        "LoadError" => MISSING_LIBRARY,
        "SystemStackError" => RECURSION,
        "NoMemoryError" => MEMORY,
        "NameError" | "NoMethodError" if is_about_sketchup(message) => NO_SKETCHUP,
        "NameError" if is_snippet && message.starts_with("undefined local variable") => OWN_SCOPE,
        _ => return None,
    };
    Some(text.to_owned())
}

/// Whether the message is that of a `require` of a library that SketchUp has built in.
fn is_sketchup_library(message: &str) -> bool {
    let name = message.rsplit(" -- ").next().unwrap_or_default();
    SKETCHUP_LIBRARIES.contains(&name.trim_end_matches(".rb").to_ascii_lowercase().as_str())
}

fn is_about_sketchup(message: &str) -> bool {
    let names_constant = message.strip_prefix("uninitialized constant ").is_some_and(|constant| {
        constant
            .split_whitespace()
            .next()
            .is_some_and(|path| path.split("::").any(|name| SKETCHUP_NAMES.contains(&name)))
    });
    names_constant || message.ends_with("for Sketchup:Module") || message.ends_with("for module Sketchup")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(class: &str, message: &str) -> Option<String> {
        for_exception(class, message, &RubySource::Snippet { code: String::new() })
    }

    #[test]
    fn the_missing_api_is_explained_and_other_constants_are_not() {
        for message in [
            "uninitialized constant SupexRuntime::BridgeServer::UI",
            "uninitialized constant Geom",
            "uninitialized constant Sketchup::Color",
            "undefined method `find_support_file' for Sketchup:Module",
        ] {
            assert_eq!(hint("NameError", message).as_deref(), Some(NO_SKETCHUP), "{message}");
        }
        assert_eq!(hint("NameError", "uninitialized constant GUI"), None);
        assert_eq!(hint("ArgumentError", "uninitialized constant UI"), None);
    }

    #[test]
    fn a_library_of_sketchup_is_not_taken_for_a_missing_gem() {
        for name in ["sketchup.rb", "sketchup", "Sketchup.rb", "extensions.rb", "LangHandler"] {
            let message = format!("cannot load such file -- {name}");
            assert_eq!(hint("LoadError", &message).as_deref(), Some(NO_SKETCHUP), "{name}");
        }
        for name in ["nope_x", "my/sketchup", "sketchup_tools"] {
            let message = format!("cannot load such file -- {name}");
            assert_eq!(hint("LoadError", &message).as_deref(), Some(MISSING_LIBRARY), "{name}");
        }
    }

    #[test]
    fn the_scope_of_local_variables_is_explained_for_snippets_only() {
        let message = "undefined local variable or method `x' for main:Object";
        assert_eq!(hint("NameError", message).as_deref(), Some(OWN_SCOPE));
        let console = RubySource::Console { path: "0001.rb".into(), code: String::new() };
        assert_eq!(for_exception("NameError", message, &console), None);
    }
}
