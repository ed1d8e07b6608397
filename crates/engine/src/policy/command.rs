//! Reads the text of a shell command as far as rules need it.
//!
//! This is no shell. A text that is not certainly one simple command has no [words](CommandText::words), so no rule allows it;
//! its [parts](CommandText::parts) are a guess, which only makes a policy stricter. The kernel protects, not this file.

/// Programs that run the command in their arguments. A rule that asks or denies looks behind them.
const WRAPPERS: [&str; 16] = [
    "bash", "builtin", "command", "dash", "doas", "env", "exec", "nice", "nohup", "setsid", "sh", "stdbuf",
    "sudo", "time", "timeout", "xargs",
];

/// A command of the shell tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandText {
    words: Option<Vec<String>>,
    parts: Vec<Vec<String>>,
}

impl CommandText {
    /// Reads the text. With `is_plain` false, something beside the text changes what it means, such as variables of its
    /// own: then it has no words.
    pub fn new(text: &str, is_plain: bool) -> Self {
        let words = if is_plain { simple_words(text) } else { None };
        Self { words, parts: parts(text) }
    }

    /// The words, if the text is certainly one simple command.
    pub fn words(&self) -> Option<&[String]> {
        self.words.as_deref()
    }

    /// What may be commands within the text, each as its words.
    pub fn parts(&self) -> &[Vec<String>] {
        &self.parts
    }
}

/// The words of one simple command without expansions, redirections, chains and assignments.
fn simple_words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = text.trim_matches([' ', '\t']).chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == letter => break,
                        // Within double quotes these are special; within both, a control character hides something.
                        '$' | '`' | '\\' | '!' if letter == '"' => return None,
                        inner if inner.is_control() => return None,
                        inner => quoted.push(inner),
                    }
                }
            }
            letter if is_plain(letter) => word.get_or_insert_default().push(letter),
            _ => return None,
        }
    }
    words.extend(word);
    let first = words.first()?;
    (!first.is_empty() && !first.contains('=')).then_some(words)
}

/// Whether a letter outside of quotes stands for itself in every shell.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric()
        || "_-./:=,+@%".contains(letter)
        || (!letter.is_ascii() && letter.is_alphanumeric())
}

/// Splits the text at everything that may begin another command.
fn parts(text: &str) -> Vec<Vec<String>> {
    let split = text.split([';', '|', '&', '\n', '\r', '(', ')', '{', '}', '`', '<', '>']);
    let words_of = |part: &str| -> Vec<String> {
        let words = part.split_whitespace().map(|word| word.replace(['\'', '"', '\\', '$'], ""));
        words.filter(|word| !word.is_empty()).collect()
    };
    let mut found: Vec<Vec<String>> = Vec::new();
    for words in split.map(words_of).filter(|words| !words.is_empty()) {
        let inner = behind_wrappers(&words);
        found.extend(inner.map(<[String]>::to_vec));
        found.push(words);
    }
    found
}

/// What a wrapper such as `sudo` or `sh -c` runs, if the command begins with one or with an assignment.
fn behind_wrappers(words: &[String]) -> Option<&[String]> {
    let base = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    let is_wrapper = |word: &String| WRAPPERS.contains(&base(word).as_str());
    let first = words.first()?;
    if !is_wrapper(first) && !first.contains('=') {
        return None;
    }
    let is_number = |word: &String| word.starts_with(|letter: char| letter.is_ascii_digit());
    let skipped =
        |word: &&String| is_wrapper(word) || word.contains('=') || word.starts_with('-') || is_number(word);
    let begin = words.iter().take_while(skipped).count();
    words.get(begin..).filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_simple_command_has_words() {
        let words = |text: &str| CommandText::new(text, true).words().map(<[String]>::to_vec);
        assert_eq!(words(" cargo  test --lib\t"), Some(vec!["cargo".into(), "test".into(), "--lib".into()]));
        assert_eq!(words("git commit -m 'a; b'").unwrap()[3], "a; b");
        assert_eq!(words("echo \"a b\"c").unwrap(), ["echo", "a bc"]);
        for other in [
            "",
            " ",
            "cargo x; rm -rf /",
            "cargo x && rm y",
            "cargo x | sh",
            "cargo x & rm y",
            "cargo\nrm x",
            "cargo x\rrm",
            "cargo $(rm x)",
            "cargo `rm x`",
            "cargo \"$(rm x)\"",
            "cargo \"`rm`\"",
            "cargo > /etc/x",
            "cargo < x",
            "cargo 2>&1",
            "A=b cargo x",
            "cargo 'x",
            "cargo \"x",
            "cargo \\\nx",
            "cargo ~/x",
            "cargo *",
            "cargo {a,b}",
            "cargo [x]",
            "cargo ?",
            "cargo #x",
            "(cargo)",
            "! cargo",
            "'' x",
            "cargo \0x",
            "cargo $X",
            "cargo \"a\\\"b\"",
            "cargo\u{a0}x",
            "cargo \u{2028}x",
        ] {
            assert_eq!(words(other), None, "{other:?}");
        }
        assert_eq!(CommandText::new("cargo test", false).words(), None);
    }

    #[test]
    fn the_parts_of_a_chain_and_what_wrappers_run_are_found() {
        let has = |text: &str, wanted: &[&str]| {
            CommandText::new(text, true).parts().iter().any(|part| part.iter().eq(wanted.iter()))
        };
        assert!(has("true; git push", &["git", "push"]));
        assert!(has("x $(git push)", &["git", "push"]));
        assert!(has("sudo -n env A=b git push", &["git", "push"]));
        assert!(has("/usr/bin/timeout 5 git push", &["git", "push"]));
        assert!(has("sh -c 'git push'", &["git", "push"]));
        assert!(has("git \"push\"", &["git", "push"]));
        assert!(!has("grep git push", &["git", "push"]));
    }
}
