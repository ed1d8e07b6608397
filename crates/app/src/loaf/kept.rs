//! What was chosen through the door, in a file of the state folder.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use parlor_vocab::Preferences;
use serde::{Deserialize, Serialize};

/// The file's name.
const FILE: &str = "loaf.json";

/// A larger file is not read.
const FILE_BYTES: u64 = 64 << 10;

/// The file. What is missing in it was never chosen.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct State {
    selected_model: String,
    selected_provider: String,
    selected_thinking: String,
    selected_open_router_provider: String,
    onboarding_completed: bool,
}

/// What was chosen; nothing, if the file is not there or cannot be read.
pub(super) fn read(home: &Path) -> Preferences {
    let mut text = String::new();
    let file = std::fs::File::open(home.join(FILE));
    let read = file.and_then(|file| file.take(FILE_BYTES).read_to_string(&mut text));
    let state: State = read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
    Preferences {
        model: state.selected_model,
        provider: state.selected_provider,
        reasoning: state.selected_thinking,
        route: state.selected_open_router_provider,
        setup_done: state.onboarding_completed,
    }
}

/// Keeps what was chosen. Another process may read it at any moment, so it appears as a whole. Blocking.
pub(super) fn write(home: &Path, kept: Preferences) -> Result<(), String> {
    let state = State {
        selected_model: kept.model,
        selected_provider: kept.provider,
        selected_thinking: kept.reasoning,
        selected_open_router_provider: kept.route,
        onboarding_completed: kept.setup_done,
    };
    let (file, draft) = (home.join(FILE), home.join(format!("{FILE}.{}", std::process::id())));
    let write = || {
        let mut out =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        out.write_all(serde_json::to_string(&state)?.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&draft, &file)
    };
    write().map_err(|error: std::io::Error| format!("cannot write {}: {error}", file.display()))
}

/// Forgets what was chosen. Blocking.
pub(super) fn remove(home: &Path) -> Result<(), String> {
    let file = home.join(FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", file.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_comes_back_and_what_cannot_be_read_was_not() {
        let home = tempfile::tempdir().unwrap();
        let nothing = read(home.path());
        assert!(nothing.model.is_empty() && !nothing.setup_done);
        let kept = Preferences {
            model: "m".to_owned(),
            provider: "openai".to_owned(),
            reasoning: "LOW".to_owned(),
            route: "any".to_owned(),
            setup_done: true,
        };
        write(home.path(), kept.clone()).unwrap();
        assert_eq!(read(home.path()), kept);
        remove(home.path()).unwrap();
        remove(home.path()).unwrap();
        std::fs::write(home.path().join(FILE), "{").unwrap();
        assert_eq!(read(home.path()), nothing);
        assert!(write(Path::new("/nowhere/at/all"), kept).unwrap_err().contains("loaf.json"));
    }
}
