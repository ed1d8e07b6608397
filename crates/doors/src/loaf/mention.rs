//! Which skills a prompt mentions as `$name`.

use parlor_vocab::SkillSummary;

/// Whether a prompt may mention one: only then is it worth looking for skills.
pub(super) fn may_mention(text: &str) -> bool {
    mentions(text).next().is_some()
}

/// The names of the skills that `text` mentions, in this order, each once. One whose name several have is not
/// meant.
pub(super) fn applied(text: &str, skills: &[SkillSummary]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for mention in mentions(text) {
        let mut found = skills.iter().filter(|skill| skill.name.to_lowercase() == mention);
        if let (Some(skill), None) = (found.next(), found.next())
            && !names.contains(&skill.name)
        {
            names.push(skill.name.clone());
        }
    }
    names
}

/// What could be the name of a skill, in small letters.
fn mentions(text: &str) -> impl Iterator<Item = String> {
    text.match_indices('$').filter_map(|(place, _)| {
        let (before, rest) = text.split_at(place);
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
        if before.chars().next_back().is_some_and(is_word) {
            return None;
        }
        let rest = rest.strip_prefix('$')?;
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '_' | ':' | '-');
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let name = rest.split_at(end).0.trim_end_matches(['.', ':', '-', '_']);
        let is_name = !name.is_empty() && !name.chars().all(|letter| letter.is_ascii_digit());
        is_name.then(|| name.to_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str) -> SkillSummary {
        SkillSummary { name: name.to_owned(), description: String::new(), file: name.into() }
    }

    #[test]
    fn a_mention_is_a_word_of_its_own() {
        let skills = [skill("Deploy"), skill("a.b"), skill("twice"), skill("TWICE"), skill("5")];
        assert_eq!(applied("$deploy, then ($A.B.) and $Deploy; $twice", &skills), ["Deploy", "a.b"]);
        for text in ["x$deploy", "$$deploy", "$deployed", "costs $5", "$", "plain"] {
            assert!(applied(text, &skills).is_empty(), "{text}");
        }
        assert!(may_mention("say $x") && !may_mention("costs $5 and $ 6"));
    }
}
