//! The fields of a request, checked one after another: the first that is wrong is told.

use serde_json::value::RawValue;

use super::code::{self, FrameError};
use super::text::{string, trim};
use crate::json::Members;

/// The fields that some method reads. Of all others nothing is kept: there may be millions of them.
const FIELDS: &[&str] = &[
    "after",
    "api_key",
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
    /// Those that must be there.
    pub(crate) fn needed(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, FrameError> {
        let fields = params.and_then(|raw| members(raw, FIELDS)).ok_or_else(|| code::no_object(method))?;
        Ok(Self { method, fields })
    }

    /// Those that may be left out.
    pub(super) fn optional(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, FrameError> {
        match params.filter(|raw| raw.get() != "null") {
            None => Ok(Self { method, fields: Members::default() }),
            some => Self::needed(method, some),
        }
    }

    /// What a field holds, if it is there. The last one counts.
    pub(super) fn raw(&self, field: &str) -> Option<&'a RawValue> {
        debug_assert!(FIELDS.contains(&field), "{field} is not among the fields that are kept");
        self.fields.get(field)
    }

    /// What a field holds, unless that is null.
    fn given(&self, field: &str) -> Option<&'a RawValue> {
        self.raw(field).filter(|raw| raw.get() != "null")
    }

    /// A text that says something, trimmed.
    pub(super) fn text(&self, field: &'static str) -> Result<String, FrameError> {
        let text = self.raw(field).and_then(string);
        let text = text.map(|text| trim(&text).to_owned()).filter(|text| !text.is_empty());
        text.ok_or_else(|| code::wrong_field(self.method, field, "a non-empty string"))
    }

    /// A text, trimmed; a blank one is none.
    pub(super) fn maybe_text(&self, field: &'static str) -> Result<Option<String>, FrameError> {
        let Some(raw) = self.given(field) else { return Ok(None) };
        let text = string(raw).ok_or_else(|| code::wrong_field(self.method, field, "a string"))?;
        Ok(Some(trim(&text).to_owned()).filter(|text| !text.is_empty()))
    }

    /// True or false.
    pub(super) fn flag(&self, field: &'static str) -> Result<bool, FrameError> {
        match self.raw(field).map(RawValue::get) {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(code::wrong_field(self.method, field, "a boolean")),
        }
    }

    /// True, or false, which it is if it is not there.
    pub(super) fn maybe_flag(&self, field: &'static str) -> Result<bool, FrameError> {
        self.given(field).map_or(Ok(false), |_| self.flag(field))
    }

    /// A number.
    pub(super) fn maybe_number(&self, field: &'static str) -> Result<Option<f64>, FrameError> {
        let Some(raw) = self.given(field) else { return Ok(None) };
        let number = raw.get().parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Some).ok_or_else(|| code::wrong_field(self.method, field, "a finite number"))
    }
}

/// The members of `raw` with these names, if it is an object.
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
    fn only_an_object_has_fields() {
        for text in ["[]", "\"x\"", "false", "1"] {
            let raw = raw(text);
            for refused in [Params::needed("m", Some(&raw)), Params::optional("m", Some(&raw))] {
                assert_eq!(refused.unwrap_err(), code::no_object("m"), "{text}");
            }
        }
        let null = raw("null");
        assert!(Params::needed("m", Some(&null)).is_err() && Params::needed("m", None).is_err());
        assert!(Params::optional("m", Some(&null)).is_ok() && Params::optional("m", None).is_ok());
    }

    #[test]
    fn each_kind_of_field_takes_what_it_takes() {
        let raw = raw(
            r#"{"title":" ","text":" a ","mode":null,"strict":true,"limit":-1.5e1,"after":1e999,"text":"\u00a0b","images":[[]]}"#,
        );
        let params = Params::needed("m", Some(&raw)).unwrap();
        assert_eq!(params.text("text").unwrap(), "b");
        for field in ["title", "mode", "strict", "limit", "reason"] {
            assert!(params.text(field).is_err(), "{field}");
        }
        assert_eq!(params.maybe_text("title"), Ok(None));
        assert_eq!(params.maybe_text("mode"), Ok(None));
        assert!(params.maybe_text("strict").is_err() && params.maybe_text("images").is_err());
        assert_eq!(
            (params.flag("strict"), params.maybe_flag("mode"), params.maybe_flag("reason")),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(params.flag("mode").is_err() && params.maybe_flag("limit").is_err());
        assert_eq!((params.maybe_number("limit"), params.maybe_number("mode")), (Ok(Some(-15.0)), Ok(None)));
        assert!(params.maybe_number("after").is_err() && params.maybe_number("text").is_err());
    }
}
