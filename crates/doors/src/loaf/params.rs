//! The fields of a request, checked one after another: the first that is wrong is told.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::code::{self, Flaw};
use super::text::{string, trim};

/// The fields of a request's params.
#[derive(Debug)]
pub(super) struct Params<'a> {
    method: &'a str,
    fields: Fields<'a>,
}

impl<'a> Params<'a> {
    /// Those that must be there.
    pub(super) fn needed(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, Flaw> {
        let fields = params.and_then(object).ok_or_else(|| code::no_object(method))?;
        Ok(Self { method, fields })
    }

    /// Those that may be left out.
    pub(super) fn optional(method: &'a str, params: Option<&'a RawValue>) -> Result<Self, Flaw> {
        match params.filter(|raw| raw.get() != "null") {
            None => Ok(Self { method, fields: Fields::default() }),
            some => Self::needed(method, some),
        }
    }

    /// What a field holds, if it is there. The last one counts.
    pub(super) fn raw(&self, field: &str) -> Option<&'a RawValue> {
        self.fields.0.iter().rev().find(|(name, _)| name == field).map(|(_, value)| *value)
    }

    /// What a field holds, unless that is null.
    fn given(&self, field: &str) -> Option<&'a RawValue> {
        self.raw(field).filter(|raw| raw.get() != "null")
    }

    /// A text that says something, trimmed.
    pub(super) fn text(&self, field: &'static str) -> Result<String, Flaw> {
        let text = self.raw(field).and_then(string);
        let text = text.map(|text| trim(&text).to_owned()).filter(|text| !text.is_empty());
        text.ok_or_else(|| code::wrong_field(self.method, field, "a non-empty string"))
    }

    /// A text, trimmed; a blank one is none.
    pub(super) fn maybe_text(&self, field: &'static str) -> Result<Option<String>, Flaw> {
        let Some(raw) = self.given(field) else { return Ok(None) };
        let text = string(raw).ok_or_else(|| code::wrong_field(self.method, field, "a string"))?;
        Ok(Some(trim(&text).to_owned()).filter(|text| !text.is_empty()))
    }

    /// True or false.
    pub(super) fn flag(&self, field: &'static str) -> Result<bool, Flaw> {
        match self.raw(field).map(RawValue::get) {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(code::wrong_field(self.method, field, "a boolean")),
        }
    }

    /// True, or false, which it is if it is not there.
    pub(super) fn maybe_flag(&self, field: &'static str) -> Result<bool, Flaw> {
        self.given(field).map_or(Ok(false), |_| self.flag(field))
    }

    /// A number.
    pub(super) fn maybe_number(&self, field: &'static str) -> Result<Option<f64>, Flaw> {
        let Some(raw) = self.given(field) else { return Ok(None) };
        let number = raw.get().parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Some).ok_or_else(|| code::wrong_field(self.method, field, "a finite number"))
    }
}

/// The members of `raw`, if it is an object.
pub(super) fn object(raw: &RawValue) -> Option<Fields<'_>> {
    raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()).ok())?
}

/// The members of an object, none of them looked at yet.
#[derive(Debug, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The string that a member holds, if it does.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        self.0.iter().rev().find(|(known, _)| known == name).and_then(|(_, raw)| string(raw))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
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
            r#"{"blank":" ","text":" a ","no":null,"yes":true,"n":-1.5e1,"big":1e999,"text":"\u00a0b","deep":[[]]}"#,
        );
        let params = Params::needed("m", Some(&raw)).unwrap();
        assert_eq!(params.text("text").unwrap(), "b");
        for field in ["blank", "no", "yes", "n", "gone"] {
            assert!(params.text(field).is_err(), "{field}");
        }
        assert_eq!(params.maybe_text("blank"), Ok(None));
        assert_eq!(params.maybe_text("no"), Ok(None));
        assert!(params.maybe_text("yes").is_err() && params.maybe_text("deep").is_err());
        assert_eq!(
            (params.flag("yes"), params.maybe_flag("no"), params.maybe_flag("gone")),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(params.flag("no").is_err() && params.maybe_flag("n").is_err());
        assert_eq!((params.maybe_number("n"), params.maybe_number("no")), (Ok(Some(-15.0)), Ok(None)));
        assert!(params.maybe_number("big").is_err() && params.maybe_number("text").is_err());
    }
}
