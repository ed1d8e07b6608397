//! Reads the `model` setting from the configuration of the program `synaps`.

use std::path::Path;

/// A larger configuration file is ignored.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Whether this can be the name of a profile. It must not lead out of the folder.
pub(super) fn is_profile_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

/// The model that is configured in the folder `base`: for the profile, else in general.
pub(super) fn model(base: &Path, profile: Option<&str>) -> Option<String> {
    let profile = profile.filter(|name| is_profile_name(name));
    let profile_file = profile.map(|profile| base.join(profile).join("config"));
    profile_file.into_iter().chain([base.join("config")]).find_map(|file| {
        let is_small =
            std::fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() <= MAX_CONFIG_BYTES);
        let text = is_small.then(|| std::fs::read_to_string(&file).ok()).flatten()?;
        value(&text, "model")
    })
}

/// The value of `key` in lines of `key = value`. Of several lines with this key, the last one counts.
fn value(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let values = lines.filter_map(|line| line.split_once('=')).filter(|(name, _)| name.trim() == key);
    let value = values.map(|(_, value)| value.trim().trim_matches('"')).next_back()?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_overrides_the_general_file_and_cannot_leave_the_folder() {
        let base = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = base.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(model(base.path(), None), None);
        write("config", "# model = no\nmodel = general\nevents.auto_turn = false\n");
        write("work/config", "model=\"special\"");
        write("empty/config", "theme = dark");
        assert_eq!(model(base.path(), None).as_deref(), Some("general"));
        assert_eq!(model(base.path(), Some("work")).as_deref(), Some("special"));
        assert_eq!(model(base.path(), Some("empty")).as_deref(), Some("general"));
        assert_eq!(model(base.path(), Some("missing")).as_deref(), Some("general"));
        assert_eq!(model(&base.path().join("work"), Some("..")).as_deref(), Some("special"));
    }
}
