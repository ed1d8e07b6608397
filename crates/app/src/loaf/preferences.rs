//! Reads and writes the preferences that a client chose through the loaf door: model, provider, reasoning.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use parlor_vocab::Preferences;
use serde::{Deserialize, Serialize};

/// The name of the file in the state folder.
const FILE: &str = "loaf.json";

/// A larger file counts as empty, because its JSON is cut off here.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The JSON format of the file. A missing member means that the client never chose this preference.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredPreferences {
    selected_model: String,
    selected_provider: String,
    selected_thinking: String,
    selected_open_router_provider: String,
    onboarding_completed: bool,
}

/// Reads the preferences. A file that is missing or cannot be read counts as empty.
pub(super) fn read(home: &Path) -> Preferences {
    let mut text = String::new();
    let file = std::fs::File::open(home.join(FILE));
    let result = file.and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    let stored: StoredPreferences =
        result.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
    Preferences {
        model: stored.selected_model,
        provider: stored.selected_provider,
        reasoning: stored.selected_thinking,
        route: stored.selected_open_router_provider,
        setup_done: stored.onboarding_completed,
    }
}

/// Writes the preferences atomically, because another process may read them at any moment. Blocks.
pub(super) fn write(home: &Path, preferences: Preferences) -> Result<(), String> {
    let stored = StoredPreferences {
        selected_model: preferences.model,
        selected_provider: preferences.provider,
        selected_thinking: preferences.reasoning,
        selected_open_router_provider: preferences.route,
        onboarding_completed: preferences.setup_done,
    };
    let (file, temporary) = (home.join(FILE), home.join(format!("{FILE}.{}", std::process::id())));
    let write_and_rename = || {
        let mut out = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        out.write_all(serde_json::to_string(&stored)?.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&temporary, &file)
    };
    write_and_rename().map_err(|error: std::io::Error| format!("cannot write {}: {error}", file.display()))
}

/// Removes the file if it exists. Blocks.
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
    fn preferences_are_read_back_and_an_unreadable_file_counts_as_empty() {
        let home = tempfile::tempdir().unwrap();
        let empty = read(home.path());
        assert!(empty.model.is_empty() && !empty.setup_done);
        let preferences = Preferences {
            model: "m".to_owned(),
            provider: "openai".to_owned(),
            reasoning: "LOW".to_owned(),
            route: "any".to_owned(),
            setup_done: true,
        };
        write(home.path(), preferences.clone()).unwrap();
        assert_eq!(read(home.path()), preferences);
        remove(home.path()).unwrap();
        remove(home.path()).unwrap();
        std::fs::write(home.path().join(FILE), "{").unwrap();
        assert_eq!(read(home.path()), empty);
        assert!(write(Path::new("/nowhere/at/all"), preferences).unwrap_err().contains("loaf.json"));
    }
}
