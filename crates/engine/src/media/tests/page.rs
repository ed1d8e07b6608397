//! Checks that `docs/media.md` names every limit and every type.

use crate::media::sniff::tests::SAMPLES;

const PAGE: &str = include_str!("../../../../../docs/media.md");

#[test]
fn the_page_names_every_limit_and_type() {
    let sources = [include_str!("../mod.rs"), include_str!("../folder.rs"), include_str!("../name.rs")];
    let constants = sources.iter().flat_map(|source| source.lines());
    let constants = constants.filter_map(|line| line.strip_prefix("pub const "));
    let mut names: Vec<&str> = constants.filter_map(|line| line.split(':').next()).collect();
    assert!(names.len() > 5, "the constants are not found any more: {names:?}");
    names.extend(SAMPLES.iter().map(|(mime, _)| *mime));
    for name in names {
        assert!(PAGE.contains(&format!("`{name}`")), "docs/media.md does not mention `{name}`");
    }
}
