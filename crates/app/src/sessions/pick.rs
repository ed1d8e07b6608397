//! Finds the session that a command-line argument names: by its full id, or by a prefix that no other session shares.

use anyhow::bail;
use parlor_engine::{Sessions, is_visible};
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{SessionId, SessionRefusal};

use crate::text::truncate;
use crate::time::minute;

/// An error about an ambiguous prefix lists at most this many sessions.
const MAX_CANDIDATES: usize = 10;
/// Their titles are truncated to this many columns.
const TITLE_COLUMNS: usize = 40;

/// The length of a short id. In the ids that parlor generates this prefix is the creation time in milliseconds, so two
/// sessions hardly ever share it.
const SHORT_ID_CHARS: usize = 13;
/// The length of the ids that parlor generates.
const GENERATED_ID_CHARS: usize = 36;

/// The session that `text` names.
pub(crate) async fn pick_session(sessions: &Sessions, text: &str) -> anyhow::Result<SessionRecord> {
    if text.is_empty() {
        bail!(
            "the session id is empty; name a session by its id or the start of it (parlor sessions lists them)"
        );
    }
    match sessions.record(&SessionId::parse(text)?).await {
        Ok(record) => return Ok(record),
        Err(SessionRefusal::UnknownSession(_)) => {}
        Err(refusal) => return Err(refusal.into()),
    }
    let mut found = Vec::new();
    let mut more = 0;
    let mut request = PageRequest::first(MAX_PAGE);
    loop {
        let page = sessions.list(request).await?;
        for record in page.records.into_iter().filter(|record| record.id.as_str().starts_with(text)) {
            if found.len() < MAX_CANDIDATES {
                found.push(record);
            } else {
                more += 1;
            }
        }
        match page.next {
            Some(next) => request = PageRequest { after: Some(next), limit: MAX_PAGE },
            None => break,
        }
    }
    if found.len() > 1 {
        bail!("{}", ambiguous(text, &found, more));
    }
    match found.pop() {
        Some(record) => Ok(record),
        None => bail!("no session has an id that starts with {text:?}; parlor sessions lists all sessions"),
    }
}

/// The start of a generated id, which people can use in place of the full id. Other ids are truncated.
pub(crate) fn short_id(id: &SessionId) -> String {
    let id = truncate(&full_id(id), GENERATED_ID_CHARS);
    if id.chars().count() == GENERATED_ID_CHARS && id.is_ascii() {
        id.chars().take(SHORT_ID_CHARS).collect()
    } else {
        id
    }
}

/// The full id, safe to print. A client may have chosen an id with spaces or control characters: it is written as
/// `$'…'` with escapes, which bash and zsh read as the id.
pub(crate) fn full_id(id: &SessionId) -> String {
    let is_plain =
        |letter: char| is_visible(letter) && !letter.is_whitespace() && !matches!(letter, '\'' | '"' | '\\');
    if id.as_str().chars().all(is_plain) {
        return id.to_string();
    }
    let mut quoted = String::from("$'");
    for letter in id.as_str().chars() {
        match letter {
            '\'' | '\\' => quoted.extend(['\\', letter]),
            ' ' => quoted.push(letter),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if is_visible(letter) && !letter.is_whitespace() => quoted.push(letter),
            '\0'..='\x7f' => quoted.push_str(&format!("\\x{:02x}", u32::from(letter))),
            // All eight digits, since a letter that follows could be taken for another digit.
            _ => quoted.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    quoted + "'"
}

fn ambiguous(text: &str, found: &[SessionRecord], more: usize) -> String {
    let mut message =
        format!("the ids of {} sessions start with {text:?}; give more of the id:", found.len() + more);
    for record in found {
        let title = truncate(record.title.as_deref().unwrap_or("-"), TITLE_COLUMNS);
        let id = full_id(&record.id);
        message.push_str(&format!("\n  {id}  {}  {title}", minute(record.updated)));
    }
    if more > 0 {
        message.push_str(&format!("\n  and {more} more"));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printed_so_that_a_shell_reads_it_back() {
        let printed = |id: &str| full_id(&SessionId::parse(id).unwrap());
        assert_eq!(printed("größe-1_$x"), "größe-1_$x");
        for (id, expected) in [
            ("esc\x1b[31mred\x07", r"$'esc\x1b[31mred\x07'"),
            ("new\nline\tend\r", r"$'new\nline\tend\x0d'"),
            (" it's \\", r"$' it\'s \\'"),
            ("a\u{202e}b\u{9b}c\u{2028}\x7f", r"$'a\U0000202eb\U0000009bc\U00002028\x7f'"),
        ] {
            assert_eq!(printed(id), expected);
        }
        assert_eq!(short_id(&SessionId::parse("a\u{202e}b").unwrap()), r"$'a\U0000202eb'");
    }

    #[test]
    fn a_long_list_of_candidates_is_truncated_and_counted() {
        let record = |name: &str| SessionRecord::new(SessionId::parse(name).unwrap());
        let found: Vec<SessionRecord> = (0..MAX_CANDIDATES).map(|n| record(&format!("a{n}"))).collect();
        let message = ambiguous("a", &found, 3);
        assert!(message.starts_with("the ids of 13 sessions start with \"a\""), "{message}");
        assert!(
            message.ends_with("and 3 more") && message.lines().count() == MAX_CANDIDATES + 2,
            "{message}"
        );
        let message = ambiguous("a", &[record("a\u{1b}[2J\nb")], 1);
        assert!(message.contains("\n  a") && !message.contains('\u{1b}'), "{message}");
        assert_eq!(message.lines().count(), 3, "{message}");
    }

    #[test]
    fn generated_ids_are_shortened_and_others_are_not() {
        let id = |text: &str| SessionId::parse(text).unwrap();
        assert_eq!(short_id(&id("01234567-89ab-7cde-8f01-23456789abcd")), "01234567-89ab");
        assert_eq!(short_id(&id("mine")), "mine");
        assert_eq!(short_id(&id(&"x".repeat(100))).chars().count(), GENERATED_ID_CHARS);
    }
}
