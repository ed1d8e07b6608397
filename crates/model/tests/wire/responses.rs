//! Calls of the responses format: each one is made once, although several frames describe it.

use parlor_model::provider::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Received, data, request};

/// A frame about an item, with `more` members.
fn item_frame(kind: &str, item: Value, more: &Value) -> String {
    let mut frame = json!({"type": format!("response.output_item.{kind}"), "item": item});
    fill(&mut frame, more);
    data(&frame)
}

/// A frame about the input of a call, with `more` members.
fn input_frame(kind: &str, more: &Value) -> String {
    let mut frame = json!({"type": format!("response.function_call_arguments.{kind}")});
    fill(&mut frame, more);
    data(&frame)
}

fn end(output: &[Value]) -> String {
    data(
        &json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}}),
    )
}

/// An item with a call of `x`, and `more` members.
fn call(arguments: impl Into<Value>, more: &Value) -> Value {
    let mut item = json!({"type": "function_call", "name": "x", "arguments": arguments.into()});
    fill(&mut item, more);
    item
}

fn fill(value: &mut Value, more: &Value) {
    for (name, member) in more.as_object().into_iter().flatten() {
        value[name] = member.clone();
    }
}

async fn receive(stream: String) -> Received {
    request(ProviderKind::OpenAiResponses, &stream).await
}

const INPUT: &str = "{\"n\":1}";

#[tokio::test]
async fn a_call_with_missing_members_is_made_once() {
    let (named, numbered, nothing) =
        (json!({"id": "f", "call_id": "a"}), json!({"output_index": 0}), json!({}));
    let unnamed = json!({"id": "f"});
    let renamed = json!({"id": "g", "call_id": "a"});
    let named_anew = json!({"id": "g", "call_id": "b"});
    // The ids of the call in the `added` frame, in the `done` frame and in the last frame; then the numbers in the
    // `added` and the `done` frame.
    let cases: [[&Value; 5]; 9] = [
        [&named, &named, &named, &numbered, &numbered],
        [&named, &named, &named, &numbered, &nothing],
        [&named, &named, &named, &nothing, &numbered],
        [&unnamed, &named, &named, &numbered, &numbered],
        [&unnamed, &named, &named, &nothing, &nothing],
        [&named, &renamed, &renamed, &numbered, &numbered],
        [&named, &named, &named_anew, &numbered, &numbered],
        [&named, &named_anew, &named_anew, &numbered, &numbered],
        [&named, &nothing, &nothing, &nothing, &nothing],
    ];
    for case in cases {
        let [begun, done, ended, first, second] = case;
        let mut more = json!({"delta": INPUT});
        fill(&mut more, first);
        let stream = item_frame("added", call("", begun), first)
            + &input_frame("delta", &more)
            + &item_frame("done", call(INPUT, done), second)
            + &end(&[call(INPUT, ended)]);
        assert_eq!(receive(stream).await.calls(), [("a", "x", INPUT)], "{case:?}");
    }
    let two = |n: u32| {
        let input_of = format!("[{n}]");
        item_frame("added", call("", &nothing), &nothing)
            + &input_frame("delta", &json!({"delta": input_of}))
            + &item_frame("done", call(input_of, &nothing), &nothing)
    };
    let stream = two(1) + &two(2) + &end(&[call("[1]", &nothing), call("[2]", &nothing)]);
    assert_eq!(receive(stream).await.calls(), [("", "x", "[1]"), ("", "x", "[2]")]);
}

#[tokio::test]
async fn calls_are_separated_by_their_item_ids() {
    let item = |n: u32| json!({"id": format!("f{n}"), "call_id": format!("a{n}")});
    let more = |n: u32, text: &str| input_frame("delta", &json!({"item_id": format!("f{n}"), "delta": text}));
    let begun: String = (0..2).map(|n| item_frame("added", call("", &item(n)), &json!({}))).collect();
    let written = more(1, "{\"n\"") + &more(0, "{\"n\":") + &more(1, ":1}") + &more(0, "0}");
    let received = receive(begun + &written + &end(&[])).await;
    assert_eq!(received.calls(), [("a0", "x", "{\"n\":0}"), ("a1", "x", "{\"n\":1}")]);
}

#[tokio::test]
async fn an_input_is_read_from_any_frame() {
    let (name, number) = (json!({"id": "f", "call_id": "a"}), json!({"output_index": 0}));
    let empty = item_frame("added", call("", &name), &number) + &item_frame("done", call("", &name), &number);
    let all = json!({"item_id": "f", "output_index": 0, "arguments": INPUT});
    let object = json!({"n": 1});
    for stream in [
        item_frame("done", call(object.clone(), &name), &number) + &end(&[]),
        end(&[call(object, &name)]),
        empty.clone() + &end(&[call(INPUT, &name)]),
        item_frame("added", call("", &name), &number) + &input_frame("done", &all) + &end(&[]),
        item_frame("added", call("", &name), &number)
            + &input_frame("done", &all)
            + &item_frame("done", call("", &name), &number)
            + &end(&[call("", &name)]),
        input_frame("done", &all) + &item_frame("done", call(INPUT, &name), &number) + &end(&[]),
    ] {
        assert_eq!(receive(stream.clone()).await.calls(), [("a", "x", INPUT)], "{stream}");
    }
}

#[tokio::test]
async fn a_call_that_is_only_in_the_last_frame_is_made_beside_others() {
    let item = |n: u32| json!({"id": format!("f{n}"), "call_id": format!("a{n}")});
    let first = item_frame("done", call("[0]", &item(0)), &json!({"output_index": 0}));
    let received = receive(first + &end(&[call("[0]", &item(0)), call("[1]", &item(1))])).await;
    assert_eq!(received.calls(), [("a0", "x", "[0]"), ("a1", "x", "[1]")]);
}
