//! Interprets the fields of a worker's reply, as `worker.rb` writes them.

use crate::hint;
use crate::{MAX_VALUE_BYTES, RubyError, RubyException, RubySource};

/// The outcome in a reply to `source`. `None` if the reply is invalid.
pub(crate) fn read(fields: &[Vec<u8>], source: &RubySource) -> Option<Result<String, RubyError>> {
    // The worker replaces bytes that are not UTF-8, but evaluated code may have changed the worker.
    let texts: Vec<String> = fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    match texts.as_slice() {
        ["value", text] => Some(Ok((*text).to_owned())),
        ["large", bytes] => {
            let bytes = bytes.parse().ok()?;
            Some(Err(RubyError::ValueTooLarge { bytes, limit: MAX_VALUE_BYTES }))
        }
        ["raised", rest @ ..] => Some(Err(RubyError::Raised(Box::new(raised(rest, source)?)))),
        ["syntax", rest @ ..] => Some(Err(RubyError::Syntax(Box::new(raised(rest, source)?)))),
        _ => None,
    }
}

fn raised(texts: &[&str], source: &RubySource) -> Option<RubyException> {
    let [class, message, file, line, backtrace @ ..] = texts else { return None };
    Some(RubyException {
        class: (*class).to_owned(),
        message: (*message).to_owned(),
        file: Some(*file).filter(|file| !file.is_empty()).map(str::to_owned),
        line: line.parse().ok().filter(|line| *line > 0),
        backtrace: backtrace.iter().map(|frame| (*frame).to_owned()).collect(),
        hint: hint::for_exception(class, message, source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_texts(texts: &[&str]) -> Option<Result<String, RubyError>> {
        let fields: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        read(&fields, &RubySource::Snippet { code: String::new() })
    }

    #[test]
    fn valid_replies_are_read() {
        assert_eq!(read_texts(&["value", "2"]), Some(Ok("2".to_owned())));
        assert_eq!(
            read_texts(&["large", "9000000"]),
            Some(Err(RubyError::ValueTooLarge { bytes: 9_000_000, limit: MAX_VALUE_BYTES }))
        );
        let raised = RubyException {
            class: "KeyError".to_owned(),
            message: "no".to_owned(),
            file: Some("a.rb".to_owned()),
            line: Some(3),
            backtrace: vec!["a.rb:3:in `f'".to_owned(), "a.rb:9".to_owned()],
            hint: None,
        };
        assert_eq!(
            read_texts(&["raised", "KeyError", "no", "a.rb", "3", "a.rb:3:in `f'", "a.rb:9"]),
            Some(Err(RubyError::Raised(Box::new(raised))))
        );
    }

    #[test]
    fn an_unknown_file_and_line_are_none() {
        let Some(Err(RubyError::Syntax(raised))) = read_texts(&["syntax", "SyntaxError", "x", "", "0"])
        else {
            panic!("a syntax error")
        };
        assert_eq!((raised.file, raised.line), (None, None));
    }

    #[test]
    fn an_invalid_reply_has_no_outcome() {
        for texts in [&[][..], &["value"], &["value", "1", "2"], &["large", "x"], &["raised", "E"], &["hm"]] {
            assert_eq!(read_texts(texts), None, "{texts:?}");
        }
    }
}
