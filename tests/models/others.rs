//! Gemini, OpenRouter and Ollama, which speak in ways of their own.

use crate::home::Home;
use crate::mock::Mock;

#[test]
fn the_other_providers_answer_and_call_tools_as_well() {
    for (provider, path) in [("gemini", "/v1beta"), ("openrouter", "/api/v1"), ("ollama", "")] {
        let mock = Mock::start();
        let home = Home::new();
        let settings = format!(
            "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n[models.mock]\nprovider = \"{provider}\"\n\
             model = \"some-model\"\nbase_url = \"{}{path}\"\n",
            mock.url
        );
        home.configure("parlor.toml", &settings);
        for name in ["one", "two", "three"] {
            std::fs::write(home.folder().join(format!("{name}.txt")), name).unwrap();
        }
        assert_eq!(
            home.prints(&["chat", "say hello"]),
            "Hello from the mock, in several pieces.\n",
            "{provider}"
        );
        let said = home.prints(&["chat", "read three"]);
        assert_eq!(said, "All three at once.\nI have read all three.\n", "{provider}");
    }
}

#[test]
fn openrouter_is_told_to_whom_to_pass_on() {
    let mut mock = Mock::start();
    let home = Home::new();
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n[models.mock]\nprovider = \"openrouter\"\n\
         model = \"a/b\"\nbase_url = \"{}/api/v1\"\nrouting = [\"first\", \"second\"]\n",
        mock.url
    );
    home.configure("parlor.toml", &settings);
    home.prints(&["chat", "say hello"]);
    let body = mock.requests()[0]["body"].clone();
    assert_eq!(body["provider"]["order"], serde_json::json!(["first", "second"]), "{body}");
}
