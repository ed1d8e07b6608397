//! A message that a provider refuses fails its own run and no later one.

use parlor_model::MAX_TRIES;
use parlor_model::provider::ProviderKind;
use parlor_vocab::{FailureCode, NamedFile};
use serde_json::Value;

use crate::api_format::{ApiFormat, assert_valid};
use crate::images::RED;
use crate::model_session::{ModelSession, answer, kind_of};
use crate::scripted_server::{Reply, ScriptedServer};

/// A word that the provider's policy forbids.
const WORD: &str = "xyzzy";

/// The refusal of a request with the word. It quotes the word, as some providers do.
fn refusal() -> Reply {
    Reply::Body(400, "application/json", r#"{"error":{"message":"the word xyzzy is against the policy"}}"#)
}

fn image() -> Vec<NamedFile> {
    vec![NamedFile { name: "red.png".to_owned(), bytes: RED.to_vec() }]
}

fn red_as_base64() -> String {
    base64_simd::STANDARD.encode_to_string(RED)
}

fn has(body: &Value, text: &str) -> bool {
    body.to_string().contains(text)
}

#[test]
fn a_refused_prompt_is_not_sent_again_also_after_a_restart() {
    for api in ApiFormat::ALL {
        let fine = || Reply::Stream(api.text("Fine.") + &api.end());
        let server = ScriptedServer::start(vec![fine(), refusal(), refusal(), fine(), fine()]);
        let home = api.home(&server.url, "");
        assert_eq!(home.prints(&["chat", "first"]), "Fine.\n", "{api:?}");
        let session = home.last_session();
        for _ in 0..2 {
            let error = home.refuses(&["chat", "--session", &session, &format!("say {WORD}")]);
            assert!(error.contains("against the policy"), "{api:?}: {error}");
        }
        for text in ["second", "third"] {
            assert_eq!(home.prints(&["chat", "--session", &session, text]), "Fine.\n", "{api:?}");
        }
        let bodies = server.bodies();
        for (body, text) in bodies[3..].iter().zip(["second", "third"]) {
            assert_valid(body);
            assert!(!has(body, WORD), "{api:?}: {body}");
            assert!(has(body, "first") && has(body, text), "{api:?}: {body}");
            assert!(has(body, "left out"), "{api:?}: the model learns that a message is missing: {body}");
        }
    }
}

#[tokio::test]
async fn an_image_that_a_text_model_refused_is_not_sent_again() {
    for kind in ProviderKind::ALL {
        let fine = || Reply::Stream(answer(kind, "Fine."));
        let refused = Reply::Body(400, "application/json", r#"{"error":{"message":"no images here"}}"#);
        // The server of llama.cpp answers with 500, which parlor tries again.
        let failing = || Reply::Status(500, "retry-after: 0".to_owned());
        let mut replies = vec![refused, fine()];
        replies.extend((0..MAX_TRIES).map(|_| failing()));
        replies.push(fine());
        let server = ScriptedServer::start(replies);
        let session = ModelSession::start(kind, &server.url).await;
        let codes = [FailureCode::ModelRefused, FailureCode::ModelUnavailable];
        for (number, code) in codes.into_iter().enumerate() {
            let failure = session.send("look at this", image()).await.unwrap_err();
            assert_eq!(failure.code, code, "{kind:?}");
            assert_eq!(session.send("then in words", Vec::new()).await.as_deref(), Ok("Fine."), "{kind:?}");
            let bodies = server.bodies();
            let image_counts: Vec<usize> =
                bodies.iter().map(|body| body.to_string().matches(&red_as_base64()).count()).collect();
            let expected: &[usize] = if number == 0 { &[1, 0] } else { &[1, 0, 1, 1, 1, 1, 1, 0] };
            assert_eq!(image_counts, expected, "{kind:?}");
        }
        session.close().await;
    }
}

#[tokio::test]
async fn images_that_another_model_answered_do_not_stop_a_text_model() {
    for kind in ProviderKind::ALL {
        let fine = || Reply::Stream(answer(kind, "Fine."));
        let refused = Reply::Body(400, "application/json", r#"{"error":{"message":"no images here"}}"#);
        let server = ScriptedServer::start(vec![fine(), refused, fine()]);
        let session = ModelSession::start(kind, &server.url).await;
        assert_eq!(session.send("look at this", image()).await.as_deref(), Ok("Fine."), "{kind:?}");
        assert_eq!(session.send("and now", Vec::new()).await.as_deref(), Ok("Fine."), "{kind:?}");
        session.close().await;
        let bodies = server.bodies();
        let with_image: Vec<bool> = bodies.iter().map(|body| has(body, &red_as_base64())).collect();
        assert_eq!(with_image, [true, true, false], "{kind:?}");
        assert!(has(&bodies[2], "look at this") && has(&bodies[2], "red.png"), "{kind:?}: {}", bodies[2]);
    }
}

#[tokio::test]
async fn a_prompt_that_an_outage_left_unanswered_is_sent_again_unless_it_is_to_blame() {
    let kind = ProviderKind::OpenAi;
    let fine = || Reply::Stream(answer(kind, "Fine."));
    let outage = || (0..MAX_TRIES).map(|_| Reply::Status(500, "retry-after: 0".to_owned()));
    let mut replies: Vec<Reply> = outage().collect();
    replies.push(fine());
    // From here on the server fails whenever it gets the word. The last request of the first run is in the plain form.
    replies.extend(outage());
    replies.extend(outage().take(1));
    replies.extend(outage());
    replies.push(fine());
    let server = ScriptedServer::start(replies);
    let session = ModelSession::start(kind, &server.url).await;
    assert!(session.send("the requirements", Vec::new()).await.is_err());
    assert_eq!(session.send("try again", Vec::new()).await.as_deref(), Ok("Fine."));
    let tries = MAX_TRIES as usize;
    assert!(has(&server.bodies()[tries], "the requirements"), "{:?}", server.bodies());
    assert!(session.send(WORD, Vec::new()).await.is_err());
    assert_eq!(session.send("something else", Vec::new()).await.as_deref(), Ok("Fine."));
    session.close().await;
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 3 * tries + 3);
    let with_word: Vec<bool> = bodies.iter().map(|body| has(body, WORD)).collect();
    assert_eq!(with_word[3 * tries + 1..], [true, false], "{with_word:?}");
    assert!(has(&bodies[3 * tries + 2], "try again"), "{bodies:?}");
}

#[tokio::test]
async fn a_result_of_a_tool_that_the_provider_refused_is_not_sent_again() {
    for api in ApiFormat::ALL {
        let fine = Reply::Stream(api.text("Fine.") + &api.end());
        let call = Reply::Stream(api.call("read_file", r#"{"path":"words.txt"}"#));
        let server = ScriptedServer::start(vec![call, refusal(), fine]);
        let session = ModelSession::start(kind_of(api), &server.url).await;
        std::fs::write(session.folder().join("words.txt"), WORD).unwrap();
        let failure = session.send("read the words", Vec::new()).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::ModelRefused, "{api:?}");
        assert_eq!(session.send("then without", Vec::new()).await.as_deref(), Ok("Fine."), "{api:?}");
        session.close().await;
        let bodies = server.bodies();
        assert_valid(&bodies[2]);
        assert!(has(&bodies[1], WORD) && !has(&bodies[2], WORD), "{api:?}: {}", bodies[2]);
        assert!(has(&bodies[2], "read the words"), "{api:?}: {}", bodies[2]);
    }
}

#[tokio::test]
async fn a_summary_and_a_fork_leave_out_refused_prompts() {
    for api in ApiFormat::ALL {
        let fine = |text: &str| Reply::Stream(api.text(text) + &api.end());
        let server = ScriptedServer::start(vec![
            fine("Fine."),
            refusal(),
            fine("In the fork."),
            fine("The summary."),
            fine("After it."),
        ]);
        let session = ModelSession::start(kind_of(api), &server.url).await;
        session.send("first", Vec::new()).await.unwrap();
        session.send(WORD, image()).await.unwrap_err();
        let session = session.fork().await;
        assert_eq!(session.send("second", Vec::new()).await.as_deref(), Ok("In the fork."), "{api:?}");
        let summary = session.compact().await;
        assert!(summary.contains("The summary."), "{api:?}: {summary}");
        assert_eq!(session.send("third", Vec::new()).await.as_deref(), Ok("After it."), "{api:?}");
        session.close().await;
        for body in &server.bodies()[2..] {
            assert!(!has(body, WORD) && !has(body, &red_as_base64()), "{api:?}: {body}");
        }
        assert!(has(&server.bodies()[3], "first"), "{api:?}");
    }
}

#[tokio::test]
async fn a_conversation_with_a_refused_prompt_can_be_summarized() {
    for api in ApiFormat::ALL {
        let fine = |text: &str| Reply::Stream(api.text(text) + &api.end());
        let server = ScriptedServer::start(vec![fine("Fine."), refusal(), fine("The summary.")]);
        let session = ModelSession::start(kind_of(api), &server.url).await;
        session.send("first", Vec::new()).await.unwrap();
        session.send(WORD, Vec::new()).await.unwrap_err();
        assert!(session.compact().await.contains("The summary."), "{api:?}");
        session.close().await;
        assert!(!has(&server.bodies()[2], WORD), "{api:?}: {}", server.bodies()[2]);
    }
}
