//! A transcript as steps. The format is told in the crate's documentation.

use std::path::Path;

use crate::notation::encode_chunks;
use crate::pattern::Pattern;

/// What stands for the path of the play's own folder.
pub(crate) const TMP: &str = "{tmp}";

/// One thing to do or to wait for.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Close,
    /// The next frame matches; or, if there are several, the next frames do in any order.
    Expect(Vec<Expected>),
    End,
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
            (Some(_), Some(Step::End)) => return Err(format!("line {number}: nothing can follow `<end`")),
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
        ">x" => Step::Send(
            text.split_whitespace()
                .map(|hex| u8::from_str_radix(hex, 16).map_err(|error| format!("{hex:?}: {error}")))
                .collect::<Result<_, _>>()?,
        ),
        ">eof" => Step::Close,
        "<" | "<?" => Step::Expect(vec![Expected {
            line: number,
            text: text.to_owned(),
            pattern: Pattern::parse(text)?,
        }]),
        "<end" => Step::End,
        _ => return Err(format!("a line cannot start with {sign:?}")),
    };
    Ok(Some(step))
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
        assert!(flaw("# case\n~ 30s\n").starts_with("line 2:"));
        assert!(flaw("# case\n<end\n> more\n").starts_with("line 3:"));
    }
}
