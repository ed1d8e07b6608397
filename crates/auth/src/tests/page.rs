//! `docs/auth.md` names every limit.

const PAGE: &str = include_str!("../../../../docs/auth.md");

#[test]
fn the_page_is_complete() {
    let sources = [
        include_str!("../callback.rs"),
        include_str!("../error.rs"),
        include_str!("../flow/device.rs"),
        include_str!("../flow/mod.rs"),
        include_str!("../http.rs"),
        include_str!("../provider.rs"),
        include_str!("../redact.rs"),
        include_str!("../refresh.rs"),
        include_str!("../store/files.rs"),
        include_str!("../store/lock.rs"),
    ];
    let constants = sources.iter().flat_map(|source| source.lines());
    let constants = constants.filter_map(|line| line.strip_prefix("pub const "));
    let names: Vec<&str> = constants.filter_map(|line| line.split(':').next()).collect();
    assert!(names.len() > 20, "this test finds no constants any more: {names:?}");
    for name in names {
        assert!(PAGE.contains(&format!("`{name}`")), "docs/auth.md does not mention `{name}`");
    }
}
