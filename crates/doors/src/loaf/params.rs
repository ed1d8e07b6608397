//! The params of a request. Fields are checked one after another, and the first invalid one is reported.

use serde_json::value::RawValue;

use super::code::{self, FrameError};
use super::text::{string, trim};
use crate::json::Members;

/// The fields that some method reads. All others are dropped: there may be millions of them.
const FIELDS: &[&str] = &[
    "after",
    "api_key",
    "client_name",
    "compress_immediately",
    "cursor",
    "enqueue",
    "extensions",
    "id",
    "images",
    "last",
    "limit",
    "mode",
    "model_id",
    "openrouter_provider",
    "originator",
    "protocol_version",
    "provider",
    "raw_command",
    "reason",
    "rollout_path",
    "session_id",
    "strict",
    "super_debug",
    "text",
    "thinking_level",
    "title",
];

/// The fields of a request's params.
#[derive(Debug)]
pub(super) struct Params<'a> {
    method: &'a str,
    fields: Members<'a>,
}

impl<'a> Params<'a> {
    /// Params that must be an object.
    pub(crate) fn required(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, FrameError> {
        let fields =
            params.and_then(|raw| members(raw, FIELDS)).ok_or_else(|| code::params_not_an_object(method))?;
        Ok(Self { method, fields })
    }

    /// Params that must be an object, null or missing.
    pub(super) fn optional(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, FrameError> {
        match params.filter(|raw| raw.get() != "null") {
            None => Ok(Self { method, fields: Members::default() }),
            some => Self::required(method, some),
        }
    }

    /// The raw value of a field. If it stands twice, the last one counts.
    pub(super) fn raw(&self, field: &str) -> Option<&'a RawValue> {
        debug_assert!(FIELDS.contains(&field), "{field} is missing in FIELDS");
        self.fields.get(field)
    }

    /// The raw value of a field; `None` if it is null.
    fn non_null(&self, field: &str) -> Option<&'a RawValue> {
        self.raw(field).filter(|raw| raw.get() != "null")
    }

    /// A required string, trimmed; blank strings are refused.
    pub(super) fn text(&self, field: &'static str) -> Result<String, FrameError> {
        let text = self.raw(field).and_then(string);
        let text = text.map(|text| trim(&text).to_owned()).filter(|text| !text.is_empty());
        text.ok_or_else(|| code::wrong_field(self.method, field, "a non-empty string"))
    }

    /// An optional string, trimmed; a blank string counts as missing.
    pub(super) fn optional_text(&self, field: &'static str) -> Result<Option<String>, FrameError> {
        let Some(raw) = self.non_null(field) else { return Ok(None) };
        let text = string(raw).ok_or_else(|| code::wrong_field(self.method, field, "a string"))?;
        Ok(Some(trim(&text).to_owned()).filter(|text| !text.is_empty()))
    }

    /// A required boolean.
    pub(super) fn flag(&self, field: &'static str) -> Result<bool, FrameError> {
        match self.raw(field).map(RawValue::get) {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(code::wrong_field(self.method, field, "a boolean")),
        }
    }

    /// An optional boolean, by default false.
    pub(super) fn optional_flag(&self, field: &'static str) -> Result<bool, FrameError> {
        self.non_null(field).map_or(Ok(false), |_| self.flag(field))
    }

    /// An optional finite number.
    pub(super) fn optional_number(&self, field: &'static str) -> Result<Option<f64>, FrameError> {
        let Some(raw) = self.non_null(field) else { return Ok(None) };
        let number = raw.get().parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Some).ok_or_else(|| code::wrong_field(self.method, field, "a finite number"))
    }
}

/// The members of `raw` that have one of these names; `None` if it is not an object.
pub(super) fn members<'a>(raw: &'a RawValue, names: &[&'static str]) -> Option<Members<'a>> {
    raw.get().starts_with('{').then(|| Members::read(raw.get(), names).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn params_must_be_an_object() {
        for text in ["[]", "\"x\"", "false", "1"] {
            let raw = raw(text);
            for refused in [Params::required("m", Some(&raw)), Params::optional("m", Some(&raw))] {
                assert_eq!(refused.unwrap_err(), code::params_not_an_object("m"), "{text}");
            }
        }
        let null = raw("null");
        assert!(Params::required("m", Some(&null)).is_err() && Params::required("m", None).is_err());
        assert!(Params::optional("m", Some(&null)).is_ok() && Params::optional("m", None).is_ok());
    }

    #[test]
    fn each_type_of_field_accepts_its_values() {
        let raw = raw(
            r#"{"title":" ","text":" a ","mode":null,"strict":true,"limit":-1.5e1,"after":1e999,"text":"\u00a0b","images":[[]]}"#,
        );
        let params = Params::required("m", Some(&raw)).unwrap();
        assert_eq!(params.text("text").unwrap(), "b");
        for field in ["title", "mode", "strict", "limit", "reason"] {
            assert!(params.text(field).is_err(), "{field}");
        }
        assert_eq!(params.optional_text("title"), Ok(None));
        assert_eq!(params.optional_text("mode"), Ok(None));
        assert!(params.optional_text("strict").is_err() && params.optional_text("images").is_err());
        assert_eq!(
            (params.flag("strict"), params.optional_flag("mode"), params.optional_flag("reason")),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(params.flag("mode").is_err() && params.optional_flag("limit").is_err());
        assert_eq!(
            (params.optional_number("limit"), params.optional_number("mode")),
            (Ok(Some(-15.0)), Ok(None))
        );
        assert!(params.optional_number("after").is_err() && params.optional_number("text").is_err());
    }
}
