//! The fenced blocks of a page.

/// A block of commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line of the page on which the commands begin.
    pub(crate) line: usize,
    pub(crate) commands: String,
    /// What the page says that the commands print; `None` if it does not say it.
    pub(crate) output: Option<String>,
    pub(crate) reason_not_to_run: Option<String>,
}

const MARKER: &str = "<!-- not run: ";

/// All blocks of commands on a page.
pub(crate) fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found: Vec<Block> = Vec::new();
    let mut lines = page.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    let mut reason = None;
    // The line after the last block of commands, where its output may begin.
    let mut output_line = 0;
    while let Some((number, line)) = lines.next() {
        if let Some(rest) = line.strip_prefix(MARKER) {
            let text = rest.strip_suffix(" -->").filter(|text| !text.is_empty());
            reason =
                Some(text.ok_or_else(|| format!("{number}: the marker has no reason or no end"))?.to_owned());
            continue;
        }
        let Some(language) = line.strip_prefix("```") else {
            if !line.is_empty() && reason.is_some() {
                return Err(format!("{number}: a block of commands must follow the marker"));
            }
            continue;
        };
        let mut text = String::new();
        loop {
            let (_, line) = lines.next().ok_or_else(|| format!("{number}: the block has no end"))?;
            if line == "```" {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        let next = lines.peek().map_or(usize::MAX, |(number, _)| *number);
        match language {
            "sh" | "bash" => {
                let block = Block {
                    line: number + 1,
                    commands: text,
                    output: None,
                    reason_not_to_run: reason.take(),
                };
                found.push(block);
                output_line = next;
            }
            "console" => found.push(console(number + 1, &text, reason.take())),
            "" if number == output_line => {
                found.last_mut().ok_or("no block")?.output = Some(text);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// A block in which lines with `$ ` are commands, and the others are what they print.
fn console(line: usize, text: &str, reason_not_to_run: Option<String>) -> Block {
    let (mut commands, mut output) = (String::new(), String::new());
    for line in text.lines() {
        let (part, line) =
            line.strip_prefix("$ ").map_or((&mut output, line), |command| (&mut commands, command));
        part.push_str(line);
        part.push('\n');
    }
    Block { line, commands, output: Some(output), reason_not_to_run }
}

/// Whether `printed` is `expected`, in which `…` stands for any text.
pub(crate) fn matches(expected: &str, printed: &str) -> bool {
    let mut pieces = expected.split('…');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    true
}

#[test]
fn blocks_have_their_output_and_their_marker() {
    let page = "text\n```sh\na\n```\n```\nb\n```\n<!-- not run: needs a key -->\n```sh\nc\n```\n\n```\nno output\n```\n```console\n$ d\ne\n```\n";
    let found = blocks(page).unwrap();
    let block = |line, commands: &str, output: Option<&str>, reason: Option<&str>| Block {
        line,
        commands: commands.to_owned(),
        output: output.map(str::to_owned),
        reason_not_to_run: reason.map(str::to_owned),
    };
    assert_eq!(
        found,
        [
            block(3, "a\n", Some("b\n"), None),
            block(10, "c\n", None, Some("needs a key")),
            block(17, "d\n", Some("e\n"), None)
        ]
    );
    assert!(blocks("<!-- not run: x -->\ntext\n").is_err());
    assert!(blocks("<!-- not run:  -->\n```sh\n```\n").is_err());
}

#[test]
fn dots_stand_for_anything() {
    assert!(matches("a", "a") && !matches("a", "ab") && !matches("a", "b"));
    assert!(
        matches("a…c", "abc") && matches("a…c…", "abcd") && !matches("a…c", "ab") && !matches("a…b…c", "acb")
    );
}
