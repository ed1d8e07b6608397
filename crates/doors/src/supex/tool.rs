//! The tools of the bridge: which there are, what they take, and what a call of one asks for.

use parlor_vocab::{RubyJob, UpstreamCall};
use serde_json::value::RawValue;

use super::code::{Fault, FrameError, Side, of_flaw, path_refused};
use super::envelope::{is_truthy, string};
use crate::json::{Members, take_items};

/// A tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// What it does, for `tools/list`.
    pub(super) description: &'static str,
    pub(super) kind: Kind,
    /// What its errors begin with.
    pub(super) prefix: &'static str,
    pub(super) arguments: &'static [Argument],
}

/// What stands behind a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ping,
    Snippet,
    File,
    Reload,
    Console,
    Model,
}

/// What a call of a tool comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This is to be done.
    Job(RubyJob),
    /// To be told that the server is there.
    Pong,
    /// To be told where printed text is.
    Console,
    /// Nothing, before there is a path.
    Path,
}

/// An argument of a tool.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) takes: ArgumentType,
    pub(super) is_required: bool,
}

/// What an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentType {
    Text,
    /// A text that is a path.
    Path,
    /// A text that becomes a part of a file's name.
    Name,
    Number,
    Flag,
    List,
}

const fn optional(name: &'static str, takes: ArgumentType) -> Argument {
    Argument { name, takes, is_required: false }
}

const fn required(name: &'static str, takes: ArgumentType) -> Argument {
    Argument { name, takes, is_required: true }
}

const fn reading(name: &'static str, description: &'static str, prefix: &'static str) -> Tool {
    Tool { name, description, kind: Kind::Model, prefix, arguments: &[] }
}

/// All of them.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "ping",
        description: "Says that the server is there, and its version.",
        kind: Kind::Ping,
        prefix: "",
        arguments: &[],
    },
    Tool {
        name: "eval_ruby",
        description: "Evaluates Ruby code and gives the value as text. Local variables end with the call; globals, constants, methods and instance variables stay.",
        kind: Kind::Snippet,
        prefix: "",
        arguments: &[required("code", ArgumentType::Text)],
    },
    Tool {
        name: "eval_ruby_file",
        description: "Evaluates a Ruby file at the top level and gives the value as text.",
        kind: Kind::File,
        prefix: "",
        arguments: &[required("file_path", ArgumentType::Path)],
    },
    Tool {
        name: "reload_extension",
        description: "Begins with a fresh Ruby: all that was defined is gone.",
        kind: Kind::Reload,
        prefix: "",
        arguments: &[],
    },
    Tool {
        name: "console_capture_status",
        description: "Says which file has what evaluated code prints.",
        kind: Kind::Console,
        prefix: "",
        arguments: &[],
    },
    reading("get_model_info", "Tells the model's title, units and counts.", "Failed to get model info: "),
    Tool {
        name: "list_entities",
        description: "Lists the model's entities: all, faces, edges, groups or components.",
        kind: Kind::Model,
        prefix: "Failed to list entities: ",
        arguments: &[optional("entity_type", ArgumentType::Text)],
    },
    reading("get_selection", "Lists what is selected.", "Failed to get selection: "),
    reading("get_layers", "Lists the layers.", "Failed to get layers: "),
    reading("get_materials", "Lists the materials.", "Failed to get materials: "),
    reading("get_camera_info", "Tells where the camera is.", "Failed to get camera info: "),
    Tool {
        name: "take_screenshot",
        description: "Writes what the camera sees into a file.",
        kind: Kind::Model,
        prefix: "Failed to take screenshot: ",
        arguments: &[
            optional("width", ArgumentType::Number),
            optional("height", ArgumentType::Number),
            optional("transparent", ArgumentType::Flag),
            optional("output_path", ArgumentType::Path),
        ],
    },
    Tool {
        name: "take_batch_screenshots",
        description: "Writes several views of the model into files.",
        kind: Kind::Model,
        prefix: "Failed to take batch screenshots: ",
        arguments: &[
            optional("shots", ArgumentType::List),
            optional("output_dir", ArgumentType::Path),
            optional("base_name", ArgumentType::Name),
            optional("width", ArgumentType::Number),
            optional("height", ArgumentType::Number),
            optional("transparent", ArgumentType::Flag),
            optional("restore_camera", ArgumentType::Flag),
        ],
    },
    Tool {
        name: "open_model",
        description: "Opens a model file.",
        kind: Kind::Model,
        prefix: "Failed to open model: ",
        // Clients know its absence as a result that says so.
        arguments: &[optional("path", ArgumentType::Path)],
    },
    Tool {
        name: "save_model",
        description: "Saves the model, to another file if a path is given.",
        kind: Kind::Model,
        prefix: "Failed to save model: ",
        arguments: &[optional("path", ArgumentType::Path)],
    },
    Tool {
        name: "export_scene",
        description: "Exports the model as skp, obj, stl, png, jpg or jpeg.",
        kind: Kind::Model,
        prefix: "",
        arguments: &[
            optional("format", ArgumentType::Text),
            optional("width", ArgumentType::Number),
            optional("height", ArgumentType::Number),
        ],
    },
];

/// The formats of `export_scene`, in lower case.
const EXPORT_FORMATS: [&str; 6] = ["skp", "obj", "stl", "png", "jpg", "jpeg"];

/// The tool of that name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The arguments of a call as text: `{}` where there are none.
pub(super) fn arguments_text(raw: Option<&RawValue>) -> Result<&str, FrameError> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok("{}"),
        Some(text) if text.starts_with('{') => Ok(text),
        Some(_) => Err(FrameError::BadParams("Invalid params: arguments must be an object".to_owned())),
    }
}

impl Tool {
    /// What a call with these arguments wants.
    pub(super) fn wants(&'static self, arguments: &str) -> Result<Wanted, Fault> {
        let bad = |what: String| of_flaw(FrameError::BadParams(what), Side::Bridge);
        let names: Vec<&str> = self.arguments.iter().map(|argument| argument.name).collect();
        let members =
            Members::read(arguments, &names).map_err(|error| bad(format!("Invalid params: {error}")))?;
        for argument in self.arguments {
            let given = members.get(argument.name).filter(|value| value.get() != "null");
            match given {
                Some(value) if argument.takes.fits(value) => {}
                Some(_) if argument.name != "code" => {
                    let (name, kind) = (argument.name, argument.takes.in_words());
                    return Err(bad(format!("Invalid params: {name} must be {kind}")));
                }
                None if !argument.is_required => {}
                Some(_) | None => return Err(bad(format!("Missing {} parameter", argument.name))),
            }
        }
        let text = |name: &str| members.get(name).and_then(string).unwrap_or_default();
        Ok(Wanted::Job(match self.kind {
            Kind::Ping => return Ok(Wanted::Pong),
            Kind::Console => return Ok(Wanted::Console),
            Kind::Snippet => RubyJob::Snippet { code: text("code") },
            Kind::File => RubyJob::File { path: text("file_path") },
            Kind::Reload => RubyJob::ReplaceRuby,
            Kind::Model => {
                self.check_format(&members).map_err(bad)?;
                self.check_names(&members)?;
                let paths = self.arguments.iter().filter(|argument| argument.takes == ArgumentType::Path);
                let paths: Vec<String> =
                    paths.filter_map(|argument| members.get(argument.name).and_then(string)).collect();
                if self.name == "open_model" && paths.is_empty() {
                    return Ok(Wanted::Path);
                }
                RubyJob::Upstream(UpstreamCall { tool: self.name, arguments: arguments.to_owned(), paths })
            }
        }))
    }

    fn check_format(&self, members: &Members<'_>) -> Result<(), String> {
        let Some(format) = members.get("format").and_then(string) else { return Ok(()) };
        let is_known = EXPORT_FORMATS.contains(&format.to_ascii_lowercase().as_str());
        if self.name != "export_scene" || is_known {
            return Ok(());
        }
        Err(format!("Unsupported export format: {format}"))
    }

    /// Names become parts of files in a folder that was checked, so none may lead out of it.
    fn check_names(&'static self, members: &Members<'_>) -> Result<(), Fault> {
        let mut refused = None;
        let mut is_right = |name: &str| {
            // A name that is no text is written as one.
            let name = serde_json::from_str(name).unwrap_or_else(|_| name.to_owned());
            if name.contains(['/', '\\', '\0']) {
                refused = Some(path_refused(self, &name));
            }
            refused.is_none()
        };
        let base = members.get("base_name").is_none_or(|name| is_right(name.get()));
        if let Some(shots) = members.get("shots").filter(|_| base) {
            take_items(shots.get(), |shot| {
                let members = Members::read(shot.get(), &["name"]).ok();
                let name = members.and_then(|members| members.get("name")).filter(|name| is_truthy(name));
                name.is_none_or(|name| is_right(name.get()))
            });
        }
        refused.map_or(Ok(()), Err)
    }
}

impl ArgumentType {
    fn fits(self, raw: &RawValue) -> bool {
        let first = raw.get().bytes().next().unwrap_or_default();
        match self {
            Self::Text | Self::Path | Self::Name => first == b'"',
            Self::Number => first == b'-' || first.is_ascii_digit(),
            Self::Flag => matches!(first, b't' | b'f'),
            Self::List => first == b'[',
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Text | Self::Path | Self::Name => "a string",
            Self::Number => "a number",
            Self::Flag => "true or false",
            Self::List => "an array",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(name: &str, arguments: &str) -> (i64, String) {
        let fault = find(name).unwrap().wants(arguments).unwrap_err();
        (fault.code, fault.message)
    }

    #[test]
    fn arguments_are_checked_for_what_they_are() {
        assert_eq!(fault("eval_ruby", "{}"), (-32602, "Missing code parameter".to_owned()));
        assert_eq!(fault("eval_ruby", r#"{"code":5}"#).1, "Missing code parameter");
        assert_eq!(fault("eval_ruby_file", "{}").1, "Missing file_path parameter");
        assert_eq!(fault("take_screenshot", r#"{"width":"x"}"#).1, "Invalid params: width must be a number");
        assert_eq!(fault("save_model", r#"{"path":5}"#).1, "Invalid params: path must be a string");
        assert_eq!(fault("open_model", r#"{"path":5}"#).1, "Invalid params: path must be a string");
        assert_eq!(fault("export_scene", r#"{"format":"dae"}"#).1, "Unsupported export format: dae");
        assert!(find("export_scene").unwrap().wants(r#"{"format":"JPG"}"#).is_ok());
        assert!(find("take_screenshot").unwrap().wants(r#"{"output_path":null,"else":1}"#).is_ok());
    }

    #[test]
    fn a_model_is_opened_from_a_path_and_saved_without_one_too() {
        for none in ["{}", r#"{"path":null}"#] {
            assert_eq!(find("open_model").unwrap().wants(none).unwrap(), Wanted::Path);
            assert!(matches!(find("save_model").unwrap().wants(none).unwrap(), Wanted::Job(_)));
        }
    }

    #[test]
    fn paths_are_found_and_arguments_stay_as_they_were_written() {
        let work = find("take_batch_screenshots").unwrap().wants(r#"{"output_dir":"/a", "shots":[ ]}"#);
        let call = UpstreamCall {
            tool: "take_batch_screenshots",
            arguments: r#"{"output_dir":"/a", "shots":[ ]}"#.to_owned(),
            paths: vec!["/a".to_owned()],
        };
        assert_eq!(work.unwrap(), Wanted::Job(RubyJob::Upstream(call)));
    }

    #[test]
    fn names_of_shots_stay_in_their_folder() {
        for arguments in [
            r#"{"base_name":"../../x"}"#,
            r#"{"shots":[{"name":"a"},{"name":"../b"}]}"#,
            r#"{"shots":[{"name":"\u002e\u002e/b"}]}"#,
        ] {
            assert_eq!(fault("take_batch_screenshots", arguments).0, -32002, "{arguments}");
        }
        let plain = r#"{"base_name":"shot","shots":[{"name":"top"},{},5]}"#;
        assert!(find("take_batch_screenshots").unwrap().wants(plain).is_ok());
    }
}
