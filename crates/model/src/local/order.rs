//! What a message asks the local agent to do.

use std::time::Duration;

use crate::MAX_WAIT;

/// How each order is written, and what it does.
pub(super) const ORDERS: [(&str, &str); 8] = [
    ("!CMD", "runs CMD through the shell tool"),
    ("/say TEXT", "streams TEXT word by word"),
    ("/think TEXT", "reasons TEXT, then answers"),
    ("/wait SECONDS", "streams a tick every 100 ms, for at most 600 seconds"),
    ("/read PATH", "reads a file through the read_file tool"),
    ("/ruby CODE", "runs CODE through the ruby tool"),
    ("/fail TEXT", "fails the run with TEXT"),
    ("/help", "lists all of this"),
];

/// A message, understood.
#[derive(Debug, PartialEq)]
pub(super) enum Order<'a> {
    /// Run this command.
    Shell(&'a str),
    /// Say this.
    Say(&'a str),
    /// Think this.
    Think(&'a str),
    /// Wait so long.
    Wait(Duration),
    /// Read this file.
    Read(&'a str),
    /// Run this Ruby code.
    Ruby(&'a str),
    /// Fail with this; perhaps with no words at all.
    Fail(&'a str),
    /// List the orders.
    Help,
    /// An order, but not in the form it needs: how it is written, and what is missing.
    Misused(&'static str, String),
    /// Written like an order, but there is none of this name.
    Unknown(&'a str),
    /// Not an order.
    Talk,
}

impl<'a> Order<'a> {
    /// Understands `message`. Space before an order does not matter. What follows one space after
    /// the order's name is its text, as it stands; paths, numbers and code are trimmed.
    pub(super) fn parse(message: &'a str) -> Self {
        let message = message.trim_start();
        if let Some(command) = message.strip_prefix('!') {
            return with_text("!CMD", command.trim(), Self::Shell);
        }
        let (word, text) = message.split_once(char::is_whitespace).unwrap_or((message, ""));
        match word {
            "/say" => with_text("/say TEXT", text, Self::Say),
            "/think" => with_text("/think TEXT", text, Self::Think),
            "/wait" => wait(text.trim()),
            "/read" => with_text("/read PATH", text.trim(), Self::Read),
            "/ruby" => with_text("/ruby CODE", text.trim(), Self::Ruby),
            "/fail" => Self::Fail(text),
            "/help" => Self::Help,
            _ if is_order_name(word) => Self::Unknown(word),
            _ => Self::Talk,
        }
    }
}

fn with_text<'a>(usage: &'static str, text: &'a str, order: fn(&'a str) -> Order<'a>) -> Order<'a> {
    if text.is_empty() { Order::Misused(usage, "something is missing".to_owned()) } else { order(text) }
}

fn wait(seconds: &str) -> Order<'_> {
    let duration = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match duration {
        Some(duration) if duration <= MAX_WAIT => Order::Wait(duration),
        Some(_) | None => Order::Misused(
            "/wait SECONDS",
            format!("SECONDS is a number from 0 to {}, such as 2 or 0.5", MAX_WAIT.as_secs()),
        ),
    }
}

/// Whether `word` is a slash and a name. A path such as `/etc/hosts` begins an ordinary message.
fn is_order_name(word: &str) -> bool {
    word.strip_prefix('/').is_some_and(|name| {
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_order_is_understood() {
        for (usage, _) in ORDERS {
            let order = Order::parse(usage);
            assert!(!matches!(order, Order::Unknown(_) | Order::Talk), "{usage}: {order:?}");
        }
    }

    #[test]
    fn texts_are_taken_as_they_stand() {
        assert_eq!(Order::parse("/say  two\n "), Order::Say(" two\n "));
        assert_eq!(Order::parse("/say\nline"), Order::Say("line"));
        assert_eq!(Order::parse(" /think  "), Order::Think(" "));
        assert_eq!(Order::parse("/fail "), Order::Fail(""));
    }

    #[test]
    fn paths_and_code_are_trimmed() {
        assert_eq!(Order::parse("! ls -l\necho 2\n"), Order::Shell("ls -l\necho 2"));
        assert_eq!(Order::parse("/read  a b.txt "), Order::Read("a b.txt"));
        assert_eq!(Order::parse("/ruby 1 + 1\n"), Order::Ruby("1 + 1"));
    }

    #[test]
    fn seconds_have_decimals_and_a_maximum() {
        assert_eq!(Order::parse("/wait 0.25"), Order::Wait(Duration::from_millis(250)));
        assert_eq!(Order::parse("/wait 0"), Order::Wait(Duration::ZERO));
        assert_eq!(Order::parse("/wait 600"), Order::Wait(MAX_WAIT));
        for wrong in ["600.001", "1e300", "-1", "nan", "inf", "soon", "", "1 2"] {
            let order = format!("/wait {wrong}");
            assert!(matches!(Order::parse(&order), Order::Misused("/wait SECONDS", _)), "{order}");
        }
    }

    #[test]
    fn an_order_without_what_it_needs_is_misused() {
        for (message, usage) in [
            ("!", "!CMD"),
            ("! \n", "!CMD"),
            ("/say", "/say TEXT"),
            ("/say ", "/say TEXT"),
            ("/think", "/think TEXT"),
        ] {
            assert!(matches!(Order::parse(message), Order::Misused(u, _) if u == usage), "{message:?}");
        }
        assert!(matches!(Order::parse("/read  "), Order::Misused("/read PATH", _)));
        assert!(matches!(Order::parse("/ruby"), Order::Misused("/ruby CODE", _)));
    }

    #[test]
    fn a_slash_and_a_name_is_an_order_and_a_path_is_not() {
        assert_eq!(Order::parse("/deploy now"), Order::Unknown("/deploy"));
        assert_eq!(Order::parse("/sayings"), Order::Unknown("/sayings"));
        for talk in ["/etc/hosts", "/", "/ say", "//", "hello /say", "", " "] {
            assert_eq!(Order::parse(talk), Order::Talk, "{talk:?}");
        }
    }
}
