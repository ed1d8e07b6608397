//! Which session is meant: its whole id, or a beginning of it that no other has.

use anyhow::bail;
use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{MAX_ID_BYTES, SessionId, SessionRefusal};

use crate::text::cut;
use crate::time::minute;

/// How many sessions are named when more than one is meant.
const CANDIDATES: usize = 10;
/// How much of their titles is shown.
const TITLE_COLUMNS: usize = 40;

/// How much of an id is shown to a person: of the ids that parlor makes, the time to the
/// millisecond, which hardly ever two sessions share.
const SHORT: usize = 13;
/// How long the ids are that parlor makes.
const WHOLE: usize = 36;

/// The session that `text` means.
pub(crate) async fn pick(sessions: &Sessions, text: &str) -> anyhow::Result<SessionRecord> {
    if text.is_empty() {
        bail!("a session is named by its id or the beginning of it; parlor sessions lists them");
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
            if found.len() < CANDIDATES {
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
        None => bail!("no session is called {text:?} or begins so; parlor sessions lists what there is"),
    }
}

/// What a person sees of an id, and can use in its place.
pub(crate) fn short(id: &SessionId) -> String {
    let id = cut(id.as_str(), WHOLE);
    if id.chars().count() == WHOLE && id.is_ascii() { id.chars().take(SHORT).collect() } else { id }
}

/// A whole id on one line. A client chose it, and may have put anything there.
pub(crate) fn whole(id: &SessionId) -> String {
    cut(id.as_str(), MAX_ID_BYTES)
}

fn ambiguous(text: &str, found: &[SessionRecord], more: usize) -> String {
    let mut said = format!("{} sessions begin with {text:?}; say more of the id:", found.len() + more);
    for record in found {
        let title = cut(record.title.as_deref().unwrap_or("-"), TITLE_COLUMNS);
        let id = whole(&record.id);
        said.push_str(&format!("\n  {id}  {}  {title}", minute(record.updated)));
    }
    if more > 0 {
        said.push_str(&format!("\n  and {more} more"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_candidates_is_cut_and_counted() {
        let record = |name: &str| SessionRecord::new(SessionId::parse(name).unwrap());
        let found: Vec<SessionRecord> = (0..CANDIDATES).map(|n| record(&format!("a{n}"))).collect();
        let said = ambiguous("a", &found, 3);
        assert!(said.starts_with("13 sessions begin with \"a\""), "{said}");
        assert!(said.ends_with("and 3 more") && said.lines().count() == CANDIDATES + 2, "{said}");
        let said = ambiguous("a", &[record("a\u{1b}[2J\nb")], 1);
        assert!(said.contains("\n  a") && !said.contains('\u{1b}') && said.lines().count() == 3, "{said}");
    }

    #[test]
    fn ids_of_parlor_are_shortened_and_others_are_not() {
        let id = |text: &str| SessionId::parse(text).unwrap();
        assert_eq!(short(&id("01234567-89ab-7cde-8f01-23456789abcd")), "01234567-89ab");
        assert_eq!(short(&id("mine")), "mine");
        assert_eq!(short(&id(&"x".repeat(100))).chars().count(), WHOLE);
    }
}
