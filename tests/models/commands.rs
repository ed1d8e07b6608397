//! `parlor models`, `parlor doctor`, and the flags of `parlor chat` that concern models.

use crate::aimock::Aimock;
use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};

#[test]
fn models_lists_what_is_missing() {
    let home = Home::new();
    let listed = home.prints(&["models"]);
    assert!(listed.contains("anthropic") && listed.contains("set ANTHROPIC_API_KEY"), "{listed}");
    let lines = home.json(&["models", "--json"]);
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["ready"] == false && line["default"] == false));
    let mut command = home.command(&["models", "--json"]);
    let output = command.env("OPENAI_API_KEY", "s3cret").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let openai = listed.lines().find(|line| line.contains("\"name\":\"openai\"")).unwrap();
    assert!(openai.contains("\"ready\":true") && openai.contains("\"default\":true"), "{openai}");
    assert!(!listed.contains("s3cret"), "{listed}");
}

#[test]
fn the_list_of_a_provider_is_loaded_once_and_cached() {
    let mock = Aimock::start();
    let home = ApiFormat::Chat.home(&mock.url, "");
    let listed = home.json(&["models", "--all", "--json"]);
    assert!(listed.iter().any(|line| line["configured"] == false), "{listed:?}");
    assert!(home.state().join("models.json").exists());
    drop(mock);
    assert_eq!(home.json(&["models", "--all", "--json"]), listed, "the list is cached");
    let output = home.run(&["models", "--refresh"]);
    assert_eq!(output.status.code(), Some(1), "--refresh asks the provider again");
    assert!(String::from_utf8(output.stderr).unwrap().contains("openai: "));
}

#[test]
fn a_key_alone_is_enough_for_a_chat() {
    let mut mock = Aimock::start();
    let home = Home::new();
    let mut command = home.command(&["chat", "say hello"]);
    let url = format!("{}/v1", mock.url);
    let output = command.env("OPENAI_API_KEY", "s3cret").env("OPENAI_BASE_URL", url).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello from the mock, in several pieces.\n");
    assert_eq!(mock.requests()[0]["body"]["model"], "gpt-5.6");
}

#[test]
fn flags_choose_the_model_and_the_reasoning_of_a_session() {
    let mut mock = Aimock::start();
    let home = ApiFormat::Chat.home(&mock.url, "");
    home.prints(&["chat", "--model", "other-model-high", "--reasoning", "high", "say hello"]);
    let body = mock.requests()[0]["body"].clone();
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&"other-model-high".into(), &"high".into()));
    let said = home.command(&["chat", "--reasoning", "hard", "x"]).output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains("off, low, medium"));
    let said = home.refuses(&["chat", "--agent", "local", "--model", "x", "hello"]);
    assert!(said.contains("has no model"), "{said}");
}

#[test]
fn doctor_says_how_to_get_a_model_and_which_one_is_used() {
    let home = Home::new();
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    for advice in
        ["ANTHROPIC_API_KEY", "parlor login", "export OPENAI_BASE_URL=http://", "chat --model openai/"]
    {
        assert!(said.contains(advice), "{advice}: {said}");
    }
    // Ports in use on the test machine add lines; the output must still fit on one screen.
    assert!(said.lines().count() < 24, "one screen: {said}");
    let fix = said.lines().skip_while(|line| !line.contains("any of these")).take(6);
    assert!(fix.clone().count() == 6 && fix.clone().all(|line| line.chars().count() <= 80), "{said}");
    let home = ApiFormat::Anthropic.home("http://127.0.0.1:1", "");
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(said.contains("agent main uses mock"), "{said}");
}

#[test]
fn instructions_and_skills_of_the_folder_are_sent_to_the_model() {
    let mut mock = Aimock::start();
    let home = ApiFormat::Chat.home(&mock.url, "");
    std::fs::write(home.folder().join("AGENTS.md"), "Always use tabs.").unwrap();
    let skill = home.folder().join(".agents/skills/greet");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "Wave with the left hand.").unwrap();
    home.prints(&["chat", "--trust", "say hello with $greet"]);
    let messages = mock.requests()[0]["body"]["messages"].clone();
    let (system, user) = (messages[0].to_string(), messages[1].to_string());
    assert!(system.contains("Always use tabs.") && system.contains("greet"), "{system}");
    assert!(user.contains("<skill name=") && user.contains("left hand"), "{user}");
}

#[test]
fn loaf_skills_are_used_only_through_the_loaf_door() {
    let api = ApiFormat::Chat;
    let answer = || Reply::Stream(api.text("Hello.") + &api.end());
    let server = ScriptedServer::start(vec![answer(), answer()]);
    let home = api.home(&server.url, "");
    let skill = home.folder().join(".loaf/skills/greetings/wave");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "Wave with the left hand.").unwrap();
    let mut loaf = LoafChild::start(&home);
    assert_eq!(loaf.request("skills.list", "{}")["skills"][0]["name"], "wave");
    loaf.run_turn("hello with $wave");
    home.command(&["chat", "hello with $wave"]).env("HOME", home.folder()).output().unwrap();
    let has_skill: Vec<bool> =
        server.bodies().iter().map(|body| body.to_string().contains("left hand")).collect();
    assert_eq!(has_skill, [true, false], "only the loaf door knows the skill");
}

#[test]
fn commands_of_an_agent_do_not_see_the_key() {
    let home = Home::new();
    let mut command = home.command(&["chat", "--agent", "local", "!env"]);
    let names = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"];
    command.envs(names.map(|name| (name, "s3cret")));
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains("PATH=") && !said.contains("s3cret"), "{said}");
}
