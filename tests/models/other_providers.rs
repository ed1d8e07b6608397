//! Gemini, OpenRouter and Ollama, whose APIs differ from the three formats of the other tests.

use crate::aimock::Aimock;
use crate::home::Home;

#[test]
fn other_providers_answer_and_call_tools() {
    for (provider, path) in [("gemini", "/v1beta"), ("openrouter", "/api/v1"), ("ollama", "")] {
        let mock = Aimock::start();
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
fn openrouter_receives_the_configured_routing() {
    let mut mock = Aimock::start();
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
