//! The tools of the bridge: their names, descriptions and arguments, and the job of a call.

use parlor_vocab::{RubyJob, UpstreamCall};
use serde_json::value::RawValue;

use super::code::{FrameError, ReplyError, ServerKind, frame_error, path_refused};
use super::decode::{is_truthy, string};
use crate::json::{Members, for_each_item};

/// A tool of the bridge.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// The description in `tools/list`.
    pub(super) description: &'static str,
    pub(super) kind: ToolKind,
    /// What the tool's error texts begin with.
    pub(super) prefix: &'static str,
    pub(super) arguments: &'static [Argument],
}

/// What carries out a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    Ping,
    Snippet,
    File,
    Reload,
    Console,
    /// SketchUp's runtime does, because the tool is about the model.
    Model,
}

/// What the bridge does for a valid call of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolAction {
    /// Submit this job.
    Job(RubyJob),
    /// Report the file that has the printed text.
    ConsoleStatus,
    /// Answer that a path is required. Clients expect a result, not an error.
    PathMissing,
}

/// An argument of a tool.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) argument_type: ArgumentType,
    pub(super) is_required: bool,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentType {
    Text,
    /// A string that is the path of a file or folder.
    Path,
    /// A string that becomes a part of a file name.
    Name,
    Number,
    Flag,
    List,
}

const fn optional(name: &'static str, argument_type: ArgumentType) -> Argument {
    Argument { name, argument_type, is_required: false }
}

const fn required(name: &'static str, argument_type: ArgumentType) -> Argument {
    Argument { name, argument_type, is_required: true }
}

const fn model_query(name: &'static str, description: &'static str, prefix: &'static str) -> Tool {
    Tool { name, description, kind: ToolKind::Model, prefix, arguments: &[] }
}

/// All tools of the bridge, in the order of `tools/list`.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "ping",
        description: "Says that the server is there, and its version.",
        kind: ToolKind::Ping,
        prefix: "",
        arguments: &[],
    },
    Tool {
        name: "eval_ruby",
        description: "Evaluates Ruby code and gives the value as text. Local variables end with the call; globals, constants, methods and instance variables stay.",
        kind: ToolKind::Snippet,
        prefix: "",
        arguments: &[required("code", ArgumentType::Text)],
    },
    Tool {
        name: "eval_ruby_file",
        description: "Evaluates a Ruby file at the top level and gives the value as text.",
        kind: ToolKind::File,
        prefix: "",
        arguments: &[required("file_path", ArgumentType::Path)],
    },
    Tool {
        name: "reload_extension",
        description: "Begins with a fresh Ruby: all that was defined is gone.",
        kind: ToolKind::Reload,
        prefix: "",
        arguments: &[],
    },
    Tool {
        name: "console_capture_status",
        description: "Says which file has what evaluated code prints.",
        kind: ToolKind::Console,
        prefix: "",
        arguments: &[],
    },
    model_query("get_model_info", "Tells the model's title, units and counts.", "Failed to get model info: "),
    Tool {
        name: "list_entities",
        description: "Lists the model's entities: all, faces, edges, groups or components.",
        kind: ToolKind::Model,
        prefix: "Failed to list entities: ",
        arguments: &[optional("entity_type", ArgumentType::Text)],
    },
    model_query("get_selection", "Lists what is selected.", "Failed to get selection: "),
    model_query("get_layers", "Lists the layers.", "Failed to get layers: "),
    model_query("get_materials", "Lists the materials.", "Failed to get materials: "),
    model_query("get_camera_info", "Tells where the camera is.", "Failed to get camera info: "),
    Tool {
        name: "take_screenshot",
        description: "Writes what the camera sees into a file.",
        kind: ToolKind::Model,
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
        kind: ToolKind::Model,
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
        kind: ToolKind::Model,
        prefix: "Failed to open model: ",
        // Not required: a missing path is `ToolAction::PathMissing`.
        arguments: &[optional("path", ArgumentType::Path)],
    },
    Tool {
        name: "save_model",
        description: "Saves the model, to another file if a path is given.",
        kind: ToolKind::Model,
        prefix: "Failed to save model: ",
        arguments: &[optional("path", ArgumentType::Path)],
    },
    Tool {
        name: "export_scene",
        description: "Exports the model as skp, obj, stl, png, jpg or jpeg.",
        kind: ToolKind::Model,
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

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The arguments of a call as JSON text: `{}` if there are none.
pub(super) fn arguments_text(raw: Option<&RawValue>) -> Result<&str, FrameError> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok("{}"),
        Some(text) if text.starts_with('{') => Ok(text),
        Some(_) => Err(FrameError::InvalidParams("Invalid params: arguments must be an object".to_owned())),
    }
}

impl Tool {
    /// Checks the arguments of a call, and returns what the bridge does for it.
    pub(super) fn action(&'static self, arguments: &str) -> Result<ToolAction, ReplyError> {
        let invalid_params = |what: String| frame_error(FrameError::InvalidParams(what), ServerKind::Bridge);
        let names: Vec<&str> = self.arguments.iter().map(|argument| argument.name).collect();
        let members = Members::read(arguments, &names)
            .map_err(|error| invalid_params(format!("Invalid params: {error}")))?;
        for argument in self.arguments {
            let value = members.get(argument.name).filter(|value| value.get() != "null");
            match value {
                Some(value) if argument.argument_type.accepts(value) => {}
                Some(_) if argument.name != "code" => {
                    let (name, kind) = (argument.name, argument.argument_type.type_name());
                    return Err(invalid_params(format!("Invalid params: {name} must be {kind}")));
                }
                None if !argument.is_required => {}
                Some(_) | None => return Err(invalid_params(format!("Missing {} parameter", argument.name))),
            }
        }
        let text = |name: &str| members.get(name).and_then(string).unwrap_or_default();
        Ok(ToolAction::Job(match self.kind {
            ToolKind::Ping => RubyJob::PingUpstream,
            ToolKind::Console => return Ok(ToolAction::ConsoleStatus),
            ToolKind::Snippet => RubyJob::Snippet { code: text("code") },
            ToolKind::File => RubyJob::File { path: text("file_path") },
            ToolKind::Reload => RubyJob::RestartRuby,
            ToolKind::Model => {
                self.check_format(&members).map_err(invalid_params)?;
                self.check_names(&members)?;
                let paths =
                    self.arguments.iter().filter(|argument| argument.argument_type == ArgumentType::Path);
                let paths: Vec<String> =
                    paths.filter_map(|argument| members.get(argument.name).and_then(string)).collect();
                if self.name == "open_model" && paths.is_empty() {
                    return Ok(ToolAction::PathMissing);
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

    /// Checks names that become parts of file names: none may lead out of the folder, which was checked before.
    fn check_names(&'static self, members: &Members<'_>) -> Result<(), ReplyError> {
        let mut refused = None;
        let mut is_valid = |name: &str| {
            // SketchUp converts a name that is not a string into one.
            let name = serde_json::from_str(name).unwrap_or_else(|_| name.to_owned());
            if name.contains(['/', '\\', '\0']) {
                refused = Some(path_refused(self, &name));
            }
            refused.is_none()
        };
        let base = members.get("base_name").is_none_or(|name| is_valid(name.get()));
        if let Some(shots) = members.get("shots").filter(|_| base) {
            for_each_item(shots.get(), |shot| {
                let members = Members::read(shot.get(), &["name"]).ok();
                let name = members.and_then(|members| members.get("name")).filter(|name| is_truthy(name));
                name.is_none_or(|name| is_valid(name.get()))
            });
        }
        refused.map_or(Ok(()), Err)
    }
}

impl ArgumentType {
    fn accepts(self, raw: &RawValue) -> bool {
        let first = raw.get().bytes().next().unwrap_or_default();
        match self {
            Self::Text | Self::Path | Self::Name => first == b'"',
            Self::Number => first == b'-' || first.is_ascii_digit(),
            Self::Flag => matches!(first, b't' | b'f'),
            Self::List => first == b'[',
        }
    }

    fn type_name(self) -> &'static str {
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

    fn error(name: &str, arguments: &str) -> (i64, String) {
        let error = find(name).unwrap().action(arguments).unwrap_err();
        (error.code, error.message)
    }

    #[test]
    fn arguments_are_checked_by_their_types() {
        assert_eq!(error("eval_ruby", "{}"), (-32602, "Missing code parameter".to_owned()));
        assert_eq!(error("eval_ruby", r#"{"code":5}"#).1, "Missing code parameter");
        assert_eq!(error("eval_ruby_file", "{}").1, "Missing file_path parameter");
        assert_eq!(error("take_screenshot", r#"{"width":"x"}"#).1, "Invalid params: width must be a number");
        assert_eq!(error("save_model", r#"{"path":5}"#).1, "Invalid params: path must be a string");
        assert_eq!(error("open_model", r#"{"path":5}"#).1, "Invalid params: path must be a string");
        assert_eq!(error("export_scene", r#"{"format":"dae"}"#).1, "Unsupported export format: dae");
        assert!(find("export_scene").unwrap().action(r#"{"format":"JPG"}"#).is_ok());
        assert!(find("take_screenshot").unwrap().action(r#"{"output_path":null,"else":1}"#).is_ok());
    }

    #[test]
    fn open_model_needs_a_path_and_save_model_does_not() {
        for none in ["{}", r#"{"path":null}"#] {
            assert_eq!(find("open_model").unwrap().action(none).unwrap(), ToolAction::PathMissing);
            assert!(matches!(find("save_model").unwrap().action(none).unwrap(), ToolAction::Job(_)));
        }
    }

    #[test]
    fn paths_are_extracted_and_arguments_stay_as_written() {
        let action = find("take_batch_screenshots").unwrap().action(r#"{"output_dir":"/a", "shots":[ ]}"#);
        let call = UpstreamCall {
            tool: "take_batch_screenshots",
            arguments: r#"{"output_dir":"/a", "shots":[ ]}"#.to_owned(),
            paths: vec!["/a".to_owned()],
        };
        assert_eq!(action.unwrap(), ToolAction::Job(RubyJob::Upstream(call)));
    }

    #[test]
    fn names_of_screenshots_cannot_leave_their_folder() {
        for arguments in [
            r#"{"base_name":"../../x"}"#,
            r#"{"shots":[{"name":"a"},{"name":"../b"}]}"#,
            r#"{"shots":[{"name":"\u002e\u002e/b"}]}"#,
        ] {
            assert_eq!(error("take_batch_screenshots", arguments).0, -32002, "{arguments}");
        }
        let plain = r#"{"base_name":"shot","shots":[{"name":"top"},{},5]}"#;
        assert!(find("take_batch_screenshots").unwrap().action(plain).is_ok());
    }
}
