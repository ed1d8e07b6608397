//! The results of the bridge's tools, as they are on the wire.

use parlor_vocab::{RubyFailure, ToolOutput};
use serde::Serialize;

use super::RUNTIME_VERSION;

/// The result of the tool `ping`.
#[derive(Serialize)]
pub(super) struct ToolPing {
    success: bool,
    status: &'static str,
    message: &'static str,
    version: &'static str,
    sketchup_version: Option<&'static str>,
}

pub(super) const TOOL_PING: ToolPing = ToolPing {
    success: true,
    status: "connected",
    message: "SketchUp extension is running",
    version: RUNTIME_VERSION,
    sketchup_version: None,
};

/// A failure that is a result, not a JSON-RPC error.
#[derive(Serialize)]
pub(super) struct SoftFailure {
    success: bool,
    error: &'static str,
}

pub(super) const NO_PATH: SoftFailure = SoftFailure { success: false, error: "No file path provided" };

/// The result of `eval_ruby`.
#[derive(Serialize)]
pub(super) struct EvalResult<'a> {
    pub(super) success: bool,
    pub(super) result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
}

/// The result of `eval_ruby_file`.
#[derive(Serialize)]
pub(super) struct FileResult<'a> {
    pub(super) success: bool,
    pub(super) result: &'a str,
    pub(super) file_path: &'a str,
    pub(super) file_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
}

/// The result of `resources/list` without a SketchUp: no resources.
#[derive(Serialize)]
pub(super) struct Resources {
    pub(super) resources: [(); 0],
    pub(super) success: bool,
}

/// The result of `reload_extension`.
#[derive(Serialize)]
pub(super) struct Reloaded {
    success: bool,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Reloaded {
    pub(super) fn new(outcome: &Result<(), RubyFailure>) -> Self {
        match outcome {
            Ok(()) => Self { success: true, message: "Extension reloaded successfully", error: None },
            Err(failure) => {
                let error = Some(failure.message.clone());
                Self { success: false, message: "Extension reload failed", error }
            }
        }
    }
}

/// The result of `console_capture_status`.
#[derive(Serialize)]
pub(super) struct ConsoleStatus<'a> {
    success: bool,
    capturing: bool,
    log_file: Option<&'a str>,
    message: &'static str,
}

impl<'a> ConsoleStatus<'a> {
    pub(super) fn new(file: Option<&'a str>) -> Self {
        let message =
            if file.is_some() { "Console capture is active" } else { "Console capture is inactive" };
        Self { success: true, capturing: file.is_some(), log_file: file, message }
    }
}

/// The result of one of parlor's own tools.
#[derive(Serialize)]
pub(super) struct OwnResult<'a> {
    success: bool,
    result: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<OwnImage<'a>>,
}

#[derive(Serialize)]
pub(super) struct OwnImage<'a> {
    mime: &'a str,
    data: String,
}

impl<'a> OwnResult<'a> {
    pub(super) fn new(output: &'a ToolOutput) -> Self {
        let images = output.images.iter().map(|image| OwnImage {
            mime: &image.mime,
            data: base64_simd::STANDARD.encode_to_string(&image.bytes),
        });
        Self { success: true, result: &output.text, images: images.collect() }
    }
}
