//! From the text of `parlor.toml` to checked values, by the table of settings.

use std::ops::Range;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::table::{self, Kind, MAX_DAYS, MAX_DOLLARS, MAX_LIMIT, MAX_SECONDS, NEVER, UNLIMITED};
use super::{Flaw, size};

/// A name is close enough to be meant by another if it is so much like it, from 0 to 1.
const ALIKE: f64 = 0.7;

/// A value with the path it stands under.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    pub(super) line: usize,
}

/// What a setting is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    File(PathBuf),
    /// `None` is never.
    Days(Option<u64>),
    /// `None` is unlimited.
    Size(Option<u64>),
    Seconds(u64),
    /// `None` is the default.
    UpTo(Option<u64>),
    /// `None` is unlimited.
    Limit(Option<u64>),
    /// In millionths of a dollar; `None` is unlimited.
    Money(Option<u64>),
    Flag(bool),
    List(Vec<String>),
}

/// All values of a file, each checked for itself.
pub(super) fn read(text: &str) -> Result<Vec<Found>, Flaw> {
    let file = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, &span));
        Flaw { line: Some(line), what: error.message().trim_end().to_owned() }
    })?;
    let mut found = Vec::new();
    Reader { text, found: &mut found }.table(&[], file.get_ref())?;
    Ok(found)
}

struct Reader<'a> {
    text: &'a str,
    found: &'a mut Vec<Found>,
}

impl Reader<'_> {
    fn table(&mut self, path: &[&str], table: &DeTable<'_>) -> Result<(), Flaw> {
        let members = table::members(path).unwrap_or_default();
        for (name, value) in table {
            let line = line_of(self.text, &name.span());
            let name: &str = name.get_ref();
            let flaw = |what: String| Flaw { line: Some(line), what };
            if !members.contains(&name) && !members.contains(&"*") {
                return Err(flaw(unknown(path, name, &members)));
            }
            let path: Vec<&str> = path.iter().copied().chain([name]).collect();
            match (table::find(&path), value.get_ref()) {
                (Some(setting), value) => {
                    let value = check(setting.kind, value)
                        .map_err(|why| flaw(format!("{} {why}", path.join("."))))?;
                    let path = path.iter().map(|name| (*name).to_owned()).collect();
                    self.found.push(Found { path, value, line });
                }
                (None, DeValue::Table(inner)) => self.table(&path, inner)?,
                (None, other) => {
                    return Err(flaw(format!("{} is a table, not {}", path.join("."), article(other))));
                }
            }
        }
        Ok(())
    }
}

fn check(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    let wrong = || format!("takes {}, not {}", kind.in_words().replace('`', ""), article(value));
    let text = || value.as_str().ok_or_else(wrong);
    let whole = |most: u64| {
        let number = value.as_integer().ok_or_else(wrong)?;
        let number = u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong())?;
        if (1..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
    };
    match kind {
        Kind::Text => Ok(Value::Text(text()?.to_owned())),
        Kind::File => Ok(Value::File(PathBuf::from(text()?))),
        Kind::Word(words) => {
            let word = text()?;
            if words.contains(&word) { Ok(Value::Text(word.to_owned())) } else { Err(wrong()) }
        }
        Kind::Days if value.as_str() == Some(NEVER) => Ok(Value::Days(None)),
        Kind::Days => Ok(Value::Days(Some(whole(MAX_DAYS)?))),
        Kind::Seconds => Ok(Value::Seconds(whole(MAX_SECONDS)?)),
        Kind::UpTo(most) => {
            let number = value.as_integer().ok_or_else(wrong)?;
            let number = i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong())?;
            match u64::try_from(number) {
                Err(_) | Ok(0) => Ok(Value::UpTo(None)),
                Ok(number) if number <= most => Ok(Value::UpTo(Some(number))),
                Ok(_) => Err(wrong()),
            }
        }
        Kind::Limit | Kind::Budget if value.as_str() == Some(UNLIMITED) => {
            Ok(if kind == Kind::Limit { Value::Limit(None) } else { Value::Money(None) })
        }
        Kind::Limit => Ok(Value::Limit(Some(whole(MAX_LIMIT)?))),
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
            let number = number.filter(|dollars| (0.0..=MAX_DOLLARS).contains(dollars)).ok_or_else(wrong)?;
            Ok(Value::Money(Some((number * 1_000_000.0).round() as u64)))
        }
        Kind::Flag => value.as_bool().map(Value::Flag).ok_or_else(wrong),
        Kind::List => {
            let DeValue::Array(items) = value else { return Err(wrong()) };
            let text = |item: &DeValue<'_>| match item {
                DeValue::String(text) => Ok(text.clone().into_owned()),
                DeValue::Integer(number) => Ok(number.as_str().to_owned()),
                DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => {
                    Err(format!("takes {}, not one with {}", kind.in_words(), article(item)))
                }
            };
            items.iter().map(|item| text(item.get_ref())).collect::<Result<_, _>>().map(Value::List)
        }
        Kind::Size => match text()? {
            UNLIMITED => Ok(Value::Size(None)),
            text => {
                size::parse(text).map(Some).map(Value::Size).map_err(|why| format!("is not right: {why}"))
            }
        },
    }
}

/// What a value is, in words.
fn article(value: &DeValue<'_>) -> String {
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

fn unknown(path: &[&str], name: &str, members: &[&'static str]) -> String {
    let within = if path.is_empty() { String::new() } else { format!(" in [{}]", path.join(".")) };
    let likeness = |member: &&&str| (strsim::jaro_winkler(name, member) * 1000.0) as u64;
    let nearest =
        members.iter().max_by_key(likeness).filter(|member| likeness(member) as f64 >= ALIKE * 1000.0);
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

    fn flaw(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn values_are_found_with_their_place() {
        let found = read("\n[retention]\ndays = 7\nmax_size = \"unlimited\"").unwrap();
        let path = |name: &str| vec!["retention".to_owned(), name.to_owned()];
        assert_eq!(found[0], Found { path: path("days"), value: Value::Days(Some(7)), line: 3 });
        assert_eq!(found[1], Found { path: path("max_size"), value: Value::Size(None), line: 4 });
    }

    #[test]
    fn a_mistyped_name_is_answered_with_the_nearest() {
        assert_eq!(
            flaw("default_agnet = 1"),
            "line 1: there is no setting \"default_agnet\"; did you mean \"default_agent\"?"
        );
        assert_eq!(
            flaw("[agents.a]\nkind = \"local\"\nnmae = \"x\""),
            "line 3: there is no setting \"nmae\" in [agents.a]; did you mean \"name\"?"
        );
        assert_eq!(
            flaw("[zzz]\n"),
            "line 1: there is no setting \"zzz\"; there are: default_agent, agents, auth, channels, \
             default_models, models, retention, secrets, serve, spending, tools"
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_answered_with_the_right_one() {
        let days = "takes a whole number from 1 to 36500, or \"never\", not";
        assert_eq!(flaw("retention.days = 0"), format!("line 1: retention.days {days} 0"));
        assert_eq!(flaw("retention.days = -3"), format!("line 1: retention.days {days} -3"));
        assert_eq!(flaw("retention.days = true"), format!("line 1: retention.days {days} true or false"));
        assert_eq!(
            flaw("channels.supex.eval_timeout = 86401"),
            "line 1: channels.supex.eval_timeout takes a whole number from 1 to 86400, not 86401"
        );
        assert_eq!(flaw("default_agent = [1]"), "line 1: default_agent takes text, not a list");
        assert_eq!(flaw("agents = 3"), "line 1: agents is a table, not 3");
        assert_eq!(
            flaw("agents.a.kind = \"modle\""),
            "line 1: agents.a.kind takes \"local\" or \"script\" or \"model\", not \"modle\""
        );
        assert!(flaw("retention.max_size = \"much\"").contains("10GiB"));
    }

    #[test]
    fn lists_flags_and_numbers_with_a_default_are_taken() {
        let value = |text: &str| read(&format!("channels.supr.{text}")).unwrap().remove(0).value;
        assert_eq!(value("allow_from = [\"a\", 7]"), Value::List(vec!["a".to_owned(), "7".to_owned()]));
        assert_eq!(value("enabled = false"), Value::Flag(false));
        assert_eq!(value("ping_interval = 5"), Value::UpTo(Some(5)));
        assert_eq!(
            [value("ping_interval = 0"), value("ping_interval = -1")],
            [(); 2].map(|()| Value::UpTo(None))
        );
        assert_eq!(
            flaw("channels.supr.allow_hosts = [true]"),
            "line 1: channels.supr.allow_hosts takes a list of texts, not one with true or false"
        );
        assert_eq!(
            flaw("channels.supr.enabled = \"yes\""),
            "line 1: channels.supr.enabled takes true or false, not \"yes\""
        );
        assert!(flaw("channels.supr.max_connections = 100001").contains("up to 100000"));
    }

    #[test]
    fn what_is_no_toml_says_where() {
        assert!(flaw("a = 1\nb = ").starts_with("line 2: "), "{}", flaw("a = 1\nb = "));
    }
}
