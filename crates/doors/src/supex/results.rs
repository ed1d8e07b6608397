//! The results of the bridge's tools, as they are on the wire.

use std::borrow::Cow;

use parlor_vocab::{RubyFailure, ToolOutput};
use serde::Serialize;

use super::RUNTIME_VERSION;
use super::decode::string;
use crate::json::Members;

/// The result of the tool `ping`. A SketchUp that cannot be reached is an error instead, because clients show the message
/// of an error and not that of a result.
#[derive(Serialize)]
pub(super) struct ToolPing {
    success: bool,
    status: &'static str,
    message: &'static str,
    version: Cow<'static, str>,
    sketchup_version: Option<String>,
    /// The state of the SketchUp that calls are forwarded to, if the settings name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'static str>,
}

impl ToolPing {
    /// The settings name no SketchUp. The message is the one that clients of the runtime know.
    pub(super) fn without_upstream() -> Self {
        Self {
            success: true,
            status: "connected",
            message: "SketchUp extension is running",
            version: RUNTIME_VERSION.into(),
            sketchup_version: None,
            upstream: None,
        }
    }

    /// SketchUp has answered its ping with `pong`, a JSON object.
    pub(super) fn of_upstream(pong: &str) -> Self {
        let members = Members::read(pong, &["version", "sketchup_version"]).unwrap_or_default();
        let text = |name: &str| members.get(name).and_then(string);
        Self {
            version: text("version").map_or(RUNTIME_VERSION.into(), Cow::Owned),
            sketchup_version: text("sketchup_version"),
            upstream: Some("running"),
            ..Self::without_upstream()
        }
    }

    /// SketchUp runs a call, and answers no other one meanwhile.
    pub(super) fn of_busy_upstream() -> Self {
        Self {
            message: "SketchUp is busy with another call",
            upstream: Some("busy"),
            ..Self::without_upstream()
        }
    }
}

/// Tells that the state of earlier evaluations is lost.
pub(super) fn restart_notice(reason: &str) -> String {
    format!(
        "[Ruby was restarted before this evaluation ({reason}): variables, methods, constants and loaded files of \
         earlier evaluations are lost]"
    )
}

/// A value followed by a notice. Some clients pass on the text of the value and nothing else.
pub(super) fn with_notice<'a>(value: &'a str, notice: Option<&str>) -> Cow<'a, str> {
    match notice {
        Some(notice) => format!("{value}\n{notice}").into(),
        None => value.into(),
    }
}

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
    pub(super) result: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
    /// The notice at the end of `result`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restarted: Option<String>,
}

/// The result of `eval_ruby_file`.
#[derive(Serialize)]
pub(super) struct FileResult<'a> {
    pub(super) success: bool,
    pub(super) result: Cow<'a, str>,
    pub(super) file_path: &'a str,
    pub(super) file_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
    /// The notice at the end of `result`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restarted: Option<String>,
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
