//! The Rust client against the real program.

use parlor_client::synaps::{
    AssistantEvent, RpcAttachment, SynapsClient, SynapsError, SynapsLaunch, TurnEvent, TurnOutcome,
};

use crate::child::{Home, PARLOR, within_timeout};

fn launch(home: &Home) -> SynapsLaunch {
    SynapsLaunch {
        args: vec!["stdio".to_owned(), "synaps".to_owned()],
        env: vec![("PARLOR_HOME".to_owned(), home.state().display().to_string())],
        cwd: Some(home.folder().to_owned()),
        ..SynapsLaunch::new(PARLOR)
    }
}

#[tokio::test]
async fn a_whole_conversation_of_the_rust_client() {
    within_timeout("a conversation", async {
        let home = Home::new();
        let client = SynapsClient::spawn(launch(&home)).await.unwrap();
        assert_eq!(client.model(), "local");

        let (text, end) = client.prompt("/say one two").await.unwrap().text().await.unwrap();
        assert_eq!((text.as_str(), end.outcome), ("one two", TurnOutcome::Completed));
        assert_eq!(end.usage.model.as_deref(), Some("local"));
        let (text, _) = client.follow_up("!echo three").await.unwrap().text().await.unwrap();
        assert!(text.starts_with("three"), "{text}");

        let mut failing = client.prompt("/fail no luck").await.unwrap();
        assert_eq!(failing.end().await.unwrap().outcome, TurnOutcome::Failed("no luck".to_owned()));

        let mut long = client.prompt("/wait 300").await.unwrap();
        let first = long.next_event().await.unwrap();
        assert!(matches!(first, Some(TurnEvent::Assistant(AssistantEvent::TextDelta { .. }))), "{first:?}");
        assert!(client.state().await.unwrap().streaming);
        let refused = client.prompt("/say now").await.unwrap().text().await;
        assert!(matches!(refused, Err(SynapsError::Refused(text)) if text.contains("abort first")));
        long.abort().await.unwrap();
        assert_eq!(long.end().await.unwrap().outcome, TurnOutcome::Cancelled);

        let file = RpcAttachment { path: "relative".to_owned(), name: None, mime: None };
        let refused = client.prompt_with("look", vec![file]).await.unwrap().text().await;
        assert!(matches!(refused, Err(SynapsError::Refused(text)) if text.contains("absolute")));

        assert_eq!(client.set_model("m-2").await.unwrap(), "m-2");
        let stats = client.stats().await.unwrap();
        assert_eq!((stats.model.as_str(), stats.session_id.as_str()), ("m-2", client.session_id()));
        assert!(client.available_models().await.unwrap().iter().any(|model| model.model_id == "local"));
        assert!(client.tools().await.unwrap().iter().any(|tool| tool.name == "shell"));
        assert!(!client.compact().await.unwrap().is_empty());
        let messages = client.messages().await.unwrap().len();
        assert!(0 < messages && messages < 8, "{messages}");
        assert_ne!(client.new_session().await.unwrap(), client.session_id());
        assert!(client.messages().await.unwrap().is_empty());

        let status = client.shutdown().await.unwrap().expect("the client started the process");
        assert_eq!(status.code(), Some(0));
        let resumed = SynapsLaunch { resume: Some(client.session_id().to_owned()), ..launch(&home) };
        let again = SynapsClient::spawn(resumed).await.unwrap();
        assert_eq!(again.messages().await.unwrap().len(), messages);
    })
    .await;
}

#[tokio::test]
async fn resuming_a_session_that_does_not_exist_is_an_error() {
    let home = Home::new();
    let resumed = SynapsLaunch { resume: Some("nosuch".to_owned()), ..launch(&home) };
    let error = within_timeout("the end of a child", SynapsClient::spawn(resumed)).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 1"), "{error}");
}
