//! Parses a transcript into steps. The crate's documentation describes the format.

use std::path::Path;
use std::time::Duration;

use crate::notation::encode_chunks;
use crate::pattern::Pattern;

/// Stands for the path of the play's own folder.
pub(crate) const TMP: &str = "{tmp}";

/// The most bytes that one `>*` line sends.
const MAX_REPEATED: usize = 256 << 20;

/// One action of the client, or one expectation.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Close,
    /// Time passes.
    Advance(Duration),
    /// The connection ends, and another one begins with these arguments.
    Reconnect(Vec<String>),
    /// The next frame matches; if there are several lines, the next frames match them in any order.
    Expect(Vec<Expected>),
    End,
    /// Parlor fails at its end, and the error contains this text.
    Fail(String),
}

/// One `<` line.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The line number, from 1.
    pub(crate) line: usize,
    /// The pattern as in the file, with `{tmp}` replaced.
    pub(crate) text: String,
    pub(crate) pattern: Pattern,
}

/// Parses `text` for a play whose folder is `tmp`. An error names its line.
pub(crate) fn parse(text: &str, tmp: &Path) -> Result<Vec<Step>, String> {
    let description = text.lines().next().and_then(|line| line.strip_prefix('#'));
    if description.is_none_or(|description| description.trim().is_empty()) {
        return Err("line 1: the first line must be `# ` and what the case shows".to_owned());
    }
    let tmp = tmp.to_str().ok_or("the temporary folder's path is not UTF-8")?;
    let mut steps = Vec::new();
    // Whether the line before belongs to a set of `<?` lines.
    let mut in_set = false;
    for (number, line) in (1..).zip(text.lines()) {
        let step =
            parse_line(number, &line.replace(TMP, tmp)).map_err(|error| format!("line {number}: {error}"))?;
        let is_set_line = line.starts_with("<?");
        match (step, steps.last_mut()) {
            (None, _) => {}
            (Some(_), Some(Step::End | Step::Fail(_))) => {
                return Err(format!("line {number}: nothing can follow the end"));
            }
            (Some(Step::Expect(more)), Some(Step::Expect(set))) if in_set && is_set_line => set.extend(more),
            (Some(step), _) => steps.push(step),
        }
        in_set = is_set_line;
    }
    Ok(steps)
}

fn parse_line(number: usize, line: &str) -> Result<Option<Step>, String> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    // One space separates the sign from its text; further spaces belong to the text.
    let (sign, text) = line.split_once(' ').unwrap_or((line, ""));
    let step = match sign {
        ">" => Step::Send(format!("{}\n", encode_chunks(text)?).into_bytes()),
        ">-" => Step::Send(encode_chunks(text)?.into_bytes()),
        ">x" => Step::Send(text.split_whitespace().map(byte).collect::<Result<_, _>>()?),
        ">*" => Step::Send(repeated(text)?),
        ">eof" => Step::Close,
        ">again" => Step::Reconnect(text.split_whitespace().map(str::to_owned).collect()),
        "~" => Step::Advance(seconds(text)?),
        "<" | "<?" => Step::Expect(vec![Expected {
            line: number,
            text: text.to_owned(),
            pattern: Pattern::parse(text)?,
        }]),
        "<end" => Step::End,
        "<fail" => Step::Fail(text.to_owned()),
        _ => return Err(format!("a line cannot start with {sign:?}")),
    };
    Ok(Some(step))
}

fn byte(hex: &str) -> Result<u8, String> {
    u8::from_str_radix(hex, 16).map_err(|error| format!("{hex:?}: {error}"))
}

/// Parses `COUNT HEX`: a byte that is sent COUNT times.
fn repeated(text: &str) -> Result<Vec<u8>, String> {
    let (count, hex) = text.split_once(' ').ok_or("write `>* COUNT BYTE`, the byte in hexadecimal")?;
    let count: usize = count.parse().map_err(|error| format!("{count:?}: {error}"))?;
    if count > MAX_REPEATED {
        return Err(format!("{count} bytes are more than {MAX_REPEATED}"));
    }
    Ok(vec![byte(hex)?; count])
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').ok_or("write seconds, such as `~ 60s`")?;
    let seconds = number.parse().map_err(|error| format!("{number:?}: {error}"))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Step> {
        parse(text, Path::new("/t")).unwrap()
    }

    fn sent(line: &str) -> Vec<u8> {
        match steps(&format!("# case\n{line}\n")).pop() {
            Some(Step::Send(bytes)) => bytes,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn sent_bytes_are_exact() {
        assert_eq!(sent(r#"> {"a":1} "#), b"{\"a\":1} \n");
        assert_eq!(sent(">"), b"\n");
        assert_eq!(sent(">   x"), b"  x\n");
        assert_eq!(sent(">- half"), b"half");
        assert_eq!(sent(">x 7b ff 0a"), b"\x7b\xff\x0a");
        assert_eq!(sent(">* 3 ff"), b"\xff\xff\xff");
        assert_eq!(sent(r#"> ["{tmp}/f",b64"hi"]"#), b"[\"/t/f\",\"aGk=\"]\n");
    }

    #[test]
    fn adjacent_set_lines_are_one_step_and_any_other_line_ends_the_set() {
        let sizes = |text: &str| -> Vec<usize> {
            steps(text)
                .iter()
                .map(|step| if let Step::Expect(set) = step { set.len() } else { panic!("{step:?}") })
                .collect()
        };
        assert_eq!(sizes("# case\n<? 1\n<? 2\n< 3\n<? 4\n"), [2, 1, 1]);
        assert_eq!(sizes("# case\n<? 1\n<? 2\n\n<? 3\n# why\n<? 4\n"), [2, 1, 1]);
    }

    #[test]
    fn time_and_reconnects_are_parsed() {
        assert!(matches!(steps("# case\n~ 60s\n")[0], Step::Advance(time) if time.as_secs() == 60));
        let reconnect = steps("# case\n>again --continue {s}\n");
        assert!(matches!(&reconnect[0], Step::Reconnect(args) if *args == ["--continue", "{s}"]));
        assert!(matches!(&steps("# case\n<fail no such\n")[0], Step::Fail(text) if text == "no such"));
    }

    #[test]
    fn an_expectation_has_its_line_number() {
        let Some(Step::Expect(set)) = steps("# case\n\n# more\n< {\"id\":_}\n").pop() else { panic!() };
        assert_eq!((set[0].line, set[0].text.as_str()), (4, r#"{"id":_}"#));
    }

    #[test]
    fn an_invalid_line_is_refused_with_its_number() {
        let parse_error = |text: &str| parse(text, Path::new("/t")).unwrap_err();
        assert!(parse_error("> no comment first\n").starts_with("line 1:"));
        assert!(parse_error("#  \n").starts_with("line 1:"));
        assert!(parse_error("# case\n\n< {\n").starts_with("line 3:"));
        assert!(parse_error("# case\n>x 7\u{e4}\n").starts_with("line 2:"));
        assert!(parse_error("# case\n~ soon\n").starts_with("line 2:"));
        assert!(parse_error("# case\n>* 3\n").starts_with("line 2:"));
        assert!(parse_error("# case\n>* 999999999999 00\n").starts_with("line 2:"));
        assert!(parse_error("# case\n<fail x\n> more\n").starts_with("line 3:"));
        assert!(parse_error("# case\n<end\n> more\n").starts_with("line 3:"));
    }
}
