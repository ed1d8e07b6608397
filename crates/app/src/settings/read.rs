//! Parses `parlor.toml` and checks each value against the table of settings.

use std::ops::Range;
use std::path::PathBuf;

use strsim::damerau_levenshtein;
use toml::de::{DeTable, DeValue};

use super::lookup;
use super::table::{Kind, MAX_DAYS, MAX_DOLLARS, MAX_LIMIT, MAX_SECONDS, NEVER, UNLIMITED};
use super::{SettingsError, size};

/// An error about an unknown name suggests a known name if their similarity, from 0 to 1, is at least this.
const MIN_SIMILARITY: f64 = 0.7;

/// The most changed, missing, additional or swapped letters of a mistyped name.
const TYPO_EDITS: usize = 2;

/// A name of this many letters for each such letter is a mistyped one. A shorter name, such as `mcp` beside `acp`, is
/// another word.
const LETTERS_PER_EDIT: usize = 4;

/// One setting in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    /// The names of the tables and of the setting, from the top of the file.
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    /// Counted from 1.
    pub(super) line: usize,
}

/// The checked value of a setting. The variants correspond to those of [`Kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    File(PathBuf),
    /// `None` means never.
    Days(Option<u64>),
    /// In bytes; `None` means unlimited.
    Size(Option<u64>),
    Seconds(u64),
    /// `None` means the default.
    NumberOrDefault(Option<u64>),
    /// `None` means unlimited.
    Limit(Option<u64>),
    /// In millionths of a dollar; `None` means unlimited.
    Money(Option<u64>),
    Flag(bool),
    List(Vec<String>),
    /// The members of each table.
    Rules(Vec<Vec<(String, String)>>),
}

/// All settings of a file.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) assignments: Vec<Assignment>,
    /// Names that are nearly those of settings, and values that settings do not take.
    pub(super) problems: Vec<SettingsError>,
    /// Names that are not like those of any setting: a newer parlor may know them.
    pub(super) unknown: Vec<SettingsError>,
}

/// Reads all settings of a file, also after a problem. Checks each value, but not how they fit together. Fails if the file
/// is not TOML.
pub(super) fn read(text: &str) -> Result<FileSettings, SettingsError> {
    let file = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, &span));
        SettingsError::at(line, error.message().trim_end())
    })?;
    let mut settings = FileSettings::default();
    Reader { text, settings: &mut settings }.table(&[], file.get_ref());
    settings.problems.sort_by_key(|problem| problem.line);
    settings.unknown.sort_by_key(|unknown| unknown.line);
    Ok(settings)
}

struct Reader<'a> {
    text: &'a str,
    settings: &'a mut FileSettings,
}

impl Reader<'_> {
    fn table(&mut self, path: &[&str], table: &DeTable<'_>) {
        let members = lookup::members(path).unwrap_or_default();
        for (name, value) in table {
            let line = line_of(self.text, &name.span());
            let name: &str = name.get_ref();
            let error = |message: String| SettingsError::at(line, message);
            if !members.contains(&name) && !members.contains(&"*") {
                let is_typo = members.iter().any(|member| is_typo(name, member));
                let list = if is_typo { &mut self.settings.problems } else { &mut self.settings.unknown };
                list.push(error(unknown_name(path, name, &members)));
                continue;
            }
            let path: Vec<&str> = path.iter().copied().chain([name]).collect();
            match (lookup::find(&path), value.get_ref()) {
                (Some(setting), value) => match check(setting.kind, value) {
                    Ok(value) => {
                        let path = path.iter().map(|name| (*name).to_owned()).collect();
                        self.settings.assignments.push(Assignment { path, value, line });
                    }
                    Err(message) => {
                        self.settings.problems.push(error(format!("{} {message}", path.join("."))));
                    }
                },
                (None, DeValue::Table(inner)) => self.table(&path, inner),
                (None, other) => {
                    let message = format!("{} is a table, not {}", path.join("."), describe(other));
                    self.settings.problems.push(error(message));
                }
            }
        }
    }
}

/// Checks a value against the kind of its setting. The error continues a sentence that starts with the setting's name.
fn check(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    let wrong_kind = || format!("takes {}, not {}", kind.description().replace('`', ""), describe(value));
    let text = || value.as_str().ok_or_else(wrong_kind);
    let positive = |max: u64| {
        let number = value.as_integer().ok_or_else(wrong_kind)?;
        let number = u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong_kind())?;
        if (1..=max).contains(&number) { Ok(number) } else { Err(wrong_kind()) }
    };
    match kind {
        Kind::Text => Ok(Value::Text(text()?.to_owned())),
        Kind::File => Ok(Value::File(PathBuf::from(text()?))),
        Kind::OneOf(accepted) => {
            let text = text()?;
            if accepted.contains(&text) { Ok(Value::Text(text.to_owned())) } else { Err(wrong_kind()) }
        }
        Kind::Days if value.as_str() == Some(NEVER) => Ok(Value::Days(None)),
        Kind::Days => Ok(Value::Days(Some(positive(MAX_DAYS)?))),
        Kind::Seconds => Ok(Value::Seconds(positive(MAX_SECONDS)?)),
        Kind::UpTo(max) => {
            let number = value.as_integer().ok_or_else(wrong_kind)?;
            let number = i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong_kind())?;
            match u64::try_from(number) {
                Err(_) | Ok(0) => Ok(Value::NumberOrDefault(None)),
                Ok(number) if number <= max => Ok(Value::NumberOrDefault(Some(number))),
                Ok(_) => Err(wrong_kind()),
            }
        }
        Kind::Limit | Kind::Budget if value.as_str() == Some(UNLIMITED) => {
            Ok(if kind == Kind::Limit { Value::Limit(None) } else { Value::Money(None) })
        }
        Kind::Limit => Ok(Value::Limit(Some(positive(MAX_LIMIT)?))),
        Kind::Dollars | Kind::Budget => {
            let number = match value {
                DeValue::Float(number) => number.as_str().replace('_', "").parse::<f64>().ok(),
                DeValue::Integer(number) => {
                    i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
                }
                DeValue::String(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => None,
            };
            let number =
                number.filter(|dollars| (0.0..=MAX_DOLLARS).contains(dollars)).ok_or_else(wrong_kind)?;
            Ok(Value::Money(Some((number * 1_000_000.0).round() as u64)))
        }
        Kind::Flag => value.as_bool().map(Value::Flag).ok_or_else(wrong_kind),
        Kind::List => {
            let DeValue::Array(items) = value else { return Err(wrong_kind()) };
            let text = |item: &DeValue<'_>| match item {
                DeValue::String(text) => Ok(text.clone().into_owned()),
                DeValue::Integer(number) => Ok(number.as_str().to_owned()),
                DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => {
                    Err(format!("takes {}, not one with {}", kind.description(), describe(item)))
                }
            };
            items.iter().map(|item| text(item.get_ref())).collect::<Result<_, _>>().map(Value::List)
        }
        Kind::Rules => {
            let DeValue::Array(items) = value else { return Err(wrong_kind()) };
            let rule = |item: &DeValue<'_>| -> Result<Vec<(String, String)>, String> {
                let DeValue::Table(members) = item else { return Err(wrong_kind()) };
                let member = |(name, value): (
                    &toml::Spanned<std::borrow::Cow<'_, str>>,
                    &toml::Spanned<DeValue<'_>>,
                )| {
                    let text = value.get_ref().as_str().ok_or_else(wrong_kind)?;
                    Ok((name.get_ref().clone().into_owned(), text.to_owned()))
                };
                members.iter().map(member).collect()
            };
            items.iter().map(|item| rule(item.get_ref())).collect::<Result<_, _>>().map(Value::Rules)
        }
        Kind::Size => match text()? {
            UNLIMITED => Ok(Value::Size(None)),
            text => size::parse(text)
                .map(Some)
                .map(Value::Size)
                .map_err(|message| format!("is not valid: {message}")),
        },
    }
}

/// A value as error messages quote it.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(_) => "a number with decimals".to_owned(),
        DeValue::Boolean(_) => "true or false".to_owned(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Whether `name` is `member` with a typing error, which is refused: it might have been meant to protect something. Parlor
/// ignores other unknown names with a warning, so that settings of a newer version do not prevent a downgrade.
fn is_typo(name: &str, member: &str) -> bool {
    damerau_levenshtein(name, member) <= TYPO_EDITS.min(name.chars().count() / LETTERS_PER_EDIT)
}

/// The error about a name that is not in the table of settings.
fn unknown_name(path: &[&str], name: &str, members: &[&'static str]) -> String {
    let within = if path.is_empty() { String::new() } else { format!(" in [{}]", path.join(".")) };
    let similarity = |member: &&&str| (strsim::jaro_winkler(name, member) * 1000.0) as u64;
    let nearest = members
        .iter()
        .max_by_key(similarity)
        .filter(|member| similarity(member) as f64 >= MIN_SIMILARITY * 1000.0);
    match nearest {
        Some(nearest) => format!("there is no setting {name:?}{within}; did you mean {nearest:?}?"),
        None => format!("there is no setting {name:?}{within}; there are: {}", members.join(", ")),
    }
}

/// The line on which a span begins, counted from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match read(text) {
            Ok(settings) => settings.problems.into_iter().next().unwrap().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_are_read_with_path_and_line() {
        let assignments = read("\n[retention]\ndays = 7\nmax_size = \"unlimited\"").unwrap().assignments;
        let path = |name: &str| vec!["retention".to_owned(), name.to_owned()];
        assert_eq!(assignments[0], Assignment { path: path("days"), value: Value::Days(Some(7)), line: 3 });
        assert_eq!(assignments[1], Assignment { path: path("max_size"), value: Value::Size(None), line: 4 });
    }

    #[test]
    fn an_error_about_a_mistyped_name_suggests_the_nearest_one() {
        assert_eq!(
            error("default_agnet = 1"),
            "line 1: there is no setting \"default_agnet\"; did you mean \"default_agent\"?"
        );
        assert_eq!(
            error("[agents.a]\nkind = \"local\"\nnmae = \"x\""),
            "line 3: there is no setting \"nmae\" in [agents.a]; did you mean \"name\"?"
        );
    }

    #[test]
    fn a_name_like_no_other_is_reported_and_not_refused() {
        let found =
            read("[bcp]\na = 1\n[retention]\nhistory_of_everything = 3\n[serve]\nallow_lokal = \"token\"")
                .unwrap();
        let unknown: Vec<String> = found.unknown.iter().map(ToString::to_string).collect();
        assert!(unknown[0].starts_with("line 1: there is no setting \"bcp\"; did you mean"));
        assert!(
            unknown[1].starts_with("line 4: there is no setting \"history_of_everything\" in [retention]")
        );
        assert_eq!(unknown.len(), 2);
        // A mistyped name might have been meant to protect something.
        assert_eq!(
            found.problems[0].to_string(),
            "line 6: there is no setting \"allow_lokal\" in [serve]; did you mean \"allow_local\"?"
        );
    }

    #[test]
    fn an_error_about_a_wrong_value_says_what_is_accepted() {
        let days = "takes a whole number from 1 to 36500, or \"never\", not";
        assert_eq!(error("retention.days = 0"), format!("line 1: retention.days {days} 0"));
        assert_eq!(error("retention.days = -3"), format!("line 1: retention.days {days} -3"));
        assert_eq!(error("retention.days = true"), format!("line 1: retention.days {days} true or false"));
        assert_eq!(
            error("channels.supex.eval_timeout = 86401"),
            "line 1: channels.supex.eval_timeout takes a whole number from 1 to 86400, not 86401"
        );
        assert_eq!(error("default_agent = [1]"), "line 1: default_agent takes text, not a list");
        assert_eq!(error("agents = 3"), "line 1: agents is a table, not 3");
        assert_eq!(
            error("agents.a.kind = \"modle\""),
            "line 1: agents.a.kind takes \"local\" or \"script\" or \"model\", not \"modle\""
        );
        assert!(error("retention.max_size = \"much\"").contains("10GiB"));
    }

    #[test]
    fn lists_flags_and_numbers_with_a_default_are_read() {
        let value = |text: &str| read(&format!("channels.supr.{text}")).unwrap().assignments.remove(0).value;
        assert_eq!(value("allow_from = [\"a\", 7]"), Value::List(vec!["a".to_owned(), "7".to_owned()]));
        assert_eq!(value("enabled = false"), Value::Flag(false));
        assert_eq!(value("ping_interval = 5"), Value::NumberOrDefault(Some(5)));
        assert_eq!(
            [value("ping_interval = 0"), value("ping_interval = -1")],
            [(); 2].map(|()| Value::NumberOrDefault(None))
        );
        assert_eq!(
            error("channels.supr.allow_hosts = [true]"),
            "line 1: channels.supr.allow_hosts takes a list of texts, not one with true or false"
        );
        assert_eq!(
            error("channels.supr.enabled = \"yes\""),
            "line 1: channels.supr.enabled takes true or false, not \"yes\""
        );
        assert!(error("channels.supr.max_connections = 100001").contains("up to 100000"));
    }

    #[test]
    fn invalid_toml_is_reported_with_its_line() {
        assert!(error("a = 1\nb = ").starts_with("line 2: "), "{}", error("a = 1\nb = "));
    }
}
