//! Checks that the commands which pages name exist, with their flags, also where a page shows no whole example.

use std::collections::BTreeMap;
use std::process::Command;

/// All commands of a page that begin with `parlor `: in the text between backticks, and in blocks of code.
pub(crate) fn command_lines(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let line = line.trim_start().trim_start_matches("$ ");
            found.extend(line.starts_with("parlor ").then(|| line.to_owned()));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter(|span| span.starts_with("parlor ")).map(str::to_owned));
        }
    }
    found
}

/// The help texts of all commands that were asked for.
#[derive(Default)]
pub(crate) struct HelpTexts(BTreeMap<Vec<String>, String>);

impl HelpTexts {
    /// Says what is wrong with a command line from a page.
    pub(crate) fn check(&mut self, line: &str) -> Result<(), String> {
        // The page's separators of choices: `parlor mcp list\|add`. One of them is enough to know the flags.
        let words = line.split_whitespace().skip(1).map(|word| word.split("\\|").next().unwrap_or(word));
        let mut path = Vec::new();
        let mut is_command = true;
        for word in words {
            let word = word.trim_matches(|letter: char| "[]()\"',;:.".contains(letter));
            // The rest is for the shell, for another program, or for the reader.
            if ["|", "||", "&&", ">", ">>", "<", "--", "#"].contains(&word)
                || word.starts_with(['>', '<', '#'])
            {
                break;
            }
            if word.starts_with("--") {
                is_command = false;
                let flag = word.split(['=', '[', ']', ',']).next().unwrap_or(word);
                // Only `parlor --version` takes it.
                let is_verbose_version = path.is_empty() && flag == "--verbose";
                if !is_verbose_version && !self.mentions(&path, flag) {
                    return Err(format!("`parlor {}` has no {flag}", path.join(" ")));
                }
            } else if is_command && !word.is_empty() {
                let help = self.text(&path);
                let commands = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next();
                let is_known = commands.unwrap_or_default().lines().any(|line| {
                    line.strip_prefix("  ").is_some_and(|line| line.split(' ').next() == Some(word))
                });
                match is_known {
                    true => path.push(word.to_owned()),
                    // Placeholders and values are in capitals, quotes or after a command without subcommands.
                    false if path.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase()) => {
                        return Err(format!("parlor has no command `{word}`"));
                    }
                    false => is_command = false,
                }
            }
        }
        Ok(())
    }

    fn mentions(&mut self, path: &[String], flag: &str) -> bool {
        let help = self.text(path);
        let is_end = |letter: char| !letter.is_alphanumeric() && letter != '-';
        help.match_indices(flag).any(|(at, _)| {
            help.get(at + flag.len()..).is_some_and(|rest| rest.is_empty() || rest.starts_with(is_end))
        })
    }

    fn text(&mut self, path: &[String]) -> &str {
        self.0.entry(path.to_vec()).or_insert_with(|| {
            let output =
                Command::new(env!("CARGO_BIN_EXE_parlor")).args(path).arg("--help").output().unwrap();
            assert!(output.status.success(), "parlor {path:?} --help fails");
            String::from_utf8(output.stdout).unwrap()
        })
    }
}

#[test]
fn an_unknown_command_or_flag_is_found() {
    let page = "Run `parlor chat --json`, `parlor nothing`.\n```\n$ parlor gc --never 1\nparlor sandbox -- x --y\n```\n";
    let lines = command_lines(page);
    assert_eq!(
        lines,
        ["parlor chat --json", "parlor nothing", "parlor gc --never 1", "parlor sandbox -- x --y"]
    );
    let mut help = HelpTexts::default();
    let wrong: Vec<bool> = lines.iter().map(|line| help.check(line).is_err()).collect();
    assert_eq!(wrong, [false, true, true, false]);
    assert!(help.check("parlor sessions rename --json").is_err());
}
