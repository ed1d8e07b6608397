//! A transcript as steps. The format is told in the crate's documentation.

use std::path::Path;
use std::time::Duration;

use crate::notation::encode_chunks;
use crate::pattern::Pattern;

/// What stands for the path of the play's own folder.
pub(crate) const TMP: &str = "{tmp}";

/// The most bytes that one `>*` line sends.
const MAX_REPEATED: usize = 256 << 20;

/// One thing to do or to wait for.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Close,
    /// Time goes on.
    Pass(Duration),
    /// The connection ends, and another begins with these arguments.
    Again(Vec<String>),
    /// The next frame matches; or, if there are several, the next frames do in any order.
    Expect(Vec<Expected>),
    End,
    /// The end is a bad one, and what is told of it contains this.
    Fail(String),
}

/// One `<` line.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Counted from 1, as editors do.
    pub(crate) line: usize,
    /// As it stands in the file, `{tmp}` aside.
    pub(crate) text: String,
    pub(crate) pattern: Pattern,
}

/// Reads `text` for a play whose folder is `tmp`. An error names its line.
pub(crate) fn parse(text: &str, tmp: &Path) -> Result<Vec<Step>, String> {
    let shows = text.lines().next().and_then(|line| line.strip_prefix('#'));
    if shows.is_none_or(|shows| shows.trim().is_empty()) {
        return Err("line 1: the first line must be `# ` and what the case shows".to_owned());
    }
    let tmp = tmp.to_str().ok_or("the temporary folder's path is not UTF-8")?;
    let mut steps = Vec::new();
    // Whether the line before was a part of the set that is the last step.
    let mut in_set = false;
    for (number, line) in (1..).zip(text.lines()) {
        let step =
            parse_line(number, &line.replace(TMP, tmp)).map_err(|flaw| format!("line {number}: {flaw}"))?;
        let is_part = line.starts_with("<?");
        match (step, steps.last_mut()) {
            (None, _) => {}
            (Some(_), Some(Step::End | Step::Fail(_))) => {
                return Err(format!("line {number}: nothing can follow the end"));
            }
            (Some(Step::Expect(more)), Some(Step::Expect(set))) if in_set && is_part => set.extend(more),
            (Some(step), _) => steps.push(step),
        }
        in_set = is_part;
    }
    Ok(steps)
}

fn parse_line(number: usize, line: &str) -> Result<Option<Step>, String> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    // A sign and its text are apart by one space; what follows that is the text, spaces and all.
    let (sign, text) = line.split_once(' ').unwrap_or((line, ""));
    let step = match sign {
        ">" => Step::Send(format!("{}\n", encode_chunks(text)?).into_bytes()),
        ">-" => Step::Send(encode_chunks(text)?.into_bytes()),
        ">x" => Step::Send(text.split_whitespace().map(byte).collect::<Result<_, _>>()?),
        ">*" => Step::Send(repeated(text)?),
        ">eof" => Step::Close,
        ">again" => Step::Again(text.split_whitespace().map(str::to_owned).collect()),
        "~" => Step::Pass(seconds(text)?),
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

/// `COUNT HEX`: the same byte many times.
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
    fn what_is_sent_is_sent_to_the_byte() {
        assert_eq!(sent(r#"> {"a":1} "#), b"{\"a\":1} \n");
        assert_eq!(sent(">"), b"\n");
        assert_eq!(sent(">   x"), b"  x\n");
        assert_eq!(sent(">- half"), b"half");
        assert_eq!(sent(">x 7b ff 0a"), b"\x7b\xff\x0a");
        assert_eq!(sent(">* 3 ff"), b"\xff\xff\xff");
        assert_eq!(sent(r#"> ["{tmp}/f",b64"hi"]"#), b"[\"/t/f\",\"aGk=\"]\n");
    }

    #[test]
    fn neighbouring_set_lines_are_one_step_and_any_other_line_ends_it() {
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
    fn time_passes_and_connections_begin_again() {
        assert!(matches!(steps("# case\n~ 60s\n")[0], Step::Pass(time) if time.as_secs() == 60));
        let again = steps("# case\n>again --continue {s}\n");
        assert!(matches!(&again[0], Step::Again(args) if *args == ["--continue", "{s}"]));
        assert!(matches!(&steps("# case\n<fail no such\n")[0], Step::Fail(text) if text == "no such"));
    }

    #[test]
    fn an_expectation_knows_its_line() {
        let Some(Step::Expect(set)) = steps("# case\n\n# more\n< {\"id\":_}\n").pop() else { panic!() };
        assert_eq!((set[0].line, set[0].text.as_str()), (4, r#"{"id":_}"#));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_line() {
        let flaw = |text: &str| parse(text, Path::new("/t")).unwrap_err();
        assert!(flaw("> no comment first\n").starts_with("line 1:"));
        assert!(flaw("#  \n").starts_with("line 1:"));
        assert!(flaw("# case\n\n< {\n").starts_with("line 3:"));
        assert!(flaw("# case\n>x 7\u{e4}\n").starts_with("line 2:"));
        assert!(flaw("# case\n~ soon\n").starts_with("line 2:"));
        assert!(flaw("# case\n>* 3\n").starts_with("line 2:"));
        assert!(flaw("# case\n>* 999999999999 00\n").starts_with("line 2:"));
        assert!(flaw("# case\n<fail x\n> more\n").starts_with("line 3:"));
        assert!(flaw("# case\n<end\n> more\n").starts_with("line 3:"));
    }
}
