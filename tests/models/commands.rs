//! `parlor models`, `parlor doctor` and the flags of `parlor chat`, as far as they are about models.

use crate::door::Door;
use crate::forms::Form;
use crate::home::Home;
use crate::mock::Mock;
use crate::server::{Deed, Server};

#[test]
fn models_are_listed_with_what_is_missing() {
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
fn what_a_provider_has_is_asked_for_and_kept() {
    let mock = Mock::start();
    let home = Form::Chat.home(&mock.url, "");
    let listed = home.json(&["models", "--all", "--json"]);
    assert!(listed.iter().any(|line| line["configured"] == false), "{listed:?}");
    assert!(home.state().join("models.json").exists());
    drop(mock);
    assert_eq!(home.json(&["models", "--all", "--json"]), listed, "it is kept");
    let output = home.run(&["models", "--refresh"]);
    assert_eq!(output.status.code(), Some(1), "and can be asked for anew");
    assert!(String::from_utf8(output.stderr).unwrap().contains("openai: "));
}

#[test]
fn a_key_alone_is_enough_for_a_chat() {
    let mut mock = Mock::start();
    let home = Home::new();
    let mut command = home.command(&["chat", "say hello"]);
    let url = format!("{}/v1", mock.url);
    let output = command.env("OPENAI_API_KEY", "s3cret").env("OPENAI_BASE_URL", url).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello from the mock, in several pieces.\n");
    assert_eq!(mock.requests()[0]["body"]["model"], "gpt-5.6");
}

#[test]
fn a_model_and_its_reasoning_are_chosen_for_a_session() {
    let mut mock = Mock::start();
    let home = Form::Chat.home(&mock.url, "");
    home.prints(&["chat", "--model", "other-model-high", "--reasoning", "high", "say hello"]);
    let body = mock.requests()[0]["body"].clone();
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&"other-model-high".into(), &"high".into()));
    let said = home.command(&["chat", "--reasoning", "hard", "x"]).output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains("off, low, medium"));
    let said = home.refuses(&["chat", "--agent", "local", "--model", "x", "hello"]);
    assert!(said.contains("no agent with a model"), "{said}");
}

#[test]
fn doctor_says_how_to_get_a_model_and_whether_it_has_one() {
    let home = Home::new();
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    for way in ["ANTHROPIC_API_KEY", "parlor login", "export OPENAI_BASE_URL=http://", "chat --model openai/"]
    {
        assert!(said.contains(way), "{way}: {said}");
    }
    // Ports may be in use on the machine of whoever tests: one screen it is all the same.
    assert!(said.lines().count() < 24, "one screen: {said}");
    let fix = said.lines().skip_while(|line| !line.contains("any of these")).take(6);
    assert!(fix.clone().count() == 6 && fix.clone().all(|line| line.chars().count() <= 80), "{said}");
    let home = Form::Anthropic.home("http://127.0.0.1:1", "");
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(said.contains("agent main asks mock"), "{said}");
}

#[test]
fn the_instructions_and_skills_of_a_folder_are_read() {
    let mut mock = Mock::start();
    let home = Form::Chat.home(&mock.url, "");
    std::fs::write(home.folder().join("AGENTS.md"), "Always use tabs.").unwrap();
    let skill = home.folder().join(".agents/skills/greet");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "Wave with the left hand.").unwrap();
    home.prints(&["chat", "say hello with $greet"]);
    let messages = mock.requests()[0]["body"]["messages"].clone();
    let (system, user) = (messages[0].to_string(), messages[1].to_string());
    assert!(system.contains("Always use tabs.") && system.contains("greet"), "{system}");
    assert!(user.contains("<skill name=") && user.contains("left hand"), "{user}");
}

#[test]
fn the_skills_of_a_loaf_user_come_along_through_that_door() {
    let form = Form::Chat;
    let answer = || Deed::Answer(form.text("Hello.") + &form.end());
    let server = Server::start(vec![answer(), answer()]);
    let home = form.home(&server.url, "");
    let skill = home.folder().join(".loaf/skills/greetings/wave");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "Wave with the left hand.").unwrap();
    let mut door = Door::open(&home);
    assert_eq!(door.ask("skills.list", "{}")["skills"][0]["name"], "wave");
    door.turn("hello with $wave");
    home.command(&["chat", "hello with $wave"]).env("HOME", home.folder()).output().unwrap();
    let told: Vec<bool> = server.bodies().iter().map(|body| body.to_string().contains("left hand")).collect();
    assert_eq!(told, [true, false], "elsewhere they are not known");
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
