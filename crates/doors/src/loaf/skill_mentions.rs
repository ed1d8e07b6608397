//! Finds the skills that a prompt mentions as `$name`.

use parlor_vocab::SkillSummary;

/// Whether a prompt may mention a skill. Otherwise the skills need not be listed.
pub(super) fn may_mention(text: &str) -> bool {
    mentions(text).next().is_some()
}

/// The names of the skills that `text` mentions, in order and each once. A name that several skills have is ambiguous
/// and matches none.
pub(super) fn mentioned_skills(text: &str, skills: &[SkillSummary]) -> Vec<String> {
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

/// The words after `$` that could be names of skills, in lower case.
fn mentions(text: &str) -> impl Iterator<Item = String> {
    text.match_indices('$').filter_map(|(index, _)| {
        let (before, rest) = text.split_at(index);
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        if before.chars().next_back().is_some_and(is_word) {
            return None;
        }
        let rest = rest.strip_prefix('$')?;
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let name = rest.split_at(end).0.trim_end_matches(['.', ':', '-', '_']);
        let is_name = !name.is_empty() && !name.chars().all(|c| c.is_ascii_digit());
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
    fn a_mention_is_a_separate_word() {
        let skills = [skill("Deploy"), skill("a.b"), skill("twice"), skill("TWICE"), skill("5")];
        assert_eq!(mentioned_skills("$deploy, then ($A.B.) and $Deploy; $twice", &skills), ["Deploy", "a.b"]);
        for text in ["x$deploy", "$$deploy", "$deployed", "costs $5", "$", "plain"] {
            assert!(mentioned_skills(text, &skills).is_empty(), "{text}");
        }
        assert!(may_mention("say $x") && !may_mention("costs $5 and $ 6"));
    }
}
