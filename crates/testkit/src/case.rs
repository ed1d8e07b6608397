//! The `#!` lines of a transcript, and the folders of its play.

use std::fs;
use std::path::{Path, PathBuf};

use crate::transcript::TMP;

/// Where cases are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayedIn {
    /// In the test's own process, where time can be simulated.
    Memory,
    /// Over a real transport.
    Wire,
}

impl PlayedIn {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "memory" => Some(Self::Memory),
            "wire" => Some(Self::Wire),
            _ => None,
        }
    }
}

/// The arguments, variables and folders of one play. The function that makes the peer gets it.
#[derive(Debug)]
pub struct Case {
    /// The arguments after the door's name: `#! args`.
    pub args: Vec<String>,
    /// Variables that are set, or removed if the value is `None`: `#! env`.
    pub env: Vec<(String, Option<String>)>,
    /// A new state folder with the files of `#! home`.
    pub home: PathBuf,
    /// The new folder that `{tmp}` stands for.
    pub tmp: PathBuf,
}

/// The `#!` lines of a transcript.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    args: Vec<String>,
    env: Vec<(String, Option<String>)>,
    home: Option<String>,
    only: Option<(PlayedIn, String)>,
}

impl Headers {
    /// Parses the `#!` lines of a transcript. An error names its line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut headers = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(header) = line.strip_prefix("#!") {
                headers.parse_line(header.trim()).map_err(|error| format!("line {number}: {error}"))?;
            }
        }
        Ok(headers)
    }

    fn parse_line(&mut self, header: &str) -> Result<(), String> {
        let (word, rest) = header.split_once(' ').ok_or(format!("{header:?} has no value"))?;
        match word {
            "args" => self.args.extend(rest.split_whitespace().map(str::to_owned)),
            "env" => {
                self.env.extend(rest.split_whitespace().map(|variable| match variable.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (variable.to_owned(), None),
                }))
            }
            "home" => self.home = Some(rest.to_owned()),
            "only" => {
                let (played_in, reason) =
                    rest.split_once(": ").ok_or("write `#! only PLACE: REASON`, with a reason")?;
                let played_in =
                    PlayedIn::from_name(played_in).ok_or("write `memory` or `wire` after `only`")?;
                self.only = Some((played_in, reason.to_owned()));
            }
            _ => return Err(format!("there is no header {word:?}")),
        }
        Ok(())
    }

    /// The reason of `#! only` if the case is not played in `played_in`.
    pub(crate) fn skip_reason(&self, played_in: PlayedIn) -> Option<&str> {
        self.only.as_ref().filter(|(only, _)| *only != played_in).map(|(_, reason)| reason.as_str())
    }

    /// Creates the folders of a play in `folder`. The files of `#! home` are in the folder `home` of `transcripts`.
    pub(crate) fn into_case(self, transcripts: &Path, folder: &Path) -> Result<Case, String> {
        let (home, tmp) = (folder.join("home"), folder.join("tmp"));
        for folder in [&home, &tmp] {
            fs::create_dir(folder).map_err(|error| format!("no temporary folder: {error}"))?;
        }
        if let Some(name) = &self.home {
            let from = transcripts.join("home").join(name);
            copy_files(&from, &home).map_err(|error| format!("the home {name:?}: {error}"))?;
        }
        let path = tmp.to_str().ok_or("the temporary folder's path is not UTF-8")?;
        let with_tmp_path = |text: String| text.replace(TMP, path);
        let args = self.args.into_iter().map(with_tmp_path).collect();
        let env = self.env.into_iter().map(|(name, value)| (name, value.map(with_tmp_path))).collect();
        Ok(Case { args, env, home, tmp })
    }
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let file = entry?.path();
        fs::copy(&file, to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_set_arguments_variables_and_folders() {
        let transcripts = tempfile::tempdir().unwrap();
        fs::create_dir_all(transcripts.path().join("home/demo")).unwrap();
        fs::write(transcripts.path().join("home/demo/parlor.toml"), "x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let headers =
            Headers::parse("# case\n#! args --model {tmp}/m\n#! env A=b=c HOME\n#! home demo\n").unwrap();
        let case = headers.into_case(transcripts.path(), folder.path()).unwrap();
        assert_eq!(case.args, ["--model".to_owned(), format!("{}/m", case.tmp.display())]);
        assert_eq!(case.env, [("A".to_owned(), Some("b=c".to_owned())), ("HOME".to_owned(), None)]);
        assert_eq!(fs::read_to_string(case.home.join("parlor.toml")).unwrap(), "x");
        assert_eq!(fs::read_dir(&case.tmp).unwrap().count(), 0);
    }

    #[test]
    fn a_case_for_memory_is_skipped_over_the_wire() {
        let headers = Headers::parse("# case\n#! only memory: an hour passes\n").unwrap();
        assert_eq!(headers.skip_reason(PlayedIn::Memory), None);
        assert_eq!(headers.skip_reason(PlayedIn::Wire), Some("an hour passes"));
    }

    #[test]
    fn an_invalid_header_is_refused_with_its_line() {
        for text in ["#! only memory", "#! only moon: far", "#! nonsense x", "#! args"] {
            let error = Headers::parse(&format!("# case\n{text}\n")).unwrap_err();
            assert!(error.starts_with("line 2:"), "{error}");
        }
        let missing = Headers::parse("#! home nowhere\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(missing.into_case(Path::new("/nowhere"), folder.path()).unwrap_err().contains("nowhere"));
    }
}
